//! The local disk that row groups are kept on.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::ptr;
use std::time::Duration;

use super::dataset::rowdex_dataset;
use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, Versioned, given, place};
use crate::Result;
use crate::dataset::{DiskTier, TierCounters};

/// A folder on a local disk that keeps row groups for all processes of a machine. Only its owner should be able to write to it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_disk_tier {
    /// sizeof(rowdex_disk_tier)
    pub struct_size: usize,
    /// The folder, which is made when something is first kept.
    pub folder: *const c_char,
    /// The most bytes of files to keep in it.
    pub bytes: u64,
    /// What is kept: "decoded" (NULL), rows that are mapped, or "fetched", column chunks as they are in the file.
    pub kind: *const c_char,
    /// How long to wait at most for another process that reads the same row group, in milliseconds. 0: 10 000.
    pub wait_ms: u64,
}

// SAFETY: repr(C), begins with its size, and has only fields of 8 bytes for which 0 is valid.
unsafe impl Versioned for rowdex_disk_tier {}

/// `None` for NULL.
///
/// # Safety
/// `given` and the pointers in it are as the header says.
pub(super) unsafe fn disk_tier(given: *const rowdex_disk_tier, name: &str) -> Result<Option<DiskTier>> {
    if given.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let given = unsafe { handle::options(given, name) }?;
    // SAFETY: as above.
    let folder = unsafe { handle::optional_path(given.folder) };
    let folder = folder.ok_or_else(|| handle::invalid("a disk tier needs a folder"))?;
    let mut tier = DiskTier::new(folder, given.bytes);
    // SAFETY: as above.
    if let Some(kind) = unsafe { handle::optional_text(given.kind, "kind") }? {
        tier = tier.with_kind(kind.parse()?);
    }
    if given.wait_ms > 0 {
        tier = tier.with_wait(Duration::from_millis(given.wait_ms));
    }
    Ok(Some(tier))
}

/// What a dataset has done with its disk tier so far, in this process.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_tier_counters {
    /// sizeof(rowdex_tier_counters), set by the caller.
    pub struct_size: usize,
    /// Row groups served from the tier, each as often as it was.
    pub hits: u64,
    /// Row groups that were not there and had to be read from the source.
    pub misses: u64,
    /// Entries written.
    pub writes: u64,
    /// Their bytes.
    pub bytes_written: u64,
    /// Entries deleted to make room.
    pub evictions: u64,
    /// Their bytes.
    pub bytes_evicted: u64,
    /// Entries deleted because they were damaged or of another version.
    pub discards: u64,
    /// Times that another process was waited for in vain.
    pub timeouts: u64,
}

// SAFETY: repr(C) and integers of 8 bytes only.
unsafe impl Versioned for rowdex_tier_counters {}

/// What a dataset has done with its disk tier so far, in this process; zeros without one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_dataset_tier_counters(
    dataset: Option<&rowdex_dataset>,
    counters: *mut rowdex_tier_counters,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let dataset = given(dataset, "dataset")?.one()?;
        // SAFETY: the conventions of the header.
        let out = unsafe { handle::struct_out(counters, "counters") }?;
        let TierCounters { hits, misses, writes, bytes_written, evictions, bytes_evicted, discards, timeouts } =
            dataset.tier_counters();
        out.write(rowdex_tier_counters {
            struct_size: 0,
            hits,
            misses,
            writes,
            bytes_written,
            evictions,
            bytes_evicted,
            discards,
            timeouts,
        });
        Ok(())
    })
}

/// Why nothing more is kept in the disk tier since some time, which the caller frees: the disk is full, say, or the folder cannot be written to. NULL
/// while all is well. Rows are served all the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_dataset_tier_fault(
    dataset: Option<&rowdex_dataset>,
    fault: Option<&mut MaybeUninit<*mut rowdex_error>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let dataset = given(dataset, "dataset")?.one()?;
        let out = place(fault, "fault")?;
        let told = dataset.tier_fault();
        out.write(told.map_or(ptr::null_mut(), |error| handle::handle(rowdex_error::new(&error))));
        Ok(())
    })
}
