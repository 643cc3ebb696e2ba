//! Batches in the order of a sampler.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ffi::FFI_ArrowSchema;
use arrow::ffi_stream::FFI_ArrowArrayStream;

use super::arrow::export_schema;
use super::batch::rowdex_batch;
use super::dataset::{Rows, rowdex_dataset};
use super::error::{call, catch, rowdex_error, rowdex_status};
use super::handle::{self, Versioned, out_param, require};
use super::option::{Count, bytes, count};
use super::sampler::rowdex_sampler;
use super::served::Served;
use crate::loader::{Fault, Loader, LoaderBuilder, LoaderStats, Prediction, Share, Standing};
use ::rowdex_order::sampler::DistributedSampler;
use rowdex_base::error::{ErrorKind, Result};

/// Serves batches in the order of a sampler, epoch after epoch.
///
/// One thread at a time, and a second one gets an error; but rowdex_loader_close, rowdex_loader_get_stats and
/// rowdex_loader_schema may be called at any time, also while a thread waits for a batch. So may
/// rowdex_loader_get_info, rowdex_loader_state and rowdex_loader_reopen, which tell of the last batch that was handed
/// out.
#[derive(Debug)]
pub struct rowdex_loader {
    pub(super) served: Arc<Served>,
    schema: SchemaRef,
}

fn new_handle(loader: Loader) -> *mut rowdex_loader {
    let schema = loader.schema();
    handle::handle(rowdex_loader { served: Arc::new(Served::new(loader)), schema })
}

/// How a loader works. All zeros are the defaults.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_loader_options {
    /// sizeof(rowdex_loader_options)
    pub struct_size: usize,
    /// Bytes of decoded rows to hold at most. 0: 1 GiB.
    pub memory: u64,
    /// Threads that the loader has while it serves. 0: 2. ROWDEX_NONE: none, all work is done by the thread that asks
    /// for batches.
    pub threads: u64,
    /// About how many finished batches may wait to be asked for. 0: a few.
    pub read_ahead: u64,
    /// How many epochs the run has: it ends before this one, wherever it was started or resumed. 0: no end.
    pub epochs: u64,
    /// Serves the batches of these ranks, too: at every step one after another, that of the loader's sampler first. May
    /// be NULL.
    pub more_ranks: *const *const rowdex_sampler,
    /// How many.
    pub num_more_ranks: usize,
    /// What to do about a row group that cannot be read: "fail" (NULL), or "substitute", which replaces each of its
    /// rows by another one that can be read. Set it alike on all ranks.
    pub on_fault: *const c_char,
    /// With "substitute": another seed chooses other rows.
    pub fault_seed: u64,
    /// 1 serves top-level string and binary columns as views, whatever their types are, so that their values are not
    /// copied into batches; in exchange a batch keeps alive what its values are in.
    pub views: u64,
    /// How many row groups of an object store may be on their way at once. 0: as many as keep nobody waiting, as
    /// measured. ROWDEX_NONE: none is read ahead.
    pub read_concurrency: u64,
    /// "machine" shares one reader with the loaders of the other ranks on this machine: memory and threads are then the
    /// machine's, and must be the same on all ranks, as all else. With samplers of rowdex_sampler_worker that are all
    /// workers of all ranks. NULL: each loader reads for itself.
    pub share: *const c_char,
    /// With share: which of the loaders of a rank this is, the same on all ranks. NULL: the first, second, … of this
    /// process that shares.
    pub share_name: *const c_char,
    /// With share: the name of the job. NULL: as the launcher says.
    pub share_job: *const c_char,
    /// With share: how many ranks are on this machine. 0: as the launcher says.
    pub share_ranks: u64,
    /// With share: how many steps a rank may be ahead of another one, about. 0: 32, fewer of large batches.
    pub share_drift: u64,
    /// With share: what becomes of the other ranks when one dies, that is, ends without freeing or closing its loader.
    /// "continue" (NULL): they go on, unless it is the one that reads, and it may come back. "fail": they get an error
    /// that names it.
    pub share_on_death: *const c_char,
    /// How many milliseconds rowdex_loader_next, rowdex_loader_peek and rowdex_loader_advance wait for a batch before
    /// they return ROWDEX_STATUS_TIMED_OUT: call again, nothing is lost. For callers whose signal handlers run between
    /// calls. 0: without end, as streams always do.
    pub max_wait: u64,
    /// Which column has the tokens of packs: its name, or the path of a field of a struct, as doc.tokens. NULL: the one
    /// whose items were counted for the lengths.
    pub tokens: *const c_char,
}

