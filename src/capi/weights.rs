//! Numbers of rows, for orders that draw them by weight.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, require};
use super::operands::{GivenOperands, rowdex_operands};
use crate::describe::Operands;
use crate::select::ListOfRows;
use rowdex_base::error::Result;

/// The weights of rows, as the weights of an order take them: those of a column of the dataset in `operands`, or those
/// that a list has for the rows of its index, as an engine worked them out: a file or a folder of them, `list`, or the
/// stream. Its set, if it has one, has the rows that are asked for. `num_weights` must be just as many as there are
/// rows.
///
/// The column has numbers that are finite and not negative. Of a dataset it need not be among those served; it is
/// decoded in every row group that has one of the rows, on the dataset's threads and past its cache. A list is as that
/// of rowdex_id_set_new: every row that is asked for needs one weight; rows that the index does not serve are passed
/// over. `list` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_weights(
    column: *const c_char,
    list: *const c_char,
    operands: *const rowdex_operands,
    weights: *mut f64,
    num_weights: usize,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let mut given = unsafe { GivenOperands::of(operands) }?;
        // SAFETY: as above.
        let out = unsafe { handle::buffer(weights, num_weights, "weights") }?;
        // SAFETY: as above.
        let column = unsafe { handle::text(column, "column") }?;
        let of = given.set(0).ok().map(|of| &**of);
        let room = num_weights as u64;
        let enough = |rows: u64| {
            let rows = of.map_or(rows, |of| of.len());
            let told = || handle::invalid(format!("room for {room} weights, and there are {rows} rows"));
            if rows == room { Ok(of) } else { Err(told()) }
        };
        let stream = given.stream.take();
        let index = || require(given.indexes().first(), "operands.indexes");
        // SAFETY: as above.
        let found: Result<Vec<f64>> = match (given.dataset, unsafe { handle::optional_path(list) }, stream) {
            (Some(dataset), None, None) => {
                enough(dataset.map().len())?;
                let column = dataset.one()?.column(column);
                if let Some(of) = of { column.of(of) } else { column }.weights()
            }
            (None, Some(path), None) => ListOfRows::from(path).weights(index()?, column, enough(index()?.len())?),
            (None, None, Some(list)) => {
                let list = ListOfRows::Batches(Box::new(list));
                list.weights(index()?, column, enough(index()?.len())?)
            }
            _ => Err(handle::invalid("not just one of a dataset, a list and a stream says where the weights are")),
        };
        let found = found?;
        if found.len() != out.len() {
            return Err(handle::invalid(format!("{} weights for {num_weights} rows", found.len())));
        }
        out.write_copy_of_slice(&found);
        Ok(())
    })
}
