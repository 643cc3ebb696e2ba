//! What decides the batches of an epoch.

use std::fmt::Debug;
use std::sync::Arc;

use super::Shard;

/// The kind of plan of [`EqualRows`], which states name.
pub(super) const ROWS: &str = "rows";

/// What is left of an epoch, and whose share of it is asked for.
#[derive(Debug, Clone, Copy)]
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

/// How many samples and steps a rank has in one epoch, or left of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Samples that this rank serves.
    pub samples: u64,
    /// Steps, equal on all ranks.
    pub steps: u64,
}

/// Samples of a rank that follow each other, at positions with equal distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// The first of them, counted from the first sample that is left.
    pub sample: u64,
    /// How many there are, unless the rank's samples end before.
    pub samples: u64,
    /// The position of the first one, counted from the beginning of the epoch; from the order's length on it is a pad.
    pub first: u64,
    /// From each position to the next.
    pub stride: u64,
}

/// What decides the batches of an epoch: which positions of its order each rank has at each step.
///
/// It is a pure function, so ranks never talk about it. Steps and samples are counted from the first that is left. What
/// it must keep to, with `N` for the steps of [`counts`](Self::counts):
///
/// - All ranks have the same `N`, and `N` of a whole epoch is the same in every epoch.
/// - The samples of a rank are those of its steps, one step after the other. Their positions rise within a step, and no
///   two shards have the same one.
/// - The first `t` steps of all ranks together have just the positions from `start` up to `start +
///   served(t)`. So where they begin and end is all that a state needs to say; and with that end as the `start`, and
///   the same `began`, the steps from `t` on are what they were.
/// - A later start leaves no rank more samples or steps.
///
/// Two plans whose [`Run`](super::Run)s say the same are the same: what else decides the batches of a kind must be said
/// there, too.
///
/// While rows are served, it is asked once a step, or once for all samples that follow each other, and never once a
/// row. Only this package and tests make plans so far, so it may change in any release.
pub trait Batching: Debug + Send + Sync {
    /// What a [`State`](super::State) calls such plans. It can be resumed by plans of this kind alone.
    fn kind(&self) -> &'static str;

    /// The most rows that a rank has at a step.
    fn most_rows(&self) -> u64;

    /// What the rank has left.
    fn counts(&self, rest: &Rest) -> Counts;

    /// How many positions the first `steps` of the steps left serve on all ranks together, pads included.
    fn served(&self, rest: &Rest, steps: u64) -> u64;

    /// The rank's samples at a step that is left.
    fn batch(&self, rest: &Rest, step: u64) -> Stretch;

    /// A stretch that has this sample, as long as may be.
    fn around(&self, rest: &Rest, sample: u64) -> Stretch;

    /// The step that has a sample.
    fn step_of(&self, rest: &Rest, sample: u64) -> u64;

    /// The rank's sample at a position from `start` on, if that is its own; it may be one more than the rank has.
    fn sample_at(&self, rest: &Rest, position: u64) -> Option<u64>;

    /// How many rows all batches of a rank have but for its last one; `None` if they have different numbers.
    ///
    /// A worker of such a rank serves a stretch of samples for each of its steps. Of any other plan it asks for each of
    /// its steps once an epoch, and keeps 8 bytes of each.
    fn equal_rows(&self) -> Option<u64> {
        None
    }
}

/// Batches of as many rows on every rank: its samples, which are every `S`-th position where there are `S` shards, cut
/// every `batch_size`.
#[derive(Debug, Clone, Copy)]
pub(super) struct EqualRows {
    batch_size: u64,
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

    fn most_rows(&self) -> u64 {
        self.batch_size
    }

    fn counts(&self, rest: &Rest) -> Counts {
        // It cannot fail: whoever made or resumed this sampler has asked for the same share.
        let Ok(share) = rest.shard.share(rest.left()) else { return Counts { samples: 0, steps: 0 } };
        if rest.drop_last_batch {
            let steps = share.fewest / self.batch_size;
            Counts { samples: steps * self.batch_size, steps }
        } else {
            Counts { samples: share.own, steps: share.most.div_ceil(self.batch_size) }
        }
    }

    fn served(&self, rest: &Rest, steps: u64) -> u64 {
        if !rest.drop_last_batch && steps >= self.counts(rest).steps {
            return rest.shard.total_samples(rest.left()).unwrap_or(0);
        }
        // No overflow: another step follows, or no short one is served, so these positions exist.
        steps * self.batch_size * u64::from(rest.shard.count())
    }

    fn batch(&self, rest: &Rest, step: u64) -> Stretch {
        // No overflow: an earlier step of some rank has a full batch, so `sample` is at most the most samples of a
        // rank.
        let sample = step * self.batch_size;
        let first = rest.start + rest.shard.place(sample);
        Stretch { sample, samples: self.batch_size, first, stride: rest.shard.count().into() }
    }

    fn around(&self, rest: &Rest, _: u64) -> Stretch {
        let (first, stride) = (rest.start + rest.shard.place(0), rest.shard.count().into());
        Stretch { sample: 0, samples: u64::MAX, first, stride }
    }

    fn step_of(&self, _: &Rest, sample: u64) -> u64 {
        sample / self.batch_size
    }

    fn sample_at(&self, rest: &Rest, position: u64) -> Option<u64> {
        let past = position.checked_sub(rest.start.checked_add(rest.shard.index().into())?)?;
        let shards = u64::from(rest.shard.count());
        past.is_multiple_of(shards).then(|| past / shards)
    }

    fn equal_rows(&self) -> Option<u64> {
        Some(self.batch_size)
    }
}
