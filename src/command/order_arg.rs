//! The order of the rows, as one text on the command line.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use rowdex::dataset::Column;
use rowdex::index::order_file;
use rowdex::order::{IdSet, OrderSpec, Partition, Recipe, RecipeBase};
use rowdex::select::ListOfRows;
use rowdex::{Dataset, Index};

use crate::command::failure::Failure;

/// `global,paired`, `blocks:8,contiguous`, `weighted:w,from=w.parquet,once`, `balanced:label,size=9`, `file:order.bin`.
#[derive(Debug, Clone)]
pub(crate) struct OrderArg {
    pub(crate) kind: OrderKindArg,
    /// After how many rows an epoch ends, if not after all.
    pub(crate) size: Option<u64>,
    /// Whether every second epoch is the one before it backwards.
    pub(crate) paired: bool,
    pub(crate) partition: Partition,
}

/// What decides which row comes where.
#[derive(Debug, Clone)]
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
    /// Rows sorted by recorded lengths of this name, or else by a column, in so many folds.
    Scored(String, u64),
}

impl FromStr for OrderArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (text, partition) = match text.strip_suffix(",contiguous") {
            Some(text) => (text, Partition::Contiguous),
            None => (text, Partition::Strided),
        };
        let paired = text.strip_suffix(",paired");
        let text = paired.unwrap_or(text);
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
            Some(("scored", given)) => {
                let (column, folds) = given.rsplit_once(",folds=").unwrap_or((given, "1"));
                let folds = folds.parse().map_err(|_| format!("{folds:?} is no number of folds"))?;
                OrderKindArg::Scored(column.to_owned(), folds)
            }
            Some(("weighted", given)) => {
                let column = given.strip_suffix(",once").unwrap_or(given);
                let (name, from) =
                    column.split_once(",from=").map_or((column, None), |(name, list)| (name, Some(list)));
                OrderKindArg::Weighted {
                    column: name.to_owned(),
                    from: from.map(PathBuf::from),
                    once: column.len() < given.len(),
                }
            }
            _ => OrderKindArg::Named(text.parse().map_err(|error: rowdex::Error| error.to_string())?),
        };
        Ok(Self { kind, size, paired: paired.is_some(), partition })
    }
}

impl OrderArg {
    pub(crate) fn has_seed(&self) -> bool {
        !matches!(self.kind, OrderKindArg::Named(OrderSpec::Sequential) | OrderKindArg::Listed(_))
    }

    /// What to order, and how many rows there are to serve: those of a view, if there is `only` one. Columns are read
    /// from `dataset`.
    pub(crate) fn recipe(
        &self,
        only: Option<&Path>,
        index: &Index,
        dataset: impl FnOnce() -> Result<Dataset, Failure>,
    ) -> Result<(Recipe<'static>, u64), Failure> {
        let kept = only.map(|view| index.rows_of(&Index::open(view)?)).transpose()?;
        let rows = kept.as_ref().map_or(index.len(), IdSet::len);
        if rows == 0 && !index.is_empty() {
            return Err(Failure::new(format!("none of {} rows is left to be served", index.len())));
        }
        let mut origin = None;
        let base = match &self.kind {
            OrderKindArg::Named(order) => RecipeBase::Named(*order),
            OrderKindArg::Listed(path) => {
                if kept.is_some() || self.size.is_some() {
                    return Err(Failure::usage("a file of row ids is all that is served: leave out other choices"));
                }
                origin = Some(path.display().to_string());
                RecipeBase::Explicit(order_file(path)?)
            }
            OrderKindArg::Weighted { column: name, from, .. } => {
                let weights = match from {
                    Some(list) => ListOfRows::from(list).weights(index, name, kept.as_ref())?,
                    None => column(&dataset()?, name, kept.as_ref()).weights()?,
                };
                origin = Some(name.clone());
                RecipeBase::Weighted(weights.into())
            }
            OrderKindArg::Scored(name, folds) => {
                let scores = match index.lengths_columns()?.contains(&name.as_str()) {
                    true => recorded(index, name, kept.as_ref())?,
                    false => column(&dataset()?, name, kept.as_ref()).weights()?,
                };
                origin = Some(name.clone());
                RecipeBase::Scored { scores: scores.into(), folds: *folds, block: 4096 }
            }
            OrderKindArg::Balanced(name) => {
                let labels = column(&dataset()?, name, kept.as_ref()).labels()?;
                origin = Some(name.clone());
                RecipeBase::Balanced(labels.codes.to_vec().into())
            }
        };
        let without_replacement = matches!(self.kind, OrderKindArg::Weighted { once: true, .. });
        let kept = kept.map(Arc::new);
        let recipe = Recipe { size: self.size, paired: self.paired, ..Recipe::of(base) };
        Ok((Recipe { origin, without_replacement, kept, ..recipe }, rows))
    }
}

/// The recorded lengths of the rows that are kept, as scores.
fn recorded(index: &Index, name: &str, kept: Option<&IdSet>) -> Result<Vec<f64>, Failure> {
    let mut found = Vec::new();
    index.lengths(name)?.read(0..index.len(), &mut found)?;
    if let Some(kept) = kept {
        found = kept.iter().map(|row| found[row as usize]).collect();
    }
    Ok(found.into_iter().map(|length| length as f64).collect())
}

fn column<'a>(dataset: &'a Dataset, name: &str, kept: Option<&'a IdSet>) -> Column<'a> {
    let column = dataset.column(name);
    match kept {
        Some(kept) => column.of(kept),
        None => column,
    }
}
