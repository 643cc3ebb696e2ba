//! Which positions of an epoch's order a rank has at which step.

use std::sync::Arc;

use super::batch::BatchPlan;
use super::packs::PacksDeal;
use super::shard::{OwnPositions, Rest, SampleCounts, Shard, Tail};
use crate::recent::Recent;
use crate::{Cost, EpochOrder, Pack, Packed, PackedEpoch};
use rowdex_base::error::{Error, Result};
use rowdex_base::once::Once;

/// The kind of plan of packs, which states name.
pub(super) const PACKS: &str = "packs";
/// That of packs which are one row each, in buckets of like lengths.
pub(super) const BUCKETS: &str = "buckets";

/// How many deals of an epoch are kept: of its rests, for the ranks of a machine.
const DEALS: usize = 32;

/// What a rank, or a worker of it, has left of one epoch. Steps and samples are counted from the first that is left.
/// With `N` for [`steps`](Self::steps):
///
/// - All ranks have the same `N`.
/// - The samples of a rank are those of its steps, one step after the other. Their positions rise within a step, and no
///   two shards have the same one.
/// - The first `t` steps of all ranks together have just the positions from the `start` of the rest up to `start +
///   served(t)`. So where they begin and end is all that a state needs to say; and with that end as the `start`, and
///   the same `began`, the steps from `t` on are what they were.
/// - A later start leaves no more steps.
#[derive(Debug)]
pub(super) struct Deal {
    of_rank: RankDeal,
    /// Which step of the rank is the first one.
    first: u64,
    /// From each step to the next: 1, or the number of workers.
    stride: u64,
    steps: u64,
    /// Positions between the start that was asked for and that of the rank.
    skipped: u64,
    /// How many samples there are up to the end of each step, where steps differ: listed when it is first asked for,
    /// with 8 bytes a step.
    ends: Once<Vec<u64>>,
}

/// What a rank has left of one epoch.
#[derive(Debug, Clone)]
pub(super) enum RankDeal {
    Rows(RowsDeal),
    Packs(Arc<PacksDeal>),
}

impl RankDeal {
    fn steps(&self) -> u64 {
        match self {
            Self::Rows(rows) => rows.steps(),
            Self::Packs(packs) => packs.steps(),
        }
    }

    fn batch(&self, step: u64) -> Result<OwnPositions> {
        match self {
            Self::Rows(rows) => Ok(rows.batch(step)),
            Self::Packs(packs) => packs.batch(step),
        }
    }

    fn served(&self, steps: u64) -> Result<u64> {
        match self {
            Self::Rows(rows) => Ok(rows.served(steps)),
            Self::Packs(packs) => packs.served(steps),
        }
    }
}

impl Deal {
    /// All of a rank.
    pub(super) fn of(of_rank: RankDeal) -> Self {
        let steps = of_rank.steps();
        Self { of_rank, first: 0, stride: 1, steps, skipped: 0, ends: Once::new() }
    }

    /// Every `workers`-th step from a step on, as far as they have rows.
    pub(super) fn of_worker(&self, first: u64, workers: u64, skipped: u64) -> Result<Self> {
        let mut with_rows = self.steps;
        while with_rows > 0 && self.batch(with_rows - 1)?.samples == 0 {
            with_rows -= 1;
        }
        Ok(Self {
            of_rank: self.of_rank.clone(),
            first: self.first + first * self.stride,
            stride: self.stride * workers,
            steps: with_rows.saturating_sub(first).div_ceil(workers),
            skipped: self.skipped + skipped,
            ends: Once::new(),
        })
    }

    /// Steps, equal on all ranks.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// How many positions the first `steps` of the steps left serve on all ranks together, pads included.
    ///
    /// # Errors
    ///
    /// Those of reading what the epoch was planned by; those of all methods that can fail.
    pub(super) fn served(&self, steps: u64) -> Result<u64> {
        let done = match steps.checked_sub(1) {
            None => 0,
            Some(last) if steps < self.steps => self.first + last * self.stride + 1,
            Some(_) => self.of_rank.steps(),
        };
        Ok(self.of_rank.served(done)? + self.skipped)
    }

