//! What a search for data files finds, in folders and in stores alike.

use std::collections::HashMap;
use std::path::Path;

use rowdex_base::error::{Error, Result};
use rowdex_io::source::FileStat;
use rowdex_io::source::place::Place;

const EXTENSIONS: [&str; 3] = ["parquet", "parq", "pq"];

/// The files to index.
#[derive(Debug)]
pub(super) struct FilesToIndex {
    /// The directory that all paths are relative to.
    pub(super) root: Place,
    /// `/`-separated, sorted bytewise, each once.
    pub(super) paths: Vec<String>,
    /// How often a file was named again.
    pub(super) repeated: u64,
    /// What a store said of them when it listed them.
    pub(super) listed: HashMap<String, FileStat>,
}

impl FilesToIndex {
    /// Whether an object of a store is one of the files.
    pub(super) fn has(&self, place: &Place) -> bool {
        let (Place::Remote(root), Place::Remote(url)) = (&self.root, place) else { return false };
        self.paths.iter().any(|path| root.join(path).is_some_and(|file| file.key == url.key)) && root.same_store(url)
    }
}

pub(super) fn has_extension(path: &Path) -> bool {
    path.extension()
        .and_then(|extension| extension.to_str())
        .is_some_and(|extension| EXTENSIONS.iter().any(|known| known.eq_ignore_ascii_case(extension)))
}

/// Refuses what lies in a folder of a table format, whose files have rows that were deleted.
///
/// `place` says what the error calls the folder.
pub(super) fn refuse_table(path: &Path, place: impl Fn(&Path) -> String) -> Result<()> {
    let named = |path: Option<&Path>, name: &str| path.and_then(Path::file_name).is_some_and(|own| own == name);
    let of_iceberg = path.to_string_lossy().ends_with(".metadata.json") && named(path.parent(), "metadata");
    let of_delta = path.ancestors().find(|folder| named(Some(folder), "_delta_log"));
    let (table, folder, example) = match (of_delta, of_iceberg) {
        (Some(log), _) => ("a Delta Lake table", log.parent(), "examples/with_delta.py"),
        (None, true) => ("an Iceberg table", path.parent().and_then(Path::parent), "examples/with_iceberg.py"),
        (None, false) => return Ok(()),
    };
    Err(Error::invalid(format!("{table}, whose files have rows that were deleted"))
        .with_file(place(folder.unwrap_or(path)))
        .with_hint(format!("index the files of one of its versions, as {example} does")))
}

/// A glob pattern of paths for `fast_glob::glob_match`, of which `input` is what errors call it.
pub(super) fn glob(text: &str, input: String) -> Result<String> {
    fast_glob::validate(text)
        .map_err(|error| Error::invalid(format!("not a pattern: {error}")).with_file(input).with_source(error))?;
    // At the start of a pattern, `!` would negate it.
    let escape = if text.starts_with('!') { "\\" } else { "" };
    Ok(format!("{escape}{text}"))
}
