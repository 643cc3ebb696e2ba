//! Sets of rows: those that are listed, those on a side of a split, and what is left without them.

use std::borrow::Cow;
use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::sync::Arc;

use arrow::ffi_stream::FFI_ArrowArrayStream;

use super::arrow::{GivenStream, stream_of};
use super::dataset::rowdex_dataset;
use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, Versioned, out_param, require};
use super::index::rowdex_index;
use crate::dataset::Dataset;
use crate::select::{ListOfRows, ListedRows};
use ::rowdex_order::{IdSet, Split};
use rowdex_base::error::Result;
#[cfg(not(feature = "filter"))]
use rowdex_base::error::{Error, ErrorKind};

/// A set of row ids, out of a number of rows. At most 1.0625 bits for each of the rows. Concurrent use is fine.
#[derive(Debug)]
pub struct rowdex_id_set(pub(super) Arc<IdSet>, Listed);

/// How rows were listed: how often any were listed again, and how many were listed that are not served.
#[derive(Debug, Clone, Copy, Default)]
struct Listed {
    repeated: u64,
    unserved: u64,
}

/// Row ids from start up to end, which is not one of them.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_range {
    /// The first.
    pub start: u64,
    /// The one after the last.
    pub end: u64,
}

/// Which rows are in a set. What is 0 or NULL has its default.
///
/// The rows are those of one of these: `ids`, `ranges`, `list_file`, `list`, `view`, `filter`, `split_side` or `set`.
/// Then only those of `of` are left, those of `or_set` are added, and `complement` takes all others. All sets are out
/// of equally many rows. A field that the chosen one has no use for is refused by name.
///
/// The struct and all that it points to may go once the set is made.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_id_set_options {
    /// sizeof(rowdex_id_set_options)
    pub struct_size: usize,
    /// Out of how many rows the set is: for `ids`, for `ranges`, and for a split by row id.
    pub rows: u64,
    /// These row ids, in any order; repeats count once.
    pub ids: *const u64,
    pub num_ids: usize,
    /// The row ids of these ranges, which may come in any order, overlap and be empty.
    pub ranges: *const rowdex_range,
    pub num_ranges: usize,
    /// The index whose rows are listed, or that a view is of.
    pub index: *const rowdex_index,
    /// The rows that a file lists.
    ///
    /// Parquet (.parquet) and Arrow (.arrow) have a column row_id, or the columns file and row_in_file. Any other file
    /// is text with a row id on each line.
    pub list_file: *const c_char,
    /// The rows that a stream lists, with the columns of a list in Parquet: what any engine that speaks Arrow hands
    /// over, read a batch at a time. The stream is moved from, and released whatever else is wrong.
    pub list: *mut FFI_ArrowArrayStream,
    /// The rows of the index that a view of the same files serves, too.
    pub view: *const rowdex_index,
    /// The dataset whose values `filter` and `split_by` read: those of the columns that they name, which need not be
    /// among those served.
    pub dataset: *const rowdex_dataset,
    /// The rows that meet this condition in SQL. Its columns are read and decoded once, where the footers do not
    /// decide. A library that was built without the feature `filter` refuses.
    pub filter: *const c_char,
    /// One side of a split by a hash, "train" or "validation".
    ///
    /// A row keeps its side when files are appended. The sizes are those of as many coin tosses.
    pub split_side: *const c_char,
    /// Splits by the values of this column, so that rows with equal values are on one side. NULL: by row id.
    ///
    /// It is decoded in every row group that has one of the rows, on the dataset's threads and past its cache.
    /// Integers, dates, booleans, strings and binary, and dictionaries of them; a null is an error.
    pub split_by: *const c_char,
    /// The fraction of the rows, or of the keys, that is for validation, from 0 to 1.
    pub split_fraction: f64,
    /// Another split for another seed.
    pub split_seed: u64,
    /// The rows of another set.
    pub set: *const rowdex_id_set,
    /// Only rows of this set. What others have in a column does not matter. NULL: all.
    pub of: *const rowdex_id_set,
    /// The rows of this set, too. NULL: none.
    pub or_set: *const rowdex_id_set,
    /// 1 takes all rows that are not among these, and no others.
    pub complement: u64,
}

