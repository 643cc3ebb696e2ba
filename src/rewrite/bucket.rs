//! The rows of a bucket, back in memory, each with its place.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::path::Path;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{SchemaRef, UInt32Type};

use super::part::{PartWriter, SpillPart, SpillSegment};
use super::scatter::Scatter;
use super::shape::Buckets;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::stop;
use rowdex_rows::{BatchRow, gather};

/// No row has come to this place.
const NONE: BatchRow = (u32::MAX, u32::MAX);

/// Rows in memory for consecutive positions.
#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) positions: Range<u64>,
    batches: Vec<RecordBatch>,
    /// Where the row of each position lies.
    places: Vec<BatchRow>,
}

impl Bucket {
    pub(super) fn new(positions: Range<u64>, batches: Vec<RecordBatch>, places: Vec<BatchRow>) -> Self {
        Self { positions, batches, places }
    }

    /// The rows at these positions.
    pub(super) fn rows(&self, positions: Range<u64>, schema: &SchemaRef) -> Result<RecordBatch> {
        let from = (positions.start - self.positions.start) as usize;
        let to = (positions.end - self.positions.start) as usize;
        let batches: Vec<&RecordBatch> = self.batches.iter().collect();
        gather(&batches, &self.places[from..to], schema)
    }
}

/// Loads buckets from parts.
pub(super) struct Loading<'a> {
    /// The rows that are spilled, without their places.
    pub(super) rows: &'a SchemaRef,
    /// Bytes that a bucket may take; a larger one is split.
    pub(super) most: u64,
    pub(super) batch_rows: usize,
    /// Whether parts are compressed that a bucket is split to.
    pub(super) compresses: bool,
    /// Where a bucket is split.
    pub(super) folder: &'a Path,
}

/// Memory of a place.
const PLACE_BYTES: u64 = size_of::<BatchRow>() as u64;

impl Loading<'_> {
    /// Loads a bucket for some of its positions, and hands it over in pieces that fit, in order.
    pub(super) fn load(
        &self,
        parts: &[SpillPart],
        buckets: &Buckets,
        bucket: u64,
        positions: Range<u64>,
        hand: &mut dyn FnMut(Bucket) -> Result<()>,
    ) -> Result<()> {
        let segments = || parts.iter().flat_map(|part| part.segments(bucket));
        let all = buckets.bucket(bucket);
        let rows = all.end - all.start;
        let bytes = segments().map(SpillSegment::memory).sum::<u64>() + rows * PLACE_BYTES;
        let pieces = bytes.div_ceil(self.most.max(1));
        let split = Buckets { positions: all.clone(), rows: rows.div_ceil(pieces.max(1)).max(1) };
        if pieces <= 1 || split.rows == rows {
            return hand(self.gather(parts, bucket, all.start, positions)?);
        }
        let path = self.folder.join(split_name(&all));
        let split_parts = [self.split(parts, bucket, &split, &path)?];
        let handed = split
            .within(positions)
            .try_for_each(|(piece, positions)| self.load(&split_parts, &split, piece, positions, hand));
        // It can be made again, and nobody else reads it: the name is of this call alone.
        let _ = std::fs::remove_file(&path);
        handed
    }

    /// Spills the rows of a bucket once more, to smaller ones.
    fn split(&self, parts: &[SpillPart], bucket: u64, into: &Buckets, path: &Path) -> Result<SpillPart> {
        let writer = PartWriter::create(path, self.compresses)?;
        let mut scatter = Scatter::new(into, self.rows, self.batch_rows, self.most, writer);
        self.each(parts, bucket, &mut |batch, places| {
            let first = into.positions.start;
            let positions: Vec<u64> = places.iter().map(|place| first + u64::from(*place)).collect();
            scatter.add(batch, (0..).zip(positions))
        })?;
        scatter.finish()?.finish()
    }

    /// Reads all rows of a bucket, which begins at `first`, and notes where those of these positions lie.
    fn gather(&self, parts: &[SpillPart], bucket: u64, first: u64, positions: Range<u64>) -> Result<Bucket> {
        let mut batches = Vec::new();
        let mut places = vec![NONE; (positions.end - positions.start) as usize];
        self.each(parts, bucket, &mut |batch, of_rows| {
            let number = batches.len() as u32;
            for (row, place) in (0_u32..).zip(of_rows) {
                let offset = (first + u64::from(*place)).wrapping_sub(positions.start);
                // Those of other positions belong to another task.
                if let Some(known) = places.get_mut(offset as usize) {
                    if *known != NONE {
                        return Err(torn("two rows have one place"));
                    }
                    *known = (number, row);
                }
            }
            batches.push(batch);
            Ok(())
        })?;
        if places.contains(&NONE) {
            return Err(torn("a row is missing"));
        }
        Ok(Bucket { positions, batches, places })
    }

    /// Hands over all rows of a bucket, with their places in it.
    fn each(
        &self,
        parts: &[SpillPart],
        bucket: u64,
        take: &mut dyn FnMut(RecordBatch, &[u32]) -> Result<()>,
    ) -> Result<()> {
        for part in parts {
            for segment in part.segments(bucket) {
                for batch in part.read(segment)? {
                    stop::check()?;
                    let mut batch = batch?;
                    let places = batch.remove_column(batch.num_columns().saturating_sub(1));
                    let places = places.as_primitive_opt::<UInt32Type>().ok_or_else(|| torn("rows have no places"))?;
                    take(batch, places.values())?;
                }
            }
        }
        Ok(())
    }
}

