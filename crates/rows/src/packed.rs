//! Rows whose narrow columns lie side by side, one row after the other.
//!
//! A row that is picked at random costs a miss of the cache, and of the page-table cache, for each column that lies
//! apart, and one or two where the row lies in one piece. So rows that wait in memory to be picked from, or to be due,
//! are packed: N-ary storage, against the decomposed storage that Arrow has (A. Ailamaki and others, "Weaving Relations
//! for Cache Performance", VLDB 2001, compares both). Batches have columns again; a block of rows that was copied
//! together is in the core's cache when its columns are taken apart. Nulls and booleans are a bit for a row, so they
//! stay columns.

use std::collections::{HashMap, HashSet};
use std::hint::black_box;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, BooleanBufferBuilder, FixedSizeBinaryArray, GenericByteArray, RecordBatch,
    make_view,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowNativeType, BinaryType, ByteArrayType, DataType, LargeBinaryType, LargeUtf8Type, Schema, SchemaRef, Utf8Type,
    i256,
};
use arrow::error::ArrowError;

use super::flat::primitive;
use super::picks::Place;
use super::views::{BUFFER, INLINE, PLACE, is_view};
use super::{record_batch, uncopied};
use rowdex_base::error::{Error, ErrorKind, Result};

/// Bytes of a view.
pub(super) const VIEW: usize = 16;
/// Bytes of the rows of a block, whose columns are taken apart while they are in the core's first cache.
const BLOCK: usize = 16 << 10;
/// Rows of up to four cache lines; of longer ones the processor loads the rest ahead itself.
const TOUCHED: usize = 256;
/// With fewer columns of values, a row has no more misses where they lie apart.
const LEAST: usize = 2;

/// Where the values of a row lie.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    pub(super) types: Vec<DataType>,
    pub(super) columns: Vec<Lie>,
    /// Bytes of a row.
    pub(super) stride: usize,
}

