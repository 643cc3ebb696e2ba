//! What orders are made of, in one line.

use std::fmt;

use super::{Blocks, OrderSpec};

/// What orders are made of, as far as it fits a line: a [`State`](crate::sampler::State) carries it, so that whoever
/// has the state can make them again. Lists, weights, labels and sets of rows are not in it.
///
/// Written and parsed as words with commas between them: `global,seed-42`, `blocks-8,seed-7,kept,size-1000,pieces-4`,
/// `weighted-once,seed-1,size-500`. Frozen, as states are saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Outline {
    /// What decides the sequence.
    pub kind: OrderKind,
    /// The seed, of orders that have one.
    pub seed: Option<u64>,
    /// Whether rows were left out before, see [`Subset`](super::Subset).
    pub kept: bool,
    /// How many positions an epoch has, where rows are [drawn](OrderKind::is_drawn) or passes [cut](super::Resized).
    pub size: Option<u64>,
    /// For how many shards positions are dealt in pieces, if they are, see [`Contiguous`](super::Contiguous).
    pub pieces: Option<u32>,
}

/// What decides the sequence of rows. See [`Outline`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OrderKind {
    /// An order that has a name.
    Named(OrderSpec),
    /// A list of row ids.
    Explicit,
    /// Rows are drawn by weight.
    Weighted {
        /// Whether a row may come again in an epoch.
        replacement: bool,
    },
    /// Classes come by proportion.
    Balanced,
    /// Datasets come by proportion.
    Mixed,
    /// Something else, or made of more than an outline can say.
    Other,
}

impl OrderKind {
    /// Whether an epoch draws as many rows as it is told to.
    pub fn is_drawn(self) -> bool {
        matches!(self, Self::Weighted { .. } | Self::Balanced | Self::Mixed)
    }
}

impl Outline {
    /// Of orders that an outline cannot say more of.
    pub const OTHER: Self = Self::new(OrderKind::Other);

    pub(super) const fn new(kind: OrderKind) -> Self {
        Self { kind, seed: None, kept: false, size: None, pieces: None }
    }

    pub(super) const fn seeded(self, seed: u64) -> Self {
        Self { seed: Some(seed), ..self }
    }

    pub(super) const fn drawn(kind: OrderKind, seed: u64, size: u64) -> Self {
        Self { size: Some(size), ..Self::new(kind).seeded(seed) }
    }

    /// Over the rows that are kept: the first of the changes, of which each is made once.
    pub(super) fn subset(self) -> Self {
        let first = !self.kept && self.pieces.is_none() && (self.size.is_none() || self.kind.is_drawn());
        if first { Self { kept: true, ..self } } else { Self::OTHER }
    }

    pub(super) fn resized(self, size: u64) -> Self {
        if self.size.or(self.pieces.map(u64::from)).is_none() { Self { size: Some(size), ..self } } else { Self::OTHER }
    }

    pub(super) fn contiguous(self, shards: u32) -> Self {
        if self.pieces.is_none() { Self { pieces: Some(shards), ..self } } else { Self::OTHER }
    }
}

impl fmt::Display for OrderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(OrderSpec::Blocks(Blocks::ALL)) => f.write_str("blocks-all"),
            Self::Named(OrderSpec::Blocks(k)) => write!(f, "blocks-{k}"),
            Self::Named(order) => write!(f, "{order}"),
            Self::Explicit => f.write_str("explicit"),
            Self::Weighted { replacement: true } => f.write_str("weighted"),
            Self::Weighted { replacement: false } => f.write_str("weighted-once"),
            Self::Balanced => f.write_str("balanced"),
            Self::Mixed => f.write_str("mixed"),
            Self::Other => f.write_str("other"),
        }
    }
}

impl fmt::Display for Outline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        if let Some(seed) = self.seed {
            write!(f, ",seed-{seed}")?;
        }
        if self.kept {
            f.write_str(",kept")?;
        }
        if let Some(size) = self.size {
            write!(f, ",size-{size}")?;
        }
        match self.pieces {
            Some(shards) => write!(f, ",pieces-{shards}"),
            None => Ok(()),
        }
    }
}

