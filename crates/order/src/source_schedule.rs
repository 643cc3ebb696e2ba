//! Which of several sources comes at which position, so that each has its share of every stretch of an epoch.
//!
//! Two steps. A binary tree over the sources deals the places of an epoch: at each node a place goes left whenever the
//! left side's share of the places so far, rounded, has grown by one (Bresenham's line). So after any number of places
//! each side has its exact share to within a half, and each source to within the sum of that over its path; at the end
//! all counts are exact. Then the positions of every window are permuted among its places, so that neither the pattern
//! nor the stride of a rank through it shows.

use serde::{Deserialize, Serialize};

use super::feistel::Feistel;
use super::philox::Philox;
use super::reachable;

const TAG: &[u8; 16] = b"rowdex picks v1\0";

/// Windows have 2^12 positions or more.
const WINDOW_BITS: u32 = 12;
/// And eight or more for each source, so that sources do not come with the same neighbours again and again.
const SOURCE_BITS: u32 = 3;

/// How many positions each source has in an epoch, and where.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SourceSchedule {
    /// The counts of the sources before, and that of all at the end.
    starts: Vec<u64>,
    window_bits: u32,
    seed: u64,
}

/// The place of a position: the source, and how many places of it come before in the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scheduled {
    pub(super) source: usize,
    pub(super) number: u64,
}

impl SourceSchedule {
    /// The counts add up to less than 2^63.
    pub(super) fn new(counts: &[u64], seed: u64) -> Self {
        let mut sum = 0;
        let starts = std::iter::once(0)
            .chain(counts.iter().map(|count| {
                sum += count;
                sum
            }))
            .collect();
        let sources = usize::BITS - counts.len().saturating_sub(1).leading_zeros();
        Self { starts, window_bits: WINDOW_BITS.max(sources + SOURCE_BITS), seed }
    }

    pub(super) fn len(&self) -> u64 {
        self.starts.last().copied().unwrap_or_default()
    }

    /// The count of a source.
    pub(super) fn count(&self, source: usize) -> u64 {
        self.between(source, source + 1)
    }

    /// The counts of the sources from `first` up to `end`, together.
    fn between(&self, first: usize, end: usize) -> u64 {
        let start = |at: usize| self.starts.get(at).copied().unwrap_or_default();
        start(end).saturating_sub(start(first))
    }

    /// The permutations of one epoch.
    pub(super) fn epoch(&self, epoch: u64) -> ScheduleWindows {
        ScheduleWindows { len: self.len(), bits: self.window_bits, draws: Philox::new(TAG, self.seed, epoch) }
    }

    /// What is at a place below `len`. O(log of the sources).
    pub(super) fn at(&self, place: u64) -> Scheduled {
        let mut first = 0;
        let mut end = self.starts.len().saturating_sub(1);
        let mut number = place;
        while end - first > 1 {
            let middle = first + (end - first) / 2;
            let (before, is_left) = deal(number, self.between(first, middle), self.between(first, end));
            if is_left {
                (end, number) = (middle, before);
            } else {
                (first, number) = (middle, number - before);
            }
        }
        Scheduled { source: first, number }
    }

    /// The place of what [`at`](Self::at) gives: its inverse.
    pub(super) fn place(&self, pick: Scheduled) -> u64 {
        self.place_between(0, self.starts.len().saturating_sub(1), pick)
    }

    fn place_between(&self, first: usize, end: usize, pick: Scheduled) -> u64 {
        if end - first <= 1 {
            return pick.number;
        }
        let middle = first + (end - first) / 2;
        let all = u128::from(self.between(first, end));
        if pick.source < middle {
            // The least x with round((x + 1) left / all) > number, that is (x + 1) left / all >= number + 1/2.
            let left = u128::from(self.between(first, middle)).max(1);
            let number = u128::from(self.place_between(first, middle, pick));
            (((2 * number + 1) * all).div_ceil(2 * left) - 1) as u64
        } else {
            // The least x with x + 1 - round((x + 1) left / all) > number, that is (x + 1) right / all > number + 1/2.
            let right = u128::from(self.between(middle, end)).max(1);
            let number = u128::from(self.place_between(middle, end, pick));
            ((2 * number + 1) * all / (2 * right)) as u64
        }
    }
}

/// How many of the first `x` of `all` places the left side has, of which it has `left` in the end, and whether it has
/// the next.
///
/// It has `round(x * left / all)`: `floor((2 x left + all) / (2 all))`.
fn deal(x: u64, left: u64, all: u64) -> (u64, bool) {
    // Below 2^31 all of it fits 64 bits, whose division is several times as fast.
    if all < 1 << 31 {
        let scaled = 2 * x * left + all;
        let whole = (2 * all).max(1);
        let before = scaled / whole;
        return (before, scaled - before * whole + 2 * left >= whole);
    }
    let left = u128::from(left);
    let all = u128::from(all);
    let scaled = 2 * u128::from(x) * left + all;
    let whole = 2 * all;
    let before = scaled / whole;
    (before as u64, scaled - before * whole + 2 * left >= whole)
}

/// The permutations of positions among places within the windows of one epoch.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScheduleWindows {
    len: u64,
    bits: u32,
    draws: Philox,
}

