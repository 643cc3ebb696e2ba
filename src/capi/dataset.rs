//! Rows by their row id.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

use arrow::ffi::FFI_ArrowSchema;

use super::arrow::export_schema;
use super::batch::rowdex_batch;
use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, Versioned, out_param, require};
use super::index::rowdex_index;
use super::option::{Count, bytes, count};
use super::progress::{Progress, rowdex_progress};
use super::store::store_options;
use super::tier::{disk_tier, rowdex_disk_tier};
use crate::dataset::{Dataset, DatasetBuilder, MapDataset, MixedDataset, Staleness, VerifyProgress, VerifyReport};
use ::rowdex_index::Index;
use rowdex_base::error::Result;

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
    /// How the object store is talked to, if the data is in one, as for rowdex_index_open. NULL: the defaults.
    pub store: *const c_char,
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
        let index = require(index, "index")?.0.clone();
        let out = out_param(dataset, "dataset")?;
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
    if !options.columns.is_null() || options.num_columns > 0 {
        // SAFETY: the caller's promise.
        builder =
            builder.with_columns(unsafe { handle::texts(options.columns, options.num_columns, "options.columns") }?);
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
        builder = builder.with_store_options(unsafe { store_options(options.store) }?);
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

/// Several datasets of the same columns as one: the row ids of a dataset follow those of the ones before. They may be
/// freed afterwards.
///
/// Each keeps its own cache, threads and options. The indexes of rowdex_order_new number rows in the same way.
/// Rows and loaders work as with any dataset; what is about one index or one cache is an error that says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_dataset_mixed(
    datasets: *const *const rowdex_dataset,
    num_datasets: usize,
    mixed: Option<&mut MaybeUninit<*mut rowdex_dataset>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let out = out_param(mixed, "mixed")?;
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

/// How many rows there are: row ids are 0 up to len - 1.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_dataset_len(dataset: Option<&rowdex_dataset>) -> u64 {
    dataset.map_or(0, |dataset| dataset.map().len())
}

/// About how many bytes the chosen columns of all rows take when decoded, as the footers tell. May parse a few footers.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_dataset_decoded_bytes(
    dataset: Option<&rowdex_dataset>,
    bytes: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let bytes = out_param(bytes, "bytes")?;
        bytes.write(match &require(dataset, "dataset")?.0 {
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
        let dataset = require(dataset, "dataset")?.map();
        out_param(schema, "schema")?.write(export_schema(dataset.schema())?);
        Ok(())
    })
}

/// Rows in the order asked, as a batch that the caller frees: export it, or copy its columns into buffers. It says that
/// it is step 0 of 1 on rank 0.
///
/// Row ids may repeat. Each row group is decoded at most once in a call, several in parallel. A single row takes
/// microseconds when its row group is cached, and otherwise reads the pages that hold the row, or the row group. All
/// columns served are read, so open the dataset with those that are wanted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_dataset_take(
    dataset: Option<&rowdex_dataset>,
    rows: *const u64,
    num_rows: usize,
    batch: Option<&mut MaybeUninit<*mut rowdex_batch>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let dataset = require(dataset, "dataset")?.map();
        let out = out_param(batch, "batch")?;
        // SAFETY: the conventions of the header.
        let rows = unsafe { handle::slice(rows, num_rows, "rows") }?;
        let records = match rows {
            [row] => dataset.get(*row)?,
            rows => dataset.take(rows)?,
        };
        out.write(handle::handle(rowdex_batch::of_rows(records, rows)));
        Ok(())
    })
}

/// What a check found.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_verify_info {
    /// sizeof(rowdex_verify_info), set by the caller.
    pub struct_size: usize,
    /// Files that were looked at.
    pub files: u64,
    /// Rows that were decoded; 0 below "deep".
    pub rows: u64,
    /// How many files are bad.
    pub problems: u64,
}

// SAFETY: repr(C) and integers of 8 bytes only.
unsafe impl Versioned for rowdex_verify_info {}

/// Checks the index, then every data file at this level, and reports all bad files at once.
///
/// "off" looks at the index alone, "stat" costs a stat for each file, "footer" a read for each file, and "deep" decodes
/// the chosen columns of every row group. Bad files are no error of the call: `problems` are what is wrong with them,
/// in the order of the files, for rowdex_error_at; NULL if none is bad. The caller frees them by rowdex_free.
/// `progress` and `info` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_dataset_verify(
    dataset: Option<&rowdex_dataset>,
    level: *const c_char,
    progress: rowdex_progress,
    progress_userdata: *mut c_void,
    info: *mut rowdex_verify_info,
    problems: Option<&mut MaybeUninit<*mut rowdex_error>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let dataset = require(dataset, "dataset")?.one()?;
        let out = out_param(problems, "problems")?;
        // SAFETY: the conventions of the header.
        let info = unsafe { handle::optional_struct_out(info, "info") }?;
        // SAFETY: as above.
        let level: Staleness = unsafe { handle::text(level, "level") }?.parse()?;
        let progress = Progress::new(progress, progress_userdata);
        let tell = |verify: VerifyProgress| progress.tell(verify.files_done, verify.files, 0);
        let VerifyReport { files, rows, problems, .. } = dataset.verify(level, &tell)?;
        if let Some(info) = info {
            info.write(rowdex_verify_info { struct_size: 0, files, rows, problems: problems.len() as u64 });
        }
        out.write(rowdex_error::several(problems.iter().map(rowdex_error::new)));
        Ok(())
    })
}
