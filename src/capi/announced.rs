//! Rows in an order that a sampler of one's own announces.

use std::mem::MaybeUninit;

use super::batch::rowdex_batch;
use super::dataset::rowdex_dataset;
use super::error::{call, rowdex_error, rowdex_status};
use super::handle::{self, Exclusive, Versioned, out_param, require};
use super::loader::nanoseconds;
use super::option::{Count, bytes, count};
use crate::loader::{Announced, Control, LoaderStats};

/// Serves rows in an order that was announced, and any others as the dataset does. One thread at a time, and a second
/// one gets an error; but rowdex_announced_close may be called at any time.
#[derive(Debug)]
pub struct rowdex_announced(Exclusive<Announced>, Control);

/// How announced rows are served. All zeros are the defaults.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_announced_options {
    /// sizeof(rowdex_announced_options)
    pub struct_size: usize,
    /// Bytes of decoded rows to hold at most. 0: 1 GiB.
    pub memory: u64,
    /// Threads that read ahead, started by the first call that takes announced rows. 0: 2. ROWDEX_NONE: none, taking
    /// does all work.
    pub threads: u64,
    /// How many rows a call will take, mostly: a call for just one such portion copies nothing. 0: as many as the first
    /// call takes.
    pub portion: u64,
}

// SAFETY: repr(C), begins with its size, and has only fields of 8 bytes for which 0 is valid.
unsafe impl Versioned for rowdex_announced_options {}

/// Announces the row ids that will be asked for, in this order: one epoch of a sampler, or as much as is known. They
/// are copied; there may be none yet.
///
/// They are then served at about the speed of a scan within the memory: each row group is decoded once per horizon,
/// instead of once per call. The dataset may be freed afterwards. Reads nothing and starts no thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_dataset_plan(
    dataset: Option<&rowdex_dataset>,
    rows: *const u64,
    num_rows: usize,
    options: *const rowdex_announced_options,
    announced: Option<&mut MaybeUninit<*mut rowdex_announced>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let dataset = require(dataset, "dataset")?.one()?;
        let out = out_param(announced, "announced")?;
        // SAFETY: the conventions of the header.
        let rows = unsafe { handle::slice(rows, num_rows, "rows") }?;
        // SAFETY: as above.
        let options = unsafe { handle::options(options, "options") }?;
        let mut builder = Announced::builder(dataset);
        if let Some(memory) = bytes(options.memory) {
            builder = builder.memory(memory);
        }
        if let Count::Exactly(threads) = count(options.threads, "options.threads")? {
            builder = builder.threads(threads);
        }
        if let Count::Exactly(rows) = count(options.portion, "options.portion")? {
            builder = builder.portion(rows);
        }
        let mut announced = builder.build();
        announced.announce(rows)?;
        let control = announced.control();
        out.write(handle::handle(rowdex_announced(Exclusive::new(announced), control)));
        Ok(())
    })
}

/// Ends it, from any thread: one that waits for rows gets ROWDEX_STATUS_CLOSED within a moment, and so does every later
/// call that takes rows. It must still be freed, by whoever is sure that no other thread has a call under way.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_announced_close(announced: Option<&rowdex_announced>) {
    if let Some(announced) = announced {
        announced.1.close();
    }
}

/// Ends the life of the handle, and its threads. No other thread may have a call under way: close it first.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_announced_free(announced: Option<Box<rowdex_announced>>) {
    handle::free(announced);
}

/// Says what will be asked for after all that was announced before. Row ids may repeat, and are copied: 8 bytes each
/// until they are passed.
///
/// If one is not in the dataset, none of them is announced. Announce early: an announcement shorter than the horizon
/// makes more decodes than need be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_announced_announce(
    announced: *mut rowdex_announced,
    rows: *const u64,
    num_rows: usize,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let mut announced = unsafe { handle::borrow(announced, "announced") }?.0.lock("announced order")?;
        // SAFETY: as above.
        announced.announce(unsafe { handle::slice(rows, num_rows, "rows") }?)
    })
}

/// Forgets what was announced and not taken, as when an epoch is abandoned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_announced_clear(
    announced: *mut rowdex_announced,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        unsafe { handle::borrow(announced, "announced") }?.0.lock("announced order")?.clear();
        Ok(())
    })
}

/// Rows in the order asked, as rowdex_dataset_take gives them, whether they were announced or not.
///
/// Announced rows come from memory as long as they are asked for in about the order that was announced, in portions of
/// any size. Those of a call that failed count as taken: asked for again, they come from the dataset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_announced_take(
    announced: *mut rowdex_announced,
    rows: *const u64,
    num_rows: usize,
    batch: Option<&mut MaybeUninit<*mut rowdex_batch>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let out = out_param(batch, "batch")?;
        // SAFETY: the conventions of the header.
        let mut announced = unsafe { handle::borrow(announced, "announced") }?.0.lock("announced order")?;
        // SAFETY: as above.
        let rows = unsafe { handle::slice(rows, num_rows, "rows") }?;
        out.write(handle::handle(rowdex_batch::of_rows(announced.take(rows)?, rows)));
        Ok(())
    })
}

/// What the handle of an announced order did so far. Times are added up over its threads.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_announced_stats {
    /// sizeof(rowdex_announced_stats), set by the caller.
    pub struct_size: usize,
    /// Rows announced.
    pub announced: u64,
    /// Announced rows that are ahead of the farthest one taken.
    pub waiting: u64,
    /// Rows served as they were announced.
    pub followed: u64,
    /// Rows served by the dataset, because they were not announced here, or could not be read when they were due.
    pub fell_back: u64,
    /// Rows announced, passed over, and no longer waited for.
    pub skipped: u64,
    /// Row groups decoded, whole or in part, for announced rows. This and what follows: since reading ahead was last
    /// started.
    pub decodes: u64,
    /// Times that rows of a row group were picked out, from one just decoded or from one that stayed.
    pub extractions: u64,
    /// Rows put together; some of them may wait to be asked for.
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
    /// Nanoseconds spent putting rows together.
    pub assembling_ns: u64,
}

// SAFETY: repr(C) and integers of 8 bytes only.
unsafe impl Versioned for rowdex_announced_stats {}

/// What the handle of an announced order did so far.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_announced_get_stats(
    announced: Option<&rowdex_announced>,
    stats: *mut rowdex_announced_stats,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let announced = require(announced, "announced")?.0.lock("announced order")?;
        // SAFETY: the conventions of the header.
        let out = unsafe { handle::struct_out(stats, "stats") }?;
        let told = announced.stats();
        let LoaderStats { decodes, extractions, rows, held_bytes, peak_bytes, .. } = told.loader;
        out.write(rowdex_announced_stats {
            struct_size: 0,
            announced: told.announced,
            waiting: announced.waiting(),
            followed: told.followed,
            fell_back: told.fell_back,
            skipped: told.skipped,
            decodes,
            extractions,
            rows,
            held_bytes,
            peak_bytes,
            planning_ns: nanoseconds(told.loader.planning),
            decoding_ns: nanoseconds(told.loader.decoding),
            extracting_ns: nanoseconds(told.loader.extracting),
            assembling_ns: nanoseconds(told.loader.assembling),
        });
        Ok(())
    })
}
