//! Sets of rows: those that are listed, those on a side of a split, and what is left without them.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::sync::Arc;

use super::dataset::rowdex_dataset;
use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, out_param, require};
use super::index::rowdex_index;
use crate::dataset::Dataset;
use ::rowdex_order::{IdSet, Side, Split};
use rowdex_base::error::Result;
#[cfg(not(feature = "filter"))]
use rowdex_base::error::{Error, ErrorKind};

/// A set of row ids, out of a number of rows. At most 1.0625 bits for each of the rows. Concurrent use is fine.
#[derive(Debug)]
pub struct rowdex_id_set(pub(super) Arc<IdSet>);

/// Row ids from start up to end, which is not one of them.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_range {
    /// The first.
    pub start: u64,
    /// The one after the last.
    pub end: u64,
}

pub(super) fn give(
    out: Option<&mut MaybeUninit<*mut rowdex_id_set>>,
    make: impl FnOnce() -> Result<IdSet>,
) -> Result<()> {
    let out = out_param(out, "set")?;
    out.write(handle::handle(rowdex_id_set(Arc::new(make()?))));
    Ok(())
}

/// These row ids, out of `rows` rows, in any order; repeats count once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_id_set_from_ids(
    rows: u64,
    ids: *const u64,
    num_ids: usize,
    set: Option<&mut MaybeUninit<*mut rowdex_id_set>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let ids = unsafe { handle::slice(ids, num_ids, "ids") }?;
        give(set, || IdSet::from_ids(rows, ids.iter().copied()))
    })
}

/// The row ids of these ranges, out of `rows` rows; they may come in any order, overlap and be empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_id_set_from_ranges(
    rows: u64,
    ranges: *const rowdex_range,
    num_ranges: usize,
    set: Option<&mut MaybeUninit<*mut rowdex_id_set>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let ranges = unsafe { handle::slice(ranges, num_ranges, "ranges") }?;
        give(set, || IdSet::from_ranges(rows, ranges.iter().map(|range| range.start..range.end)))
    })
}

/// The rows of a dataset that meet a condition in SQL. The columns that it needs are read and decoded once, where the
/// footers do not decide; they need not be among those served.
///
/// `of` has the rows that are asked about; NULL: all. A library that was built without the feature `filter` refuses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_id_set_filter(
    dataset: Option<&rowdex_dataset>,
    condition: *const c_char,
    of: Option<&rowdex_id_set>,
    set: Option<&mut MaybeUninit<*mut rowdex_id_set>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let dataset = require(dataset, "dataset")?.one()?;
        // SAFETY: the conventions of the header.
        let condition = unsafe { handle::text(condition, "condition") }?;
        give(set, || filtered(dataset, condition, of))
    })
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
    Err(no_filters())
}

/// What a library says that was built without conditions.
#[cfg(not(feature = "filter"))]
pub(super) fn no_filters() -> Error {
    Error::new(ErrorKind::InvalidArgument, "this library was built without conditions")
        .with_hint("build it with the feature `filter`")
}

/// The rows of an index that a file lists.
///
/// Text has a row id, a range like 10..20, or a place (a.parquet, a.parquet:2, a.parquet:2:10..20) on each line. CSV
/// and Parquet have a column row_id; or a column of files (file, filename, file_path, path) beside one of rows within
/// the file (row_in_file, file_row_number, row_index), or beside row_group and row.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_id_set_listed(
    index: Option<&rowdex_index>,
    path: *const c_char,
    set: Option<&mut MaybeUninit<*mut rowdex_id_set>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let index = &require(index, "index")?.0;
        // SAFETY: the conventions of the header.
        let path = unsafe { handle::path(path, "path") }?;
        give(set, || index.listed_rows(path))
    })
}

/// One side of a split of `rows` rows by a hash of their row ids: "train" or "validation". Another seed is another
/// split.
///
/// A row keeps its side when files are appended. The sizes are those of as many coin tosses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_id_set_split(
    rows: u64,
    side: *const c_char,
    validation_fraction: f64,
    seed: u64,
    set: Option<&mut MaybeUninit<*mut rowdex_id_set>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let side: Side = unsafe { handle::text(side, "side") }?.parse()?;
        let split = Split::new(validation_fraction, seed)?;
        give(set, || split.rows(side, rows))
    })
}

/// One side of a split by a hash of the values of a column: rows with equal values are on one side.
///
/// `of` has the rows that are asked for; NULL: all. The column need not be among those served. It is decoded in every
/// row group that has one of the rows, on the dataset's threads and past its cache. Integers, dates, booleans, strings
/// and binary, and dictionaries of them; a null is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_id_set_split_by(
    dataset: Option<&rowdex_dataset>,
    column: *const c_char,
    of: Option<&rowdex_id_set>,
    side: *const c_char,
    validation_fraction: f64,
    seed: u64,
    set: Option<&mut MaybeUninit<*mut rowdex_id_set>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let dataset = require(dataset, "dataset")?.one()?;
        // SAFETY: the conventions of the header.
        let column = dataset.column(unsafe { handle::text(column, "column") }?);
        // SAFETY: as above.
        let side: Side = unsafe { handle::text(side, "side") }?.parse()?;
        let split = Split::new(validation_fraction, seed)?;
        let column = match of {
            Some(of) => column.of(&of.0),
            None => column,
        };
        give(set, || column.split(&split, side))
    })
}

/// The rows that are not in a set.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_id_set_complement(
    of: Option<&rowdex_id_set>,
    set: Option<&mut MaybeUninit<*mut rowdex_id_set>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let of = &require(of, "of")?.0;
        give(set, || of.complement())
    })
}

/// The rows that are in both sets, which are out of equally many rows.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_id_set_intersection(
    one: Option<&rowdex_id_set>,
    other: Option<&rowdex_id_set>,
    set: Option<&mut MaybeUninit<*mut rowdex_id_set>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let (one, other) = (&require(one, "one")?.0, &require(other, "other")?.0);
        give(set, || one.intersection(other))
    })
}

/// The rows that are in either set, which are out of equally many rows.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_id_set_union(
    one: Option<&rowdex_id_set>,
    other: Option<&rowdex_id_set>,
    set: Option<&mut MaybeUninit<*mut rowdex_id_set>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let (one, other) = (&require(one, "one")?.0, &require(other, "other")?.0);
        give(set, || one.union(other))
    })
}

/// Ends the life of a set handle. Orders that were made with it have their own.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_id_set_free(set: Option<Box<rowdex_id_set>>) {
    handle::free(set);
}

/// How many rows are in the set.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_id_set_len(set: Option<&rowdex_id_set>) -> u64 {
    set.map_or(0, |set| set.0.len())
}

/// Out of how many.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_id_set_rows(set: Option<&rowdex_id_set>) -> u64 {
    set.map_or(0, |set| set.0.rows())
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
