//! Proofs of whole runs.

use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

use super::place::{Place, ROWS, rows_from};

fn numbers(list: &Value, name: &str) -> Vec<u64> {
    list.as_array().unwrap().iter().map(|entry| entry[name].as_u64().unwrap()).collect()
}

#[test]
fn every_world_tail_and_order_holds_its_promises() {
    let place = Place::with_index();
    let rows = ROWS as u64;
    for order in ["global", "sequential"] {
        for ranks in [1, 3, 4, 17] {
            for (tail, served) in
                [("wrap", rows.div_ceil(ranks) * ranks), ("drop", rows / ranks * ranks), ("uneven", rows)]
            {
                let report = place.json(&format!(
                    "verify train.rdx --shards --order {order} --world-size {ranks} --tail {tail} --batch-size 25 \
                     --epochs 2 --seed 4"
                ));
                assert_eq!(numbers(&report["epochs"], "served"), [served; 2]);
                assert_eq!(numbers(&report["epochs"], "pads"), [served.saturating_sub(rows); 2]);
                assert_eq!(numbers(&report["epochs"], "dropped"), [rows.saturating_sub(served); 2]);
                assert_eq!(report["ranks"].as_array().unwrap().len() as u64, ranks);
                assert_eq!(numbers(&report["ranks"], "samples").iter().sum::<u64>(), served);
            }
        }
    }
}

#[test]
fn the_digest_of_a_rank_is_that_of_the_ids_it_gets() {
    let place = Place::with_index();
    let options = "train.rdx --world-size 3 --seed 9 --epoch 1 --epochs 2";
    let report = place.json(&format!("verify {options} --shards --batch-size 10"));
    let mut digests = Vec::new();
    for rank in 0..3 {
        let ids = place.run(&format!("trace {options} --rank {rank}")).succeeds().text();
        let bytes: Vec<u8> = ids.lines().flat_map(|line| line.parse::<u64>().unwrap().to_le_bytes()).collect();
        digests.push(xxh3_64(&bytes));
        assert_eq!(report["ranks"][rank]["row_ids_digest"], json!(format!("{:016x}", digests[rank])));
    }
    let bytes: Vec<u8> = digests.iter().flat_map(|digest| digest.to_le_bytes()).collect();
    assert_eq!(report["row_ids_digest"], json!(format!("{:016x}", xxh3_64(&bytes))));
    // The rows per step do not change what a rank is dealt, and another seed does.
    assert_eq!(
        report["row_ids_digest"],
        place.json(&format!("verify {options} --shards --batch-size 7"))["row_ids_digest"]
    );
    assert_ne!(
        report["row_ids_digest"],
        place.json(&format!("verify {options} --shards --order sequential"))["row_ids_digest"]
    );
}

#[test]
fn replica_groups_are_dealt_the_same_and_count_once() {
    let place = Place::with_index();
    for layout in ["consecutive", "strided"] {
        let report = place.json(&format!("verify train.rdx --shards --world-size 6 --replication 2,{layout}"));
        assert_eq!((&report["shards"], &report["epochs"][0]["served"]), (&json!(3), &json!(1005)));
        let digest = |rank: usize| &report["ranks"][rank]["row_ids_digest"];
        let other = if layout == "strided" { 3 } else { 1 };
        assert!(digest(0) == digest(other) && digest(0) != digest(2));
    }
}

#[test]
fn fewer_rows_than_ranks_and_none_at_all_are_proven_too() {
    let place = Place::new();
    place.write("few/0.parquet", &rows_from(0, 3));
    place.run("build few -o few.rdx").succeeds();
    let wrap = place.json("verify few.rdx --shards --world-size 10 --batch-size 2");
    assert_eq!(numbers(&wrap["epochs"], "pads"), [7]);
    let drop = place.json("verify few.rdx --shards --world-size 10 --tail drop");
    assert_eq!(numbers(&drop["epochs"], "dropped"), [3]);
    assert_eq!(drop["steps"], json!(0));
    place.write("data/empty.parquet", &rows_from(0, 0));
    place.run("build data -o train.rdx").succeeds();
    place.run("verify train.rdx --shards").succeeds();
}

#[test]
fn what_cannot_be_proven_is_refused() {
    let place = Place::with_index();
    place.run("verify train.rdx --world-size 4").exits_with_usage().complains(&["--world-size", "--shards"]);
    place.run("verify train.rdx --shards --world-size 0").exits_with_usage().complains(&["--world-size"]);
    place.run("verify train.rdx --shards --world-size 4 --replication 3").exits_with_usage().complains(&["divide"]);
    place.run("verify train.rdx --shards --world-size 4 --tail error").fails().complains(&["1003"]);
    place.run("verify train.rdx --shards --batch-size 0").exits_with_usage().complains(&["--batch-size"]);
    place.run("verify nowhere.rdx --shards").fails().complains(&["nowhere.rdx"]);
}
