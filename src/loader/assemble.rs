//! From rows that are held to batches.

use arrow::array::{RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{concat_batches, take};

use super::Batch;
use super::carousel::{Claimed, broken};
use super::groups::Groups;
use super::walk::Span;
use crate::sampler::BatchPlan;
use crate::{Error, ErrorKind, Result};

/// The batches of a segment, up to the first that cannot be made.
#[derive(Debug)]
pub(crate) struct Assembled {
    pub(crate) batches: Vec<Batch>,
    pub(crate) error: Option<Error>,
}

/// Makes the batches of `span` out of the rows that were claimed for it.
///
/// Every part has its rows in the order in which they are due, so the next row of a group is always the one after the
/// last: no positions are kept with the rows, and none are compared.
pub(crate) fn assemble(groups: &dyn Groups, span: &Span, claimed: &Claimed) -> Assembled {
    let mut batches = Vec::with_capacity((span.batches.end - span.batches.start) as usize);
    let error = fill(groups, span, claimed, &mut batches).err();
    Assembled { batches, error }
}

/// Where the rows of a part are.
const LOST: u32 = u32::MAX;

fn fill(groups: &dyn Groups, span: &Span, claimed: &Claimed, batches: &mut Vec<Batch>) -> Result<()> {
    let mut next = vec![LOST; groups.count() as usize];
    let mut slices: Vec<&RecordBatch> = Vec::with_capacity(claimed.parts.len());
    let mut rows = 0;
    for (group, part) in &claimed.parts {
        let Ok(part) = part else { continue };
        if let Some(next) = next.get_mut(*group as usize) {
            *next = rows;
        }
        for slice in part {
            rows += slice.num_rows() as u32;
            slices.push(slice);
        }
    }
    let schema = groups.schema();
    let segment = concat_batches(&schema, slices).map_err(broken)?;
    let mut plan = BatchPlan::default();
    for b in span.batches.clone() {
        let rank = span.plans.fill(b, &mut plan)?;
        let mut indices = Vec::with_capacity(plan.rows.len());
        for &row in &plan.rows {
            let (group, _) = groups.locate(row).ok_or_else(|| lost(row))?;
            let place = next.get_mut(group as usize).ok_or_else(|| lost(row))?;
            if *place == LOST {
                return Err(why(claimed, group).unwrap_or_else(|| lost(row)));
            }
            indices.push(*place);
            *place += 1;
        }
        let indices = UInt32Array::from(indices);
        let columns = segment.columns().iter().map(|column| take(column, &indices, None)).collect::<Result<_, _>>();
        let options = RecordBatchOptions::new().with_row_count(Some(indices.len()));
        let columns = columns.map_err(broken)?;
        let records = RecordBatch::try_new_with_options(schema.clone(), columns, &options).map_err(broken)?;
        batches.push(Batch {
            epoch: plan.epoch,
            step: plan.step,
            steps: span.plans.steps,
            rank,
            records: groups.output(&records)?,
            row_ids: std::mem::take(&mut plan.rows),
            pads: plan.pads,
        });
    }
    Ok(())
}

fn why(claimed: &Claimed, group: u32) -> Option<Error> {
    let (_, part) = claimed.parts.iter().find(|(other, _)| *other == group)?;
    part.as_ref().err().cloned()
}

fn lost(row: u64) -> Error {
    Error::new(ErrorKind::Internal, format!("row {row} is not where the plan has it"))
}
