//! One epoch of one rank: its samples and batches.

use std::ops::Range;
use std::sync::Arc;

use super::batch::BatchPlan;
use super::deal::Deal;
use super::shard::{OwnPositions, Rest, Shard};
use crate::{EpochOrder, PackedEpoch, Uses};
use rowdex_base::error::{Error, ErrorKind, Result};

/// One row that a rank serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sample {
    /// The place in the epoch's order, counted over all ranks.
    pub position: u64,
    /// The row id to serve.
    pub row: u64,
    /// Whether the row is served only to give every rank the same number of samples: `position` is past the order's end
    /// and `row` is the one at `position` modulo its length.
    pub pad: bool,
}

/// One epoch of one rank: a pure function from sample number, or step, to rows.
///
/// It is cheap to clone, never changes, and every method but the iterators' is O(1) per row; where steps have different
/// numbers of rows, the first question that counts samples costs O(1) per step.
#[derive(Debug, Clone)]
pub struct EpochPlan {
    pub(super) order: Arc<dyn EpochOrder>,
    /// The epoch's own order, which pads repeat.
    pub(super) pads: Arc<dyn EpochOrder>,
    pub(super) rest: Rest,
    pub(super) batch_size: u64,
    /// All of the epoch.
    pub(super) whole: Arc<Deal>,
    /// What is left of it.
    pub(super) left: Arc<Deal>,
    /// Positions from `start` on that all ranks together serve.
    pub(super) served: u64,
}

/// How many steps of those that are left come before `step`, which is counted from the beginning of the epoch.
pub(super) fn steps_done(whole: &Deal, left: &Deal, step: u64) -> Result<u64> {
    let steps = whole.steps();
    let first = steps - left.steps();
    if step >= steps {
        let error = Error::new(ErrorKind::OutOfRange, format!("step {step} of an epoch of {steps} steps"));
        return Err(match steps.checked_sub(1) {
            Some(last) => error.with_hint(format!("steps are {first} to {last}")),
            None => error,
        });
    }
    step.checked_sub(first).ok_or_else(|| {
        let message = format!("step {step} of an epoch that was resumed at step {first}");
        Error::new(ErrorKind::OutOfRange, message).with_hint("set the epoch again to serve all of it")
    })
}

impl EpochPlan {
    /// Which epoch this is.
    pub fn epoch(&self) -> u64 {
        self.rest.epoch
    }

    /// The order it follows.
    pub fn order(&self) -> &Arc<dyn EpochOrder> {
        &self.order
    }

    /// The packs of the epoch, before any is opened, if it has some.
    #[doc(hidden)]
    pub fn packed(&self) -> Option<Arc<PackedEpoch>> {
        self.left.packed().cloned()
    }

    /// The shard it serves.
    pub fn shard(&self) -> Shard {
        self.rest.shard
    }

    /// The position that the epoch begins at: 0 unless it was resumed.
    pub fn start(&self) -> u64 {
        self.rest.start
    }

    /// Rows, or packs, per batch on this rank: the most that one has.
    pub fn batch_size(&self) -> u64 {
        self.batch_size
    }

    /// How many samples this rank has in the epoch, repeated ones included, those before [`start`](Self::start) counted
    /// too.
    pub fn len(&self) -> u64 {
        self.whole.samples().max(self.left.samples())
    }

    /// How many of them are left, from [`start`](Self::start) on.
    pub fn samples_left(&self) -> u64 {
        self.left.samples()
    }

    /// The number of the first sample that is left: 0 unless the epoch was resumed.
    pub fn first_sample(&self) -> u64 {
        self.len() - self.left.samples()
    }

    /// Whether this rank has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many batches this rank has in the epoch, those before [`start`](Self::start) counted too: the same number on
    /// every rank.
    pub fn steps(&self) -> u64 {
        self.whole.steps()
    }

    /// How many of them are left, from [`start`](Self::start) on.
    pub fn steps_left(&self) -> u64 {
        self.left.steps()
    }

    /// The first step that is left: 0 unless the epoch was resumed.
    ///
    /// Steps are counted back from the end of the epoch: its last step has the same number wherever it was resumed.
    /// With the shard count and batch size of the interrupted run that is the step after the last one that was served.
    pub fn first_step(&self) -> u64 {
        self.whole.steps() - self.left.steps()
    }

    /// This rank's `p`-th sample; `None` before [`first_sample`](Self::first_sample) and from [`len`](Self::len) on.
    ///
    /// # Errors
    ///
    /// `Internal` if the order breaks its contract.
    pub fn at(&self, p: u64) -> Result<Option<Sample>> {
        let Some((step, within)) = self.step_of(p) else { return Ok(None) };
        let OwnPositions { first, stride, .. } = self.left.batch(step - self.first_step())?;
        let position = first + within * stride;
        Ok(Some(Sample { position, row: self.row(position)?, pad: position >= self.order.len() }))
    }

