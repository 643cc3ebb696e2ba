//! Opening an index and looking rows up in it.

mod build;

use std::ffi::c_char;
use std::mem::MaybeUninit;

use arrow::ffi::FFI_ArrowSchema;

use super::arrow::export_schema;
use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, Versioned, out_param, require, rowdex_str};
use super::store::store_options;
use ::rowdex_index::Index;
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
/// such as {"aws_endpoint_url": "http://localhost:9000"}: they go before the environment, may be secrets, and are in no
/// message.
///
/// The file must not be changed in place while the index is open; replacing it by rename, as rowdex_index_build does,
/// is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_index_open(
    path: *const c_char,
    store: *const c_char,
    index: Option<&mut MaybeUninit<*mut rowdex_index>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let index = out_param(index, "index")?;
        // SAFETY: the conventions of the header.
        let path = unsafe { handle::path(path, "path") }?;
        // SAFETY: as above.
        let store = unsafe { store_options(store) }?;
        index.write(handle::handle(rowdex_index(Index::open_with(path, &store)?)));
        Ok(())
    })
}

/// How many rows are served: row ids are 0 up to len - 1.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_index_len(index: Option<&rowdex_index>) -> u64 {
    index.map_or(0, |index| index.0.len())
}

/// What is known of a whole index.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_index_info {
    /// sizeof(rowdex_index_info), set by the caller.
    pub struct_size: usize,
    /// Rows served: row ids are 0 up to rows - 1.
    pub rows: u64,
    /// Rows that the row groups have in their files; more than rows where rows were selected.
    pub source_rows: u64,
    /// Row groups.
    pub row_groups: u64,
    /// Files.
    pub files: u64,
    /// Columns at the top level, partition columns among them.
    pub columns: u64,
    /// Length of the index in bytes.
    pub size_bytes: u64,
    /// Differs between two indexes when any row id means another (path, row group, row).
    pub fingerprint: u64,
    /// Where the files were when the index was built.
    pub root: rowdex_str,
    /// 1 if root is relative to the directory that the index lies in, 0 if it is absolute or a URL.
    pub root_is_relative: u64,
    /// What built the index and with which options, as JSON; empty where that was not recorded.
    pub build_info: rowdex_str,
}

// SAFETY: repr(C); integers and pointers of 8 bytes only.
unsafe impl Versioned for rowdex_index_info {}

/// What is known of a whole index. The first call for an index takes time in proportion to its row groups.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_index_get_info(
    index: Option<&rowdex_index>,
    info: *mut rowdex_index_info,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let index = &require(index, "index")?.0;
        // SAFETY: the conventions of the header.
        let out = unsafe { handle::struct_out(info, "info") }?;
        out.write(rowdex_index_info {
            struct_size: 0,
            rows: index.len(),
            source_rows: index.source_rows(),
            row_groups: index.num_row_groups().into(),
            files: index.num_files().into(),
            columns: index.schema().fields().len() as u64,
            size_bytes: index.size_bytes(),
            fingerprint: index.fingerprint(),
            root: index.root().path.as_str().into(),
            root_is_relative: u64::from(index.root().kind == ::rowdex_index::RootKind::RelativeToIndex),
            build_info: index.build_info().into(),
        });
        Ok(())
    })
}

/// What is known of a file.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_file_info {
    /// sizeof(rowdex_file_info), set by the caller.
    pub struct_size: usize,
    /// The path relative to the root, with / between its parts.
    pub path: rowdex_str,
    /// The size in bytes when it was indexed.
    pub size: u64,
    /// The number of its first row group, over the whole index.
    pub first_row_group: u64,
    /// How many row groups it has.
    pub row_groups: u64,
    /// The id of its first row.
    pub first_row: u64,
    /// How many of its rows are served.
    pub rows: u64,
}

// SAFETY: repr(C); integers and pointers of 8 bytes only.
unsafe impl Versioned for rowdex_file_info {}

/// What is known of a file, by its number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_index_get_file(
    index: Option<&rowdex_index>,
    file: u32,
    info: *mut rowdex_file_info,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let index = &require(index, "index")?.0;
        // SAFETY: the conventions of the header.
        let out = unsafe { handle::struct_out(info, "info") }?;
        let entry = index.file(file).ok_or_else(|| beyond("file", file.into(), index.num_files().into()))?;
        let groups = entry.row_groups();
        let rows = entry.row_ids();
        out.write(rowdex_file_info {
            struct_size: 0,
            path: entry.path().into(),
            size: entry.size(),
            first_row_group: groups.start.into(),
            row_groups: groups.len() as u64,
            first_row: rows.start,
            rows: entry.rows(),
        });
        Ok(())
    })
}

/// What is known of a row group.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_row_group_info {
    /// sizeof(rowdex_row_group_info), set by the caller.
    pub struct_size: usize,
    /// The number of its file.
    pub file: u32,
    /// The number of the row group within its file.
    pub ordinal: u32,
    /// The id of its first row.
    pub first_row: u64,
    /// How many of its rows are served.
    pub rows: u64,
    /// How many rows it has in its file.
    pub source_rows: u64,
    /// About how many bytes all of its rows and columns take when decoded.
    pub decoded_bytes: u64,
}

// SAFETY: repr(C); integers of 8 bytes, and two of 4.
unsafe impl Versioned for rowdex_row_group_info {}

/// What is known of a row group, by its number over the whole index.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_index_get_row_group(
    index: Option<&rowdex_index>,
    row_group: u32,
    info: *mut rowdex_row_group_info,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let index = &require(index, "index")?.0;
        // SAFETY: the conventions of the header.
        let out = unsafe { handle::struct_out(info, "info") }?;
        let count = index.num_row_groups().into();
        let entry = index.row_group(row_group).ok_or_else(|| beyond("row group", row_group.into(), count))?;
        out.write(rowdex_row_group_info {
            struct_size: 0,
            file: entry.file(),
            ordinal: entry.ordinal(),
            first_row: entry.first_row(),
            rows: entry.rows(),
            source_rows: entry.source_rows(),
            decoded_bytes: entry.decoded_bytes(),
        });
        Ok(())
    })
}

/// The columns of every file, as an Arrow struct type that the caller releases.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_index_schema(
    index: Option<&rowdex_index>,
    schema: Option<&mut MaybeUninit<FFI_ArrowSchema>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let index = require(index, "index")?;
        let schema = out_param(schema, "schema")?;
        schema.write(export_schema(index.0.schema())?);
        Ok(())
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

/// Reads and checks every byte of the index again, the stored footers among them. rowdex_dataset_verify looks at the
/// data files, too.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_index_verify(
    index: Option<&rowdex_index>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || require(index, "index")?.0.verify())
}

fn beyond(what: &str, number: u64, count: u64) -> Error {
    let error = Error::new(ErrorKind::OutOfRange, format!("{what} {number} of an index of {count}"));
    match count.checked_sub(1) {
        Some(last) => error.with_hint(format!("they count from 0 to {last}")),
        None => error,
    }
}
