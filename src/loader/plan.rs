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
//! together, and whoever drives it walks the order and [`push`](Plan::push)es one segment, batch by batch, whenever it
//! asks for one ([`PlanAnswer::Look`]).

mod told;
mod tuning;

use std::collections::VecDeque;

pub(crate) use self::told::{Extract, Measurement, Neighbours, Outlook, PlanAnswer};
pub(crate) use self::tuning::{Budget, fixed};
use self::tuning::{Estimates, LARGE, Listing, Totals, Tuned};
use super::groups::UnitSize;
use super::pieces::PieceList;

#[derive(Debug)]
struct Tracked {
    size: UnitSize,
    /// Where in `(0, 1]` of the horizon its first extraction ends.
    phase: f64,
    /// How long its horizon is, compared to the others.
    weight: f64,
    /// Pieces that are due and not yet asked for, in order, and how many of them each segment needs.
    pending: PieceList,
    marks: VecDeque<SegmentRows>,
    seen: bool,
    stays: bool,
}

#[derive(Debug, Clone, Copy)]
struct SegmentRows {
    /// The number of a segment, modulo 2^32.
    segment: u32,
    rows: u32,
}

/// A segment that is looked ahead at.
#[derive(Debug, Default)]
struct UpcomingSegment {
    /// How many rows come before it.
    start: u64,
    rows: u64,
    /// Units whose first row not yet asked for is in this segment; with `stair`, by falling end of horizon.
    due: Vec<u32>,
    /// Set when it becomes the oldest segment.
    stair: Option<Stair>,
    /// How many rows of which unit were asked for.
    parts: Vec<(u32, u32)>,
    /// The bytes of these.
    held: f64,
}

/// How the memory that is left is dealt out among the units that are due together: the `i`-th gets `i` shares.
#[derive(Debug, Clone, Copy)]
struct Stair {
    bytes: f64,
    units: f64,
    step: f64,
}

impl Stair {
    /// What the next unit may take.
    fn climb(&mut self) -> f64 {
        self.step += 1.0;
        2.0 * self.bytes * self.step / (self.units * (self.units + 1.0)).max(1.0)
    }
}

/// From the oldest on.
#[derive(Debug, Default)]
struct UpcomingSegments {
    segments: VecDeque<UpcomingSegment>,
    /// The number of the oldest of them.
    first: u64,
    /// The rows of all segments so far.
    walked: u64,
}

impl UpcomingSegments {
    /// The number of the segment that comes next.
    fn next(&self) -> u64 {
        self.first + self.segments.len() as u64
    }

    /// The segment with this number, modulo 2^32.
    fn numbered(&mut self, number: u32) -> Option<&mut UpcomingSegment> {
        self.segments.get_mut(number.wrapping_sub(self.first as u32) as usize)
    }
}

/// The state machine.
#[derive(Debug)]
pub(crate) struct Plan {
    units: Vec<Tracked>,
    /// The bytes of the units before each in the order of choice, as a part of all.
    rank: Vec<f64>,
    totals: Totals,
    budget: Budget,
    estimates: Estimates,
    listing: Listing,
    tuned: Tuned,
    ahead: UpcomingSegments,
    /// Whether the order ends with the segments that were pushed.
    pub(crate) ended: bool,
    /// The bytes of rows that are planned to be held on the carousel, and in units that stay.
    waiting: f64,
    staying: f64,
    /// The most of both that ever was, with what is known of rows.
    peak: f64,
}

/// By this part of what they may take rows that are held exceed it, as units come due together: an extraction that has
/// no room before the others of its segment let go has some then, and is not cut short and made again.
pub(crate) const SWING: u64 = 8;
/// Bytes of a row in a batch besides its values: its id, and its place while the batch is made.
const MADE: f64 = 16.0;
/// Bytes that a segment has of a unit with rows in it: how many of them are due, and how many were asked for.
const MARK: f64 = (size_of::<SegmentRows>() + size_of::<(u32, u32)>()) as f64 * 1.25;
/// Bytes of a row while it is got out of a unit: its slot, and its place in its chunk and among those that are due.
pub(crate) const PICKED: u64 = 12;
/// What it takes to decode a unit besides its bytes, in bytes that could be decoded meanwhile.
const CALL: f64 = (64 << 10) as f64;

