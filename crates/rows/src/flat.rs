//! Rows of columns that have nothing below them: numbers, strings, bytes, booleans, views.
//!
//! Random rows of decoded row groups are bound by cache misses, so what counts is how many misses are under way at
//! once. Arrow's own kernel goes through the array's struct for each value; here the values of all arrays are first
//! laid out as plain slices, which leaves one independent load per value.

use std::sync::Arc;

use arrow_array::builder::GenericByteBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{BinaryType, ByteArrayType, LargeBinaryType, LargeUtf8Type, Utf8Type};
use arrow_array::{
    Array, ArrayAccessor, ArrayRef, BooleanArray, FixedSizeBinaryArray, GenericByteArray, NullArray, OffsetSizeTrait,
    PrimitiveArray, UInt32Array, downcast_primitive, downcast_primitive_array,
};
use arrow_buffer::{ArrowNativeType, IntervalDayTime, IntervalMonthDayNano, i256};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;
use arrow_schema::{DataType, IntervalUnit};

use super::picks::Picks;

/// An array for each run, of the rows that it picks, if nothing is below the type.
pub(super) fn copy<P: Picks>(
    arrays: &[&dyn Array],
    runs: &[P],
    wanted: &DataType,
) -> Result<Vec<ArrayRef>, ArrowError> {
    use DataType::*;
    match arrays[0].data_type() {
        Interval(IntervalUnit::DayTime) => fixed::<IntervalDayTime, P>(arrays, runs),
        Interval(IntervalUnit::MonthDayNano) => fixed::<IntervalMonthDayNano, P>(arrays, runs),
        // One loop for each width, rather than for each type: what the values mean does not matter to a copy.
        other if other.is_primitive() => match other.primitive_width() {
            Some(1) => fixed::<u8, P>(arrays, runs),
            Some(2) => fixed::<u16, P>(arrays, runs),
            Some(4) => fixed::<u32, P>(arrays, runs),
            Some(8) => fixed::<u64, P>(arrays, runs),
            Some(16) => fixed::<i128, P>(arrays, runs),
            _ => fixed::<i256, P>(arrays, runs),
        },
        Utf8 => appended::<Utf8Type, _, P>(arrays, |array| array.as_string::<i32>(), runs),
        Binary => bytes::<BinaryType, P>(arrays, runs),
        LargeUtf8 => appended::<LargeUtf8Type, _, P>(arrays, |array| array.as_string::<i64>(), runs),
        LargeBinary => bytes::<LargeBinaryType, P>(arrays, runs),
        Utf8View => match wanted {
            Utf8 => appended::<Utf8Type, _, P>(arrays, |array| array.as_string_view(), runs),
            LargeUtf8 => appended::<LargeUtf8Type, _, P>(arrays, |array| array.as_string_view(), runs),
            _ => by_arrow(arrays, runs),
        },
        BinaryView => match wanted {
            Binary => appended::<BinaryType, _, P>(arrays, |array| array.as_binary_view(), runs),
            LargeBinary => appended::<LargeBinaryType, _, P>(arrays, |array| array.as_binary_view(), runs),
            _ => by_arrow(arrays, runs),
        },
        Boolean => Ok(booleans(arrays, runs)),
        FixedSizeBinary(width) => fixed_size_binary(arrays, *width, runs),
        Null => Ok(runs.iter().map(|run| Arc::new(NullArray::new(run.count())) as ArrayRef).collect()),
        _ => by_arrow(arrays, runs),
    }
}

/// The array of the only run.
pub(super) fn only(mut arrays: Vec<ArrayRef>) -> Result<ArrayRef, ArrowError> {
    arrays.pop().ok_or_else(|| ArrowError::ComputeError("rows without an array".into()))
}

/// Values of one width. `N` has that width, and no stricter alignment than the type of the values.
fn fixed<N: ArrowNativeType, P: Picks>(arrays: &[&dyn Array], runs: &[P]) -> Result<Vec<ArrayRef>, ArrowError> {
    let finish = |values: Vec<N>, run: &P| {
        primitive(arrays[0].data_type(), Buffer::from_vec(values), run.count(), nulls(arrays, run))
    };
    // One row of one row group is the most frequent wish, and needs no list of slices.
    if let ([only], [run]) = (arrays, runs)
        && P::SINGLE
    {
        let values = native_values::<N>(*only);
        return Ok(vec![finish(run.rows().map(|(_, row)| values[row]).collect(), run)?]);
    }
    let values: Vec<&[N]> = arrays.iter().map(|array| native_values(*array)).collect();
    let copied = |run: &P| match P::SINGLE {
        true => finish(run.rows().map(|(source, row)| values[source][row]).collect(), run),
        false => finish(concatenated(run.count(), run.spans().map(|(source, rows)| &values[source][rows])), run),
    };
    runs.iter().map(copied).collect()
}

