//! How long rows are: noted with a build, or from a list, and shown.

use std::fs;

use serde_json::json;

use super::place::{Place, ROWS};

#[test]
fn lengths_are_noted_by_columns_and_from_a_list_and_shown() {
    let place = Place::with_data();
    let list: String = (0..ROWS).map(|row| format!("{row},{}\n", row % 9)).collect();
    fs::write(place.path("words.csv"), format!("row_id,length\n{list}")).unwrap();
    place.run("build data -o train.rdx --lengths tags,id").succeeds();
    // An index that is there gets more of them.
    place.run("build data -o train.rdx --update --lengths words=words.csv").succeeds();
    let told = place.json("info train.rdx")["lengths"].clone();
    let names: Vec<_> = told.as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
    assert_eq!(names, [json!("id"), json!("tags"), json!("words")]);
    assert_eq!((&told[0]["sum"], &told[2]["longest"]), (&json!((ROWS - 1) * ROWS / 2), &json!(8)));
    let text = place.run("info train.rdx").succeeds().text();
    assert!(text.contains("lengths by tags: items of lists") && text.contains("median"), "{text}");
    place.run("build data -o no.rdx --lengths label").fails().complains(&["label", "Utf8", "lists or of integers"]);
    fs::write(place.path("few.csv"), "row_id,length\n0,1\n").unwrap();
    place.run("build data -o no.rdx --lengths few=few.csv").fails().complains(&["few.csv", "row id 1"]);
}