// SAFETY: repr(C), begins with its size, and has only fields of 8 bytes for which 0 is valid.
unsafe impl Versioned for rowdex_loader_options {}

/// A loader at the state of the sampler. Dataset and sampler may be freed or changed afterwards. Reads nothing and
/// starts no thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_loader_new(
    dataset: Option<&rowdex_dataset>,
    sampler: Option<&rowdex_sampler>,
    options: *const rowdex_loader_options,
    loader: Option<&mut MaybeUninit<*mut rowdex_loader>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let out = out_param(loader, "loader")?;
        // SAFETY: the conventions of the header.
        let loader = unsafe { builder(dataset, sampler, options) }?.build()?;
        out.write(new_handle(loader));
        Ok(())
    })
}

/// Another loader like a given one, at the place where that stands, which may be closed, or inherited by a forked
/// child: it goes on with the batch after the last one that was handed out.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_loader_reopen(
    loader: Option<&rowdex_loader>,
    reopened: Option<&mut MaybeUninit<*mut rowdex_loader>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let seen = require(loader, "loader")?.served.seen();
        out_param(reopened, "reopened")?.write(new_handle(seen.standing.open()?));
        Ok(())
    })
}

/// # Safety
/// `options` and the pointers in it are as the header says.
pub(super) unsafe fn builder(
    dataset: Option<&rowdex_dataset>,
    sampler: Option<&rowdex_sampler>,
    options: *const rowdex_loader_options,
) -> Result<LoaderBuilder> {
    let dataset = &require(dataset, "dataset")?.0;
    let sampler = DistributedSampler::clone(&require(sampler, "sampler")?.0.load());
    // SAFETY: the caller's promise.
    let options = unsafe { handle::options(options, "options") }?;
    let builder = match dataset {
        Rows::One(dataset) => Loader::builder(dataset, sampler),
        Rows::Mixed(dataset) => Loader::builder(dataset, sampler),
    };
    // SAFETY: as above.
    let fault = unsafe { handle::optional_text(options.on_fault, "options.on_fault") }?;
    let mut builder = builder.on_fault(self::fault(fault, options.fault_seed)?);
    if options.views != 0 {
        builder = builder.with_views(true);
    }
    // SAFETY: as above.
    if let Some(tokens) = unsafe { handle::optional_text(options.tokens, "options.tokens") }? {
        builder = builder.tokens(tokens);
    }
    if let Count::Exactly(groups) = count(options.read_concurrency, "options.read_concurrency")? {
        builder = builder.read_concurrency(groups);
    }
    if let Some(memory) = bytes(options.memory) {
        builder = builder.memory(memory);
    }
    if let Count::Exactly(threads) = count(options.threads, "options.threads")? {
        builder = builder.threads(threads);
    }
    if let Count::Exactly(batches) = count(options.read_ahead, "options.read_ahead")? {
        builder = builder.read_ahead(batches);
    }
    if let Some(epochs) = bytes(options.epochs) {
        builder = builder.epochs(epochs);
    }
    if options.max_wait != 0 {
        builder = builder.max_wait(Duration::from_millis(options.max_wait));
    }
    // SAFETY: as above.
    if let Some(share) = unsafe { share(&options) }? {
        builder = builder.share(share);
    }
    // SAFETY: as above.
    let more = unsafe { handle::slice(options.more_ranks, options.num_more_ranks, "options.more_ranks") }?;
    let more = more.iter().map(|sampler| {
        // SAFETY: as above.
        let sampler = unsafe { handle::borrow(sampler.cast_mut(), "options.more_ranks[…]") }?;
        Ok(DistributedSampler::clone(&sampler.0.load()))
    });
    Ok(builder.and_ranks(more.collect::<Result<Vec<_>>>()?))
}