/// The values of an array of a primitive type, as other numbers of the same width; none of any other type.
pub(super) fn native_values<N: ArrowNativeType>(array: &dyn Array) -> &[N] {
    downcast_primitive_array!(
        array => array.values().inner().typed_data(),
        _ => &[],
    )
}

/// An array of a primitive type, of `count` values.
pub(super) fn primitive(
    data_type: &DataType,
    values: Buffer,
    count: usize,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    macro_rules! array {
        ($type:ty) => {{
            let array = PrimitiveArray::<$type>::try_new(ScalarBuffer::new(values, 0, count), nulls)?;
            Ok(Arc::new(array.with_data_type(data_type.clone())))
        }};
    }
    downcast_primitive! {
        data_type => (array),
        other => Err(ArrowError::InvalidArgumentError(format!("{other} is no primitive type"))),
    }
}

fn bytes<T: ByteArrayType, P: Picks>(arrays: &[&dyn Array], runs: &[P]) -> Result<Vec<ArrayRef>, ArrowError> {
    let arrays_of_type: Vec<&GenericByteArray<T>> = arrays.iter().map(|array| array.as_bytes::<T>()).collect();
    let offsets: Vec<&[T::Offset]> = arrays_of_type.iter().map(|array| array.value_offsets()).collect();
    let data: Vec<&[u8]> = arrays_of_type.iter().map(|array| array.value_data()).collect();
    let copied = |run: &P| {
        // All offsets first: their misses do not wait for one another, as they would behind the copy of each value.
        let span = |(source, rows): (usize, std::ops::Range<usize>)| {
            let own = offsets[source];
            &data[source][own[rows.start].as_usize()..own[rows.end].as_usize()]
        };
        let spans: Vec<&[u8]> = run.spans().map(span).collect();
        let ends = match P::SINGLE {
            true => ends(run.count(), spans.iter().map(|span| span.len()))?,
            false => {
                let length =
                    |(source, row): (usize, usize)| (offsets[source][row + 1] - offsets[source][row]).as_usize();
                ends(run.count(), run.rows().map(length))?
            }
        };
        byte_array::<T>(&spans, ends, nulls(arrays, run))
    };
    runs.iter().map(copied).collect()
}

