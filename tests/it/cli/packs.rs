//! What the commands know of packs.

use serde_json::{Value, json};

use super::place::{Place, ROWS};

/// Row `id` has `id` tokens, so 0 to 1002 of them.
fn place() -> Place {
    let place = Place::with_data();
    place.run("build data -o train.rdx --lengths id").succeeds();
    place
}

/// The pieces that `ids` lists for some ranks: row, first token, tokens, step, pack.
fn pieces(place: &Place, world: u64, options: &str) -> Vec<Vec<[u64; 5]>> {
    let of = |rank| {
        let command = format!("trace train.rdx --world-size {world} --rank {rank} {options}");
        let text = place.run(&command).succeeds().text();
        let numbers = |line: &str| {
            let numbers: Vec<u64> = line.split('\t').map(|number| number.parse().unwrap()).collect();
            numbers.try_into().unwrap()
        };
        text.lines().map(numbers).collect()
    };
    (0..world).map(of).collect()
}

fn u64_of(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("{name} of {value}"))
}

#[test]
fn packs_are_predicted_where_the_data_is_elsewhere() {
    let place = place();
    let estimate = "estimate train.rdx --pack id:700 --order weighted:id";
    let before = place.json(estimate);
    std::fs::rename(place.path("data"), place.path("moved")).unwrap();
    place.run(estimate).fails().complains(&["root"]);
    let after = place.json(&format!("{estimate} --root moved"));
    assert_eq!(after, before);
}

#[test]
fn trace_tells_the_offsets_of_a_row_and_proves_agree_with_it() {
    let place = place();
    let run = "--pack id:300 --batch-size 2 --world-size 2 --seed 9";
    let ranks = pieces(&place, 2, &run.replace("--world-size 2 ", ""));
    let found = place.json(&format!("trace train.rdx {run} --row 777"));
    let uses: Vec<[u64; 4]> = found[0]["uses"]
        .as_array()
        .unwrap()
        .iter()
        .map(|at| ["rank", "step", "offset", "length"].map(|name| u64_of(at, name)))
        .collect();
    let mut expected = Vec::new();
    for (rank, pieces) in (0..).zip(&ranks) {
        let of_row = pieces.iter().filter(|[row, ..]| *row == 777);
        expected.extend(of_row.map(|[_, offset, length, step, _]| [rank, *step, *offset, *length]));
    }
    assert_eq!(uses.iter().map(|[.., length]| length).sum::<u64>(), 777);
    let sorted = |mut list: Vec<[u64; 4]>| {
        list.sort_unstable();
        list
    };
    assert_eq!(sorted(uses), sorted(expected));
    let step = place.json(&format!("trace train.rdx {run} --step 3 --rank 1"));
    let listed: Vec<[u64; 3]> =
        step.as_array().unwrap().iter().map(|at| ["row_id", "offset", "pack"].map(|name| u64_of(at, name))).collect();
    let of_step = ranks[1].iter().filter(|[.., step, _]| *step == 3);
    assert_eq!(listed, of_step.map(|[row, offset, _, _, pack]| [*row, *offset, *pack]).collect::<Vec<_>>());
    let text = place.run(&format!("trace train.rdx {run} --row 777")).succeeds().text();
    assert!(text.lines().next().unwrap().ends_with("pack  offset  length"), "{text}");
}

#[test]
fn what_packs_cannot_be_is_refused_with_what_to_write() {
    let place = place();
    place.run("estimate train.rdx --pack tags:100").fails().complains(&["tags", "note them"]);
    place.run("estimate train.rdx --pack id").exits_with_usage();
    place.run("estimate train.rdx --pack id:8,extra=8").exits_with_usage();
    place.run("estimate train.rdx --plot a.svg").exits_with_usage();
    place.run("verify train.rdx --shards --tail even").fails().complains(&["even", "packs"]);
    place.run("estimate train.rdx --pack id:100,overflow=error").fails().complains(&["100", "overflow"]);
    place.run("estimate train.rdx --pack id:2000 --order global,contiguous").fails().complains(&["contiguous"]);
    place.run("estimate train.rdx --pack id:2000 --world-size 100000").fails().complains(&["opened"]);
}

