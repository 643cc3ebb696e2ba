//! Building an index and looking rows up in it.

use std::ffi::{CString, c_char, c_void};
use std::mem::MaybeUninit;

use arrow::ffi::FFI_ArrowSchema;

use super::arrow::export_schema;
use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, Versioned, out_param, require, rowdex_str};
use super::option::{Count, count};
use super::store::{rowdex_store_options, store_options};
use crate::builder::BuildReport;
use crate::builder::IndexBuilder;
use crate::digest;
use ::rowdex_index::Index;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::stop;

/// Where a row is. Concurrent use is fine, and so is freeing it while a dataset that was opened with it lives.
#[derive(Debug)]
pub struct rowdex_index(pub(super) Index);

/// Is told how far a build or a check has come: files done, files in all, and rows found so far (0 where they are not
/// counted).
///
/// It is called by one thread at a time, not always the same one, and never after the call that it was given to has
/// returned. It must return: by no exception, and by no longjmp.
pub type rowdex_progress = Option<unsafe extern "C" fn(userdata: *mut c_void, files_done: u64, files: u64, rows: u64)>;

/// Is told one way in which files differ from the schema that is served. The text is gone when the call returns.
///
/// It is called by the thread that builds, and must return: by no exception, and by no longjmp.
pub type rowdex_difference = Option<unsafe extern "C" fn(userdata: *mut c_void, text: *const c_char)>;

/// A callback that is told differences, with its userdata.
#[derive(Clone, Copy)]
struct Differences {
    callback: rowdex_difference,
    userdata: *mut c_void,
}

// SAFETY: the builder is not given to another thread, and calls it on its own.
unsafe impl Send for Differences {}
// SAFETY: as above.
unsafe impl Sync for Differences {}

impl Differences {
    fn tell(&self, text: &str) {
        // Names of columns may be any text.
        let text = CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default();
        if let Some(callback) = self.callback {
            // SAFETY: a function of this type, by the caller's promise, with the userdata that came with it; the text
            // lives until the function returns.
            unsafe { callback(self.userdata, text.as_ptr()) }
        }
    }
}

/// A progress callback with its userdata.
#[derive(Clone, Copy)]
pub(super) struct Progress {
    callback: rowdex_progress,
    userdata: *mut c_void,
}

// SAFETY: the header says that the callback is called from other threads than the one that gave it, and userdata with
// it.
unsafe impl Send for Progress {}
// SAFETY: as above; calls are kept from overlapping by those who make them.
unsafe impl Sync for Progress {}

impl Progress {
    pub(super) fn new(callback: rowdex_progress, userdata: *mut c_void) -> Self {
        Self { callback, userdata }
    }

    pub(super) fn tell(&self, files_done: u64, files: u64, rows: u64) {
        if let Some(callback) = self.callback.filter(|_| stop::check().is_ok()) {
            // SAFETY: a function of this type, by the caller's promise, with the userdata that came with it.
            unsafe { callback(self.userdata, files_done, files, rows) }
        }
    }
}

