//! Rows that are packed at the places where they are due.
//!
//! Whoever picks rows out of chunks, and keeps them in the order in which they are due, copies each value twice: out of
//! its chunk, and to its place. Where rows are [packed](super::packed), a value has its place before it is copied, so
//! once is enough.

use std::sync::Arc;

use arrow_array::builder::BooleanBufferBuilder;
use arrow_array::builder::make_view;
use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_buffer::{BooleanBuffer, Buffer};

use super::dictionary::text_bytes;
use super::held::Held;
use super::packed::{Beside, Layout, PackedField, PackedRows, VIEW};
use super::views::{BUFFER, INLINE, PLACE, is_view, views_of};
use rowdex_base::error::{Error, ErrorKind, Result};

/// A row of a chunk, and when it is due, counted in rows.
pub(crate) type RowPick = (u32, u32);

/// Where each piece has its own long values among the buffers of a column.
const OWN: u32 = 0;

/// Packs rows of chunks, in pieces that are let go of one after the other.
#[derive(Debug)]
pub struct Placer {
    layout: Arc<Layout>,
    /// The first column of the next chunk, and how many have come.
    first: usize,
    come: usize,
    rows: usize,
    /// How many were added one after the other.
    pushed: usize,
    /// Rows of each piece but the last.
    piece: usize,
    pieces: Vec<PlacedRows>,
    columns: Vec<PlacedNulls>,
}

#[derive(Debug)]
struct PlacedRows {
    bytes: Vec<u8>,
    /// Of each column the long values that this piece alone has, if there are any.
    long: Vec<Vec<u8>>,
}

/// What a column has beside its values in the rows.
#[derive(Debug, Default)]
struct PlacedNulls {
    /// Which rows are not null, if any is.
    there: Option<BooleanBufferBuilder>,
    bits: Option<BooleanBufferBuilder>,
    /// Buffers that all pieces share, from number 1 on.
    shared: Vec<Buffer>,
    /// The buffers of the last chunk's views.
    met: Vec<ShownBuffer>,
}

/// A buffer that views of a chunk show, which may be a dictionary that the next chunk shows, too.
#[derive(Debug)]
struct ShownBuffer {
    /// Kept, because the allocator gives the address of a freed buffer to the next one.
    buffer: Buffer,
    /// Bytes of the values that were due so far, each as often as it was.
    shown: u64,
    /// The number of its copy, if all pieces share one.
    number: Option<u32>,
}

/// Chunks whose views have more buffers have no dictionary.
const MOST_MET: usize = 16;

/// The values of a column for the rows to be placed.
struct PlacedColumn {
    at: usize,
    width: usize,
    values: Buffer,
    /// Whether there is a value for each pick, in their order, rather than for each row of the chunk.
    is_of_picks: bool,
}

impl Placer {
    /// For so many rows, in pieces of so many.
    pub fn new(layout: Arc<Layout>, rows: usize, piece: usize) -> Self {
        let piece = piece.max(1);
        let width = layout.columns.len();
        let of =
            |start: usize| PlacedRows { bytes: vec![0; piece.min(rows - start) * layout.stride], long: Vec::new() };
        let pieces = (0..rows.max(1)).step_by(piece).map(of).collect();
        let columns = (0..width).map(|_| PlacedNulls::default()).collect();
        Self { layout, first: 0, come: 0, rows, pushed: 0, piece, pieces, columns }
    }

    /// Rows of each piece but the last.
    pub(crate) fn piece_rows(&self) -> usize {
        self.piece
    }

    /// Says that the chunks to come have the columns from this one on, and begin with the first row again.
    pub fn begin_columns(&mut self, first: usize) {
        self.first = first;
        self.pushed = 0;
    }

    /// Adds the next rows, or some of their columns, in the order in which they come.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if the chunk has other columns than the layout, or more rows than there are to be.
    pub fn push(&mut self, chunk: &RecordBatch) -> Result<()> {
        let picks: Vec<RowPick> = (0..chunk.num_rows() as u32).zip(self.pushed as u32..).collect();
        self.pushed += chunk.num_rows();
        self.put(chunk, &picks)
    }

    /// All rows that were [added](Self::push), in one piece.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if there were fewer.
    pub fn whole(self) -> Result<Held> {
        let all = (self.pushed == self.rows).then(|| Held::packed_in_turn(self.finish()).pop()).flatten();
        all.ok_or_else(|| Error::new(ErrorKind::Internal, "fewer rows than a row group has"))
    }

    /// Whether all columns have come.
    pub(crate) fn is_whole(&self) -> bool {
        self.come == self.layout.columns.len()
    }

