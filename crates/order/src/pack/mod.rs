//! Rows of different lengths in packs of a given number of tokens.

mod block;
mod buckets;
mod cost;
mod fit;
mod near;
mod packed;
mod sums;
#[cfg(test)]
mod tests;

pub use self::block::PackCounts;
pub use self::cost::Cost;
pub use self::packed::{Packed, PackedEpoch};
use serde::{Deserialize, Serialize};

use crate::Lengths;
use crate::names::named;
use rowdex_base::error::{Error, Result};

/// How rows are put together to packs.
///
/// A row becomes one piece, or several where it is longer than a pack can hold. A piece takes its tokens, the
/// [`extra`](Self::extra) ones, and what is missing to a multiple of [`multiple`](Self::multiple); a pack holds pieces
/// that take no more than [`capacity`](Self::capacity) together. Which pieces share a pack is a pure function of the
/// order of the epoch and the lengths: *packs v1*, which `docs/packs-format.md` specifies and which never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pack {
    /// Tokens of a pack: at most [`MAX_UNITS`](Self::MAX_UNITS) times [`multiple`](Self::multiple), 4,194,304 of 1.
    pub capacity: u64,
    /// What becomes of rows that are longer than a pack can hold.
    pub overflow: Overflow,
    /// How pieces are put into packs.
    pub algorithm: Algorithm,
    /// Tokens that each piece takes in addition to its own, such as marks of its beginning and its end.
    pub extra: u64,
    /// What each piece takes is rounded up to a multiple of this.
    pub multiple: u64,
    /// The most pieces of a pack; `None` if there is no limit.
    pub max_pieces: Option<u32>,
    /// The most that the [second numbers](crate::JoinedLengths::with_second) of a pack's rows come to, which are then
    /// packed whole; `None` if they have none. What has more than 32 bits counts as `u32::MAX`.
    pub second: Option<u32>,
    /// How many positions of an epoch's order are packed together. A row comes at most so much earlier or later than
    /// its order says, but for those of a short last block, which joins the one before.
    pub block: u64,
    /// What becomes of rows without tokens.
    pub empty: Empty,
}

/// What becomes of rows that are longer than a pack can hold. Written and parsed as `split`, `truncate`, `drop` and
/// `error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Overflow {
    /// They become several pieces, of which all but the last fill a pack.
    #[default]
    Split,
    /// Their first tokens are served.
    Truncate,
    /// They are left out.
    Drop,
    /// They are refused when an epoch is planned.
    Error,
}

/// How pieces are put into packs. Written and parsed as `bfd`, `concat`, `budget`, `padded` and `buckets`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Algorithm {
    /// Best-fit decreasing: longest pieces first, each into the fullest pack that it fits into. Hardly any place is
    /// left empty, and no row is cut that fits a pack.
    #[default]
    BestFit,
    /// Row after row, cut where a pack is full.
    Concat,
    /// Whole rows of like lengths, the longest first, until the next one would exceed the capacity: batches within a
    /// budget of tokens.
    Budget,
    /// The same for batches that are padded to their longest row, which stay within the budget with the padding.
    Padded,
    /// Each row is a separate pack, and the rows of a step are neighbours in length: batches of equal numbers of rows.
    Buckets,
}

/// What becomes of rows without tokens. Written and parsed as `skip` and `keep`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Empty {
    /// They are left out.
    #[default]
    Skip,
    /// They are pieces without tokens, which take the place of one.
    Keep,
}

/// Tokens of a row that are served together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Piece {
    /// The row.
    pub row: u64,
    /// Which of the row's tokens is the first one.
    pub offset: u64,
    /// How many tokens there are.
    pub length: u64,
}

impl Pack {
    /// Positions that are packed together unless another number is asked for.
    pub const BLOCK: u64 = 1 << 17;
    /// Positions that are sorted together in buckets, or packed within two limits, unless another number is asked for.
    /// The latter takes about a microsecond a row, and in larger blocks as many times more.
    pub const WITHIN: u64 = 1 << 14;
    /// The most positions that can be packed together, and the most rows of a step in buckets.
    pub const MAX_BLOCK: u64 = 1 << 20;
    /// The largest capacity.
    pub const MAX_CAPACITY: u64 = i32::MAX as u64;
    /// The most multiples in a capacity.
    pub const MAX_UNITS: u64 = 1 << 22;
    /// The most pieces of a block.
    pub const MAX_PIECES: u64 = 1 << 22;

    /// Packs of so many tokens, with nothing else asked for.
    pub fn of(capacity: u64) -> Self {
        Self {
            capacity,
            overflow: Overflow::default(),
            algorithm: Algorithm::default(),
            extra: 0,
            multiple: 1,
            max_pieces: None,
            second: None,
            block: Self::BLOCK,
            empty: Empty::default(),
        }
    }

    /// Batches of whole rows of like lengths, with at most so many tokens each: their own ones, or, if `padded`, the
    /// number of rows times the longest one. A row that is longer is refused unless another overflow policy is set.
    pub fn budget(tokens: u64, padded: bool) -> Self {
        let algorithm = if padded { Algorithm::Padded } else { Algorithm::Budget };
        Self { algorithm, overflow: Overflow::Error, ..Self::of(tokens) }
    }

    /// Batches of equal numbers of rows with like lengths: every row is served whole. Rows are sorted within `within`
    /// positions of the order, which are rounded to a multiple of the rows of a step.
    pub fn buckets(within: u64) -> Self {
        let all = Self { overflow: Overflow::Error, empty: Empty::Keep, ..Self::of(Self::MAX_CAPACITY) };
        Self { algorithm: Algorithm::Buckets, block: within, ..all }
    }

