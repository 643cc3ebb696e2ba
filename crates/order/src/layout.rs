//! The rows that orders are made for.

use std::sync::Arc;

use super::id_set::IdSet;
use rowdex_base::error::{Error, Result};

/// How many rows there are, and where their row groups begin: all that an order knows of a dataset.
///
/// A mixture of several datasets has one list of row groups for each dataset. Its row ids count through all of them.
/// `Index::layout` gives the layout of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowLayout {
    /// The rows of each row group, dataset by dataset.
    datasets: Vec<Arc<[u64]>>,
    rows: u64,
}

impl RowLayout {
    /// Rows of which only the number is known. An order takes them for one row group.
    pub fn of_rows(rows: u64) -> Self {
        Self::of_groups([rows])
    }

    /// One dataset with row groups of so many rows each, in the order of their row ids.
    pub fn of_groups(group_rows: impl IntoIterator<Item = u64>) -> Self {
        let groups: Arc<[u64]> = group_rows.into_iter().collect();
        Self { rows: sum(groups.iter().copied()), datasets: vec![groups] }
    }

    /// Several datasets one after the other, as in a `MixedDataset`.
    pub fn of_datasets(datasets: impl IntoIterator<Item = Self>) -> Self {
        let datasets: Vec<Arc<[u64]>> = datasets.into_iter().flat_map(|layout| layout.datasets).collect();
        Self { rows: sum(datasets.iter().flat_map(|groups| groups.iter().copied())), datasets }
    }

    /// How many rows there are in all.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The layout of each dataset.
    pub(super) fn datasets(&self) -> impl ExactSizeIterator<Item = Self> + '_ {
        self.datasets
            .iter()
            .map(|groups| Self { rows: sum(groups.iter().copied()), datasets: vec![Arc::clone(groups)] })
    }

    /// The rows of every row group.
    pub(super) fn group_rows(&self) -> Vec<u64> {
        self.datasets.iter().flat_map(|groups| groups.iter().copied()).collect()
    }

    /// What is left of every row group of one dataset, if only these rows are kept. Of several datasets only the number
    /// of rows that are left.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the set is not out of as many rows as there are.
    pub(super) fn keep(&self, kept: &IdSet) -> Result<Self> {
        if kept.rows() != self.rows {
            let message = format!("a set out of {} rows for a dataset of {}", kept.rows(), self.rows);
            return Err(Error::invalid(message).with_hint("make the set for as many rows as the dataset has"));
        }
        let [groups] = self.datasets.as_slice() else { return Ok(Self::of_rows(kept.len())) };
        let mut start = 0;
        Ok(Self::of_groups(groups.iter().map(|rows| {
            let first = start;
            start += rows;
            kept.rank(start) - kept.rank(first)
        })))
    }
}

/// More rows than an order may have stay more than that.
fn sum(group_rows: impl Iterator<Item = u64>) -> u64 {
    group_rows.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowdex_base::error::ErrorKind;

    #[test]
    fn a_set_takes_rows_out_of_their_row_groups() {
        let layout = RowLayout::of_groups([3, 0, 4, 1]);
        let kept = IdSet::from_ids(8, [0, 2, 3, 6]).unwrap();
        assert_eq!(layout.keep(&kept).unwrap().group_rows(), [2, 0, 2, 0]);
        let other = IdSet::from_ids(9, [0]).unwrap();
        assert_eq!(layout.keep(&other).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }

    #[test]
    fn the_datasets_of_a_mixture_lie_one_after_the_other() {
        let layout = RowLayout::of_datasets([RowLayout::of_groups([3, 4]), RowLayout::of_rows(5)]);
        assert_eq!((layout.rows(), layout.group_rows()), (12, vec![3, 4, 5]));
        assert_eq!(layout.datasets().map(|dataset| dataset.rows()).collect::<Vec<_>>(), [7, 5]);
        assert_eq!(RowLayout::of_groups([u64::MAX, 1]).rows(), u64::MAX);
    }
}
