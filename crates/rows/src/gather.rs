//! Rows of many batches, in any order, as one batch.
//!
//! One kernel takes rows of one batch, gathers rows of many, and joins batches. What it makes depends only on the rows,
//! so a null is masked by the nulls above it wherever it was so in the sources.

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::ArrowError;
use arrow_schema::{DataType, Field, SchemaRef};

use super::flat::only;
use super::memory::{Footprint, bytes_of_array};
use super::nested::copy;
use super::picks::{BatchRow, PickedRuns, Spans};
use super::{record_batch, uncopied};
use rowdex_base::error::Result;

/// The rows at `places`, in that order. All batches have the same schema, and places are inside them. Views become
/// strings or bytes where `output` has those; everything else keeps its type.
///
/// # Errors
/// [`ErrorKind::TooLarge`](rowdex_base::error::ErrorKind) if the rows do not fit the offsets or keys of a column.
pub fn gather(batches: &[&RecordBatch], places: &[BatchRow], output: &SchemaRef) -> Result<RecordBatch> {
    if batches.is_empty() {
        return Ok(RecordBatch::new_empty(output.clone()));
    }
    let columns = columns(output, |column, field| {
        let arrays: Vec<&dyn Array> = batches.iter().map(|batch| batch.column(column).as_ref()).collect();
        copy(&arrays, &[places], field.data_type())
    })?;
    record_batch(output, columns, places.len()).map_err(uncopied)
}

/// The same of one column.
///
/// # Errors
/// As [`gather`], without the column.
pub fn gather_values(arrays: &[&dyn Array], places: &[BatchRow], output: &DataType) -> Result<ArrayRef> {
    copy(arrays, &[places], output).and_then(only).map_err(uncopied)
}

/// The columns of a schema, each of which `copied` makes by its place.
fn columns(
    schema: &SchemaRef,
    mut copied: impl FnMut(usize, &Field) -> Result<Vec<ArrayRef>, ArrowError>,
) -> Result<Vec<ArrayRef>> {
    let mut columns = Vec::with_capacity(schema.fields().len());
    for (place, field) in schema.fields().iter().enumerate() {
        columns.extend(copied(place, field).map_err(|error| uncopied(error).with_column(field.name()))?);
    }
    Ok(columns)
}

/// The rows of `batch` at `slots`, in that order. Views still show the values of `batch`.
///
/// # Errors
/// As [`gather`].
pub fn take(batch: &RecordBatch, slots: &[u32]) -> Result<RecordBatch> {
    let schema = batch.schema_ref();
    let columns = columns(schema, |column, field| copy(&[batch.column(column).as_ref()], &[slots], field.data_type()))?;
    record_batch(schema, columns, slots.len()).map_err(uncopied)
}

/// The values of one column at `slots`, in that order. Views go on to show the same values.
///
/// # Errors
/// As [`gather`], without the column.
pub fn take_rows(array: &dyn Array, slots: &[u32]) -> Result<ArrayRef> {
    copy(&[array], &[slots], array.data_type()).and_then(only).map_err(uncopied)
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
    let columns = columns(schema, |_, field| {
        let arrays: Vec<ArrayRef> = rest.iter_mut().filter_map(Iterator::next).collect();
        let sources: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        match (field.data_type(), sources.as_slice()) {
            (DataType::Utf8View | DataType::BinaryView, [_]) => Ok(arrays.clone()),
            (_, [only]) if is_exact(*only) => Ok(arrays.clone()),
            (DataType::Utf8View | DataType::BinaryView, views) => {
                arrow_select::concat::concat(views).map(|all| vec![all])
            }
            (data_type, sources) => copy(sources, &[&whole], data_type),
        }
    })?;
    record_batch(schema, columns, rows).map_err(uncopied)
}

/// Whether an array has memory of its own, and hardly any that it does not need.
fn is_exact(array: &dyn Array) -> bool {
    Footprint::default().add_array(array) <= bytes_of_array(array) / 16 * 17
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
