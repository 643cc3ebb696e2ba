//! From rows that are held to batches.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray, RecordBatch, RecordBatchOptions, UInt32Array,
    downcast_primitive, new_empty_array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::{concat, interleave, take};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;

use super::Batch;
use super::carousel::{Claimed, Slice, broken};
use super::faults::Substituted;
use super::groups::Groups;
use super::walk::Span;
use crate::sampler::BatchPlan;
use crate::{Error, ErrorKind, Result};

/// The batches of a segment, up to the first that cannot be made.
#[derive(Debug)]
pub(crate) struct Assembled {
    pub(crate) batches: Vec<Batch>,
    /// How many rows the segment has, those that are missing after an error included.
    pub(crate) rows: u64,
    pub(crate) error: Option<Error>,
}

/// Makes the batches of `span` out of the rows that were claimed for it.
///
/// Every part has its rows in the order in which they are due, so the next row of a group is always the one after the
/// last: no positions are kept with the rows, and none are compared.
pub(crate) fn assemble(groups: &dyn Groups, span: &Span, claimed: &Claimed) -> Assembled {
    let mut batches = Vec::with_capacity((span.batches.end - span.batches.start) as usize);
    let error = fill(groups, span, claimed, &mut batches).err();
    let rows = claimed.rows;
    Assembled { batches, rows, error }
}

/// Where a row is: in which slice, and where in it.
#[derive(Debug, Clone, Copy)]
struct Place {
    slice: u32,
    row: u32,
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
    claimed: &'a Claimed,
    slices: Vec<&'a Slice>,
    cursors: Vec<Cursor>,
    places: Vec<Place>,
}

impl<'a> Places<'a> {
    fn new(groups: &'a dyn Groups, claimed: &'a Claimed) -> Self {
        let mut cursors = vec![LOST; groups.count() as usize];
        let mut slices = Vec::with_capacity(claimed.parts.len());
        for (group, part) in &claimed.parts {
            let slice = slices.len() as u32;
            slices.extend(part.iter().flatten());
            if let Some(cursor) = cursors.get_mut(*group as usize) {
                *cursor = Cursor { slice, row: 0, end: slices.len() as u32 };
            }
        }
        Self { groups, claimed, slices, cursors, places: Vec::new() }
    }

    /// Adds the rows of a batch. `replaced` are those that the walk put in the place of others; returns where in the batch
    /// which row was lost, and puts what is served instead into `rows`.
    fn add(&mut self, rows: &mut [u64], replaced: &mut &[(usize, u64)]) -> Result<Vec<Substituted>> {
        let mut substituted = Vec::new();
        for (at, asked) in rows.iter_mut().enumerate() {
            let mut row = *asked;
            if let [(place, other), rest @ ..] = *replaced
                && *place == self.places.len()
            {
                (row, *replaced) = (*other, rest);
            }
            let (group, _) = self.groups.locate(row).ok_or_else(|| lost(row))?;
            let cursor = self.cursors.get_mut(group as usize).ok_or_else(|| lost(row))?;
            let slice = self.slices.get(cursor.slice as usize).filter(|_| cursor.slice < cursor.end);
            let Some(slice) = slice else {
                return Err(why(self.claimed, group).unwrap_or_else(|| lost(row)));
            };
            self.places.push(Place { slice: cursor.slice, row: cursor.row });
            row = slice.substitute(cursor.row as usize).unwrap_or(row);
            if row != *asked {
                substituted.push(Substituted { place: at, lost: *asked });
                *asked = row;
            }
            cursor.row += 1;
            if cursor.row as usize == slice.rows {
                (cursor.slice, cursor.row) = (cursor.slice + 1, 0);
            }
        }
        Ok(substituted)
    }
}

fn fill(groups: &dyn Groups, span: &Span, claimed: &Claimed, batches: &mut Vec<Batch>) -> Result<()> {
    let mut places = Places::new(groups, claimed);
    let mut plans: Vec<(u32, BatchPlan, Vec<Substituted>)> =
        Vec::with_capacity((span.batches.end - span.batches.start) as usize);
    let mut ends = Vec::with_capacity(plans.capacity());
    let (mut error, mut replaced) = (None, &*span.replaced);
    for b in span.batches.clone() {
        let mut plan = BatchPlan::default();
        let rank = span.plans.fill(b, &mut plan)?;
        let end = places.places.len() + plan.rows.len();
        match places.add(&mut plan.rows, &mut replaced) {
            Ok(substituted) => plans.push((rank, plan, substituted)),
            Err(why) => {
                error = Some(why);
                break;
            }
        }
        ends.push(end);
    }
    let schema = groups.schema();
    let mut columns: Vec<Vec<ArrayRef>> = vec![Vec::with_capacity(schema.fields().len()); plans.len()];
    for column in 0..schema.fields().len() {
        for (columns, array) in columns.iter_mut().zip(gather(&places.slices, &places.places, &ends, &schema, column)?)
        {
            columns.push(array);
        }
    }
    for ((rank, plan, substituted), columns) in plans.into_iter().zip(columns) {
        let options = RecordBatchOptions::new().with_row_count(Some(plan.rows.len()));
        let records = RecordBatch::try_new_with_options(schema.clone(), columns, &options).map_err(broken)?;
        batches.push(Batch {
            epoch: plan.epoch,
            step: plan.step,
            steps: span.plans.steps(),
            rank,
            records: groups.output(&records)?,
            row_ids: plan.rows,
            pads: plan.pads,
            substituted,
        });
    }
    error.map_or(Ok(()), Err)
}

