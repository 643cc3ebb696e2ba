//! Servers of one's own: S3, Azure and HTTP. What makes one of Google Cloud Storage is in [`super::gcs`].

use std::collections::HashMap;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rowdex::source::StoreOptions;
use tempfile::TempDir;

use super::gcs::{self, Gcs};

pub(super) const KEY: &str = "AKIDOFTHETEST";
pub(super) const SECRET: &str = "canary-secret-of-the-test";
pub(super) const BUCKET: &str = "bucket";

/// A server with one bucket, which ends when it is dropped.
#[derive(Debug)]
pub(super) struct S3 {
    process: Child,
    pub(super) address: SocketAddr,
    folder: TempDir,
}

/// What a script of `tools/stores` says when it has a server at hand, run once; `None`, said aloud, where it has not
/// and need not.
fn at_hand(script: &'static str, arguments: &'static [&'static str], what: &str) -> Option<PathBuf> {
    static FOUND: Mutex<Option<HashMap<String, Option<PathBuf>>>> = Mutex::new(None);
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    let found = found.get_or_insert_default().entry(what.to_owned()).or_insert_with(|| {
        let script = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("tools/stores").join(script);
        let output = Command::new("sh").arg(&script).args(arguments).stderr(Stdio::piped()).output();
        match output {
            Ok(output) if output.status.success() => {
                Some(PathBuf::from(String::from_utf8(output.stdout).unwrap().trim()))
            }
            failed => {
                let asked = std::env::var("ROWDEX_STORES").unwrap_or_default();
                let required = asked == "all" || (asked == "required" && script.ends_with("setup.sh"));
                assert!(!required, "{} {arguments:?} gives no {what}: {failed:?}", script.display());
                None
            }
        }
    });
    if found.is_none() {
        let _ = writeln!(std::io::stderr(), "left out: {what}, which cannot be had (tools/stores/{script})");
    }
    found.clone()
}

/// A server on a free port, which `command` starts there.
fn spawned(command: impl Fn(SocketAddr) -> Command) -> (Child, SocketAddr) {
    for _ in 0..20 {
        // Somebody else may take the port meanwhile; then the server ends, and another port is tried.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let quiet = |command: &mut Command| {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let mut process = quiet(&mut command(address));
        let began = Instant::now();
        while process.try_wait().unwrap().is_none() && began.elapsed() < Duration::from_secs(30) {
            if TcpStream::connect(address).is_ok() {
                return (process, address);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = process.kill();
        let _ = process.wait();
    }
    panic!("the server does not start");
}

impl S3 {
    /// A server, or `None`, having said so.
    pub(super) fn start() -> Option<Self> {
        Self::start_with(&["--access-key", KEY, "--secret-key", SECRET])
    }

    /// One that asks nobody for keys.
    pub(super) fn start_open() -> Option<Self> {
        Self::start_with(&[])
    }

    fn start_with(keys: &[&str]) -> Option<Self> {
        let program = at_hand("setup.sh", &[], "the S3 server s3s-fs")?;
        let folder = TempDir::new().unwrap();
        std::fs::create_dir(folder.path().join(BUCKET)).unwrap();
        let (process, address) = spawned(|address| {
            let mut command = Command::new(&program);
            command.args(["--host", "127.0.0.1", "--port", &address.port().to_string()]);
            command.args(keys).arg(folder.path());
            command
        });
        Some(Self { process, address, folder })
    }

    /// The folder of the bucket. A file put there is an object.
    pub(super) fn bucket(&self) -> PathBuf {
        self.folder.path().join(BUCKET)
    }

    /// What reaches this server, or a proxy before it.
    pub(super) fn options(address: SocketAddr) -> StoreOptions {
        configured(environment(address))
    }
}

/// The options that an environment makes.
pub(super) fn configured(environment: Vec<(&'static str, String)>) -> StoreOptions {
    environment.into_iter().fold(StoreOptions::default(), |options, (name, value)| options.with_config(name, value))
}

/// The environment of a command that is to reach the server at this address.
pub(super) fn environment(address: SocketAddr) -> Vec<(&'static str, String)> {
    vec![
        ("AWS_ENDPOINT_URL", format!("http://{address}")),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ("AWS_SESSION_TOKEN", String::new()),
        ("AWS_REGION", "us-east-1".to_owned()),
    ]
}

/// A bucket of a server that lists its objects and takes new ones, whatever it speaks.
#[derive(Debug)]
pub(super) struct Store {
    /// `s3://bucket`
    pub(super) url: String,
    pub(super) address: SocketAddr,
    /// A file put there is an object.
    pub(super) bucket: PathBuf,
    environment: fn(SocketAddr) -> Vec<(&'static str, String)>,
    _server: Server,
}

#[derive(Debug)]
#[expect(dead_code, reason = "held until the store is dropped")]
enum Server {
    S3(S3),
    Gcs(Gcs),
}

impl Store {
    /// One of each kind that can be had.
    pub(super) fn each() -> Vec<Self> {
        let s3 = S3::start().map(|server| Self {
            url: format!("s3://{BUCKET}"),
            address: server.address,
            bucket: server.bucket(),
            environment,
            _server: Server::S3(server),
        });
        let gcs = Gcs::start().map(|server| Self {
            url: format!("gs://{BUCKET}"),
            address: server.address,
            bucket: server.bucket(),
            environment: gcs::environment,
            _server: Server::Gcs(server),
        });
        s3.into_iter().chain(gcs).collect()
    }

    pub(super) fn options(&self) -> StoreOptions {
        self.options_at(self.address)
    }

    /// What reaches a proxy before it.
    pub(super) fn options_at(&self, address: SocketAddr) -> StoreOptions {
        configured((self.environment)(address))
    }

    pub(super) fn environment(&self) -> Vec<(&'static str, String)> {
        (self.environment)(self.address)
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// nginx with the files of a folder, which ends when it is dropped.
#[derive(Debug)]
pub(super) struct Nginx {
    process: Child,
    pub(super) address: SocketAddr,
    _own: TempDir,
}

impl Nginx {
    pub(super) fn start(folder: &Path) -> Option<Self> {
        let program = at_hand("more.sh", &["nginx"], "nginx")?;
        let own = TempDir::new().unwrap();
        let (process, address) = spawned(|address| {
            // One process and no other user, so that it reads what the test may read.
            let settings = format!(
                "daemon off; master_process off; pid nginx.pid; error_log error.log;\n\
                 events {{}}\n\
                 http {{ access_log off; client_body_temp_path a; proxy_temp_path b; fastcgi_temp_path c;\n\
                 uwsgi_temp_path d; scgi_temp_path e; server {{ listen {address}; root \"{}\"; }} }}\n",
                folder.display()
            );
            std::fs::write(own.path().join("nginx.conf"), settings).unwrap();
            let mut command = Command::new(&program);
            command.arg("-p").arg(own.path()).args(["-c", "nginx.conf", "-e", "error.log"]);
            command
        });
        Some(Self { process, address, _own: own })
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Azurite, Azure's own emulator, with one container, which ends when it is dropped.
#[derive(Debug)]
pub(super) struct Azurite {
    process: Child,
    address: SocketAddr,
    _own: TempDir,
}

impl Azurite {
    /// A server whose container has the files of a folder.
    pub(super) fn start(folder: &Path) -> Option<Self> {
        let program = at_hand("more.sh", &["azurite"], "Azurite")?;
        let own = TempDir::new().unwrap();
        let (process, address) = spawned(|address| {
            let mut command = Command::new("node");
            command.arg(&program).args(["--blobHost", "127.0.0.1", "--blobPort", &address.port().to_string()]);
            command.args(["--silent", "--skipApiVersionCheck", "--disableTelemetry", "--location"]).arg(own.path());
            command
        });
        let server = Self { process, address, _own: own };
        let script = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("tools/stores/azurite_put.js");
        let mut put = Command::new("node");
        let done = put.arg(script).args([&address.port().to_string(), BUCKET]).arg(folder).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Some(server)
    }

    pub(super) fn options(&self) -> StoreOptions {
        configured(self.environment())
    }

    /// What reaches it, with the key that all emulators have.
    pub(super) fn environment(&self) -> Vec<(&'static str, String)> {
        let key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
        vec![
            ("AZURE_STORAGE_ACCOUNT_NAME", "devstoreaccount1".to_owned()),
            ("AZURE_STORAGE_ENDPOINT", format!("http://{}/devstoreaccount1", self.address)),
            ("AZURE_ALLOW_HTTP", "true".to_owned()),
            ("AZURE_STORAGE_ACCOUNT_KEY", key.to_owned()),
        ]
    }
}

impl Drop for Azurite {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