impl OrderKind {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "explicit" => Self::Explicit,
            "weighted" => Self::Weighted { replacement: true },
            "weighted-once" => Self::Weighted { replacement: false },
            "balanced" => Self::Balanced,
            "mixed" => Self::Mixed,
            "other" => Self::Other,
            named => Self::Named(named.replacen('-', ":", 1).parse().ok()?),
        })
    }
}

impl Outline {
    /// What is written so; it may be written in another way, too.
    #[doc(hidden)]
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(',');
        let mut outline = Self::new(OrderKind::parse(words.next()?)?);
        for word in words {
            match word.split_once('-') {
                Some(("seed", seed)) => outline.seed = Some(seed.parse().ok()?),
                Some(("size", size)) => outline.size = Some(size.parse().ok()?),
                Some(("pieces", shards)) => outline.pieces = Some(shards.parse().ok()?),
                None if word == "kept" => outline.kept = true,
                _ => return None,
            }
        }
        Some(outline)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Contiguous, Explicit, Global, IdSet, Order, Recipe, Resized, Rotated, RowLayout, Subset};

    fn outline(recipe: Recipe<'_>) -> String {
        let rows = RowLayout::of_groups([10, 0, 20, 30]);
        let outline = recipe.with_seed(7).orders(&rows).unwrap().outline();
        assert_eq!(Outline::parse(&outline.to_string()), Some(outline));
        outline.to_string()
    }

    fn kept() -> Arc<IdSet> {
        Arc::new(IdSet::filter(60, |row| row % 3 > 0).unwrap())
    }

    #[test]
    fn every_recipe_has_an_outline_that_is_parsed_as_it_is_written() {
        let named = |name: &str| Recipe::new(name.parse().unwrap());
        for (name, text) in [
            ("sequential", "sequential"),
            ("global", "global,seed-7"),
            ("torch", "torch,seed-7"),
            ("blocks(2)", "blocks-2,seed-7"),
            ("blocks(all)", "blocks-3,seed-7"),
        ] {
            assert_eq!(outline(named(name)), text);
        }
        let pieces = |recipe: Recipe<'static>| recipe.with_partition(crate::Partition::Contiguous, 4);
        assert_eq!(
            outline(pieces(named("blocks(2)").with_kept(kept()).with_size(30))),
            "blocks-2,seed-7,kept,size-30,pieces-4"
        );
        assert_eq!(outline(named("global").with_size(60)), "global,seed-7");
        assert_eq!(outline(Recipe::explicit(vec![3, 4])), "explicit");
        let weights = || Recipe::weighted(vec![1.0; 60]);
        assert_eq!(outline(weights()), "weighted,seed-7,size-60");
        assert_eq!(outline(pieces(weights().with_size(9))), "weighted,seed-7,size-9,pieces-4");
        assert_eq!(outline(weights().with_replacement(false)), "weighted-once,seed-7,size-60");
        let labels = Recipe::balanced(vec![1; 40]).with_kept(kept()).with_size(80);
        assert_eq!(outline(labels), "balanced,seed-7,kept,size-80");
        assert_eq!(outline(Recipe::mixed([named("global")], vec![1.0])), "mixed,seed-7,size-60");
    }

    #[test]
    fn orders_that_an_outline_cannot_make_again_say_so() {
        let global = |n| -> Arc<dyn Order> { Arc::new(Global::new(n, 1).unwrap()) };
        let resized = |orders, size| -> Arc<dyn Order> { Arc::new(Resized::new(orders, size).unwrap()) };
        let pieces = |orders| -> Arc<dyn Order> { Arc::new(Contiguous::new(orders, 2).unwrap()) };
        let subset = |orders| -> Arc<dyn Order> { Arc::new(Subset::new(orders, kept()).unwrap()) };
        for orders in [
            resized(resized(global(40), 30), 20),
            resized(pieces(global(40)), 30),
            pieces(pieces(global(40))),
            subset(resized(global(40), 40)),
            subset(pieces(global(40))),
            Arc::new(Rotated::new(Arc::new(Explicit::new(vec![1, 2], 60).unwrap()))),
        ] {
            assert_eq!(orders.outline(), Outline::OTHER, "{orders:?}");
        }
    }

    #[test]
    fn what_is_no_outline_is_none() {
        for text in
            ["", "globul", "global,seed", "global,seed-x", "global,seed--1", "blocks-0", "global,", "mixed,kept-1"]
        {
            assert_eq!(Outline::parse(text), None, "{text:?}");
        }
    }
}
