//! What decides the batches of an epoch.

use std::fmt::Debug;
use std::sync::Arc;

use super::batch::BatchPlan;
use super::shard::{SampleCounts, Shard};
use crate::{Cost, EpochOrder, Packed, PackedEpoch};
use rowdex_base::error::Result;
use rowdex_base::once::Once;

/// The kind of plan of [`EqualRows`], which states name.
pub(super) const ROWS: &str = "rows";

/// What is left of an epoch, and whose share of it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rest {
    /// Which epoch it is of.
    pub epoch: u64,
    /// Positions of the whole epoch's order.
    pub len: u64,
    /// The first position that is left.
    pub start: u64,
    /// The position at which this world took the epoch over: 0 if it began it, and `start` if it goes on where another
    /// world stopped. At a position in between it stopped itself, after a step.
    pub began: u64,
    /// How many rows a step of all ranks had of the world that began the epoch, for which buckets of rows are cut; 0
    /// for as many as this world's.
    pub step: u64,
    /// The rank's shard.
    pub shard: Shard,
    /// Whether a short last batch is left out.
    pub drop_last_batch: bool,
}

impl Rest {
    /// How many positions are left.
    pub fn left(&self) -> u64 {
        self.len.saturating_sub(self.start)
    }
}

/// Samples of a rank that follow each other, at positions with equal distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// The position of the first one, counted from the beginning of the epoch; from the order's length on it is a pad.
    pub first: u64,
    /// From each position to the next.
    pub stride: u64,
    /// How many there are.
    pub samples: u64,
}

/// What decides the batches: which positions of an epoch's order each rank has at each step.
///
/// It is a pure function, so ranks never talk about it. Two plans whose [`Run`](super::Run)s say the same and whose
/// orders have the same fingerprint are the same. Only this package and tests make plans so far, so it may change in
/// any release.
pub trait Batching: Debug + Send + Sync {
    /// What a [`State`](super::State) calls such plans. It can be resumed by plans of this kind alone.
    fn kind(&self) -> &'static str;

    /// How many rows, or packs, a rank has at a step: the most.
    fn batch_size(&self) -> u64;

    /// The packs that batches are made of, if they are.
    fn packed(&self) -> Option<&Arc<Packed>> {
        None
    }

    /// How many rows a step has on all ranks of this shard's world, where the order of an epoch depends on it.
    fn step(&self, shard: Shard) -> Option<u64> {
        let _ = shard;
        None
    }

    /// By which cost packs are dealt, if they are.
    fn cost(&self) -> Option<Cost> {
        None
    }

    /// Refuses so many positions for this shard, where that can be told without planning an epoch.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if they do not divide as the tail policy demands.
    fn check(&self, shard: Shard, positions: u64) -> Result<()>;

    /// Deals what is left of an epoch.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if it can not be dealt as the tail policy demands, and those of planning the epoch.
    fn deal(&self, rest: &Rest) -> Result<Arc<dyn Deal>>;

    /// Whether every epoch has as many steps as any other.
    fn has_equal_epochs(&self) -> bool {
        false
    }
}

/// What a rank has left of one epoch. Steps and samples are counted from the first that is left. What it must keep to,
/// with `N` for [`steps`](Self::steps):
///
/// - All ranks have the same `N`.
/// - The samples of a rank are those of its steps, one step after the other. Their positions rise within a step, and no
///   two shards have the same one.
/// - The first `t` steps of all ranks together have just the positions from the `start` of the rest up to `start +
///   served(t)`. So where they begin and end is all that a state needs to say; and with that end as the `start`, and
///   the same `began`, the steps from `t` on are what they were.
/// - A later start leaves no more steps.
///
/// While rows are served, it is asked once a step, or once for all samples that follow each other, and never once a
/// row.
pub trait Deal: Debug + Send + Sync {
    /// Steps, equal on all ranks.
    fn steps(&self) -> u64;

    /// Samples that this rank serves. May cost time in proportion to the steps when it is asked for the first time, as
    /// may whatever counts samples.
    fn samples(&self) -> u64;

    /// How many positions the first `steps` of the steps left serve on all ranks together, pads included.
    ///
    /// # Errors
    ///
    /// Those of reading what the epoch was planned by; those of all methods that can fail.
    fn served(&self, steps: u64) -> Result<u64>;

    /// The rank's samples at a step that is left.
    ///
    /// # Errors
    ///
    /// Those of [`served`](Self::served).
    fn batch(&self, step: u64) -> Result<Stretch>;

    /// The rank's samples before a step.
    fn before(&self, step: u64) -> u64;

    /// The step that has a sample.
    fn step_of(&self, sample: u64) -> u64;

    /// A stretch that has this sample, as long as may be, and the number of its first one.
    ///
    /// # Errors
    ///
    /// Those of [`served`](Self::served).
    fn around(&self, sample: u64) -> Result<(u64, Stretch)> {
        let step = self.step_of(sample);
        Ok((self.before(step), self.batch(step)?))
    }

    /// The rank's sample at a position from `start` on, if that is its own; it may be one more than the rank has.
    fn sample_at(&self, position: u64) -> Option<u64>;

