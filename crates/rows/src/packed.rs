//! Rows whose narrow columns lie side by side, one row after the other.
//!
//! A row that is picked at random costs a miss of the cache, and of the page-table cache, for each column that lies
//! apart, and one or two where the row lies in one piece. So rows that wait in memory to be picked from, or to be due,
//! are packed: N-ary storage, against the decomposed storage that Arrow has (A. Ailamaki and others, "Weaving Relations
//! for Cache Performance", VLDB 2001, compares both). Batches have columns again; a block of rows that was copied
//! together is in the core's cache when its columns are taken apart. Nulls and booleans are a bit for a row, so they
//! stay columns.

use std::collections::HashSet;
use std::hint::black_box;
use std::slice::ChunksExact;
use std::sync::Arc;

use arrow_array::builder::BooleanBufferBuilder;
use arrow_array::types::{BinaryType, ByteArrayType, LargeBinaryType, LargeUtf8Type, Utf8Type};
use arrow_array::{Array, ArrayRef, BooleanArray, FixedSizeBinaryArray, GenericByteArray, RecordBatch};
use arrow_buffer::{BooleanBuffer, Buffer, MutableBuffer, NullBuffer};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};

use super::dictionary::text_bytes;
use super::flat::{ends, primitive};
use super::picks::BatchRow;
use super::views::{BUFFER, INLINE, PLACE, is_view};
use super::{record_batch, uncopied};
use rowdex_base::error::Result;

/// Bytes of a view.
pub(super) const VIEW: usize = 16;
/// Bytes of the rows of a block, whose columns are taken apart while they are in the core's first cache.
const BLOCK: usize = 16 << 10;
/// With fewer columns of values, a row has no more misses where they lie apart.
const LEAST: usize = 2;

/// Where the values of a row lie.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    pub(super) types: Vec<DataType>,
    pub(super) columns: Vec<PackedField>,
    /// Bytes of a row.
    pub(super) stride: usize,
}

/// Where a column has its value in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PackedField {
    Fixed {
        at: usize,
        width: usize,
    },
    View {
        at: usize,
    },
    /// Not in the row.
    Bits,
}

impl Layout {
    /// How rows of these columns are packed, if all of them have values of a fixed width, or strings or bytes that are
    /// served as such: those are views in the rows, which have values of up to twelve bytes.
    pub fn of(schema: &Schema, served: &Schema) -> Option<Arc<Self>> {
        let mut columns = Vec::with_capacity(schema.fields().len());
        let mut stride = 0;
        for (field, wanted) in schema.fields().iter().zip(served.fields()) {
            let width = match field.data_type() {
                DataType::Boolean if *wanted.data_type() == DataType::Boolean => {
                    columns.push(PackedField::Bits);
                    continue;
                }
                own if is_text(wanted.data_type()) && (is_view(own) || own == wanted.data_type()) => {
                    columns.push(PackedField::View { at: stride });
                    stride += VIEW;
                    continue;
                }
                // What is made of these when they are served is made of columns.
                other if other != wanted.data_type() => return None,
                DataType::FixedSizeBinary(width) => usize::try_from(*width).ok()?,
                other => other.primitive_width()?,
            };
            columns.push(PackedField::Fixed { at: stride, width });
            stride += width;
        }
        let types = schema.fields().iter().map(|field| field.data_type().clone()).collect();
        let values = columns.iter().filter(|stored| **stored != PackedField::Bits).count();
        (values >= LEAST && stride > 0).then(|| Arc::new(Self { types, columns, stride }))
    }

    /// Whether columns may be packed before others: then how long values are decides nothing.
    pub fn packs_columns_apart(&self) -> bool {
        !self.columns.iter().any(|stored| matches!(stored, PackedField::View { .. }))
    }

    /// The columns of a chunk that begins with this one; `None` if it has others.
    pub(super) fn part(&self, first: usize, chunk: &RecordBatch) -> Option<&[PackedField]> {
        let columns = first..first + chunk.num_columns();
        let types = chunk.columns().iter().map(|column| column.data_type());
        types.eq(self.types.get(columns.clone())?).then(|| self.columns.get(columns)).flatten()
    }

    /// Whether rows like these hardly take more memory when they are packed: short strings take a view each.
    pub fn is_worth(&self, chunk: &RecordBatch) -> bool {
        /// The part of the memory that they may take besides.
        const PART: usize = 16;
        let rows = chunk.num_rows();
        let mut packed = 0_usize;
        let mut apart = 0_usize;
        for (stored, column) in self.columns.iter().zip(chunk.columns()) {
            let (own, others) = match (stored, column.data_type()) {
                (PackedField::Bits, _) => continue,
                (PackedField::Fixed { width, .. }, _) => (rows * width, rows * width),
                (PackedField::View { .. }, text) if is_text(text) => in_views(column.as_ref()),
                (PackedField::View { .. }, _) => (rows * VIEW, rows * VIEW),
            };
            (packed, apart) = (packed.saturating_add(own), apart.saturating_add(others));
        }
        packed <= apart.saturating_add(apart / PART)
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.stride
    }

