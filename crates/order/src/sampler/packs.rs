//! Batches of as many packs on every rank.

use std::sync::{Arc, Mutex};

use super::batching::{Batching, Deal, Ends, Rest, Stretch};
use super::{BatchPlan, Shard, Tail};
use crate::{EpochOrder, Packed, PackedEpoch};
use rowdex_base::error::{Error, ErrorKind, Result};

/// The kind of plan of [`Packs`], which states name.
pub(super) const PACKS: &str = "packs";

/// How many deals are kept: of an epoch and its rest, for the ranks of a machine.
const DEALS: usize = 32;

/// Packs of the epochs of `orders`, so many a rank and step. The packs of a step follow each other, those of rank 0
/// first.
#[derive(Debug)]
pub(super) struct Packs {
    orders: Arc<Packed>,
    batch_size: u64,
    recent: Mutex<Vec<Arc<PacksDeal>>>,
}

impl Packs {
    /// Of so many packs each, of which there is one at least.
    pub(super) fn of(orders: Arc<Packed>, batch_size: u64) -> Arc<dyn Batching> {
        Arc::new(Self { orders, batch_size, recent: Mutex::default() })
    }
}

impl Batching for Packs {
    fn kind(&self) -> &'static str {
        PACKS
    }

    fn batch_size(&self) -> u64 {
        self.batch_size
    }

    fn check(&self, _: Shard, _: u64) -> Result<()> {
        Ok(())
    }

    fn deal(&self, rest: &Rest) -> Result<Arc<dyn Deal>> {
        if let Ok(recent) = self.recent.try_lock()
            && let Some(deal) = recent.iter().find(|deal| deal.rest == *rest)
        {
            return Ok(Arc::clone(deal) as Arc<dyn Deal>);
        }
        let deal = Arc::new(PacksDeal::new(self.orders.packed(rest.epoch)?, self.batch_size, *rest)?);
        if let Ok(mut recent) = self.recent.try_lock() {
            // Others would keep their epochs.
            recent.retain(|other| other.rest.epoch.abs_diff(rest.epoch) <= 1);
            recent.insert(0, Arc::clone(&deal));
            recent.truncate(DEALS);
        }
        Ok(deal)
    }
}

/// What is left of an epoch of packs, from where this world took over: packs that are closed, the first of which may
/// have lost pieces to another world, and then pieces that are packs of their own.
///
/// Opening a pack changes no position: it is a cut between two pieces that follow each other.
#[derive(Debug)]
struct PacksDeal {
    epoch: Arc<PackedEpoch>,
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
    /// Steps that this world has done.
    done: u64,
    ends: Ends,
}

impl PacksDeal {
    fn new(epoch: Arc<PackedEpoch>, batch_size: u64, rest: Rest) -> Result<Self> {
        if rest.began < rest.start {
            let began = Self::from(Arc::clone(&epoch), batch_size, rest, rest.began)?;
            let done = began.pack_of(rest.start)?.map_or(0, |pack| pack / began.of_step());
            if began.bound(done.saturating_mul(began.of_step()))? == rest.start {
                return Ok(Self { done, ..began });
            }
            // No step of this world ends there, so it takes over there.
        }
        Self::from(epoch, batch_size, rest, rest.start)
    }

