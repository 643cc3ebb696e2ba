//! Orders and samplers as data, for another process of this version.

use std::any::Any;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::sampler::{DistributedSampler, Shard};
use crate::{
    Balanced, Blocks, Contiguous, Cost, Explicit, Global, IdSet, Lengths, Measure, Mixed, MixedPart, Order, Pack,
    Packed, Resized, Rotated, Sequential, Subset, Torch, Weighted,
};
use rowdex_base::error::{Error, ErrorKind, Result};

/// The orders of this crate.
#[expect(missing_docs, reason = "each is the order of its name")]
#[derive(Debug, Serialize, Deserialize)]
pub enum SavedOrder {
    Sequential(Sequential),
    Global(Global),
    Blocks(Blocks),
    Explicit {
        ids: Vec<u64>,
        rows: u64,
    },
    Torch {
        len: u64,
        seed: u64,
    },
    Weighted(Weighted),
    Balanced(Balanced),
    Mixed {
        parts: Vec<SavedPart>,
        len: u64,
        seed: u64,
    },
    Resized {
        #[serde(with = "order")]
        inner: Arc<dyn Order>,
        size: u64,
    },
    Contiguous {
        #[serde(with = "order")]
        orders: Arc<dyn Order>,
        shards: u32,
    },
    Rotated {
        #[serde(with = "order")]
        orders: Arc<dyn Order>,
    },
    Subset {
        #[serde(with = "order")]
        inner: Arc<dyn Order>,
        kept: IdSet,
    },
    Packed {
        #[serde(with = "order")]
        orders: Arc<dyn Order>,
        #[serde(with = "lengths")]
        lengths: Arc<dyn Lengths>,
        pack: Pack,
        threads: usize,
    },
}

/// One of the datasets of a mixture.
#[derive(Debug, Serialize, Deserialize)]
pub struct SavedPart {
    #[serde(with = "order")]
    orders: Arc<dyn Order>,
    rows: u64,
    proportion: f64,
}

