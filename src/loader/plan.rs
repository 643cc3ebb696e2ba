//! What to read when: which row group to decode next, and which of its rows to keep.
//!
//! The order is known, so the plan walks it ahead of the consumer. When a row is due that is not held, its unit is
//! decoded once and every row of it that is due within the next `T` rows, the horizon, is kept. A kept row then waits
//! `T / 2` on average, so by Little's law (L = λW, J. D. C. Little, "A proof for the queuing formula", 1961) the rows
//! held are `T / 2`, and a memory of `M` rows allows `T = 2M`: each unit is decoded every `2M` rows.
//!
//! - Units whose horizons end at the same time would be decoded at the same time, and the rows held would swing
//!   between nothing and `2M`. So at first the horizons end evenly spaced over `T`, each unit at its own phase; and
//!   where several units become due together later, the memory that is left is dealt out in a stair.
//! - Units that cost more per byte kept are decoded less often: minimising `Σ cost / T` under `Σ bytes · T = M` gives
//!   `T ∝ √(cost / bytes)`.
//! - Memory beyond half of the dataset is better spent on whole units that stay decoded: with a part `f` of the data
//!   kept, the decodes per row are proportional to `(1 - f)² / (M - f)`, least at `f = 2M - 1`. At `M = 1` all stay.
//!
//! - What is known of rows that are due and not asked for takes memory, too: about `T / 2` rows have a place in the
//!   list of their unit, and all of them where units stay. So `M` is the rows that fit *with* these lists, and where
//!   a place takes as much as a row, no unit is worth staying.
//!
//! The plan knows neither files nor threads nor Arrow. It counts in *segments*, runs of batches that are assembled
//! together, and whoever drives it walks the order and [`push`](Plan::push)es one segment whenever it
//! asks for one ([`Next::Look`]).

use std::collections::VecDeque;

use super::groups::UnitSize;
use super::slot_list::{self, SlotList};
use rowdex_rows::{FEWEST_PACKED, LEAST_PIECE, PACKED_PIECE, PIECES};

/// What to do next.
#[derive(Debug)]
pub(crate) enum Next {
    /// Walk the order further: [`Plan::push`] a segment, or [`Plan::end`].
    Look,
    /// Get rows of a unit.
    Extract(Extract),
    /// Everything that the oldest segment needs was asked for by the extractions so far.
    Segment(Segment),
    /// There is nothing more to do.
    End,
}

/// Rows of one unit to get and keep.
#[derive(Debug)]
pub(crate) struct Extract {
    pub(crate) unit: u32,
    /// The slots in the order in which they are due. A slot that is due twice is there twice.
    pub(crate) slots: SlotList,
    /// Whether the unit stays decoded after that.
    pub(crate) keep: bool,
    /// Whether the unit must be decoded for it, not being one that stayed.
    pub(crate) decode: bool,
    /// How many rows the unit has.
    pub(crate) of_rows: u64,
    /// How many bytes the rows take by the sizes that the plan was given, for [`Plan::measure`].
    pub(crate) estimate: u64,
    /// About how many bytes the rows really take.
    pub(crate) bytes: u64,
    /// About how many bytes the whole unit takes.
    pub(crate) whole: u64,
}

/// One segment whose rows were all asked for.
#[derive(Debug)]
pub(crate) struct Segment {
    /// How many rows of which unit it is made of; every unit once.
    pub(crate) parts: Vec<(u32, u32)>,
}

#[derive(Debug)]
struct Tracked {
    size: UnitSize,
    /// Where in `(0, 1]` of the horizon its first extraction ends.
    phase: f64,
    /// How long its horizon is, compared to the others.
    weight: f64,
    /// Slots that are due and not yet asked for, in order, and how many of them each segment needs.
    pending: SlotList,
    marks: VecDeque<Mark>,
    seen: bool,
    stays: bool,
}

#[derive(Debug, Clone, Copy)]
struct Mark {
    /// The number of a segment, modulo 2^32.
    segment: u32,
    rows: u32,
}