    pub(super) fn rows_of_block(&self) -> usize {
        (BLOCK / self.stride).clamp(16, 1024)
    }
}

/// Bytes that strings or bytes take as views, and as they are.
fn in_views(column: &dyn Array) -> (usize, usize) {
    let offset = match column.data_type() {
        DataType::Utf8 | DataType::Binary => size_of::<i32>(),
        _ => size_of::<i64>(),
    };
    let mut all = 0;
    let mut long = 0;
    if let Some(value) = text_bytes(column) {
        for length in (0..column.len()).map(|row| value(row).len()) {
            all += length;
            long += if length > INLINE as usize { length } else { 0 };
        }
    }
    (column.len() * VIEW + long, column.len() * offset + all)
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary)
}

/// Rows that are packed.
#[derive(Debug)]
pub struct PackedRows {
    pub(super) layout: Arc<Layout>,
    pub(super) rows: usize,
    pub(super) bytes: Vec<u8>,
    /// What columns have beside the values of these rows and others, if any has something. One for all pieces of many
    /// rows: of some hundred columns it would take as much as the values of a piece.
    pub(super) beside: Arc<[Beside]>,
    /// Where these rows begin among those.
    pub(super) first: usize,
    /// Of each column the long values that no other rows show, if any column has such. They are buffer number 0.
    pub(super) own: Vec<Buffer>,
}

/// What a column has beside its values in the rows.
#[derive(Debug, Default)]
pub(super) struct Beside {
    /// Which rows are not null, if any is.
    pub(super) there: Option<BooleanBuffer>,
    pub(super) bits: Option<BooleanBuffer>,
    /// Where views show longer values.
    pub(super) buffers: Vec<Buffer>,
}

impl Beside {
    pub(super) fn is_empty(&self) -> bool {
        self.there.is_none() && self.bits.is_none() && self.buffers.is_empty()
    }

    /// Moves the bits of all columns to one block: hundreds of small ones that stay would keep the memory between them
    /// from being given back, where pages come and go.
    pub(super) fn settle_bits(columns: &mut [Self]) {
        /// No column begins inside of a word.
        const WORD: usize = 64;
        let bits = |bits: &BooleanBuffer| bits.len().next_multiple_of(WORD);
        let mut all = BooleanBufferBuilder::new(columns.iter().flat_map(Self::all_bits).map(bits).sum());
        for own in columns.iter().flat_map(Self::all_bits) {
            all.append_buffer(own);
            all.append_n(bits(own) - own.len(), false);
        }
        let all = all.finish();
        let mut at = 0;
        for own in columns.iter_mut().flat_map(|column| [&mut column.there, &mut column.bits]).flatten() {
            let next = at + bits(own);
            *own = all.slice(at, own.len());
            at = next;
        }
    }

    fn all_bits(&self) -> impl Iterator<Item = &BooleanBuffer> {
        [&self.there, &self.bits].into_iter().flatten()
    }
}

impl PackedRows {
    /// What views of a column show under this number.
    fn buffer(&self, column: usize, number: usize) -> Option<&Buffer> {
        match self.own.get(column) {
            Some(own) if number == 0 => Some(own),
            _ => self.beside.get(column)?.buffers.get(number),
        }
    }

    /// How many rows.
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// How its rows lie.
    pub fn layout(&self) -> Arc<Layout> {
        Arc::clone(&self.layout)
    }

    /// Whether rows of both may be picked together.
    pub fn is_like(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.layout, &other.layout) || self.layout == other.layout
    }

    /// Bytes of memory that it keeps alive, without what was `seen`, by its address.
    pub fn bytes_but(&self, seen: &mut HashSet<usize>) -> u64 {
        let mut bytes = (self.bytes.capacity() + self.own.iter().map(Buffer::capacity).sum::<usize>()) as u64;
        for beside in self.beside.iter() {
            for buffer in beside.all_bits().map(BooleanBuffer::inner).chain(&beside.buffers) {
                if seen.insert(buffer.data_ptr().as_ptr() as usize) {
                    bytes = bytes.saturating_add(buffer.capacity() as u64);
                }
            }
        }
        bytes
    }

    /// The rows at these slots, in that order, in columns as they were packed.
    ///
    /// # Errors
    /// `TooLarge` if the rows do not fit one batch.
    pub fn take(&self, slots: &[u32], schema: &SchemaRef) -> Result<RecordBatch> {
        let places: Vec<BatchRow> = slots.iter().map(|slot| (0, *slot)).collect();
        let mut columns = unpack(&[self], &places, schema)?;
        for (column, field) in columns.iter_mut().zip(schema.fields()) {
            if column.data_type() != field.data_type() {
                let viewed = arrow_cast::cast(column, field.data_type());
                *column = viewed.map_err(|error| uncopied(error).with_column(field.name()))?;
            }
        }
        record_batch(schema, columns, slots.len()).map_err(uncopied)
    }

    fn row(&self, row: u32) -> &[u8] {
        let stride = self.layout.stride;
        let at = row as usize * stride;
        self.bytes.get(at..at + stride).unwrap_or_default()
    }
}

