//! How the memory is dealt out: to rows on the carousel, to units that stay, to batches, and to what is known of rows.

use super::{MADE, MARK, PICKED, UnitSize};
use crate::loader::pieces;
use rowdex_rows::Cutting;

/// No segment is larger than this, so that its rows, and the batches made of them, are still in a core's cache.
const SEGMENT_BYTES: f64 = (1 << 20) as f64;
/// A segment is at most this part of the memory: several are on their way at any time.
const SEGMENTS: f64 = 128.0;
/// Segments that are being assembled or wait for the consumer, whose rows are in memory but no longer on the carousel.
const UNDER_WAY: f64 = 3.0;
/// Of segments that are a larger part of the memory than this, only one may wait.
pub(super) const LARGE: f64 = 12.0;
/// Rows of units that stay and are asked for at once take at most this part of the memory.
const SHORT_PART: f64 = 64.0;
/// Their order is walked before the first of them is got, which takes some milliseconds.
const SHORT_WALK: f64 = (1 << 18) as f64;

/// How far estimates are off.
#[derive(Debug)]
pub(super) struct Ratio {
    pub(super) value: f64,
    pub(super) estimated: f64,
    pub(super) real: f64,
}

impl Default for Ratio {
    fn default() -> Self {
        Self { value: 1.0, estimated: 0.0, real: 0.0 }
    }
}

impl Ratio {
    /// Returns whether it changed noticeably.
    pub(super) fn measure(&mut self, estimate: u64, real: u64, memory: f64) -> bool {
        // Older rows count less and less, so that a change in the data is followed.
        if self.estimated > memory.max(1.0) {
            self.estimated /= 2.0;
            self.real /= 2.0;
        }
        self.estimated += estimate as f64;
        self.real += real as f64;
        let value = self.real / self.estimated;
        let changed = value > 0.0 && value.is_finite() && (value / self.value - 1.0).abs() > 0.002;
        if changed {
            self.value = value;
        }
        changed
    }
}

/// What follows from the memory and the measured size of rows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tuned {
    /// In rows.
    pub(super) horizon: f64,
    /// The horizon of units that stay decoded.
    pub(super) short: f64,
    /// The part of the data that stays decoded.
    pub(super) stay: f64,
    /// What rows on the carousel may take, in bytes.
    pub(super) carousel: f64,
    /// Rows of a segment.
    pub(super) segment: f64,
    /// Bytes of one row.
    pub(super) row: f64,
    /// What the lists of rows that are looked ahead at may take, in bytes.
    pub(super) lists: f64,
}

/// About how many bytes a plan may hold, in batches of how many rows, and how rows that are kept are cut.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) memory: f64,
    pub(crate) batch_rows: u64,
    pub(crate) cutting: Cutting,
}

/// How far estimates are off: of rows that are kept, of units as they are decoded, and of the lists of slots, where
/// those that follow each other take next to nothing.
#[derive(Debug, Default)]
pub(super) struct Estimates {
    pub(super) kept: Ratio,
    pub(super) decoded: Ratio,
    pub(super) listed: Ratio,
}

/// All units together.
#[derive(Debug)]
pub(super) struct Totals {
    units: f64,
    /// Units with rows.
    with_rows: f64,
    pub(super) rows: u64,
    /// Those of the unit that has most.
    most_rows: f64,
    bytes: f64,
    pub(super) largest: f64,
}

impl Totals {
    pub(super) fn of(sizes: &[UnitSize]) -> Self {
        Self {
            units: sizes.len() as f64,
            with_rows: sizes.iter().filter(|size| size.rows > 0).count() as f64,
            rows: sizes.iter().map(|size| size.rows).sum(),
            most_rows: sizes.iter().map(|size| size.rows).max().unwrap_or(0) as f64,
            bytes: sizes.iter().map(|size| size.bytes as f64).sum(),
            largest: sizes.iter().map(|size| size.cost.max(size.bytes) as f64).fold(0.0, f64::max),
        }
    }
}

