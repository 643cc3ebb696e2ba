//! The order of the rows, as one text on the command line.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use rowdex::order::{OrderSpec, Partition};

use crate::command::failure::said;

/// `global`, `blocks:8,contiguous`, `weighted:w,from=list.parquet,once`, `balanced:label,size=1000` or `file:order.bin`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OrderArg {
    pub(crate) kind: OrderKindArg,
    /// After how many rows an epoch ends, if not after all.
    pub(crate) size: Option<u64>,
    pub(crate) partition: Partition,
}

/// What decides which row comes where.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum OrderKindArg {
    Named(OrderSpec),
    /// Row ids in a file, as little-endian integers of 64 bits.
    Listed(PathBuf),
    /// Rows drawn in proportion to a column of the data, or of a list; each at most once in an epoch, or repeatedly.
    Weighted {
        column: String,
        from: Option<PathBuf>,
        once: bool,
    },
    Balanced(String),
}

impl OrderArg {
    pub(crate) const GLOBAL: Self =
        Self { kind: OrderKindArg::Named(OrderSpec::Global), size: None, partition: Partition::Strided };
}

impl FromStr for OrderArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (text, partition) = match text.strip_suffix(",contiguous") {
            Some(text) => (text, Partition::Contiguous),
            None => (text, Partition::Strided),
        };
        let (text, size) = match text.rsplit_once(",size=") {
            Some((text, size)) => match size.parse() {
                Ok(size) if size > 0 => (text, Some(size)),
                _ => return Err(format!("{size:?} is no number of rows from 1 on")),
            },
            None => (text, None),
        };
        let kind = match text.split_once(':') {
            Some(("file", path)) => OrderKindArg::Listed(path.into()),
            Some(("balanced", column)) => OrderKindArg::Balanced(column.to_owned()),
            Some(("weighted", given)) => weighted(given),
            _ => OrderKindArg::Named(text.parse().map_err(|error: rowdex::Error| said(&error))?),
        };
        Ok(Self { kind, size, partition })
    }
}

fn weighted(text: &str) -> OrderKindArg {
    let (text, once) = match text.strip_suffix(",once") {
        Some(text) => (text, true),
        None => (text, false),
    };
    let (column, from) = match text.split_once(",from=") {
        Some((column, list)) => (column, Some(list.into())),
        None => (text, None),
    };
    OrderKindArg::Weighted { column: column.to_owned(), from, once }
}

impl fmt::Display for OrderArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            OrderKindArg::Named(order) => write!(f, "{order}")?,
            OrderKindArg::Listed(path) => write!(f, "file:{}", path.display())?,
            OrderKindArg::Balanced(column) => write!(f, "balanced:{column}")?,
            OrderKindArg::Weighted { column, from, once } => {
                write!(f, "weighted:{column}")?;
                from.iter().try_for_each(|list| write!(f, ",from={}", list.display()))?;
                f.write_str(if *once { ",once" } else { "" })?;
            }
        }
        self.size.iter().try_for_each(|size| write!(f, ",size={size}"))?;
        f.write_str(if self.partition == Partition::Contiguous { ",contiguous" } else { "" })
    }
}
