//! The first pass: each row group is read once, and where its rows do not fit, they are spilled to the buckets that
//! they go to.

use std::fs;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Rewriting;
use super::columns::as_read;
use super::output::failed;
use super::part::{PartWriter, SpillPart};
use super::shape::{Buckets, slice};
use crate::dataset::Slots;
use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::{pool, stop};
use rowdex_order::{EpochOrder, Uses};
use rowdex_parquet::RowSink;
use rowdex_rows::{Footprint, bytes_of_part, gather, record_batch, uncopied};

impl Rewriting<'_> {
    /// Hands over the rows of a row group with the row id of the first, chunk by chunk, in the types in which they are
    /// held and spilled.
    pub(super) fn read(&self, group: u32, take: &mut dyn FnMut(u64, RecordBatch) -> Result<()>) -> Result<()> {
        stop::check()?;
        let dataset = &self.rewrite.dataset;
        let Some(entry) = dataset.index().row_group(group) else { return Ok(()) };
        let mut sink = FirstPassSink { run: self, take, next: entry.first_row(), failed: None };
        let read = dataset.read(group, Slots::All, as_read(dataset), None, &mut sink);
        // What becomes of rows is no fault of the file that they are from.
        sink.failed.map_or(read, Err)?;
        self.meter.advance(entry.rows());
        Ok(())
    }

    /// Spills all rows, or those of one of so many equal parts of the input.
    pub(super) fn spill_rows(&mut self, task: u64, tasks: u64) -> Result<()> {
        let parts = self.spill.buckets.parts;
        let groups = |part: u64| slice(self.rewrite.row_groups(), part, parts);
        let own: Vec<u64> = slice(parts, task, tasks).collect();
        if self.meter.rows == 0 {
            self.meter.rows = own.iter().map(|part| self.rewrite.rows_of(groups(*part))).sum();
        }
        let folder = self.spill.folder()?;
        fs::create_dir_all(folder).map_err(|error| failed("cannot make the spill folder", folder, error))?;
        let memory = self.rewrite.memory;
        let destinations = Destinations::new(Arc::clone(&self.order), memory / 4)?;
        let threads = self.rewrite.threads_that_read();
        let held = (memory - memory / 4).saturating_sub(destinations.bytes()) / threads as u64;
        let pool = self.rewrite.pool(threads)?;
        let spill = |(): &mut (), part: &u64| {
            let path = self.spill.part(*part)?;
            match SpillPart::open(&path, 0..0) {
                Ok(_) => {
                    self.meter.advance(self.rewrite.rows_of(groups(*part)));
                    Ok(())
                }
                // What is damaged is written anew.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Io) => {
                    let writer = PartWriter::create(&path, self.plan.spill_compressed)?;
                    let chunk_rows = self.plan.chunk_rows as usize;
                    let scatter = Scatter::new(&self.spill.buckets, &self.columns.plain, chunk_rows, held, writer);
                    self.spill(groups(*part), &destinations, scatter)
                }
                Err(error) => Err(error),
            }
        };
        pool::each(Some(&pool), &own, || (), spill)?.into_iter().collect()
    }

    /// Spills these row groups to a part.
    fn spill(&self, groups: Range<u64>, destinations: &Destinations, mut scatter: Scatter<'_>) -> Result<()> {
        for group in groups {
            self.read(group as u32, &mut |first, rows| {
                let mut places = Vec::with_capacity(rows.num_rows());
                for row in 0..rows.num_rows() as u32 {
                    destinations.of(first + u64::from(row), |position| places.push((row, position)));
                }
                scatter.add(rows, places.into_iter())
            })?;
        }
        self.meter.bytes_spilled.fetch_add(scatter.finish()?, Ordering::Relaxed);
        Ok(())
    }
}

struct FirstPassSink<'a> {
    run: &'a Rewriting<'a>,
    take: &'a mut dyn FnMut(u64, RecordBatch) -> Result<()>,
    /// The row id of the next row.
    next: u64,
    failed: Option<Error>,
}

impl RowSink for FirstPassSink<'_> {
    fn chunk_rows(&self) -> usize {
        self.run.plan.chunk_rows as usize
    }

    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        let first = self.next;
        self.next += chunk.num_rows() as u64;
        let taken = self.run.columns.plain_of(&chunk).and_then(|plain| (self.take)(first, plain));
        taken.inspect_err(|error| self.failed = Some(error.clone()))
    }
}

/// The inverse of an order: its own, or a table where rows may come more than once.
#[derive(Debug)]
struct Destinations {
    order: Arc<dyn EpochOrder>,
    /// Row and position, sorted.
    table: Option<Vec<(u64, u64)>>,
}

impl Destinations {
    /// Of this order, within so many bytes.
    ///
    /// # Errors
    /// `TooLarge` if the table of an order that may repeat rows does not fit.
    fn new(order: Arc<dyn EpochOrder>, memory: u64) -> Result<Self> {
        if order.uses() != Uses::Any {
            return Ok(Self { order, table: None });
        }
        let bytes = order.len().saturating_mul(size_of::<(u64, u64)>() as u64);
        if bytes > memory {
            let message = format!("the places of {} listed rows take {bytes} bytes of memory", order.len());
            return Err(Error::new(ErrorKind::TooLarge, message)
                .with_hint(format!("give {} bytes of memory or more", bytes.saturating_mul(4))));
        }
        let place = |position| Some((order.row(position)?, position));
        let mut table: Vec<(u64, u64)> = (0..order.len()).filter_map(place).collect();
        table.sort_unstable();
        Ok(Self { order, table: Some(table) })
    }