// SAFETY: repr(C), begins with its size, and has only fields of 8 bytes for which 0 is valid.
unsafe impl Versioned for rowdex_id_set_options {}

/// A set of rows as it is described.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_id_set_new(
    options: *const rowdex_id_set_options,
    set: Option<&mut MaybeUninit<*mut rowdex_id_set>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let options = unsafe { handle::options(options, "options") }?;
        // Before anything else that may fail, so that it is released then.
        // SAFETY: as above.
        let list = (!options.list.is_null()).then(|| unsafe { stream_of(options.list) }).transpose()?;
        let out = out_param(set, "set")?;
        // SAFETY: as above.
        let (rows, listed) = unsafe { chosen(&options, list) }?;
        // SAFETY: as above.
        let rows = match unsafe { options.or_set.as_ref() } {
            Some(more) => Cow::Owned(rows.union(&more.0)?),
            None => rows,
        };
        let rows = if options.complement == 0 { rows.into_owned() } else { rows.complement()? };
        out.write(handle::handle(rowdex_id_set(Arc::new(rows), listed)));
        Ok(())
    })
}

/// The rows that one of the choices has, of those that are asked for, and how they were listed.
///
/// # Safety
/// What the struct points to is valid, as the header says.
unsafe fn chosen<'a>(options: &rowdex_id_set_options, list: Option<GivenStream>) -> Result<(Cow<'a, IdSet>, Listed)> {
    // SAFETY: the caller's promise.
    let (index, dataset) = unsafe { (options.index.as_ref(), options.dataset.as_ref()) };
    // SAFETY: as above.
    let (view, set, of) = unsafe { (options.view.as_ref(), options.set.as_ref(), options.of.as_ref()) };
    // SAFETY: as above.
    let ids = unsafe { handle::slice(options.ids, options.num_ids, "ids") }?;
    // SAFETY: as above.
    let ranges = unsafe { handle::slice(options.ranges, options.num_ranges, "ranges") }?;
    // SAFETY: as above.
    let file = unsafe { handle::optional_path(options.list_file) };
    // SAFETY: as above.
    let filter = unsafe { handle::optional_text(options.filter, "filter") }?;
    // SAFETY: as above.
    let side = unsafe { handle::optional_text(options.split_side, "split_side") }?;
    // SAFETY: as above.
    let column = unsafe { handle::optional_text(options.split_by, "split_by") }?;
    let some_ids = !options.ids.is_null();
    let some_ranges = !options.ranges.is_null();
    let lists = [some_ids, some_ranges, file.is_some(), list.is_some(), view.is_some(), set.is_some()];
    let given = [&lists[..], &[filter.is_some(), side.is_some()]].concat();
    if given.iter().filter(|given| **given).count() != 1 {
        let names = "`ids`, `ranges`, `list_file`, `list`, `view`, `filter`, `split_side` and `set`";
        return Err(handle::invalid(format!("not just one of {names} says which rows are in the set")));
    }
    if column.is_some() && side.is_none() {
        return Err(handle::invalid("`split_by` without `split_side`").with_hint("name a side, train or validation"));
    }
    refuse_needless(options)?;
    let of_index = || Ok(&require(index, "index")?.0);
    let of_dataset = || require(dataset, "dataset")?.one();
    let split = || Split::new(options.split_fraction, options.split_seed);
    let rows = match (filter, side, column) {
        // These read nothing of the rows that are not asked for.
        (Some(condition), ..) => return Ok((Cow::Owned(filtered(of_dataset()?, condition, of)?), Listed::default())),
        (_, Some(side), Some(column)) => {
            let column = of_dataset()?.column(column);
            let column = match of {
                Some(of) => column.of(&of.0),
                None => column,
            };
            return Ok((Cow::Owned(column.split(&split()?, side.parse()?)?), Listed::default()));
        }
        (_, Some(side), None) => split()?.rows(side.parse()?, options.rows)?,
        _ if some_ids => IdSet::from_ids(options.rows, ids.iter().copied())?,
        _ if some_ranges => IdSet::from_ranges(options.rows, ranges.iter().map(|range| range.start..range.end))?,
        _ => match (file, list, view, set) {
            (Some(path), ..) => return of_list(ListOfRows::from(path).rows(of_index()?)?, of),
            (_, Some(list), ..) => return of_list(ListOfRows::Batches(Box::new(list)).rows(of_index()?)?, of),
            (.., Some(view), _) => of_index()?.rows_of(&view.0)?,
            (.., Some(set)) => return Ok((only(Cow::Borrowed(&set.0), of)?, Listed::default())),
            (None, None, None, None) => return Err(handle::null("set")),
        },
    };
    Ok((only(Cow::Owned(rows), of)?, Listed::default()))
}

