//! Which rows are served at all, as it is asked for on the command line.
//!
//! `--only` leaves rows out; `--order` says which of the rows that are left comes where, and after how many an epoch
//! ends.

use std::path::PathBuf;

use clap::Args;
use rowdex::dataset::Column;
use rowdex::order::{IdSet, Recipe};
use rowdex::select::ListOfRows;
use rowdex::{Dataset, Index};

use crate::command::failure::Failure;
use crate::command::order_arg::{OrderArg, OrderKindArg};

/// Which rows.
#[derive(Debug, Clone, Args)]
pub(crate) struct RowChoiceArgs {
    /// Serve only the rows that this view of INDEX serves, too, by their row ids in INDEX: `rowdex select` writes one.
    #[arg(long, value_name = "VIEW")]
    only: Option<PathBuf>,
}

impl RowChoiceArgs {
    /// All rows.
    pub(crate) const ALL: Self = Self { only: None };

    /// What to order, and how many rows there are to serve; columns are read from `dataset`.
    pub(crate) fn recipe(
        &self,
        order: &OrderArg,
        index: &Index,
        dataset: impl FnOnce() -> Result<Dataset, Failure>,
    ) -> Result<(Recipe<'static>, u64), Failure> {
        let kept = self.only.as_ref().map(|view| index.rows_of(&Index::open(view)?)).transpose()?;
        let rows = kept.as_ref().map_or(index.len(), IdSet::len);
        if rows == 0 && !index.is_empty() {
            return Err(Failure::new(format!("none of {} rows is left to be served", index.len())));
        }
        let recipe = match &order.kind {
            OrderKindArg::Named(order) => Recipe::new(*order),
            OrderKindArg::Listed(path) => {
                if kept.is_some() || order.size.is_some() {
                    return Err(Failure::usage("a file of row ids is all that is served: leave out other choices"));
                }
                let name = path.display().to_string();
                let file = rowdex::index::OrderFile::open(path).map_err(|error| error.with_file(name.clone()))?;
                return Ok((Recipe::explicit_le_bytes(file).with_file(name), rows));
            }
            OrderKindArg::Weighted { column: name, from, once } => {
                let weights = match from {
                    Some(list) => ListOfRows::from(list).weights(index, name, kept.as_ref())?,
                    None => column(&dataset()?, name, kept.as_ref()).weights()?,
                };
                Recipe::weighted(weights).with_column(name).with_replacement(!once)
            }
            OrderKindArg::Balanced(name) => {
                let labels = column(&dataset()?, name, kept.as_ref()).labels()?;
                Recipe::balanced(labels.codes().to_vec()).with_column(name)
            }
        };
        let recipe = match kept {
            Some(kept) => recipe.with_kept(kept),
            None => recipe,
        };
        Ok((if let Some(size) = order.size { recipe.with_size(size) } else { recipe }, rows))
    }
}

fn column<'a>(dataset: &'a Dataset, name: &str, kept: Option<&'a IdSet>) -> Column<'a> {
    let column = dataset.column(name);
    match kept {
        Some(kept) => column.of(kept),
        None => column,
    }
}
