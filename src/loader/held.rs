//! Rows that wait in memory until they are due: how they lie there, what they take, and how pieces of them are freed.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::plan::{FEWEST_PACKED, MIN_PIECE, PACKED_PIECE, POINTER};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_rows::{
    self, Footprint, Layout, Packed, Pick, Place, Placer, bytes_of, compact, compact_pieces, forget_unseen, uncopied,
};

/// A batch that shows rows where they lie keeps at most so many times its rows in memory.
pub(crate) const MOST_SHOWN: usize = 64;

/// Rows in memory.
#[derive(Debug, Clone)]
pub(crate) enum Held {
    /// Column by column.
    Columns(Arc<RecordBatch>),
    /// Row by row.
    Packed(Arc<Packed>),
}

impl Held {
    pub(crate) fn num_rows(&self) -> usize {
        match self {
            Self::Columns(batch) => batch.num_rows(),
            Self::Packed(packed) => packed.num_rows(),
        }
    }

    /// The rows at these slots, in that order, in columns of this schema, which is that of decoded rows. They keep
    /// nothing else alive.
    pub(crate) fn take(&self, slots: &[u32], schema: &SchemaRef) -> Result<RecordBatch> {
        match self {
            Self::Columns(batch) => pick(batch, slots),
            Self::Packed(packed) => packed.take(slots, schema),
        }
    }
}

/// Rows of one group in the order in which they are due: copied out, left in the chunk that they were decoded to, or
/// pointed at in a group that stays decoded.
///
/// An Arrow slice keeps everything alive that it was cut from, so memory is released by whole pieces only. What
/// several pieces share, such as the pages of views, goes with the last of them, which counts it.
#[derive(Debug)]
struct Piece {
    held: Held,
    lie: Lie,
    /// The row ids, where they are not those that were asked for.
    ids: Option<Arc<[u64]>>,
    used: usize,
    bytes: u64,
}

/// Where the rows of a piece are in its batch.
#[derive(Debug, Clone)]
enum Lie {
    /// One after the other, from this place on.
    Run {
        start: usize,
        rows: usize,
    },
    Slots(Arc<[u32]>),
}

impl Piece {
    fn rows(&self) -> usize {
        match &self.lie {
            Lie::Run { rows, .. } => *rows,
            Lie::Slots(slots) => slots.len(),
        }
    }
}

/// What one extraction brought.
#[derive(Debug)]
pub(crate) struct DueRows {
    pieces: VecDeque<Piece>,
    /// Why there are no rows after those of the pieces.
    error: Option<Error>,
    /// Rows that were not claimed.
    left: usize,
    bytes: u64,
}

/// Rows of a piece, in the order in which they are due. Often there is just one, so no array is sliced before it must
/// be.
#[derive(Debug, Clone)]
pub(crate) struct Slice {
    pub(crate) held: Held,
    /// Where in the piece they begin, and how many they are.
    pub(crate) first: usize,
    pub(crate) rows: usize,
    lie: Lie,
    ids: Option<Arc<[u64]>>,
}

impl Slice {
    /// Where in `held` a row is.
    pub(crate) fn place(&self, row: usize) -> u32 {
        match &self.lie {
            Lie::Slots(slots) => slots.get(self.first + row).copied().unwrap_or(u32::MAX),
            Lie::Run { start, .. } => (start + self.first + row) as u32,
        }
    }

    /// The columns that the rows lie in.
    pub(crate) fn columns(&self) -> Option<&RecordBatch> {
        match &self.held {
            Held::Columns(batch) => Some(batch),
            Held::Packed(_) => None,
        }
    }

    /// What the rows lie in, if that is packed.
    pub(crate) fn packed(&self) -> Option<&Packed> {
        match &self.held {
            Held::Columns(_) => None,
            Held::Packed(packed) => Some(packed),
        }
    }

    /// The same rows in columns, if they are packed.
    pub(crate) fn unpacked(&self, schema: &SchemaRef) -> Result<Option<Self>> {
        let Held::Packed(packed) = &self.held else { return Ok(None) };
        let slots: Vec<u32> = (0..self.rows).map(|row| self.place(row)).collect();
        let held = Held::Columns(Arc::new(packed.take(&slots, schema)?));
        let ids = self.ids.as_ref().and_then(|ids| ids.get(self.first..self.first + self.rows)).map(Arc::from);
        Ok(Some(Self { held, first: 0, rows: self.rows, lie: Lie::Run { start: 0, rows: self.rows }, ids }))
    }

    /// Whether the rows lie in `held` one after the other.
    pub(crate) fn is_contiguous(&self) -> bool {
        matches!(self.lie, Lie::Run { .. })
    }

    /// Whether they do, and are those that were asked for.
    pub(crate) fn is_run(&self) -> bool {
        self.is_contiguous() && self.ids.is_none()
    }

    /// The row id of a row, if it is another than the one that was asked for.
    pub(crate) fn substitute(&self, row: usize) -> Option<u64> {
        self.ids.as_ref()?.get(self.first + row).copied()
    }
}

