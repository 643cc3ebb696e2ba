//! What would let a loader decode less, with what its plan does then.

use std::sync::Arc;

use super::LoaderBuilder;
use super::predict::Prediction;
use rowdex_base::error::Result;
use rowdex_order::sampler::{DistributedSampler, Shard};
use rowdex_order::{Order, OrderSpec, Sequential};

/// One way for a loader to decode less, from [`LoaderBuilder::advise`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Advice {
    /// What to do.
    pub means: Means,
    /// Passes of every epoch after the first, then. Where ranks share a loader it is the part of each.
    pub passes: f64,
    /// Bytes read in every epoch after the first, then. Where ranks share a loader it is the part of each.
    pub bytes_read: u64,
}

/// What can be done for a loader to decode less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Means {
    /// [Memory](LoaderBuilder::memory) of so many bytes.
    Memory(u64),
    /// The order `blocks(k)` of this `k`: rows are shuffled within windows of `k` row groups.
    Blocks(u64),
    /// Writing the rows anew in a random order, and reading them in that of the files: `rowdex rewrite`, and the order
    /// `sequential`.
    Rewrite,
    /// [Sharing](LoaderBuilder::share) one loader among so many ranks of a machine, with the memory of all of them.
    Share(u32),
}

/// With fewer passes nothing is advised: at least one is what any order takes that follows no row groups.
const ENOUGH: f64 = 2.0;

/// More passes than this are many.
const MANY: f64 = 4.0;

/// What saves less is not advised.
const LEAST_GAIN: f64 = 0.1;

/// Windows that are tried, larger ones first, because they shuffle better.
const WINDOWS: [u64; 4] = [64, 16, 4, 1];

/// Orders that are walked row by row are not tried beyond so many rows.
const MOST_ROWS: u64 = 1 << 24;

/// Ranks that a machine is taken to have, at most.
const RANKS: u32 = 8;

impl LoaderBuilder {
    /// What would let the loader decode less, best first, by the same plan that [`predict`](Self::predict) runs: more
    /// memory, a more local order, rows that are written anew in random order, one loader for several ranks. Each saves
    /// at least a tenth of the passes. Nothing where an epoch takes fewer than two passes.
    ///
    /// Takes some times as long as a prediction.
    ///
    /// # Errors
    ///
    /// Those of [`predict`](Self::predict).
    pub fn advise(&self) -> Result<Vec<Advice>> {
        let told = self.predict()?;
        if told.passes < ENOUGH {
            return Ok(Vec::new());
        }
        let mut advice = vec![self.more_memory(&told)?];
        if let Some(sampler) = self.samplers.first().filter(|sampler| self.may_change_order(sampler)) {
            advice.extend(self.smaller_windows(&told)?);
            advice.push(self.rewritten(sampler)?);
        }
        advice.extend(self.shared()?);
        advice.retain(|advice| advice.passes <= told.passes * (1.0 - LEAST_GAIN));
        advice.sort_by(|one, other| one.passes.total_cmp(&other.passes));
        Ok(advice)
    }

    /// As much as brings the passes down to a few, or to one where they are few.
    fn more_memory(&self, told: &Prediction) -> Result<Advice> {
        const MIB: u64 = 1 << 20;
        const TRIES: usize = 6;
        let target = if told.passes > MANY { MANY } else { 1.0 };
        // Passes are in inverse proportion to the memory.
        let mut memory = self.options.memory.max(1) as f64 * told.passes / target * 1.05;
        let mut advice = None;
        for _ in 0..TRIES {
            let bytes = (memory as u64).next_multiple_of(MIB);
            let then = self.clone().memory(bytes).predict()?;
            let enough = then.passes <= target;
            advice = Some(Advice::of(Means::Memory(bytes), &then, 1));
            if enough {
                break;
            }
            memory *= 1.2;
        }
        Ok(advice.unwrap_or_else(|| Advice::of(Means::Memory(self.options.memory), told, 1)))
    }

    /// Whether another order of the same rows is as good as the one that is given: a random one.
    fn may_change_order(&self, sampler: &DistributedSampler) -> bool {
        let rows: u64 = (0..self.groups.count()).map(|group| self.groups.unit(group).size.rows).sum();
        let is_random = matches!(sampler.given().name(), "global" | "blocks" | "torch");
        is_random
            && sampler.packed().is_none()
            && sampler.part_of().is_none()
            && sampler.orders().len() == rows
            && rows <= MOST_ROWS
    }

    /// The largest windows that save enough.
    fn smaller_windows(&self, told: &Prediction) -> Result<Option<Advice>> {
        let group_rows: Vec<u64> = (0..self.groups.count()).map(|group| self.groups.unit(group).size.rows).collect();
        for k in WINDOWS.into_iter().filter(|k| *k < group_rows.len() as u64) {
            let then = self.with_orders(OrderSpec::Blocks(k).orders(&group_rows, 0)?)?.predict()?;
            if then.passes < ENOUGH.min(told.passes * (1.0 - LEAST_GAIN)) {
                return Ok(Some(Advice::of(Means::Blocks(k), &then, 1)));
            }
        }
        Ok(None)
    }

    fn rewritten(&self, sampler: &DistributedSampler) -> Result<Advice> {
        let orders: Arc<dyn Order> = Arc::new(Sequential::new(sampler.orders().len())?);
        Ok(Advice::of(Means::Rewrite, &self.with_orders(orders)?.predict()?, 1))
    }

    /// The same loader with other orders, of the same ranks.
    fn with_orders(&self, orders: Arc<dyn Order>) -> Result<Self> {
        let of = |like: &DistributedSampler| {
            DistributedSampler::new(Arc::clone(&orders), like.shard(), like.batch_size() as usize)
        };
        Ok(Self { samplers: self.samplers.iter().map(of).collect::<Result<_>>()?, ..self.clone() })
    }

    /// One loader for the ranks of a machine, as long as each has one of its own.
    fn shared(&self) -> Result<Option<Advice>> {
        let [sampler] = &self.samplers[..] else { return Ok(None) };
        let shard = sampler.shard();
        let ranks = shard.world_size().min(RANKS);
        // Those of a replica group serve the same rows, and are told apart by nothing that is known here.
        let alike = shard.count() != shard.world_size();
        if ranks < 2 || alike || self.share.is_some() || sampler.packed().is_some() || sampler.part_of().is_some() {
            return Ok(None);
        }
        let first = shard.rank() / ranks * ranks;
        let of = |rank| {
            let shard = Shard::new(rank, shard.world_size())?.with_tail(shard.tail());
            DistributedSampler::new(Arc::clone(sampler.given()), shard, sampler.batch_size() as usize)
        };
        let last = (first + ranks).min(shard.world_size());
        let samplers = (first..last).map(of).collect::<Result<Vec<_>>>()?;
        let ranks = last - first;
        let memory = self.options.memory.saturating_mul(u64::from(last - first));
        let together = Self { samplers, ..self.clone() }.memory(memory).predict()?;
        Ok(Some(Advice::of(Means::Share(ranks), &together, ranks)))
    }
}

impl Advice {
    /// What a loader of so many ranks does, for each of them.
    fn of(means: Means, told: &Prediction, ranks: u32) -> Self {
        Self { means, passes: told.passes / f64::from(ranks), bytes_read: told.bytes_read / u64::from(ranks.max(1)) }
    }
}
