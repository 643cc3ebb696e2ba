//! One column of all rows, for orders by weight and by class.

use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;
use std::ptr;

use super::dataset::rowdex_dataset;
use super::error::{c_string, call, rowdex_error, rowdex_status};
use super::handle::{self, given, place};
use super::id_set::rowdex_id_set;
use crate::Result;
use crate::dataset::{Column, Labels};

/// The classes of rows, by the values of a column. Concurrent use is fine.
#[derive(Debug)]
pub struct rowdex_labels {
    labels: Labels,
    classes: Vec<CString>,
}

/// # Safety
/// The pointers are as the header says.
unsafe fn column_of<'a>(
    dataset: Option<&'a rowdex_dataset>,
    column: *const c_char,
    of: Option<&'a rowdex_id_set>,
) -> Result<Column<'a>> {
    let dataset = given(dataset, "dataset")?.one()?;
    // SAFETY: the caller's promise.
    let column = dataset.column(unsafe { handle::text(column, "column") }?);
    Ok(match of {
        Some(of) => column.of(&of.0),
        None => column,
    })
}

/// The classes of the rows: equal values of a column are one class. 4 bytes a row.
///
/// `of` has the rows that are asked for; NULL: all. The column need not be among those served. It is decoded in every row group that has one of
/// the rows, on the dataset's threads and past its cache. Integers, dates, booleans, strings and binary, and dictionaries of them; a null is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_dataset_labels(
    dataset: Option<&rowdex_dataset>,
    column: *const c_char,
    of: Option<&rowdex_id_set>,
    labels: Option<&mut MaybeUninit<*mut rowdex_labels>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let out = place(labels, "labels")?;
        // SAFETY: the conventions of the header.
        let labels = unsafe { column_of(dataset, column, of) }?.labels()?;
        let classes = labels.classes().iter().map(|class| c_string(&class.to_string())).collect();
        out.write(handle::handle(rowdex_labels { labels, classes }));
        Ok(())
    })
}

/// The class of each row that was asked for, in their order, as a number from 0 on: what the labels of a rowdex_order_options are. They belong to the labels.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_labels_codes(labels: Option<&rowdex_labels>) -> *const u32 {
    labels.map_or(ptr::null(), |labels| labels.labels.codes().as_ptr())
}

/// How many rows that are.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_labels_len(labels: Option<&rowdex_labels>) -> usize {
    labels.map_or(0, |labels| labels.labels.codes().len())
}

/// How many classes there are, ascending by their values.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_labels_num_classes(labels: Option<&rowdex_labels>) -> usize {
    labels.map_or(0, |labels| labels.classes.len())
}

/// The value of a class as text, bytes in hexadecimal. It belongs to the labels; NULL beyond the last class.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_labels_class(labels: Option<&rowdex_labels>, class: usize) -> *const c_char {
    labels.and_then(|labels| labels.classes.get(class)).map_or(ptr::null(), |class| class.as_ptr())
}

/// Ends the life of labels and of their texts and numbers.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_labels_free(labels: Option<Box<rowdex_labels>>) {
    handle::free(labels);
}

/// The weights of the rows: numbers of a column that are finite and not negative. `num_weights` must be just as many as there are rows.
///
/// `of` has the rows that are asked for; NULL: all. Otherwise as rowdex_dataset_labels.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_dataset_weights(
    dataset: Option<&rowdex_dataset>,
    column: *const c_char,
    of: Option<&rowdex_id_set>,
    weights: *mut f64,
    num_weights: usize,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let rows = of.map_or(given(dataset, "dataset")?.map().len(), |of| of.0.len());
        // SAFETY: the conventions of the header.
        let out = unsafe { handle::buffer(weights, num_weights, "weights") }?;
        if rows != num_weights as u64 {
            return Err(handle::invalid(format!("room for {num_weights} weights, and there are {rows} rows")));
        }
        // SAFETY: as above.
        let weights = unsafe { column_of(dataset, column, of) }?.weights()?;
        if weights.len() != out.len() {
            return Err(handle::invalid(format!("{} weights for {rows} rows", weights.len())));
        }
        out.write_copy_of_slice(&weights);
        Ok(())
    })
}
