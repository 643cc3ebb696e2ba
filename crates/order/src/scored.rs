//! Rows by a score, in sweeps from the lowest to the highest.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::contiguous::ContiguousEpoch;
use super::feistel::Feistel;
use super::permutation::PermutationKey;
use super::{EpochOrder, Explicit, Order, OrderKind, Outline, Uses, fingerprint};
use rowdex_base::error::{Error, Result};

const TAG: &[u8; 16] = b"rowdex scored v1";

/// Rows sorted by a score, the lowest first, shuffled within blocks of neighbours, and assigned to *folds* in turn:
/// each fold is a sweep over all scores, and the folds of an epoch come one after the other.
///
/// One fold is a curriculum; several keep each kind of rows from coming once an epoch alone. Rows with the same score
/// are sorted by their row ids. Blocks are shuffled again in each epoch, so a row comes in other folds, too.
///
/// Holds the sorted rows as [`Explicit`] holds a list. One position costs about 0.1 µs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Scored {
    sorted: Explicit,
    folds: u64,
    block: u64,
    seed: u64,
}

impl Scored {
    const NAME: &str = "scored";

    /// Epochs of all rows, by a score for each, in so many folds and shuffled within blocks of so many rows.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a score that is not a number, and for 0 folds or blocks of 0 rows.
    pub fn new(scores: &[f64], folds: u64, block: u64, seed: u64) -> Result<Self> {
        if folds == 0 || block == 0 {
            return Err(Error::invalid(format!("{folds} folds, shuffled within {block} rows"))
                .with_hint("use 1 or more of both: 1 fold is one sweep, blocks of 1 row are not shuffled"));
        }
        if let Some(row) = scores.iter().position(|score| score.is_nan()) {
            return Err(Error::invalid(format!("the score of row {row} is not a number"))
                .with_hint("give such rows a score, or leave them out"));
        }
        let mut sorted: Vec<u64> = (0..scores.len() as u64).collect();
        // -0 and 0 are the same score.
        let score = |row: &u64| scores[*row as usize] + 0.0;
        sorted.sort_by(|a, b| score(a).total_cmp(&score(b)));
        Ok(Self { sorted: Explicit::new(sorted, scores.len() as u64)?, folds, block, seed })
    }
}

impl Order for Scored {
    fn len(&self) -> u64 {
        self.sorted.len()
    }

    fn rows(&self) -> Option<u64> {
        self.sorted.rows()
    }

    fn epoch(&self, epoch: u64) -> Result<Arc<dyn EpochOrder>> {
        let sorted = ContiguousEpoch { order: self.sorted.epoch(epoch)?, shards: self.folds };
        Ok(Arc::new(ScoredEpoch { sorted, block: self.block, key: PermutationKey::tagged(TAG, self.seed, epoch) }))
    }

    fn fingerprint(&self) -> u64 {
        fingerprint(Self::NAME, self.len(), &[self.sorted.fingerprint(), self.folds, self.block, self.seed])
    }

    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn outline(&self) -> Outline {
        Outline::new(OrderKind::Scored).seeded(self.seed)
    }

    fn is_same_every_epoch(&self) -> bool {
        self.block == 1
    }
}

/// One epoch of [`Scored`].
#[derive(Debug)]
struct ScoredEpoch {
    /// Folds are to the sorted rows what positions inside are to pieces: the way back.
    sorted: ContiguousEpoch,
    block: u64,
    key: PermutationKey,
}

impl ScoredEpoch {
    /// The first place of the block that has a place among the sorted rows, and how its rows are shuffled.
    fn block(&self, place: u64) -> (u64, Feistel) {
        let first = place - place % self.block;
        (first, Feistel::new(self.block.min(self.len() - first), self.key.numbered(first).rounds()))
    }
}

impl EpochOrder for ScoredEpoch {
    fn len(&self) -> u64 {
        self.sorted.len()
    }

    fn uses(&self) -> Uses {
        Uses::Once
    }

    fn row(&self, position: u64) -> Option<u64> {
        if position >= self.len() {
            return None;
        }
        let place = self.sorted.outside(position);
        let (first, shuffle) = self.block(place);
        self.sorted.order.row(first + shuffle.forward(place - first))
    }

    fn position(&self, row: u64) -> Option<u64> {
        let place = self.sorted.order.position(row)?;
        let (first, shuffle) = self.block(place);
        Some(self.sorted.inside(first + shuffle.inverse(place - first)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Global, Paired};

    /// Changing these would serve other rows to whoever goes on with a run.
    #[test]
    fn scored_and_paired_orders_of_version_1_are_frozen() {
        let row = |orders: &dyn Order, epoch, q| orders.epoch(epoch).unwrap().row(q);
        let rows = |orders: &dyn Order, epoch| (0..).map_while(|q| row(orders, epoch, q)).collect::<Vec<u64>>();
        let scores = [5.0, -1.0, 0.0, -0.0, f64::INFINITY, 2.5, 2.5, -3.0, 9.0, 1e-300, 7.0];
        // By score 7, 1, 2, 3, 9, 5, 6, 0, 10, 8, 4.
        assert_eq!(rows(&Scored::new(&scores, 3, 1, 42).unwrap(), 9), [7, 3, 6, 8, 1, 9, 0, 4, 2, 5, 10]);
        let scored = Scored::new(&scores, 2, 4, 42).unwrap();
        assert_eq!(rows(&scored, 0), [1, 2, 5, 6, 10, 4, 3, 7, 0, 9, 8]);
        assert_eq!(rows(&scored, 1), [3, 1, 0, 9, 8, 4, 2, 7, 6, 5, 10]);
        let global = Global::new(10, 42).unwrap();
        let paired = Paired::new(Arc::new(global));
        assert_eq!(rows(&paired, 2), rows(&global, 1));
        assert_eq!(rows(&paired, 3), [3, 8, 5, 4, 9, 0, 1, 6, 7, 2]);
        assert_eq!((scored.fingerprint(), paired.fingerprint()), (0xbaad_bb6f_2e4d_7652, 0x2633_c776_d48b_67b4));
    }
}
