//! `rowdex lengths`, and what other commands know of lengths.

use std::fs;

use serde_json::json;

use super::place::{Place, ROWS, rows_from};

/// Items of the lists of a row, as `rows_from` makes them.
fn tags(row: usize) -> usize {
    if row.is_multiple_of(5) { 0 } else { row % 4 }
}

#[test]
fn lengths_are_noted_by_the_build_or_later_and_info_draws_them() {
    let place = Place::with_data();
    place.run("build data -o train.rdx --lengths tags,id").succeeds();
    place.run("build data -o later.rdx").succeeds();
    place.run("lengths later.rdx --column id --threads 1").succeeds();
    let noted = place.json("lengths later.rdx --column tags");
    assert_eq!(fs::read(place.path("train.rdx")).unwrap(), fs::read(place.path("later.rdx")).unwrap());
    let sum: usize = (0..ROWS).map(tags).sum();
    let found = &noted["lengths"][1];
    assert_eq!((&found["name"], &found["of"], &found["sum"]), (&json!("tags"), &json!("items"), &json!(sum)));
    assert_eq!(found["longest"], json!(3));
    let rows: u64 = found["histogram"].as_array().unwrap().iter().map(|bar| bar["rows"].as_u64().unwrap()).sum();
    assert_eq!(rows, ROWS as u64);
    assert_eq!(place.json("info train.rdx")["lengths"], noted["lengths"]);
    let text = place.run("info train.rdx").succeeds().text();
    assert!(
        text.contains("lengths by tags: items of lists") && text.contains("█") && text.contains("median"),
        "{text}"
    );
    place.run("verify train.rdx").succeeds();
    place.run("lengths train.rdx --remove tags --remove id").succeeds();
    assert!(place.run("lengths train.rdx").succeeds().text().contains("no lengths are noted"));
}

#[test]
fn updates_and_views_have_lengths() {
    let place = Place::with_data();
    place.run("build data -o train.rdx --lengths tags").succeeds();
    place.write("data/part-9.parquet", &rows_from(ROWS, 10));
    place.run("build data -o train.rdx --update").succeeds();
    let sum: usize = (0..ROWS + 10).map(tags).sum();
    assert_eq!(place.json("info train.rdx")["lengths"][0]["sum"], json!(sum));
    fs::write(place.path("rows.txt"), "7..100\n").unwrap();
    place.run("select train.rdx --rows rows.txt -o view.rdx").succeeds();
    let sum: usize = (7..100).map(tags).sum();
    assert_eq!(place.json("info view.rdx")["lengths"][0]["sum"], json!(sum));
}

#[test]
fn lengths_that_are_given_or_cannot_be_are_told_apart() {
    let place = Place::with_index();
    let before = fs::read(place.path("train.rdx")).unwrap();
    place.run("lengths train.rdx --column label").fails().complains(&["label", "Utf8", "lists or of integers"]);
    place.run("lengths train.rdx --column nothing").fails().complains(&["nothing"]);
    place.run("lengths train.rdx --remove tags").fails().complains(&["tags", "no lengths"]);
    place.run("lengths train.rdx --name words").exits_with_usage();
    for nothing in ["lengths train.rdx --root data", "lengths train.rdx --threads 2", "count train.rdx --threads 2"] {
        place.run(nothing).exits_with_usage().complains(&["leave them out"]);
    }
    fs::write(place.path("words.csv"), "row_id,length\n5,7\n").unwrap();
    place.run("lengths train.rdx --from words.csv --name words").fails().complains(&[
        "words.csv",
        "row id 0",
        "length",
    ]);
    assert_eq!(fs::read(place.path("train.rdx")).unwrap(), before);
    let list: String = (0..ROWS).rev().map(|row| format!("{row},{}\n", row * 100)).collect();
    fs::write(place.path("words.csv"), format!("row_id,length\n{list}")).unwrap();
    let noted = place.json("lengths train.rdx --from words.csv --name words");
    assert_eq!((&noted["lengths"][0]["of"], &noted["lengths"][0]["longest"]), (&json!("given"), &json!(100_200)));
}