/// Row `id` has `id % 4` tags, but for each fifth row, which has none.
fn tagged() -> (Place, u64) {
    let place = Place::with_data();
    place.run("build data -o train.rdx --lengths tags").succeeds();
    (place, (0..ROWS as u64).filter(|id| id % 5 != 0).map(|id| id % 4).sum())
}

#[test]
fn packs_with_two_limits_are_foretold_and_proved() {
    let place = Place::with_data();
    place.run("build data -o train.rdx --lengths tags,id").succeeds();
    let run = "train.rdx --pack id:900,overflow=drop,second=tags-2 --world-size 3 --order scored:id";
    let dropped = (0..ROWS as u64).filter(|id| *id > 900 || (id % 5 != 0 && id % 4 == 3)).sum::<u64>();
    assert_eq!(u64_of(&place.json(&format!("estimate {run}"))["packs"], "tokens_dropped"), dropped);
    place.run(&format!("verify {run} --shards")).succeeds();
    place.run("select train.rdx --split train -o some.rdx").succeeds();
    place.run(&format!("verify {run} --shards --only some.rdx")).succeeds();
}

#[test]
fn an_epoch_of_packs_counts_tokens_and_padding() {
    let (place, all) = tagged();
    let run = "epoch train.rdx --world-size 2 --batch-size 2 --columns tags,id --memory 50%";
    let tokens = |options: &str| place.json(&format!("{run} {options}"))["coverage"]["tokens"].clone();
    let found = tokens("--pack tags:16,extra=1");
    assert_eq!((u64_of(&found, "served"), u64_of(&found, "repeated"), u64_of(&found, "left_out")), (all, 0, 0));
    let told = place.json("estimate train.rdx --pack tags:16,extra=1 --world-size 2 --batch-size 2");
    assert_eq!(u64_of(&found, "pieces"), u64_of(&told["packs"], "pieces"));
    let places = u64_of(&told["packs"], "packs") * 16;
    assert_eq!(u64_of(&found, "padding"), places - all - u64_of(&found, "pieces"));
    // One of two ranks, and replicas, which are counted once.
    let half = tokens("--pack tags:16,extra=1 --rank 1");
    assert!(u64_of(&half, "served") > 0 && u64_of(&half, "left_out") == all - u64_of(&half, "served"), "{half}");
    assert_eq!(u64_of(&tokens("--pack tags:16,extra=1 --replication 2"), "served"), all);
    let cut = tokens("--pack tags:2,overflow=truncate");
    let lost = (0..ROWS as u64).filter(|id| id % 5 != 0 && id % 4 == 3).count() as u64;
    assert_eq!(u64_of(&cut, "served"), all - lost);
    let less = tokens("--pack tags:2,overflow=drop --tail drop");
    assert_eq!(u64_of(&less, "served") + u64_of(&less, "left_out"), all - 3 * lost);
    let rows = place.json(run);
    assert!(rows["coverage"]["tokens"].is_null() && rows["coverage"]["served"] == json!(1004), "{rows}");
}

#[test]
fn a_prediction_of_packs_says_what_a_loader_reads_or_why_there_is_none() {
    let (place, _) = tagged();
    let run = "train.rdx --pack tags:16 --batch-size 2 --epochs 5";
    let told = place.json(&format!("estimate {run} --memory 25%"));
    let read = place.json(&format!("epoch {run} --memory 25%"));
    let passes: f64 = (1..5).map(|epoch| read["epochs"][epoch]["passes"].as_f64().unwrap() / 4.0).sum();
    let ratio = told["passes"].as_f64().unwrap() / passes;
    assert!((0.6..1.6).contains(&ratio), "{ratio}: {told}");
    assert!(told["loader_error"].is_null() && u64_of(&told, "bytes_read") > 0);
    // Rows are cut, and nothing says where.
    place.run("build data -o train.rdx --update --lengths id").succeeds();
    let told = place.json("estimate train.rdx --pack id:100");
    assert!(told["passes"].is_null() && told["loader_error"].as_str().unwrap().contains("no column"), "{told}");
}

