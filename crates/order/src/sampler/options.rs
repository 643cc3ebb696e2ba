//! Whose batches, of which size: what makes a sampler beside its orders.

use std::sync::Arc;
use std::thread;

use super::pack_spec::PackSpec;
use super::{DistributedSampler, Shard, Tail};
use crate::{Lengths, Order, Packed, Rotated};
use rowdex_base::error::{Error, Result};

/// Which rank gets which batches of some orders: the value that the command line, C and Python hand over with a
/// [`Recipe`](crate::Recipe).
#[derive(Debug, Clone, Copy)]
pub struct SamplerOptions {
    /// Whose.
    pub shard: Shard,
    /// Rows, or packs, per step and rank.
    pub batch_size: usize,
    /// Whether a short last batch is left out, see [`DistributedSampler::with_drop_last_batch`].
    pub drop_last_batch: bool,
    /// Whether epochs that would all be the same begin elsewhere each time; `None` where that is needed, see
    /// [`DistributedSampler::with_rotation`]. Packs need it where the tail policy drops or repeats some.
    pub rotation: Option<bool>,
}

impl SamplerOptions {
    /// With batches of so many, and nothing else asked for.
    pub fn of(shard: Shard, batch_size: usize) -> Self {
        Self { shard, batch_size, drop_last_batch: false, rotation: None }
    }

    /// The sampler of batches of rows.
    ///
    /// # Errors
    ///
    /// Those of [`DistributedSampler::new`].
    pub fn sampler(&self, orders: Arc<dyn Order>) -> Result<DistributedSampler> {
        let sampler = DistributedSampler::new(orders, self.shard, self.batch_size)?;
        let sampler = sampler.with_drop_last_batch(self.drop_last_batch);
        Ok(match self.rotation {
            Some(rotation) => sampler.with_rotation(rotation),
            None => sampler,
        })
    }

    /// The sampler of batches of packs, which `pack` describes, by the `lengths` of the rows that the orders choose
    /// from. All cores plan an epoch.
    ///
    /// # Errors
    ///
    /// Those of [`Packed::new`] and [`DistributedSampler::of_packs`]; `InvalidArgument` for orders that assign
    /// positions [in pieces](crate::Contiguous), as packs are assigned step by step.
    pub fn sampler_of_packs(
        &self,
        orders: Arc<dyn Order>,
        lengths: Arc<dyn Lengths>,
        pack: &PackSpec,
    ) -> Result<DistributedSampler> {
        if orders.outline().pieces.is_some() {
            let message = "packs of positions that are assigned in one piece to each rank (partition contiguous)";
            return Err(Error::invalid(message).with_hint("leave the partition out: packs are assigned step by step"));
        }
        let repeats = matches!(self.shard.tail(), Tail::Wrap | Tail::Drop) || self.drop_last_batch;
        let rotated = orders.is_same_every_epoch() && self.rotation.unwrap_or(repeats);
        let orders = if rotated { Arc::new(Rotated::new(orders)) } else { orders };
        let packed = Packed::new(orders, lengths, pack.pack).map_err(|error| error.with_column(&*pack.lengths))?;
        let packed = packed.with_threads(thread::available_parallelism().map_or(1, usize::from));
        let sampler = DistributedSampler::of_packs(Arc::new(packed), self.shard, self.batch_size, pack.cost)?;
        Ok(sampler.with_drop_last_batch(self.drop_last_batch))
    }
}
