//! Which packs the ranks of a world have at which step.

use std::sync::Arc;

use super::shard::{Rest, Tail};
use crate::{EpochOrder, PackCounts, PackedEpoch};
use rowdex_base::error::{Error, Result};

/// What is left of an epoch of packs, from where this world took over: packs that are closed, the first of which may
/// have lost pieces to another world, and then pieces that are packs of their own.
///
/// Opening a pack changes no position: it is a cut between two pieces that follow each other.
#[derive(Debug)]
pub(super) struct World {
    pub(super) epoch: Arc<PackedEpoch>,
    batch_size: u64,
    rest: Rest,
    /// The position that this world took over at.
    began: u64,
    /// The pack of the epoch that it is in.
    first: u64,
    /// How many packs are closed.
    closed: u64,
    /// The position at which these end.
    cut: u64,
    /// How many packs there are, the opened ones counted by their pieces.
    packs: u64,
}

impl World {
    /// What a world has that takes over at a position.
    pub(super) fn from(epoch: Arc<PackedEpoch>, batch_size: u64, rest: Rest, began: u64) -> Result<Self> {
        let PackCounts { rows_dropped, rows_empty, .. } = *epoch.planned();
        if epoch.len() == 0 && rows_dropped + rows_empty > 0 {
            let message = format!(
                "no row of the epoch has a piece: {rows_empty} are empty, and {rows_dropped} longer than a pack takes"
            );
            return Err(Error::invalid(message)
                .with_hint("keep empty rows, split or truncate long ones, or give packs a larger capacity"));
        }
        let first = epoch.pack_of(began)?;
        let len = epoch.len();
        let packs = epoch.packs() - first;
        let mut deal = Self { epoch, batch_size, rest, began, first, closed: packs, cut: len, packs };
        deal.open()?;
        if rest.shard.tail() == Tail::Error && !deal.short().is_multiple_of(deal.shards()) {
            let message = format!("{packs} packs do not divide evenly among {} shards", deal.shards());
            return Err(Error::invalid(message)
                .with_hint("use the tail policy even, wrap, drop or uneven, or another world size"));
        }
        Ok(deal)
    }

    /// Opens as many packs as make the last step full; or, where there are too few pieces, as short on every rank.
    fn open(&mut self) -> Result<()> {
        let pieces = self.epoch.len() - self.began;
        if self.rest.shard.tail() != Tail::Even || pieces == 0 {
            return Ok(());
        }
        let goals = [self.of_step(), self.shards()].map(|unit| self.packs.checked_next_multiple_of(unit));
        let Some(goal) = goals.into_iter().flatten().find(|goal| *goal <= pieces) else {
            let message = format!(
                "{} packs of {pieces} pieces can not be opened so that each of {} shards has the same number",
                self.packs,
                self.shards()
            );
            let hint = "use the tail policy wrap, drop or uneven, or fewer ranks";
            return Err(Error::invalid(message).with_hint(hint));
        };
        if goal > self.packs {
            let (pack, taken) = self.epoch.opened(self.first, self.began, goal - self.packs)?;
            self.closed = pack + 1 - self.first;
            self.cut = self.epoch.start(pack + 1)? - taken;
            self.packs = goal;
        }
        Ok(())
    }

    pub(super) fn shards(&self) -> u64 {
        self.rest.shard.count().into()
    }

    /// Packs of a full step on all ranks.
    pub(super) fn of_step(&self) -> u64 {
        self.batch_size.saturating_mul(self.shards())
    }

    /// Full steps.
    pub(super) fn full(&self) -> u64 {
        self.packs / self.of_step()
    }

    /// Packs after the last full step.
    fn short(&self) -> u64 {
        self.packs % self.of_step()
    }

    /// The fewest and the most packs that a rank has at the step after the last full one.
    pub(super) fn of_short(&self) -> (u64, u64) {
        let short = self.short();
        let shards = self.shards();
        let (fewest, most) = match self.rest.shard.tail() {
            Tail::Wrap => (short.div_ceil(shards), short.div_ceil(shards)),
            Tail::Drop => (short / shards, short / shards),
            Tail::Uneven | Tail::Error | Tail::Even => (short / shards, short.div_ceil(shards)),
        };
        if self.rest.drop_last_batch && fewest < self.batch_size { (0, 0) } else { (fewest, most) }
    }

    /// The number of the first pack after so many steps of this world.
    pub(super) fn end(&self, steps: u64) -> u64 {
        let full = self.full();
        if steps <= full {
            return steps * self.of_step();
        }
        let (fewest, most) = self.of_short();
        full * self.of_step() + if fewest == most { fewest * self.shards() } else { self.short() }
    }

    /// The packs of this rank at a step of this world.
    pub(super) fn own(&self, step: u64) -> (u64, u64) {
        let shard = u64::from(self.rest.shard.index());
        let begin = self.end(step);
        if step < self.full() {
            let first = begin + shard * self.batch_size;
            return (first, first + self.batch_size);
        }
        let (fewest, most) = self.of_short();
        let more = if fewest == most { 0 } else { self.short() % self.shards() };
        let first = begin + shard * fewest + shard.min(more);
        (first, first + fewest + u64::from(shard < more))
    }

    /// The position at which a pack of this world begins. After the last one they begin anew, as pads.
    pub(super) fn bound(&self, pack: u64) -> Result<u64> {
        let len = self.epoch.len();
        if pack == 0 {
            return Ok(self.began);
        }
        if pack < self.closed {
            return self.epoch.start(self.first + pack);
        }
        let Some(pad) = pack.checked_sub(self.packs) else { return Ok(self.cut + (pack - self.closed)) };
        let packs = self.epoch.packs().max(1);
        Ok(len * (1 + pad / packs) + self.epoch.start(pad % packs)?)
    }

    /// The pack of this world that has a position, pads included; `None` before the first one.
    pub(super) fn pack_of(&self, position: u64) -> Result<Option<u64>> {
        let len = self.epoch.len();
        if position < self.began || len == 0 {
            return Ok(None);
        }
        Ok(Some(if position >= len {
            self.packs + (position / len - 1) * self.epoch.packs() + self.epoch.pack_of(position % len)?
        } else if position >= self.cut {
            self.closed + (position - self.cut)
        } else {
            self.epoch.pack_of(position)? - self.first
        }))
    }
}
