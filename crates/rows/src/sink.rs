//! Somewhere to put the rows of a read.

use arrow_array::RecordBatch;

use rowdex_base::error::Result;

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
