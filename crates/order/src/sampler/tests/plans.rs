//! The plans that the lists of promises run over.

use std::sync::Arc;

use super::{Cost, DistributedSampler, Lengths, Order, Pack, Packed, Result, Shard};

/// What decides the batches.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cut {
    Rows(usize),
    /// So many packs, of rows whose lengths this is the seed of; dealt by cost if it is a multiple of three.
    Packs(usize, u64),
}

impl From<usize> for Cut {
    fn from(batch_size: usize) -> Self {
        Self::Rows(batch_size)
    }
}

impl Cut {
    pub(crate) fn sampler(self, orders: &Arc<dyn Order>, shard: Shard) -> DistributedSampler {
        let orders = Arc::clone(orders);
        match self {
            Self::Rows(batch_size) => DistributedSampler::new(orders, shard, batch_size).unwrap(),
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
