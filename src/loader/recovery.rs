//! Row groups that cannot be read: what can still be had, and which rows stand in for theirs.
//!
//! An error of a unit of several row groups is of one of them. So its row groups are then read one by one: an error
//! comes at the row that needs what cannot be read, and no sooner, and a row group is lost alone.
//!
//! All rows stand in a circle, in the order `global` of the fault seed at epoch 2^64 - 1. A row that cannot be read
//! is replaced by the next one in the circle that can. Which one that is depends on the rows that are lost and on
//! nothing else: not on when a loss was noticed, since going on from a substitute that turns out to be lost leads to
//! the same row, so ranks, threads and memory agree without a word. As the order is a permutation, substitutes are
//! spread evenly over the rows that are left, and the search ends.
//!
//! The walk replaces rows that are known to be lost, and those are then served like any other row. Rows that were
//! walked over before the loss was noticed have their substitutes all over the dataset, which were not looked ahead
//! for, so each unit that has some is decoded for them. That happens about once for each lost row group.

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};

use super::carousel::DueRows;
use super::extract::{Extracted, from_file, from_held, wanted};
use super::units::{RowFinder, Units, some};
use crate::dataset::{Prefetch, Slots};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::once::Once;
use rowdex_order::{EpochOrder, Global, Order};
use rowdex_parquet::WholeBatch;
use rowdex_rows::{self as rows, BatchRow, Held, PIECES};

/// What to do about a row group that cannot be read: its file is missing or was replaced, a read fails, its bytes are
/// damaged, its values do not fit the dataset's schema, or it takes more memory than is allowed.
///
/// Any other error, such as a defect of this library or a wrong argument, always ends the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Fault {
    /// The step that needs one of its rows returns an error, and is the last one.
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
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LostGroup {
    /// Its number in the index.
    pub row_group: u32,
    /// Why it could not be read; names file, row group and column where they are known.
    pub error: Error,
}

/// A row of a batch that stands in for one that could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Substituted {
    /// The place in the batch, from 0.
    pub place: usize,
    /// The row id that the order has there. The one that is served is in [`Batch::row_ids`](super::Batch::row_ids).
    pub lost: u64,
}

/// A row, and the unit and slot that it is in.
pub(crate) type ResolvedRow = (u64, (u32, u32));

/// What is known to be lost. Never waits, so that a row group found lost by one thread does not hold up the others.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    circle: Option<Arc<dyn EpochOrder>>,
    /// One for each row group; none if a fault is an error.
    errors: Vec<Once<Error>>,
    rows_lost: AtomicU64,
}

impl Faults {
    pub(crate) fn new(fault: Fault, units: &Units) -> Result<Self> {
        let Fault::Substitute { seed } = fault else { return Ok(Self::default()) };
        let rows = units.sizes.iter().map(|size| size.rows).fold(0, u64::saturating_add);
        let circle = Global::new(rows, seed)?.epoch(u64::MAX)?;
        let errors = (0..units.groups.count()).map(|_| Once::new()).collect();
        Ok(Self { circle: Some(circle), errors, rows_lost: AtomicU64::new(0) })
    }

    /// The same before anything was lost.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there are no servers"))]
    pub(crate) fn afresh(&self) -> Self {
        let errors = self.errors.iter().map(|_| Once::new()).collect();
        Self { circle: self.circle.clone(), errors, rows_lost: AtomicU64::new(0) }
    }

    /// Whether rows are replaced at all.
    pub(crate) fn substitutes(&self) -> bool {
        self.circle.is_some()
    }

    /// The slots of a unit that are known to be lost, row group by row group.
    fn lost_slots(&self, unit: u32, units: &Units) -> Vec<Range<u32>> {
        if self.rows_lost.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let lost = units.row_groups(unit).filter(|row_group| self.error(*row_group).is_some());
        lost.map(|row_group| units.slots_of(row_group)).collect()
    }

