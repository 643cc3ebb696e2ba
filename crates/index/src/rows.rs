//! Which rows of a row group are served: runs, a bitmap with ranks, or sorted offsets, whichever is smallest.
//!
//! The three cross where they should: a filter that follows the sort order of the data leaves runs, a rare one leaves
//! offsets (below one row in 32), and anything else costs a bitmap, which with its ranks takes 1.0625 bits per source
//! row whatever the selectivity. That is the worst case of a selection.

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

mod encode;
#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)]
mod tests;

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64_with_seed;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::format::RowSetRecord;
use super::stored::invalid;
use rowdex_base::bits::nth_one;
use rowdex_base::error::Result;

pub(crate) use self::encode::encode;

/// Kinds of container as stored.
pub(crate) mod kind {
    pub(crate) const ALL: u32 = 0;
    pub(crate) const RUNS: u32 = 1;
    pub(crate) const BITMAP: u32 = 2;
    pub(crate) const OFFSETS: u32 = 3;
}

const WORD_BITS: u64 = 64;
const BLOCK_WORDS: u64 = 8;
const BLOCK_BITS: u64 = 512;

/// Offsets and ranks are 32 bits wide, so a row group that is served in part has at most this many rows.
pub(crate) const MAX_SOURCE_ROWS: u64 = 1 << 32;

/// A maximal run of served rows; its length is `end` less the `end` of the run before.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredRun {
    start: U32,
    /// Served rows up to and including this run.
    end: U32,
}

/// The rows of one row group that a selection left, in order: a borrowed view of the index.
///
/// Rows count from 0 within the row group as it is in its file; slots count from 0 within the rows that are served.
#[derive(Clone, Copy, Debug)]
pub struct RowSet<'a> {
    source_rows: u64,
    len: u64,
    container: RowContainer<'a>,
}

