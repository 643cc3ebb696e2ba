//! Every option of every command does something, or is refused.
//!
//! The options are read from `--help`, so an option that nobody made a case for fails the test.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use serde_json::Value;

use super::place::{Outcome, Place, rows_from};
use super::row_choice;
#[cfg(target_os = "linux")]
use super::serve;

/// An option, the command line without it, and the one with it.
type Case = (&'static str, &'static str, String, String);

/// Options that have no effect on what a command writes, and why.
const WITHOUT_A_TRACE: [(&str, &str, &str); 18] = [
    ("lengths", "threads", "how many count at once"),
    ("count", "threads", "how many decode at once"),
    ("select", "threads", "how many decode at once"),
    ("build", "threads", "how many read footers at once"),
    ("build", "concurrency", "how many requests a store gets at once"),
    ("verify", "threads", "how many decode at once"),
    ("digest", "threads", "how many decode at once"),
    ("prove", "threads", "how many decode at once"),
    ("get", "threads", "how many decode at once"),
    ("epoch", "threads", "how many decode at once"),
    ("epoch", "read-concurrency", "how many row groups of a store are read at once: tests/it/stores/reading.rs"),
    ("serve", "read-concurrency", "how many row groups of a store are read at once: as with `epoch`"),
    ("serve", "once", "when it ends: tests/it/cli/serve.rs"),
    ("serve", "cache-dir", "what is left behind: tests/it/cli/serve.rs"),
    ("serve", "cache-disk", "how much is left behind: as with `epoch`"),
    ("shuffle", "threads", "how many decode and encode at once"),
    ("predict", "staleness", "requests to a store: tests/it/stores/command.rs"),
    ("predict", "root", "requests to a store: tests/it/stores/command.rs"),
];

/// Of a time, and not of the result; `predict` tells the peak.
const TIMES: [&str; 3] = ["seconds", "rows_per_second", "peak_held_bytes"];

/// Which rows come in which order: what five commands have in common.
fn sampling(command: &'static str, base: &str, rank: &str) -> Vec<Case> {
    let with = |option, common: &str, more: &str| -> Case {
        let without = format!("{command} {base} {common}");
        (command, option, without.clone(), format!("{without} {more}"))
    };
    let of_rank = |option, world: &str, more: &str| with(option, &format!("{world} {rank}"), more);
    let few = "--world-size 3";
    let without = format!("{command} {} {few} {rank}", base.replace("train.rdx", "packed.rdx"));
    let packed = (command, "pack", without.clone(), format!("{without} --pack id:2000"));
    vec![
        with("order", "", "--order sequential"),
        with("order-file", "", "--order-file order.bin"),
        with("permutation", "--order-file some.bin", "--permutation"),
        of_rank("partition", &format!("{few} --order sequential"), "--partition contiguous"),
        of_rank("no-rotate", &format!("{few} --order sequential --tail drop --epoch 1 --batch-size 1"), "--no-rotate"),
        with("seed", "", "--seed 8"),
        with("epoch", "", "--epoch 1"),
        with("epochs", "", "--epochs 2"),
        with("world-size", rank, "--world-size 3"),
        with("replicas", &format!("--world-size 4 {rank}"), "--replicas 2"),
        of_rank("replica-layout", "--world-size 4 --replicas 2", "--replica-layout strided"),
        of_rank("tail", &format!("{few} --batch-size 333"), "--tail drop"),
        with("skip", "", "--skip skip.txt"),
        with("where", "", "--where id<500"),
        with("split", "", "--split train"),
        with("split-fraction", "--split train", "--split-fraction 0.5"),
        with("split-by", "--split train", "--split-by user"),
        with("split-seed", "--split train", "--split-seed 3"),
        with("weights", "", "--weights weight"),
        with("weights-from", "--weights weight", "--weights-from weights.csv"),
        with("without-replacement", "--weights weight", "--without-replacement"),
        with("balance", "", "--balance class"),
        with("epoch-size", "", "--epoch-size 700"),
        with("batch-size", "", "--batch-size 50"),
        packed,
    ]
}

