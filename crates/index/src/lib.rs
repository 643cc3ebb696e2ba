//! Where a row is: the index file, and looking rows up in it.
//!
//! An index lists the row groups of many files, in order, with running totals of their rows. A row id is a place in
//! that list, and [`Index::locate`] turns it into a file, a row group and a row. The index holds no values and knows
//! nothing of how the files are read.
//!
//! Opening checks everything that a lookup relies on, so an [`Index`] that exists is a valid one and lookups cannot
//! fail. Only the stored footers are left unread until they are asked for; [`Index::verify`] reads them too.

pub mod build_info;
mod contents;
mod entries;
mod fingerprint;
mod format;
mod lengths;
mod order_file;
pub mod output;
pub mod path;
mod recorded;
pub mod root;
mod rows;
pub mod schema;
mod sections;
mod stored;
#[cfg(test)]
mod tests;
pub mod view;
pub mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::SchemaRef;
use bytes::Bytes;

use self::contents::IndexContents;
use self::format::Envelope;
use self::lengths::LengthsSection;
use self::stored::IndexBytes;
use rowdex_base::error::{Error, Result};
use rowdex_base::once::Once;
use rowdex_io::source::place::{Place, shown};
use rowdex_io::source::{ObjectSource, StoreOptions};
use rowdex_order::RowLayout;
use rowdex_projection::Renames;

pub use self::entries::{FileEntry, RowGroupEntry};
pub use self::lengths::{LengthsOf, LengthsWriter, NewLengths, RowLengths};
pub use self::order_file::order_file;
pub use self::rows::RowSet;

/// An open index: cheap to clone, shared between threads without locks.
#[derive(Clone)]
pub struct Index {
    inner: Arc<OpenIndex>,
}

struct OpenIndex {
    contents: IndexContents,
    bytes: IndexBytes,
    path: Option<PathBuf>,
    fingerprint: Once<u64>,
    /// Lengths of rows, once they were asked for.
    lengths: Once<Result<Arc<LengthsSection>>>,
}

/// Where one row is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The row group, counted over the whole index.
    pub row_group: u32,
    /// The file.
    pub file: u32,
    /// The row group, counted within its file.
    pub ordinal: u32,
    /// The row, counted within the row group as it is in the file.
    pub row: u64,
    /// The place among the rows of the row group that are served; equal to `row` where all of them are.
    pub slot: u64,
}

/// Where the files were when the index was built: a hint, which may be overridden when the index is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Whether `path` is relative to the directory that the index lies in, so that both can be moved together; else it
    /// is an absolute path or a URL.
    pub is_relative: bool,
    /// The directory or URL that the file paths are below.
    pub path: String,
}

