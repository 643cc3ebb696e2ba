//! The steps of one worker of a rank, whatever numbers of rows these have.

use std::sync::{Arc, Mutex};

use super::batching::{Batching, Counts, Rest, Stretch};
use super::{DistributedSampler, Recent, Rotation};
use crate::{EpochOrder, Order, fingerprint};
use rowdex_base::error::Result;

/// The sampler of a worker of a rank: of its positions, and of every so many-th of its steps.
pub(super) fn worker_of_steps(rank: &DistributedSampler, worker: u64, workers: u64) -> DistributedSampler {
    let from = rank.rest(rank.epoch);
    let orders = Arc::clone(&rank.orders);
    let (index, count) = (from.shard.index().into(), from.shard.count().into());
    let parameters = [orders.fingerprint(), from.start, index, count, rank.batch_size(), worker, workers];
    let fingerprint = fingerprint("worker of steps", 1, orders.len(), &parameters);
    let given: Arc<dyn Order> = Arc::new(OrderOfWorker { orders, fingerprint });
    let inner = Arc::clone(&rank.batching);
    let batching = Arc::new(Every { inner, from, worker, workers, recent: Mutex::default() });
    let orders = Arc::clone(&given);
    let rotation = Rotation::Resumed;
    DistributedSampler { given, orders, batching, part_of: None, rotation, recent: Recent::default(), ..*rank }
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
    recent: Mutex<Option<Arc<Steps>>>,
}

/// The steps that one rest has for a worker. Made in a call for each of them, with 8 bytes for each.
#[derive(Debug)]
struct Steps {
    rest: Rest,
    /// Which step of the rank is the first of them.
    first: u64,
    /// How many samples of the worker there are up to the end of each.
    ends: Vec<u64>,
}

impl Every {
    /// Never waits: whoever finds the last ones taken makes its own.
    fn steps(&self, rest: &Rest) -> Arc<Steps> {
        let mut rest = *rest;
        if rest.epoch == self.from.epoch && rest.start < self.from.start {
            // Of this epoch that is all.
            (rest.start, rest.began) = (self.from.start, self.from.began);
        }
        if let Ok(recent) = self.recent.try_lock()
            && let Some(steps) = &*recent
            && (steps.rest.epoch, steps.rest.start) == (rest.epoch, rest.start)
        {
            return Arc::clone(steps);
        }
        let steps = Arc::new(self.listed(rest));
        if let Ok(mut recent) = self.recent.try_lock() {
            *recent = Some(Arc::clone(&steps));
        }
        steps
    }

    fn listed(&self, rest: Rest) -> Steps {
        let (start, began) = if rest.epoch == self.from.epoch { (self.from.start, self.from.began) } else { (0, 0) };
        let (all, left) = (self.inner.counts(&Rest { start, began, ..rest }), self.inner.counts(&rest));
        let done = all.steps.saturating_sub(left.steps);
        let before = done.saturating_sub(self.worker).div_ceil(self.workers);
        let first = self.worker + before * self.workers - done;
        let with_rows = left.samples.checked_sub(1).map_or(0, |last| self.inner.step_of(&rest, last) + 1);
        let (mut ends, mut end, mut step) = (Vec::new(), 0, first);
        while step < with_rows {
            let Stretch { sample, samples, .. } = self.inner.batch(&rest, step);
            end += samples.min(left.samples.saturating_sub(sample));
            ends.push(end);
            step = step.saturating_add(self.workers);
        }
        Steps { rest, first, ends }
    }
}

impl Steps {
    /// The samples before a step.
    fn before(&self, step: u64) -> u64 {
        let before = (step as usize).checked_sub(1);
        before.and_then(|before| self.ends.get(before)).copied().unwrap_or(0)
    }

    fn step_of(&self, sample: u64) -> u64 {
        self.ends.partition_point(|end| *end <= sample) as u64
    }
}

impl Batching for Every {
    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    fn most_rows(&self) -> u64 {
        self.inner.most_rows()
    }

    fn counts(&self, rest: &Rest) -> Counts {
        let steps = self.steps(rest);
        Counts { samples: steps.ends.last().copied().unwrap_or(0), steps: steps.ends.len() as u64 }
    }

    fn served(&self, rest: &Rest, steps: u64) -> u64 {
        let own = self.steps(rest);
        let done = match steps.checked_sub(1) {
            None => 0,
            Some(last) if steps < own.ends.len() as u64 => own.first + last * self.workers + 1,
            Some(_) => self.inner.counts(&own.rest).steps,
        };
        self.inner.served(&own.rest, done) + (own.rest.start - rest.start)
    }

    fn batch(&self, rest: &Rest, step: u64) -> Stretch {
        let own = self.steps(rest);
        let of_rank = self.inner.batch(&own.rest, own.first + step * self.workers);
        let sample = own.before(step);
        let end = own.ends.get(step as usize).copied().unwrap_or(sample);
        Stretch { sample, samples: end - sample, ..of_rank }
    }

    fn around(&self, rest: &Rest, sample: u64) -> Stretch {
        self.batch(rest, self.step_of(rest, sample))
    }

    fn step_of(&self, rest: &Rest, sample: u64) -> u64 {
        self.steps(rest).step_of(sample)
    }

    fn sample_at(&self, rest: &Rest, position: u64) -> Option<u64> {
        let own = self.steps(rest);
        let sample = self.inner.sample_at(&own.rest, position)?;
        let step = self.inner.step_of(&own.rest, sample);
        let past = step.checked_sub(own.first).filter(|past| past.is_multiple_of(self.workers))?;
        let within = sample - self.inner.batch(&own.rest, step).sample;
        Some(own.before(past / self.workers) + within)
    }
}
