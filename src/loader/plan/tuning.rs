//! How the memory is dealt out: to rows on the carousel, to units that stay, to batches, and to what is known of rows.

use super::{FREE, MADE, MARK, PICKED, Plan};

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

impl Plan {
    pub(super) fn tune(&mut self) {
        let all = self.bytes * self.decoded.value;
        let largest = self.largest * self.decoded.value;
        let rows = (self.rows as f64).max(1.0);
        let row = (self.bytes * self.kept.value / rows).max(1e-3);
        let batch = self.batch_rows as f64;
        let segment_of = |memory: f64, batch: f64| (SEGMENT_BYTES.min(memory / SEGMENTS) / (row + MADE)).max(batch);
        let segment = segment_of(self.memory, batch);
        let marks = (self.with_rows / segment_of(self.memory * self.scale, batch * self.scale)).min(1.0);
        let listed = self.slot * self.listed.value + MARK * marks;
        // What rows that wait take beside a unit that stays, and what is known of them.
        let beside = self.cutting.beside(row) + listed;
        // Long enough that picking rows out of a unit is not all overhead, a small part of the memory, and a moment's
        // walk.
        let most = (self.memory / SHORT_PART / beside).min(SHORT_WALK / self.scale).max(largest / 2.0 / row);
        let short = (1024.0 * self.units.len() as f64).min(most).max(segment);
        let made = segment * (row + MADE);
        let under_way = UNDER_WAY.min(1.0 + self.memory / (made * 8.0));
        let memory = (self.memory - self.fixed).max(self.memory / 2.0);
        let free = (memory - under_way * made).max(memory / 4.0);
        let tuned = Tuned { horizon: rows, short, stay: 1.0, carousel: memory, segment, row, lists: short * listed };
        self.tuned = if all + short * beside <= memory + largest {
            tuned
        } else {
            let spare = FREE as f64 / self.scale;
            let stay = staying(all, free - short * (beside - listed), row, (listed - spare / rows).max(0.0));
            let share = (1.0 - stay).max(1e-9);
            let rest = free - if stay > 0.0 { stay * (all + short * (beside - listed)) } else { 0.0 };
            // Of each row of the horizon, what is held of it and what is known of it, on average.
            let (held, known) = (share * row / 2.0, (1.0 + stay) * listed / 2.0);
            // What it takes to get rows out of the largest unit, if that is more than the unit itself.
            let picked = PICKED as f64 * self.most_rows / rows;
            let counted = (rest / held).min((rest + spare) / (held + known));
            let reach = counted.min((rest + spare + largest) / (held + known + picked));
            let carousel = reach * held;
            let extraction = 2.0 * carousel * self.scale / (self.with_rows * share).max(1.0);
            let used = self.cutting.used(extraction, row).min(1.0);
            let carousel = carousel / (1.0 + used);
            let horizon = (2.0 * carousel / (row * share)).min(rows).max(1.0);
            Tuned { horizon, stay, carousel, lists: horizon * known, ..tuned }
        };
    }

    /// Whether the lists of rows that are looked ahead at take all that they may.
    pub(super) fn is_listed(&self) -> bool {
        /// Rows of other units may be due sooner than on average.
        const MORE: f64 = 1.25;
        self.listing as f64 > self.tuned.lists * MORE + FREE as f64 / self.scale
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
