//! What a comparison of rows found, in values and in words.

use std::fmt;

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
    /// Whether every row of the first is once in the second, and nothing else is: as many rows, and the same digest.
    /// `None` where an order was given that does not serve every row once.
    pub same_rows: Option<bool>,
    /// Whether row `i` of the second is row `order(i)` of the first, and there are no others. `None` without an order.
    pub in_order: Option<bool>,
    /// What differs, if anything does.
    pub difference: Option<RowDifference>,
}

impl SameRowsReport {
    /// Whether all that was asked for is so.
    pub fn holds(&self) -> bool {
        self.same_rows != Some(false) && self.in_order != Some(false)
    }

    /// What is not so, with the two datasets by these names, as an error that names the place of a row that differs:
    /// its file and row group in the second dataset, or in the first where it is missing. `None` if all holds.
    pub fn problem(&self, first: &str, second: &str) -> Option<Error> {
        if self.holds() {
            return None;
        }
        let mut message = if self.first.rows != self.second.rows && self.same_rows.is_some() {
            format!("{second} has {} rows, and {first} {}", self.second.rows, self.first.rows)
        } else if self.same_rows == Some(false) {
            format!("the rows of {second} are not those of {first}")
        } else {
            format!("the rows of {second} are not in the order of {first}")
        };
        let Some(difference) = &self.difference else { return Some(Error::new(ErrorKind::Stale, message)) };
        match (&difference.first, &difference.second) {
            (Some(own), Some(other)) if self.in_order.is_some() => {
                message.push_str(&format!(": the first that differs is {other} of {second}, which should be {own}"));
            }
            (Some(own), Some(other)) => {
                message.push_str(&format!(": {own} of {first} and {other} of {second} have no counterpart"));
            }
            (Some(own), None) => message.push_str(&format!(": {own} of {first} is missing")),
            (None, Some(other)) => message.push_str(&format!(": {other} of {second} is too much")),
            (None, None) => {}
        }
        let mut error = Error::new(ErrorKind::Stale, message);
        if let Some(place) = difference.second.as_ref().or(difference.first.as_ref()) {
            error = error.with_file(&place.file).with_row_group(place.row_group.into());
        }
        Some(match &difference.columns[..] {
            [] => error,
            columns => error.with_column(columns.join(", ")),
        })
    }
}

/// Rows that differ.
///
/// With an order, the first row of the second dataset that is not the one that the order says, and the row that it
/// should be. Without one, a row that only the first has, or has more often, and one that only the second has.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowDifference {
    /// The row of the first dataset, if there is one.
    pub first: Option<RowPlace>,
    /// The row of the second dataset, if there is one.
    pub second: Option<RowPlace>,
    /// The columns in which the two differ; none where they are not a pair.
    pub columns: Vec<String>,
}

/// Where a row is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowPlace {
    /// Its id.
    pub row_id: u64,
    /// The file.
    pub file: String,
    /// The row group, counted within the file.
    pub row_group: u32,
    /// The row, counted within the row group.
    pub row: u64,
}

impl RowPlace {
    pub(super) fn of(index: &Index, row_id: u64) -> Option<Self> {
        let location = index.locate(row_id)?;
        let file = index.file(location.file)?.path().to_owned();
        Some(Self { row_id, file, row_group: location.ordinal, row: location.row })
    }
}

impl fmt::Display for RowPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { row_id, file, row_group, row } = self;
        write!(f, "row id {row_id} ({file}, row group {row_group}, row {row})")
    }
}
