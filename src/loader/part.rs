//! Batches that were made together, and lie one after the other in memory.

use std::sync::Arc;

use arrow::array::RecordBatch;

/// Where the rows of a batch lie, if others lie beside them. It says nothing of what the rows are, so it does not count
/// in comparisons.
#[derive(Debug, Clone, Default)]
#[cfg_attr(
    not(any(feature = "capi", target_os = "linux")),
    expect(dead_code, reason = "only foreign callers and ranks of a machine take several batches at a time")
)]
pub(crate) struct Part(Option<(Arc<RecordBatch>, usize)>);

impl PartialEq for Part {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Part {
    /// The rows of `whole` from `first` on.
    pub(super) fn of(whole: &Arc<RecordBatch>, first: usize) -> Self {
        Self(Some((Arc::clone(whole), first)))
    }

    /// Whether `next` begins behind `rows` rows of this one.
    #[cfg(any(feature = "capi", target_os = "linux"))]
    pub(super) fn goes_on(&self, rows: usize, next: &Self) -> bool {
        let (Some((whole, first)), Some((other, begin))) = (&self.0, &next.0) else { return false };
        Arc::ptr_eq(whole, other) && first + rows == *begin
    }

    /// So many rows from here on, without a copy, if there are so many.
    #[cfg(any(feature = "capi", target_os = "linux"))]
    pub(super) fn rows(&self, rows: usize) -> Option<RecordBatch> {
        let (whole, first) = self.0.as_ref()?;
        (rows <= whole.num_rows().checked_sub(*first)?).then(|| whole.slice(*first, rows))
    }
}