impl Plan {
    /// A plan for units of these sizes, each row of which stands for so many.
    ///
    /// `seed` decides which unit is decoded when at first; it does not change what is served.
    pub(crate) fn new(sizes: &[UnitSize], budget: Budget, scale: u64, seed: u64) -> Self {
        // A size of nothing would be an horizon without end.
        let known = |size: &UnitSize| UnitSize { bytes: size.bytes.max(size.rows), ..*size };
        let sizes: Vec<UnitSize> = sizes.iter().map(known).collect();
        let bytes: f64 = sizes.iter().map(|size| size.bytes as f64).sum();
        let weight = |size: &UnitSize| ((size.cost as f64 + CALL) / (size.bytes as f64).max(1.0)).sqrt();
        let mean = sizes.iter().map(|size| size.bytes as f64 * weight(size)).sum::<f64>() / bytes.max(1.0);
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        order.sort_by_key(|&unit| scrambled(seed, unit as u64));
        let mut before = 0.0;
        let mut rank = vec![0.0; sizes.len()];
        for &unit in &order {
            rank[unit] = (before + sizes[unit].bytes as f64 / 2.0) / bytes.max(1.0);
            before += sizes[unit].bytes as f64;
        }
        let units = sizes.iter().zip(&rank).map(|(size, &phase)| Tracked {
            size: *size,
            phase: phase.clamp(1e-9, 1.0),
            weight: (weight(size) / mean.max(1e-9)).clamp(0.25, 4.0),
            pending: PieceList::new(size.rows.saturating_mul(scale)),
            marks: VecDeque::new(),
            seen: false,
            stays: false,
        });
        let mut plan = Self {
            units: units.collect(),
            rank,
            totals: Totals::of(&sizes),
            budget,
            estimates: Estimates::default(),
            listing: Listing::new(&sizes, scale),
            tuned: Tuned::default(),
            ahead: UpcomingSegments::default(),
            ended: false,
            waiting: 0.0,
            staying: 0.0,
            peak: 0.0,
        };
        plan.tune();
        plan
    }

    /// Deals the memory out anew.
    fn tune(&mut self) {
        self.tuned = Tuned::new(&self.budget, &self.totals, &self.estimates, &self.listing);
    }

    /// How many rows the next segment should have: one batch at the very beginning, so that the first batch waits for
    /// no unit but its own, and then more and more.
    pub(crate) fn segment_rows(&self) -> u64 {
        let early = self.budget.batch_rows.saturating_mul(1 << self.ahead.next().min(32));
        early.min(self.tuned.segment as u64).max(1)
    }

    /// About how many bytes the largest row group takes when decoded.
    pub(crate) fn largest(&self) -> u64 {
        (self.totals.largest * self.estimates.decoded.value) as u64
    }

    /// What it knows of what comes.
    pub(crate) fn outlook(&self) -> Outlook {
        let is_large = self.tuned.segment * (self.tuned.row + MADE) > self.budget.memory / LARGE;
        Outlook {
            // As many as are reserved for, besides the one that the consumer has.
            segments_ready: if is_large { 1 } else { 2 },
            segment_bytes: self.segment_bytes(),
            held: (self.waiting + self.staying) as u64,
            listing: self.listing.counted(),
            largest: self.largest(),
        }
    }

    /// About how many bytes the batches of a segment take.
    pub(crate) fn segment_bytes(&self) -> u64 {
        (self.tuned.segment * (self.tuned.row + MADE)) as u64
    }