/// Rows of one unit that follow each other in it and in the order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Neighbours {
    pub(crate) unit: u32,
    pub(crate) slot: u32,
    pub(crate) rows: u32,
}

#[derive(Debug)]
struct Upcoming {
    /// How many rows come before it.
    start: u64,
    rows: u64,
    /// Units whose first row not yet asked for is in this segment; with `stair`, by falling end of horizon.
    due: Vec<u32>,
    /// Set when it becomes the oldest segment.
    stair: Option<Stair>,
    parts: Vec<(u32, u32)>,
    held: f64,
}

/// How the memory that is left is dealt out among the units that are due together: the `i`-th gets `i` shares.
#[derive(Debug, Clone, Copy)]
struct Stair {
    bytes: f64,
    units: f64,
    step: f64,
}

/// The state machine.
#[derive(Debug)]
pub(crate) struct Plan {
    units: Vec<Tracked>,
    memory: f64,
    rows: u64,
    bytes: f64,
    largest: f64,
    batch_rows: u64,
    /// Bytes per byte estimated, of rows that are kept.
    kept: Ratio,
    /// The same of units as they are decoded.
    decoded: Ratio,
    /// The same of the lists of slots: those that follow each other take next to nothing.
    listed: Ratio,
    /// Bytes of a slot in a list, as estimated, and what is known of all units, however few rows are looked at.
    slot: f64,
    fixed: f64,
    /// Units with rows, and the rows of the largest.
    with_rows: f64,
    most_rows: f64,
    /// One of the plan's rows stands for so many.
    scale: f64,
    /// Bytes of what is known of the rows that are looked ahead at.
    listing: usize,
    most_listed: usize,
    tuned: Tuned,
    /// The bytes of the units before each in the order of choice, as a part of all.
    rank: Vec<f64>,
    ahead: VecDeque<Upcoming>,
    /// The number of `ahead`'s first segment.
    first: u64,
    walked: u64,
    ended: bool,
    held: f64,
    staying: f64,
    peak: f64,
}

/// How far estimates are off.
#[derive(Debug)]
struct Ratio {
    value: f64,
    estimated: f64,
    real: f64,
}

impl Default for Ratio {
    fn default() -> Self {
        Self { value: 1.0, estimated: 0.0, real: 0.0 }
    }
}

