//! Batches of as many packs on every rank.

use std::sync::Arc;

use super::batch::BatchPlan;
use super::deal::{Deal, OwnPositions, RankDeal, Rest};
use super::evened::{Evened, EvenedStep};
use super::shard::{Shard, Tail};
use super::world::World;
use crate::recent::Recent;
use crate::{Cost, EpochOrder, Pack, Packed, PackedEpoch};
use rowdex_base::error::{Error, Result};

/// The kind of plan of packs, which states name.
pub(super) const PACKS: &str = "packs";
/// That of packs which are one row each, in buckets of like lengths.
pub(super) const BUCKETS: &str = "buckets";

/// How many deals of an epoch are kept: of its rests, for the ranks of a machine.
const DEALS: usize = 32;

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
            let message = "buckets that are dealt by their cost: the rows of a step have like lengths already";
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

/// What a rank has left of an epoch of packs.
#[derive(Debug)]
pub(super) struct PacksDeal {
    world: Arc<World>,
    rest: Rest,
    /// Steps that this world has done.
    done: u64,
    /// Whose packs of a step are dealt by their cost.
    evened: Option<Arc<Evened>>,
}

impl PacksDeal {
    fn new(epoch: Arc<PackedEpoch>, batch_size: u64, cost: Option<Cost>, rest: Rest) -> Result<Self> {
        let deal = |world, done| {
            let world = Arc::new(world);
            let evened = cost.map(|cost| Arc::new(Evened::new(cost, Arc::clone(&world))));
            Self { world, rest, done, evened }
        };
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

    pub(super) fn steps(&self) -> u64 {
        self.world.full() + u64::from(self.world.of_short().1 > 0) - self.done
    }

    pub(super) fn served(&self, steps: u64) -> Result<u64> {
        Ok(self.world.bound(self.world.end(self.done + steps))? - self.rest.start)
    }

    pub(super) fn batch(&self, step: u64) -> Result<OwnPositions> {
        let (first, end) = self.world.own(self.done + step);
        let (first, end) = match self.step(self.done + step)? {
            Some(step) => (step.bound(first), step.bound(end)),
            None => (self.world.bound(first)?, self.world.bound(end)?),
        };
        Ok(OwnPositions { first, stride: 1, samples: end - first })
    }

    /// The step that has a position, and the number of its sample there.
    pub(super) fn place_of(&self, position: u64) -> Option<(u64, u64)> {
        let pack = self.world.pack_of(position).ok()?.filter(|_| position >= self.rest.start)?;
        let step = (pack / self.world.of_step()).checked_sub(self.done)?;
        let OwnPositions { first, samples, .. } = self.batch(step).ok()?;
        let within = position.checked_sub(first).filter(|within| *within < samples)?;
        Some((step, within))
    }

    pub(super) fn fill(&self, step: u64, batch: &mut BatchPlan) -> Result<()> {
        let epoch = &self.world.epoch;
        let len = epoch.len();
        let end = batch.first + batch.rows.len() as u64;
        let (first, last) = self.world.own(self.done + step);
        let evened = self.step(self.done + step)?;
        for pack in first..last {
            let (source, pieces) = match &evened {
                Some(step) => (step.source(pack), step.bound(pack + 1) - step.bound(pack)),
                None => (self.world.bound(pack)? % len, self.world.bound(pack + 1)? - self.world.bound(pack)?),
            };
            epoch.read(source, pieces, &mut batch.pieces)?;
            batch.packs.push(batch.pieces.len());
        }
        batch.pads = end.saturating_sub(len.max(batch.first)) as usize;
        for (row, piece) in batch.rows.iter_mut().zip(&batch.pieces) {
            *row = piece.row;
        }
        Ok(())
    }

    pub(super) fn epoch(&self) -> &Arc<PackedEpoch> {
        &self.world.epoch
    }

    pub(super) fn order(&self) -> Option<Arc<dyn EpochOrder>> {
        self.evened.clone().map(|evened| evened as Arc<dyn EpochOrder>)
    }
}
