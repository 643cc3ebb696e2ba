//! Which positions of an epoch belong to one rank.

use serde::{Deserialize, Serialize};

use crate::MAX_LEN;
use crate::names::named;
use rowdex_base::error::{Error, Result};

/// What becomes of the rows that do not divide evenly among the shards.
///
/// Written and parsed as `wrap`, `drop`, `uneven`, `error` and `even`. In a plan of packs, what is said of samples and
/// rows is true of packs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Tail {
    /// Every shard gets `ceil(n / S)` samples; the positions beyond the last row wrap around to the first ones and are
    /// marked as repeated. What `torch.utils.data.DistributedSampler` does with `drop_last=False`.
    #[default]
    Wrap,
    /// Every shard gets `floor(n / S)` samples; the last `n mod S` positions are not served. What torch does with
    /// `drop_last=True`. A shuffled order drops other rows each epoch.
    Drop,
    /// The first `n mod S` shards get one sample more than the others: every row exactly once, as an exact evaluation
    /// needs it. Steps are still equal, see [`DistributedSampler`](super::DistributedSampler).
    Uneven,
    /// Every shard gets `n / S` samples; if that is not a whole number, it is refused.
    Error,
    /// Of packs alone: packs are opened until steps are equal, which means that pieces are taken out of packs with
    /// several and become separate packs. Nothing is lost and nothing comes twice. Fewer pieces than packs of a step
    /// over all ranks are refused.
    Even,
}

named!(
    Tail,
    "tail policy",
    "use wrap, drop, uneven, error, or even for packs",
    Wrap = "wrap",
    Drop = "drop",
    Uneven = "uneven",
    Error = "error",
    Even = "even"
);

/// Which ranks form a replica group, that is, see the same shard.
///
/// Written and parsed as `consecutive` and `strided`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum ReplicationLayout {
    /// Ranks `0..k` share shard 0, ranks `k..2k` shard 1, and so on: the shard is `rank / k`.
    #[default]
    Consecutive,
    /// Ranks `0`, `S`, `2S`, … share shard 0, where `S` is the number of shards: the shard is `rank mod S`.
    Strided,
}

named!(
    ReplicationLayout,
    "replica layout",
    "use consecutive or strided",
    Consecutive = "consecutive",
    Strided = "strided"
);

/// One rank's share of any number of positions.
///
/// With `S` shards, position `q` belongs to shard `q mod S`: the p-th sample of shard `s` is position `s + p * S`. That
/// is decided after shuffling, so sharding never weakens the shuffle. Without replicas every rank is a shard.
///
/// Every method is O(1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shard {
    rank: u32,
    world_size: u32,
    tail: Tail,
    replicas: u32,
    layout: ReplicationLayout,
}

/// What is left of an epoch, and whose share of it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Rest {
    /// Which epoch it is of.
    pub(super) epoch: u64,
    /// Positions of the whole epoch's order.
    pub(super) len: u64,
    /// The first position that is left.
    pub(super) start: u64,
    /// The position at which this world took the epoch over: 0 if it began it, and `start` if it goes on where another
    /// world stopped. At a position in between it stopped itself, after a step.
    pub(super) began: u64,
    /// How many rows a step of all ranks had of the world that began the epoch, for which buckets of rows are cut; 0
    /// for as many as this world's.
    pub(super) step: u64,
    /// The rank's shard.
    pub(super) shard: Shard,
    /// Whether a short last batch is left out.
    pub(super) drop_last_batch: bool,
}

/// Samples of a rank that follow each other, at positions with equal distances.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnPositions {
    /// The position of the first one, counted from the beginning of the epoch; from the order's length on it is a pad.
    pub(super) first: u64,
    /// From each position to the next.
    pub(super) stride: u64,
    /// How many there are.
    pub(super) samples: u64,
}

/// How many samples one shard has, and the most and the fewest that any has.
#[derive(Debug, Clone, Copy)]
pub(super) struct SampleCounts {
    pub(super) own: u64,
    pub(super) most: u64,
    pub(super) fewest: u64,
}

impl Shard {
    /// The shard of `rank` in a world of `world_size` ranks, with tail [`Tail::Wrap`] and no replicas.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the world is empty or the rank is not in it.
    pub fn new(rank: u32, world_size: u32) -> Result<Self> {
        if rank >= world_size {
            let message = format!("rank {rank} is not in a world of {world_size}");
            return Err(Error::invalid(message).with_hint("ranks count from 0 to the world size less one"));
        }
        Ok(Self { rank, world_size, tail: Tail::Wrap, replicas: 1, layout: ReplicationLayout::Consecutive })
    }