/// One column of all batches; `ends` says where each batch ends among the places.
fn gather(
    slices: &[&Slice],
    places: &[Place],
    ends: &[usize],
    schema: &SchemaRef,
    column: usize,
) -> Result<Vec<ArrayRef>> {
    let data_type = schema.field(column).data_type();
    if slices.is_empty() {
        return Ok(ends.iter().map(|_| new_empty_array(data_type)).collect());
    }
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let batches = starts.zip(ends).map(|(start, &end)| &places[start..end]);
    macro_rules! primitive {
        ($t:ty) => {
            Ok(primitives::<$t>(slices, column, batches, data_type))
        };
    }
    let sources = || -> Vec<ArrayRef> {
        slices.iter().map(|slice| slice.batch.column(column).slice(slice.first, slice.rows)).collect()
    };
    downcast_primitive! {
        data_type => (primitive),
        // Joined first, the rows of many batches are cheaper to find; those of one or two are not worth a copy.
        _ if ends.len() <= 2 => interleaved(&sources(), batches).map_err(broken),
        _ => joined(&sources(), batches).map_err(broken)
    }
}

fn primitives<'a, T: ArrowPrimitiveType>(
    slices: &[&Slice],
    column: usize,
    batches: impl Iterator<Item = &'a [Place]>,
    data_type: &DataType,
) -> Vec<ArrayRef> {
    // All of a dataset's decoded rows have the same types, so none is left out.
    let sources: Vec<(&PrimitiveArray<T>, usize, usize)> = slices
        .iter()
        .filter_map(|slice| Some((slice.batch.column(column).as_primitive_opt::<T>()?, slice.first, slice.rows)))
        .collect();
    let values: Vec<&[T::Native]> =
        sources.iter().map(|(source, first, rows)| &source.values()[*first..first + rows]).collect();
    let nulls = sources.iter().any(|(source, ..)| source.null_count() > 0);
    let batch = |places: &[Place]| -> ArrayRef {
        let values: Vec<T::Native> =
            places.iter().map(|place| values[place.slice as usize][place.row as usize]).collect();
        let nulls = nulls.then(|| {
            let valid = |i: usize| {
                let (source, first, _) = sources[places[i].slice as usize];
                source.is_valid(first + places[i].row as usize)
            };
            NullBuffer::new(BooleanBuffer::collect_bool(places.len(), valid))
        });
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
        Arc::new(PrimitiveArray::<T>::new(values.into(), nulls).with_data_type(data_type.clone()))
    };
    batches.map(batch).collect()
}

fn interleaved<'a>(
    sources: &[ArrayRef],
    batches: impl Iterator<Item = &'a [Place]>,
) -> Result<Vec<ArrayRef>, ArrowError> {
    let sources: Vec<&dyn Array> = sources.iter().map(AsRef::as_ref).collect();
    let batch = |places: &[Place]| {
        let indices: Vec<_> = places.iter().map(|place| (place.slice as usize, place.row as usize)).collect();
        interleave(&sources, &indices)
    };
    batches.map(batch).collect()
}

fn joined<'a>(sources: &[ArrayRef], batches: impl Iterator<Item = &'a [Place]>) -> Result<Vec<ArrayRef>, ArrowError> {
    let sources: Vec<&dyn Array> = sources.iter().map(AsRef::as_ref).collect();
    let whole = concat(&sources)?;
    let mut base = Vec::with_capacity(sources.len());
    let mut rows = 0;
    for source in sources {
        base.push(rows);
        rows += source.len() as u32;
    }
    let batch = |places: &[Place]| {
        let indices: Vec<u32> = places.iter().map(|place| base[place.slice as usize] + place.row).collect();
        take(&whole, &UInt32Array::from(indices), None)
    };
    batches.map(batch).collect()
}

fn why(claimed: &Claimed, group: u32) -> Option<Error> {
    let (_, part) = claimed.parts.iter().find(|(other, _)| *other == group)?;
    part.as_ref().err().cloned()
}

fn lost(row: u64) -> Error {
    Error::new(ErrorKind::Internal, format!("row {row} is not where the plan has it"))
}