impl SavedOrder {
    /// `None` of orders that are not of this crate.
    fn of(order: &(dyn Order + 'static)) -> Option<Self> {
        fn known<T: Clone + 'static>(order: &(dyn Order + 'static)) -> Option<T> {
            let order: &dyn Any = order;
            order.downcast_ref::<T>().cloned()
        }
        let named = known(order).map(Self::Sequential).or_else(|| known(order).map(Self::Global));
        let named = named.or_else(|| known(order).map(Self::Blocks));
        let drawn = || known(order).map(Self::Weighted).or_else(|| known(order).map(Self::Balanced));
        let changed = || {
            let order: &dyn Any = order;
            if let Some(order) = order.downcast_ref::<Resized>() {
                return Some(Self::Resized { inner: Arc::clone(order.inner()), size: order.len() });
            }
            if let Some(order) = order.downcast_ref::<Contiguous>() {
                return Some(Self::Contiguous { orders: Arc::clone(order.orders()), shards: order.shards() });
            }
            if let Some(order) = order.downcast_ref::<Rotated>() {
                return Some(Self::Rotated { orders: Arc::clone(order.orders()) });
            }
            let order = order.downcast_ref::<Subset>()?;
            Some(Self::Subset { inner: Arc::clone(order.inner()), kept: order.kept().clone() })
        };
        let torch = || known(order).map(|order: Torch| Self::Torch { len: order.len(), seed: order.seed() });
        let listed = || {
            let order: Explicit = known(order)?;
            let epoch = order.epoch(0).ok()?;
            Some(Self::Explicit { ids: (0..order.len()).filter_map(|at| epoch.row(at)).collect(), rows: order.rows()? })
        };
        let packed = || {
            let order: &dyn Any = order;
            let order = order.downcast_ref::<Packed>()?;
            let orders = Arc::clone(order.orders());
            let lengths = Arc::clone(order.lengths());
            Some(Self::Packed { orders, lengths, pack: *order.pack(), threads: order.threads() })
        };
        let mixed = || {
            let order: Mixed = known(order)?;
            let part = |part: &MixedPart| SavedPart {
                orders: Arc::clone(&part.orders),
                rows: part.rows,
                proportion: part.proportion,
            };
            Some(Self::Mixed { parts: order.given().iter().map(part).collect(), len: order.len(), seed: order.seed() })
        };
        named.or_else(drawn).or_else(mixed).or_else(changed).or_else(torch).or_else(listed).or_else(packed)
    }

    fn orders(self) -> Result<Arc<dyn Order>> {
        Ok(match self {
            Self::Sequential(order) => Arc::new(order),
            Self::Global(order) => Arc::new(order),
            Self::Blocks(order) => Arc::new(order),
            Self::Explicit { ids, rows } => Arc::new(Explicit::new(ids, rows)?),
            Self::Torch { len, seed } => Arc::new(Torch::new(len, seed)?),
            Self::Weighted(order) => Arc::new(order),
            Self::Balanced(order) => Arc::new(order),
            Self::Mixed { parts, len, seed } => {
                let part = |part: SavedPart| MixedPart::new(part.orders, part.rows, part.proportion);
                Arc::new(Mixed::new(parts.into_iter().map(part), len, seed)?)
            }
            Self::Resized { inner, size } => Arc::new(Resized::new(inner, size)?),
            Self::Contiguous { orders, shards } => Arc::new(Contiguous::new(orders, shards)?),
            Self::Rotated { orders } => Arc::new(Rotated::new(orders)),
            Self::Subset { inner, kept } => Arc::new(Subset::new(inner, kept)?),
            Self::Packed { orders, lengths, pack, threads } => {
                Arc::new(Packed::new(orders, lengths, pack)?.with_threads(threads))
            }
        })
    }
}

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
            let message =
                format!("an order of your own ({}), which another process cannot make", sampler.given().name());
            Error::new(ErrorKind::InvalidArgument, message)
        })?;
        Ok(Self {
            order,
            shard: sampler.shard(),
            batch_size: sampler.batch_size(),
            cost: sampler.state().run.and_then(|run| run.cost),
            drop_last_batch: sampler.drops_last_batch(),
        })
    }

    /// The sampler.
    ///
    /// # Errors
    ///
    /// As [`DistributedSampler::new`] and [`DistributedSampler::of_packs`].
    pub fn sampler(self) -> Result<DistributedSampler> {
        let Self { order, shard, batch_size, cost, drop_last_batch } = self;
        let batch_size = batch_size as usize;
        let sampler = match order {
            SavedOrder::Packed { orders, lengths, pack, threads } => {
                let packed = Packed::new(orders, lengths, pack)?.with_threads(threads);
                DistributedSampler::of_packs(Arc::new(packed), shard, batch_size, cost)
            }
            order => DistributedSampler::new(order.orders()?, shard, batch_size),
        };
        Ok(sampler?.with_drop_last_batch(drop_last_batch))
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

mod order {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

    use super::SavedOrder;
    use crate::Order;

    pub(super) fn serialize<S: Serializer>(order: &Arc<dyn Order>, to: S) -> Result<S::Ok, S::Error> {
        SavedOrder::of(&**order).ok_or_else(|| ser::Error::custom("an order of another crate"))?.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<dyn Order>, D::Error> {
        SavedOrder::deserialize(from)?.orders().map_err(de::Error::custom)
    }
}

mod lengths {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};

    use super::SavedLengths;
    use crate::{Lengths, Measure};

    pub(super) fn serialize<S: Serializer>(lengths: &Arc<dyn Lengths>, to: S) -> Result<S::Ok, S::Error> {
        let mut all = vec![0; lengths.len() as usize];
        let rows: Vec<u64> = (0..lengths.len()).collect();
        lengths.fill(&rows, &mut all).map_err(ser::Error::custom)?;
        let mut saved = SavedLengths { lengths: all, items: None, numbers: None, fingerprint: lengths.fingerprint() };
        match lengths.measure() {
            Some(Measure::Items(column)) => saved.items = Some(column.to_owned()),
            Some(Measure::Numbers(column)) => saved.numbers = Some(column.to_owned()),
            None => {}
        }
        saved.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<dyn Lengths>, D::Error> {
        Ok(Arc::new(SavedLengths::deserialize(from)?))
    }
}
