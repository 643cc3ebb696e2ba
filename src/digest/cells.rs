//! Sums of digests in a fixed number of cells, so that a difference is narrowed down in little memory.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// A difference is narrowed down to one row in so many.
pub(super) const CELLS: u64 = 1 << 12;

/// Sums by position. Several threads add to them, so a sum is two of 64 bits that know no carry.
pub(super) struct Cells {
    /// A cell has 2^shift positions.
    shift: u32,
    sums: Vec<[AtomicU64; 2]>,
}

impl Cells {
    /// For so many positions.
    pub(super) fn new(positions: u64) -> Self {
        let mut shift = 0;
        while positions.checked_shr(shift).unwrap_or(0) >= CELLS {
            shift += 1;
        }
        let mut sums = Vec::new();
        sums.resize_with(CELLS as usize, || [AtomicU64::new(0), AtomicU64::new(0)]);
        Self { shift, sums }
    }

    pub(super) fn add(&self, position: u64, value: u128) {
        if let Some([low, high]) = self.sums.get((position >> self.shift) as usize) {
            low.fetch_add(value as u64, Ordering::Relaxed);
            high.fetch_add((value >> 64) as u64, Ordering::Relaxed);
        }
    }

    /// The positions of each cell that differs from another's, in order.
    pub(super) fn differences<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = Range<u64>> + 'a {
        let value = |sum: &[AtomicU64; 2]| sum.each_ref().map(|half| half.load(Ordering::Relaxed));
        let both = (0_u64..).zip(self.sums.iter().zip(&other.sums));
        let differs = both.filter(move |(_, (a, b))| value(a) != value(b));
        differs.map(|(cell, _)| cell << self.shift..(cell + 1) << self.shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_has_a_cell_and_a_difference_is_told_by_its_positions() {
        for positions in [0, 1, 2, CELLS - 1, CELLS, CELLS + 1, 10 * CELLS + 3, 1 << 62] {
            let (one, other) = (Cells::new(positions), Cells::new(positions));
            for position in [0, positions / 2, positions.saturating_sub(1)] {
                one.add(position, u128::MAX - 5);
                let found: Vec<Range<u64>> = one.differences(&other).collect();
                assert!(found.len() == 1 && found[0].contains(&position), "{position} of {positions}: {found:?}");
                assert!(found[0].end - found[0].start <= (positions / CELLS).max(1) * 2);
                other.add(position, u128::MAX - 5);
                assert_eq!(one.differences(&other).count(), 0);
            }
        }
    }
}
