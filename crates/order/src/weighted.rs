//! Rows drawn by weight.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3Default;

use super::fingerprint::fingerprint;
use super::philox::{Philox, below};
use super::quotas::Quotas;
use super::{EpochOrder, Order, OrderKind, Outline, Uses, check_len};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::once::Once;

const TAG: &[u8; 16] = b"rowdex draws v1\0";

/// Rows drawn by weight, with new draws in every epoch.
///
/// *With replacement* every position draws for itself: a row of weight `w` comes at each with probability `w` / sum of
/// the weights, independently of all others. A position costs O(1) expected: tens of nanoseconds, and the misses of a
/// table of up to 16 bytes a row. Nothing is prepared for an epoch.
///
/// *Without replacement* no row comes twice in an epoch, and each position draws by weight among the rows that are left
/// (Efraimidis and Spirakis). An epoch is O(n log n) to prepare for `n` rows and holds 4 bytes a position.
///
/// Rows of weight 0 are never served. Weights count by their proportions only.
/// [`EpochOrder::position`] looks through an epoch with replacement from its beginning, and sorts one without once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Weighted {
    #[serde(with = "crate::shared")]
    weights: Arc<WeightTotals>,
    len: u64,
    seed: u64,
    replacement: bool,
}

impl Weighted {
    const NAME: &str = "weighted";

    /// Epochs of `len` positions, each of which draws one of `weights.len()` rows by its weight.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if a weight is negative, infinite or not a number, if all are 0, if there are 2^32 or more, or
    /// if `len` exceeds [`MAX_LEN`](super::MAX_LEN).
    pub fn with_replacement(weights: &[f64], len: u64, seed: u64) -> Result<Self> {
        let weights = Arc::new(WeightTotals::new(Quotas::new(weights, "row")?, true));
        Ok(Self { weights, len: check_len(len)?, seed, replacement: true })
    }

    /// Epochs of `len` different rows, drawn one after the other by weight among those that are left.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for weights as in [`with_replacement`](Self::with_replacement), or if fewer than `len` rows
    /// have a weight above 0.
    pub fn without_replacement(weights: &[f64], len: u64, seed: u64) -> Result<Self> {
        let possible = weights.iter().filter(|weight| **weight > 0.0).count() as u64;
        let weights = Arc::new(WeightTotals::new(Quotas::new(weights, "row")?, false));
        if len > possible {
            let message = format!("{len} rows without replacement, and {possible} have a weight above zero");
            return Err(Error::invalid(message).with_hint("draw fewer rows, or draw with replacement"));
        }
        Ok(Self { weights, len, seed, replacement: false })
    }
}

impl Order for Weighted {
    fn len(&self) -> u64 {
        self.len
    }

    fn rows(&self) -> Option<u64> {
        Some(self.weights.rows())
    }

    fn epoch(&self, epoch: u64) -> Result<Arc<dyn EpochOrder>> {
        let draws = Philox::new(TAG, self.seed, epoch);
        if self.replacement {
            return Ok(Arc::new(Drawn { weights: Arc::clone(&self.weights), draws, len: self.len }));
        }
        Ok(Arc::new(Ranked { rows: self.weights.ranked(&draws, self.len as usize)?, by_row: Once::new() }))
    }

    fn fingerprint(&self) -> u64 {
        let parameters = [self.weights.rows(), self.weights.hash, u64::from(self.replacement), self.seed];
        fingerprint(Self::NAME, self.len, &parameters)
    }

    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn outline(&self) -> Outline {
        Outline::drawn(OrderKind::Weighted { replacement: self.replacement }, self.seed, self.len)
    }
}

/// The running totals of the shares, and where to look in them.
#[derive(Debug, Serialize, Deserialize)]
struct WeightTotals {
    /// The shares of all rows up to and including this one.
    totals: Vec<u64>,
    /// For every cell of `2^shift` numbers the first row that has any of them or of later ones: Chen and Asau's guide
    /// table. Without replacement nobody looks, and it is empty.
    guide: Vec<u32>,
    shift: u32,
    hash: u64,
}