/// Rows of up to four cache lines; of longer ones the processor loads the rest ahead itself.
const TOUCHED: usize = 256;

/// The rows at these places, in that order, column by column. Views become what `served` has in their place, and
/// strings or bytes with large offsets where it has views. All sources are [alike](PackedRows::is_like), and places are
/// inside them.
///
/// # Errors
/// [`ErrorKind::TooLarge`] if the rows do not fit the offsets of a column.
pub(crate) fn unpack(sources: &[&PackedRows], places: &[BatchRow], served: &Schema) -> Result<Vec<ArrayRef>> {
    let Some(first) = sources.first() else {
        return Ok(served.fields().iter().map(|field| arrow_array::new_empty_array(field.data_type())).collect());
    };
    let layout = &*first.layout;
    let mut columns: Vec<UnpackedColumn> =
        layout.columns.iter().map(|stored| UnpackedColumn::of(*stored, places.len())).collect();
    let mut rows: Vec<u8> = Vec::with_capacity(layout.rows_of_block() * layout.stride);
    for block in places.chunks(layout.rows_of_block()) {
        rows.clear();
        if layout.stride <= TOUCHED {
            touch(block, sources, layout.stride);
        }
        block.iter().for_each(|(source, row)| rows.extend_from_slice(sources[*source as usize].row(*row)));
        for (number, column) in columns.iter_mut().enumerate() {
            let value_behind = |row: usize, view: u128| {
                let start = (view >> PLACE) as u32 as usize;
                let buffer = sources[block[row].0 as usize].buffer(number, (view >> BUFFER) as u32 as usize);
                buffer.and_then(|buffer| buffer.get(start..start + view as u32 as usize))
            };
            let taken = column.append(rows.chunks_exact(layout.stride), value_behind, places.len());
            taken.map_err(|error| uncopied(error).with_column(served.field(number).name()))?;
        }
    }
    let finish = |(number, (column, own)): (usize, (UnpackedColumn, &DataType))| {
        let wanted = served.field(number);
        let there = bits_of(sources, places, |beside| beside.there.as_ref(), number);
        let nulls = there.map(NullBuffer::new).filter(|nulls| nulls.null_count() > 0);
        let array = match column {
            UnpackedColumn::Bits => {
                let bits = bits_of(sources, places, |beside| beside.bits.as_ref(), number);
                let bits = bits.unwrap_or_else(|| BooleanBuffer::new_unset(places.len()));
                Ok(Arc::new(BooleanArray::new(bits, nulls)) as ArrayRef)
            }
            UnpackedColumn::Fixed { values, .. } => match own {
                DataType::FixedSizeBinary(width) => {
                    let array = FixedSizeBinaryArray::try_new_with_len(*width, values.into(), nulls, places.len());
                    array.map(|array| Arc::new(array) as ArrayRef)
                }
                _ => primitive(own, values.into(), places.len(), nulls),
            },
            UnpackedColumn::Text { lengths, data, .. } => match wanted.data_type() {
                DataType::Utf8 => text::<Utf8Type>(&lengths, data, nulls),
                DataType::LargeUtf8 | DataType::Utf8View => text::<LargeUtf8Type>(&lengths, data, nulls),
                DataType::Binary => text::<BinaryType>(&lengths, data, nulls),
                _ => text::<LargeBinaryType>(&lengths, data, nulls),
            },
        };
        array.map_err(|error| uncopied(error).with_column(wanted.name()))
    };
    columns.into_iter().zip(&layout.types).enumerate().map(finish).collect()
}

/// Loads a byte of each cache line that a row begins or ends in. No load waits for another, as they would behind the
/// copies of whole rows.
fn touch(places: &[BatchRow], sources: &[&PackedRows], stride: usize) {
    let mut any = 0;
    for (source, row) in places {
        let bytes = &sources[*source as usize].bytes;
        let at = *row as usize * stride;
        any ^= bytes.get(at).unwrap_or(&0) ^ bytes.get(at + stride - 1).unwrap_or(&0);
    }
    black_box(any);
}

