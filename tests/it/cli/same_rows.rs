//! Digests of rows, and the proof that two datasets have the same.

use std::fs;
use std::process::Stdio;

use serde_json::json;

use super::place::{Place, ROWS, rows_from};

/// The rows of [`Place::with_index`] in other files below `other`, in another order.
fn rearranged(place: &Place) {
    for (number, (first, rows)) in [(700, 303), (0, 300), (300, 400)].into_iter().enumerate() {
        place.write(&format!("other/{number}.parquet"), &rows_from(first, rows));
    }
}

#[test]
fn rows_are_the_same_in_other_files_and_another_order() {
    let place = Place::with_index();
    rearranged(&place);
    let report = place.json("verify train.rdx --same-rows other");
    assert_eq!((&report["a"]["rows"], &report["b"]["rows"]), (&json!(ROWS), &json!(ROWS)));
    assert_eq!(report["a"]["rows_digest"], report["b"]["rows_digest"]);
    assert_eq!(report["promises"].as_array().unwrap().len(), 1);
    assert_eq!(report["left_out"], json!([]));
    let text = place.run("verify data --same-rows other --threads 1").succeeds().text();
    assert!(text.contains("every row of data is once in other"), "{text}");
    assert!(text.contains(report["a"]["rows_digest"].as_str().unwrap()), "{text}");
    // Row i of the data is row order(i) of the other, but in no order that is asked for here.
    place.run("verify data --same-rows other --order sequential").fails();
    place.run("verify data --same-rows data --order sequential").succeeds();
}

#[test]
fn data_is_compared_under_every_name_that_an_index_is_built_of() {
    let place = Place::with_index();
    fs::create_dir(place.path("all")).unwrap();
    place.write("all/one.pq", &rows_from(0, ROWS));
    place.write("two.PARQ", &rows_from(0, ROWS));
    for data in ["all", "all/", "all/one.pq", "two.PARQ", "data/part-[0-9].parq*"] {
        place.run(&format!("verify train.rdx --same-rows {data}")).succeeds();
    }
    fs::write(place.path("broken.rdx"), "no index").unwrap();
    place.run("verify train.rdx --same-rows broken.rdx").fails().complains(&["broken.rdx", "index"]);
    for missing in ["trian.rdx", "no/folder", "none.parquet"] {
        place.run(&format!("verify train.rdx --same-rows {missing}")).fails().complains(&[missing]);
    }
}

#[test]
fn rows_that_differ_are_named() {
    let place = Place::with_index();
    rearranged(&place);
    place.write("other/1.parquet", &rows_from(1, 300));
    let told = place.run("verify train.rdx --same-rows other --json").json();
    assert_eq!((&told["ok"], &told["problem"]["kind"]), (&json!(false), &json!("Stale")));
    let outcome = place.run("verify train.rdx --same-rows other").fails();
    outcome.complains(&["the rows of other are not those of train.rdx"]);
    place.write("other/1.parquet", &rows_from(0, 299));
    let outcome = place.run("verify train.rdx --same-rows other").fails();
    outcome.complains(&["other has 1002 rows, and train.rdx 1003"]);
    let outcome = place.run("verify train.rdx --same-rows data --seed 7").fails();
    outcome.complains(&["not in the order", "part-0.parquet, row group 0", "row id of 0..1"]);
}

#[test]
fn a_proof_that_fails_says_so_though_nobody_reads_it() {
    let place = Place::with_index();
    place.write("other/0.parquet", &rows_from(1, ROWS));
    fs::write(place.path("data/part-0.parquet"), "no longer Parquet").unwrap();
    for command in ["verify other --same-rows data/part-4.parquet --json", "verify train.rdx --json"] {
        let mut child = place.command(command).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(1), "{command}");
    }
}

#[test]
fn an_option_of_another_question_is_refused() {
    let place = Place::with_index();
    for (options, said) in [
        ("data --same-rows data --world-size 2", "--world-size"),
        ("data --same-rows data --check deep", "--check"),
        ("train.rdx --rows --seed 2", "--seed"),
        ("train.rdx --columns id", "--columns"),
    ] {
        place.run(&format!("verify {options}")).exits_with_usage().complains(&[said]);
    }
    place.run("verify data --same-rows nowhere.rdx").fails().complains(&["nowhere.rdx"]);
}

#[test]
fn the_digest_of_the_rows_is_that_of_an_epoch_and_of_their_values_alone() {
    let place = Place::with_index();
    rearranged(&place);
    place.run("build other -o other.rdx").succeeds();
    let told = place.json("verify train.rdx --rows");
    assert_eq!(
        (&told["rows"], &told["rows_digest"]),
        (&json!(ROWS), &place.json("verify other.rdx --rows")["rows_digest"])
    );
    assert_eq!(place.json("epoch train.rdx --digest")["ranks"][0]["rows_digest"], told["rows_digest"]);
    assert_eq!(place.json("verify train.rdx --rows --columns id")["columns"], json!([{"name": "id", "kind": "int"}]));
    let text = place.run("verify train.rdx --rows").succeeds().text();
    assert!(text.contains(told["rows_digest"].as_str().unwrap()), "{text}");
}
