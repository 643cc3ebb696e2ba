//! Batches of as many packs on every rank.

use std::sync::{Arc, Mutex};

use super::batch::BatchPlan;
use super::batching::{Batching, Deal, Ends, Rest, Stretch};
use super::evened::{Evened, EvenedStep};
use super::shard::{Shard, Tail};
use super::world::World;
use crate::{Cost, EpochOrder, Pack, Packed, PackedEpoch};
use rowdex_base::error::{Error, ErrorKind, Result};

/// The kind of plan of [`PackBatching`], which states name.
pub(super) const PACKS: &str = "packs";
/// That of packs which are one row each, in buckets of like lengths.
pub(super) const BUCKETS: &str = "buckets";

/// How many deals are kept: of an epoch and its rest, for the ranks of a machine.
const DEALS: usize = 32;

/// For how many steps buckets are kept: those of this world, and of one that began an epoch.
const CUTS: usize = 2;

/// Packs of the epochs of `orders`, so many a rank and step. The packs of a step follow each other, those of rank 0
/// first.
#[derive(Debug)]
pub(super) struct PackBatching {
    orders: Arc<Packed>,
    batch_size: u64,
    cost: Option<Cost>,
    recent: Mutex<Vec<Arc<PacksDeal>>>,
    /// Buckets for steps of so many rows.
    cuts: Mutex<Vec<(u64, Arc<Packed>)>>,
}

impl PackBatching {
    /// Of so many packs each, of which there is one at least. With a cost, the packs of each full step are dealt by it.
    pub(super) fn of(orders: Arc<Packed>, batch_size: u64, cost: Option<Cost>) -> Arc<dyn Batching> {
        Arc::new(Self { orders, batch_size, cost, recent: Mutex::default(), cuts: Mutex::default() })
    }

    /// The packs that a rest is dealt of. Never waits: whoever finds the slot taken has an epoch of its own.
    fn orders_of(&self, rest: &Rest) -> Arc<Packed> {
        let Some(own) = self.step(rest.shard) else { return Arc::clone(&self.orders) };
        let step = if rest.step == 0 { own } else { rest.step };
        if let Ok(cuts) = self.cuts.try_lock()
            && let Some((_, orders)) = cuts.iter().find(|(held, _)| *held == step)
        {
            return Arc::clone(orders);
        }
        let orders = Arc::new(self.orders.in_steps(step));
        if let Ok(mut cuts) = self.cuts.try_lock() {
            cuts.insert(0, (step, Arc::clone(&orders)));
            cuts.truncate(CUTS);
        }
        orders
    }
}

impl Batching for PackBatching {
    fn kind(&self) -> &'static str {
        if self.orders.pack().is_of_rows() { BUCKETS } else { PACKS }
    }

    fn batch_size(&self) -> u64 {
        self.batch_size
    }

    fn packed(&self) -> Option<&Arc<Packed>> {
        Some(&self.orders)
    }

    fn cost(&self) -> Option<Cost> {
        self.cost
    }

    fn step(&self, shard: Shard) -> Option<u64> {
        let step = self.batch_size.saturating_mul(shard.count().into());
        self.orders.pack().is_of_rows().then_some(step)
    }

    fn check(&self, shard: Shard, _: u64) -> Result<()> {
        let Some(step) = self.step(shard) else { return Ok(()) };
        let invalid =
            |message: String, hint: &'static str| Err(Error::new(ErrorKind::InvalidArgument, message).with_hint(hint));
        if shard.tail() == Tail::Even {
            let message = "buckets with the tail policy even: packs are opened for it, and these are one row each";
            return invalid(message.to_owned(), "use wrap, drop, uneven or error");
        }
        if self.cost.is_some() {
            let message = "buckets that are dealt by their cost: the rows of a step have like lengths already";
            return invalid(message.to_owned(), "leave the cost out");
        }
        if step > Pack::MAX_BLOCK {
            let message = format!("buckets of rows in steps of {step}");
            return invalid(message, "use at most 1048576 rows for all ranks together");
        }
        Ok(())
    }

    fn deal(&self, rest: &Rest) -> Result<Arc<dyn Deal>> {
        if let Ok(recent) = self.recent.try_lock()
            && let Some(deal) = recent.iter().find(|deal| deal.rest == *rest)
        {
            return Ok(Arc::clone(deal) as Arc<dyn Deal>);
        }
        let deal = PacksDeal::new(self.orders_of(rest).packed(rest.epoch)?, self.batch_size, *rest)?;
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
    fn step(&self, step: u64) -> Result<Option<Arc<EvenedStep>>> {
        self.evened.as_ref().map_or(Ok(None), |evened| evened.step(step))
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
        let len = epoch.len();
        let end = batch.first + batch.rows.len() as u64;
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

    fn packed(&self) -> Option<Arc<PackedEpoch>> {
        Some(Arc::clone(&self.world.epoch))
    }

    fn order(&self) -> Option<Arc<dyn EpochOrder>> {
        self.evened.clone().map(|evened| evened as Arc<dyn EpochOrder>)
    }
}
