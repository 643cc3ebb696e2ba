//! What the ranks are served, whatever their number, threads and memory.

use serde_json::{Value, json};

use super::place::{Place, ROWS};

const NAMES: [&str; 18] = [
    "rows",
    "world_size",
    "steps",
    "ranks",
    "coverage",
    "decodes",
    "passes",
    "bytes_read",
    "requests",
    "bytes_fetched",
    "disk_cache",
    "seconds",
    "rows_per_second",
    "peak_held_bytes",
    "substituted",
    "lost_row_groups",
    "state",
    "epochs",
];

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn sum(report: &Value, name: &str) -> u64 {
    report["ranks"].as_array().unwrap().iter().map(|rank| rank[name].as_u64().unwrap()).sum()
}

/// Of which rows each rank was served in which order, and of their values.
fn digests(report: &Value) -> Vec<[&str; 2]> {
    let ranks = report["ranks"].as_array().unwrap().iter();
    ranks.map(|rank| ["row_ids_digest", "rows_digest"].map(|name| rank[name].as_str().unwrap())).collect()
}

#[test]
fn all_ranks_take_the_same_steps_and_miss_nothing() {
    let place = Place::with_index();
    for ranks in [1, 3, 4, 7] {
        let report = place.json(&format!("epoch train.rdx --digest --world-size {ranks} --batch-size 32 --seed 7"));
        let samples = ROWS.div_ceil(ranks);
        let steps = samples.div_ceil(32);
        assert_eq!((&report["rows"], &report["steps"]), (&json!(ROWS), &json!(steps)));
        assert_eq!(report["ranks"].as_array().unwrap().len(), ranks);
        for rank in report["ranks"].as_array().unwrap() {
            assert_eq!((&rank["steps"], &rank["samples"]), (&json!(steps), &json!(samples)));
        }
        let (served, pads) = (samples * ranks, samples * ranks - ROWS);
        assert_eq!((sum(&report, "samples"), sum(&report, "pads")), (served as u64, pads as u64));
        let coverage = json!({"served": served, "distinct": ROWS, "repeated": pads, "missing": 0});
        assert_eq!(report["coverage"], coverage);
    }
}

#[test]
fn the_report_has_its_names_and_adds_up() {
    let place = Place::with_index();
    let report = place.json("epoch train.rdx --digest --epochs 3 --epoch 5 --memory 20% --world-size 2");
    assert_eq!(keys(&report), NAMES);
    assert_eq!(keys(&report["ranks"][0]), ["rank", "steps", "samples", "pads", "rows_digest", "row_ids_digest"]);
    assert_eq!(keys(&report["coverage"]), ["served", "distinct", "repeated", "missing"]);
    let epochs = report["epochs"].as_array().unwrap();
    assert_eq!(
        keys(&epochs[0]),
        ["epoch", "dropped", "repeated", "decodes", "passes", "bytes_read", "seconds", "rows_per_second"]
    );
    assert_eq!(epochs.iter().map(|epoch| epoch["epoch"].as_u64().unwrap()).collect::<Vec<_>>(), [5, 6, 7]);
    let decodes: u64 = epochs.iter().map(|epoch| epoch["decodes"].as_u64().unwrap()).sum();
    assert_eq!(report["decodes"], json!(decodes));
    let read: u64 = epochs.iter().map(|epoch| epoch["bytes_read"].as_u64().unwrap()).sum();
    assert_eq!(report["bytes_read"], json!(read));
    let groups = place.json("info train.rdx")["row_groups"].as_u64().unwrap();
    assert_eq!(report["passes"], json!(decodes as f64 / groups as f64));
    assert!(report["rows_per_second"].as_f64().unwrap() > 0.0);
    assert!(report["bytes_read"].as_u64().unwrap() > 0);
}

#[test]
fn an_empty_dataset_has_epochs_without_steps() {
    let place = Place::new();
    place.write("data/empty.parquet", &super::place::rows_from(0, 0));
    place.run("build data -o train.rdx").succeeds();
    let report = place.json("epoch train.rdx --digest --world-size 3");
    assert_eq!((&report["steps"], &report["passes"]), (&json!(0), &json!(0.0)));
    place.run("epoch train.rdx --digest").succeeds();
    place.run("get train.rdx 0").fails().complains(&["train.rdx", "no rows"]);
}

#[test]
fn a_run_that_was_stopped_goes_on_from_its_state() {
    let place = Place::with_index();
    let run = |options: &str| place.json(&format!("epoch train.rdx --digest --batch-size 20 {options}"));
    let first = run("--world-size 2 --steps 30 --epochs 2");
    // 26 steps make an epoch of 502 samples, so it stopped in the second.
    assert_eq!((&first["steps"], first["epochs"].as_array().unwrap().len()), (&json!(4), 2));
    let state = first["state"].as_str().unwrap();
    assert!(state.contains(":1:160:"), "{state}");
    let rest = run(&format!("--world-size 3 --resume {state}"));
    assert_eq!(rest["epochs"][0]["epoch"], json!(1));
    let pads = sum(&rest, "pads");
    assert_eq!(rest["coverage"]["distinct"], json!(ROWS - 160));
    assert_eq!(sum(&rest, "samples"), (ROWS - 160) as u64 + pads);
    let again = run(&format!("--world-size 3 --resume {state} --threads 1 --memory 10%"));
    assert_eq!(digests(&again), digests(&rest));
    let whole = run("--epochs 2");
    assert!(whole["state"].as_str().unwrap().contains(":2:0:"));
    let other = format!("epoch train.rdx --digest --seed 9 --resume {}", whole["state"].as_str().unwrap());
    place.run(&other).fails().complains(&["fingerprint", "seed"]);
    place.run("epoch train.rdx --digest --resume nonsense").exits_with_usage().complains(&["state"]);
    place.run("epoch train.rdx --digest --steps 0").exits_with_usage();
}
