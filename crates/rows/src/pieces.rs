//! Rows that are copied in the order in which they are due, into pieces that are let go of one after the other.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::held::Held;
use super::memory::{Footprint, bytes_of};
use super::packed::{Layout, Packed};
use super::picks::Place;
use super::placing::{Pick, Placer};
use super::views::{compact_pieces, forget_unseen};
use super::{gather, take, uncopied};
use rowdex_base::error::{Error, ErrorKind, Result};

/// Rows are cut into at most this many pieces.
pub const PIECES: usize = 64;
/// Fewer rows are not worth a piece: their arrays' headers would take more memory than freeing them early saves.
pub const LEAST_PIECE: usize = 32;
/// Bytes of a piece of rows that are packed, and how many there are even if they have fewer. Pieces are large enough
/// for maps of their own, if that leaves some: smaller ones would lie between what comes and goes while row groups are
/// decoded, and keep its memory from being given back.
pub const PACKED_PIECE: usize = 128 << 10;
/// See [`PACKED_PIECE`].
pub const FEWEST_PACKED: usize = 32;
/// Bytes of a piece, and of each array in it, besides values.
const HEADER: u64 = 256;

impl Held {
    /// The rows of a batch at these slots, in that order, in at most so many pieces. They keep nothing else alive.
    ///
    /// # Errors
    /// As [`take`].
    pub fn copied(batch: &RecordBatch, slots: &[u32], most: usize) -> Result<Vec<Self>> {
        let pieces = number_of(std::slice::from_ref(batch), slots.len(), most);
        let pieces = cut(slots.len(), pieces, |rows| take(batch, &slots[rows]))?;
        Ok(Self::in_turn(compact_pieces(pieces).map_err(uncopied)?))
    }

    /// The same in one piece whose views go on to show the values of the batch, which count elsewhere.
    ///
    /// # Errors
    /// As [`take`].
    pub fn shown(batch: &RecordBatch, slots: &[u32]) -> Result<Vec<Self>> {
        Ok(Self::counted(cut(slots.len(), 1, |_| take(batch, slots))?, Footprint::without_values()))
    }

    /// Rows of several batches, at these places and in their order, in pieces. Values of views that have memory of
    /// their `own` each are not copied.
    ///
    /// # Errors
    /// As [`gather`].
    pub fn merged(batches: &[RecordBatch], places: &[Place], own: bool) -> Result<Vec<Self>> {
        let pieces = number_of(batches, places.len(), PIECES);
        let batches: Vec<&RecordBatch> = batches.iter().collect();
        let Some(first) = batches.first() else {
            return Err(Error::new(ErrorKind::Internal, "rows of no batch at all"));
        };
        let pieces = cut(places.len(), pieces, |rows| gather(&batches, &places[rows], first.schema_ref()))?;
        let pieces = match own {
            true => pieces.into_iter().map(forget_unseen).collect(),
            false => compact_pieces(pieces),
        };
        Ok(Self::in_turn(pieces.map_err(uncopied)?))
    }

    /// Packed rows at these slots, in that order, in pieces. `schema` is that of decoded rows.
    ///
    /// # Errors
    /// As [`gather`].
    pub fn repacked(packed: &Packed, slots: &[u32], schema: &SchemaRef) -> Result<Vec<Self>> {
        let mut placer = placer(packed.layout(), slots.len());
        let mut due = 0..;
        for slots in slots.chunks(placer.piece_rows()) {
            let batch = packed.take(slots, schema)?;
            placer.put(&batch, &(0..slots.len() as u32).zip(&mut due).collect::<Vec<Pick>>())?;
        }
        Ok(Self::packed_in_turn(placer.finish()))
    }
}

/// Packs so many rows in pieces.
pub(super) fn placer(layout: Arc<Layout>, rows: usize) -> Placer {
    let pieces = PIECES.min((rows * layout.row_bytes() / PACKED_PIECE).max(FEWEST_PACKED));
    Placer::new(layout, rows, rows_of_piece(rows, pieces))
}

/// Bytes of the headers of a piece's arrays.
fn headers(batch: &RecordBatch) -> u64 {
    HEADER * (1 + batch.schema_ref().flattened_fields().len() as u64)
}

/// Into how many pieces so many rows of these batches are cut, `most` at most. Each piece has headers, and half a piece
/// on average is in memory that was used already; the number makes the sum of both least.
fn number_of(batches: &[RecordBatch], rows: usize, most: usize) -> usize {
    let Some(largest) = batches.iter().max_by_key(|batch| batch.num_rows()) else { return 1 };
    let row = bytes_of(largest) as f64 / largest.num_rows().max(1) as f64;
    let pieces = (rows as f64 * row / (2 * headers(largest)) as f64).sqrt() as usize;
    pieces.clamp(1, most.max(1))
}

/// How many rows each of at most so many pieces has.
fn rows_of_piece(count: usize, pieces: usize) -> usize {
    count.div_ceil(pieces.max(1)).max(LEAST_PIECE)
}

/// So many rows in at most so many pieces, each of which `copy` makes of a range of them.
fn cut(count: usize, pieces: usize, copy: impl Fn(Range<usize>) -> Result<RecordBatch>) -> Result<Vec<RecordBatch>> {
    let piece = rows_of_piece(count, pieces);
    (0..count).step_by(piece).map(|start| copy(start..count.min(start + piece))).collect()
}
