//! Views: choosing the rows that an index serves.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::path::Path;
#[cfg(feature = "filter")]
use std::sync::Mutex;

use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, Versioned, require};
use super::id_set::rowdex_id_set;
use super::index::rowdex_index;
use super::progress::{Progress, rowdex_progress};
use super::store::{rowdex_store_options, store_options};
use crate::select::{Select, SelectReport};
use ::rowdex_index::Index;
use ::rowdex_io::source::StoreOptions;
use rowdex_base::error::Result;

/// Which rows a view serves. At least one choice must be made, but for an update. Every choice leaves rows out; only
/// or_views adds rows, to what the others leave.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_select_options {
    /// sizeof(rowdex_select_options)
    pub struct_size: usize,
    /// Keeps only the rows that this file lists, as for the list_file of a rowdex_id_set_options. NULL: all.
    pub rows_file: *const c_char,
    /// Leaves out the rows that this file lists. NULL: none.
    pub skip_file: *const c_char,
    /// Keeps only these rows, by row id of the base. NULL: all.
    pub kept: *const rowdex_id_set,
    /// What is recorded of kept. NULL: nothing.
    pub kept_note: *const c_char,
    /// Keeps only rows that these indexes of the same files serve, too.
    pub and_views: *const *const rowdex_index,
    /// How many.
    pub num_and: usize,
    /// Leaves out the rows that these indexes of the same files serve.
    pub not_views: *const *const rowdex_index,
    /// How many.
    pub num_not: usize,
    /// Adds the rows of these indexes of the same files to what all other choices leave.
    pub or_views: *const *const rowdex_index,
    /// How many.
    pub num_or: usize,
    /// Keeps a sample of this fraction of the rows, by a hash: a row stays in it when files are appended. 0: all rows.
    pub sample: f64,
    /// Another sample for another seed.
    pub sample_seed: u64,
    /// 1 replaces an existing file.
    pub overwrite: u64,
    /// How the store is talked to that the view goes to, and that conditions read from. NULL: the defaults.
    pub store: *const rowdex_store_options,
    /// Keeps only rows that meet this condition in SQL, which reads the columns that it needs. NULL: all.
    pub filter: *const c_char,
    /// Where the data is that a condition or split_by reads, instead of where the index says. NULL: there.
    pub filter_root: *const c_char,
    /// Is told how far the condition is: rows decided, rows in all, and 0. NULL: nobody is told.
    pub progress: rowdex_progress,
    /// The first argument of progress.
    pub progress_userdata: *mut c_void,
    /// Keeps only this side of a split by hash, "train" or "validation", as for a rowdex_id_set_options. NULL: all.
    pub split_side: *const c_char,
    /// Splits by the values of this column, which is read, as for a rowdex_id_set_options. NULL: by row id.
    pub split_by: *const c_char,
    /// The fraction of the rows, or of the keys, that is for validation, from 0 to 1.
    pub split_fraction: f64,
    /// Another split for another seed. What belongs to a choice that is not made is refused by name.
    pub split_seed: u64,
    /// 1 brings the view that is at `output` up to date with its base, by the choices that it records. Choices here
    /// must be zeros.
    pub update: u64,
}

// SAFETY: repr(C), begins with its size, and has only fields of 8 bytes for which 0 is valid.
unsafe impl Versioned for rowdex_select_options {}

/// What was selected.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_select_report {
    /// sizeof(rowdex_select_report), set by the caller.
    pub struct_size: usize,
    /// Rows that the view serves: row ids are 0 up to rows - 1.
    pub rows: u64,
    /// Rows that the base serves.
    pub base_rows: u64,
    /// Rows of the files, served or not.
    pub source_rows: u64,
    /// How often lists had rows beyond the first time.
    pub repeated: u64,
    /// Listed rows that are in the files and that the base does not serve.
    pub unserved: u64,
    /// Length of the view in bytes.
    pub index_bytes: u64,
    /// Files whose rows stay as they were chosen, in an update: nothing was read of them.
    pub kept_files: u64,
}

// SAFETY: repr(C) and integers of 8 bytes only.
unsafe impl Versioned for rowdex_select_report {}

impl From<SelectReport> for rowdex_select_report {
    fn from(report: SelectReport) -> Self {
        let SelectReport { rows, base_rows, source_rows, repeated, unserved, index_bytes, kept_files, .. } = report;
        Self { struct_size: 0, rows, base_rows, source_rows, repeated, unserved, index_bytes, kept_files }
    }
}

