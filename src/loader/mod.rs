//! Batches in the order of a sampler, at about the speed of a scan, inside a memory budget.
//!
//! A [`Loader`] knows the order in advance. It decodes each row group once per *horizon*, keeps only the rows that are
//! due within it, and hands out batches in exactly the sampler's order, however many threads it has and however much
//! memory. A kept row waits half a horizon on average, so by Little's law (L = λW) memory for `M` rows allows a horizon
//! of `2M` rows:
//!
//! **each row group is decoded `n / (2M)` times an epoch**, `n` being the rows that the loader serves in an epoch.
//!
//! With memory for a tenth of the data that is five times, with a quarter twice, with a half once. From there on some
//! row groups stay decoded, and when all fit, nothing is decoded after the first pass. An order that follows the files
//! needs no more memory than a few row groups to decode each of them once. A cache of whole row groups of a tenth of
//! the data, under the same global shuffle, decodes each row group hundreds of times.
//!
//! ```no_run
//! use std::sync::Arc;
//! use rowdex::{Dataset, DistributedSampler, Loader, Shard};
//! use rowdex::order::Global;
//!
//! # fn main() -> rowdex::Result<()> {
//! let dataset = Dataset::open("train.rdx")?;
//! let orders = Arc::new(Global::new(dataset.len(), 42)?);
//! let sampler = DistributedSampler::new(orders, Shard::new(0, 8)?, 256)?;
//! let mut loader = Loader::builder(&dataset, sampler).memory(4 << 30).threads(4).epochs(10).build()?;
//! while let Some(batch) = loader.next() {
//!     let batch = batch?;
//!     println!("epoch {} step {} of {}: {} rows", batch.epoch, batch.step, batch.steps, batch.records.num_rows());
//!     if batch.step % 1000 == 999 {
//!         println!("checkpoint {}", loader.state());
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod assemble;
mod batch;
mod builder;
mod carousel;
mod cutting;
mod deliver;
mod driver;
mod engine;
mod epoch;
mod estimate;
mod extract;
mod groups;
#[cfg(target_os = "linux")]
mod job;
mod lookahead;
mod packing;
mod packs;
#[cfg(feature = "capi")]
mod peek;
mod pieces;
mod plan;
mod prefetched;
mod recovery;
mod route;
mod schedule;
mod share;
#[cfg(test)]
mod tests;
mod units;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use arrow_schema::SchemaRef;
use serde::{Deserialize, Serialize};

pub use self::batch::{Batch, LoaderStats};
pub use self::builder::LoaderBuilder;
use self::builder::Options;
pub use self::deliver::Control;
pub(crate) use self::deliver::closed;
use self::deliver::{Deliver, Owned, is_to_come};
use self::driver::Epochs;
use self::engine::{Engine, Settings};
pub use self::epoch::Epoch;
pub use self::estimate::Estimate;
pub use self::groups::Loadable;
use self::groups::dataset::DatasetGroups;
pub use self::packs::{Packs, Unended};
#[cfg(feature = "capi")]
pub(crate) use self::peek::Standing;
pub use self::prefetched::{Prefetched, PrefetchedStats};
use self::recovery::Faults;
pub use self::recovery::{Fault, LostGroup, Substituted};
pub use self::share::{Server, Share};
use self::units::Units;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::stop;
use rowdex_order::sampler::{DistributedSampler, State};
#[doc(inline)]
pub use rowdex_rows::{NO_LABEL, PackLayout, Sequences, Sequencing, Then};

/// Serves batches in the order of a sampler, epoch after epoch.
///
/// It is an iterator over the batches of the run; [`epoch`](Self::epoch) gives those of one epoch at a time. Dropping
/// it ends its threads, each once it is done with the row group at hand.
///
/// An error comes exactly at the step that needs what cannot be had, after all batches before it. The loader has then
/// *failed*: it serves nothing more, and neither another epoch nor [`set_epoch`](Self::set_epoch) changes that.
/// [`try_next`](Self::try_next) returns the same error each time, as does the first item of each
/// [`epoch`](Self::epoch); an iterator ends after it. [`state`](Self::state) is still that of the last step that was
/// served whole. [`resume`](Self::resume) clears the error, so a caller resumes from that state once the file is
/// repaired, or from another state past the damage.
///
/// A forked child that uses a loader of its parent gets the error `Closed`, unless the parent has not used it yet.
/// [`resume`](Self::resume) from its own [`state`](Self::state) starts it there, with its own threads.
#[derive(Debug)]
pub struct Loader {
    units: Arc<Units>,
    samplers: Arc<[DistributedSampler]>,
    options: Options,
    /// Outlives the engine, so that what is lost is not tried again after a resume.
    faults: Arc<Faults>,
    engine: Option<Owned<Box<dyn Deliver>>>,
    control: Control,
    waiting: VecDeque<Batch>,
    /// How many of these were looked at.
    looked: usize,
    /// What comes after `waiting`.
    error: Option<Error>,
    /// Why nothing more is served, until the loader is told to go on elsewhere: the run has no more epochs, or it
    /// failed.
    over: Option<Result<(), Error>>,
    place: NextBatch,
    state: State,
}