/// A group that stays decoded, and its bytes.
pub(crate) type Whole = (Held, u64);

impl DueRows {
    /// An extraction of so many rows that failed: the error comes up when one of them is claimed.
    pub(crate) fn failed(error: Error, rows: usize) -> Self {
        Self { pieces: VecDeque::new(), error: Some(error), left: rows, bytes: 0 }
    }

    /// These rows, and then so many that cannot be had.
    pub(crate) fn before(self, error: Error, rows: usize) -> Self {
        Self { error: Some(error), left: self.left + rows, ..self }
    }

    /// Copies rows out of a decoded group, in the order given, into at most so many pieces.
    pub(crate) fn extract(batch: &RecordBatch, slots: Vec<u32>, pieces: usize) -> Result<Self> {
        let pieces = pieces_of(std::slice::from_ref(batch), slots.len(), pieces);
        let pieces = cut(slots.len(), pieces, |rows| rowdex_rows::take(batch, &slots[rows]))?;
        Ok(Self::of(compact_pieces(pieces).map_err(uncopied)?, Footprint::default()))
    }

    /// Picks rows out of a group that stays decoded, in one piece: the values of views are the group's.
    pub(crate) fn refer(batch: &RecordBatch, slots: Vec<u32>) -> Result<Self> {
        Ok(Self::of(cut(slots.len(), 1, |_| rowdex_rows::take(batch, &slots))?, Footprint::without_values()))
    }

    /// Points at rows of a group that stays decoded, in the order given; nothing is copied before a batch is made of
    /// them.
    pub(crate) fn point(held: Held, slots: Vec<u32>) -> Result<Self> {
        if slots.iter().any(|&slot| slot as usize >= held.num_rows()) {
            return Err(Error::new(ErrorKind::Internal, "fewer rows than a row group has"));
        }
        let left = slots.len();
        let (lie, bytes) = match slots.first() {
            Some(&start) if is_one_run(&slots) => (Lie::Run { start: start as usize, rows: left }, 0),
            _ => (Lie::Slots(slots.into()), POINTER * left as u64),
        };
        let piece = Piece { held, lie, ids: None, used: 0, bytes };
        Ok(Self { pieces: VecDeque::from([piece]), error: None, left, bytes })
    }

    /// Copies rows out of several batches, at the places given and in their order, into at most so many pieces. Values
    /// of views that have memory of their `own` each are not copied.
    pub(crate) fn merge(batches: &[RecordBatch], places: &[Place], pieces: usize, own: bool) -> Result<Self> {
        let pieces = pieces_of(batches, places.len(), pieces);
        let batches: Vec<&RecordBatch> = batches.iter().collect();
        let Some(first) = batches.first() else {
            return Err(Error::new(ErrorKind::Internal, "rows of no batch at all"));
        };
        let pieces =
            cut(places.len(), pieces, |rows| rowdex_rows::gather(&batches, &places[rows], first.schema_ref()))?;
        let pieces = match own {
            true => pieces.into_iter().map(forget_unseen).collect(),
            false => compact_pieces(pieces),
        };
        Ok(Self::of(pieces.map_err(uncopied)?, Footprint::default()))
    }

    /// Rows of one chunk, in the order given, packed in at most so many pieces.
    pub(crate) fn place(layout: &Arc<Layout>, batch: &RecordBatch, slots: &[u32], pieces: usize) -> Result<Self> {
        let picks: Vec<Pick> = slots.iter().copied().zip(0..).collect();
        let mut placer = Placer::new(Arc::clone(layout), slots.len(), rows_of_packed(layout, slots.len(), pieces));
        placer.put(batch, &picks)?;
        Ok(Self::packed(placer.finish()))
    }

    /// Rows of a group that stayed packed, in the order given, in at most so many pieces. `schema` is that of decoded
    /// rows.
    pub(crate) fn repack(packed: &Packed, slots: &[u32], pieces: usize, schema: &SchemaRef) -> Result<Self> {
        let piece = rows_of_packed(&packed.layout(), slots.len(), pieces);
        let mut placer = Placer::new(packed.layout(), slots.len(), piece);
        let mut due = 0..;
        for slots in slots.chunks(piece) {
            let batch = packed.take(slots, schema)?;
            placer.put(&batch, &(0..slots.len() as u32).zip(&mut due).collect::<Vec<Pick>>())?;
        }
        Ok(Self::packed(placer.finish()))
    }

    /// Rows that are packed as they are due, in pieces.
    pub(crate) fn packed(pieces: Vec<Packed>) -> Self {
        let mut seen = HashSet::new();
        let mut due = Self { pieces: VecDeque::with_capacity(pieces.len()), error: None, left: 0, bytes: 0 };
        // What several pieces share is freed with the last of them.
        for packed in pieces.into_iter().rev() {
            let (rows, bytes) = (packed.num_rows(), packed.bytes_but(&mut seen));
            due.left += rows;
            due.bytes += bytes;
            let lie = Lie::Run { start: 0, rows };
            due.pieces.push_front(Piece { held: Held::Packed(Arc::new(packed)), lie, ids: None, used: 0, bytes });
        }
        due
    }

