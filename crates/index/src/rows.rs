//! Which rows of a row group are served: runs, a bitmap with ranks, or sorted offsets, whichever is smallest.
//!
//! The three cross where they should: a filter that follows the sort order of the data leaves runs, a rare one leaves
//! offsets (below one row in 32), and anything else costs a bitmap, which with its ranks takes 1.0625 bits per source
//! row whatever the selectivity. That is the worst case of a selection.

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

use std::iter::FusedIterator;
use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64_with_seed;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::format::RowSetRecord;
use super::stored::invalid;
use rowdex_base::bits::nth_one;
use rowdex_base::error::{Error, ErrorKind, Result};

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
struct Run {
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
    container: Container<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Container<'a> {
    Runs(&'a [Run]),
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
            kind::RUNS => Container::Runs(<[Run]>::ref_from_bytes(bytes).ok()?),
            kind::BITMAP => {
                let blocks = usize::try_from(blocks(source_rows)).ok()?;
                let (ranks, rest) = <[U32]>::ref_from_prefix_with_elems(bytes, blocks).ok()?;
                Container::Bitmap { ranks, words: <[U64]>::ref_from_bytes(rest).ok()? }
            }
            kind::OFFSETS => Container::Offsets(<[U32]>::ref_from_bytes(bytes).ok()?),
            _ => return None,
        };
        Some(Self { source_rows, len: rows, container })
    }

    /// Checks that the container holds exactly `len` rows, in order and in range, and that its ranks are right.
    #[doc(hidden)]
    pub fn check(&self) -> Result<()> {
        let sound = match self.container {
            Container::Runs(runs) => self.check_runs(runs),
            Container::Bitmap { ranks, words } => self.check_bitmap(ranks, words),
            Container::Offsets(offsets) => self.check_offsets(offsets),
        };
        if sound { Ok(()) } else { Err(invalid("the selected rows are out of order, out of range or miscounted")) }
    }

    fn check_runs(&self, runs: &[Run]) -> bool {
        let mut served = 0;
        let mut free = 0;
        for run in runs {
            let (start, end) = (u64::from(run.start.get()), u64::from(run.end.get()));
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
            Container::Runs(_) => kind::RUNS,
            Container::Bitmap { .. } => kind::BITMAP,
            Container::Offsets(_) => kind::OFFSETS,
        };
        let bytes = match self.container {
            Container::Runs(runs) => runs.as_bytes(),
            Container::Bitmap { words, .. } => words.as_bytes(),
            Container::Offsets(offsets) => offsets.as_bytes(),
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
            Container::Runs(runs) => {
                let near = proportion(slot, self.len, runs.len());
                let at = partition_near(runs, near, |run| u64::from(run.end.get()) <= slot);
                let before = at.checked_sub(1).and_then(|at| runs.get(at)).map_or(0, |run| u64::from(run.end.get()));
                Some(u64::from(runs.get(at)?.start.get()).saturating_add(slot.saturating_sub(before)))
            }
            Container::Offsets(offsets) => Some(u64::from(offsets.get(usize::try_from(slot).ok()?)?.get())),
            Container::Bitmap { ranks, words } => {
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
            Container::Runs(runs) => {
                let near = proportion(row, self.source_rows, runs.len());
                let started = partition_near(runs, near, |run| u64::from(run.start.get()) < row);
                let Some(run) = started.checked_sub(1).and_then(|at| runs.get(at)) else { return 0 };
                let before =
                    started.checked_sub(2).and_then(|at| runs.get(at)).map_or(0, |run| u64::from(run.end.get()));
                let end = u64::from(run.end.get());
                before.saturating_add(row.saturating_sub(u64::from(run.start.get()))).min(end)
            }
            Container::Offsets(offsets) => {
                let near = proportion(row, self.source_rows, offsets.len());
                partition_near(offsets, near, |&offset| u64::from(offset.get()) < row) as u64
            }
            Container::Bitmap { ranks, words } => {
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
    pub fn runs(&self) -> Runs<'a> {
        Runs { rows: *self, at: 0, next: 0 }
    }
}

/// The maximal runs of a [`RowSet`].
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    rows: RowSet<'a>,
    /// The next stored run or offset.
    at: usize,
    /// Where the search in a bitmap goes on; the served rows so far, for runs.
    next: u64,
}

impl Runs<'_> {
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
}