    /// The samples at a step that is left.
    pub(super) fn batch(&self, step: u64) -> Result<OwnPositions> {
        self.of_rank.batch(self.first + step * self.stride)
    }

    /// Samples at all steps.
    pub(super) fn samples(&self) -> u64 {
        self.before(self.steps)
    }

    /// The samples before a step.
    pub(super) fn before(&self, step: u64) -> u64 {
        let Some(last) = step.checked_sub(1) else { return 0 };
        match &self.of_rank {
            // All steps but the last one are full.
            RankDeal::Rows(rows) => last * rows.batch_size + rows.batch(self.first + last * self.stride).samples,
            RankDeal::Packs(_) => self.ends().get(last as usize).copied().unwrap_or(0),
        }
    }

    /// The step that has a sample.
    pub(super) fn step_of(&self, sample: u64) -> u64 {
        match &self.of_rank {
            RankDeal::Rows(rows) => sample / rows.batch_size,
            RankDeal::Packs(_) => self.ends().partition_point(|end| *end <= sample) as u64,
        }
    }

    /// As far as steps can be read: whoever serves the others is told why not.
    fn ends(&self) -> &[u64] {
        self.ends.get_or_init(|| {
            let samples = (0..self.steps).map_while(|step| Some(self.batch(step).ok()?.samples));
            let sums = samples.scan(0, |sum, samples| {
                *sum += samples;
                Some(*sum)
            });
            sums.collect()
        })
    }

    /// The sample at a position, if it is one of these.
    pub(super) fn sample_at(&self, position: u64) -> Option<u64> {
        let (step, within) = match &self.of_rank {
            RankDeal::Rows(rows) => rows.place_of(position)?,
            RankDeal::Packs(packs) => packs.place_of(position)?,
        };
        let past = step.checked_sub(self.first).filter(|past| past.is_multiple_of(self.stride))?;
        let sample = self.before(past / self.stride) + within;
        Some(sample).filter(|sample| *sample < self.samples())
    }

    /// Writes rows, pieces and pads of the batch of a step, whose place and number of rows are set, where they are not
    /// just the rows that the order has at its positions. Returns whether it did.
    pub(super) fn fill(&self, step: u64, batch: &mut BatchPlan) -> Result<bool> {
        let RankDeal::Packs(packs) = &self.of_rank else { return Ok(false) };
        packs.fill(self.first + step * self.stride, batch)?;
        Ok(true)
    }

    /// The packs of the epoch, if there are some.
    pub(super) fn packed(&self) -> Option<&Arc<PackedEpoch>> {
        match &self.of_rank {
            RankDeal::Rows(_) => None,
            RankDeal::Packs(packs) => Some(packs.epoch()),
        }
    }

    /// The order that positions are of, where it is not the epoch's own.
    pub(super) fn order(&self) -> Option<Arc<dyn EpochOrder>> {
        match &self.of_rank {
            RankDeal::Rows(_) => None,
            RankDeal::Packs(packs) => packs.order(),
        }
    }
}

/// Batches of as many rows on every rank: its samples, which are every `S`-th position where there are `S` shards, cut
/// every `batch_size`.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowsDeal {
    batch_size: u64,
    rest: Rest,
    share: SampleCounts,
}

impl RowsDeal {
    pub(super) fn new(batch_size: u64, rest: Rest) -> Result<Self> {
        let share = rest.shard.share(rest.len.saturating_sub(rest.start))?;
        Ok(Self { batch_size, rest, share })
    }

    fn steps(&self) -> u64 {
        match self.rest.drop_last_batch {
            true => self.share.fewest / self.batch_size,
            false => self.share.most.div_ceil(self.batch_size),
        }
    }

    fn served(&self, steps: u64) -> u64 {
        let shards = u64::from(self.rest.shard.count());
        if !self.rest.drop_last_batch && steps >= self.steps() {
            let left = self.rest.len.saturating_sub(self.rest.start);
            return if self.share.most == self.share.fewest { self.share.most * shards } else { left };
        }
        // No overflow: another step follows, or no short one is served, so these positions exist.
        steps * self.batch_size * shards
    }

