//! How a loader works, as C says it.

use std::ffi::c_char;
use std::time::Duration;

use crate::capi::dataset::{Rows, rowdex_dataset};
use crate::capi::handle::{self, GivenOptions, chosen, require};
use crate::capi::sampler::rowdex_sampler;
use crate::describe::{OptionalSetting, ShareDescription};
use crate::loader::{Fault, Loader, LoaderBuilder};
use ::rowdex_order::sampler::DistributedSampler;
use rowdex_base::error::Result;

/// How a loader works. All zeros are the defaults.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_loader_options {
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
    /// 1 serves top-level string and binary columns as views, of any of their types, so that their values are not
    /// copied into batches; in exchange a batch keeps alive what its values are in.
    pub views: u64,
    /// How many row groups of an object store may be on their way at once. 0: chosen by measurement, so that batches do
    /// not wait. ROWDEX_NONE: none is read ahead.
    pub read_concurrency: u64,
    /// As JSON, such as {"ranks": 8}: shares one reader with the loaders of the other ranks on this machine: memory and
    /// threads are then the machine's, and must be the same on all ranks, as all else. With samplers of
    /// rowdex_sampler_worker that are all workers of all ranks. NULL: each loader reads for itself.
    ///
    /// All may be left out: name: which of the loaders of a rank this is, the same on all ranks; by default the first,
    /// second, … of this process that shares. job: the name of the job, and ranks: how many are on this machine; by
    /// default as the launcher says. drift: how many steps a rank may be ahead of another one, about; 32, fewer of
    /// large batches. program: the program that reads, and arguments that come before its own, as a list: the command
    /// of this version; by default `rowdex`, where the system finds programs.
    pub share: *const c_char,
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

// SAFETY: pointers and integers.
unsafe impl GivenOptions for rowdex_loader_options {}

/// # Safety
/// `options` and the pointers in it are as the header says.
pub(super) unsafe fn builder(
    dataset: Option<&rowdex_dataset>,
    sampler: Option<&rowdex_sampler>,
    options: Option<&rowdex_loader_options>,
) -> Result<LoaderBuilder> {
    let dataset = &require(dataset, "dataset")?.0;
    let sampler = DistributedSampler::clone(&require(sampler, "sampler")?.0.load());
    let options = GivenOptions::of(options);
    // SAFETY: the caller's promise.
    let text = |text, name| unsafe { handle::optional_text(text, name) };
    let count = |option| chosen(option).map(|count| count as usize);
    let share = (!options.share.is_null()).then(|| {
        // SAFETY: as above.
        unsafe { handle::described::<ShareDescription>(options.share, "share") }
    });
    let builder = match dataset {
        Rows::One(dataset) => Loader::builder(dataset, sampler),
        Rows::Mixed(dataset) => Loader::builder(dataset, sampler),
    }
    .on_error(fault(text(options.on_error, "options.on_error")?, options.fault_seed)?)
    // SAFETY: as above.
    .with_columns(unsafe { handle::texts(options.with_columns, options.num_with_columns, "options.with_columns") }?)
    .with_views(options.views != 0)
    .given(text(options.tokens, "options.tokens")?, LoaderBuilder::tokens)
    .given(count(options.read_concurrency), LoaderBuilder::read_concurrency)
    .given(chosen(options.memory), LoaderBuilder::memory)
    .given(count(options.threads), LoaderBuilder::threads)
    .given(count(options.read_ahead), LoaderBuilder::read_ahead)
    .given(chosen(options.epochs), LoaderBuilder::epochs)
    .given(chosen(options.max_wait).map(Duration::from_millis), LoaderBuilder::max_wait)
    .given(share.transpose()?.map(ShareDescription::share), LoaderBuilder::share);
    // SAFETY: as above.
    let more = unsafe { handle::slice(options.more_ranks, options.num_more_ranks, "options.more_ranks") }?;
    let more = more.iter().map(|sampler| {
        // SAFETY: as above.
        let sampler = unsafe { handle::borrow(sampler.cast_mut(), "options.more_ranks[…]") }?;
        Ok(DistributedSampler::clone(&sampler.0.load()))
    });
    Ok(builder.and_ranks(more.collect::<Result<Vec<_>>>()?))
}

fn fault(policy: Option<&str>, seed: u64) -> Result<Fault> {
    match policy {
        None | Some("raise") if seed != 0 => {
            Err(handle::invalid("`options.fault_seed` says nothing of a loader that replaces no rows")
                .with_hint("leave it 0, or substitute rows"))
        }
        None | Some("raise") => Ok(Fault::Fail),
        Some("substitute") => Ok(Fault::Substitute { seed }),
        Some(other) => {
            Err(handle::invalid(format!("no policy for faults is called {other:?}"))
                .with_hint("use raise or substitute"))
        }
    }
}
