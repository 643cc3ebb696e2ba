//! Columns out of packed rows.

use std::hint::black_box;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, FixedSizeBinaryArray, GenericByteArray};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowNativeType, BinaryType, ByteArrayType, DataType, LargeBinaryType, LargeUtf8Type, Schema, Utf8Type, i256,
};
use arrow::error::ArrowError;

use super::super::flat::primitive;
use super::super::picks::BatchRow;
use super::super::uncopied;
use super::super::views::{BUFFER, INLINE, PLACE};
use super::{Beside, PackedField, PackedRows};
use rowdex_base::error::Result;

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
        return Ok(served.fields().iter().map(|field| arrow::array::new_empty_array(field.data_type())).collect());
    };
    let layout = &*first.layout;
    let mut columns: Vec<Option<Box<dyn UnpackedColumn>>> = Vec::with_capacity(layout.columns.len());
    for (number, (stored, field)) in layout.columns.iter().zip(served.fields()).enumerate() {
        columns.push(column(*stored, number, field.data_type(), places.len()));
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
    let of = |source: &&'a PackedRows| Some((source.beside.columns.get(column).and_then(&bits)?, source.beside.first));
    let all: Vec<Option<(&BooleanBuffer, usize)>> = sources.iter().map(of).collect();
    let bit =
        |(source, row): BatchRow| all[source as usize].is_none_or(|(bits, first)| bits.value(first + row as usize));
    all.iter().any(Option::is_some).then(|| BooleanBuffer::collect_bool(places.len(), |row| bit(places[row])))
}

/// A column that is taken out of rows, block by block.
trait UnpackedColumn {
    /// Adds the values of these rows, which come from these places.
    fn append(
        &mut self,
        rows: &[u8],
        stride: usize,
        places: &[BatchRow],
        sources: &[&PackedRows],
    ) -> Result<(), ArrowError>;

    fn finish(
        self: Box<Self>,
        data_type: &DataType,
        rows: usize,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, ArrowError>;
}

/// The column that lies so; `None` if it is of bits.
fn column(stored: PackedField, number: usize, wanted: &DataType, rows: usize) -> Option<Box<dyn UnpackedColumn>> {
    Some(match stored {
        PackedField::Bits => return None,
        PackedField::View { at } => match wanted {
            DataType::Utf8 => Box::new(UnpackedText::<Utf8Type>::new(at, number, rows)),
            DataType::LargeUtf8 | DataType::Utf8View => Box::new(UnpackedText::<LargeUtf8Type>::new(at, number, rows)),
            DataType::Binary => Box::new(UnpackedText::<BinaryType>::new(at, number, rows)),
            _ => Box::new(UnpackedText::<LargeBinaryType>::new(at, number, rows)),
        },
        PackedField::Fixed { at, width } => match (width, wanted) {
            (_, DataType::FixedSizeBinary(_)) => {
                Box::new(UnpackedBytes { at, width, values: Vec::with_capacity(rows * width) })
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
trait FixedWord<const W: usize>: ArrowNativeType {
    fn of(bytes: &[u8; W]) -> Self;
}

macro_rules! fixed_word {
    ($($word:ty, $width:literal);*) => {$(
        impl FixedWord<$width> for $word {
            fn of(bytes: &[u8; $width]) -> Self {
                Self::from_ne_bytes(*bytes)
            }
        }
    )*};
}

fixed_word!(u8, 1; u16, 2; u32, 4; u64, 8; i128, 16);

impl FixedWord<32> for i256 {
    fn of(bytes: &[u8; 32]) -> Self {
        if cfg!(target_endian = "little") { Self::from_le_bytes(*bytes) } else { Self::from_be_bytes(*bytes) }
    }
}

struct Words<N, const W: usize> {
    at: usize,
    values: Vec<N>,
}

impl<N: FixedWord<W>, const W: usize> Words<N, W> {
    fn new(at: usize, rows: usize) -> Self {
        Self { at, values: Vec::with_capacity(rows) }
    }
}

impl<N: FixedWord<W>, const W: usize> UnpackedColumn for Words<N, W> {
    fn append(&mut self, rows: &[u8], stride: usize, _: &[BatchRow], _: &[&PackedRows]) -> Result<(), ArrowError> {
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
struct UnpackedBytes {
    at: usize,
    width: usize,
    values: Vec<u8>,
}

impl UnpackedColumn for UnpackedBytes {
    fn append(&mut self, rows: &[u8], stride: usize, _: &[BatchRow], _: &[&PackedRows]) -> Result<(), ArrowError> {
        rows.chunks_exact(stride).for_each(|row| self.values.extend_from_slice(&row[self.at..self.at + self.width]));
        Ok(())
    }

    fn finish(self: Box<Self>, _: &DataType, rows: usize, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        let width = i32::try_from(self.width).map_err(|_| ArrowError::OffsetOverflowError(self.width))?;
        Ok(Arc::new(FixedSizeBinaryArray::try_new_with_len(width, Buffer::from_vec(self.values), nulls, rows)?))
    }
}

/// Views, which become strings or bytes.
struct UnpackedText<T: ByteArrayType> {
    at: usize,
    column: usize,
    rows: usize,
    offsets: Vec<T::Offset>,
    data: Vec<u8>,
}

impl<T: ByteArrayType> UnpackedText<T> {
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

impl<T: ByteArrayType> UnpackedColumn for UnpackedText<T> {
    fn append(
        &mut self,
        rows: &[u8],
        stride: usize,
        places: &[BatchRow],
        sources: &[&PackedRows],
    ) -> Result<(), ArrowError> {
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
