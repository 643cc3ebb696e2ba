//! Rows in memory: record batches copied row by row, joined, compacted and weighed.
//!
//! All code that copies rows from one batch to another, or counts the bytes that a batch keeps in memory, uses this
//! module. It knows Arrow arrays, and nothing of files, row groups or row ids.

mod chunks;
mod collect;
mod dictionaries;
mod dictionary;
mod digest;
mod flat;
mod gather;
mod held;
mod memory;
mod nested;
mod packed;
mod picker;
mod picks;
mod pieces;
mod placing;
mod sequences;
mod shifted;
mod spots;
#[cfg(test)]
mod tests;
mod tokens;
mod views;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::ArrowError;
use arrow_schema::SchemaRef;

use rowdex_base::error::{Error, ErrorKind, Result};

pub use chunks::Chunks;
pub use collect::{MOST_SHOWN, Stretch, Together, collect, make_alike};
pub use dictionaries::{Dictionaries, Sharing, has_dictionaries};
pub use dictionary::{ValueBytes, encode, text_bytes};
pub use digest::{DigestColumn, RowDigests};
pub use gather::{gather, gather_values, join_exactly, take, take_rows};
pub use held::Held;
pub use memory::{
    ChunkBytes, Elsewhere, Footprint, bytes_of, bytes_of_part, bytes_of_parts, bytes_shown, show_what_they_keep,
};
pub use nested::{Lists, below, list_array, with_below};
pub use packed::{Layout, PackedRows};
pub use picker::{Picked, Picker, Picking};
pub use picks::BatchRow;
pub use pieces::{Cutting, PIECES};
pub use placing::Placer;
pub use sequences::{Between, PackLayout, PackTokens, Sequences, Sequencing};
pub use shifted::TokenItems;
pub use spots::{NO_LABEL, Then};
pub use tokens::{Cutter, Part, TokenColumn, Tokens, items_of, listed, token_columns};
pub use views::{compact, compact_pieces, compact_sparse, detach, forget_unseen, view_bytes};

/// Where the rows of a read go, in the order in which they lie in the row group.
///
/// Every reader passes the sink itself down to what decodes, so that a decoder meets the one who needs the rows. In
/// between there may be a sink that keeps a copy of all rows, counts them or joins their chunks.
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

/// A batch of `rows` rows, which must be said where there are no columns.
pub fn record_batch(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, ArrowError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options)
}

/// The error for rows that cannot be copied into one batch.
pub fn uncopied(error: ArrowError) -> Error {
    match error {
        ArrowError::OffsetOverflowError(_) | ArrowError::DictionaryKeyOverflowError => {
            Error::new(ErrorKind::TooLarge, format!("the rows do not fit one batch: {error}"))
                .with_hint("take fewer rows at a time")
                .with_source(error)
        }
        _ => Error::new(ErrorKind::Internal, format!("cannot copy rows: {error}")).with_source(error),
    }
}
