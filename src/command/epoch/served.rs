//! Which rows were served, and which tokens.

use rowdex::order::{Algorithm, Pack, Piece};
use rowdex::sampler::BatchPlan;
use serde_json::{Value, json};

use crate::command::failure::Failure;

/// What became of the tokens of an epoch of packs. Of ranks that are served the same, those of one are counted.
pub(super) struct ServedTokens {
    pack: Pack,
    /// The tokens of all packs of the epoch; `rowdex estimate` says which ones packs leave out.
    planned: u64,
    /// Pieces and tokens that were served, the repeated ones included.
    pieces: u64,
    served: u64,
    repeated: u64,
    /// Places of packs; of batches of whole rows, with each row as long as the longest one.
    places: u64,
}

impl ServedTokens {
    pub(super) fn new(pack: Pack, planned: u64) -> Self {
        Self { pack, planned, pieces: 0, served: 0, repeated: 0, places: 0 }
    }

    pub(super) fn add(&mut self, batch: &BatchPlan) {
        let tokens = |pieces: &[Piece]| pieces.iter().map(|piece| piece.length).sum::<u64>();
        let real = batch.pieces.len().saturating_sub(batch.pads);
        self.pieces += batch.pieces.len() as u64;
        self.served += tokens(&batch.pieces);
        self.repeated += tokens(batch.pieces.get(real..).unwrap_or_default());
        let longest = || batch.pieces.iter().map(|piece| self.pack.taken([piece.length])).max().unwrap_or(0);
        let size = if self.pack.algorithm == Algorithm::Buckets { longest() } else { self.pack.capacity };
        self.places += size * batch.packs.len() as u64;
    }

    pub(super) fn told(&self) -> Value {
        json!({
            "served": self.served,
            "repeated": self.repeated,
            // By the tail policy, and of ranks and steps that were not asked for.
            "left_out": self.planned.saturating_sub(self.served - self.repeated),
            // Without those that pieces take beside their own.
            "padding": self.places.saturating_sub(self.served + self.pack.extra * self.pieces),
            "pieces": self.pieces,
        })
    }
}

/// A bit for each row that was served.
pub(super) struct ServedRows {
    bits: Vec<u64>,
    pub(super) count: u64,
}

impl ServedRows {
    /// An index may claim any number of rows, and memory runs out before the numbers do.
    pub(super) fn new(rows: u64) -> Result<Self, Failure> {
        let too_many = || Failure::new(format!("no memory to count which of {rows} rows are served"));
        let words = usize::try_from(rows.div_ceil(64)).map_err(|_| too_many())?;
        let mut bits = Vec::new();
        bits.try_reserve_exact(words).map_err(|_| too_many())?;
        bits.resize(words, 0);
        Ok(Self { bits, count: 0 })
    }

    pub(super) fn clear(&mut self) {
        self.bits.fill(0);
        self.count = 0;
    }

    pub(super) fn add(&mut self, rows: &[u64]) {
        self.count += rows.len() as u64;
        for &row in rows {
            if let Some(bits) = self.bits.get_mut((row / 64) as usize) {
                *bits |= 1 << (row % 64);
            }
        }
    }

    /// How many rows were served at all.
    pub(super) fn distinct(&self) -> u64 {
        self.bits.iter().map(|bits| u64::from(bits.count_ones())).sum()
    }
}
