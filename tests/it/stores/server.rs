//! An S3 server of one's own.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rowdex::source::StoreOptions;
use tempfile::TempDir;

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

/// The program, built at the first call; `None` where it cannot be had and need not.
fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/stores/setup.sh");
        let output = Command::new("sh").arg(script).stderr(Stdio::piped()).output();
        match output {
            Ok(output) if output.status.success() => {
                Some(PathBuf::from(String::from_utf8(output.stdout).unwrap().trim()))
            }
            failed => {
                let required = std::env::var("ROWDEX_STORES").is_ok_and(|value| value == "required");
                assert!(!required, "tools/stores/setup.sh cannot build the S3 server: {failed:?}");
                None
            }
        }
    });
    program.as_deref()
}

impl S3 {
    /// A server, or `None`, having said so.
    pub(super) fn start() -> Option<Self> {
        let Some(program) = program() else {
            let _ =
                writeln!(std::io::stderr(), "left out: S3, because its server cannot be built (tools/stores/setup.sh)");
            return None;
        };
        let folder = TempDir::new().unwrap();
        std::fs::create_dir(folder.path().join(BUCKET)).unwrap();
        for _ in 0..20 {
            // Somebody else may take the port meanwhile; then the server ends, and another port is tried.
            let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
            let mut process = Command::new(program)
                .args(["--host", "127.0.0.1", "--port", &address.port().to_string()])
                .args(["--access-key", KEY, "--secret-key", SECRET])
                .arg(folder.path())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let began = Instant::now();
            while process.try_wait().unwrap().is_none() && began.elapsed() < Duration::from_secs(20) {
                if TcpStream::connect(address).is_ok() {
                    return Some(Self { process, address, folder });
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = process.kill();
            let _ = process.wait();
        }
        panic!("the S3 server does not start");
    }

    /// The folder of the bucket. A file put there is an object.
    pub(super) fn bucket(&self) -> PathBuf {
        self.folder.path().join(BUCKET)
    }

    /// What reaches this server, or a proxy before it.
    pub(super) fn options(address: SocketAddr) -> StoreOptions {
        environment(address)
            .into_iter()
            .fold(StoreOptions::default(), |options, (name, value)| options.with_config(name, value))
    }
}

/// The environment of a command that is to reach the server at this address.
pub(super) fn environment(address: SocketAddr) -> [(&'static str, String); 6] {
    [
        ("AWS_ENDPOINT_URL", format!("http://{address}")),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ("AWS_SESSION_TOKEN", String::new()),
        ("AWS_REGION", "us-east-1".to_owned()),
    ]
}

impl Drop for S3 {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
