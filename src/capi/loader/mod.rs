//! Batches in the order of a sampler: a loader for several threads, which one of them has for itself, and where all see
//! it stand.

mod options;
mod standing;

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::ArrowError;
use arrow_schema::SchemaRef;
use serde_json::{Value, json};

use self::options::{builder, rowdex_loader_options};
use super::batch::rowdex_batch;
use super::dataset::rowdex_dataset;
use super::error::{self, call, catch, give, rowdex_error, rowdex_status};
use super::handle::{self, Exclusive, require};
use super::kind::{self, AnyHandle};
use super::packs::forecast;
use super::sampler::rowdex_sampler;
use crate::loader::{Control, Loader, LoaderStats, LostGroup, Standing, closed};
use ::rowdex_order::sampler::State;
use rowdex_base::error::{ErrorKind, Result};

/// Serves batches in the order of a sampler, epoch after epoch.
///
/// One thread at a time, and a second one gets an error; but rowdex_close, rowdex_describe and rowdex_schema may be
/// called at any time, also while a thread waits for a batch. So may rowdex_loader_get_info, rowdex_loader_state and
/// rowdex_loader_reopen, which report the last batch that was handed out.
#[derive(Debug)]
pub struct rowdex_loader {
    served: Arc<Served>,
    schema: SchemaRef,
}

impl AnyHandle for rowdex_loader {
    fn told(&self) -> Result<Value> {
        let LoaderStats {
            decodes,
            extractions,
            substituted,
            rows,
            held_bytes,
            peak_bytes,
            planning,
            decoding,
            extracting,
            assembling,
            drift,
            window_bytes,
            ..
        } = self.served.control.stats();
        let lost = self.served.control.lost_groups();
        let one = |lost: &LostGroup| json!({ "row_group": lost.row_group, "error": error::told(&lost.error) });
        Ok(json!({
            "decodes": decodes,
            "extractions": extractions,
            "rows": rows,
            "held_bytes": held_bytes,
            "peak_bytes": peak_bytes,
            "planning_ns": nanoseconds(planning),
            "decoding_ns": nanoseconds(decoding),
            "extracting_ns": nanoseconds(extracting),
            "assembling_ns": nanoseconds(assembling),
            "substituted": substituted,
            "drift": drift,
            "window_bytes": window_bytes,
            "lost": lost.iter().map(one).collect::<Vec<_>>(),
        }))
    }

    fn columns(&self) -> Result<SchemaRef> {
        Ok(self.schema.clone())
    }

    fn rows(&self) -> Result<Box<dyn RecordBatchReader + Send>> {
        Ok(Box::new(Stream { served: Arc::clone(&self.served), schema: self.schema.clone() }))
    }

    fn resume(&self, state: &State) -> Result<()> {
        self.served.with(|loader| loader.resume(state))
    }

    fn close(&self) {
        self.served.close();
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn new_handle(loader: Loader) -> *mut rowdex_loader {
    let schema = loader.schema();
    kind::handle(rowdex_loader { served: Arc::new(Served::new(loader)), schema })
}

/// A loader at the state of the sampler. Dataset and sampler may be freed or changed afterwards. Reads nothing and
/// starts no thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_loader_new(
    dataset: Option<&rowdex_dataset>,
    sampler: Option<&rowdex_sampler>,
    options: Option<&rowdex_loader_options>,
    loader: Option<&mut MaybeUninit<*mut rowdex_loader>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    // SAFETY: the conventions of the header.
    give(error, loader, "loader", || Ok(new_handle(unsafe { builder(dataset, sampler, options) }?.build()?)))
}

/// What a loader with these arguments will do, from the index alone. The report is JSON that the caller frees. It takes
/// a fraction of a second, with packs as long as planning an epoch and packing some of its blocks.
///
/// first_passes, first_decodes, first_bytes_read and first_requests are of the first epoch, in which no row is held at
/// the beginning, and passes, decodes, bytes_read and requests of every later one: decodes of each row group on
/// average, row groups decoded, bytes read, and requests to a store. first_batch_decodes: row groups decoded before the
/// first batch is there. peak_bytes: the most bytes held; bookkeeping_bytes: how many of them are not rows. units: what
/// row groups are read, decoded and held in: one for each, or for several small ones of a file. least_memory: the least
/// that a loader takes. packs: null where rows are served, or what an epoch of packs has over all ranks: steps, packs
/// (those that come twice and opened ones included), opened (so that steps are equal), pieces (each counted once),
/// pieces_a_pack, fill (the part of all places that has tokens), tokens, tokens_truncated, tokens_dropped,
/// tokens_left_out and tokens_repeated (by the tail), rows_split, rows_truncated, rows_dropped, rows_empty,
/// cost_imbalance (what the rank with the most work has at a step, as a multiple of the mean, on average over
/// steps_looked_at), seconds_to_plan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_loader_estimate(
    dataset: Option<&rowdex_dataset>,
    sampler: Option<&rowdex_sampler>,
    options: Option<&rowdex_loader_options>,
    report: Option<&mut MaybeUninit<*mut c_char>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    error::report(error, report, || {
        // SAFETY: the conventions of the header.
        let builder = unsafe { builder(dataset, sampler, options) }?;
        // First, as it times the planning.
        let packs = forecast(&require(sampler, "sampler")?.0.load())?;
        let mut report = error::json(&builder.estimate()?)?;
        report["packs"] = packs;
        Ok(report)
    })
}

