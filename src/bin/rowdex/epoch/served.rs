//! Which rows were served.

use crate::failure::Failure;

/// Which rows the chosen ranks were served, all together.
#[derive(Debug)]
pub(crate) struct Coverage {
    pub(crate) served: u64,
    pub(crate) distinct: u64,
    pub(crate) repeated: u64,
    pub(crate) missing: u64,
}

/// A bit for each row that was served.
pub(super) struct Served {
    /// How many there are to serve.
    rows: u64,
    bits: Vec<u64>,
    pub(super) count: u64,
}

impl Served {
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
