//! Rows that are copied in the order in which they are due, into pieces that are let go of one after the other.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};

use super::dictionaries::shrink;
use super::held::{Held, POINTER};
use super::memory::{Elsewhere, Footprint, bytes_of, bytes_of_data};
use super::nested::values_of;
use super::packed::{Layout, PackedRows};
use super::picks::BatchRow;
use super::placing::{Placer, RowPick};
use super::views::{compact_pieces, forget_unseen};
use super::{gather, take, uncopied};
use rowdex_base::error::{Error, ErrorKind, Result};

/// Rows are cut into at most this many pieces.
pub const PIECES: usize = 64;
/// Fewer rows that are packed are not worth a piece: its headers would take more memory than freeing them early saves.
const LEAST_PIECE: usize = 32;
/// Bytes of a piece of rows that are packed, and how many of them there must be. Such pieces are large enough for maps
/// of their own: smaller ones would lie between what comes and goes while row groups are decoded, and keep its memory
/// from being given back.
const PACKED_PIECE: usize = 128 << 10;
/// See [`PACKED_PIECE`].
const FEWEST_PACKED: usize = 8;
/// How many smaller ones there are otherwise.
const SMALL_PACKED: usize = 32;
/// Bytes of a piece, and of each array in it, besides values.
const HEADER: u64 = 256;

/// How rows that wait are cut into pieces, for who reckons beforehand what they take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cutting {
    /// Rows that are packed.
    Packed,
    /// Rows in columns of long values, whose pieces have so many bytes of headers.
    Long(u64),
    /// The same of short ones.
    Short(u64),
}

impl Cutting {
    /// How rows of these columns are cut, unless they are packed.
    pub fn of(schema: &Schema, has_long_values: bool) -> Self {
        if has_long_values { Self::Long(headers(schema)) } else { Self::Short(headers(schema)) }
    }

    /// What rows of so many bytes take when they wait out of a unit that stays: they are pointed at, or copied.
    pub fn beside(self, row: f64) -> f64 {
        match self {
            Self::Packed | Self::Long(_) => POINTER as f64,
            Self::Short(_) => row,
        }
    }

    /// The part of rows that wait which is in memory and was used already, in an extraction of so many bytes of rows of
    /// so many bytes. Rows wait in the half of an extraction on average, and half a piece of them was used.
    pub fn used(self, extraction: f64, row: f64) -> f64 {
        let (pieces, least) = match self {
            Self::Packed => (packed_pieces(extraction as usize) as f64, LEAST_PIECE as f64),
            Self::Long(headers) | Self::Short(headers) => {
                (best_number(extraction, headers).clamp(1.0, PIECES as f64), 1.0)
            }
        };
        (least * row / extraction.max(row)).max(1.0 / pieces)
    }
}

impl Held {
    /// The rows of a batch at these slots, in that order, in at most so many pieces. They keep nothing else alive but
    /// what counts elsewhere.
    ///
    /// # Errors
    /// As [`take`].
    pub fn copied(batch: &RecordBatch, slots: &[u32], most: usize, elsewhere: &Elsewhere) -> Result<Vec<Self>> {
        let pieces = number_of(std::slice::from_ref(batch), slots.len(), most, elsewhere);
        let pieces = cut(slots.len(), pieces, |rows| take(batch, &slots[rows]))?;
        let pieces = compact_pieces(shrink(pieces, elsewhere).map_err(uncopied)?);
        Ok(Self::in_turn(pieces.map_err(uncopied)?, elsewhere))
    }

    /// The same in one piece whose views go on to show the values of the batch, which count elsewhere.
    ///
    /// # Errors
    /// As [`take`].
    pub fn shown(batch: &RecordBatch, slots: &[u32], elsewhere: &Elsewhere) -> Result<Vec<Self>> {
        Ok(Self::counted(cut(slots.len(), 1, |_| take(batch, slots))?, Footprint::beside(elsewhere).without_values()))
    }

    /// Rows of several batches, at these places and in their order, in pieces. Values of views that have memory of
    /// their `own` each are not copied.
    ///
    /// # Errors
    /// As [`gather`].
    pub fn merged(batches: &[RecordBatch], places: &[BatchRow], own: bool, elsewhere: &Elsewhere) -> Result<Vec<Self>> {
        let pieces = number_of(batches, places.len(), PIECES, elsewhere);
        let batches: Vec<&RecordBatch> = batches.iter().collect();
        let Some(first) = batches.first() else {
            return Err(Error::new(ErrorKind::Internal, "rows of no batch at all"));
        };
        let pieces = cut(places.len(), pieces, |rows| gather(&batches, &places[rows], first.schema_ref()))?;
        let pieces = shrink(pieces, elsewhere).map_err(uncopied)?;
        let pieces = match own {
            true => pieces.into_iter().map(forget_unseen).collect(),
            false => compact_pieces(pieces),
        };
        Ok(Self::in_turn(pieces.map_err(uncopied)?, elsewhere))
    }