    /// What a world has that takes over at a position.
    fn from(epoch: Arc<PackedEpoch>, batch_size: u64, rest: Rest, began: u64) -> Result<Self> {
        let (first, len) = (epoch.pack_of(began)?, epoch.len());
        let packs = epoch.packs() - first;
        let ends = Ends::default();
        let mut deal = Self { epoch, batch_size, rest, began, first, closed: packs, cut: len, packs, done: 0, ends };
        deal.open()?;
        if rest.shard.tail() == Tail::Error && !deal.short().is_multiple_of(deal.shards()) {
            let message = format!("{packs} packs do not divide evenly among {} shards", deal.shards());
            return Err(Error::new(ErrorKind::InvalidArgument, message)
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
                "{} packs of {pieces} pieces can not be opened so that each of {} shards has as many",
                self.packs,
                self.shards()
            );
            let hint = "use the tail policy wrap, drop or uneven, or fewer ranks";
            return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint(hint));
        };
        if goal > self.packs {
            let (pack, taken) = self.epoch.opened(self.first, self.began, goal - self.packs)?;
            self.closed = pack + 1 - self.first;
            self.cut = self.epoch.start(pack + 1)? - taken;
            self.packs = goal;
        }
        Ok(())
    }

    fn shards(&self) -> u64 {
        self.rest.shard.count().into()
    }

    /// Packs of a full step on all ranks.
    fn of_step(&self) -> u64 {
        self.batch_size.saturating_mul(self.shards())
    }

    /// Packs after the last full step.
    fn short(&self) -> u64 {
        self.packs % self.of_step()
    }

    /// The fewest and the most packs that a rank has at the step after the last full one.
    fn of_short(&self) -> (u64, u64) {
        let (short, shards) = (self.short(), self.shards());
        let (fewest, most) = match self.rest.shard.tail() {
            Tail::Wrap => (short.div_ceil(shards), short.div_ceil(shards)),
            Tail::Drop => (short / shards, short / shards),
            Tail::Uneven | Tail::Error | Tail::Even => (short / shards, short.div_ceil(shards)),
        };
        if self.rest.drop_last_batch && fewest < self.batch_size { (0, 0) } else { (fewest, most) }
    }

    /// The number of the first pack after so many steps of this world.
    fn end(&self, steps: u64) -> u64 {
        let full = self.packs / self.of_step();
        if steps <= full {
            return steps * self.of_step();
        }
        let (fewest, most) = self.of_short();
        full * self.of_step() + if fewest == most { fewest * self.shards() } else { self.short() }
    }

    /// The packs of this rank at a step of this world.
    fn own(&self, step: u64) -> (u64, u64) {
        let shard = u64::from(self.rest.shard.index());
        let begin = self.end(step);
        if step < self.packs / self.of_step() {
            let first = begin + shard * self.batch_size;
            return (first, first + self.batch_size);
        }
        let (fewest, most) = self.of_short();
        let more = if fewest == most { 0 } else { self.short() % self.shards() };
        let first = begin + shard * fewest + shard.min(more);
        (first, first + fewest + u64::from(shard < more))
    }

    /// The position at which a pack of this world begins. After the last one they begin anew, as pads.
    fn bound(&self, pack: u64) -> Result<u64> {
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
    fn pack_of(&self, position: u64) -> Result<Option<u64>> {
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

impl Deal for PacksDeal {
    fn steps(&self) -> u64 {
        self.packs / self.of_step() + u64::from(self.of_short().1 > 0) - self.done
    }

    fn samples(&self) -> u64 {
        self.ends.samples(self)
    }

    fn served(&self, steps: u64) -> Result<u64> {
        Ok(self.bound(self.end(self.done + steps))? - self.rest.start)
    }

    fn batch(&self, step: u64) -> Result<Stretch> {
        let (first, end) = self.own(self.done + step);
        let first = self.bound(first)?;
        Ok(Stretch { first, stride: 1, samples: self.bound(end)? - first })
    }

    fn before(&self, step: u64) -> u64 {
        self.ends.before(self, step)
    }

    fn step_of(&self, sample: u64) -> u64 {
        self.ends.step_of(self, sample)
    }

    fn sample_at(&self, position: u64) -> Option<u64> {
        let pack = self.pack_of(position).ok()?.filter(|_| position >= self.rest.start)?;
        let step = pack / self.of_step();
        let (first, end) = self.own(step);
        if !(first..end).contains(&pack) {
            return None;
        }
        Some(self.before(step - self.done) + (position - self.bound(first).ok()?))
    }

    fn fill(&self, step: u64, batch: &mut BatchPlan) -> Result<bool> {
        let (len, end) = (self.epoch.len(), batch.first + batch.rows.len() as u64);
        let mut at = batch.first;
        while at < end {
            let count = (end - at).min(len - at % len);
            self.epoch.read(at % len, count, &mut batch.pieces)?;
            at += count;
        }
        batch.pads = end.saturating_sub(len.max(batch.first)) as usize;
        for (row, piece) in batch.rows.iter_mut().zip(&batch.pieces) {
            *row = piece.row;
        }
        let (first, last) = self.own(self.done + step);
        for pack in first..last {
            batch.packs.push((self.bound(pack + 1)? - batch.first) as usize);
        }
        Ok(true)
    }
}