/// What a bucket of these positions is split to. Tasks on several machines may split one at once, each for its memory.
fn split_name(positions: &Range<u64>) -> String {
    let unique = RandomState::new().hash_one(std::process::id());
    format!("split-{}-{}-{unique:016x}.part", positions.start, positions.end)
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

    #[test]
    fn a_bucket_that_is_too_large_is_split_until_its_pieces_fit() {
        let folder = tempfile::tempdir().unwrap();
        let rows = 3000_u64;
        let buckets = Buckets { positions: 0..rows, rows: 1500 };
        let batch = |first: u64, rows: u64| {
            let ids = Int64Array::from_iter_values((first..first + rows).map(|id| id as i64));
            RecordBatch::try_from_iter([("id", Arc::new(ids) as _)]).unwrap()
        };
        let schema = Arc::new(Schema::new(batch(0, 0).schema().fields().clone()));
        let part = PartWriter::create(&folder.path().join("0.part"), true).unwrap();
        let mut scatter = Scatter::new(&buckets, &schema, 64, 4096, part);
        let position = |id: u64| id * 1543 % rows;
        for first in (0..rows).step_by(100) {
            scatter.add(batch(first, 100), (0..100).map(|row| (row, position(first + u64::from(row))))).unwrap();
        }
        let parts = [scatter.finish().unwrap().finish().unwrap()];
        for most in [1, 700, 5000, 1 << 20] {
            let folder = folder.path();
            let loading = Loading { rows: &schema, most, batch_rows: 64, compresses: false, folder };
            let (mut at, mut pieces) = (0, 0);
            for bucket in 0..buckets.count() {
                let wanted = buckets.bucket(bucket);
                loading
                    .load(&parts, &buckets, bucket, wanted, &mut |bucket| {
                        assert_eq!(bucket.positions.start, at);
                        let positions = bucket.positions.clone();
                        let rows = bucket.rows(positions.clone(), &schema).unwrap();
                        for (id, at) in rows.column(0).as_primitive::<Int64Type>().values().iter().zip(positions) {
                            assert_eq!(position(*id as u64), at);
                        }
                        at = bucket.positions.end;
                        pieces += 1;
                        Ok(())
                    })
                    .unwrap();
            }
            assert_eq!(at, rows);
            assert!(pieces >= if most > 50_000 { 2 } else { rows * 16 / most.max(16) / 2 }, "{most}: {pieces}");
            assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1, "what was split is gone");
        }
        // Tasks with memory of their own split one bucket in one folder at the same time.
        let folder = folder.path();
        let of = |most| Loading { rows: &schema, most, batch_rows: 64, compresses: false, folder };
        let (few, many) = (of(5000), of(700));
        let mut counts = [0, 0];
        few.load(&parts, &buckets, 0, buckets.bucket(0), &mut |bucket| {
            counts[0] += bucket.rows(bucket.positions.clone(), &schema)?.num_rows();
            many.load(&parts, &buckets, 0, buckets.bucket(0), &mut |bucket| {
                counts[1] += bucket.rows(bucket.positions.clone(), &schema)?.num_rows();
                Ok(())
            })
        })
        .unwrap();
        assert_eq!(counts[0], 1500);
        assert!(counts[1] > 1500 && counts[1].is_multiple_of(1500), "{counts:?}");
    }
}