/// The next batch, counted over the ranks and steps of its epoch from the epoch's first step on. Batch 0 of an epoch
/// that was resumed is the first that is left of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct NextBatch {
    epoch: u64,
    batch: u64,
}

impl NextBatch {
    /// The one after a batch of the rank at this place among so many.
    fn after(batch: &Batch, rank: u64, ranks: u64) -> Self {
        match batch.is_last() && rank + 1 == ranks {
            true => Self { epoch: batch.epoch.saturating_add(1), batch: 0 },
            false => Self { epoch: batch.epoch, batch: batch.step.saturating_mul(ranks) + rank + 1 },
        }
    }
}

impl Loader {
    /// Options for serving `sampler`'s batches of rows of `dataset`, which may be several as one.
    pub fn builder(dataset: &impl Loadable, sampler: DistributedSampler) -> LoaderBuilder {
        let (datasets, served) = dataset.loaded();
        LoaderBuilder {
            groups: Arc::new(DatasetGroups::new(datasets, served, false)),
            datasets: datasets.to_vec(),
            served: served.clone(),
            samplers: vec![sampler],
            share: None,
            options: Options::default(),
        }
    }

    fn new(units: Arc<Units>, samplers: Vec<DistributedSampler>, options: Options) -> Result<Self> {
        let Some(first) = samplers.first() else {
            return Err(Error::new(ErrorKind::InvalidArgument, "a loader for no rank at all"));
        };
        let state = first.state();
        let same = |other: &DistributedSampler| {
            other.state() == state
                && other.steps() == first.steps()
                && other.batch_size() == first.batch_size()
                && other.shard().count() == first.shard().count()
                && other.shard().tail() == first.shard().tail()
        };
        if !samplers.iter().all(same) {
            return Err(Error::new(ErrorKind::InvalidArgument, "the ranks of a loader differ in more than the rank")
                .with_hint("use one order, state, batch size, world and tail policy"));
        }
        let mut ranks: Vec<u32> = samplers.iter().map(|sampler| sampler.shard().rank()).collect();
        ranks.sort_unstable();
        if let Some([rank, _]) = ranks.array_windows().find(|[rank, next]| rank == next) {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("rank {rank} is given twice"))
                .with_hint("give each rank once, and that of the loader's own sampler not among the others"));
        }
        let least = estimate::least_memory(&units);
        if options.memory < least {
            let memory = options.memory;
            let count = units.groups.count();
            let message = format!("a memory of {memory} bytes is too little for rows of {count} row groups");
            return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint(format!(
                "give the loader {least} bytes or more: half of it is what is known of row groups"
            )));
        }
        let place = NextBatch { epoch: first.epoch(), batch: 0 };
        let faults = Arc::new(Faults::new(options.fault, &units)?);
        Ok(Self {
            units,
            samplers: samplers.into(),
            options,
            control: Control::new(&faults),
            faults,
            engine: None,
            waiting: VecDeque::new(),
            looked: 0,
            error: None,
            over: None,
            place,
            state,
        })
    }

    /// The schema of every batch: the dataset's, or with views in the place of strings if these were [asked
    /// for](LoaderBuilder::with_views).
    pub fn schema(&self) -> SchemaRef {
        self.units.form.served.clone()
    }

    /// Where the run stands after the last step of which all batches were handed out. A loader, or a bare sampler, that
    /// resumes from it continues with the batch after.
    pub fn state(&self) -> State {
        self.state
    }

    /// How many steps the epoch of the next batch has in all, wherever the run was resumed: the same number on every
    /// rank, and in all epochs but those of packs.
    pub fn steps(&self) -> u64 {
        self.steps_of(self.place.epoch)
    }

    /// How many steps an epoch has in all: epochs of packs differ.
    fn steps_of(&self, epoch: u64) -> u64 {
        let Some(sampler) = self.samplers.first() else { return 0 };
        // A worker of an epoch that was resumed serves no other one.
        let steps = sampler.packed().and_then(|_| sampler.known_steps_of(epoch));
        steps.unwrap_or_else(|| sampler.steps())
    }

    /// How many steps are left of the epoch that the next batch is from. A step is over once the batches of all its
    /// ranks were handed out.
    pub fn steps_left(&self) -> u64 {
        let over = self.options.epochs.is_some_and(|epochs| self.place.epoch >= epochs);
        let Some(sampler) = self.samplers.first().filter(|_| !over) else { return 0 };
        sampler.steps_of(self.place.epoch).saturating_sub(self.next_step())
    }

    /// The step that the next batch is of.
    fn next_step(&self) -> u64 {
        let Some(sampler) = self.samplers.first() else { return 0 };
        sampler.first_step(self.place.epoch).max(self.place.batch / self.samplers.len() as u64)
    }

    /// Resumes from `state`, as [`DistributedSampler::resume`] does. What was read ahead is dropped, and an error that
    /// had ended the loader is forgotten: what it needs is read again.
    ///
    /// # Errors
    ///
    /// As [`DistributedSampler::resume`]; the loader is then unchanged.
    pub fn resume(&mut self, state: &State) -> Result<()> {
        let mut samplers = self.samplers.to_vec();
        for sampler in &mut samplers {
            sampler.resume(state)?;
        }
        self.samplers = samplers.into();
        let epoch = self.samplers.first().map_or(state.epoch, DistributedSampler::epoch);
        self.go_to(NextBatch { epoch, batch: 0 });
        Ok(())
    }

    /// Continues with the first batch of `epoch`. What was read ahead is dropped, unless it comes next anyway.
    ///
    /// After an error this changes nothing: frameworks call it before each epoch, and would continue past the error
    /// unseen.
    pub fn set_epoch(&mut self, epoch: u64) {
        if self.failure().is_some() {
            return;
        }
        if self.place != (NextBatch { epoch, batch: 0 }) || self.over.is_some() {
            let mut samplers = self.samplers.to_vec();
            for sampler in &mut samplers {
                // An epoch that was resumed, and left since, is served whole when it comes again.
                sampler.set_epoch(self.place.epoch);
                sampler.set_epoch(epoch);
            }
            self.samplers = samplers.into();
            self.go_to(NextBatch { epoch, batch: 0 });
        }
    }

    fn go_to(&mut self, place: NextBatch) {
        self.waiting.clear();
        self.looked = 0;
        (self.error, self.over) = (None, None);
        self.place = place;
        let Some(sampler) = self.samplers.first() else { return };
        self.state = State { epoch: place.epoch, ..sampler.state() };
        let own = self.engine.as_ref().and_then(|owned| owned.own().ok());
        if !own.is_some_and(|engine| engine.go_to(sampler, place)) {
            self.engine = None;
        }
    }

    /// The batches of one epoch: of the next one that was not begun, or of one that was resumed.
    ///
    /// If some of the current epoch's batches were served and others not, these are dropped. From an epoch that was
    /// served to its end, the loader begins the next without a pause: its first batches are read while the last ones
    /// are served.
    ///
    /// After an error, the only item of every epoch is that error.
    pub fn epoch(&mut self) -> Epoch<'_> {
        if self.place.batch > 0 {
            self.set_epoch(self.place.epoch.saturating_add(1));
        }
        Epoch { epoch: self.place.epoch, loader: self, ended: false }
    }

    /// What was done since the loader was started, resumed or set to another epoch. If it [shares](Share) a reader:
    /// what that did for all ranks, as of the last batch.
    pub fn stats(&self) -> LoaderStats {
        self.control.stats()
    }

    /// The row groups that were found unreadable so far; always none with [`Fault::Fail`].
    pub fn lost_groups(&self) -> Vec<LostGroup> {
        self.faults.lost_groups()
    }

    /// What other threads may do with the loader while one waits for a batch.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Gets batches until more than so many wait; `false` if the run ends before.
    fn fetch(&mut self, beyond: usize) -> Result<bool> {
        if self.engine.is_none() {
            let engine = self.start()?;
            self.control.watch(&engine.watched())?;
            self.engine = Some(Owned::new(engine));
        }
        let Some(engine) = &self.engine else { return Ok(false) };
        let engine = engine.own()?;
        let until = self.options.max_wait.and_then(|most| Instant::now().checked_add(most));
        while self.waiting.len() <= beyond {
            let error = if self.waiting.is_empty() { self.error.take() } else { self.error.clone() };
            if let Some(error) = error {
                return Err(error);
            }
            let Some(assembled) = engine.next(until)? else { return Ok(false) };
            self.waiting.extend(assembled.batches);
            self.error = assembled.error;
        }
        Ok(true)
    }

    /// What it is among those that share a reader, if it does.
    fn seat(&self) -> Option<share::Seat> {
        let (Some(group), [sampler]) = (&self.options.group, &*self.samplers) else { return None };
        Some(share::Seat {
            group: Arc::clone(group),
            units: Arc::clone(&self.units),
            faults: Arc::clone(&self.faults),
            sampler: sampler.clone(),
            options: self.options.clone(),
            place: self.place,
        })
    }

    fn start(&self) -> Result<Box<dyn Deliver>> {
        if let Some(seat) = self.seat() {
            return share::deliver(seat);
        }
        let epochs = self.options.epochs.map(|epochs| epochs.saturating_sub(self.place.epoch));
        let first = self.samplers.first();
        let settings = Settings {
            memory: self.options.memory,
            threads: self.options.threads,
            read_ahead: self.options.read_ahead,
            read_concurrency: self.options.read_concurrency,
            batch_rows: first.map_or(1, |sampler| self.units.rows_of_batch(sampler)),
            seed: self.state.fingerprint,
        };
        let walk = Epochs::new(Arc::clone(&self.samplers), self.place.epoch, self.place.batch, epochs);
        let engine = Engine::start(Arc::clone(&self.units), Arc::clone(&self.faults), Box::new(walk), &settings)?;
        Ok(Box::new(engine))
    }
}

