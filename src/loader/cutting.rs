//! Pieces of rows, cut out of the rows that are got out of a unit.
//!
//! A row that is due several times, each time with other tokens, is got out once. What waits are its parts, each in
//! memory of its own: so rows that are long take no more memory than what is due of them.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use super::carousel::{DueRows, take_rows, too_few_rows};
use super::extract::Extracted;
use super::packing::{ServedPacks, columns};
use super::pieces::{PieceList, TokenRange};
use super::recovery::Recovery;
use super::units::Units;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_rows::{BatchRow, Held, Part};

/// Parts with about so many tokens are let go of together.
const TOKENS_TOGETHER: u64 = 16 << 10;

/// Gets the due pieces of packs out of a unit.
pub(crate) fn extract(packing: &ServedPacks, recovery: &mut Recovery<'_>, due: &PieceList) -> Result<Extracted> {
    let Recovery { units, unit, .. } = *recovery;
    let mut cutter = PieceCutter { units, unit, packing, due, slots: Vec::new(), places: Vec::new(), whole: None };
    match due.parts().len() {
        0 => cutter.get_in_turn(),
        parts => cutter.get_apart(parts),
    }
    let mut extracted = recovery.extract(&|| cutter.slots.clone())?;
    if extracted.rows.error.is_some() && cutter.whole.is_some() {
        // Some of the unit cannot be read, and what comes before that must still be there.
        cutter.get_in_turn();
        extracted = recovery.extract(&|| cutter.slots.clone())?;
    }
    let is_shared = extracted.stays.is_some();
    let began = Instant::now();
    let rows = std::mem::take(&mut extracted.rows);
    extracted.rows = cutter.due_rows(rows, is_shared)?;
    extracted.picking += began.elapsed();
    Ok(extracted)
}

/// Makes the due pieces out of the rows that are got out of a unit.
struct PieceCutter<'a> {
    units: &'a Units,
    unit: u32,
    packing: &'a ServedPacks,
    due: &'a PieceList,
    /// The rows that are got.
    slots: Vec<u32>,
    /// For each due row its place among them.
    places: Vec<usize>,
    /// How many of them are whole rows, all before the others; `None` if each is where it is due.
    whole: Option<usize>,
}

