//! From rows that are held to batches.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, new_empty_array};
use arrow::datatypes::{DataType, Field};

use super::Batch;
use super::carousel::{Claimed, GroupPart};
use super::faults::Substituted;
use super::groups::Groups;
use super::held::{MOST_SHOWN, Slice};
use super::part::Part;
use super::row_table::Near;
use super::walk::BatchRange;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::sampler::BatchPlan;
use rowdex_rows::{
    Packed, Place, Runs, bytes_of_part, bytes_shown, copy_span, gather_runs, record_batch, uncopied, unpack,
};

/// The batches of a segment, up to the first that cannot be made.
#[derive(Debug)]
pub(crate) struct Assembled {
    pub(crate) batches: Vec<Batch>,
    /// Bytes that they take.
    pub(crate) bytes: u64,
    /// How many rows the segment has, those that are missing after an error included.
    pub(crate) rows: u64,
    pub(crate) error: Option<Error>,
}

/// Makes the batches of `range` out of the rows that were claimed for it, which `near` finds.
///
/// Every part has its rows in the order in which they are due, so the next row of a group is always the one after the
/// last: no positions are kept with the rows, and none are compared.
pub(crate) fn assemble(groups: &dyn Groups, near: Near, range: &BatchRange, claimed: &Claimed) -> Assembled {
    let mut batches = Vec::with_capacity((range.batches.end - range.batches.start) as usize);
    let error = fill(groups, near, range, claimed, &mut batches).err();
    // A batch may share the memory of rows that are still held, or of views' values.
    let bytes = if groups.shares_values() { bytes_shown } else { bytes_of_part };
    let bytes = batches.iter().map(|batch| bytes(&batch.records) + size_of_val(&*batch.row_ids) as u64).sum();
    Assembled { batches, bytes, rows: claimed.rows, error }
}

/// The rest of a part: its current slice, the rows used of it, and the slice after its last.
#[derive(Debug, Clone, Copy)]
struct Cursor {
    slice: u32,
    row: u32,
    end: u32,
}

/// A part without rows, because they could not be had or because there is none.
const LOST: Cursor = Cursor { slice: 0, row: 0, end: 0 };

/// Gives every row of a segment its place, batch by batch.
struct Places<'a> {
    groups: &'a dyn Groups,
    near: Near,
    claimed: &'a Claimed,
    slices: Vec<&'a Slice>,
    cursors: Vec<Cursor>,
    /// Where each row is: in which slice, and where in its batch.
    places: Vec<Place>,
}

impl<'a> Places<'a> {
    /// The places of rows that were claimed, in these slices.
    fn new(groups: &'a dyn Groups, near: Near, claimed: &'a Claimed, slices: Vec<&'a Slice>) -> Self {
        let mut cursors = vec![LOST; groups.count() as usize];
        for GroupPart { group, slices } in &claimed.parts {
            if let Some(cursor) = cursors.get_mut(*group as usize) {
                *cursor = Cursor { slice: slices.start, row: 0, end: slices.end };
            }
        }
        Self { groups, near, claimed, slices, cursors, places: Vec::new() }
    }

    /// Adds the rows of a batch. `replaced` are those that the walk put in the place of others; returns where in the
    /// batch which row was lost, and puts what is served instead into `rows`.
    fn add(&mut self, rows: &mut [u64], replaced: &mut &[(usize, u64)]) -> Result<Vec<Substituted>> {
        let (mut substituted, mut at) = (Vec::new(), 0);
        while let Some(&asked) = rows.get(at) {
            let mut row = asked;
            if let [(place, other), rest @ ..] = *replaced
                && *place == self.places.len()
            {
                (row, *replaced) = (*other, rest);
            }
            let (group, _) = self.near.locate(row, self.groups).ok_or_else(|| lost(row))?;
            let cursor = self.cursors.get_mut(group as usize).ok_or_else(|| lost(row))?;
            let slice = self.slices.get(cursor.slice as usize).filter(|_| cursor.slice < cursor.end);
            let Some(slice) = slice else {
                return Err(why(self.claimed, group).unwrap_or_else(|| lost(row)));
            };
            let place = (cursor.slice, slice.place(cursor.row as usize));
            let mut count = 1;
            if row == asked && slice.is_run() && replaced.is_empty() {
                // Rows that follow each other in the order and in the group do in the slice, too.
                let most = (slice.rows - cursor.row as usize).min(rows.len() - at) as u64;
                let most = most.min(self.near.following(row));
                while (count as u64) < most && rows[at + count] == row + count as u64 {
                    count += 1;
                }
                self.places.extend((place.1..).take(count).map(|row| (place.0, row)));
            } else {
                self.places.push(place);
                row = slice.substitute(cursor.row as usize).unwrap_or(row);
                if row != asked {
                    substituted.push(Substituted { place: at, lost: asked });
                    rows[at] = row;
                }
            }
            cursor.row += count as u32;
            if cursor.row as usize == slice.rows {
                (cursor.slice, cursor.row) = (cursor.slice + 1, 0);
            }
            at += count;
        }
        Ok(substituted)
    }
}

