//! Which rows were served, and which tokens.

use rowdex::order::{Algorithm, Pack, PackCounts};
use rowdex::sampler::BatchPlan;

use crate::command::failure::Failure;

/// What became of the tokens of an epoch of packs. Of ranks that are served the same, those of one are counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenCoverage {
    pack: Pack,
    /// What the packs of the epoch have.
    pub(crate) planned: PackCounts,
    /// Pieces and tokens that were served, those counted that come again as pads.
    pub(crate) pieces: u64,
    pub(crate) served: u64,
    pub(crate) repeated: u64,
    /// Places of packs; of batches of whole rows, with each row as long as the longest one.
    places: u64,
}

impl TokenCoverage {
    pub(super) fn new(pack: Pack, planned: PackCounts) -> Self {
        Self { pack, planned, pieces: 0, served: 0, repeated: 0, places: 0 }
    }

    pub(super) fn add(&mut self, batch: &BatchPlan) {
        let tokens = |pieces: &[rowdex::order::Piece]| pieces.iter().map(|piece| piece.length).sum::<u64>();
        let real = batch.pieces.len().saturating_sub(batch.pads);
        self.pieces += batch.pieces.len() as u64;
        self.served += tokens(&batch.pieces);
        self.repeated += tokens(batch.pieces.get(real..).unwrap_or_default());
        let packs = batch.packs.len() as u64;
        self.places += match self.pack.algorithm {
            Algorithm::Buckets => {
                let longest = batch.pieces.iter().map(|piece| self.pack.taken([piece.length])).max();
                longest.unwrap_or(0) * packs
            }
            _ => self.pack.capacity * packs,
        };
    }

    /// Tokens of the epoch's packs that were not served: those that the tail policy leaves out, and those of ranks and
    /// steps that were not asked for.
    pub(crate) fn left_out(&self) -> u64 {
        self.planned.tokens.saturating_sub(self.served - self.repeated)
    }

    /// Places without a token, those not counted that pieces take beside their own.
    pub(crate) fn padding(&self) -> u64 {
        self.places.saturating_sub(self.served + self.pack.extra * self.pieces)
    }
}

/// Which rows the chosen ranks were served, all together.
#[derive(Debug)]
pub(crate) struct Coverage {
    pub(crate) served: u64,
    pub(crate) distinct: u64,
    pub(crate) repeated: u64,
    pub(crate) missing: u64,
}

/// A bit for each row that was served.
pub(super) struct ServedRows {
    /// How many there are to serve.
    rows: u64,
    bits: Vec<u64>,
    pub(super) count: u64,
}

impl ServedRows {
    /// An index may claim any number of rows, and memory runs out before the numbers do.
    pub(super) fn new(all: u64, rows: u64) -> Result<Self, Failure> {
        let too_many = || Failure::new(format!("no memory to count which of {all} rows are served"));
        let words = usize::try_from(all.div_ceil(64)).map_err(|_| too_many())?;
        let mut bits = Vec::new();
        bits.try_reserve_exact(words).map_err(|_| too_many())?;
        bits.resize(words, 0);
        Ok(Self { rows, bits, count: 0 })
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

    pub(super) fn coverage(&self) -> Coverage {
        let distinct = self.bits.iter().map(|bits| u64::from(bits.count_ones())).sum();
        Coverage {
            served: self.count,
            distinct,
            repeated: self.count.saturating_sub(distinct),
            missing: self.rows.saturating_sub(distinct),
        }
    }
}
