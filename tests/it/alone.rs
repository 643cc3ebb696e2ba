//! Tests that run in a process of their own, because they change it or may end it.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::ffi::OsStr;
use std::process::{Command, Output};

/// Runs one ignored test of this program in a process of its own, under a limit of open files if one is given.
pub(crate) fn run(test: &str, most_open: Option<u32>, environment: &[(&str, &OsStr)]) -> Output {
    let limit = most_open.map_or_else(String::new, |most| format!("ulimit -n {most} && "));
    Command::new("sh")
        .arg("-c")
        .arg(format!("{limit}exec \"$0\" \"$@\""))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

/// Checks that it went well, and that it was run at all.
pub(crate) fn succeeded(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "{}\n{out}\n{err}", output.status);
}
