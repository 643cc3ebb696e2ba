//! Which row comes at which position.
//!
//! An [`EpochOrder`] is one epoch's order, a pure function from position to row id. [`Order`] gives the order of every
//! epoch of a run, a pure function of the number of rows, the seed and the epoch. Nothing is drawn during a run, so
//! every rank, thread, worker and language that knows those three numbers agrees on the order without communication.
//!
//! | orders | what it serves | memory per epoch | cost of one position |
//! | --- | --- | --- | --- |
//! | [`Sequential`] | rows 0, 1, 2, … | none | none |
//! | [`Global`] | a permutation of all rows, another one each epoch | 4 bytes a row up to 2^16 rows, else 88 bytes | tens of nanoseconds |
//! | [`Blocks`] | row groups shuffled, and rows within windows of `k` of them | 16 bytes a row group, and at most 64 MiB | see there |
//! | [`Explicit`] | a given list of row ids | the list | a memory access |
//! | [`Torch`] | what PyTorch's `DistributedSampler` serves, number for number | 4 bytes a row | a memory access; preparing an epoch, a draw a row |
//! | [`Weighted`] | rows drawn by weight, with or without replacement | none beyond 16 bytes a row in all, or 4 bytes a position | tens of nanoseconds |
//! | [`Scored`] | rows by a score, in folds | 8 bytes a row in all | about 0.1 µs |
//! | [`Balanced`] | classes equally often, or by proportion | 8 bytes a row in all | about 0.2 µs |
//! | [`Mixed`] | several datasets by proportion | theirs | theirs, and about 0.1 µs |
//! | [`Staged`] | several datasets by weights that change in the course of a run | theirs | theirs, and about 5 ns a level of a tree over them |
//! | [`Resized`] | other orders, in epochs of another length | theirs | theirs |
//! | [`Packed`] | the rows of other orders as pieces of packs, by their [`Lengths`] | theirs, and 16 bytes a block and a few blocks | theirs, and packing a block once |
//! | [`Subset`] | other orders, over the rows that an [`IdSet`] keeps | theirs, and at most 1.0625 bits a row | theirs, and O(log n) |
//!
//! Three more change others: [`Paired`] serves every epoch once more, backwards; [`Contiguous`] assigns one consecutive
//! piece to every shard; and [`Rotated`] begins elsewhere each epoch. An [`IdSet`] comes from a list of rows to skip,
//! or from a [`Split`] into training and validation rows.
//!
//! A [`Recipe`] describes orders made of all of these, over the rows of a [`RowLayout`]. The command line, the C API
//! and the Python package make their orders from one, so that the same options mean the same order everywhere.
//!
//! Positions and row ids are `u64` below 2^63. What comes after sharding is the business of [`sampler`].
//!
//! `docs/orders.md` specifies every built-in order exactly enough to write it again in another language. A built-in
//! order never changes: a better one would come under another name or version.

mod balanced;
mod blocks;
#[cfg(test)]
mod conformance;
mod contiguous;
mod explicit;
mod feistel;
mod fingerprint;
mod fisher_yates;
mod global;
pub mod id_set;
mod layout;
mod lengths;
mod mixed;
mod mt19937;
mod names;
mod outline;
mod pack;
mod paired;
mod permutation;
mod philox;
mod quotas;
mod recent;
mod recipe;
mod resized;
mod rotated;
pub mod sampler;
mod saved;
mod scored;
mod sequential;
mod shared;
mod source_schedule;
mod split;
mod stage_plan;
mod staged;
mod stages;
mod subset;
mod table;
mod torch;
mod weighted;

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

pub use self::balanced::Balanced;
pub use self::blocks::Blocks;
pub use self::contiguous::{Contiguous, Partition};
pub use self::explicit::{Explicit, ExplicitIds};
pub(crate) use self::fingerprint::fingerprint;
pub use self::global::Global;
pub use self::id_set::IdSet;
pub use self::layout::RowLayout;
pub use self::lengths::{JoinedLengths, Lengths, Measure};
pub use self::mixed::{Mixed, MixedPart};
pub use self::outline::{OrderKind, OrderSpec, Outline};
pub use self::pack::{Algorithm, Cost, Empty, Overflow, Pack, PackCounts, Packed, PackedEpoch, Piece};
pub use self::paired::Paired;
pub use self::philox::augment_key;
pub use self::recipe::{Recipe, RecipeBase};
pub use self::resized::Resized;
pub use self::rotated::Rotated;
#[doc(hidden)]
pub use self::saved::SavedSampler;
pub use self::scored::Scored;
pub use self::sequential::Sequential;
pub use self::split::{Side, Split};
pub use self::stage_plan::{OnExhausted, Ramp, StagePlan};
pub use self::staged::Staged;
pub use self::subset::Subset;
pub use self::torch::Torch;
pub use self::weighted::Weighted;
use rowdex_base::error::{Error, Result};

