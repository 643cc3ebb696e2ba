//! `select`: views, what they serve, what they say of themselves, and what is refused.

use std::fs;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use serde_json::json;

use super::place::{Place, ROWS};

/// How many rows an index serves.
fn rows(place: &Place, index: &str) -> u64 {
    place.json(&format!("info {index}"))["rows"].as_u64().unwrap()
}

#[test]
fn a_view_is_an_index_for_every_command_and_its_shards_are_exactly_equal() {
    let place = Place::with_index();
    place.list("skip.txt", [0, 905]);
    let report = place.json("select train.rdx --skip skip.txt -o clean.rdx");
    let left = ROWS as u64 - 2;
    assert_eq!((&report["rows"], &report["base_rows"]), (&json!(left), &json!(ROWS)));
    assert_eq!(rows(&place, "clean.rdx"), left);
    place.run("get clean.rdx 0").succeeds();
    place.run("verify clean.rdx --shards --world-size 3 --batch-size 16").succeeds();
    let epoch = place.json("epoch clean.rdx --world-size 3 --batch-size 16 --tail uneven");
    assert_eq!(epoch["coverage"]["distinct"], left);
    assert_eq!(place.json("verify clean.rdx --check deep")["ok"], true);
}

#[test]
fn lists_are_read_and_repeats_are_told() {
    let place = Place::with_index();
    place.list("list.txt", [1002, 7, 7, 1002]);
    let twice = place.run("select train.rdx --rows list.txt -o some.rdx").succeeds();
    twice.complains(&["2 rows are listed more than once"]);
    assert_eq!(rows(&place, "some.rdx"), 2);
    // Of a view, rows that it does not serve are passed over, and told.
    let files: ArrayRef = Arc::new(StringArray::from(vec!["part-0.parquet", "./data/../data/part-0.parquet"]));
    let numbers: ArrayRef = Arc::new(UInt64Array::from(vec![7, 8]));
    place.write("list.parquet", &RecordBatch::try_from_iter([("file", files), ("row_in_file", numbers)]).unwrap());
    let report = place.run("select some.rdx --rows list.parquet -o one.rdx").succeeds();
    report.complains(&["1 row is listed that the base does not serve"]);
    assert_eq!(rows(&place, "one.rdx"), 1);
}

#[test]
fn views_are_combined_sampled_and_split() {
    let place = Place::with_index();
    place.list("low.txt", 0..600);
    place.list("high.txt", 400..1003);
    place.run("select train.rdx --rows low.txt -o low.rdx").succeeds();
    place.run("select train.rdx --rows high.txt -o high.rdx").succeeds();
    let made = |options: &str| {
        place.run(&format!("select {options} -o x.rdx --overwrite")).succeeds();
        rows(&place, "x.rdx")
    };
    assert_eq!(made("low.rdx --intersect high.rdx"), 200);
    assert_eq!(made("low.rdx --exclude high.rdx"), 400);
    assert_eq!(made("low.rdx --union high.rdx"), 1003);
    assert_eq!(made("train.rdx --intersect low.rdx --intersect high.rdx"), 200);
    assert_eq!(made("low.rdx --split train") + made("low.rdx --split validation"), 600);
    let sample = made("train.rdx --sample 25%");
    assert!((180..320).contains(&sample), "{sample}");
    assert_eq!(made("low.rdx --sample 0.25") + made("train.rdx --exclude low.rdx --sample 25%"), sample);
}

#[test]
fn info_shows_what_a_view_is_of_and_verify_notices_another_base() {
    let place = Place::with_index();
    place.list("skip.txt", 0..10);
    place.run("select train.rdx --skip skip.txt --sample 50%,seed=3 -o view.rdx").succeeds();
    let info = place.json("info view.rdx");
    let choices = &info["build"]["view"]["choices"];
    assert_eq!((&choices[0]["skip"], &choices[0]["rows"]), (&json!("skip.txt"), &json!(993)));
    assert_eq!((&choices[1]["sample"], &choices[1]["seed"]), (&json!(0.5), &json!(3)));
    assert!(place.run("info view.rdx").succeeds().text().contains("skip.txt"));
    assert_eq!(info["build"]["view"]["base_fingerprint"], place.json("info train.rdx")["fingerprint"]);
    assert_eq!(place.json("verify view.rdx")["base"], "same");
    assert!(place.json("verify train.rdx")["base"].is_null());

    // The view is whole without its base, and says nothing of one that is gone.
    fs::rename(place.path("train.rdx"), place.path("kept.rdx")).unwrap();
    assert_eq!(place.json("verify view.rdx")["base"], "not there");
    place.run("select kept.rdx --skip skip.txt -o train.rdx").succeeds();
    let verified = place.run("verify view.rdx");
    assert_eq!(verified.text(), "");
    verified.fails().complains(&["train.rdx", "not the index that the view was made of"]);

    place.write("data/part-4.parquet", &super::place::rows_from(0, 99));
    let changed = place.run("verify view.rdx").fails();
    changed.complains(&["part-4.parquet"]);
}

