//! Where results go: stdout, or a file that appears whole or not at all.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use indicatif::HumanCount;
use rowdex::{Error, ErrorKind};
use serde_json::Value;
use tempfile::NamedTempFile;

use crate::command::failure::Failure;

/// Writes text to stdout in one go.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}

pub(crate) fn print_json(value: &Value) -> Result<(), Failure> {
    print(&format!("{value:#}\n"))
}

/// A number of things, in the singular where it is one: `1 row`, `2,048 rows`, `8 row groups`.
pub(crate) fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", HumanCount(count), if count == 1 { "" } else { "s" })
}

/// How many a second, or 0 in no time.
pub(crate) fn rate(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// Rows of cells with every column as wide as its widest cell; numbers to the right, as people compare them.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..count).map(|column| width(column).unwrap_or_default()).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:>width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Stdout or a file, for writers that wrap the errors they meet beyond recognition.
pub(crate) struct Sink {
    target: SinkTarget,
    error: Option<io::Error>,
}

enum SinkTarget {
    Stdout(BufWriter<io::Stdout>),
    File { file: BufWriter<NamedTempFile>, path: PathBuf },
}

impl Sink {
    pub(crate) fn stdout() -> Self {
        Self { target: SinkTarget::Stdout(BufWriter::new(io::stdout())), error: None }
    }

    /// A file that is at `path` once it is committed, and never was if it is not. It takes the place of no other.
    pub(crate) fn file(path: &Path) -> Result<Self, Failure> {
        if path.is_dir() {
            return Err(Error::new(ErrorKind::InvalidArgument, "a folder, where a file was to be written")
                .with_file(path.display().to_string())
                .with_hint("name a file in it")
                .into());
        }
        if path.symlink_metadata().is_ok() {
            return Err(exists(path));
        }
        let named = |error| Error::io("cannot create the file", error).with_file(path.display().to_string());
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Temporary files are private otherwise, and this one is to become an ordinary one.
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        let mut builder = tempfile::Builder::new();
        let prefix = format!(".{}.tmp-", name.chars().take(50).collect::<String>());
        builder.prefix(&prefix).rand_bytes(16).permissions(permissions);
        let file = BufWriter::new(builder.tempfile_in(folder).map_err(named)?);
        Ok(Self { target: SinkTarget::File { file, path: path.to_owned() }, error: None })
    }

    /// A file for a picture, which must be called one.
    pub(crate) fn picture(path: &Path) -> Result<Self, Failure> {
        if path.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("svg")) {
            let message = format!("a picture is SVG, which {} does not say it is", path.display());
            let error = Error::new(ErrorKind::InvalidArgument, message).with_hint("name it with .svg at the end");
            return Err(error.into());
        }
        Self::file(path)
    }

    /// Writes all that the file is to have, and puts it in its place.
    pub(crate) fn put(mut self, text: &str) -> Result<(), Failure> {
        if let Err(error) = self.write_all(text.as_bytes()) {
            return Err(self.failure(error));
        }
        self.commit()
    }

    /// The failure of a writer: the error that this sink gave it, if it did, or what the writer says.
    pub(crate) fn failure(&mut self, said: impl ToString) -> Failure {
        match (self.error.take(), &self.target) {
            (Some(error), SinkTarget::Stdout(_)) => error.into(),
            (Some(error), SinkTarget::File { path, .. }) => cannot_write(path, error),
            (None, _) => Failure::Said(said.to_string()),
        }
    }

    /// Puts a file in its place, after its bytes are on disk.
    pub(crate) fn commit(self) -> Result<(), Failure> {
        match self.target {
            SinkTarget::Stdout(mut stdout) => Ok(stdout.flush()?),
            SinkTarget::File { file, path } => {
                let file = file.into_inner().map_err(|error| cannot_write(&path, error.into_error()))?;
                file.as_file().sync_all().map_err(|error| cannot_write(&path, error))?;
                match file.persist_noclobber(&path) {
                    Ok(_) => Ok(()),
                    Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Err(exists(&path)),
                    Err(error) => Err(cannot_write(&path, error.error)),
                }
            }
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match &mut self.target {
            SinkTarget::Stdout(stdout) => stdout.write(bytes),
            SinkTarget::File { file, .. } => file.write(bytes),
        };
        written.inspect_err(|error| self.error = Some(copy(error)))
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = match &mut self.target {
            SinkTarget::Stdout(stdout) => stdout.flush(),
            SinkTarget::File { file, .. } => file.flush(),
        };
        flushed.inspect_err(|error| self.error = Some(copy(error)))
    }
}

/// An `io::Error` cannot be cloned, and both the writer and the sink want it.
fn copy(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => error.kind().into(),
    }
}

fn cannot_write(path: &Path, error: io::Error) -> Failure {
    Error::io("cannot write the file", error).with_file(path.display().to_string()).into()
}

fn exists(path: &Path) -> Failure {
    Error::new(ErrorKind::AlreadyExists, "the file exists already")
        .with_file(path.display().to_string())
        .with_hint("choose another path, or remove it")
        .into()
}
