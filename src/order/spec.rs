//! Orders by the names that people write.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::{Global, Orders, Sequential};
use crate::error::{Error, ErrorKind, Result};

/// Which orders a run has, apart from their length and seed: what `--order` says, and the same text in C and Python.
///
/// Written and parsed as `sequential` and `global`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OrderSpec {
    /// [`Sequential`]: rows 0, 1, 2, …
    Sequential,
    /// [`Global`]: all rows shuffled among all rows.
    #[default]
    Global,
}

impl OrderSpec {
    /// The orders over row groups of so many rows each, in the order of their row ids.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if there are more than [`MAX_LEN`](super::MAX_LEN) rows.
    pub fn orders(&self, group_rows: &[u64], seed: u64) -> Result<Arc<dyn Orders>> {
        let len = group_rows.iter().try_fold(0u64, |sum, rows| sum.checked_add(*rows)).unwrap_or(u64::MAX);
        Ok(match self {
            Self::Sequential => Arc::new(Sequential::new(len)?),
            Self::Global => Arc::new(Global::new(len, seed)?),
        })
    }
}

impl fmt::Display for OrderSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sequential => "sequential",
            Self::Global => "global",
        })
    }
}

impl FromStr for OrderSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "sequential" => Ok(Self::Sequential),
            "global" => Ok(Self::Global),
            _ => Err(Error::new(ErrorKind::InvalidArgument, format!("no order is called {text:?}"))
                .with_hint("use global or sequential")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_as_they_are_written_and_as_the_orders_call_themselves() {
        for spec in [OrderSpec::Sequential, OrderSpec::Global] {
            assert_eq!(spec.to_string().parse::<OrderSpec>().unwrap(), spec);
            let orders = spec.orders(&[3, 0, 4], 5).unwrap();
            assert_eq!((orders.len(), orders.name()), (7, &*spec.to_string()));
        }
        for text in ["", "Global", "global ", "globul"] {
            assert_eq!(text.parse::<OrderSpec>().unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
    }

    #[test]
    fn row_groups_of_too_many_rows_are_refused() {
        for rows in [[u64::MAX, 1], [1 << 62, 1 << 62]] {
            assert_eq!(OrderSpec::Global.orders(&rows, 0).unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
    }
}
