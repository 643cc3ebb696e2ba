//! From rows that are held to batches.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::Schema;

use super::Batch;
use super::batch::BatchSlice;
use super::carousel::Claimed;
use super::driver::BatchRange;
use super::recovery::Substituted;
use super::units::{RowFinder, Units};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::sampler::BatchPlan;
use rowdex_rows::{
    BatchRow, Held, Stretch, Together, bytes_of_parts, bytes_shown, collect, make_alike, record_batch, uncopied,
};

/// Batches of a segment that follow each other, up to the first that cannot be made.
#[derive(Debug)]
pub(crate) struct Assembled {
    pub(crate) batches: Vec<Batch>,
    /// Bytes that they take.
    pub(crate) bytes: u64,
    /// How many rows they have; after an error, how many are left of the segment.
    pub(crate) rows: u64,
    pub(crate) error: Option<Error>,
}

/// A segment of which the batches are made, all at once or some at a time: strings that repeat are held once, and
/// batches have them as often as they come.
///
/// Every part has its rows in the order in which they are due, so the next row of a unit is always the one after the
/// last: no positions are kept with the rows, and none are compared.
#[derive(Debug)]
pub(crate) struct Making {
    /// The batches that are left.
    pub(crate) range: BatchRange,
    /// The rows for them.
    pub(crate) claimed: Claimed,
    /// The rest of each unit's part; none before the first batch is made.
    pub(crate) cursors: Vec<Cursor>,
}

impl Making {
    /// Makes the next batches, at most so many.
    pub(crate) fn assemble(&mut self, units: &Units, most: u64) -> Assembled {
        let BatchRange { batches: all, .. } = &self.range;
        let now = all.start..all.end.min(all.start.saturating_add(most.max(1)));
        let mut batches = Vec::with_capacity((now.end - now.start) as usize);
        let filled = fill(units, now.clone(), self, &mut batches);
        // A batch may share the memory of rows that are still held, or of views' values.
        let records = batches.iter().map(|batch: &Batch| &batch.records);
        let elsewhere = units.elsewhere();
        let bytes = match units.form.shares_values {
            true => bytes_shown(records, &elsewhere),
            false => bytes_of_parts(records, &elsewhere),
        };
        let ids: u64 = batches
            .iter()
            .map(|batch| size_of_val(&*batch.row_ids) as u64 + size_of_val(&*batch.positions) as u64)
            .sum();
        let (rows, error) = match filled {
            Ok(rows) => (rows, None),
            Err(error) => (self.claimed.rows, Some(error)),
        };
        self.claimed.rows = self.claimed.rows.saturating_sub(rows);
        self.range.batches.start = if error.is_some() { self.range.batches.end } else { now.end };
        Assembled { batches, bytes: bytes + ids, rows, error }
    }

    /// No batch is made any more, for this reason.
    pub(crate) fn fail(&mut self, error: Error) -> Assembled {
        self.range.batches.start = self.range.batches.end;
        Assembled { batches: Vec::new(), bytes: 0, rows: self.claimed.rows, error: Some(error) }
    }
}

/// The rest of a part: its current piece, the rows used of it, and the piece after its last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor {
    piece: u32,
    row: u32,
    end: u32,
}

/// A part without rows, because they could not be had or because there is none.
const LOST: Cursor = Cursor { piece: 0, row: 0, end: 0 };

/// Where every row of a segment is, batch by batch.
struct RowPlaces<'a> {
    near: RowFinder,
    pieces: &'a [Held],
    errors: &'a [(u32, Error)],
    cursors: &'a mut [Cursor],
    /// Where each row is: in which piece, and where in what that lies in.
    places: Vec<BatchRow>,
}

/// Where the rows of each unit begin.
fn beginnings(units: &Units, claimed: &Claimed) -> Vec<Cursor> {
    let mut cursors = vec![LOST; units.count() as usize];
    for (unit, pieces) in &claimed.parts {
        if let Some(cursor) = cursors.get_mut(*unit as usize) {
            *cursor = Cursor { piece: pieces.start, row: 0, end: pieces.end };
        }
    }
    cursors
}