/// The most positions an order may have: 2^63 - 1, so that positions fit the signed integers of Arrow and Python, and
/// the repeated rows after the last position still fit `u64`.
pub const MAX_LEN: u64 = i64::MAX as u64;

/// How often one epoch's order serves a row. See [`EpochOrder::uses`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Uses {
    /// Every row id below the order's length exactly once: a permutation.
    Once,
    /// No row id more than once.
    AtMostOnce,
    /// Nothing is promised: rows may be left out, and repeated.
    Any,
}

/// One epoch's order: which row is served at which position.
///
/// The contract:
///
/// - [`row`](Self::row) is pure: the same position always gives the same row, on every thread, in every process.
/// - `row(q)` is `Some` exactly when `q < len()`.
/// - If `position(row)` is `Some(q)`, then `row(q)` is `Some(row)`.
///
/// Nothing says that a row occurs once. An order may leave rows out, for which [`position`](Self::position) is `None`,
/// and may repeat rows, for which it is one of their positions. The orders of this module that are permutations say so.
pub trait EpochOrder: Debug + Send + Sync {
    /// How many positions there are.
    fn len(&self) -> u64;

    /// Whether there is no position at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The row served at `position`; `None` from [`len`](Self::len) on.
    fn row(&self, position: u64) -> Option<u64>;

    /// A position at which `row` is served; `None` if it is not served, or, where an order says so, if that is not
    /// known.
    fn position(&self, row: u64) -> Option<u64>;

    /// How often the order serves a row, as far as it promises: [`Uses::Any`] unless an order says more.
    ///
    /// Nothing relies on it for memory safety or for equal shards. It spares who looks for all positions of a row from
    /// going through the whole order, and says what a proof of the order has to show.
    fn uses(&self) -> Uses {
        Uses::Any
    }

    /// What tells the times apart that the epoch serves a row: its position, as it was before [`Paired`],
    /// [`Rotated`] and [`Contiguous`] moved it; 0 where no row comes more than once.
    fn occurrence(&self, position: u64) -> u64 {
        if self.uses() == Uses::Any { position } else { 0 }
    }

    /// Writes the rows at positions `first`, `first + 1`, … into `rows` and returns how many it wrote: all of `rows`,
    /// or fewer where the order ends.
    fn fill(&self, first: u64, rows: &mut [u64]) -> usize {
        self.fill_strided(first, 1, rows)
    }

    /// Writes the rows at positions `first`, `first + stride`, `first + 2 * stride`, … into `rows` and returns how many
    /// it wrote, as [`fill`](Self::fill) does. A rank of a world of size `R` reads its order with stride `R`.
    ///
    /// The built-in orders do this faster than one call of [`row`](Self::row) after another.
    fn fill_strided(&self, first: u64, stride: u64, rows: &mut [u64]) -> usize {
        let mut position = Some(first);
        for (written, slot) in rows.iter_mut().enumerate() {
            match position.and_then(|position| self.row(position)) {
                Some(row) => *slot = row,
                None => return written,
            }
            position = position.and_then(|position| position.checked_add(stride));
        }
        rows.len()
    }
}

/// The orders of a run, one an epoch: a pure function of the length, the seed and the epoch.
pub trait Order: Any + Debug + Send + Sync {
    /// How many positions every epoch has, but for epochs that say otherwise. At most [`MAX_LEN`].
    fn len(&self) -> u64;

    /// How many positions an epoch has: [`len`](Self::len), except in orders of which epochs have different numbers, as
    /// those of [`Packed`] do. Such orders can not be put into others, which ask for `len` alone.
    ///
    /// # Errors
    ///
    /// Those of [`epoch`](Self::epoch).
    fn epoch_len(&self, epoch: u64) -> Result<u64> {
        let _ = epoch;
        Ok(self.len())
    }

    /// Whether the epochs have no position at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many rows the orders choose from: every row id they serve is below. `None` if that is not known.
    ///
    /// An order that leaves rows out or repeats some has other [`len`](Self::len) than rows. What is made of several
    /// orders, or of an order and a set of rows, compares with this and refuses what does not fit.
    fn rows(&self) -> Option<u64> {
        None
    }

    /// The order of one epoch, of [`epoch_len`](Self::epoch_len) positions.
    ///
    /// May cost time and memory in proportion to the length, so keep what it returns for the length of the epoch.
    ///
    /// # Errors
    ///
    /// What the implementation says; the built-in orders of this module never fail here.
    fn epoch(&self, epoch: u64) -> Result<Arc<dyn EpochOrder>>;

    /// A hash over everything that decides the orders: name, version, length, seed and parameters.
    ///
    /// Equal exactly when a run sees the same orders (up to collisions of a 64-bit hash), so a state saved in one run
    /// is accepted in another exactly when both agree.
    fn fingerprint(&self) -> u64;

