//! The first pass: each row group is read once, and its rows are spilled to the buckets that they go to.

use std::ops::Range;
use std::sync::atomic::Ordering;

use arrow::array::RecordBatch;
use rayon::ThreadPool;

use super::columns::{Columns, as_read};
use super::destinations::Destinations;
use super::lost::Lost;
use super::part::{Part, PartWriter};
use super::progress::Meter;
use super::scatter::Scatter;
use super::spill::{Layout, Spill};
use crate::dataset::{Dataset, Slots};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::{pool, stop};
use rowdex_index::Index;
use rowdex_parquet::RowSink;

/// What the first pass works with.
pub(super) struct Spread<'a> {
    pub(super) dataset: &'a Dataset,
    pub(super) columns: &'a Columns,
    pub(super) destinations: &'a Destinations,
    pub(super) spill: &'a Spill,
    pub(super) layout: &'a Layout,
    pub(super) chunk_rows: usize,
    /// Whether parts are compressed.
    pub(super) compresses: bool,
    /// Bytes of rows that a thread may hold.
    pub(super) held: u64,
    /// Whether row groups that cannot be read are left out.
    pub(super) skips: bool,
    /// Row groups that are left out of files that are there: they stay out.
    pub(super) lost: &'a [Lost],
    pub(super) meter: &'a Meter,
}

/// Divides the row groups into units of about so many bytes in memory: where each ends.
pub(super) fn units(index: &Index, bytes: u64, scale: f64) -> Vec<u32> {
    let (mut ends, mut held) = (Vec::new(), 0.0);
    for group in index.row_groups() {
        let of_rows = group.rows() as f64 / group.source_rows().max(1) as f64;
        held += group.decoded_bytes() as f64 * of_rows * scale;
        if held >= bytes as f64 {
            ends.push(group.index() + 1);
            held = 0.0;
        }
    }
    if ends.last().copied().unwrap_or(0) < index.num_row_groups() {
        ends.push(index.num_row_groups());
    }
    ends
}

/// Whether an error says that a row group cannot be read, and not that its file is another one or gone.
pub(super) fn may_skip(error: &Error) -> bool {
    error.kind().is_of_the_data() && !matches!(error.kind(), ErrorKind::Stale | ErrorKind::NotFound)
}

impl Spread<'_> {
    /// The row groups of a unit.
    fn groups(&self, unit: usize) -> Range<u32> {
        let start = unit.checked_sub(1).and_then(|before| self.layout.units.get(before)).copied().unwrap_or(0);
        start..self.layout.units.get(unit).copied().unwrap_or(start)
    }

    /// Spills these units, but for those that are spilled already. Returns what is left out of them.
    pub(super) fn run(&self, pool: &ThreadPool, units: Range<usize>) -> Result<Vec<Lost>> {
        let units: Vec<usize> = units.collect();
        let lost = pool::each(Some(pool), &units, || (), |(), unit| self.unit(*unit))?;
        Ok(lost.into_iter().collect::<Result<Vec<_>>>()?.concat())
    }

    fn unit(&self, unit: usize) -> Result<Vec<Lost>> {
        let (path, groups) = (self.spill.part(self.layout, unit)?, self.groups(unit));
        let group_rows = |group: u32| self.dataset.index().row_group(group).map_or(0, |entry| entry.rows());
        match Part::open(&path, 0..0) {
            // What was left out may have been mended, and who does not skip wants it.
            Ok(part) if self.skips || part.lost.iter().all(|lost| self.lost.contains(lost)) => {
                self.meter.advance(groups.map(group_rows).sum());
                return Ok(part.lost);
            }
            Ok(_) => {}
            // What is damaged is written anew.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Io) => {}
            Err(error) => return Err(error),
        }
        let writer = PartWriter::create(&path, self.compresses)?;
        let (buckets, plain) = (&self.layout.buckets, &self.columns.plain);
        let mut scatter = Scatter::new(buckets, plain, self.chunk_rows, self.held, writer);
        let mut lost = Vec::new();
        for group in groups {
            stop::check()?;
            if let Some(known) = self.lost.iter().find(|known| known.row_group == group) {
                lost.push(known.clone());
                self.meter.advance(group_rows(group));
                continue;
            }
            match self.group(group, &mut scatter) {
                Ok(()) => {}
                Err(Failed::Reading(error)) if self.skips && may_skip(&error) => {
                    lost.push(Lost { row_group: group, error: error.to_string() });
                }
                Err(Failed::Reading(error) | Failed::Spilling(error)) => return Err(error),
            }
            self.meter.advance(group_rows(group));
        }
        let writer = scatter.finish()?;
        self.meter.bytes_spilled.fetch_add(writer.written(), Ordering::Relaxed);
        writer.finish(&lost).map(|part| part.lost)
    }

    fn group(&self, group: u32, scatter: &mut Scatter<'_>) -> Result<(), Failed> {
        let Some(entry) = self.dataset.index().row_group(group) else { return Ok(()) };
        let mut sink = Sink { spread: self, scatter, next: entry.first_row(), failed: None };
        let read = self.dataset.read(group, Slots::All, as_read(self.dataset), None, &mut sink);
        match (read, sink.failed) {
            (Ok(()), _) => Ok(()),
            (Err(_), Some(error)) => Err(Failed::Spilling(error)),
            (Err(error), None) => Err(Failed::Reading(error)),
        }
    }
}

/// Which side failed.
enum Failed {
    Reading(Error),
    Spilling(Error),
}

/// Sends the rows of a row group to their buckets.
struct Sink<'a, 'b> {
    spread: &'a Spread<'a>,
    scatter: &'a mut Scatter<'b>,
    /// The row id of the next row.
    next: u64,
    failed: Option<Error>,
}

impl RowSink for Sink<'_, '_> {
    fn chunk_rows(&self) -> usize {
        self.spread.chunk_rows
    }

    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        let first = self.next;
        self.next += chunk.num_rows() as u64;
        let mut places = Vec::with_capacity(chunk.num_rows());
        for row in 0..chunk.num_rows() as u32 {
            self.spread.destinations.of(first + u64::from(row), |position| places.push((row, position)));
        }
        let columns = self.spread.columns;
        let added = columns.plain_of(&chunk).and_then(|plain| self.scatter.add(plain, places.into_iter()));
        added.inspect_err(|error| self.failed = Some(error.clone()))
    }
}
