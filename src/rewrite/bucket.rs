//! Rows in memory, each with its place: all of them, where they fit, or those of a bucket that was spilled.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;

use super::Rewriting;
use super::part::{SpillPart, SpillSegment};
use super::shape::{Buckets, OutputGroup};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::{pool, stop};
use rowdex_order::EpochOrder;
use rowdex_rows::{BatchRow, Footprint, gather_values, take};

/// No row has come to this place.
const NONE: BatchRow = (u32::MAX, u32::MAX);
pub(super) const PLACE_BYTES: u64 = size_of::<BatchRow>() as u64;

/// Rows in memory for consecutive positions.
#[derive(Debug)]
pub(super) struct Bucket {
    positions: Range<u64>,
    batches: Vec<RecordBatch>,
    /// Where the row of each position lies.
    places: Vec<BatchRow>,
}

impl Bucket {
    /// The values of a column at these positions.
    pub(super) fn values(&self, column: usize, positions: Range<u64>, output: &DataType) -> Result<ArrayRef> {
        let at = |position: u64| (position - self.positions.start) as usize;
        let arrays: Vec<&dyn Array> = self.batches.iter().map(|batch| batch.column(column).as_ref()).collect();
        gather_values(&arrays, &self.places[at(positions.start)..at(positions.end)], output)
    }
}

/// All rows of the input, which are never spilled.
pub(super) struct HeldInput {
    batches: Vec<RecordBatch>,
    /// The row id that each begins with, and the number of rows.
    firsts: Vec<u64>,
    /// The batch that has the first row of each block of row ids: those of a row group need not be searched.
    blocks: Vec<usize>,
}

impl HeldInput {
    const BLOCK: u64 = 1024;

    /// Reads all rows; `None` if they take more than so many bytes.
    pub(super) fn read(run: &Rewriting<'_>, most: u64) -> Result<Option<Self>> {
        let pool = run.rewrite.pool(run.rewrite.threads_that_read())?;
        let bytes = AtomicU64::new(0);
        let read = |(): &mut (), group: &u32| {
            let mut batches = Vec::new();
            let mut footprint = Footprint::default();
            run.read(*group, &mut |_, batch| {
                let taken = footprint.add(&batch);
                if bytes.fetch_add(taken, Ordering::Relaxed) + taken > most {
                    return Err(Error::new(ErrorKind::TooLarge, "the rows do not fit the memory"));
                }
                batches.push(batch);
                Ok(())
            })?;
            Ok(batches)
        };
        let groups: Vec<u32> = (0..run.rewrite.dataset.index().num_row_groups()).collect();
        let read = pool::each(Some(&pool), &groups, || (), read)?;
        if bytes.into_inner() > most {
            return Ok(None);
        }
        let mut held = Self { batches: Vec::new(), firsts: vec![0], blocks: Vec::new() };
        for batch in read.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten() {
            let end = held.firsts[held.batches.len()] + batch.num_rows() as u64;
            held.blocks.resize(end.div_ceil(Self::BLOCK) as usize, held.batches.len());
            held.firsts.push(end);
            held.batches.push(batch);
        }
        Ok(Some(held))
    }

    /// The rows that an order has at these positions.
    pub(super) fn bucket(&self, order: &dyn EpochOrder, positions: Range<u64>) -> Result<Bucket> {
        let mut rows = vec![u64::MAX; (positions.end - positions.start) as usize];
        order.fill(positions.start, &mut rows);
        let mut places = vec![NONE; rows.len()];
        for (place, row) in places.iter_mut().zip(rows) {
            *place = self.place(row).ok_or_else(|| {
                let first = positions.start;
                Error::new(ErrorKind::Internal, format!("the order has no row of the input at {first} or behind"))
            })?;
        }
        Ok(Bucket { positions, batches: self.batches.clone(), places })
    }

    fn place(&self, row: u64) -> Option<BatchRow> {
        let mut batch = *self.blocks.get((row / Self::BLOCK) as usize)?;
        while *self.firsts.get(batch + 1)? <= row {
            batch += 1;
        }
        Some((batch as u32, (row - self.firsts[batch]) as u32))
    }
}

/// Buckets that were spilled to parts.
pub(super) struct SpilledBuckets<'a> {
    pub(super) parts: Vec<SpillPart>,
    pub(super) buckets: &'a Buckets,
    /// Bytes that may be loaded at once.
    pub(super) most: u64,
}

impl SpilledBuckets<'_> {
    /// These row groups in pieces that are loaded at once: those of a bucket, or as many of them as fit.
    pub(super) fn pieces<'g>(&self, groups: &'g [OutputGroup]) -> impl Iterator<Item = &'g [OutputGroup]> {
        let bucket = |group: &OutputGroup| self.buckets.place(group.positions.start).0;
        groups.chunk_by(move |one, next| bucket(one) == bucket(next)).flat_map(move |groups| {
            let bytes: u64 = self.segments(bucket(&groups[0])).map(|(_, segment)| segment.memory).sum();
            groups.chunks(groups.len().div_ceil(bytes.div_ceil(self.most.max(1)).max(1) as usize))
        })
    }

    fn segments(&self, bucket: u32) -> impl Iterator<Item = (&SpillPart, &SpillSegment)> {
        self.parts.iter().flat_map(move |part| part.segments(bucket).map(move |segment| (part, segment)))
    }

    /// Loads the rows of these positions of a bucket, all of which is read, segment by segment.
    pub(super) fn load(&self, positions: Range<u64>) -> Result<Bucket> {
        let (bucket, place) = self.buckets.place(positions.start);
        let first = positions.start - u64::from(place);
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
        .with_hint("remove the spill folder, and begin again")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::Int64Array;
    use arrow_array::types::Int64Type;
    use arrow_schema::Schema;

    use super::*;
    use crate::rewrite::part::PartWriter;
    use crate::rewrite::shape::row_groups;
    use crate::rewrite::spread::Scatter;

    #[test]
    fn a_bucket_that_is_too_large_comes_in_pieces_that_fit() {
        let folder = tempfile::tempdir().unwrap();
        let rows = 3000_u64;
        let buckets = Buckets { starts: vec![0, 1500, 3000], parts: 1 };
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
            let spilled = SpilledBuckets { parts, buckets: &buckets, most };
            // A task begins and ends anywhere.
            let groups: Vec<OutputGroup> = row_groups(0, 0..rows, 20).collect();
            let task = &groups[5..145];
            let (mut at, mut pieces) = (100, 0);
            for groups in spilled.pieces(task) {
                let positions = groups[0].positions.start..groups[groups.len() - 1].positions.end;
                assert_eq!(positions.start, at);
                let bucket = spilled.load(positions.clone()).unwrap();
                let ids = bucket.values(0, positions.clone(), &DataType::Int64).unwrap();
                for (id, at) in ids.as_primitive::<Int64Type>().values().iter().zip(positions.clone()) {
                    assert_eq!(position(*id as u64), at);
                }
                at = positions.end;
                pieces += 1;
            }
            assert_eq!(at, 2900);
            assert!(pieces >= if most > 50_000 { 2 } else { (rows * 8 / most / 2).min(140) }, "{most}: {pieces}");
        }
    }
}