    /// About how many bytes so many rows of a unit take, of which batches are made.
    pub(crate) fn bytes_of(&self, unit: u32, rows: u64) -> u64 {
        let of_unit = self.units.get(unit as usize).map_or(0.0, |state| {
            state.size.bytes as f64 * self.estimates.kept.value / (state.size.rows as f64).max(1.0)
        });
        (rows as f64 * (of_unit + MADE)) as u64
    }

    /// The most bytes of what is known of units, and of the rows that are looked ahead at, as far as they are counted.
    pub(crate) fn most_listed(&self) -> u64 {
        self.listing.count(self.listing.most)
    }

    /// Adds pieces to the newest segment, or to another one that begins with them.
    pub(crate) fn push(&mut self, pieces: &[Neighbours], begins: bool) {
        let UpcomingSegments { segments, first, walked } = &mut self.ahead;
        if begins {
            segments.push_back(UpcomingSegment { start: *walked, ..UpcomingSegment::default() });
        }
        let number = (*first + segments.len() as u64).wrapping_sub(1) as u32;
        let Some(newest) = segments.back_mut() else { return };
        for run in pieces {
            let Some(state) = self.units.get_mut(run.unit as usize) else { continue };
            newest.rows += u64::from(run.rows);
            let before = state.pending.bytes();
            state.pending.push(run.slot, run.rows, run.tokens);
            self.listing.replace(before, state.pending.bytes());
            match state.marks.back_mut() {
                Some(mark) if mark.segment == number => mark.rows += run.rows,
                last => {
                    if last.is_none() {
                        newest.due.push(run.unit);
                    }
                    self.listing.replace(0, size_of::<SegmentRows>());
                    state.marks.push_back(SegmentRows { segment: number, rows: run.rows });
                }
            }
        }
        *walked = newest.start + newest.rows;
        self.listing.note();
    }

    /// Takes note of what was measured.
    pub(crate) fn note(&mut self, measured: Measurement) {
        let Budget { memory, .. } = &mut self.budget;
        let Estimates { kept, decoded, .. } = &mut self.estimates;
        let has_changed = match measured {
            Measurement::Kept(estimate, real) => kept.measure(estimate, real, *memory),
            Measurement::Decoded(estimate, real) => {
                let has_changed = decoded.measure(estimate, real, *memory);
                // Until rows were kept, the unit that they are in is the best guess at their size.
                if has_changed && kept.estimated == 0.0 {
                    kept.value = decoded.value;
                }
                has_changed
            }
            Measurement::Memory(bytes) => {
                *memory = bytes as f64;
                true
            }
            Measurement::Shared(bytes) => {
                *memory = (*memory - bytes as f64).max(*memory / 8.0);
                true
            }
        };
        if has_changed {
            self.tune();
        }
    }

    /// Holds so many bytes less, which are kept of units that do not stay decoded.
    pub(crate) fn set_aside(&mut self, bytes: u64) {
        if bytes > 0 && !self.keeps_all() {
            self.budget.memory -= (bytes as f64).min(self.budget.memory / 2.0);
            self.tune();
        }
    }

    /// Whether all units stay decoded.
    pub(crate) fn keeps_all(&self) -> bool {
        self.tuned.stay >= 1.0
    }

    /// The most bytes of rows held so far, as planned.
    pub(crate) fn peak(&self) -> u64 {
        self.peak as u64
    }

    /// What to do next. Unless it `may_look` further, what is known so far must do for the extractions that the oldest
    /// segment needs.
    pub(crate) fn next(&mut self, may_look: bool) -> PlanAnswer {
        loop {
            let Some(oldest) = self.ahead.segments.front() else {
                return if self.ended { PlanAnswer::End } else { PlanAnswer::Look };
            };
            if oldest.stair.is_none() {
                self.arrive();
                continue;
            }
            let Some(&unit) = oldest.due.last() else {
                let Some(oldest) = self.ahead.segments.pop_front() else { return PlanAnswer::End };
                self.ahead.first += 1;
                self.waiting -= oldest.held;
                self.listing.replace(oldest.parts.len() * size_of::<(u32, u32)>(), 0);
                return PlanAnswer::Segment(oldest.parts);
            };
            let until = self.until(unit, oldest.start);
            let is_known = self.ahead.walked >= until || self.ended || self.listing.fills(self.tuned.lists);
            if may_look && !is_known {
                return PlanAnswer::Look;
            }
            return PlanAnswer::Extract(self.extract(unit, until));
        }
    }

