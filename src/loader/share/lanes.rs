//! The batches of several ranks as one walk, each from a place of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::loader::driver::{BatchRange, Each, Empty, Walk, filled};
use rowdex_base::error::Result;
use rowdex_order::sampler::{BatchPlan, DistributedSampler, EpochPlan};

/// What one rank serves, or several whose batches are the same.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    pub(super) sampler: DistributedSampler,
    pub(super) epoch: u64,
    /// The step to begin with, or the first that is left of the epoch.
    pub(super) next: u64,
    /// The epoch that it ends before.
    pub(super) end: Option<u64>,
}

impl Lane {
    /// The epoch that it is at, and the step of its rank there that comes next. Ranks are compared by these two: steps
    /// that are counted over epochs are no measure of packs, because epochs have different numbers of steps.
    pub(super) fn place(&self) -> (u64, u64) {
        let Self { sampler, epoch, next, .. } = self;
        let step = (*next).max(sampler.first_step(*epoch));
        let Some(part) = sampler.part_of() else { return (*epoch, step) };
        // A worker's steps are dealt from the first that was left of its rank's epoch.
        let first = if part.rank.epoch() == *epoch { part.rank.first_step(*epoch) } else { 0 };
        (*epoch, step.saturating_mul(part.workers).saturating_add(part.worker).saturating_add(first))
    }

    /// How many steps its rank has in the epoch that it began with.
    pub(super) fn steps(&self) -> u64 {
        self.sampler.part_of().map_or(&self.sampler, |part| &part.rank).steps()
    }
}

/// What whoever hands batches out knows of the walk, and tells it.
#[derive(Debug)]
pub(super) struct LaneMarks {
    next: Receiver<usize>,
    left: Arc<[AtomicBool]>,
}

impl LaneMarks {
    /// The lane of the batch that the engine hands out next, or of the error in its place.
    pub(super) fn pop(&self) -> Option<usize> {
        self.next.try_recv().ok()
    }

    /// Nobody wants the batches of this lane any more.
    pub(super) fn leave(&self, lane: usize) {
        if let Some(left) = self.left.get(lane) {
            left.store(true, Ordering::Relaxed);
        }
    }
}

#[derive(Debug)]
struct LaneProgress {
    lane: Lane,
    plan: Option<Arc<EpochPlan>>,
    empty: Empty,
    over: bool,
}

/// Walks over the batches of all lanes: always on with that which is farthest behind, a few steps at a time.
#[derive(Debug)]
pub(super) struct Lanes {
    lanes: Vec<LaneProgress>,
    marks: Sender<usize>,
    left: Arc<[AtomicBool]>,
    /// How many steps of a lane come together, so that they may lie together in memory.
    stretch: u64,
    current: usize,
    batch: BatchPlan,
}

impl Lanes {
    pub(super) fn new(lanes: Vec<Lane>, stretch: u64) -> (Self, LaneMarks) {
        let (marks, next) = channel();
        let left: Arc<[AtomicBool]> = lanes.iter().map(|_| AtomicBool::new(false)).collect();
        let lanes = lanes
            .into_iter()
            .map(|lane| LaneProgress { lane, plan: None, empty: Empty::default(), over: false })
            .collect();
        let seen = LaneMarks { next, left: Arc::clone(&left) };
        (Self { lanes, marks, left, stretch: stretch.max(1), current: 0, batch: BatchPlan::default() }, seen)
    }

    fn note(&self, lane: usize) {
        // Nobody hears of it once the reader has ended.
        let _ = self.marks.send(lane);
    }

    /// The lane whose turn it is, at a step that it has.
    fn due(&mut self) -> Result<Option<(usize, Arc<EpochPlan>)>> {
        loop {
            for (progress, left) in self.lanes.iter_mut().zip(&*self.left) {
                progress.over |= left.load(Ordering::Relaxed);
            }
            let goes_on = self.lanes.get(self.current).is_some_and(|progress| {
                !progress.over && progress.plan.is_some() && !progress.lane.next.is_multiple_of(self.stretch)
            });
            if !goes_on {
                let open = self.lanes.iter().enumerate().filter(|(_, progress)| !progress.over);
                let behind = open.min_by_key(|(number, progress)| (progress.lane.epoch, progress.lane.next, *number));
                let Some((number, _)) = behind else { return Ok(None) };
                self.current = number;
            }
            let number = self.current;
            let Some(progress) = self.lanes.get_mut(number) else { return Ok(None) };
            let LaneProgress { lane, plan, empty, over } = progress;
            if lane.end.is_none_or(|end| lane.epoch < end) {
                let plan = match plan {
                    Some(plan) => plan,
                    None => {
                        let made = plan.insert(Arc::new(lane.sampler.plan(lane.epoch)?));
                        if lane.next < made.first_step() {
                            // Another lane may be farther behind.
                            lane.next = made.first_step();
                            continue;
                        }
                        made
                    }
                };
                if lane.next < plan.steps() {
                    return Ok(Some((number, Arc::clone(plan))));
                }
                let is_last = empty.is_last(plan.steps(), &lane.sampler);
                if let Some(epoch) = lane.epoch.checked_add(1).filter(|_| !is_last) {
                    (lane.epoch, lane.next, progress.plan) = (epoch, 0, None);
                    continue;
                }
            }
            *over = true;
        }
    }
}