impl<'a> RowPlaces<'a> {
    /// Adds the rows of a batch. `replaced` are those that the walk put in the place of others; returns these, and the
    /// labels of rows that have some, by their places in the batch.
    fn add(&mut self, rows: &[u64], replaced: &mut &'a [(usize, u64)]) -> Result<Vec<(usize, &'a [u64])>> {
        let mut labels = Vec::new();
        let mut at = 0;
        while let Some(&asked) = rows.get(at) {
            let mut row = asked;
            let mut other = None;
            if let [(place, replacing), rest @ ..] = *replaced
                && *place == self.places.len()
            {
                (row, other, *replaced) = (*replacing, Some(std::slice::from_ref(replacing)), rest);
            }
            let (unit, _) = self.near.locate(row).ok_or_else(|| lost(row))?;
            let cursor = self.cursors.get_mut(unit as usize).ok_or_else(|| lost(row))?;
            let piece = self.pieces.get(cursor.piece as usize).filter(|_| cursor.piece < cursor.end);
            let Some(piece) = piece else {
                let error = self.errors.iter().find(|(other, _)| *other == unit);
                return Err(error.map_or_else(|| lost(row), |(_, error)| error.clone()));
            };
            let place = (cursor.piece, piece.place(cursor.row as usize));
            let mut count = 1;
            if row == asked && piece.is_run() && replaced.is_empty() {
                // Rows that follow each other in the order and in the unit do in the piece, too.
                let most = (piece.num_rows() - cursor.row as usize).min(rows.len() - at) as u64;
                let most = most.min(self.near.following(row));
                while (count as u64) < most && rows[at + count] == row + count as u64 {
                    count += 1;
                }
                self.places.extend((place.1..).take(count).map(|row| (place.0, row)));
            } else {
                self.places.push(place);
                let label = piece.label(cursor.row as usize);
                labels.extend(label.or(other.filter(|_| row != asked)).map(|label| (at, label)));
            }
            cursor.row += count as u32;
            if cursor.row as usize == piece.num_rows() {
                (cursor.piece, cursor.row) = (cursor.piece + 1, 0);
            }
            at += count;
        }
        Ok(labels)
    }
}

/// Puts rows in the place of others that are lost, and says which ones.
fn substitute(rows: &mut [u64], served: &[(usize, &[u64])]) -> Vec<Substituted> {
    let replace = |(place, row): &(usize, &[u64])| {
        let row = row.first()?;
        let lost = std::mem::replace(rows.get_mut(*place)?, *row);
        (lost != *row).then_some(Substituted { place: *place, lost })
    };
    served.iter().filter_map(replace).collect()
}

/// Makes these batches of the segment. Returns how many rows they have.
fn fill(units: &Units, now: Range<u64>, making: &mut Making, batches: &mut Vec<Batch>) -> Result<u64> {
    let Making { range, claimed, cursors } = making;
    if cursors.is_empty() {
        // Units that are packed and units that are not may be due at once while the plan learns what rows take.
        make_alike(&mut claimed.pieces, &units.form.decoded)?;
        *cursors = beginnings(units, claimed);
    }
    let Claimed { pieces, errors, .. } = &*claimed;
    let mut located = RowPlaces { near: units.finder(), pieces, errors, cursors, places: Vec::new() };
    let mut stretches: Vec<(usize, Stretch)> = Vec::new();
    let mut error = None;
    let mut replaced = &*range.replaced;
    let none = RecordBatch::new_empty(Arc::new(Schema::empty()));
    for number in now {
        let first = located.places.len();
        let mut draft = || -> Result<Batch> {
            let mut plan = BatchPlan::default();
            let epoch_plan = range.fill(number, &mut plan)?;
            let (rank, steps) = (epoch_plan.shard().rank(), epoch_plan.steps());
            let positions = epoch_plan.occurrences(&plan);
            let labels = located.add(&plan.rows, &mut replaced)?;
            let packs = units.packing.as_ref().map(|packing| packing.packs(&mut plan, &labels)).transpose()?;
            let substituted = if packs.is_some() { Vec::new() } else { substitute(&mut plan.rows, &labels) };
            let BatchPlan { epoch, step, rows: row_ids, pads, .. } = plan;
            let (records, part) = (none.clone(), BatchSlice::default());
            Ok(Batch { epoch, step, steps, rank, records, row_ids, positions, pads, substituted, packs, part })
        };
        match draft() {
            Ok(draft) => batches.push(draft),
            Err(why) => {
                error = Some(why);
                break;
            }
        }
        join(&mut stretches, first..located.places.len(), &located);
    }
    let places = located.places;
    let (counts, stretches): (Vec<usize>, Vec<Stretch>) = stretches.into_iter().unzip();
    match whole(units, pieces, &places, &stretches) {
        Ok(all) => {
            let mut drafts = batches.iter_mut();
            all.iter().zip(counts).for_each(|(whole, count)| cut(whole, drafts.by_ref().take(count)));
        }
        // Together they may have more bytes than offsets reach, and an error of one batch is none of those before it.
        Err(_) => {
            let mut first = 0;
            for number in 0..batches.len() {
                let own = first..first + batches[number].row_ids.len();
                first = own.end;
                let together = Together::of(&places[own.clone()], pieces);
                match whole(units, pieces, &places, &[Stretch { places: own, together }]) {
                    Ok(alone) => alone.iter().for_each(|whole| cut(whole, batches[number..].iter_mut().take(1))),
                    Err(why) => {
                        batches.truncate(number);
                        return Err(why);
                    }
                }
            }
        }
    }
    let rows = places.len();
    let left = replaced.len();
    range.replaced.drain(..range.replaced.len() - left);
    range.replaced.iter_mut().for_each(|(place, _)| *place -= rows);
    error.map_or(Ok(rows as u64), Err)
}

