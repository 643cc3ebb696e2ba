//! The plans that the lists of promises run over: the one that is shipped, and one of batches of 1 to 7 rows. These are
//! drawn anew for each epoch, step and shard, and have nothing in common with equal rows but what every plan promises.

use std::sync::Arc;

use super::{Batching, Counts, DistributedSampler, Order, Rest, Shard, Stretch, Tail};

/// What decides the batches.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cut {
    Rows(usize),
    Drawn(Drawn),
}

impl From<usize> for Cut {
    fn from(batch_size: usize) -> Self {
        Self::Rows(batch_size)
    }
}

impl Cut {
    pub(crate) const fn drawn(seed: u64) -> Self {
        Self::Drawn(Drawn { seed })
    }

    pub(crate) fn sampler(self, orders: &Arc<dyn Order>, shard: Shard) -> DistributedSampler {
        let orders = Arc::clone(orders);
        match self {
            Self::Rows(batch_size) => DistributedSampler::new(orders, shard, batch_size).unwrap(),
            Self::Drawn(drawn) => DistributedSampler::with_batching(orders, shard, Arc::new(drawn)).unwrap(),
        }
    }
}

/// The steps come in pairs, in which each shard has 8 rows, so sums need no walk. Rows that are left after the last
/// pair are dealt evenly, in one step or two. The positions of a step follow each other, and so do those of each shard
/// in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drawn {
    seed: u64,
}

/// Rows of a shard in two steps.
const PAIR: u64 = 8;

/// One epoch from where this world began it, of all shards.
struct Dealt {
    seed: u64,
    epoch: u64,
    shards: u64,
    pairs: u64,
    /// Rows of all shards after the pairs.
    tail: u64,
    /// Steps that were done at the start of the rest.
    done: u64,
}

impl Drawn {
    fn dealt(self, rest: &Rest) -> Dealt {
        let shards = u64::from(rest.shard.count());
        let (len, start) = (rest.len - rest.began, rest.start - rest.began);
        let (pairs, over) = (len / (PAIR * shards), len % (PAIR * shards));
        let tail = match rest.shard.tail() {
            Tail::Wrap => over.next_multiple_of(shards),
            Tail::Uneven => over,
            Tail::Drop | Tail::Error => over / shards * shards,
        };
        let is_short = tail < PAIR * shards;
        let tail = if rest.drop_last_batch && is_short { 0 } else { tail };
        let mut dealt = Dealt { seed: self.seed, epoch: rest.epoch, shards, pairs, tail, done: 0 };
        dealt.done = dealt.step_at(start);
        assert_eq!(dealt.begins(dealt.done), start, "a plan goes on after a step: {rest:?}");
        dealt
    }
}

impl Dealt {
    /// How many rows more than the second step of a pair has the first one, halved.
    fn more(&self, shard: u64, pair: u64) -> i64 {
        let mut drawn = self.seed ^ (self.epoch << 48) ^ (shard << 40) ^ pair;
        for _ in 0..3 {
            drawn = drawn.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407).rotate_left(29);
        }
        (drawn % 7) as i64 - 3
    }

    fn steps(&self) -> u64 {
        let of_tail = match self.tail {
            0 => 0,
            tail => 1 + u64::from(tail > 7 * self.shards),
        };
        2 * self.pairs + of_tail
    }

    /// The rows of a shard before a step.
    fn before(&self, shard: u64, step: u64) -> u64 {
        if step <= 2 * self.pairs {
            let more = if step % 2 == 1 { self.more(shard, step / 2) } else { 0 };
            return (4 * step).strict_add_signed(more);
        }
        let of_tail =
            if step < self.steps() { 4 } else { self.tail / self.shards + u64::from(shard < self.tail % self.shards) };
        PAIR * self.pairs + of_tail
    }

    fn rows(&self, shard: u64, step: u64) -> u64 {
        self.before(shard, step + 1) - self.before(shard, step)
    }

    /// The position of a step, from the beginning of the dealt.
    fn begins(&self, step: u64) -> u64 {
        (0..self.shards).map(|shard| self.before(shard, step)).sum()
    }

    fn begins_of(&self, shard: u64, step: u64) -> u64 {
        self.begins(step) + (0..shard).map(|shard| self.rows(shard, step)).sum::<u64>()
    }

    /// The step that a position is of.
    fn step_at(&self, position: u64) -> u64 {
        let first = (position / (4 * self.shards)).saturating_sub(2);
        (first..self.steps()).find(|step| position < self.begins(step + 1)).unwrap_or(self.steps())
    }
}

impl Batching for Drawn {
    fn kind(&self) -> &'static str {
        "drawn"
    }

    fn most_rows(&self) -> u64 {
        7
    }

    fn counts(&self, rest: &Rest) -> Counts {
        let (dealt, shard) = (self.dealt(rest), rest.shard.index().into());
        let samples = dealt.before(shard, dealt.steps()) - dealt.before(shard, dealt.done);
        Counts { samples, steps: dealt.steps() - dealt.done }
    }

    fn served(&self, rest: &Rest, steps: u64) -> u64 {
        let dealt = self.dealt(rest);
        dealt.begins(dealt.done + steps) - dealt.begins(dealt.done)
    }

    fn batch(&self, rest: &Rest, step: u64) -> Stretch {
        let (dealt, shard) = (self.dealt(rest), rest.shard.index().into());
        let step = dealt.done + step;
        let sample = dealt.before(shard, step) - dealt.before(shard, dealt.done);
        Stretch {
            sample,
            samples: dealt.rows(shard, step),
            first: rest.began + dealt.begins_of(shard, step),
            stride: 1,
        }
    }

    fn around(&self, rest: &Rest, sample: u64) -> Stretch {
        match self.counts(rest).samples {
            0 => Stretch { sample: 0, samples: 0, first: rest.start, stride: 1 },
            _ => self.batch(rest, self.step_of(rest, sample)),
        }
    }

    fn step_of(&self, rest: &Rest, sample: u64) -> u64 {
        let (dealt, shard) = (self.dealt(rest), rest.shard.index().into());
        let sample = dealt.before(shard, dealt.done) + sample;
        let first = sample / PAIR * 2;
        let step = (first..dealt.steps()).find(|step| sample < dealt.before(shard, step + 1));
        step.unwrap_or(dealt.steps()) - dealt.done
    }

    fn sample_at(&self, rest: &Rest, position: u64) -> Option<u64> {
        let (dealt, shard) = (self.dealt(rest), rest.shard.index().into());
        let position = position.checked_sub(rest.start)? + (rest.start - rest.began);
        let step = Some(dealt.step_at(position)).filter(|step| *step < dealt.steps())?;
        let within =
            position.checked_sub(dealt.begins_of(shard, step)).filter(|within| *within < dealt.rows(shard, step))?;
        Some(dealt.before(shard, step) - dealt.before(shard, dealt.done) + within)
    }
}
