//! `rewrite`: the order of the output, runs that are killed, and what is refused.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use rowdex::Index;

use super::place::{Place, ROWS, rows_from};

/// The Parquet files of a folder, by name.
fn files(place: &Place, folder: &str) -> BTreeMap<String, Vec<u8>> {
    let Ok(entries) = fs::read_dir(place.path(folder)) else { return BTreeMap::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    let parquet = paths.filter(|path| path.extension().is_some_and(|kind| kind == "parquet"));
    parquet.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(path).unwrap())).collect()
}

/// The column `id` of the files of a folder, one after the other.
fn ids(place: &Place, folder: &str) -> Vec<i64> {
    let mut ids = Vec::new();
    for file in files(place, folder).into_values() {
        for batch in ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(file)).unwrap().build().unwrap() {
            let batch = batch.unwrap();
            ids.extend(batch.column_by_name("id").unwrap().as_primitive::<Int64Type>().values());
        }
    }
    ids
}

/// The row ids that `rowdex trace` tells, which are the values of `id` here.
fn told(place: &Place, arguments: &str) -> Vec<i64> {
    let text = place.run(&format!("trace train.rdx {arguments}")).succeeds().text();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn rows_are_written_as_the_command_ids_tells_them() {
    let place = Place::with_index();
    let cases = [
        ("--seed 7", "--seed 7"),
        ("--seed 7 --order blocks:3 --memory 20KiB", "--seed 7 --order blocks:3"),
        ("--order sequential --files 4", "--order sequential"),
        ("--seed 3 --memory 16KiB", "--seed 3"),
    ];
    for (number, (shuffled, order)) in cases.into_iter().enumerate() {
        let folder = format!("out-{number}");
        let report = place.json(&format!("rewrite train.rdx -o {folder} {shuffled}"));
        assert_eq!(report["rows"], ROWS);
        assert_eq!(ids(&place, &folder), told(&place, order), "{shuffled}");
        let index = Index::open(place.path(format!("{folder}/index.rdx"))).unwrap();
        index.verify().unwrap();
        assert_eq!(index.len(), ROWS as u64);
    }
    place.list("list.txt", [900, 3, 3, 41]);
    place.run("rewrite train.rdx -o listed --order list.txt --origin row").succeeds();
    assert_eq!(ids(&place, "listed"), [900, 3, 3, 41]);
    place.run("rewrite data -o from-data --seed 7").succeeds();
    assert_eq!(files(&place, "from-data"), files(&place, "out-0"), "an index built on the way");
}

#[test]
fn what_was_written_is_proven_in_any_order() {
    let place = Place::with_index();
    for (number, order) in
        ["--seed 7", "--seed 3 --order blocks:2 --origin row", "--order sequential --columns id,tags"]
            .into_iter()
            .enumerate()
    {
        let report = place.json(&format!("rewrite train.rdx -o out-{number} {order} --verify"));
        let columns = if order.contains("columns") { "--columns id,tags" } else { "" };
        let digest = place.json(&format!("verify train.rdx --rows {columns}"));
        assert_eq!(report["rows_digest"], digest["rows_digest"], "{order}");
    }
    let prove = "verify train.rdx --same-rows out-0/index.rdx";
    place.run(&format!("{prove} --seed 7")).succeeds();
    place.run(&format!("{prove} --seed 8")).fails().complains(&[
        "not in the order",
        "part-00000.parquet",
        "row id of 0..1",
    ]);
    place.list("list.txt", [900, 3, 3, 41]);
    place.run("rewrite train.rdx -o listed --order list.txt --verify").succeeds();
    place.run("rewrite train.rdx -o tasks --step spill --verify").exits_with_usage().complains(&["--verify"]);
}

/// Six kills, or sixty with `ROWDEX_LONG`.
#[test]
fn a_shuffle_killed_at_any_moment_goes_on_to_the_same_bytes() {
    let kills = if std::env::var_os("ROWDEX_LONG").is_some() { 60 } else { 6 };
    let place = Place::new();
    for file in 0..6 {
        place.write(&format!("data/{file}.parquet"), &rows_from(file * 5000, 5000));
    }
    place.run("build data -o train.rdx").succeeds();
    let command = "rewrite train.rdx --seed 5 --files 5 --memory 256KiB --threads 2";
    let started = Instant::now();
    let report = place.json(&format!("{command} -o whole"));
    let took = started.elapsed();
    assert!(report["bytes_spilled"].as_u64().unwrap() > 0);
    let whole = files(&place, "whole");
    let mut cut = 0;
    for kill in 0..kills {
        let folder = format!("out-{kill}");
        // Killed again while it goes on, and then not any more.
        for again in 0..2 {
            let resume = if again > 0 { "--resume" } else { "" };
            let mut child = place.command(&format!("{command} -o {folder} {resume}"));
            let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let part = (f64::from(kill) + 0.5) / f64::from(kills);
            sleep(took.mul_f64(part).min(Duration::from_secs(5)));
            child.kill().unwrap();
            cut += usize::from(!child.wait().unwrap().success());
            for (name, bytes) in files(&place, &folder) {
                assert!(whole[&name] == bytes, "{name} is half written after kill {kill}");
            }
        }
        place.run(&format!("{command} -o {folder} --resume")).succeeds();
        assert!(files(&place, &folder) == whole, "kill {kill}");
        let names = fs::read_dir(place.path(&folder)).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = names.filter(|name| name.to_string_lossy().contains("tmp-") || name == "_spill").collect();
        assert!(left.is_empty(), "kill {kill} left {left:?}");
    }
    assert!(cut > 0, "no run was killed before it ended");
}

/// What is written is limited, as by a disk that is full.
#[test]
fn a_disk_that_takes_no_more_is_an_error_and_the_run_goes_on_when_it_does() {
    let place = Place::with_index();
    let command = "rewrite train.rdx --seed 5 --files 1 --memory 64KiB";
    place.run(&format!("{command} -o whole")).succeeds();
    for blocks in [1, 8, 16, 40] {
        let output = Command::new("sh")
            .arg("-c")
            .arg(format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\""))
            .arg(env!("CARGO_BIN_EXE_rowdex"))
            .args(format!("{command} -o out-{blocks}").split_whitespace())
            .current_dir(place.path(""))
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{blocks} blocks: {said}");
        assert!(said.contains(&format!("out-{blocks}")) && said.contains("File too large"), "{said}");
        assert!(files(&place, &format!("out-{blocks}")).is_empty());
        place.run(&format!("{command} -o out-{blocks} --resume")).succeeds();
        assert!(files(&place, &format!("out-{blocks}")) == files(&place, "whole"));
    }
}

