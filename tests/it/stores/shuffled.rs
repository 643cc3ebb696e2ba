//! `shuffle` with an output in a store: the files of a local run, whole or not at all, and nothing left behind.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::sleep;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, BinaryArray, Int64Array, RecordBatch};
use rowdex::source::{ObjectSource, Source};
use serde_json::Value;
use tempfile::TempDir;

use super::proxy::{field, read_head};
use super::server::{Azurite, BUCKET, S3, Store, environment};
use super::{ROWS, write, write_data};

/// Four files of 6 MB that no codec makes smaller: `parts` of them make two uploads of several parts.
const LARGE: &str = "--seed 5 --files 2 --memory 4MiB --compression none --threads 2";

fn write_large(folder: &Path) {
    let mut state = 7_u64;
    let mut noise = || {
        let mut bytes = Vec::with_capacity(6000);
        while bytes.len() < 6000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            bytes.extend_from_slice(&(state ^ (state >> 29)).to_le_bytes());
        }
        bytes
    };
    for file in 0..4_i64 {
        let id: ArrayRef = Arc::new(Int64Array::from_iter_values(file * 1000..(file + 1) * 1000));
        let blob: ArrayRef = Arc::new(BinaryArray::from_iter_values((0..1000).map(|_| noise())));
        let batch = RecordBatch::try_from_iter([("id", id), ("blob", blob)]).unwrap();
        write(&folder.join(format!("data/{file}.parquet")), &batch);
    }
}

/// A folder with large data and its index, and the files that a local run makes of them.
fn local() -> (TempDir, BTreeMap<String, Vec<u8>>) {
    let folder = TempDir::new().unwrap();
    write_large(folder.path());
    succeeds(folder.path(), &[], "build data -o train.rdx");
    succeeds(folder.path(), &[], &format!("rewrite train.rdx -o local {LARGE}"));
    let files = parquet(&folder.path().join("local"));
    assert_eq!(files.len(), 2);
    assert!(files.values().all(|bytes| bytes.len() > 10 << 20), "each takes more than one part");
    (folder, files)
}