impl Loader {
    /// The next batch; `None` at the end of the run. After an error, the same error each time, but for
    /// [`TimedOut`](ErrorKind::TimedOut), which comes only with [`max_wait`](LoaderBuilder::max_wait).
    ///
    /// # Errors
    ///
    /// Why the next batch cannot be served: a row group that cannot be read, an order that fails, a row id beyond the
    /// dataset, or a thread that cannot be started.
    pub fn try_next(&mut self) -> Result<Option<Batch>> {
        self.serve(None)
    }

    /// Hands out the next batch; if `only` is given, only one of that epoch.
    fn serve(&mut self, only: Option<u64>) -> Result<Option<Batch>> {
        if !self.ready(0)? {
            return Ok(None);
        }
        let due = |batch: &mut Batch| only.is_none_or(|only| only == batch.epoch);
        let Some(batch) = self.waiting.pop_front_if(due) else { return Ok(None) };
        self.looked = self.looked.saturating_sub(1);
        let ranks = self.samplers.len() as u64;
        let rank = self.samplers.iter().position(|sampler| sampler.shard().rank() == batch.rank);
        let rank = rank.unwrap_or_default() as u64;
        self.place = NextBatch::after(&batch, rank, ranks);
        if rank + 1 == ranks
            && let Some(sampler) = self.samplers.first()
        {
            // The last of all epochs has no state after it; the one before stays.
            self.state = sampler.state_after(batch.epoch, batch.step).unwrap_or(self.state);
        }
        Ok(Some(batch))
    }

