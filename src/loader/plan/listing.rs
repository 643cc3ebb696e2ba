//! What is known of units, and of the rows that are looked ahead at, which takes memory, too.

use super::UnitSize;
use crate::loader::pieces;

/// Bytes of what is known of units, and as many of what is known of rows, that are not counted.
pub(super) const FREE: u64 = 1 << 20;
/// Bytes that are known of a unit here, on the carousel, and where units begin.
const UNIT: u64 = 512;

/// Bytes that are counted of what is known of so many units.
pub(crate) fn fixed(units: u64) -> u64 {
    (units * UNIT).saturating_sub(FREE)
}

/// The lists of rows that are due and not asked for, by their bytes.
#[derive(Debug)]
pub(super) struct Listing {
    /// One of the plan's rows stands for so many.
    pub(super) scale: f64,
    /// Bytes of a slot in a list, as estimated.
    pub(super) slot: f64,
    /// Bytes of what is known of all units, however few rows are looked at.
    pub(super) fixed: f64,
    bytes: usize,
    most: usize,
}

impl Listing {
    /// The lists of units of these sizes, each row of which stands for so many.
    pub(super) fn new<'a>(sizes: impl ExactSizeIterator<Item = &'a UnitSize>, scale: u64) -> Self {
        let units = sizes.len() as u64;
        let mut slots = 0.0;
        let mut rows = 0;
        for size in sizes {
            slots += f64::from(pieces::width(size.rows.saturating_mul(scale))) * size.rows as f64;
            rows += size.rows;
        }
        let scale = scale as f64;
        // A list has room for up to an eighth more.
        let slot = slots / (rows as f64).max(1.0) * 17.0 / 16.0;
        Self { scale, slot, fixed: fixed(units) as f64 / scale, bytes: 0, most: 0 }
    }

    /// Says that something in the lists takes so many bytes instead of so many.
    pub(super) fn replace(&mut self, before: usize, after: usize) {
        self.bytes = self.bytes + after - before;
    }

    /// Says that the lists are at least as long now as they will be for a while.
    pub(super) fn note(&mut self) {
        self.most = self.most.max(self.bytes);
    }

    /// Bytes of what is known, as far as they are counted.
    pub(super) fn counted(&self) -> u64 {
        self.count(self.bytes)
    }

    /// The most that this ever was.
    pub(super) fn most_counted(&self) -> u64 {
        self.count(self.most)
    }

    fn count(&self, bytes: usize) -> u64 {
        (self.fixed + (bytes as f64 - self.spare()).max(0.0)) as u64
    }

    /// Bytes of lists that are not counted.
    pub(super) fn spare(&self) -> f64 {
        FREE as f64 / self.scale
    }

    /// Whether the lists take all that they may.
    pub(super) fn fills(&self, bytes: f64) -> bool {
        /// Rows of other units may be due sooner than on average.
        const MORE: f64 = 1.25;
        self.bytes as f64 > bytes * MORE + self.spare()
    }
}
