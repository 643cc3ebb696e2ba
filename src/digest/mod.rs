//! Digests of the rows of a dataset: added up in any order, and compared with those of another dataset.
//!
//! `docs/digests.md` specifies them.

mod cells;
mod report;
mod same;
mod scan;
#[cfg(test)]
mod tests;

use std::fmt;

pub use self::report::{SameRowsReport, WrongRows};
pub use self::same::SameRows;
pub use rowdex_rows::DigestColumn;
#[doc(hidden)]
pub use rowdex_rows::RowDigests;

use self::scan::Scan;
use crate::dataset::{Dataset, RowProgress, RowsDone};
use rowdex_base::error::Result;

/// The digest of some rows in any order: the sum, modulo 2^128, of a digest of 128 bits for each row.
///
/// It depends on the values of the rows and on the names and kinds of the columns, and on nothing else: not on files,
/// row groups, encodings, dictionaries, the width of integers, or whether a column may be null. Two collections of rows
/// that differ have one digest once in 2^128 cases, unless somebody looks for such a case.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowsDigest {
    /// How many rows there are.
    pub rows: u64,
    /// The sum.
    pub sum: u128,
    /// The columns that count, in the order of their names.
    pub columns: Vec<DigestColumn>,
}

impl fmt::Display for RowsDigest {
    /// The sum as 32 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.sum)
    }
}

impl Dataset {
    /// The digest of all rows over the columns that are served. Reads and decodes these once, on the dataset's threads
    /// and past its cache. `progress` is called after each chunk of rows, by any thread.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`](crate::ErrorKind::Schema) for a column of a type that has no digest, which is a union or
    /// what has one inside; and those of reading.
    pub fn rows_digest(&self, progress: &(dyn Fn(RowProgress) + Sync)) -> Result<RowsDigest> {
        let done = RowsDone::new(self.len(), progress);
        let scan = Scan::new(self, &done)?;
        Ok(RowsDigest { rows: self.len(), sum: scan.sum(|_, _| ())?, columns: scan.columns().to_vec() })
    }
}