/// The run that a state is of, for the commands that ask about one.
fn of_a_state(command: &'static str, base: &str) -> Case {
    (command, "state", format!("{command} {base}"), format!("{command} {base} --state STATE"))
}

/// What `shuffle` is told of what it reads and writes.
fn shuffling() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let base = "train.rdx -o out-new --json";
    let mut add = |option: &'static str, without: &str, more: &str| {
        cases.push(("shuffle", option, format!("shuffle {without}"), format!("shuffle {without} {more}")));
    };
    add("order", base, "--order sequential");
    add("seed", base, "--seed 4");
    add("where", base, "--where id<500");
    add("columns", base, "--columns id");
    add("staleness", "stale.rdx -o out-new --json", "--staleness off");
    add("root", base, "--root uneven");
    add("memory", base, "--memory 16KiB");
    add("files", base, "--files 3");
    add("file-bytes", base, "--file-bytes 1KiB");
    add("row-group-rows", base, "--row-group-rows 100");
    add("page-bytes", base, "--page-bytes 100");
    add("compression", base, "--compression none");
    add("dictionary", base, "--dictionary yes");
    add("origin", base, "--origin row_id");
    add("spill", &format!("{base} --memory 16KiB"), "--spill out-spill");
    add("resume", "train.rdx -o there-new --json", "--resume");
    add("force", "train.rdx -o there-new --json", "--force");
    add("verify", base, "--verify");
    add("step", base, "--step spill");
    add("task", &format!("{base} --step spill --tasks 2"), "--task 1");
    add("tasks", &format!("{base} --step spill"), "--tasks 2");
    add("json", "train.rdx -o out-new", "--json");
    let other = |output| format!("shuffle train.rdx {output} --json");
    cases.push(("shuffle", "output", other("-o out-new"), other("--output out-other")));
    cases
}

