//! Reading rows once, for their digests.

use arrow_array::RecordBatch;

use crate::dataset::{Dataset, EachChunk, RowsDone};
use rowdex_base::error::Result;
use rowdex_base::stop;
use rowdex_index::RowGroupEntry;
use rowdex_rows::{DigestColumn, RowDigests};

/// Rows that are decoded at once. Their columns stay in the core's cache.
const CHUNK_ROWS: usize = 1 << 13;

/// A walk over rows of a dataset, in any order.
pub(super) struct Scan<'a> {
    dataset: &'a Dataset,
    digests: RowDigests,
    done: &'a RowsDone<'a>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(dataset: &'a Dataset, done: &'a RowsDone<'a>) -> Result<Self> {
        Ok(Self { dataset, digests: RowDigests::new(dataset.projection().internal())?, done })
    }

    pub(super) fn rows(&self) -> u64 {
        self.dataset.len()
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
            let mut digests = self.digests.clone();
            let mut found = Vec::new();
            let mut sum = 0_u128;
            let mut next = entry.first_row();
            let each = |chunk: &RecordBatch| {
                stop::check()?;
                found.clear();
                digests.add(chunk, &mut found)?;
                sum = found.iter().fold(sum, |sum, digest| sum.wrapping_add(*digest));
                each(next, &found);
                next += found.len() as u64;
                self.done.advance(found.len() as u64);
                Ok(())
            };
            self.dataset.read_all(entry.index(), &mut EachChunk { rows: CHUNK_ROWS, each })?;
            Ok(sum)
        };
        let sums: Result<Vec<u128>> = self.dataset.each_row_group(&entries, one)?.into_iter().collect();
        Ok(sums?.into_iter().fold(0, u128::wrapping_add))
    }
}
