//! The Python side: an environment with pyarrow, the corpus it generates, and what it reads from a folder.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use xxhash_rust::xxh3::xxh3_64;

/// Everything the generated corpus follows from.
const SOURCES: [&str; 3] = [
    include_str!("../../../tools/oracle/requirements.txt"),
    include_str!("../../../tools/oracle/generate.py"),
    include_str!("../../../tools/oracle/expect.py"),
];

/// A Python with pyarrow, and the corpus that it generated.
#[derive(Debug)]
pub(super) struct Oracle {
    pub(super) python: PathBuf,
    /// Files to read in `good`, files to refuse in `bad`.
    pub(super) corpus: PathBuf,
    /// What pyarrow reads from them.
    pub(super) expected: PathBuf,
}

/// The oracle, or `None` where there can be none and the tests are allowed to do without.
pub(super) fn oracle() -> Option<&'static Oracle> {
    static ORACLE: OnceLock<Option<Oracle>> = OnceLock::new();
    let oracle = ORACLE.get_or_init(|| match set_up() {
        Ok(oracle) => Some(oracle),
        Err(error) if std::env::var("ROWDEX_ORACLE").is_ok_and(|value| value == "required") => {
            panic!("no pyarrow to compare with: {error}")
        }
        Err(error) => {
            say(&format!("left out: comparing with pyarrow, because {error}"));
            None
        }
    });
    oracle.as_ref()
}

/// The public corpus, if it is there.
pub(super) fn public_corpus() -> Option<PathBuf> {
    let given = std::env::var_os("ROWDEX_CORPUS").map(PathBuf::from);
    let corpus = given.unwrap_or_else(|| repository().join("../shared/data/parquet-testing"));
    if corpus.is_dir() {
        return Some(corpus);
    }
    say(&format!("left out: the public corpus, because there is no folder {} (ROWDEX_CORPUS)", corpus.display()));
    None
}

/// Prints to stderr although the test passes.
pub(super) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

impl Oracle {
    /// Writes what pyarrow reads from the files below `data` to `out`.
    pub(super) fn expect(&self, data: &Path, out: &Path) -> Result<(), String> {
        self.script("expect.py", &[data, out])
    }

    /// Writes so many files of random types to a folder that is not there yet.
    pub(super) fn random_files(&self, seed: u64, count: u64, out: &Path) -> Result<(), String> {
        let (seed, count) = (seed.to_string(), count.to_string());
        self.script("random_files.py", &[Path::new(&seed), Path::new(&count), out])
    }

    /// What differs between rewritten files and their inputs, a line each.
    pub(super) fn rewritten(&self, cases: &Path) -> Result<String, String> {
        self.printed("rewritten.py", &[cases])
    }

    fn script(&self, name: &str, arguments: &[&Path]) -> Result<(), String> {
        self.printed(name, arguments).map(drop)
    }

    fn printed(&self, name: &str, arguments: &[&Path]) -> Result<String, String> {
        // No byte code is left beside the scripts.
        run(Command::new(&self.python).arg("-B").arg(tools().join(name)).args(arguments))
    }
}

/// What `torch_order.py` prints, from PyTorch itself or from what it follows.
pub(super) fn torch_order(python: &Path, torch: bool) -> Result<String, String> {
    let mut command = Command::new(python);
    command.arg("-B").arg(tools().join("torch_order.py"));
    run(if torch { command.arg("--torch") } else { &mut command })
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn tools() -> PathBuf {
    repository().join("tools/oracle")
}

fn set_up() -> Result<Oracle, String> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().ok_or("there is no target folder")?;
    let io = |error: std::io::Error| error.to_string();
    fs::create_dir_all(target).map_err(io)?;
    // Another run of the tests may be at it too. The lock goes with the file.
    let lock = File::create(target.join("oracle.lock")).map_err(io)?;
    lock.lock().map_err(io)?;
    let printed = run(Command::new(tools().join("setup.sh")).arg(target.join("oracle-venv")))?;
    let key = xxh3_64(SOURCES.concat().as_bytes());
    let all = target.join("oracle");
    let ready = all.join(format!("{key:016x}"));
    let oracle =
        Oracle { python: printed.trim().into(), corpus: ready.join("corpus"), expected: ready.join("expected") };
    if !ready.exists() {
        let _ = fs::remove_dir_all(&all);
        let part = all.join("part");
        fs::create_dir_all(&part).map_err(io)?;
        oracle.script("generate.py", &[&part.join("corpus")])?;
        oracle.expect(&part.join("corpus"), &part.join("expected"))?;
        fs::rename(&part, &ready).map_err(io)?;
    }
    Ok(oracle)
}

fn run(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?} cannot run: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    String::from_utf8(output.stdout).map_err(|error| error.to_string())
}
