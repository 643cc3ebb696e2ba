//! Numbers of rows, for orders that draw them by weight.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use arrow::ffi_stream::FFI_ArrowArrayStream;

use super::arrow::{GivenStream, stream_of};
use super::columns::column_of;
use super::dataset::rowdex_dataset;
use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, Versioned, require};
use super::id_set::rowdex_id_set;
use super::index::rowdex_index;
use crate::select::ListOfRows;
use rowdex_base::error::Result;

/// Where weights are. What is 0 or NULL has its default.
///
/// They are those of a column of a `dataset`; or those that a list has for the rows of an `index`, as an engine worked
/// them out: a `list_file` or a `list`. A field that the chosen one has no use for is refused by name.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_weights_options {
    /// sizeof(rowdex_weights_options)
    pub struct_size: usize,
    /// The column that has the weights: numbers that are finite and not negative.
    pub column: *const c_char,
    /// The dataset that the column is of; the column need not be among those served. It is decoded in every row group
    /// that has one of the rows, on the dataset's threads and past its cache.
    pub dataset: *const rowdex_dataset,
    /// The index whose rows are listed.
    pub index: *const rowdex_index,
    /// A table as for the list_file of a rowdex_id_set_options. Every row that is asked for needs one weight; rows that
    /// the index does not serve are passed over.
    pub list_file: *const c_char,
    /// The same as an Arrow stream, which is moved from and released whatever happens.
    pub list: *mut FFI_ArrowArrayStream,
    /// The rows that are asked for. NULL: all.
    pub of: *const rowdex_id_set,
}

// SAFETY: repr(C), begins with its size, and has only fields of 8 bytes for which 0 is valid.
unsafe impl Versioned for rowdex_weights_options {}

/// The weights of rows, as the weights of a rowdex_order_options take them. `num_weights` must be just as many as there
/// are rows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_weights(
    options: *const rowdex_weights_options,
    weights: *mut f64,
    num_weights: usize,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let options = unsafe { handle::options(options, "options") }?;
        // Before anything else that may fail, so that it is released then.
        // SAFETY: as above.
        let list = (!options.list.is_null()).then(|| unsafe { stream_of(options.list) }).transpose()?;
        // SAFETY: as above.
        let out = unsafe { handle::buffer(weights, num_weights, "weights") }?;
        // SAFETY: as above.
        let weights = unsafe { read(&options, list, num_weights as u64) }?;
        if weights.len() != out.len() {
            return Err(handle::invalid(format!("{} weights for {num_weights} rows", weights.len())));
        }
        out.write_copy_of_slice(&weights);
        Ok(())
    })
}

/// # Safety
/// What the struct points to is valid, as the header says.
unsafe fn read(options: &rowdex_weights_options, list: Option<GivenStream>, room: u64) -> Result<Vec<f64>> {
    // SAFETY: the caller's promise.
    let (dataset, index, of) = unsafe { (options.dataset.as_ref(), options.index.as_ref(), options.of.as_ref()) };
    // SAFETY: as above.
    let column = unsafe { handle::text(options.column, "column") }?;
    // SAFETY: as above.
    let file = unsafe { handle::optional_path(options.list_file) };
    let enough = |rows: u64| {
        let rows = of.map_or(rows, |of| of.0.len());
        let told = || handle::invalid(format!("room for {room} weights, and there are {rows} rows"));
        if rows == room { Ok(of.map(|of| &*of.0)) } else { Err(told()) }
    };
    match (dataset, file, list) {
        (Some(dataset), None, None) => {
            handle::refuse_unused([("index", index.is_some(), false)], "the column of a dataset")?;
            enough(dataset.map().len())?;
            // SAFETY: as above.
            unsafe { column_of(Some(dataset), options.column, of) }?.weights()
        }
        (None, Some(path), None) => {
            let index = &require(index, "index")?.0;
            ListOfRows::from(path).weights(index, column, enough(index.len())?)
        }
        (None, None, Some(list)) => {
            let index = &require(index, "index")?.0;
            ListOfRows::Batches(Box::new(list)).weights(index, column, enough(index.len())?)
        }
        _ => Err(handle::invalid("not just one of `dataset`, `list_file` and `list` says where the weights are")),
    }
}
