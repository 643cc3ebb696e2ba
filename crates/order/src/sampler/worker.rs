//! One worker's batches as a sampler of their own.

use std::sync::Arc;

use super::batching::{Batching, Deal, Ends, Rest, Stretch};
use super::{BatchPlan, DistributedSampler, Recent, Rotation, Shard};
use crate::{Cost, EpochOrder, Order, Packed, PackedEpoch, fingerprint};
use rowdex_base::error::{Error, ErrorKind, Result};

/// What a worker's batches are a part of.
#[derive(Debug)]
pub struct PartOf {
    /// The sampler of the worker's rank.
    pub rank: DistributedSampler,
    /// Which worker it is.
    pub worker: u64,
    /// How many there are.
    pub workers: u64,
}

impl DistributedSampler {
    /// The batches of one of `workers` workers of this rank as a sampler of their own: its step `i` is step
    /// `i * workers + worker` of this one, counted from the first that is left. So a `Loader` in each worker process
    /// plans for just what that worker serves.
    ///
    /// It begins at the first step of this sampler's current epoch and goes on with the epochs after. Steps in which
    /// this rank has no rows (see [`Tail::Uneven`](super::Tail::Uneven)) are left out.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` unless `worker` is one of them.
    pub fn worker(&self, worker: u64, workers: u64) -> Result<DistributedSampler> {
        let workers = workers.max(1);
        if worker >= workers {
            let message = format!("worker {worker} is not one of {workers}");
            return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("workers count from 0"));
        }
        let mut sampler = worker_of_steps(self, worker, workers)?;
        sampler.set_epoch(self.epoch);
        sampler.part_of = Some(Arc::new(PartOf { rank: self.clone(), worker, workers }));
        Ok(sampler)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Global;
    use crate::sampler::Tail;
    use crate::sampler::tests::plans::Cut;

    fn batches(sampler: &DistributedSampler, epoch: u64) -> Vec<Vec<u64>> {
        let plan = sampler.plan(epoch).unwrap();
        plan.batches().map(|batch| batch.unwrap().rows).filter(|rows| !rows.is_empty()).collect()
    }

    fn check(sampler: &DistributedSampler, workers: u64, epochs: &[u64]) {
        let of_workers: Vec<_> = (0..workers).map(|worker| sampler.worker(worker, workers).unwrap()).collect();
        for &epoch in epochs {
            let whole = batches(sampler, epoch);
            for (worker, own) in of_workers.iter().enumerate() {
                let expected: Vec<_> = whole.iter().skip(worker).step_by(workers as usize).cloned().collect();
                assert_eq!(batches(own, epoch), expected, "{sampler:?}, worker {worker} of {workers}");
                check_states(own, epoch);
            }
        }
    }

    /// Steps are numbered from 0, and it goes on after each of them.
    fn check_states(own: &DistributedSampler, epoch: u64) {
        let plan = own.plan(epoch).unwrap();
        let steps: Vec<u64> = plan.batches().map(|batch| batch.unwrap().step).collect();
        assert!(steps.iter().copied().eq(0..plan.steps()));
        for step in steps.iter().rev().skip(1).step_by(3) {
            let mut resumed = own.clone();
            resumed.resume(&own.state_after(epoch, *step).unwrap()).unwrap();
            let left = resumed.plan(epoch).unwrap();
            assert_eq!((left.steps(), left.first_step()), (plan.steps(), step + 1));
            for step in left.first_step()..left.steps() {
                assert_eq!(left.batch(step).unwrap(), plan.batch(step).unwrap());
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes too many steps for Miri")]
    fn workers_in_turn_serve_the_batches_of_their_rank() {
        for n in [0, 1, 2, 7, 24, 61] {
            for world in [1, 2, 5] {
                for rank in 0..world {
                    for tail in [Tail::Wrap, Tail::Drop, Tail::Uneven] {
                        let shard = Shard::new(rank, world).unwrap().with_tail(tail);
                        let orders: Arc<dyn Order> = Arc::new(Global::new(n, 3).unwrap());
                        let cuts: [Cut; 4] = [1.into(), 4.into(), 100.into(), Cut::drawn(n)];
                        for (cut, drop_last) in cuts.into_iter().flat_map(|cut| [(cut, false), (cut, true)]) {
                            let sampler = cut.sampler(&orders, shard).with_drop_last_batch(drop_last);
                            for workers in [1, 2, 3] {
                                check(&sampler, workers, &[0, 1]);
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn workers_go_on_within_a_resumed_epoch_and_with_the_next() {
        let orders: Arc<dyn Order> = Arc::new(Global::new(100, 3).unwrap());
        let resumed = |cut: Cut| {
            let mut sampler = cut.sampler(&orders, Shard::new(1, 3).unwrap());
            sampler.resume(&sampler.state_after(5, 2).unwrap()).unwrap();
            sampler
        };
        check(&resumed(4.into()), 2, &[5, 6]);
        check(&resumed(Cut::drawn(1)), 2, &[5, 6]);
    }

    #[test]
    fn workers_have_fingerprints_of_their_own() {
        let sampler =
            DistributedSampler::new(Arc::new(Global::new(100, 3).unwrap()), Shard::new(1, 3).unwrap(), 4).unwrap();
        let fingerprint = |worker, workers| sampler.worker(worker, workers).unwrap().orders().fingerprint();
        assert_ne!(fingerprint(0, 2), fingerprint(1, 2));
        assert_ne!(fingerprint(0, 1), fingerprint(0, 2));
        assert_eq!(sampler.worker(2, 2).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}
