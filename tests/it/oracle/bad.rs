//! Files that must be refused: with an error that says where, soon, and without taking memory for what they claim.
//!
//! Each is read by a process of its own, so that its peak memory is its own, and that whatever it prints is seen.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rowdex::{Dataset, ErrorKind, IndexBuilder};
use tempfile::TempDir;

use ErrorKind::{InvalidParquet, UnsupportedParquet};

/// A file by name, the kind of its error, and what the error says.
type Refusal = (&'static str, ErrorKind, &'static str);

pub(super) const GENERATED: &[Refusal] = &[
    ("cut_off.parquet", InvalidParquet, "does not end in PAR1"),
    ("encrypted_column.parquet", UnsupportedParquet, "encrypted columns"),
    ("encrypted_footer.parquet", UnsupportedParquet, "footer is encrypted"),
    ("footer_damaged.parquet", InvalidParquet, "the footer cannot be decoded"),
    ("footer_of_zeros.parquet", InvalidParquet, "the footer cannot be decoded"),
    ("footer_too_long.parquet", InvalidParquet, "the footer claims"),
    ("magic_only.parquet", InvalidParquet, "too few"),
    ("no_bytes.parquet", InvalidParquet, "the file is empty"),
    ("page_damaged.parquet", InvalidParquet, "row group 0, column \"n\": the row group cannot be decoded"),
    ("page_header_of_zeros.parquet", InvalidParquet, "row group 0, column \"n\": a page declares a size"),
    ("tail_only.parquet", InvalidParquet, "the footer claims"),
    ("text.parquet", InvalidParquet, "does not end in PAR1"),
];

pub(super) const PUBLIC: &[Refusal] = &[
    ("ARROW-GH-41317.parquet", InvalidParquet, "the footer cannot be decoded"),
    ("ARROW-GH-41321.parquet", InvalidParquet, "row group 0, column \"int64\": the row group cannot be decoded"),
    ("ARROW-GH-45185.parquet", InvalidParquet, "row group 0, column \"x\": the row group cannot be decoded"),
    ("ARROW-GH-47662.parquet", InvalidParquet, "row group 0, column \"flba_field\": the row group cannot be decoded"),
    ("ARROW-RS-GH-6229-DICTHEADER.parquet", InvalidParquet, "row group 0, column \"region_key\": claims 125 bytes"),
    (
        "datapage_v1-corrupt-checksum.parquet",
        InvalidParquet,
        "row group 0, column \"a\": the row group cannot be decoded",
    ),
    // pyarrow reads it, the parquet crate does not either: its column chunks declare fewer bytes than their pages take.
    ("nation.dict-malformed.parquet", InvalidParquet, "column \"name\": a page declares a size that does not fit"),
    (
        "rle-dict-uncompressed-corrupt-checksum.parquet",
        InvalidParquet,
        "column \"long_field\": the row group cannot be",
    ),
];

/// Tells the process that reads one file which one.
const FILE: &str = "ROWDEX_ORACLE_FILE";

/// More than the process takes to read any sound file of this size, and far less than the bad ones claim to need.
const MOST_MEMORY: u64 = 64 << 20;

/// A disk that is busy takes seconds for a file, and an endless loop more than any time.
const LONGEST: Duration = Duration::from_secs(60);

/// Whether a file of the public corpus is one that should be refused.
pub(super) fn is_bad_by_name(path: &Path) -> bool {
    let name = path.file_name().unwrap().to_str().unwrap();
    name.contains("corrupt") || name.contains("malformed") || path.parent().unwrap().ends_with("bad_data")
}

/// Checks that each file is refused as it is known to be.
pub(super) fn check(files: &[PathBuf], known: &[Refusal]) {
    let names: Vec<&str> = files.iter().map(|file| file.file_name().unwrap().to_str().unwrap()).collect();
    let mut wrong = Vec::new();
    for (file, name) in files.iter().zip(&names) {
        let Some((_, kind, says)) = known.iter().find(|(known, _, _)| known == name) else {
            wrong.push(format!("{name}: new to the test: {:?}", read_alone(file)));
            continue;
        };
        match read_alone(file) {
            Ok(said)
                if said.starts_with(&format!("{kind:?} "))
                    && said.contains(&format!("/{name}"))
                    && said.contains(says) => {}
            other => wrong.push(format!("{name}: {other:?}")),
        }
    }
    wrong.extend(known.iter().filter(|(name, _, _)| !names.contains(name)).map(|(name, _, _)| format!("no {name}")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Reads a file in a process of its own; gives the kind of the error, a space, and the error.
fn read_alone(file: &Path) -> Result<String, String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "oracle::bad::reads_the_file_it_is_told", "--ignored", "--nocapture", "--test-threads=1"])
        .env(FILE, file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if start.elapsed() > LONGEST => {
                child.kill().unwrap();
                child.wait().unwrap();
                return Err(format!("took more than {LONGEST:?}"));
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let (mut out, mut err) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    if !status.success() || !err.is_empty() {
        return Err(format!("{status}, {err}{out}"));
    }
    let line = |start: &str| out.lines().find_map(|line| line.strip_prefix(start));
    let grown: u64 = line("memory: ").ok_or("it says nothing of its memory")?.parse().unwrap();
    if grown > MOST_MEMORY {
        return Err(format!("took {grown} bytes"));
    }
    line("refused: ").map(str::to_owned).ok_or_else(|| format!("it was read: {out}"))
}

/// Most memory that this process has had, where the system tells.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or(0, |line| line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10)
}

#[test]
#[ignore = "is run by the tests of bad files, each time for one file"]
fn reads_the_file_it_is_told() {
    let Some(file) = std::env::var_os(FILE).map(PathBuf::from) else { return };
    let before = peak_memory();
    match read(&file) {
        Ok(()) => println!("\nserved"),
        Err(error) => {
            // The file and, where it is known, the row group and column come first in what an error says.
            println!("\nrefused: {:?} {error}", error.kind());
        }
    }
    println!("memory: {}", peak_memory() - before);
}

/// Reads in every way there is; the first error is that of the index or of all rows together.
fn read(file: &Path) -> rowdex::Result<()> {
    let folder = TempDir::new().unwrap();
    let index = folder.path().join("i.rdx");
    IndexBuilder::new([file]).with_partitions(false).build(&index)?;
    let dataset = Dataset::open(&index)?;
    let rows: Vec<u64> = (0..dataset.len()).collect();
    let all = dataset.take(&rows).map(drop);
    // Rows on sound pages may be served, as long as nothing worse happens to the others.
    for &row in rows.iter().step_by(rows.len().div_ceil(50).max(1)) {
        if let Err(error) = dataset.get(row) {
            assert!(error.file().is_some(), "{error}");
        }
    }
    all
}