    /// Refuses what can not be packed by.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` that names the field.
    pub fn check(&self) -> Result<()> {
        let Self { capacity, extra, multiple, max_pieces, block, .. } = *self;
        if capacity == 0 || capacity > Self::MAX_CAPACITY {
            return Err(
                Error::invalid(format!("packs with a capacity of {capacity} tokens")).with_hint("use 1 to 2147483647")
            );
        }
        if multiple == 0 || multiple > capacity {
            let message = format!("pieces padded to a multiple of {multiple} in packs of {capacity} tokens");
            return Err(Error::invalid(message).with_hint("use 1 to the capacity"));
        }
        if extra >= capacity / multiple * multiple {
            let message = format!("{extra} extra tokens for each piece leave no place in packs of {capacity}");
            return Err(Error::invalid(message).with_hint("use a larger capacity, or fewer extra tokens"));
        }
        let buckets = self.algorithm == Algorithm::Buckets;
        if capacity / multiple > Self::MAX_UNITS && !buckets {
            let message =
                format!("packs of {capacity} tokens, which are {} multiples of {multiple}", capacity / multiple);
            return Err(Error::invalid(message)
                .with_hint("use a capacity of at most 4194304 multiples: pad pieces to a larger one"));
        }
        if max_pieces == Some(0) {
            return Err(Error::invalid("packs of at most 0 pieces").with_hint("use 1 or more, or no limit"));
        }
        if matches!(self.algorithm, Algorithm::Budget | Algorithm::Padded) && self.overflow == Overflow::Split {
            let message = "batches of whole rows within a budget, of which long rows are split";
            return Err(Error::invalid(message).with_hint("use overflow \"truncate\", \"drop\" or \"error\""));
        }
        if buckets {
            self.check_buckets()?;
        }
        let whole = self.algorithm == Algorithm::BestFit && matches!(self.overflow, Overflow::Drop | Overflow::Error);
        if self.second.is_some() && !whole {
            return Err(Error::invalid("packs with two limits, of parts of rows or by another algorithm than bfd")
                .with_hint("use algorithm \"bfd\" and overflow \"error\" or \"drop\""));
        }
        if block == 0 || block > Self::MAX_BLOCK {
            return Err(Error::invalid(format!("blocks of {block} positions")).with_hint("use 1 to 1048576"));
        }
        Ok(())
    }

    /// The second numbers of rows, which `lengths` have, too; of packs with one limit, zeros.
    ///
    /// # Errors
    ///
    /// Those of the lengths.
    pub fn second_of(&self, lengths: &dyn Lengths, rows: &[u64]) -> Result<Vec<u64>> {
        let mut second = vec![0; rows.len()];
        if self.second.is_some() {
            let rows: Vec<u64> = rows.iter().map(|row| row + lengths.len() / 2).collect();
            lengths.fill(&rows, &mut second)?;
        }
        Ok(second)
    }

    /// All that decides the packs but a second limit, for a fingerprint.
    pub(crate) fn parameters(&self) -> [u64; 8] {
        let Self { capacity, overflow, algorithm, extra, multiple, max_pieces, block, empty, .. } = *self;
        let max_pieces = max_pieces.map_or(0, u64::from);
        [capacity, overflow as u64, algorithm as u64, extra, multiple, max_pieces, block, empty as u64]
    }

    /// Place of a pack, in multiples.
    fn units(&self) -> u32 {
        (self.capacity / self.multiple) as u32
    }

    /// What a piece takes of it.
    fn units_of(&self, length: u64) -> u32 {
        let taken = length + self.extra;
        (if self.multiple == 1 { taken } else { taken.div_ceil(self.multiple) } as u32).max(1)
    }

    /// The most tokens of a piece.
    pub fn longest(&self) -> u64 {
        (self.capacity / self.multiple * self.multiple).saturating_sub(self.extra)
    }

    /// How many tokens of a pack's capacity pieces of these lengths take, longest or not: with what each takes in
    /// addition to its own, and, in a padded batch, with the padding.
    pub fn taken(&self, lengths: impl IntoIterator<Item = u64>) -> u64 {
        let mut sum = 0_u64;
        let mut count = 0_u64;
        let mut most = 0_u64;
        for length in lengths {
            let taken = length.saturating_add(self.extra).checked_next_multiple_of(self.multiple.max(1));
            let taken = taken.unwrap_or(u64::MAX).max(self.multiple);
            (sum, count, most) = (sum.saturating_add(taken), count + 1, most.max(taken));
        }
        if self.algorithm == Algorithm::Padded { most.saturating_mul(count) } else { sum }
    }

    /// How many blocks so many positions are cut into. A short last one joins the one before.
    pub(crate) fn blocks(&self, positions: u64) -> u64 {
        (positions / self.block).max(u64::from(positions > 0))
    }
}

named!(
    Overflow,
    "overflow policy",
    "use split, truncate, drop or error",
    Split = "split",
    Truncate = "truncate",
    Drop = "drop",
    Error = "error"
);
named!(
    Algorithm,
    "packing algorithm",
    "use bfd, concat, budget, padded or buckets",
    BestFit = "bfd",
    Concat = "concat",
    Budget = "budget",
    Padded = "padded",
    Buckets = "buckets"
);
named!(Empty, "policy for empty rows", "use skip or keep", Skip = "skip", Keep = "keep");
