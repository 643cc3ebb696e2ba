//! What orders are made of, as plain data that any order can give of itself.

/// What orders are made of, as far as it fits a line: a [`State`](crate::sampler::State) carries it, so that they can
/// be made again from the state. Lists, weights, labels and sets of rows are not in it.
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
    /// Whether every second epoch is the one before it [backwards](super::Paired).
    pub paired: bool,
    /// For how many shards positions are assigned in pieces, if they are, see [`Contiguous`](super::Contiguous).
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
    /// Rows are sorted by a score.
    Scored,
    /// Classes come by proportion.
    Balanced,
    /// Datasets come by proportion.
    Mixed,
    /// Something else, or made of more than an outline can say.
    Other,
}

/// Which orders a run has, apart from their length and seed: what `--order` says, and the same text in C and Python.
///
/// Written and parsed as `sequential`, `global`, `torch`, and `blocks(8)` or `blocks(all)`; `blocks:8` is read, too,
/// which no shell takes for anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OrderSpec {
    /// [`Sequential`](super::Sequential): rows 0, 1, 2, …
    Sequential,
    /// [`Global`](super::Global): all rows shuffled among all rows.
    #[default]
    Global,
    /// [`Torch`](super::Torch): what PyTorch's `DistributedSampler` serves.
    Torch,
    /// [`Blocks`](super::Blocks): row groups shuffled, and rows within windows of so many of them;
    /// [`Blocks::ALL`](super::Blocks::ALL) is all.
    Blocks(u64),
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
        Self { kind, seed: None, kept: false, size: None, paired: false, pieces: None }
    }

    pub(super) const fn seeded(self, seed: u64) -> Self {
        Self { seed: Some(seed), ..self }
    }

    pub(super) const fn drawn(kind: OrderKind, seed: u64, size: u64) -> Self {
        Self { size: Some(size), ..Self::new(kind).seeded(seed) }
    }

    /// Over the rows that are kept: the first of the changes, of which each is made once.
    pub(super) fn subset(self) -> Self {
        let first = !self.kept && !self.is_moved() && (self.size.is_none() || self.kind.is_drawn());
        if first { Self { kept: true, ..self } } else { Self::OTHER }
    }

    pub(super) fn resized(self, size: u64) -> Self {
        if self.size.is_none() && !self.is_moved() { Self { size: Some(size), ..self } } else { Self::OTHER }
    }

    pub(super) fn paired(self) -> Self {
        if self.is_moved() { Self::OTHER } else { Self { paired: true, ..self } }
    }

    /// Whether positions are others already than what comes first would have.
    fn is_moved(self) -> bool {
        self.paired || self.pieces.is_some()
    }

    pub(super) fn contiguous(self, shards: u32) -> Self {
        if self.pieces.is_none() { Self { pieces: Some(shards), ..self } } else { Self::OTHER }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Contiguous, Explicit, Global, IdSet, Order, Paired, Resized, Rotated, Subset};

    #[test]
    fn orders_that_an_outline_cannot_make_again_say_so() {
        let global = |n| -> Arc<dyn Order> { Arc::new(Global::new(n, 1).unwrap()) };
        let resized = |orders, size| -> Arc<dyn Order> { Arc::new(Resized::new(orders, size).unwrap()) };
        let pieces = |orders| -> Arc<dyn Order> { Arc::new(Contiguous::new(orders, 2).unwrap()) };
        let subset = |orders| -> Arc<dyn Order> {
            let kept = IdSet::filter(60, |row| row % 3 > 0).unwrap();
            Arc::new(Subset::new(orders, Arc::new(kept)).unwrap())
        };
        for orders in [
            resized(resized(global(40), 30), 20),
            resized(pieces(global(40)), 30),
            pieces(pieces(global(40))),
            subset(resized(global(40), 40)),
            subset(pieces(global(40))),
            resized(Arc::new(Paired::new(global(40))), 30),
            Arc::new(Rotated::new(Arc::new(Explicit::new(vec![1, 2], 60).unwrap()))),
        ] {
            assert_eq!(orders.outline(), Outline::OTHER, "{orders:?}");
        }
    }
}