    /// The hash over what decides the positions before one of an epoch, which a state has that is saved there.
    fn fingerprint_before(&self, epoch: u64, position: u64) -> u64 {
        let _ = (epoch, position);
        self.fingerprint()
    }

    /// Which datasets end in the course of the run, and before which position, each of them with all that it may serve.
    fn ends(&self) -> &[(usize, u64)] {
        &[]
    }

    /// The name of this sort of order, as people write it: `global`.
    fn name(&self) -> &'static str;

    /// What the orders are made of, to make them again. [`Outline::OTHER`] unless an order says more.
    fn outline(&self) -> Outline {
        Outline::OTHER
    }

    /// Whether every epoch is the same. Then so would be the rows that a tail drops or repeats, and a
    /// [`DistributedSampler`](crate::sampler::DistributedSampler) [rotates](Rotated) them.
    fn is_same_every_epoch(&self) -> bool {
        false
    }

    /// Whether rows of few row groups at a time follow each other, row groups in any sequence. A loader then reads each
    /// row group alone, rather than with the small ones next to it in the file.
    fn follows_row_groups(&self) -> bool {
        false
    }
}

/// How many of `room` positions `first`, `first + stride`, … lie before `len`.
fn reachable(first: u64, stride: u64, len: u64, room: usize) -> usize {
    let Some(left) = len.checked_sub(first).filter(|left| *left > 0) else { return 0 };
    match left.div_ceil(stride.max(1)) {
        _ if stride == 0 => room,
        count => usize::try_from(count).map_or(room, |count| count.min(room)),
    }
}

/// Writes the positions `first`, `first + stride`, … into `rows`.
fn stride(first: u64, stride: u64, rows: &mut [u64]) {
    let mut position = first;
    for slot in rows {
        *slot = position;
        position = position.wrapping_add(stride);
    }
}

/// Refuses a length beyond [`MAX_LEN`].
fn check_len(len: u64) -> Result<u64> {
    if len > MAX_LEN {
        let message = format!("an order of {len} positions is longer than the {MAX_LEN} that are possible");
        return Err(Error::invalid(message));
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowdex_base::error::ErrorKind;

    /// Serves the even rows below `2 * len`, twice each, to show what the trait permits.
    #[derive(Debug)]
    struct Doubled(u64);

    impl EpochOrder for Doubled {
        fn len(&self) -> u64 {
            self.0
        }

        fn row(&self, position: u64) -> Option<u64> {
            (position < self.0).then_some(position / 2 * 2)
        }

        fn position(&self, row: u64) -> Option<u64> {
            (row.is_multiple_of(2) && row < self.0).then_some(row)
        }
    }

    #[test]
    fn the_default_fill_stops_where_the_order_ends() {
        let order = Doubled(5);
        let mut rows = [99; 8];
        assert_eq!(order.fill(2, &mut rows), 3);
        assert_eq!(rows, [2, 2, 4, 99, 99, 99, 99, 99]);
        assert_eq!(order.fill(5, &mut rows), 0);
        assert_eq!(order.fill(u64::MAX, &mut rows), 0);
        assert_eq!(order.fill(0, &mut []), 0);
    }

    #[test]
    fn the_default_fill_survives_strides_beyond_the_last_integer() {
        let order = Doubled(5);
        let mut rows = [99; 3];
        assert_eq!(order.fill_strided(1, u64::MAX, &mut rows), 1);
        assert_eq!(order.fill_strided(0, 3, &mut rows), 2);
        assert_eq!(rows[..2], [0, 2]);
    }

    #[test]
    fn the_count_of_reachable_positions_is_that_of_the_default_fill() {
        let mut rows = [0; 9];
        for len in 0..12 {
            for first in 0..14 {
                for stride in [0, 1, 2, 3, 11, u64::MAX] {
                    for room in 0..9 {
                        let written = Doubled(len).fill_strided(first, stride, &mut rows[..room]);
                        assert_eq!(reachable(first, stride, len, room), written, "{len} {first} {stride} {room}");
                    }
                }
            }
        }
    }

    #[test]
    fn an_order_that_says_it_is_a_permutation_is_one_and_others_say_nothing() {
        assert_eq!(Doubled(5).uses(), Uses::Any);
        let orders: [Arc<dyn Order>; 2] =
            [Arc::new(Sequential::new(1000).unwrap()), Arc::new(Global::new(1000, 1).unwrap())];
        for orders in orders {
            let order = orders.epoch(3).unwrap();
            let mut rows = vec![0; 1000];
            assert_eq!((order.uses(), order.fill(0, &mut rows)), (Uses::Once, 1000));
            rows.sort_unstable();
            assert!(rows.into_iter().eq(0..1000));
        }
    }

    #[test]
    fn a_length_that_does_not_fit_a_signed_integer_is_refused() {
        assert_eq!(check_len(MAX_LEN).unwrap(), MAX_LEN);
        assert_eq!(check_len(MAX_LEN + 1).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}
