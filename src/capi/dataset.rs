//! Rows by their row id.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use serde_json::{Value, json};

use super::error::{self, call, rowdex_error, rowdex_status};
use super::handle::{self, Versioned, out_param, require};
use super::index::rowdex_index;
use super::kind::{self, Asked};
use super::option::{Count, bytes, count};
use super::store::store_options;
use super::tier::{disk_cache, rowdex_disk_cache};
use crate::dataset::{Dataset, DatasetBuilder, MapDataset, MixedDataset};
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

impl Asked for rowdex_dataset {
    fn told(&self) -> Result<Value> {
        let dataset = match &self.0 {
            Rows::One(dataset) => dataset,
            Rows::Mixed(mixed) => return Ok(json!({ "rows": mixed.len() })),
        };
        let did = dataset.counters();
        let tier = dataset.disk_cache_counters();
        Ok(json!({
            "rows": dataset.len(),
            "hits": did.hits,
            "misses": did.misses,
            "decodes": did.decodes,
            "bytes_decoded": did.bytes_decoded,
            "bytes_read": did.bytes_read,
            "evictions": did.evictions,
            "held_bytes": did.held_bytes,
            "requests": did.requests,
            "bytes_fetched": did.bytes_fetched,
            "tier": {
                "hits": tier.hits,
                "misses": tier.misses,
                "writes": tier.writes,
                "bytes_written": tier.bytes_written,
                "evictions": tier.evictions,
                "bytes_evicted": tier.bytes_evicted,
                "discards": tier.discards,
                "fault": dataset.tier_fault().as_ref().map(error::told),
            },
        }))
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
    /// sizeof(rowdex_dataset_options)
    pub struct_size: usize,
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
        out.write(kind::handle(rowdex_dataset(Rows::One(dataset))));
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
    if let Some(level) = unsafe { handle::optional_text(options.check, "options.check") }? {
        builder = builder.with_check(level.parse()?);
    }
    if !options.store.is_null() {
        // SAFETY: as above.
        builder = builder.with_store_options(unsafe { store_options(options.store) }?);
    }
    // SAFETY: as above.
    if let Some(tier) = unsafe { disk_cache(options.disk_cache, "options.disk_cache") }? {
        builder = builder.with_disk_cache(tier);
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
        out.write(kind::handle(rowdex_dataset(Rows::Mixed(mixed))));
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
