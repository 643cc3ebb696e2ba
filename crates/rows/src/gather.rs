//! Rows of many batches, in any order, as one batch.
//!
//! One kernel takes rows of one batch, gathers rows of many, and joins batches. What it makes depends only on the rows,
//! so a null is masked by the nulls above it wherever it was so in the sources.

use std::ops::Range;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};

use super::memory::{Footprint, bytes_of_array};
use super::nested::copy;
use super::picks::{BatchRow, PickedRuns, Spans};
use super::{record_batch, uncopied};
use rowdex_base::error::{Error, ErrorKind, Result};

/// The rows at `places`, in that order. All batches have the same schema, and places are inside them. Views become
/// strings or bytes where `output` has those; everything else keeps its type.
///
/// # Errors
/// [`ErrorKind::TooLarge`](rowdex_base::error::ErrorKind) if the rows do not fit the offsets or keys of a column.
pub fn gather(batches: &[&RecordBatch], places: &[BatchRow], output: &SchemaRef) -> Result<RecordBatch> {
    if batches.is_empty() {
        return Ok(RecordBatch::new_empty(output.clone()));
    }
    let mut arrays: Vec<&dyn Array> = Vec::with_capacity(batches.len());
    let mut columns = Vec::with_capacity(output.fields().len());
    for (column, field) in output.fields().iter().enumerate() {
        arrays.clear();
        arrays.extend(batches.iter().map(|batch| batch.column(column).as_ref()));
        let gathered = copy(&arrays, &[places], field.data_type());
        columns.extend(gathered.map_err(|error| uncopied(error).with_column(field.name()))?);
    }
    record_batch(output, columns, places.len()).map_err(uncopied)
}

/// The rows of `batch` at `slots`, in that order. Views go on to show the values of `batch`.
///
/// # Errors
/// As [`gather`].
pub fn take(batch: &RecordBatch, slots: &[u32]) -> Result<RecordBatch> {
    let mut columns = Vec::with_capacity(batch.num_columns());
    for (column, field) in batch.columns().iter().zip(batch.schema_ref().fields()) {
        let taken = copy(&[column.as_ref()], &[slots], field.data_type());
        columns.extend(taken.map_err(|error| uncopied(error).with_column(field.name()))?);
    }
    record_batch(batch.schema_ref(), columns, slots.len()).map_err(uncopied)
}

/// The values of one column at `slots`, in that order. Views go on to show the same values.
///
/// # Errors
/// As [`gather`], without the column.
pub fn take_rows(array: &dyn Array, slots: &[u32]) -> Result<ArrayRef> {
    let taken = copy(&[array], &[slots], array.data_type()).map_err(uncopied)?.pop();
    taken.ok_or_else(|| Error::new(ErrorKind::Internal, "rows of a column without an array"))
}

/// The rows of all parts, one after another. There is at least one part, and all have columns of the same types. The
/// columns of a single part are not copied.
///
/// # Errors
/// As [`gather`].
pub fn concat(parts: &[&[ArrayRef]]) -> Result<Vec<ArrayRef>> {
    if let [only] = parts {
        return Ok(only.to_vec());
    }
    let mut whole = Spans::with_capacity(parts.len());
    for (number, rows) in parts.iter().filter_map(|part| part.first()).map(|column| column.len()).enumerate() {
        whole.push(number, 0..rows);
    }
    let mut columns = Vec::with_capacity(parts.first().map_or(0, |part| part.len()));
    for column in 0..columns.capacity() {
        let arrays: Vec<&dyn Array> = parts.iter().map(|part| part[column].as_ref()).collect();
        match arrays[0].data_type() {
            DataType::Utf8View | DataType::BinaryView => {
                columns.push(arrow::compute::concat(&arrays).map_err(uncopied)?);
            }
            data_type => columns.extend(copy(&arrays, &[&whole], data_type).map_err(uncopied)?),
        }
    }
    Ok(columns)
}

