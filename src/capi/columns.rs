//! What the values of a column say of rows: their classes, how many each has, and weights.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, DictionaryArray, Float64Array, Int64Array, LargeBinaryArray, LargeStringArray, RecordBatch,
    UInt32Array, UInt64Array,
};
use arrow::error::ArrowError;
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema};

use super::arrow::{export_array, export_batch};
use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, out_param, require};
use super::operands::{GivenOperands, rowdex_operands};
use crate::dataset::{Class, Column, Labels};
use crate::describe::{AskedColumn, ColumnDescription, Operands};
use crate::select::ListOfRows;
use rowdex_base::error::{Error, ErrorKind, Result};

/// What the values of a column say of rows, as an Arrow array that the caller releases, as its type, which may be NULL.
///
/// The description is JSON, {"labels": {"column": "lang"}}. The column is one of the dataset of the operands, and need
/// not be among those served. It is decoded in every row group that has one of the rows, on the dataset's threads and
/// past its cache. of: the set of the rows that are asked for; all by default. It is one of these:
///
/// labels: the classes of the rows: equal values are one class. 4 bytes a row. A dictionary, whose codes (32 bits, in
/// the second buffer) are what the labels of an order are, and whose values are the classes as large texts, ascending,
/// bytes in hexadecimal. Integers, dates, booleans, strings and binary, and dictionaries of them; a null is an error.
///
/// counts: how many rows each class has, ascending by value, and last how many have no value, if any. Memory is in
/// proportion to the classes. A struct array with a child `value` (booleans, 64-bit integers, also for the days of a
/// date since 1970, large texts or large binary; null for the rows without one) and a child `rows` (unsigned 64-bit
/// integers).
///
/// weights: numbers that are finite and not negative, as the weights of an order take them: doubles, in the second
/// buffer. Without a dataset, those that a list has for the rows of index 0, as an engine worked them out: list, a file
/// or a folder of them, or the stream of the operands, as for rowdex_id_set_new. Every row that is asked for needs one
/// weight; rows that the index does not serve are passed over.
///
/// lengths: those of index 0 that are noted by the name of the column: unsigned 64-bit integers, in the second buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_column(
    description: *const c_char,
    operands: *const rowdex_operands,
    array: Option<&mut MaybeUninit<FFI_ArrowArray>>,
    schema: Option<&mut MaybeUninit<FFI_ArrowSchema>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let given = unsafe { GivenOperands::of(operands) }?;
        let out = out_param(array, "array")?;
        // SAFETY: as above.
        match unsafe { handle::described(description, "") }? {
            ColumnDescription::Labels(asked) => {
                let Labels { codes, classes, .. } = column(&asked, &given)?.labels()?;
                let classes = LargeStringArray::from_iter_values(classes.iter().map(ToString::to_string));
                let labels = DictionaryArray::try_new(UInt32Array::from(codes), Arc::new(classes)).map_err(defect)?;
                export_array(&labels, out, schema)
            }
            ColumnDescription::Counts(asked) => {
                let counts = column(&asked, &given)?.counts()?;
                let (classes, rows): (Vec<_>, Vec<_>) = counts.into_iter().unzip();
                let rows: ArrayRef = Arc::new(UInt64Array::from(rows));
                let columns = [("value", values(&classes)), ("rows", rows)];
                export_batch(RecordBatch::try_from_iter(columns).map_err(defect)?, out, schema)
            }
            ColumnDescription::Weights(asked) => {
                export_array(&Float64Array::from(weights(&asked, given)?), out, schema)
            }
            ColumnDescription::Lengths(asked) => {
                export_array(&UInt64Array::from(lengths(&asked, &given)?), out, schema)
            }
        }
    })
}

fn column<'a>(asked: &'a AskedColumn, given: &GivenOperands<'a>) -> Result<Column<'a>> {
    if asked.list.is_some() {
        return Err(handle::invalid("`list` says nothing of the values of a dataset").with_hint("leave it out"));
    }
    let column = require(given.dataset, "operands.dataset")?.one()?.column(&asked.column);
    Ok(match asked.of(given)? {
        Some(of) => column.of(of),
        None => column,
    })
}

fn lengths(asked: &AskedColumn, given: &GivenOperands<'_>) -> Result<Vec<u64>> {
    let index = require(given.indexes().first(), "operands.indexes")?;
    let noted = index.lengths(&asked.column)?;
    if given.dataset.is_some() || asked.list.is_some() || asked.of(given)?.is_some() {
        return Err(handle::invalid("lengths are those of all rows of an index").with_hint("give nothing else"));
    }
    let mut found = Vec::new();
    noted.read(0..index.len(), &mut found)?;
    Ok(found)
}

fn weights(asked: &AskedColumn, mut given: GivenOperands<'_>) -> Result<Vec<f64>> {
    let stream = given.stream.take();
    let index = || require(given.indexes().first(), "operands.indexes");
    let of = asked.of(&given)?;
    match (given.dataset, &asked.list, stream) {
        (Some(_), None, None) => column(asked, &given)?.weights(),
        (None, Some(path), None) => ListOfRows::from(path).weights(index()?, &asked.column, of),
        (None, None, Some(list)) => ListOfRows::Batches(Box::new(list)).weights(index()?, &asked.column, of),
        _ => Err(handle::invalid("not just one of a dataset, a list and a stream says where the weights are")),
    }
}

/// The values of classes, which are of one kind, but for the one of rows without a value.
fn values(classes: &[Option<Class>]) -> ArrayRef {
    let of = |pick: fn(&Class) -> bool| classes.iter().flatten().any(pick);
    if of(|class| matches!(class, Class::Text(_))) {
        let text = |class: &Option<Class>| match class {
            Some(Class::Text(text)) => Some(text.clone()),
            _ => None,
        };
        Arc::new(classes.iter().map(text).collect::<LargeStringArray>())
    } else if of(|class| matches!(class, Class::Bytes(_))) {
        let bytes = |class: &Option<Class>| match class {
            Some(Class::Bytes(bytes)) => Some(bytes.clone()),
            _ => None,
        };
        Arc::new(classes.iter().map(bytes).collect::<LargeBinaryArray>())
    } else if of(|class| matches!(class, Class::Bool(_))) {
        let truth = |class: &Option<Class>| match class {
            Some(Class::Bool(truth)) => Some(*truth),
            _ => None,
        };
        Arc::new(classes.iter().map(truth).collect::<BooleanArray>())
    } else {
        let number = |class: &Option<Class>| match class {
            Some(Class::Int(number)) => Some(*number),
            _ => None,
        };
        let numbers = || classes.iter().map(number);
        // No column has both numbers below 0 and numbers that only fit without a sign.
        if numbers().flatten().all(|number| i64::try_from(number).is_ok()) {
            Arc::new(numbers().map(|number| i64::try_from(number?).ok()).collect::<Int64Array>())
        } else {
            Arc::new(numbers().map(|number| u64::try_from(number?).ok()).collect::<UInt64Array>())
        }
    }
}

fn defect(error: ArrowError) -> Error {
    Error::new(ErrorKind::Internal, error.to_string())
}
