//! One description of which rows come in which order, and the orders that follow from it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::explicit::ExplicitIds;
use super::{
    Balanced, Contiguous, Explicit, IdSet, Mixed, MixedPart, Order, OrderSpec, Partition, Resized, Rotated, RowLayout,
    Subset, Weighted,
};
use rowdex_base::error::{Error, ErrorKind, Result};

/// Which rows come in which order, in epochs of which size: the value that the command line, C and Python hand over.
///
/// A recipe names an order and changes it. [`orders`](Self::orders) applies the changes in one fixed sequence:
///
/// 1. the order of all rows, or of those that [`with_kept`](Self::with_kept) keeps;
/// 2. [`with_size`](Self::with_size): epochs of another size;
/// 3. [`with_partition`](Self::with_partition): consecutive pieces for the shards;
/// 4. [`with_rotation`](Self::with_rotation): another beginning in each epoch.
///
/// [`around`](Self::around) takes the orders of another recipe in the place of step 1, which allows any other sequence.
/// A recipe that has an option its order cannot honour is refused.
///
/// ```
/// use std::sync::Arc;
/// # mod rowdex { pub use rowdex_base::error::Result; pub use rowdex_order as order; }
/// use rowdex::order::{IdSet, OrderSpec, Recipe, RowLayout};
///
/// # fn main() -> rowdex::Result<()> {
/// let rows = RowLayout::of_groups([600, 400]);
/// let kept = Arc::new(IdSet::from_ids(1000, [7, 8])?.complement()?);
/// let recipe = Recipe::new(OrderSpec::Blocks(2)).with_kept(kept).with_size(500).with_seed(42);
/// assert_eq!(recipe.orders(&rows)?.len(), 500);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Recipe<'a> {
    base: RecipeBase<'a>,
    /// What errors call the place where the numbers of the base come from.
    origin: Option<RowOrigin>,
    permutation: bool,
    without_replacement: bool,
    proportions: Option<Cow<'a, [f64]>>,
    kept: Option<Arc<IdSet>>,
    size: Option<u64>,
    shards: Option<u32>,
    rotated: bool,
    seed: u64,
}

