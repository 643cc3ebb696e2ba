//! One description of which rows come in which order, and the orders that follow from it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::{
    Balanced, Contiguous, Explicit, ExplicitIds, IdSet, Mixed, MixedPart, Order, OrderSpec, Paired, Resized, Rotated,
    RowLayout, Scored, StagePlan, Staged, Subset, Weighted,
};
use rowdex_base::error::{Error, Result};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Which rows come in which order, in epochs of which size: the value that the command line, C and Python hand over.
///
/// A recipe names an order and changes it. [`orders`](Self::orders) applies the changes in one fixed sequence: `kept`,
/// `size`, `paired`, `shards`, `rotated`. [`RecipeBase::Around`] takes the orders of another recipe in the place of
/// those with a name, which allows any other sequence. A recipe that has an option its order cannot honour is refused.
///
/// ```
/// use std::sync::Arc;
/// # mod rowdex { pub use rowdex_base::error::Result; pub use rowdex_order as order; }
/// use rowdex::order::{IdSet, OrderSpec, Recipe, RecipeBase, RowLayout};
///
/// # fn main() -> rowdex::Result<()> {
/// let rows = RowLayout::of_groups([600, 400]);
/// let kept = Some(Arc::new(IdSet::from_ids(1000, [7, 8])?.complement()?));
/// let base = RecipeBase::Named(OrderSpec::Blocks(2));
/// let recipe = Recipe { kept, size: Some(500), seed: 42, ..Recipe::of(base) };
/// assert_eq!(recipe.orders(&rows)?.len(), 500);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Recipe<'a> {
    /// What decides the sequence.
    pub base: RecipeBase<'a>,
    /// The file that row ids come from, or the column that weights or labels come from, for errors.
    pub origin: Option<String>,
    /// Refuses a list of row ids that does not have every row exactly once.
    pub permutation: bool,
    /// Whether rows that are drawn by weight come at most once in an epoch.
    pub without_replacement: bool,
    /// How often each class, or each dataset of a mixture, comes. Classes come equally often by default.
    pub proportions: Option<Cow<'a, [f64]>>,
    /// How weights of the datasets of a mixture change in the course of a run, in place of proportions. The orders of a
    /// dataset have a seed that comes from its name, and its own is added.
    pub stages: Option<StagePlan>,
    /// Serves these rows alone, see [`Subset`].
    pub kept: Option<Arc<IdSet>>,
    /// Epochs of so many positions. Weights, classes and mixtures draw that many; passes of any other order are
    /// [cut](Resized), unless they have that many anyway. Orders of [another recipe](RecipeBase::Around) are always
    /// cut.
    pub size: Option<u64>,
    /// Whether every second epoch is the one before it backwards, see [`Paired`].
    pub paired: bool,
    /// For how many shards positions are assigned [in pieces](Contiguous), if they are.
    pub shards: Option<u32>,
    /// Whether each epoch begins elsewhere, see [`Rotated`]. A sampler does this by itself where it is needed, see
    /// [`DistributedSampler::with_rotation`](crate::sampler::DistributedSampler::with_rotation).
    pub rotated: bool,
    /// The seed of the orders, the same on all ranks.
    pub seed: u64,
}

