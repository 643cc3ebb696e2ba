//! Reading row groups: what to read, who reads it, and how it is read from the data files.
//!
//! A [`RowGroupRead`] says what to read. A [`FileReader`] reads it from the data files, and a
//! [`CachedReader`](super::disk_cache::CachedReader) around it from the disk cache where that has it.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::files::{OpenDataFile, OpenGroup};
use rowdex_base::cache::Counters;
use rowdex_base::error::Result;
use rowdex_index::RowGroupEntry;
use rowdex_io::source::{Pending, Source, cut};
use rowdex_parquet::{FileBytes, GroupDecoder, RowSink, RowsToDecode, length_of};
use rowdex_projection::Projection;

/// Which of the served rows of a row group to read; slots count them from 0.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Slots<'a> {
    All,
    /// Strictly increasing.
    Some(&'a [u32]),
    /// Strictly increasing as well; what is read are all of the row group.
    Due(&'a [u32]),
}

/// What to read: some rows of a row group, and the types to decode them to.
#[derive(Clone, Copy)]
pub(super) struct RowGroupRead<'a> {
    pub(super) group: &'a OpenGroup<'a>,
    pub(super) slots: Slots<'a>,
    /// The types may be others than the dataset's own.
    pub(super) projection: &'a Projection,
    /// Whether all of the row group may be put where it is found the next time.
    pub(super) keeps: bool,
}

impl<'a> RowGroupRead<'a> {
    /// All rows of the row group.
    pub(super) fn all(self) -> Self {
        Self { slots: Slots::All, ..self }
    }

    /// Where the column chunks are in the file, sorted.
    pub(super) fn chunks(&self) -> Vec<Range<u64>> {
        self.group.file.metadata.chunks(self.group.ordinal(), self.projection, &self.group.partitions)
    }

    /// About how many bytes all served rows take when decoded.
    pub(super) fn decoded_bytes(&self) -> u64 {
        let entry = &self.group.entry;
        let all = self.group.file.metadata.decoded_bytes(self.group.ordinal(), Some(self.projection));
        (u128::from(all) * u128::from(entry.rows()) / u128::from(entry.source_rows().max(1))) as u64
    }

    fn decoder(&self, max_decoded_bytes: u64) -> GroupDecoder<'_> {
        GroupDecoder {
            file: &self.group.file.metadata,
            row_group: self.group.ordinal(),
            projection: self.projection,
            partitions: &self.group.partitions,
            max_decoded_bytes,
        }
    }
}

/// The rows in the file that slots stand for; `None` for all of them.
fn source_rows(entry: &RowGroupEntry<'_>, slots: Slots<'_>) -> Option<Vec<u32>> {
    match (slots, entry.selection()) {
        (Slots::All, None) => None,
        (Slots::All, Some(set)) => Some(set.iter().map(|row| row as u32).collect()),
        (Slots::Some(slots) | Slots::Due(slots), None) => Some(slots.to_vec()),
        (Slots::Some(slots) | Slots::Due(slots), Some(set)) => {
            Some(slots.iter().filter_map(|&slot| set.select(u64::from(slot))).map(|row| row as u32).collect())
        }
    }
}

/// Reads row groups from the data files, and counts what that takes.
#[derive(Debug)]
pub(super) struct FileReader {
    source: Arc<dyn Source>,
    max_decoded_bytes: u64,
    decodes: AtomicU64,
    bytes_decoded: AtomicU64,
    bytes_read: AtomicU64,
}

impl FileReader {
    pub(super) fn new(source: Arc<dyn Source>, max_decoded_bytes: u64) -> Self {
        let zero = AtomicU64::default;
        Self { source, max_decoded_bytes, decodes: zero(), bytes_decoded: zero(), bytes_read: zero() }
    }

    pub(super) fn max_decoded_bytes(&self) -> u64 {
        self.max_decoded_bytes
    }

    /// Adds what was done to these.
    pub(super) fn count(&self, counters: &mut Counters) {
        counters.decodes = self.decodes.load(Ordering::Relaxed);
        counters.bytes_decoded = self.bytes_decoded.load(Ordering::Relaxed);
        counters.bytes_read += self.bytes_read.load(Ordering::Relaxed);
    }

    /// Ranges of a file, read and not counted: that is what is then taken of them.
    pub(super) fn at_hand(&self, file: &OpenDataFile, ranges: Vec<Range<u64>>) -> Result<AtHand> {
        let bytes = self.source.read_unchanged(file.metadata.path(), file.content.as_ref(), &ranges)?;
        Ok(AtHand { chunks: ranges, bytes })
    }