/// Writes a view of an index to `output`: an index of the same files that serves only some of the rows. No data is
/// copied, and none is read but for a condition. The path holds what it held, or the whole view, at any moment.
///
/// With `update` the view at `output` is brought up to date, after its base was by an update of rowdex_index_build:
/// rows of unchanged files stay as they were chosen, and the recorded choices are made again for all other files. Rows
/// of other views and sets of row ids are not recorded: a view that was made with them is refused. `base` is the base
/// as it is now; NULL: it is where the view recorded it.
///
/// `report` may be NULL. A view without rows is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_select(
    base: Option<&rowdex_index>,
    output: *const c_char,
    options: *const rowdex_select_options,
    report: *mut rowdex_select_report,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let output = unsafe { handle::path(output, "output") }?;
        // SAFETY: as above.
        let options = unsafe { handle::options(options, "options") }?;
        let base = match base {
            // SAFETY: as above.
            None if options.update != 0 => unsafe { recorded_base(output, &options) }?,
            base => require(base, "base")?.0.clone(),
        };
        // SAFETY: as above.
        let select = unsafe { choices(Select::new(base), &options) }?;
        let report = match report.is_null() {
            true => None,
            // SAFETY: as above.
            false => Some(unsafe { handle::struct_out(report, "report") }?),
        };
        let selected = if options.update != 0 { select.update(output) } else { select.write(output) }?;
        if let Some(report) = report {
            report.write(selected.into());
        }
        Ok(())
    })
}

/// The index that a view records as its base.
///
/// # Safety
/// The pointers in `options` are as the header says.
unsafe fn recorded_base(view: &Path, options: &rowdex_select_options) -> Result<Index> {
    let store = match options.store.is_null() {
        true => StoreOptions::default(),
        // SAFETY: the caller's promise.
        false => unsafe { store_options(options.store, "options.store") }?,
    };
    Index::open_with(view, &store)?.open_base(&store)
}

/// # Safety
/// The pointers in `options` are as the header says.
unsafe fn choices(mut select: Select, options: &rowdex_select_options) -> Result<Select> {
    let (splits, by_column) = (!options.split_side.is_null(), !options.split_by.is_null());
    let fields = [
        ("options.kept_note", !options.kept_note.is_null(), !options.kept.is_null()),
        ("options.sample_seed", options.sample_seed != 0, options.sample != 0.0),
        ("options.split_by", by_column, splits),
        ("options.split_fraction", options.split_fraction != 0.0, splits),
        ("options.split_seed", options.split_seed != 0, splits),
    ];
    handle::refuse_unused(fields, "the rows that are chosen")?;
    select = select.with_overwrite(options.overwrite != 0);
    // SAFETY: the caller's promise.
    if let Some(list) = unsafe { handle::optional_path(options.rows_file) } {
        select = select.rows(list);
    }
    // SAFETY: as above.
    if let Some(list) = unsafe { handle::optional_path(options.skip_file) } {
        select = select.skip(list);
    }
    // SAFETY: as above.
    if let Some(kept) = unsafe { options.kept.as_ref() } {
        // SAFETY: as above.
        let note = unsafe { handle::optional_text(options.kept_note, "options.kept_note") }?;
        select = select.kept((*kept.0).clone(), note.unwrap_or_default());
    }
    // SAFETY: as above.
    for view in unsafe { views(options.and_views, options.num_and, "options.and_views") }? {
        select = select.and(view);
    }
    // SAFETY: as above.
    for view in unsafe { views(options.not_views, options.num_not, "options.not_views") }? {
        select = select.not(view);
    }
    // SAFETY: as above.
    for view in unsafe { views(options.or_views, options.num_or, "options.or_views") }? {
        select = select.or(view);
    }
    if options.sample != 0.0 {
        select = select.sample(options.sample, options.sample_seed);
    }
    // SAFETY: as above.
    if let Some(side) = unsafe { handle::optional_text(options.split_side, "options.split_side") }? {
        let (side, fraction, seed) = (side.parse()?, options.split_fraction, options.split_seed);
        // SAFETY: as above.
        select = match unsafe { handle::optional_text(options.split_by, "options.split_by") }? {
            Some(column) => select.split_by(column, side, fraction, seed),
            None => select.split(side, fraction, seed),
        };
    }
    // SAFETY: as above.
    if let Some(root) = unsafe { handle::optional_path(options.filter_root) } {
        select = select.with_root(root);
    }
    // SAFETY: as above.
    let filter = unsafe { handle::optional_text(options.filter, "options.filter") }?;
    select = filtered(select, filter, Progress::new(options.progress, options.progress_userdata))?;
    if !options.store.is_null() {
        // SAFETY: as above.
        select = select.with_store_options(unsafe { store_options(options.store, "options.store") }?);
    }
    Ok(select)
}

/// # Safety
/// There are `len` indexes, as the header says.
unsafe fn views(first: *const *const rowdex_index, len: usize, name: &str) -> Result<Vec<Index>> {
    // SAFETY: the caller's promise.
    let views = unsafe { handle::slice(first, len, name) }?;
    let name = format!("{name}[…]");
    // SAFETY: as above.
    views.iter().map(|view| Ok(require(unsafe { view.as_ref() }, &name)?.0.clone())).collect()
}

#[cfg(feature = "filter")]
fn filtered(select: Select, filter: Option<&str>, progress: Progress) -> Result<Select> {
    let progress = Mutex::new(progress);
    let select = select.with_progress(move |at| {
        if let Ok(progress) = progress.lock() {
            progress.tell(at.rows_done, at.rows, 0);
        }
    });
    Ok(match filter {
        Some(filter) => select.filter(filter),
        None => select,
    })
}

#[cfg(not(feature = "filter"))]
fn filtered(select: Select, filter: Option<&str>, _: Progress) -> Result<Select> {
    match filter {
        Some(_) => Err(super::id_set::no_filters()),
        None => Ok(select),
    }
}
