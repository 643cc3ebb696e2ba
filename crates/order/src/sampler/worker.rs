//! One worker's batches as a sampler of their own.

use std::sync::Arc;

use super::deal::Deal;
use super::shard::Rest;
use super::{DistributedSampler, Rotation};
use crate::{EpochOrder, Order, fingerprint};
use rowdex_base::error::{Error, Result};

/// What a worker's batches are a part of.
#[derive(Debug)]
pub struct PartOf {
    /// The sampler of the worker's rank.
    pub rank: DistributedSampler,
    /// Which worker it is.
    pub worker: u64,
    /// How many there are.
    pub workers: u64,
    /// What the rank had left when the worker began.
    from: Rest,
}

impl DistributedSampler {
    /// The batches of one of `workers` workers of this rank as a separate sampler: its step `i` is step `i * workers +
    /// worker` of this one, counted from the first that is left. So a `Loader` in each worker process plans for just
    /// what that worker serves.
    ///
    /// It begins at the first step of this sampler's current epoch and continues with the epochs after. Steps in which
    /// this rank has no rows (see [`Tail::Uneven`](super::Tail::Uneven)) are left out.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` unless `worker` is one of them.
    pub fn worker(&self, worker: u64, workers: u64) -> Result<DistributedSampler> {
        let workers = workers.max(1);
        if worker >= workers {
            return Err(
                Error::invalid(format!("worker {worker} is not one of {workers}")).with_hint("workers count from 0")
            );
        }
        let from = self.rest(self.epoch)?;
        let orders = Arc::clone(&self.orders);
        let index = from.shard.index().into();
        let count = from.shard.count().into();
        let parameters = [orders.fingerprint(), from.start, index, count, self.batch_size, worker, workers];
        let fingerprint = fingerprint("worker of steps", orders.len(), &parameters);
        let given: Arc<dyn Order> = Arc::new(OrderOfWorker { orders, fingerprint });
        let rank = self.clone();
        Ok(Self {
            orders: Arc::clone(&given),
            given,
            rotation: Rotation::Resumed,
            part_of: Some(Arc::new(PartOf { rank, worker, workers, from })),
            ..self.clone()
        })
    }
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

impl PartOf {
    /// Every `workers`-th step of the rank from step `worker` of what it had left on, and of later epochs likewise.
    pub(super) fn deal(&self, asked: &Rest) -> Result<Deal> {
        let Rest { start, began, step, .. } = self.from;
        let mut rest = *asked;
        let mut all = Rest { start: 0, began: 0, ..*asked };
        if rest.epoch == self.from.epoch {
            all = Rest { start, began, step, ..all };
            if rest.start < start {
                // Of this epoch that is all.
                rest = all;
            }
        }
        let rank = self.rank.deal(&rest)?;
        let done = self.rank.deal(&all)?.steps().saturating_sub(rank.steps());
        let before = done.saturating_sub(self.worker).div_ceil(self.workers);
        rank.of_worker(self.worker + before * self.workers - done, self.workers, rest.start - asked.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Global;
    use crate::sampler::tests::plans::Cut;
    use crate::sampler::{Shard, Tail};
    use rowdex_base::error::ErrorKind;

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
                        let cuts: [Cut; 3] = [1.into(), 4.into(), 100.into()];
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
        check(&resumed(Cut::Packs(2, 1)), 2, &[5, 6]);
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