#[test]
fn tasks_in_processes_of_their_own_write_what_one_run_writes() {
    let place = Place::with_index();
    place.run("rewrite train.rdx -o whole --seed 5 --files 3").succeeds();
    let step = |arguments: &str| place.run(&format!("rewrite train.rdx -o out --seed 5 --files 3 {arguments}"));
    step("--step write:0/2").fails();
    for task in 0..3 {
        step(&format!("--step spill:{task}/3")).succeeds();
    }
    for task in [1, 0] {
        step(&format!("--step write:{task}/2")).succeeds();
    }
    step("--step index").succeeds();
    assert!(files(&place, "out") == files(&place, "whole"));
    step("--step write:2/2").fails();
    for step in ["spill:1", "index:0/1", "write:0/0", "read"] {
        place.run(&format!("rewrite train.rdx -o out --step {step}")).exits_with_usage();
    }
    place.run("rewrite train.rdx -o out --step index --overwrite").exits_with_usage();
}

#[test]
fn wrong_arguments_and_outputs_in_the_way_are_refused() {
    let place = Place::with_index();
    place.list("list.txt", [900, 3]);
    place.run("rewrite train.rdx -o out --order list.txt --seed 7").exits_with_usage().complains(&["--seed"]);
    place.run("rewrite train.rdx -o out --order sequential --seed 7").exits_with_usage().complains(&["--seed"]);
    place.run("rewrite train.rdx").exits_with_usage();
    for wrong in
        ["--order nothing", "--files 0", "--compression gzip", "--row-group-rows 0", "--files 2 --file-bytes 1MiB"]
    {
        place.run(&format!("rewrite train.rdx -o out {wrong}")).exits_with_usage();
        assert!(!place.path("out").exists(), "{wrong}");
    }
    std::os::unix::fs::symlink(place.path("data"), place.path("link")).unwrap();
    for same in ["data -o data/out", "link -o data/out", "data -o link/out/further"] {
        let within = place.run(&format!("rewrite {same}")).fails();
        assert!(within.stderr.contains("within the input"), "{}", within.stderr);
    }
    let among = place.run("rewrite train.rdx -o data").fails();
    assert!(among.stderr.contains("file of the input"), "{}", among.stderr);
    place.run("rewrite train.rdx -o out").succeeds();
    let again = place.run("rewrite train.rdx -o out").fails();
    assert!(again.stderr.contains("`overwrite`"), "{}", again.stderr);
    place.run("rewrite train.rdx -o out --seed 9 --resume").fails();
    place.run("rewrite train.rdx -o out --seed 9 --overwrite").succeeds();
    assert_eq!(ids(&place, "out"), told(&place, "--seed 9"));
    let most = u64::MAX;
    let large = format!("--row-group-rows {most} --memory 16KiB");
    place.run(&format!("rewrite train.rdx -o large {large} --step spill:0/{most}")).succeeds();
    place.run(&format!("rewrite train.rdx -o large {large} --resume --verify")).succeeds();
}
