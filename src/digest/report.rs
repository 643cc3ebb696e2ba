//! What a comparison of rows found, in values and in words.

use std::ops::Range;

use super::RowsDigest;
use rowdex_base::error::{Error, ErrorKind};
use rowdex_index::Index;

/// What [`SameRows::check`](super::SameRows::check) found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SameRowsReport {
    /// Of all rows of the first dataset, over the columns that both have.
    pub first: RowsDigest,
    /// Of all rows of the second one.
    pub second: RowsDigest,
    /// Columns that only one of them has.
    pub left_out: Vec<String>,
    /// Whether every row of the first is once in the second, and nothing else is: the same number of rows, and the same
    /// digest. `None` where an order was given that does not serve every row once.
    pub same_rows: Option<bool>,
    /// Whether row `i` of the second is row `order(i)` of the first, and there are no others. `None` without an order.
    pub in_order: Option<bool>,
    /// Where rows are not in order, if an order was given.
    pub wrong: Option<WrongRows>,
}

impl SameRowsReport {
    /// Whether all that was asked for is so.
    pub fn holds(&self) -> bool {
        self.same_rows != Some(false) && self.in_order != Some(false)
    }

    /// What is not so, with the two datasets by these names, as an error. `None` if all holds.
    pub fn problem(&self, first: &str, second: &str) -> Option<Error> {
        if self.holds() {
            return None;
        }
        let message = if self.first.rows != self.second.rows && self.same_rows.is_some() {
            format!("{second} has {} rows, and {first} {}", self.second.rows, self.first.rows)
        } else if self.same_rows == Some(false) {
            format!("the rows of {second} are not those of {first}")
        } else {
            format!("the rows of {second} are not in the order of {first}")
        };
        let Some(WrongRows { rows, place }) = &self.wrong else { return Some(Error::new(ErrorKind::Stale, message)) };
        let message = format!("{message}: the first that differs has a row id of {}..{}", rows.start, rows.end);
        let error = Error::new(ErrorKind::Stale, message);
        Some(match place {
            Some((file, row_group)) => error.with_file(file).with_row_group((*row_group).into()),
            None => error,
        })
    }
}

/// Rows of the second dataset, one of which is the first that is not the one that it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WrongRows {
    /// Their ids, which may go beyond the last row.
    pub rows: Range<u64>,
    /// The file and the row group that they begin in.
    pub place: Option<(String, u32)>,
}

impl WrongRows {
    pub(super) fn of(index: &Index, rows: Range<u64>) -> Self {
        let place = index.locate(rows.start).and_then(|at| Some((index.file(at.file)?.path().to_owned(), at.ordinal)));
        Self { rows, place }
    }
}
