//! The plans that the lists of promises run over: the one that is shipped, and one of batches of 1 to 7 rows. These are
//! drawn anew for each epoch, step and shard, and have nothing in common with equal rows but what every plan promises.

use std::sync::Arc;

use super::{
    Batching, Cost, Deal, DistributedSampler, Lengths, Order, Pack, Packed, Rest, Result, Shard, Stretch, Tail,
};

/// What decides the batches.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cut {
    Rows(usize),
    Drawn(Drawn),
    /// So many packs, of rows whose lengths this is the seed of; dealt by cost if it is a multiple of three.
    #[allow(dead_code, reason = "loaders do not make batches of packs yet, and their tests use this file, too")]
    Packs(usize, u64),
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
            Self::Packs(packs, seed) => {
                let cost = seed.is_multiple_of(3).then_some(Cost { linear: 20, quadratic: 1 });
                DistributedSampler::of_packs(Arc::new(packed(orders, seed)), shard, packs, cost).unwrap()
            }
        }
    }
}

/// In blocks of 16 positions, with some rows that are empty and some that are split.
pub(crate) fn packed(orders: Arc<dyn Order>, seed: u64) -> Packed {
    let lengths = Arc::new(DrawnLengths { rows: orders.rows().unwrap_or(u64::MAX), seed });
    Packed::new(orders, lengths, Pack { block: 16, ..Pack::of(40) }).unwrap()
}

/// Lengths from 0 to 60, short ones more often. Row 0 has tokens, because an epoch without a piece is refused.
#[derive(Debug)]
pub(crate) struct DrawnLengths {
    pub(crate) rows: u64,
    pub(crate) seed: u64,
}

impl Lengths for DrawnLengths {
    fn len(&self) -> u64 {
        self.rows
    }

    fn length(&self, row: u64) -> Result<u64> {
        let drawn = (row ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(0x9e37_79b9);
        Ok(((drawn >> 40) % 61 * ((drawn >> 20) % 4 + 1) / 4).max(u64::from(row == 0)))
    }

    fn fingerprint(&self) -> u64 {
        self.seed
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
#[derive(Debug)]
struct Dealt {
    rest: Rest,
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
            Tail::Drop | Tail::Error | Tail::Even => over / shards * shards,
        };
        let is_short = tail < PAIR * shards;
        let tail = if rest.drop_last_batch && is_short { 0 } else { tail };
        let mut dealt = Dealt { rest: *rest, seed: self.seed, epoch: rest.epoch, shards, pairs, tail, done: 0 };
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

    fn all_steps(&self) -> u64 {
        let of_tail = match self.tail {
            0 => 0,
            tail => 1 + u64::from(tail > 7 * self.shards),
        };
        2 * self.pairs + of_tail
    }

    /// The rows of a shard before a step.
    fn rows_before(&self, shard: u64, step: u64) -> u64 {
        if step <= 2 * self.pairs {
            let more = if step % 2 == 1 { self.more(shard, step / 2) } else { 0 };
            return (4 * step).strict_add_signed(more);
        }
        let of_tail = if step < self.all_steps() {
            4
        } else {
            self.tail / self.shards + u64::from(shard < self.tail % self.shards)
        };
        PAIR * self.pairs + of_tail
    }

    fn rows(&self, shard: u64, step: u64) -> u64 {
        self.rows_before(shard, step + 1) - self.rows_before(shard, step)
    }

    /// The position of a step, from the beginning of the dealt.
    fn begins(&self, step: u64) -> u64 {
        (0..self.shards).map(|shard| self.rows_before(shard, step)).sum()
    }

    fn begins_of(&self, shard: u64, step: u64) -> u64 {
        self.begins(step) + (0..shard).map(|shard| self.rows(shard, step)).sum::<u64>()
    }

    /// The step that a position is of.
    fn step_at(&self, position: u64) -> u64 {
        let first = (position / (4 * self.shards)).saturating_sub(2);
        (first..self.all_steps()).find(|step| position < self.begins(step + 1)).unwrap_or(self.all_steps())
    }
}

impl Batching for Drawn {
    fn kind(&self) -> &'static str {
        "drawn"
    }

    fn batch_size(&self) -> u64 {
        7
    }

    fn check(&self, shard: Shard, positions: u64) -> Result<()> {
        shard.samples(positions).map(|_| ())
    }

    fn deal(&self, rest: &Rest) -> Result<Arc<dyn Deal>> {
        self.check(rest.shard, rest.left())?;
        Ok(Arc::new(self.dealt(rest)))
    }
}

impl Deal for Dealt {
    fn steps(&self) -> u64 {
        self.all_steps() - self.done
    }

    fn samples(&self) -> u64 {
        self.before(self.steps())
    }

    fn served(&self, steps: u64) -> Result<u64> {
        Ok(self.begins(self.done + steps) - self.begins(self.done))
    }

    fn batch(&self, step: u64) -> Result<Stretch> {
        let (shard, step) = (self.rest.shard.index().into(), self.done + step);
        let first = self.rest.began + self.begins_of(shard, step);
        Ok(Stretch { first, stride: 1, samples: self.rows(shard, step) })
    }

    fn before(&self, step: u64) -> u64 {
        let shard = self.rest.shard.index().into();
        self.rows_before(shard, self.done + step) - self.rows_before(shard, self.done)
    }

    fn step_of(&self, sample: u64) -> u64 {
        let shard = self.rest.shard.index().into();
        let sample = self.rows_before(shard, self.done) + sample;
        let first = sample / PAIR * 2;
        let step = (first..self.all_steps()).find(|step| sample < self.rows_before(shard, step + 1));
        step.unwrap_or(self.all_steps()) - self.done
    }

    fn sample_at(&self, position: u64) -> Option<u64> {
        let (shard, rest) = (self.rest.shard.index().into(), &self.rest);
        let position = position.checked_sub(rest.start)? + (rest.start - rest.began);
        let step = Some(self.step_at(position)).filter(|step| *step < self.all_steps())?;
        let within =
            position.checked_sub(self.begins_of(shard, step)).filter(|within| *within < self.rows(shard, step))?;
        Some(self.before(step - self.done) + within)
    }
}
