//! What an index knows of one file, and of one row group.

use std::fmt;
use std::io::Read;
use std::ops::Range;

use bytes::Bytes;

use super::contents::IndexContents;
use super::format::{FileRecord, RowGroupRecord, hash};
use super::rows::RowSet;
use super::stored::invalid;
use rowdex_base::error::Result;
use rowdex_io::source::FileStat;

/// What the index knows of one file.
#[derive(Copy, Clone)]
pub struct FileEntry<'a> {
    pub(crate) contents: &'a IndexContents,
    pub(crate) index: u32,
    pub(crate) record: &'a FileRecord,
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
    pub(crate) fn stored_footer(&self) -> Result<Option<(Bytes, u32)>> {
        if !self.has_footer() {
            return Ok(None);
        }
        let start = self.record.footer_offset.get();
        let stored = self.contents.footers.read(start..start.saturating_add(self.record.footer_length.get().into()))?;
        Ok(Some((stored, self.record.footer_raw_length.get())))
    }

    pub(crate) fn footer(&self) -> Result<Option<Bytes>> {
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
        f.debug_struct("FileEntry").field("index", &self.index).finish_non_exhaustive()
    }
}

/// What the index knows of one row group.
#[derive(Copy, Clone)]
pub struct RowGroupEntry<'a> {
    pub(crate) contents: &'a IndexContents,
    pub(crate) index: u32,
    pub(crate) record: &'a RowGroupRecord,
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
        f.debug_struct("RowGroupEntry").field("index", &self.index).finish_non_exhaustive()
    }
}
