//! Each command doing what it is for, and being called wrongly.

use std::io::Read;
use std::process::Stdio;

use serde_json::json;

use super::place::{FILES, Place, ROWS, rows_from};

#[test]
fn build_says_what_it_made() {
    let place = Place::with_data();
    let built = place.json("build data -o train.rdx");
    assert_eq!((&built["rows"], &built["files"]), (&json!(ROWS), &json!(FILES.len())));
    assert_eq!(built["row_groups"], json!(FILES.iter().map(|rows| rows.div_ceil(97)).sum::<usize>()));
    assert_eq!(built["index_bytes"], json!(place.path("train.rdx").metadata().unwrap().len()));
    let text = place.run("build data/*.parquet -o again.rdx").succeeds().without_a_word().text();
    assert!(text.contains("again.rdx") && text.contains("1,003"), "{text}");
    assert_eq!(place.names(), ["again.rdx", "data", "train.rdx"]);
}

#[test]
fn build_keeps_an_index_unless_told_to_replace_it() {
    let place = Place::with_index();
    let before = std::fs::read(place.path("train.rdx")).unwrap();
    place.run("build data/part-0.parquet -o train.rdx").fails().complains(&["train.rdx", "exists", "`overwrite`"]);
    assert_eq!(std::fs::read(place.path("train.rdx")).unwrap(), before);
    place.run("build data/part-0.parquet -o train.rdx --overwrite").succeeds();
    assert_eq!(place.json("info train.rdx")["rows"], json!(FILES[0]));
}

#[test]
fn an_update_keeps_what_has_not_changed_and_adds_the_rest() {
    let place = Place::with_index();
    place.write("data/part-9.parquet", &rows_from(ROWS, 10));
    let updated = place.json("build data -o train.rdx --update");
    assert_eq!((&updated["kept_files"], &updated["rows"]), (&json!(FILES.len()), &json!(ROWS + 10)));
    place.run("build data -o train.rdx --update --overwrite").exits_with_usage();
}