/// Refuses what would change nothing of the rows that are asked for.
fn refuse_needless(options: &rowdex_id_set_options) -> Result<()> {
    let lists_ids = !options.ids.is_null() || !options.ranges.is_null();
    let reads_index = !options.list_file.is_null() || !options.list.is_null() || !options.view.is_null();
    let splits = !options.split_side.is_null();
    let reads_column = !options.split_by.is_null();
    let fields = [
        ("rows", options.rows != 0, lists_ids || (splits && !reads_column)),
        ("index", !options.index.is_null(), reads_index),
        ("dataset", !options.dataset.is_null(), !options.filter.is_null() || reads_column),
        ("split_fraction", options.split_fraction != 0.0, splits),
        ("split_seed", options.split_seed != 0, splits),
    ];
    handle::refuse_unused(fields, "the rows that are asked for")
}

fn of_list<'a>(list: ListedRows, of: Option<&rowdex_id_set>) -> Result<(Cow<'a, IdSet>, Listed)> {
    let ListedRows { rows, repeated, unserved, .. } = list;
    Ok((only(Cow::Owned(rows), of)?, Listed { repeated, unserved }))
}

fn only<'a>(rows: Cow<'a, IdSet>, of: Option<&rowdex_id_set>) -> Result<Cow<'a, IdSet>> {
    match of {
        Some(of) => Ok(Cow::Owned(rows.intersection(&of.0)?)),
        None => Ok(rows),
    }
}

#[cfg(feature = "filter")]
fn filtered(dataset: &Dataset, condition: &str, of: Option<&rowdex_id_set>) -> Result<IdSet> {
    let filter = dataset.filter(condition)?;
    match of {
        Some(of) => filter.of(&of.0).rows(),
        None => filter.rows(),
    }
}

#[cfg(not(feature = "filter"))]
fn filtered(_: &Dataset, _: &str, _: Option<&rowdex_id_set>) -> Result<IdSet> {
    Err(crate::describe::no_filters())
}

/// What is known of a set.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_id_set_info {
    /// sizeof(rowdex_id_set_info), set by the caller.
    pub struct_size: usize,
    /// How many rows are in the set.
    pub len: u64,
    /// Out of how many.
    pub rows: u64,
    /// How often rows were listed beyond the first time, if a list says which they are.
    pub repeated: u64,
    /// Listed rows that are in the files and that the index does not serve.
    pub unserved: u64,
}

// SAFETY: repr(C) and integers of 8 bytes only.
unsafe impl Versioned for rowdex_id_set_info {}

/// What is known of a set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_id_set_get_info(
    set: Option<&rowdex_id_set>,
    info: *mut rowdex_id_set_info,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let rowdex_id_set(rows, Listed { repeated, unserved }) = require(set, "set")?;
        // SAFETY: the conventions of the header.
        let out = unsafe { handle::struct_out(info, "info") }?;
        out.write(rowdex_id_set_info {
            struct_size: 0,
            len: rows.len(),
            rows: rows.rows(),
            repeated: *repeated,
            unserved: *unserved,
        });
        Ok(())
    })
}

/// Whether a row is in the set.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_id_set_contains(set: Option<&rowdex_id_set>, row: u64) -> bool {
    set.is_some_and(|set| set.0.contains(row))
}

/// The row ids at places `first`, `first + 1`, … of the set in ascending order, as many as there are but at most `len`;
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
    call(error, || {
        let set = &require(set, "set")?.0;
        // SAFETY: the conventions of the header.
        let ids = unsafe { handle::buffer(ids, len, "ids") }?;
        let filled = out_param(filled, "filled")?;
        let mut count = 0;
        for (slot, place) in ids.iter_mut().zip(first..set.len()) {
            let Some(row) = set.select(place) else { break };
            slot.write(row);
            count += 1;
        }
        filled.write(count);
        Ok(())
    })
}
