//! One column of all rows, for orders by weight and by class.

use std::ffi::{CStr, CString, c_char};
use std::mem::MaybeUninit;
use std::ptr;

use arrow::ffi_stream::FFI_ArrowArrayStream;

use super::dataset::rowdex_dataset;
use super::error::{c_string, call, rowdex_error, rowdex_status};
use super::handle::{self, Versioned, out_param, require};
use super::id_set::rowdex_id_set;
use super::index::rowdex_index;
use super::select::stream_of;
use crate::dataset::{Class, Column, Labels};
use ::rowdex_index::Index;
use ::rowdex_order::IdSet;
use rowdex_base::error::{Error, ErrorKind, Result};

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
    let dataset = require(dataset, "dataset")?.one()?;
    // SAFETY: the caller's promise.
    let column = dataset.column(unsafe { handle::text(column, "column") }?);
    Ok(match of {
        Some(of) => column.of(&of.0),
        None => column,
    })
}

/// The classes of the rows: equal values of a column are one class. 4 bytes a row.
///
/// `of` has the rows that are asked for; NULL: all. The column need not be among those served. It is decoded in every
/// row group that has one of the rows, on the dataset's threads and past its cache. Integers, dates, booleans, strings
/// and binary, and dictionaries of them; a null is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_dataset_labels(
    dataset: Option<&rowdex_dataset>,
    column: *const c_char,
    of: Option<&rowdex_id_set>,
    labels: Option<&mut MaybeUninit<*mut rowdex_labels>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let out = out_param(labels, "labels")?;
        // SAFETY: the conventions of the header.
        let labels = unsafe { column_of(dataset, column, of) }?.labels()?;
        let classes = labels.classes().iter().map(|class| c_string(&class.to_string())).collect();
        out.write(handle::handle(rowdex_labels { labels, classes }));
        Ok(())
    })
}

/// What labels have.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_labels_info {
    /// sizeof(rowdex_labels_info), set by the caller.
    pub struct_size: usize,
    /// The class of each row that was asked for, in their order, as a number from 0 on: what the labels of a
    /// rowdex_order_options are. They belong to the labels.
    pub codes: *const u32,
    /// How many rows that are.
    pub num_codes: usize,
    /// How many classes there are, ascending by their values.
    pub num_classes: usize,
}

// SAFETY: repr(C); integers and pointers of 8 bytes only.
unsafe impl Versioned for rowdex_labels_info {}

/// What labels have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_labels_get_info(
    labels: Option<&rowdex_labels>,
    info: *mut rowdex_labels_info,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let rowdex_labels { labels, classes } = require(labels, "labels")?;
        // SAFETY: the conventions of the header.
        let out = unsafe { handle::struct_out(info, "info") }?;
        let codes = labels.codes();
        out.write(rowdex_labels_info {
            struct_size: 0,
            codes: codes.as_ptr(),
            num_codes: codes.len(),
            num_classes: classes.len(),
        });
        Ok(())
    })
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

/// How many rows each class has, by the values of a column. Concurrent use is fine.
#[derive(Debug)]
pub struct rowdex_counts(Vec<ClassCount>);

#[derive(Debug)]
struct ClassCount {
    kind: &'static CStr,
    value: Vec<u8>,
    rows: u64,
}

impl ClassCount {
    fn of((class, rows): (Option<Class>, u64)) -> Self {
        let kind = match &class {
            None => c"null",
            Some(Class::Bool(_)) => c"boolean",
            Some(Class::Int(_)) => c"integer",
            Some(Class::Text(_)) => c"text",
            Some(Class::Bytes(_)) => c"bytes",
        };
        let value = match class {
            None => Vec::new(),
            Some(Class::Text(text)) => text.into_bytes(),
            Some(Class::Bytes(bytes)) => bytes,
            Some(other) => other.to_string().into_bytes(),
        };
        Self { kind, value, rows }
    }
}

/// How many rows each class has, ascending by value, and last how many have no value, if any. Memory is in proportion
/// to the classes.
///
/// `of` has the rows that are asked for, such as those of rowdex_id_set_filter; NULL: all. Types and reading are as for
/// rowdex_dataset_labels.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_dataset_counts(
    dataset: Option<&rowdex_dataset>,
    column: *const c_char,
    of: Option<&rowdex_id_set>,
    counts: Option<&mut MaybeUninit<*mut rowdex_counts>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let out = out_param(counts, "counts")?;
        // SAFETY: the conventions of the header.
        let counts = unsafe { column_of(dataset, column, of) }?.counts()?;
        out.write(handle::handle(rowdex_counts(counts.into_iter().map(ClassCount::of).collect())));
        Ok(())
    })
}

