//! Rows by their row id.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Mutex;

use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema};

use super::arrow::{export_batch, export_schema};
use super::buffers::{copy_into, rowdex_column_buffer};
use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, Versioned, given, place};
use super::index::{Count, Progress, count, rowdex_index, rowdex_progress};
use super::store::{rowdex_store_options, store_options};
use super::tier::{disk_tier, rowdex_disk_tier};
use crate::dataset::{MixedDataset, VerifyReport};
use crate::{Counters, Dataset, DatasetBuilder, Index, MapDataset, Result, Staleness};

/// Rows by their row id. Concurrent use is fine, and so is freeing it while a loader uses it.
#[derive(Debug)]
pub struct rowdex_dataset(pub(super) Rows);

/// The rows of one index, or of several.
#[derive(Debug)]
pub(super) enum Rows {
    One(Dataset),
    Mixed(MixedDataset),
}

impl rowdex_dataset {
    /// What all datasets do.
    pub(super) fn map(&self) -> &dyn MapDataset {
        match &self.0 {
            Rows::One(dataset) => dataset,
            Rows::Mixed(dataset) => dataset,
        }
    }

    /// What only a dataset with an index of its own does.
    pub(super) fn one(&self) -> Result<&Dataset> {
        match &self.0 {
            Rows::One(dataset) => Ok(dataset),
            Rows::Mixed(_) => Err(handle::invalid("a mixed dataset has no index, column, cache and file of its own")
                .with_hint("ask the datasets that it was made of")),
        }
    }
}

/// How a dataset is opened. All zeros are the defaults.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_dataset_options {
    /// sizeof(rowdex_dataset_options)
    pub struct_size: usize,
    /// The columns to serve, in this order; a path with dots names a nested field. NULL: all.
    pub columns: *const *const c_char,
    /// How many.
    pub num_columns: usize,
    /// Finds the data files below this directory. NULL: where the index says that they were.
    pub root: *const c_char,
    /// How closely files are compared with what was indexed: "off", "stat" (NULL), "footer" or "deep".
    pub staleness: *const c_char,
    /// Bytes of decoded row groups to keep. 0: 1 GiB.
    pub cache_bytes: u64,
    /// Threads that decode, started when they are first needed. 0: one for each available core, at most eight.
    /// ROWDEX_NONE: none, the caller's decodes.
    pub threads: u64,
    /// Refuses a row group that takes more bytes than this when decoded. 0: 2 GiB.
    pub max_decoded_bytes: u64,
    /// How the object store is talked to, if the data is in one. NULL: the defaults.
    pub store: *const rowdex_store_options,
    /// Keeps row groups on a local disk. NULL: none does.
    pub disk_tier: *const rowdex_disk_tier,
}

// SAFETY: repr(C), begins with its size, and has only fields of 8 bytes for which 0 is valid.
unsafe impl Versioned for rowdex_dataset_options {}

/// Opens the dataset of an index, which may be freed afterwards. Reads no data file and starts no thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_dataset_open(
    index: Option<&rowdex_index>,
    options: *const rowdex_dataset_options,
    dataset: Option<&mut MaybeUninit<*mut rowdex_dataset>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let index = given(index, "index")?.0.clone();
        let out = place(dataset, "dataset")?;
        // SAFETY: the conventions of the header.
        let options = unsafe { handle::options(options, "options") }?;
        // SAFETY: as above.
        let dataset = unsafe { builder(index, &options) }?.open()?;
        out.write(handle::handle(rowdex_dataset(Rows::One(dataset))));
        Ok(())
    })
}

/// # Safety
/// The pointers in `options` are as the header says.
unsafe fn builder(index: Index, options: &rowdex_dataset_options) -> Result<DatasetBuilder> {
    let mut builder = Dataset::builder(index);
    if !options.columns.is_null() {
        // SAFETY: the caller's promise.
        let columns = unsafe { handle::slice(options.columns, options.num_columns, "options.columns") }?;
        // SAFETY: as above.
        let name = |name: &*const c_char| unsafe { handle::text(*name, "options.columns[…]") }.map(str::to_owned);
        builder = builder.with_columns(columns.iter().map(name).collect::<Result<Vec<_>>>()?);
    }
    // SAFETY: as above.
    if let Some(root) = unsafe { handle::optional_path(options.root) } {
        builder = builder.with_root(root);
    }
    // SAFETY: as above.
    if let Some(level) = unsafe { handle::optional_text(options.staleness, "options.staleness") }? {
        builder = builder.with_staleness(level.parse()?);
    }
    if !options.store.is_null() {
        // SAFETY: as above.
        builder = builder.with_store_options(unsafe { store_options(options.store, "options.store") }?);
    }
    // SAFETY: as above.
    if let Some(tier) = unsafe { disk_tier(options.disk_tier, "options.disk_tier") }? {
        builder = builder.with_disk_tier(tier);
    }
    if let Some(bytes) = bytes(options.cache_bytes) {
        builder = builder.with_cache_bytes(bytes);
    }
    if let Some(bytes) = bytes(options.max_decoded_bytes) {
        builder = builder.with_max_decoded_bytes(bytes);
    }
    if let Count::Exactly(threads) = count(options.threads, "options.threads")? {
        builder = builder.with_threads(threads);
    }
    Ok(builder)
}