#[derive(Debug, Clone)]
enum RecipeBase<'a> {
    Named(OrderSpec),
    Explicit(ExplicitIds),
    Weighted(Cow<'a, [f64]>),
    Balanced(Cow<'a, [u32]>),
    Mixed(Vec<Recipe<'a>>),
    Around(Box<Recipe<'a>>),
}

#[derive(Debug, Clone)]
enum RowOrigin {
    File(String),
    Column(String),
}

impl<'a> Recipe<'a> {
    /// One of the orders that have a name.
    pub fn new(order: OrderSpec) -> Self {
        Self::of(RecipeBase::Named(order))
    }

    /// These row ids in this order, see [`Explicit`].
    pub fn explicit(ids: impl Into<Arc<[u64]>>) -> Self {
        Self::of(RecipeBase::Explicit(ExplicitIds::Numbers(ids.into())))
    }

    /// The row ids in this list of little-endian `u64`, such as an `OrderFile`.
    pub fn explicit_le_bytes(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self::of(RecipeBase::Explicit(ExplicitIds::Bytes(Arc::new(bytes))))
    }

    /// Rows drawn by weight, see [`Weighted`]: a weight for each row, or for each row that is kept.
    ///
    /// An epoch has as many positions as there are weights; without replacement, as there are weights above 0.
    pub fn weighted(weights: impl Into<Cow<'a, [f64]>>) -> Self {
        Self::of(RecipeBase::Weighted(weights.into()))
    }

    /// Classes equally often, see [`Balanced`]: the class of each row, or of each row that is kept.
    ///
    /// An epoch has as many positions as there are labels.
    pub fn balanced(labels: impl Into<Cow<'a, [u32]>>) -> Self {
        Self::of(RecipeBase::Balanced(labels.into()))
    }

    /// Several datasets by proportion, see [`Mixed`]: a recipe and a proportion for each of them.
    ///
    /// The seed of dataset `i`, counted from 0, is the seed of the mixture plus `i + 1` plus that of its own recipe. An
    /// epoch has as many positions as the datasets have rows together.
    pub fn mixed(recipes: impl IntoIterator<Item = Self>, proportions: impl Into<Cow<'a, [f64]>>) -> Self {
        let mixed = Self::of(RecipeBase::Mixed(recipes.into_iter().collect()));
        mixed.with_proportions(proportions)
    }

    /// The orders of another recipe, which is for the same rows, or for those that this one keeps. The seeds are added.
    ///
    /// Under a set of kept rows, the inner recipe takes those rows for one row group.
    pub fn around(recipe: Self) -> Self {
        Self::of(RecipeBase::Around(Box::new(recipe)))
    }

    fn of(base: RecipeBase<'a>) -> Self {
        Self {
            base,
            origin: None,
            permutation: false,
            without_replacement: false,
            proportions: None,
            kept: None,
            size: None,
            shards: None,
            rotated: false,
            seed: 0,
        }
    }

    /// The file that the row ids come from, for errors.
    #[must_use]
    pub fn with_file(mut self, file: impl Into<String>) -> Self {
        self.origin = Some(RowOrigin::File(file.into()));
        self
    }

    /// The column that the weights or labels come from, for errors.
    #[must_use]
    pub fn with_column(mut self, column: impl Into<String>) -> Self {
        self.origin = Some(RowOrigin::Column(column.into()));
        self
    }

    /// Refuses a list of row ids that does not have every row exactly once.
    #[must_use]
    pub fn with_permutation(mut self, permutation: bool) -> Self {
        self.permutation = permutation;
        self
    }

    /// Whether rows that are drawn by weight may come again in an epoch; by default they may.
    #[must_use]
    pub fn with_replacement(mut self, replacement: bool) -> Self {
        self.without_replacement = !replacement;
        self
    }

    /// How often each class, or each dataset of a mixture, comes. Classes come equally often by default.
    #[must_use]
    pub fn with_proportions(mut self, proportions: impl Into<Cow<'a, [f64]>>) -> Self {
        self.proportions = Some(proportions.into());
        self
    }

    /// Serves these rows alone, see [`Subset`].
    #[must_use]
    pub fn with_kept(mut self, kept: impl Into<Arc<IdSet>>) -> Self {
        self.kept = Some(kept.into());
        self
    }

    /// Epochs of so many positions. Weights, classes and mixtures draw that many; passes of any other order are
    /// [cut](Resized), unless they have that many anyway. Orders of [another recipe](Self::around) are always cut.
    #[must_use]
    pub fn with_size(mut self, size: u64) -> Self {
        self.size = Some(size);
        self
    }

    /// How positions are dealt to so many shards: [in turn](Partition::Strided), or [in pieces](Contiguous).
    #[must_use]
    pub fn with_partition(mut self, partition: Partition, shards: u32) -> Self {
        self.shards = (partition == Partition::Contiguous).then_some(shards);
        self
    }

    /// Whether each epoch begins elsewhere, see [`Rotated`]. A sampler does this by itself where it is needed, see
    /// [`DistributedSampler::with_rotation`](crate::sampler::DistributedSampler::with_rotation).
    #[must_use]
    pub fn with_rotation(mut self, rotated: bool) -> Self {
        self.rotated = rotated;
        self
    }

    /// The seed of the orders, the same on all ranks.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
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
            RecipeBase::Balanced(labels) => self.classes(labels, rows.rows(), seed),
            RecipeBase::Mixed(recipes) => self.mixture(recipes, rows, seed),
            RecipeBase::Around(recipe) => recipe.seeded(rows, seed.wrapping_add(recipe.seed)),
        };
        orders.map_err(|error| match &self.origin {
            Some(RowOrigin::File(file)) => error.with_file(file.as_str()),
            Some(RowOrigin::Column(column)) => error.with_column(column.as_str()),
            None => error,
        })
    }

    fn listed(&self, ids: ExplicitIds, rows: u64) -> Result<Arc<dyn Order>> {
        let orders = Explicit::checked(ids, rows)?;
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
            return Err(invalid(format!("{} proportions for {} orders", proportions.len(), recipes.len())));
        }
        let datasets = rows.datasets();
        if datasets.len() != recipes.len() {
            let message = format!("{} proportions for {} datasets", recipes.len(), datasets.len());
            return Err(invalid(message).with_hint(
                "give a proportion for each dataset of the mixture; a mixture cannot be inside a subset or an epoch of \
                 another size: put these into its orders",
            ));
        }
        let parts = datasets.zip(recipes).zip(proportions).zip(1..).map(|(((rows, recipe), proportion), number)| {
            let orders = recipe.seeded(&rows, seed.wrapping_add(number).wrapping_add(recipe.seed))?;
            Ok(MixedPart::new(orders, rows.rows(), *proportion))
        });
        let parts = parts.collect::<Result<Vec<_>>>()?;
        Ok(Arc::new(Mixed::new(parts, self.size.unwrap_or(rows.rows()), seed)?))
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
            _ => return Ok(()),
        };
        Err(invalid(format!("{self} orders cannot {refused}")))
    }
}

