//! Rows in memory, each with its place: all of them, where they fit, or those of a bucket that was spilled.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{SchemaRef, UInt32Type};
use rayon::ThreadPool;
use rayon::prelude::*;

use super::Rewriting;
use super::part::{SpillPart, SpillSegment};
use super::shape::Buckets;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::{pool, stop};
use rowdex_order::EpochOrder;
use rowdex_rows::{BatchRow, Footprint, gather, take};

/// No row has come to this place.
const NONE: BatchRow = (u32::MAX, u32::MAX);
pub(super) const PLACE_BYTES: u64 = size_of::<BatchRow>() as u64;

/// Rows in memory for consecutive positions.
#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) positions: Range<u64>,
    batches: Vec<RecordBatch>,
    /// Where the row of each position lies.
    places: Vec<BatchRow>,
}

impl Bucket {
    /// The rows at these positions.
    pub(super) fn rows(&self, positions: Range<u64>, schema: &SchemaRef) -> Result<RecordBatch> {
        let from = (positions.start - self.positions.start) as usize;
        let to = (positions.end - self.positions.start) as usize;
        let batches: Vec<&RecordBatch> = self.batches.iter().collect();
        gather(&batches, &self.places[from..to], schema)
    }
}

/// All rows of the input, which are never spilled.
pub(super) struct HeldInput {
    batches: Vec<RecordBatch>,
    /// The row id that each begins with.
    firsts: Vec<u64>,
}

impl HeldInput {
    /// Reads all rows; `None` if they take more than so many bytes.
    pub(super) fn read(run: &Rewriting<'_>, pool: &ThreadPool, most: u64) -> Result<Option<Self>> {
        let bytes = AtomicU64::new(0);
        let is_full = AtomicBool::new(false);
        let groups: Vec<u32> = (0..run.rewrite.dataset.index().num_row_groups()).collect();
        let read = |group: u32| {
            let mut rows = Vec::new();
            let mut footprint = Footprint::default();
            run.read(group, &mut |first, batch| {
                let taken = footprint.add(&batch);
                if bytes.fetch_add(taken, Ordering::Relaxed) + taken > most {
                    is_full.store(true, Ordering::Relaxed);
                    return Err(Error::new(ErrorKind::TooLarge, "the rows do not fit the memory"));
                }
                rows.push((first, batch));
                Ok(())
            })?;
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
        let mut places = vec![NONE; (positions.end - positions.start) as usize];
        places.par_chunks_mut(STEP).enumerate().try_for_each(|(step, places)| {
            let first = positions.start + (step * STEP) as u64;
            let mut rows = vec![u64::MAX; places.len()];
            order.fill(first, &mut rows);
            for (place, row) in places.iter_mut().zip(&rows) {
                *place = self.place(*row).ok_or_else(|| {
                    Error::new(ErrorKind::Internal, format!("the order has no row of the input at {first} or behind"))
                })?;
            }
            Ok(())
        })?;
        Ok(Bucket { positions, batches: self.batches.clone(), places })
    }

    fn place(&self, row: u64) -> Option<BatchRow> {
        let batch = self.firsts.partition_point(|first| *first <= row).checked_sub(1)?;
        let offset = row - self.firsts[batch];
        (offset < self.batches[batch].num_rows() as u64).then_some((batch as u32, offset as u32))
    }
}

/// Buckets that were spilled to parts.
pub(super) struct SpilledBuckets {
    pub(super) parts: Vec<SpillPart>,
    pub(super) buckets: Buckets,
    /// Bytes that may be loaded at once.
    pub(super) most: u64,
}

impl SpilledBuckets {
    /// The buckets of these positions, each in so many pieces that they fit.
    pub(super) fn pieces(&self, positions: Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> + use<'_> {
        self.buckets.within(positions).flat_map(|(bucket, positions)| {
            let all = self.buckets.bucket(bucket);
            let rows = all.end - all.start;
            let bytes = self.segments(bucket).map(|(_, segment)| segment.memory).sum::<u64>() + rows * PLACE_BYTES;
            let rows = rows.div_ceil(bytes.div_ceil(self.most.max(1)).max(1)).max(1);
            let starts = positions.clone().step_by(rows as usize);
            starts.map(move |start| (bucket, start..positions.end.min(start + rows)))
        })
    }

