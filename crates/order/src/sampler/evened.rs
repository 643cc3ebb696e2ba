//! Packs of a step, dealt to the ranks by what they cost.

use std::sync::Arc;

use super::world::World;
use crate::recent::Recent;
use crate::{Cost, EpochOrder, Uses};
use rowdex_base::error::Result;

/// How many steps are kept.
const STEPS: usize = 4;

/// The order of an epoch in which the packs of each full step come in another sequence: those of rank 0 first, as their
/// cost deals them. So the packs of a rank still follow each other.
#[derive(Debug)]
pub(super) struct Evened {
    cost: Cost,
    world: Arc<World>,
    recent: Recent<u64, Arc<EvenedStep>>,
}

/// One step.
#[derive(Debug)]
pub(super) struct EvenedStep {
    /// The number of its first pack.
    first: u64,
    /// Where each of its packs begins, and where the last one ends.
    bounds: Vec<u64>,
    /// Where the pieces of each are in the epoch's own order.
    sources: Vec<u64>,
}

impl EvenedStep {
    /// Where a pack begins: one of the step, or the one after.
    pub(super) fn bound(&self, pack: u64) -> u64 {
        self.bounds[(pack - self.first) as usize]
    }

    /// Where its pieces are in the epoch's own order.
    pub(super) fn source(&self, pack: u64) -> u64 {
        self.sources[(pack - self.first) as usize]
    }
}

impl Evened {
    pub(super) fn new(cost: Cost, world: Arc<World>) -> Self {
        Self { cost, world, recent: Recent::new(STEPS) }
    }

    /// A step of the world, if it is a full one.
    pub(super) fn step(&self, number: u64) -> Result<Option<Arc<EvenedStep>>> {
        if number >= self.world.full() {
            return Ok(None);
        }
        self.recent.get(number, || Ok(Arc::new(self.dealt(number)?))).map(Some)
    }

    fn dealt(&self, number: u64) -> Result<EvenedStep> {
        let world = &self.world;
        let packs = self.world.of_step();
        let first = number * packs;
        let own = (first..=first + packs).map(|pack| world.bound(pack)).collect::<Result<Vec<_>>>()?;
        let mut pieces = Vec::new();
        let mut costs = Vec::with_capacity(own.len());
        for ends in own.windows(2) {
            pieces.clear();
            world.epoch.read(ends[0], ends[1] - ends[0], &mut pieces)?;
            costs.push(self.cost.of(pieces.iter().map(|piece| piece.length)));
        }
        let mut end = own[0];
        let mut bounds = vec![own[0]];
        let mut sources = Vec::new();
        for pack in Cost::deal(&costs, world.shards() as usize) {
            end += own[pack + 1] - own[pack];
            bounds.push(end);
            sources.push(own[pack]);
        }
        Ok(EvenedStep { first, bounds, sources })
    }

    /// The position in the epoch's own order of one in this order, or the other way round.
    fn moved(&self, position: u64, back: bool) -> Option<u64> {
        let Some(pack) = self.world.pack_of(position).ok()? else { return Some(position) };
        let Some(step) = self.step(pack / self.world.of_step()).ok()? else { return Some(position) };
        if back {
            let holds = |i: &usize| {
                let past = position.checked_sub(step.sources[*i]);
                past.is_some_and(|past| past < step.bounds[*i + 1] - step.bounds[*i])
            };
            let at = (0..step.sources.len()).find(holds)?;
            return Some(step.bounds[at] + (position - step.sources[at]));
        }
        let at = step.bounds.partition_point(|bound| *bound <= position).checked_sub(1)?;
        Some(step.sources.get(at)? + (position - step.bounds[at]))
    }
}

impl EpochOrder for Evened {
    fn len(&self) -> u64 {
        self.world.epoch.len()
    }

    fn row(&self, position: u64) -> Option<u64> {
        if position >= self.len() {
            return None;
        }
        self.world.epoch.row(self.moved(position, false)?)
    }

    fn position(&self, row: u64) -> Option<u64> {
        self.moved(self.world.epoch.position(row)?, true)
    }

    fn uses(&self) -> Uses {
        self.world.epoch.uses()
    }
}