/// As people call the order: `global`, `weighted`, `blocks(8) in pieces`.
impl fmt::Display for Recipe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.base, &self.origin) {
            (RecipeBase::Named(order), _) => write!(f, "{order}")?,
            (RecipeBase::Explicit(_), Some(RowOrigin::File(file))) => write!(f, "explicit ({file})")?,
            (RecipeBase::Explicit(_), _) => f.write_str("explicit")?,
            (RecipeBase::Weighted(_), Some(RowOrigin::Column(column))) => write!(f, "weighted ({column})")?,
            (RecipeBase::Weighted(_), _) => f.write_str("weighted")?,
            (RecipeBase::Balanced(_), Some(RowOrigin::Column(column))) => write!(f, "balanced ({column})")?,
            (RecipeBase::Balanced(_), _) => f.write_str("balanced")?,
            (RecipeBase::Mixed(_), _) => f.write_str("mixed")?,
            (RecipeBase::Around(recipe), _) => write!(f, "{recipe}")?,
        }
        f.write_str(if self.without_replacement { " without replacement" } else { "" })
    }
}

fn as_many(numbers: usize, what: &str, rows: u64) -> Result<()> {
    if numbers as u64 == rows {
        return Ok(());
    }
    Err(invalid(format!("{numbers} {what} for {rows} rows"))
        .with_hint(format!("give as many {what} as there are rows")))
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Blocks, Global, Sequential};

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

    /// What each recipe makes is what the orders make that it stands for, put together by hand: so states go on.
    #[test]
    fn a_recipe_makes_the_orders_that_it_names() {
        let rows = RowLayout::of_groups([10, 0, 20, 30]);
        let named = |name: &str| Recipe::new(name.parse().unwrap()).with_seed(7);
        let global = |n, seed| -> Arc<dyn Order> { Arc::new(Global::new(n, seed).unwrap()) };
        same(&named("global"), &rows, Global::new(60, 7).unwrap());
        same(&named("sequential"), &rows, Sequential::new(60).unwrap());
        same(&named("blocks(2)"), &rows, Blocks::new(&[10, 0, 20, 30], 2, 7).unwrap());
        same(&Recipe::explicit([3, 3, 59]), &rows, Explicit::new([3, 3, 59], 60).unwrap());
        same(
            &Recipe::explicit_le_bytes([5, 0, 0, 0, 0, 0, 0, 0]).with_permutation(false),
            &rows,
            Explicit::new([5], 60).unwrap(),
        );
        same(&named("global").with_size(60), &rows, Global::new(60, 7).unwrap());
        same(&named("global").with_size(25), &rows, Resized::new(global(60, 7), 25).unwrap());
        same(&Recipe::around(named("global")).with_size(60), &rows, Resized::new(global(60, 7), 60).unwrap());
        same(&named("global").with_kept(kept()), &rows, Subset::new(global(40, 7), kept()).unwrap());
        let left: Arc<dyn Order> = Arc::new(Blocks::new(&[6, 0, 14, 20], 2, 7).unwrap());
        same(&named("blocks(2)").with_kept(kept()), &rows, Subset::new(left, kept()).unwrap());
        let subset: Arc<dyn Order> = Arc::new(Subset::new(global(40, 7), kept()).unwrap());
        let resized: Arc<dyn Order> = Arc::new(Resized::new(subset, 25).unwrap());
        let pieces: Arc<dyn Order> = Arc::new(Contiguous::new(resized, 4).unwrap());
        same(
            &named("global")
                .with_kept(kept())
                .with_size(25)
                .with_partition(Partition::Contiguous, 4)
                .with_rotation(true),
            &rows,
            Rotated::new(pieces),
        );
        same(&named("global").with_partition(Partition::Strided, 4), &rows, Global::new(60, 7).unwrap());
        // The other way round: a set of rows around epochs of another size, which know of no row groups.
        let inner: Arc<dyn Order> = Arc::new(Blocks::new(&[40], 2, 7).unwrap());
        let inner: Arc<dyn Order> = Arc::new(Resized::new(inner, 25).unwrap());
        let inside = named("blocks(2)").with_size(25);
        same(&Recipe::around(inside).with_kept(kept()), &rows, Subset::new(inner, kept()).unwrap());
    }

    #[test]
    fn draws_have_the_size_that_is_asked_for_or_that_of_their_rows() {
        let rows = RowLayout::of_rows(60);
        let weights: Vec<f64> = (0..60).map(f64::from).collect();
        let weighted = || Recipe::weighted(weights.as_slice()).with_seed(3);
        same(&weighted(), &rows, Weighted::with_replacement(&weights, 60, 3).unwrap());
        same(&weighted().with_size(500), &rows, Weighted::with_replacement(&weights, 500, 3).unwrap());
        let without = || weighted().with_replacement(false);
        same(&without(), &rows, Weighted::without_replacement(&weights, 59, 3).unwrap());
        same(&without().with_size(9), &rows, Weighted::without_replacement(&weights, 9, 3).unwrap());
        let labels: Vec<u32> = (0..60).map(|row| row % 2).collect();
        let balanced = || Recipe::balanced(labels.as_slice()).with_seed(3);
        same(&balanced(), &rows, Balanced::new(&labels, 60, 3).unwrap());
        same(
            &balanced().with_proportions(&[1.0, 3.0][..]).with_size(8),
            &rows,
            Balanced::with_proportions(&labels, &[1.0, 3.0], 8, 3).unwrap(),
        );
        let weighted: Arc<dyn Order> = Arc::new(Weighted::with_replacement(&weights[..40], 40, 3).unwrap());
        let some = Recipe::weighted(&weights[..40]).with_kept(kept()).with_seed(3);
        same(&some, &rows, Subset::new(weighted, kept()).unwrap());
    }

    #[test]
    fn the_datasets_of_a_mixture_have_seeds_of_their_own() {
        let rows = RowLayout::of_datasets([RowLayout::of_groups([10, 20]), RowLayout::of_rows(30)]);
        let named = |name: &str| Recipe::new(name.parse().unwrap());
        let recipe = Recipe::mixed([named("blocks(1)"), named("global").with_seed(5)], &[3.0, 1.0][..]);
        let blocks = Arc::new(Blocks::new(&[10, 20], 1, 43).unwrap());
        let parts = [MixedPart::new(blocks, 30, 3.0), MixedPart::new(Arc::new(Global::new(30, 49).unwrap()), 30, 1.0)];
        same(&recipe.clone().with_seed(42), &rows, Mixed::new(parts.clone(), 60, 42).unwrap());
        same(&recipe.clone().with_seed(42).with_size(16), &rows, Mixed::new(parts, 16, 42).unwrap());
        let last = Recipe::mixed([named("global"), named("global")], &[1.0, 1.0][..]).with_seed(u64::MAX);
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
        let global = || Recipe::new(OrderSpec::Global);
        refused(global().with_permutation(true), "global orders cannot be required");
        refused(global().with_replacement(false), "without replacement");
        refused(Recipe::explicit([1]).with_proportions(&[1.0][..]), "explicit orders cannot have proportions");
        refused(Recipe::weighted(&[1.0; 3][..]), "3 weights for 4 rows");
        refused(Recipe::balanced(&[1; 5][..]), "5 labels for 4 rows");
        refused(global().with_kept(IdSet::all(5).unwrap()), "a set out of 5 rows for a dataset of 4");
        refused(Recipe::explicit([1, 1]).with_permutation(true).with_file("list.bin"), "list.bin");
        refused(Recipe::weighted(&[-1.0, 0.0, 0.0, 0.0][..]).with_column("price"), "price");
        refused(global().with_size(0), "0 positions");
        refused(global().with_partition(Partition::Contiguous, 0), "0 shards");
    }
}
