//! Orders by the names that people write.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::{Blocks, Global, Order, Sequential, Torch};
use rowdex_base::error::{Error, ErrorKind, Result};

/// Which orders a run has, apart from their length and seed: what `--order` says, and the same text in C and Python.
///
/// Written and parsed as `sequential`, `global`, `torch`, and `blocks(8)` or `blocks(all)`; `blocks:8` is read, too,
/// which no shell takes for anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OrderSpec {
    /// [`Sequential`]: rows 0, 1, 2, …
    Sequential,
    /// [`Global`]: all rows shuffled among all rows.
    #[default]
    Global,
    /// [`Torch`]: what PyTorch's `DistributedSampler` serves.
    Torch,
    /// [`Blocks`]: row groups shuffled, and rows within windows of so many of them; [`Blocks::ALL`] is all.
    Blocks(u64),
}

impl OrderSpec {
    /// The orders over row groups of so many rows each, in the order of their row ids.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if there are more than [`MAX_LEN`](super::MAX_LEN) rows, or for blocks of 0 row groups.
    pub fn orders(&self, group_rows: &[u64], seed: u64) -> Result<Arc<dyn Order>> {
        let len = group_rows.iter().try_fold(0u64, |sum, rows| sum.checked_add(*rows)).unwrap_or(u64::MAX);
        Ok(match self {
            Self::Sequential => Arc::new(Sequential::new(len)?),
            Self::Global => Arc::new(Global::new(len, seed)?),
            Self::Torch => Arc::new(Torch::new(len, seed)?),
            Self::Blocks(k) => Arc::new(Blocks::new(group_rows, *k, seed)?),
        })
    }
}

impl fmt::Display for OrderSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sequential => f.pad("sequential"),
            Self::Global => f.pad("global"),
            Self::Torch => f.pad("torch"),
            Self::Blocks(Blocks::ALL) => f.pad("blocks(all)"),
            Self::Blocks(k) => f.pad(&format!("blocks({k})")),
        }
    }
}

impl FromStr for OrderSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "sequential" => return Ok(Self::Sequential),
            "global" => return Ok(Self::Global),
            "torch" => return Ok(Self::Torch),
            _ => {}
        }
        let Some(k) = text.strip_prefix("blocks") else {
            return Err(invalid(format!("no order is called {text:?}"))
                .with_hint("use global, sequential, torch, or blocks(8), blocks(all) and the like"));
        };
        let inside = k.strip_prefix('(').and_then(|k| k.strip_suffix(')')).or_else(|| k.strip_prefix(':'));
        match inside {
            Some("all") => Ok(Self::Blocks(Blocks::ALL)),
            // Digits only: a number is also parsed with a sign.
            Some(k) if k.bytes().all(|digit| digit.is_ascii_digit()) && k.parse().is_ok_and(|k: u64| k > 0) => {
                Ok(Self::Blocks(k.parse().unwrap_or(Blocks::ALL)))
            }
            _ => Err(invalid(format!("{text:?} does not say how many row groups to shuffle at a time"))
                .with_hint("write blocks(8) or blocks:8, with any number from 1 on, or blocks(all)")),
        }
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_as_they_are_written_and_as_the_orders_call_themselves() {
        use OrderSpec::{Blocks, Global, Sequential, Torch};
        for spec in [Sequential, Global, Torch, Blocks(1), Blocks(8), Blocks(super::Blocks::ALL)] {
            let name = spec.to_string();
            assert_eq!(name.parse::<OrderSpec>().unwrap(), spec);
            let orders = spec.orders(&[3, 0, 4], 5).unwrap();
            assert_eq!((orders.len(), orders.name()), (7, name.split('(').next().unwrap()));
        }
        for (text, k) in [("blocks:8", 8), ("blocks(8)", 8), ("blocks:all", u64::MAX), ("blocks(08)", 8)] {
            assert_eq!(text.parse::<OrderSpec>().unwrap(), Blocks(k));
        }
        let bad = [
            "blocks",
            "blocks()",
            "blocks(",
            "blocks(0)",
            "blocks:0",
            "blocks(-1)",
            "blocks(+1)",
            "blocks(8",
            "blocks:8)",
            "blocks8",
        ];
        for text in ["", "Global", "global ", "globul", "blocks(99999999999999999999)"].into_iter().chain(bad) {
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
