//! Row groups that cannot be read, and which rows stand in for theirs.
//!
//! All rows stand in a circle, in the order `global` of the fault seed at epoch 2^64 - 1. A row that cannot be read
//! is replaced by the next one in the circle that can. Which one that is depends on the rows that are lost and on
//! nothing else: not on when a loss was noticed, since going on from a substitute that turns out to be lost leads to
//! the same row, so ranks, threads and memory agree without a word. As the order is a permutation, substitutes are
//! spread evenly over the rows that are left, and the search ends.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::groups::Groups;
use super::row_table::Near;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::once::Once;
use rowdex_order::{EpochOrder, Global, Order};

/// What to do about a row group that cannot be read: its file is missing or was replaced, a read fails, its bytes are
/// damaged, its values do not fit the dataset's schema, or it takes more memory than is allowed.
///
/// Any other error, such as a defect of this library or a wrong argument, always ends the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Fault {
    /// The step that needs one of its rows is an error, and the last one.
    #[default]
    Fail,
    /// Each of its rows is replaced by another one that can be read, chosen by the row id and this seed, and by which
    /// rows can be read: the same on all ranks that can read the same files. The number of steps and of rows stays
    /// what it was.
    Substitute {
        /// Another seed chooses other rows.
        seed: u64,
    },
}

/// A row group that could not be read, from [`Loader::lost_groups`](super::Loader::lost_groups).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LostGroup {
    /// Its number in the index.
    pub row_group: u32,
    /// Why it could not be read; names file, row group and column where they are known.
    pub error: Error,
}

/// A row of a batch that stands in for one that could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Substituted {
    /// The place in the batch, from 0.
    pub place: usize,
    /// The row id that the order has there. The one that is served is in [`Batch::row_ids`](super::Batch::row_ids).
    pub lost: u64,
}

/// A row, and the group and slot that it is in.
pub(crate) type Placed = (u64, (u32, u32));

/// What is known to be lost. Never waits, so that a group found lost by one thread does not hold up the others.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    circle: Option<Arc<dyn EpochOrder>>,
    /// One for each row group; none if a fault is an error.
    errors: Vec<Once<Error>>,
    rows_lost: AtomicU64,
}

impl Faults {
    pub(crate) fn new(fault: Fault, groups: &dyn Groups) -> Result<Self> {
        let Fault::Substitute { seed } = fault else { return Ok(Self::default()) };
        let rows = (0..groups.count()).map(|group| groups.size(group).rows).fold(0, u64::saturating_add);
        let circle = Global::new(rows, seed)?.epoch(u64::MAX)?;
        let errors = (0..groups.num_row_groups()).map(|_| Once::new()).collect();
        Ok(Self { circle: Some(circle), errors, rows_lost: AtomicU64::new(0) })
    }

    /// Whether rows are replaced at all.
    pub(crate) fn substitutes(&self) -> bool {
        self.circle.is_some()
    }

    /// The slots of a group that are known to be lost, row group by row group.
    pub(crate) fn lost_slots(&self, group: u32, groups: &dyn Groups) -> Vec<Range<u32>> {
        if self.rows_lost.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let lost = groups.row_groups(group).filter(|row_group| self.error(*row_group).is_some());
        lost.map(|row_group| groups.slots_of(row_group)).collect()
    }

    /// Notes that a row group is lost, so that its rows are replaced from now on.
    ///
    /// # Errors
    /// The error itself, if rows are not to be replaced because of it.
    pub(crate) fn lose(&self, row_group: u32, error: Error, groups: &dyn Groups) -> Result<()> {
        if !self.substitutes() || !error.kind().is_of_the_data() {
            return Err(error);
        }
        if let Some(slot) = self.errors.get(row_group as usize)
            && slot.set(error)
        {
            self.rows_lost.fetch_add(groups.slots_of(row_group).len() as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn lost_groups(&self) -> Vec<LostGroup> {
        let lost = (0u32..).zip(&self.errors);
        lost.filter_map(|(row_group, slot)| Some(LostGroup { row_group, error: slot.get()?.clone() })).collect()
    }

    /// The row to serve for `row`, and its place: itself, unless its group is known to be lost.
    pub(crate) fn resolve(&self, row: u64, near: &mut Near, groups: &dyn Groups) -> Result<Placed> {
        let place = near.locate(row, groups).ok_or_else(|| out_of_range(row))?;
        match &self.circle {
            Some(circle) if self.rows_lost.load(Ordering::Relaxed) > 0 => match self.error_at(place, groups) {
                Some(error) => self.next(row, circle.as_ref(), groups).ok_or_else(|| nothing_left(error)),
                None => Ok((row, place)),
            },
            _ => Ok((row, place)),
        }
    }

    /// The next row in the circle that is not known to be lost.
    fn next(&self, row: u64, circle: &dyn EpochOrder, groups: &dyn Groups) -> Option<Placed> {
        let len = circle.len();
        if self.rows_lost.load(Ordering::Relaxed) >= len {
            return None;
        }
        let start = circle.position(row)?;
        for step in 1..len {
            let row = circle.row((start + step) % len)?;
            let place = groups.locate(row)?;
            if self.error_at(place, groups).is_none() {
                return Some((row, place));
            }
        }
        None
    }

    fn error(&self, row_group: u32) -> Option<&Error> {
        self.errors.get(row_group as usize)?.get()
    }

    /// Why the row group of a slot is lost, if it is.
    fn error_at(&self, (group, slot): (u32, u32), groups: &dyn Groups) -> Option<&Error> {
        self.error(row_group_of(group, slot, groups))
    }
}

/// The row group that a slot of a group is of.
pub(crate) fn row_group_of(group: u32, slot: u32, groups: &dyn Groups) -> u32 {
    let Range { mut start, mut end } = groups.row_groups(group);
    // The last one that does not begin behind the slot; what is empty ends where it begins.
    while end.saturating_sub(start) > 1 {
        let middle = start + (end - start) / 2;
        if groups.slots_of(middle).start <= slot { start = middle } else { end = middle }
    }
    start
}

/// The error of a decode that panicked.
pub(crate) fn undecoded(group: u32) -> Error {
    panicked(&format!("decoding row group {group}"))
}

pub(crate) fn panicked(what: &str) -> Error {
    Error::new(ErrorKind::Internal, format!("{what} panicked")).with_hint("please report this")
}

fn nothing_left(error: &Error) -> Error {
    Error::new(error.kind(), format!("no row can be read, so none can stand in for another; the first error: {error}"))
        .with_source(error.clone())
}

pub(crate) fn out_of_range(row: u64) -> Error {
    Error::new(ErrorKind::OutOfRange, format!("the order has row id {row}"))
        .with_hint("make the order for as many rows as the dataset has")
}
