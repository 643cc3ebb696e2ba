//! Which run is meant: a state in the place of options.

use std::fs;

use serde_json::{Value, json};

use super::place::{Outcome, Place};
use super::row_choice;

/// The state after two steps of a run with these options.
fn state(place: &Place, options: &str) -> String {
    place.json(&format!("epoch train.rdx --steps 2 {options}"))["state"].as_str().unwrap().to_owned()
}

fn run(place: &Place, arguments: &str) -> String {
    place.run(arguments).succeeds().text()
}

#[test]
fn a_state_stands_for_the_options_of_its_run() {
    let place = row_choice::place();
    for options in [
        "--seed 42 --world-size 4 --batch-size 8",
        "--seed 7 --order blocks(3),contiguous --world-size 4 --tail drop --batch-size 8",
        "--seed 18446744073709551615 --order torch --world-size 6 --replication 2,strided --batch-size 8",
        "--order sequential --world-size 3 --tail drop --epoch 5 --batch-size 8",
        "--seed 3 --order global,size=700,paired --world-size 3 --tail uneven --batch-size 8",
    ] {
        let state = state(&place, options);
        for question in
            ["trace train.rdx --step 3 --json", "trace train.rdx --row 7 --row 99", "estimate train.rdx --json"]
        {
            let told = run(&place, &format!("{question} {options}"));
            assert_eq!(run(&place, &format!("{question} --state {state}")), told, "{question} {options}");
            // An option that says the same is no contradiction.
            assert_eq!(run(&place, &format!("{question} --state {state} {options}")), told);
        }
        let of_ids = options.replace("--batch-size 8", "--rank 1");
        let ids = run(&place, &format!("trace train.rdx {of_ids}"));
        let asked = place.run(&format!("trace train.rdx --state {state} --rank 1")).succeeds().without_a_word();
        assert_eq!(asked.text(), ids, "{options}");
        let digest =
            |options: &str| place.json(&format!("verify train.rdx --shards {options}"))["row_ids_digest"].clone();
        assert_eq!(digest(&format!("--state {state}")), digest(options));
    }
}

#[test]
fn an_option_that_says_something_else_is_refused() {
    let place = row_choice::place();
    place.run("select train.rdx --split train -o some.rdx").succeeds();
    let state = state(&place, "--seed 42 --world-size 4 --batch-size 8");
    let ask = |option: &str| place.run(&format!("trace train.rdx --step 0 --state {state} {option}"));
    for (option, of_run) in [
        ("--world-size 2", "--world-size 4"),
        ("--batch-size 256", "--batch-size 8"),
        ("--tail drop", "--tail wrap"),
        ("--replication 2,strided", "--replication 1"),
    ] {
        ask(option).exits_with_usage().complains(&[option.split(' ').next().unwrap(), of_run, "--state"]);
    }
    for option in [
        "--seed 0",
        "--order torch",
        "--order global,contiguous",
        "--order weighted:weight",
        "--order balanced:class",
        "--only some.rdx",
        "--order global,size=50",
        "--order global,paired",
    ] {
        ask(option).fails().complains(&["fingerprint"]);
    }
    // The epoch is a part of the question.
    let third = place.json(&format!("trace train.rdx --step 0 --state {state} --epoch 3"));
    assert_eq!(third[0]["epoch"], json!(3));
}

#[test]
fn what_a_state_cannot_carry_has_to_be_given_and_to_be_the_same() {
    let place = row_choice::place();
    place.run("select train.rdx --split train -o some.rdx").succeeds();
    place.run("select train.rdx --split validation -o other.rdx").succeeds();
    let list = |rows: &mut dyn Iterator<Item = u64>| rows.flat_map(u64::to_le_bytes).collect::<Vec<_>>();
    fs::write(place.path("order.bin"), list(&mut (0..1000).rev())).unwrap();
    fs::write(place.path("other.bin"), list(&mut (0..1000))).unwrap();
    for (given, other, word) in [
        ("--only some.rdx", "--only other.rdx", "--only"),
        ("--order weighted:weight", "--order weighted:user", "--order"),
        ("--order weighted:weight,once", "--order weighted:user,once", "--order"),
        ("--order scored:weight,folds=3", "--order scored:weight,folds=2", "--order"),
        ("--order balanced:class", "--order balanced:user", "--order"),
        ("--order file:order.bin", "--order file:other.bin", "--order"),
    ] {
        let seed = if given.contains("file:") { "" } else { "--seed 4" };
        let state = state(&place, &format!("{given} {seed} --world-size 2 --batch-size 8"));
        let ask = |options: &str| place.run(&format!("trace train.rdx --step 1 --state {state} {options}"));
        ask("").exits_with_usage().complains(&[word, "--state", "cannot carry"]);
        ask(other).fails().complains(&["fingerprint"]);
        let told = run(&place, &format!("trace train.rdx --step 1 {given} {seed} --world-size 2 --batch-size 8"));
        assert_eq!(ask(given).succeeds().text(), told);
    }
}