/// # Safety
/// The pointers in `options` are as the header says.
unsafe fn share(options: &rowdex_loader_options) -> Result<Option<Share>> {
    // SAFETY: the caller's promise.
    let (with, name, job, death) = unsafe {
        (
            handle::optional_text(options.share, "options.share")?,
            handle::optional_text(options.share_name, "options.share_name")?,
            handle::optional_text(options.share_job, "options.share_job")?,
            handle::optional_text(options.share_on_death, "options.share_on_death")?,
        )
    };
    let (ranks, drift) = (bytes(options.share_ranks), bytes(options.share_drift));
    match with {
        Some("machine") => {}
        Some(other) => {
            return Err(handle::invalid(format!("nothing that ranks share a reader of is called {other:?}"))
                .with_hint("use machine, or NULL"));
        }
        None if name.or(job).or(death).is_some() || ranks.or(drift).is_some() => {
            return Err(handle::invalid("options of a shared reader, which is not asked for")
                .with_hint("set options.share to machine"));
        }
        None => return Ok(None),
    }
    let mut share = match death {
        None => Share::machine(),
        Some("continue") => Share::machine().fail_on_death(false),
        Some("fail") => Share::machine().fail_on_death(true),
        Some(other) => {
            return Err(handle::invalid(format!("nothing to do about the death of a rank is called {other:?}"))
                .with_hint("use continue or fail"));
        }
    };
    if let Some(name) = name {
        share = share.name(name);
    }
    if let Some(job) = job {
        share = share.job(job);
    }
    if let Some(ranks) = ranks {
        let count = u32::try_from(ranks);
        share = share.ranks(count.map_err(|_| handle::invalid(format!("options.share_ranks is {ranks}")))?);
    }
    if let Some(drift) = drift {
        share = share.drift(usize::try_from(drift).unwrap_or(usize::MAX));
    }
    Ok(Some(share))
}

fn fault(policy: Option<&str>, seed: u64) -> Result<Fault> {
    match policy {
        None | Some("fail") => Ok(Fault::Fail),
        Some("substitute") => Ok(Fault::Substitute { seed }),
        Some(other) => {
            Err(handle::invalid(format!("no policy for faults is called {other:?}"))
                .with_hint("use fail or substitute"))
        }
    }
}

/// Ends a loader, from any thread: one that waits for a batch gets ROWDEX_STATUS_CLOSED within a moment, and so does
/// every later call that asks for one, of this loader or its streams. A loader without threads finishes the row group
/// at hand first.
///
/// Its state and stats can still be asked for, and it must still be freed, by whoever is sure that no other thread has
/// a call under way.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_loader_close(loader: Option<&rowdex_loader>) {
    if let Some(loader) = loader {
        loader.served.close();
    }
}

/// Ends the life of a loader handle, and its threads unless a stream still uses them. No other thread may have a call
/// under way: close it first.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_loader_free(loader: Option<Box<rowdex_loader>>) {
    handle::free(loader);
}

/// What a loader will do.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_prediction {
    /// sizeof(rowdex_prediction), set by the caller.
    pub struct_size: usize,
    /// Decodes of each row group in the first epoch, in which no row is held at the beginning, on average.
    pub first_passes: f64,
    /// Decodes of each row group in every later epoch, on average.
    pub passes: f64,
    /// Row groups decoded in every later epoch.
    pub decodes: f64,
    /// Row groups decoded before the first batch is there.
    pub first_batch_decodes: u64,
    /// The most bytes held.
    pub peak_bytes: u64,
    /// Row groups decoded in the first epoch.
    pub first_decodes: f64,
    /// Bytes read in the first epoch.
    pub first_bytes_read: u64,
    /// Bytes read in every later epoch.
    pub bytes_read: u64,
    /// Requests to a store in the first epoch; 0 for local files.
    pub first_requests: u64,
    /// Requests to a store in every later epoch.
    pub requests: u64,
    /// Units that row groups are read, decoded and held in: one for each, or for several small ones of a file.
    pub units: u64,
    /// How many of peak_bytes are not rows: what is known of row groups, and of the rows that are looked ahead at.
    pub bookkeeping_bytes: u64,
    /// The least memory that a loader takes.
    pub least_memory: u64,
}

