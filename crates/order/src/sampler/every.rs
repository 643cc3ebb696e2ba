//! The steps of one worker of a rank, whatever numbers of rows these have.

use std::sync::Arc;

use super::batching::{Batching, Deal, Ends, Rest, Stretch};
use super::{BatchPlan, DistributedSampler, Recent, Rotation, Shard};
use crate::{Cost, EpochOrder, Order, Packed, PackedEpoch, fingerprint};
use rowdex_base::error::Result;

/// The sampler of a worker of a rank: of its positions, and of every so many-th of its steps.
pub(super) fn worker_of_steps(rank: &DistributedSampler, worker: u64, workers: u64) -> Result<DistributedSampler> {
    let from = rank.rest(rank.epoch)?;
    let orders = Arc::clone(&rank.orders);
    let index = from.shard.index().into();
    let count = from.shard.count().into();
    let parameters = [orders.fingerprint(), from.start, index, count, rank.batch_size(), worker, workers];
    let fingerprint = fingerprint("worker of steps", 1, orders.len(), &parameters);
    let given: Arc<dyn Order> = Arc::new(OrderOfWorker { orders, fingerprint });
    let inner = Arc::clone(&rank.batching);
    let batching = Arc::new(Every { inner, from, worker, workers });
    let orders = Arc::clone(&given);
    let rotation = Rotation::Resumed;
    Ok(DistributedSampler { given, orders, batching, part_of: None, rotation, recent: Recent::default(), ..*rank })
}

/// The orders of the rank, told apart from them and from those of its other workers.
#[derive(Debug)]
struct OrderOfWorker {
    orders: Arc<dyn Order>,
    fingerprint: u64,
}

impl Order for OrderOfWorker {
    fn len(&self) -> u64 {
        self.orders.len()
    }

    fn epoch_len(&self, epoch: u64) -> Result<u64> {
        self.orders.epoch_len(epoch)
    }

    fn epoch(&self, epoch: u64) -> Result<Arc<dyn EpochOrder>> {
        self.orders.epoch(epoch)
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn name(&self) -> &'static str {
        "worker"
    }
}

/// Every `workers`-th step of a rank from step `worker` of the rest `from` on, and of later epochs likewise.
#[derive(Debug)]
struct Every {
    inner: Arc<dyn Batching>,
    from: Rest,
    worker: u64,
    workers: u64,
}

/// The steps that one rest has for a worker.
#[derive(Debug)]
struct Steps {
    rank: Arc<dyn Deal>,
    /// Positions between the start that was asked for and that of the rank.
    skipped: u64,
    /// Which step of the rank is the first of them.
    first: u64,
    workers: u64,
    steps: u64,
    ends: Ends,
}

impl Batching for Every {
    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    fn batch_size(&self) -> u64 {
        self.inner.batch_size()
    }

    fn packed(&self) -> Option<&Arc<Packed>> {
        self.inner.packed()
    }

    fn step(&self, shard: Shard) -> Option<u64> {
        self.inner.step(shard)
    }

    fn cost(&self) -> Option<Cost> {
        self.inner.cost()
    }

    fn check(&self, shard: Shard, positions: u64) -> Result<()> {
        self.inner.check(shard, positions)
    }

    fn deal(&self, asked: &Rest) -> Result<Arc<dyn Deal>> {
        let mut rest = *asked;
        let mut all = Rest { start: 0, began: 0, ..*asked };
        if rest.epoch == self.from.epoch {
            (all.start, all.began, all.step) = (self.from.start, self.from.began, self.from.step);
            if rest.start < self.from.start {
                // Of this epoch that is all.
                (rest.start, rest.began, rest.step) = (self.from.start, self.from.began, self.from.step);
            }
        }
        let rank = self.inner.deal(&rest)?;
        let all = self.inner.deal(&all)?;
        let done = all.steps().saturating_sub(rank.steps());
        let before = done.saturating_sub(self.worker).div_ceil(self.workers);
        let first = self.worker + before * self.workers - done;
        let mut with_rows = rank.steps();
        while with_rows > 0 && rank.batch(with_rows - 1)?.samples == 0 {
            with_rows -= 1;
        }
        let steps = with_rows.saturating_sub(first).div_ceil(self.workers);
        let skipped = rest.start - asked.start;
        Ok(Arc::new(Steps { rank, skipped, first, workers: self.workers, steps, ends: Ends::default() }))
    }
}

impl Deal for Steps {
    fn steps(&self) -> u64 {
        self.steps
    }

    fn samples(&self) -> u64 {
        self.ends.samples(self)
    }

    fn served(&self, steps: u64) -> Result<u64> {
        let done = match steps.checked_sub(1) {
            None => 0,
            Some(last) if steps < self.steps => self.first + last * self.workers + 1,
            Some(_) => self.rank.steps(),
        };
        Ok(self.rank.served(done)? + self.skipped)
    }

    fn batch(&self, step: u64) -> Result<Stretch> {
        self.rank.batch(self.first + step * self.workers)
    }

    fn before(&self, step: u64) -> u64 {
        self.ends.before(self, step)
    }

    fn step_of(&self, sample: u64) -> u64 {
        self.ends.step_of(self, sample)
    }

    fn sample_at(&self, position: u64) -> Option<u64> {
        let sample = self.rank.sample_at(position)?;
        let step = self.rank.step_of(sample);
        let past = step.checked_sub(self.first).filter(|past| past.is_multiple_of(self.workers))?;
        Some(self.before(past / self.workers) + (sample - self.rank.before(step)))
    }

    fn fill(&self, step: u64, batch: &mut BatchPlan) -> Result<bool> {
        self.rank.fill(self.first + step * self.workers, batch)
    }

    fn packed(&self) -> Option<Arc<PackedEpoch>> {
        self.rank.packed()
    }

    fn order(&self) -> Option<Arc<dyn EpochOrder>> {
        self.rank.order()
    }
}
