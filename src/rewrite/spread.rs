//! The first pass: each row group is read once, and where its rows do not fit, they are spilled to the buckets that
//! they go to.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use rayon::ThreadPool;

use super::columns::{OutputColumns, as_read};
use super::destinations::Destinations;
use super::part::{PartWriter, SpillPart};
use super::progress::RewriteMeter;
use super::shape::{Buckets, slice};
use crate::dataset::{Dataset, Slots};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::{pool, stop};
use rowdex_parquet::RowSink;
use rowdex_rows::{Footprint, bytes_of_part, gather, record_batch, uncopied};

/// What the first pass reads.
#[derive(Clone, Copy)]
pub(super) struct FirstPass<'a> {
    pub(super) dataset: &'a Dataset,
    pub(super) columns: &'a OutputColumns,
    pub(super) chunk_rows: usize,
}

impl FirstPass<'_> {
    /// Rows of a row group.
    pub(super) fn rows(&self, group: u32) -> u64 {
        self.dataset.index().row_group(group).map_or(0, |entry| entry.rows())
    }

    /// Hands over the rows of a row group with the row id of the first, chunk by chunk, in the types in which they are
    /// held and spilled.
    pub(super) fn read(&self, group: u32, take: &mut dyn FnMut(u64, RecordBatch) -> Result<()>) -> Result<()> {
        stop::check()?;
        let Some(entry) = self.dataset.index().row_group(group) else { return Ok(()) };
        let mut sink = FirstPassSink { reading: self, take, next: entry.first_row(), failed: None };
        let read = self.dataset.read(group, Slots::All, as_read(self.dataset), None, &mut sink);
        // What becomes of rows is no fault of the file that they are from.
        sink.failed.map_or(read, Err)
    }
}

struct FirstPassSink<'a> {
    reading: &'a FirstPass<'a>,
    take: &'a mut dyn FnMut(u64, RecordBatch) -> Result<()>,
    /// The row id of the next row.
    next: u64,
    failed: Option<Error>,
}

impl RowSink for FirstPassSink<'_> {
    fn chunk_rows(&self) -> usize {
        self.reading.chunk_rows
    }

    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        let first = self.next;
        self.next += chunk.num_rows() as u64;
        let taken = self.reading.columns.plain_of(&chunk).and_then(|plain| (self.take)(first, plain));
        taken.inspect_err(|error| self.failed = Some(error.clone()))
    }
}

/// What the first pass works with if it spills.
pub(super) struct SpillPass<'a> {
    pub(super) reading: FirstPass<'a>,
    pub(super) destinations: &'a Destinations,
    pub(super) buckets: Buckets,
    /// The parts that are made, each of consecutive row groups.
    pub(super) parts: &'a [PathBuf],
    /// Whether parts are compressed.
    pub(super) compresses: bool,
    /// Bytes of rows that a thread may hold.
    pub(super) held: u64,
    pub(super) meter: &'a RewriteMeter,
}

/// The row groups of consecutive parts, of so many.
pub(super) fn groups(row_groups: u32, of: Range<usize>, parts: usize) -> Range<u32> {
    let start = |part: usize| slice(u64::from(row_groups), part as u64, parts as u64).start as u32;
    start(of.start)..start(of.end)
}

impl SpillPass<'_> {
    /// Makes these parts, but for those that are there already.
    pub(super) fn run(&self, pool: &ThreadPool, parts: Range<usize>) -> Result<()> {
        let parts: Vec<usize> = parts.collect();
        let spilled = pool::each(Some(pool), &parts, || (), |(), part| self.spill(*part))?;
        spilled.into_iter().collect()
    }

    fn spill(&self, part: usize) -> Result<()> {
        let path = &self.parts[part];
        let groups = groups(self.reading.dataset.index().num_row_groups(), part..part + 1, self.parts.len());
        match SpillPart::open(path, 0..0) {
            Ok(_) => {
                self.meter.advance(groups.map(|group| self.reading.rows(group)).sum());
                return Ok(());
            }
            // What is damaged is written anew.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Io) => {}
            Err(error) => return Err(error),
        }
        let FirstPass { columns, chunk_rows, .. } = self.reading;
        let writer = PartWriter::create(path, self.compresses)?;
        let mut scatter = Scatter::new(&self.buckets, &columns.plain, chunk_rows, self.held, writer);
        for group in groups {
            self.reading.read(group, &mut |first, rows| {
                let mut places = Vec::with_capacity(rows.num_rows());
                for row in 0..rows.num_rows() as u32 {
                    self.destinations.of(first + u64::from(row), |position| places.push((row, position)));
                }
                scatter.add(rows, places.into_iter())
            })?;
            self.meter.advance(self.reading.rows(group));
        }
        self.meter.bytes_spilled.fetch_add(scatter.finish()?, Ordering::Relaxed);
        Ok(())
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
            self.part.add(u64::from(rows[0].bucket), &spilled, bytes_of_part(&gathered))?;
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