// SAFETY: repr(C) and numbers of 8 bytes only.
unsafe impl Versioned for rowdex_prediction {}

/// What a loader with these arguments will do, from the index alone. Takes a fraction of a second.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_loader_predict(
    dataset: Option<&rowdex_dataset>,
    sampler: Option<&rowdex_sampler>,
    options: *const rowdex_loader_options,
    prediction: *mut rowdex_prediction,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let out = unsafe { handle::struct_out(prediction, "prediction") }?;
        // SAFETY: as above.
        let told = unsafe { builder(dataset, sampler, options) }?.predict()?;
        let Prediction {
            first_passes,
            passes,
            first_decodes,
            decodes,
            first_bytes_read,
            bytes_read,
            first_requests,
            requests,
            first_batch_decodes,
            peak_bytes,
            units,
            bookkeeping_bytes,
            least_memory,
        } = told;
        out.write(rowdex_prediction {
            struct_size: 0,
            first_passes,
            passes,
            decodes,
            first_batch_decodes,
            peak_bytes,
            first_decodes,
            first_bytes_read,
            bytes_read,
            first_requests,
            requests,
            units,
            bookkeeping_bytes,
            least_memory,
        });
        Ok(())
    })
}

/// The columns of every batch, as an Arrow struct type that the caller releases: those of the dataset, or with views in
/// the place of strings.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_loader_schema(
    loader: Option<&rowdex_loader>,
    schema: Option<&mut MaybeUninit<FFI_ArrowSchema>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let loader = require(loader, "loader")?;
        out_param(schema, "schema")?.write(export_schema(&loader.schema)?);
        Ok(())
    })
}

/// The next batch, which the caller frees; `*batch` is NULL at the end of the run. After an error the same error comes
/// each time, until the loader is resumed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_loader_next(
    loader: *mut rowdex_loader,
    batch: Option<&mut MaybeUninit<*mut rowdex_batch>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let loader = unsafe { handle::borrow(loader, "loader") }?;
        let out = out_param(batch, "batch")?;
        let next = loader.served.with(Loader::try_next)?;
        out.write(next.map_or(ptr::null_mut(), |batch| handle::handle(rowdex_batch::new(batch))));
        Ok(())
    })
}

/// The batch of this step, which must be the next, without handing it out; `*batch` is NULL at the end of the epoch.
/// The caller frees it.
///
/// Or the batch of the step after the one that was looked at last, for those who work on several at once: each is
/// handed out in its turn, and until then the loader stands before it. Whatever else is asked of the loader but for its
/// place, its stats and its lost groups drops what was looked at.
///
/// Or that batch and the ones that follow it in the epoch, as one, if they are ready, lie one after the other in
/// memory, and have no more than `max_rows` rows: for those who convert many rows as fast as few. An error comes at the
/// step that it belongs to. A loader that was set to another epoch meanwhile, or is closed, returns
/// ROWDEX_STATUS_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_loader_peek(
    loader: *mut rowdex_loader,
    epoch: u64,
    step: u64,
    max_rows: usize,
    batch: Option<&mut MaybeUninit<*mut rowdex_batch>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let loader = unsafe { handle::borrow(loader, "loader") }?;
        let out = out_param(batch, "batch")?;
        let next = loader.served.peek(epoch, step, max_rows)?;
        out.write(next.map_or(ptr::null_mut(), |batch| handle::handle(rowdex_batch::new(batch))));
        Ok(())
    })
}

/// Hands out the batch of this step, which must be the next, to somebody who has it from rowdex_loader_peek: the state
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
        loader.served.advance(epoch, step)
    })
}

