//! How a loader works, as C says it.

use std::ffi::c_char;
use std::time::Duration;

use crate::capi::dataset::{Rows, rowdex_dataset};
use crate::capi::handle::{self, Versioned, require};
use crate::capi::option::{Count, bytes, count};
use crate::capi::sampler::rowdex_sampler;
use crate::loader::{Fault, Loader, LoaderBuilder, Share};
use ::rowdex_order::sampler::DistributedSampler;
use rowdex_base::error::Result;

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
    /// What to do about a row group that cannot be read: "raise" (NULL), or "substitute", which replaces each of its
    /// rows by another one that can be read. Set it alike on all ranks.
    pub on_error: *const c_char,
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
    /// With share: the program that reads, and arguments that come before its own: the command of this version. NULL:
    /// `rowdex`, where the system finds programs.
    pub share_program: *const *const c_char,
    /// How many share_program has.
    pub num_share_program: usize,
    /// How many milliseconds rowdex_loader_next, rowdex_loader_peek and rowdex_loader_advance wait for a batch before
    /// they return ROWDEX_STATUS_TIMED_OUT: call again, nothing is lost. For callers whose signal handlers run between
    /// calls. 0: without end, as streams always do.
    pub max_wait: u64,
    /// Which column has the tokens of packs: its name, or the path of a field of a struct, as doc.tokens. NULL: the one
    /// whose items were counted for the lengths.
    pub tokens: *const c_char,
    /// The columns with an item for each token, as weights; those called labels, completion_mask and assistant_masks
    /// need no mention. Rows are cut in them as in the tokens. May be NULL.
    pub with_columns: *const *const c_char,
    /// How many.
    pub num_with_columns: usize,
}

// SAFETY: repr(C), begins with its size, and has only fields of 8 bytes for which 0 is valid.
unsafe impl Versioned for rowdex_loader_options {}

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
    let fault = unsafe { handle::optional_text(options.on_error, "options.on_error") }?;
    let seeds = [("options.fault_seed", options.fault_seed != 0, fault == Some("substitute"))];
    handle::refuse_unused(seeds, "a loader that replaces no rows")?;
    let mut builder = builder.on_error(self::fault(fault, options.fault_seed)?);
    if options.views != 0 {
        builder = builder.with_views(true);
    }
    // SAFETY: as above.
    if let Some(tokens) = unsafe { handle::optional_text(options.tokens, "options.tokens") }? {
        builder = builder.tokens(tokens);
    }
    // SAFETY: as above.
    let with = unsafe { handle::texts(options.with_columns, options.num_with_columns, "options.with_columns") }?;
    builder = builder.with_columns(with);
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
    let (with, name, job) = unsafe {
        (
            handle::optional_text(options.share, "options.share")?,
            handle::optional_text(options.share_name, "options.share_name")?,
            handle::optional_text(options.share_job, "options.share_job")?,
        )
    };
    let ranks = bytes(options.share_ranks);
    let drift = bytes(options.share_drift);
    match with {
        Some("machine") => {}
        Some(other) => {
            return Err(handle::invalid(format!("nothing that ranks share a reader of is called {other:?}"))
                .with_hint("use machine, or NULL"));
        }
        None if name.or(job).is_some() || ranks.or(drift).is_some() => {
            return Err(handle::invalid("options of a shared reader, which is not asked for")
                .with_hint("set options.share to machine"));
        }
        None => return Ok(None),
    }
    let mut share = Share::machine();
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
    // SAFETY: as above.
    let program = unsafe { handle::texts(options.share_program, options.num_share_program, "options.share_program") }?;
    Ok(Some(share.program(program)))
}

fn fault(policy: Option<&str>, seed: u64) -> Result<Fault> {
    match policy {
        None | Some("raise") => Ok(Fault::Fail),
        Some("substitute") => Ok(Fault::Substitute { seed }),
        Some(other) => {
            Err(handle::invalid(format!("no policy for faults is called {other:?}"))
                .with_hint("use raise or substitute"))
        }
    }
}
