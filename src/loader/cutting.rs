//! Pieces of rows, cut out of the rows that are got out of a unit.
//!
//! A row that is due several times, each time with other tokens, is got out once. What waits are its parts, each in
//! memory of its own: so rows that are long take no more memory than what is due of them.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use super::carousel::DueRows;
use super::extract::Extracted;
use super::packing::{ServedPacks, columns};
use super::pieces::{PieceList, TokenRange};
use super::recovery::Recovery;
use super::slot_list::SlotList;
use super::units::Units;
use crate::dataset::Prefetch;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_rows::{Held, Part};

/// Parts with about so many tokens are let go of together.
const TOKENS_TOGETHER: u64 = 16 << 10;

/// Gets the due pieces out of a unit.
pub(crate) fn extract(
    recovery: &mut Recovery<'_>,
    units: &Units,
    unit: u32,
    due: &PieceList,
    stays: bool,
    held: Option<Held>,
    prefetch: Option<Prefetch>,
) -> Result<Extracted> {
    let Some(packing) = units.packing() else { return recovery.extract(unit, &due.slots, stays, held, prefetch) };
    let rows = units.size(unit).rows;
    let mut got = Got::apart(due);
    let mut extracted = recovery.extract(unit, &SlotList::of(rows, &got.slots), stays, held, prefetch)?;
    if extracted.rows.is_short() && due.parts().len() > 0 {
        // Some of the unit cannot be read, and what comes before that must still be there.
        got = Got::in_turn(due.slots.to_vec());
        extracted = recovery.extract(unit, &SlotList::of(rows, &got.slots), stays, None, None)?;
    }
    let is_shared = extracted.stays.is_some();
    let began = Instant::now();
    let rows = std::mem::take(&mut extracted.rows);
    extracted.rows = PieceCutter { units, unit, packing, due, got }.due_rows(rows, is_shared)?;
    extracted.picking += began.elapsed();
    Ok(extracted)
}

/// Which rows are got out of a unit.
struct Got {
    slots: Vec<u32>,
    /// For each due row its place among them.
    places: Vec<usize>,
    /// How many of them are whole rows, all before the others; `None` if each is where it is due.
    whole: Option<usize>,
}

impl Got {
    /// Whole rows, and then each row once of which parts are due.
    fn apart(pieces: &PieceList) -> Self {
        let due = pieces.slots.to_vec();
        if pieces.parts().len() == 0 {
            return Self::in_turn(due);
        }
        let whole = due.len() - pieces.parts().len();
        let mut next = 0;
        let mut known = HashMap::new();
        let mut slots = Vec::with_capacity(due.len());
        let mut parts = Vec::new();
        let mut cut = pieces.parts().peekable();
        let places = due.iter().enumerate().map(|(place, slot)| {
            if cut.next_if(|(at, _)| *at == place).is_some() {
                return *known.entry(*slot).or_insert_with(|| {
                    parts.push(*slot);
                    whole + parts.len() - 1
                });
            }
            slots.push(*slot);
            next += 1;
            next - 1
        });
        let places = places.collect();
        slots.append(&mut parts);
        Self { slots, places, whole: Some(whole) }
    }

    fn in_turn(due: Vec<u32>) -> Self {
        Self { places: (0..due.len()).collect(), slots: due, whole: None }
    }
}

/// Makes the due pieces out of the rows that were got.
struct PieceCutter<'a> {
    units: &'a Units,
    unit: u32,
    packing: &'a ServedPacks,
    due: &'a PieceList,
    got: Got,
}

