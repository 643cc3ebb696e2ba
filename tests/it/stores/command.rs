//! The command with URLs in the place of paths.

use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::server::Store;
use super::{ROWS, write_data};

fn run(folder: &Path, store: &Store, change: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rowdex"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).envs(store.environment());
    for (name, value) in change {
        match *value {
            "" => command.env_remove(name),
            value => command.env(name, value),
        };
    }
    command.output().unwrap()
}

#[test]
fn every_command_takes_urls() {
    for store in Store::each() {
        write_data(&store.bucket.join("data"));
        every_command_takes_those_of(&store);
    }
}

fn every_command_takes_those_of(store: &Store) {
    let folder = TempDir::new().unwrap();
    let json = |arguments: &[&str]| -> Value {
        let output = run(folder.path(), store, &[], arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let (data, pattern) = (format!("{}/data/", store.url), format!("{}/data/**/*.parquet", store.url));
    let index = format!("{}/train.rdx", store.url);
    let built = json(&["build", &data, "-o", &index, "--json"]);
    assert_eq!((built["rows"].as_u64(), built["requests"].as_u64()), (Some(ROWS), Some(4)));
    assert_eq!(json(&["build", &pattern, "-o", "copy.rdx", "--json"])["files"], 4);
    assert_eq!(json(&["info", &index, "--json"])["fingerprint"], json(&["info", "copy.rdx", "--json"])["fingerprint"]);
    let folder_url = data.trim_end_matches('/');
    for data in [folder_url, &data, &pattern] {
        assert_eq!(json(&["verify", data, "--same-rows", &index, "--json"])["ok"], true, "{data}");
    }
    for index in [index.as_str(), "copy.rdx"] {
        assert_eq!(json(&["verify", index, "--check", "deep", "--json"])["rows"], ROWS);
        assert_eq!(json(&["get", index, "4002", "3", "--columns", "id"])[1]["id"], 3);
        let epoch = json(&["epoch", index, "--batch-size", "64", "--memory", "25%", "--json"]);
        assert_eq!(epoch["coverage"]["distinct"], ROWS);
        assert!(epoch["requests"].as_u64().unwrap() >= 12);
        let plan = json(&["estimate", index, "--batch-size", "64", "--memory", "25%", "--json"]);
        let (told, real) = (plan["first_epoch"]["requests"].as_f64().unwrap(), epoch["requests"].as_f64().unwrap());
        assert!((told - real).abs() <= real / 10.0 + 2.0, "told {told} requests, were {real}");
    }
    let other = format!("{}/data", store.url);
    assert_eq!(json(&["verify", "copy.rdx", "--root", &other, "--json"])["ok"], true);
    assert_eq!(json(&["build", &data, "-o", &index, "--update", "--json"])["read_files"], 0);
}

#[test]
fn ctrl_c_ends_the_command_while_a_store_does_not_answer() {
    let folder = TempDir::new().unwrap();
    let (sender, asked) = mpsc::channel();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/a.parquet", silent.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        while let Ok((client, _)) = silent.accept() {
            kept.push(client);
            if sender.send(()).is_err() {
                return;
            }
        }
    });
    for arguments in [vec!["build", &url, "-o", "i.rdx"], vec!["info", &url], vec!["get", &url, "0"]] {
        // Where the tests run in the background of a shell the signal is ignored, which programs inherit.
        let mut command = Command::new("env");
        command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_rowdex")]).args(&arguments);
        let mut running = command.current_dir(folder.path()).stderr(Stdio::null()).spawn().unwrap();
        asked.recv_timeout(Duration::from_secs(30)).unwrap();
        assert!(Command::new("kill").args(["-INT", &running.id().to_string()]).status().unwrap().success());
        let ended = running.wait().unwrap();
        assert_eq!(ended.signal(), Some(2), "{arguments:?}: {ended}");
        assert!(!folder.path().join("i.rdx").exists());
    }
}

#[test]
fn what_is_wrong_with_a_store_is_said_with_what_to_do() {
    /// What differs in the environment, the data, and words of the answer.
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a [&'a str]);
    for store in Store::each() {
        write_data(&store.bucket.join("data"));
        let folder = TempDir::new().unwrap();
        let scheme = &store.url[..2];
        let (data, file) = (format!("{}/data/", store.url), format!("{}/data/none.parquet", store.url));
        let (empty, none) = (format!("{}/nothing/", store.url), format!("{scheme}://no-such-bucket/data/"));
        let common: [Case<'_>; 5] = [
            (&[], &none, &["no bucket or container `no-such-bucket`", "endpoint"]),
            (&[], &file, &[&file, "no such file", "a folder ends in `/`"]),
            (&[], &empty, &[&empty, "no Parquet file here"]),
            (&[], "s3://key:canary@bucket/data/", &["a user or a password", "environment"]),
            (&[], "ftp://host/data/", &["scheme is not known"]),
        ];
        let own: &[Case<'_>] = match scheme {
            "s3" => &[
                (&[("AWS_SECRET_ACCESS_KEY", "wrong")], &data, &["refuses access", "AWS_SECRET_ACCESS_KEY"]),
                (&[("AWS_ACCESS_KEY_ID", "wrong")], &data, &["refuses", "AWS_ACCESS_KEY_ID"]),
                (&[("AWS_ALLOW_HTTP", "false")], &data, &["AWS_ALLOW_HTTP"]),
            ],
            _ => &[
                (&[("GOOGLE_BEARER_TOKEN", "canary")], &data, &["refuses access", "GOOGLE_APPLICATION_CREDENTIALS"]),
                (&[("GOOGLE_SKIP_SIGNATURE", "true")], &data, &["refuses access", "GOOGLE_APPLICATION_CREDENTIALS"]),
                (&[("GOOGLE_ALLOW_HTTP", "false")], &data, &["GOOGLE_ALLOW_HTTP"]),
            ],
        };
        for (change, data, words) in common.iter().chain(own) {
            let output = run(folder.path(), &store, change, &["build", data, "-o", "i.rdx"]);
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{data}: {said}");
            assert!(words.iter().all(|word| said.contains(word)), "{data}: {said}");
            assert!(!said.contains("canary") && said.lines().count() == 1, "{said}");
            assert!(!folder.path().join("i.rdx").exists());
        }
    }
}