/// The rows of each stretch, as they are served.
fn whole(units: &Units, held: &[Held], places: &[BatchRow], stretches: &[Stretch]) -> Result<Vec<Arc<RecordBatch>>> {
    let form = &units.form;
    let columns = collect(held, places, stretches, &form.decoded, &form.served)?;
    let whole = |(columns, stretch): (Vec<ArrayRef>, &Stretch)| {
        let finished =
            columns.iter().zip(form.served.fields()).all(|(array, wanted)| array.data_type() == wanted.data_type());
        let schema = if finished { &form.served } else { &form.decoded };
        let records = record_batch(schema, columns, stretch.places.len()).map_err(uncopied)?;
        Ok(Arc::new(if finished { records } else { units.groups.output(&records, &form.served)? }))
    };
    columns.into_iter().zip(stretches).map(whole).collect()
}

/// Gives the batches of a stretch their rows, which are `whole` together.
fn cut<'a>(whole: &Arc<RecordBatch>, drafts: impl Iterator<Item = &'a mut Batch>) {
    let mut first = 0;
    for batch in drafts {
        let count = batch.row_ids.len();
        batch.records = if count == whole.num_rows() { (**whole).clone() } else { whole.slice(first, count) };
        batch.part = BatchSlice::of(whole, first);
        first += count;
    }
}

/// A batch that is kept keeps so many others in memory at most; they have no more rows than a segment.
const MOST_TOGETHER: usize = 16;

/// Adds a batch to those that are made together, which share the memory of their rows: they follow each other, and are
/// all picked from anywhere, or lie one after the other.
///
/// An array for several batches costs hardly more than one for a single batch: what is paid for each column once is
/// then paid once for all of them, and whoever wants several batches at a time has them in one piece.
fn join(stretches: &mut Vec<(usize, Stretch)>, places: Range<usize>, located: &RowPlaces<'_>) {
    let together = Together::of(&located.places[places.clone()], located.pieces);
    match stretches.last_mut() {
        Some((batches, last)) if *batches < MOST_TOGETHER && goes_on(last, together) => {
            *batches += 1;
            last.places.end = places.end;
        }
        _ => stretches.push((1, Stretch { places, together })),
    }
}

/// Whether rows that lie there, or anywhere, go on with those of the stretch.
fn goes_on(stretch: &Stretch, together: Option<Together>) -> bool {
    match (&stretch.together, together) {
        (None, None) => true,
        (Some(first), Some(next)) => first.goes_on(stretch.places.len(), &next),
        _ => false,
    }
}

fn lost(row: u64) -> Error {
    Error::new(ErrorKind::Internal, format!("row {row} is not where the plan has it"))
}
