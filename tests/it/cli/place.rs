//! A folder to run the program in, and what became of it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Float64Array, Int64Array, ListArray, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::Int32Type;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use serde_json::Value;
use tempfile::TempDir;

/// Rows of each file of [`Place::with_data`]: prime, so that no world size but 1 divides them, with an empty file.
pub(super) const FILES: [usize; 5] = [400, 1, 0, 503, 99];
pub(super) const ROWS: usize = 1003;
const ROWS_PER_GROUP: usize = 97;

/// A temporary folder that the program runs in.
pub(super) struct Place {
    folder: TempDir,
}

impl Place {
    pub(super) fn new() -> Self {
        Self { folder: TempDir::new().unwrap() }
    }

    /// With files below `data`.
    pub(super) fn with_data() -> Self {
        let place = Self::new();
        let mut first = 0;
        for (number, rows) in FILES.into_iter().enumerate() {
            place.write(&format!("data/part-{number}.parquet"), &rows_from(first, rows));
            first += rows;
        }
        place
    }

    /// With files below `data`, and `train.rdx`.
    pub(super) fn with_index() -> Self {
        let place = Self::with_data();
        place.run("build data -o train.rdx").succeeds();
        place
    }

    pub(super) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn write(&self, name: &str, batch: &RecordBatch) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(ROWS_PER_GROUP)).build();
        let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
        writer.write(batch).unwrap();
        writer.close().unwrap();
    }

    /// The names in the folder, sorted.
    /// A list of rows: a row id on each line.
    pub(super) fn list(&self, name: &str, ids: impl IntoIterator<Item = usize>) {
        let lines: String = ids.into_iter().map(|id| format!("{id}\n")).collect();
        std::fs::write(self.path(name), lines).unwrap();
    }

    pub(super) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub(super) fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rowdex"));
        command.args(arguments.split_whitespace()).current_dir(self.folder.path()).stdin(Stdio::null());
        // The time that views record, so that equal commands write equal bytes.
        command.env("SOURCE_DATE_EPOCH", "1800000000");
        command
    }

    /// Runs the program with arguments separated by white space.
    pub(super) fn run(&self, arguments: &str) -> Outcome {
        self.run_with(arguments, &[])
    }

    /// The same with these variables of the environment.
    pub(super) fn run_with(&self, arguments: &str, variables: &[(&str, &str)]) -> Outcome {
        let output = self.command(arguments).envs(variables.iter().copied()).output().unwrap();
        Outcome {
            arguments: arguments.to_owned(),
            code: output.status.code(),
            stdout: output.stdout,
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The result of a command that succeeds, with `--json`.
    pub(super) fn json(&self, arguments: &str) -> Value {
        self.run(&format!("{arguments} --json")).succeeds().json()
    }
}

/// The rows of a dataset from `first` on, which tell by their values where they belong.
pub(super) fn rows_from(first: usize, count: usize) -> RecordBatch {
    let ids = || (first..first + count).map(|id| id as i64);
    let tags = ids().map(|id| (id % 5 != 0).then(|| (0..id as i32 % 4).map(Some).collect::<Vec<_>>()));
    let columns: [(&str, ArrayRef); 5] = [
        ("id", Arc::new(ids().collect::<Int64Array>())),
        ("label", Arc::new(ids().map(|id| (id % 7 != 0).then(|| format!("label {id}"))).collect::<StringArray>())),
        ("score", Arc::new(ids().map(|id| Some(id as f64 / 8.0)).collect::<Float64Array>())),
        ("time", Arc::new(ids().map(Some).collect::<TimestampMicrosecondArray>().with_timezone("UTC"))),
        ("tags", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(tags))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
}

/// How the program ended and what it wrote.
#[derive(Debug)]
pub(super) struct Outcome {
    arguments: String,
    code: Option<i32>,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: String,
}

impl Outcome {
    #[track_caller]
    pub(super) fn succeeds(self) -> Self {
        assert_eq!(self.code, Some(0), "{}: {}", self.arguments, self.stderr);
        self
    }

    /// Exits with status 1 and one line that says why, and writes no result.
    #[track_caller]
    pub(super) fn fails(self) -> Self {
        assert_eq!(self.code, Some(1), "{}: {}", self.arguments, self.stderr);
        assert!(self.stderr.starts_with("rowdex: ") && self.stderr.ends_with('\n'), "{}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        assert!(self.stdout.is_empty(), "{}", self.text());
        self
    }

    #[track_caller]
    pub(super) fn exits_with_usage(self) -> Self {
        assert_eq!(self.code, Some(2), "{}: {}", self.arguments, self.stderr);
        assert!(self.stdout.is_empty());
        self
    }

    /// Has all of these words on stderr.
    #[track_caller]
    pub(super) fn complains(self, words: &[&str]) -> Self {
        for word in words {
            assert!(self.stderr.contains(word), "{}: {word:?} is not in {}", self.arguments, self.stderr);
        }
        self
    }

    #[track_caller]
    pub(super) fn without_a_word(self) -> Self {
        assert_eq!(self.stderr, "", "{}", self.arguments);
        self
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).unwrap()
    }

    #[track_caller]
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).expect("stdout should be JSON and nothing else")
    }
}
