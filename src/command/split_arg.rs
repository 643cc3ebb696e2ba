//! One side of a split by hash, as one text on the command line.

use std::str::FromStr;

use rowdex::Select;
use rowdex::order::{Side, Split};

/// `train` or `validation`, and then `validation_fraction=F`, `seed=S` and `by=COLUMN` with commas between them.
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
        let side = parts.next().unwrap_or_default().parse().map_err(|error: rowdex::Error| error.to_string())?;
        let mut split = Self { side, fraction: 0.1, seed: 0, by: None };
        for part in parts {
            let bad = || format!("{part:?} is none of validation_fraction=F, seed=S and by=COLUMN");
            match part.split_once('=').ok_or_else(bad)? {
                ("validation_fraction", fraction) => split.fraction = fraction.parse().map_err(|_| bad())?,
                ("seed", seed) => split.seed = seed.parse().map_err(|_| bad())?,
                ("by", column) => split.by = Some(column.to_owned()),
                _ => return Err(bad()),
            }
        }
        Split::new(split.fraction, split.seed).map_err(|error| error.to_string())?;
        Ok(split)
    }
}

impl SplitArg {
    /// The same choice for a view.
    pub(crate) fn choose(&self, select: Select) -> Select {
        match &self.by {
            Some(column) => select.split_by(column, self.side, self.fraction, self.seed),
            None => select.split(self.side, self.fraction, self.seed),
        }
    }
}
