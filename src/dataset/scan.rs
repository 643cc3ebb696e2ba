//! Reading all rows once, row group by row group, for what is asked about each of them.

use super::{Dataset, Slots};
use rowdex_base::error::Result;
use rowdex_base::pool;
use rowdex_index::RowGroupEntry;
use rowdex_parquet::RowSink;

impl Dataset {
    /// These columns of the same rows, for reading each row once: past the cache and the disk cache.
    pub(crate) fn with_other_columns(&self, columns: &[impl AsRef<str>]) -> Result<Self> {
        let inner = &self.inner.settings;
        Self::builder(inner.index.clone())
            .with_columns(columns.iter().map(AsRef::as_ref))
            .with_source(inner.source.clone())
            .with_check(inner.staleness)
            .with_max_decoded_bytes(inner.max_decoded_bytes)
            .with_cache_bytes(0)
            .with_threads(inner.threads)
            .open()
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
