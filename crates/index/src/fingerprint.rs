//! What row ids of an index mean, as a number.

use xxhash_rust::xxh3::Xxh3Default;

use super::Index;

impl Index {
    /// A number that differs between two indexes when any row id means another (path, row group, row).
    ///
    /// It covers paths, row groups, row counts and selections, and nothing else: not sizes or times of files, not the
    /// schema, not how the index is stored. An order that was saved for one index may be used with another of the same
    /// fingerprint. The first call takes O(row groups) and O(stored selection), later ones nothing.
    pub fn fingerprint(&self) -> u64 {
        *self.inner.fingerprint.get_or_init(|| self.fingerprint_of_rows())
    }

    fn fingerprint_of_rows(&self) -> u64 {
        let contents = &self.inner.contents;
        let mut hasher = Xxh3Default::new();
        hasher.update(b"rowdex fingerprint 1");
        hasher.update(&self.num_files().to_le_bytes());
        for file in self.files() {
            hasher.update(&(file.path().len() as u64).to_le_bytes());
            hasher.update(file.path().as_bytes());
        }
        let mut start = 0_u64;
        for (group, record) in (0_u32..).zip(contents.row_groups.as_slice()) {
            let end = record.end.get();
            // A row group without rows has no row id, so it may come and go.
            if end != start {
                let rows = end.saturating_sub(start);
                let selection = contents.selection(group, rows).map_or(0, |set| set.content_hash());
                let mut entry = [0; 24];
                entry[..4].copy_from_slice(&record.file.get().to_le_bytes());
                entry[4..8].copy_from_slice(&record.ordinal.get().to_le_bytes());
                entry[8..16].copy_from_slice(&rows.to_le_bytes());
                entry[16..].copy_from_slice(&selection.to_le_bytes());
                hasher.update(&entry);
            }
            start = end;
        }
        hasher.digest()
    }

    /// What something noted about the rows is bound to: these rows, and the contents of the files as far as their
    /// footers tell.
    #[doc(hidden)]
    pub fn binding(&self, what: &[u8]) -> u64 {
        let mut hasher = Xxh3Default::new();
        hasher.update(what);
        hasher.update(&self.fingerprint().to_le_bytes());
        for file in self.files() {
            hasher.update(&file.footer_hash().to_le_bytes());
        }
        hasher.digest()
    }
}
