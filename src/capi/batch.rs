//! The rows of one step.

use std::mem::MaybeUninit;
use std::ptr;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::{RecordBatch, RecordBatchIterator, RecordBatchReader};

use super::arrow::export_batch;
use super::error::{call, give, rowdex_error, rowdex_status};
use super::handle::{out_param, require};
use super::kind::AnyHandle;
use crate::loader::Batch;
use rowdex_base::error::Result;

/// A row of a batch that stands in for one that could not be read.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct rowdex_substituted {
    /// The place in the batch, from 0.
    pub place: u64,
    /// The row id that the order has there. The one that is served is among the row ids of the batch.
    pub lost: u64,
}

/// The rows of one step on one rank. Concurrent use is fine.
#[derive(Debug)]
pub struct rowdex_batch {
    pub(super) batch: Batch,
    substituted: Vec<rowdex_substituted>,
}

impl rowdex_batch {
    pub(super) fn new(batch: Batch) -> Self {
        let substituted = batch.substituted.iter();
        let substituted = substituted.map(|row| rowdex_substituted { place: row.place as u64, lost: row.lost });
        Self { substituted: substituted.collect(), batch }
    }

    /// Rows that were asked for by their row ids.
    pub(super) fn of_rows(records: RecordBatch, rows: &[u64]) -> Self {
        let row_ids = rows.to_vec();
        let substituted = Vec::new();
        Self::new(Batch {
            epoch: 0,
            step: 0,
            steps: 1,
            rank: 0,
            records,
            row_ids,
            positions: Vec::new(),
            substituted,
            pads: 0,
            packs: None,
            part: Default::default(),
        })
    }
}

impl AnyHandle for rowdex_batch {
    fn rows(&self) -> Result<Box<dyn RecordBatchReader + Send>> {
        let records = self.batch.records.clone();
        let schema = records.schema();
        Ok(Box::new(RecordBatchIterator::new([Ok(records)], schema)))
    }
}

/// What is known of a batch.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_batch_info {
    /// The epoch that it is from.
    pub epoch: u64,
    /// Which step of the epoch, from 0. After resuming within an epoch, steps continue from there.
    pub step: u64,
    /// How many steps the epoch has in all, wherever the run was resumed. The last batch has step + 1 == steps.
    pub steps: u64,
    /// The rank that it is for.
    pub rank: u64,
    /// How many rows it has.
    pub num_rows: u64,
    /// How many of them, always the last ones, are repeated: another rank or an earlier step serves them, too.
    pub num_pads: u64,
    /// The row ids, one for each row, which belong to the batch.
    pub row_ids: *const u64,
    /// Which rows stand in for others that could not be read, in ascending order of their places. They belong to the
    /// batch.
    pub substituted: *const rowdex_substituted,
    /// How many.
    pub num_substituted: u64,
    /// How many packs it has, whose pieces are its rows; 0 if its rows are in none.
    pub num_packs: u64,
    /// For each row its position in the order, where that may serve a row more than once, the same for any number of
    /// ranks; NULL in all other orders, and of packs. They belong to the batch.
    pub positions: *const u64,
}

/// What is known of a batch.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_batch_get_info(
    batch: Option<&rowdex_batch>,
    info: Option<&mut MaybeUninit<rowdex_batch_info>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    give(error, info, "info", || {
        let rowdex_batch { batch, substituted } = require(batch, "batch")?;
        Ok(rowdex_batch_info {
            epoch: batch.epoch,
            step: batch.step,
            steps: batch.steps,
            rank: batch.rank.into(),
            num_rows: batch.row_ids.len() as u64,
            num_pads: batch.pads as u64,
            row_ids: batch.row_ids.as_ptr(),
            substituted: substituted.as_ptr(),
            num_substituted: substituted.len() as u64,
            num_packs: batch.packs.as_ref().map_or(0, |packs| packs.ends.len() as u64),
            positions: if batch.positions.is_empty() { ptr::null() } else { batch.positions.as_ptr() },
        })
    })
}

/// The rows of a batch, as an Arrow struct array that the caller releases, and its type (may be NULL if it is not
/// wanted).
///
/// Nothing is copied: array and batch share the buffers, and either may go first.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_batch_export(
    batch: Option<&rowdex_batch>,
    array: Option<&mut MaybeUninit<FFI_ArrowArray>>,
    schema: Option<&mut MaybeUninit<FFI_ArrowSchema>>,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        let batch = &require(batch, "batch")?.batch;
        export_batch(batch.records.clone(), out_param(array, "array")?, schema)
    })
}