impl Ratio {
    /// Returns whether it changed noticeably.
    fn measure(&mut self, estimate: u64, real: u64, memory: f64) -> bool {
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
struct Tuned {
    /// In rows.
    horizon: f64,
    /// The horizon of units that stay decoded.
    short: f64,
    /// The part of the data that stays decoded.
    stay: f64,
    /// What rows on the carousel may take, in bytes.
    carousel: f64,
    /// Rows of a segment.
    segment: f64,
    /// Bytes of one row.
    row: f64,
    /// What the lists of rows that are looked ahead at may take, in bytes.
    lists: f64,
}

/// No segment is larger than this, so that its rows, and the batches made of them, are still in a core's cache.
const SEGMENT_BYTES: f64 = (1 << 20) as f64;
/// A segment is at most this part of the memory: several are on their way at any time.
const SEGMENTS: f64 = 128.0;
/// Segments that are being assembled or wait for the consumer, whose rows are in memory but no longer on the carousel.
const UNDER_WAY: f64 = 3.0;
/// Of segments that are a larger part of the memory than this, only one may wait.
const LARGE: f64 = 12.0;
/// Bytes of a row in a batch besides its values: its id, and its place while the batch is made.
const MADE: f64 = 16.0;
/// Bytes that a segment has of a unit with rows in it: how many of them are due, and how many were asked for.
const MARK: f64 = (size_of::<Mark>() + size_of::<(u32, u32)>()) as f64 * 1.25;
/// Bytes of what is known of units, and as many of what is known of rows, that are not counted.
const FREE: u64 = 1 << 20;
/// Bytes that are known of a unit here, on the carousel, and where units begin.
const UNIT: u64 = 512;
/// Bytes of a row while it is got out of a unit: its slot, and its place in its chunk and among those that are due.
pub(crate) const PICKED: u64 = 12;
/// What it takes to decode a unit besides its bytes, in bytes that could be decoded meanwhile.
const CALL: f64 = (64 << 10) as f64;

impl Plan {
    /// A plan for row groups of these sizes, holding about `memory` bytes, for batches of `batch_rows`.
    ///
    /// `seed` decides which unit is decoded when at first; it does not change what is served.
    pub(crate) fn new(sizes: &[UnitSize], memory: u64, batch_rows: u64, seed: u64) -> Self {
        // A size of nothing would be an horizon without end.
        let known = |size: &UnitSize| UnitSize { bytes: size.bytes.max(size.rows), ..*size };
        let sizes: Vec<UnitSize> = sizes.iter().map(known).collect();
        let bytes: f64 = sizes.iter().map(|size| size.bytes as f64).sum();
        let rows: u64 = sizes.iter().map(|size| size.rows).sum();
        let weight = |size: &UnitSize| ((size.cost as f64 + CALL) / (size.bytes as f64).max(1.0)).sqrt();
        let mean = sizes.iter().map(|size| size.bytes as f64 * weight(size)).sum::<f64>() / bytes.max(1.0);
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        order.sort_by_key(|&unit| scrambled(seed, unit as u64));
        let (mut before, mut rank) = (0.0, vec![0.0; sizes.len()]);
        for &unit in &order {
            rank[unit] = (before + sizes[unit].bytes as f64 / 2.0) / bytes.max(1.0);
            before += sizes[unit].bytes as f64;
        }
        let units = sizes.iter().zip(&rank).map(|(size, &phase)| Tracked {
            size: *size,
            phase: phase.clamp(1e-9, 1.0),
            weight: (weight(size) / mean.max(1e-9)).clamp(0.25, 4.0),
            pending: SlotList::new(size.rows),
            marks: VecDeque::new(),
            seen: false,
            stays: false,
        });
        let mut plan = Self {
            units: units.collect(),
            memory: memory as f64,
            rows,
            bytes,
            largest: sizes.iter().map(|size| size.cost.max(size.bytes) as f64).fold(0.0, f64::max),
            batch_rows: batch_rows.max(1),
            kept: Ratio::default(),
            decoded: Ratio::default(),
            listed: Ratio::default(),
            slot: 0.0,
            fixed: 0.0,
            with_rows: sizes.iter().filter(|size| size.rows > 0).count() as f64,
            most_rows: sizes.iter().map(|size| size.rows).max().unwrap_or(0) as f64,
            scale: 1.0,
            listing: 0,
            most_listed: 0,
            tuned: Tuned::default(),
            rank,
            ahead: VecDeque::new(),
            first: 0,
            walked: 0,
            ended: false,
            held: 0.0,
            staying: 0.0,
            peak: 0.0,
        };
        plan.set_scale(1);
        plan
    }

    /// Says that each row of each unit stands for so many, before there is any.
    pub(crate) fn set_scale(&mut self, scale: u64) {
        let mut slots = 0.0;
        for unit in &mut self.units {
            let rows = unit.size.rows.saturating_mul(scale);
            unit.pending = SlotList::new(rows);
            slots += f64::from(slot_list::width(rows)) * unit.size.rows as f64;
        }
        // A list has room for up to an eighth more.
        self.slot = slots / (self.rows as f64).max(1.0) * 17.0 / 16.0;
        self.scale = scale as f64;
        self.fixed = fixed(self.units.len() as u64) as f64 / self.scale;
        self.tune();
    }

    /// How many rows the next segment should have: one batch at the very beginning, so that the first batch waits for
    /// no unit but its own, and then more and more.
    pub(crate) fn segment_rows(&self) -> u64 {
        let number = self.first + self.ahead.len() as u64;
        let early = self.batch_rows.saturating_mul(1 << number.min(32));
        early.min(self.tuned.segment as u64).max(1)
    }

    /// About how many bytes the largest row group takes when decoded.
    pub(crate) fn largest(&self) -> u64 {
        (self.largest * self.decoded.value) as u64
    }

    /// How many segments may wait for the consumer.
    pub(crate) fn segments_ready(&self) -> usize {
        // As many as are reserved for, besides the one that the consumer has.
        if self.tuned.segment * (self.tuned.row + MADE) > self.memory / LARGE { 1 } else { 2 }
    }

    /// About how many bytes the batches of a segment take.
    pub(crate) fn segment_bytes(&self) -> u64 {
        (self.tuned.segment * (self.tuned.row + MADE)) as u64
    }

    /// Bytes of what is known of units, and of the rows that are looked ahead at, as far as they are counted.
    pub(crate) fn listing(&self) -> u64 {
        self.counted(self.listing)
    }

    /// The most that this ever was.
    pub(crate) fn most_listed(&self) -> u64 {
        self.counted(self.most_listed)
    }

    fn counted(&self, listing: usize) -> u64 {
        (self.fixed + (listing as f64 - FREE as f64 / self.scale).max(0.0)) as u64
    }

    /// Adds a segment of rows.
    pub(crate) fn push(&mut self, runs: &[Neighbours]) {
        let number = (self.first + self.ahead.len() as u64) as u32;
        let (mut due, mut rows) = (Vec::new(), 0);
        for run in runs {
            let Some(state) = self.units.get_mut(run.unit as usize) else { continue };
            rows += u64::from(run.rows);
            self.listing -= state.pending.bytes();
            state.pending.push(run.slot, run.rows);
            self.listing += state.pending.bytes();
            match state.marks.back_mut() {
                Some(mark) if mark.segment == number => mark.rows += run.rows,
                last => {
                    if last.is_none() {
                        due.push(run.unit);
                    }
                    self.listing += size_of::<Mark>();
                    state.marks.push_back(Mark { segment: number, rows: run.rows });
                }
            }
        }
        self.most_listed = self.most_listed.max(self.listing);
        self.ahead.push_back(Upcoming { start: self.walked, rows, due, stair: None, parts: Vec::new(), held: 0.0 });
        self.walked += rows;
    }

    /// Says that the order ends here.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// Whether it was said that the order has ended.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended
    }

    /// Says that the order goes on after all.
    pub(crate) fn reopen(&mut self) {
        self.ended = false;
    }

    /// Says what rows that were estimated at `estimate` bytes really take where they are kept.
    pub(crate) fn measure_kept(&mut self, estimate: u64, real: u64) {
        if self.kept.measure(estimate, real, self.memory) {
            self.tune();
        }
    }

    /// Says what a unit, or rows of it, that was estimated at `estimate` bytes really takes when it is decoded.
    pub(crate) fn measure_decoded(&mut self, estimate: u64, real: u64) {
        if self.decoded.measure(estimate, real, self.memory) {
            // Until rows were kept, the unit that they are in is the best guess at their size.
            if self.kept.estimated == 0.0 {
                self.kept.value = self.decoded.value;
            }
            self.tune();
        }
    }

    /// Holds about so many bytes from now on.
    pub(crate) fn set_memory(&mut self, bytes: u64) {
        self.memory = bytes as f64;
        self.tune();
    }

    /// Holds so many bytes less, because something is kept of all units that do not stay decoded.
    pub(crate) fn set_aside(&mut self, bytes: u64) {
        if bytes > 0 && !self.keeps_all() {
            self.memory -= (bytes as f64).min(self.memory / 2.0);
            self.tune();
        }
    }

    /// Whether all units stay decoded.
    pub(crate) fn keeps_all(&self) -> bool {
        self.tuned.stay >= 1.0
    }

    /// The bytes of rows held after all that was asked for, as planned.
    pub(crate) fn held(&self) -> u64 {
        (self.held + self.staying) as u64
    }

    /// The most bytes of rows held so far, as planned.
    pub(crate) fn peak(&self) -> u64 {
        self.peak as u64
    }

    fn tune(&mut self) {
        let all = self.bytes * self.decoded.value;
        let largest = self.largest * self.decoded.value;
        let rows = (self.rows as f64).max(1.0);
        let row = (self.bytes * self.kept.value / rows).max(1e-3);
        let batch = self.batch_rows as f64;
        let segment_of = |memory: f64, batch: f64| (SEGMENT_BYTES.min(memory / SEGMENTS) / (row + MADE)).max(batch);
        let segment = segment_of(self.memory, batch);
        let marks = (self.with_rows / segment_of(self.memory * self.scale, batch * self.scale)).min(1.0);
        let listed = self.slot * self.listed.value + MARK * marks;
        // Long enough that picking rows out of a unit is not all overhead, and a small part of the memory.
        let short = (1024.0 * self.units.len() as f64).min(largest / 2.0 / row).max(segment);
        let made = segment * (row + MADE);
        let under_way = UNDER_WAY.min(1.0 + self.memory / (made * 8.0));
        let memory = (self.memory - self.fixed).max(self.memory / 2.0);
        let free = (memory - under_way * made).max(memory / 4.0);
        let tuned = Tuned { horizon: rows, short, stay: 1.0, carousel: memory, segment, row, lists: short * listed };
        self.tuned = if all + short * (row + listed) <= memory + largest {
            tuned
        } else {
            let spare = FREE as f64 / self.scale;
            let stay = staying(all, free - short * row, row, (listed - spare / rows).max(0.0));
            let share = (1.0 - stay).max(1e-9);
            let rest = free - if stay > 0.0 { stay * (all + short * row) } else { 0.0 };
            // Of each row of the horizon, what is held of it and what is known of it, on average.
            let (held, known) = (share * row / 2.0, (1.0 + stay) * listed / 2.0);
            // What it takes to get rows out of the largest unit, if that is more than the unit itself.
            let picked = PICKED as f64 * self.most_rows / rows;
            let counted = (rest / held).min((rest + spare) / (held + known));
            let reach = counted.min((rest + spare + largest) / (held + known + picked));
            let carousel = reach * held;
            let extraction = 2.0 * carousel * self.scale / (self.with_rows * share).max(1.0);
            let pieces = (extraction / PACKED_PIECE as f64).clamp(FEWEST_PACKED as f64, PIECES as f64);
            // Half a piece of each unit is held that is consumed already.
            let halves = self.units.len() as f64 * share * LEAST_PIECE as f64 / 2.0 * row;
            let carousel = (carousel / (1.0 + 1.0 / pieces)).min((carousel - halves).max(carousel / 2.0));
            let horizon = (2.0 * carousel / (row * share)).min(rows).max(1.0);
            Tuned { horizon, stay, carousel, lists: horizon * known, ..tuned }
        };
    }

    /// Whether the lists of rows that are looked ahead at take all that they may.
    fn is_listed(&self) -> bool {
        /// Rows of other units may be due sooner than on average.
        const MORE: f64 = 1.25;
        self.listing as f64 > self.tuned.lists * MORE + FREE as f64 / self.scale
    }

    /// What to do next. Unless it `may_look` further, what is known so far must do for the extractions that the oldest
    /// segment needs.
    pub(crate) fn next(&mut self, may_look: bool) -> Next {
        loop {
            let Some(oldest) = self.ahead.front() else {
                return if self.ended { Next::End } else { Next::Look };
            };
            if oldest.stair.is_none() {
                self.arrive();
                continue;
            }
            let Some(&unit) = oldest.due.last() else {
                let Some(oldest) = self.ahead.pop_front() else { return Next::End };
                self.first += 1;
                self.held -= oldest.held;
                self.listing -= oldest.parts.len() * size_of::<(u32, u32)>();
                return Next::Segment(Segment { parts: oldest.parts });
            };
            let until = self.until(unit, oldest.start);
            if self.walked < until && !self.ended && may_look && !self.is_listed() {
                return Next::Look;
            }
            return Next::Extract(self.extract(unit, until));
        }
    }

    /// Puts the units that the oldest segment needs in order, those with the nearest ends of horizon first, so that
    /// the first of them need not wait for a walk over the whole horizon.
    fn arrive(&mut self) {
        let free = (self.tuned.carousel * (1.0 + 1.0 / 8.0) - self.held).max(0.0);
        let Some(oldest) = self.ahead.front() else { return };
        let start = oldest.start;
        let mut due: Vec<(u64, u64, u32)> = oldest
            .due
            .iter()
            .map(|&unit| (self.until(unit, start), (self.units[unit as usize].phase * 1e12) as u64, unit))
            .collect();
        due.sort_unstable_by(|a, b| b.cmp(a));
        let due: Vec<u32> = due.into_iter().map(|(_, _, unit)| unit).collect();
        let count = due.iter().filter(|&&unit| !self.stays(unit)).count() as f64;
        if let Some(oldest) = self.ahead.front_mut() {
            oldest.due = due;
            oldest.stair = Some(Stair { bytes: free, units: count, step: 0.0 });
        }
    }

    fn stays(&self, unit: u32) -> bool {
        self.rank[unit as usize] < self.tuned.stay
    }

    /// Where the horizon ends of a unit that is due at `start`, in rows from the beginning.
    fn until(&self, unit: u32, start: u64) -> u64 {
        if self.stays(unit) {
            return start.saturating_add(self.tuned.short as u64);
        }
        let state = &self.units[unit as usize];
        let horizon = (self.tuned.horizon * state.weight).min(self.rows as f64).max(1.0);
        let mut until = start as f64 + horizon;
        if !state.seen && (start as f64) < horizon {
            let phase = state.phase * horizon;
            until = if phase > start as f64 { phase } else { phase + horizon };
        }
        until as u64
    }

    fn extract(&mut self, unit: u32, until: u64) -> Extract {
        let keep = self.stays(unit);
        let first = self.first as u32;
        let Some(oldest) = self.ahead.front_mut() else { return Extract::nothing(unit) };
        oldest.due.pop();
        let limit = match &mut oldest.stair {
            Some(stair) if !keep => {
                stair.step += 1.0;
                2.0 * stair.bytes * stair.step / (stair.units * (stair.units + 1.0)).max(1.0)
            }
            _ => f64::INFINITY,
        };
        let state = &mut self.units[unit as usize];
        let bytes_of = state.size.bytes as f64 * self.kept.value / (state.size.rows as f64).max(1.0);
        let (mut rows, mut taken) = (0usize, 0usize);
        for mark in &state.marks {
            let Some(segment) = self.ahead.get_mut(mark.segment.wrapping_sub(first) as usize) else { break };
            let bytes = f64::from(mark.rows) * bytes_of;
            // The segment that is due is asked for in any case.
            if taken > 0 && (segment.start + segment.rows / 2 >= until || rows as f64 * bytes_of + bytes > limit) {
                break;
            }
            segment.parts.push((unit, mark.rows));
            segment.held += bytes;
            rows += mark.rows as usize;
            taken += 1;
        }
        state.marks.drain(..taken);
        let before = state.pending.bytes();
        let slots = state.pending.split_front(rows);
        let freed = before.saturating_sub(state.pending.bytes());
        self.listing = self.listing + state.pending.bytes() - before;
        self.listing = self.listing + taken * size_of::<(u32, u32)>() - taken * size_of::<Mark>();
        if let Some(next) = state.marks.front()
            && let Some(segment) = self.ahead.get_mut(next.segment.wrapping_sub(first) as usize)
        {
            segment.due.push(unit);
        }
        let bytes = rows as f64 * bytes_of;
        let whole = state.size.bytes.max(state.size.cost) as f64 * self.decoded.value;
        let (decode, of_rows) = (!state.stays, state.size.rows);
        let was = if state.stays { whole } else { 0.0 };
        self.staying += if keep { whole } else { 0.0 } - was;
        (state.seen, state.stays) = (true, keep);
        self.held += bytes;
        self.peak = self.peak.max(self.held + self.staying + self.listing() as f64);
        let slot_bytes = (rows as f64 * self.slot) as u64;
        if self.listed.measure(slot_bytes, freed.max(1) as u64, self.memory) {
            self.tune();
        }
        let estimate = (bytes / self.kept.value) as u64;
        Extract { unit, slots, keep, decode, of_rows, estimate, bytes: bytes as u64, whole: whole as u64 }
    }
}

/// Bytes that are counted of what is known of so many units.
pub(crate) fn fixed(units: u64) -> u64 {
    (units * UNIT).saturating_sub(FREE)
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

impl Extract {
    fn nothing(unit: u32) -> Self {
        Self {
            unit,
            slots: SlotList::default(),
            keep: false,
            decode: false,
            of_rows: 0,
            estimate: 0,
            bytes: 0,
            whole: 0,
        }
    }

    /// Whether only the wanted rows are to be decoded.
    pub(crate) fn is_sparse(&self) -> bool {
        !self.keep && super::route::is_sparse(self.slots.len(), self.of_rows)
    }
}

/// A number that looks random and depends on nothing else (the finaliser of SplitMix64).
fn scrambled(seed: u64, number: u64) -> u64 {
    let mut z = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowdex_order::{Global, Order, Sequential};

    /// Decodes of each epoch, of a run over units of these sizes.
    fn decodes(sizes: &[UnitSize], memory: u64, orders: &dyn Order, batch: u64, epochs: u64) -> (Vec<f64>, u64) {
        let mut starts = vec![0u64];
        for size in sizes {
            starts.push(starts[starts.len() - 1] + size.rows);
        }
        let place = |row: u64| {
            let unit = starts.partition_point(|start| *start <= row) - 1;
            (unit as u32, (row - starts[unit]) as u32)
        };
        let mut plan = Plan::new(sizes, memory, batch, 1);
        let (mut counts, mut at, mut served, mut decodes) = (Vec::new(), 0, 0, 0);
        let (len, mut epoch) = (orders.len(), 0);
        let mut order = orders.epoch(0).unwrap();
        loop {
            match plan.next(true) {
                Next::Look if epoch == epochs => plan.end(),
                Next::Look => {
                    let rows = plan.segment_rows().next_multiple_of(batch).min(len - at);
                    let rows: Vec<_> = (at..at + rows).map(|q| place(order.row(q).unwrap())).collect();
                    at += rows.len() as u64;
                    plan.push(&one_by_one(&rows));
                    if at == len {
                        (at, epoch) = (0, epoch + 1);
                        order = orders.epoch(epoch).unwrap();
                    }
                }
                Next::Extract(extract) => decodes += u32::from(extract.decode),
                Next::Segment(segment) => {
                    served += segment.parts.iter().map(|(_, rows)| u64::from(*rows)).sum::<u64>();
                    if served == len {
                        counts.push(f64::from(decodes) / sizes.len() as f64);
                        (served, decodes) = (0, 0);
                    }
                }
                Next::End => return (counts, plan.peak()),
            }
        }
    }

    fn one_by_one(places: &[(u32, u32)]) -> Vec<Neighbours> {
        places.iter().map(|&(unit, slot)| Neighbours { unit, slot, rows: 1 }).collect()
    }

    fn even(units: usize, rows: u64) -> Vec<UnitSize> {
        vec![UnitSize { rows, bytes: rows * 100, cost: rows * 100 }; units]
    }

    fn bytes(sizes: &[UnitSize]) -> f64 {
        sizes.iter().map(|size| size.bytes as f64).sum()
    }

    #[test]
    fn a_group_is_decoded_every_two_memories_under_a_global_order() {
        let sizes = even(32, 8000);
        let orders = Global::new(256_000, 1).unwrap();
        for (part, ideal) in [(0.1, 5.0), (0.25, 2.0), (0.5, 1.0), (0.75, 0.5)] {
            let memory = (bytes(&sizes) * part) as u64;
            let (epochs, peak) = decodes(&sizes, memory, &orders, 16, 4);
            for steady in &epochs[1..3] {
                assert!((ideal * 0.99..ideal * 1.1 + 0.15).contains(steady), "{part}: {epochs:?}");
            }
            assert!(epochs[0] <= ideal * 1.1 + 1.15, "{part}: {epochs:?}");
            assert!(peak as f64 <= memory as f64 * 1.1, "{part}: {peak} of {memory}");
        }
    }

    #[test]
    fn what_is_known_of_rows_is_a_part_of_the_memory_where_it_is_as_much_as_the_rows() {
        let rows = 150_000;
        let sizes = vec![UnitSize { rows, bytes: rows, cost: rows }; 10];
        let memory = bytes(&sizes) * 0.5;
        let (epochs, peak) = decodes(&sizes, memory as u64, &Global::new(10 * rows, 1).unwrap(), 256, 3);
        assert!(peak as f64 <= memory * 1.1, "{peak} of {memory}");
        // Three bytes are known of each row of one, but for a megabyte in all, and more while it is got out of its
        // unit.
        // Rows alone would need one pass.
        let law = bytes(&sizes) * (1.0 + 3.2) / 2.0 / (memory + FREE as f64);
        assert!((law..law * 2.2).contains(&epochs[1]), "{epochs:?}, {law}");
    }

    #[test]
    fn everything_is_decoded_once_when_it_fits() {
        let sizes = even(64, 2000);
        for memory in [1.0, 3.0] {
            let memory = (bytes(&sizes) * memory) as u64;
            let (epochs, _) = decodes(&sizes, memory, &Global::new(128_000, 1).unwrap(), 16, 3);
            assert_eq!(epochs, [1.0, 0.0, 0.0]);
        }
    }

    #[test]
    fn an_order_that_follows_the_files_is_a_scan() {
        let sizes = even(64, 2000);
        for part in [0.03, 0.1, 0.5] {
            let memory = (bytes(&sizes) * part) as u64;
            let (epochs, peak) = decodes(&sizes, memory, &Sequential::new(128_000).unwrap(), 16, 3);
            assert!(epochs.iter().all(|epoch| *epoch <= 1.1), "{part}: {epochs:?}");
            assert!(peak as f64 <= memory as f64 * 1.05, "{part}: {peak} of {memory}");
        }
    }

    #[test]
    fn groups_of_all_sizes_keep_to_the_memory() {
        let size = |unit: u64| UnitSize { rows: 50 * (unit % 17), bytes: 5000 * (unit % 17), cost: 5000 * (unit % 17) };
        let sizes: Vec<UnitSize> = (0..200).map(size).collect();
        let rows = sizes.iter().map(|size| size.rows).sum();
        let memory = bytes(&sizes) / 10.0;
        let (epochs, peak) = decodes(&sizes, memory as u64, &Global::new(rows, 1).unwrap(), 16, 4);
        assert!(epochs[1..3].iter().all(|epoch| (4.0..8.0).contains(epoch)), "{epochs:?}");
        assert!(peak as f64 <= memory * 1.1, "{peak} of {memory}");
    }

    #[test]
    fn groups_that_cost_more_are_decoded_less_often() {
        let mut sizes = even(64, 2000);
        sizes[..8].iter_mut().for_each(|size| size.cost *= 9);
        let mut plan = Plan::new(&sizes, bytes(&sizes) as u64 / 10, 16, 1);
        plan.units.iter_mut().for_each(|unit| unit.seen = true);
        let dear = plan.until(0, 0) as f64 / plan.until(63, 0) as f64;
        assert!((2.5..3.1).contains(&dear), "{dear}");
    }

    #[test]
    fn the_first_batch_asks_for_no_group_but_its_own() {
        let mut plan = Plan::new(&even(64, 2000), 1 << 20, 4, 1);
        let mut asked = 0;
        loop {
            match plan.next(true) {
                Next::Look => {
                    let rows: Vec<_> = (0..plan.segment_rows()).map(|i| ((i * 7 % 64) as u32, 0)).collect();
                    plan.push(&one_by_one(&rows));
                }
                Next::Extract(_) => asked += 1,
                _ => break,
            }
        }
        assert_eq!(asked, 4);
    }
}
