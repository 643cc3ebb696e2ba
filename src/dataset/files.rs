//! The files of a dataset as they are used: checked once, and their footers parsed once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::Inner;
use super::staleness::{self, Staleness};
use crate::cache::{Cache, Weighed};
use crate::index::FileEntry;
use crate::row_group::{FileMetadata, read_footer};
use crate::{Error, ErrorKind, Result};

/// Parsed footers kept. They are needed for every decode and take milliseconds to parse for wide files.
const METADATA_BYTES: u64 = 64 << 20;

/// Bytes in memory for a byte of footer, about: parsed, its varints become integers and its columns structs.
const PARSED_SIZE: u64 = 8;

/// A file that may be read.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) number: u32,
    pub(super) metadata: FileMetadata,
}

#[derive(Debug)]
pub(super) struct FileTable {
    open: Cache<u32, OpenFile>,
    /// Whether the file was found to be the one that was indexed.
    checked: Vec<AtomicBool>,
    bytes_read: AtomicU64,
}

impl FileTable {
    pub(super) fn new(files: u32) -> Self {
        let checked = (0..files).map(|_| AtomicBool::new(false)).collect();
        Self { open: Cache::new(METADATA_BYTES), checked, bytes_read: AtomicU64::new(0) }
    }

    /// Bytes of footers read, because the index has none or to compare them.
    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// The file, checked at the dataset's level.
    pub(super) fn get(&self, dataset: &Inner, number: u32) -> Result<Arc<OpenFile>> {
        let entry = dataset.index.file(number);
        let entry = entry.ok_or_else(|| Error::new(ErrorKind::OutOfRange, format!("no file {number}")))?;
        let checked = self.checked.get(number as usize);
        let done = checked.is_some_and(|checked| checked.load(Ordering::Relaxed));
        if dataset.staleness == Staleness::Deep || !done {
            self.check(dataset, &entry, dataset.staleness)?;
            if let Some(checked) = checked {
                checked.store(true, Ordering::Relaxed);
            }
        }
        self.open.get_or_load(number, || {
            let footer = match dataset.index.footer(number)? {
                Some(footer) => footer,
                None => self.read_footer(dataset, &entry)?,
            };
            let metadata = FileMetadata::parse(entry.path(), &footer, entry.size())?;
            check_row_groups(dataset, &entry, &metadata)?;
            Ok(Weighed { value: OpenFile { number, metadata }, bytes: footer.len() as u64 * PARSED_SIZE })
        })
    }

    /// Compares the file with what was indexed.
    pub(super) fn check(&self, dataset: &Inner, entry: &FileEntry<'_>, level: Staleness) -> Result<()> {
        if level != Staleness::Off {
            staleness::check_stat(&*dataset.source, entry)?;
        }
        if matches!(level, Staleness::Footer | Staleness::Deep) {
            self.read_footer(dataset, entry)?;
        }
        Ok(())
    }

    /// The footer as it is in the file now, which must be the one that was indexed.
    fn read_footer(&self, dataset: &Inner, entry: &FileEntry<'_>) -> Result<bytes::Bytes> {
        let stat = dataset.source.stat(entry.path())?;
        let footer = read_footer(&*dataset.source, entry.path(), &stat)?;
        self.bytes_read.fetch_add(footer.bytes.len() as u64, Ordering::Relaxed);
        if footer.hash != entry.footer_hash() {
            return Err(staleness::stale(entry, "its footer is not the one that was indexed"));
        }
        Ok(footer.bytes)
    }
}

/// An index that was written for other files must not decide what is read from these.
fn check_row_groups(dataset: &Inner, entry: &FileEntry<'_>, metadata: &FileMetadata) -> Result<()> {
    for group in entry.row_groups().filter_map(|group| dataset.index.row_group(group)) {
        let rows = u64::from(metadata.row_group_rows(group.ordinal() as usize));
        if rows != group.source_rows() {
            let message = format!("has {rows} rows, and {} were indexed", group.source_rows());
            return Err(staleness::stale(entry, message).with_row_group(u64::from(group.ordinal())));
        }
    }
    Ok(())
}