fn command(folder: &Path, environment: &[(&'static str, String)], arguments: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_rowdex")]).args(arguments.split(' '));
    command.current_dir(folder).stdin(Stdio::null()).envs(environment.iter().map(|(name, value)| (name, value)));
    command
}

fn run(folder: &Path, environment: &[(&'static str, String)], arguments: &str) -> Output {
    command(folder, environment, arguments).output().unwrap()
}

fn succeeds(folder: &Path, environment: &[(&'static str, String)], arguments: &str) -> String {
    let output = run(folder, environment, arguments);
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What an unsuccessful command says.
fn fails(folder: &Path, environment: &[(&'static str, String)], arguments: &str) -> String {
    let output = run(folder, environment, arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{arguments}: {said}");
    said
}

/// The Parquet files of a folder, by name.
fn parquet(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let Ok(entries) = std::fs::read_dir(folder) else { return BTreeMap::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    let files = paths.filter(|path| path.extension().is_some_and(|kind| kind == "parquet"));
    files.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(path).unwrap())).collect()
}

/// Parts of uploads that the server keeps.
fn leftovers(bucket: &Path) -> Vec<PathBuf> {
    let all = walkdir::WalkDir::new(bucket.parent().unwrap()).into_iter().map(|entry| entry.unwrap().into_path());
    all.filter(|path| path.to_string_lossy().contains(".upload")).collect()
}

#[test]
fn the_objects_are_the_files_of_a_local_run_and_are_proven_indexed_and_read() {
    for store in Store::each() {
        let (folder, local) = local();
        let environment = store.environment();
        let out = format!("{}/out/", store.url);
        let shuffle = format!("rewrite train.rdx -o {out} {LARGE} --spill spill --verify --json");
        let report: Value = serde_json::from_str(&succeeds(folder.path(), &environment, &shuffle)).unwrap();
        assert_eq!((report["rows"].as_u64(), report["files"].as_u64()), (Some(4000), Some(2)));
        assert!(report["bytes_spilled"].as_u64().unwrap() > 0);
        assert_eq!(report["index"], format!("{}/out/index.rdx", store.url));
        assert!(parquet(&store.bucket.join("out")) == local);
        assert!(leftovers(&store.bucket).is_empty(), "{:?}", leftovers(&store.bucket));
        assert!(std::fs::read_dir(folder.path().join("spill")).unwrap().next().is_none(), "nothing stays spilled");
        let prove = format!("verify train.rdx --same-rows {out}index.rdx");
        succeeds(folder.path(), &environment, &format!("{prove} --seed 5"));
        assert!(fails(folder.path(), &environment, &format!("{prove} --seed 6")).contains("not in the order"));
        // From the store to the store, and back.
        succeeds(
            folder.path(),
            &environment,
            &format!("rewrite {out}index.rdx -o {}/again {LARGE} --spill spill --verify", store.url),
        );
        succeeds(folder.path(), &environment, &format!("rewrite {}/again/index.rdx -o back {LARGE}", store.url));
        assert!(parquet(&folder.path().join("back")).len() == 2);
    }
}

#[test]
fn azure_takes_objects_in_blocks() {
    let (folder, local) = local();
    let Some(azurite) = Azurite::start(&folder.path().join("data")) else { return };
    let (environment, out) = (azurite.environment(), format!("az://{BUCKET}/out"));
    succeeds(folder.path(), &environment, &format!("rewrite train.rdx -o {out} {LARGE} --spill spill --verify"));
    let options = azurite.options();
    for (name, bytes) in &local {
        let source = ObjectSource::new(&out, &options).unwrap();
        let read = source.read(name, std::slice::from_ref(&(0..bytes.len() as u64))).unwrap();
        assert!(read[0] == bytes.as_slice());
        assert_eq!(source.stat(name).unwrap().size, bytes.len() as u64);
    }
    let said = fails(folder.path(), &environment, &format!("rewrite train.rdx -o {out} {LARGE} --spill spill"));
    assert!(said.contains("has a rewrite already"), "{said}");
    succeeds(folder.path(), &environment, &format!("rewrite train.rdx -o {out} {LARGE} --spill spill --overwrite"));
}

#[test]
fn a_rewrite_into_a_store_that_is_killed_goes_on() {
    let Some(s3) = S3::start() else { return };
    let kills = if std::env::var_os("ROWDEX_LONG").is_some() { 30 } else { 5 };
    let (folder, local) = local();
    // Slow, so that uploads are under way for a while.
    let slow = front(s3.address, |_, _| {
        sleep(Duration::from_millis(30));
        Answer::Servers
    });
    let environment = environment(slow);
    let shuffle = format!("rewrite train.rdx {LARGE} --spill spill");
    let started = Instant::now();
    succeeds(folder.path(), &environment, &format!("{shuffle} -o s3://{BUCKET}/whole"));
    let took = started.elapsed();
    let mut cut = 0;
    for kill in 0..kills {
        let out = format!("s3://{BUCKET}/out-{kill}");
        let at = s3.bucket().join(format!("out-{kill}"));
        for resume in ["", " --resume"] {
            let mut child = command(folder.path(), &environment, &format!("{shuffle} -o {out}{resume}"));
            let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            sleep(took.mul_f64((f64::from(kill) + 0.5) / f64::from(kills)));
            child.kill().unwrap();
            cut += usize::from(!child.wait().unwrap().success());
            for (name, bytes) in parquet(&at) {
                assert!(local[&name] == bytes, "{name} is half written after kill {kill}");
            }
        }
        succeeds(folder.path(), &environment, &format!("{shuffle} -o {out} --resume"));
        assert!(parquet(&at) == local, "kill {kill}");
    }
    assert!(cut > 0);
}

#[test]
fn tasks_on_many_machines_share_a_prefix() {
    let Some(s3) = S3::start() else { return };
    let (folder, local) = local();
    let (environment, out) = (environment(s3.address), format!("s3://{BUCKET}/out"));
    let task = |step: &str| format!("rewrite train.rdx -o {out} {LARGE} --spill spill --step {step}");
    let said = fails(folder.path(), &environment, &format!("rewrite train.rdx -o {out} {LARGE} --step spill"));
    assert!(said.contains("spill folder"), "{said}");
    for number in [1, 0] {
        succeeds(folder.path(), &environment, &task(&format!("spill:{number}/2")));
    }
    succeeds(folder.path(), &environment, &task("write:0/2"));
    let said = fails(folder.path(), &environment, &task("index"));
    assert!(said.contains("part-00001.parquet") && said.contains("not written yet"), "{said}");
    for number in [1, 0, 1] {
        succeeds(folder.path(), &environment, &task(&format!("write:{number}/2")));
    }
    succeeds(folder.path(), &environment, &format!("{} --verify", task("index")));
    assert!(parquet(&s3.bucket().join("out")) == local);
    assert!(leftovers(&s3.bucket()).is_empty(), "{:?}", leftovers(&s3.bucket()));
}

#[test]
fn what_is_there_already_is_refused_and_replaced_on_request_alone() {
    for store in Store::each() {
        write_data(&store.bucket.join("data"));
        let folder = TempDir::new().unwrap();
        let environment = store.environment();
        let url = &store.url;
        let shuffle = |rest: &str| format!("rewrite {url}/train.rdx {rest}");
        let refused = |arguments: &str, words: &[&str]| {
            let said = fails(folder.path(), &environment, arguments);
            assert!(words.iter().all(|word| said.contains(word)), "{arguments}: {said}");
        };
        succeeds(folder.path(), &environment, &format!("build {url}/data/ -o {url}/train.rdx"));
        succeeds(folder.path(), &environment, &shuffle(&format!("-o {url}/out/ --seed 1 --files 3 --spill .")));
        refused(&shuffle(&format!("-o {url}/out --seed 1 --files 3")), &[&format!("{url}/out"), "`overwrite`"]);
        refused(&shuffle(&format!("-o {url}/out --seed 2 --files 3 --resume")), &["other rows, in another order"]);
        std::fs::write(store.bucket.join("out/_keep"), "").unwrap();
        succeeds(
            folder.path(),
            &environment,
            &shuffle(&format!("-o {url}/out --seed 2 --files 1 --overwrite --verify")),
        );
        let names = parquet(&store.bucket.join("out")).into_keys().collect::<Vec<_>>();
        assert_eq!(names, ["part-00000.parquet"], "the others are gone");
        assert!(store.bucket.join("out/_keep").exists(), "what no rewrite wrote stays");
        refused(&shuffle(&format!("-o {url}/data/ --seed 1")), &["file of the input", "data/"]);
        refused(&format!("rewrite {url}/data/ -o {url}/data/out --seed 1"), &["within the input"]);
        std::fs::create_dir_all(store.bucket.join("full/sub")).unwrap();
        std::fs::write(store.bucket.join("full/sub/x.parquet"), "").unwrap();
        refused(&shuffle(&format!("-o {url}/full")), &["full/sub/x.parquet", "no rewrite wrote"]);
        refused(&shuffle(&format!("-o {url}/out-2 --memory 8KiB")), &["spill folder"]);
        refused(&shuffle(&format!("-o {url}/out-2 --spill {url}/spill")), &["not spilled to a store"]);
        assert!(!store.bucket.join("out-2").exists(), "nothing was written");
        refused(&shuffle("-o http://127.0.0.1:1/out"), &["a web server is read"]);
        refused(&shuffle("-o hf://datasets/o/n/out"), &["the hub is read"]);
        // An index of data that was named is not kept, and is the same when it is built again.
        succeeds(folder.path(), &environment, &format!("rewrite {url}/data/ -o {url}/from-data --seed 2 --files 1"));
        succeeds(
            folder.path(),
            &environment,
            &format!("rewrite {url}/data/ -o {url}/from-data --seed 2 --files 1 --resume"),
        );
        assert!(parquet(&store.bucket.join("from-data")) == parquet(&store.bucket.join("out")));
        let told = succeeds(folder.path(), &environment, &format!("info {url}/from-data/index.rdx --json"));
        assert_eq!(serde_json::from_str::<Value>(&told).unwrap()["rows"], ROWS);
    }
}

#[test]
fn no_secret_is_in_a_plan_a_spill_an_index_or_what_is_said() {
    for store in Store::each() {
        let (folder, _) = local();
        let (environment, url) = (store.environment(), &store.url);
        let shuffle = format!("rewrite train.rdx -o {url}/out {LARGE} --spill spill");
        let mut said = Vec::new();
        for arguments in [format!("{shuffle} --step spill"), shuffle.clone(), format!("{shuffle} --resume"), shuffle] {
            let output = run(folder.path(), &environment, &arguments);
            said.extend([output.stdout, output.stderr].concat());
            for root in [folder.path(), &store.bucket] {
                for entry in walkdir::WalkDir::new(root).into_iter().map(Result::unwrap) {
                    let name = entry.path().to_string_lossy().into_owned();
                    if entry.file_type().is_file() && !name.contains("/data/") && !name.ends_with(".parquet") {
                        said.extend(std::fs::read(entry.path()).unwrap());
                    }
                }
            }
        }
        assert!(said.windows(14).any(|bytes| bytes == b"rowdex_rewrite"), "plans among them");
        for (_, secret) in environment.iter().filter(|(name, _)| name.contains("KEY") || name.contains("TOKEN")) {
            let found = !secret.is_empty() && said.windows(secret.len()).any(|bytes| bytes == secret.as_bytes());
            assert!(!found, "{secret}");
        }
    }
}

/// A front before a server, which answers some requests itself: what `say` gives of the head and the number of the
/// request.
fn front(server: SocketAddr, say: impl Fn(&str, usize) -> Answer + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, say) = (listener.local_addr().unwrap(), Arc::new(say));
    let counted = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(mut client), say, counted) = (client, Arc::clone(&say), Arc::clone(&counted)) else { continue };
            std::thread::spawn(move || {
                let Ok((head, rest)) = read_head(&mut client) else { return };
                let text = String::from_utf8_lossy(&head).into_owned();
                let length: u64 = field(&text, "content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
                let missing = length.saturating_sub(rest.len() as u64);
                let answer = say(&text, counted.fetch_add(1, Ordering::Relaxed));
                if let Answer::Silence = answer {
                    sleep(Duration::from_secs(60));
                    return;
                }
                let mut body = rest;
                let _ = Read::by_ref(&mut client).take(missing).read_to_end(&mut body);
                if (body.len() as u64) < length {
                    // The client is no more.
                    return;
                }
                if let Answer::Status(status) = answer {
                    let _ = write!(client, "HTTP/1.1 {status} So\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                    return;
                }
                let Ok(mut server) = TcpStream::connect(server) else { return };
                let head = text.trim_end().to_owned();
                let lines = head.lines().filter(|line| !line.to_ascii_lowercase().starts_with("connection:"));
                let head: String = lines.map(|line| format!("{line}\r\n")).collect();
                let _ = write!(server, "{head}connection: close\r\n\r\n");
                let _ = server.write_all(&body);
                if let Answer::Lost = answer {
                    let _ = server.read_to_end(&mut Vec::new());
                    return;
                }
                let _ = std::io::copy(&mut server, &mut client);
                let _ = client.shutdown(Shutdown::Both);
            });
        }
    });
    address
}

/// What becomes of a request.
enum Answer {
    /// It is passed on.
    Servers,
    Status(u16),
    /// It is passed on, and the answer is not.
    Lost,
    Silence,
}

#[test]
fn requests_that_fail_are_sent_again_and_an_upload_whose_completion_is_not_confirmed_is_complete() {
    let Some(s3) = S3::start() else { return };
    let (folder, local) = local();
    let faults = Arc::new(AtomicUsize::new(0));
    let foul = front(s3.address, {
        let faults = Arc::clone(&faults);
        move |head, number| {
            let is_completion = head.starts_with("POST ") && head.contains("uploadId=");
            let answer = match number % 3 {
                0 if is_completion => Answer::Lost,
                0 if head.starts_with("PUT ") || head.starts_with("DELETE ") => Answer::Status(503),
                1 if is_completion => Answer::Lost,
                _ => return Answer::Servers,
            };
            faults.fetch_add(1, Ordering::Relaxed);
            answer
        }
    });
    for number in 0..3 {
        let out = format!("out-{number}");
        let shuffle = format!("rewrite train.rdx -o s3://{BUCKET}/{out} {LARGE} --spill spill --verify");
        succeeds(folder.path(), &environment(foul), &shuffle);
        assert!(parquet(&s3.bucket().join(&out)) == local);
        assert!(leftovers(&s3.bucket()).is_empty(), "{:?}", leftovers(&s3.bucket()));
    }
    assert!(faults.load(Ordering::Relaxed) > 3);
}

#[test]
fn a_small_object_whose_answer_is_lost_is_taken_for_what_it_is() {
    let Some(s3) = S3::start() else { return };
    let folder = TempDir::new().unwrap();
    write_data(&folder.path().join("data"));
    let lost = Arc::new(AtomicUsize::new(0));
    let foul = front(s3.address, {
        let lost = Arc::clone(&lost);
        move |head, _| match head.starts_with("PUT ") && lost.fetch_add(1, Ordering::Relaxed) == 0 {
            true => Answer::Lost,
            false => Answer::Servers,
        }
    });
    let build = format!("build data -o s3://{BUCKET}/train.rdx");
    succeeds(folder.path(), &environment(foul), &build);
    assert!(lost.load(Ordering::Relaxed) >= 1);
    assert!(fails(folder.path(), &environment(foul), &build).contains("exists already"));
}

#[test]
fn a_store_that_refuses_is_told_with_what_to_check() {
    let Some(s3) = S3::start() else { return };
    let (folder, local) = local();
    /// Which request is refused, and the object that the error names.
    type Case = (&'static str, fn(&str) -> bool, &'static str);
    let cases: [Case; 4] = [
        ("plan", |head| head.starts_with("PUT ") && head.contains("_rewrite.json"), "_rewrite.json"),
        ("begin", |head| head.starts_with("POST ") && head.contains("uploads"), "part-00000.parquet"),
        ("part", |head| head.starts_with("PUT ") && head.contains("partNumber=2"), "part-00000.parquet"),
        ("completion", |head| head.starts_with("POST ") && head.contains("uploadId="), "part-00000.parquet"),
    ];
    for (name, is_refused, object) in cases {
        let strict = front(s3.address, move |head, _| match is_refused(head.lines().next().unwrap_or_default()) {
            true => Answer::Status(403),
            false => Answer::Servers,
        });
        let shuffle = format!("rewrite train.rdx -o s3://{BUCKET}/{name} {LARGE} --spill spill");
        let said = fails(folder.path(), &environment(strict), &shuffle);
        let object = format!("s3://{BUCKET}/{name}/{object}");
        let words = [object.as_str(), "refuses access", "AWS_ACCESS_KEY_ID", "write"];
        assert!(words.iter().all(|word| said.contains(word)) && said.lines().count() == 1, "{name}: {said}");
        assert!(parquet(&s3.bucket().join(name)).is_empty());
        // What cannot be completed is left to the rule of the bucket.
        let left = leftovers(&s3.bucket());
        assert!(left.is_empty() || name == "completion", "{name}: {left:?}");
        let resume = if name == "plan" { "" } else { " --resume" };
        succeeds(folder.path(), &environment(s3.address), &format!("{shuffle}{resume}"));
        assert!(parquet(&s3.bucket().join(name)) == local);
    }
}

#[test]
fn ctrl_c_ends_a_shuffle_while_the_store_is_silent_and_it_goes_on() {
    let Some(s3) = S3::start() else { return };
    let (folder, local) = local();
    let cases: [fn(&str) -> bool; 3] = [
        |line| line.starts_with("PUT ") && line.contains("_rewrite.json"),
        |line| line.contains("partNumber=2") || line.starts_with("DELETE "),
        |line| line.starts_with("POST ") && line.contains("uploadId=") || line.starts_with("DELETE "),
    ];
    for (number, is_silent) in cases.into_iter().enumerate() {
        let (sender, asked) = mpsc::channel();
        let sender = std::sync::Mutex::new(sender);
        let silent = front(s3.address, move |head, _| {
            if !is_silent(head.lines().next().unwrap_or_default()) {
                return Answer::Servers;
            }
            let _ = sender.lock().unwrap().send(());
            Answer::Silence
        });
        let shuffle = format!("rewrite train.rdx -o s3://{BUCKET}/out-{number} {LARGE} --spill spill");
        let mut running = command(folder.path(), &environment(silent), &shuffle);
        let mut running = running.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        asked.recv_timeout(Duration::from_secs(60)).unwrap();
        let began = Instant::now();
        assert!(Command::new("kill").args(["-INT", &running.id().to_string()]).status().unwrap().success());
        assert!(!running.wait().unwrap().success());
        let took = began.elapsed();
        let mut said = String::new();
        running.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        // A second and more would be a wait for the store, which is silent for a minute.
        assert!(took < Duration::from_secs(10), "{took:?}");
        eprintln!("ctrl-c while silent, case {number}: {took:?}");
        assert!(said.contains("--resume"), "{said}");
        let resume = if number == 0 { "" } else { " --resume" };
        succeeds(folder.path(), &environment(s3.address), &format!("{shuffle}{resume}"));
        assert!(parquet(&s3.bucket().join(format!("out-{number}"))) == local);
    }
}
