//! Batches of as many packs on every rank.

use std::sync::Arc;

use super::batch::BatchPlan;
use super::evened::{Evened, EvenedStep};
use super::shard::{OwnPositions, Rest};
use super::world::World;
use crate::{Cost, EpochOrder, PackedEpoch};
use rowdex_base::error::Result;

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
    pub(super) fn new(epoch: Arc<PackedEpoch>, batch_size: u64, cost: Option<Cost>, rest: Rest) -> Result<Self> {
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
