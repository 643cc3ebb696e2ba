//! Which files of an index are still the same.

use std::collections::HashMap;

use super::found::FilesToIndex;
use rowdex_index::{FileEntry, Index};
use rowdex_io::source::{FileStat, Source};
use rowdex_parquet::read_end;

/// A file of the index that is updated, whose content is still the same.
pub(super) struct Unchanged {
    /// Its number in the old index.
    pub(super) file: u32,
    /// What is recorded of it: a copy has a time of its own.
    pub(super) stat: FileStat,
}

/// The files of the old index, by path, that are there and have not changed.
///
/// Below another root the same path may be another file, so there the footers decide; and so they do where only the
/// time of a local file is another.
pub(super) fn unchanged<'a>(
    old: &'a Index,
    found: &FilesToIndex,
    source: &dyn Source,
    same_root: bool,
) -> HashMap<&'a str, Unchanged> {
    let unchanged = |entry: &FileEntry<'_>| -> Option<Unchanged> {
        found.paths.binary_search_by(|path| path.as_str().cmp(entry.path())).ok()?;
        let stat = match found.listed.get(entry.path()) {
            Some(now) => now.clone(),
            None => source.stat(entry.path()).ok()?,
        };
        let file = entry.index();
        // What was recorded may say more than a listing, which has no entity tags in some stores.
        if same_root && entry.stat().is_surely(&stat) {
            return Some(Unchanged { file, stat: entry.stat() });
        }
        // A request to a store costs as much as reading it anew.
        (!source.is_remote() && has_footer_of(entry, &stat, source)).then_some(Unchanged { file, stat })
    };
    old.files().filter_map(|entry| Some((entry.path(), unchanged(&entry)?))).collect()
}

/// Whether a file is as long as the indexed one and has its footer.
pub(super) fn has_footer_of(entry: &FileEntry<'_>, now: &FileStat, source: &dyn Source) -> bool {
    let read = || read_end(source, entry.path(), source.footer_guess(), Some(now));
    now.size == entry.size() && read().is_ok_and(|(_, end)| end.hash == entry.footer_hash())
}
