//! Rows by their row id.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use serde_json::{Value, json};

use super::error::{self, give, rowdex_error, rowdex_status};
use super::handle::{self, GivenOptions, chosen, require};
use super::index::rowdex_index;
use super::kind::{self, AnyHandle};
use crate::dataset::{Dataset, DatasetBuilder, DiskCache, MapDataset, MixedDataset, Staleness};
use crate::describe::OptionalSetting;
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
            Rows::Mixed(_) => Err(handle::invalid("a mixed dataset has no single index, column, cache or file")
                .with_hint("ask the datasets that it was made of")),
        }
    }
}

impl AnyHandle for rowdex_dataset {
    fn told(&self) -> Result<Value> {
        let dataset = match &self.0 {
            Rows::One(dataset) => dataset,
            Rows::Mixed(mixed) => return Ok(json!({ "rows": mixed.len() })),
        };
        let mut told = error::json(&dataset.counters())?;
        told["rows"] = dataset.len().into();
        told["disk_cache"] = error::json(&dataset.disk_cache_counters())?;
        told["disk_cache"]["fault"] = dataset.disk_cache_fault().as_ref().map(error::told).into();
        Ok(told)
    }

    fn columns(&self) -> Result<SchemaRef> {
        Ok(self.map().schema().clone())
    }

    fn take(&self, rows: &[u64]) -> Result<RecordBatch> {
        match rows {
            [row] => self.map().get(*row),
            rows => self.map().take(rows),
        }
    }
}

/// How a dataset is opened. All zeros are the defaults.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_dataset_options {
    /// The columns to serve, in this order; a path with dots names a nested field. NULL: all.
    pub columns: *const *const c_char,
    /// How many.
    pub num_columns: usize,
    /// Finds the data files below this directory. NULL: where the index says that they were.
    pub root: *const c_char,
    /// How closely files are compared with what was indexed: "off", "stat" (NULL), "footer" or "deep".
    pub check: *const c_char,
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
    pub disk_cache: *const rowdex_disk_cache,
}

// SAFETY: pointers and integers.
unsafe impl GivenOptions for rowdex_dataset_options {}

/// A folder on a local disk that keeps row groups for all processes of a machine. Only its owner should be able to
/// write to it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_disk_cache {
    /// The folder, which is made when something is first kept.
    pub folder: *const c_char,
    /// The most bytes of files to keep in it.
    pub bytes: u64,
}

/// Opens the dataset of an index, which may be freed afterwards. Reads no data file and starts no thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_dataset_open(
    index: Option<&rowdex_index>,
    options: Option<&rowdex_dataset_options>,
    dataset: Option<&mut MaybeUninit<*mut rowdex_dataset>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    give(error, dataset, "dataset", || {
        let index = require(index, "index")?.0.clone();
        // SAFETY: the conventions of the header.
        let dataset = unsafe { builder(index, &GivenOptions::of(options)) }?.open()?;
        Ok(kind::handle(rowdex_dataset(Rows::One(dataset))))
    })
}

/// # Safety
/// The pointers in `options` are as the header says.
unsafe fn builder(index: Index, options: &rowdex_dataset_options) -> Result<DatasetBuilder> {
    // SAFETY: the caller's promise.
    let columns = unsafe { handle::texts(options.columns, options.num_columns, "options.columns") }?;
    // SAFETY: as above.
    let level = unsafe { handle::optional_text(options.check, "options.check") }?;
    // SAFETY: as above.
    let (root, store) = unsafe { (handle::optional_path(options.root), handle::store_options(options.store)?) };
    let are_chosen = !options.columns.is_null() || options.num_columns > 0;
    let builder = Dataset::builder(index)
        .given(are_chosen.then_some(columns), DatasetBuilder::with_columns)
        .given(root, DatasetBuilder::with_root)
        .given(level.map(str::parse::<Staleness>).transpose()?, DatasetBuilder::with_check)
        .given((!options.store.is_null()).then_some(store), DatasetBuilder::with_store_options)
        .given(chosen(options.cache_bytes), DatasetBuilder::with_cache_bytes)
        .given(chosen(options.max_decoded_bytes), DatasetBuilder::with_max_decoded_bytes)
        .given(chosen(options.threads).map(|threads| threads as usize), DatasetBuilder::with_threads);
    // SAFETY: as above.
    let Some(cache) = (unsafe { options.disk_cache.as_ref() }) else { return Ok(builder) };
    // SAFETY: as above.
    let folder = unsafe { handle::path(cache.folder, "options.disk_cache.folder") }?;
    if cache.bytes == 0 {
        return Err(handle::invalid("a disk cache of 0 bytes keeps nothing").with_hint("set its bytes, or give none"));
    }
    Ok(builder.with_disk_cache(DiskCache::new(folder, cache.bytes)))
}

/// Several datasets of the same columns as one: the row ids of a dataset follow those of the ones before. They may be
/// freed afterwards.
///
/// Each keeps its own cache, threads and options. The indexes of rowdex_order_new number rows in the same way. Rows and
/// loaders work as with any dataset; what is about one index or one cache is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_dataset_mixed(
    datasets: *const *const rowdex_dataset,
    num_datasets: usize,
    mixed: Option<&mut MaybeUninit<*mut rowdex_dataset>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    give(error, mixed, "mixed", || {
        // SAFETY: the conventions of the header.
        let datasets = unsafe { handle::slice(datasets, num_datasets, "datasets") }?;
        let datasets = datasets.iter().map(|dataset| {
            // SAFETY: as above.
            let dataset = unsafe { handle::borrow(dataset.cast_mut(), "datasets[…]") }?;
            dataset.one().cloned()
        });
        let mixed = MixedDataset::new(datasets.collect::<Result<Vec<_>>>()?)?;
        Ok(kind::handle(rowdex_dataset(Rows::Mixed(mixed))))
    })
}

/// How many rows there are: row ids are 0 up to len - 1.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_dataset_len(dataset: Option<&rowdex_dataset>) -> u64 {
    dataset.map_or(0, |dataset| dataset.map().len())
}

/// About how many bytes the chosen columns of all rows take when decoded, according to the footers. May parse a few
/// footers.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_dataset_decoded_bytes(
    dataset: Option<&rowdex_dataset>,
    bytes: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    give(error, bytes, "bytes", || match &require(dataset, "dataset")?.0 {
        Rows::One(dataset) => Ok(dataset.decoded_bytes()),
        Rows::Mixed(mixed) => Ok(mixed.datasets().iter().map(Dataset::decoded_bytes).fold(0, u64::saturating_add)),
    })
}
