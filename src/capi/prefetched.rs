//! Rows prefetched in the order of a sampler of one's own.

use std::mem::MaybeUninit;

use arrow_array::RecordBatch;
use serde_json::{Value, json};

use super::dataset::rowdex_dataset;
use super::error::{call, give, rowdex_error, rowdex_status};
use super::handle::{self, Exclusive, GivenOptions, chosen, require};
use super::kind::{self, AnyHandle};
use crate::loader::{Control, Prefetched};
use rowdex_base::error::Result;

/// Serves rows in the order in which they were prefetched, and any others as the dataset does. One thread at a time,
/// and a second one gets an error; but rowdex_close may be called at any time.
#[derive(Debug)]
pub struct rowdex_prefetched(Exclusive<Prefetched>, Control);

impl AnyHandle for rowdex_prefetched {
    fn told(&self) -> Result<Value> {
        let prefetched = self.0.lock("prefetched rows")?;
        let told = prefetched.stats();
        Ok(json!({
            "prefetched": told.prefetched,
            "waiting": prefetched.waiting(),
            "followed": told.followed,
            "fell_back": told.fell_back,
            "decodes": told.loader.decodes,
            "held_bytes": told.loader.held_bytes,
            "peak_bytes": told.loader.peak_bytes,
        }))
    }

    fn take(&self, rows: &[u64]) -> Result<RecordBatch> {
        self.0.lock("prefetched rows")?.take(rows)
    }

    fn close(&self) {
        self.1.close();
    }
}

/// How prefetched rows are served. All zeros are the defaults.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_prefetched_options {
    /// Bytes of decoded rows to hold at most. 0: 1 GiB.
    pub memory: u64,
    /// Threads that read ahead, started by the first call that takes prefetched rows. 0: 2. ROWDEX_NONE: none, taking
    /// does all work.
    pub threads: u64,
}

// SAFETY: integers.
unsafe impl GivenOptions for rowdex_prefetched_options {}

/// Reads ahead for row ids that will be asked for in this order: one epoch of a sampler, or as much as is known. They
/// are copied, and may be none yet.
///
/// They are then served at about the speed of a scan within the memory: each row group is decoded once per horizon,
/// instead of once per call. The dataset may be freed afterwards. Reads nothing and starts no thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_dataset_prefetch(
    dataset: Option<&rowdex_dataset>,
    rows: *const u64,
    num_rows: usize,
    options: Option<&rowdex_prefetched_options>,
    prefetched: Option<&mut MaybeUninit<*mut rowdex_prefetched>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    give(error, prefetched, "prefetched", || {
        let dataset = require(dataset, "dataset")?.one()?;
        // SAFETY: the conventions of the header.
        let rows = unsafe { handle::slice(rows, num_rows, "rows") }?;
        let options = GivenOptions::of(options);
        let memory = chosen(options.memory).unwrap_or(1 << 30);
        let mut prefetched = Prefetched::new(dataset, memory, chosen(options.threads).unwrap_or(2) as usize);
        prefetched.prefetch(rows)?;
        let control = prefetched.control();
        Ok(kind::handle(rowdex_prefetched(Exclusive::new(prefetched), control)))
    })
}

/// Says what will be asked for after all that was prefetched before. Row ids may repeat, and are copied: 8 bytes each
/// until they are passed.
///
/// If one is not in the dataset, none of them is prefetched. Prefetch early: fewer rows than the horizon
/// mean more decodes than need be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_prefetched_prefetch(
    prefetched: *mut rowdex_prefetched,
    rows: *const u64,
    num_rows: usize,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let mut prefetched = unsafe { handle::borrow(prefetched, "prefetched") }?.0.lock("prefetched rows")?;
        // SAFETY: as above.
        prefetched.prefetch(unsafe { handle::slice(rows, num_rows, "rows") }?)
    })
}

/// Forgets what was prefetched and not taken, as when an epoch is abandoned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_prefetched_clear(
    prefetched: *mut rowdex_prefetched,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        unsafe { handle::borrow(prefetched, "prefetched") }?.0.lock("prefetched rows")?.clear();
        Ok(())
    })
}
