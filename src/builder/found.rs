//! What a search for data files finds, in folders and in stores alike.

use std::collections::HashMap;
use std::path::Path;

use rowdex_io::source::FileStat;
use rowdex_io::source::place::Place;

const EXTENSIONS: [&str; 3] = ["parquet", "parq", "pq"];

/// The files to index.
#[derive(Debug)]
pub(super) struct Found {
    /// The directory that all paths are relative to.
    pub(super) root: Place,
    /// `/`-separated, sorted bytewise, each once.
    pub(super) paths: Vec<String>,
    /// How often a file was named again.
    pub(super) repeated: u64,
    /// What a store said of them when it listed them.
    pub(super) listed: HashMap<String, FileStat>,
}

impl Found {
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
