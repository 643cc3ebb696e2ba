//! Bytes in memory, and how many may be.

use crate::loader::plan::SWING;

/// By how much a loader with so many threads may exceed its memory: rows fill it, and the largest row group must be
/// decoded besides them. So that the other threads need not wait for that, each may have another one, within one row
/// group and the part of the memory by which rows come and go as planned.
pub(crate) fn excess(largest: u64, memory: u64, threads: usize) -> u64 {
    let others = largest.saturating_mul(threads.saturating_sub(1) as u64);
    largest.saturating_add(others.min(largest.saturating_add(memory / SWING)))
}

/// Bytes in memory, and of what.
#[derive(Debug, Default)]
pub(super) struct BytesInUse {
    /// Rows on the carousel, row groups that stay decoded, batches that wait, where long values lie, what is shared.
    pub(super) held: u64,
    /// Dictionaries that units share.
    pub(super) shared: u64,
    /// Set aside for extractions under way.
    pub(super) in_flight: u64,
    pub(super) read_ahead: u64,
    /// What the plan knows, and slots of extractions that were planned and have not begun.
    pub(super) listing: u64,
    pub(super) planned: u64,
    pub(super) peak: u64,
}

impl BytesInUse {
    pub(super) fn total(&self) -> u64 {
        self.held + self.in_flight + self.read_ahead + self.listing + self.planned
    }

    pub(super) fn note_peak(&mut self) {
        self.peak = self.peak.max(self.total());
    }
}

/// What is read of a row group and of its open pages, until that is measured: a file that is not compressed has about
/// as many bytes as the row group takes when decoded, and some pages are half of a row group.
pub(super) const READ: f64 = 1.5;

/// A part of a decoded row group's bytes, as it is measured.
#[derive(Debug)]
pub(super) struct SmoothedRatio(pub(super) f64);

impl SmoothedRatio {
    pub(super) fn of(&self, whole: u64) -> u64 {
        (whole as f64 * self.0) as u64
    }

    /// Follows the truth at once when it is worse than believed, because memory is at stake, and over some extractions
    /// when it is better, because the next unit may be like those before.
    pub(super) fn add(&mut self, bytes: u64, whole: u64) {
        /// A unit that takes more times what was expected has sizes that are told wrongly, which the plan learns.
        /// Nothing would be decoded beside it otherwise for as long as this is believed.
        const MOST: f64 = 4.0;
        let real = bytes as f64 / whole.max(1) as f64;
        self.0 = real.max(self.0 * 0.75 + real * 0.25).min(MOST);
    }
}
