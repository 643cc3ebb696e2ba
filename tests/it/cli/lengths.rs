//! How long rows are: noted with a build, or from a list, and shown.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use serde_json::json;

use super::place::{Place, ROWS};

#[test]
fn lengths_are_noted_by_columns_and_from_a_list_and_shown() {
    let place = Place::with_data();
    let list = |name: &str, rows: usize| {
        let ids: ArrayRef = Arc::new(UInt64Array::from_iter_values(0..rows as u64));
        let lengths: ArrayRef = Arc::new(UInt64Array::from_iter_values((0..rows as u64).map(|row| row % 9)));
        place.write(name, &RecordBatch::try_from_iter([("row_id", ids), ("length", lengths)]).unwrap());
    };
    list("words.parquet", ROWS);
    place.run("build data -o train.rdx --lengths tags,id").succeeds();
    // An index that is there gets more of them.
    place.run("build data -o train.rdx --update --lengths words=words.parquet").succeeds();
    let told = place.json("info train.rdx")["lengths"].clone();
    let names: Vec<_> = told.as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
    assert_eq!(names, [json!("id"), json!("tags"), json!("words")]);
    assert_eq!((&told[0]["sum"], &told[2]["longest"]), (&json!((ROWS - 1) * ROWS / 2), &json!(8)));
    let quantiles: Vec<_> = told[2]["quantiles"].as_array().unwrap().iter().map(|one| one["length"].clone()).collect();
    assert_eq!(quantiles, [0, 0, 2, 4, 6, 8, 8].map(|length| json!(length)));
    let text = place.run("info train.rdx").succeeds().text();
    assert!(text.contains("tags") && text.contains("median"), "{text}");
    place.run("build data -o no.rdx --lengths label").fails().complains(&["label", "Utf8", "lists or of integers"]);
    list("few.parquet", 1);
    place.run("build data -o no.rdx --lengths few=few.parquet").fails().complains(&["few.parquet", "row id 1"]);
}