#[test]
fn choices_that_cannot_be_are_refused_in_one_line_and_leave_nothing() {
    let place = Place::with_index();
    place.write("other/a.parquet", &super::place::rows_from(0, 50));
    place.run("build other -o other.rdx").succeeds();
    let cases = [
        ("x.parquet", "no Parquet", &["x.parquet", "cannot read the list"][..]),
        ("x.txt", "1003", &["row id 1003", "1003 rows"]),
    ];
    for (name, list, words) in cases {
        fs::write(place.path(name), list).unwrap();
        for option in ["--rows", "--skip"] {
            let outcome = place.run(&format!("select train.rdx {option} {name} -o no.rdx")).fails();
            let outcome = outcome.complains(words).complains(&[name]);
            assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
        }
        fs::remove_file(place.path(name)).unwrap();
    }
    for (options, words) in [
        ("--intersect other.rdx", &["other.rdx", "not a view of the same files"][..]),
        ("--union nothing.rdx", &["nothing.rdx"]),
        ("--rows nothing.txt", &["nothing.txt"]),
        ("--exclude train.rdx", &["none of 1003 rows"]),
        ("--sample 0", &["none of 1003 rows"]),
    ] {
        place.run(&format!("select train.rdx {options} -o no.rdx")).fails().complains(words);
    }
    place.run("select train.rdx --sample 101% -o no.rdx").exits_with_usage().complains(&["101%", "1% or 0.01"]);
    place.run("select train.rdx").exits_with_usage();
    place.run("select other.rdx --sample 50% -o train.rdx").fails().complains(&["exists already"]);
    place
        .run("select train.rdx --sample 50% -o ./train.rdx --overwrite")
        .fails()
        .complains(&["would replace", "another path"]);
    assert!(!place.names().iter().any(|name| name.contains("no.rdx")), "{:?}", place.names());
}

#[test]
#[cfg(feature = "filter")]
fn a_condition_chooses_rows_and_the_view_says_which() {
    let place = Place::with_index();
    let report = place.json("select train.rdx --where id>=100 --where id<200 -o some.rdx");
    assert_eq!(report["rows"], 100);
    let filter = &report["filter"];
    assert_eq!(filter["columns"], json!(["id"]));
    let (none, all) = (filter["row_groups_none"].as_u64().unwrap(), filter["row_groups_all"].as_u64().unwrap());
    assert!(none >= 9 && filter["row_groups"].as_u64().unwrap() > none + all, "{filter}");
    assert_eq!(filter["rows_evaluated"], 97 * 2);
    let choices = place.json("info some.rdx")["build"]["view"]["choices"].clone();
    assert_eq!((&choices[0]["where"], &choices[1]["where"]), (&json!("id>=100"), &json!("id<200")));
    assert_eq!((&choices[1]["evaluated"], &choices[1]["rows"]), (&json!(194), &json!(100)));
    let got = place.run("get some.rdx 0 99").succeeds().text();
    assert!(got.contains("\"id\":100,") && got.contains("\"id\":199,"), "{got}");
    // What other choices leave is all that is read.
    place.list("few.txt", 150..153);
    let report = place.json("select train.rdx --rows few.txt --where id%2=0 -o few.rdx");
    assert_eq!((&report["rows"], &report["filter"]["rows_evaluated"]), (&json!(2), &json!(3)));
    place.run("select train.rdx --where id<10 -o low.rdx").succeeds();
    place.run("verify some.rdx --shards --world-size 3 --batch-size 16").succeeds();
    let epoch = place.json("epoch train.rdx --only low.rdx --world-size 2 --batch-size 2");
    assert_eq!(epoch["coverage"]["distinct"], 10);
}

#[test]
#[cfg(feature = "filter")]
fn a_condition_that_is_none_leaves_no_file() {
    let place = Place::with_index();
    let names = place.names();
    for (condition, said) in [("idd>3", "did you mean \"id\"?"), ("id>", "parsed"), ("id<0", "none of 1003 rows")] {
        place.run(&format!("select train.rdx --where {condition} -o x.rdx")).fails().complains(&[said]);
    }
    assert_eq!(place.names(), names);
}

#[test]
#[cfg(not(feature = "filter"))]
fn a_program_without_conditions_says_how_to_get_them() {
    let place = Place::with_index();
    let refused = place.run("select train.rdx --where id>3 -o x.rdx").exits_with_usage();
    refused.complains(&["--features full"]);
}

#[test]
#[cfg(feature = "filter")]
fn rows_are_counted_by_condition_and_by_class() {
    let place = Place::with_index();
    let counted = place.json("select train.rdx --dry-run --where id<100");
    assert_eq!((&counted["rows"], &counted["base_rows"]), (&json!(100), &json!(ROWS)));
    place.run("select train.rdx --where id<100 -o low.rdx").succeeds();
    let counts = place.json("info low.rdx --by id");
    assert_eq!((&counts["rows"], counts["counts"].as_array().unwrap().len()), (&json!(100), 100));
    assert_eq!(counts["counts"][7], json!({"value": 7, "rows": 1, "share": 0.01}));
    place.run("select low.rdx --where id<2 -o two.rdx").succeeds();
    let text = place.run("info two.rdx --by id").succeeds().text();
    assert_eq!(text, "rows  2\n\ncounts\nvalue  rows  share\n    0     1  0.500\n    1     1  0.500\n");
    place.run("info train.rdx --by idd").fails().complains(&["did you mean \"id\"?"]);
}
