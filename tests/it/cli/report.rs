//! The page about an index.

use std::fs;

use rowdex::index::synthetic;
use serde_json::Value;

use super::place::{Place, ROWS};

fn numbers(values: &Value, name: &str) -> Vec<f64> {
    values.as_array().unwrap().iter().map(|one| one[name].as_f64().unwrap()).collect()
}

#[test]
fn a_report_tells_what_other_commands_tell() {
    let place = Place::with_index();
    let report = place.json("report train.rdx -o report.html --memory 20% --batch-size 50 --world-size 7");
    let told = &report["indexes"][0];
    let info = place.json("info train.rdx");
    for name in ["rows", "files", "row_groups", "index_bytes", "decoded_bytes", "data_bytes", "footers"] {
        assert_eq!(told["facts"][name], info[name], "{name}");
    }
    let costs = &told["costs"];
    let predicted = place.json("predict train.rdx --memory 20% --batch-size 50");
    for name in ["memory", "passes", "bytes_read", "peak_held_bytes"] {
        assert_eq!(costs["here"][name], predicted[name], "{name}");
    }
    let shards = &costs["shards"][0];
    let proven = place.json("prove train.rdx --batch-size 50 --world-size 7");
    assert_eq!(shards["steps"], proven["steps"]);
    assert_eq!(shards["samples"], ROWS.div_ceil(7));
    assert_eq!(shards["pads"], ROWS.next_multiple_of(7) - ROWS);
    let memories = numbers(&costs["curve"], "memory");
    let passes = numbers(&costs["curve"], "passes");
    assert!(memories.is_sorted() && memories.len() > 5, "{costs}");
    assert!(passes.first() > passes.last(), "{costs}");
    let page = fs::read_to_string(place.path("report.html")).unwrap();
    for words in
        ["<!DOCTYPE html>", "prefers-color-scheme: dark", "@media print", "Memory and passes", "<svg", "</html>"]
    {
        assert!(page.contains(words), "{words}");
    }
    for part in ["<script", "http://", "https://", "url("] {
        let elsewhere = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!elsewhere.contains(part), "{part}");
    }
}

#[test]
fn columns_take_what_the_footers_say() {
    let place = Place::with_index();
    let told = place.json("report train.rdx -o report.html");
    let columns = told["indexes"][0]["columns"].clone();
    assert_eq!(columns["sampled_files"], 5);
    let mut stored = std::collections::BTreeMap::<String, i64>::new();
    for entry in fs::read_dir(place.path("data")).unwrap() {
        let file = fs::File::open(entry.unwrap().path()).unwrap();
        let reader = parquet::file::serialized_reader::SerializedFileReader::new(file).unwrap();
        let metadata = parquet::file::reader::FileReader::metadata(&reader).clone();
        for chunk in metadata.row_groups().iter().flat_map(|group| group.columns()) {
            *stored.entry(chunk.column_path().string()).or_default() += chunk.compressed_size();
        }
    }
    let found = columns["columns"].as_array().unwrap();
    assert_eq!(found.len(), stored.len());
    for column in found {
        assert_eq!(column["stored_bytes"], stored[column["name"].as_str().unwrap()], "{column}");
    }
    assert!(numbers(&columns["columns"], "stored_bytes").is_sorted_by(|a, b| a >= b));
}

#[test]
fn an_index_of_a_million_row_groups_has_a_small_page() {
    let place = Place::new();
    fs::write(place.path("large.rdx"), synthetic::index(1_000_000, 1000, None).unwrap()).unwrap();
    let told = place.json("report large.rdx -o report.html");
    assert_eq!(told["indexes"][0]["facts"]["row_groups"], 1_000_000);
    // Nobody walks a thousand million rows to draw a page.
    let costs = &told["indexes"][0]["costs"];
    let law = [25.0, 10.0, 5.0, 50.0 / 15.0, 2.0, 50.0 / 35.0, 1.0, 0.5, 0.0];
    let passes = numbers(&costs["curve"], "passes");
    assert!(
        passes.len() == law.len() && passes.iter().zip(law).all(|(said, law)| (said - law).abs() < 1e-3),
        "{costs}"
    );
    assert_eq!(costs["here"]["by_law"], true);
    assert_eq!((&costs["quality"], &costs["shards"][0]["alone"]), (&Value::Null, &Value::Null));
    assert_eq!(costs["shards"][1]["samples"], told["indexes"][0]["facts"]["rows"].as_u64().unwrap().div_ceil(8));
    let told = place.json("report large.rdx -o report.html --force --order sequential");
    assert_eq!(told["indexes"][0]["costs"]["here"], Value::Null);
    assert!(fs::metadata(place.path("report.html")).unwrap().len() < 1_000_000);
}

#[test]
fn what_a_name_says_is_text_on_the_page() {
    let place = Place::with_index();
    fs::rename(place.path("train.rdx"), place.path("<b>&.rdx")).unwrap();
    place.run("report <b>&.rdx -o report.html").succeeds();
    let page = fs::read_to_string(place.path("report.html")).unwrap();
    assert!(page.contains("<h1>&lt;b&gt;&amp;.rdx</h1>") && !page.contains("<b>"));
}

#[test]
fn several_indexes_have_a_part_each_and_an_empty_one_has_one_too() {
    let place = Place::with_index();
    fs::write(place.path("empty.rdx"), synthetic::index(1, 0, None).unwrap()).unwrap();
    let told = place.json("report train.rdx empty.rdx -o report.html");
    assert_eq!(told["indexes"][1]["odd"][0]["what"], "there are no rows");
    assert_eq!(fs::read_to_string(place.path("report.html")).unwrap().matches("<h1>").count(), 2);
}

#[test]
fn a_page_is_named_html_and_takes_the_place_of_none_unless_asked_to() {
    let place = Place::with_index();
    place.run("report train.rdx -o report.txt").fails().complains(&["report.txt", ".html at the end"]);
    place.run("report train.rdx -o report.html").succeeds();
    place.run("report train.rdx -o report.html").fails().complains(&["report.html", "--force"]);
    place.run("report train.rdx -o report.html --force").succeeds();
    place.run("report missing.rdx -o other.html").fails().complains(&["missing.rdx"]);
    assert!(!place.path("other.html").exists());
}