impl Index {
    /// Opens an index file and checks it; reads no data file.
    ///
    /// Takes time in proportion to the number of row groups and, where rows were selected, to the stored selection, at
    /// about the speed of memory. What lookups need is read into memory, up to 64 MiB, and stored footers are read when
    /// they are asked for; the tables of a larger index are mapped.
    ///
    /// Replace an index by renaming another to its path, as this library does. One that is overwritten or shortened in
    /// place while it is open still serves the rows that it was opened with, without footers; if its tables are mapped,
    /// it serves wrong rows, or the process is killed by SIGBUS. [`Index::from_bytes`] takes one of any size.
    ///
    /// A URL (`s3://`, `gs://`, `az://`, `http://`, `https://`) works as well: one request, and the index is held in
    /// memory.
    ///
    /// # Errors
    ///
    /// [`NotFound`](rowdex_base::error::ErrorKind::NotFound) and [`Io`](rowdex_base::error::ErrorKind::Io) from the
    /// file system, [`InvalidIndex`](rowdex_base::error::ErrorKind::InvalidIndex) for anything but a whole and
    /// undamaged index, [`UnsupportedIndex`](rowdex_base::error::ErrorKind::UnsupportedIndex) for one of a newer
    /// format.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, &StoreOptions::default())
    }

    /// As [`Index::open`], with options for the store that a URL is in.
    ///
    /// # Errors
    ///
    /// As [`Index::open`].
    pub fn open_with(path: impl AsRef<Path>, options: &StoreOptions) -> Result<Self> {
        let path = path.as_ref();
        let open = || match Place::of(path)? {
            Place::Local(file) => Self::new(IndexBytes::open(&file)?, Some(file)),
            Place::Remote(url) => {
                // With the files beside it that belong to it, whatever becomes of a branch.
                let pinned = ObjectSource::pinned(url.clone(), options)?;
                let path = if pinned == url { path.to_owned() } else { PathBuf::from(pinned.to_string()) };
                let bytes = ObjectSource::at(pinned, options)?.get_whole("")?;
                Self::new(IndexBytes::Memory(bytes), Some(path))
            }
        };
        open().map_err(|error: Error| error.with_file(shown(path)))
    }

    /// Checks an index in memory, which may start at any alignment and is not copied.
    ///
    /// # Errors
    ///
    /// As [`Index::open`], without those of the file system.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Result<Self> {
        Self::new(IndexBytes::Memory(bytes.into()), None)
    }

    fn new(bytes: IndexBytes, path: Option<PathBuf>) -> Result<Self> {
        let contents = IndexContents::parse(&Envelope::parse(&bytes)?)?;
        Ok(Self {
            inner: Arc::new(OpenIndex { contents, bytes, path, fingerprint: Once::new(), lengths: Once::new() }),
        })
    }

    /// How many rows are served: row ids are `0..len`.
    pub fn len(&self) -> u64 {
        self.inner.contents.rows
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many rows the row groups have in their files; more than `len` where rows were selected.
    pub fn source_rows(&self) -> u64 {
        self.inner.contents.source_rows
    }

    /// Where a row is; `None` at `len` and beyond.
    ///
    /// O(1) expected and O(log row groups) at worst, plus O(log rows) within a row group where rows were selected;
    /// allocates nothing.
    pub fn locate(&self, row: u64) -> Option<Location> {
        let contents = &self.inner.contents;
        if row >= contents.rows {
            return None;
        }
        let groups = contents.row_groups.as_slice();
        let guide = contents.guide.as_slice();
        let bucket = usize::try_from(row >> contents.guide_shift).ok()?;
        let first = guide.get(bucket)?.get() as usize;
        let last = guide.get(bucket.checked_add(1)?)?.get() as usize;
        // The row group is one of first..=last: it ends after `row`, as the last does and no earlier one may.
        let at = first + groups.get(first..last)?.partition_point(|group| group.end.get() <= row);
        let group = groups.get(at)?;
        let start = at.checked_sub(1).and_then(|before| groups.get(before)).map_or(0, |before| before.end.get());
        let slot = row.checked_sub(start)?;
        let source_row = if contents.selections.is_some() {
            match contents.selection(at as u32, group.end.get().saturating_sub(start)) {
                Some(selected) => selected.select(slot)?,
                None => slot,
            }
        } else {
            slot
        };
        Some(Location {
            row_group: at as u32,
            file: group.file.get(),
            ordinal: group.ordinal.get(),
            row: source_row,
            slot,
        })
    }

    /// How many files there are.
    pub fn num_files(&self) -> u32 {
        self.inner.contents.files.as_slice().len() as u32
    }

    /// How many row groups there are.
    pub fn num_row_groups(&self) -> u32 {
        self.inner.contents.row_groups.as_slice().len() as u32
    }

    /// A file by its number.
    pub fn file(&self, file: u32) -> Option<FileEntry<'_>> {
        let record = self.inner.contents.files.as_slice().get(file as usize)?;
        Some(FileEntry { contents: &self.inner.contents, index: file, record })
    }

    /// A row group by its number over the whole index.
    pub fn row_group(&self, row_group: u32) -> Option<RowGroupEntry<'_>> {
        let record = self.inner.contents.row_groups.as_slice().get(row_group as usize)?;
        Some(RowGroupEntry { contents: &self.inner.contents, index: row_group, record })
    }

    /// All files, in order.
    pub fn files(&self) -> impl DoubleEndedIterator<Item = FileEntry<'_>> {
        (0..self.num_files()).filter_map(|file| self.file(file))
    }

    /// How many rows each row group has, as a [`Recipe`](rowdex_order::Recipe) of an order wants to know it.
    pub fn layout(&self) -> RowLayout {
        RowLayout::of_groups(self.row_groups().map(|group| group.rows()))
    }

    /// All row groups, in order.
    pub fn row_groups(&self) -> impl DoubleEndedIterator<Item = RowGroupEntry<'_>> {
        (0..self.num_row_groups()).filter_map(|row_group| self.row_group(row_group))
    }

    /// The columns of every file, partition columns among them.
    pub fn schema(&self) -> &SchemaRef {
        &self.inner.contents.schema
    }

    /// The names of the columns whose value is constant in each file and comes from its path.
    pub fn partition_columns(&self) -> &[String] {
        &self.inner.contents.partition_columns
    }

    /// Columns that some files call otherwise than they are served: the name in the files, and the one that is served.
    pub fn renames(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.inner.contents.renames.pairs().iter().map(|(old, new)| (old.as_str(), new.as_str()))
    }

    /// The names of columns in the files, where they differ from those that are served.
    #[doc(hidden)]
    pub fn renaming(&self) -> &Renames {
        &self.inner.contents.renames
    }

    /// Where the files were when the index was built.
    pub fn root(&self) -> &Root {
        &self.inner.contents.root
    }

    /// What built the index and with which options, as JSON; empty where that was not recorded.
    pub fn build_info(&self) -> &str {
        &self.inner.contents.build_info
    }

    /// The stored footer of a file, decompressed; `None` where footers were not stored, or for no such file.
    ///
    /// # Errors
    ///
    /// [`InvalidIndex`](rowdex_base::error::ErrorKind::InvalidIndex) when the stored bytes are not the footer that was
    /// indexed.
    pub fn footer(&self, file: u32) -> Result<Option<Bytes>> {
        let Some(entry) = self.file(file) else { return Ok(None) };
        entry.footer().map_err(|error| self.name(error))
    }

    /// The length of the index in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.inner.bytes.len()
    }

    /// Whether both have the same sections, by the hashes of them.
    pub(crate) fn has_sections_of(&self, other: &Self) -> Result<bool> {
        let own = Envelope::parse(&self.inner.bytes)?;
        let others = Envelope::parse(&other.inner.bytes)?;
        let records = |envelope: &Envelope| -> Vec<_> {
            envelope.sections().map(|(record, _)| (record.id, record.length, record.hash)).collect()
        };
        Ok(records(&own) == records(&others))
    }

    /// The file or URL that was opened; `None` for an index from memory or from a reader.
    pub fn path(&self) -> Option<&Path> {
        self.inner.path.as_deref()
    }

    /// All of the index, for a process that cannot open it.
    #[doc(hidden)]
    pub fn bytes(&self) -> Result<Bytes> {
        self.inner.bytes.read(0..self.inner.bytes.len())
    }

    /// Reads and checks every byte again, the stored footers among them.
    ///
    /// # Errors
    ///
    /// [`InvalidIndex`](rowdex_base::error::ErrorKind::InvalidIndex) for the first damage found.
    pub fn verify(&self) -> Result<()> {
        let check = || {
            let envelope = Envelope::parse(&self.inner.bytes)?;
            envelope.check_deferred()?;
            IndexContents::parse(&envelope)?;
            (0..self.num_files()).try_for_each(|file| self.footer(file).map(drop))?;
            self.verify_lengths()
        };
        check().map_err(|error| self.name(error))
    }

    /// Adds the path of the index to an error, where it has one.
    fn name(&self, error: Error) -> Error {
        match self.path() {
            Some(path) => error.with_file(path.display().to_string()),
            None => error,
        }
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index")
            .field("path", &self.path())
            .field("rows", &self.len())
            .field("row_groups", &self.num_row_groups())
            .field("files", &self.num_files())
            .finish_non_exhaustive()
    }
}