/// One class, and how many rows are of it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_class_count {
    /// sizeof(rowdex_class_count), set by the caller.
    pub struct_size: usize,
    /// What the value is: "boolean", "integer" (also the days of a date since 1970), "text", "bytes", or "null" for the
    /// rows without one.
    pub kind: *const c_char,
    /// The value: the bytes of texts and bytes as they are, and all else as text ("true", "-7"). No zero follows. It
    /// belongs to the counts.
    pub value: *const c_char,
    /// How many bytes that are.
    pub value_len: usize,
    /// How many rows have it.
    pub rows: u64,
}

// SAFETY: repr(C); integers and pointers of 8 bytes only.
unsafe impl Versioned for rowdex_class_count {}

/// How many classes there are, rows without a value among them.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_counts_len(counts: Option<&rowdex_counts>) -> usize {
    counts.map_or(0, |counts| counts.0.len())
}

/// A class by its place, from 0 up to rowdex_counts_len.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_counts_get(
    counts: Option<&rowdex_counts>,
    place: usize,
    count: *mut rowdex_class_count,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let counts = &require(counts, "counts")?.0;
        // SAFETY: the conventions of the header.
        let out = unsafe { handle::struct_out(count, "count") }?;
        let found = counts.get(place).ok_or_else(|| {
            Error::new(ErrorKind::OutOfRange, format!("class {place} is asked for, and there are {}", counts.len()))
        })?;
        out.write(rowdex_class_count {
            struct_size: 0,
            kind: found.kind.as_ptr(),
            value: found.value.as_ptr().cast(),
            value_len: found.value.len(),
            rows: found.rows,
        });
        Ok(())
    })
}

/// Ends the life of counts and of their values.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_counts_free(counts: Option<Box<rowdex_counts>>) {
    handle::free(counts);
}

/// The weights of the rows: numbers of a column that are finite and not negative. `num_weights` must be just as many as
/// there are rows.
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
        let rows = of.map_or(require(dataset, "dataset")?.map().len(), |of| of.0.len());
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

/// The weights that a list of rows has in one of its columns, for the rows of an index: what an engine worked out, and
/// the weights of a rowdex_order_options are. `num_weights` must be just as many as there are rows.
///
/// `path` is a table, or a folder of tables, with the columns of rowdex_id_set_listed; rows that the index does not
/// serve are passed over. Every row needs one weight, which is finite and not negative. `of` has the rows that are
/// asked for; NULL: all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_index_weights(
    index: Option<&rowdex_index>,
    path: *const c_char,
    column: *const c_char,
    of: Option<&rowdex_id_set>,
    weights: *mut f64,
    num_weights: usize,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let path = unsafe { handle::path(path, "path") }?;
        // SAFETY: as above.
        let column = unsafe { handle::text(column, "column") }?;
        // SAFETY: as above.
        let out = unsafe { handle::buffer(weights, num_weights, "weights") }?;
        fill(index, of, out, |index, of| index.read_weights(path, column, of))
    })
}

/// As rowdex_index_weights, from an Arrow stream, which is moved from and released whatever happens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_index_weights_stream(
    index: Option<&rowdex_index>,
    stream: *mut FFI_ArrowArrayStream,
    column: *const c_char,
    of: Option<&rowdex_id_set>,
    weights: *mut f64,
    num_weights: usize,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let reader = unsafe { stream_of(stream) }?;
        // SAFETY: as above.
        let column = unsafe { handle::text(column, "column") }?;
        // SAFETY: as above.
        let out = unsafe { handle::buffer(weights, num_weights, "weights") }?;
        fill(index, of, out, |index, of| index.read_weights_of(reader, column, of))
    })
}

fn fill(
    index: Option<&rowdex_index>,
    of: Option<&rowdex_id_set>,
    out: &mut [MaybeUninit<f64>],
    read: impl FnOnce(&Index, Option<&IdSet>) -> Result<Vec<f64>>,
) -> Result<()> {
    let index = &require(index, "index")?.0;
    let rows = of.map_or(index.len(), |of| of.0.len());
    if rows != out.len() as u64 {
        return Err(handle::invalid(format!("room for {} weights, and there are {rows} rows", out.len())));
    }
    let weights = read(index, of.map(|of| &*of.0))?;
    if weights.len() != out.len() {
        return Err(handle::invalid(format!("{} weights for {rows} rows", weights.len())));
    }
    out.write_copy_of_slice(&weights);
    Ok(())
}