    /// Puts rows of a chunk, or some columns of them, to their places.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Internal`] if the chunk has other columns than the layout, or a row or a place is not there.
    pub(crate) fn put(&mut self, chunk: &RecordBatch, picks: &[RowPick]) -> Result<()> {
        let layout = Arc::clone(&self.layout);
        let is_there = |&(row, due): &RowPick| (row as usize) < chunk.num_rows() && (due as usize) < self.rows;
        let Some(stored_fields) = layout.part(self.first, chunk).filter(|_| picks.iter().all(is_there)) else {
            return Err(Error::new(
                ErrorKind::Internal,
                "a chunk has other columns or rows than those that are needed",
            ));
        };
        self.come = self.first + stored_fields.len();
        if picks.is_empty() {
            return Ok(());
        }
        let mut sources = Vec::with_capacity(stored_fields.len());
        for (number, (stored, column)) in (self.first..).zip(stored_fields.iter().zip(chunk.columns())) {
            let beside = &mut self.columns[number];
            if let Some(nulls) = column.nulls() {
                note(&mut beside.there, self.rows, nulls.inner(), false, picks);
            }
            match *stored {
                PackedField::Bits => note(&mut beside.bits, self.rows, column.as_boolean().values(), true, picks),
                PackedField::Fixed { at, width } => {
                    let data = column.to_data();
                    let begin = data.offset() * width;
                    let values = data.buffers()[0].slice_with_length(begin, chunk.num_rows() * width);
                    sources.push(PlacedColumn { at, width, values, is_of_picks: false });
                }
                PackedField::View { at } => {
                    let values = Buffer::from_vec(self.views_of(number, column.as_ref(), picks)?);
                    sources.push(PlacedColumn { at, width: VIEW, values, is_of_picks: true });
                }
            }
        }
        let stride = layout.stride;
        let mut places: Vec<(u32, u32)> = Vec::with_capacity(layout.rows_of_block());
        for (block, picks) in picks.chunks(layout.rows_of_block()).enumerate() {
            places.clear();
            let place = |&(_, due): &RowPick| {
                let due = due as usize;
                ((due / self.piece) as u32, (due % self.piece * stride) as u32)
            };
            places.extend(picks.iter().map(place));
            let first = block * layout.rows_of_block();
            for source in &sources {
                match source.width {
                    1 => place_all::<1>(&mut self.pieces, &places, picks, first, source),
                    2 => place_all::<2>(&mut self.pieces, &places, picks, first, source),
                    4 => place_all::<4>(&mut self.pieces, &places, picks, first, source),
                    8 => place_all::<8>(&mut self.pieces, &places, picks, first, source),
                    16 => place_all::<16>(&mut self.pieces, &places, picks, first, source),
                    width => {
                        for (number, ((piece, start), (row, _))) in places.iter().zip(picks).enumerate() {
                            let from = if source.is_of_picks { first + number } else { *row as usize } * width;
                            let to = *start as usize + source.at;
                            let bytes = &mut self.pieces[*piece as usize].bytes;
                            bytes[to..to + width].copy_from_slice(&source.values[from..from + width]);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The pieces, in the order in which they are due.
    pub(crate) fn finish(self) -> Vec<PackedRows> {
        let Self { layout, rows, piece, pieces, columns, .. } = self;
        let whole = |mut column: PlacedNulls| Beside {
            there: column.there.as_mut().map(BooleanBufferBuilder::finish),
            bits: column.bits.as_mut().map(BooleanBufferBuilder::finish),
            // Number `OWN` is none of them.
            buffers: if column.shared.is_empty() {
                Vec::new()
            } else {
                [vec![Buffer::default()], column.shared].concat()
            },
        };
        let mut columns: Vec<Beside> = columns.into_iter().map(whole).collect();
        // Most rows have neither nulls nor long values.
        if columns.iter().all(Beside::is_empty) {
            columns.clear();
        }
        Beside::settle_bits(&mut columns);
        let columns: Arc<[Beside]> = columns.into();
        let packed = |(number, PlacedRows { bytes, long }): (usize, PlacedRows)| {
            let first = number * piece;
            let exact = |mut long: Vec<u8>| {
                long.shrink_to_fit();
                Buffer::from_vec(long)
            };
            let own = match long.iter().all(Vec::is_empty) {
                true => Vec::new(),
                false => long.into_iter().map(exact).collect(),
            };
            let layout = Arc::clone(&layout);
            PackedRows { layout, rows: piece.min(rows - first), bytes, beside: Arc::clone(&columns), first, own }
        };
        pieces.into_iter().enumerate().map(packed).collect()
    }

    /// A view for each pick. A null has no bytes.
    fn views_of(&mut self, number: usize, column: &dyn Array, picks: &[RowPick]) -> Result<Vec<u128>> {
        let Some(value) = text_bytes(column).filter(|_| !is_view(column.data_type())) else {
            return self.renumbered(number, column, picks);
        };
        let nulls = column.nulls();
        let view = |&(row, due): &RowPick| match nulls.is_some_and(|nulls| nulls.is_null(row as usize)) {
            true => Ok(0),
            false => self.view_of(number, due, value(row as usize)),
        };
        picks.iter().map(view).collect()
    }

    /// A view of a value that its piece has for itself if it is long.
    fn view_of(&mut self, column: usize, due: u32, value: &[u8]) -> Result<u128> {
        if value.len() <= INLINE as usize {
            return Ok(make_view(value, 0, 0));
        }
        let long = &mut self.pieces[due as usize / self.piece].long;
        if long.is_empty() {
            long.resize(self.layout.columns.len(), Vec::new());
        }
        let long = &mut long[column];
        let Some(at) = u32::try_from(long.len() + value.len()).ok().map(|_| long.len() as u32) else {
            return Err(Error::new(ErrorKind::TooLarge, "the values of rows that are needed take more than 4 GiB")
                .with_hint("give the loader less memory, or write smaller row groups"));
        };
        long.extend_from_slice(value);
        Ok(make_view(value, OWN, at))
    }

    /// Views of values that are copied one by one, or with their buffer where that is shorter.
    fn renumbered(&mut self, number: usize, column: &dyn Array, picks: &[RowPick]) -> Result<Vec<u128>> {
        let (views, buffers) = views_of(column).ok_or_else(lost)?;
        let nulls = column.nulls();
        let long = |row: usize| {
            let view = views[row];
            let is_long = view as u32 > INLINE && nulls.is_none_or(|nulls| nulls.is_valid(row));
            is_long.then_some(((view >> BUFFER) as u32 as usize, view as u32 as usize))
        };
        let mut shown = vec![0_u64; buffers.len()];
        for (buffer, length) in picks.iter().filter_map(|(row, _)| long(*row as usize)) {
            *shown.get_mut(buffer).ok_or_else(lost)? += length as u64;
        }
        let numbers = self.columns[number].meet(buffers, &shown);
        let view = |&(row, due): &RowPick| {
            let row = row as usize;
            let view = views[row];
            let Some((buffer, length)) = long(row) else {
                return Ok(if nulls.is_some_and(|nulls| nulls.is_null(row)) { 0 } else { view });
            };
            if let Some(number) = numbers[buffer] {
                return Ok(view & !(u128::from(u32::MAX) << BUFFER) | u128::from(number) << BUFFER);
            }
            let start = (view >> PLACE) as u32 as usize;
            let value = buffers[buffer].get(start..start + length).ok_or_else(lost)?;
            self.view_of(number, due, value)
        };
        picks.iter().map(view).collect()
    }
}

impl PlacedNulls {
    /// The numbers of those of a chunk's buffers that all pieces share, of which so many bytes are due in the chunk.
    ///
    /// A buffer is copied as a whole once twice as many bytes of it were due as it has. Pieces are let go of one after
    /// the other, and what they share with the last of them, so on average it is there for twice as long. Until then
    /// its values are copied one by one, so that no more is copied than twice what would have been best (the rule for
    /// renting skis, A. Karlin and others, "Competitive Snoopy Caching", 1988).
    fn meet(&mut self, buffers: &[Buffer], shown: &[u64]) -> Vec<Option<u32>> {
        let before = std::mem::take(&mut self.met);
        if buffers.len() > MOST_MET {
            return vec![None; buffers.len()];
        }
        let place = |buffer: &Buffer| (buffer.as_ptr(), buffer.len());
        for (buffer, now) in buffers.iter().zip(shown) {
            let known = before.iter().find(|met| place(&met.buffer) == place(buffer));
            let (shown, mut number) = known.map_or((0, None), |met| (met.shown, met.number));
            let shown = shown.saturating_add(*now);
            if number.is_none() && shown / 2 > buffer.len() as u64 {
                self.shared.push(Buffer::from_vec(buffer.to_vec()));
                number = Some(self.shared.len() as u32);
            }
            self.met.push(ShownBuffer { buffer: buffer.clone(), shown, number });
        }
        self.met.iter().map(|met| met.number).collect()
    }
}

/// Puts a value into each of these rows.
fn place_all<const W: usize>(
    pieces: &mut [PlacedRows],
    places: &[(u32, u32)],
    picks: &[RowPick],
    first: usize,
    source: &PlacedColumn,
) {
    let values = source.values.as_chunks::<W>().0;
    for (number, ((piece, start), (row, _))) in places.iter().zip(picks).enumerate() {
        let value = values[if source.is_of_picks { first + number } else { *row as usize }];
        let to = *start as usize + source.at;
        pieces[*piece as usize].bytes[to..to + W].copy_from_slice(&value);
    }
}

/// Notes which of these rows have this bit; all that are not noted have the other one.
fn note(noted: &mut Option<BooleanBufferBuilder>, rows: usize, bits: &BooleanBuffer, bit: bool, picks: &[RowPick]) {
    let noted = noted.get_or_insert_with(|| {
        let mut others = BooleanBufferBuilder::new(rows);
        others.append_n(rows, !bit);
        others
    });
    let picks = picks.iter().filter(|(row, _)| bits.value(*row as usize) == bit);
    picks.for_each(|(_, due)| noted.set_bit(*due as usize, bit));
}

fn lost() -> Error {
    Error::new(ErrorKind::Internal, "a value is not where its view says")
}