#[derive(Clone, Copy, Debug)]
enum RowContainer<'a> {
    Runs(&'a [StoredRun]),
    Bitmap { ranks: &'a [U32], words: &'a [U64] },
    Offsets(&'a [U32]),
}

/// The length in bytes of the container that this record describes, for a row group of `rows` served rows.
pub(crate) fn container_len(record: &RowSetRecord, rows: u64) -> Result<u64> {
    let source_rows = record.source_rows.get();
    let kind = record.kind.get();
    if rows > source_rows || (kind == kind::ALL && rows != source_rows) {
        return Err(invalid(format!("a row group serves {rows} of its {source_rows} rows")));
    }
    if kind != kind::ALL && source_rows > MAX_SOURCE_ROWS {
        return Err(invalid(format!("a selection is made from {source_rows} rows, at most 2^32 can be")));
    }
    let runs = u64::from(record.runs.get());
    if kind != kind::RUNS && runs != 0 {
        return Err(invalid("a container without runs counts some"));
    }
    // With at most 2^32 source rows no product below overflows; saturating keeps that from being an assumption.
    match kind {
        kind::ALL => Ok(0),
        kind::RUNS => Ok(runs.saturating_mul(8)),
        kind::BITMAP => Ok(blocks(source_rows).saturating_mul(4).saturating_add(words(source_rows).saturating_mul(8))),
        kind::OFFSETS => Ok(rows.saturating_mul(4)),
        other => Err(invalid(format!("a selection is stored in the unknown way {other}"))),
    }
}

/// About `place` of `whole`, as a place among `len`. It only says where a search begins, so it need not be exact.
fn proportion(place: u64, whole: u64, len: usize) -> usize {
    (place as f64 / whole as f64 * len as f64) as usize
}

/// As `partition_point`, by a search that begins at `near` and widens: bisecting all of a large selection would miss
/// the cache at each step.
fn partition_near<T>(items: &[T], near: usize, is_before: impl Fn(&T) -> bool) -> usize {
    let before = |at: usize| items.get(at).is_some_and(&is_before);
    let (mut low, mut high, mut step);
    if before(near) {
        (low, step) = (near.saturating_add(1), 1_usize);
        high = low;
        while before(high) {
            low = high.saturating_add(1);
            high = low.saturating_add(step);
            step = step.saturating_mul(2);
        }
        high = high.min(items.len());
    } else {
        (high, step) = (near.min(items.len()), 1_usize);
        low = high;
        while let Some(last) = low.checked_sub(1)
            && !before(last)
        {
            high = last;
            low = high.saturating_sub(step);
            step = step.saturating_mul(2);
        }
    }
    low.saturating_add(items.get(low..high).map_or(0, |items| items.partition_point(is_before)))
}

fn words(rows: u64) -> u64 {
    rows.div_ceil(WORD_BITS)
}

fn blocks(rows: u64) -> u64 {
    rows.div_ceil(BLOCK_BITS)
}

impl<'a> RowSet<'a> {
    /// The view of a container; `None` when the record says that every row is served, or does not fit the bytes.
    pub(crate) fn new(record: &RowSetRecord, rows: u64, data: &'a [u8]) -> Option<Self> {
        let length = usize::try_from(container_len(record, rows).ok()?).ok()?;
        let start = usize::try_from(record.offset.get()).ok()?;
        let bytes = data.get(start..start.checked_add(length)?)?;
        let source_rows = record.source_rows.get();
        let container = match record.kind.get() {
            kind::RUNS => RowContainer::Runs(<[StoredRun]>::ref_from_bytes(bytes).ok()?),
            kind::BITMAP => {
                let blocks = usize::try_from(blocks(source_rows)).ok()?;
                let (ranks, rest) = <[U32]>::ref_from_prefix_with_elems(bytes, blocks).ok()?;
                RowContainer::Bitmap { ranks, words: <[U64]>::ref_from_bytes(rest).ok()? }
            }
            kind::OFFSETS => RowContainer::Offsets(<[U32]>::ref_from_bytes(bytes).ok()?),
            _ => return None,
        };
        Some(Self { source_rows, len: rows, container })
    }

    /// Checks that the container holds exactly `len` rows, in order and in range, and that its ranks are right.
    #[doc(hidden)]
    pub fn check(&self) -> Result<()> {
        let sound = match self.container {
            RowContainer::Runs(runs) => self.check_runs(runs),
            RowContainer::Bitmap { ranks, words } => self.check_bitmap(ranks, words),
            RowContainer::Offsets(offsets) => self.check_offsets(offsets),
        };
        if sound { Ok(()) } else { Err(invalid("the selected rows are out of order, out of range or miscounted")) }
    }

    fn check_runs(&self, runs: &[StoredRun]) -> bool {
        let mut served = 0;
        let mut free = 0;
        for run in runs {
            let start = u64::from(run.start.get());
            let end = u64::from(run.end.get());
            // A run that touches the one before would be the same run.
            if end <= served || start < free {
                return false;
            }
            let stop = start.saturating_add(end.saturating_sub(served));
            if stop > self.source_rows {
                return false;
            }
            served = end;
            free = stop.saturating_add(1);
        }
        served == self.len
    }

    fn check_bitmap(&self, ranks: &[U32], words: &[U64]) -> bool {
        let mut served = 0_u64;
        for (rank, block) in ranks.iter().zip(words.chunks(BLOCK_WORDS as usize)) {
            if u64::from(rank.get()) != served {
                return false;
            }
            served = served.saturating_add(block.iter().map(|word| u64::from(word.get().count_ones())).sum());
        }
        let past_the_end = match (self.source_rows % WORD_BITS, words.last()) {
            (0, _) | (_, None) => 0,
            (used, Some(last)) => last.get() >> used,
        };
        served == self.len && past_the_end == 0
    }

    fn check_offsets(&self, offsets: &[U32]) -> bool {
        let increasing = offsets.iter().zip(offsets.iter().skip(1)).all(|(a, b)| a.get() < b.get());
        increasing && offsets.last().is_none_or(|last| u64::from(last.get()) < self.source_rows)
    }

    /// Equal for equal containers, which equal selections have.
    #[doc(hidden)]
    pub fn content_hash(&self) -> u64 {
        let kind = match self.container {
            RowContainer::Runs(_) => kind::RUNS,
            RowContainer::Bitmap { .. } => kind::BITMAP,
            RowContainer::Offsets(_) => kind::OFFSETS,
        };
        let bytes = match self.container {
            RowContainer::Runs(runs) => runs.as_bytes(),
            RowContainer::Bitmap { words, .. } => words.as_bytes(),
            RowContainer::Offsets(offsets) => offsets.as_bytes(),
        };
        xxh3_64_with_seed(bytes, u64::from(kind))
    }

    /// How many rows are served.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether no row is served.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many rows the row group has in its file.
    pub fn source_rows(&self) -> u64 {
        self.source_rows
    }

    /// The row at `slot`; `None` at `len` and beyond. O(log of the container), or O(1) where served rows are spread
    /// evenly; without allocation.
    pub fn select(&self, slot: u64) -> Option<u64> {
        if slot >= self.len {
            return None;
        }
        match self.container {
            RowContainer::Runs(runs) => {
                let near = proportion(slot, self.len, runs.len());
                let at = partition_near(runs, near, |run| u64::from(run.end.get()) <= slot);
                let before = at.checked_sub(1).and_then(|at| runs.get(at)).map_or(0, |run| u64::from(run.end.get()));
                Some(u64::from(runs.get(at)?.start.get()).saturating_add(slot.saturating_sub(before)))
            }
            RowContainer::Offsets(offsets) => Some(u64::from(offsets.get(usize::try_from(slot).ok()?)?.get())),
            RowContainer::Bitmap { ranks, words } => {
                // The rank of the first block is 0, so one before the first greater rank always exists.
                let near = proportion(slot, self.len, ranks.len()).saturating_add(1);
                let block = partition_near(ranks, near, |rank| u64::from(rank.get()) <= slot).checked_sub(1)?;
                let mut left = slot.saturating_sub(u64::from(ranks.get(block)?.get()));
                let first = block.saturating_mul(BLOCK_WORDS as usize);
                for (at, word) in words.get(first..)?.iter().enumerate().take(BLOCK_WORDS as usize) {
                    let word = word.get();
                    let ones = u64::from(word.count_ones());
                    if left < ones {
                        let word_at = first.saturating_add(at) as u64;
                        return Some(word_at.saturating_mul(WORD_BITS).saturating_add(nth_one(word, left)));
                    }
                    left = left.saturating_sub(ones);
                }
                None
            }
        }
    }

    /// How many served rows come before `row`, which is the slot of `row` where it is served itself.
    pub fn rank(&self, row: u64) -> u64 {
        if row >= self.source_rows {
            return self.len;
        }
        match self.container {
            RowContainer::Runs(runs) => {
                let near = proportion(row, self.source_rows, runs.len());
                let started = partition_near(runs, near, |run| u64::from(run.start.get()) < row);
                let Some(run) = started.checked_sub(1).and_then(|at| runs.get(at)) else { return 0 };
                let before =
                    started.checked_sub(2).and_then(|at| runs.get(at)).map_or(0, |run| u64::from(run.end.get()));
                let end = u64::from(run.end.get());
                before.saturating_add(row.saturating_sub(u64::from(run.start.get()))).min(end)
            }
            RowContainer::Offsets(offsets) => {
                let near = proportion(row, self.source_rows, offsets.len());
                partition_near(offsets, near, |&offset| u64::from(offset.get()) < row) as u64
            }
            RowContainer::Bitmap { ranks, words } => {
                let block = row / BLOCK_BITS;
                let rank = ranks.get(block as usize).map_or(0, |rank| u64::from(rank.get()));
                let word_at = (row / WORD_BITS) as usize;
                let first = (block as usize).saturating_mul(BLOCK_WORDS as usize);
                let whole = words.get(first..word_at).unwrap_or_default();
                let below = (1_u64 << (row % WORD_BITS)).wrapping_sub(1);
                let part = words.get(word_at).map_or(0, |word| (word.get() & below).count_ones());
                let ones = whole.iter().map(|word| word.get().count_ones()).fold(part, u32::saturating_add);
                rank.saturating_add(u64::from(ones))
            }
        }
    }

    /// Whether `row` is served.
    pub fn contains(&self, row: u64) -> bool {
        self.select(self.rank(row)) == Some(row)
    }

    /// The served rows, in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.runs().flatten()
    }

    /// The served rows as maximal runs, in order.
    pub fn runs(&self) -> impl Iterator<Item = Range<u64>> + use<'a> {
        let set = *self;
        // The next stored run or offset.
        let mut at = 0_usize;
        // Where the search in a bitmap goes on; the served rows so far, for runs.
        let mut next = 0;
        std::iter::from_fn(move || match set.container {
            RowContainer::Runs(runs) => {
                let run = runs.get(at)?;
                let start = u64::from(run.start.get());
                let end = u64::from(run.end.get());
                let stop = start.saturating_add(end.saturating_sub(next));
                at = at.saturating_add(1);
                next = end;
                Some(start..stop)
            }
            RowContainer::Offsets(offsets) => {
                let start = u64::from(offsets.get(at)?.get());
                let mut stop = start.saturating_add(1);
                at = at.saturating_add(1);
                while offsets.get(at).is_some_and(|offset| u64::from(offset.get()) == stop) {
                    stop = stop.saturating_add(1);
                    at = at.saturating_add(1);
                }
                Some(start..stop)
            }
            RowContainer::Bitmap { words, .. } => {
                let rows = set.source_rows;
                let start = first_other(words, next, 0).filter(|&start| start < rows)?;
                let stop = first_other(words, start, u64::MAX).map_or(rows, |stop| stop.min(rows));
                next = stop;
                Some(start..stop)
            }
        })
    }
}

/// The first row from `row` on whose bit is not that of `skip`, which is all zeros or all ones.
fn first_other(words: &[U64], row: u64, skip: u64) -> Option<u64> {
    let first = usize::try_from(row / WORD_BITS).ok()?;
    let mut mask = u64::MAX << (row % WORD_BITS);
    for (at, word) in words.iter().enumerate().skip(first) {
        let others = (word.get() ^ skip) & mask;
        if others != 0 {
            return Some((at as u64).saturating_mul(WORD_BITS).saturating_add(u64::from(others.trailing_zeros())));
        }
        mask = u64::MAX;
    }
    None
}
