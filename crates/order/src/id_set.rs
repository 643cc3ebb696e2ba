//! Sets of row ids that count: how many come before a row, and which comes at a place.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3Default;

use super::check_len;
use rowdex_base::bits::nth_one;
use rowdex_base::error::{Error, ErrorKind, Result};

const WORD_BITS: u64 = 64;
/// Words between two stored ranks: 64 bits for 1024 make 1.0625 bits a row.
const BLOCK_WORDS: usize = 16;

/// A set of row ids below a given number of rows, with rank and select.
///
/// Held as sorted runs, 16 bytes each, or as a bitmap with ranks, 1.0625 bits for each of the rows; the smaller of the
/// two. So "all but these few" costs next to nothing, and no set costs more than the bitmap. Every method for one row
/// is O(log of the runs, or of the rows).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdSet {
    rows: u64,
    len: u64,
    container: IdContainer,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum IdContainer {
    Runs(Vec<IdRun>),
    Bitmap { words: Vec<u64>, ranks: Vec<u64> },
}

/// A maximal run of members; its length is `end` less the `end` of the run before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct IdRun {
    start: u64,
    /// Members up to and including this run.
    end: u64,
}

impl IdSet {
    /// Every one of `rows` rows.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if `rows` exceeds [`MAX_LEN`](super::MAX_LEN).
    pub fn all(rows: u64) -> Result<Self> {
        Self::collect(rows, std::iter::once(0..rows))
    }

    /// The rows of these ranges, out of `rows` rows. Ranges may come in any order, overlap and be empty. O(k log k) for
    /// `k` ranges.
    ///
    /// # Errors
    ///
    /// `OutOfRange` if a range ends beyond `rows`; `InvalidArgument` if one ends before it begins, or if `rows` exceeds
    /// [`MAX_LEN`](super::MAX_LEN); `TooLarge` if there is no memory for the set.
    pub fn from_ranges(rows: u64, ranges: impl IntoIterator<Item = Range<u64>>) -> Result<Self> {
        let mut ranges: Vec<Range<u64>> = ranges.into_iter().collect();
        for range in &ranges {
            if range.start > range.end {
                let message = format!("rows {}..{} end before they begin", range.start, range.end);
                return Err(Error::invalid(message));
            }
            if range.end > rows {
                let message = match range.end - range.start {
                    1 => format!("row id {} of {rows} rows", range.start),
                    _ => format!("row ids {}..{} of {rows} rows", range.start, range.end),
                };
                return Err(Error::new(ErrorKind::OutOfRange, message).with_row_ids(rows));
            }
        }
        ranges.sort_unstable_by_key(|range| range.start);
        Self::collect(rows, ranges)
    }

    /// These rows, out of `rows` rows, in any order; repeats count once.
    ///
    /// # Errors
    ///
    /// Those of [`from_ranges`](Self::from_ranges).
    pub fn from_ids(rows: u64, ids: impl IntoIterator<Item = u64>) -> Result<Self> {
        // A row id of 2^64 - 1 has no end, and no dataset has such a row.
        Self::from_ranges(rows, ids.into_iter().map(|id| id.min(u64::MAX - 1)..id.min(u64::MAX - 1) + 1))
    }

    /// The rows, of `rows` rows, that `keep` says yes to; it is asked once for each, in order.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if `rows` exceeds [`MAX_LEN`](super::MAX_LEN), `TooLarge` if there is no memory for the set.
    pub fn filter(rows: u64, mut keep: impl FnMut(u64) -> bool) -> Result<Self> {
        Self::collect(rows, (0..rows).filter(|row| keep(*row)).map(|row| row..row + 1))
    }

    /// From ranges within `rows`, sorted by their start.
    fn collect(rows: u64, ranges: impl IntoIterator<Item = Range<u64>>) -> Result<Self> {
        let mut builder = Builder::new(check_len(rows)?);
        for range in ranges {
            builder.add(range)?;
        }
        Ok(builder.finish())
    }

    /// How many rows there are to choose from.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// How many of them are in the set.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The member at `place`, counted from 0 in the order of row ids; `None` from [`len`](Self::len) on.
    pub fn select(&self, place: u64) -> Option<u64> {
        if place >= self.len {
            return None;
        }
        match &self.container {
            IdContainer::Runs(runs) => {
                let at = runs.partition_point(|run| run.end <= place);
                let before = at.checked_sub(1).and_then(|at| runs.get(at)).map_or(0, |run| run.end);
                Some(runs.get(at)?.start + (place - before))
            }
            IdContainer::Bitmap { words, ranks } => {
                let block = self.block(ranks, place)?;
                let mut left = place - ranks.get(block)?;
                let first = block * BLOCK_WORDS;
                for (at, word) in (first..).zip(words.get(first..)?) {
                    let ones = u64::from(word.count_ones());
                    if left < ones {
                        return Some(at as u64 * WORD_BITS + nth_one(*word, left));
                    }
                    left -= ones;
                }
                None
            }
        }
    }

