//! Rows in memory: record batches copied row by row, joined, compacted and weighed.
//!
//! Whoever copies rows from one batch to another, or counts the bytes that a batch keeps in memory, does it with this
//! module. It knows Arrow arrays, and nothing of files, row groups or row ids.

mod chunks;
mod collect;
mod dictionaries;
mod dictionary;
mod digest;
mod flat;
mod gather;
mod held;
mod listed;
mod memory;
mod nested;
mod packed;
mod picker;
mod picks;
mod pieces;
mod placing;
mod sequences;
mod shifted;
mod sink;
mod spots;
#[cfg(test)]
mod tests;
mod tokens;
mod views;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::ArrowError;
use arrow_schema::SchemaRef;

use rowdex_base::error::{Error, ErrorKind};

pub use chunks::Chunks;
pub use collect::{MOST_SHOWN, Stretch, Together, collect, make_alike};
pub use dictionaries::{Dictionaries, Sharing, has_dictionaries};
pub use dictionary::{ValueBytes, encode, text_bytes};
pub use digest::{DigestColumn, RowDigests};
pub use gather::{gather, gather_values, join_exactly, take, take_rows};
pub use held::Held;
pub use listed::listed;
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
pub use sink::RowSink;
pub use spots::{NO_LABEL, Then};
pub use tokens::{Cutter, Part, TokenColumn, Tokens, items_of, token_columns};
pub use views::{compact, compact_pieces, compact_sparse, detach, forget_unseen, view_bytes};

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
