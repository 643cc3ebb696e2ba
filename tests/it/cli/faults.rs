//! Data that cannot be read, in the middle of a run.

use std::fs::{self, File};

use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::{Value, json};

use super::place::Place;

/// Inverts every byte of one row group of a file, which then looks as old as before.
fn damage(place: &Place, file: &str, row_group: usize) {
    let path = place.path(file);
    let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    for column in reader.metadata().row_group(row_group).columns() {
        let (start, length) = column.byte_range();
        bytes[start as usize..(start + length) as usize].iter_mut().for_each(|byte| *byte = !*byte);
    }
    fs::write(&path, bytes).unwrap();
    File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
}

fn digests(report: &Value) -> Vec<&Value> {
    report["ranks"].as_array().unwrap().iter().map(|rank| &rank["rows_digest"]).collect()
}

#[test]
fn a_damaged_row_group_ends_the_run_unless_its_rows_are_substituted() {
    let place = Place::with_index();
    let sound = place.json("epoch train.rdx --digest --world-size 3 --tail uneven --batch-size 16");
    // Rows 594 to 690: the third row group of the fourth file.
    damage(&place, "data/part-3.parquet", 2);
    place.run("epoch train.rdx --digest").fails().complains(&["part-3.parquet", "row group 2"]);

    let run = |options: &str| {
        let outcome = place.run(&format!(
            "epoch train.rdx --digest --world-size 3 --tail uneven --batch-size 16 --epochs 2 --on-error substitute \
             --json {options}"
        ));
        outcome.succeeds().complains(&["part-3.parquet", "row group 2", "194 rows served in the place of"]).json()
    };
    let report = run("");
    for name in ["steps", "rows", "world_size"] {
        assert_eq!(report[name], sound[name]);
    }
    assert_eq!(report["coverage"]["served"], sound["coverage"]["served"]);
    assert_eq!(report["coverage"]["missing"], json!(97));
    assert_eq!(report["substituted"], json!(2 * 97));
    let lost = report["lost_row_groups"].as_array().unwrap();
    assert_eq!(lost.len(), 1);
    assert!(lost[0]["error"].as_str().unwrap().contains("part-3.parquet"));
    for options in
        ["--threads 0", "--threads 4", "--memory 10%", "--memory 10% --threads 0", "--memory 50% --threads 1"]
    {
        assert_eq!(digests(&run(options)), digests(&report), "{options}");
    }
    let other =
        "epoch train.rdx --digest --world-size 3 --tail uneven --batch-size 16 --epochs 2 --on-error substitute:1";
    assert_ne!(digests(&place.json(other)), digests(&report));
}