/// How an index is built. All zeros are the defaults, but for the inputs.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_build_options {
    /// sizeof(rowdex_build_options)
    pub struct_size: usize,
    /// Files, folders (searched for *.parquet, *.parq and *.pq) and patterns.
    pub inputs: *const *const c_char,
    /// How many.
    pub num_inputs: usize,
    /// Stores paths relative to this directory, which must contain all files. NULL: the deepest one that does.
    pub root: *const c_char,
    /// "strict" (NULL: the same columns and types in every file) or "union" (missing columns are null, types are
    /// widened).
    pub schema_mode: *const c_char,
    /// Serves only the rows that this file lists, as for the list_file of a rowdex_id_set_options; none may be listed
    /// twice. NULL: all.
    pub rows_file: *const c_char,
    /// Threads that read footers. 0: one for each available core.
    pub threads: u64,
    /// 1 replaces an existing file.
    pub overwrite: u32,
    /// 1 updates the index at the output path, if there is one: its unchanged leading files keep their row ids.
    pub update: u32,
    /// 1 does not store footers, so everyone who opens the index reads them again.
    pub no_footers: u32,
    /// 1 does not turn folders named key=value into columns.
    pub no_partitions: u32,
    /// Is called after each window of files, by the thread that builds. NULL: nobody is told.
    pub progress: rowdex_progress,
    /// The first argument of progress.
    pub progress_userdata: *mut c_void,
    /// How the object store is talked to, if the data or the index is in one. NULL: the defaults.
    pub store: *const rowdex_store_options,
    /// Indexes of the same data or of parts of it, with footers: files that are as recorded there are not read. The
    /// index has the very bytes that it has without them.
    pub parts: *const *const c_char,
    /// How many.
    pub num_parts: usize,
    /// With slices: which of them, from 0.
    pub slice: u64,
    /// Indexes one of so many slices of the sorted list of files alone, as a part of the whole. 0: all files.
    pub slices: u64,
    /// Columns of the files that are served by other names: their names in the files, which may have either.
    pub renames_from: *const *const c_char,
    /// The names that they are served by.
    pub renames_to: *const *const c_char,
    /// How many of each.
    pub num_renames: usize,
    /// Is told once of each way in which files differ from the schema that is served, when all files are known to fit
    /// together. NULL: nobody is told.
    pub difference: rowdex_difference,
    /// The first argument of difference.
    pub difference_userdata: *mut c_void,
    /// Columns by which it is noted how long rows are, as rowdex_lengths_note does. Progress is told once more, then.
    pub lengths: *const *const c_char,
    /// How many.
    pub num_lengths: usize,
}

// SAFETY: repr(C), begins with its size, has only fields for which 0 is valid, and the u32 come in pairs, so there is
// no padding.
unsafe impl Versioned for rowdex_build_options {}

/// What a build made.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_build_report {
    /// sizeof(rowdex_build_report), set by the caller.
    pub struct_size: usize,
    /// Files in the index.
    pub files: u64,
    /// Files that keep the row ids they had in the index that was updated.
    pub kept_files: u64,
    /// Row groups in the index.
    pub row_groups: u64,
    /// Rows served: row ids are 0 up to rows - 1.
    pub rows: u64,
    /// Rows in those row groups; more than rows where rows were selected.
    pub source_rows: u64,
    /// Length of the index file in bytes.
    pub index_bytes: u64,
    /// Files whose footers were read.
    pub read_files: u64,
    /// Requests sent to an object store for footers; 0 for local files.
    pub requests: u64,
    /// Bytes of the footers that were read.
    pub footer_bytes: u64,
    /// How often a file was named that was named already: it is in the index once.
    pub repeated_files: u64,
}

// SAFETY: repr(C) and integers of 8 bytes only.
unsafe impl Versioned for rowdex_build_report {}

impl From<BuildReport> for rowdex_build_report {
    fn from(report: BuildReport) -> Self {
        let BuildReport {
            files,
            kept_files,
            read_files,
            row_groups,
            rows,
            source_rows,
            index_bytes,
            requests,
            footer_bytes,
            repeated_files,
        } = report;
        Self {
            struct_size: 0,
            files,
            kept_files,
            row_groups,
            rows,
            source_rows,
            index_bytes,
            read_files,
            requests,
            footer_bytes,
            repeated_files,
        }
    }
}

