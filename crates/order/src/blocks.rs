//! Row groups shuffled, and rows shuffled among a few row groups.

use std::convert::Infallible;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3Default;

use super::fingerprint::fingerprint;
use super::permutation::{Permutation, PermutationKey};
use super::recent::Recent;
use super::{EpochOrder, Order, OrderKind, OrderSpec, Outline, Uses, check_len, reachable};
use rowdex_base::error::{Error, ErrorKind, Result};

/// Rows of kept shuffles, at 4 bytes each: 64 MiB.
const KEPT_ROWS: u64 = 1 << 24;

/// Shuffles kept, however short.
const KEPT: u64 = 1 << 12;

/// A shuffle that stays near the files: each epoch shuffles the row groups, cuts them into *windows* of `k`, and
/// shuffles the rows inside each window. The dial between locality and randomness: with `k` = 1 every row group is read
/// once and served in one piece, with all of them in one window this is a global shuffle.
///
/// A reader that walks through the order needs `k` row groups at a time. In return, rows that are far apart in the
/// files come together only if their row groups meet in a window: where files are sorted by what the model should
/// learn, a small `k` makes batches of one kind. `docs/orders.md` has the exact algorithm and says how to choose.
///
/// - Every epoch is a permutation of all rows, drawn from (seed, epoch).
/// - Row groups may be of any sizes. Empty ones do not count.
/// - An epoch takes O(row groups) time and 16 bytes a row group to prepare. Beyond, the shuffles of the windows used
///   last are kept, 4 bytes a row and 64 MiB at most; windows of more than 2^16 rows take none.
/// - [`fill`](EpochOrder::fill) and [`fill_strided`](EpochOrder::fill_strided) take nanoseconds a row as they walk
///   through a window. Asking for single [rows](EpochOrder::row) or [positions](EpochOrder::position) here and there
///   costs the shuffle of a whole window each time, unless that is kept: 3 ns for each of its rows up to 2^16, and
///   about 100 ns in all beyond.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Blocks {
    #[serde(with = "crate::shared")]
    groups: Arc<GroupStarts>,
    k: u64,
    seed: u64,
}

/// The row groups that have rows.
#[derive(Debug, Serialize, Deserialize)]
struct GroupStarts {
    /// The first row of each, and how many rows there are.
    starts: Box<[u64]>,
    /// Over their sizes.
    hash: u64,
}

impl GroupStarts {
    fn count(&self) -> u64 {
        self.starts.len().saturating_sub(1) as u64
    }

    fn len(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }
}

impl Blocks {
    const NAME: &str = "blocks";

    /// As many row groups in a window as there are.
    pub const ALL: u64 = u64::MAX;

    /// Shuffles of row groups with these numbers of rows, in the order of their row ids, with `k` of them in a window.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if `k` is 0, or if there are more than [`MAX_LEN`](super::MAX_LEN) rows.
    pub fn new(group_rows: &[u64], k: u64, seed: u64) -> Result<Self> {
        if k == 0 {
            return Err(Error::invalid("blocks of 0 row groups")
                .with_hint("use blocks(1) for the least shuffle, blocks(all) for the most"));
        }
        let mut starts = vec![0];
        let mut hash = Xxh3Default::new();
        let mut len = 0_u64;
        for rows in group_rows.iter().filter(|rows| **rows > 0) {
            len = check_len(len.saturating_add(*rows))?;
            starts.push(len);
            hash.update(&rows.to_le_bytes());
        }
        let groups = GroupStarts { starts: starts.into_boxed_slice(), hash: hash.digest() };
        Ok(Self { k: k.min(groups.count().max(1)), groups: Arc::new(groups), seed })
    }
}

impl Order for Blocks {
    fn len(&self) -> u64 {
        self.groups.len()
    }

    fn rows(&self) -> Option<u64> {
        Some(self.len())
    }

    /// # Errors
    ///
    /// `TooLarge` if there is no memory for 16 bytes a row group.
    fn epoch(&self, epoch: u64) -> Result<Arc<dyn EpochOrder>> {
        let groups = Arc::clone(&self.groups);
        let key = PermutationKey::tagged(b"rowdex blocks v1", self.seed, epoch);
        let sequence = Permutation::new(groups.count(), &key);
        let count = groups.starts.len();
        let mut places = Vec::new();
        places.try_reserve_exact(count).map_err(|_| {
            Error::new(ErrorKind::TooLarge, format!("no memory for the order of {} row groups", groups.count()))
        })?;
        let mut start = 0;
        for group in (0..groups.count()).map_while(|place| sequence.forward(place)) {
            let [first, end] = [groups.starts[group as usize], groups.starts[group as usize + 1]];
            places.push(GroupPlace { start, row: first });
            start += end - first;
        }
        places.push(GroupPlace { start, row: start });
        // No more groups than fit memory, so `k` fits `usize` as they do.
        let k = self.k as usize;
        let longest = longest(&places, k).clamp(1, Permutation::MAX_TABLE);
        let room = (KEPT_ROWS / longest).min(KEPT).min(groups.count().div_ceil(self.k));
        let kept = Recent::new(room as usize);
        Ok(Arc::new(BlocksEpoch { groups, sequence, places: places.into_boxed_slice(), k, key, kept }))
    }