    /// The bytes of a file, which count as read once they are dropped.
    pub(super) fn bytes<'a>(&'a self, file: &'a OpenDataFile, at_hand: &'a AtHand) -> OpenFileBytes<'a> {
        OpenFileBytes { reader: self, file, at_hand, read: Cell::new(0) }
    }

    /// Starts fetching what [`read`](Self::read) will need, where reads take long. `None` where that gains nothing.
    pub(super) fn prefetch(&self, read: RowGroupRead<'_>) -> Option<Prefetch> {
        let slots = if matches!(read.slots, Slots::Due(_)) { Slots::All } else { read.slots };
        let selected = source_rows(&read.group.entry, slots);
        let rows = selected.as_deref().map_or(RowsToDecode::All, RowsToDecode::Selected);
        let chunks = read.decoder(self.max_decoded_bytes).places(rows).ok()?;
        if chunks.is_empty() || length_of(&chunks) > self.max_decoded_bytes {
            return None;
        }
        let OpenDataFile { metadata, content } = &*read.group.file;
        let pending = self.source.begin(metadata.path(), content.as_ref()?, &chunks)?;
        Some(Prefetch { chunks, pending })
    }

    /// Reads and decodes on the calling thread, and hands the rows to the sink. Returns how many bytes were read of the
    /// data files. What is at hand may be of several row groups.
    pub(super) fn read(&self, read: RowGroupRead<'_>, at_hand: &AtHand, sink: &mut dyn RowSink) -> Result<u64> {
        let bytes = self.bytes(&read.group.file, at_hand);
        let selected = source_rows(&read.group.entry, read.slots);
        self.decodes.fetch_add(1, Ordering::Relaxed);
        // Of a row group of which not all rows are served, the pages of those that are.
        let is_due = matches!(read.slots, Slots::Due(_)) && read.group.entry.selection().is_none();
        let rows = if is_due { RowsToDecode::Due } else { RowsToDecode::Selected };
        let rows = selected.as_deref().map_or(RowsToDecode::All, rows);
        let decoded = read.decoder(self.max_decoded_bytes).decode(rows, &bytes, sink)?;
        self.bytes_decoded.fetch_add(decoded, Ordering::Relaxed);
        Ok(bytes.read.get())
    }

    /// Reads all rows of several row groups of one file as if they were one; `false`, before the sink was given
    /// anything, if they have to be read one by one.
    pub(super) fn read_as_one(
        &self,
        first: RowGroupRead<'_>,
        row_groups: &[usize],
        sink: &mut dyn RowSink,
    ) -> Result<bool> {
        let at_hand = AtHand::default();
        let bytes = self.bytes(&first.group.file, &at_hand);
        let decoded = first.decoder(self.max_decoded_bytes).decode_run(row_groups, &bytes, sink)?;
        let Some(decoded) = decoded else { return Ok(false) };
        self.decodes.fetch_add(row_groups.len() as u64, Ordering::Relaxed);
        self.bytes_decoded.fetch_add(decoded, Ordering::Relaxed);
        Ok(true)
    }
}

/// A row group whose bytes are on their way. Dropping it gives the read up.
#[derive(Debug)]
pub(crate) struct Prefetch {
    /// Where the bytes are in the file, sorted.
    chunks: Vec<Range<u64>>,
    pending: Pending<Vec<Bytes>>,
}

impl Prefetch {
    /// Bytes that come when somebody says so.
    #[cfg(test)]
    pub(crate) fn of(bytes: u64, pending: Pending<Vec<Bytes>>) -> Self {
        Self { chunks: std::iter::once(0..bytes).collect(), pending }
    }

    /// How many bytes it takes in memory, once they are there.
    pub(crate) fn bytes(&self) -> u64 {
        length_of(&self.chunks)
    }

    /// Whether all of it is there.
    pub(crate) fn has_arrived(&self) -> bool {
        self.pending.is_done()
    }

    /// Calls `tell` when it is, from whatever thread.
    pub(crate) fn when_arrived(&self, tell: impl FnOnce() + Send + 'static) {
        self.pending.when_done(tell);
    }
}

/// Bytes of a file that are in memory.
#[derive(Debug, Default)]
pub(super) struct AtHand {
    /// Sorted.
    chunks: Vec<Range<u64>>,
    bytes: Vec<Bytes>,
}

impl AtHand {
    /// What was read ahead, if anything was, once it is there.
    pub(super) fn waited_for(prefetch: Option<Prefetch>) -> Result<Self> {
        let Some(Prefetch { chunks, pending }) = prefetch else { return Ok(Self::default()) };
        Ok(Self { chunks, bytes: pending.wait()? })
    }

    /// These ranges, if all of them are here.
    pub(super) fn cut(&self, ranges: &[Range<u64>]) -> Option<Vec<Bytes>> {
        if self.chunks.is_empty() { None } else { cut(&self.chunks, &self.bytes, ranges).ok() }
    }
}

/// The bytes of an open file: those that are in memory already, and others from the source, of the content that was
/// indexed.
pub(super) struct OpenFileBytes<'a> {
    reader: &'a FileReader,
    file: &'a OpenDataFile,
    at_hand: &'a AtHand,
    /// Bytes that were read of the file, now or ahead.
    read: Cell<u64>,
}

impl FileBytes for OpenFileBytes<'_> {
    fn read(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let OpenDataFile { metadata, content } = self.file;
        let read = || self.reader.source.read_unchanged(metadata.path(), content.as_ref(), ranges);
        let bytes = self.at_hand.cut(ranges).map_or_else(read, Ok)?;
        self.read.set(self.read.get() + length_of(ranges));
        Ok(bytes)
    }

    fn read_each(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let OpenDataFile { metadata, content } = self.file;
        let read = || self.reader.source.read_each_unchanged(metadata.path(), content.as_ref(), ranges);
        let bytes = self.at_hand.cut(ranges).map_or_else(read, Ok)?;
        self.read.set(self.read.get() + length_of(ranges));
        Ok(bytes)
    }

    fn is_near(&self) -> bool {
        !self.reader.source.is_remote()
    }

    fn has(&self, ranges: &[Range<u64>]) -> bool {
        self.at_hand.cut(ranges).is_some()
    }
}

impl Drop for OpenFileBytes<'_> {
    fn drop(&mut self) {
        self.reader.bytes_read.fetch_add(self.read.get(), Ordering::Relaxed);
    }
}