/// A bit of every row, if any source has such bits for the column.
fn bits_of<'a>(
    sources: &[&'a PackedRows],
    places: &[BatchRow],
    bits: impl Fn(&'a Beside) -> Option<&'a BooleanBuffer>,
    column: usize,
) -> Option<BooleanBuffer> {
    let of = |source: &&'a PackedRows| Some((source.beside.get(column).and_then(&bits)?, source.first));
    let all: Vec<Option<(&BooleanBuffer, usize)>> = sources.iter().map(of).collect();
    let bit =
        |(source, row): BatchRow| all[source as usize].is_none_or(|(bits, first)| bits.value(first + row as usize));
    all.iter().any(Option::is_some).then(|| BooleanBuffer::collect_bool(places.len(), |row| bit(places[row])))
}

/// A column that is taken out of rows, block by block.
enum UnpackedColumn {
    /// Not in the rows.
    Bits,
    /// Values of one width, of which so many bytes are taken.
    Fixed { at: usize, width: usize, values: MutableBuffer, taken: usize },
    /// Views, which become strings or bytes.
    Text { at: usize, lengths: Vec<u32>, data: Vec<u8> },
}

impl UnpackedColumn {
    fn of(stored: PackedField, rows: usize) -> Self {
        match stored {
            PackedField::Bits => Self::Bits,
            PackedField::Fixed { at, width } => {
                Self::Fixed { at, width, values: MutableBuffer::from_len_zeroed(rows * width), taken: 0 }
            }
            PackedField::View { at } => Self::Text { at, lengths: Vec::with_capacity(rows), data: Vec::new() },
        }
    }

    /// Adds the values of these rows, of so many in all. `behind` has the value of a row whose view is this one.
    fn append<'a>(
        &mut self,
        rows: ChunksExact<'_, u8>,
        behind: impl Fn(usize, u128) -> Option<&'a [u8]>,
        all: usize,
    ) -> Result<(), ArrowError> {
        match self {
            Self::Bits => {}
            Self::Fixed { at, width, values, taken } => {
                let to = values.as_slice_mut().get_mut(*taken..).unwrap_or_default();
                *taken += rows.len() * *width;
                match width {
                    0 => {}
                    1 => take_out::<1>(rows, *at, to),
                    2 => take_out::<2>(rows, *at, to),
                    4 => take_out::<4>(rows, *at, to),
                    8 => take_out::<8>(rows, *at, to),
                    16 => take_out::<16>(rows, *at, to),
                    _ => to.chunks_exact_mut(*width).zip(rows).for_each(|(to, row)| {
                        to.copy_from_slice(&row[*at..*at + *width]);
                    }),
                }
            }
            Self::Text { at, lengths, data } => {
                let view = |row: &[u8]| row[*at..].first_chunk().map_or(0, |view| u128::from_ne_bytes(*view));
                let here: usize = rows.clone().map(|row| view(row) as u32 as usize).sum();
                if data.capacity() - data.len() < here {
                    // For the blocks behind this one, too, as if their values were as long.
                    let left = (all - lengths.len()) as u128;
                    let rest = here as u128 * left / rows.len().max(1) as u128;
                    let rest = usize::try_from(rest + rest / 16).unwrap_or(usize::MAX);
                    data.reserve_exact(here.max(rest));
                }
                for (number, row) in rows.enumerate() {
                    let view = view(row);
                    let bytes = view.to_le_bytes();
                    // A short value is behind its length.
                    let value = match view as u32 {
                        length if length <= INLINE => bytes.get(4..4 + length as usize),
                        _ => behind(number, view),
                    };
                    let lost = || ArrowError::ComputeError("a value is not where its view says".into());
                    data.extend_from_slice(value.ok_or_else(lost)?);
                    lengths.push(view as u32);
                }
            }
        }
        Ok(())
    }
}

fn take_out<const W: usize>(rows: ChunksExact<'_, u8>, at: usize, values: &mut [u8]) {
    for (value, row) in values.as_chunks_mut::<W>().0.iter_mut().zip(rows) {
        *value = row[at..].first_chunk().copied().unwrap_or([0; W]);
    }
}

fn text<T: ByteArrayType>(
    lengths: &[u32],
    mut data: Vec<u8>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    if data.capacity() - data.len() > data.len() / 4 {
        data.shrink_to_fit();
    }
    let ends = ends(lengths.len(), lengths.iter().map(|length| *length as usize))?;
    Ok(Arc::new(GenericByteArray::<T>::try_new(ends, Buffer::from_vec(data), nulls)?))
}
