//! Which rows come in which order.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;

use super::{GivenPath, Operands, invalid};
use rowdex_base::error::Result;
use rowdex_index::{Index, order_file};
use rowdex_order::{Order, OrderSpec, Recipe, RecipeBase, RowLayout, StagePlan};

/// Which rows come in which order, in epochs of which size, as [`Recipe`] makes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OrderDescription {
    /// How many rows there are, where there is no index.
    rows: Option<u64>,
    /// How many rows each row group has, where there is no index.
    row_groups: Option<Vec<u64>>,
    order: Option<String>,
    row_ids: Option<usize>,
    file: Option<GivenPath>,
    weights: Option<usize>,
    /// An array of scores, folds, and neighbours that are shuffled.
    scored: Option<(usize, u64, u64)>,
    labels: Option<usize>,
    parts: Option<Vec<Self>>,
    inner: Option<Box<Self>>,
    proportions: Option<Vec<f64>>,
    stages: Option<StagePlan>,
    kept: Option<usize>,
    size: Option<u64>,
    #[serde(default)]
    pub(crate) seed: u64,
    paired: Option<bool>,
    shards: Option<u32>,
    rotated: Option<bool>,
    permutation: Option<bool>,
    replacement: Option<bool>,
}

impl OrderDescription {
    pub(crate) fn orders<'a>(&self, given: &impl Operands<'a>) -> Result<Arc<dyn Order>> {
        let rows = match (given.indexes(), self.rows, &self.row_groups) {
            ([], Some(rows), None) => RowLayout::of_rows(rows),
            ([], None, Some(groups)) => RowLayout::of_groups(groups.iter().copied()),
            ([index], None, None) => index.layout(),
            ([], None, None) => {
                return Err(invalid("order: there are no rows to order")
                    .with_hint("give an index, or say `rows` or `row_groups`"));
            }
            (indexes, None, None) => RowLayout::of_datasets(indexes.iter().map(Index::layout)),
            _ => return Err(invalid("order: indexes, `rows` and `row_groups` exclude each other")),
        };
        self.recipe(given)?.orders(&rows)
    }

    /// What is described apart from the rows.
    fn recipe<'a>(&self, given: &impl Operands<'a>) -> Result<Recipe<'a>> {
        Ok(Recipe {
            base: self.base(given)?,
            origin: self.file.as_ref().map(|file| file.as_ref().display().to_string()),
            permutation: self.permutation == Some(true),
            without_replacement: self.replacement == Some(false),
            proportions: self.proportions.clone().map(Cow::Owned),
            stages: self.stages.clone(),
            kept: self.kept.map(|kept| given.set(kept).cloned()).transpose()?,
            size: self.size,
            paired: self.paired == Some(true),
            shards: self.shards,
            rotated: self.rotated == Some(true),
            seed: self.seed,
        })
    }

    /// The order that is named or listed.
    fn base<'a>(&self, given: &impl Operands<'a>) -> Result<RecipeBase<'a>> {
        let mut bases = Vec::new();
        if let Some(name) = &self.order {
            bases.push(RecipeBase::Named(name.parse()?));
        }
        if let Some(ids) = self.row_ids {
            bases.push(RecipeBase::Explicit(given.row_ids(ids)?.into()));
        }
        if let Some(path) = &self.file {
            bases.push(RecipeBase::Explicit(order_file(path)?));
        }
        if let Some(weights) = self.weights {
            bases.push(RecipeBase::Weighted(given.weights(weights)?.into()));
        }
        if let Some((scores, folds, block)) = self.scored {
            bases.push(RecipeBase::Scored { scores: given.weights(scores)?.into(), folds, block });
        }
        if let Some(labels) = self.labels {
            bases.push(RecipeBase::Balanced(given.labels(labels)?.into()));
        }
        if let Some(parts) = &self.parts {
            bases.push(RecipeBase::Mixed(parts.iter().map(|part| part.within(given)).collect::<Result<_>>()?));
        }
        if let Some(inner) = &self.inner {
            bases.push(RecipeBase::Around(Box::new(inner.within(given)?)));
        }
        match (bases.pop(), bases.is_empty()) {
            (None, _) => Ok(RecipeBase::Named(OrderSpec::default())),
            (Some(base), true) => Ok(base),
            (Some(_), false) => Err(invalid(
                "order: `order`, `row_ids`, `file`, `weights`, `scored`, `labels`, `parts` and `inner` exclude each \
                 other",
            )
            .with_hint("say one of them, or none for the order \"global\"")),
        }
    }

    /// What is described within another order, which has the rows.
    fn within<'a>(&self, given: &impl Operands<'a>) -> Result<Recipe<'a>> {
        if self.rows.is_some() || self.row_groups.is_some() {
            return Err(invalid("order: an order within another one has its own rows")
                .with_hint("say `rows` or `row_groups` in the outermost order alone"));
        }
        self.recipe(given)
    }
}
