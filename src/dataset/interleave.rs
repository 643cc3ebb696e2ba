//! Rows from many row groups into one batch.
//!
//! Random rows of decoded row groups are bound by cache misses, so what counts is how many misses are under way at once. Arrow's own
//! kernel goes through the array's struct for each value; here the values of all row groups are first laid out as plain slices, which
//! leaves one independent load per value. Types without such a layout go through Arrow's kernel.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, GenericByteArray, GenericByteViewArray, PrimitiveArray, RecordBatch,
    RecordBatchOptions, downcast_primitive,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowNativeType, BinaryType, BinaryViewType, ByteArrayType, ByteViewType, DataType, LargeBinaryType, LargeUtf8Type,
    SchemaRef, StringViewType, Utf8Type,
};
use arrow::error::ArrowError;

/// A row: which batch, and which row of it.
pub(crate) type Place = (u32, u32);

/// The rows at `places`, in that order, in memory of their own. All batches have the same schema, and there is at least one; places are
/// inside them. Views become strings or bytes where `output` has those; everything else keeps its type.
pub(crate) fn interleave(
    batches: &[&RecordBatch],
    places: &[Place],
    output: &SchemaRef,
) -> Result<RecordBatch, ArrowError> {
    let internal = batches[0].schema_ref();
    let mut for_arrow = None;
    let mut arrays: Vec<&dyn Array> = Vec::with_capacity(batches.len());
    let mut columns = Vec::with_capacity(internal.fields().len());
    let mut finished = true;
    for column in 0..internal.fields().len() {
        let wanted = output.field(column).data_type();
        arrays.clear();
        arrays.extend(batches.iter().map(|batch| batch.column(column).as_ref()));
        let array = match direct(&arrays, places, wanted)? {
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
    // Without columns, the number of rows must be said.
    let options = RecordBatchOptions::new().with_row_count(Some(places.len()));
    let schema = if finished { output } else { internal };
    RecordBatch::try_new_with_options(schema.clone(), columns, &options)
}

/// The types worth doing here; `None` for the others.
fn direct(arrays: &[&dyn Array], places: &[Place], wanted: &DataType) -> Result<Option<ArrayRef>, ArrowError> {
    macro_rules! fixed {
        ($type:ty) => {
            Ok(Some(fixed::<$type>(arrays, places)))
        };
    }
    downcast_primitive! {
        arrays[0].data_type() => (fixed),
        DataType::Utf8View => match wanted {
            DataType::Utf8 => views::<StringViewType, Utf8Type>(arrays, places).map(Some),
            DataType::LargeUtf8 => views::<StringViewType, LargeUtf8Type>(arrays, places).map(Some),
            _ => Ok(None),
        },
        DataType::BinaryView => match wanted {
            DataType::Binary => views::<BinaryViewType, BinaryType>(arrays, places).map(Some),
            DataType::LargeBinary => views::<BinaryViewType, LargeBinaryType>(arrays, places).map(Some),
            _ => Ok(None),
        },
        DataType::Utf8 => bytes::<Utf8Type>(arrays, places).map(Some),
        DataType::Binary => bytes::<BinaryType>(arrays, places).map(Some),
        DataType::LargeUtf8 => bytes::<LargeUtf8Type>(arrays, places).map(Some),
        DataType::LargeBinary => bytes::<LargeBinaryType>(arrays, places).map(Some),
        _ => Ok(None),
    }
}

fn fixed<T: ArrowPrimitiveType>(arrays: &[&dyn Array], places: &[Place]) -> ArrayRef {
    let values: ScalarBuffer<T::Native> = match arrays {
        // One row of one row group is the most frequent wish, and needs no list of slices.
        [only] => {
            let values = &only.as_primitive::<T>().values()[..];
            places.iter().map(|&(_, row)| values[row as usize]).collect()
        }
        _ => {
            let values: Vec<&[T::Native]> =
                arrays.iter().map(|array| &array.as_primitive::<T>().values()[..]).collect();
            places.iter().map(|&(batch, row)| values[batch as usize][row as usize]).collect()
        }
    };
    let array = PrimitiveArray::<T>::new(values, nulls(arrays, places));
    Arc::new(array.with_data_type(arrays[0].data_type().clone()))
}

fn bytes<T: ByteArrayType>(arrays: &[&dyn Array], places: &[Place]) -> Result<ArrayRef, ArrowError> {
    let arrays_of_type: Vec<&GenericByteArray<T>> = arrays.iter().map(|array| array.as_bytes::<T>()).collect();
    let offsets: Vec<&[T::Offset]> = arrays_of_type.iter().map(|array| array.value_offsets()).collect();
    let data: Vec<&[u8]> = arrays_of_type.iter().map(|array| array.value_data()).collect();
    // All offsets first: their misses do not wait for one another, as they would behind the copy of each value.
    let mut spans = Vec::with_capacity(places.len());
    let mut ends = Vec::with_capacity(places.len() + 1);
    let mut length = 0usize;
    ends.push(T::Offset::default());
    for &(batch, row) in places {
        let own = offsets[batch as usize];
        let (start, end) = (own[row as usize].as_usize(), own[row as usize + 1].as_usize());
        length += end - start;
        spans.push((batch, start, end));
        ends.push(T::Offset::from_usize(length).ok_or(ArrowError::OffsetOverflowError(length))?);
    }
    let mut values = Vec::with_capacity(length);
    for (batch, start, end) in spans {
        values.extend_from_slice(&data[batch as usize][start..end]);
    }
    let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
    Ok(Arc::new(GenericByteArray::<T>::try_new(ends, Buffer::from_vec(values), nulls(arrays, places))?))
}

fn views<V: ByteViewType, T: ByteArrayType>(arrays: &[&dyn Array], places: &[Place]) -> Result<ArrayRef, ArrowError> {
    let arrays_of_type: Vec<&GenericByteViewArray<V>> = arrays.iter().map(|array| array.as_byte_view::<V>()).collect();
    let mut ends = Vec::with_capacity(places.len() + 1);
    let mut length = 0usize;
    ends.push(T::Offset::default());
    let mut spans: Vec<&[u8]> = Vec::with_capacity(places.len());
    for &(batch, row) in places {
        let array = arrays_of_type[batch as usize];
        // A null may have any view, and is written as no bytes.
        let value: &[u8] = if array.is_valid(row as usize) { array.value(row as usize).as_ref() } else { &[] };
        length += value.len();
        spans.push(value);
        ends.push(T::Offset::from_usize(length).ok_or(ArrowError::OffsetOverflowError(length))?);
    }
    let mut values = Vec::with_capacity(length);
    spans.into_iter().for_each(|value| values.extend_from_slice(value));
    let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
    Ok(Arc::new(GenericByteArray::<T>::try_new(ends, Buffer::from_vec(values), nulls(arrays, places))?))
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
        BinaryArray, BooleanArray, Decimal128Array, Float32Array, Int64Array, LargeStringArray, StringArray,
        StringViewArray, TimestampMicrosecondArray,
    };
    use arrow::datatypes::{Fields, Schema};
    use proptest::prelude::*;

    use super::*;

    /// One column for each way of doing it, from these values.
    fn batch(values: &[Option<i64>]) -> RecordBatch {
        let text = |value: &Option<i64>| value.map(|value| "x".repeat(value.unsigned_abs() as usize % 20) + "é");
        let strings: Vec<Option<String>> = values.iter().map(text).collect();
        let columns: [(&str, ArrayRef); 9] = [
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
            let ours = interleave(&batches, &places, &schema).unwrap();
            if !places.is_empty() {
                let theirs = arrow::compute::interleave_record_batch(&batches, &wide).unwrap();
                prop_assert_eq!(&ours, &theirs);
                let fields = schema.fields().iter().map(|field| match field.name().as_str() {
                    "view" => Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8)),
                    _ => field.clone(),
                });
                let output = Arc::new(Schema::new(fields.collect::<Fields>()));
                let ours = interleave(&batches, &places, &output).unwrap();
                let spelled_out = arrow::compute::cast(theirs.column_by_name("view").unwrap(), &DataType::Utf8).unwrap();
                prop_assert_eq!(ours.schema(), output);
                prop_assert_eq!(ours.column_by_name("view").unwrap(), &spelled_out);
            }
        }
    }
}
