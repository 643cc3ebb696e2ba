//! Google Cloud Storage, as near as can be had: `s3s-fs` behind a front that asks for what Google asks for.
//!
//! The client reads, lists and writes through the XML API (<https://cloud.google.com/storage/docs/xml-api/overview>),
//! which is S3's but for what this front does: it wants an OAuth token with each request, gives one out as a machine's
//! metadata server does, creates on condition of a generation, reads on condition of a tag, and says what is wrong in
//! Google's words. All else is the answer of the server behind it. None of it was written by Google, so it shows that
//! the requests are right where the two APIs are alike, and for the rest as its documentation is read here.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rowdex::source::StoreOptions;
use rowdex::{Dataset, ErrorKind, Index, IndexBuilder};
use tempfile::TempDir;

use super::proxy::{field, pump, read_head};
use super::server::{BUCKET, S3, configured};
use super::{FILES, rows, write, write_data};

const TOKEN: &str = "ya29.canary-token";

/// A front with its server, which ends when it is dropped.
#[derive(Debug)]
pub(super) struct Gcs {
    pub(super) address: SocketAddr,
    s3: S3,
    asked: Arc<Asked>,
    accepting: Option<JoinHandle<()>>,
}

/// What was asked of the front.
#[derive(Debug, Default)]
struct Asked {
    tokens: AtomicU64,
    creations: AtomicU64,
    conditions: AtomicU64,
    stop: AtomicBool,
}

/// What reaches a front, or a proxy before it.
pub(super) fn environment(address: SocketAddr) -> Vec<(&'static str, String)> {
    vec![("GOOGLE_BASE_URL", format!("http://{address}")), ("GOOGLE_BEARER_TOKEN", TOKEN.to_owned())]
}

impl Gcs {
    /// A server, or `None`, having said so.
    pub(super) fn start() -> Option<Self> {
        let s3 = S3::start_open()?;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, upstream) = (listener.local_addr().unwrap(), s3.address);
        let asked = Arc::new(Asked::default());
        let accepting = {
            let asked = Arc::clone(&asked);
            std::thread::spawn(move || {
                for client in listener.incoming() {
                    if asked.stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let (Ok(client), asked) = (client, Arc::clone(&asked)) else { continue };
                    // A client that goes away is no error of the front.
                    std::thread::spawn(move || drop(asked.serve(client, upstream)));
                }
            })
        };
        Some(Self { address, s3, asked, accepting: Some(accepting) })
    }

    pub(super) fn bucket(&self) -> PathBuf {
        self.s3.bucket()
    }

    pub(super) fn options(&self) -> StoreOptions {
        configured(environment(self.address))
    }
}

impl Drop for Gcs {
    fn drop(&mut self) {
        self.asked.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
        let _ = self.accepting.take().map(JoinHandle::join);
    }
}

