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
mod format;
mod lengths;
mod order_file;
pub mod output;
pub mod path;
mod recorded;
pub mod root;
mod row_list;
mod rows;
pub mod schema;
mod sections;
mod stored;
#[doc(hidden)]
pub mod synthetic;
#[cfg(test)]
mod tests;
pub mod view;
pub mod writer;

use std::fmt;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3Default;

use self::contents::Contents;
use self::format::{Envelope, FileRecord, RowGroupRecord, hash};
use self::lengths::LengthsSection;
use self::stored::{IndexBytes, invalid};
use rowdex_base::error::{Error, Result};
use rowdex_base::once::Once;
use rowdex_io::source::place::{Place, shown};
use rowdex_io::source::{FileStat, ObjectSource, StoreOptions};
use rowdex_order::RowLayout;
use rowdex_projection::Renames;

pub use self::lengths::{LengthsOf, LengthsWriter, NewLengths, RowLengths, without_lengths};
pub use self::order_file::OrderFile;
pub use self::row_list::ListedRows;
pub use self::rows::{RowSet, Runs};

/// An open index: cheap to clone, shared between threads without locks.
#[derive(Clone)]
pub struct Index {
    inner: Arc<Inner>,
}

struct Inner {
    contents: Contents,
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

/// What the recorded root of an index is relative to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RootKind {
    /// To the directory that the index lies in, so that both can be moved together.
    RelativeToIndex,
    /// To nothing: an absolute path or a URL.
    Absolute,
}

/// Where the files were when the index was built: a hint, which whoever opens the index may override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// What `path` is relative to.
    pub kind: RootKind,
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
    /// place while it is open goes on serving the rows that it was opened with, without footers; if its tables are
    /// mapped, it serves wrong rows, or the process is killed by SIGBUS. [`Index::read`] reads an index of any size.
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
                let bytes = ObjectSource::at(url, options)?.get_whole()?;
                Self::new(IndexBytes::Memory(bytes), Some(path.to_owned()))
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

    /// Reads an index to the end and checks it; for readers, and for files that others may change in place.
    ///
    /// # Errors
    ///
    /// As [`Index::open`].
    pub fn read(mut reader: impl Read) -> Result<Self> {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map_err(|error| Error::io("cannot read the index", error))?;
        Self::new(IndexBytes::Memory(bytes.into()), None)
    }

    fn new(bytes: IndexBytes, path: Option<PathBuf>) -> Result<Self> {
        let contents = Contents::parse(&Envelope::parse(&bytes)?)?;
        Ok(Self { inner: Arc::new(Inner { contents, bytes, path, fingerprint: Once::new(), lengths: Once::new() }) })
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

    /// The file or URL that was opened; `None` for an index from memory or from a reader.
    pub fn path(&self) -> Option<&Path> {
        self.inner.path.as_deref()
    }

    /// A number that differs between two indexes when any row id means another (path, row group, row).
    ///
    /// It covers paths, row groups, row counts and selections, and nothing else: not sizes or times of files, not the
    /// schema, not how the index is stored. An order that was saved for one index may go on with another of the same
    /// fingerprint. The first call takes O(row groups) and O(stored selection), later ones nothing.
    pub fn fingerprint(&self) -> u64 {
        *self.inner.fingerprint.get_or_init(|| self.fingerprint_of_first(self.num_files()))
    }

    /// The fingerprint of an index of so many leading files only.
    #[doc(hidden)]
    pub fn fingerprint_of_first(&self, files: u32) -> u64 {
        let contents = &self.inner.contents;
        let mut hasher = Xxh3Default::new();
        hasher.update(b"rowdex fingerprint 1");
        hasher.update(&files.to_le_bytes());
        for file in self.files().take(files as usize) {
            hasher.update(&(file.path().len() as u64).to_le_bytes());
            hasher.update(file.path().as_bytes());
        }
        let mut start = 0_u64;
        for (group, record) in (0_u32..).zip(contents.row_groups.as_slice()) {
            let end = record.end.get();
            if record.file.get() >= files {
                break;
            }
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

    /// Reads and checks every byte again, the stored footers among them.
    ///
    /// # Errors
    ///
    /// [`InvalidIndex`](rowdex_base::error::ErrorKind::InvalidIndex) for the first damage found.
    pub fn verify(&self) -> Result<()> {
        let check = || {
            let envelope = Envelope::parse(&self.inner.bytes)?;
            envelope.check_deferred()?;
            Contents::parse(&envelope)?;
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

/// What the index knows of one file.
#[derive(Copy, Clone)]
pub struct FileEntry<'a> {
    contents: &'a Contents,
    index: u32,
    record: &'a FileRecord,
}

impl<'a> FileEntry<'a> {
    /// The number of the file.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The path, relative to the root, with `/` between its parts.
    pub fn path(&self) -> &'a str {
        self.contents.string(self.record.path).unwrap_or_default()
    }

    /// The size in bytes when it was indexed.
    pub fn size(&self) -> u64 {
        self.record.size.get()
    }

    /// The modification time when it was indexed, in nanoseconds since 1970 UTC.
    pub fn mtime_ns(&self) -> Option<i64> {
        (self.record.flags.get() & FileRecord::HAS_MTIME != 0).then(|| self.record.mtime_ns.get())
    }

    /// The entity tag that the object store gave it when it was indexed.
    pub fn etag(&self) -> Option<&'a str> {
        self.contents.string(self.record.etag)
    }

    /// Size, modification time and entity tag when it was indexed.
    pub fn stat(&self) -> FileStat {
        FileStat { size: self.size(), mtime_ns: self.mtime_ns(), etag: self.etag().map(str::to_owned) }
    }

    /// The numbers of its row groups.
    pub fn row_groups(&self) -> Range<u32> {
        let first = self.record.first_row_group.get();
        first..first.saturating_add(self.record.row_groups.get())
    }

    /// The ids of its rows.
    pub fn row_ids(&self) -> Range<u64> {
        let groups = self.row_groups();
        self.contents.first_row(groups.start)..self.contents.first_row(groups.end)
    }

    /// How many rows are served from it.
    pub fn rows(&self) -> u64 {
        let ids = self.row_ids();
        ids.end.saturating_sub(ids.start)
    }

    /// The xxh3-64 of its footer as it is in the file.
    pub fn footer_hash(&self) -> u64 {
        self.record.footer_hash.get()
    }

    /// Whether the index has a copy of its footer.
    pub fn has_footer(&self) -> bool {
        self.record.flags.get() & FileRecord::HAS_FOOTER != 0
    }

    /// Its value of each partition column, `None` for null.
    pub fn partition_values(&self) -> impl ExactSizeIterator<Item = Option<&'a str>> + use<'a> {
        let contents = self.contents;
        let columns = contents.partition_columns.len();
        let start = columns.saturating_mul(self.index as usize + 1);
        let values = contents.partition_values.as_slice();
        let own = values.get(start..start.saturating_add(columns)).unwrap_or_default();
        own.iter().map(move |&value| contents.string(value))
    }

    /// Its footer as it is stored, compressed, and how long it is when it is not.
    fn stored_footer(&self) -> Result<Option<(Bytes, u32)>> {
        if !self.has_footer() {
            return Ok(None);
        }
        let start = self.record.footer_offset.get();
        let stored = self.contents.footers.read(start..start.saturating_add(self.record.footer_length.get().into()))?;
        Ok(Some((stored, self.record.footer_raw_length.get())))
    }

    fn footer(&self) -> Result<Option<Bytes>> {
        let Some((stored, raw_length)) = self.stored_footer()? else { return Ok(None) };
        let raw_length = u64::from(raw_length);
        let damaged = || {
            invalid(format!("the stored footer of {} is not the one that was indexed", self.path()))
                .with_hint("build the index again; if it was overwritten while it was open, open it again")
        };
        // One byte more than declared is enough to see that there are too many, and memory is taken as bytes come.
        let mut raw = Vec::new();
        let decoder =
            zstd::stream::read::Decoder::with_buffer(&*stored).map_err(|error| damaged().with_source(error))?;
        let read = decoder.single_frame().take(raw_length + 1).read_to_end(&mut raw);
        read.map_err(|error| damaged().with_source(error))?;
        if raw.len() as u64 != raw_length || hash(&raw) != self.footer_hash() {
            return Err(damaged());
        }
        Ok(Some(raw.into()))
    }
}

impl fmt::Debug for FileEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileEntry")
            .field("index", &self.index)
            .field("path", &self.path())
            .field("size", &self.size())
            .field("row_groups", &self.row_groups())
            .field("rows", &self.rows())
            .finish_non_exhaustive()
    }
}

