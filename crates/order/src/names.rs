//! Orders and choices by the names that people write, and outlines in one line.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::{Blocks, Global, Order, OrderKind, OrderSpec, Outline, Sequential, Torch};
use rowdex_base::error::{Error, Result};

/// Has values written and parsed by their names.
macro_rules! named {
    ($type:ident, $what:literal, $hint:literal, $($variant:ident = $name:literal),+) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(match self {
                    $(Self::$variant => $name,)+
                })
            }
        }

        impl std::str::FromStr for $type {
            type Err = rowdex_base::error::Error;

            fn from_str(name: &str) -> rowdex_base::error::Result<Self> {
                match name {
                    $($name => Ok(Self::$variant),)+
                    _ => {
                        let message = format!(concat!("no ", $what, " is called {:?}"), name);
                        Err(rowdex_base::error::Error::invalid(message).with_hint($hint))
                    }
                }
            }
        }
    };
}

pub(crate) use named;

impl OrderSpec {
    /// The orders over row groups of so many rows each, in the order of their row ids.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if there are more than [`MAX_LEN`](super::MAX_LEN) rows, or for blocks of 0 row groups.
    pub fn orders(&self, group_rows: &[u64], seed: u64) -> Result<Arc<dyn Order>> {
        let len = group_rows.iter().try_fold(0u64, |sum, rows| sum.checked_add(*rows)).unwrap_or(u64::MAX);
        Ok(match self {
            Self::Sequential => Arc::new(Sequential::new(len)?),
            Self::Global => Arc::new(Global::new(len, seed)?),
            Self::Torch => Arc::new(Torch::new(len, seed)?),
            Self::Blocks(k) => Arc::new(Blocks::new(group_rows, *k, seed)?),
        })
    }
}

impl fmt::Display for OrderSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sequential => f.pad("sequential"),
            Self::Global => f.pad("global"),
            Self::Torch => f.pad("torch"),
            Self::Blocks(Blocks::ALL) => f.pad("blocks(all)"),
            Self::Blocks(k) => f.pad(&format!("blocks({k})")),
        }
    }
}

impl FromStr for OrderSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "sequential" => return Ok(Self::Sequential),
            "global" => return Ok(Self::Global),
            "torch" => return Ok(Self::Torch),
            _ => {}
        }
        let Some(k) = text.strip_prefix("blocks") else {
            return Err(Error::invalid(format!("no order is called {text:?}"))
                .with_hint("use global, sequential, torch, or blocks(8), blocks(all) and the like"));
        };
        let inside = k.strip_prefix('(').and_then(|k| k.strip_suffix(')')).or_else(|| k.strip_prefix(':'));
        match inside {
            Some("all") => Ok(Self::Blocks(Blocks::ALL)),
            // Digits only: a number is also parsed with a sign.
            Some(k) if k.bytes().all(|digit| digit.is_ascii_digit()) && k.parse().is_ok_and(|k: u64| k > 0) => {
                Ok(Self::Blocks(k.parse().unwrap_or(Blocks::ALL)))
            }
            _ => Err(Error::invalid(format!("{text:?} does not say how many row groups to shuffle at a time"))
                .with_hint("write blocks(8) or blocks:8, with any number from 1 on, or blocks(all)")),
        }
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
            Self::Scored => f.write_str("scored"),
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
        if self.paired {
            f.write_str(",paired")?;
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
            "scored" => Self::Scored,
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
                None if word == "paired" => outline.paired = true,
                _ => return None,
            }
        }
        Some(outline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IdSet, Recipe, RecipeBase, RowLayout};
    use rowdex_base::error::ErrorKind;

    #[test]
    fn names_are_parsed_as_they_are_written_and_as_the_orders_call_themselves() {
        use OrderSpec::{Blocks, Global, Sequential, Torch};
        for spec in [Sequential, Global, Torch, Blocks(1), Blocks(8), Blocks(super::Blocks::ALL)] {
            let name = spec.to_string();
            assert_eq!(name.parse::<OrderSpec>().unwrap(), spec);
            let orders = spec.orders(&[3, 0, 4], 5).unwrap();
            assert_eq!((orders.len(), orders.name()), (7, name.split('(').next().unwrap()));
        }
        for (text, k) in [("blocks:8", 8), ("blocks(8)", 8), ("blocks:all", u64::MAX), ("blocks(08)", 8)] {
            assert_eq!(text.parse::<OrderSpec>().unwrap(), Blocks(k));
        }
        let bad = [
            "blocks",
            "blocks()",
            "blocks(",
            "blocks(0)",
            "blocks:0",
            "blocks(-1)",
            "blocks(+1)",
            "blocks(8",
            "blocks:8)",
            "blocks8",
        ];
        for text in ["", "Global", "global ", "globul", "blocks(99999999999999999999)"].into_iter().chain(bad) {
            assert_eq!(text.parse::<OrderSpec>().unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
    }

    #[test]
    fn row_groups_of_too_many_rows_are_refused() {
        for rows in [[u64::MAX, 1], [1 << 62, 1 << 62]] {
            assert_eq!(OrderSpec::Global.orders(&rows, 0).unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
    }

    fn outline(recipe: Recipe<'_>) -> String {
        let rows = RowLayout::of_groups([10, 0, 20, 30]);
        let outline = Recipe { seed: 7, ..recipe }.orders(&rows).unwrap().outline();
        assert_eq!(Outline::parse(&outline.to_string()), Some(outline));
        outline.to_string()
    }

    #[test]
    fn every_recipe_has_an_outline_that_is_parsed_as_it_is_written() {
        let named = |name: &str| Recipe::of(RecipeBase::Named(name.parse().unwrap()));
        for (name, text) in [
            ("sequential", "sequential"),
            ("global", "global,seed-7"),
            ("torch", "torch,seed-7"),
            ("blocks(2)", "blocks-2,seed-7"),
            ("blocks(all)", "blocks-3,seed-7"),
        ] {
            assert_eq!(outline(named(name)), text);
        }
        let kept = || Some(Arc::new(IdSet::filter(60, |row| row % 3 > 0).unwrap()));
        let pieces = |size, recipe| Recipe { shards: Some(4), size, ..recipe };
        let all = Recipe { kept: kept(), paired: true, ..named("blocks(2)") };
        assert_eq!(outline(pieces(Some(30), all)), "blocks-2,seed-7,kept,size-30,paired,pieces-4");
        assert_eq!(outline(Recipe { size: Some(60), ..named("global") }), "global,seed-7");
        assert_eq!(outline(Recipe::of(RecipeBase::Explicit([3, 4].into()))), "explicit");
        let weights = || Recipe::of(RecipeBase::Weighted(vec![1.0; 60].into()));
        assert_eq!(outline(weights()), "weighted,seed-7,size-60");
        assert_eq!(outline(pieces(Some(9), weights())), "weighted,seed-7,size-9,pieces-4");
        assert_eq!(outline(Recipe { without_replacement: true, ..weights() }), "weighted-once,seed-7,size-60");
        let labels = RecipeBase::Balanced(vec![1; 40].into());
        let labels = Recipe { kept: kept(), size: Some(80), ..Recipe::of(labels) };
        assert_eq!(outline(labels), "balanced,seed-7,kept,size-80");
        let mixed = RecipeBase::Mixed(vec![named("global")]);
        assert_eq!(
            outline(Recipe { proportions: Some(vec![1.0].into()), ..Recipe::of(mixed) }),
            "mixed,seed-7,size-60"
        );
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
