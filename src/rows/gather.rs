//! Rows of many batches, in any order, as one batch.
//!
//! Random rows of decoded row groups are bound by cache misses, so what counts is how many misses are under way at
//! once. Arrow's own kernel goes through the array's struct for each value; here the values of all batches are first
//! laid out as plain slices, which leaves one independent load per value. Types without such a layout go through
//! Arrow's kernel.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, FixedSizeListArray, GenericByteArray, GenericByteViewArray,
    GenericListArray, OffsetSizeTrait, PrimitiveArray, RecordBatch, UInt32Array, downcast_primitive,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowNativeType, BinaryType, BinaryViewType, ByteArrayType, ByteViewType, DataType, LargeBinaryType, LargeUtf8Type,
    SchemaRef, StringViewType, Utf8Type,
};
use arrow::error::ArrowError;

use super::record_batch;

/// A row: which batch, and which row of it.
pub(crate) type Place = (u32, u32);

/// The rows at `places`, in that order. All batches have the same schema, and places are inside them. Views become
/// strings or bytes where `output` has those; everything else keeps its type.
pub(crate) fn gather(
    batches: &[&RecordBatch],
    places: &[Place],
    output: &SchemaRef,
) -> Result<RecordBatch, ArrowError> {
    let Some(first) = batches.first() else { return Ok(RecordBatch::new_empty(output.clone())) };
    let internal = first.schema_ref();
    let mut for_arrow = None;
    let mut arrays: Vec<&dyn Array> = Vec::with_capacity(batches.len());
    let mut columns = Vec::with_capacity(internal.fields().len());
    let mut finished = true;
    for column in 0..internal.fields().len() {
        let wanted = output.field(column).data_type();
        arrays.clear();
        arrays.extend(batches.iter().map(|batch| batch.column(column).as_ref()));
        let array = match direct(&arrays, &[places], wanted)?.and_then(|mut arrays| arrays.pop()) {
            Some(array) => array,
            None => {
                let places = for_arrow.get_or_insert_with(|| {
                    places.iter().map(|&(batch, row)| (batch as usize, row as usize)).collect::<Vec<_>>()
                });
                arrow::compute::interleave(&arrays, places)?
            }
        };
        finished &= array.data_type() == wanted;
        columns.push(array);
    }
    record_batch(if finished { output } else { internal }, columns, places.len())
}

/// The rows of `batch` at `slots`, in that order. Views go on to show the values of `batch`.
pub(crate) fn take(batch: &RecordBatch, slots: &UInt32Array) -> Result<RecordBatch, ArrowError> {
    let columns = batch.columns().iter().map(|column| arrow::compute::take(column, slots, None));
    record_batch(batch.schema_ref(), columns.collect::<Result<Vec<_>, _>>()?, slots.len())
}

/// The rows of all batches, one after another. There is at least one batch, and all have the same columns.
pub(crate) fn concat(parts: &[&[ArrayRef]]) -> Result<Vec<ArrayRef>, ArrowError> {
    if let [only] = parts {
        return Ok(only.to_vec());
    }
    let join = |column: usize| {
        let arrays: Vec<&dyn Array> = parts.iter().map(|part| part[column].as_ref()).collect();
        arrow::compute::concat(&arrays)
    };
    (0..parts.first().map_or(0, |part| part.len())).map(join).collect()
}

/// The values at the places of each run, in that order, of the type `wanted` where a view can become that. There is at
/// least one array, all are of one type, and places are inside them. `None` for types that are not worth doing here.
pub(crate) fn direct(
    arrays: &[&dyn Array],
    runs: &[&[Place]],
    wanted: &DataType,
) -> Result<Option<Vec<ArrayRef>>, ArrowError> {
    macro_rules! fixed {
        ($type:ty) => {
            Ok(Some(fixed::<$type>(arrays, runs)))
        };
    }
    downcast_primitive! {
        arrays[0].data_type() => (fixed),
        DataType::Utf8View => match wanted {
            DataType::Utf8 => views::<StringViewType, Utf8Type>(arrays, runs).map(Some),
            DataType::LargeUtf8 => views::<StringViewType, LargeUtf8Type>(arrays, runs).map(Some),
            _ => Ok(None),
        },
        DataType::BinaryView => match wanted {
            DataType::Binary => views::<BinaryViewType, BinaryType>(arrays, runs).map(Some),
            DataType::LargeBinary => views::<BinaryViewType, LargeBinaryType>(arrays, runs).map(Some),
            _ => Ok(None),
        },
        DataType::Utf8 => bytes::<Utf8Type>(arrays, runs).map(Some),
        DataType::Binary => bytes::<BinaryType>(arrays, runs).map(Some),
        DataType::LargeUtf8 => bytes::<LargeUtf8Type>(arrays, runs).map(Some),
        DataType::LargeBinary => bytes::<LargeBinaryType>(arrays, runs).map(Some),
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(_, 1..) => lists(arrays, runs),
        _ => Ok(None),
    }
}

