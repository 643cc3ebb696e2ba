//! Reading all rows once, row group by row group, for what is asked about each of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::RecordBatch;

use super::{Dataset, Slots};
use rowdex_base::error::Result;
use rowdex_base::pool;
use rowdex_index::RowGroupEntry;
use rowdex_parquet::RowSink;

/// How far a walk over rows is: a condition that is decided, a digest, a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowProgress {
    /// Rows that are done, of all datasets.
    pub rows_done: u64,
    /// All rows.
    pub rows: u64,
}

/// Tells how far a walk is, whatever thread gets on with it.
pub(crate) struct RowsDone<'a> {
    done: AtomicU64,
    rows: u64,
    tell: &'a (dyn Fn(RowProgress) + Sync),
}

impl<'a> RowsDone<'a> {
    pub(crate) fn new(rows: u64, tell: &'a (dyn Fn(RowProgress) + Sync)) -> Self {
        Self { done: AtomicU64::new(0), rows, tell }
    }

    pub(crate) fn advance(&self, by: u64) {
        let rows_done = self.done.fetch_add(by, Ordering::Relaxed) + by;
        (self.tell)(RowProgress { rows_done, rows: self.rows });
    }
}

/// Calls a function with each chunk of so many rows.
pub(crate) struct EachChunk<F> {
    pub(crate) rows: usize,
    pub(crate) each: F,
}

impl<F: FnMut(&RecordBatch) -> Result<()>> RowSink for EachChunk<F> {
    fn chunk_rows(&self) -> usize {
        self.rows
    }

    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        (self.each)(&chunk)
    }
}

impl Dataset {
    /// These columns of the same rows, for reading each row once: past the cache and the disk cache.
    pub(crate) fn with_other_columns(&self, columns: &[impl AsRef<str>]) -> Result<Self> {
        let inner = &*self.inner;
        let mut other = inner.options.clone().with_columns(columns.iter().map(AsRef::as_ref));
        other.disk_cache = None;
        other.with_source(Arc::clone(&inner.source)).with_threads(inner.threads).with_cache_bytes(0).open()
    }

    /// What `work` makes of each of these row groups, in order, on the dataset's threads, up to the first error.
    pub(crate) fn each_row_group<T: Send>(
        &self,
        entries: &[RowGroupEntry<'_>],
        work: impl Fn(&RowGroupEntry<'_>) -> Result<T> + Sync + Send,
    ) -> Result<Vec<Result<T>>> {
        let pool = self.inner.pool(self.inner.state()?)?;
        pool::each(pool.filter(|_| entries.len() > 1), entries, || (), |(), entry| work(entry))
    }

    /// Decodes all rows of a row group that are served, chunk by chunk, in the types that the dataset decodes to.
    pub(crate) fn read_all(&self, row_group: u32, sink: &mut dyn RowSink) -> Result<()> {
        self.read(row_group, Slots::All, self.projection(), None, sink)
    }
}
