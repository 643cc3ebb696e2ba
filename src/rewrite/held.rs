//! All rows in memory, where they fit: a single bucket, which is never spilled.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow::array::RecordBatch;
use rayon::ThreadPool;
use rayon::prelude::*;

use super::bucket::Bucket;
use super::progress::RewriteMeter;
use super::reading::FirstPass;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::pool;
use rowdex_order::EpochOrder;
use rowdex_rows::{BatchRow, Footprint};

/// The rows of all row groups.
pub(super) struct RowsInMemory {
    batches: Vec<RecordBatch>,
    /// The row id that each begins with.
    firsts: Vec<u64>,
}

impl RowsInMemory {
    /// Bytes that the places of so many rows take beside them.
    pub(super) fn place_bytes(rows: u64) -> u64 {
        rows.saturating_mul(size_of::<BatchRow>() as u64)
    }

    /// Reads all rows; `None` if they take more than so many bytes.
    pub(super) fn read(
        reading: &FirstPass<'_>,
        pool: &ThreadPool,
        meter: &RewriteMeter,
        most: u64,
    ) -> Result<Option<Self>> {
        let bytes = AtomicU64::new(0);
        let is_full = AtomicBool::new(false);
        let groups: Vec<u32> = (0..reading.dataset.index().num_row_groups()).collect();
        let read = |group: u32| {
            let mut rows = Vec::new();
            let mut footprint = Footprint::default();
            reading.read(group, &mut |first, batch| {
                let taken = footprint.add(&batch);
                if bytes.fetch_add(taken, Ordering::Relaxed) + taken > most {
                    is_full.store(true, Ordering::Relaxed);
                    return Err(Error::new(ErrorKind::TooLarge, "the rows do not fit the memory"));
                }
                rows.push((first, batch));
                Ok(())
            })?;
            meter.advance(reading.rows(group));
            Ok(rows)
        };
        let read = pool::each(Some(pool), &groups, || (), |(), group| read(*group))?;
        if is_full.into_inner() {
            return Ok(None);
        }
        let rows = read.into_iter().collect::<Result<Vec<_>>>()?;
        let (firsts, batches) = rows.into_iter().flatten().filter(|(_, batch)| batch.num_rows() > 0).unzip();
        Ok(Some(Self { batches, firsts }))
    }

    /// The rows that an order has at these positions. Runs in the pool that encodes.
    pub(super) fn bucket(&self, order: &dyn EpochOrder, positions: Range<u64>) -> Result<Bucket> {
        /// Positions that are asked for at once.
        const STEP: usize = 4096;
        let mut places: Vec<BatchRow> = vec![(0, 0); (positions.end - positions.start) as usize];
        places.par_chunks_mut(STEP).enumerate().try_for_each(|(step, places)| {
            let first = positions.start + (step * STEP) as u64;
            let mut rows = vec![0; places.len()];
            let filled = order.fill(first, &mut rows);
            for (place, row) in places.iter_mut().zip(&rows) {
                *place = self.place(*row).filter(|_| filled == rows.len()).ok_or_else(|| {
                    Error::new(ErrorKind::Internal, format!("the order has no row of the input at {first} or behind"))
                })?;
            }
            Ok(())
        })?;
        Ok(Bucket::new(positions, self.batches.clone(), places))
    }

    fn place(&self, row: u64) -> Option<BatchRow> {
        let batch = self.firsts.partition_point(|first| *first <= row).checked_sub(1)?;
        let offset = row - self.firsts[batch];
        (offset < self.batches[batch].num_rows() as u64).then_some((batch as u32, offset as u32))
    }
}
