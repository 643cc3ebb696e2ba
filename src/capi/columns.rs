//! The classes that a column puts rows in.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, DictionaryArray, Int64Array, LargeBinaryArray, LargeStringArray, RecordBatch, UInt32Array,
    UInt64Array,
};
use arrow::error::ArrowError;
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema};

use super::arrow::{export_array, export_batch};
use super::dataset::rowdex_dataset;
use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, out_param, require};
use super::operands::rowdex_id_set;
use crate::dataset::{Class, Column};
use rowdex_base::error::{Error, ErrorKind, Result};

/// # Safety
/// The pointers are as the header says.
pub(super) unsafe fn column_of<'a>(
    dataset: Option<&'a rowdex_dataset>,
    column: *const c_char,
    of: Option<&'a rowdex_id_set>,
) -> Result<Column<'a>> {
    let dataset = require(dataset, "dataset")?.one()?;
    // SAFETY: the caller's promise.
    let column = dataset.column(unsafe { handle::text(column, "column") }?);
    Ok(match of {
        Some(of) => column.of(&of.rows),
        None => column,
    })
}

/// The classes of the rows: equal values of a column are one class. 4 bytes a row.
///
/// An Arrow array that the caller releases, as its type, which may be NULL: a dictionary, whose codes (32 bits, in the
/// second buffer) are what the labels of an order are, and whose values are the classes as large texts,
/// ascending, bytes in hexadecimal.
///
/// `of` has the rows that are asked for; NULL: all. The column need not be among those served. It is decoded in every
/// row group that has one of the rows, on the dataset's threads and past its cache. Integers, dates, booleans, strings
/// and binary, and dictionaries of them; a null is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_dataset_labels(
    dataset: Option<&rowdex_dataset>,
    column: *const c_char,
    of: Option<&rowdex_id_set>,
    labels: Option<&mut MaybeUninit<FFI_ArrowArray>>,
    schema: Option<&mut MaybeUninit<FFI_ArrowSchema>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let out = out_param(labels, "labels")?;
        // SAFETY: the conventions of the header.
        let (codes, classes) = unsafe { column_of(dataset, column, of) }?.labels()?.into_parts();
        let classes = LargeStringArray::from_iter_values(classes.iter().map(ToString::to_string));
        let labels = DictionaryArray::try_new(UInt32Array::from(codes), Arc::new(classes)).map_err(defect)?;
        export_array(&labels, out, schema)
    })
}

/// How many rows each class has, ascending by value, and last how many have no value, if any. Memory is in proportion
/// to the classes.
///
/// An Arrow struct array that the caller releases, as its type, which may be NULL: a child `value` (booleans, 64-bit
/// integers, also for the days of a date since 1970, large texts or large binary; null for the rows without one) and a
/// child `rows` (unsigned 64-bit integers).
///
/// `of` has the rows that are asked for, such as those of a condition; NULL: all. Types and reading are as for
/// rowdex_dataset_labels.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_dataset_counts(
    dataset: Option<&rowdex_dataset>,
    column: *const c_char,
    of: Option<&rowdex_id_set>,
    counts: Option<&mut MaybeUninit<FFI_ArrowArray>>,
    schema: Option<&mut MaybeUninit<FFI_ArrowSchema>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let out = out_param(counts, "counts")?;
        // SAFETY: the conventions of the header.
        let counts = unsafe { column_of(dataset, column, of) }?.counts()?;
        let (classes, rows): (Vec<_>, Vec<_>) = counts.into_iter().unzip();
        let rows: ArrayRef = Arc::new(UInt64Array::from(rows));
        let columns = [("value", values(&classes)), ("rows", rows)];
        export_batch(RecordBatch::try_from_iter(columns).map_err(defect)?, out, schema)
    })
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
