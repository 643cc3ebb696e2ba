//! The files of a dataset as they are used: compared with the index when they are opened, and their footers parsed
//! once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::staleness::{self, Staleness};
use rowdex_base::cache::{Cache, Weighed};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_index::{FileEntry, Index, RowGroupEntry};
use rowdex_io::source::{FileStat, Source};
use rowdex_parquet::{FileMetadata, read_end};

/// Parsed footers kept, and always the last one: each decode needs one, and wide files take milliseconds to parse.
const METADATA_BYTES: u64 = 32 << 20;

/// A file that may be read.
#[derive(Debug)]
pub(super) struct OpenDataFile {
    pub(super) metadata: FileMetadata,
    /// What every read must be of; `None` where files are not compared.
    pub(super) content: Option<FileStat>,
}

/// Says which file an error is of, and where a user finds it.
pub(super) fn in_file(error: Error, path: &str, source: &dyn Source) -> Error {
    error.with_file(path).with_location(path, || source.location(path))
}

/// A row group of an open file.
pub(super) struct OpenGroup<'a> {
    pub(super) file: Arc<OpenDataFile>,
    pub(super) entry: RowGroupEntry<'a>,
    /// What the file was when it was indexed.
    pub(super) indexed: FileEntry<'a>,
    /// The columns of the file that come from its path, with their values.
    pub(super) partitions: Vec<(&'a str, Option<&'a str>)>,
    source: &'a dyn Source,
}

impl OpenGroup<'_> {
    /// Its place in the file.
    pub(super) fn ordinal(&self) -> usize {
        self.entry.ordinal() as usize
    }

    /// Says where an error happened.
    pub(super) fn located(&self, error: Error) -> Error {
        in_file(error.with_row_group(u64::from(self.entry.ordinal())), self.indexed.path(), self.source)
    }
}

#[derive(Debug)]
pub(super) struct FileTable {
    index: Index,
    source: Arc<dyn Source>,
    staleness: Staleness,
    open: Cache<u32, OpenDataFile>,
    bytes_read: AtomicU64,
}

impl FileTable {
    pub(super) fn new(index: Index, source: Arc<dyn Source>, staleness: Staleness) -> Self {
        Self { index, source, staleness, open: Cache::new(METADATA_BYTES), bytes_read: AtomicU64::new(0) }
    }

    /// Bytes of footers read, because the index has none or to compare them.
    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// The file, compared with the index at the dataset's level.
    pub(super) fn get(&self, number: u32) -> Result<Arc<OpenDataFile>> {
        let entry = self.indexed(number)?;
        if self.staleness == Staleness::Deep {
            self.check(&entry, Staleness::Deep)?;
        }
        self.open.get_or_load(number, || {
            if self.staleness == Staleness::Footer {
                self.check(&entry, Staleness::Footer)?;
            }
            let content = self.content(&entry)?;
            let footer = self.footer_of(&entry, content.as_ref())?;
            let metadata = FileMetadata::parse(entry.path(), &footer, entry.size(), self.index.renaming())?;
            self.check_row_groups(&entry, &metadata)?;
            let bytes = metadata.memory_bytes().min(METADATA_BYTES);
            Ok(Weighed { value: OpenDataFile { metadata, content }, bytes })
        })
    }

