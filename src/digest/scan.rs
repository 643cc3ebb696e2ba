//! Reading rows once, for their digests.

use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;

use super::DigestProgress;
use crate::dataset::Dataset;
use rowdex_base::error::Result;
use rowdex_base::stop;
use rowdex_index::RowGroupEntry;
use rowdex_parquet::RowSink;
use rowdex_rows::{DigestColumn, RowDigests};

/// Rows that are decoded at once. Their columns stay in the core's cache.
const CHUNK_ROWS: usize = 1 << 13;

/// Tells how far a walk over several datasets is.
pub(super) struct WalkDone<'a> {
    rows_done: AtomicU64,
    rows: u64,
    tell: &'a (dyn Fn(DigestProgress) + Sync),
}

impl<'a> WalkDone<'a> {
    pub(super) fn new(rows: u64, tell: &'a (dyn Fn(DigestProgress) + Sync)) -> Self {
        Self { rows_done: AtomicU64::new(0), rows, tell }
    }

    fn advance(&self, by: u64) {
        let rows_done = self.rows_done.fetch_add(by, Ordering::Relaxed) + by;
        (self.tell)(DigestProgress { rows_done, rows: self.rows });
    }
}

/// A walk over rows of a dataset, in any order.
pub(super) struct Scan<'a> {
    dataset: &'a Dataset,
    digests: RowDigests,
    done: &'a WalkDone<'a>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(dataset: &'a Dataset, done: &'a WalkDone<'a>) -> Result<Self> {
        Ok(Self { dataset, digests: RowDigests::new(dataset.projection().internal())?, done })
    }

    pub(super) fn columns(&self) -> &[DigestColumn] {
        self.digests.columns()
    }

    /// Adds up the digests of all rows. `each` gets the id of the first row of a chunk, and the digests of its rows.
    pub(super) fn sum(&self, each: impl Fn(u64, &[u128]) + Sync + Send) -> Result<u128> {
        let entries: Vec<RowGroupEntry<'_>> =
            self.dataset.index().row_groups().filter(|entry| entry.rows() > 0).collect();
        let one = |entry: &RowGroupEntry<'_>| {
            stop::check()?;
            let mut sum = 0_u128;
            let mut next = entry.first_row();
            let mut sink = Digests {
                digests: self.digests.clone(),
                chunk: Vec::new(),
                each: |chunk: &[u128]| {
                    sum = chunk.iter().fold(sum, |sum, digest| sum.wrapping_add(*digest));
                    each(next, chunk);
                    next += chunk.len() as u64;
                    self.done.advance(chunk.len() as u64);
                },
            };
            self.dataset.read_all(entry.index(), &mut sink)?;
            Ok(sum)
        };
        let sums: Result<Vec<u128>> = self.dataset.each_row_group(&entries, one)?.into_iter().collect();
        Ok(sums?.into_iter().fold(0, u128::wrapping_add))
    }
}

/// Makes digests of the rows of each chunk.
struct Digests<F> {
    digests: RowDigests,
    chunk: Vec<u128>,
    each: F,
}

impl<F: FnMut(&[u128])> RowSink for Digests<F> {
    fn chunk_rows(&self) -> usize {
        CHUNK_ROWS
    }

    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        stop::check()?;
        self.chunk.clear();
        self.digests.add(&chunk, &mut self.chunk)?;
        (self.each)(&self.chunk);
        Ok(())
    }
}