/// The rows of all parts, one after another, in memory of just their size; views go on to show the same values. There
/// is at least one part, and all are of this schema. What is copied of the parts is let go, column by column.
///
/// # Errors
/// As [`gather`].
pub fn join_exactly(schema: &SchemaRef, parts: Vec<RecordBatch>) -> Result<RecordBatch> {
    let rows = parts.iter().map(RecordBatch::num_rows).sum();
    let mut whole = Spans::with_capacity(parts.len());
    parts.iter().enumerate().for_each(|(number, part)| whole.push(number, 0..part.num_rows()));
    let mut rest: Vec<_> = parts.into_iter().map(|part| part.columns().to_vec().into_iter()).collect();
    let mut columns = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        let arrays: Vec<ArrayRef> = rest.iter_mut().filter_map(Iterator::next).collect();
        let sources: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        let joined = match (field.data_type(), sources.as_slice()) {
            (DataType::Utf8View | DataType::BinaryView, [_]) => Ok(arrays.clone()),
            (_, [only]) if is_exact(*only) => Ok(arrays.clone()),
            (DataType::Utf8View | DataType::BinaryView, views) => arrow::compute::concat(views).map(|all| vec![all]),
            (data_type, sources) => copy(sources, &[&whole], data_type),
        };
        columns.extend(joined.map_err(|error| uncopied(error).with_column(field.name()))?);
    }
    record_batch(schema, columns, rows).map_err(uncopied)
}

/// Whether an array has memory of its own, and hardly any that it does not need.
fn is_exact(array: &dyn Array) -> bool {
    Footprint::default().add_array(array) <= bytes_of_array(array) / 16 * 17
}

/// Rows that follow each other in an array, as a copy of the type `wanted` where a view can become that.
///
/// # Errors
/// As [`gather`], without the column.
pub(crate) fn copy_span(array: &dyn Array, rows: Range<usize>, wanted: &DataType) -> Result<ArrayRef> {
    let mut spans = Spans::with_capacity(1);
    spans.push(0, rows);
    let copied = copy(&[array], &[&spans], wanted).map_err(uncopied)?.pop();
    copied.ok_or_else(|| Error::new(ErrorKind::Internal, "a run of rows without an array"))
}

/// One column of several batches: the values at the places of each run, in that order, of the type `wanted` where a
/// view can become that. There is at least one array, all are of one type, and places are inside them.
///
/// # Errors
/// As [`gather`], without the column.
pub(crate) fn gather_runs(arrays: &[&dyn Array], runs: &PickedRuns<'_>, wanted: &DataType) -> Result<Vec<ArrayRef>> {
    let PickedRuns { single, spans, in_spans } = runs;
    if spans.is_empty() {
        return copy(arrays, single, wanted).map_err(uncopied);
    }
    let spans: Vec<&Spans> = spans.iter().collect();
    let mut of_spans = copy(arrays, &spans, wanted).map_err(uncopied)?.into_iter();
    let mut others = match single.is_empty() {
        true => Vec::new().into_iter(),
        false => copy(arrays, single, wanted).map_err(uncopied)?.into_iter(),
    };
    let in_order = in_spans.iter().filter_map(|spans| if *spans { of_spans.next() } else { others.next() });
    Ok(in_order.collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        BinaryArray, BooleanArray, Decimal128Array, FixedSizeListArray, Float32Array, Int64Array, LargeListArray,
        LargeStringArray, ListArray, StringArray, StringViewArray, TimestampMicrosecondArray,
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
            let places: Vec<BatchRow> = picks.iter().map(|(batch, row)| {
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
                let views = theirs.column_by_name("view").unwrap();
                let spelled_out = arrow::compute::cast(views, &DataType::Utf8).unwrap();
                prop_assert_eq!(ours.schema(), output);
                prop_assert_eq!(ours.column_by_name("view").unwrap(), &spelled_out);
            }
        }
    }
}