#[test]
fn info_says_what_is_in_an_index() {
    let place = Place::with_index();
    let info = place.json("info train.rdx");
    assert_eq!((&info["rows"], &info["source_rows"], &info["files"]), (&json!(ROWS), &json!(ROWS), &json!(5)));
    assert_eq!(info["index_bytes"], json!(place.path("train.rdx").metadata().unwrap().len()));
    let decoded = info["decoded_bytes"].as_u64().unwrap();
    assert!((ROWS as u64 * 24..ROWS as u64 * 100).contains(&decoded), "{decoded}");
    assert_eq!(info["root"], json!({"relative_to": "index", "path": "data"}));
    assert_eq!(info["build"]["schema"], json!("strict"));
    let names: Vec<&str> =
        info["schema"].as_array().unwrap().iter().map(|field| field["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["id", "label", "score", "time", "tags"]);
    let text = place.run("info train.rdx").succeeds().without_a_word().text();
    assert!(text.contains("1,003") && text.contains("score"), "{text}");
}

#[test]
fn folders_named_after_values_become_columns() {
    let place = Place::new();
    place.write("data/year=2023/a.parquet", &rows_from(0, 3));
    place.write("data/year=2024/a.parquet", &rows_from(3, 3));
    place.run("build data -o train.rdx").succeeds();
    assert_eq!(place.json("info train.rdx")["partition_columns"], json!(["year"]));
    let rows = place.run("get train.rdx 2 3 --columns id,year").succeeds();
    assert_eq!(rows.json(), json!([{"id": 2, "year": 2023}, {"id": 3, "year": 2024}]));
    place.run("build data -o plain.rdx --no-partitions").succeeds();
    assert_eq!(place.json("info plain.rdx")["partition_columns"], json!([]));
}

#[test]
fn verify_looks_as_closely_as_it_is_asked_to() {
    let place = Place::with_index();
    for (level, files, rows) in [("off", 0, 0), ("stat", 5, 0), ("footer", 5, 0), ("deep", 5, ROWS)] {
        let report = place.json(&format!("verify train.rdx --check {level}"));
        assert_eq!((&report["ok"], &report["files"], &report["rows"]), (&json!(true), &json!(files), &json!(rows)));
        place.run(&format!("verify train.rdx --check {level}")).succeeds().without_a_word();
    }
}

#[test]
fn verify_lists_every_file_that_has_changed() {
    let place = Place::with_index();
    place.write("data/part-0.parquet", &rows_from(0, 3));
    std::fs::remove_file(place.path("data/part-3.parquet")).unwrap();
    let words = ["part-0.parquet", "part-3.parquet", "build the index again"];
    let failed = place.run("verify train.rdx").fails().complains(&words);
    assert_eq!(failed.stderr.lines().count(), 2, "{}", failed.stderr);
    let report = place.run("verify train.rdx --json").json();
    assert_eq!(report["ok"], json!(false));
    assert_eq!(report["problems"][1]["file"], json!("part-3.parquet"));
    place.run("verify train.rdx --check off").succeeds();
}

#[test]
fn info_names_the_file_the_row_group_and_the_row() {
    let place = Place::with_index();
    let places = place.json("info train.rdx --row 1002 0 400..402");
    let expected = json!([
        {"row_id": 1002, "file": "part-4.parquet", "row_group": 1, "row": 1},
        {"row_id": 0, "file": "part-0.parquet", "row_group": 0, "row": 0},
        {"row_id": 400, "file": "part-1.parquet", "row_group": 0, "row": 0},
        {"row_id": 401, "file": "part-3.parquet", "row_group": 0, "row": 0},
    ]);
    assert_eq!(places, expected);
    assert!(place.run("info train.rdx --row 1002").succeeds().text().contains("part-4.parquet"));
}

#[test]
fn an_index_and_its_data_are_found_wherever_they_were_moved_together() {
    let place = Place::with_index();
    std::fs::create_dir(place.path("moved")).unwrap();
    std::fs::rename(place.path("data"), place.path("moved/data")).unwrap();
    place.run("get train.rdx 0").fails().complains(&["part-0.parquet"]);
    place.run("get train.rdx 0 --root moved/data").succeeds();
    place.run("verify train.rdx --root moved/data").succeeds();
    std::fs::rename(place.path("train.rdx"), place.path("moved/train.rdx")).unwrap();
    place.run("get moved/train.rdx 0").succeeds();
}

#[test]
fn the_demo_runs_from_nothing_and_leaves_nothing() {
    let place = Place::new();
    let text = place.run("demo").succeeds().without_a_word().text();
    for words in ["each of 200,000 rows was served exactly once", "no row was left out", "What to try next"] {
        assert!(text.contains(words), "{text}");
    }
    assert_eq!(place.names(), Vec::<String>::new());
}

#[test]
fn the_demo_can_be_kept() {
    let place = Place::new();
    place.run("demo --keep here").succeeds();
    assert_eq!(place.json("info here/train.rdx")["rows"], json!(200_000));
    place.run("demo --keep here").fails().complains(&["here", "exists"]);
}

#[test]
fn a_call_that_cannot_be_understood_exits_with_2() {
    let place = Place::with_index();
    for arguments in [
        "",
        "bulid",
        "build data",
        "build -o x.rdx",
        "build data -o x.rdx --schema loose",
        "verify train.rdx --check all",
        "get train.rdx",
        "get train.rdx one",
        "get train.rdx 5..5",
        "epoch train.rdx --memory lots",
        "epoch train.rdx --tail cut",
        "epoch train.rdx --rank first",
        "epoch train.rdx --epochs 0",
    ] {
        let outcome = place.run(arguments).exits_with_usage();
        assert!(outcome.stderr.contains("--help") || outcome.stderr.contains("Usage"), "{}", outcome.stderr);
    }
    assert_eq!(place.names(), ["data", "train.rdx"]);
}

#[test]
fn help_and_version_are_results() {
    let place = Place::new();
    assert!(place.run("--version").succeeds().without_a_word().text().starts_with("rowdex "));
    for command in [
        "",
        "build ",
        "info ",
        "get ",
        "select ",
        "epoch ",
        "estimate ",
        "trace ",
        "rewrite ",
        "serve ",
        "verify ",
        "demo ",
    ] {
        assert!(place.run(&format!("{command}--help")).succeeds().text().contains("Usage: rowdex"));
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let place = Place::with_index();
    let mut command = place.command("get train.rdx 0..1003 --columns id,score");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(0), ""));
}
