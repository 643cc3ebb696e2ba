//! Rows of a step, and steps of a row.

use serde_json::{Value, json};

use super::place::{Place, ROWS};

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap()
}

#[test]
fn a_step_has_the_rows_that_its_ranks_are_dealt_at_the_places_that_info_finds() {
    let place = Place::with_index();
    let of_ids = "train.rdx --world-size 4 --seed 2 --epoch 6";
    let options = format!("{of_ids} --batch-size 20");
    let ids: Vec<Vec<u64>> = (0..4)
        .map(|rank| {
            let text = place.run(&format!("trace {of_ids} --rank {rank}")).succeeds().text();
            text.lines().map(|line| line.parse().unwrap()).collect()
        })
        .collect();
    for step in [0, 7, 12] {
        let rows = place.json(&format!("trace {options} --step {step}"));
        let mut expected = Vec::new();
        for (rank, ids) in ids.iter().enumerate() {
            for (slot, row) in ids.iter().skip(step * 20).take(20).enumerate() {
                let position = rank + 4 * (step * 20 + slot);
                expected.push((rank as u64, slot as u64, *row, position >= ROWS, position as u64));
            }
        }
        let got: Vec<_> = rows.as_array().unwrap().iter().collect();
        assert_eq!(got.len(), expected.len());
        for (at, (rank, slot, row, pad, position)) in got.into_iter().zip(expected) {
            assert_eq!((number(at, "epoch"), number(at, "step")), (6, step as u64));
            assert_eq!((number(at, "rank"), number(at, "slot"), number(at, "row_id")), (rank, slot, row));
            assert_eq!((at["pad"].as_bool().unwrap(), number(at, "position")), (pad, position));
            let located = place.json(&format!("info train.rdx --row {row}"));
            for name in ["row_id", "file", "row_group", "row"] {
                assert_eq!(at[name], located[0][name]);
            }
        }
    }
    let one = place.json(&format!("trace {options} --step 7 --rank 2"));
    assert_eq!(one.as_array().unwrap().len(), 20);
    assert!(one.as_array().unwrap().iter().all(|at| at["rank"] == json!(2)));
}

#[test]
fn a_row_is_found_where_the_steps_have_it_pads_and_replicas_included() {
    let place = Place::with_index();
    for options in [
        "--world-size 4 --batch-size 20 --epochs 2",
        "--world-size 4 --batch-size 20 --order sequential",
        "--world-size 6 --batch-size 30 --replication 2,strided",
        "--world-size 3 --batch-size 400 --tail uneven --seed 8",
    ] {
        let options = format!("train.rdx {options}");
        // Every use, as the steps tell it.
        let mut uses = Vec::new();
        for step in 0.. {
            let outcome = place.run(&format!("trace {options} --step {step} --json"));
            if outcome.stdout.is_empty() {
                outcome.fails().complains(&["step"]);
                break;
            }
            uses.extend(outcome.succeeds().json().as_array().unwrap().clone());
        }
        assert!(uses.len() >= ROWS);
        let pads = uses.iter().filter(|at| at["pad"] == json!(true)).map(|at| number(at, "row_id")).collect::<Vec<_>>();
        for row in [0, 1, 500, 1002].into_iter().chain(pads) {
            let found = place.json(&format!("trace {options} --row {row}"));
            let mut got = Vec::new();
            for epoch in found.as_array().unwrap() {
                assert_eq!(
                    (number(epoch, "row_id"), &epoch["dropped"], number(epoch, "elsewhere")),
                    (row, &json!([]), 0)
                );
                for at in epoch["uses"].as_array().unwrap() {
                    let names = ["step", "rank", "slot", "position"].map(|name| number(at, name));
                    got.push((number(epoch, "epoch"), names, at["pad"].as_bool().unwrap()));
                }
            }
            let mut expected: Vec<_> = uses
                .iter()
                .filter(|at| number(at, "row_id") == row)
                .map(|at| {
                    let names = ["step", "rank", "slot", "position"].map(|name| number(at, name));
                    (number(at, "epoch"), names, at["pad"].as_bool().unwrap())
                })
                .collect();
            expected.sort_unstable();
            got.sort_unstable();
            assert_eq!(got, expected, "{options} {row}");
        }
    }
}

#[test]
fn a_row_that_is_not_served_is_said_not_to_be() {
    let place = Place::with_index();
    let run = |options: &str| place.run(&format!("trace train.rdx --order sequential {options}")).succeeds().text();
    let dropped = run("--world-size 4 --tail drop --row 1001 --epoch 0");
    assert_eq!(dropped, "row 1001 at position 1001 is dropped with the tail in epoch 0\n");
    let elsewhere = run("--world-size 4 --rank 2 --row 3");
    assert_eq!(elsewhere, "row 3 is served to other ranks in epoch 0\n");
    let there = run("--world-size 4 --row 3");
    let words: Vec<&str> = there.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(words[..7], ["0", "0", "3", "0", "3", "no", "3"], "{there}");
}

#[test]
fn questions_without_an_answer_are_refused() {
    let place = Place::with_index();
    place.run("trace train.rdx --step 1 --row 1").exits_with_usage();
    place.run("trace --step 1").exits_with_usage();
    place.run("trace train.rdx --step 4").fails().complains(&["step 4", "4 steps", "0 to 3"]);
    place.run("trace train.rdx --row 1003").fails().complains(&["1003", "0 to 1002"]);
    place.run("trace train.rdx --row 0 --row 5000").fails().complains(&["5000", "0 to 1002"]);
    place.run("trace train.rdx --world-size 2 --rank 2 --row 0").exits_with_usage().complains(&["rank 2"]);
    place.run("trace nowhere.rdx --row 0").fails().complains(&["nowhere.rdx"]);
}

#[test]
fn a_step_of_many_rows_is_listed_in_part() {
    let place = Place::with_index();
    let lines = |options: &str| place.run(&format!("trace train.rdx --step 0 {options}")).succeeds().text();
    let some = lines("--world-size 2");
    assert_eq!(some.lines().count(), 1 + 40 + 1);
    assert!(some.ends_with("and 472 rows more (`--json`)\n"), "{some}");
    // Nothing is left out of what is short, nor of JSON.
    assert_eq!(lines("--batch-size 40").lines().count(), 1 + 40);
    assert_eq!(place.json("trace train.rdx --step 0 --world-size 2").as_array().unwrap().len(), 512);
}