/// What decides the sequence of rows in a [`Recipe`].
#[derive(Debug, Clone)]
pub enum RecipeBase<'a> {
    /// One of the orders that have a name.
    Named(OrderSpec),
    /// These row ids in this order, see [`Explicit`].
    Explicit(ExplicitIds),
    /// Rows drawn by weight, see [`Weighted`]: a weight for each row, or for each row that is kept.
    ///
    /// An epoch has as many positions as there are weights; without replacement, as there are weights above 0.
    Weighted(Cow<'a, [f64]>),
    /// Rows by a score, see [`Scored`]: a score for each row, or for each row that is kept.
    Scored {
        /// Any numbers.
        scores: Cow<'a, [f64]>,
        /// How many sweeps an epoch has.
        folds: u64,
        /// How many neighbours are shuffled among each other.
        block: u64,
    },
    /// Classes by proportion, see [`Balanced`]: the class of each row, or of each row that is kept.
    ///
    /// An epoch has as many positions as there are labels.
    Balanced(Cow<'a, [u32]>),
    /// Several datasets by proportion, see [`Mixed`].
    ///
    /// The seed of dataset `i`, counted from 0, is the seed of the mixture plus `i + 1` plus that of its own recipe. An
    /// epoch has as many positions as the datasets have rows together.
    Mixed(Vec<Recipe<'a>>),
    /// The orders of another recipe, which is for the same rows, or for those that this one keeps. The seeds are added.
    ///
    /// Under a set of kept rows, the inner recipe takes those rows for one row group.
    Around(Box<Recipe<'a>>),
}

impl<'a> Recipe<'a> {
    /// With nothing changed.
    pub fn of(base: RecipeBase<'a>) -> Self {
        Self {
            base,
            origin: None,
            permutation: false,
            without_replacement: false,
            proportions: None,
            stages: None,
            kept: None,
            size: None,
            paired: false,
            shards: None,
            rotated: false,
            seed: 0,
        }
    }

    /// The orders over these rows.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for an option that the order cannot honour, and if weights, labels, kept rows or the recipes
    /// of a mixture are not as many as the rows or datasets. Otherwise those of the orders that the recipe names.
    pub fn orders(&self, rows: &RowLayout) -> Result<Arc<dyn Order>> {
        self.seeded(rows, self.seed)
    }

    fn seeded(&self, rows: &RowLayout, seed: u64) -> Result<Arc<dyn Order>> {
        self.check_options()?;
        let mut orders = match &self.kept {
            None => self.base(rows, seed)?,
            Some(kept) => {
                let left = rows.keep(kept)?;
                // Frozen: states that were saved carry the fingerprint of these orders.
                let left = if let RecipeBase::Named(_) = self.base { left } else { RowLayout::of_rows(left.rows()) };
                Arc::new(Subset::new(self.base(&left, seed)?, Arc::clone(kept))?)
            }
        };
        let always = matches!(self.base, RecipeBase::Around(_));
        if let Some(size) = self.size.filter(|size| always || *size != orders.len()) {
            orders = Arc::new(Resized::new(orders, size)?);
        }
        if self.paired {
            orders = Arc::new(Paired::new(orders));
        }
        if let Some(shards) = self.shards {
            orders = Arc::new(Contiguous::new(orders, shards)?);
        }
        if self.rotated {
            orders = Arc::new(Rotated::new(orders));
        }
        Ok(orders)
    }

    fn base(&self, rows: &RowLayout, seed: u64) -> Result<Arc<dyn Order>> {
        let orders: Result<Arc<dyn Order>> = match &self.base {
            RecipeBase::Named(spec) => spec.orders(&rows.group_rows(), seed),
            RecipeBase::Explicit(ids) => self.listed(ids.clone(), rows.rows()),
            RecipeBase::Weighted(weights) => self.drawn(weights, rows.rows(), seed),
            RecipeBase::Scored { scores, folds, block } => as_many(scores.len(), "scores", rows.rows())
                .and_then(|()| Ok(Arc::new(Scored::new(scores, *folds, *block, seed)?) as _)),
            RecipeBase::Balanced(labels) => self.classes(labels, rows.rows(), seed),
            RecipeBase::Mixed(recipes) => match &self.stages {
                Some(plan) => self.staged(recipes, plan, rows, seed),
                None => self.mixture(recipes, rows, seed),
            },
            RecipeBase::Around(recipe) => recipe.seeded(rows, seed.wrapping_add(recipe.seed)),
        };
        orders.map_err(|error| match (&self.base, &self.origin) {
            (RecipeBase::Explicit(_), Some(file)) => error.with_file(file),
            (_, Some(column)) => error.with_column(column),
            (_, None) => error,
        })
    }

    fn listed(&self, ids: ExplicitIds, rows: u64) -> Result<Arc<dyn Order>> {
        let orders = Explicit::of(ids, rows)?;
        if self.permutation {
            orders.check_permutation()?;
        }
        Ok(Arc::new(orders))
    }

    fn drawn(&self, weights: &[f64], rows: u64, seed: u64) -> Result<Arc<dyn Order>> {
        as_many(weights.len(), "weights", rows)?;
        Ok(Arc::new(if self.without_replacement {
            let possible = || weights.iter().filter(|weight| **weight > 0.0).count() as u64;
            Weighted::without_replacement(weights, self.size.unwrap_or_else(possible), seed)?
        } else {
            Weighted::with_replacement(weights, self.size.unwrap_or(rows), seed)?
        }))
    }

    fn classes(&self, labels: &[u32], rows: u64, seed: u64) -> Result<Arc<dyn Order>> {
        as_many(labels.len(), "labels", rows)?;
        let size = self.size.unwrap_or(rows);
        Ok(Arc::new(match &self.proportions {
            None => Balanced::new(labels, size, seed)?,
            Some(proportions) => Balanced::with_proportions(labels, proportions, size, seed)?,
        }))
    }

    fn mixture(&self, recipes: &[Self], rows: &RowLayout, seed: u64) -> Result<Arc<dyn Order>> {
        let proportions = self.proportions.as_deref().unwrap_or_default();
        if recipes.len() != proportions.len() {
            return Err(Error::invalid(format!("{} proportions for {} orders", proportions.len(), recipes.len())));
        }
        let datasets = datasets(rows, recipes.len(), "proportions")?;
        let parts = datasets.zip(recipes).zip(proportions).zip(1..).map(|(((rows, recipe), proportion), number)| {
            let orders = recipe.seeded(&rows, seed.wrapping_add(number).wrapping_add(recipe.seed))?;
            Ok(MixedPart::new(orders, rows.rows(), *proportion))
        });
        let parts = parts.collect::<Result<Vec<_>>>()?;
        Ok(Arc::new(Mixed::new(parts, self.size.unwrap_or(rows.rows()), seed)?))
    }

    fn staged(&self, recipes: &[Self], plan: &StagePlan, rows: &RowLayout, seed: u64) -> Result<Arc<dyn Order>> {
        let datasets: Vec<RowLayout> = datasets(rows, recipes.len(), "orders")?.collect();
        let orders = datasets.iter().zip(recipes).zip(&plan.sources).map(|((rows, recipe), name)| {
            let named = xxh3_64_with_seed(name.as_bytes(), seed);
            recipe.seeded(rows, named.wrapping_add(recipe.seed))
        });
        let orders = orders.collect::<Result<Vec<_>>>()?;
        let each: Vec<u64> = datasets.iter().map(RowLayout::rows).collect();
        Ok(Arc::new(Staged::new(plan, orders, &each, self.size.unwrap_or(rows.rows()), seed)?))
    }

    /// Refuses what the order cannot honour.
    fn check_options(&self) -> Result<()> {
        let refused = match &self.base {
            _ if self.permutation && !matches!(self.base, RecipeBase::Explicit(_)) => {
                "be required to have every row once"
            }
            _ if self.without_replacement && !matches!(self.base, RecipeBase::Weighted(_)) => {
                "draw without replacement"
            }
            _ if self.proportions.is_some() && !matches!(self.base, RecipeBase::Balanced(_) | RecipeBase::Mixed(_)) => {
                "have proportions"
            }
            _ if self.stages.is_some()
                && (self.proportions.is_some() || !matches!(self.base, RecipeBase::Mixed(_))) =>
            {
                "have stages, or stages beside proportions"
            }
            _ => return Ok(()),
        };
        Err(Error::invalid(format!("{self} orders cannot {refused}")))
    }
}

/// As people call the order: `global`, `weighted`, `blocks(8) in pieces`.
impl fmt::Display for Recipe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.base {
            RecipeBase::Named(order) => write!(f, "{order}")?,
            RecipeBase::Explicit(_) => f.write_str("explicit")?,
            RecipeBase::Weighted(_) => f.write_str("weighted")?,
            RecipeBase::Scored { .. } => f.write_str("scored")?,
            RecipeBase::Balanced(_) => f.write_str("balanced")?,
            RecipeBase::Mixed(_) => f.write_str("mixed")?,
            RecipeBase::Around(recipe) => write!(f, "{recipe}")?,
        }
        if let Some(origin) = &self.origin {
            write!(f, " ({origin})")?;
        }
        f.write_str(if self.without_replacement { " without replacement" } else { "" })
    }
}

/// The layouts of so many datasets.
fn datasets(rows: &RowLayout, orders: usize, what: &str) -> Result<impl ExactSizeIterator<Item = RowLayout>> {
    let datasets = rows.datasets();
    if datasets.len() == orders {
        return Ok(datasets);
    }
    Err(Error::invalid(format!("{orders} {what} for {} datasets", datasets.len())).with_hint(
        "give as many as there are datasets in the mixture; a mixture cannot be inside a subset or an epoch of another \
         size: put these into its orders",
    ))
}

fn as_many(numbers: usize, what: &str, rows: u64) -> Result<()> {
    if numbers as u64 == rows {
        return Ok(());
    }
    Err(Error::invalid(format!("{numbers} {what} for {rows} rows"))
        .with_hint(format!("give as many {what} as there are rows")))
}

#[cfg(test)]
mod tests {
    use super::RecipeBase::{Around, Named};
    use super::*;
    use crate::{Blocks, Global, Sequential};
    use rowdex_base::error::ErrorKind;

    fn same(recipe: &Recipe<'_>, rows: &RowLayout, orders: impl Order) {
        let made = recipe.orders(rows).unwrap();
        assert_eq!((made.name(), made.len(), made.fingerprint()), (orders.name(), orders.len(), orders.fingerprint()));
        for epoch in [0, 1, 5] {
            let (ours, theirs) = (made.epoch(epoch).unwrap(), orders.epoch(epoch).unwrap());
            assert!((0..orders.len()).all(|position| ours.row(position) == theirs.row(position)), "{recipe}");
        }
    }

    fn kept() -> Arc<IdSet> {
        Arc::new(IdSet::filter(60, |row| row % 3 > 0).unwrap())
    }

    fn named(name: &str, seed: u64) -> Recipe<'static> {
        Recipe { seed, ..Recipe::of(Named(name.parse().unwrap())) }
    }

    fn around(inner: Recipe<'_>) -> Recipe<'_> {
        Recipe::of(Around(Box::new(inner)))
    }

    /// What each recipe makes is what the orders make that it stands for, put together by hand: so states go on.
    #[test]
    fn a_recipe_makes_the_orders_that_it_names() {
        let rows = RowLayout::of_groups([10, 0, 20, 30]);
        let global = |n, seed| -> Arc<dyn Order> { Arc::new(Global::new(n, seed).unwrap()) };
        same(&named("global", 7), &rows, Global::new(60, 7).unwrap());
        same(&named("sequential", 7), &rows, Sequential::new(60).unwrap());
        same(&named("blocks(2)", 7), &rows, Blocks::new(&[10, 0, 20, 30], 2, 7).unwrap());
        let listed = RecipeBase::Explicit([3, 3, 59].into());
        same(&Recipe::of(listed), &rows, Explicit::new([3, 3, 59], 60).unwrap());
        let sized = |size, recipe| Recipe { size: Some(size), ..recipe };
        same(&sized(60, named("global", 7)), &rows, Global::new(60, 7).unwrap());
        same(&sized(25, named("global", 7)), &rows, Resized::new(global(60, 7), 25).unwrap());
        same(&sized(60, around(named("global", 7))), &rows, Resized::new(global(60, 7), 60).unwrap());
        let of_kept = |recipe| Recipe { kept: Some(kept()), ..recipe };
        same(&of_kept(named("global", 7)), &rows, Subset::new(global(40, 7), kept()).unwrap());
        let left: Arc<dyn Order> = Arc::new(Blocks::new(&[6, 0, 14, 20], 2, 7).unwrap());
        same(&of_kept(named("blocks(2)", 7)), &rows, Subset::new(left, kept()).unwrap());
        let subset: Arc<dyn Order> = Arc::new(Subset::new(global(40, 7), kept()).unwrap());
        let resized: Arc<dyn Order> = Arc::new(Resized::new(subset, 25).unwrap());
        let paired: Arc<dyn Order> = Arc::new(Paired::new(resized));
        let pieces: Arc<dyn Order> = Arc::new(Contiguous::new(paired, 4).unwrap());
        let all = Recipe { paired: true, shards: Some(4), rotated: true, ..sized(25, of_kept(named("global", 7))) };
        same(&all, &rows, Rotated::new(pieces));
        // The other way round: a set of rows around epochs of another size, which know of no row groups.
        let inner: Arc<dyn Order> = Arc::new(Blocks::new(&[40], 2, 7).unwrap());
        let inner: Arc<dyn Order> = Arc::new(Resized::new(inner, 25).unwrap());
        let inside = sized(25, named("blocks(2)", 7));
        same(&of_kept(around(inside)), &rows, Subset::new(inner, kept()).unwrap());
    }

    #[test]
    fn draws_have_the_size_that_is_asked_for_or_that_of_their_rows() {
        let rows = RowLayout::of_rows(60);
        let weights: Vec<f64> = (0..60).map(f64::from).collect();
        let weighted = |size| Recipe { seed: 3, size, ..Recipe::of(RecipeBase::Weighted(weights.as_slice().into())) };
        same(&weighted(None), &rows, Weighted::with_replacement(&weights, 60, 3).unwrap());
        same(&weighted(Some(500)), &rows, Weighted::with_replacement(&weights, 500, 3).unwrap());
        let without = |size| Recipe { without_replacement: true, ..weighted(size) };
        same(&without(None), &rows, Weighted::without_replacement(&weights, 59, 3).unwrap());
        same(&without(Some(9)), &rows, Weighted::without_replacement(&weights, 9, 3).unwrap());
        let labels: Vec<u32> = (0..60).map(|row| row % 2).collect();
        let balanced = || Recipe { seed: 3, ..Recipe::of(RecipeBase::Balanced(labels.as_slice().into())) };
        same(&balanced(), &rows, Balanced::new(&labels, 60, 3).unwrap());
        let uneven = Recipe { proportions: Some([1.0, 3.0][..].into()), size: Some(8), ..balanced() };
        same(&uneven, &rows, Balanced::with_proportions(&labels, &[1.0, 3.0], 8, 3).unwrap());
        let some: Arc<dyn Order> = Arc::new(Weighted::with_replacement(&weights[..40], 40, 3).unwrap());
        let base = RecipeBase::Weighted(weights[..40].into());
        let recipe = Recipe { kept: Some(kept()), seed: 3, ..Recipe::of(base) };
        same(&recipe, &rows, Subset::new(some, kept()).unwrap());
    }

    #[test]
    fn the_datasets_of_a_mixture_have_seeds_of_their_own() {
        let rows = RowLayout::of_datasets([RowLayout::of_groups([10, 20]), RowLayout::of_rows(30)]);
        let mixed = |recipes: [Recipe<'static>; 2], proportions: [f64; 2], seed| Recipe {
            proportions: Some(proportions.to_vec().into()),
            seed,
            ..Recipe::of(RecipeBase::Mixed(recipes.to_vec()))
        };
        let recipe = mixed([named("blocks(1)", 0), named("global", 5)], [3.0, 1.0], 42);
        let blocks = Arc::new(Blocks::new(&[10, 20], 1, 43).unwrap());
        let parts = [MixedPart::new(blocks, 30, 3.0), MixedPart::new(Arc::new(Global::new(30, 49).unwrap()), 30, 1.0)];
        same(&recipe, &rows, Mixed::new(parts.clone(), 60, 42).unwrap());
        same(&Recipe { size: Some(16), ..recipe.clone() }, &rows, Mixed::new(parts, 16, 42).unwrap());
        let last = mixed([named("global", 0), named("global", 0)], [1.0, 1.0], u64::MAX);
        let parts = [0, 1].map(|seed| MixedPart::new(Arc::new(Global::new(30, seed).unwrap()), 30, 1.0));
        same(&last, &rows, Mixed::new(parts, 60, u64::MAX).unwrap());
        let error = recipe.orders(&RowLayout::of_rows(60)).unwrap_err();
        assert!(error.to_string().contains("2 proportions for 1 datasets"), "{error}");
    }

    #[test]
    fn what_an_order_cannot_honour_is_refused() {
        let rows = RowLayout::of_rows(4);
        let refused = |recipe: Recipe<'_>, what: &str| {
            let error = recipe.orders(&rows).unwrap_err();
            assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains(what), "{error}");
        };
        let global = || named("global", 0);
        let listed = |ids: &[u64]| Recipe::of(RecipeBase::Explicit(ids.into()));
        let weighted = |weights: &'static [f64]| Recipe::of(RecipeBase::Weighted(weights.into()));
        refused(Recipe { permutation: true, ..global() }, "global orders cannot be required");
        refused(Recipe { without_replacement: true, ..global() }, "without replacement");
        let uneven = Recipe { proportions: Some([1.0][..].into()), ..listed(&[1]) };
        refused(uneven, "explicit orders cannot have proportions");
        refused(weighted(&[1.0; 3]), "3 weights for 4 rows");
        let scored = |scores: Vec<f64>| Recipe::of(RecipeBase::Scored { scores: scores.into(), folds: 1, block: 1 });
        refused(scored(vec![1.0; 3]), "3 scores for 4 rows");
        refused(scored(vec![0.0, 0.0, f64::NAN, 0.0]), "row 2 is not a number");
        refused(Recipe::of(RecipeBase::Balanced([1; 5][..].into())), "5 labels for 4 rows");
        let kept = Some(Arc::new(IdSet::all(5).unwrap()));
        refused(Recipe { kept, ..global() }, "a set out of 5 rows for a dataset of 4");
        let origin = |origin: &str| Some(origin.to_owned());
        refused(Recipe { permutation: true, origin: origin("list.bin"), ..listed(&[1, 1]) }, "list.bin");
        refused(Recipe { origin: origin("price"), ..weighted(&[-1.0, 0.0, 0.0, 0.0]) }, "price");
        refused(Recipe { size: Some(0), ..global() }, "0 positions");
        refused(Recipe { shards: Some(0), ..global() }, "0 shards");
    }
}
