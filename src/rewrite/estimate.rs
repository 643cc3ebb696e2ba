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

/// The way that is cheaper, and how often row groups are decoded.
pub(super) fn way(rewrite: &Rewrite, plan: &RewritePlan) -> Result<(Way, f64)> {
    if plan.rows == 0 {
        return Ok((Way::Stream, 0.0));
    }
    // Which rows are lost has to be known before the first one is written.
    if rewrite.options.skips {
        return Ok((Way::Spill, 1.0));
    }
    let stream = rewrite.stream(plan);
    // A plan of an epoch takes a hundred nanoseconds a row. Where the law is far from the limit it tells nothing more.
    let by_law = plan.rows as f64 * plan.row_bytes() / (2.0 * stream.memory.max(1) as f64);
    if rewrite.orders.name() == "global" && by_law >= 1.25 * MOST_PASSES {
        return Ok((Way::Spill, 1.0));
    }
    match stream.predict()? {
        Some(prediction) if prediction.first_passes <= MOST_PASSES => Ok((Way::Stream, prediction.first_passes)),
        _ => Ok((Way::Spill, 1.0)),
    }
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
        let (way, decodes) = way(&self.beside_uploads(&plan)?.0, &plan)?;
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
        let a_row = decoding * decodes + encoding + if spills { spilling } else { 0.0 };
        Ok(RewriteEstimate {
            decodes,
            passes: if spills { 2 } else { 1 },
            spilled_bytes: if spills { plan.spilled_bytes() } else { 0 },
            output_bytes: plan.output_bytes(),
            seconds: a_row * plan.rows as f64 / self.threads as f64,
        })
    }
}