fn fill(
    groups: &dyn Groups,
    near: Near,
    range: &BatchRange,
    claimed: &Claimed,
    batches: &mut Vec<Batch>,
) -> Result<()> {
    let slices: Vec<&Slice> = claimed.slices.iter().collect();
    let packed = all_packed(&slices);
    // Groups that are packed and groups that are not may be due at once while the plan learns what rows take.
    let unpacked: Vec<Option<Slice>> = match packed {
        Some(_) => Vec::new(),
        None => slices.iter().map(|slice| slice.unpacked(&groups.schema())).collect::<Result<_>>()?,
    };
    let slices = match packed {
        Some(_) => slices,
        None => slices.into_iter().zip(&unpacked).map(|(slice, unpacked)| unpacked.as_ref().unwrap_or(slice)).collect(),
    };
    let mut places = Places::new(groups, near, claimed, slices);
    let mut plans: Vec<(u64, u32, BatchPlan, Vec<Substituted>)> =
        Vec::with_capacity((range.batches.end - range.batches.start) as usize);
    let mut ends = Vec::with_capacity(plans.capacity());
    let (mut error, mut replaced) = (None, &*range.replaced);
    for b in range.batches.clone() {
        let mut plan = BatchPlan::default();
        let rank = range.plans.fill(b, &mut plan)?;
        let end = places.places.len() + plan.rows.len();
        match places.add(&mut plan.rows, &mut replaced) {
            Ok(substituted) => plans.push((b, rank, plan, substituted)),
            Err(why) => {
                error = Some(why);
                break;
            }
        }
        ends.push(end);
    }
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let runs: Vec<Range<usize>> = starts.zip(&ends).map(|(start, &end)| start..end).collect();
    let stretches = stretches(&runs, &places);
    let scattered = stretches.iter().filter(|stretch| stretch.together.is_none() && packed.is_none());
    let scattered = Runs::of(scattered.map(|stretch| &places.places[stretch.places.clone()]));
    let (schema, served) = (groups.schema(), groups.served_schema());
    let mut columns: Vec<Vec<ArrayRef>> = vec![Vec::with_capacity(schema.fields().len()); stretches.len()];
    let mut finished = true;
    if let Some(packed) = &packed {
        for (columns, stretch) in columns.iter_mut().zip(&stretches) {
            *columns = unpack(packed, &places.places[stretch.places.clone()], &served)?;
        }
    }
    let in_columns = if packed.is_some() { 0 } else { schema.fields().len() };
    for (column, (field, wanted)) in schema.fields().iter().zip(served.fields()).enumerate().take(in_columns) {
        let shows = field.data_type() == wanted.data_type() && !is_view(wanted);
        let mut copied = gather(&places.slices, &scattered, column, wanted)?.into_iter();
        for (columns, stretch) in columns.iter_mut().zip(&stretches) {
            let array = match stretch.together {
                Some(Together { slice, row, shown }) => {
                    let whole = places.slices[slice as usize].columns().and_then(|batch| batch.columns().get(column));
                    let whole = whole.ok_or_else(|| Error::new(ErrorKind::Internal, "rows without a column"))?;
                    let row = row as usize;
                    match shows && shown {
                        true => whole.slice(row, stretch.places.len()),
                        false => copy_span(whole, row..row + stretch.places.len(), wanted.data_type())
                            .map_err(|error| error.with_column(wanted.name()))?,
                    }
                }
                None => copied.next().ok_or_else(|| Error::new(ErrorKind::Internal, "a batch without a column"))?,
            };
            finished &= array.data_type() == wanted.data_type();
            columns.push(array);
        }
    }
    let mut plans = plans.into_iter();
    for (columns, stretch) in columns.into_iter().zip(stretches) {
        let schema = if finished { &served } else { &schema };
        let records = record_batch(schema, columns, stretch.places.len()).map_err(uncopied)?;
        let records = if finished { records } else { groups.output(&records)? };
        let whole = Arc::new(records);
        let mut first = 0;
        for (b, rank, plan, substituted) in plans.by_ref().take(stretch.batches) {
            let rows = plan.rows.len();
            let records = if rows == whole.num_rows() { (*whole).clone() } else { whole.slice(first, rows) };
            batches.push(Batch {
                epoch: plan.epoch,
                step: plan.step,
                steps: range.plans.steps(b),
                rank,
                records,
                row_ids: plan.rows,
                pads: plan.pads,
                substituted,
                part: Part::of(&whole, first),
            });
            first += rows;
        }
    }
    error.map_or(Ok(()), Err)
}