/// Builds the index at `output` from the footers of Parquet files. The path holds what it held, or the whole new index,
/// at any moment.
///
/// Costs about one read for each file. `report` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_index_build(
    output: *const c_char,
    options: *const rowdex_build_options,
    report: *mut rowdex_build_report,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let output = unsafe { handle::path(output, "output") }?;
        // SAFETY: as above.
        let options = unsafe { handle::options(options, "options") }?;
        // SAFETY: as above.
        let builder = unsafe { builder(&options) }?;
        let report = match report.is_null() {
            true => None,
            // SAFETY: as above.
            false => Some(unsafe { handle::struct_out(report, "report") }?),
        };
        let mut built = builder.build(output)?;
        if options.update != 0 {
            // SAFETY: as above.
            let store = unsafe { store_options(options.store, "options.store") }?;
            if digest::complete(output, None, &store, &|_| ())? {
                built.index_bytes = Index::open_with(output, &store)?.size_bytes();
            }
        }
        if let Some(report) = report {
            report.write(built.into());
        }
        Ok(())
    })
}

/// # Safety
/// The pointers in `options` are as the header says.
unsafe fn builder(options: &rowdex_build_options) -> Result<IndexBuilder> {
    // SAFETY: the caller's promise.
    let inputs = unsafe { handle::paths(options.inputs, options.num_inputs, "options.inputs") }?;
    // SAFETY: as above.
    let parts = unsafe { handle::paths(options.parts, options.num_parts, "options.parts") }?;
    // SAFETY: as above.
    let from = unsafe { handle::texts(options.renames_from, options.num_renames, "options.renames_from") }?;
    // SAFETY: as above.
    let to = unsafe { handle::texts(options.renames_to, options.num_renames, "options.renames_to") }?;
    // SAFETY: as above.
    let lengths = unsafe { handle::texts(options.lengths, options.num_lengths, "options.lengths") }?;
    let progress = Progress::new(options.progress, options.progress_userdata);
    let differences = Differences { callback: options.difference, userdata: options.difference_userdata };
    let mut builder = IndexBuilder::new(inputs)
        .with_footers(options.no_footers == 0)
        .with_partitions(options.no_partitions == 0)
        .with_overwrite(options.overwrite != 0)
        .with_update(options.update != 0)
        .with_parts(parts)
        .with_renames(from.into_iter().zip(to))
        .with_lengths(lengths)
        .with_differences(move |difference| differences.tell(&difference.to_string()))
        .with_progress(move |build| progress.tell(build.files_done, build.files, build.rows));
    // SAFETY: as above.
    if let Some(root) = unsafe { handle::optional_path(options.root) } {
        builder = builder.with_root(root);
    }
    // SAFETY: as above.
    if let Some(mode) = unsafe { handle::optional_text(options.schema_mode, "options.schema_mode") }? {
        builder = builder.with_schema_mode(mode.parse()?);
    }
    // SAFETY: as above.
    if let Some(rows) = unsafe { handle::optional_path(options.rows_file) } {
        builder = builder.with_rows(rows);
    }
    if !options.store.is_null() {
        // SAFETY: as above.
        builder = builder.with_store_options(unsafe { store_options(options.store, "options.store") }?);
    }
    if options.slices > 0 {
        builder = builder.with_slice(options.slice, options.slices);
    }
    match count(options.threads, "options.threads")? {
        Count::Default => Ok(builder),
        Count::Exactly(threads) => Ok(builder.with_threads(threads)),
    }
}

/// Opens the index at a path or a URL: maps and checks it, and reads no data file. `store` says how the store that a
/// URL is in is talked to; NULL: by the defaults.
///
/// The file must not be changed in place while the index is open; replacing it by rename, as rowdex_index_build does,
/// is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_index_open(
    path: *const c_char,
    store: *const rowdex_store_options,
    index: Option<&mut MaybeUninit<*mut rowdex_index>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let index = out_param(index, "index")?;
        // SAFETY: the conventions of the header.
        let path = unsafe { handle::path(path, "path") }?;
        // SAFETY: as above.
        let store = unsafe { store_options(store, "store") }?;
        index.write(handle::handle(rowdex_index(Index::open_with(path, &store)?)));
        Ok(())
    })
}

/// Ends the life of an index handle and of the texts that were asked of it.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_index_free(index: Option<Box<rowdex_index>>) {
    handle::free(index);
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
        let (groups, rows) = (entry.row_groups(), entry.row_ids());
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