    fn fingerprint(&self) -> u64 {
        let GroupStarts { hash, .. } = *self.groups;
        fingerprint(Self::NAME, self.len(), &[self.seed, self.k, self.groups.count(), hash])
    }

    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn outline(&self) -> Outline {
        Outline::new(OrderKind::Named(OrderSpec::Blocks(self.k))).seeded(self.seed)
    }

    fn follows_row_groups(&self) -> bool {
        self.k < self.groups.count()
    }
}

/// Where a row group lies in the shuffled sequence of them.
#[derive(Debug, Clone, Copy)]
struct GroupPlace {
    /// The position that its rows begin at, before rows are shuffled.
    start: u64,
    /// Its first row.
    row: u64,
}

/// The most rows of a window.
fn longest(places: &[GroupPlace], k: usize) -> u64 {
    let starts = || places.iter().step_by(k).chain(places.last()).map(|place| place.start);
    starts().skip(1).zip(starts()).map(|(end, start)| end - start).max().unwrap_or(0)
}

/// One epoch of [`Blocks`].
#[derive(Debug)]
struct BlocksEpoch {
    groups: Arc<GroupStarts>,
    /// Place in the sequence -> row group.
    sequence: Permutation,
    /// Of every row group, and one more for the end.
    places: Box<[GroupPlace]>,
    k: usize,
    /// Of the shuffles inside windows, and those of them that are kept.
    key: PermutationKey,
    kept: Recent<u64, Arc<Permutation>>,
}

/// Consecutive row groups of the sequence.
#[derive(Debug, Clone, Copy)]
struct GroupWindow {
    number: u64,
    /// Its places in the sequence.
    first: usize,
    end: usize,
    /// Its positions.
    start: u64,
    len: u64,
    /// Places for each position.
    scale: f64,
}

impl BlocksEpoch {
    fn window(&self, place: usize) -> GroupWindow {
        let number = place / self.k;
        let first = number * self.k;
        let end = first.saturating_add(self.k).min(self.places.len() - 1);
        let start = self.places[first].start;
        let len = self.places[end].start - start;
        GroupWindow { number: number as u64, first, end, start, len, scale: (end - first) as f64 / len as f64 }
    }

    /// The shuffle of a window's rows.
    fn shuffle(&self, window: &GroupWindow) -> Arc<Permutation> {
        let make = || Arc::new(Permutation::new(window.len, &self.key.numbered(window.number)));
        if window.len > Permutation::MAX_TABLE {
            return make();
        }
        let Ok(shuffle) = self.kept.get(window.number, || Ok::<_, Infallible>(make()));
        shuffle
    }

    /// The window of a position that exists.
    fn window_at(&self, position: u64) -> GroupWindow {
        self.window(self.places.partition_point(|place| place.start <= position) - 1)
    }

    /// The row at a position of a window, before rows are shuffled.
    #[inline]
    fn unshuffled(&self, window: &GroupWindow, offset: u64) -> u64 {
        let position = window.start + offset;
        // Right at once where row groups are equally long, as most are.
        let mut place = (window.first + (offset as f64 * window.scale) as usize).min(window.end - 1);
        if position < self.places[place].start || position >= self.places[place + 1].start {
            let starts = &self.places[window.first..window.end];
            place = window.first + starts.partition_point(|place| place.start <= position) - 1;
        }
        let GroupPlace { start, row } = self.places[place];
        row + (position - start)
    }
}

impl EpochOrder for BlocksEpoch {
    fn len(&self) -> u64 {
        self.groups.len()
    }

    fn uses(&self) -> Uses {
        Uses::Once
    }

    fn row(&self, position: u64) -> Option<u64> {
        if position >= self.len() {
            return None;
        }
        let window = self.window_at(position);
        let offset = self.shuffle(&window).forward(position - window.start)?;
        Some(self.unshuffled(&window, offset))
    }

    fn position(&self, row: u64) -> Option<u64> {
        if row >= self.len() {
            return None;
        }
        let group = self.groups.starts.partition_point(|start| *start <= row) - 1;
        let place = self.sequence.inverse(group as u64)? as usize;
        let window = self.window(place);
        let offset = self.places[place].start - window.start + (row - self.places[place].row);
        Some(window.start + self.shuffle(&window).inverse(offset)?)
    }

    fn fill_strided(&self, first: u64, stride: u64, rows: &mut [u64]) -> usize {
        let count = reachable(first, stride, self.len(), rows.len());
        let mut position = first;
        let mut rest = &mut rows[..count];
        while !rest.is_empty() {
            let window = self.window_at(position);
            let inside = reachable(position, stride, window.start + window.len, rest.len());
            let (now, later) = rest.split_at_mut(inside);
            super::stride(position - window.start, stride, now);
            position = position.wrapping_add(stride.wrapping_mul(inside as u64));
            self.shuffle(&window).forward_all(now);
            for slot in now.iter_mut() {
                *slot = self.unshuffled(&window, *slot);
            }
            rest = later;
        }
        count
    }
}

#[cfg(test)]
mod tests;