/// Another loader like a given one, at the place where that stands, which may be closed, or inherited by a forked
/// child: it continues with the batch after the last one that was handed out.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_loader_reopen(
    loader: Option<&rowdex_loader>,
    reopened: Option<&mut MaybeUninit<*mut rowdex_loader>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    give(error, reopened, "reopened", || Ok(new_handle(require(loader, "loader")?.served.seen().standing.open()?)))
}

/// The next batch, which the caller frees; `*batch` is NULL at the end of the run. After an error the same error comes
/// each time, until the loader is resumed; but not after a call that has waited for max_wait, or was stopped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_loader_next(
    loader: *mut rowdex_loader,
    batch: Option<&mut MaybeUninit<*mut rowdex_batch>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    give(error, batch, "batch", || {
        // SAFETY: the conventions of the header.
        let loader = unsafe { handle::borrow(loader, "loader") }?;
        let next = loader.served.with(Loader::try_next)?;
        Ok(next.map_or(ptr::null_mut(), |batch| kind::handle(rowdex_batch::new(batch))))
    })
}

/// The batch of this step, which must be the next, without handing it out; `*batch` is NULL at the end of the epoch.
/// The caller frees it.
///
/// Or the batch of the step after the one that was looked at last, to work on several at once: each is handed out in
/// its turn, and until then the loader stands before it. A loader with more_ranks shows its next batch alone.
///
/// Or that batch and the ones that follow it in the epoch, as one, if they are ready, lie one after the other in
/// memory, and have no more than `max_rows` rows: to convert many rows in one call. An error comes at the step that it
/// belongs to. A loader that was set to another epoch meanwhile, or is closed, returns ROWDEX_STATUS_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_loader_peek(
    loader: *mut rowdex_loader,
    epoch: u64,
    step: u64,
    max_rows: usize,
    batch: Option<&mut MaybeUninit<*mut rowdex_batch>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    give(error, batch, "batch", || {
        // SAFETY: the conventions of the header.
        let loader = unsafe { handle::borrow(loader, "loader") }?;
        let next = loader.served.with(|loader| loader.peek(epoch, step, max_rows))?;
        Ok(next.map_or(ptr::null_mut(), |batch| kind::handle(rowdex_batch::new(batch))))
    })
}

/// Hands out the batch of this step, which must be the next, to a caller that has it from rowdex_loader_peek: the state
/// is then the one after it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_loader_advance(
    loader: *mut rowdex_loader,
    epoch: u64,
    step: u64,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let loader = unsafe { handle::borrow(loader, "loader") }?;
        loader.served.with(|loader| loader.advance(epoch, step))
    })
}

struct Stream {
    served: Arc<Served>,
    schema: SchemaRef,
}

impl Iterator for Stream {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        // Caught here, because a panic would end the process in Arrow's callback.
        let next = loop {
            match catch(|| self.served.with(Loader::try_next)) {
                Err(error) if error.kind() == ErrorKind::TimedOut => {}
                next => break next,
            }
        };
        next.transpose().map(|batch| match batch {
            Ok(batch) => Ok(batch.records),
            Err(error) => Err(ArrowError::from_external_error(Box::new(error))),
        })
    }
}

impl RecordBatchReader for Stream {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// The loader, which one thread at a time has for itself, and where it stands, which all threads see.
#[derive(Debug)]
struct Served {
    loader: Exclusive<Loader>,
    control: Control,
    seen: ArcSwap<Seen>,
}

/// What is published as one: once it was closed, it stands where it stood, whatever another thread is about to hand
/// out.
#[derive(Debug, Clone)]
struct Seen {
    standing: Standing,
    closed: bool,
}

impl Served {
    fn new(loader: Loader) -> Self {
        let seen = ArcSwap::from_pointee(Seen { standing: loader.standing(), closed: false });
        let control = loader.control();
        Self { seen, control, loader: Exclusive::new(loader) }
    }

    /// Where the loader stands after the batch that was handed out last.
    fn seen(&self) -> Arc<Seen> {
        self.seen.load_full()
    }

    /// Does something with the loader, and publishes where it stands then.
    fn with<T>(&self, work: impl FnOnce(&mut Loader) -> Result<T>) -> Result<T> {
        let mut loader = self.loader.lock("loader")?;
        let done = work(&mut loader);
        let before = self.seen();
        let after = Arc::new(Seen { standing: loader.standing(), closed: false });
        // Only closing publishes anything besides this, whose turn it is.
        if before.closed || !Arc::ptr_eq(&self.seen.compare_and_swap(&before, after), &before) {
            return Err(closed());
        }
        done
    }

    fn close(&self) {
        self.seen.rcu(|seen| Seen { closed: true, ..Seen::clone(seen) });
        self.control.close();
    }
}
