//! One side of a split by hash, as one text on the command line.

use std::str::FromStr;

use rowdex::order::{IdSet, Side, Split};
use rowdex::{Dataset, Index, Select};

use crate::command::failure::{Failure, said};

/// `train` or `validation`, and then `fraction=F`, `seed=S` and `by=COLUMN` with commas between them.
#[derive(Debug, Clone)]
pub(crate) struct SplitArg {
    side: Side,
    fraction: f64,
    seed: u64,
    by: Option<String>,
}

impl FromStr for SplitArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let side = parts.next().unwrap_or_default().parse().map_err(|error: rowdex::Error| said(&error))?;
        let mut split = Self { side, fraction: 0.1, seed: 0, by: None };
        for part in parts {
            let bad = || format!("{part:?} is none of fraction=F, seed=S and by=COLUMN");
            match part.split_once('=').ok_or_else(bad)? {
                ("fraction", fraction) => split.fraction = fraction.parse().map_err(|_| bad())?,
                ("seed", seed) => split.seed = seed.parse().map_err(|_| bad())?,
                ("by", column) => split.by = Some(column.to_owned()),
                _ => return Err(bad()),
            }
        }
        Split::new(split.fraction, split.seed).map_err(|error| said(&error))?;
        Ok(split)
    }
}

impl SplitArg {
    /// Whether values of a column decide.
    pub(crate) fn reads_column(&self) -> bool {
        self.by.is_some()
    }

    /// The rows on the side, of those in `of`. A column is read from `dataset`.
    pub(crate) fn rows(&self, index: &Index, dataset: Option<&Dataset>, of: Option<&IdSet>) -> Result<IdSet, Failure> {
        let split = Split::new(self.fraction, self.seed)?;
        Ok(match (self.by.as_ref().zip(dataset), of) {
            (Some((name, dataset)), Some(of)) => dataset.column(name).of(of).split(&split, self.side)?,
            (Some((name, dataset)), None) => dataset.column(name).split(&split, self.side)?,
            (None, Some(of)) => split.rows(self.side, index.len())?.intersection(of)?,
            (None, None) => split.rows(self.side, index.len())?,
        })
    }

    /// The same choice for a view.
    pub(crate) fn choose(&self, select: Select) -> Select {
        match &self.by {
            Some(column) => select.split_by(column, self.side, self.fraction, self.seed),
            None => select.split(self.side, self.fraction, self.seed),
        }
    }
}
