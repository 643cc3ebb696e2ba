//! Columns out of packed rows.

use std::hint::black_box;
use std::slice::ChunksExact;
use std::sync::Arc;

use arrow_array::types::{BinaryType, ByteArrayType, LargeBinaryType, LargeUtf8Type, Utf8Type};
use arrow_array::{ArrayRef, BooleanArray, FixedSizeBinaryArray, GenericByteArray};
use arrow_buffer::{BooleanBuffer, Buffer, MutableBuffer, NullBuffer};
use arrow_schema::ArrowError;
use arrow_schema::{DataType, Schema};

use super::super::flat::{ends, primitive};
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
            UnpackedColumn::Fixed { values, .. } => fixed(own, values.into(), places.len(), nulls),
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

fn fixed(own: &DataType, values: Buffer, rows: usize, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
    match own {
        DataType::FixedSizeBinary(width) => {
            Ok(Arc::new(FixedSizeBinaryArray::try_new_with_len(*width, values, nulls, rows)?))
        }
        _ => primitive(own, values, rows, nulls),
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