    /// Whether more than so many batches wait, the next one first; not so at the end of the run.
    fn ready(&mut self, beyond: usize) -> Result<bool> {
        if self.control.is_closed() && self.failure().is_none() {
            self.over = Some(Err(closed()));
        }
        if let Some(over) = &self.over {
            return over.clone().map(|()| false);
        }
        let found = self.fetch(beyond);
        match &found {
            Ok(true) => {}
            Err(error) if is_to_come(error) => {
                // Without threads the call itself reads, and leaves rows half read that are due later.
                if stop::is_stop(error) && self.options.threads == 0 && self.options.group.is_none() {
                    self.engine = None;
                    self.waiting.clear();
                    (self.looked, self.error) = (0, None);
                }
            }
            // What ends it beyond batches that wait does so once these were handed out.
            _ if beyond > 0 => self.error = found.as_ref().err().cloned(),
            _ => {
                self.over = Some(found.as_ref().map(drop).map_err(Error::clone));
                // Threads of a loader that was closed may take long to end, and are not waited for here.
                if found.is_ok() || !self.control.is_closed() {
                    self.engine = None;
                }
            }
        }
        found
    }

    /// The error that ended it, if one did.
    fn failure(&self) -> Option<&Error> {
        self.over.as_ref()?.as_ref().err()
    }
}

impl Iterator for Loader {
    type Item = Result<Batch>;

    /// As [`try_next`](Self::try_next), but after an error `None`: whoever skips errors comes to an end.
    fn next(&mut self) -> Option<Result<Batch>> {
        if self.failure().is_some() {
            return None;
        }
        self.serve(None).transpose()
    }
}
