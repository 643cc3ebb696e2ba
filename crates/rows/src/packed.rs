//! Rows whose narrow columns lie side by side, one row after the other.
//!
//! A row that is picked at random costs a miss of the cache, and of the page-table cache, for each column that lies
//! apart, and one or two where the row lies in one piece. So rows that wait in memory to be picked from, or to be due,
//! are packed: N-ary storage, against the decomposed storage that Arrow has (A. Ailamaki and others, "Weaving Relations
//! for Cache Performance", VLDB 2001, compares both). Batches have columns again; a block of rows that was copied
//! together is in the core's cache when its columns are taken apart. Nulls and booleans are a bit for a row, so they
//! stay columns.

mod unpack;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanBufferBuilder, GenericByteArray, RecordBatch, make_view};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::datatypes::{
    ArrowNativeType, BinaryType, ByteArrayType, DataType, LargeBinaryType, LargeUtf8Type, Schema, SchemaRef, Utf8Type,
};

use super::picks::BatchRow;
use super::views::{BUFFER, INLINE, is_view};
use super::{record_batch, uncopied};
pub(crate) use unpack::unpack;

use rowdex_base::error::{Error, ErrorKind, Result};

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
                (PackedField::View { .. }, DataType::Utf8) => in_views(column.as_bytes::<Utf8Type>()),
                (PackedField::View { .. }, DataType::LargeUtf8) => in_views(column.as_bytes::<LargeUtf8Type>()),
                (PackedField::View { .. }, DataType::Binary) => in_views(column.as_bytes::<BinaryType>()),
                (PackedField::View { .. }, DataType::LargeBinary) => in_views(column.as_bytes::<LargeBinaryType>()),
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
fn in_views<T: ByteArrayType>(column: &GenericByteArray<T>) -> (usize, usize) {
    let lengths = column.value_offsets().windows(2).map(|ends| ends[1].as_usize() - ends[0].as_usize());
    let mut all = 0;
    let mut long = 0;
    for length in lengths {
        all += length;
        long += if length > INLINE as usize { length } else { 0 };
    }
    (column.len() * VIEW + long, column.len() * size_of::<T::Offset>() + all)
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary)
}

/// Rows that are packed.
#[derive(Debug)]
pub struct PackedRows {
    layout: Arc<Layout>,
    rows: usize,
    bytes: Vec<u8>,
    beside: SharedValues,
    /// Of each column the long values that no other rows show, if any column has such. They are buffer number 0.
    own: Vec<Buffer>,
}

/// What columns have beside the values of rows, among which those of a [`PackedRows`] begin at `first`. One for all
/// pieces of many rows: of some hundred columns it would take as much as the values of a piece.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedValues {
    pub(super) columns: Arc<[Beside]>,
    pub(super) first: usize,
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
        /// A whole number of words, so that no column begins inside of one.
        const ALIGN: usize = 8;
        let bytes = |bits: &BooleanBuffer| bits.len().div_ceil(8).next_multiple_of(ALIGN);
        let mut all: Vec<u8> = Vec::with_capacity(columns.iter().flat_map(Self::all_bits).map(bytes).sum());
        for bits in columns.iter().flat_map(Self::all_bits) {
            let end = all.len() + bytes(bits);
            all.extend_from_slice(bits.sliced().get(..bits.len().div_ceil(8)).unwrap_or_default());
            all.resize(end, 0);
        }
        let all = Buffer::from_vec(all);
        let mut at = 0;
        for bits in columns.iter_mut().flat_map(|column| [&mut column.there, &mut column.bits]).flatten() {
            let length = bytes(bits);
            *bits = BooleanBuffer::new(all.slice_with_length(at, length), 0, bits.len());
            at += length;
        }
    }

    fn all_bits(&self) -> impl Iterator<Item = &BooleanBuffer> {
        [&self.there, &self.bits].into_iter().flatten()
    }
}

impl PackedRows {
    /// Rows of this layout, one after the other in `bytes`, and what each column has beside them, if any has something.
    pub(super) fn of(layout: Arc<Layout>, rows: usize, bytes: Vec<u8>, beside: SharedValues, own: Vec<Buffer>) -> Self {
        Self { layout, rows, bytes, beside, own }
    }