fn cases() -> Vec<Case> {
    let mut cases = shuffling();
    let mut add = |command: &'static str, option: &'static str, without: &str, with: &str| {
        cases.push((command, option, format!("{command} {without}"), format!("{command} {with}")));
    };
    let build = "data -o out.rdx";
    add("build", "output", build, "data --output out-other.rdx");
    add("build", "force", "data -o train.rdx", "data -o train.rdx --force");
    add("build", "update", "data -o train.rdx", "data -o train.rdx --update");
    add("build", "root", build, &format!("{build} --root ."));
    add("build", "schema", "uneven -o out.rdx", "uneven -o out.rdx --schema union");
    let renamed = "named --schema union -o out.rdx";
    add("build", "rename", renamed, &format!("{renamed} --rename key=id"));
    add("build", "no-footers", build, &format!("{build} --no-footers"));
    add("build", "no-partitions", "parted -o out.rdx", "parted -o out.rdx --no-partitions");
    add("build", "rows", build, &format!("{build} --rows rows.csv"));
    add("build", "slice", build, &format!("{build} --slice 0/2"));
    add("build", "parts", &format!("{build} --json"), &format!("{build} --json --parts train.rdx"));
    add("build", "lengths", build, &format!("{build} --lengths id"));
    add("build", "json", build, &format!("{build} --json"));
    // Each has an index of its own, as they are written to.
    let (noted, given) = ("--json --column id", "--json --from lengths.csv --name");
    add("lengths", "column", "noted-0.rdx --json", &format!("noted-0.rdx {noted}"));
    add("lengths", "from", "noted-1.rdx --json", &format!("noted-1.rdx {given} words"));
    add("lengths", "name", &format!("noted-2.rdx {given} a"), &format!("noted-3.rdx {given} words"));
    add("lengths", "remove", "noted-7.rdx --json", "noted-7.rdx --json --remove id");
    add("lengths", "root", &format!("noted-4.rdx {noted}"), &format!("noted-5.rdx {noted} --root uneven"));
    add("lengths", "json", "noted-6.rdx --column id", &format!("noted-6.rdx {noted}"));
    add("digest", "columns", "train.rdx", "train.rdx --columns id");
    // What is noted shows in the next run: it is of the columns that are noted.
    add("digest", "note", "noted-8.rdx --columns id", "noted-8.rdx --columns id --note --json");
    add("digest", "remove", "noted-8.rdx", "noted-8.rdx --remove");
    add("digest", "root", "train.rdx", "train.rdx --root uneven");
    add("digest", "json", "train.rdx", "train.rdx --json");
    let select = "train.rdx -o out.rdx --json --skip skip.txt";
    add("select", "output", select, "train.rdx --output out-other.rdx --json --skip skip.txt");
    add("select", "force", "train.rdx --skip skip.txt -o there.rdx", "train.rdx --skip skip.txt -o there.rdx --force");
    add("select", "update", select, "train.rdx --update there.rdx --json");
    add("select", "rows", select, &format!("{select} --rows rows.txt"));
    add("select", "skip", select, &format!("{select} --skip rows.csv"));
    let condition = &format!("{select} --where id<500");
    add("select", "where", select, condition);
    add("select", "explain", condition, &format!("{condition} --explain"));
    add("select", "and", select, &format!("{select} --and there.rdx"));
    add("select", "not", select, &format!("{select} --not there.rdx"));
    add("select", "or", select, &format!("{select} --or there.rdx"));
    add("select", "sample", select, &format!("{select} --sample 10%"));
    add("select", "sample-seed", &format!("{select} --sample 10%"), &format!("{select} --sample 10% --sample-seed 3"));
    let split = &format!("{select} --split train");
    add("select", "split", select, split);
    add("select", "split-fraction", split, &format!("{split} --split-fraction 0.5"));
    add("select", "split-by", split, &format!("{split} --split-by user"));
    add("select", "split-seed", split, &format!("{split} --split-seed 3"));
    add("select", "root", &format!("{split} --split-by user"), &format!("{split} --split-by user --root uneven"));
    add("select", "json", "train.rdx -o out.rdx --sample 10%", "train.rdx -o out.rdx --sample 10% --json");
    add("count", "where", "train.rdx", "train.rdx --where id<500");
    add("count", "by", "train.rdx", "train.rdx --by class");
    add("count", "root", "train.rdx --by class", "train.rdx --by class --root uneven");
    add("count", "json", "train.rdx", "train.rdx --json");
    add("info", "json", "train.rdx", "train.rdx --json");
    add("verify", "level", "train.rdx --json", "train.rdx --json --level deep");
    add("verify", "root", "train.rdx --json", "train.rdx --json --root uneven");
    add("verify", "json", "train.rdx", "train.rdx --json");
    add("locate", "json", "train.rdx 7", "train.rdx 7 --json");
    let get = "train.rdx 0..500";
    add("get", "format", get, &format!("{get} --format json"));
    add("get", "output", get, &format!("{get} --output out.csv"));
    add("get", "force", &format!("{get} --output there.csv"), &format!("{get} --output there.csv --force"));
    for (command, base) in [("get", get), ("epoch", "train.rdx --json --threads 1")] {
        add(command, "columns", base, &format!("{base} --columns id"));
        add(command, "root", base, &format!("{base} --root uneven"));
        let tier = "--cache-dir out-tier --cache-disk";
        add(command, "cache-dir", base, &format!("{base} {tier} 10MiB"));
        add(command, "cache-disk", &format!("{base} {tier} 1"), &format!("{base} {tier} 10MiB"));
    }
    add("get", "staleness", "stale.rdx 0", "stale.rdx 0 --staleness off");
    let epoch = "train.rdx --json --threads 1";
    add("epoch", "staleness", "stale.rdx --json", "stale.rdx --json --staleness off");
    add("epoch", "json", "train.rdx", "train.rdx --json");
    add("epoch", "memory", epoch, &format!("{epoch} --memory 5%"));
    add("epoch", "loader", &format!("{epoch} --memory 20%"), &format!("{epoch} --memory 20% --loader lru"));
    add("epoch", "steps", epoch, &format!("{epoch} --steps 1"));
    let whole = "packed.rdx --json --pack id:2000,overflow=drop";
    add("epoch", "tokens", whole, &format!("{whole} --tokens tags"));
    add("epoch", "resume", epoch, &format!("{epoch} --resume STATE"));
    let hurt = "hurt.rdx --json --threads 1 --staleness off";
    add("epoch", "on-fault", hurt, &format!("{hurt} --on-fault substitute"));
    let substitute = format!("{hurt} --on-fault substitute");
    add("epoch", "fault-seed", &substitute, &format!("{substitute} --fault-seed 5"));
    add("epoch", "rank", &format!("{epoch} --world-size 3"), &format!("{epoch} --world-size 3 --rank 1"));
    let plan = "train.rdx --json --memory 10%";
    add("predict", "json", "train.rdx", "train.rdx --json");
    add("predict", "memory", "train.rdx --json", plan);
    add("predict", "rank", &format!("{plan} --world-size 3"), &format!("{plan} --world-size 3 --rank 1"));
    add(
        "predict",
        "ranks-per-node",
        &format!("{plan} --world-size 4"),
        &format!("{plan} --world-size 4 --ranks-per-node 2"),
    );
    let packs = "packed.rdx --json --pack id:2000";
    add("predict", "plot", packs, &format!("{packs} --plot out.svg"));
    add("predict", "force", &format!("{packs} --plot there.svg"), &format!("{packs} --plot there.svg --force"));
    add("predict", "columns", plan, &format!("{plan} --columns id"));
    let prove = "train.rdx --json";
    add("prove", "len", prove, "--len 77 --json");
    add("prove", "workers", prove, &format!("{prove} --workers 2"));
    add("prove", "exact", prove, &format!("{prove} --exact"));
    add("prove", "rank", prove, &format!("{prove} --rank 0"));
    add("prove", "json", "train.rdx", prove);
    add("prove", "same-rows", prove, "--same-rows train.rdx train.rdx --json");
    let same = "--same-rows train.rdx train.rdx --json";
    add("prove", "order-of", same, &format!("{same} --order-of train.rdx"));
    add("prove", "columns", same, &format!("{same} --columns id"));
    add("ids", "len", "train.rdx", "--len 77");
    add("ids", "from", "train.rdx", "train.rdx --from 5");
    let packs = "packed.rdx --pack id:2000 --world-size 3 --rank 1";
    add("ids", "batch-size", packs, &format!("{packs} --batch-size 2"));
    add("ids", "limit", "train.rdx", "train.rdx --limit 5");
    add("ids", "rank", "train.rdx --world-size 3 --rank 0", "train.rdx --world-size 3 --rank 1");
    add("ids", "pads", "train.rdx --world-size 3 --rank 2", "train.rdx --world-size 3 --rank 2 --pads");
    let step = "train.rdx --json --step 0";
    add("where", "step", step, "train.rdx --json --step 2");
    add("where", "row", "train.rdx --json --row 5", "train.rdx --json --row 6");
    add("where", "rank", &format!("{step} --world-size 3"), &format!("{step} --world-size 3 --rank 1"));
    add("where", "all", "train.rdx --step 0", "train.rdx --step 0 --all");
    add("where", "json", "train.rdx --step 0", step);
    let serve = "train.rdx --job JOB --ranks 1 --threads 2";
    add("serve", "job", serve, "train.rdx --job JOB-other --ranks 1 --threads 2");
    let packs = "packed.rdx --job JOB --ranks 1 --threads 2 --pack id:2000";
    add("serve", "tokens", packs, &format!("{packs} --tokens tags"));
    add("serve", "name", serve, &format!("{serve} --name other"));
    let two = "train.rdx --job JOB --ranks 2 --world-size 4 --threads 2";
    add("serve", "ranks", &two.replace("--ranks 2", "--ranks 1"), two);
    add("serve", "world-size", serve, &format!("{serve} --world-size 2"));
    add("serve", "tail", serve, &format!("{serve} --tail drop"));
    add("serve", "drift", serve, &format!("{serve} --drift 5"));
    add("serve", "on-death", serve, &format!("{serve} --on-death fail"));
    add("serve", "drop-last-batch", serve, &format!("{serve} --drop-last-batch"));
    add("serve", "memory", serve, &format!("{serve} --memory 2GiB"));
    add("serve", "threads", serve, "train.rdx --job JOB --ranks 1 --threads 3");
    add("serve", "columns", serve, &format!("{serve} --columns id"));
    add("serve", "root", serve, &format!("{serve} --root uneven"));
    let stale = serve.replace("train", "stale");
    add("serve", "staleness", &stale, &format!("{stale} --staleness off"));
    add("serve", "on-fault", serve, &format!("{serve} --on-fault substitute"));
    let substitute = format!("{serve} --on-fault substitute");
    add("serve", "fault-seed", &substitute, &format!("{substitute} --fault-seed 5"));
    let quality = "train.rdx --json";
    add("quality", "order", quality, &format!("{quality} --order torch"));
    add("quality", "seed", quality, &format!("{quality} --seed 4"));
    add("quality", "epoch", quality, &format!("{quality} --epoch 4"));
    add("quality", "batch-size", quality, &format!("{quality} --batch-size 40"));
    add("quality", "label", quality, &format!("{quality} --label class"));
    add("quality", "root", &format!("{quality} --label class"), &format!("{quality} --label class --root uneven"));
    add("quality", "plot", quality, &format!("{quality} --plot out.svg"));
    add("quality", "force", &format!("{quality} --plot there.svg"), &format!("{quality} --plot there.svg --force"));
    add("quality", "json", "train.rdx", quality);
    let report = "train.rdx -o out.html --json";
    add("report", "output", report, "train.rdx --output out-other.html --json");
    add("report", "force", "train.rdx -o there.html", "train.rdx -o there.html --force");
    add("report", "memory", report, &format!("{report} --memory 50%"));
    add("report", "world-size", report, &format!("{report} --world-size 3"));
    add("report", "batch-size", report, &format!("{report} --batch-size 40"));
    add("report", "order", report, &format!("{report} --order sequential"));
    add("report", "columns", report, &format!("{report} --columns id"));
    add("report", "json", "train.rdx -o out.html", report);
    add("demo", "keep", "--keep train.rdx", "--keep out-demo");
    cases.extend(sampling("epoch", epoch, ""));
    cases.extend(
        [("predict", plan), ("prove", prove), ("ids", "train.rdx"), ("where", step)].map(|(c, b)| of_a_state(c, b)),
    );
    // In the files' order two replicas have other row groups.
    let of_two = sampling("predict", &format!("{plan} --ranks-per-node 2 --order sequential --batch-size 16"), "");
    cases.extend(of_two.into_iter().filter(|(_, option, ..)| *option == "replica-layout"));
    cases.extend(sampling("predict", plan, "").into_iter().filter(|(_, option, ..)| *option != "replica-layout"));
    // They have cases of their own, or a server has them not.
    let apart = ["no-rotate", "epoch", "epochs", "world-size", "tail"];
    cases.extend(sampling("serve", serve, "").into_iter().filter(|(_, option, ..)| !apart.contains(option)));
    cases.extend(sampling("prove", prove, ""));
    // Where an epoch ends shows in its last steps.
    for (_, option, without, with) in sampling("where", step, "") {
        let last = match option {
            "tail" => "--step 1",
            "epoch-size" => "--step 2",
            _ => "--step 0",
        };
        let [without, with] = [without, with].map(|arguments| arguments.replace("--step 0", last));
        cases.push(("where", option, without, with));
    }
    let mut ids = sampling("ids", "train.rdx", "--rank 1");
    // Without packs it is refused there, and the other cases must go without it.
    ids.retain(|(_, option, ..)| *option != "batch-size");
    for (_, _, without, with) in &mut ids {
        for arguments in [without, with] {
            *arguments = arguments.replace("--batch-size 333", "").replace("--batch-size 1", "");
        }
    }
    cases.extend(ids);
    cases
}