/// A number of bytes of which 0 stands for the default and [`ROWDEX_NONE`](super::version::ROWDEX_NONE) for 0.
pub(super) fn bytes(option: u64) -> Option<u64> {
    match option {
        0 => None,
        super::version::ROWDEX_NONE => Some(0),
        more => Some(more),
    }
}

/// Several datasets of the same columns as one: the row ids of a dataset follow those of the ones before. They may be freed afterwards.
///
/// Each keeps its own cache, threads and options. The `indexes` of a rowdex_order_options number rows in the same way. Rows and loaders work as with any dataset;
/// what is about one index or one cache is an error that says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_dataset_mixed(
    datasets: *const *const rowdex_dataset,
    num_datasets: usize,
    mixed: Option<&mut MaybeUninit<*mut rowdex_dataset>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let out = place(mixed, "mixed")?;
        // SAFETY: the conventions of the header.
        let datasets = unsafe { handle::slice(datasets, num_datasets, "datasets") }?;
        let datasets = datasets.iter().map(|dataset| {
            // SAFETY: as above.
            let dataset = unsafe { handle::borrow(dataset.cast_mut(), "datasets[…]") }?;
            dataset.one().cloned()
        });
        let mixed = MixedDataset::new(datasets.collect::<Result<Vec<_>>>()?)?;
        out.write(handle::handle(rowdex_dataset(Rows::Mixed(mixed))));
        Ok(())
    })
}

/// Ends the life of a dataset handle, and of its cache and threads unless a loader still uses them.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_dataset_free(dataset: Option<Box<rowdex_dataset>>) {
    handle::free(dataset);
}

/// How many rows there are: row ids are 0 up to len - 1.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_dataset_len(dataset: Option<&rowdex_dataset>) -> u64 {
    dataset.map_or(0, |dataset| dataset.map().len())
}

/// A new handle of the index that the dataset was opened with, which the caller frees; NULL for NULL and for a mixed dataset.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_dataset_index(dataset: Option<&rowdex_dataset>) -> *mut rowdex_index {
    let index = dataset.and_then(|dataset| Some(dataset.one().ok()?.index().clone()));
    index.map_or(ptr::null_mut(), |index| handle::handle(rowdex_index(index)))
}

/// About how many bytes the chosen columns of all rows take when decoded, as the footers tell. May parse a few footers.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_dataset_decoded_bytes(
    dataset: Option<&rowdex_dataset>,
    bytes: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let bytes = place(bytes, "bytes")?;
        bytes.write(match &given(dataset, "dataset")?.0 {
            Rows::One(dataset) => dataset.decoded_bytes(),
            Rows::Mixed(mixed) => mixed.datasets().iter().map(Dataset::decoded_bytes).fold(0, u64::saturating_add),
        });
        Ok(())
    })
}

/// The columns served, as an Arrow struct type that the caller releases.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_dataset_schema(
    dataset: Option<&rowdex_dataset>,
    schema: Option<&mut MaybeUninit<FFI_ArrowSchema>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let dataset = given(dataset, "dataset")?.map();
        place(schema, "schema")?.write(export_schema(dataset.schema())?);
        Ok(())
    })
}

/// One row, as an Arrow struct array of length 1 that the caller releases, and its type (may be NULL if it is not wanted).
///
/// Microseconds when its row group is cached. Otherwise it reads the pages that hold the row, or the row group.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_dataset_get(
    dataset: Option<&rowdex_dataset>,
    row: u64,
    array: Option<&mut MaybeUninit<FFI_ArrowArray>>,
    schema: Option<&mut MaybeUninit<FFI_ArrowSchema>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let dataset = given(dataset, "dataset")?.map();
        let array = place(array, "array")?;
        export_batch(dataset.get(row)?, array, schema)
    })
}

/// Rows in the order asked, as an Arrow struct array that the caller releases, and its type (may be NULL if it is not wanted).
///
/// Row ids may repeat. Each row group is decoded at most once in a call, several in parallel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_dataset_take(
    dataset: Option<&rowdex_dataset>,
    rows: *const u64,
    num_rows: usize,
    array: Option<&mut MaybeUninit<FFI_ArrowArray>>,
    schema: Option<&mut MaybeUninit<FFI_ArrowSchema>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let dataset = given(dataset, "dataset")?.map();
        let array = place(array, "array")?;
        // SAFETY: the conventions of the header.
        let rows = unsafe { handle::slice(rows, num_rows, "rows") }?;
        export_batch(dataset.take(rows)?, array, schema)
    })
}

