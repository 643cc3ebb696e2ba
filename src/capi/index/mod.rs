//! Opening an index and looking rows up in it.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use arrow_schema::SchemaRef;
use serde_json::{Value, json};

use super::error::{self, call, give, rowdex_error, rowdex_status};
use super::handle::{self, require};
use super::kind::{self, AnyHandle};
use ::rowdex_index::{Index, RowGroupEntry};
use ::rowdex_order::Lengths;
use rowdex_base::error::{Error, ErrorKind, Result};

/// Where a row is. Concurrent use is fine, and so is freeing it while a dataset that was opened with it lives.
#[derive(Debug)]
pub struct rowdex_index(pub(super) Index);

/// Opens the index at a path or a URL: maps and checks it, and reads no data file.
///
/// `store` says as JSON how the object store is talked to that a URL is in; NULL: by the defaults. All may be left out:
/// concurrency: how many requests may be under way at once, 64 by default. deadline: how many seconds a request may
/// take with all of its retries, 120 by default. retries: how often a request is sent again after a fault that may
/// pass, 10 by default. config: options of the store by the names that their environment variables have, in any case,
/// such as {"aws_endpoint_url": "http://localhost:9000"}: they take precedence over the environment, may be secrets,
/// and are in no message.
///
/// The file must not be changed in place while the index is open; replacing it by rename, as a build does,
/// is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_index_open(
    path: *const c_char,
    store: *const c_char,
    index: Option<&mut MaybeUninit<*mut rowdex_index>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    give(error, index, "index", || {
        // SAFETY: the conventions of the header.
        let (path, store) = unsafe { (handle::path(path, "path")?, handle::store_options(store)?) };
        Ok(kind::handle(rowdex_index(Index::open_with(path, &store)?)))
    })
}

impl AnyHandle for rowdex_index {
    fn told(&self) -> Result<Value> {
        let index = &self.0;
        let lengths = index.lengths_columns()?.into_iter().map(|name| {
            let lengths = index.lengths(name)?;
            Ok(json!({
                "name": name,
                "of": lengths.of().name(),
                "sum": lengths.sum(),
                "longest": lengths.longest(),
                "fingerprint": Lengths::fingerprint(&lengths),
            }))
        });
        Ok(json!({
            "rows": index.len(),
            "source_rows": index.source_rows(),
            "row_groups": index.num_row_groups(),
            "files": index.num_files(),
            "columns": index.schema().fields().len(),
            "size_bytes": index.size_bytes(),
            "fingerprint": index.fingerprint(),
            "root": index.root().path,
            "root_is_relative": index.root().is_relative,
            "build_info": index.build_info(),
            "lengths": lengths.collect::<Result<Vec<_>>>()?,
        }))
    }

    fn columns(&self) -> Result<SchemaRef> {
        Ok(self.0.schema().clone())
    }
}

/// What is known of `len` files from `first` on, as a list in JSON that the caller frees: path (relative to the root,
/// with / between its parts), size (in bytes, when it was indexed), first_row_group (over the whole index), first_row,
/// rows (those served), and row_groups: how many, or, if `row_groups` is 1, a list of them: first_row, rows,
/// source_rows (in the file), decoded_bytes (about how many all rows and columns take).
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_index_files(
    index: Option<&rowdex_index>,
    first: u32,
    len: u32,
    row_groups: u32,
    report: Option<&mut MaybeUninit<*mut c_char>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    error::report(error, report, || {
        let index = &require(index, "index")?.0;
        let end = first.checked_add(len).filter(|end| *end <= index.num_files());
        let Some(end) = end else {
            let last = u64::from(first) + u64::from(len.saturating_sub(1));
            return Err(beyond("file", last, index.num_files().into()));
        };
        let files = (first..end).filter_map(|file| index.file(file)).map(|file| {
            let groups = file.row_groups();
            let each = || groups.clone().filter_map(|group| index.row_group(group)).map(group);
            json!({
                "path": file.path(),
                "size": file.size(),
                "first_row_group": groups.start,
                "first_row": file.row_ids().start,
                "rows": file.rows(),
                "row_groups": if row_groups == 0 { groups.len().into() } else { Value::Array(each().collect()) },
            })
        });
        Ok(Value::Array(files.collect()))
    })
}

fn group(group: RowGroupEntry<'_>) -> Value {
    json!({
        "first_row": group.first_row(),
        "rows": group.rows(),
        "source_rows": group.source_rows(),
        "decoded_bytes": group.decoded_bytes(),
    })
}

/// Where one row is.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_location {
    /// The row group, counted over the whole index.
    pub row_group: u32,
    /// The file.
    pub file: u32,
    /// The row group, counted within its file.
    pub ordinal: u32,
    /// 0.
    pub reserved: u32,
    /// The row, counted within the row group as it is in the file.
    pub row: u64,
    /// The place among the rows of the row group that are served; equal to row where all of them are.
    pub slot: u64,
}

/// Where each of `len` rows is; `locations` has room for `len`. Tens of nanoseconds a row.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_index_locate(
    index: Option<&rowdex_index>,
    rows: *const u64,
    len: usize,
    locations: *mut rowdex_location,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let index = &require(index, "index")?.0;
        // SAFETY: the conventions of the header.
        let rows = unsafe { handle::slice(rows, len, "rows") }?;
        // SAFETY: as above.
        let places = unsafe { handle::buffer(locations, len, "locations") }?;
        // Those that are there can be located, so from here on nothing fails.
        if let Some(row) = rows.iter().find(|row| **row >= index.len()) {
            return Err(beyond("row id", *row, index.len()));
        }
        for (place, row) in places.iter_mut().zip(rows) {
            place.write(locate(index, *row)?);
        }
        Ok(())
    })
}

fn locate(index: &Index, row: u64) -> Result<rowdex_location> {
    let found = index.locate(row).ok_or_else(|| beyond("row id", row, index.len()))?;
    let ::rowdex_index::Location { row_group, file, ordinal, row, slot } = found;
    Ok(rowdex_location { row_group, file, ordinal, reserved: 0, row, slot })
}

fn beyond(what: &str, number: u64, count: u64) -> Error {
    let error = Error::new(ErrorKind::OutOfRange, format!("{what} {number} of an index of {count}"));
    match count.checked_sub(1) {
        Some(last) => error.with_hint(format!("they count from 0 to {last}")),
        None => error,
    }
}
