//! Orders and samplers as data, for another process of this version.

use std::any::Any;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};

use crate::sampler::{DistributedSampler, Shard};
use crate::{
    Balanced, Blocks, Contiguous, Cost, Explicit, Global, Lengths, Measure, Mixed, Order, Packed, Paired, Resized,
    Rotated, Scored, Sequential, Staged, Subset, Torch, Weighted,
};
use rowdex_base::error::{Error, Result};

/// The orders of this crate.
macro_rules! orders {
    ($($order:ident),+) => {
        #[derive(Debug, Serialize, Deserialize)]
        enum SavedOrder {
            $($order($order)),+
        }

        impl SavedOrder {
            /// `None` of orders that are not of this crate.
            fn of(order: &dyn Order) -> Option<Self> {
                let order: &dyn Any = order;
                $(if let Some(order) = order.downcast_ref::<$order>() {
                    return Some(Self::$order(order.clone()));
                })+
                None
            }

            fn orders(self) -> Box<dyn Order> {
                match self {
                    $(Self::$order(order) => Box::new(order)),+
                }
            }
        }
    };
}

orders!(
    Sequential, Global, Blocks, Explicit, Torch, Weighted, Scored, Balanced, Mixed, Staged, Resized, Paired,
    Contiguous, Rotated, Subset, Packed
);

/// The sampler of some rank, at the beginning of a run.
#[derive(Debug, Serialize, Deserialize)]
pub struct SavedSampler {
    order: SavedOrder,
    shard: Shard,
    batch_size: u64,
    cost: Option<Cost>,
    drop_last_batch: bool,
}

impl SavedSampler {
    /// What the sampler, or that of the rank that it is a worker's of, is made of.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for an order that is not of this crate.
    pub fn of(sampler: &DistributedSampler) -> Result<Self> {
        let sampler = sampler.part_of().map_or(sampler, |part| &part.rank);
        let order = SavedOrder::of(&**sampler.given()).ok_or_else(|| {
            let name = sampler.given().name();
            Error::invalid(format!("an order of your own ({name}), which another process cannot make"))
        })?;
        Ok(Self {
            order,
            shard: sampler.shard(),
            batch_size: sampler.batch_size(),
            cost: sampler.cost(),
            drop_last_batch: sampler.drops_last_batch(),
        })
    }

    /// The sampler.
    ///
    /// # Errors
    ///
    /// As [`DistributedSampler::new`] and [`DistributedSampler::of_packs`].
    pub fn sampler(self) -> Result<DistributedSampler> {
        let batch_size = self.batch_size as usize;
        let sampler = match self.order {
            SavedOrder::Packed(packed) => {
                DistributedSampler::of_packs(Arc::new(packed), self.shard, batch_size, self.cost)
            }
            order => DistributedSampler::new(order.orders().into(), self.shard, batch_size),
        };
        Ok(sampler?.with_drop_last_batch(self.drop_last_batch))
    }
}

/// Lengths as another process has them, with the fingerprint that they have here.
#[derive(Debug, Serialize, Deserialize)]
struct SavedLengths {
    lengths: Vec<u64>,
    items: Option<String>,
    numbers: Option<String>,
    fingerprint: u64,
}

impl Lengths for SavedLengths {
    fn len(&self) -> u64 {
        Lengths::len(&self.lengths)
    }

    fn length(&self, row: u64) -> Result<u64> {
        self.lengths.length(row)
    }

    fn measure(&self) -> Option<Measure<'_>> {
        self.items.as_deref().map(Measure::Items).or_else(|| self.numbers.as_deref().map(Measure::Numbers))
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

impl Serialize for dyn Order {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        SavedOrder::of(self).ok_or_else(|| ser::Error::custom("an order of another crate"))?.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Box<dyn Order> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(SavedOrder::deserialize(from)?.orders())
    }
}

impl Serialize for dyn Lengths {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut lengths = vec![0; self.len() as usize];
        let rows: Vec<u64> = (0..self.len()).collect();
        self.fill(&rows, &mut lengths).map_err(ser::Error::custom)?;
        let mut saved = SavedLengths { lengths, items: None, numbers: None, fingerprint: self.fingerprint() };
        match self.measure() {
            Some(Measure::Items(column)) => saved.items = Some(column.to_owned()),
            Some(Measure::Numbers(column)) => saved.numbers = Some(column.to_owned()),
            None => {}
        }
        saved.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Box<dyn Lengths> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Box::new(SavedLengths::deserialize(from)?))
    }
}