    fn batch(&self, step: u64) -> OwnPositions {
        let Rest { start, shard, drop_last_batch, .. } = self.rest;
        // No overflow: an earlier step of some rank has a full batch, so `sample` is at most the most samples of a
        // rank.
        let sample = step * self.batch_size;
        let all = if drop_last_batch { self.steps() * self.batch_size } else { self.share.own };
        let samples = all.saturating_sub(sample).min(self.batch_size);
        OwnPositions { first: start + shard.place(sample), stride: shard.count().into(), samples }
    }

    /// The step that has a position, and the number of its sample there.
    fn place_of(&self, position: u64) -> Option<(u64, u64)> {
        let Rest { start, shard, .. } = self.rest;
        let past = position.checked_sub(start.checked_add(shard.index().into())?)?;
        let shards = u64::from(shard.count());
        let sample = past / shards;
        past.is_multiple_of(shards).then_some((sample / self.batch_size, sample % self.batch_size))
    }
}

/// Packs of the epochs of `orders`, so many a rank and step. The packs of a step follow each other, those of rank 0
/// first.
#[derive(Debug)]
pub(super) struct PackBatching {
    pub(super) orders: Arc<Packed>,
    batch_size: u64,
    /// With a cost, the packs of each full step are dealt by it.
    pub(super) cost: Option<Cost>,
    recent: Recent<u64, Arc<Recent<Rest, Arc<Deal>>>>,
    /// Buckets for steps of so many rows: those of this world, and of one that began an epoch.
    cuts: Recent<u64, Arc<Packed>>,
}

impl PackBatching {
    /// Of so many packs each, of which there is one at least.
    pub(super) fn new(orders: Arc<Packed>, batch_size: u64, cost: Option<Cost>) -> Self {
        Self { orders, batch_size, cost, recent: Recent::default(), cuts: Recent::default() }
    }

    pub(super) fn kind(&self) -> &'static str {
        if self.orders.pack().is_of_rows() { BUCKETS } else { PACKS }
    }

    /// How many rows a step has on all ranks of this shard's world, where the order of an epoch depends on it.
    pub(super) fn step(&self, shard: Shard) -> Option<u64> {
        let step = self.batch_size.saturating_mul(shard.count().into());
        self.orders.pack().is_of_rows().then_some(step)
    }

    /// Refuses what cannot be, where that can be told without planning an epoch.
    pub(super) fn check(&self, shard: Shard) -> Result<()> {
        let Some(step) = self.step(shard) else { return Ok(()) };
        if shard.tail() == Tail::Even {
            let message = "buckets with the tail policy even: packs are opened for it, and these are one row each";
            return Err(Error::invalid(message).with_hint("use wrap, drop, uneven or error"));
        }
        if self.cost.is_some() {
            let message = "buckets that are assigned by their cost: the rows of a step have like lengths already";
            return Err(Error::invalid(message).with_hint("leave the cost out"));
        }
        if step > Pack::MAX_BLOCK {
            return Err(Error::invalid(format!("buckets of rows in steps of {step}"))
                .with_hint("use at most 1048576 rows for all ranks together"));
        }
        Ok(())
    }

    /// Deals what is left of an epoch.
    pub(super) fn deal(&self, rest: &Rest) -> Result<Arc<Deal>> {
        // Deals of other epochs would keep these.
        let of_epoch = self.recent.get(rest.epoch, || Ok::<_, Error>(Arc::new(Recent::new(DEALS))))?;
        of_epoch.get(*rest, || {
            let orders = match self.step(rest.shard) {
                None => Arc::clone(&self.orders),
                Some(own) => {
                    let step = if rest.step == 0 { own } else { rest.step };
                    self.cuts.get(step, || Ok::<_, Error>(Arc::new(self.orders.in_steps(step))))?
                }
            };
            let deal = PacksDeal::new(orders.packed(rest.epoch)?, self.batch_size, self.cost, *rest)?;
            Ok(Arc::new(Deal::of(RankDeal::Packs(Arc::new(deal)))))
        })
    }
}