#[test]
fn buckets_are_dealt_foretold_found_and_proved() {
    let (place, all) = tagged();
    let run = "--pack tags:buckets,block=100 --batch-size 8 --seed 3";
    let ranks = pieces(&place, 3, run);
    let mut rows: Vec<u64> = ranks.iter().flatten().map(|[row, ..]| *row).collect();
    rows.sort_unstable();
    rows.dedup();
    assert!(rows.into_iter().eq(0..ROWS as u64));
    let length = |row: u64| if row.is_multiple_of(5) { 0 } else { row % 4 };
    for step in 0..41 {
        let of_step = ranks.iter().flatten().filter(|[.., at, _]| *at == step);
        let lengths: Vec<u64> = of_step
            .map(|[row, _, tokens, ..]| (length(*row), *tokens))
            .map(|(a, b)| {
                assert_eq!(a, b);
                a
            })
            .collect();
        assert!(lengths.len() == 24 && lengths.is_sorted(), "step {step}: {lengths:?}");
    }
    place.run(&format!("verify train.rdx --shards {run} --world-size 3 --epochs 2")).succeeds();
    for more in
        ["--tail drop", "--tail uneven --replication 2 --world-size 4", "--order sequential", "--order weighted:id"]
    {
        place.run(&format!("verify train.rdx --shards {run} {more}")).succeeds();
    }
    let told = place.json(&format!("estimate train.rdx {run} --world-size 3"));
    assert_eq!((u64_of(&told, "steps"), u64_of(&told["packs"], "tokens_left_out")), (42, 0));
    assert!(told["packs"]["fill"].as_f64().unwrap() > 0.9 && told["loader_error"].is_null(), "{told}");
    place.run(&format!("estimate train.rdx {run} --plot buckets.svg")).succeeds();
    let found = place.json(&format!("epoch train.rdx {run} --world-size 3 --tail uneven"));
    assert_eq!((u64_of(&found["coverage"]["tokens"], "served"), u64_of(&found["coverage"], "missing")), (all, 0));
    let at = place.json(&format!("trace train.rdx {run} --world-size 3 --row 777"));
    assert_eq!(at[0]["uses"].as_array().unwrap().len(), 1);
    // A state says what it is of.
    let state = place.json(&format!("epoch train.rdx {run} --world-size 3 --steps 7"));
    let state = state["state"].as_str().unwrap();
    place.run(&format!("trace train.rdx --state {state} --rank 1")).exits_with_usage().complains(&["LENGTHS:buckets"]);
    let wrong = place.run(&format!("trace train.rdx --state {state} --pack tags:16 --rank 1"));
    wrong.fails().complains(&["buckets"]);
    let ids = place.run(&format!("trace train.rdx --state {state} --pack tags:buckets,block=100 --rank 1")).succeeds();
    assert_eq!(ids.text().lines().count(), ranks[1].len());
    // Other ranks go on with what is left of the epoch.
    let rest = place.json(&format!(
        "epoch train.rdx --pack tags:buckets,block=100 --resume {state} --world-size 2 --batch-size 5 --tail uneven"
    ));
    assert_eq!(u64_of(&rest["coverage"], "distinct"), ROWS as u64 - 7 * 24);
    place.run(&format!("estimate train.rdx {run} --tail even")).fails().complains(&["even", "wrap"]);
    place.run("estimate train.rdx --pack tags:buckets,cost=1-1").fails().complains(&["cost"]);
}