impl PieceCutter<'_> {
    /// Each row is got where it is due.
    fn get_in_turn(&mut self) {
        self.slots = self.due.slots.to_vec();
        self.places = (0..self.slots.len()).collect();
        self.whole = None;
    }

    /// Whole rows are got, and then each row once of which some of so many parts are due.
    fn get_apart(&mut self, parts: usize) {
        let due = self.due.slots.to_vec();
        let whole = due.len() - parts;
        let mut known = HashMap::new();
        let mut cut_rows = Vec::new();
        let mut cut = self.due.parts().peekable();
        for (place, slot) in due.into_iter().enumerate() {
            let got = if cut.next_if(|(at, _)| *at == place).is_some() {
                *known.entry(slot).or_insert_with(|| {
                    cut_rows.push(slot);
                    whole + cut_rows.len() - 1
                })
            } else {
                self.slots.push(slot);
                self.slots.len() - 1
            };
            self.places.push(got);
        }
        self.slots.append(&mut cut_rows);
        self.whole = Some(whole);
    }

    /// What is due, of the rows that were got, up to the first that cannot be served.
    fn due_rows(&self, rows: DueRows, is_shared: bool) -> Result<DueRows> {
        let (held, mut error) = rows.into_parts();
        let held = Vec::from(held);
        let found: usize = held.iter().map(Held::num_rows).sum();
        let first = self.units.first_row(self.unit);
        let rows: Vec<u64> = self.slots.iter().take(found).map(|slot| first + u64::from(*slot)).collect();
        let mut changed = self.packing.changed(&rows, &held)?;
        let mut served = self.places.iter().take_while(|place| **place < found).count();
        let is_bad = |place: &usize| changed.iter().position(|(other, _)| other == place);
        let bad = self.places.iter().take(served).enumerate().find_map(|(at, place)| Some((at, is_bad(place)?)));
        if let Some((at, number)) = bad {
            let (place, found) = changed.swap_remove(number);
            let slot = self.slots.get(place).copied().unwrap_or_default();
            error = Some(self.units.groups.located(found, self.units.row_group_of(self.unit, slot)));
            served = at;
        }
        let whole = self.whole_rows(&held, is_shared)?;
        let parts = self.parts(&held, served)?;
        let due = DueRows::of(self.in_order(whole.into(), parts.into(), served)?);
        match (self.places.len() - served, error) {
            (0, _) => Ok(due),
            (missing, error) => Ok(due.before(error.unwrap_or_else(too_few_rows), missing)),
        }
    }

    /// The rows that are due whole, in memory that no others are in.
    fn whole_rows(&self, held: &[Held], is_shared: bool) -> Result<Vec<Held>> {
        let Some(mut left) = self.whole else { return Ok(held.to_vec()) };
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
                        Held::columns(held.take(&slots, &self.units.form.decoded)?, &self.units.elsewhere())
                    }
                };
            }
            left -= held.num_rows();
            whole.push(held);
        }
        Ok(whole)
    }

    /// The parts that are due among the first pieces, so many, with what comes behind each.
    fn parts(&self, held: &[Held], served: usize) -> Result<Vec<Held>> {
        let cuts: Vec<(usize, TokenRange)> = self.due.parts().take_while(|(at, _)| *at < served).collect();
        let Some(tokens) = self.packing.tokens().filter(|_| !cuts.is_empty()) else { return Ok(Vec::new()) };
        let batches = held.iter().map(columns).collect::<Result<Vec<_>>>()?;
        let cutter = tokens.cutter(&batches)?;
        let places = (0..).zip(held).flat_map(|(number, held)| {
            let rows = 0..held.num_rows();
            rows.map(move |row| (number, held.place(row)))
        });
        let places: Vec<BatchRow> = places.collect();
        let part = |(at, cut): &(usize, TokenRange)| {
            let place = *places.get(*self.places.get(*at)?)?;
            Some(Part { place, offset: cut.offset, length: cut.length })
        };
        let parts: Option<Vec<Part>> = cuts.iter().map(part).collect();
        let parts = parts.ok_or_else(|| Error::new(ErrorKind::Internal, "a part of no row"))?;
        let mut tokens = 0;
        let together = parts.chunk_by(|before, _| {
            tokens += before.length;
            tokens < TOKENS_TOGETHER || {
                tokens = 0;
                false
            }
        });
        let columns = self.packing.columns();
        together
            .map(|parts| {
                let (batch, behind) = cutter.cut(parts)?;
                // Nothing is asked of those behind which their row ends.
                let behind = behind.into_iter().flat_map(|items| items.unwrap_or_else(|| vec![0; columns]));
                let behind: Vec<u64> = behind.collect();
                Ok(Held::columns(batch, &self.units.elsewhere()).with_labels(&behind, columns))
            })
            .collect()
    }

    /// The first due rows, so many, in the order in which they are due.
    fn in_order(&self, mut whole: VecDeque<Held>, mut parts: VecDeque<Held>, served: usize) -> Result<VecDeque<Held>> {
        let mut ordered = VecDeque::new();
        let mut at = 0;
        let mut cuts = self.due.parts().map(|(at, _)| at).take_while(|at| *at < served).peekable();
        while let Some(first) = cuts.next() {
            move_rows(&mut whole, first - at, &mut ordered)?;
            at = first + 1;
            while cuts.next_if_eq(&at).is_some() {
                at += 1;
            }
            move_rows(&mut parts, at - first, &mut ordered)?;
            if self.whole.is_none() {
                // Instead of the rows that they are parts of.
                move_rows(&mut whole, at - first, &mut VecDeque::new())?;
            }
        }
        move_rows(&mut whole, served - at, &mut ordered)?;
        Ok(ordered)
    }
}

/// Moves the first rows, so many.
fn move_rows(from: &mut VecDeque<Held>, rows: usize, to: &mut VecDeque<Held>) -> Result<()> {
    match take_rows(from, rows, |held| to.push_back(held)) {
        0 => Ok(()),
        _ => Err(too_few_rows()),
    }
}