/// The batches to come as an Arrow stream that the caller releases: rows only, without row ids, epochs and marks of
/// pads.
///
/// The stream and the loader are one: what is taken from either is gone from both, rowdex_loader_state tells where the
/// stream is, and either may be freed first. A run without an end makes a stream without an end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_loader_stream(
    loader: *mut rowdex_loader,
    stream: Option<&mut MaybeUninit<FFI_ArrowArrayStream>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let handle = unsafe { handle::borrow(loader, "loader") }?;
        let out = out_param(stream, "stream")?;
        // The stream's own callback could not report it.
        export_schema(&handle.schema)?;
        let stream = Stream { served: Arc::clone(&handle.served), schema: handle.schema.clone() };
        out.write(FFI_ArrowArrayStream::new(Box::new(stream)));
        Ok(())
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

/// Where a loader stands.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_loader_info {
    /// sizeof(rowdex_loader_info), set by the caller.
    pub struct_size: usize,
    /// The epoch that the next batch is of.
    pub epoch: u64,
    /// The step that it is of.
    pub step: u64,
    /// How many steps every epoch has in all, wherever the run was resumed.
    pub steps: u64,
    /// How many of them are left of this epoch.
    pub steps_left: u64,
}

// SAFETY: repr(C) and integers of 8 bytes only.
unsafe impl Versioned for rowdex_loader_info {}

impl From<&Standing> for rowdex_loader_info {
    fn from(standing: &Standing) -> Self {
        let Standing { step, steps, steps_left, .. } = *standing;
        Self { struct_size: 0, epoch: standing.epoch(), step, steps, steps_left }
    }
}

/// Where a loader stands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_loader_get_info(
    loader: Option<&rowdex_loader>,
    info: *mut rowdex_loader_info,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let seen = require(loader, "loader")?.served.seen();
        // SAFETY: the conventions of the header.
        let out = unsafe { handle::struct_out(info, "info") }?;
        out.write((&seen.standing).into());
        Ok(())
    })
}

/// Where the run stands after the last step of which all batches were handed out, as text of one line with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_loader_state(
    loader: Option<&rowdex_loader>,
    buffer: *mut c_char,
    capacity: usize,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let seen = require(loader, "loader")?.served.seen();
        // SAFETY: the conventions of the header.
        let buffer = unsafe { handle::buffer(buffer.cast(), capacity, "buffer") }?;
        handle::write_text(&seen.standing.state.to_string(), buffer)
    })
}

/// Goes on from a state. What was read ahead is dropped. The loader is unchanged on failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_loader_resume(
    loader: *mut rowdex_loader,
    state: *const c_char,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let loader = unsafe { handle::borrow(loader, "loader") }?;
        // SAFETY: as above.
        let state = unsafe { handle::text(state, "state") }?.parse()?;
        loader.served.anew(|loader| loader.resume(&state))
    })
}

/// Goes on with the first batch of `epoch`. What was read ahead is dropped, unless that is what comes next anyway.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_loader_set_epoch(
    loader: *mut rowdex_loader,
    epoch: u64,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let loader = unsafe { handle::borrow(loader, "loader") }?;
        loader.served.with(|loader| {
            loader.set_epoch(epoch);
            Ok(())
        })
    })
}

/// Goes on with this step of an epoch. What was read ahead is dropped, unless that is what comes next anyway. After an
/// error, that error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_loader_seek(
    loader: *mut rowdex_loader,
    epoch: u64,
    step: u64,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let loader = unsafe { handle::borrow(loader, "loader") }?;
        loader.served.with(|loader| loader.seek(epoch, step))
    })
}

/// Begins the next epoch that was not begun, or goes on with one that was resumed, and says which one that is and where
/// it begins.
///
/// If some of the current epoch's batches were served and others not, these are dropped. The epoch's last batch is the
/// one with step + 1 == steps.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_loader_begin_epoch(
    loader: *mut rowdex_loader,
    info: *mut rowdex_loader_info,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header.
        let loader = unsafe { handle::borrow(loader, "loader") }?;
        // SAFETY: as above.
        let out = unsafe { handle::struct_out(info, "info") }?;
        let standing = loader.served.with(|loader| {
            loader.epoch();
            Ok(loader.standing())
        })?;
        out.write((&standing).into());
        Ok(())
    })
}

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

pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