    /// The last block whose rank is not above `place`, which is below the number of members.
    ///
    /// Members that are spread evenly, as those of a split are, make ranks that grow evenly: a guess is a few blocks
    /// off, and doubling steps from there find bounds close together.
    fn block(&self, ranks: &[u64], place: u64) -> Option<usize> {
        let guess = (u128::from(place) * ranks.len() as u128 / u128::from(self.len)) as usize;
        let above = |at: usize| ranks.get(at).is_none_or(|rank| *rank > place);
        let mut low = guess;
        let mut high = guess + 1;
        let mut step = 1;
        while above(low) {
            high = low;
            // The rank of the first block is 0, and so not above.
            low = low.saturating_sub(step);
            step *= 2;
        }
        step = 1;
        while !above(high) {
            low = high;
            high += step;
            step *= 2;
        }
        let between = ranks.get(low..high.min(ranks.len()))?;
        (low + between.partition_point(|rank| *rank <= place)).checked_sub(1)
    }

    /// How many members come before `row`: its place, where it is a member itself.
    pub fn rank(&self, row: u64) -> u64 {
        if row >= self.rows {
            return self.len;
        }
        match &self.container {
            IdContainer::Runs(runs) => {
                let started = runs.partition_point(|run| run.start < row);
                let Some(run) = started.checked_sub(1).and_then(|at| runs.get(at)) else { return 0 };
                let before = started.checked_sub(2).and_then(|at| runs.get(at)).map_or(0, |run| run.end);
                (before + (row - run.start)).min(run.end)
            }
            IdContainer::Bitmap { words, ranks } => {
                let at = (row / WORD_BITS) as usize;
                let block = at / BLOCK_WORDS;
                let whole = words.get(block * BLOCK_WORDS..at).unwrap_or_default();
                let below = (1_u64 << (row % WORD_BITS)) - 1;
                let part = words.get(at).map_or(0, |word| u64::from((word & below).count_ones()));
                let ones = whole.iter().map(|word| u64::from(word.count_ones())).sum::<u64>() + part;
                ranks.get(block).copied().unwrap_or_default() + ones
            }
        }
    }

    /// Whether `row` is a member.
    pub fn contains(&self, row: u64) -> bool {
        match &self.container {
            IdContainer::Runs(_) => self.select(self.rank(row)) == Some(row),
            IdContainer::Bitmap { words, .. } => {
                let word = usize::try_from(row / WORD_BITS).ok().and_then(|at| words.get(at));
                word.is_some_and(|word| word >> (row % WORD_BITS) & 1 == 1)
            }
        }
    }

    /// The members as maximal ranges, in order.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        // The next run.
        let mut at = 0;
        // Members so far, for runs; the row that the search goes on at, for a bitmap.
        let mut next = 0;
        std::iter::from_fn(move || match &self.container {
            IdContainer::Runs(runs) => {
                let run = runs.get(at)?;
                let range = run.start..run.start + (run.end - next);
                at += 1;
                next = run.end;
                Some(range)
            }
            IdContainer::Bitmap { words, .. } => {
                let start = first_other(words, next, 0)?;
                next = first_other(words, start, u64::MAX).unwrap_or(u64::MAX).min(self.rows);
                Some(start..next)
            }
        })
    }

    /// The members, in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.ranges().flatten()
    }

    /// The rows that are not members.
    ///
    /// # Errors
    ///
    /// `TooLarge` if there is no memory for the set.
    pub fn complement(&self) -> Result<Self> {
        let mut free = 0;
        let mut builder = Builder::new(self.rows);
        for range in self.ranges() {
            builder.add(free..range.start)?;
            free = range.end;
        }
        builder.add(free..self.rows)?;
        Ok(builder.finish())
    }

    /// The rows that are members of both sets.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the sets choose from different numbers of rows, `TooLarge` if there is no memory for the
    /// set.
    pub fn intersection(&self, other: &Self) -> Result<Self> {
        if self.rows != other.rows {
            return Err(Error::invalid(format!("a set out of {} rows and one out of {}", self.rows, other.rows))
                .with_hint("make both for the same dataset"));
        }
        let mut builder = Builder::new(self.rows);
        let mut left = self.ranges().peekable();
        let mut right = other.ranges().peekable();
        while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
            let end = a.end.min(b.end);
            let common = a.start.max(b.start)..end;
            if a.end == end {
                left.next();
            } else {
                right.next();
            }
            builder.add(common)?;
        }
        Ok(builder.finish())
    }

    /// The rows that are members of either set.
    ///
    /// # Errors
    ///
    /// As for [`intersection`](Self::intersection).
    pub fn union(&self, other: &Self) -> Result<Self> {
        self.complement()?.intersection(&other.complement()?)?.complement()
    }

    /// XXH3-64 of the number of rows and of the bounds of all maximal ranges, as 8 little-endian bytes each.
    #[doc(hidden)]
    pub fn content_hash(&self) -> u64 {
        let mut hash = Xxh3Default::new();
        hash.update(&self.rows.to_le_bytes());
        for range in self.ranges() {
            hash.update(&range.start.to_le_bytes());
            hash.update(&range.end.to_le_bytes());
        }
        hash.digest()
    }
}