fn fixed<T: ArrowPrimitiveType>(arrays: &[&dyn Array], runs: &[&[Place]]) -> Vec<ArrayRef> {
    let finish = |values: ScalarBuffer<T::Native>, places: &[Place]| -> ArrayRef {
        let array = PrimitiveArray::<T>::new(values, nulls(arrays, places));
        Arc::new(array.with_data_type(arrays[0].data_type().clone()))
    };
    // One row of one row group is the most frequent wish, and needs no list of slices.
    if let ([only], [places]) = (arrays, runs) {
        let values = &only.as_primitive::<T>().values()[..];
        return vec![finish(places.iter().map(|&(_, row)| values[row as usize]).collect(), places)];
    }
    let values: Vec<&[T::Native]> = arrays.iter().map(|array| &array.as_primitive::<T>().values()[..]).collect();
    let run = |places: &&[Place]| {
        finish(places.iter().map(|&(batch, row)| values[batch as usize][row as usize]).collect(), places)
    };
    runs.iter().map(run).collect()
}

fn bytes<T: ByteArrayType>(arrays: &[&dyn Array], runs: &[&[Place]]) -> Result<Vec<ArrayRef>, ArrowError> {
    let arrays_of_type: Vec<&GenericByteArray<T>> = arrays.iter().map(|array| array.as_bytes::<T>()).collect();
    let offsets: Vec<&[T::Offset]> = arrays_of_type.iter().map(|array| array.value_offsets()).collect();
    let data: Vec<&[u8]> = arrays_of_type.iter().map(|array| array.value_data()).collect();
    let span = |&(batch, row): &Place| {
        let own = offsets[batch as usize];
        &data[batch as usize][own[row as usize].as_usize()..own[row as usize + 1].as_usize()]
    };
    // All offsets first: their misses do not wait for one another, as they would behind the copy of each value.
    let run = |places: &&[Place]| byte_array::<T>(&places.iter().map(span).collect::<Vec<_>>(), nulls(arrays, places));
    runs.iter().map(run).collect()
}

fn views<V: ByteViewType, T: ByteArrayType>(
    arrays: &[&dyn Array],
    runs: &[&[Place]],
) -> Result<Vec<ArrayRef>, ArrowError> {
    let arrays_of_type: Vec<&GenericByteViewArray<V>> = arrays.iter().map(|array| array.as_byte_view::<V>()).collect();
    let span = |&(batch, row): &Place| -> &[u8] {
        let array = arrays_of_type[batch as usize];
        // A null may have any view, and is written as no bytes.
        if array.is_valid(row as usize) { array.value(row as usize).as_ref() } else { &[] }
    };
    let run = |places: &&[Place]| byte_array::<T>(&places.iter().map(span).collect::<Vec<_>>(), nulls(arrays, places));
    runs.iter().map(run).collect()
}