    /// What the index says of a file.
    fn indexed(&self, number: u32) -> Result<FileEntry<'_>> {
        self.index.file(number).ok_or_else(|| Error::new(ErrorKind::OutOfRange, format!("no file {number}")))
    }

    /// The footer of a file, from the index or from the file itself.
    #[cfg(feature = "filter")]
    pub(super) fn footer(&self, number: u32) -> Result<Bytes> {
        self.footer_of(&self.indexed(number)?, self.get(number)?.content.as_ref())
    }

    fn footer_of(&self, entry: &FileEntry<'_>, content: Option<&FileStat>) -> Result<Bytes> {
        let stored = match self.index.footer(entry.index()) {
            // Somebody changed the index in place. What was indexed is in memory, so the file's own footer will do.
            Err(error) if error.kind() == ErrorKind::InvalidIndex => None,
            stored => stored?,
        };
        // No footers are compared at the level `off`.
        let compared = content.filter(|_| self.staleness != Staleness::Off);
        stored.map_or_else(|| self.read_footer(entry, compared), Ok)
    }

    /// A row group, whose file is compared with the index at the dataset's level.
    pub(super) fn row_group(&self, number: u32) -> Result<OpenGroup<'_>> {
        let entry = self.entry(number)?;
        let indexed = self.indexed(entry.file())?;
        let file = self
            .get(entry.file())
            .map_err(|error| error.with_row_group(u64::from(entry.ordinal())))
            .map_err(|error| in_file(error, indexed.path(), &*self.source))?;
        let columns = self.index.partition_columns().iter().map(String::as_str);
        let partitions = columns.zip(indexed.partition_values()).collect();
        Ok(OpenGroup { file, entry, indexed, partitions, source: &*self.source })
    }

    /// What the index says of a row group.
    pub(super) fn entry(&self, number: u32) -> Result<RowGroupEntry<'_>> {
        let entry = self.index.row_group(number);
        entry.ok_or_else(|| Error::new(ErrorKind::OutOfRange, format!("no row group {number}")))
    }

    /// Compares the file with what was indexed.
    pub(super) fn check(&self, entry: &FileEntry<'_>, level: Staleness) -> Result<()> {
        match level {
            Staleness::Off => Ok(()),
            Staleness::Stat => self.check_stat(entry, &self.source.stat(entry.path())?),
            Staleness::Footer | Staleness::Deep => {
                // A store without tags compares times, and a copy has another one.
                let by_time = self.source.is_remote() && entry.etag().is_none();
                let expected = if by_time { self.source.stat(entry.path())? } else { entry.stat() };
                self.read_footer(entry, Some(&expected)).map(drop)
            }
        }
    }

    /// Compares what a file looks like now with what was indexed, and its footer if only its time is another.
    fn check_stat(&self, entry: &FileEntry<'_>, now: &FileStat) -> Result<()> {
        match staleness::is_retimed(entry, now)? {
            false => Ok(()),
            true => self.read_footer(entry, Some(now)).map(drop),
        }
    }

    /// The footer as it is in the file now, which must be the one that was indexed.
    ///
    /// `expected` is what a store is asked for; without it, nothing is compared.
    fn read_footer(&self, entry: &FileEntry<'_>, expected: Option<&FileStat>) -> Result<Bytes> {
        let source = &*self.source;
        let mut retimed = false;
        if expected.is_some() && !source.is_remote() {
            // First, because a file that changed may not even be Parquet any more. A store compares by itself.
            retimed = staleness::is_retimed(entry, &source.stat(entry.path())?)?;
        }
        let read = read_end(source, entry.path(), source.footer_guess(), expected);
        if let (Ok((stat, _)), Some(_)) = (&read, expected) {
            retimed |= staleness::is_retimed(entry, stat)?;
        }
        match read {
            Ok((_, footer)) => {
                self.bytes_read.fetch_add(footer.bytes.len() as u64, Ordering::Relaxed);
                if expected.is_none() || footer.hash == entry.footer_hash() {
                    return Ok(footer.bytes);
                }
                Err(match retimed {
                    true => staleness::modified(entry),
                    false => staleness::stale(entry, "its footer is not the one that was indexed"),
                })
            }
            // What has another time and no footer is another file.
            Err(error) if retimed && error.kind() == ErrorKind::InvalidParquet => Err(staleness::modified(entry)),
            Err(error) => Err(error),
        }
    }

    /// What reads of the file are to be compared with. `None` at the level `off` alone.
    fn content(&self, entry: &FileEntry<'_>) -> Result<Option<FileStat>> {
        let remote = self.source.is_remote();
        match self.staleness {
            Staleness::Off if remote => Ok(Some(FileStat { size: entry.size(), ..FileStat::default() })),
            Staleness::Off => Ok(None),
            _ if remote && entry.etag().is_some() => Ok(Some(entry.stat())),
            // It was indexed somewhere else, or there are no tags: what it is like now is what it has to stay.
            _ => {
                let now = self.source.stat(entry.path())?;
                self.check_stat(entry, &now)?;
                Ok(Some(now))
            }
        }
    }

    /// An index that was written for other files must not decide what is read from these.
    fn check_row_groups(&self, entry: &FileEntry<'_>, metadata: &FileMetadata) -> Result<()> {
        for group in entry.row_groups().filter_map(|group| self.index.row_group(group)) {
            let rows = u64::from(metadata.row_group_rows(group.ordinal() as usize));
            if rows != group.source_rows() {
                let message = format!("has {rows} rows, and {} were indexed", group.source_rows());
                return Err(staleness::stale(entry, message).with_row_group(u64::from(group.ordinal())));
            }
        }
        Ok(())
    }
}
