//! Order, partitions and tails, as they are asked for.

use serde_json::{Value, json};

use super::place::{Place, ROWS};

/// The rows of an epoch that no rank serves, or that are served twice.
fn rows(report: &Value, epoch: usize, what: &str) -> Vec<u64> {
    let rows = &report["epochs"][epoch][what];
    let ids: Vec<u64> = rows["row_ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
    assert_eq!(rows["count"], json!(ids.len()));
    ids
}

fn write_order(place: &Place, name: &str, ids: impl IntoIterator<Item = u64>) {
    let bytes: Vec<u8> = ids.into_iter().flat_map(u64::to_le_bytes).collect();
    std::fs::write(place.path(name), bytes).unwrap();
}

#[test]
fn every_order_in_every_partition_serves_every_row() {
    let place = Place::with_index();
    write_order(&place, "order.bin", (0..ROWS as u64).rev());
    let mut digests = Vec::new();
    for order in [
        "--order sequential",
        "--order torch",
        "--order blocks(1)",
        "--order blocks:8",
        "--order blocks:all",
        "--order scored:id,folds=3",
        "--order file:order.bin",
    ] {
        for partition in ["", ",contiguous", ",paired", ",paired,contiguous"] {
            let options = format!("{order}{partition} --world-size 4 --batch-size 32 --epoch 1");
            let report = place.json(&format!("epoch train.rdx {options}"));
            assert_eq!(
                report["coverage"],
                json!({"served": 1004, "distinct": ROWS, "repeated": 1, "missing": 0}),
                "{options}"
            );
            digests.push(report["ranks"][0]["row_ids_digest"].to_string());
        }
    }
    let count = digests.len();
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), count);
}

#[test]
fn an_order_file_is_served_as_it_is() {
    let place = Place::with_index();
    write_order(&place, "all.bin", 0..ROWS as u64);
    let digest = |options: &str| {
        let report =
            place.json(&format!("epoch train.rdx --world-size 2 --batch-size 32 --epochs 2 --tail uneven {options}"));
        report["ranks"].as_array().unwrap().iter().map(|rank| rank["row_ids_digest"].to_string()).collect::<Vec<_>>()
    };
    assert_eq!(digest("--order file:all.bin"), digest("--order sequential"));
    write_order(&place, "some.bin", [7, 7, 1002, 0]);
    let report = place.json("epoch train.rdx --world-size 2 --batch-size 2 --order file:some.bin");
    assert_eq!(report["coverage"], json!({"served": 4, "distinct": 3, "repeated": 1, "missing": ROWS - 3}));
}

#[test]
fn what_is_dropped_or_repeated_is_told_and_changes_with_the_epoch() {
    let place = Place::with_index();
    let run = |options: &str| place.json(&format!("epoch train.rdx --world-size 4 --epochs 3 {options}"));
    for (tail, what, other, count) in [("drop", "dropped", "repeated", 3), ("wrap", "repeated", "dropped", 1)] {
        let report = run(&format!("--order sequential --tail {tail}"));
        let told: Vec<Vec<u64>> = (0..3).map(|epoch| rows(&report, epoch, what)).collect();
        assert!(told.iter().all(|rows| rows.len() == count) && rows(&report, 0, other).is_empty());
        assert!(told[0] != told[1] && told[1] != told[2] && told[0] != told[2], "{told:?}");
        // One rank alone says the same of all.
        let alone = run(&format!("--tail {tail} --rank 1"));
        assert_eq!(rows(&alone, 2, what), rows(&run(&format!("--tail {tail}")), 2, what));
    }
    let report = run("--tail drop");
    assert_eq!(rows(&report, 2, "dropped").len() as u64, report["coverage"]["missing"].as_u64().unwrap());
}

#[test]
fn impossible_orders_are_refused() {
    let place = Place::with_index();
    for order in ["blocks(0)", "blocks", "blocks(x)", "shuffled"] {
        place.run(&format!("epoch train.rdx --order {order}")).exits_with_usage().complains(&[order, "blocks(8)"]);
    }
    place.run("epoch train.rdx --order file:none.bin").fails().complains(&["none.bin"]);
    std::fs::write(place.path("half.bin"), [0; 12]).unwrap();
    place.run("epoch train.rdx --order file:half.bin").fails().complains(&["half.bin", "12 bytes"]);
    write_order(&place, "beyond.bin", [5, ROWS as u64]);
    place
        .run("epoch train.rdx --order file:beyond.bin")
        .fails()
        .complains(&["beyond.bin", "row id 1003 at position 1"]);
}