    /// What views of a column show under this number.
    fn buffer(&self, column: usize, number: usize) -> Option<&Buffer> {
        match self.own.get(column) {
            Some(own) if number == 0 => Some(own),
            _ => self.beside.columns.get(column)?.buffers.get(number),
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

    /// Bytes of memory that it keeps alive.
    pub fn bytes(&self) -> u64 {
        self.bytes_but(&mut HashSet::new())
    }

    /// Bytes of memory that it keeps alive, without what was `seen`, by its address.
    pub fn bytes_but(&self, seen: &mut HashSet<usize>) -> u64 {
        let mut bytes = (self.bytes.capacity() + self.own.iter().map(Buffer::capacity).sum::<usize>()) as u64;
        for beside in self.beside.columns.iter() {
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
    /// [`ErrorKind::TooLarge`] if the rows do not fit one batch.
    pub fn take(&self, slots: &[u32], schema: &SchemaRef) -> Result<RecordBatch> {
        let places: Vec<BatchRow> = slots.iter().map(|slot| (0, *slot)).collect();
        let mut columns = unpack(&[self], &places, schema)?;
        for (column, field) in columns.iter_mut().zip(schema.fields()) {
            if column.data_type() != field.data_type() {
                let viewed = arrow::compute::cast(column, field.data_type());
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

/// Packs rows that come in chunks.
#[derive(Debug)]
pub struct Packer {
    layout: Arc<Layout>,
    /// The first column of the next chunk, and its first row.
    first: usize,
    rows: usize,
    bytes: Vec<u8>,
    columns: Vec<ColumnPacker>,
}

/// What a column has had so far.
#[derive(Debug, Default)]
struct ColumnPacker {
    there: Option<BooleanBufferBuilder>,
    bits: Option<BooleanBufferBuilder>,
    buffers: Vec<Buffer>,
    /// The places of buffers among `buffers`, by their addresses and lengths.
    known: HashMap<(usize, usize), u32>,
    /// Longer values of strings or bytes that came without views, until they fill a buffer or all rows are there.
    long: Vec<u8>,
}

impl Packer {
    /// For so many rows.
    pub fn new(layout: Arc<Layout>, rows: usize) -> Self {
        let mut bytes = Vec::new();
        // The number of rows comes from a file. If it cannot be true, the rows that there are grow to what they need.
        let _ = bytes.try_reserve_exact(rows.saturating_mul(layout.stride));
        let columns = layout.columns.iter().map(|_| ColumnPacker::default()).collect();
        Self { layout, first: 0, rows: 0, bytes, columns }
    }

    /// Says that the chunks to come have the columns from this one on, and begin with the first row again.
    pub fn begin_columns(&mut self, first: usize) {
        (self.first, self.rows) = (first, 0);
    }

    /// Adds the rows of a chunk, or some of their columns.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if it has other columns than the layout.
    pub fn push(&mut self, chunk: &RecordBatch) -> Result<()> {
        let Some(stored_fields) = self.layout.part(self.first, chunk) else {
            return Err(Error::new(ErrorKind::Internal, "a chunk has other columns than the rows that it goes to"));
        };
        let count = chunk.num_rows();
        let stride = self.layout.stride;
        let start = self.rows * stride;
        if self.bytes.len() < start + count * stride {
            self.bytes.resize(start + count * stride, 0);
        }
        let mut values = Vec::with_capacity(stored_fields.len());
        let columns = self.columns.get_mut(self.first..).unwrap_or_default();
        for ((packing, stored), column) in columns.iter_mut().zip(stored_fields).zip(chunk.columns()) {
            packing.note_nulls(column.nulls(), self.rows, count);
            match *stored {
                PackedField::Bits => {
                    let bits = packing.bits.get_or_insert_with(|| BooleanBufferBuilder::new(count));
                    bits.append_buffer(column.as_boolean().values());
                }
                PackedField::Fixed { at, width } => {
                    let data = column.to_data();
                    let begin = data.offset() * width;
                    values.push((at, width, data.buffers()[0].slice_with_length(begin, count * width)));
                }
                PackedField::View { at } => values.push((at, VIEW, packing.views_of(column.as_ref()))),
            }
        }
        let rows_of_block = self.layout.rows_of_block();
        for (block, rows) in self.bytes[start..start + count * stride].chunks_mut(rows_of_block * stride).enumerate() {
            for (at, width, values) in &values {
                let values = &values[block * rows_of_block * width..];
                match width {
                    1 => scatter::<1>(rows, stride, *at, values),
                    2 => scatter::<2>(rows, stride, *at, values),
                    4 => scatter::<4>(rows, stride, *at, values),
                    8 => scatter::<8>(rows, stride, *at, values),
                    16 => scatter::<16>(rows, stride, *at, values),
                    width => {
                        for (row, value) in rows.chunks_exact_mut(stride).zip(values.chunks_exact((*width).max(1))) {
                            row[*at..*at + width].copy_from_slice(value);
                        }
                    }
                }
            }
        }
        self.rows += count;
        Ok(())
    }

    /// All rows.
    pub fn finish(mut self) -> PackedRows {
        self.bytes.shrink_to_fit();
        let beside = |mut packing: ColumnPacker| {
            packing.end_long();
            Beside {
                there: packing.there.map(|mut there| there.finish()),
                bits: packing.bits.map(|mut bits| bits.finish()),
                buffers: packing.buffers,
            }
        };
        let mut columns: Vec<Beside> = self.columns.into_iter().map(beside).collect();
        Beside::settle_bits(&mut columns);
        let beside = SharedValues { columns: columns.into(), first: 0 };
        PackedRows { layout: self.layout, rows: self.rows, bytes: self.bytes, beside, own: Vec::new() }
    }
}

/// Puts a value into each row.
fn scatter<const W: usize>(rows: &mut [u8], stride: usize, at: usize, values: &[u8]) {
    for (row, value) in rows.chunks_exact_mut(stride).zip(values.as_chunks::<W>().0) {
        row[at..at + W].copy_from_slice(value);
    }
}

impl ColumnPacker {
    fn note_nulls(&mut self, nulls: Option<&NullBuffer>, before: usize, count: usize) {
        match (nulls, &mut self.there) {
            (Some(nulls), there) => {
                let there = there.get_or_insert_with(|| {
                    let mut there = BooleanBufferBuilder::new(before + count);
                    there.append_n(before, true);
                    there
                });
                there.append_buffer(nulls.inner());
            }
            (None, Some(there)) => there.append_n(count, true),
            (None, None) => {}
        }
    }

    /// Views of the values of a chunk.
    fn views_of(&mut self, column: &dyn Array) -> Buffer {
        match column.data_type() {
            DataType::Utf8 => self.copied(column.as_bytes::<Utf8Type>()),
            DataType::LargeUtf8 => self.copied(column.as_bytes::<LargeUtf8Type>()),
            DataType::Binary => self.copied(column.as_bytes::<BinaryType>()),
            DataType::LargeBinary => self.copied(column.as_bytes::<LargeBinaryType>()),
            _ => self.renumbered(column),
        }
    }

    /// Views of values that are copied, where they do not fit the views.
    fn copied<T: ByteArrayType>(&mut self, column: &GenericByteArray<T>) -> Buffer {
        let offsets = column.value_offsets();
        let data = column.value_data();
        let nulls = column.nulls();
        let view = |row: usize| {
            if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                return 0;
            }
            let value = &data[offsets[row].as_usize()..offsets[row + 1].as_usize()];
            if value.len() <= INLINE as usize {
                return make_view(value, 0, 0);
            }
            if self.long.len() + value.len() > u32::MAX as usize {
                self.end_long();
            }
            let at = self.long.len() as u32;
            self.long.extend_from_slice(value);
            make_view(value, self.buffers.len() as u32, at)
        };
        Buffer::from_vec((0..column.len()).map(view).collect::<Vec<u128>>())
    }

    fn end_long(&mut self) {
        if !self.long.is_empty() {
            self.long.shrink_to_fit();
            self.buffers.push(Buffer::from_vec(std::mem::take(&mut self.long)));
        }
    }

    /// The views of a chunk, with the numbers that the buffers of their values have here. A null has no bytes.
    fn renumbered(&mut self, column: &dyn Array) -> Buffer {
        let (views, buffers) = match column.as_string_view_opt() {
            Some(strings) => (strings.views(), strings.data_buffers()),
            None => (column.as_binary_view().views(), column.as_binary_view().data_buffers()),
        };
        let mut numbers: Vec<Option<u32>> = vec![None; buffers.len()];
        let mut of_buffer = |view: u128| {
            let number = (view >> BUFFER) as u32 as usize;
            // No buffer has the last number, so such a view is noticed when its value is looked up.
            let (Some(buffer), Some(own)) = (buffers.get(number), numbers.get_mut(number)) else {
                return view | u128::from(u32::MAX) << BUFFER;
            };
            let own = *own.get_or_insert_with(|| {
                *self.known.entry((buffer.as_ptr() as usize, buffer.len())).or_insert_with(|| {
                    self.buffers.push(buffer.clone());
                    self.buffers.len() as u32 - 1
                })
            });
            view & !(u128::from(u32::MAX) << BUFFER) | u128::from(own) << BUFFER
        };
        let nulls = column.nulls();
        let view = |(row, view): (usize, &u128)| match *view {
            _ if nulls.is_some_and(|nulls| nulls.is_null(row)) => 0,
            view if view as u32 <= INLINE => view,
            view => of_buffer(view),
        };
        Buffer::from_vec(views.iter().enumerate().map(view).collect::<Vec<u128>>())
    }
}
