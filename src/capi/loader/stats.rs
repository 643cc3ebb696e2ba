//! What a loader did, and which row groups it could not read.

use std::mem::MaybeUninit;
use std::time::Duration;

use super::rowdex_loader;
use crate::capi::error::{call, rowdex_error, rowdex_status};
use crate::capi::handle::{self, Versioned, out_param, require};
use crate::loader::{Loader, LoaderStats};

/// What a loader did since it was started, resumed or set to another epoch. Times are added up over its threads.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_loader_stats {
    /// sizeof(rowdex_loader_stats), set by the caller.
    pub struct_size: usize,
    /// Row groups decoded, whole or in part.
    pub decodes: u64,
    /// Times that rows of a row group were picked out, from one just decoded or from one that stayed.
    pub extractions: u64,
    /// Rows put into batches; some of them may wait to be asked for.
    pub rows: u64,
    /// Bytes held now.
    pub held_bytes: u64,
    /// The most that was ever held.
    pub peak_bytes: u64,
    /// Nanoseconds spent walking the order and deciding what to read.
    pub planning_ns: u64,
    /// Nanoseconds spent reading and decoding.
    pub decoding_ns: u64,
    /// Nanoseconds spent picking rows out of what was decoded.
    pub extracting_ns: u64,
    /// Nanoseconds spent putting batches together.
    pub assembling_ns: u64,
    /// Rows that stand in for others that could not be read.
    pub substituted: u64,
    /// How many steps the rank that is farthest is ahead of the one that is last, if ranks share a reader.
    pub drift: u64,
    /// Bytes of batches that were sent to ranks and not taken yet, if ranks share a reader.
    pub window_bytes: u64,
}

// SAFETY: repr(C) and integers of 8 bytes only.
unsafe impl Versioned for rowdex_loader_stats {}

/// What a loader did since it was started, resumed or set to another epoch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_loader_get_stats(
    loader: Option<&rowdex_loader>,
    stats: *mut rowdex_loader_stats,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let control = require(loader, "loader")?.served.control();
        // SAFETY: the conventions of the header.
        let out = unsafe { handle::struct_out(stats, "stats") }?;
        let stats = control.stats();
        let LoaderStats {
            decodes, extractions, substituted, rows, held_bytes, peak_bytes, drift, window_bytes, ..
        } = stats;
        out.write(rowdex_loader_stats {
            struct_size: 0,
            decodes,
            extractions,
            rows,
            held_bytes,
            peak_bytes,
            planning_ns: nanoseconds(stats.planning),
            decoding_ns: nanoseconds(stats.decoding),
            extracting_ns: nanoseconds(stats.extracting),
            assembling_ns: nanoseconds(stats.assembling),
            substituted,
            drift,
            window_bytes,
        });
        Ok(())
    })
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Why row groups could not be read so far, whose rows others stand in for: errors for rowdex_error_at, with
/// `lost_group` in what they say, which the caller frees by rowdex_free. NULL if there are none, as always unless
/// faults are to be substituted.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_loader_lost_groups(
    loader: Option<&rowdex_loader>,
    lost: Option<&mut MaybeUninit<*mut rowdex_error>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let loader = require(loader, "loader")?;
        let out = out_param(lost, "lost")?;
        let lost = loader.served.ask(Loader::lost_groups)?;
        let errors = lost.iter().map(|group| rowdex_error::of_lost_group(group.row_group, &group.error));
        out.write(rowdex_error::several(errors));
        Ok(())
    })
}