    /// Notes that a row group is lost, so that its rows are replaced from now on.
    ///
    /// # Errors
    /// The error itself, if rows are not to be replaced because of it.
    pub(crate) fn lose(&self, row_group: u32, error: Error, units: &Units) -> Result<()> {
        if !self.substitutes() || !error.kind().is_of_the_data() {
            return Err(error);
        }
        if let Some(slot) = self.errors.get(row_group as usize)
            && slot.set(error)
        {
            self.rows_lost.fetch_add(units.slots_of(row_group).len() as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn lost_groups(&self) -> Vec<LostGroup> {
        let lost = (0u32..).zip(&self.errors);
        lost.filter_map(|(row_group, slot)| Some(LostGroup { row_group, error: slot.get()?.clone() })).collect()
    }

    /// The row to serve for `row`, and its place: itself, unless it is known to be lost.
    pub(crate) fn resolve(&self, row: u64, near: &mut RowFinder, units: &Units) -> Result<ResolvedRow> {
        let (unit, slot) = near.locate(row).ok_or_else(|| {
            Error::new(ErrorKind::OutOfRange, format!("the order has row id {row}"))
                .with_hint("make the order for as many rows as the dataset has")
        })?;
        if self.rows_lost.load(Ordering::Relaxed) > 0
            && let Some(circle) = &self.circle
            && let Some(error) = self.error_at(unit, slot, units)
        {
            return self.next(row, circle.as_ref(), units).ok_or_else(|| {
                let message = "no row can be read, so none can stand in for another; the first error";
                Error::new(error.kind(), format!("{message}: {error}")).with_source(error.clone())
            });
        }
        Ok((row, (unit, slot)))
    }

    /// The next row in the circle that is not known to be lost.
    fn next(&self, row: u64, circle: &dyn EpochOrder, units: &Units) -> Option<ResolvedRow> {
        let len = circle.len();
        if self.rows_lost.load(Ordering::Relaxed) >= len {
            return None;
        }
        let start = circle.position(row)?;
        for step in 1..len {
            let row = circle.row((start + step) % len)?;
            let (unit, slot) = units.locate(row)?;
            if self.error_at(unit, slot, units).is_none() {
                return Some((row, (unit, slot)));
            }
        }
        None
    }

    fn error(&self, row_group: u32) -> Option<&Error> {
        self.errors.get(row_group as usize)?.get()
    }

    /// Why the row group of a slot is lost, if it is.
    fn error_at(&self, unit: u32, slot: u32, units: &Units) -> Option<&Error> {
        self.error(units.row_group_of(unit, slot))
    }
}

/// Runs what reads and decodes, and makes a panic an error that names the row group.
pub(crate) fn caught<T>(row_group: u32, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let panicked = |_| Err(panicked(&format!("decoding row group {row_group}")));
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(panicked)
}

pub(crate) fn panicked(what: &str) -> Error {
    Error::new(ErrorKind::Internal, format!("{what} panicked")).with_hint("please report this")
}

/// Extracts rows of a unit, or what can be had of them if it cannot be read.
pub(crate) struct Recovery<'a> {
    pub(crate) units: &'a Units,
    pub(crate) faults: &'a Faults,
    /// Rows of a batch.
    pub(crate) batch_rows: u64,
    pub(crate) unit: u32,
    /// Whether it is to stay in memory.
    pub(crate) stays: bool,
    /// The unit, if it has stayed, and what was read ahead of it.
    pub(crate) held: Option<Held>,
    pub(crate) prefetch: Option<Prefetch>,
    /// Row groups that were decoded.
    pub(crate) decodes: u64,
}

impl Recovery<'_> {
    /// The rows at these slots, in the order given, of the unit that is held or is read.
    pub(crate) fn extract(&mut self, due: &dyn Fn() -> Vec<u32>) -> Result<Extracted> {
        let Self { units, unit, stays, .. } = *self;
        let slots = due();
        let lost = self.faults.lost_slots(unit, units);
        // What is known to be lost is not tried again.
        if is_lost(&slots, &lost) {
            return self.replace(&slots);
        }
        if let Some(whole) = self.held.take() {
            return caught(units.row_groups(unit).start, || from_held(units, unit, whole, slots, stays));
        }
        // What cannot stay whole does not stay.
        let keeps = stays && lost.is_empty();
        let prefetch = self.prefetch.take();
        let read = || from_file(units, self.batch_rows, unit, slots, keeps, prefetch);
        match caught(units.row_groups(unit).start, read) {
            Ok(extracted) => {
                self.decodes += extracted.decodes;
                Ok(extracted)
            }
            Err(error) if self.faults.substitutes() => {
                self.lose(unit, error)?;
                self.replace(&due())
            }
            Err(error) => self.salvage(due(), error),
        }
    }

    /// Notes which row groups of a unit cannot be read, because reading it came to this error. Returns whether there
    /// are any; an error is one that no row is to be replaced for.
    fn lose(&mut self, unit: u32, error: Error) -> Result<bool> {
        let broken = self.broken(unit, error);
        let found = !broken.is_empty();
        for (row_group, error) in broken {
            self.faults.lose(row_group, error, self.units)?;
        }
        Ok(found)
    }

    /// The row groups of a unit that cannot be read, each with its error, because reading the unit came to this one.
    fn broken(&mut self, unit: u32, error: Error) -> Vec<(u32, Error)> {
        let units = self.units;
        let row_groups = units.row_groups(unit);
        if row_groups.len() == 1 {
            self.decodes += 1;
            return vec![(row_groups.start, error)];
        }
        let mut broken = Vec::new();
        for row_group in row_groups.filter(|row_group| !units.slots_of(*row_group).is_empty()) {
            self.decodes += 1;
            let read = || units.groups.read(row_group, Slots::All, None, &mut WholeBatch::default());
            if let Err(error) = caught(row_group, read) {
                broken.push((row_group, error));
            }
        }
        broken
    }

    /// The rows at these slots of the unit, which cannot be read as a whole, up to the first that cannot be had, and
    /// then the error; or `error`, if each row group can be read.
    fn salvage(&mut self, mut slots: Vec<u32>, error: Error) -> Result<Extracted> {
        let Self { units, unit, .. } = *self;
        let broken = self.broken(unit, error.clone());
        let why = |slot: &u32| broken.iter().find(|(row_group, _)| units.slots_of(*row_group).contains(slot));
        let found = slots.iter().enumerate().find_map(|(place, slot)| Some((place, &why(slot)?.1)));
        let (sound, fault) = match found {
            Some((place, fault)) => (place, Some(fault.clone())),
            None if broken.is_empty() => return Err(error),
            None => (slots.len(), None),
        };
        let missing = slots.len() - sound;
        slots.truncate(sound);
        let mut rows = DueRows::default();
        if sound > 0 {
            let read = || from_file(units, self.batch_rows, unit, slots, false, None);
            let extracted = caught(units.row_groups(unit).start, read)?;
            self.decodes += extracted.decodes;
            rows = extracted.rows;
        }
        if let Some(fault) = fault {
            rows = rows.before(fault, missing);
        }
        Ok(Extracted { rows, ..Extracted::default() })
    }

    /// Stand-ins for these slots of the unit, one for each.
    fn replace(&mut self, slots: &[u32]) -> Result<Extracted> {
        let Self { units, unit, stays, .. } = *self;
        let first = units.first_row(unit);
        let mut near = units.finder();
        let (ids, batch) = loop {
            let resolve = |slot: &u32| self.faults.resolve(first + u64::from(*slot), &mut near, units);
            let rows = slots.iter().map(resolve).collect::<Result<Vec<ResolvedRow>>>()?;
            if let Some(batch) = self.fetch(&rows)? {
                break (rows.iter().map(|(row, _)| *row).collect::<Vec<u64>>(), batch);
            }
        };
        let all: Vec<u32> = (0..batch.num_rows() as u32).collect();
        let pieces = Held::copied(&batch, &all, if stays { 1 } else { PIECES }, &units.elsewhere())?;
        Ok(Extracted { rows: DueRows::of(pieces).with_ids(&ids), ..Extracted::default() })
    }

    /// These rows, in the order given; none if one of them turns out to be lost, too.
    pub(super) fn fetch(&mut self, rows: &[ResolvedRow]) -> Result<Option<RecordBatch>> {
        let units = self.units;
        let mut due: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let mut places: Vec<BatchRow> = Vec::with_capacity(rows.len());
        for (_, (unit, slot)) in rows {
            let slots = due.entry(*unit).or_default();
            places.push((*unit, slots.len() as u32));
            slots.push(*slot);
        }
        let mut parts = Vec::with_capacity(due.len());
        let mut is_complete = true;
        for (unit, slots) in &due {
            // Another thread may have found that some are lost since they were chosen.
            if is_lost(slots, &self.faults.lost_slots(*unit, units)) {
                is_complete = false;
                continue;
            }
            match self.read(*unit, slots) {
                Ok(batch) => parts.push(batch),
                Err(error) if self.lose(*unit, error.clone())? => is_complete = false,
                Err(error) => return Err(error),
            }
        }
        if !is_complete {
            return Ok(None);
        }
        let numbers: BTreeMap<u32, u32> = due.into_keys().zip(0..).collect();
        places.iter_mut().for_each(|(unit, _)| *unit = numbers.get(unit).copied().unwrap_or_default());
        rows::gather(&parts.iter().collect::<Vec<_>>(), &places, &units.form.decoded).map(Some)
    }

    /// Rows of a unit, none of which is lost.
    fn read(&mut self, unit: u32, slots: &[u32]) -> Result<RecordBatch> {
        let units = self.units;
        let mut slots = slots.to_vec();
        let wanted = wanted(units, unit, &mut slots);
        let mut batch = WholeBatch::default();
        let read = || units.read(unit, some(wanted.as_deref()), None, &mut batch);
        self.decodes += caught(units.row_groups(unit).start, read)?;
        Held::columns(batch.into_batch()?, &units.elsewhere()).take(&slots, &units.form.decoded)
    }
}

fn is_lost(slots: &[u32], lost: &[Range<u32>]) -> bool {
    !lost.is_empty() && slots.iter().any(|slot| lost.iter().any(|lost| lost.contains(slot)))
}
