//! Rows on their way to buckets: held until they fill the memory, then written bucket by bucket to a part.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::part::PartWriter;
use super::shape::Buckets;
use rowdex_base::error::Result;
use rowdex_base::stop;
use rowdex_rows::{Footprint, bytes_of_part, gather, record_batch, uncopied};

/// Memory of what is known of a row that is held: its bucket and place, and where it lies.
const PLACE_BYTES: u64 = (size_of::<ScatteredRow>() + size_of::<u32>()) as u64;

/// A row that is held.
#[derive(Debug, Clone, Copy)]
struct ScatteredRow {
    /// Below 2^32, as there are fewer buckets than that.
    bucket: u32,
    place: u32,
    batch: u32,
    row: u32,
}

/// Rows that are held for the buckets of a part.
#[derive(Debug)]
pub(super) struct Scatter<'a> {
    buckets: &'a Buckets,
    rows: SchemaRef,
    spilled: SchemaRef,
    /// Rows of a batch that is written.
    batch_rows: usize,
    /// Bytes to hold before they are written.
    budget: u64,
    batches: Vec<RecordBatch>,
    /// Of these: batches may share memory.
    footprint: Footprint,
    held: Vec<ScatteredRow>,
    bytes: u64,
    part: PartWriter,
}

/// Rows of this schema with their places in a bucket: what is spilled.
pub(super) fn spilled_schema(rows: &SchemaRef) -> SchemaRef {
    let place = Arc::new(Field::new("place", DataType::UInt32, false));
    Arc::new(Schema::new(rows.fields().iter().cloned().chain([place]).collect::<Vec<_>>()))
}

impl<'a> Scatter<'a> {
    pub(super) fn new(
        buckets: &'a Buckets,
        rows: &SchemaRef,
        batch_rows: usize,
        budget: u64,
        part: PartWriter,
    ) -> Self {
        Self {
            buckets,
            rows: Arc::clone(rows),
            spilled: spilled_schema(rows),
            batch_rows: batch_rows.max(1),
            budget,
            batches: Vec::new(),
            footprint: Footprint::default(),
            held: Vec::new(),
            bytes: 0,
            part,
        }
    }

    /// Takes rows of a batch, each to its position.
    pub(super) fn add(&mut self, batch: RecordBatch, rows: impl Iterator<Item = (u32, u64)>) -> Result<()> {
        stop::check()?;
        let number = self.batches.len() as u32;
        let before = self.held.len();
        for (row, position) in rows {
            let (bucket, place) = self.buckets.place(position);
            self.held.push(ScatteredRow { bucket: bucket as u32, place, batch: number, row });
        }
        if self.held.len() == before {
            return Ok(());
        }
        self.bytes += self.footprint.add(&batch) + (self.held.len() - before) as u64 * PLACE_BYTES;
        self.batches.push(batch);
        if self.bytes >= self.budget { self.write() } else { Ok(()) }
    }

    /// Writes what is held, bucket by bucket.
    fn write(&mut self) -> Result<()> {
        let (mut starts, order) = by_bucket(&self.held, self.buckets.count() as usize);
        let batches: Vec<&RecordBatch> = self.batches.iter().collect();
        starts.push(order.len());
        for (bucket, range) in (0_u64..).zip(starts.windows(2)) {
            let rows = &order[range[0]..range[1]];
            if rows.is_empty() {
                continue;
            }
            stop::check()?;
            let pieces = rows.chunks(self.batch_rows).map(|rows| {
                let held = || rows.iter().map(|row| &self.held[*row as usize]);
                let places: Vec<_> = held().map(|held| (held.batch, held.row)).collect();
                let gathered = gather(&batches, &places, &self.rows)?;
                let place: ArrayRef = Arc::new(UInt32Array::from_iter_values(held().map(|held| held.place)));
                let columns = gathered.columns().iter().cloned().chain([place]).collect();
                let batch = record_batch(&self.spilled, columns, rows.len()).map_err(uncopied)?;
                Ok((batch, bytes_of_part(&gathered)))
            });
            self.part.add(bucket, &self.spilled, pieces)?;
        }
        self.batches.clear();
        self.footprint = Footprint::default();
        self.held.clear();
        self.bytes = 0;
        Ok(())
    }

    /// Writes what is left, and gives the part.
    pub(super) fn finish(mut self) -> Result<PartWriter> {
        self.write()?;
        Ok(self.part)
    }
}

/// Where the rows of each bucket begin, and all rows bucket by bucket, those of one in the order in which they came.
fn by_bucket(held: &[ScatteredRow], buckets: usize) -> (Vec<usize>, Vec<u32>) {
    let mut counts = vec![0_usize; buckets];
    held.iter().for_each(|held| counts[held.bucket as usize] += 1);
    let starts: Vec<usize> = counts.iter().scan(0, |at, count| Some(std::mem::replace(at, *at + count))).collect();
    let mut next = starts.clone();
    let mut order = vec![0; held.len()];
    for (number, held) in (0_u32..).zip(held) {
        let at = &mut next[held.bucket as usize];
        order[*at] = number;
        *at += 1;
    }
    (starts, order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_by_bucket_and_stay_in_order_within_one() {
        let held = [3, 0, 3, 1, 0].map(|bucket| ScatteredRow { bucket, place: 0, batch: 0, row: 0 });
        assert_eq!(by_bucket(&held, 5), (vec![0, 2, 3, 3, 5], vec![1, 4, 3, 0, 2]));
        assert_eq!(by_bucket(&[], 2), (vec![0, 0], vec![]));
    }
}
