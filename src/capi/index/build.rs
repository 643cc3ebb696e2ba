//! Building an index.

use std::ffi::{CString, c_char, c_void};
use std::mem::MaybeUninit;

use crate::builder::{BuildReport, IndexBuilder};
use crate::capi::error::{call, rowdex_error, rowdex_status};
use crate::capi::handle::{self, Versioned};
use crate::capi::option::{Count, count};
use crate::capi::progress::{Progress, rowdex_progress};
use crate::capi::store::{rowdex_store_options, store_options};
use rowdex_base::error::Result;

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
        let built = builder.build(output)?;
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
    handle::refuse_unused([("options.slice", options.slice != 0, options.slices > 0)], "an index of all files")?;
    if options.slices > 0 {
        builder = builder.with_slice(options.slice, options.slices);
    }
    match count(options.threads, "options.threads")? {
        Count::Default => Ok(builder),
        Count::Exactly(threads) => Ok(builder.with_threads(threads)),
    }
}
