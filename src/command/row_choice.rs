//! Which rows are served at all, and how often, as it is asked for on the command line.
//!
//! One order of things: `--skip`, `--split` and `--where` leave rows out; an order over the rows that are left
//! (`--order`, `--weights` or `--balance`) says which comes where; `--epoch-size` says after how many an epoch ends.

use std::path::PathBuf;

use clap::Args;
use rowdex::order::{IdSet, OrderSpec, Recipe};
use rowdex::{Dataset, Index};

use crate::command::condition::ConditionArgs;
use crate::command::failure::Failure;
use crate::command::split_args::SplitArgs;

/// Which rows, and how often.
#[derive(Debug, Clone, Args)]
pub(crate) struct RowChoiceArgs {
    /// Leave out the rows listed in this file: text with a row id, a range like 10..20, or a place (a.parquet,
    /// a.parquet:2, a.parquet:2:10..20) a line, or a table of rows in CSV or Parquet (see `rowdex select --help`).
    #[arg(long, value_name = "FILE")]
    skip: Option<PathBuf>,

    #[command(flatten)]
    condition: ConditionArgs,

    #[command(flatten)]
    split: SplitArgs,

    /// Draw rows in proportion to the weights in this column, with replacement, instead of following an order.
    #[arg(long, value_name = "COLUMN", conflicts_with_all = ["order", "balance"])]
    weights: Option<String>,

    /// Take the weights from the column of this list instead of the data: a table of rows in CSV or Parquet (see
    /// `rowdex select --help`), or a folder of these. Every row that is served needs a weight there.
    #[arg(long, value_name = "LIST", requires = "weights")]
    weights_from: Option<PathBuf>,

    /// Draw no row twice in an epoch, which then ends with the last row that has a weight unless --epoch-size ends it
    /// before.
    #[arg(long, requires = "weights")]
    pub(crate) without_replacement: bool,

    /// Serve all classes equally often: rows with equal values in this column are one. Rows of small classes repeat.
    #[arg(long, value_name = "COLUMN", conflicts_with = "order")]
    balance: Option<String>,

    /// End an epoch after so many rows over all ranks. The next one goes on where it stopped, or draws anew with
    /// --weights [default: as many as there are rows].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) epoch_size: Option<u64>,
}

impl RowChoiceArgs {
    /// All rows, as the order has them.
    pub(crate) const ALL: Self = Self {
        skip: None,
        condition: ConditionArgs::NONE,
        split: SplitArgs::NONE,
        weights: None,
        weights_from: None,
        without_replacement: false,
        balance: None,
        epoch_size: None,
    };

    /// Whether values of a column decide how often a row comes.
    pub(crate) fn draws(&self) -> bool {
        self.weights.is_some() || self.balance.is_some()
    }

    /// Whether values of a column decide.
    fn reads_columns(&self) -> bool {
        let draws = self.draws() && self.weights_from.is_none();
        draws || self.split.reads_column() || !self.condition.is_empty()
    }

    /// What to order where nothing is known but the number of rows.
    pub(crate) fn recipe_without_index(&self, order: OrderSpec) -> Result<Recipe<'static>, Failure> {
        if self.draws()
            || self.reads_columns()
            || self.skip.is_some()
            || !self.split.is_empty()
            || self.epoch_size.is_some()
        {
            return Err(Failure::usage("rows can be chosen, weighted or balanced only with an index"));
        }
        Ok(Recipe::new(order))
    }

    /// What to order, and how many rows there are to serve; columns are read from `dataset`.
    pub(crate) fn recipe(
        &self,
        order: OrderSpec,
        index: &Index,
        dataset: impl FnOnce() -> Result<Dataset, Failure>,
    ) -> Result<(Recipe<'static>, u64), Failure> {
        self.condition.check()?;
        let dataset = if self.reads_columns() { Some(dataset()?) } else { None };
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
        let recipe = match (&self.weights, &self.balance) {
            (Some(name), _) => {
                let weights = match &self.weights_from {
                    Some(list) => index.read_weights(list, name, kept.as_ref())?,
                    None => column(name)?.weights()?,
                };
                Recipe::weighted(weights).with_column(name).with_replacement(!self.without_replacement)
            }
            (None, Some(name)) => Recipe::balanced(column(name)?.labels()?.codes().to_vec()).with_column(name),
            (None, None) => Recipe::new(order),
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
        if let Some(rows) = self.split.rows(index, dataset, kept.as_ref())? {
            kept = Some(rows);
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