/// Batches that are made together, and share the memory of their rows.
///
/// An array for several batches costs hardly more than one for a single batch: what is paid for each column once is
/// then paid once for all of them, and whoever wants several batches at a time has them in one piece.
struct Stretch {
    batches: usize,
    places: Range<usize>,
    together: Option<Together>,
}

/// Where rows begin that lie one after the other.
#[derive(Debug, Clone, Copy)]
struct Together {
    slice: u32,
    row: u32,
    /// Whether each batch is a large enough part of what it lies in to be shown there, rather than copied.
    shown: bool,
}

/// A batch that is kept keeps so many others in memory at most; they have no more rows than a segment.
const MOST_TOGETHER: usize = 16;

/// Batches that follow each other, and are all picked from anywhere, or lie one after the other.
fn stretches(runs: &[Range<usize>], places: &Places<'_>) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::with_capacity(runs.len());
    for run in runs {
        let together = together(&places.places[run.clone()], &places.slices);
        match stretches.last_mut() {
            Some(last) if last.batches < MOST_TOGETHER && goes_on(last, together) => {
                last.batches += 1;
                last.places.end = run.end;
            }
            _ => stretches.push(Stretch { batches: 1, places: run.clone(), together }),
        }
    }
    stretches
}

/// Whether rows that lie there, or anywhere, go on with those of the stretch.
fn goes_on(stretch: &Stretch, together: Option<Together>) -> bool {
    match (stretch.together, together) {
        (None, None) => true,
        (Some(first), Some(next)) => {
            let behind = u64::from(first.row) + stretch.places.len() as u64;
            first.slice == next.slice && first.shown == next.shown && behind == u64::from(next.row)
        }
        _ => false,
    }
}

/// Where a batch begins whose rows lie one after the other in one piece.
fn together(run: &[Place], slices: &[&Slice]) -> Option<Together> {
    let (&(slice, row), &(last_slice, last_row)) = (run.first()?, run.last()?);
    let piece = slices.get(slice as usize).filter(|piece| piece.is_contiguous() && piece.columns().is_some())?;
    let close = slice == last_slice && u64::from(last_row) == u64::from(row) + run.len() as u64 - 1;
    let shown = run.len().saturating_mul(MOST_SHOWN) >= piece.held.num_rows();
    let in_order = close && (row..).zip(run).all(|(row, place)| *place == (slice, row));
    in_order.then_some(Together { slice, row, shown })
}

/// The packed rows of all slices, if all are, and alike.
fn all_packed<'a>(slices: &[&'a Slice]) -> Option<Vec<&'a Packed>> {
    let packed: Option<Vec<&Packed>> = slices.iter().map(|slice| slice.packed()).collect();
    packed.filter(|packed| packed.first().is_some_and(|first| packed.iter().all(|other| other.is_like(first))))
}

fn is_view(field: &Field) -> bool {
    matches!(field.data_type(), DataType::Utf8View | DataType::BinaryView)
}

/// One column of all batches, each of which is a run of places.
fn gather(slices: &[&Slice], runs: &Runs<'_>, column: usize, wanted: &Field) -> Result<Vec<ArrayRef>> {
    if slices.is_empty() || runs.is_empty() {
        return Ok(vec![new_empty_array(wanted.data_type()); runs.len()]);
    }
    let arrays = slices.iter().map(|slice| slice.columns()?.columns().get(column).map(AsRef::as_ref));
    let sources: Option<Vec<&dyn Array>> = arrays.collect();
    let sources = sources.ok_or_else(|| Error::new(ErrorKind::Internal, "rows without a column"))?;
    gather_runs(&sources, runs, wanted.data_type()).map_err(|error| error.with_column(wanted.name()))
}

fn why(claimed: &Claimed, group: u32) -> Option<Error> {
    let (_, error) = claimed.errors.iter().find(|(other, _)| *other == group)?;
    Some(error.clone())
}

fn lost(row: u64) -> Error {
    Error::new(ErrorKind::Internal, format!("row {row} is not where the plan has it"))
}