/// Rows in the order asked, with columns of fixed width written to the caller's buffers. All columns served are read, so open the
/// dataset with those that are wanted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_dataset_take_into(
    dataset: Option<&rowdex_dataset>,
    rows: *const u64,
    num_rows: usize,
    columns: *const rowdex_column_buffer,
    num_columns: usize,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let dataset = given(dataset, "dataset")?.map();
        // SAFETY: the conventions of the header.
        let rows = unsafe { handle::slice(rows, num_rows, "rows") }?;
        // SAFETY: as above.
        let columns = unsafe { handle::slice(columns, num_columns, "columns") }?;
        // SAFETY: as above.
        unsafe { copy_into(&dataset.take(rows)?, columns) }
    })
}

/// What a dataset has done so far, in this process.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_counters {
    /// sizeof(rowdex_counters), set by the caller.
    pub struct_size: usize,
    /// Look-ups that found the row group decoded, or being decoded by another thread.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
    /// Row groups decoded, whole or in part.
    pub decodes: u64,
    /// Bytes of decoded Arrow data that those decodes made.
    pub bytes_decoded: u64,
    /// Bytes read from the source, page indexes and footers included.
    pub bytes_read: u64,
    /// Row groups dropped to make room.
    pub evictions: u64,
    /// Bytes of decoded row groups held now.
    pub held_bytes: u64,
    /// Requests sent to a store; 0 for local files.
    pub requests: u64,
    /// Bytes that a store delivered, those of failed and repeated requests included.
    pub bytes_fetched: u64,
}

// SAFETY: repr(C) and integers of 8 bytes only.
unsafe impl Versioned for rowdex_counters {}

/// What a dataset has done so far, in this process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_dataset_counters(
    dataset: Option<&rowdex_dataset>,
    counters: *mut rowdex_counters,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let dataset = given(dataset, "dataset")?.one()?;
        // SAFETY: the conventions of the header.
        let out = unsafe { handle::struct_out(counters, "counters") }?;
        let told = dataset.counters();
        let Counters { hits, misses, decodes, bytes_decoded, bytes_read, evictions, held_bytes, .. } = told;
        let Counters { requests, bytes_fetched, .. } = told;
        let struct_size = 0;
        out.write(rowdex_counters {
            struct_size,
            hits,
            misses,
            decodes,
            bytes_decoded,
            bytes_read,
            evictions,
            held_bytes,
            requests,
            bytes_fetched,
        });
        Ok(())
    })
}

/// What rowdex_dataset_verify found.
#[derive(Debug)]
pub struct rowdex_verify_report {
    report: VerifyReport,
    problems: Vec<rowdex_error>,
}

/// Checks the index, then every data file at this level, and reports all bad files at once.
///
/// "off" looks at the index alone, "stat" costs a stat for each file, "footer" a read for each file, and "deep" decodes the chosen columns of
/// every row group. Bad files are no error of the call: they are in the report, which the caller frees. `progress` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_dataset_verify(
    dataset: Option<&rowdex_dataset>,
    level: *const c_char,
    progress: rowdex_progress,
    progress_userdata: *mut c_void,
    report: Option<&mut MaybeUninit<*mut rowdex_verify_report>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let dataset = given(dataset, "dataset")?.one()?;
        let out = place(report, "report")?;
        // SAFETY: the conventions of the header.
        let level: Staleness = unsafe { handle::text(level, "level") }?.parse()?;
        let progress = Mutex::new(Progress::new(progress, progress_userdata));
        let report = dataset.verify(level, &|verify| {
            if let Ok(progress) = progress.lock() {
                progress.tell(verify.files_done, verify.files, 0);
            }
        })?;
        let problems = report.problems.iter().map(rowdex_error::new).collect();
        out.write(handle::handle(rowdex_verify_report { report, problems }));
        Ok(())
    })
}

/// Files that were looked at.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_verify_report_files(report: Option<&rowdex_verify_report>) -> u64 {
    report.map_or(0, |report| report.report.files)
}

/// Rows that were decoded; 0 below "deep".
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_verify_report_rows(report: Option<&rowdex_verify_report>) -> u64 {
    report.map_or(0, |report| report.report.rows)
}

/// How many files are bad.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_verify_report_num_problems(report: Option<&rowdex_verify_report>) -> usize {
    report.map_or(0, |report| report.problems.len())
}

/// What is wrong with a bad file, in the order of the files. It belongs to the report; NULL beyond the last one.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_verify_report_problem(
    report: Option<&rowdex_verify_report>,
    problem: usize,
) -> *const rowdex_error {
    report.and_then(|report| report.problems.get(problem)).map_or(ptr::null(), ptr::from_ref)
}

/// Ends the life of a report and of its errors.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_verify_report_free(report: Option<Box<rowdex_verify_report>>) {
    handle::free(report);
}