    /// The same shard with another tail policy.
    #[must_use]
    pub fn with_tail(self, tail: Tail) -> Self {
        Self { tail, ..self }
    }

    /// The same rank in a world where `replicas` ranks see the same shard, as model-parallel ranks must.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` unless `replicas` divides the world size.
    pub fn with_replication(self, replicas: u32, layout: ReplicationLayout) -> Result<Self> {
        if replicas == 0 || !self.world_size.is_multiple_of(replicas) {
            let message = format!("{} ranks can not be divided into groups of {replicas}", self.world_size);
            return Err(Error::invalid(message).with_hint("the size of a replica group must divide the world size"));
        }
        Ok(Self { replicas, layout, ..self })
    }

    /// The shard of rank 0 of the same world.
    pub(super) fn first(self) -> Self {
        Self { rank: 0, ..self }
    }

    /// The rank that this is the shard of.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The number of ranks.
    pub fn world_size(&self) -> u32 {
        self.world_size
    }

    /// The tail policy.
    pub fn tail(&self) -> Tail {
        self.tail
    }

    /// How many ranks see this shard.
    pub fn replicas(&self) -> u32 {
        self.replicas
    }

    /// Which ranks those are.
    pub fn layout(&self) -> ReplicationLayout {
        self.layout
    }

    /// The number of different shards: world size / replicas.
    pub fn count(&self) -> u32 {
        self.world_size / self.replicas
    }

    /// Which of the [`count`](Self::count) shards this is.
    pub fn index(&self) -> u32 {
        match self.layout {
            ReplicationLayout::Consecutive => self.rank / self.replicas,
            ReplicationLayout::Strided => self.rank % self.count(),
        }
    }

    /// The position of sample `p`, which the caller knows to exist; so it is less than 2^63 + 2^32.
    pub(super) fn place(&self, p: u64) -> u64 {
        u64::from(self.index()) + p * u64::from(self.count())
    }

