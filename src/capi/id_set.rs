//! Sets of rows: those that are listed, those on a side of a split, and what is left without them.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::sync::Arc;

use serde_json::{Value, json};

use super::dataset::rowdex_dataset;
use super::error::{call, give, rowdex_error, rowdex_status};
use super::handle::{self, out_param, require};
use super::kind::{self, AnyHandle};
use super::operands::{GivenOperands, rowdex_id_set, rowdex_operands};
use crate::describe::{ChosenRows, SetDescription};
use crate::select::ListOfRows;
use rowdex_base::error::Result;

/// A set of rows as it is described.
///
/// The description is JSON, {"where": "lang = 'en'"}. The rows are those of one of these: row_ids: an array of row ids,
/// in any order; repeats count once. ranges: an array of starts and ends of ranges, in turn, which may come in any
/// order, overlap and be empty; the end is not in the range. list: a file of the rows of index 0: Parquet (.parquet)
/// and Arrow (.arrow) have a column row_id, or the columns file and row_in_file; any other file is text with a row id
/// on each line. stream: true takes the stream of the operands, with the columns of a list in Parquet: what any engine
/// that speaks Arrow hands over, read a batch at a time. view: the rows of index 0 that this index, a view of the same
/// files, serves, too. where: the rows of the dataset that meet this condition in SQL. Its columns are read and decoded
/// once, where the footers do not decide; a library that was built without the feature `filter` refuses. split:
/// {"side": "train", "validation_fraction": 0.1, "seed": 0} is one side of a split by a hash, "train" or "validation".
/// A row keeps its side when files are appended, and the sizes are as by a coin toss for each row. With "by" it is by
/// the values of this column of the dataset, so that rows with equal values are on one side: integers, dates, booleans,
/// strings and binary, and dictionaries of them; a null is refused. The column is decoded in every row group that has
/// one of the rows, on the dataset's threads and past its cache. set: another set.
///
/// Then only those of the set `of` are left, those of the set `union` are added, and complement, if it is true, takes
/// all others. All sets are out of equally many rows. rows: out of how many the set is, for row_ids, for ranges, and
/// for a split by row id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_id_set_new(
    description: *const c_char,
    operands: Option<&rowdex_operands>,
    set: Option<&mut MaybeUninit<*mut rowdex_id_set>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let mut given = unsafe { GivenOperands::of(operands) }?;
        let out = out_param(set, "set")?;
        // SAFETY: as above.
        let described: SetDescription = unsafe { handle::described(description, "set") }?;
        let stream = given.stream.take().map(|stream| ListOfRows::Batches(Box::new(stream)));
        let dataset = given.dataset.map(rowdex_dataset::one).transpose()?;
        let ChosenRows { rows, repeated, unserved } = described.rows(&given, dataset, stream)?;
        out.write(kind::handle(rowdex_id_set { rows: Arc::new(rows), repeated, unserved }));
        Ok(())
    })
}

impl AnyHandle for rowdex_id_set {
    fn told(&self) -> Result<Value> {
        let Self { rows, repeated, unserved } = self;
        Ok(json!({ "len": rows.len(), "rows": rows.rows(), "repeated": repeated, "unserved": unserved }))
    }
}

/// Whether a row is in the set.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_id_set_contains(set: Option<&rowdex_id_set>, row: u64) -> bool {
    set.is_some_and(|set| set.rows.contains(row))
}

/// The row ids at places `first`, `first + 1`, … of the set in ascending order, all that there are, but at most `len`;
/// `filled` is how many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_id_set_fill(
    set: Option<&rowdex_id_set>,
    first: u64,
    ids: *mut u64,
    len: usize,
    filled: Option<&mut MaybeUninit<usize>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    give(error, filled, "filled", || {
        let set = &require(set, "set")?.rows;
        // SAFETY: the conventions of the header.
        let ids = unsafe { handle::buffer(ids, len, "ids") }?;
        let mut count = 0;
        for (slot, place) in ids.iter_mut().zip(first..set.len()) {
            let Some(row) = set.select(place) else { break };
            slot.write(row);
            count += 1;
        }
        Ok(count)
    })
}
