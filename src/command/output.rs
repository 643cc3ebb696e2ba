//! Where results go: stdout, or a file that appears whole or not at all.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use indicatif::{HumanBytes, HumanCount};
use rowdex::{Error, ErrorKind};
use serde_json::{Map, Value};
use tempfile::TempPath;

use crate::command::failure::Failure;

/// Writes text to stdout in one go.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}

/// Writes what was found: as JSON, or as lines and tables for people.
pub(crate) fn tell(json: bool, found: &Value) -> Result<(), Failure> {
    print(&if json { format!("{found:#}\n") } else { text(found) })
}

/// A line for each value of an object, and below them the values that have parts. Of a table the parts are left out.
pub(crate) fn text(found: &Value) -> String {
    let Value::Object(fields) = found else { return columns(&table(found)) };
    let lines = lines(fields);
    let width = lines.iter().map(|[name, _]| name.len()).max().unwrap_or_default();
    let mut text: String = lines.iter().map(|[name, value]| format!("{name:<width$}  {value}\n")).collect();
    for (name, part) in parts(fields) {
        text += &format!("\n{name}\n{}", self::text(part));
    }
    text
}

/// What is said of an object in a line each.
pub(crate) fn lines(fields: &Map<String, Value>) -> Vec<[String; 2]> {
    let line = |(name, value): (&String, &Value)| Some([spaced(name), said(name, value, true)?]);
    fields.iter().filter_map(line).collect()
}

/// The parts of an object that are objects or lists of them, and are not empty.
pub(crate) fn parts(fields: &Map<String, Value>) -> impl Iterator<Item = (String, &Value)> {
    let part = |(name, value): (&String, &Value)| said(name, value, true).is_none() && has_more(value);
    fields.iter().filter(move |field| part(*field)).map(|(name, value)| (spaced(name), value))
}

fn has_more(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.values().any(|value| !value.is_null()),
        Value::Array(list) => !list.is_empty(),
        _ => false,
    }
}

fn spaced(name: &str) -> String {
    name.replace('_', " ")
}

/// A list of objects as rows of cells, with their names first.
pub(crate) fn table(list: &Value) -> Vec<Vec<String>> {
    let rows: Vec<&Map<String, Value>> = list.as_array().into_iter().flatten().filter_map(Value::as_object).collect();
    let names = rows.iter().flat_map(|row| row.iter()).filter(|(name, value)| said(name, value, false).is_some());
    let mut heads: Vec<&String> = Vec::new();
    for (name, _) in names {
        if !heads.contains(&name) {
            heads.push(name);
        }
    }
    let cell = |row: &Map<String, Value>, name: &str| row.get(name).and_then(|value| said(name, value, false));
    let cells = |row: &&Map<String, Value>| {
        heads.iter().map(|name| cell(row, name).unwrap_or_else(|| "-".to_owned())).collect()
    };
    std::iter::once(heads.iter().map(|name| spaced(name)).collect()).chain(rows.iter().map(cells)).collect()
}

