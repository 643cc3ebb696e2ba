//! One side of a split by hash, as it is asked for on the command line.

use clap::Args;
use rowdex::order::{IdSet, Side, Split};
use rowdex::{Dataset, Index, Select};

use crate::command::args::named;
use crate::command::failure::Failure;

/// Which side of which split, if any.
#[derive(Debug, Clone, Args)]
pub(crate) struct SplitArgs {
    /// Only this side of a split by hash, `train` or `validation`. A row keeps its side when files are appended.
    #[arg(long, value_name = "SIDE", value_parser = named::<Side>(&["train", "validation"]))]
    split: Option<Side>,

    /// The fraction of the rows, or of the keys, that is for validation.
    #[arg(long, value_name = "F", default_value_t = 0.1, requires = "split")]
    split_fraction: f64,

    /// Split by the values of this column instead of by row id: rows with equal values are on one side.
    #[arg(long, value_name = "COLUMN", requires = "split")]
    split_by: Option<String>,

    /// Another split for another seed. Other seeds, as that of a shuffle, have nothing to do with it.
    #[arg(long, value_name = "S", default_value_t = 0, requires = "split")]
    split_seed: u64,
}

impl SplitArgs {
    pub(crate) const NONE: Self = Self { split: None, split_fraction: 0.1, split_by: None, split_seed: 0 };

    pub(crate) fn is_empty(&self) -> bool {
        self.split.is_none()
    }

    /// Whether values of a column decide.
    pub(crate) fn reads_column(&self) -> bool {
        self.split_by.is_some()
    }

    fn split(&self) -> Result<Split, Failure> {
        Split::new(self.split_fraction, self.split_seed).map_err(Failure::usage)
    }

    /// The rows on the side that is asked for, of those in `of`; nothing if no side is. A column is read from
    /// `dataset`.
    pub(crate) fn rows(
        &self,
        index: &Index,
        dataset: Option<&Dataset>,
        of: Option<&IdSet>,
    ) -> Result<Option<IdSet>, Failure> {
        let Some(side) = self.split else { return Ok(None) };
        let split = self.split()?;
        let rows = match (self.split_by.as_ref().zip(dataset), of) {
            (Some((name, dataset)), Some(of)) => dataset.column(name).of(of).split(&split, side)?,
            (Some((name, dataset)), None) => dataset.column(name).split(&split, side)?,
            (None, Some(of)) => split.rows(side, index.len())?.intersection(of)?,
            (None, None) => split.rows(side, index.len())?,
        };
        Ok(Some(rows))
    }

    /// The same choice for a view.
    pub(crate) fn choose(&self, select: Select) -> Result<Select, Failure> {
        let Some(side) = self.split else { return Ok(select) };
        self.split()?;
        Ok(match &self.split_by {
            Some(column) => select.split_by(column, side, self.split_fraction, self.split_seed),
            None => select.split(side, self.split_fraction, self.split_seed),
        })
    }
}