impl Iterator for Runs<'_> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        match self.rows.container {
            Container::Runs(runs) => {
                let run = runs.get(self.at)?;
                let (start, end) = (u64::from(run.start.get()), u64::from(run.end.get()));
                let stop = start.saturating_add(end.saturating_sub(self.next));
                self.at = self.at.saturating_add(1);
                self.next = end;
                Some(start..stop)
            }
            Container::Offsets(offsets) => {
                let start = u64::from(offsets.get(self.at)?.get());
                let mut stop = start.saturating_add(1);
                self.at = self.at.saturating_add(1);
                while offsets.get(self.at).is_some_and(|offset| u64::from(offset.get()) == stop) {
                    stop = stop.saturating_add(1);
                    self.at = self.at.saturating_add(1);
                }
                Some(start..stop)
            }
            Container::Bitmap { words, .. } => {
                let rows = self.rows.source_rows;
                let start = Self::first_other(words, self.next, 0).filter(|&start| start < rows)?;
                let stop = Self::first_other(words, start, u64::MAX).map_or(rows, |stop| stop.min(rows));
                self.next = stop;
                Some(start..stop)
            }
        }
    }
}

impl FusedIterator for Runs<'_> {}

/// Appends the smallest container of `rows` to `data`, and returns the record that describes it.
///
/// The choice depends on the rows alone, so that equal selections are equal bytes.
pub(crate) fn encode(rows: &[u32], source_rows: u64, data: &mut Vec<u8>) -> Result<RowSetRecord> {
    let increasing = rows.iter().zip(rows.iter().skip(1)).all(|(a, b)| a < b);
    if !increasing || rows.last().is_some_and(|&last| u64::from(last) >= source_rows) {
        return Err(Error::new(ErrorKind::InvalidArgument, "selected rows must increase and lie in their row group"));
    }
    let served = rows.len() as u64;
    let offset = U64::new(data.len() as u64);
    let record = |kind: u32, runs: usize| RowSetRecord {
        source_rows: U64::new(source_rows),
        offset,
        kind: U32::new(kind),
        runs: U32::new(runs as u32),
    };
    if served == source_rows {
        return Ok(record(kind::ALL, 0));
    }
    if source_rows > MAX_SOURCE_ROWS {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("a row group of {source_rows} rows cannot be served in part, at most 2^32 rows can"),
        ));
    }
    let runs = rows.chunk_by(|&a, &b| a.checked_add(1) == Some(b));
    let run_count = runs.clone().count();
    let size = |record: &RowSetRecord| container_len(record, served).unwrap_or(u64::MAX);
    let candidates = [record(kind::RUNS, run_count), record(kind::OFFSETS, 0), record(kind::BITMAP, 0)];
    let best = candidates.into_iter().min_by_key(size).unwrap_or_else(|| record(kind::BITMAP, 0));

    match best.kind.get() {
        kind::RUNS => {
            let mut end = 0_u32;
            for run in runs {
                end = end.saturating_add(run.len() as u32);
                let start = U32::new(run.first().copied().unwrap_or_default());
                data.extend_from_slice(Run { start, end: U32::new(end) }.as_bytes());
            }
        }
        kind::OFFSETS => data.extend(rows.iter().flat_map(|row| row.to_le_bytes())),
        _ => encode_bitmap(rows, source_rows, data),
    }
    Ok(best)
}

