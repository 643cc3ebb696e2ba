//! The plan and the order together: what to do next in a run, and its batches, one after another over ranks, steps and
//! epochs.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::plan::{Neighbours, Plan, PlanAnswer};
use super::recovery::{Faults, panicked};
use super::units::{RowFinder, Units};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::sampler::{BatchPlan, DistributedSampler, EpochPlan};

/// When all row groups stay decoded, looking ahead saves no decode; it only makes extractions longer. Preparing an
/// epoch may take time and memory in proportion to the rows, so then no more than this many are looked at, from the one
/// on that is due.
const EPOCHS_LOOKED_AT: u64 = 2;

/// The plan and the order that it follows.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) plan: Plan,
    walk: Box<dyn Walk>,
    /// The batches of the segments that the plan knows.
    pub(crate) ranges: VecDeque<BatchRange>,
    /// Those of a batch, which allocate nothing from one to the next.
    pieces: Vec<Neighbours>,
    near: RowFinder,
    units: Arc<Units>,
    faults: Arc<Faults>,
    /// Why the order ends, if it has to.
    pub(crate) error: Option<Error>,
}

impl Driver {
    /// A driver of rows that `near` finds in these units, or of others where they are lost.
    pub(crate) fn new(
        plan: Plan,
        walk: Box<dyn Walk>,
        near: RowFinder,
        units: Arc<Units>,
        faults: Arc<Faults>,
    ) -> Self {
        Self { plan, walk, ranges: VecDeque::new(), pieces: Vec::new(), near, units, faults, error: None }
    }

    /// Asks the plan, and walks on by at most one segment if it says so.
    pub(crate) fn advance(&mut self) -> PlanAnswer {
        if self.has_more() {
            self.plan.ended = false;
        }
        let answer = self.plan.next(self.may_look());
        if matches!(answer, PlanAnswer::Look) {
            self.look();
        }
        answer
    }

    fn may_look(&self) -> bool {
        let due = self.ranges.front().filter(|_| self.plan.keeps_all());
        due.is_none_or(|due| self.walk.epoch() - due.epoch < EPOCHS_LOOKED_AT)
    }

    /// Whether it has come to the end of what there was, and there is more since.
    pub(crate) fn has_more(&mut self) -> bool {
        self.plan.ended && self.error.is_none() && self.walk.has_more()
    }