impl WeightTotals {
    fn new(shares: Quotas, guided: bool) -> Self {
        let mut hash = Xxh3Default::new();
        let mut sum = 0;
        let totals: Vec<u64> = shares
            .as_slice()
            .iter()
            .map(|share| {
                hash.update(&share.to_le_bytes());
                sum += share;
                sum
            })
            .collect();
        let bits = |x: u64| u64::BITS - x.leading_zeros();
        // About as many cells as rows, so that a cell has about one row to search.
        let shift = bits(sum).saturating_sub(bits(totals.len() as u64));
        let mut guide = Vec::new();
        if guided {
            let mut row = 0;
            for cell in 0..=(sum - 1) >> shift {
                while totals.get(row).is_some_and(|total| *total <= cell << shift) {
                    row += 1;
                }
                guide.push(row as u32);
            }
        }
        Self { totals, guide, shift, hash: hash.digest() }
    }

    fn rows(&self) -> u64 {
        self.totals.len() as u64
    }

    fn total(&self) -> u64 {
        self.totals.last().copied().unwrap_or_default()
    }

    /// The first row whose running total exceeds `x`, which is below the total.
    fn row(&self, x: u64) -> u64 {
        let cell = (x >> self.shift) as usize;
        let first = self.guide.get(cell).map_or(0, |row| *row as usize);
        let last = self.guide.get(cell + 1).map_or(self.totals.len(), |row| *row as usize + 1);
        let cell = self.totals.get(first..last).unwrap_or_default();
        (first + cell.partition_point(|total| *total <= x)) as u64
    }

    /// The `len` rows with the smallest keys, smallest first, where a row of share `s` has an exponential key of rate
    /// `s`.
    fn ranked(&self, draws: &Philox, len: usize) -> Result<Vec<u32>> {
        let mut keys: Vec<(u64, u32)> = Vec::new();
        keys.try_reserve_exact(self.totals.len()).map_err(|_| {
            Error::new(ErrorKind::TooLarge, format!("no memory to draw from {} rows", self.totals.len()))
        })?;
        let mut before = 0;
        for (row, total) in (0..).zip(&self.totals) {
            let share = total - before;
            before = *total;
            if share > 0 {
                let [word, _] = draws.words(u64::from(row));
                // Floats that are not negative are ordered as their bits are.
                keys.push(((exponential(word) / share as f64).to_bits(), row));
            }
        }
        if len > 0 && len < keys.len() {
            keys.select_nth_unstable(len - 1);
        }
        keys.truncate(len);
        keys.sort_unstable();
        Ok(keys.into_iter().map(|(_, row)| row).collect())
    }
}

/// An exponential variate of rate 1 from a word: `-ln(u)` with `u = (floor(word / 2^12) + 1/2) / 2^52`.
///
/// Written out in operations that IEEE 754 rounds in one way, because logarithms of libraries differ in their last
/// bits, and with them could the order of rows on two machines.
fn exponential(word: u64) -> f64 {
    const HALF: u64 = 1 << 52;
    // u = m 2^-k with m in [1/2, 1), then in [0.7, 1.4].
    let u = 2 * (word >> 12) + 1;
    let zeros = u.leading_zeros() - 11;
    let mut m = ((u << zeros) as f64) / (2 * HALF) as f64;
    let mut k = f64::from(zeros);
    if m < std::f64::consts::FRAC_1_SQRT_2 {
        (m, k) = (2.0 * m, k + 1.0);
    }
    // ln(m) = 2 artanh((m - 1) / (m + 1)), by its series: the first term left out is below 2^-62.
    let s = (m - 1.0) / (m + 1.0);
    let square = s * s;
    let series = (0..=11).rev().fold(0.0, |sum, n| sum * square + 1.0 / f64::from(2 * n + 1));
    k * std::f64::consts::LN_2 - 2.0 * s * series
}

/// One epoch with replacement.
#[derive(Debug)]
struct Drawn {
    weights: Arc<WeightTotals>,
    draws: Philox,
    len: u64,
}

impl EpochOrder for Drawn {
    fn len(&self) -> u64 {
        self.len
    }

    #[inline]
    fn row(&self, position: u64) -> Option<u64> {
        let [word, _] = self.draws.words(position);
        (position < self.len).then(|| self.weights.row(below(self.weights.total(), word)))
    }