/// Strings, or bytes out of views, one after the other. Strings come from arrays, so a builder need not look again
/// whether they are UTF-8, which takes as long as copying them, and several times as long where they are not ASCII.
fn appended<'a, T: ByteArrayType<Native: 'a>, A: ArrayAccessor<Item = &'a T::Native>, P: Picks>(
    arrays: &[&'a dyn Array],
    of_type: fn(&'a dyn Array) -> A,
    runs: &[P],
) -> Result<Vec<ArrayRef>, ArrowError> {
    let sources: Vec<A> = arrays.iter().map(|array| of_type(*array)).collect();
    // A null may have any value, and is written as no bytes.
    let value = |(source, row): (usize, usize)| sources[source].is_valid(row).then(|| sources[source].value(row));
    let copied = |run: &P| -> Result<ArrayRef, ArrowError> {
        let values: Vec<Option<&T::Native>> = run.rows().map(value).collect();
        let total = values.iter().flatten().map(|value| AsRef::<[u8]>::as_ref(*value).len()).sum();
        T::Offset::from_usize(total).ok_or(ArrowError::OffsetOverflowError(total))?;
        let mut builder = GenericByteBuilder::<T>::with_capacity(values.len(), total);
        values.into_iter().for_each(|value| builder.append_option(value));
        Ok(Arc::new(builder.finish()))
    };
    runs.iter().map(copied).collect()
}

fn byte_array<T: ByteArrayType>(
    spans: &[&[u8]],
    ends: OffsetBuffer<T::Offset>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    let total = ends.last().map_or(0, |end| end.as_usize());
    let spans = spans.iter().copied();
    let values = Buffer::from_vec(concatenated(total, spans));
    Ok(Arc::new(GenericByteArray::<T>::try_new(ends, values, nulls)?))
}

fn booleans<P: Picks>(arrays: &[&dyn Array], runs: &[P]) -> Vec<ArrayRef> {
    let values: Vec<Option<&BooleanBuffer>> = arrays.iter().map(|array| Some(array.as_boolean().values())).collect();
    let copied = |run: &P| -> ArrayRef { Arc::new(BooleanArray::new(run.bits_of(&values), nulls(arrays, run))) };
    runs.iter().map(copied).collect()
}

fn fixed_size_binary<P: Picks>(arrays: &[&dyn Array], width: i32, runs: &[P]) -> Result<Vec<ArrayRef>, ArrowError> {
    let values: Vec<&[u8]> = arrays.iter().map(|array| array.as_fixed_size_binary().value_data()).collect();
    let size = width.unsigned_abs() as usize;
    let copied = |run: &P| -> Result<ArrayRef, ArrowError> {
        let spans = run.spans().map(|(source, rows)| &values[source][rows.start * size..rows.end * size]);
        let bytes = concatenated(run.count() * size, spans);
        let nulls = nulls(arrays, run);
        Ok(Arc::new(FixedSizeBinaryArray::try_new_with_len(width, Buffer::from_vec(bytes), nulls, run.count())?))
    };
    runs.iter().map(copied).collect()
}

/// Views, whose values are not copied, and types that no Parquet file decodes to.
fn by_arrow<P: Picks>(arrays: &[&dyn Array], runs: &[P]) -> Result<Vec<ArrayRef>, ArrowError> {
    if let ([only], true) = (arrays, P::SINGLE) {
        let taken = |run: &P| {
            let rows = UInt32Array::from_iter_values(run.rows().map(|(_, row)| row as u32));
            arrow_select::take::take(*only, &rows, None)
        };
        return runs.iter().map(taken).collect();
    }
    runs.iter().map(|run| arrow_select::interleave::interleave(arrays, &run.rows().collect::<Vec<_>>())).collect()
}

fn concatenated<'a, T: Copy + 'a>(total: usize, spans: impl Iterator<Item = &'a [T]>) -> Vec<T> {
    let mut all = Vec::with_capacity(total);
    spans.for_each(|span| all.extend_from_slice(span));
    all
}

/// Offsets of so many spans of these lengths that lie one after the other.
pub(super) fn ends<O: OffsetSizeTrait>(
    count: usize,
    lengths: impl Iterator<Item = usize>,
) -> Result<OffsetBuffer<O>, ArrowError> {
    let mut ends = Vec::with_capacity(count + 1);
    let mut length = 0usize;
    ends.push(O::default());
    for span in lengths {
        length += span;
        ends.push(O::from_usize(length).ok_or(ArrowError::OffsetOverflowError(length))?);
    }
    Ok(OffsetBuffer::new(ScalarBuffer::from(ends)))
}

pub(super) fn nulls<P: Picks>(arrays: &[&dyn Array], run: &P) -> Option<NullBuffer> {
    if arrays.iter().all(|array| array.nulls().is_none()) {
        return None;
    }
    let nulls: Vec<Option<&BooleanBuffer>> = arrays.iter().map(|array| array.nulls().map(NullBuffer::inner)).collect();
    Some(NullBuffer::new(run.bits_of(&nulls))).filter(|nulls| nulls.null_count() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_null_string_is_written_as_no_bytes_whatever_lies_behind_it() {
        let nulls = NullBuffer::from(vec![true, false, true]);
        let (offsets, _, _) = arrow_array::StringArray::from(vec!["ä", "bcd", ""]).into_parts();
        let hidden = arrow_array::StringArray::try_new(offsets, Buffer::from("äbcd".as_bytes()), Some(nulls)).unwrap();
        let rows: &[u32] = &[1, 0, 2, 1, 0];
        let copied = copy(&[&hidden], &[rows], &DataType::Utf8).unwrap();
        let copied = copied[0].as_string::<i32>();
        assert_eq!(copied.iter().collect::<Vec<_>>(), [None, Some("ä"), Some(""), None, Some("ä")]);
        assert_eq!((copied.value_data(), copied.value_offsets()), ("ää".as_bytes(), &[0, 0, 2, 2, 2, 4][..]));
    }
}