impl Asked {
    /// One request, and the end of the connection.
    fn serve(&self, mut client: TcpStream, upstream: SocketAddr) -> io::Result<()> {
        client.set_nodelay(true)?;
        client.set_read_timeout(Some(Duration::from_secs(30)))?;
        let (head, rest) = read_head(&mut client)?;
        let head = String::from_utf8_lossy(&head).into_owned();
        let length: u64 = field(&head, "content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        let missing = length.saturating_sub(rest.len() as u64);
        let target = head.split(' ').nth(1).unwrap_or_default();
        if target.starts_with("/computeMetadata/v1/instance/service-accounts/default/token") {
            if field(&head, "metadata-flavor") != Some("Google") {
                return answer(client, 403, "application/json", "{}");
            }
            self.tokens.fetch_add(1, Ordering::Relaxed);
            let token = format!(r#"{{"access_token":"{TOKEN}","expires_in":3599,"token_type":"Bearer"}}"#);
            return answer(client, 200, "application/json", &token);
        }
        let given = field(&head, "authorization").map(str::to_owned);
        if given.as_deref() != Some(&format!("Bearer {TOKEN}")) {
            io::copy(&mut Read::by_ref(&mut client).take(missing), &mut io::sink())?;
            // A server may repeat what it refuses.
            let (status, code) = if given.is_some() { (401, "AuthenticationRequired") } else { (403, "AccessDenied") };
            let body = format!("<Error><Code>{code}</Code><Details>{}</Details></Error>", given.unwrap_or_default());
            return answer(client, status, "application/xml", &body);
        }
        if let Some(wanted) = field(&head, "if-match") {
            self.conditions.fetch_add(1, Ordering::Relaxed);
            let found = head_of(upstream, target)?;
            if field(&found, "etag").is_some_and(|tag| tag != wanted) {
                return answer(client, 412, "application/xml", "<Error><Code>PreconditionFailed</Code></Error>");
            }
        }
        let mut server = TcpStream::connect(upstream)?;
        server.set_nodelay(true)?;
        for line in head.trim_end().lines() {
            let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
            match name.as_str() {
                "authorization" | "connection" => {}
                "x-goog-if-generation-match" if line.ends_with(": 0") => {
                    self.creations.fetch_add(1, Ordering::Relaxed);
                    write!(server, "if-none-match: *\r\n")?;
                }
                // Nothing else that is Google's own is asked for, and what is not understood must not be passed over.
                google if google.starts_with("x-goog-") => return answer(client, 501, "text/plain", &name),
                _ => write!(server, "{line}\r\n")?,
            }
        }
        write!(server, "connection: close\r\n\r\n")?;
        server.write_all(&rest)?;
        io::copy(&mut Read::by_ref(&mut client).take(missing), &mut server)?;
        pump(&mut server, &mut client)?;
        client.shutdown(Shutdown::Write)
    }
}

fn answer(mut client: TcpStream, status: u16, kind: &str, body: &str) -> io::Result<()> {
    write!(
        client,
        "HTTP/1.1 {status} So\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )?;
    client.shutdown(Shutdown::Write)
}

/// What the server behind says of an object.
fn head_of(upstream: SocketAddr, target: &str) -> io::Result<String> {
    let mut server = TcpStream::connect(upstream)?;
    write!(server, "HEAD {target} HTTP/1.1\r\nhost: {upstream}\r\nconnection: close\r\n\r\n")?;
    Ok(String::from_utf8_lossy(&read_head(&mut server)?.0).into_owned())
}

#[test]
fn an_index_is_created_and_rows_are_read_on_condition() {
    let Some(gcs) = Gcs::start() else { return };
    write_data(&gcs.bucket().join("data"));
    let url = format!("gs://{BUCKET}/train.rdx");
    IndexBuilder::new([format!("gs://{BUCKET}/data/")]).with_store_options(gcs.options()).build(&url).unwrap();
    assert_eq!(gcs.asked.creations.load(Ordering::Relaxed), 1);
    let index = Index::open_with(&url, &gcs.options()).unwrap();
    let dataset = Dataset::builder(index).with_store_options(gcs.options()).with_cache_bytes(0).open().unwrap();
    assert_eq!(dataset.get(1500).unwrap().column(2), rows(1500, 1).column(2));
    let conditions = gcs.asked.conditions.load(Ordering::Relaxed);
    assert!(conditions > 0);
    assert_eq!(conditions, dataset.counters().requests);

    let (name, first, count) = FILES[2];
    write(&gcs.bucket().join("data").join(name), &rows(first + 7, count));
    let error = dataset.get(1500).unwrap_err();
    assert_eq!((error.kind(), error.file()), (ErrorKind::Stale, Some(name)), "{error}");
    assert_eq!(dataset.get(4000).unwrap().column(2), rows(4000, 1).column(2));
}

/// The command on a machine of Google's, whose metadata server is at `metadata`.
fn on_a_machine(metadata: SocketAddr, gcs: SocketAddr, home: &TempDir, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rowdex"));
    command.args(arguments).current_dir(home.path()).stdin(Stdio::null()).env("HOME", home.path());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("GOOGLE_") || name == "SERVICE_ACCOUNT" {
            command.env_remove(name);
        }
    }
    let host = metadata.to_string();
    command
        .env("GOOGLE_BASE_URL", format!("http://{gcs}"))
        .env("GCE_METADATA_HOST", &host)
        .env("GCE_METADATA_IP", host);
    command.output().unwrap()
}

#[test]
fn a_machine_is_asked_for_the_token_of_its_service_account_once_by_each_client() {
    let Some(gcs) = Gcs::start() else { return };
    write_data(&gcs.bucket().join("data"));
    let home = TempDir::new().unwrap();
    let data = format!("gs://{BUCKET}/data/");
    let run = |arguments: &[&str]| {
        let before = gcs.asked.tokens.load(Ordering::Relaxed);
        let output = on_a_machine(gcs.address, gcs.address, &home, arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        gcs.asked.tokens.load(Ordering::Relaxed) - before
    };
    // The one that lists, and the one that reads footers.
    assert_eq!(run(&["build", &data, "-o", "i.rdx"]), 2);
    assert_eq!(run(&["epoch", "i.rdx", "--batch-size", "64", "--json"]), 1);
}

#[test]
fn no_secret_of_google_s_is_in_an_error_an_index_or_a_debug_text() {
    let Some(gcs) = Gcs::start() else { return };
    write_data(&gcs.bucket().join("data"));
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("i.rdx");
    let key = |more: &str| {
        format!(
            r#"{{"type": "service_account", "client_email": "canary@host", "private_key_id": "canary-id",
            "private_key": "-----BEGIN PRIVATE KEY-----\ncanary\n-----END PRIVATE KEY-----\n"{more}}}"#
        )
    };
    // The key is read, and the token of the environment used.
    let options = gcs.options().with_config("google_service_account_key", key(r#", "disable_oauth": true"#));
    let builder = IndexBuilder::new([format!("gs://{BUCKET}/data/")]).with_store_options(options.clone());
    builder.build(&path).unwrap();
    let written = std::fs::read(&path).unwrap();
    assert!(!written.windows(6).any(|bytes| bytes == b"canary"));
    let dataset = Dataset::builder(Index::open(&path).unwrap()).with_store_options(options.clone());
    let mut said = format!("{builder:?} {dataset:?} {options:?} {:?}", dataset.clone().open().unwrap());

    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let cases = [
        ("google_bearer_token", "canary-other-token".to_owned(), "refuses access"),
        ("google_service_account_key", key(""), "not understood"),
        ("google_service_account_key", "canary".to_owned(), "not understood"),
        ("google_service_account", file("key.json", &key("")), "not understood"),
        // The key where its path should be.
        ("google_service_account", key(""), "not understood"),
        // A parser would quote the type.
        ("google_application_credentials", file("type.json", r#"{"type": "canary"}"#), "not understood"),
        ("google_application_credentials", folder.path().join("none").display().to_string(), "not understood"),
    ];
    for (name, value, words) in cases {
        let base = ("google_base_url", format!("http://{}", gcs.address));
        let options = [base, (name, value)]
            .into_iter()
            .fold(StoreOptions::default(), |options, (name, value)| options.with_config(name, value));
        let builder = IndexBuilder::new([format!("gs://{BUCKET}/data/")]).with_store_options(options);
        let error = builder.build(folder.path().join("x.rdx")).unwrap_err();
        let shown = error.to_string();
        assert!(shown.contains(words) && shown.contains("GOOGLE_APPLICATION_CREDENTIALS"), "{name}: {shown}");
        said += &format!(" {builder:?} {shown} {error:?}");
        let mut cause = std::error::Error::source(&error);
        while let Some(next) = cause {
            said += &format!(" {next} {next:?}");
            cause = next.source();
        }
    }
    assert!(!said.contains("canary"), "{said}");
}
