//! What a rewrite will take, told beforehand.

use std::time::Instant;

use arrow::array::RecordBatch;

use super::columns::as_read;
use super::part::spilled_bytes;
use super::plan::RewritePlan;
use super::spread::may_skip;
use super::{Rewrite, within};
use crate::dataset::Slots;
use rowdex_base::error::Result;
use rowdex_base::stop::Asked;
use rowdex_parquet::RowSink;

/// How files are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// A loader serves the rows in their order.
    Stream,
    /// Rows are spilled to buckets, and each bucket is put in order.
    Spill,
}

/// Decoding this many times takes about as long as decoding once, and writing and reading a spill.
const MOST_PASSES: f64 = 2.5;
/// Reading long values that are stored as they are so many times takes about as long: that is one copy, where a spill
/// is four.
const MOST_COPIES: f64 = 5.0;
/// Bytes of a row with long values.
const LONG_ROW: f64 = 4096.0;
/// The part of its bytes that a row takes in a file if it is stored as it is: JPEGs, say, whatever they are packed by.
const AS_IT_IS: f64 = 0.8;

/// What a rewrite will take, from [`Rewrite::estimate`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct RewriteEstimate {
    /// How often each row group is decoded, about.
    pub decodes: f64,
    /// Passes over the rows: one if nothing is spilled, otherwise two.
    pub passes: u64,
    /// Bytes that are spilled, about; 0 if nothing is.
    pub spilled_bytes: u64,
    /// Bytes of the output, about.
    pub output_bytes: u64,
    /// Seconds on this machine, about, from how long a sample takes; what disks and stores add is not in it.
    pub seconds: f64,
}

impl RewritePlan {
    /// Bytes of the output, about.
    pub(super) fn output_bytes(&self) -> u64 {
        (self.rows as f64 * self.encoded_row_bytes()) as u64
    }

    /// Bytes of spilled rows, about.
    pub(super) fn spilled_bytes(&self) -> u64 {
        (self.rows as f64 * (self.spilled_row_bytes() + size_of::<u32>() as f64)) as u64
    }
}

/// The way that is cheaper.
pub(super) struct Chosen {
    pub(super) way: Way,
    /// How often row groups are decoded.
    decodes: f64,
    /// How often a stored byte is read.
    reads: f64,
}

impl Chosen {
    const SPILL: Self = Self { way: Way::Spill, decodes: 1.0, reads: 1.0 };
}

/// Decides how files are written, by sizes alone.
pub(super) fn way(rewrite: &Rewrite, plan: &RewritePlan) -> Result<Chosen> {
    if plan.rows == 0 {
        return Ok(Chosen { way: Way::Stream, decodes: 0.0, reads: 0.0 });
    }
    // Which rows are lost has to be known before the first one is written.
    if rewrite.options.skips {
        return Ok(Chosen::SPILL);
    }
    let (dataset, stream) = (&rewrite.dataset, rewrite.stream(plan));
    let stored = dataset.read_costs().iter().map(|cost| cost.bytes as f64).sum::<f64>();
    let is_copied = dataset.local_root().is_some()
        && plan.row_bytes() >= LONG_ROW
        && stored >= AS_IT_IS * plan.row_bytes() * dataset.index().source_rows() as f64;
    // A plan of an epoch takes a hundred nanoseconds a row. Where the law is far from the limit it tells nothing more;
    // of long rows there are few.
    let by_law = plan.rows as f64 * plan.row_bytes() / (2.0 * stream.memory.max(1) as f64);
    if rewrite.orders.name() == "global" && by_law >= 1.25 * MOST_PASSES && !is_copied {
        return Ok(Chosen::SPILL);
    }
    let Some(prediction) = stream.predict()? else { return Ok(Chosen::SPILL) };
    let reads = prediction.first_bytes_read as f64 / stored.max(1.0);
    let decodes = prediction.first_passes;
    Ok(match decodes <= MOST_PASSES || is_copied && reads <= MOST_COPIES {
        true => Chosen { way: Way::Stream, decodes, reads: if is_copied { reads } else { decodes } },
        false => Chosen::SPILL,
    })
}

/// Counts rows, and keeps the first ones.
struct Timed {
    chunk_rows: usize,
    rows: u64,
    first: Option<RecordBatch>,
}

impl RowSink for Timed {
    fn chunk_rows(&self) -> usize {
        self.chunk_rows
    }

    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        self.rows += chunk.num_rows() as u64;
        self.first.get_or_insert(chunk);
        Ok(())
    }
}

impl Rewrite {
    /// What the first row group that can be read begins with, and the seconds that a row of it takes.
    fn timed(&self, chunk_rows: usize) -> Result<(Timed, f64)> {
        let nothing = || Timed { chunk_rows, rows: 0, first: None };
        for group in self.dataset.index().row_groups().filter(|group| group.rows() > 0) {
            let (mut timed, started) = (nothing(), Instant::now());
            match self.dataset.read(group.index(), Slots::All, as_read(&self.dataset), None, &mut timed) {
                Ok(()) => {
                    let seconds = started.elapsed().as_secs_f64() / timed.rows.max(1) as f64;
                    return Ok((timed, seconds));
                }
                Err(error) if self.options.skips && may_skip(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((nothing(), 0.0))
    }

    /// What the rewrite will take. Writes nothing; reads the sample of [`plan`](Self::plan), and one row group.
    ///
    /// # Errors
    /// Those of [`plan`](Self::plan).
    pub fn estimate(&self) -> Result<RewriteEstimate> {
        let _asked = self.asked.clone().map(Asked::enter);
        let pool = self.pool(self.threads)?;
        let plan = self.planned(&pool)?;
        let Chosen { way, decodes, reads } = way(&self.beside_uploads(&plan)?.0, &plan)?;
        let columns = self.columns()?;
        let (timed, decoding) = self.timed(plan.chunk_rows as usize)?;
        let (mut spilling, mut encoding) = (0.0, 0.0);
        if let Some(chunk) = timed.first.filter(|chunk| chunk.num_rows() > 0) {
            let plain = columns.plain_of(&chunk)?;
            let rows = plain.num_rows() as f64;
            let started = Instant::now();
            spilled_bytes(&plain, plan.compresses_spill())?;
            // Rows are copied, compressed, decompressed and copied again.
            spilling = 2.0 * started.elapsed().as_secs_f64() / rows;
            let started = Instant::now();
            within(&pool, || super::decide::encoded(&columns, &plain, &plan.columns, plan.chunk_rows))?;
            encoding = started.elapsed().as_secs_f64() / rows;
        }
        let spills = way == Way::Spill;
        let a_row = decoding * reads + encoding + if spills { spilling } else { 0.0 };
        Ok(RewriteEstimate {
            decodes,
            passes: if spills { 2 } else { 1 },
            spilled_bytes: if spills { plan.spilled_bytes() } else { 0 },
            output_bytes: plan.output_bytes(),
            seconds: a_row * plan.rows as f64 / self.threads as f64,
        })
    }
}