impl Walk for Lanes {
    fn next_range(&mut self, target: u64, each: &mut Each<'_>) -> Result<Option<BatchRange>> {
        let mut batches = Vec::new();
        let mut rows = 0;
        let mut of = None;
        let mut goes_on = true;
        while goes_on && (batches.is_empty() || rows < target) {
            let (lane, plan) = match self.due() {
                Ok(Some(due)) => due,
                Err(error) if batches.is_empty() => {
                    self.note(self.current);
                    return Err(error);
                }
                // It comes again with the next call.
                Ok(None) | Err(_) => break,
            };
            let Some(progress) = self.lanes.get_mut(lane) else { break };
            let Lane { epoch, next: step, .. } = progress.lane;
            // A range is of one epoch.
            if *of.get_or_insert(epoch) != epoch {
                break;
            }
            let filled = filled(|| plan.fill(step, &mut self.batch));
            goes_on = match filled.and_then(|()| each(&self.batch)) {
                Ok(goes_on) => goes_on,
                Err(error) if batches.is_empty() => {
                    self.note(lane);
                    return Err(error);
                }
                Err(_) => break,
            };
            rows += self.batch.rows.len() as u64;
            progress.lane.next += 1;
            batches.push((plan, step));
            self.note(lane);
        }
        let Some(epoch) = of.filter(|_| !batches.is_empty()) else { return Ok(None) };
        let count = batches.len() as u64;
        Ok(Some(BatchRange { epoch, plans: batches.into(), batches: 0..count, replaced: Vec::new() }))
    }

    fn epoch(&self) -> u64 {
        let next = |progress: &LaneProgress| {
            let done = progress.plan.as_ref().is_some_and(|plan| progress.lane.next >= plan.steps());
            progress.lane.epoch.saturating_add(done.into())
        };
        let open = self.lanes.iter().filter(|progress| !progress.over).map(next).min();
        open.or_else(|| self.lanes.iter().map(next).max()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowdex_base::error::{Error, ErrorKind};
    use rowdex_order::Global;
    use rowdex_order::sampler::Shard;

    fn lane(rank: u32, epoch: u64, next: u64) -> Lane {
        let sampler =
            DistributedSampler::new(Arc::new(Global::new(100, 1).unwrap()), Shard::new(rank, 4).unwrap(), 5).unwrap();
        Lane { sampler, epoch, next, end: Some(2) }
    }

    /// For each batch its lane, epoch and step, in the order of the walk.
    fn walk(lanes: &mut Lanes, marks: &LaneMarks) -> Vec<(usize, u64, u64)> {
        let mut found = Vec::new();
        while let Some(range) = lanes.next_range(30, &mut |_| Ok(true)).unwrap() {
            for b in range.batches.clone() {
                let mut batch = BatchPlan::default();
                range.fill(b, &mut batch).unwrap();
                let lane = marks.pop().unwrap();
                assert_eq!(batch.epoch, range.epoch);
                found.push((lane, batch.epoch, batch.step));
            }
        }
        found
    }

    #[test]
    fn lanes_go_side_by_side_a_few_steps_at_a_time() {
        let (mut lanes, marks) = Lanes::new(vec![lane(0, 1, 0), lane(2, 1, 0)], 2);
        let found = walk(&mut lanes, &marks);
        let expected = [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3), (1, 2), (1, 3), (0, 4), (1, 4)];
        assert_eq!(found, expected.map(|(lane, step)| (lane, 1, step)));
    }

    #[test]
    fn a_lane_that_is_behind_catches_up_first() {
        let (mut lanes, marks) = Lanes::new(vec![lane(0, 1, 2), lane(1, 0, 3), lane(3, 1, 0)], 1);
        let found = walk(&mut lanes, &marks);
        let expected = [
            (1, 0, 3),
            (1, 0, 4),
            (1, 1, 0),
            (2, 1, 0),
            (1, 1, 1),
            (2, 1, 1),
            (0, 1, 2),
            (1, 1, 2),
            (2, 1, 2),
            (0, 1, 3),
        ];
        assert_eq!(found[..10], expected);
        assert_eq!(found.len(), 3 + 7 + 5);
    }

    #[test]
    fn a_lane_that_was_left_is_walked_no_more() {
        let (mut lanes, marks) = Lanes::new(vec![lane(0, 0, 0), lane(1, 0, 0)], 1);
        lanes.next_range(20, &mut |_| Ok(true)).unwrap();
        let seen = || std::iter::from_fn(|| marks.pop());
        assert!(seen().eq([0, 1, 0, 1]));
        marks.leave(0);
        assert!(walk(&mut lanes, &marks).iter().all(|(lane, ..)| *lane == 1));
    }

    #[test]
    fn a_batch_that_cannot_be_planned_is_of_a_lane() {
        let (mut lanes, marks) = Lanes::new(vec![lane(0, 0, 0), lane(1, 0, 0)], 1);
        let mut calls = 0;
        let mut refuse = |_: &BatchPlan| {
            calls += 1;
            if calls == 4 { Err(Error::new(ErrorKind::OutOfRange, "no such row")) } else { Ok(true) }
        };
        assert_eq!(lanes.next_range(1000, &mut refuse).unwrap().unwrap().batches, 0..3);
        let error = lanes.next_range(1000, &mut |_| Err(Error::new(ErrorKind::OutOfRange, "no such row"))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfRange);
        let seen = std::iter::from_fn(|| marks.pop());
        assert!(seen.eq([0, 1, 0, 1]), "the last of them is the error");
    }
}