impl ScheduleWindows {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// The number of the window that a position is in.
    pub(super) fn of(&self, position: u64) -> u64 {
        position >> self.bits
    }

    /// The permutation of a window that has positions.
    pub(super) fn permutation(&self, window: u64) -> ScheduleWindow {
        let first = window << self.bits;
        let feistel = keyed(self.draws, window, (self.len - first).min(1 << self.bits));
        ScheduleWindow { first, feistel }
    }

    /// The place of a position below `len`.
    pub(super) fn place(&self, position: u64) -> u64 {
        self.permutation(self.of(position)).place(position)
    }

    /// Writes the rows at positions `first`, `first + stride`, …, as
    /// [`EpochOrder::fill_strided`](super::EpochOrder::fill_strided) does; `row` tells those of places.
    pub(super) fn fill(&self, first: u64, stride: u64, rows: &mut [u64], row: impl Fn(u64) -> Option<u64>) -> usize {
        let count = reachable(first, stride, self.len, rows.len());
        let mut window = None;
        let mut position = first;
        for (written, slot) in rows[..count].iter_mut().enumerate() {
            let number = self.of(position);
            let permutation = match &window {
                Some((at, permutation)) if *at == number => permutation,
                _ => &window.insert((number, self.permutation(number))).1,
            };
            match row(permutation.place(position)) {
                Some(row) => *slot = row,
                None => return written,
            }
            position = position.wrapping_add(stride);
        }
        count
    }

    /// The position of a place below `len`.
    pub(super) fn position(&self, place: u64) -> u64 {
        let ScheduleWindow { first, feistel } = self.permutation(self.of(place));
        first + feistel.inverse(place - first)
    }
}

/// The permutation of one window.
#[derive(Debug)]
pub(super) struct ScheduleWindow {
    first: u64,
    feistel: Feistel,
}

impl ScheduleWindow {
    /// The place of a position of this window.
    #[inline]
    pub(super) fn place(&self, position: u64) -> u64 {
        self.first + self.feistel.forward(position - self.first)
    }
}

/// The network over `len` elements whose round keys are the eight words numbered from `4 * number` on.
pub(super) fn keyed(draws: Philox, number: u64, len: u64) -> Feistel {
    let [[a, b], [c, d], [e, f], [g, h]] = [0, 1, 2, 3].map(|i| draws.words(number.wrapping_mul(4).wrapping_add(i)));
    Feistel::new(len, [a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_simple_mixture_is_dealt_evenly() {
        let schedule = SourceSchedule::new(&[6, 2], 0);
        let sources: Vec<usize> = (0..8).map(|place| schedule.at(place).source).collect();
        assert_eq!(sources, [0, 0, 1, 0, 0, 0, 1, 0]);
    }

    #[test]
    fn windows_grow_with_the_sources_and_the_last_one_is_shorter() {
        assert_eq!(SourceSchedule::new(&[1; 512], 0).window_bits, 12);
        assert_eq!(SourceSchedule::new(&[1; 513], 0).window_bits, 13);
        let windows = SourceSchedule::new(&[3000, 2000], 1).epoch(0);
        assert_eq!((windows.of(4095), windows.of(4096)), (0, 1));
        let mut places: Vec<u64> = (0..5000).map(|q| windows.place(q)).collect();
        assert!(places[..4096].iter().all(|place| *place < 4096));
        assert!((0..5000).all(|q| windows.position(windows.place(q)) == q));
        places.sort_unstable();
        assert!(places.into_iter().eq(0..5000));
    }

    proptest! {
        #[test]
        fn every_stretch_has_the_share_of_every_source(
            counts in prop::collection::vec(prop_oneof![0_u64..5, 0_u64..200], 1..40),
        ) {
            let schedule = SourceSchedule::new(&counts, 0);
            let len: u64 = counts.iter().sum();
            let depth = f64::from(usize::BITS - (counts.len() - 1).leading_zeros());
            let mut seen = vec![0_u64; counts.len()];
            for place in 0..len {
                let pick = schedule.at(place);
                prop_assert_eq!(pick.number, seen[pick.source], "numbers of a source run on");
                prop_assert_eq!(schedule.place(pick), place);
                seen[pick.source] += 1;
                for (seen, count) in seen.iter().zip(&counts) {
                    let exact = *count as f64 * (place + 1) as f64 / len as f64;
                    prop_assert!((*seen as f64 - exact).abs() <= depth / 2.0 + 1e-9, "{} of {}", seen, exact);
                }
            }
            prop_assert_eq!(seen, counts);
        }

        #[test]
        fn places_of_the_longest_epochs_are_found_again(
            counts in prop::collection::vec(1_u64..1 << 58, 1..32), part in 0.0..1.0_f64,
        ) {
            let schedule = SourceSchedule::new(&counts, 0);
            let place = ((schedule.len() as f64 * part) as u64).min(schedule.len() - 1);
            let pick = schedule.at(place);
            prop_assert!(pick.number < counts[pick.source]);
            prop_assert_eq!(schedule.place(pick), place);
            let windows = schedule.epoch(3);
            prop_assert_eq!(windows.position(windows.place(place)), place);
        }
    }
}