/// What the index knows of one row group.
#[derive(Copy, Clone)]
pub struct RowGroupEntry<'a> {
    contents: &'a Contents,
    index: u32,
    record: &'a RowGroupRecord,
}

impl<'a> RowGroupEntry<'a> {
    /// The number of the row group over the whole index.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The number of its file.
    pub fn file(&self) -> u32 {
        self.record.file.get()
    }

    /// The number of the row group within its file.
    pub fn ordinal(&self) -> u32 {
        self.record.ordinal.get()
    }

    /// The id of its first row.
    pub fn first_row(&self) -> u64 {
        self.contents.first_row(self.index)
    }

    /// The ids of its rows.
    pub fn row_ids(&self) -> Range<u64> {
        self.first_row()..self.record.end.get()
    }

    /// How many of its rows are served.
    pub fn rows(&self) -> u64 {
        self.record.end.get().saturating_sub(self.first_row())
    }

    /// How many rows it has in its file.
    pub fn source_rows(&self) -> u64 {
        match &self.contents.selections {
            Some(selections) => {
                selections.records.as_slice().get(self.index as usize).map_or(0, |record| record.source_rows.get())
            }
            None => self.rows(),
        }
    }

    /// About how many bytes all of its rows and columns take when decoded, as its footer tells.
    pub fn decoded_bytes(&self) -> u64 {
        self.record.decoded_bytes.get()
    }

    /// Which of its rows are served; `None` when all are.
    pub fn selection(&self) -> Option<RowSet<'a>> {
        self.contents.selection(self.index, self.rows())
    }
}

impl fmt::Debug for RowGroupEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowGroupEntry")
            .field("index", &self.index)
            .field("file", &self.file())
            .field("ordinal", &self.ordinal())
            .field("row_ids", &self.row_ids())
            .field("source_rows", &self.source_rows())
            .field("decoded_bytes", &self.decoded_bytes())
            .finish_non_exhaustive()
    }
}
