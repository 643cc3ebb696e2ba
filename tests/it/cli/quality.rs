//! Order side by side.

use std::fs;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, DictionaryArray, Float64Array, RecordBatch, StringArray};
use arrow::datatypes::Int32Type;
use serde_json::{Value, json};

use super::place::{Place, rows_from};

const LABELLED: usize = 4000;

/// 4,000 rows in 42 row groups, sorted by a label with five values.
fn labelled() -> Place {
    let place = Place::new();
    let label = |row: usize| format!("<class {}>", row * 5 / LABELLED);
    let rows = || 0..LABELLED;
    let columns: [(&str, ArrayRef); 4] = [
        ("label", Arc::new(rows().map(|row| Some(label(row))).collect::<StringArray>())),
        ("half", Arc::new(rows().map(|row| Some(row < LABELLED / 2)).collect::<BooleanArray>())),
        ("score", Arc::new(rows().map(|row| Some((row / 100) as f64)).collect::<Float64Array>())),
        (
            "coded",
            Arc::new(
                rows()
                    .map(|row| Some(label(row)))
                    .collect::<Vec<_>>()
                    .iter()
                    .map(|text| text.as_deref())
                    .collect::<DictionaryArray<Int32Type>>(),
            ),
        ),
    ];
    place.write(
        "data/sorted.parquet",
        &RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap(),
    );
    place.run("build data -o train.rdx").succeeds();
    place
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} should be a number"))
}

#[test]
fn sorted_labels_show_in_a_sequential_order_and_vanish_in_a_global_one() {
    let place = labelled();
    let report =
        place.json("quality train.rdx --order sequential --order global --label label --batch-size 40 --seed 3");
    let [sequential, global] = [0, 1].map(|order| &report["orders"][order]);
    assert_eq!((&sequential["order"], &global["order"]), (&json!("sequential"), &json!("global")));
    assert_eq!((&sequential["displacement"], &sequential["batches"]), (&json!(0.0), &json!(100)));
    assert!((number(&global["displacement"]) - 1.0 / 3.0).abs() < 0.02, "{global}");
    assert!(number(&sequential["row_correlation"]) > 0.9 && number(&global["row_correlation"]).abs() < 0.4, "{report}");

    let [sorted, mixed] = [&sequential["labels"], &global["labels"]];
    assert_eq!((&sorted["classes"], &sorted["entropy"], &sorted["distinct"]), (&json!(5), &json!(0.0), &json!(1.0)));
    assert!((number(&sorted["whole_entropy"]) - 5_f64.log2()).abs() < 1e-9);
    assert!(number(&sorted["chi_square"]) > 30.0 && number(&sorted["correlation"]) > 0.9, "{sorted}");
    assert!((number(&mixed["entropy"]) - number(&mixed["expected_entropy"])).abs() < 0.02, "{mixed}");
    assert!((number(&mixed["chi_square"]) - 1.0).abs() < 0.5 && number(&mixed["correlation"]).abs() < 0.4, "{mixed}");
    assert!((number(&global["groups"]["distinct"]) - number(&global["groups"]["expected_distinct"])).abs() < 1.0);
    assert!(number(&sequential["groups"]["distinct"]) < 2.0);
}

#[test]
fn seed_and_epoch_choose_the_shuffle() {
    let place = labelled();
    let run = |options: &str| place.json(&format!("quality train.rdx --order global {options}"))["orders"].clone();
    assert_eq!(run(""), run("--seed 0 --epoch 0"));
    assert!(run("") != run("--seed 1") && run("") != run("--epoch 1"));
}

#[test]
fn labels_are_the_classes_that_count_has() {
    let place = labelled();
    let classes = |column: &str| {
        let report = place.json(&format!("quality train.rdx --label {column} --order global"));
        report["orders"][0]["labels"]["classes"].as_u64().unwrap()
    };
    assert_eq!(["label", "half", "coded"].map(classes), [5, 2, 5]);
    let refused = |arguments: &str| place.run(arguments).fails().complains(&["score", "integers, booleans"]).stderr;
    assert_eq!(refused("quality train.rdx --label score"), refused("count train.rdx --by score"));
}

#[test]
fn the_table_has_a_line_for_each_order_and_labels_only_if_asked() {
    let place = labelled();
    let text = place.run("quality train.rdx").succeeds().without_a_word().text();
    assert!(text.starts_with("4,000 rows in 42 row groups, batches of 256\n"), "{text}");
    assert!(text.lines().any(|line| line.trim_start().starts_with("sequential")), "{text}");
    assert!(text.lines().any(|line| line.trim_start().starts_with("global")) && !text.contains("entropy"), "{text}");
    let text = place.run("quality train.rdx --label label --order global").succeeds().text();
    assert!(text.contains("entropy") && !text.contains("sequential"), "{text}");
}

#[test]
fn a_picture_shows_every_order_with_points_and_bars() {
    let place = labelled();
    place.run("quality train.rdx --label label --plot both.svg").succeeds();
    let both = fs::read_to_string(place.path("both.svg")).unwrap();
    assert!(both.starts_with("<svg") && both.trim_end().ends_with("</svg>"));
    for text in ["sequential", "global", "position", "share of the batch", "&lt;class 0&gt;"] {
        assert!(both.contains(text), "{text}");
    }
    place.run("quality train.rdx --order global --plot one.svg").succeeds();
    let one = fs::read_to_string(place.path("one.svg")).unwrap();
    let count = |svg: &str, what: &str| svg.matches(what).count();
    assert_eq!((count(&both, "<circle"), count(&one, "<circle")), (2 * 2000, 2000));
    // The same bytes again, but not over a file that is there unless told to.
    place.run("quality train.rdx --order global --plot one.svg").fails().complains(&["one.svg", "exists", "--force"]);
    place.run("quality train.rdx --order global --plot one.svg --force").succeeds();
    assert_eq!(fs::read_to_string(place.path("one.svg")).unwrap(), one);
    assert_eq!(place.names(), ["both.svg", "data", "one.svg", "train.rdx"]);
}

#[test]
fn small_and_empty_datasets_have_a_quality_too() {
    let place = Place::new();
    for rows in [0, 1, 3] {
        place.write("data/few.parquet", &rows_from(1, rows));
        place.run("build data -o train.rdx --force").succeeds();
        let report = place.json("quality train.rdx --label id --plot few.svg --force");
        assert_eq!(report["orders"][1]["row_correlation"], json!(null));
        assert_eq!(report["orders"][1]["batches"], json!(u64::from(rows > 0)));
        place.run("quality train.rdx").succeeds();
    }
}

#[test]
fn what_cannot_be_measured_is_refused_and_no_picture_is_left() {
    let place = Place::with_index();
    let before = place.names();
    let refused = |arguments: &str, words: &[&str]| {
        place.run(&format!("quality train.rdx {arguments}")).fails().complains(words);
        assert_eq!(place.names(), before, "{arguments}");
    };
    refused("--label nothing --plot a.svg", &["nothing"]);
    refused("--label label --plot a.svg", &["part-0.parquet", "\"label\"", "row id 0", "no label"]);
    refused("--label tags", &["tags"]);
    refused("--batch-size 0 --plot a.svg", &["batch size"]);
    refused("--plot a.png", &["a.png", ".svg"]);
    refused("--plot nowhere/a.svg", &["nowhere/a.svg"]);
    place.run("quality train.rdx --order shuffled").exits_with_usage().complains(&["shuffled", "global"]);
    place.run("quality").exits_with_usage();
    place.run("quality train.rdx --force").exits_with_usage();
    place.run("quality nowhere.rdx").fails().complains(&["nowhere.rdx"]);
}
