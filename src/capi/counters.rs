//! What a dataset has done, with its cache and with its disk tier.

use std::mem::MaybeUninit;
use std::ptr;

use super::dataset::rowdex_dataset;
use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, Versioned, require};
use crate::dataset::Dataset;
use rowdex_base::cache::Counters;

/// What a dataset has done so far, in this process, with its cache and with its disk tier.
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
    /// Row groups served from the disk tier, each as often as it was. This and what follows is 0 without a tier.
    pub tier_hits: u64,
    /// Row groups that were not in the tier and had to be read from the source.
    pub tier_misses: u64,
    /// Entries of the tier written.
    pub tier_writes: u64,
    /// Their bytes.
    pub tier_bytes_written: u64,
    /// Entries deleted to make room.
    pub tier_evictions: u64,
    /// Their bytes.
    pub tier_bytes_evicted: u64,
    /// Entries deleted because they were damaged or of another version.
    pub tier_discards: u64,
}

// SAFETY: repr(C) and integers of 8 bytes only.
unsafe impl Versioned for rowdex_counters {}

/// What a dataset has done so far, in this process.
///
/// `tier_fault` is why nothing more is kept in the disk tier since some time, which the caller frees by
/// rowdex_free: the disk is full, say, or the folder cannot be written to. NULL while all is well; rows are
/// served all the same. One of `counters` and `tier_fault` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_dataset_counters(
    dataset: Option<&rowdex_dataset>,
    counters: *mut rowdex_counters,
    tier_fault: Option<&mut MaybeUninit<*mut rowdex_error>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let dataset = require(dataset, "dataset")?.one()?;
        // SAFETY: the conventions of the header.
        let counters = unsafe { handle::optional_struct_out(counters, "counters") }?;
        if counters.is_none() && tier_fault.is_none() {
            return Err(handle::null("counters"));
        }
        if let Some(out) = counters {
            out.write(told(dataset));
        }
        if let Some(out) = tier_fault {
            let fault = dataset.tier_fault();
            out.write(fault.map_or(ptr::null_mut(), |error| handle::handle(rowdex_error::new(&error))));
        }
        Ok(())
    })
}

fn told(dataset: &Dataset) -> rowdex_counters {
    let told = dataset.counters();
    let Counters { hits, misses, decodes, bytes_decoded, bytes_read, evictions, held_bytes, .. } = told;
    let Counters { requests, bytes_fetched, .. } = told;
    let tier = dataset.tier_counters();
    rowdex_counters {
        struct_size: 0,
        hits,
        misses,
        decodes,
        bytes_decoded,
        bytes_read,
        evictions,
        held_bytes,
        requests,
        bytes_fetched,
        tier_hits: tier.hits,
        tier_misses: tier.misses,
        tier_writes: tier.writes,
        tier_bytes_written: tier.bytes_written,
        tier_evictions: tier.evictions,
        tier_bytes_evicted: tier.bytes_evicted,
        tier_discards: tier.discards,
    }
}
