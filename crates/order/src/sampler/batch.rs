//! What a rank serves at a step.

use crate::Piece;

/// The rows of one step on one rank.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BatchPlan {
    /// The epoch it is a part of.
    pub epoch: u64,
    /// Which step of the epoch, from 0. After resuming within an epoch they continue: see
    /// [`EpochPlan::first_step`](super::EpochPlan::first_step).
    pub step: u64,
    /// The position of the first row; the others follow at distances of [`stride`](Self::stride).
    pub first: u64,
    /// From each position to the next: the number of shards, or 1 in a plan of packs, whose pieces follow each other.
    pub stride: u64,
    /// The row ids, in the order to serve them: as many as the batch size, or fewer, as in an epoch's last batch.
    pub rows: Vec<u64>,
    /// How many of the rows are repeated. These are always the last ones.
    pub pads: usize,
    /// Which tokens of each of the rows to serve, in a plan of packs; nothing in a plan of rows.
    pub pieces: Vec<Piece>,
    /// How many of the pieces there are up to the end of each pack.
    pub packs: Vec<usize>,
}

impl BatchPlan {
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.pieces.clear();
        self.packs.clear();
        self.pads = 0;
    }
}