    /// Puts the units that the oldest segment needs in order, those with the nearest ends of horizon first, so that
    /// the first of them need not wait for a walk over the whole horizon.
    fn arrive(&mut self) {
        let free = (self.tuned.carousel * (1.0 + 1.0 / SWING as f64) - self.waiting).max(0.0);
        let Some(oldest) = self.ahead.segments.front() else { return };
        let start = oldest.start;
        let mut due: Vec<(u64, u64, u32)> = oldest
            .due
            .iter()
            .map(|&unit| (self.until(unit, start), (self.units[unit as usize].phase * 1e12) as u64, unit))
            .collect();
        due.sort_unstable_by(|a, b| b.cmp(a));
        let due: Vec<u32> = due.into_iter().map(|(_, _, unit)| unit).collect();
        let count = due.iter().filter(|&&unit| !self.stays(unit)).count() as f64;
        if let Some(oldest) = self.ahead.segments.front_mut() {
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
        let horizon = (self.tuned.horizon * state.weight).min(self.totals.rows as f64).max(1.0);
        let mut until = start as f64 + horizon;
        if !state.seen && (start as f64) < horizon {
            let phase = state.phase * horizon;
            until = if phase > start as f64 { phase } else { phase + horizon };
        }
        until as u64
    }

    fn extract(&mut self, unit: u32, until: u64) -> Extract {
        let keep = self.stays(unit);
        let Some(oldest) = self.ahead.segments.front_mut() else { return Extract { unit, ..Extract::default() } };
        oldest.due.pop();
        let limit = match &mut oldest.stair {
            Some(stair) if !keep => stair.climb(),
            _ => f64::INFINITY,
        };
        let state = &mut self.units[unit as usize];
        let bytes_of = state.size.bytes as f64 * self.estimates.kept.value / (state.size.rows as f64).max(1.0);
        let bytes_of = if keep { self.budget.cutting.beside(bytes_of) } else { bytes_of };
        let mut rows = 0usize;
        let mut taken = 0usize;
        for mark in &state.marks {
            let Some(segment) = self.ahead.numbered(mark.segment) else { break };
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
        let due = state.pending.split_front(rows);
        let freed = before.saturating_sub(state.pending.bytes());
        self.listing.replace(before, state.pending.bytes());
        self.listing.replace(taken * size_of::<SegmentRows>(), taken * size_of::<(u32, u32)>());
        if let Some(next) = state.marks.front()
            && let Some(segment) = self.ahead.numbered(next.segment)
        {
            segment.due.push(unit);
        }
        let bytes = rows as f64 * bytes_of;
        let whole = state.size.bytes.max(state.size.cost) as f64 * self.estimates.decoded.value;
        let decode = !state.stays;
        let of_rows = state.size.rows;
        let was = if state.stays { whole } else { 0.0 };
        self.staying += if keep { whole } else { 0.0 } - was;
        (state.seen, state.stays) = (true, keep);
        self.waiting += bytes;
        self.peak = self.peak.max(self.waiting + self.staying + self.listing.counted() as f64);
        let slot_bytes = (rows as f64 * self.listing.slot) as u64;
        if self.estimates.listed.measure(slot_bytes, freed.max(1) as u64, self.budget.memory) {
            self.tune();
        }
        let estimate = (bytes / self.estimates.kept.value) as u64;
        Extract { unit, due, keep, decode, of_rows, estimate, bytes: bytes as u64, whole: whole as u64 }
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
mod tests;
