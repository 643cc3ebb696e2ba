//! The segments that are looked ahead at, from the oldest on.

use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct UpcomingSegment {
    /// How many rows come before it.
    pub(super) start: u64,
    pub(super) rows: u64,
    /// Units whose first row not yet asked for is in this segment; with `stair`, by falling end of horizon.
    pub(super) due: Vec<u32>,
    /// Set when it becomes the oldest segment.
    pub(super) stair: Option<Stair>,
    /// How many rows of which unit were asked for.
    pub(super) parts: Vec<(u32, u32)>,
    /// The bytes of these.
    pub(super) held: f64,
}

/// How the memory that is left is dealt out among the units that are due together: the `i`-th gets `i` shares.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stair {
    pub(super) bytes: f64,
    pub(super) units: f64,
    pub(super) step: f64,
}

impl Stair {
    /// What the next unit may take.
    pub(super) fn climb(&mut self) -> f64 {
        self.step += 1.0;
        2.0 * self.bytes * self.step / (self.units * (self.units + 1.0)).max(1.0)
    }
}

#[derive(Debug, Default)]
pub(super) struct UpcomingSegments {
    pub(super) segments: VecDeque<UpcomingSegment>,
    /// The number of the oldest of them.
    first: u64,
    /// The rows of all segments so far.
    pub(super) walked: u64,
}

impl UpcomingSegments {
    /// The number of the segment that comes next.
    pub(super) fn next(&self) -> u64 {
        self.first + self.segments.len() as u64
    }

    pub(super) fn push(&mut self, rows: u64, due: Vec<u32>) {
        let start = self.walked;
        self.segments.push_back(UpcomingSegment { start, rows, due, stair: None, parts: Vec::new(), held: 0.0 });
        self.walked += rows;
    }

    /// Takes the oldest away.
    pub(super) fn pass(&mut self) -> Option<UpcomingSegment> {
        let oldest = self.segments.pop_front()?;
        self.first += 1;
        Some(oldest)
    }

    /// The segment with this number, modulo 2^32.
    pub(super) fn numbered(&mut self, number: u32) -> Option<&mut UpcomingSegment> {
        self.segments.get_mut(number.wrapping_sub(self.first as u32) as usize)
    }
}