impl Tuned {
    pub(super) fn new(budget: &Budget, totals: &Totals, estimates: &Estimates, listing: &Listing) -> Self {
        let all = totals.bytes * estimates.decoded.value;
        let largest = totals.largest * estimates.decoded.value;
        let rows = (totals.rows as f64).max(1.0);
        let row = (totals.bytes * estimates.kept.value / rows).max(1e-3);
        let batch = budget.batch_rows as f64;
        let segment_of = |memory: f64, batch: f64| (SEGMENT_BYTES.min(memory / SEGMENTS) / (row + MADE)).max(batch);
        let segment = segment_of(budget.memory, batch);
        let marks = (totals.with_rows / segment_of(budget.memory * listing.scale, batch * listing.scale)).min(1.0);
        let listed = listing.slot * estimates.listed.value + MARK * marks;
        // What rows that wait take beside a unit that stays, and what is known of them.
        let beside = budget.cutting.beside(row) + listed;
        // Long enough that picking rows out of a unit is not all overhead, a small part of the memory, and a moment's
        // walk.
        let most = (budget.memory / SHORT_PART / beside).min(SHORT_WALK / listing.scale).max(largest / 2.0 / row);
        let short = (1024.0 * totals.units).min(most).max(segment);
        let made = segment * (row + MADE);
        let under_way = UNDER_WAY.min(1.0 + budget.memory / (made * 8.0));
        let memory = (budget.memory - listing.fixed).max(budget.memory / 2.0);
        let free = (memory - under_way * made).max(memory / 4.0);
        let tuned = Self { horizon: rows, short, stay: 1.0, carousel: memory, segment, row, lists: short * listed };
        if all + short * beside <= memory + largest {
            tuned
        } else {
            let spare = listing.spare();
            let stay = staying(all, free - short * (beside - listed), row, (listed - spare / rows).max(0.0));
            let share = (1.0 - stay).max(1e-9);
            let rest = free - if stay > 0.0 { stay * (all + short * (beside - listed)) } else { 0.0 };
            // Of each row of the horizon, what is held of it and what is known of it, on average.
            let held = share * row / 2.0;
            let known = (1.0 + stay) * listed / 2.0;
            // What it takes to get rows out of the largest unit, if that is more than the unit itself.
            let picked = PICKED as f64 * totals.most_rows / rows;
            let counted = (rest / held).min((rest + spare) / (held + known));
            let reach = counted.min((rest + spare + largest) / (held + known + picked));
            let carousel = reach * held;
            let extraction = 2.0 * carousel * listing.scale / (totals.with_rows * share).max(1.0);
            let used = budget.cutting.used(extraction, row).min(1.0);
            let carousel = carousel / (1.0 + used);
            let horizon = (2.0 * carousel / (row * share)).min(rows).max(1.0);
            Self { horizon, stay, carousel, lists: horizon * known, ..tuned }
        }
    }
}

/// The part of the data that stays decoded: `all` takes so many bytes, of which `free` may, a row takes `row` on the
/// carousel and `listed` in the lists.
///
/// With a part `x` of the data on the carousel, its rows wait in half of the horizon `T` and those of all units are
/// listed, so that `T (x · row + (2 - x) · listed) / 2` is what is left, `free - (1 - x) · all`. Decodes a row are
/// `x / T`.
fn staying(all: f64, free: f64, row: f64, listed: f64) -> f64 {
    let deficit = all - free;
    if row <= listed {
        return 0.0;
    }
    let root = (deficit * deficit + 2.0 * listed * deficit * all / (row - listed)).max(0.0).sqrt();
    (1.0 - (deficit + root) / all.max(1.0)).clamp(0.0, 1.0)
}

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
    /// The most that this ever was.
    pub(super) most: usize,
}

impl Listing {
    /// The lists of units of these sizes, each row of which stands for so many.
    pub(super) fn new(sizes: &[UnitSize], scale: u64) -> Self {
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

    /// How many of so many bytes are counted.
    pub(super) fn count(&self, bytes: usize) -> u64 {
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