    /// Packed rows at these slots, in that order, in pieces. `schema` is that of decoded rows.
    ///
    /// # Errors
    /// As [`gather`].
    pub fn repacked(packed: &PackedRows, slots: &[u32], schema: &SchemaRef) -> Result<Vec<Self>> {
        let mut placer = placer(packed.layout(), slots.len());
        let mut due = 0..;
        for slots in slots.chunks(placer.piece_rows()) {
            let batch = packed.take(slots, schema)?;
            placer.put(&batch, &(0..slots.len() as u32).zip(&mut due).collect::<Vec<RowPick>>())?;
        }
        Ok(Self::packed_in_turn(placer.finish()))
    }
}

/// Packs so many rows in pieces.
pub(super) fn placer(layout: Arc<Layout>, rows: usize) -> Placer {
    let pieces = packed_pieces(rows * layout.row_bytes());
    Placer::new(layout, rows, rows.div_ceil(pieces).max(LEAST_PIECE))
}

/// Into how many pieces so many bytes of packed rows are cut.
fn packed_pieces(bytes: usize) -> usize {
    match bytes / PACKED_PIECE {
        few if few < FEWEST_PACKED => SMALL_PACKED,
        pieces => pieces.min(PIECES),
    }
}

/// Bytes of the headers of a piece's arrays.
fn headers(schema: &Schema) -> u64 {
    HEADER * (1 + schema.flattened_fields().len() as u64)
}

/// Into how many pieces so many bytes of rows are best cut. Each piece has headers, and half a piece on average is in
/// memory that was used already; the number makes the sum of both least.
fn best_number(bytes: f64, headers: u64) -> f64 {
    (bytes / (2 * headers) as f64).sqrt()
}

/// Into how many pieces so many rows of these batches are cut, `most` at most.
fn number_of(batches: &[RecordBatch], rows: usize, most: usize, elsewhere: &Elsewhere) -> usize {
    let Some(largest) = batches.iter().max_by_key(|batch| batch.num_rows()) else { return 1 };
    let mut bytes = bytes_of(largest) as f64;
    let mut used = 0.0;
    for values in largest.columns().iter().flat_map(values_of) {
        let dictionary = bytes_of_data(&values) as f64;
        bytes = (bytes - dictionary).max(0.0);
        // No more is kept of it than what the rows use.
        if !elsewhere.has(&values) {
            used += dictionary / rows.max(values.len()).max(1) as f64;
        }
    }
    let row = bytes / largest.num_rows().max(1) as f64 + used;
    (best_number(rows as f64 * row, headers(largest.schema_ref())) as usize).clamp(1, most.max(1))
}

/// So many rows in at most so many pieces, each of which `copy` makes of a range of them.
fn cut(count: usize, pieces: usize, copy: impl Fn(Range<usize>) -> Result<RecordBatch>) -> Result<Vec<RecordBatch>> {
    let piece = count.div_ceil(pieces.max(1)).max(1);
    (0..count).step_by(piece).map(|start| copy(start..count.min(start + piece))).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int32Array, StringArray};

    use super::*;

    fn batch(rows: usize, length: usize) -> RecordBatch {
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..rows).map(|_| "x".repeat(length))));
        let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..rows as i32));
        RecordBatch::try_from_iter([("text", texts), ("number", numbers)]).unwrap()
    }

    #[test]
    fn long_rows_are_cut_finely_and_short_ones_are_not_cut_for_nothing() {
        let pieces = |rows: usize, length| {
            let slots: Vec<u32> = (0..rows as u32).rev().collect();
            Held::copied(&batch(rows, length), &slots, PIECES, &Elsewhere::default()).unwrap()
        };
        let long = pieces(30, 20_000);
        assert!(long.len() >= 15 && long.iter().all(|piece| piece.num_rows() <= 2), "{}", long.len());
        assert_eq!(pieces(30, 10).len(), 1);
        assert_eq!(pieces(1, 1 << 20).len(), 1);
        assert!(pieces(0, 0).is_empty());
    }

    #[test]
    fn what_is_reckoned_to_be_used_already_is_what_is() {
        let rows = 1_000;
        let length = 2_000;
        let found = batch(rows, length);
        let row = bytes_of(&found) as f64 / rows as f64;
        let slots: Vec<u32> = (0..rows as u32).collect();
        let pieces = Held::copied(&found, &slots, PIECES, &Elsewhere::default()).unwrap();
        let real = pieces[0].num_rows() as f64 / rows as f64;
        let told = Cutting::of(&found.schema(), true).used(row * rows as f64, row);
        assert!((real / told - 1.0).abs() < 0.1, "{real} and {told}");
    }
}