/// The long options in a help text.
fn options(place: &Place, command: &str) -> BTreeSet<String> {
    let help = place.run(&format!("{command} --help")).succeeds().text();
    let name = |line: &str| -> Option<String> {
        let line = line.trim_start();
        let line =
            line.strip_prefix('-')?.trim_start_matches(|c: char| c.is_ascii_alphabetic() || c == ',' || c == ' ');
        let name = line.trim_start_matches('-');
        Some(name.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect())
    };
    let names = help.lines().filter(|line| line.trim_start().starts_with('-')).filter_map(name);
    names.filter(|name| !["", "help", "version"].contains(&name.as_str())).collect()
}

fn commands(place: &Place) -> Vec<String> {
    let help = place.run("--help").succeeds().text();
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // A line that goes on with a description is indented further.
    let named = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    named.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Runs a command where there is no file whose name begins with `out`.
fn run_afresh(place: &Place, arguments: &str) -> Outcome {
    for name in place.names().iter().filter(|name| name.starts_with("out")) {
        let path = place.path(name);
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }
    place.run(arguments)
}

/// What a command wrote: to stdout and stderr, and to files whose names begin with `out`.
fn observe(place: &Place, arguments: &str) -> String {
    #[cfg(target_os = "linux")]
    if arguments.starts_with("serve") {
        return serve::observe(place, arguments);
    }
    let outcome = run_afresh(place, arguments);
    let stdout = match serde_json::from_slice::<Value>(&outcome.stdout) {
        Ok(mut json) => {
            // A prediction is the same each time, but for how long it took.
            without_times(&mut json, if arguments.starts_with("predict") { &["seconds_to_plan"] } else { &TIMES });
            json.to_string()
        }
        Err(_) => outcome.text(),
    };
    let files: Vec<String> =
        place.names().iter().filter(|name| name.starts_with("out")).map(|name| contents(&place.path(name))).collect();
    format!("{stdout}\n{}\n{files:?}", outcome.stderr)
}

fn contents(path: &Path) -> String {
    if !path.is_dir() {
        return format!("{} {:x}", path.display(), xxhash_rust::xxh3::xxh3_64(&fs::read(path).unwrap()));
    }
    // The index of an output has the times of its files.
    let paths = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let mut within: Vec<String> =
        paths.filter(|path| !path.ends_with("index.rdx")).map(|path| contents(&path)).collect();
    within.sort();
    within.join(" ")
}

fn without_times(json: &mut Value, times: &[&str]) {
    match json {
        Value::Object(fields) => {
            fields.retain(|name, _| !times.contains(&name.as_str()));
            fields.values_mut().for_each(|value| without_times(value, times));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| without_times(value, times)),
        _ => {}
    }
}

/// A dataset and all that the cases name.
fn place() -> Place {
    let place = row_choice::place();
    place.write("uneven/a.parquet", &rows_from(0, 10));
    place.write("uneven/b.parquet", &rows_from(10, 10).project(&[0, 1]).unwrap());
    place.write("parted/key=a/a.parquet", &rows_from(0, 10));
    let named = rows_from(10, 10).project(&[0]).unwrap();
    place.write("named/a.parquet", &rows_from(0, 10));
    place.write("named/b.parquet", &RecordBatch::try_from_iter([("key", Arc::clone(named.column(0)))]).unwrap());
    place.write("stale/a.parquet", &rows_from(0, 200));
    place.run("build stale -o stale.rdx").succeeds();
    place.write("stale/a.parquet", &rows_from(0, 199));
    place.write("hurt/a.parquet", &rows_from(0, 970));
    place.run("build hurt -o hurt.rdx").succeeds();
    let path = place.path("hurt/a.parquet");
    let mut bytes = fs::read(&path).unwrap();
    bytes[4..600].fill(0xff);
    fs::write(path, bytes).unwrap();
    fs::write(place.path("skip.txt"), "3..200\n").unwrap();
    fs::write(place.path("rows.csv"), "row_id\n5\n6\n").unwrap();
    fs::write(place.path("rows.txt"), "100..500\n").unwrap();
    place.run("select train.rdx --rows rows.txt -o there.rdx").succeeds();
    place.run("shuffle train.rdx -o there-new").succeeds();
    fs::write(place.path("there.csv"), "").unwrap();
    let weights: String = (0..1000).map(|id| format!("{id},{}\n", id % 3)).collect();
    fs::write(place.path("weights.csv"), format!("row_id,weight\n{weights}")).unwrap();
    fs::write(place.path("lengths.csv"), format!("row_id,length\n{weights}")).unwrap();
    for number in 0..9 {
        fs::copy(place.path("train.rdx"), place.path(format!("noted-{number}.rdx"))).unwrap();
    }
    place.run("lengths noted-7.rdx --column id").succeeds();
    fs::copy(place.path("train.rdx"), place.path("packed.rdx")).unwrap();
    place.run("lengths packed.rdx --column id").succeeds();
    for there in ["there.svg", "there.html"] {
        fs::write(place.path(there), "").unwrap();
    }
    let list = |ids: Vec<u64>| ids.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<_>>();
    fs::write(place.path("order.bin"), list((0..1000).rev().collect())).unwrap();
    fs::write(place.path("some.bin"), list((0..1000).map(|row| row / 2).collect())).unwrap();
    place
}

#[test]
fn every_option_of_every_command_changes_what_the_command_does() {
    let place = place();
    let state = place.json("epoch train.rdx --seed 9 --batch-size 16 --steps 2")["state"].as_str().unwrap().to_owned();
    let cases = cases();
    let mut known: BTreeSet<(String, String)> =
        WITHOUT_A_TRACE.iter().map(|(command, option, _)| (command.to_string(), option.to_string())).collect();
    known.extend(cases.iter().map(|(command, option, ..)| (command.to_string(), option.to_string())));
    let there: BTreeSet<(String, String)> = commands(&place)
        .into_iter()
        .flat_map(|command| options(&place, &command).into_iter().map(move |option| (command.clone(), option)))
        .collect();
    assert!(there.len() > 100, "{there:?}");
    assert_eq!(there.difference(&known).collect::<Vec<_>>(), Vec::<&(String, String)>::new(), "options without a case");
    assert_eq!(
        known.difference(&there).collect::<Vec<_>>(),
        Vec::<&(String, String)>::new(),
        "cases without an option"
    );

    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    let mut idle = Vec::new();
    for (command, option, without, with) in cases {
        let [without, with] = [without, with].map(|arguments| arguments.replace("STATE", &state));
        if option == "json" {
            let is_json =
                |arguments: &str| serde_json::from_slice::<Value>(&run_afresh(&place, arguments).stdout).is_ok();
            assert!(!is_json(&without) && is_json(&with), "{with}");
            continue;
        }
        let before = seen.entry(without.clone()).or_insert_with(|| {
            let before = observe(&place, &without);
            // What differs by itself would make any option look as if it did something.
            assert_eq!(before, observe(&place, &without), "{without} says something else each time");
            before
        });
        if *before == observe(&place, &with) {
            idle.push(format!("{command} --{option}: {with}"));
        }
    }
    assert!(idle.is_empty(), "these options do nothing:\n{}", idle.join("\n"));
}