    fn position(&self, row: u64) -> Option<u64> {
        (0..self.len).find(|position| self.row(*position) == Some(row))
    }
}

/// One epoch without replacement.
#[derive(Debug)]
struct Ranked {
    rows: Vec<u32>,
    /// Positions by the rows at them.
    by_row: Once<Vec<u32>>,
}

impl EpochOrder for Ranked {
    fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    fn uses(&self) -> Uses {
        Uses::AtMostOnce
    }

    fn row(&self, position: u64) -> Option<u64> {
        self.rows.get(usize::try_from(position).ok()?).map(|row| u64::from(*row))
    }

    fn position(&self, row: u64) -> Option<u64> {
        let at = |position: &u32| u64::from(self.rows[*position as usize]);
        let by_row = self.by_row.get_or_init(|| {
            let mut positions: Vec<u32> = (0..self.rows.len() as u32).collect();
            positions.sort_unstable_by_key(at);
            positions
        });
        Some(by_row[by_row.binary_search_by_key(&row, at).ok()?].into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance;

    fn served(orders: &Weighted, epoch: u64) -> Vec<u64> {
        let mut rows = vec![0; orders.len() as usize];
        assert_eq!(orders.epoch(epoch).unwrap().fill(0, &mut rows), rows.len());
        rows
    }

    fn counts(rows: &[u64], of: usize) -> Vec<f64> {
        let mut counts = vec![0.0; of];
        for row in rows {
            counts[*row as usize] += 1.0;
        }
        counts
    }

    /// Chi-square against expected counts, scaled by the spread of its degrees of freedom.
    fn z(counts: &[f64], expected: &[f64]) -> f64 {
        let parts = counts.iter().zip(expected).filter(|(_, e)| **e > 0.0);
        let mut sum = 0.0;
        let mut freedom = -1.0;
        for (count, expected) in parts {
            sum += (count - expected).powi(2) / expected;
            freedom += 1.0;
        }
        (sum - freedom) / (2.0_f64 * freedom).sqrt()
    }

    fn ragged(rows: usize) -> Vec<f64> {
        (0..rows).map(|row| if row % 5 == 3 { 0.0 } else { (row % 7) as f64 + 0.25 }).collect()
    }

    #[test]
    fn both_ways_keep_the_contract() {
        for rows in [1, 2, 3, 10, 300] {
            let weights: Vec<f64> = ragged(rows);
            for len in [0, 1, 5, 700] {
                conformance::check(&Weighted::with_replacement(&weights, len, 3).unwrap(), [0, 1]).unwrap();
            }
            let possible = weights.iter().filter(|weight| **weight > 0.0).count() as u64;
            for len in [0, 1, possible / 2, possible] {
                conformance::check(&Weighted::without_replacement(&weights, len, 3).unwrap(), [0, 1]).unwrap();
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "draws too many rows for Miri")]
    fn rows_come_as_often_as_their_weights_say() {
        for (rows, seed) in [(2, 0), (10, 1), (1000, 2)] {
            let weights = ragged(rows);
            let total: f64 = weights.iter().sum();
            let n = 400_000;
            let orders = Weighted::with_replacement(&weights, n, seed).unwrap();
            let expected: Vec<f64> = weights.iter().map(|weight| weight / total * n as f64).collect();
            for epoch in 0..3 {
                let counts = counts(&served(&orders, epoch), rows);
                assert!(counts.iter().zip(&weights).all(|(count, weight)| *weight > 0.0 || *count == 0.0));
                let z = z(&counts, &expected);
                assert!(z.abs() < 5.0, "{rows} rows, epoch {epoch}: {z}");
            }
        }
    }

    /// Of three rows the first is row i with probability w_i / W, and the second is j with w_j / (W - w_i).
    #[test]
    #[cfg_attr(miri, ignore = "draws too many rows for Miri")]
    fn without_replacement_each_position_draws_among_the_rows_that_are_left() {
        let weights = [1.0, 2.0, 5.0];
        let orders = Weighted::without_replacement(&weights, 3, 11).unwrap();
        let n = 60_000;
        let mut counts = [0.0; 9];
        for epoch in 0..n {
            let rows = served(&orders, epoch);
            counts[(rows[0] * 3 + rows[1]) as usize] += 1.0;
        }
        let mut expected = [0.0; 9];
        for i in 0..3 {
            for j in (0..3).filter(|j| *j != i) {
                expected[i * 3 + j] = n as f64 * weights[i] / 8.0 * weights[j] / (8.0 - weights[i]);
            }
        }
        let z = z(&counts, &expected);
        assert!(z.abs() < 5.0, "{z}");
    }

    #[test]
    fn without_replacement_no_row_comes_twice_and_none_of_weight_zero() {
        let weights = ragged(1000);
        let orders = Weighted::without_replacement(&weights, 800, 1).unwrap();
        let mut rows = served(&orders, 4);
        assert!(rows.iter().all(|row| weights[*row as usize] > 0.0));
        rows.sort_unstable();
        rows.dedup();
        assert_eq!(rows.len(), 800);
        // A shorter epoch is the beginning of a longer one.
        let fewer = Weighted::without_replacement(&weights, 100, 1).unwrap();
        assert_eq!(served(&fewer, 4), served(&orders, 4)[..100]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "compares with a logarithm that Miri makes inexact")]
    fn the_written_out_logarithm_is_one() {
        for word in (0..64).flat_map(|bit| [0, 1, u64::MAX].map(|low: u64| (1_u64 << bit) ^ low)).chain([0, u64::MAX]) {
            let u = ((word >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
            let own = exponential(word);
            let library = -u.ln();
            assert!((own - library).abs() <= 1e-15 * library, "{word:x}: {own} and {library}");
            assert!(own > 0.0);
        }
    }

    #[test]
    fn weights_and_lengths_that_can_not_be_are_refused() {
        for weights in [&[1.0, -1.0][..], &[f64::NAN], &[f64::INFINITY], &[0.0, 0.0], &[]] {
            for made in [Weighted::with_replacement(weights, 1, 0), Weighted::without_replacement(weights, 0, 0)] {
                assert_eq!(made.unwrap_err().kind(), ErrorKind::InvalidArgument);
            }
        }
        let error = Weighted::without_replacement(&[1.0, 0.0, 2.0], 3, 0).unwrap_err();
        assert!(error.message().contains("3 rows") && error.message().contains("2 have"), "{error}");
        assert_eq!(Weighted::with_replacement(&[1.0], 1 << 63, 0).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }

    #[test]
    fn fingerprints_tell_weights_seeds_lengths_and_ways_apart() {
        let with = |weights: &[f64], len, seed| Weighted::with_replacement(weights, len, seed).unwrap().fingerprint();
        let print = with(&[1.0, 2.0], 2, 0);
        assert_eq!(print, with(&[2.0, 4.0], 2, 0));
        assert_ne!(print, with(&[2.0, 1.0], 2, 0));
        assert_ne!(print, with(&[1.0, 2.0, 0.0], 2, 0));
        assert_ne!(print, with(&[1.0, 2.0], 3, 0));
        assert_ne!(print, with(&[1.0, 2.0], 2, 1));
        assert_ne!(print, Weighted::without_replacement(&[1.0, 2.0], 2, 0).unwrap().fingerprint());
    }

    #[test]
    fn version_1_is_frozen() {
        let weights = [0.5, 3.0, 0.0, 1e-3, 7.25, 2.0, 0.125, 1.0];
        let with = Weighted::with_replacement(&weights, 12, 42).unwrap();
        assert_eq!(served(&with, 0), [4, 0, 0, 4, 4, 0, 4, 4, 5, 4, 4, 4]);
        assert_eq!(served(&with, 1), [1, 4, 1, 1, 1, 5, 5, 4, 4, 7, 1, 7]);
        let without = Weighted::without_replacement(&weights, 7, 42).unwrap();
        assert_eq!(served(&without, 0), [4, 7, 0, 1, 5, 6, 3]);
        assert_eq!(served(&without, 1), [5, 1, 4, 7, 6, 0, 3]);
        assert_eq!([with.fingerprint(), without.fingerprint()], [0x99ba_1409_847d_fa6d, 0xc5b4_bb7c_2583_64d6]);
    }
}