    /// Writes rows, pieces and pads of the batch of a step, whose place and number of rows are set, where they are not
    /// just the rows that the order has at its positions. Returns whether it did.
    ///
    /// # Errors
    ///
    /// Those of [`served`](Self::served).
    fn fill(&self, step: u64, batch: &mut BatchPlan) -> Result<bool> {
        let _ = (step, batch);
        Ok(false)
    }

    /// The packs of the epoch, if there are some.
    fn packed(&self) -> Option<Arc<PackedEpoch>> {
        None
    }

    /// The order that positions are of, where it is not the epoch's own.
    fn order(&self) -> Option<Arc<dyn EpochOrder>> {
        None
    }
}

/// How many samples of a rank there are up to the end of each of its steps: listed when it is first asked for, with 8
/// bytes a step.
#[derive(Debug, Default)]
pub(super) struct Ends(Once<Vec<u64>>);

impl Ends {
    /// Of the steps of `deal`, as far as they can be read: whoever serves the others is told why not.
    fn of(&self, deal: &impl Deal) -> &[u64] {
        self.0.get_or_init(|| {
            let samples = (0..deal.steps()).map_while(|step| Some(deal.batch(step).ok()?.samples));
            let sums = samples.scan(0, |sum, samples| {
                *sum += samples;
                Some(*sum)
            });
            sums.collect()
        })
    }

    pub(super) fn samples(&self, deal: &impl Deal) -> u64 {
        self.of(deal).last().copied().unwrap_or(0)
    }

    pub(super) fn before(&self, deal: &impl Deal, step: u64) -> u64 {
        let before = (step as usize).checked_sub(1);
        before.and_then(|before| self.of(deal).get(before)).copied().unwrap_or(0)
    }

    pub(super) fn step_of(&self, deal: &impl Deal, sample: u64) -> u64 {
        self.of(deal).partition_point(|end| *end <= sample) as u64
    }
}

/// Batches of as many rows on every rank: its samples, which are every `S`-th position where there are `S` shards, cut
/// every `batch_size`.
#[derive(Debug, Clone, Copy)]
pub(super) struct EqualRows {
    batch_size: u64,
}

/// What is left of an epoch of [`EqualRows`].
#[derive(Debug)]
struct EqualDeal {
    batch_size: u64,
    rest: Rest,
    share: SampleCounts,
}

impl EqualRows {
    /// Of so many rows each, of which there is one at least.
    pub(super) fn of(batch_size: u64) -> Arc<dyn Batching> {
        Arc::new(Self { batch_size })
    }
}

impl Batching for EqualRows {
    fn kind(&self) -> &'static str {
        ROWS
    }

    fn batch_size(&self) -> u64 {
        self.batch_size
    }

    fn check(&self, shard: Shard, positions: u64) -> Result<()> {
        shard.share(positions).map(|_| ())
    }

    fn deal(&self, rest: &Rest) -> Result<Arc<dyn Deal>> {
        let share = rest.shard.share(rest.left())?;
        Ok(Arc::new(EqualDeal { batch_size: self.batch_size, rest: *rest, share }))
    }

    fn has_equal_epochs(&self) -> bool {
        true
    }
}

impl Deal for EqualDeal {
    fn steps(&self) -> u64 {
        match self.rest.drop_last_batch {
            true => self.share.fewest / self.batch_size,
            false => self.share.most.div_ceil(self.batch_size),
        }
    }

    fn samples(&self) -> u64 {
        if self.rest.drop_last_batch { self.steps() * self.batch_size } else { self.share.own }
    }

    fn served(&self, steps: u64) -> Result<u64> {
        if !self.rest.drop_last_batch && steps >= self.steps() {
            return self.rest.shard.total_samples(self.rest.left());
        }
        // No overflow: another step follows, or no short one is served, so these positions exist.
        Ok(steps * self.batch_size * u64::from(self.rest.shard.count()))
    }

    fn batch(&self, step: u64) -> Result<Stretch> {
        // No overflow: an earlier step of some rank has a full batch, so `sample` is at most the most samples of a
        // rank.
        let sample = step * self.batch_size;
        let samples = self.samples().saturating_sub(sample).min(self.batch_size);
        Ok(Stretch { samples, ..self.from(sample) })
    }

    fn before(&self, step: u64) -> u64 {
        step.saturating_mul(self.batch_size).min(self.samples())
    }

    fn step_of(&self, sample: u64) -> u64 {
        sample / self.batch_size
    }

    fn around(&self, _: u64) -> Result<(u64, Stretch)> {
        Ok((0, self.from(0)))
    }

    fn sample_at(&self, position: u64) -> Option<u64> {
        let Rest { start, shard, .. } = self.rest;
        let past = position.checked_sub(start.checked_add(shard.index().into())?)?;
        let shards = u64::from(shard.count());
        past.is_multiple_of(shards).then(|| past / shards)
    }
}

impl EqualDeal {
    /// All samples from one on.
    fn from(&self, sample: u64) -> Stretch {
        let Rest { start, shard, .. } = self.rest;
        let samples = self.samples().saturating_sub(sample);
        Stretch { first: start + shard.place(sample), stride: shard.count().into(), samples }
    }
}
