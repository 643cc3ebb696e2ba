//! What is predicted, beside what then happens.

use std::fs::{self, File};

use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use serde_json::Value;

use super::place::{Place, rows_from};

const ROWS: usize = 80_000;
const GROUPS: usize = 40;

/// Forty row groups in four files, with pages of a hundred rows.
fn place() -> Place {
    let place = Place::new();
    fs::create_dir(place.path("data")).unwrap();
    let rows = ROWS / 4;
    for file in 0..4 {
        let batch = rows_from(file * rows, rows);
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(ROWS / GROUPS))
            .set_data_page_row_count_limit(100)
            .set_write_batch_size(100)
            .build();
        let out = File::create(place.path(format!("data/{file}.parquet"))).unwrap();
        let mut writer = ArrowWriter::try_new(out, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }
    place.run("build data -o train.rdx").succeeds();
    place
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

/// Within a tenth, or so little that it does not matter.
#[track_caller]
fn near(told: &Value, real: f64, little: f64, what: &str) {
    let told = number(told);
    assert!((told - real).abs() <= real * 0.1 + little, "{what}: told {told}, was {real}");
}

#[test]
fn what_is_predicted_comes_true() {
    let place = place();
    let info = place.json("info train.rdx");
    let group = number(&info["data_bytes"]) / GROUPS as f64;
    let decoded = number(&info["decoded_bytes"]) / GROUPS as f64;
    for (memory, options) in [
        ("10%", ""),
        ("10%", "--columns id,score"),
        ("25%", "--world-size 3 --batch-size 64"),
        ("50%", "--threads 0"),
        ("80%", ""),
        ("150%", "--columns id,label,score,time"),
        ("25%", "--order sequential"),
    ] {
        let what = format!("--memory {memory} {options}");
        let ranks = if options.contains("world-size") { 3 } else { 1 };
        // A prediction does not depend on the number of threads.
        let told =
            place.json(&format!("estimate train.rdx {} --ranks-per-node {ranks}", what.replace("--threads 0", "")));
        let real = place.json(&format!("epoch train.rdx --digest {what} --epochs 4"));
        let steady = |name: &str| {
            let epochs = &real["epochs"].as_array().unwrap()[1..3];
            epochs.iter().map(|epoch| number(&epoch[name])).sum::<f64>() / 2.0
        };
        // With half a megabyte, what is known of rows before any was measured is a good part of the memory.
        near(&told["decodes"], steady("decodes"), 8.0, &format!("{what}: decodes"));
        near(&told["passes"], steady("passes"), 0.2, &format!("{what}: passes"));
        // On a busy machine threads read more or less of the next epoch before one ends.
        near(&told["bytes_read"], steady("bytes_read"), 4.0 * group, &format!("{what}: bytes_read"));
        // In order, a chunk of a group is in memory until its last row was served. Where all groups are brought in to
        // stay, threads on a busy machine are ahead of batches by some extractions: two threads have two under way, and
        // five planned.
        let more = match memory {
            _ if options.contains("sequential") => 2.0 * decoded,
            "150%" => 7.0 * number(&told["peak_held_bytes"]) / GROUPS as f64,
            // A group that is brought in is more than a tenth of so little memory.
            _ => decoded,
        };
        near(&told["peak_held_bytes"], number(&real["peak_held_bytes"]), more, &format!("{what}: peak_held_bytes"));
    }
}

#[test]
fn a_prediction_needs_no_data_file() {
    let place = Place::with_index();
    let told = place.json("estimate train.rdx --memory 20%");
    fs::remove_dir_all(place.path("data")).unwrap();
    assert_eq!(place.json("estimate train.rdx --memory 20%"), told);
    assert!(number(&told["bytes_read"]) > 0.0);
}

#[test]
fn what_helps_is_told_in_a_line_unless_an_epoch_takes_about_a_pass() {
    let place = place();
    let text = place.run("estimate train.rdx --memory 2%").succeeds().text();
    assert!(text.contains("helps") && text.contains("--memory "), "{text}");
    for options in ["--memory 75%", "--memory 5% --order sequential"] {
        let told = place.json(&format!("estimate train.rdx {options}"));
        assert!(number(&told["passes"]) < 2.0 && told["helps"].is_null(), "{told}");
    }
}

#[test]
fn a_prediction_has_a_table_that_falls_with_the_memory() {
    let place = Place::with_index();
    let told = place.json("estimate train.rdx --memory 50% --world-size 2 --epochs 3");
    let table = told["table"].as_array().unwrap();
    assert_eq!(table.len(), 6);
    for pair in table.windows(2) {
        assert!(number(&pair[0]["memory"]) < number(&pair[1]["memory"]));
        assert!(number(&pair[0]["passes"]) >= number(&pair[1]["passes"]));
    }
    assert_eq!((&table[3]["decodes"], &table[3]["bytes_read"]), (&told["decodes"], &told["bytes_read"]));
    let all = number(&told["first_epoch"]["decodes"]) + 2.0 * number(&told["decodes"]);
    assert_eq!(number(&told["all_epochs"]["decodes"]), all);
    place.run("estimate train.rdx --world-size 2 --ranks-per-node 3").exits_with_usage().complains(&[
        "--ranks-per-node 3",
        "--world-size of 2",
        "1 to 2",
    ]);
    place.run("estimate train.rdx --ranks-per-node 0").exits_with_usage();
}

#[test]
fn a_prediction_is_of_the_rows_and_the_order_that_are_asked_for() {
    let place = Place::with_index();
    place.list("skip.txt", 0..103);
    place.run("select train.rdx --skip skip.txt -o some.rdx").succeeds();
    std::fs::write(place.path("order.bin"), [5_u64, 900, 3].map(u64::to_le_bytes).concat()).unwrap();
    let told = |options: &str| {
        let told = place.json(&format!("estimate train.rdx {options}"));
        (told["order"].as_str().unwrap().to_owned(), number(&told["rows"]), number(&told["steps"]))
    };
    assert_eq!(told("--batch-size 1"), ("global".to_owned(), 1003.0, 1003.0));
    assert_eq!(told("--batch-size 1 --only some.rdx --order blocks:2"), ("blocks(2)".to_owned(), 900.0, 900.0));
    assert_eq!(told("--batch-size 1 --order file:order.bin"), ("explicit (order.bin)".to_owned(), 1003.0, 3.0));
    assert_eq!(told("--batch-size 1 --order weighted:score,size=50"), ("weighted (score)".to_owned(), 1003.0, 50.0));
    assert_eq!(told("--batch-size 1 --world-size 4 --tail drop").2, 250.0);
    let text = place.run("estimate train.rdx --epoch 3 --epochs 2").succeeds().text();
    assert!(text.contains("1,003") && text.contains("all epochs\n"), "{text}");
}