#[test]
fn a_state_of_version_1_says_too_little_and_is_still_compared() {
    let place = row_choice::place();
    let state = state(&place, "--seed 4 --world-size 2 --batch-size 8");
    let fields: Vec<&str> = state.split(':').collect();
    let first = format!("rowdex-state-v1:{}:{}:{}", fields[1], fields[2], fields[3]);
    let ask = |options: &str| place.run(&format!("trace train.rdx --step 1 --state {first} {options}"));
    ask("").exits_with_usage().complains(&["version 1", "--world-size", "--batch-size"]);
    ask("--world-size 2 --batch-size 8").fails().complains(&["fingerprint", "seed"]);
    let options = "--seed 4 --world-size 2 --batch-size 8";
    assert_eq!(ask(options).succeeds().text(), run(&place, &format!("trace train.rdx --step 1 {options}")));
}

#[test]
fn a_state_is_found_in_a_checkpoint_of_any_format() {
    let place = row_choice::place();
    let state = state(&place, "--seed 42 --world-size 4 --batch-size 8");
    let told = run(&place, &format!("trace train.rdx --step 3 --state {state}"));
    let piece = 4 << 20;
    for (name, bytes) in [
        ("text", format!("{state}\n").into_bytes()),
        ("json", json!({"step": 2, "loader": {"state": state}}).to_string().into_bytes()),
        // A pickle puts no separator after a text, and letters and digits may be what comes next.
        ("pickle", [b"\x80\x02}q\x00X\x05\x00\x00\x00state", state.as_bytes(), b"q1s."].concat()),
        ("digits", [b"PK\x03\x04", state.as_bytes(), b"00ff"].concat()),
        ("twice", format!("{state} {state}").into_bytes()),
        ("across", [&vec![b':'; piece - 20], state.as_bytes(), &vec![0; piece]].concat()),
        ("near the end", [&vec![b'r'; piece - 300], state.as_bytes()].concat()),
    ] {
        fs::write(place.path("checkpoint"), bytes).unwrap();
        assert_eq!(run(&place, "trace train.rdx --step 3 --state checkpoint"), told, "{name}");
    }
    fs::write(place.path("first"), "x rowdex-state-v1:0000000000000abc:1:16q1").unwrap();
    let outcome = place.run("trace train.rdx --step 3 --world-size 1 --batch-size 8 --state first").fails();
    outcome.complains(&["0000000000000abc"]);
}

#[test]
fn a_file_without_one_state_is_refused() {
    let place = row_choice::place();
    let (one, two) = (state(&place, "--seed 1"), state(&place, "--seed 2"));
    let ask = |bytes: &[u8]| -> Outcome {
        fs::write(place.path("checkpoint.pt"), bytes).unwrap();
        place.run("trace train.rdx --step 0 --state checkpoint.pt").exits_with_usage()
    };
    ask(format!("{one} {two}").as_bytes()).complains(&["2 different states", &one, &two]);
    ask(b"nothing").complains(&["checkpoint.pt", "no state", "compressed", "state_dict()"]);
    ask(b"").complains(&["no state"]);
    ask(one.replace(":rows:", ":rowz:").as_bytes()).complains(&["not as it was written", "checkpoint.pt"]);
    ask(&one.as_bytes()[..one.len() - 3]).complains(&["not as it was written"]);
    let given = |text: &str| place.run(&format!("trace train.rdx --step 0 --state {text}")).exits_with_usage();
    given("nowhere.pt").complains(&["nowhere.pt", "neither"]);
    given("data").complains(&["data", "directory"]);
    given(&one.replace("seed-1", "seed-2")).complains(&["not as it was written"]);
}

/// Rank, slot and row id of all rows of a step.
fn rows(told: &Value) -> Vec<(u64, u64, u64)> {
    let number = |at: &Value, name: &str| at[name].as_u64().unwrap();
    told.as_array().unwrap().iter().map(|at| (number(at, "rank"), number(at, "slot"), number(at, "row_id"))).collect()
}