/// A value in a line, with commas in large counts where they are `grouped`; none if it has parts, or is not there.
fn said(name: &str, value: &Value, grouped: bool) -> Option<String> {
    Some(match value {
        Value::Null | Value::Object(_) => return None,
        Value::Bool(is) => if *is { "yes" } else { "no" }.to_owned(),
        Value::Number(number) => match number.as_u64() {
            Some(bytes) if name.contains("bytes") || name == "memory" => HumanBytes(bytes).to_string(),
            Some(count) if grouped => HumanCount(count).to_string(),
            Some(count) => count.to_string(),
            None => match number.as_f64() {
                Some(large) if large >= 1000.0 => format!("{large:.0}"),
                Some(small) => format!("{small:.3}"),
                None => number.to_string(),
            },
        },
        // Names come from files, and may be anything.
        Value::String(text) => text.replace(char::is_control, " "),
        Value::Array(list) => {
            let said: Vec<String> = list.iter().map(|value| said(name, value, grouped)).collect::<Option<_>>()?;
            (!said.is_empty()).then(|| said.join(", "))?
        }
    })
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
fn columns(rows: &[Vec<String>]) -> String {
    let form = |column: usize| {
        let cells = || rows.iter().filter_map(move |row| row.get(column));
        let width = cells().map(|cell| cell.chars().count()).max().unwrap_or_default();
        (width, cells().skip(1).all(|cell| cell.starts_with(|c: char| c.is_ascii_digit() || c == '-')))
    };
    let forms: Vec<(usize, bool)> = (0..rows.first().map_or(0, Vec::len)).map(form).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&forms).map(|(cell, &(width, numbers))| match numbers {
            true => format!("{cell:>width$}  "),
            false => format!("{cell:<width$}  "),
        });
        cells.collect::<String>().trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// Stdout, or a file that is at its path once it is committed, and never was if it is not.
pub(crate) struct Sink {
    out: BufWriter<Box<dyn Write>>,
    /// Where the file is for now, and where it is to be.
    file: Option<(TempPath, PathBuf)>,
}

impl Sink {
    pub(crate) fn stdout() -> Self {
        Self { out: BufWriter::new(Box::new(io::stdout())), file: None }
    }

    /// A file that takes the place of no other.
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
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Temporary files are private otherwise, and this one is to become an ordinary one.
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        let mut builder = tempfile::Builder::new();
        let prefix = format!(".{}.tmp-", name.chars().take(50).collect::<String>());
        builder.prefix(&prefix).rand_bytes(16).permissions(permissions);
        let (file, temporary) = builder.tempfile_in(folder).map_err(named)?.into_parts();
        Ok(Self { out: BufWriter::new(Box::new(file)), file: Some((temporary, path.to_owned())) })
    }

    /// A file of a format, which its name must end with.
    pub(crate) fn called(path: &Path, ending: &str) -> Result<Self, Failure> {
        if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(ending)) {
            return Self::file(path);
        }
        let message = format!("{} does not say that it is {ending}", path.display());
        let error = Error::new(ErrorKind::InvalidArgument, message);
        Err(error.with_hint(format!("name it with .{ending} at the end")).into())
    }

    /// Writes all that the file is to have, and puts it in its place.
    pub(crate) fn put(mut self, text: &str) -> Result<(), Failure> {
        self.write_all(text.as_bytes()).map_err(|error| self.failure(error))?;
        self.commit()
    }

    /// Why nothing more could be written.
    pub(crate) fn failure(&self, error: io::Error) -> Failure {
        match &self.file {
            None => error.into(),
            Some((_, path)) => Error::io("cannot write the file", error).with_file(path.display().to_string()).into(),
        }
    }

    /// Puts a file in its place, after its bytes are on disk.
    pub(crate) fn commit(mut self) -> Result<(), Failure> {
        self.out.flush().map_err(|error| self.failure(error))?;
        let Some((temporary, path)) = self.file.take() else { return Ok(()) };
        let failed = |error| Error::io("cannot write the file", error).with_file(path.display().to_string());
        File::open(&temporary).and_then(|file| file.sync_all()).map_err(failed)?;
        temporary.persist_noclobber(&path).map_err(|error| match error.error.kind() {
            io::ErrorKind::AlreadyExists => exists(&path),
            _ => failed(error.error).into(),
        })
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn exists(path: &Path) -> Failure {
    Error::new(ErrorKind::AlreadyExists, "the file exists already")
        .with_file(path.display().to_string())
        .with_hint("choose another path, or remove it")
        .into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_has_lines_and_tables_of_what_is_there() {
        let found = json!({
            "rows": 1003,
            "index_bytes": 2048,
            "left_out": [],
            "columns": ["id", "a\nb"],
            "problem": null,
            "disk_cache": {"hits": null},
            "ok": true,
            "ranks": [{"rank": 0, "samples": 1000, "more": {"x": 1}}, {"rank": 1, "samples": null, "share": 0.5}],
            "root": {"path": "data"},
        });
        let told = "rows         1,003\nindex bytes  2.00 KiB\ncolumns      id, a b\nok           yes\n\n\
                    ranks\nrank  samples  share\n   0     1000      -\n   1        -  0.500\n\nroot\npath  data\n";
        assert_eq!(text(&found), told);
    }
}