    /// Rows that are due as they lie in these batches, which are pieces as they are.
    pub(crate) fn run(batches: Vec<RecordBatch>) -> Self {
        Self::of(batches, Footprint::default())
    }

    fn of(batches: Vec<RecordBatch>, mut footprint: Footprint) -> Self {
        let left = batches.iter().map(RecordBatch::num_rows).sum();
        let piece = |batch: RecordBatch| {
            let lie = Lie::Run { start: 0, rows: batch.num_rows() };
            Piece { held: Held::Columns(Arc::new(batch)), lie, ids: None, used: 0, bytes: 0 }
        };
        // A buffer that several pieces share is freed with the last of them.
        let mut bytes: Vec<u64> = batches.iter().rev().map(|batch| footprint.add(batch)).collect();
        let mut pieces: VecDeque<Piece> = batches.into_iter().map(piece).collect();
        for (piece, bytes) in pieces.iter_mut().zip(bytes.drain(..).rev()) {
            piece.bytes = bytes;
        }
        let bytes = pieces.iter().map(|piece| piece.bytes).sum();
        Self { pieces, error: None, left, bytes }
    }

    /// Says which rows these are, where they stand in for others.
    pub(crate) fn with_ids(mut self, mut ids: &[u64]) -> Self {
        for piece in &mut self.pieces {
            let (own, rest) = ids.split_at(piece.rows().min(ids.len()));
            (piece.ids, ids) = (Some(own.into()), rest);
        }
        self
    }

    /// Takes the next rows. Says how many bytes are freed once their slices are dropped, and how many rows are missing.
    pub(crate) fn claim(&mut self, mut rows: usize, slices: &mut Vec<Slice>) -> (u64, usize) {
        let mut freed = 0;
        self.left = self.left.saturating_sub(rows);
        while rows > 0 {
            let Some(piece) = self.pieces.front_mut() else { break };
            let (first, left) = (piece.used, piece.rows() - piece.used);
            let count = rows.min(left);
            rows -= count;
            piece.used += count;
            let (held, lie, ids) = if count < left {
                (piece.held.clone(), piece.lie.clone(), piece.ids.clone())
            } else {
                freed += piece.bytes;
                let Some(Piece { held, lie, ids, .. }) = self.pieces.pop_front() else { break };
                (held, lie, ids)
            };
            slices.push(Slice { held, first, rows: count, lie, ids });
        }
        (freed, rows)
    }

    /// Whether all rows were claimed, those included that could not be had.
    pub(crate) fn is_used_up(&self) -> bool {
        self.left == 0
    }

    /// Why there are no more rows than were extracted.
    pub(crate) fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Bytes of a piece, and of each array in it, besides values.
const HEADER: u64 = 256;

/// Bytes of the headers of a piece's arrays.
fn headers(batch: &RecordBatch) -> u64 {
    HEADER * (1 + batch.schema_ref().flattened_fields().len() as u64)
}

/// Into how many pieces so many rows of these batches are cut, `most` at most. Each piece has headers, and half a piece
/// on average is in memory that was used already; the number makes the sum of both least.
fn pieces_of(batches: &[RecordBatch], rows: usize, most: usize) -> usize {
    let Some(largest) = batches.iter().max_by_key(|batch| batch.num_rows()) else { return 1 };
    let row = bytes_of(largest) as f64 / largest.num_rows().max(1) as f64;
    let pieces = (rows as f64 * row / (2 * headers(largest)) as f64).sqrt() as usize;
    pieces.clamp(1, most.max(1))
}

/// How many rows each of at most so many pieces has.
fn rows_of_piece(count: usize, pieces: usize) -> usize {
    count.div_ceil(pieces.max(1)).max(MIN_PIECE)
}

/// The same of rows that are packed. Pieces are large enough for maps of their own, if that leaves some: smaller ones
/// would lie between what comes and goes while row groups are decoded, and keep its memory from being given back.
pub(crate) fn rows_of_packed(layout: &Layout, count: usize, pieces: usize) -> usize {
    rows_of_piece(count, pieces.min((count * layout.row_bytes() / PACKED_PIECE).max(FEWEST_PACKED)))
}

/// So many rows in at most so many pieces, each of which `copy` makes of a range of them.
fn cut(count: usize, pieces: usize, copy: impl Fn(Range<usize>) -> Result<RecordBatch>) -> Result<Vec<RecordBatch>> {
    let piece = rows_of_piece(count, pieces);
    (0..count).step_by(piece).map(|start| copy(start..count.min(start + piece))).collect()
}

/// Copies rows, so that they keep nothing else alive.
pub(crate) fn pick(batch: &RecordBatch, slots: &[u32]) -> Result<RecordBatch> {
    compact(rowdex_rows::take(batch, slots)?).map_err(uncopied)
}

/// Whether these rows lie one after the other.
pub(crate) fn is_one_run(slots: &[u32]) -> bool {
    slots.is_sorted_by(|a, b| a + 1 == *b)
}
