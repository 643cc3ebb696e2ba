//! One worker's batches as a sampler of their own.

use std::fmt::Debug;
use std::sync::Arc;

use super::DistributedSampler;
use super::batching::EqualRows;
use super::every::worker_of_steps;
use super::plan::EpochPlan;
use super::shard::Shard;
use crate::{EpochOrder, Order, fingerprint};
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
    /// The batches of one of `workers` workers of this rank, as [`EpochPlan::batches_of_worker`] has them, as a sampler
    /// of their own: its step `i` is step `worker + i * workers` of this one, counted from the first that is left. So a
    /// `Loader` in each worker process plans for just what that worker serves.
    ///
    /// It begins at the first step of this sampler's current epoch and goes on with the epochs after. If the current
    /// epoch was resumed, it serves that epoch alone, and asking for another one is an error: that one has other
    /// numbers of samples. Steps in which this rank has no rows (see [`Tail::Uneven`](super::Tail::Uneven)) are left
    /// out, and no rows are marked as pads.
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
        let mut sampler = match self.batching.equal_rows() {
            Some(size) => worker_of_rows(self, size, worker, workers)?,
            None => worker_of_steps(self, worker, workers)?,
        };
        sampler.set_epoch(self.epoch);
        sampler.part_of = Some(Arc::new(PartOf { rank: self.clone(), worker, workers }));
        Ok(sampler)
    }
}

/// The sampler of a worker of a rank that has batches of `size` rows: over the rows of its own batches alone, which are
/// all full but for the last.
fn worker_of_rows(rank: &DistributedSampler, size: u64, worker: u64, workers: u64) -> Result<DistributedSampler> {
    let samples = rank.samples_left();
    let batches = samples.div_ceil(size);
    let own = batches.saturating_sub(worker).div_ceil(workers);
    // No overflow: all but the last of these batches are full, and these are among the samples.
    let has_last = own > 0 && (batches - 1) % workers == worker;
    let len = if has_last { (own - 1) * size + (samples - (batches - 1) * size) } else { own * size };
    let orders = WorkerOrder { sampler: rank.clone(), size, worker, workers, len };
    DistributedSampler::with_batching(Arc::new(orders), Shard::new(0, 1)?, EqualRows::of(size))
}

/// The samples of one worker, epoch after epoch: position `i * B + j` is sample `(worker + i * workers) * B + j` of the
/// rank.
#[derive(Debug)]
struct WorkerOrder {
    sampler: DistributedSampler,
    size: u64,
    worker: u64,
    workers: u64,
    len: u64,
}

impl WorkerOrder {
    const NAME: &str = "worker";
    const VERSION: u64 = 1;
}

impl Order for WorkerOrder {
    fn len(&self) -> u64 {
        self.len
    }

    fn epoch(&self, epoch: u64) -> Result<Arc<dyn EpochOrder>> {
        let resumed = self.sampler.resumed.map(|resumed| resumed.epoch);
        if resumed.is_some_and(|resumed| resumed != epoch) {
            let message = format!("epoch {epoch} of a worker of a sampler that was resumed within another epoch");
            return Err(Error::new(ErrorKind::InvalidArgument, message)
                .with_hint("ask the rank's sampler for its worker again, once it is in that epoch"));
        }
        let Self { size, worker, workers, len, .. } = *self;
        let plan = self.sampler.plan(epoch)?;
        Ok(Arc::new(WorkerEpochOrder { plan, size, worker, workers, len }))
    }

    /// Over all that decides which rows come when: the rank's orders, where its epoch begins, its shard, and the
    /// worker.
    fn fingerprint(&self) -> u64 {
        let Self { sampler, size, worker, workers, len } = self;
        let shard = sampler.shard;
        let start = sampler.start(sampler.epoch);
        let index = shard.index().into();
        let count = shard.count().into();
        let parameters = [sampler.orders.fingerprint(), start, index, count, *size, *worker, *workers];
        fingerprint(Self::NAME, Self::VERSION, *len, &parameters)
    }

    fn name(&self) -> &'static str {
        Self::NAME
    }
}

/// One epoch of [`WorkerOrder`].
#[derive(Debug)]
struct WorkerEpochOrder {
    plan: EpochPlan,
    size: u64,
    worker: u64,
    workers: u64,
    len: u64,
}

impl WorkerEpochOrder {
    /// The rank's sample at a position below `len`.
    fn sample(&self, position: u64) -> u64 {
        let size = self.size;
        (self.worker + position / size * self.workers) * size + position % size
    }

    /// Where a sample of the rank is, if this worker has it.
    fn place(&self, sample: u64) -> Option<u64> {
        let size = self.size;
        let past = (sample / size).checked_sub(self.worker).filter(|past| past % self.workers == 0)?;
        Some(past / self.workers * size + sample % size).filter(|position| *position < self.len)
    }
}

impl EpochOrder for WorkerEpochOrder {
    fn len(&self) -> u64 {
        self.len
    }

    fn row(&self, position: u64) -> Option<u64> {
        if position >= self.len {
            return None;
        }
        // An order that breaks its contract shows as one without a row here, which the sampler reports.
        self.plan.at_left(self.sample(position), &mut None).ok().flatten().map(|sample| sample.row)
    }

    fn position(&self, row: u64) -> Option<u64> {
        let plan = &self.plan;
        let end = plan.rest.start.saturating_add(plan.served);
        let mut position = plan.order.position(row)?;
        // As a pad it is served at its position plus the length, and so on.
        while position < end {
            let sample = plan.left.sample_at(position).filter(|sample| *sample < plan.left.samples());
            if let Some(place) = sample.and_then(|sample| self.place(sample)) {
                return Some(place);
            }
            position = position.checked_add(plan.order.len())?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Global;
    use crate::sampler::Tail;
    use crate::sampler::batching::ROWS;
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
                if sampler.batching.kind() != ROWS {
                    continue;
                }
                let order = own.orders().epoch(epoch).unwrap();
                for row in 0..sampler.orders().len() {
                    let served = expected.iter().any(|batch| batch.contains(&row));
                    assert_eq!(order.position(row).is_some(), served, "{row} in {expected:?}");
                    assert!(order.position(row).is_none_or(|position| order.row(position) == Some(row)));
                }
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
    fn a_resumed_epoch_is_served_by_workers_from_where_it_goes_on_and_no_other_epoch_is() {
        let orders: Arc<dyn Order> = Arc::new(Global::new(100, 3).unwrap());
        let resumed = |cut: Cut| {
            let mut sampler = cut.sampler(&orders, Shard::new(1, 3).unwrap());
            sampler.resume(&sampler.state_after(5, 2).unwrap()).unwrap();
            sampler
        };
        let sampler = resumed(4.into());
        check(&sampler, 2, &[5]);
        let worker = sampler.worker(0, 2).unwrap();
        assert_eq!(worker.plan(6).unwrap_err().kind(), ErrorKind::InvalidArgument);
        // What has no order of its own goes on with all of the epochs that follow.
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
