//! Which of several sources comes at which position, while their weights stay as they are.
//!
//! A binary tree over the sources assigns positions, as in [`source_schedule`](super::source_schedule). At a fork, unit
//! `k` of the side with the smaller share (`1/2` at most) is due while that side's exact count goes from `k` to
//! `k + 1`, and comes at a random moment of that time. So its count is the exact one rounded up or down, after any
//! number of rows, and neither a pattern nor the stride of a rank through it shows. By how much sources are behind
//! their exact counts is known where weights change, and made up for from there on.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::philox::Philox;
use super::quotas::Quotas;

const TAG: &[u8; 16] = b"rowdex stages v1";
/// One row, in the units in which exact counts are kept.
const ROW: i128 = 1 << 64;
/// From one state of wyrand to the next.
const STEP: u64 = 0xa076_1d64_78bd_642f;

/// The positions from `start` up to `end`, where weights stay as they are. Exact counts are in 2^-64 rows.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StageSpan {
    pub(super) start: u64,
    pub(super) end: u64,
    /// What decides all positions before the end of this span.
    pub(super) digest: u64,
    /// The sources that have a weight, by name.
    sources: Vec<usize>,
    /// How many rows every source has before `start`.
    before: Vec<u64>,
    /// That which parts the sources before number `i + 1` from those after it is number `i`.
    forks: Vec<StageFork>,
}

/// A place of a list, and how many rows come before: of the run, of some of its sources, or of one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StagePlace {
    pub(super) slot: usize,
    pub(super) rows: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct StageFork {
    /// Whether the left side has the smaller share.
    is_left: bool,
    /// The smaller share.
    ratio: u64,
    /// The exact count of the smaller side at the start of the span, less that which it has.
    phase: i128,
    /// Decides together with the number of a unit when it comes.
    key: u64,
}

impl StageSpan {
    /// `debts` say by how much every source is behind its exact count at `start`.
    pub(super) fn new(
        start: u64,
        sources: Vec<usize>,
        quotas: &Quotas,
        before: Vec<u64>,
        debts: &[i128],
        digest: u64,
        seed: u64,
    ) -> Self {
        let mut forks = vec![StageFork::default(); sources.len().saturating_sub(1)];
        let everything = 0..sources.len();
        let mut ranges = vec![everything];
        while let Some(range) = ranges.pop() {
            let Some((left, right)) = halves(&range) else { continue };
            let shares = |of: &Range<usize>| quotas.as_slice()[of.clone()].iter().map(|share| u128::from(*share)).sum();
            let debt = |of: &Range<usize>| sources[of.clone()].iter().map(|source| debts[*source]).sum::<i128>();
            let rows = |of: &Range<usize>| sources[of.clone()].iter().map(|source| before[*source]).sum::<u64>();
            let all: u128 = shares(&range);
            let is_left = 2 * shares(&left) <= all;
            let smaller = if is_left { &left } else { &right };
            let ratio = ((shares(smaller) << 64) / all) as u64;
            // What the fork is behind comes later than it should, with the smaller side's share of it.
            let late = ((debt(&range) >> 32) * i128::from(ratio)) >> 32;
            let words = Philox::new(TAG, seed, left.end as u64).words(is_left.into());
            forks[left.end - 1] = StageFork {
                is_left,
                ratio,
                phase: (debt(smaller) - late).clamp(-ROW, ROW - 1),
                key: words[0].wrapping_add(rows(smaller).wrapping_mul(STEP)),
            };
            ranges.extend([left, right]);
        }
        Self { start, end: start, digest, sources, before, forks }
    }

    /// Calls `found` with each source and its places: those of the positions, each with how many rows of the source
    /// come before. `places` have positions, each with a number of its own; `spare` has room for them. O(log of the
    /// sources) a position: all go through a fork together, so that it need not be guessed where each one goes.
    pub(super) fn assign<F: FnMut(usize, &[StagePlace])>(
        &self,
        places: &mut [StagePlace],
        spare: &mut [StagePlace],
        found: &mut F,
    ) {
        for place in &mut *places {
            place.rows -= self.start;
        }
        self.part(0..self.sources.len(), places, spare, found);
    }