    /// Bytes of memory that it takes.
    fn bytes(&self) -> u64 {
        self.table.as_ref().map_or(0, |table| (table.len() * size_of::<(u64, u64)>()) as u64)
    }

    /// Tells each position of a row.
    fn of(&self, row: u64, mut tell: impl FnMut(u64)) {
        match &self.table {
            None => {
                if let Some(position) = self.order.position(row) {
                    tell(position);
                }
            }
            Some(table) => {
                let first = table.partition_point(|(other, _)| *other < row);
                table[first..].iter().take_while(|(other, _)| *other == row).for_each(|(_, position)| tell(*position));
            }
        }
    }
}

/// Memory of what is known of a row that is held. Sorting takes half as much again.
const PLACE_BYTES: u64 = size_of::<ScatteredRow>() as u64 * 3 / 2;

/// A row that is held: its bucket and place, and where it lies.
#[derive(Debug, Clone, Copy)]
struct ScatteredRow {
    bucket: u32,
    place: u32,
    batch: u32,
    row: u32,
}

/// Rows on their way to the buckets of a part: held until they fill the memory, then written bucket by bucket.
#[derive(Debug)]
pub(super) struct Scatter<'a> {
    buckets: &'a Buckets,
    rows: &'a SchemaRef,
    /// The rows with their places in a bucket: what is spilled.
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

impl<'a> Scatter<'a> {
    pub(super) fn new(
        buckets: &'a Buckets,
        rows: &'a SchemaRef,
        batch_rows: usize,
        budget: u64,
        part: PartWriter,
    ) -> Self {
        let place = Arc::new(Field::new("place", DataType::UInt32, false));
        Self {
            buckets,
            rows,
            spilled: Arc::new(Schema::new(rows.fields().iter().cloned().chain([place]).collect::<Vec<_>>())),
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
        self.held.extend(rows.map(|(row, position)| {
            let (bucket, place) = self.buckets.place(position);
            ScatteredRow { bucket, place, batch: number, row }
        }));
        if self.held.len() == before {
            return Ok(());
        }
        self.bytes += self.footprint.add(&batch) + (self.held.len() - before) as u64 * PLACE_BYTES;
        self.batches.push(batch);
        if self.bytes >= self.budget { self.write() } else { Ok(()) }
    }

    /// Writes what is held, bucket by bucket.
    fn write(&mut self) -> Result<()> {
        let batches: Vec<&RecordBatch> = self.batches.iter().collect();
        // Those of a bucket stay in order, and near each other in memory.
        self.held.sort_by_key(|row| row.bucket);
        for rows in self.held.chunk_by(|a, b| a.bucket == b.bucket).flat_map(|rows| rows.chunks(self.batch_rows)) {
            stop::check()?;
            let places: Vec<_> = rows.iter().map(|row| (row.batch, row.row)).collect();
            let gathered = gather(&batches, &places, self.rows)?;
            let offsets: ArrayRef = Arc::new(UInt32Array::from_iter_values(rows.iter().map(|row| row.place)));
            let columns = gathered.columns().iter().cloned().chain([offsets]).collect();
            let spilled = record_batch(&self.spilled, columns, rows.len()).map_err(uncopied)?;
            self.part.add(rows[0].bucket, &spilled, bytes_of_part(&gathered))?;
        }
        self.batches.clear();
        self.footprint = Footprint::default();
        self.held.clear();
        self.bytes = 0;
        Ok(())
    }

    /// Writes what is left. Returns the bytes of the part.
    pub(super) fn finish(mut self) -> Result<u64> {
        self.write()?;
        self.part.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowdex_order::{Explicit, Global, Order};

    fn walked(order: &Arc<dyn EpochOrder>, rows: u64) {
        let destinations = Destinations::new(Arc::clone(order), 1 << 20).unwrap();
        for row in 0..rows {
            let mut found = Vec::new();
            destinations.of(row, |position| found.push(position));
            let expected: Vec<u64> = (0..order.len()).filter(|position| order.row(*position) == Some(row)).collect();
            assert_eq!(found, expected, "row {row}");
        }
    }

    #[test]
    fn all_positions_of_a_row_are_found_also_of_one_that_is_repeated() {
        walked(&Global::new(300, 4).unwrap().epoch(0).unwrap(), 300);
        let ids: Vec<u64> = (0..9000).map(|id| id * 31 % 97).collect();
        walked(&Explicit::new(&ids[..], 120).unwrap().epoch(0).unwrap(), 120);
    }

    #[test]
    fn a_table_that_does_not_fit_is_refused() {
        let order = Explicit::new(&[1, 1][..], 2).unwrap().epoch(0).unwrap();
        assert_eq!(Destinations::new(order, 31).unwrap_err().kind(), ErrorKind::TooLarge);
    }
}