/// Where a column has its value in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lie {
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
        let (mut columns, mut stride) = (Vec::with_capacity(schema.fields().len()), 0);
        for (field, wanted) in schema.fields().iter().zip(served.fields()) {
            let width = match field.data_type() {
                DataType::Boolean if *wanted.data_type() == DataType::Boolean => {
                    columns.push(Lie::Bits);
                    continue;
                }
                own if is_text(wanted.data_type()) && (is_view(own) || own == wanted.data_type()) => {
                    columns.push(Lie::View { at: stride });
                    stride += VIEW;
                    continue;
                }
                // What is made of these when they are served is made of columns.
                other if other != wanted.data_type() => return None,
                DataType::FixedSizeBinary(width) => usize::try_from(*width).ok()?,
                other => other.primitive_width()?,
            };
            columns.push(Lie::Fixed { at: stride, width });
            stride += width;
        }
        let types = schema.fields().iter().map(|field| field.data_type().clone()).collect();
        let values = columns.iter().filter(|lie| **lie != Lie::Bits).count();
        (values >= LEAST && stride > 0).then(|| Arc::new(Self { types, columns, stride }))
    }

    /// Whether rows like these hardly take more memory when they are packed: short strings take a view each.
    pub fn is_worth(&self, chunk: &RecordBatch) -> bool {
        /// The part of the memory that they may take besides.
        const PART: usize = 16;
        let rows = chunk.num_rows();
        let (mut packed, mut apart) = (0_usize, 0_usize);
        for (lie, column) in self.columns.iter().zip(chunk.columns()) {
            let (own, others) = match (lie, column.data_type()) {
                (Lie::Bits, _) => continue,
                (Lie::Fixed { width, .. }, _) => (rows * width, rows * width),
                (Lie::View { .. }, DataType::Utf8) => in_views(column.as_bytes::<Utf8Type>()),
                (Lie::View { .. }, DataType::LargeUtf8) => in_views(column.as_bytes::<LargeUtf8Type>()),
                (Lie::View { .. }, DataType::Binary) => in_views(column.as_bytes::<BinaryType>()),
                (Lie::View { .. }, DataType::LargeBinary) => in_views(column.as_bytes::<LargeBinaryType>()),
                (Lie::View { .. }, _) => (rows * VIEW, rows * VIEW),
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
    let (mut all, mut long) = (0, 0);
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
pub struct Packed {
    layout: Arc<Layout>,
    rows: usize,
    bytes: Vec<u8>,
    beside: Shared,
    /// Of each column the long values that no other rows show, if any column has such. They are buffer number 0.
    own: Vec<Buffer>,
}

/// What columns have beside the values of rows, among which those of a [`Packed`] begin at `first`. One for all pieces
/// of many rows: of some hundred columns it would take as much as the values of a piece.
#[derive(Debug, Clone, Default)]
pub(super) struct Shared {
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
}

impl Packed {
    /// Rows of this layout, one after the other in `bytes`, and what each column has beside them, if any has something.
    pub(super) fn of(layout: Arc<Layout>, rows: usize, bytes: Vec<u8>, beside: Shared, own: Vec<Buffer>) -> Self {
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
        for Beside { there, bits, buffers } in self.beside.columns.iter() {
            let bits = [there, bits].into_iter().flatten().map(BooleanBuffer::inner);
            for buffer in bits.chain(buffers) {
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
        let places: Vec<Place> = slots.iter().map(|slot| (0, *slot)).collect();
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
    rows: usize,
    bytes: Vec<u8>,
    columns: Vec<Packing>,
}

/// What a column has had so far.
#[derive(Debug, Default)]
struct Packing {
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
        let columns = layout.columns.iter().map(|_| Packing::default()).collect();
        Self { layout, rows: 0, bytes, columns }
    }

    /// Adds the rows of a chunk.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if it has other columns than the layout.
    pub fn push(&mut self, chunk: &RecordBatch) -> Result<()> {
        let types = chunk.columns().iter().map(|column| column.data_type());
        if !types.eq(&self.layout.types) {
            return Err(Error::new(ErrorKind::Internal, "a chunk has other columns than the rows that it goes to"));
        }
        let (start, count, stride) = (self.bytes.len(), chunk.num_rows(), self.layout.stride);
        self.bytes.resize(start + count * stride, 0);
        let mut values = Vec::with_capacity(self.columns.len());
        for ((packing, lie), column) in self.columns.iter_mut().zip(&self.layout.columns).zip(chunk.columns()) {
            packing.note_nulls(column.nulls(), self.rows, count);
            match *lie {
                Lie::Bits => {
                    let bits = packing.bits.get_or_insert_with(|| BooleanBufferBuilder::new(count));
                    bits.append_buffer(column.as_boolean().values());
                }
                Lie::Fixed { at, width } => {
                    let data = column.to_data();
                    let begin = data.offset() * width;
                    values.push((at, width, data.buffers()[0].slice_with_length(begin, count * width)));
                }
                Lie::View { at } => values.push((at, VIEW, packing.views_of(column.as_ref()))),
            }
        }
        let rows_of_block = self.layout.rows_of_block();
        for (block, rows) in self.bytes[start..].chunks_mut(rows_of_block * stride).enumerate() {
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
    pub fn finish(mut self) -> Packed {
        self.bytes.shrink_to_fit();
        let beside = |mut packing: Packing| {
            packing.end_long();
            Beside {
                there: packing.there.map(|mut there| there.finish()),
                bits: packing.bits.map(|mut bits| bits.finish()),
                buffers: packing.buffers,
            }
        };
        let beside = Shared { columns: self.columns.into_iter().map(beside).collect(), first: 0 };
        Packed { layout: self.layout, rows: self.rows, bytes: self.bytes, beside, own: Vec::new() }
    }
}

/// Puts a value into each row.
fn scatter<const W: usize>(rows: &mut [u8], stride: usize, at: usize, values: &[u8]) {
    for (row, value) in rows.chunks_exact_mut(stride).zip(values.as_chunks::<W>().0) {
        row[at..at + W].copy_from_slice(value);
    }
}

impl Packing {
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
        let (offsets, data, nulls) = (column.value_offsets(), column.value_data(), column.nulls());
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

/// The rows at these places, in that order, column by column. Views become what `served` has in their place, and
/// strings or bytes with large offsets where it has views. All sources are [alike](Packed::is_like), and places are
/// inside them.
///
/// # Errors
/// [`ErrorKind::TooLarge`] if the rows do not fit the offsets of a column.
pub(crate) fn unpack(sources: &[&Packed], places: &[Place], served: &Schema) -> Result<Vec<ArrayRef>> {
    let Some(first) = sources.first() else {
        return Ok(served.fields().iter().map(|field| arrow::array::new_empty_array(field.data_type())).collect());
    };
    let layout = &*first.layout;
    let mut columns: Vec<Option<Box<dyn Column>>> = Vec::with_capacity(layout.columns.len());
    for (number, (lie, field)) in layout.columns.iter().zip(served.fields()).enumerate() {
        columns.push(column(*lie, number, field.data_type(), places.len()));
    }
    let mut rows: Vec<u8> = Vec::with_capacity(layout.rows_of_block() * layout.stride);
    for block in places.chunks(layout.rows_of_block()) {
        rows.clear();
        if layout.stride <= TOUCHED {
            touch(block, sources, layout.stride);
        }
        block.iter().for_each(|(source, row)| rows.extend_from_slice(sources[*source as usize].row(*row)));
        for (column, field) in columns.iter_mut().zip(served.fields()) {
            let Some(column) = column else { continue };
            let taken = column.append(&rows, layout.stride, block, sources);
            taken.map_err(|error| uncopied(error).with_column(field.name()))?;
        }
    }
    let mut arrays = Vec::with_capacity(columns.len());
    for (number, ((column, data_type), field)) in
        columns.into_iter().zip(&layout.types).zip(served.fields()).enumerate()
    {
        let there = bits_of(sources, places, |beside| beside.there.as_ref(), number);
        let nulls = there.map(NullBuffer::new).filter(|nulls| nulls.null_count() > 0);
        let array = match column {
            Some(column) => column.finish(data_type, places.len(), nulls),
            None => {
                let bits = bits_of(sources, places, |beside| beside.bits.as_ref(), number);
                Ok(Arc::new(BooleanArray::new(bits.unwrap_or_else(|| BooleanBuffer::new_unset(places.len())), nulls))
                    as ArrayRef)
            }
        };
        arrays.push(array.map_err(|error| uncopied(error).with_column(field.name()))?);
    }
    Ok(arrays)
}

/// Loads a byte of each cache line that a row begins or ends in. No load waits for another, as they would behind the
/// copies of whole rows.
fn touch(places: &[Place], sources: &[&Packed], stride: usize) {
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
    sources: &[&'a Packed],
    places: &[Place],
    bits: impl Fn(&'a Beside) -> Option<&'a BooleanBuffer>,
    column: usize,
) -> Option<BooleanBuffer> {
    let of = |source: &&'a Packed| Some((source.beside.columns.get(column).and_then(&bits)?, source.beside.first));
    let all: Vec<Option<(&BooleanBuffer, usize)>> = sources.iter().map(of).collect();
    let bit = |(source, row): Place| all[source as usize].is_none_or(|(bits, first)| bits.value(first + row as usize));
    all.iter().any(Option::is_some).then(|| BooleanBuffer::collect_bool(places.len(), |row| bit(places[row])))
}

/// A column that is taken out of rows, block by block.
trait Column {
    /// Adds the values of these rows, which come from these places.
    fn append(&mut self, rows: &[u8], stride: usize, places: &[Place], sources: &[&Packed]) -> Result<(), ArrowError>;

    fn finish(
        self: Box<Self>,
        data_type: &DataType,
        rows: usize,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, ArrowError>;
}

/// The column that lies so; `None` if it is of bits.
fn column(lie: Lie, number: usize, wanted: &DataType, rows: usize) -> Option<Box<dyn Column>> {
    Some(match lie {
        Lie::Bits => return None,
        Lie::View { at } => match wanted {
            DataType::Utf8 => Box::new(Texts::<Utf8Type>::new(at, number, rows)),
            DataType::LargeUtf8 | DataType::Utf8View => Box::new(Texts::<LargeUtf8Type>::new(at, number, rows)),
            DataType::Binary => Box::new(Texts::<BinaryType>::new(at, number, rows)),
            _ => Box::new(Texts::<LargeBinaryType>::new(at, number, rows)),
        },
        Lie::Fixed { at, width } => match (width, wanted) {
            (_, DataType::FixedSizeBinary(_)) => {
                Box::new(Bytes { at, width, values: Vec::with_capacity(rows * width) })
            }
            (1, _) => Box::new(Words::<u8, 1>::new(at, rows)),
            (2, _) => Box::new(Words::<u16, 2>::new(at, rows)),
            (4, _) => Box::new(Words::<u32, 4>::new(at, rows)),
            (8, _) => Box::new(Words::<u64, 8>::new(at, rows)),
            (16, _) => Box::new(Words::<i128, 16>::new(at, rows)),
            _ => Box::new(Words::<i256, 32>::new(at, rows)),
        },
    })
}

/// Values of one width, whatever they stand for.
trait Word<const W: usize>: ArrowNativeType {
    fn of(bytes: &[u8; W]) -> Self;
}

macro_rules! word {
    ($($word:ty, $width:literal);*) => {$(
        impl Word<$width> for $word {
            fn of(bytes: &[u8; $width]) -> Self {
                Self::from_ne_bytes(*bytes)
            }
        }
    )*};
}

word!(u8, 1; u16, 2; u32, 4; u64, 8; i128, 16);

impl Word<32> for i256 {
    fn of(bytes: &[u8; 32]) -> Self {
        if cfg!(target_endian = "little") { Self::from_le_bytes(*bytes) } else { Self::from_be_bytes(*bytes) }
    }
}

struct Words<N, const W: usize> {
    at: usize,
    values: Vec<N>,
}

impl<N: Word<W>, const W: usize> Words<N, W> {
    fn new(at: usize, rows: usize) -> Self {
        Self { at, values: Vec::with_capacity(rows) }
    }
}

impl<N: Word<W>, const W: usize> Column for Words<N, W> {
    fn append(&mut self, rows: &[u8], stride: usize, _: &[Place], _: &[&Packed]) -> Result<(), ArrowError> {
        let value = |row: &[u8]| row[self.at..].first_chunk::<W>().map(N::of).unwrap_or_default();
        self.values.extend(rows.chunks_exact(stride).map(value));
        Ok(())
    }

    fn finish(
        self: Box<Self>,
        data_type: &DataType,
        rows: usize,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, ArrowError> {
        primitive(data_type, Buffer::from_vec(self.values), rows, nulls)
    }
}

/// Values of any width.
struct Bytes {
    at: usize,
    width: usize,
    values: Vec<u8>,
}

impl Column for Bytes {
    fn append(&mut self, rows: &[u8], stride: usize, _: &[Place], _: &[&Packed]) -> Result<(), ArrowError> {
        rows.chunks_exact(stride).for_each(|row| self.values.extend_from_slice(&row[self.at..self.at + self.width]));
        Ok(())
    }

    fn finish(self: Box<Self>, _: &DataType, rows: usize, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        let width = i32::try_from(self.width).map_err(|_| ArrowError::OffsetOverflowError(self.width))?;
        Ok(Arc::new(FixedSizeBinaryArray::try_new_with_len(width, Buffer::from_vec(self.values), nulls, rows)?))
    }
}

/// Views, which become strings or bytes.
struct Texts<T: ByteArrayType> {
    at: usize,
    column: usize,
    rows: usize,
    offsets: Vec<T::Offset>,
    data: Vec<u8>,
}

impl<T: ByteArrayType> Texts<T> {
    fn new(at: usize, column: usize, rows: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(T::Offset::default());
        Self { at, column, rows, offsets, data: Vec::new() }
    }

    /// Makes room for the values of a block, and for those of the blocks behind it, as if they were as long.
    fn reserve(&mut self, rows: &[u8], stride: usize) {
        let view = |row: &[u8]| row[self.at..].first_chunk().map_or(0, |view| u128::from_ne_bytes(*view));
        let here: usize = rows.chunks_exact(stride).map(|row| view(row) as u32 as usize).sum();
        if self.data.capacity() - self.data.len() < here {
            let left = self.rows - (self.offsets.len() - 1);
            let all = here as u128 * left as u128 / (rows.len() / stride).max(1) as u128;
            let all = usize::try_from(all + all / 16).unwrap_or(usize::MAX);
            self.data.reserve_exact(here.max(all));
        }
    }
}

impl<T: ByteArrayType> Column for Texts<T> {
    fn append(&mut self, rows: &[u8], stride: usize, places: &[Place], sources: &[&Packed]) -> Result<(), ArrowError> {
        self.reserve(rows, stride);
        for (row, (source, _)) in rows.chunks_exact(stride).zip(places) {
            let number = row[self.at..].first_chunk().map_or(0, |view| u128::from_ne_bytes(*view));
            let length = number as u32 as usize;
            let view = number.to_le_bytes();
            let value = if length <= INLINE as usize {
                // Behind its length.
                view.get(4..4 + length)
            } else {
                let start = (number >> PLACE) as u32 as usize;
                let buffer = sources[*source as usize].buffer(self.column, (number >> BUFFER) as u32 as usize);
                buffer.and_then(|buffer| buffer.get(start..start + length))
            };
            let Some(value) = value else {
                return Err(ArrowError::ComputeError("a value is not where its view says".into()));
            };
            self.data.extend_from_slice(value);
            let end = T::Offset::from_usize(self.data.len());
            self.offsets.push(end.ok_or(ArrowError::OffsetOverflowError(self.data.len()))?);
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, _: &DataType, _: usize, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        if self.data.capacity() - self.data.len() > self.data.len() / 4 {
            self.data.shrink_to_fit();
        }
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.offsets));
        Ok(Arc::new(GenericByteArray::<T>::try_new(offsets, Buffer::from_vec(self.data), nulls)?))
    }
}