    fn part<F: FnMut(usize, &[StagePlace])>(
        &self,
        range: Range<usize>,
        places: &mut [StagePlace],
        spare: &mut [StagePlace],
        found: &mut F,
    ) {
        if places.is_empty() {
            return;
        }
        let Some((left, right)) = halves(&range) else {
            let source = self.sources[range.start];
            for place in &mut *places {
                place.rows += self.before[source];
            }
            return found(source, places);
        };
        let fork = &self.forks[left.end - 1];
        let mut with_next = 0;
        let mut others = 0;
        for at in 0..places.len() {
            let StagePlace { slot, rows } = places[at];
            let (smaller, has_next) = fork.smaller(rows);
            places[with_next] = StagePlace { slot, rows: smaller };
            spare[others] = StagePlace { slot, rows: rows - smaller };
            with_next += usize::from(has_next);
            others += usize::from(!has_next);
        }
        let (smaller, larger) = if fork.is_left { (left, right) } else { (right, left) };
        let (of_smaller, of_larger) = places.split_at_mut(with_next);
        of_larger.copy_from_slice(&spare[..others]);
        self.part(smaller, of_smaller, spare, found);
        self.part(larger, of_larger, spare, found);
    }

    /// How many rows every source has before a position from the start on.
    pub(super) fn counts(&self, position: u64) -> Vec<u64> {
        let mut counts = self.before.clone();
        let mut ranges = vec![(0..self.sources.len(), position - self.start)];
        while let Some((range, rows)) = ranges.pop() {
            let Some((left, right)) = halves(&range) else {
                counts[self.sources[range.start]] += rows;
                continue;
            };
            let fork = &self.forks[left.end - 1];
            let smaller = fork.smaller(rows).0;
            let on_left = if fork.is_left { smaller } else { rows - smaller };
            ranges.extend([(left, on_left), (right, rows - on_left)]);
        }
        counts
    }

    /// Ends at a position. Adds to the debts of [`new`](Self::new) what has come to them; returns the counts there.
    pub(super) fn finish(&mut self, position: u64, quotas: &Quotas, debts: &mut [i128]) -> Vec<u64> {
        self.end = position;
        let counts = self.counts(position);
        let total: u128 = quotas.as_slice().iter().map(|share| u128::from(*share)).sum();
        for (source, share) in self.sources.iter().zip(quotas.as_slice()) {
            let exact = u128::from(position - self.start) * u128::from(*share);
            let part = ((exact % total) << 64) / total;
            let served = counts[*source] - self.before[*source];
            debts[*source] += ((exact / total) as i128 - i128::from(served)) * ROW + part as i128;
        }
        counts
    }
}

impl StageFork {
    /// How many of the first `rows` rows of the span the smaller side has, and whether it has the next.
    fn smaller(&self, rows: u64) -> (u64, bool) {
        let due = i128::from(rows) * i128::from(self.ratio) + self.phase;
        let unit = (due >> 64) as u64;
        let part = due as u64;
        let (end, is_last) = part.overflowing_add(self.ratio);
        // The moments of the unit, and of those before and after it.
        let number = self.key.wrapping_add(unit.wrapping_mul(STEP));
        let moment = random(number);
        let before = random(number.wrapping_sub(STEP));
        let after = random(number.wrapping_add(STEP));
        // Nothing branches here, as nothing is likely. Before unit 0 is due, there is none.
        let is_there = due >= 0;
        let is_over = is_there & (moment < part);
        // The row with its moment was that of the unit before, as was the first row of all.
        let has_moved = (part < self.ratio) & (unit > 0) & ((rows == 1) | (before >= part.wrapping_sub(self.ratio)));
        let is_served = is_over & (rows > 0) & !has_moved;
        let is_now = is_there & !is_served & (is_over | is_last | (moment < end));
        let is_next = is_last & (after < end);
        (if is_there { unit + u64::from(is_served) } else { 0 }, is_now | is_next)
    }
}

/// The sources on the left and on the right of a fork; `None` of one source.
fn halves(range: &Range<usize>) -> Option<(Range<usize>, Range<usize>)> {
    let middle = usize::midpoint(range.start, range.end);
    (range.len() > 1).then_some((range.start..middle, middle..range.end))
}

/// The word of wyrand with this state (Wang Yi, 2019): one multiplication, and it passes BigCrush.
fn random(state: u64) -> u64 {
    let product = u128::from(state) * u128::from(state ^ 0xe703_7ed1_a0b4_28db);
    (product >> 64) as u64 ^ product as u64
}
