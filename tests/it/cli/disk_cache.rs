//! The disk cache, as several processes of a machine use it.

use std::fs;
use std::process::Stdio;

use serde_json::Value;

use super::place::{FILES, Place, ROWS};

/// Row groups that have rows.
fn groups() -> u64 {
    FILES.iter().map(|rows| rows.div_ceil(97) as u64).sum()
}

fn digest(report: &Value) -> &Value {
    &report["ranks"][0]["rows_digest"]
}

const EPOCH: &str = "epoch train.rdx --digest --memory 10% --epochs 3 --json";
const DISK_CACHE: &str = "--disk-cache disk_cache=100MiB";

#[test]
fn two_processes_at_once_write_each_row_group_once_between_them() {
    let place = Place::with_index();
    let expected = place.json("epoch train.rdx --digest --memory 10% --epochs 3");
    assert!(expected["decodes"].as_u64().unwrap() > 2 * groups(), "otherwise nothing is shown");
    let start = || {
        let mut command = place.command(&format!("{EPOCH} {DISK_CACHE}"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let processes = [start(), start()];
    let reports = processes.map(|process| {
        let output = process.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && !said.contains("disk_cache"), "{said}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    });
    let sum =
        |pointer: &str| reports.iter().map(|report| report.pointer(pointer).unwrap().as_u64().unwrap()).sum::<u64>();
    assert_eq!(sum("/disk_cache/writes"), groups());
    assert!(sum("/decodes") >= groups());

    for report in &reports {
        assert_eq!(digest(report), digest(&expected));
    }
    let warm = place.run(&format!("{EPOCH} {DISK_CACHE}")).succeeds();
    assert!(!warm.stderr.contains("disk_cache"), "{}", warm.stderr);
    let warm = warm.json();
    assert_eq!((&warm["disk_cache"]["misses"], &warm["bytes_read"]), (&0.into(), &0.into()));
    assert_eq!(warm["decodes"], 0);

    assert_eq!(digest(&warm), digest(&expected));
    // No lock and nothing half-written is left.
    let entries =
        fs::read_dir(place.path("disk_cache")).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    assert!(entries.into_iter().all(|name| name.ends_with(".rdxt")));
}

#[test]
fn a_folder_that_cannot_be_written_to_is_told_once_and_the_rows_are_served() {
    let place = Place::with_index();
    let expected = place.json("epoch train.rdx --digest --memory 10% --epochs 3");
    let told = |place: &Place, arguments: &str| {
        let outcome = place.run(arguments).succeeds().complains(&["disk cache", "train.rdx/disk_cache"]);
        let told = outcome.stderr.lines().filter(|line| line.contains("disk cache"));
        assert_eq!(told.count(), 1, "{}", outcome.stderr);
        outcome
    };
    let disk_cache = "--disk-cache train.rdx/disk_cache=100MiB";
    let report = told(&place, &format!("{EPOCH} {disk_cache}")).json();
    assert_eq!((digest(&report), &report["disk_cache"]["writes"]), (digest(&expected), &0.into()));
    let plain = place.run("get train.rdx 0..1003").succeeds().text();
    assert_eq!(told(&place, &format!("get train.rdx 0..1003 {disk_cache}")).text(), plain);
}

#[test]
fn a_disk_cache_needs_a_folder_a_size_and_compared_files() {
    let place = Place::with_index();
    for arguments in ["--disk-cache disk_cache", "--disk-cache disk_cache=lots"] {
        place.run(&format!("epoch train.rdx --digest {arguments}")).exits_with_usage();
    }
    assert!(!place.path("disk_cache").exists());
    let report = place.json("epoch train.rdx --digest --memory 10% --disk-cache disk_cache=300%");
    assert_eq!((&report["disk_cache"]["writes"], &report["coverage"]["served"]), (&groups().into(), &ROWS.into()));
    let text = place.run(&format!("epoch train.rdx --digest {DISK_CACHE}")).succeeds().text();
    assert!(text.contains("bytes written"), "{text}");
}