/// The first row from `row` on whose bit is not that of `skip`, which is all zeros or all ones.
fn first_other(words: &[u64], row: u64, skip: u64) -> Option<u64> {
    let first = usize::try_from(row / WORD_BITS).ok()?;
    let mut mask = u64::MAX << (row % WORD_BITS);
    for (at, word) in (first..).zip(words.get(first..)?) {
        let others = (word ^ skip) & mask;
        if others != 0 {
            return Some(at as u64 * WORD_BITS + u64::from(others.trailing_zeros()));
        }
        mask = u64::MAX;
    }
    None
}

/// Collects ranges in order; begins with runs and goes over to a bitmap once that is smaller.
#[derive(Debug)]
pub struct Builder {
    rows: u64,
    most_runs: u64,
    len: u64,
    /// Where the last range ended.
    end: u64,
    runs: Vec<IdRun>,
    words: Vec<u64>,
}

impl Builder {
    /// For a set out of `rows` rows, which are at most [`MAX_LEN`](super::MAX_LEN).
    pub fn new(rows: u64) -> Self {
        let words = rows.div_ceil(WORD_BITS);
        // Two words a run.
        let most_runs = (words + words.div_ceil(BLOCK_WORDS as u64)) / 2;
        Self { rows, most_runs, len: 0, end: 0, runs: Vec::new(), words: Vec::new() }
    }

    /// Adds a range that starts no earlier than those before.
    pub fn add(&mut self, range: Range<u64>) -> Result<()> {
        let start = range.start.max(self.end);
        let end = range.end.min(self.rows);
        if start >= end {
            return Ok(());
        }
        self.len += end - start;
        let touches = start == self.end && self.len > end - start;
        self.end = end;
        if !self.words.is_empty() {
            set(&mut self.words, start..end);
            return Ok(());
        }
        match self.runs.last_mut().filter(|_| touches) {
            Some(run) => run.end = self.len,
            None => {
                self.runs.try_reserve(1).map_err(|_| self.too_large())?;
                self.runs.push(IdRun { start, end: self.len });
            }
        }
        if self.runs.len() as u64 > self.most_runs.max(1) { self.go_over() } else { Ok(()) }
    }

    fn go_over(&mut self) -> Result<()> {
        let words = usize::try_from(self.rows.div_ceil(WORD_BITS)).map_err(|_| self.too_large())?;
        self.words.try_reserve_exact(words).map_err(|_| self.too_large())?;
        self.words.resize(words, 0);
        let mut before = 0;
        for run in std::mem::take(&mut self.runs) {
            set(&mut self.words, run.start..run.start + (run.end - before));
            before = run.end;
        }
        Ok(())
    }

    fn too_large(&self) -> Error {
        Error::new(ErrorKind::TooLarge, format!("no memory for a set out of {} rows", self.rows))
    }

    /// The set of what was added.
    pub fn finish(self) -> IdSet {
        let Self { rows, len, words, mut runs, .. } = self;
        if words.is_empty() {
            runs.shrink_to_fit();
            return IdSet { rows, len, container: IdContainer::Runs(runs) };
        }
        let mut rank = 0;
        let mut ranks = Vec::with_capacity(words.len().div_ceil(BLOCK_WORDS));
        for block in words.chunks(BLOCK_WORDS) {
            ranks.push(rank);
            rank += block.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        }
        IdSet { rows, len, container: IdContainer::Bitmap { words, ranks } }
    }
}

/// Sets the bits of a range that is not empty.
fn set(words: &mut [u64], range: Range<u64>) {
    let first = (range.start / WORD_BITS) as usize;
    let last = ((range.end - 1) / WORD_BITS) as usize;
    let head = u64::MAX << (range.start % WORD_BITS);
    let tail = u64::MAX >> (WORD_BITS - 1 - (range.end - 1) % WORD_BITS);
    match words.get_mut(first..=last) {
        Some([word]) => *word |= head & tail,
        Some([start, inner @ .., end]) => {
            *start |= head;
            inner.fill(u64::MAX);
            *end |= tail;
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