    /// The step that has this rank's `p`-th sample, and the number of the sample in its batch; `None` where
    /// [`at`](Self::at) has none.
    #[doc(hidden)]
    pub fn step_of(&self, p: u64) -> Option<(u64, u64)> {
        let left = p.checked_sub(self.first_sample()).filter(|left| *left < self.left.samples())?;
        let step = self.left.step_of(left);
        Some((self.first_step() + step, left - self.left.before(step)))
    }

    /// The number of this rank's sample at a position, which is a pad from the order's length on; `None` if it has
    /// none there.
    #[doc(hidden)]
    pub fn sample_at(&self, position: u64) -> Option<u64> {
        Some(self.first_sample() + self.left.sample_at(position)?)
    }

    /// The batch of a step.
    ///
    /// # Errors
    ///
    /// Those of [`fill`](Self::fill).
    pub fn batch(&self, step: u64) -> Result<BatchPlan> {
        let mut batch = BatchPlan::default();
        self.fill(step, &mut batch)?;
        Ok(batch)
    }

    /// Writes the batch of a step over `batch`, whose memory is used again.
    ///
    /// # Errors
    ///
    /// `OutOfRange` before [`first_step`](Self::first_step) and from [`steps`](Self::steps) on, `TooLarge` if there is
    /// no memory for the row ids, and `Internal` if the order breaks its contract. `batch` is then empty.
    pub fn fill(&self, step: u64, batch: &mut BatchPlan) -> Result<()> {
        batch.clear();
        let done = steps_done(&self.whole, &self.left, step)?;
        let OwnPositions { first, stride, samples } = self.left.batch(done)?;
        (batch.epoch, batch.step) = (self.rest.epoch, step);
        (batch.first, batch.stride) = (first, stride);

        let too_large = || Error::new(ErrorKind::TooLarge, format!("no memory for a batch of {samples} row ids"));
        let count = usize::try_from(samples).map_err(|_| too_large())?;
        batch.rows.try_reserve(count).map_err(|_| too_large())?;
        batch.rows.resize(count, 0);
        let filled = match self.left.fill(done, batch) {
            Ok(false) => self.fill_rows(batch),
            Ok(true) => Ok(()),
            Err(error) => Err(error),
        };
        filled.inspect_err(|_| batch.clear())
    }

    fn fill_rows(&self, batch: &mut BatchPlan) -> Result<()> {
        let filled = self.order.fill_strided(batch.first, batch.stride, &mut batch.rows);
        batch.pads = 0;
        for i in filled..batch.rows.len() {
            let position = batch.first + i as u64 * batch.stride;
            if position < self.order.len() {
                return Err(self.broken(position));
            }
            batch.rows[i] = self.row(position)?;
            batch.pads += 1;
        }
        Ok(())
    }

    /// The row at a position, wrapped around if it is past the end: of samples that exist, and of positions that are
    /// [dropped](Self::dropped) or [repeated](Self::repeated).
    ///
    /// # Errors
    ///
    /// `Internal` if the order breaks its contract.
    pub fn row(&self, position: u64) -> Result<u64> {
        let len = self.order.len().max(1);
        let wrapped = position % len;
        let order = if position < len { &self.order } else { &self.pads };
        order.row(wrapped).ok_or_else(|| self.broken(wrapped))
    }

    /// For each row of a [batch](Self::batch) its [`EpochOrder::occurrence`]; none where no row comes twice, and of
    /// packs.
    pub fn occurrences(&self, batch: &BatchPlan) -> Vec<u64> {
        if self.order.uses() != Uses::Any || !batch.packs.is_empty() {
            return Vec::new();
        }
        let len = self.order.len().max(1);
        let positions = (0..batch.rows.len() as u64).map(|row| batch.first + row * batch.stride);
        let occurrence = |position| match position < len {
            true => self.order.occurrence(position),
            false => self.pads.occurrence(position % len),
        };
        positions.map(occurrence).collect()
    }

    fn broken(&self, position: u64) -> Error {
        let message = format!("an order of {} positions has no row at position {position}", self.order.len());
        Error::new(ErrorKind::Internal, message).with_hint("the implementation of this EpochOrder is at fault")
    }

    /// The positions from [`start`](Self::start) on that no rank serves in this epoch: what the tail policy, or leaving
    /// out a short last batch, drops. The same on every rank.
    pub fn dropped(&self) -> Range<u64> {
        let end = self.order.len();
        end.min(self.rest.start.saturating_add(self.served))..end
    }

    /// The positions that ranks serve again in this epoch: more than once through in a world larger than the order. The
    /// same on every rank.
    pub fn repeated(&self) -> Range<u64> {
        let len = self.order.len();
        len..len.max(self.rest.start.saturating_add(self.served))
    }

    /// All samples of this rank that are left, one by one. An item is an `Err` only if the order breaks its contract.
    pub fn samples(&self) -> impl Iterator<Item = Result<Sample>> + '_ {
        (self.first_sample()..self.len()).filter_map(|p| self.at(p).transpose())
    }

    /// All batches of this rank that are left. An item is an `Err` only if the order breaks its contract or there is no
    /// memory for the row ids.
    pub fn batches(&self) -> impl Iterator<Item = Result<BatchPlan>> + '_ {
        (self.first_step()..self.steps()).map(|step| self.batch(step))
    }
}