    fn segments(&self, bucket: u64) -> impl Iterator<Item = (&SpillPart, &SpillSegment)> {
        self.parts.iter().flat_map(move |part| part.segments(bucket).map(move |segment| (part, segment)))
    }

    /// Loads the rows of a bucket that go to these of its positions. All of the bucket is read, segment by segment.
    pub(super) fn load(&self, bucket: u64, positions: Range<u64>) -> Result<Bucket> {
        let first = self.buckets.bucket(bucket).start;
        let mut batches = Vec::new();
        let mut places = vec![NONE; (positions.end - positions.start) as usize];
        for (part, segment) in self.segments(bucket) {
            stop::check()?;
            let mut batch = part.read(segment)?;
            let offsets = batch.remove_column(batch.num_columns().saturating_sub(1));
            let offsets = offsets.as_primitive_opt::<UInt32Type>().ok_or_else(|| torn("rows have no places"))?;
            let mut wanted = Vec::with_capacity(offsets.values().len());
            for (row, offset) in (0_u32..).zip(offsets.values()) {
                let place = (first + u64::from(*offset)).wrapping_sub(positions.start);
                // Those of other positions belong to another piece, or to another task.
                let Some(known) = places.get_mut(place as usize) else { continue };
                if *known != NONE {
                    return Err(torn("two rows have one place"));
                }
                *known = (batches.len() as u32, wanted.len() as u32);
                wanted.push(row);
            }
            if wanted.len() == batch.num_rows() {
                batches.push(batch);
            } else if !wanted.is_empty() {
                batches.push(take(&batch, &wanted)?);
            }
        }
        if places.contains(&NONE) {
            return Err(torn("a row is missing"));
        }
        Ok(Bucket { positions, batches, places })
    }
}

fn torn(what: &str) -> Error {
    Error::new(ErrorKind::Internal, format!("the spilled rows do not fit their plan: {what}"))
        .with_hint("remove the spill folder, and begin anew")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int64Array;
    use arrow::datatypes::{Int64Type, Schema};

    use super::*;
    use crate::rewrite::part::PartWriter;
    use crate::rewrite::spread::Scatter;

    #[test]
    fn a_bucket_that_is_too_large_comes_in_pieces_that_fit() {
        let folder = tempfile::tempdir().unwrap();
        let rows = 3000_u64;
        let buckets = Buckets { rows, bucket_rows: 1500, parts: 1 };
        let batch = |first: u64, rows: u64| {
            let ids = Int64Array::from_iter_values((first..first + rows).map(|id| id as i64));
            RecordBatch::try_from_iter([("id", Arc::new(ids) as _)]).unwrap()
        };
        let schema = Arc::new(Schema::new(batch(0, 0).schema().fields().clone()));
        let path = folder.path().join("0.part");
        let mut scatter = Scatter::new(&buckets, &schema, 64, 4096, PartWriter::create(&path, true).unwrap());
        let position = |id: u64| id * 1543 % rows;
        for first in (0..rows).step_by(100) {
            scatter.add(batch(first, 100), (0..100).map(|row| (row, position(first + u64::from(row))))).unwrap();
        }
        scatter.finish().unwrap();
        for most in [1, 700, 5000, 1 << 20] {
            let parts = vec![SpillPart::open(&path, 0..2).unwrap()];
            let spilled = SpilledBuckets { parts, buckets, most };
            // A task begins and ends anywhere.
            let task = 100..2900;
            let (mut at, mut pieces) = (task.start, 0);
            for (bucket, positions) in spilled.pieces(task.clone()) {
                assert_eq!(positions.start, at);
                let bucket = spilled.load(bucket, positions.clone()).unwrap();
                let rows = bucket.rows(positions.clone(), &schema).unwrap();
                for (id, at) in rows.column(0).as_primitive::<Int64Type>().values().iter().zip(positions) {
                    assert_eq!(position(*id as u64), at);
                }
                at = bucket.positions.end;
                pieces += 1;
            }
            assert_eq!(at, task.end);
            assert!(pieces >= if most > 50_000 { 2 } else { rows * 16 / most.max(16) / 2 }, "{most}: {pieces}");
        }
    }
}
