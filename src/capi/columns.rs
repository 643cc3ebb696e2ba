//! What the values of a column say of rows: their classes, how many each has, and weights.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::sync::Arc;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, Float64Array, Int64Array, LargeBinaryArray, LargeStringArray, RecordBatch,
    StructArray, UInt32Array, UInt64Array,
};
use arrow_schema::ArrowError;

use super::arrow::export_array;
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
/// bytes in hexadecimal. Integers, dates, booleans, strings and binary, and dictionaries of them; a null is refused.
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
/// lengths: those of index 0 that are recorded by the name of the column: unsigned 64-bit integers, in the second
/// buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_column(
    description: *const c_char,
    operands: Option<&rowdex_operands>,
    array: Option<&mut MaybeUninit<FFI_ArrowArray>>,
    schema: Option<&mut MaybeUninit<FFI_ArrowSchema>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let given = unsafe { GivenOperands::of(operands) }?;
        let out = out_param(array, "array")?;
        // SAFETY: as above.
        let made: ArrayRef = match unsafe { handle::described(description, "") }? {
            ColumnDescription::Labels(asked) => {
                let Labels { codes, classes, .. } = column(&asked, &given)?.labels()?;
                let classes = LargeStringArray::from_iter_values(classes.iter().map(ToString::to_string));
                let labels = DictionaryArray::try_new(UInt32Array::from(codes), Arc::new(classes)).map_err(defect)?;
                Arc::new(labels)
            }
            ColumnDescription::Counts(asked) => {
                let counts = column(&asked, &given)?.counts()?;
                let (classes, rows): (Vec<_>, Vec<_>) = counts.into_iter().unzip();
                let rows: ArrayRef = Arc::new(UInt64Array::from(rows));
                let columns = [("value", values(&classes)), ("rows", rows)];
                Arc::new(StructArray::from(RecordBatch::try_from_iter(columns).map_err(defect)?))
            }
            ColumnDescription::Weights(asked) => Arc::new(Float64Array::from(weights(&asked, given)?)),
            ColumnDescription::Lengths(asked) => Arc::new(UInt64Array::from(lengths(&asked, &given)?)),
        };
        export_array(&made, out, schema)
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
    fn picked<'a, T>(
        classes: &'a [Option<Class>],
        pick: fn(&'a Class) -> Option<T>,
    ) -> impl Iterator<Item = Option<T>> {
        classes.iter().map(move |class| class.as_ref().and_then(pick))
    }
    let int = |class: &Class| if let Class::Int(number) = class { Some(*number) } else { None };
    match classes.iter().flatten().next() {
        Some(Class::Text(_)) => {
            let texts = picked(classes, |class| if let Class::Text(text) = class { Some(text) } else { None });
            Arc::new(texts.collect::<LargeStringArray>())
        }
        Some(Class::Bytes(_)) => {
            let values = picked(classes, |class| if let Class::Bytes(bytes) = class { Some(bytes) } else { None });
            Arc::new(values.collect::<LargeBinaryArray>())
        }
        Some(Class::Bool(_)) => {
            let truths = picked(classes, |class| if let Class::Bool(truth) = class { Some(*truth) } else { None });
            Arc::new(truths.collect::<BooleanArray>())
        }
        // No column has both numbers below 0 and numbers that only fit without a sign.
        _ if picked(classes, int).flatten().all(|number| i64::try_from(number).is_ok()) => {
            let numbers = picked(classes, int).map(|number| i64::try_from(number?).ok());
            Arc::new(numbers.collect::<Int64Array>())
        }
        _ => Arc::new(picked(classes, int).map(|number| u64::try_from(number?).ok()).collect::<UInt64Array>()),
    }
}

fn defect(error: ArrowError) -> Error {
    Error::new(ErrorKind::Internal, error.to_string())
}
