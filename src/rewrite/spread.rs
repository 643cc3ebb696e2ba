//! The first pass: each row group is read once, and its rows are spilled to the buckets that they go to.

use std::ops::Range;
use std::sync::atomic::Ordering;

use rayon::ThreadPool;

use super::destinations::Destinations;
use super::part::{PartWriter, SpillPart};
use super::progress::RewriteMeter;
use super::reading::FirstPass;
use super::scatter::Scatter;
use super::spill::{Spill, SpillLayout};
use rowdex_base::error::{ErrorKind, Result};
use rowdex_base::pool;
use rowdex_index::Index;

/// What the first pass works with if it spills.
pub(super) struct SpillPass<'a> {
    pub(super) reading: FirstPass<'a>,
    pub(super) destinations: &'a Destinations,
    pub(super) spill: &'a Spill,
    pub(super) layout: &'a SpillLayout,
    /// Whether parts are compressed.
    pub(super) compresses: bool,
    /// Bytes of rows that a thread may hold.
    pub(super) held: u64,
    pub(super) meter: &'a RewriteMeter,
}

/// Divides the row groups into units of about so many bytes in memory: where each ends.
pub(super) fn units(index: &Index, bytes: u64, scale: f64) -> Vec<u32> {
    let mut ends = Vec::new();
    let mut held = 0.0;
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

impl SpillPass<'_> {
    /// The row groups of a unit.
    fn groups(&self, unit: usize) -> Range<u32> {
        let start = unit.checked_sub(1).and_then(|before| self.layout.units.get(before)).copied().unwrap_or(0);
        start..self.layout.units.get(unit).copied().unwrap_or(start)
    }

    /// Spills these units, but for those that are spilled already.
    pub(super) fn run(&self, pool: &ThreadPool, units: Range<usize>) -> Result<()> {
        let units: Vec<usize> = units.collect();
        let spilled = pool::each(Some(pool), &units, || (), |(), unit| self.unit(*unit))?;
        spilled.into_iter().collect()
    }

    fn unit(&self, unit: usize) -> Result<()> {
        let path = self.spill.part(self.layout, unit)?;
        let groups = self.groups(unit);
        match SpillPart::open(&path, 0..0) {
            Ok(_) => {
                self.meter.advance(groups.map(|group| self.reading.rows(group)).sum());
                return Ok(());
            }
            // What is damaged is written anew.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Io) => {}
            Err(error) => return Err(error),
        }
        let FirstPass { columns, chunk_rows, .. } = self.reading;
        let writer = PartWriter::create(&path, self.compresses)?;
        let mut scatter = Scatter::new(&self.layout.buckets, &columns.plain, chunk_rows, self.held, writer);
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
        let writer = scatter.finish()?;
        self.meter.bytes_spilled.fetch_add(writer.written(), Ordering::Relaxed);
        writer.finish().map(drop)
    }
}