fn byte_array<T: ByteArrayType>(spans: &[&[u8]], nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError>
where
    T::Offset: OffsetSizeTrait,
{
    let values = Buffer::from_vec(concatenated(spans));
    Ok(Arc::new(GenericByteArray::<T>::try_new(ends(spans)?, values, nulls)?))
}

/// Lists of numbers that are not null; `None` for other lists.
fn lists(arrays: &[&dyn Array], runs: &[&[Place]]) -> Result<Option<Vec<ArrayRef>>, ArrowError> {
    let sources: Vec<(&ArrayRef, Extents<'_>)> = arrays.iter().map(|array| extents(*array)).collect();
    if sources.iter().any(|(items, _)| items.null_count() > 0) {
        return Ok(None);
    }
    macro_rules! of {
        ($type:ty) => {
            lists_of::<$type>(arrays, &sources, runs).map(Some)
        };
    }
    downcast_primitive! {
        sources[0].0.data_type() => (of),
        _ => Ok(None),
    }
}

fn lists_of<T: ArrowPrimitiveType>(
    arrays: &[&dyn Array],
    sources: &[(&ArrayRef, Extents<'_>)],
    runs: &[&[Place]],
) -> Result<Vec<ArrayRef>, ArrowError> {
    let items: Vec<&[T::Native]> = sources.iter().map(|(items, _)| &items.as_primitive::<T>().values()[..]).collect();
    let item_type = sources[0].0.data_type();
    let run = |places: &&[Place]| -> Result<ArrayRef, ArrowError> {
        let span = |&(batch, row): &Place| &items[batch as usize][sources[batch as usize].1.of(row as usize)];
        let spans: Vec<&[T::Native]> = places.iter().map(span).collect();
        let values = PrimitiveArray::<T>::new(concatenated(&spans).into(), None).with_data_type(item_type.clone());
        let (values, nulls): (ArrayRef, _) = (Arc::new(values), nulls(arrays, places));
        Ok(match arrays[0].data_type() {
            DataType::FixedSizeList(item, size) => {
                Arc::new(FixedSizeListArray::try_new(item.clone(), *size, values, nulls)?)
            }
            DataType::LargeList(item) => {
                Arc::new(GenericListArray::<i64>::try_new(item.clone(), ends(&spans)?, values, nulls)?)
            }
            DataType::List(item) => {
                Arc::new(GenericListArray::<i32>::try_new(item.clone(), ends(&spans)?, values, nulls)?)
            }
            other => return Err(ArrowError::InvalidArgumentError(format!("{other} is no list"))),
        })
    };
    runs.iter().map(run).collect()
}

/// Where the items of each list of an array are.
enum Extents<'a> {
    Offsets(&'a [i32]),
    LargeOffsets(&'a [i64]),
    Fixed(usize),
}

impl Extents<'_> {
    fn of(&self, list: usize) -> Range<usize> {
        match self {
            Extents::Offsets(offsets) => offsets[list].as_usize()..offsets[list + 1].as_usize(),
            Extents::LargeOffsets(offsets) => offsets[list].as_usize()..offsets[list + 1].as_usize(),
            Extents::Fixed(size) => list * size..(list + 1) * size,
        }
    }
}

fn extents(array: &dyn Array) -> (&ArrayRef, Extents<'_>) {
    if let Some(lists) = array.as_list_opt::<i32>() {
        return (lists.values(), Extents::Offsets(lists.value_offsets()));
    }
    if let Some(lists) = array.as_list_opt::<i64>() {
        return (lists.values(), Extents::LargeOffsets(lists.value_offsets()));
    }
    let lists = array.as_fixed_size_list();
    (lists.values(), Extents::Fixed(lists.value_length().as_usize()))
}

fn concatenated<T: Copy>(spans: &[&[T]]) -> Vec<T> {
    let mut all = Vec::with_capacity(spans.iter().map(|span| span.len()).sum());
    spans.iter().for_each(|span| all.extend_from_slice(span));
    all
}

/// Offsets of spans that lie one after the other.
fn ends<T, O: OffsetSizeTrait>(spans: &[&[T]]) -> Result<OffsetBuffer<O>, ArrowError> {
    let mut ends = Vec::with_capacity(spans.len() + 1);
    let mut length = 0usize;
    ends.push(O::default());
    for span in spans {
        length += span.len();
        ends.push(O::from_usize(length).ok_or(ArrowError::OffsetOverflowError(length))?);
    }
    Ok(OffsetBuffer::new(ScalarBuffer::from(ends)))
}

fn nulls(arrays: &[&dyn Array], places: &[Place]) -> Option<NullBuffer> {
    if arrays.iter().all(|array| array.nulls().is_none()) {
        return None;
    }
    let nulls: Vec<Option<&NullBuffer>> = arrays.iter().map(|array| array.nulls()).collect();
    let valid = BooleanBuffer::collect_bool(places.len(), |at| {
        let (batch, row) = places[at];
        nulls[batch as usize].is_none_or(|nulls| nulls.is_valid(row as usize))
    });
    Some(NullBuffer::new(valid)).filter(|nulls| nulls.null_count() > 0)
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BinaryArray, BooleanArray, Decimal128Array, Float32Array, Int64Array, LargeListArray, LargeStringArray,
        ListArray, StringArray, StringViewArray, TimestampMicrosecondArray,
    };
    use arrow::datatypes::{Fields, Float32Type, Int64Type, Schema};
    use proptest::prelude::*;

    use super::*;

    /// One column for each way of doing it, from these values.
    fn batch(values: &[Option<i64>]) -> RecordBatch {
        let text = |value: &Option<i64>| value.map(|value| "x".repeat(value.unsigned_abs() as usize % 20) + "é");
        let strings: Vec<Option<String>> = values.iter().map(text).collect();
        let items = |value: i64| (0..value.rem_euclid(4)).map(move |item| Some(value + item));
        let holes = |value: i64| items(value).map(move |item| item.filter(|_| value % 5 != 0));
        let pair = |value: i64| [Some(value as f32), Some(0.5)];
        let columns: [(&str, ArrayRef); 12] = [
            ("int", Arc::new(Int64Array::from(values.to_vec()))),
            (
                "float",
                Arc::new(values.iter().map(|value| value.map(|value| value as f32 / 3.0)).collect::<Float32Array>()),
            ),
            (
                "decimal",
                Arc::new(
                    values
                        .iter()
                        .map(|value| value.map(i128::from))
                        .collect::<Decimal128Array>()
                        .with_precision_and_scale(30, 2)
                        .unwrap(),
                ),
            ),
            ("time", Arc::new(TimestampMicrosecondArray::from(values.to_vec()).with_timezone("Europe/Berlin"))),
            ("string", Arc::new(strings.iter().map(Option::as_deref).collect::<StringArray>())),
            ("large", Arc::new(strings.iter().map(Option::as_deref).collect::<LargeStringArray>())),
            (
                "binary",
                Arc::new(strings.iter().map(|text| text.as_deref().map(str::as_bytes)).collect::<BinaryArray>()),
            ),
            ("view", Arc::new(strings.iter().map(Option::as_deref).collect::<StringViewArray>())),
            (
                "list",
                Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(
                    values.iter().map(|value| value.map(items)),
                )),
            ),
            (
                "large_list",
                Arc::new(LargeListArray::from_iter_primitive::<Int64Type, _, _>(
                    values.iter().map(|value| value.map(holes)),
                )),
            ),
            (
                "pair",
                Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(
                    values.iter().map(|value| value.map(pair)),
                    2,
                )),
            ),
            ("bool", Arc::new(values.iter().map(|value| value.map(|value| value % 2 == 0)).collect::<BooleanArray>())),
        ];
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
    }

    proptest! {
        #[test]
        fn rows_are_those_of_arrows_own_kernel(
            batches in prop::collection::vec(prop::collection::vec(prop::option::of(-1000i64..1000), 1..40), 1..6),
            picks in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..80),
        ) {
            let lengths: Vec<usize> = batches.iter().map(Vec::len).collect();
            let batches: Vec<RecordBatch> = batches.iter().map(|values| batch(values)).collect();
            let places: Vec<Place> = picks.iter().map(|(batch, row)| {
                let batch = batch.index(lengths.len());
                (batch as u32, row.index(lengths[batch]) as u32)
            }).collect();
            let batches: Vec<&RecordBatch> = batches.iter().collect();
            let wide: Vec<(usize, usize)> = places.iter().map(|&(batch, row)| (batch as usize, row as usize)).collect();
            let schema = batches[0].schema();
            let ours = gather(&batches, &places, &schema).unwrap();
            if !places.is_empty() {
                let theirs = arrow::compute::interleave_record_batch(&batches, &wide).unwrap();
                prop_assert_eq!(&ours, &theirs);
                let fields = schema.fields().iter().map(|field| match field.name().as_str() {
                    "view" => Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8)),
                    _ => field.clone(),
                });
                let output = Arc::new(Schema::new(fields.collect::<Fields>()));
                let ours = gather(&batches, &places, &output).unwrap();
                let spelled_out = arrow::compute::cast(theirs.column_by_name("view").unwrap(), &DataType::Utf8).unwrap();
                prop_assert_eq!(ours.schema(), output);
                prop_assert_eq!(ours.column_by_name("view").unwrap(), &spelled_out);
            }
        }
    }
}
