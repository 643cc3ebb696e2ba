//! Footers and row groups: from the bytes of a file to Arrow record batches.
//!
//! [`read_end`] and [`FileMetadata`] say what a file holds. [`GroupDecoder`] turns one row group, or some rows of it,
//! into chunks with the columns of a [`Projection`](rowdex_projection::Projection), for files of any layout, and hands
//! them to a [`RowSink`]. [`finish`] brings such rows to the types that are served.
//!
//! Files are not trusted. All that a file claims of itself is checked before anything is allocated for it, a panic of
//! the decoder becomes an error (its message still goes to the panic hook), and every error names the file, the row
//! group and, where it can be known, the column.

mod adapt;
mod annotated;
mod chunks;
mod columns;
mod cost;
mod decode;
mod direct;
mod errors;
mod footer;
mod guard;
mod newer;
mod pages;
mod row_lengths;
mod run;
#[cfg(feature = "filter")]
mod statistics;
#[cfg(test)]
mod tests;
mod thrift;
mod types;
mod unpack;

use std::ops::Range;

use arrow_array::RecordBatch;
use bytes::Bytes;

use errors::internal;
use rowdex_base::error::{Error, ErrorKind, Result};

pub use adapt::{finish, widens};
pub use annotated::Annotated;
pub use columns::{views_pay, views_save_nothing};
pub use cost::ReadCost;
pub use decode::{GroupDecoder, MAX_DECODED_BYTES, RowsToDecode};
pub use footer::{FileMetadata, Footer, read_end};
pub use newer::{Undecodable, parse_newer};
pub use row_lengths::{Counted, counted};
pub use rowdex_rows::RowSink;
#[cfg(feature = "filter")]
pub use statistics::{Home, Known, Statistics};

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
pub fn length_of(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end.saturating_sub(range.start)).fold(0, u64::saturating_add)
}

/// What was read of these ranges, if each is as long as it was asked for: the decoder relies on that.
pub(crate) fn as_asked(read: Vec<Bytes>, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
    let lengths = read.iter().map(|bytes| bytes.len() as u64);
    if !lengths.eq(ranges.iter().map(|range| range.end.saturating_sub(range.start))) {
        return Err(Error::new(ErrorKind::Io, "the source delivered other lengths than asked for"));
    }
    Ok(read)
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