    fn look(&mut self) {
        let Self { plan, walk, pieces, near, units, faults, .. } = self;
        let packing = units.packing.as_deref();
        let mut replaced = Vec::new();
        let mut walked = 0;
        // Where rows differ between units, those of a segment may be much larger than others are.
        let mut bytes = 0_u64;
        let most = plan.segment_bytes().saturating_mul(2);
        let mut begins = true;
        let range = walk.next_range(plan.segment_rows(), &mut |batch| {
            let rows = &batch.rows;
            let tokens_of = |place| packing?.tokens_of(batch, place);
            pieces.clear();
            let mut at = 0;
            while let Some(&row) = rows.get(at) {
                let (served, (unit, slot)) = faults.resolve(row, near, units)?;
                let tokens = tokens_of(at);
                let mut count = 1;
                if served != row {
                    replaced.push((walked + at, served));
                } else if tokens.is_none() {
                    // What was not lost of a unit is followed by more that is not.
                    let most = near.following(row).min((rows.len() - at) as u64);
                    let follows =
                        |count: usize| rows[at + count] == row + count as u64 && tokens_of(at + count).is_none();
                    while (count as u64) < most && follows(count) {
                        count += 1;
                    }
                }
                pieces.push(Neighbours { unit, slot, rows: count as u32, tokens });
                bytes = bytes.saturating_add(plan.bytes_of(unit, count as u64));
                at += count;
            }
            plan.push(pieces, std::mem::take(&mut begins));
            walked += rows.len();
            Ok(bytes < most)
        });
        // Those of a batch that was refused are not in the range.
        replaced.retain(|(place, _)| *place < walked);
        match range {
            Ok(Some(range)) => self.ranges.push_back(BatchRange { replaced, ..range }),
            Ok(None) => self.plan.ended = true,
            Err(error) => {
                self.error = Some(error);
                self.plan.ended = true;
            }
        }
    }
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
    /// range: the range ends before, and the next call returns the error. What it takes is in the range.
    fn next_range(&mut self, target: u64, each: &mut Each<'_>) -> Result<Option<BatchRange>>;

    /// The number of the epoch that the next range is of, as far as is known without preparing it.
    fn epoch(&self) -> u64;

    /// Whether there is something to walk over after the end was reached, because it has come since.
    fn has_more(&mut self) -> bool {
        false
    }
}

/// Plans whose batches take turns, each with the step that it begins with.
type PlansInTurn = Arc<[(Arc<EpochPlan>, u64)]>;

/// Batches that follow each other.
#[derive(Debug, Clone)]
pub(crate) struct BatchRange {
    /// The number of the epoch that they are from.
    pub(crate) epoch: u64,
    /// Batch `b` is that of plan `b mod plans`, `b / plans` steps after its first.
    pub(crate) plans: PlansInTurn,
    pub(crate) batches: Range<u64>,
    /// Rows served instead of those that the order has, by their place among the rows of the range.
    pub(crate) replaced: Vec<(usize, u64)>,
}

impl BatchRange {
    /// Writes batch `b` over `batch`, and returns the plan that it is of.
    pub(crate) fn fill(&self, b: u64, batch: &mut BatchPlan) -> Result<&EpochPlan> {
        let count = self.plans.len().max(1) as u64;
        let plan = self.plans.get((b % count) as usize);
        let (plan, first) = plan.ok_or_else(|| Error::new(ErrorKind::Internal, "batches without a plan"))?;
        plan.fill(first + b / count, batch)?;
        Ok(plan)
    }
}

/// The batches that are left of an epoch of these ranks, and those behind it.
pub(crate) fn left_of(plans: &[(Arc<EpochPlan>, u64)]) -> Range<u64> {
    let ranks = plans.len() as u64;
    let all = |steps: u64| steps.saturating_mul(ranks);
    plans.first().map_or(0..0, |(plan, _)| all(plan.first_step())..all(plan.steps()))
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
    plans: Option<PlansInTurn>,
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
    fn plans(&mut self) -> Result<Option<PlansInTurn>> {
        loop {
            if self.left == Some(0) {
                return Ok(None);
            }
            let plans = match &self.plans {
                Some(plans) => Arc::clone(plans),
                None => {
                    let plan =
                        |sampler: &DistributedSampler| -> Result<_> { Ok((Arc::new(sampler.plan(self.epoch)?), 0)) };
                    Arc::clone(self.plans.insert(self.samplers.iter().map(plan).collect::<Result<_>>()?))
                }
            };
            let Range { start, end } = left_of(&plans);
            self.next = self.next.max(start);
            if self.next < end {
                return Ok(Some(plans));
            }
            let is_last = self.samplers.first().is_none_or(|sampler| self.empty.is_last(end, sampler));
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
        let end = left_of(&plans).end;
        let mut range = BatchRange { epoch: self.epoch, plans, batches: self.next..self.next, replaced: Vec::new() };
        let mut rows = 0;
        let mut goes_on = true;
        while goes_on && self.next < end && (range.batches.is_empty() || rows < target) {
            let filled = filled(|| range.fill(self.next, &mut self.batch).map(drop));
            goes_on = match filled.and_then(|()| each(&self.batch)) {
                Ok(goes_on) => goes_on,
                Err(error) if range.batches.is_empty() => return Err(error),
                Err(_) => break,
            };
            rows += self.batch.rows.len() as u64;
            self.next += 1;
            range.batches.end = self.next;
        }
        Ok(Some(range))
    }

    fn epoch(&self) -> u64 {
        let over = self.plans.as_ref().is_some_and(|plans| self.next >= left_of(plans).end);
        self.epoch.saturating_add(over.into())
    }
}
