//! Consecutive pieces of an order, one for each shard.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::fingerprint::fingerprint;
use super::names::named;
use super::{EpochOrder, Order, Outline, Uses, reachable};
use rowdex_base::error::{Error, Result};

/// Other orders, assigned in consecutive pieces: shard `s` of `S` gets the `s`-th of `S` equal pieces of each epoch, in
/// their order.
///
/// [`Shard`](crate::sampler::Shard) assigns positions in turn, `q` to shard `q mod S`. These orders move the `p`-th
/// position of the `s`-th piece to position `s + p * S`, so that assigning in turn gives every shard its piece;
/// everything that holds for sharding holds here. Where `S` does not divide the number of positions, the first pieces
/// are one longer.
///
/// With [`Blocks`](super::Blocks) inside, every row group is then read by one rank, or by two where a piece ends in it,
/// instead of by all of them: it is decoded about once an epoch on all ranks together. The price is that ranks draw
/// from different parts of an epoch: a step is no longer a random sample of all rows, but `S` samples of `S` parts,
/// which change every epoch as the order inside does.
///
/// `S` is a part of the orders. So what a step trains on depends on it, unlike with the orders inside, and a state is
/// resumed with the `S` that the run had, on any number of ranks.
///
/// One position costs what it costs inside, and so does its inverse.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Contiguous {
    #[serde(with = "crate::shared")]
    orders: Arc<dyn Order>,
    shards: u32,
}

impl Contiguous {
    const NAME: &str = "contiguous";

    /// `orders` in pieces for so many shards: the [count](crate::sampler::Shard::count) of the shard that will serve
    /// them.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if there are no shards.
    pub fn new(orders: Arc<dyn Order>, shards: u32) -> Result<Self> {
        if shards == 0 {
            return Err(Error::invalid("consecutive pieces for 0 shards").with_hint("use 1 or more"));
        }
        Ok(Self { orders, shards })
    }
}

/// How the positions of an epoch are dealt to the shards.
///
/// Written and parsed as `strided` and `contiguous`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Partition {
    /// In turn: position `q` to shard `q mod S`.
    #[default]
    Strided,
    /// In consecutive pieces: [`Contiguous`].
    Contiguous,
}

impl Partition {
    /// The orders that deal `orders` to so many shards this way.
    ///
    /// # Errors
    ///
    /// Those of [`Contiguous::new`].
    pub fn orders(self, orders: Arc<dyn Order>, shards: u32) -> Result<Arc<dyn Order>> {
        match self {
            Self::Strided => Ok(orders),
            Self::Contiguous => Ok(Arc::new(Contiguous::new(orders, shards)?)),
        }
    }
}

named!(Partition, "partition", "use strided or contiguous", Strided = "strided", Contiguous = "contiguous");

impl Order for Contiguous {
    fn len(&self) -> u64 {
        self.orders.len()
    }

    fn rows(&self) -> Option<u64> {
        self.orders.rows()
    }

    /// # Errors
    ///
    /// Those of the orders inside.
    fn epoch(&self, epoch: u64) -> Result<Arc<dyn EpochOrder>> {
        Ok(Arc::new(ContiguousEpoch { order: self.orders.epoch(epoch)?, shards: u64::from(self.shards) }))
    }

    fn fingerprint(&self) -> u64 {
        fingerprint(Self::NAME, self.len(), &[u64::from(self.shards), self.orders.fingerprint()])
    }

    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn outline(&self) -> Outline {
        self.orders.outline().contiguous(self.shards)
    }

    fn is_same_every_epoch(&self) -> bool {
        self.orders.is_same_every_epoch()
    }

    fn follows_row_groups(&self) -> bool {
        self.orders.follows_row_groups()
    }
}

/// One epoch of [`Contiguous`].
#[derive(Debug)]
pub(super) struct ContiguousEpoch {
    pub(super) order: Arc<dyn EpochOrder>,
    pub(super) shards: u64,
}

impl ContiguousEpoch {
    /// The position inside of a position that exists.
    pub(super) fn inside(&self, position: u64) -> u64 {
        let each = self.len() / self.shards;
        let rest = self.len() % self.shards;
        let shard = position % self.shards;
        let sample = position / self.shards;
        shard * each + shard.min(rest) + sample
    }

    /// The position that a position inside is moved to.
    pub(super) fn outside(&self, position: u64) -> u64 {
        let each = self.len() / self.shards;
        let rest = self.len() % self.shards;
        let longer = rest * (each + 1);
        let (shard, sample) = match position.checked_sub(longer) {
            None => (position / (each + 1), position % (each + 1)),
            // Positions beyond the longer pieces exist only if the others have some.
            Some(position) => (rest + position / each.max(1), position % each.max(1)),
        };
        shard + sample * self.shards
    }
}

impl EpochOrder for ContiguousEpoch {
    fn len(&self) -> u64 {
        self.order.len()
    }

    fn uses(&self) -> Uses {
        self.order.uses()
    }

    fn occurrence(&self, position: u64) -> u64 {
        self.order.occurrence(self.inside(position))
    }

