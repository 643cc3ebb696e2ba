//! Which rows are served at all, and how often, as it is asked for on the command line.
//!
//! One order of things: `--skip`, `--split` and `--where` leave rows out; `--order` says which of the rows that are
//! left comes where; `--epoch-size` says after how many an epoch ends.

use std::path::PathBuf;

use clap::Args;
use rowdex::order::{IdSet, Recipe};
use rowdex::{Dataset, Index};

use crate::command::condition::ConditionArgs;
use crate::command::failure::Failure;
use crate::command::order_arg::OrderKindArg;
use crate::command::split_arg::SplitArg;

/// Which rows, and how often.
#[derive(Debug, Clone, Args)]
pub(crate) struct RowChoiceArgs {
    /// Leave out the rows listed in this file: text with a row id, a range like 10..20, or a place (a.parquet,
    /// a.parquet:2, a.parquet:2:10..20) a line, or a table of rows in CSV or Parquet (see `rowdex select --help`).
    #[arg(long, value_name = "FILE")]
    skip: Option<PathBuf>,

    #[command(flatten)]
    condition: ConditionArgs,

    /// Only this side of a split by hash, `train` or `validation`, and then with commas `fraction=F` of the rows for
    /// validation (0.1), `seed=S` for another split, `by=COLUMN` for rows with equal values on one side. A row keeps
    /// its side when files are appended.
    #[arg(long, value_name = "SIDE")]
    split: Option<SplitArg>,

    /// End an epoch after so many rows over all ranks. The next one goes on where it stopped, or draws anew where rows
    /// are drawn by weight [default: as many as there are rows].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) epoch_size: Option<u64>,
}

impl RowChoiceArgs {
    /// All rows, as the order has them.
    pub(crate) const ALL: Self = Self { skip: None, condition: ConditionArgs::NONE, split: None, epoch_size: None };

    /// Whether some rows may be left out.
    fn leaves_out(&self) -> bool {
        self.skip.is_some() || self.split.is_some() || !self.condition.is_empty()
    }

    /// What to order, and how many rows there are to serve; columns are read from `dataset`.
    pub(crate) fn recipe(
        &self,
        order: &OrderKindArg,
        index: &Index,
        dataset: impl FnOnce() -> Result<Dataset, Failure>,
    ) -> Result<(Recipe<'static>, u64), Failure> {
        self.condition.check()?;
        let reads_columns = !self.condition.is_empty()
            || self.split.as_ref().is_some_and(SplitArg::reads_column)
            || matches!(order, OrderKindArg::Balanced(_) | OrderKindArg::Weighted { from: None, .. });
        let dataset = if reads_columns { Some(dataset()?) } else { None };
        let kept = self.kept(index, dataset.as_ref())?;
        let rows = kept.as_ref().map_or(index.len(), IdSet::len);
        if rows == 0 && !index.is_empty() {
            return Err(Failure::new(format!("none of {} rows is left to be served", index.len())));
        }
        let column = |name: &str| {
            let column = dataset.as_ref().map(|dataset| dataset.column(name));
            let column = column.ok_or_else(|| Failure::new("there is no dataset to read a column of"))?;
            Ok::<_, Failure>(match &kept {
                Some(kept) => column.of(kept),
                None => column,
            })
        };
        let recipe = match order {
            OrderKindArg::Named(order) => Recipe::new(*order),
            OrderKindArg::Listed(path) => {
                if self.leaves_out() || self.epoch_size.is_some() {
                    return Err(Failure::usage("a file of row ids is all that is served: leave out other choices"));
                }
                let name = path.display().to_string();
                let file = rowdex::index::OrderFile::open(path).map_err(|error| error.with_file(name.clone()))?;
                return Ok((Recipe::explicit_le_bytes(file).with_file(name), rows));
            }
            OrderKindArg::Weighted { column: name, from, once } => {
                let weights = match from {
                    Some(list) => index.read_weights(list, name, kept.as_ref())?,
                    None => column(name)?.weights()?,
                };
                Recipe::weighted(weights).with_column(name).with_replacement(!once)
            }
            OrderKindArg::Balanced(name) => {
                Recipe::balanced(column(name)?.labels()?.codes().to_vec()).with_column(name)
            }
        };
        let recipe = match kept {
            Some(kept) => recipe.with_kept(kept),
            None => recipe,
        };
        Ok((if let Some(size) = self.epoch_size { recipe.with_size(size) } else { recipe }, rows))
    }

    /// The rows that are not left out; nothing if all of them are served.
    fn kept(&self, index: &Index, dataset: Option<&Dataset>) -> Result<Option<IdSet>, Failure> {
        let mut kept = match &self.skip {
            Some(list) => Some(index.listed_rows(list)?.complement()?),
            None => None,
        };
        if let Some(split) = &self.split {
            kept = Some(split.rows(index, dataset, kept.as_ref())?);
        }
        // Last, because it reads what is left.
        if let Some(dataset) = dataset
            && let Some(rows) = self.condition.rows(dataset, kept.as_ref())?
        {
            kept = Some(rows);
        }
        Ok(kept)
    }
}