impl PieceCutter<'_> {
    /// What is due, of the rows that were got, up to the first that cannot be served.
    fn due_rows(&self, rows: DueRows, is_shared: bool) -> Result<DueRows> {
        let (held, mut error) = rows.into_parts();
        let held = Vec::from(held);
        let found: usize = held.iter().map(Held::num_rows).sum();
        let first = self.units.unit(self.unit).first_row;
        let rows: Vec<u64> = self.got.slots.iter().take(found).map(|slot| first + u64::from(*slot)).collect();
        let mut changed = self.packing.changed(&rows, &held)?;
        let mut served = self.got.places.iter().take_while(|place| **place < found).count();
        if !changed.is_empty() {
            let bad = |place: &usize| changed.iter().any(|(other, _)| other == place);
            if let Some(first) = self.got.places.iter().take(served).position(bad) {
                let place = self.got.places.get(first).copied().unwrap_or_default();
                let slot = self.got.slots.get(place).copied().unwrap_or_default();
                let row_group = self.units.row_group_of(self.unit, slot);
                let found = changed.drain(..).find_map(|(other, error)| (other == place).then_some(error));
                error = found.map(|error| self.units.groups().located(error, row_group));
                served = first;
            }
        }
        let whole = self.whole_rows(&held, is_shared)?;
        let parts = self.parts(&held, served)?;
        let due = DueRows::of(self.in_order(whole.into(), parts.into(), served)?);
        match (self.got.places.len() - served, error) {
            (0, _) => Ok(due),
            (missing, error) => {
                let none = || Error::new(ErrorKind::Internal, "fewer rows than were due of a row group");
                Ok(due.before(error.unwrap_or_else(none), missing))
            }
        }
    }

    /// The rows that are due whole, in memory that no others are in.
    fn whole_rows(&self, held: &[Held], is_shared: bool) -> Result<Vec<Held>> {
        let Some(mut left) = self.got.whole else { return Ok(held.to_vec()) };
        let mut whole = Vec::with_capacity(held.len());
        for held in held {
            if left == 0 {
                break;
            }
            let mut held = held.clone();
            if left < held.num_rows() {
                held = match is_shared {
                    true => held.split_front(left),
                    false => {
                        let slots: Vec<u32> = (0..left).map(|row| held.place(row)).collect();
                        Held::columns(held.take(&slots, &self.units.form().decoded)?, &self.units.elsewhere())
                    }
                };
            }
            left -= held.num_rows();
            whole.push(held);
        }
        Ok(whole)
    }

    /// The parts that are due among the first rows, so many, with what comes behind each.
    fn parts(&self, held: &[Held], served: usize) -> Result<Vec<Held>> {
        let cuts: Vec<(usize, TokenRange)> = self.due.parts().take_while(|(at, _)| *at < served).collect();
        let Some(tokens) = self.packing.tokens().filter(|_| !cuts.is_empty()) else { return Ok(Vec::new()) };
        let batches = held.iter().map(columns).collect::<Result<Vec<_>>>()?;
        let cutter = tokens.cutter(&batches)?;
        let ends: Vec<usize> = held
            .iter()
            .scan(0, |end, held| {
                *end += held.num_rows();
                Some(*end)
            })
            .collect();
        let part = |at: usize, tokens: TokenRange| {
            let place = *self.got.places.get(at)?;
            let number = ends.partition_point(|end| *end <= place);
            let own = held.get(number)?;
            let row = own.place(place - (ends.get(number)? - own.num_rows()));
            Some(Part { place: (number as u32, row), offset: tokens.offset, length: tokens.length })
        };
        let first = self.units.unit(self.unit).first_row;
        let mut pieces = Vec::new();
        let mut parts = Vec::new();
        let mut marked = Vec::new();
        let mut sum = 0;
        let last = cuts.len() - 1;
        for (number, (at, cut)) in cuts.into_iter().enumerate() {
            let part = part(at, cut).ok_or_else(|| Error::new(ErrorKind::Internal, "a part of no row"))?;
            let slot = self.got.places.get(at).and_then(|place| self.got.slots.get(*place)).copied();
            marked.push((first + u64::from(slot.unwrap_or_default()), cut));
            parts.push(part);
            sum += cut.length;
            if sum >= TOKENS_TOGETHER || number == last {
                let (batch, behind) = cutter.cut(&parts)?;
                let marks =
                    marked.drain(..).zip(behind).map(|((row, cut), behind)| self.packing.mark(row, cut, behind));
                let marks = marks.collect::<Result<Vec<_>>>()?.concat();
                pieces.push(Held::columns(batch, &self.units.elsewhere()).with_labels(&marks, self.packing.columns()));
                parts.clear();
                sum = 0;
            }
        }
        Ok(pieces)
    }

    /// The first due rows, so many, in the order in which they are due.
    fn in_order(&self, whole: VecDeque<Held>, parts: VecDeque<Held>, served: usize) -> Result<VecDeque<Held>> {
        let mut whole = Front(whole);
        let mut parts = Front(parts);
        let mut ordered = VecDeque::new();
        let mut at = 0;
        let mut cuts = self.due.parts().map(|(at, _)| at).take_while(|at| *at < served).peekable();
        while let Some(first) = cuts.next() {
            whole.give(first - at, &mut ordered)?;
            at = first + 1;
            while cuts.next_if_eq(&at).is_some() {
                at += 1;
            }
            parts.give(at - first, &mut ordered)?;
            if self.got.whole.is_none() {
                // Instead of the rows that they are parts of.
                whole.give(at - first, &mut VecDeque::new())?;
            }
        }
        whole.give(served - at, &mut ordered)?;
        Ok(ordered)
    }
}

/// Rows that are taken off from the first on.
struct Front(VecDeque<Held>);

impl Front {
    fn give(&mut self, mut rows: usize, to: &mut VecDeque<Held>) -> Result<()> {
        while rows > 0 {
            let Some(first) = self.0.front_mut() else {
                return Err(Error::new(ErrorKind::Internal, "fewer rows than were due of a row group"));
            };
            let next = match rows < first.num_rows() {
                true => Some(first.split_front(rows)),
                false => self.0.pop_front(),
            };
            rows -= next.as_ref().map_or(0, Held::num_rows);
            to.extend(next);
        }
        Ok(())
    }
}