    fn row(&self, position: u64) -> Option<u64> {
        if position >= self.len() {
            return None;
        }
        self.order.row(self.inside(position))
    }

    fn position(&self, row: u64) -> Option<u64> {
        self.order.position(row).filter(|position| *position < self.len()).map(|position| self.outside(position))
    }

    fn fill_strided(&self, first: u64, stride: u64, rows: &mut [u64]) -> usize {
        let count = reachable(first, stride, self.len(), rows.len());
        let rows = &mut rows[..count];
        // Every `classes`-th position asked for is in the same piece, `inner` further on.
        let common = gcd(self.shards, stride);
        let classes = self.shards / common;
        let inner = stride / common;
        if classes == 1 {
            return match rows.is_empty() {
                true => 0,
                false => self.order.fill_strided(self.inside(first), inner, rows),
            };
        }
        let classes = usize::try_from(classes).map_or(count, |classes| classes.min(count));
        let mut piece = vec![0; if classes == 0 { 0 } else { count.div_ceil(classes) }];
        let mut end = count;
        for class in 0..classes {
            let piece = &mut piece[..(count - class).div_ceil(classes)];
            let first = self.inside(first + class as u64 * stride);
            let written = match piece {
                [row] => self.order.row(first).map(|inside| *row = inside).is_some().into(),
                _ => self.order.fill_strided(first, inner, piece),
            };
            for (slot, row) in rows[class..].iter_mut().step_by(classes).zip(&piece[..written]) {
                *slot = *row;
            }
            if written < piece.len() {
                end = end.min(class + written * classes);
            }
        }
        end
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::{DistributedSampler, Shard, Tail};
    use crate::{Global, Sequential};
    use rowdex_base::error::ErrorKind;

    fn sequential(n: u64, shards: u32) -> Arc<dyn Order> {
        Arc::new(Contiguous::new(Arc::new(Sequential::new(n).unwrap()), shards).unwrap())
    }

    fn rows_of(orders: &Arc<dyn Order>, rank: u32, size: u32, tail: Tail) -> Vec<u64> {
        let shard = Shard::new(rank, size).unwrap().with_tail(tail);
        let sampler = DistributedSampler::new(Arc::clone(orders), shard, 2).unwrap();
        sampler.plan(0).unwrap().samples().map(|sample| sample.unwrap().row).collect()
    }

    #[test]
    fn every_rank_gets_one_piece() {
        for n in 0..60 {
            for shards in 1..9 {
                let orders = sequential(n, shards);
                let mut next = 0;
                for rank in 0..shards {
                    let rows = rows_of(&orders, rank, shards, Tail::Uneven);
                    let end = next + rows.len() as u64;
                    assert!(rows.into_iter().eq(next..end), "{n} {shards}");
                    next = end;
                }
                assert_eq!(next, n);
            }
        }
    }

    #[test]
    fn tails_wrap_and_drop_at_the_ends_of_the_pieces() {
        let orders = sequential(10, 4);
        let rows = |tail| [0, 1, 2, 3].map(|rank| rows_of(&orders, rank, 4, tail));
        assert_eq!(rows(Tail::Drop), [[0, 1], [3, 4], [6, 7], [8, 9]]);
        assert_eq!(rows(Tail::Wrap), [[0, 1, 2], [3, 4, 5], [6, 7, 0], [8, 9, 3]]);
    }

    #[test]
    fn the_number_of_shards_and_the_orders_inside_are_in_the_fingerprint() {
        let global = |seed| -> Arc<dyn Order> { Arc::new(Global::new(100, seed).unwrap()) };
        let fingerprint = |seed, shards| Contiguous::new(global(seed), shards).unwrap().fingerprint();
        assert_eq!(fingerprint(1, 4), fingerprint(1, 4));
        assert_ne!(fingerprint(1, 4), fingerprint(1, 5));
        assert_ne!(fingerprint(1, 4), fingerprint(2, 4));
        assert_ne!(fingerprint(1, 1), global(1).fingerprint());
    }

    /// Saved states carry it.
    #[test]
    fn the_fingerprint_of_version_1_is_frozen() {
        let orders = Contiguous::new(Arc::new(Global::new(100, 1).unwrap()), 4).unwrap();
        assert_eq!(orders.fingerprint(), 0x5383_8c10_7542_d426);
    }

    #[test]
    fn partitions_are_parsed_as_they_are_written() {
        for partition in [Partition::Strided, Partition::Contiguous] {
            assert_eq!(partition.to_string().parse::<Partition>().unwrap(), partition);
            let orders = partition.orders(Arc::new(Sequential::new(10).unwrap()), 3).unwrap();
            assert_eq!(orders.name() == "contiguous", partition == Partition::Contiguous);
        }
        assert_eq!("Strided".parse::<Partition>().unwrap_err().kind(), ErrorKind::InvalidArgument);
    }

    #[test]
    fn no_shards_are_refused() {
        let error = Contiguous::new(Arc::new(Sequential::new(3).unwrap()), 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}