    /// How many of `n` positions this shard serves, pads included.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if `n` exceeds [`MAX_LEN`], or if the tail policy is [`Tail::Error`] and the number of shards
    /// does not divide `n`.
    pub(super) fn share(&self, n: u64) -> Result<SampleCounts> {
        if n > MAX_LEN {
            let message = format!("{n} positions are more than the {MAX_LEN} that are possible");
            return Err(Error::invalid(message));
        }
        let shards = u64::from(self.count());
        let each = n / shards;
        let rest = n % shards;
        let equal = |samples| SampleCounts { own: samples, most: samples, fewest: samples };
        let more = u64::from(rest > 0);
        match self.tail {
            Tail::Wrap => Ok(equal(each + more)),
            Tail::Drop => Ok(equal(each)),
            Tail::Uneven => {
                let own = each + u64::from(u64::from(self.index()) < rest);
                Ok(SampleCounts { own, most: each + more, fewest: each })
            }
            Tail::Error if rest == 0 => Ok(equal(each)),
            Tail::Error => {
                let message = format!("{n} rows do not divide evenly among {shards} shards: {rest} are left over");
                Err(Error::invalid(message)
                    .with_hint("use the tail policy wrap, drop or uneven, or another world size"))
            }
            Tail::Even => Err(Error::invalid("the tail policy even is for packs, not for rows")
                .with_hint("use the tail policy wrap, drop or uneven")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowdex_base::error::ErrorKind;

    fn world(size: u32, tail: Tail) -> impl Iterator<Item = Shard> {
        (0..size).map(move |rank| Shard::new(rank, size).unwrap().with_tail(tail))
    }

    fn positions(shard: Shard, n: u64) -> Vec<u64> {
        (0..shard.share(n).unwrap().own).map(|p| shard.place(p)).collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "deals too many positions for Miri")]
    fn all_shards_together_have_every_position_once() {
        for n in (0..80_u64).chain(500..520) {
            for size in 1..=17 {
                let up = n.div_ceil(u64::from(size)) * u64::from(size);
                let down = n / u64::from(size) * u64::from(size);
                for (tail, total) in [(Tail::Wrap, up), (Tail::Drop, down), (Tail::Uneven, n)] {
                    let mut all: Vec<u64> = world(size, tail).flat_map(|shard| positions(shard, n)).collect();
                    all.sort_unstable();
                    assert!(all.into_iter().eq(0..total), "{n} {size} {tail}");
                }
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "deals too many positions for Miri")]
    fn counts_are_equal_and_those_of_uneven_differ_by_one_at_most() {
        for n in (0..80).chain(500..520) {
            for size in 1..=17 {
                for tail in [Tail::Wrap, Tail::Drop, Tail::Uneven] {
                    let counts: Vec<u64> = world(size, tail).map(|shard| positions(shard, n).len() as u64).collect();
                    let most = *counts.iter().max().unwrap();
                    let fewest = *counts.iter().min().unwrap();
                    assert!(most - fewest <= u64::from(tail == Tail::Uneven));
                    for (shard, count) in world(size, tail).zip(counts) {
                        let share = shard.share(n).unwrap();
                        assert_eq!((share.own, share.most, share.fewest), (count, most, fewest));
                    }
                }
            }
        }
    }

    #[test]
    fn the_error_tail_refuses_exactly_what_does_not_divide() {
        for n in 0..100 {
            for size in 1..=17 {
                let shard = Shard::new(0, size).unwrap().with_tail(Tail::Error);
                match shard.share(n) {
                    Ok(share) => assert_eq!(share.own * u64::from(size), n),
                    Err(error) => {
                        assert_ne!(n % u64::from(size), 0);
                        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
                    }
                }
            }
        }
    }

    #[test]
    fn fewer_rows_than_ranks_leave_nobody_short_unless_asked_to() {
        let samples = |tail| world(5, tail).map(|shard| shard.share(3).unwrap().own).collect::<Vec<_>>();
        assert_eq!(samples(Tail::Wrap), [1, 1, 1, 1, 1]);
        assert_eq!(samples(Tail::Drop), [0, 0, 0, 0, 0]);
        assert_eq!(samples(Tail::Uneven), [1, 1, 1, 0, 0]);
    }

    #[test]
    fn the_largest_worlds_and_lengths_do_not_overflow() {
        for tail in [Tail::Wrap, Tail::Drop, Tail::Uneven] {
            for rank in [0, 1, u32::MAX - 1] {
                let shard = Shard::new(rank, u32::MAX).unwrap().with_tail(tail);
                let samples = shard.share(MAX_LEN).unwrap().own;
                assert_eq!(shard.place(samples - 1), u64::from(rank) + (samples - 1) * u64::from(u32::MAX));
            }
        }
        let error = Shard::new(0, 1).unwrap().share(MAX_LEN + 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }

    #[test]
    fn replica_groups_are_consecutive_or_strided_ranks() {
        let indices = |layout| -> Vec<u32> {
            (0..6).map(|rank| Shard::new(rank, 6).unwrap().with_replication(2, layout).unwrap().index()).collect()
        };
        assert_eq!(indices(ReplicationLayout::Consecutive), [0, 0, 1, 1, 2, 2]);
        assert_eq!(indices(ReplicationLayout::Strided), [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn replicas_of_a_world_are_shards_of_a_smaller_one() {
        for (size, replicas) in [(6, 1), (6, 2), (6, 3), (6, 6), (16, 4)] {
            for layout in [ReplicationLayout::Consecutive, ReplicationLayout::Strided] {
                for rank in 0..size {
                    let shard = Shard::new(rank, size).unwrap().with_replication(replicas, layout).unwrap();
                    let plain = Shard::new(shard.index(), size / replicas).unwrap();
                    assert_eq!(positions(shard, 101), positions(plain, 101));
                }
            }
        }
    }

    #[test]
    fn impossible_worlds_are_refused() {
        let shard = Shard::new(0, 6).unwrap();
        let refused = [
            Shard::new(0, 0),
            Shard::new(3, 3),
            Shard::new(u32::MAX, u32::MAX),
            shard.with_replication(0, ReplicationLayout::Strided),
            shard.with_replication(4, ReplicationLayout::Consecutive),
            shard.with_replication(12, ReplicationLayout::Consecutive),
        ];
        for result in refused {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
    }

    #[test]
    fn names_are_parsed_as_they_are_written() {
        for tail in [Tail::Wrap, Tail::Drop, Tail::Uneven, Tail::Error, Tail::Even] {
            assert_eq!(tail.to_string().parse::<Tail>().unwrap(), tail);
        }
        for layout in [ReplicationLayout::Consecutive, ReplicationLayout::Strided] {
            assert_eq!(layout.to_string().parse::<ReplicationLayout>().unwrap(), layout);
        }
        assert_eq!("Wrap".parse::<Tail>().unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!("".parse::<ReplicationLayout>().unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}
