//! Batches of as many packs on every rank.

use std::sync::{Arc, Mutex};

use super::batching::{Batching, Deal, Ends, Rest, Stretch};
use super::evened::{Evened, Step};
use super::{BatchPlan, Shard, Tail};
use crate::{Cost, EpochOrder, Packed, PackedEpoch};
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
    cost: Option<Cost>,
    recent: Mutex<Vec<Arc<PacksDeal>>>,
}

impl Packs {
    /// Of so many packs each, of which there is one at least. With a cost, the packs of each full step are dealt by it.
    pub(super) fn of(orders: Arc<Packed>, batch_size: u64, cost: Option<Cost>) -> Arc<dyn Batching> {
        Arc::new(Self { orders, batch_size, cost, recent: Mutex::default() })
    }
}

impl Batching for Packs {
    fn kind(&self) -> &'static str {
        PACKS
    }

    fn batch_size(&self) -> u64 {
        self.batch_size
    }

    fn cost(&self) -> Option<Cost> {
        self.cost
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
        let deal = PacksDeal::new(self.orders.packed(rest.epoch)?, self.batch_size, *rest)?;
        let evened = self.cost.map(|cost| Arc::new(Evened::new(cost, Arc::clone(&deal.world))));
        let deal = Arc::new(PacksDeal { evened, ..deal });
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

/// What a rank has left of an epoch of packs.
#[derive(Debug)]
struct PacksDeal {
    world: Arc<World>,
    rest: Rest,
    /// Steps that this world has done.
    done: u64,
    /// Whose packs of a step are dealt by their cost.
    evened: Option<Arc<Evened>>,
    ends: Ends,
}

impl PacksDeal {
    fn new(epoch: Arc<PackedEpoch>, batch_size: u64, rest: Rest) -> Result<Self> {
        let deal = |world, done| Self { world: Arc::new(world), rest, done, evened: None, ends: Ends::default() };
        if rest.began < rest.start {
            let began = World::from(Arc::clone(&epoch), batch_size, rest, rest.began)?;
            let done = began.pack_of(rest.start)?.map_or(0, |pack| pack / began.of_step());
            if began.bound(done.saturating_mul(began.of_step()))? == rest.start {
                return Ok(deal(began, done));
            }
            // No step of this world ends there, so it takes over there.
        }
        Ok(deal(World::from(epoch, batch_size, rest, rest.start)?, 0))
    }

    /// The packs of a step in the sequence in which they are dealt by their cost, if they are.
    fn step(&self, step: u64) -> Result<Option<Arc<Step>>> {
        self.evened.as_ref().map_or(Ok(None), |evened| evened.step(step))
    }
}

impl World {
    /// What a world has that takes over at a position.
    fn from(epoch: Arc<PackedEpoch>, batch_size: u64, rest: Rest, began: u64) -> Result<Self> {
        let (first, len) = (epoch.pack_of(began)?, epoch.len());
        let packs = epoch.packs() - first;
        let mut deal = Self { epoch, batch_size, rest, began, first, closed: packs, cut: len, packs };
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
        let full = self.full();
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

impl Deal for PacksDeal {
    fn steps(&self) -> u64 {
        self.world.full() + u64::from(self.world.of_short().1 > 0) - self.done
    }

    fn samples(&self) -> u64 {
        self.ends.samples(self)
    }

    fn served(&self, steps: u64) -> Result<u64> {
        Ok(self.world.bound(self.world.end(self.done + steps))? - self.rest.start)
    }

    fn batch(&self, step: u64) -> Result<Stretch> {
        let (first, end) = self.world.own(self.done + step);
        let (first, end) = match self.step(self.done + step)? {
            Some(step) => (step.bound(first), step.bound(end)),
            None => (self.world.bound(first)?, self.world.bound(end)?),
        };
        Ok(Stretch { first, stride: 1, samples: end - first })
    }

    fn before(&self, step: u64) -> u64 {
        self.ends.before(self, step)
    }

    fn step_of(&self, sample: u64) -> u64 {
        self.ends.step_of(self, sample)
    }

    fn sample_at(&self, position: u64) -> Option<u64> {
        let pack = self.world.pack_of(position).ok()?.filter(|_| position >= self.rest.start)?;
        let step = (pack / self.world.of_step()).checked_sub(self.done)?;
        let Stretch { first, samples, .. } = self.batch(step).ok()?;
        let within = position.checked_sub(first).filter(|within| *within < samples)?;
        Some(self.before(step) + within)
    }

    fn fill(&self, step: u64, batch: &mut BatchPlan) -> Result<bool> {
        let epoch = &self.world.epoch;
        let (len, end) = (epoch.len(), batch.first + batch.rows.len() as u64);
        let (first, last) = self.world.own(self.done + step);
        if let Some(step) = self.step(self.done + step)? {
            for pack in first..last {
                epoch.read(step.source(pack), step.bound(pack + 1) - step.bound(pack), &mut batch.pieces)?;
                batch.packs.push(batch.pieces.len());
            }
        } else {
            let mut at = batch.first;
            while at < end {
                let count = (end - at).min(len - at % len);
                epoch.read(at % len, count, &mut batch.pieces)?;
                at += count;
            }
            for pack in first..last {
                batch.packs.push((self.world.bound(pack + 1)? - batch.first) as usize);
            }
        }
        batch.pads = end.saturating_sub(len.max(batch.first)) as usize;
        for (row, piece) in batch.rows.iter_mut().zip(&batch.pieces) {
            *row = piece.row;
        }
        Ok(true)
    }

    fn order(&self) -> Option<Arc<dyn EpochOrder>> {
        self.evened.clone().map(|evened| evened as Arc<dyn EpochOrder>)
    }
}
