//! What decoding needs of others: the bytes of a file, and somewhere to put the rows.

use std::ops::Range;

use arrow::array::RecordBatch;
use bytes::Bytes;

use super::errors::internal;
use rowdex_base::error::{Error, ErrorKind, Result};

/// The bytes of one file.
pub trait FileBytes {
    /// The bytes of every range, in the order asked.
    fn read(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>>;

    /// The bytes of every range, each in memory of its own, so that it can be let go alone.
    fn read_each(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let each = ranges.iter().map(|range| self.read(std::slice::from_ref(range)));
        each.map(|read| read.map(|read| read.into_iter().next().unwrap_or_default())).collect()
    }

    /// Whether a read of little takes little time.
    fn is_near(&self) -> bool {
        false
    }

    /// Whether all of these ranges are in memory already, so that nothing is gained by reading less of them.
    fn has(&self, ranges: &[Range<u64>]) -> bool {
        let _ = ranges;
        false
    }
}

/// Bytes of these ranges.
pub(super) fn length_of(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end.saturating_sub(range.start)).fold(0, u64::saturating_add)
}

/// Reads ranges, and makes sure that each is as long as it was asked for: the decoder relies on that.
pub(super) fn read_exactly(bytes: &dyn FileBytes, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
    as_asked(bytes.read(ranges)?, ranges)
}

/// The same with memory of its own for each.
pub(super) fn read_each_exactly(bytes: &dyn FileBytes, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
    as_asked(bytes.read_each(ranges)?, ranges)
}

fn as_asked(read: Vec<Bytes>, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
    let lengths = read.iter().map(|bytes| bytes.len() as u64);
    if !lengths.eq(ranges.iter().map(|range| range.end.saturating_sub(range.start))) {
        return Err(Error::new(ErrorKind::Io, "the source delivered other lengths than asked for"));
    }
    Ok(read)
}

/// The bytes of a range that lies in one of these.
pub(super) fn within(ranges: &[Range<u64>], bytes: &[Bytes], range: &Range<u64>) -> Option<Bytes> {
    let place = ranges.partition_point(|known| known.start <= range.start).checked_sub(1)?;
    let known = ranges.get(place)?;
    let bytes = bytes.get(place)?;
    let start = usize::try_from(range.start - known.start).ok()?;
    let end = usize::try_from(range.end.checked_sub(known.start)?).ok()?;
    (start <= end && end <= bytes.len()).then(|| bytes.slice(start..end))
}

/// Where the rows of a read go, in the order in which they lie in the row group.
///
/// Every reader passes the sink itself down to what decodes, so that a decoder meets whoever needs the rows. Only a
/// reader that keeps a copy of all rows has a sink of its own in between.
pub trait RowSink {
    /// How many rows each chunk has; the last one may have fewer.
    fn chunk_rows(&self) -> usize;

    /// How many columns it takes at once at most, if it can do without the others: of wide rows less is then in memory
    /// while they are decoded.
    fn columns_at_once(&self) -> Option<usize> {
        None
    }

    /// Hears, if it takes some [columns at once](Self::columns_at_once), that the chunks to come have the columns from
    /// this one on, and begin with the first row again.
    fn begin_columns(&mut self, first: usize) -> Result<()> {
        let _ = first;
        Ok(())
    }

    /// Hears, before chunks come, that each value that their views show has memory of its own.
    fn values_are_own(&mut self) {}

    /// Hears how many bytes of memory are kept of where long values of the row group lie, once that was found.
    fn places_are_kept(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// Hears, once chunks have come, how many bytes of pages were in memory at once meanwhile: as read, unless they
    /// were there before, and decompressed.
    fn pages_took(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// Takes the next chunk. One comes at least, even without rows.
    ///
    /// A chunk that is dropped before the next one comes never adds up to the row group in memory, and is still in the
    /// core's cache while its rows are picked.
    fn take(&mut self, chunk: RecordBatch) -> Result<()>;
}

/// All rows as one batch.
#[derive(Debug, Default)]
pub struct WholeBatch(Option<RecordBatch>);

impl WholeBatch {
    /// What came.
    pub fn into_batch(self) -> Result<RecordBatch> {
        self.0.ok_or_else(|| internal("a row group without a batch"))
    }
}

impl RowSink for WholeBatch {
    fn chunk_rows(&self) -> usize {
        usize::MAX
    }

    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        match self.0.replace(chunk) {
            None => Ok(()),
            Some(_) => Err(internal("a row group in several batches")),
        }
    }
}
