//! The batches of a run, one after another over ranks, steps and epochs.

use std::fmt::Debug;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::recovery::panicked;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::sampler::{BatchPlan, DistributedSampler, EpochPlan};

/// Batches whose rows are known.
pub(crate) trait Batches: Debug + Send + Sync {
    /// Their numbers are below this.
    fn count(&self) -> u64;

    /// How many steps the epoch of batch `b` has for whom it is for: a worker may have more of them than another one.
    fn steps(&self, b: u64) -> u64;

    /// Writes batch `b` over `batch` and returns the rank that it is for.
    fn fill(&self, b: u64, batch: &mut BatchPlan) -> Result<u32>;
}

/// Runs what asks an order for rows, and makes a panic an error: the batches before it are served then.
pub(crate) fn filled<T>(fill: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(fill)).unwrap_or_else(|_| Err(panicked("the order")))
}

/// What is told of each batch, and says whether more of them may belong together.
pub(crate) type Each<'a> = dyn FnMut(&BatchPlan) -> Result<bool> + 'a;

/// Goes over batches ahead of whoever consumes them.
pub(crate) trait Walk: Debug + Send {
    /// The next batches that belong together, with about `target` rows and at least one batch; `None` at the end.
    ///
    /// `each` is given each of them, in order, and may refuse some. What it refuses, or the order breaks, is not in the
    /// range: the range ends before, and the next call returns the error.
    fn next_range(&mut self, target: u64, each: &mut Each<'_>) -> Result<Option<BatchRange>>;

    /// The number of the epoch that the next range is of, as far as is known without preparing it.
    fn epoch(&self) -> u64;

    /// Whether there is something to walk over after the end was reached, because it has come since.
    fn has_more(&mut self) -> bool {
        false
    }
}

/// One epoch of all the ranks that a loader serves.
#[derive(Debug)]
struct EpochBatches {
    ranks: Vec<EpochPlan>,
}

impl EpochBatches {
    fn new(samplers: &[DistributedSampler], epoch: u64) -> Result<Self> {
        let ranks = samplers.iter().map(|sampler| sampler.plan(epoch)).collect::<Result<Vec<_>>>()?;
        Ok(Self { ranks })
    }

    /// The first batch that is left of the epoch.
    fn first(&self) -> u64 {
        self.ranks.first().map_or(0, EpochPlan::first_step).saturating_mul(self.ranks.len() as u64)
    }
}

/// Batch `b` is that of rank `b mod ranks` at step `b / ranks`, counted from the beginning of the epoch.
impl Batches for EpochBatches {
    fn count(&self) -> u64 {
        self.steps(0).saturating_mul(self.ranks.len() as u64)
    }

    fn steps(&self, _: u64) -> u64 {
        self.ranks.first().map_or(0, EpochPlan::steps)
    }

    fn fill(&self, b: u64, batch: &mut BatchPlan) -> Result<u32> {
        let count = self.ranks.len().max(1) as u64;
        let Some(rank) = self.ranks.get((b % count) as usize) else {
            return Err(Error::new(ErrorKind::Internal, "a loader without ranks"));
        };
        rank.fill(b / count, batch)?;
        Ok(rank.shard().rank())
    }
}

/// Some of `all` batches, one after another.
#[derive(Debug, Clone)]
pub(crate) struct BatchRange {
    /// The number of the epoch that they are from.
    pub(crate) epoch: u64,
    pub(crate) all: Arc<dyn Batches>,
    pub(crate) batches: Range<u64>,
    /// Rows served instead of those that the order has, by their place among the rows of the range.
    pub(crate) replaced: Vec<(usize, u64)>,
}

/// Walks over the epochs of a run.
#[derive(Debug)]
pub(crate) struct Epochs {
    samplers: Arc<[DistributedSampler]>,
    epoch: u64,
    /// The next batch of `epoch`.
    next: u64,
    /// Epochs to serve, the current one included; `None` is without end.
    left: Option<u64>,
    empty: Empty,
    plans: Option<Arc<EpochBatches>>,
    batch: BatchPlan,
}

/// Counts epochs without a step: after one there are only such, but for packs, of which a few more or less are made.
#[derive(Debug, Default)]
pub(crate) struct Empty(u32);

impl Empty {
    /// After so many epochs of packs without a step there will be none with any.
    pub(crate) const MOST: u32 = 64;

    /// Whether there is none with any after an epoch of so many steps.
    pub(crate) fn is_last(&mut self, steps: u64, sampler: &DistributedSampler) -> bool {
        self.0 = if steps > 0 { 0 } else { self.0 + 1 };
        let rank = sampler.part_of().map_or(sampler, |part| &part.rank);
        self.0 > if rank.packed().is_some() { Self::MOST } else { 0 }
    }
}

impl Epochs {
    /// Starts at batch `next` of `epoch`, or at the first that is left of it.
    pub(crate) fn new(samplers: Arc<[DistributedSampler]>, epoch: u64, next: u64, epochs: Option<u64>) -> Self {
        Self { samplers, epoch, next, left: epochs, empty: Empty::default(), plans: None, batch: BatchPlan::default() }
    }

    /// The plans of the epoch that the next batch is from.
    fn plans(&mut self) -> Result<Option<Arc<EpochBatches>>> {
        loop {
            if self.left == Some(0) {
                return Ok(None);
            }
            let plans = match &self.plans {
                Some(plans) => Arc::clone(plans),
                None => Arc::clone(self.plans.insert(Arc::new(EpochBatches::new(&self.samplers, self.epoch)?))),
            };
            self.next = self.next.max(plans.first());
            if self.next < plans.count() {
                return Ok(Some(plans));
            }
            let is_last = self.samplers.first().is_none_or(|sampler| self.empty.is_last(plans.count(), sampler));
            let Some(epoch) = self.epoch.checked_add(1).filter(|_| !is_last) else {
                self.left = Some(0);
                return Ok(None);
            };
            (self.epoch, self.next, self.plans) = (epoch, 0, None);
            self.left = self.left.map(|left| left - 1);
        }
    }
}

impl Walk for Epochs {
    fn next_range(&mut self, target: u64, each: &mut Each<'_>) -> Result<Option<BatchRange>> {
        let Some(plans) = self.plans()? else { return Ok(None) };
        let first = self.next;
        let mut rows = 0;
        let mut goes_on = true;
        while goes_on && self.next < plans.count() && (self.next == first || rows < target) {
            let filled = filled(|| plans.fill(self.next, &mut self.batch));
            goes_on = match filled.and_then(|_| each(&self.batch)) {
                Ok(goes_on) => goes_on,
                Err(error) if self.next == first => return Err(error),
                Err(_) => break,
            };
            rows += self.batch.rows.len() as u64;
            self.next += 1;
        }
        Ok(Some(BatchRange { epoch: self.epoch, batches: first..self.next, all: plans, replaced: Vec::new() }))
    }

    fn epoch(&self) -> u64 {
        let over = self.plans.as_ref().is_some_and(|plans| self.next >= plans.count());
        self.epoch.saturating_add(over.into())
    }
}
