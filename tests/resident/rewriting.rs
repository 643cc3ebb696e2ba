//! How much memory `rowdex rewrite` takes.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rowdex::Dataset;
use serde_json::Value;

use super::{FOOTER, MIB, SHAPES, Shape, mib, resident_of, written};

/// Threads of every rewrite.
const THREADS: u64 = 2;

/// The rows of a shape, and memories in MiB, in the gate and in the long run.
struct Case {
    shape: &'static str,
    rows: [i64; 2],
    memory: [&'static [u64]; 2],
}

/// There are several times as many bytes as the memory, and in the long run as the first two memories.
const CASES: [Case; 4] = [
    Case { shape: "tab", rows: [3_000_000, 60_000_000], memory: [&[64], &[64, 256, 1024, 4096]] },
    Case { shape: "strings", rows: [2_000_000, 40_000_000], memory: [&[64], &[64, 256, 1024, 4096]] },
    Case { shape: "images", rows: [15_000, 200_000], memory: [&[64], &[64, 256, 1024, 4096]] },
    Case { shape: "tokens", rows: [120_000, 2_000_000], memory: [&[64], &[64, 256, 1024, 4096]] },
];

/// Rows of the row groups that are written, and the most that was resident of the command until it ended.
fn shuffled(index: &Path, memory: u64) -> (u64, u64) {
    let output = index.with_file_name("output");
    let mut command = Command::new(env!("CARGO_BIN_EXE_rowdex"));
    command.arg("rewrite").arg(index).arg("-o").arg(&output).args([
        "--json",
        &format!("--memory={memory}"),
        &format!("--threads={THREADS}"),
    ]);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        most = most.max(resident_of(&child.id().to_string()).unwrap_or(0));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(child.wait().unwrap().success());
    let plan = std::fs::read(output.join("_rewrite.json")).unwrap();
    let plan: Value = serde_json::from_slice(&plan).unwrap();
    (plan["row_group_rows"].as_u64().unwrap(), most)
}

#[test]
fn what_is_resident_of_a_rewrite_is_what_it_was_given_and_what_is_told_besides() {
    let only = std::env::var("ROWDEX_SHAPES").ok();
    let size = usize::from(std::env::var_os("ROWDEX_LONG").is_some());
    let chosen = |case: &&Case| only.as_ref().is_none_or(|only| only.split(',').any(|name| name == case.shape));
    let mut missed = Vec::new();
    for case in CASES.iter().filter(chosen) {
        let shape = SHAPES.iter().find(|shape| shape.name == case.shape).unwrap();
        let shape = &Shape { rows: case.rows, ..*shape };
        let (rows, group_rows) = (case.rows[size] as u64, shape.group_rows[size] as u64);
        let folder = tempfile::tempdir().unwrap();
        let index = written(shape, size, folder.path());
        let decoded = Dataset::open(&index).unwrap().decoded_bytes();
        let columns = (shape.batch)(0..1).num_columns() as u64;
        for memory in case.memory[size] {
            let memory = memory * MIB;
            let (written, took) = shuffled(&index, memory);
            let groups = 2 * decoded * (group_rows + written) / rows;
            let footers = columns * (rows / group_rows) * FOOTER;
            let allowed = memory + memory / 8 + groups + footers + 32 * MIB + THREADS * MIB;
            let [of, decoded, groups, took_mib, allowed_mib] = [memory, decoded, groups, took, allowed].map(mib);
            let line = format!(
                "{} memory {of:.0} of {decoded:.0} groups {groups:.1}: {took_mib:.1} of {allowed_mib:.1} MiB allowed",
                shape.name
            );
            println!("{line}");
            if took > allowed {
                missed.push(line);
            }
            std::fs::remove_dir_all(index.with_file_name("output")).unwrap();
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