#[test]
fn of_an_epoch_that_other_ranks_took_over_their_part_alone_is_told() {
    let place = row_choice::place();
    let first = state(&place, "--seed 5 --world-size 2 --batch-size 9 --epoch 2");
    // 36 positions are served; 3 ranks take over, and stop after two more steps.
    let taken = format!("--resume {first} --world-size 3 --batch-size 16");
    let told = place.json(&format!("epoch train.rdx --steps 2 {taken}"));
    let state = told["state"].as_str().unwrap();
    assert!(state.contains(",from-36:"), "{state}");
    // 964 positions are left: 322 samples a rank, in 21 of the 21 steps that an epoch has.
    let all: Vec<u64> = (0..3)
        .flat_map(|rank| {
            let ids = run(&place, &format!("trace train.rdx --state {state} --rank {rank}"));
            ids.lines().map(|id| id.parse().unwrap()).collect::<Vec<u64>>()
        })
        .collect();
    assert_eq!(all.len(), 3 * 322);
    let mut by_steps: Vec<(u64, u64, u64)> = Vec::new();
    for step in 0..21 {
        by_steps.extend(rows(&place.json(&format!("trace train.rdx --state {state} --step {step}"))));
    }
    let mut by_ranks: Vec<u64> = by_steps.iter().map(|(.., row)| *row).collect();
    let mut expected = all.clone();
    by_ranks.sort_unstable();
    expected.sort_unstable();
    assert_eq!(by_ranks, expected);
    let order = run(&place, "trace train.rdx --seed 5 --epoch 2");
    let order: Vec<u64> = order.lines().map(|id| id.parse().unwrap()).collect();
    // By row: each is where the steps have it, and those before are said to be.
    for row in [order[36], order[500], order[999]] {
        let found = place.json(&format!("trace train.rdx --state {state} --row {row}"));
        let at = &found[0]["uses"][0];
        let step = place.json(&format!("trace train.rdx --state {state} --step {}", at["step"]));
        let there = rows(&step);
        assert!(there.contains(&(at["rank"].as_u64().unwrap(), at["slot"].as_u64().unwrap(), row)));
    }
    let before = run(&place, &format!("trace train.rdx --state {state} --row {}", order[20]));
    assert!(before.contains("position 20") && before.contains("took over"), "{before}");
    // Another epoch is whole.
    assert_eq!(rows(&place.json(&format!("trace train.rdx --state {state} --epoch 3 --step 0"))).len(), 48);
}

#[test]
fn options_come_from_a_file_or_from_the_run_of_a_checkpoint() {
    let place = row_choice::place();
    let options = "--seed 42 --world-size 4 --batch-size 8 --columns id,class --digest";
    let of = |report: Value| (report["state"].clone(), report["ranks"].clone());
    let told = of(place.json(&format!("epoch train.rdx {options}")));
    let fields = json!({"seed": 42, "world_size": 4, "batch-size": 8, "columns": ["id", "class"], "digest": true});
    let run = |fields: Value, command: &str| {
        fs::write(place.path("run.json"), fields.to_string()).unwrap();
        place.run(&format!("{command} --run run.json --json"))
    };
    assert_eq!(of(run(fields.clone(), "epoch train.rdx").succeeds().json()), told);
    // Nothing is said twice, and nothing is passed over.
    run(fields, "epoch train.rdx --seed 42").exits_with_usage().complains(&["--seed"]);
    run(json!({"sed": 42}), "epoch train.rdx").exits_with_usage().complains(&["run.json", "unknown field `sed`"]);
    run(json!({"seed": "x"}), "epoch train.rdx").exits_with_usage().complains(&["--seed"]);
    run(json!([42]), "epoch train.rdx").exits_with_usage().complains(&["run.json"]);
    // What a command has to have may be there, too.
    run(json!({"data": ["data"], "output": "other.rdx"}), "build").succeeds();
    run(json!({"sample": "50%", "output": "half.rdx"}), "select other.rdx").succeeds();
    let state = state(&place, "--seed 42 --world-size 4 --batch-size 8");
    let asked = place.json(&format!("trace train.rdx --step 3 --state {state}"));
    assert_eq!(run(json!({"loader": state}), "trace train.rdx --step 3").succeeds().json(), asked);
    let rest = run(json!({"loader": state}), "epoch train.rdx").succeeds().json();
    assert_eq!(rest["coverage"]["served"], json!(1000 - 2 * 32));
}

#[test]
fn a_run_goes_on_from_a_checkpoint_without_being_described_again() {
    let place = row_choice::place();
    let options = "--seed 42 --order blocks(2) --world-size 2 --batch-size 8 --tail uneven";
    let whole = place.json(&format!("epoch train.rdx {options}"));
    fs::write(place.path("checkpoint.json"), json!({"loader": state(&place, options)}).to_string()).unwrap();
    let rest = place.json("epoch train.rdx --resume checkpoint.json");
    let served = |report: &Value| report["coverage"]["served"].as_u64().unwrap();
    assert_eq!(served(&rest), served(&whole) - 32);
    let fewer = place.json("epoch train.rdx --resume checkpoint.json --world-size 1 --batch-size 5");
    assert_eq!((served(&fewer), &fewer["world_size"]), (served(&whole) - 32, &json!(1)));
    place.run("epoch train.rdx --resume checkpoint.json --order torch").fails().complains(&["fingerprint"]);
}

#[test]
fn what_nobody_said_of_a_run_is_told_to_be_assumed() {
    let place = row_choice::place();
    let said = |arguments: &str| place.run(arguments).succeeds().stderr;
    let where_step = said("trace train.rdx --step 1");
    assert!(where_step.contains("--seed 0 --world-size 1 --batch-size 256") && where_step.contains("--state"));
    assert!(said("trace train.rdx --rank 0").contains("--seed 0"));
    assert_eq!(said("trace train.rdx --step 1 --seed 0"), "");
    assert_eq!(said(&format!("trace train.rdx --step 1 --state {}", state(&place, "--seed 3"))), "");
}