fn encode_bitmap(rows: &[u32], source_rows: u64, data: &mut Vec<u8>) {
    let mut bits = vec![0_u64; words(source_rows) as usize];
    for &row in rows {
        if let Some(word) = bits.get_mut((u64::from(row) / WORD_BITS) as usize) {
            *word |= 1 << (u64::from(row) % WORD_BITS);
        }
    }
    let mut rank = 0_u32;
    for block in bits.chunks(BLOCK_WORDS as usize) {
        data.extend_from_slice(&rank.to_le_bytes());
        rank = block.iter().map(|word| word.count_ones()).fold(rank, u32::saturating_add);
    }
    data.extend(bits.iter().flat_map(|word| word.to_le_bytes()));
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rng(seed: u64) -> impl FnMut() -> u64 {
        let mut state = seed;
        move || {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            mixed ^ (mixed >> 31)
        }
    }

    /// Encodes behind some other bytes, because containers follow one another in the section.
    fn encoded(rows: &[u32], source_rows: u64) -> (RowSetRecord, Vec<u8>) {
        let mut data = vec![0xAA; 5];
        let record = encode(rows, source_rows, &mut data).unwrap();
        assert_eq!(data.len() as u64 - 5, container_len(&record, rows.len() as u64).unwrap());
        (record, data)
    }

    fn assert_serves(rows: &[u32], source_rows: u64, expected_kind: Option<u32>) {
        let (record, data) = encoded(rows, source_rows);
        if let Some(expected) = expected_kind {
            assert_eq!(record.kind.get(), expected);
        }
        let Some(set) = RowSet::new(&record, rows.len() as u64, &data) else {
            assert_eq!(record.kind.get(), kind::ALL);
            assert_eq!(rows.len() as u64, source_rows);
            return;
        };
        set.check().unwrap();
        assert_eq!((set.len(), set.source_rows(), set.is_empty()), (rows.len() as u64, source_rows, rows.is_empty()));
        assert_eq!(set.iter().map(|row| row as u32).collect::<Vec<_>>(), rows);
        for (slot, &row) in rows.iter().enumerate() {
            assert_eq!(set.select(slot as u64), Some(u64::from(row)), "slot {slot}");
        }
        assert_eq!(set.select(rows.len() as u64), None);
        assert_eq!(set.select(u64::MAX), None);
        let mut before = 0;
        for row in 0..source_rows {
            let served = rows.get(before) == Some(&(row as u32));
            assert_eq!((set.rank(row), set.contains(row)), (before as u64, served), "row {row}");
            before += usize::from(served);
        }
        assert_eq!(set.rank(source_rows), rows.len() as u64);
        assert_eq!(set.rank(u64::MAX), rows.len() as u64);
        assert!(!set.contains(source_rows));
        let runs: Vec<_> = set.runs().collect();
        assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start), "runs touch: {runs:?}");
    }

    #[test]
    fn a_search_that_begins_anywhere_finds_what_bisecting_finds() {
        for len in [0, 1, 2, 3, 7, 40] {
            for ones in 0..=len {
                let items: Vec<bool> = (0..len).map(|at| at < ones).collect();
                for near in (0..len + 3).chain([usize::MAX - 1, usize::MAX]) {
                    assert_eq!(partition_near(&items, near, |item| *item), ones, "{len} items from {near}");
                }
            }
        }
        assert_eq!(proportion(7, 0, 10), usize::MAX);
        assert_eq!((proportion(0, 8, 4), proportion(7, 8, 4)), (0, 3));
    }

    #[test]
    fn every_container_serves_what_was_selected() {
        let every = |n: u32, step: usize| (0..n).step_by(step).collect::<Vec<_>>();
        assert_serves(&every(1000, 1), 1000, Some(kind::ALL));
        assert_serves(&(100..900).collect::<Vec<_>>(), 1000, Some(kind::RUNS));
        assert_serves(&(0..100).chain(500..1000).collect::<Vec<_>>(), 1000, Some(kind::RUNS));
        assert_serves(&every(1000, 2), 1000, Some(kind::BITMAP));
        assert_serves(&every(1024, 3), 1024, Some(kind::BITMAP));
        assert_serves(&every(1025, 2), 1025, Some(kind::BITMAP));
        assert_serves(&every(1000, 100), 1000, Some(kind::OFFSETS));
        assert_serves(&[], 1000, None);
        assert_serves(&[], 0, Some(kind::ALL));
        assert_serves(&[999], 1000, None);
        assert_serves(&[1, 2, 5], 6, None);
    }

    #[test]
    fn the_last_of_two_to_the_32_rows_can_be_selected() {
        let rows = [0, 7, u32::MAX];
        let (record, data) = encoded(&rows, MAX_SOURCE_ROWS);
        let set = RowSet::new(&record, 3, &data).unwrap();
        set.check().unwrap();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 7, u64::from(u32::MAX)]);
        assert_eq!(set.rank(u64::from(u32::MAX)), 2);
        let mut run = Vec::new();
        let record = RowSetRecord {
            source_rows: U64::new(MAX_SOURCE_ROWS),
            offset: U64::new(0),
            kind: U32::new(kind::RUNS),
            runs: U32::new(1),
        };
        run.extend_from_slice(Run { start: U32::new(1), end: U32::new(u32::MAX) }.as_bytes());
        let set = RowSet::new(&record, u64::from(u32::MAX), &run).unwrap();
        set.check().unwrap();
        assert_eq!(set.select(u64::from(u32::MAX) - 1), Some(u64::from(u32::MAX)));
        assert!(encode(&rows, MAX_SOURCE_ROWS + 1, &mut Vec::new()).is_err());
    }

    #[test]
    fn a_selection_costs_at_most_1_1_bits_per_source_row_at_every_selectivity() {
        for source_rows in [10_000_u64, 131_072, 1_000_003] {
            for percent in 0..=100 {
                let mut next = rng(percent);
                let rows: Vec<u32> = (0..source_rows as u32).filter(|_| next() % 100 < percent).collect();
                let mut data = Vec::new();
                encode(&rows, source_rows, &mut data).unwrap();
                let bits = 8 * (data.len() + size_of::<RowSetRecord>());
                assert!(bits as f64 <= 1.1 * source_rows as f64, "{bits} bits, {percent} % of {source_rows} rows");
            }
        }
    }

    #[test]
    fn rows_out_of_order_or_out_of_range_are_not_encoded() {
        for (rows, source_rows) in [(&[1, 1][..], 10), (&[2, 1], 10), (&[10], 10), (&[0], 0)] {
            let error = encode(rows, source_rows, &mut Vec::new()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        }
    }

    #[test]
    fn a_container_that_does_not_hold_what_its_record_says_is_refused() {
        let rows: Vec<u32> = (0..1000).step_by(2).collect();
        let selections = [rows, (5..700).chain(800..900).collect(), vec![3, 60, 900]];
        for rows in selections {
            let (record, data) = encoded(&rows, 1000);
            for bit in 5 * 8..data.len() * 8 {
                let mut damaged = data.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                let set = RowSet::new(&record, rows.len() as u64, &damaged).unwrap();
                // A flip may give another selection of the same size, which is a container in its own right.
                if set.check().is_ok() {
                    assert_eq!(set.iter().count(), rows.len());
                    assert!(set.iter().all(|row| row < 1000));
                }
                for probe in [0, 1, 500, 999, 1000, u64::MAX] {
                    let _ = (set.select(probe), set.rank(probe), set.runs().count());
                }
            }
            assert!(RowSet::new(&record, rows.len() as u64, &data[..data.len() - 1]).is_none());
        }
    }

    #[test]
    fn a_record_that_cannot_be_is_refused() {
        let record = |kind, source_rows, runs| RowSetRecord {
            source_rows: U64::new(source_rows),
            offset: U64::new(0),
            kind: U32::new(kind),
            runs: U32::new(runs),
        };
        assert!(container_len(&record(kind::ALL, 10, 0), 9).is_err());
        assert!(container_len(&record(kind::OFFSETS, 10, 0), 11).is_err());
        assert!(container_len(&record(kind::OFFSETS, 10, 1), 5).is_err());
        assert!(container_len(&record(kind::BITMAP, MAX_SOURCE_ROWS + 1, 0), 5).is_err());
        assert!(container_len(&record(4, 10, 0), 5).is_err());
        assert!(container_len(&record(kind::ALL, u64::MAX, 0), u64::MAX).is_ok());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_selection_is_served_as_selected(
            rows in prop::collection::btree_set(0..3000_u32, 0..3000),
            runs in any::<bool>(),
        ) {
            let rows: Vec<u32> = if runs {
                // Long runs with short gaps, the case that scattered rows never reach.
                (0..3000).filter(|row| !rows.contains(&(row / 40))).collect()
            } else {
                rows.into_iter().collect()
            };
            assert_serves(&rows, 3000, None);
        }
    }
}
