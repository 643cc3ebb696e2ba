//! The files of a dataset as they are used: checked once, and their footers parsed once.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::Inner;
use super::staleness::{self, Staleness};
use crate::cache::{Cache, Weighed};
use crate::index::FileEntry;
use crate::row_group::{FileMetadata, read_end};
use crate::source::{FileStat, Pending, Source};
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
    /// What every read must be of, where the source compares; `None` where it does not.
    pub(super) content: Option<FileStat>,
}

/// The source of one open file, which gives only bytes of the content that was indexed.
#[derive(Debug)]
pub(super) struct Pinned<'a> {
    pub(super) source: &'a dyn Source,
    pub(super) file: &'a OpenFile,
}

impl Source for Pinned<'_> {
    fn stat(&self, path: &str) -> Result<FileStat> {
        self.source.stat(path)
    }

    fn read(&self, path: &str, ranges: &[Range<u64>]) -> Result<Vec<bytes::Bytes>> {
        match &self.file.content {
            Some(content) => self.source.read_unchanged(path, content, ranges),
            None => self.source.read(path, ranges),
        }
    }
}

impl OpenFile {
    /// Starts reading ranges of the file, where reading ahead gains something.
    pub(super) fn begin(&self, source: &dyn Source, ranges: &[Range<u64>]) -> Option<Pending<Vec<bytes::Bytes>>> {
        source.begin(self.metadata.path(), self.content.as_ref()?, ranges)
    }
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
        let remote = dataset.source.is_remote();
        // Reads from a store compare the entity tag themselves.
        let by_reading = remote && dataset.staleness == Staleness::Stat;
        if dataset.staleness == Staleness::Deep || !(done || by_reading) {
            self.check(dataset, &entry, dataset.staleness)?;
            if let Some(checked) = checked {
                checked.store(true, Ordering::Relaxed);
            }
        }
        self.open.get_or_load(number, || {
            let content = if remote { Some(content(dataset, &entry)?) } else { None };
            let footer = match dataset.index.footer(number)? {
                Some(footer) => footer,
                None => self.read_footer(dataset, &entry, dataset.staleness)?,
            };
            let metadata = FileMetadata::parse(entry.path(), &footer, entry.size())?;
            check_row_groups(dataset, &entry, &metadata)?;
            Ok(Weighed { value: OpenFile { number, metadata, content }, bytes: footer.len() as u64 * PARSED_SIZE })
        })
    }

    /// Compares the file with what was indexed.
    pub(super) fn check(&self, dataset: &Inner, entry: &FileEntry<'_>, level: Staleness) -> Result<()> {
        match level {
            Staleness::Off => Ok(()),
            Staleness::Stat => staleness::check_stat(entry, &dataset.source.stat(entry.path())?),
            Staleness::Footer | Staleness::Deep => self.read_footer(dataset, entry, level).map(drop),
        }
    }

    /// The footer as it is in the file now, which must be the one that was indexed.
    fn read_footer(&self, dataset: &Inner, entry: &FileEntry<'_>, level: Staleness) -> Result<bytes::Bytes> {
        let source = &*dataset.source;
        if level != Staleness::Off && !source.is_remote() {
            // First, because a file that changed may not even be Parquet any more. A store compares by itself.
            staleness::check_stat(entry, &source.stat(entry.path())?)?;
        }
        let expected = if level == Staleness::Off { None } else { Some(entry.stat()) };
        let (stat, footer) = read_end(source, entry.path(), source.footer_guess(), expected.as_ref())?;
        self.bytes_read.fetch_add(footer.bytes.len() as u64, Ordering::Relaxed);
        if level != Staleness::Off {
            staleness::check_stat(entry, &stat)?;
        }
        if footer.hash != entry.footer_hash() {
            return Err(staleness::stale(entry, "its footer is not the one that was indexed"));
        }
        Ok(footer.bytes)
    }
}

/// What reads from a store are to be compared with.
fn content(dataset: &Inner, entry: &FileEntry<'_>) -> Result<FileStat> {
    match dataset.staleness {
        Staleness::Off => Ok(FileStat { size: entry.size(), ..FileStat::default() }),
        _ if entry.etag().is_some() => Ok(entry.stat()),
        // It was indexed somewhere else, or the store has no tags: one request tells what to hold on to.
        _ => {
            let now = dataset.source.stat(entry.path())?;
            staleness::check_stat(entry, &now)?;
            Ok(now)
        }
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
