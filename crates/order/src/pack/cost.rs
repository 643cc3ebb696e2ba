//! What packs cost, and how those of a step are dealt so that ranks have about as much to do.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use rowdex_base::error::{Error, Result};

/// What a pack costs: `linear · L + quadratic · Σ l²`, for pieces of `l` tokens that are `L` together. A model of 7
/// billion parameters has about 24,576 to 1.
///
/// Written and parsed as `24576-1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cost {
    /// Of a token.
    pub linear: u64,
    /// Of a token with each token of its piece.
    pub quadratic: u64,
}

impl Cost {
    /// Of a pack with pieces of these lengths. What exceeds 128 bits stays at the most.
    pub fn of(&self, lengths: impl IntoIterator<Item = u64>) -> u128 {
        let mut sum = 0_u128;
        let mut squares = 0_u128;
        for length in lengths {
            sum = sum.saturating_add(length.into());
            squares = squares.saturating_add(u128::from(length) * u128::from(length));
        }
        let linear = u128::from(self.linear);
        let quadratic = u128::from(self.quadratic);
        linear.saturating_mul(sum).saturating_add(quadratic.saturating_mul(squares))
    }

    /// Assigns packs of these costs to `ranks`: the numbers of the packs, those of rank 0 first. Each rank gets the
    /// same number, as far as there are enough.
    ///
    /// Packs are taken by falling cost, as many at a time as there are ranks. Of these the dearest goes to the rank
    /// that has had the least so far, and so on; among equals, the first pack to the first rank. So the `i`-th packs of
    /// all ranks cost about the same, too: each micro-step is even where gradients are accumulated.
    pub fn deal(costs: &[u128], ranks: usize) -> Vec<usize> {
        let ranks = ranks.max(1);
        let mut packs: Vec<usize> = (0..costs.len()).collect();
        packs.sort_by_key(|pack| std::cmp::Reverse(costs[*pack]));
        let mut dealt = vec![(0_u128, Vec::with_capacity(costs.len().div_ceil(ranks))); ranks];
        let mut least: Vec<usize> = (0..ranks).collect();
        for slice in packs.chunks(ranks) {
            least.sort_by_key(|rank| (dealt[*rank].0, *rank));
            for (pack, rank) in slice.iter().zip(&least) {
                let (sum, own) = &mut dealt[*rank];
                *sum = sum.saturating_add(costs[*pack]);
                own.push(*pack);
            }
        }
        dealt.into_iter().flat_map(|(_, own)| own).collect()
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.linear, self.quadratic)
    }
}

impl FromStr for Cost {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let numbers = text.split_once('-');
        let cost = numbers.and_then(|(linear, quadratic)| {
            Some(Self { linear: linear.parse().ok()?, quadratic: quadratic.parse().ok()? })
        });
        cost.ok_or_else(|| {
            Error::invalid(format!("{text:?} is not the cost of tokens"))
                .with_hint("a cost is two whole numbers: 24576-1")
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Global, Pack, Packed};

    #[test]
    fn a_pack_costs_what_its_tokens_and_their_pairs_do() {
        let cost = Cost { linear: 10, quadratic: 2 };
        assert_eq!((cost.of([]), cost.of([3, 4])), (0, 70 + 2 * 25));
        assert_eq!(Cost { linear: u64::MAX, quadratic: u64::MAX }.of([u64::MAX; 3]), u128::MAX);
        assert_eq!("10-2".parse::<Cost>().unwrap(), cost);
        assert!("10".parse::<Cost>().is_err() && "10-".parse::<Cost>().is_err() && "1.5-2".parse::<Cost>().is_err());
    }

    #[test]
    fn every_pack_is_dealt_once_and_ranks_have_as_many() {
        assert_eq!(Cost::deal(&[5, 9, 1, 7, 7, 2], 2), [1, 0, 5, 3, 4, 2]);
        for (packs, ranks) in [(0, 3), (12, 3), (7, 1), (5, 9)] {
            let costs: Vec<u128> = (0..packs).map(|pack| pack * 7919 % 613).collect();
            let mut dealt = Cost::deal(&costs, ranks);
            dealt.sort_unstable();
            assert!(dealt.into_iter().eq(0..packs as usize));
        }
    }

    /// Lengths that are about lognormal, with this mean.
    fn lengths(rows: u64, mean: f64, sigma: f64) -> Vec<u64> {
        let uniform = |row: u64, i: u64| {
            let drawn = (row * 12 + i).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            (drawn.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11) as f64 / (1_u64 << 53) as f64
        };
        let normal = |row| (0..12).map(|i| uniform(row, i)).sum::<f64>() - 6.0;
        let length = |row| (mean.ln() - sigma * sigma / 2.0 + sigma * normal(row)).exp() as u64;
        (0..rows).map(length).collect()
    }

    /// What the slowest of 64 ranks with 8 packs each has more than their mean, over the steps of an epoch.
    fn imbalance(mean: f64, sigma: f64, capacity: u64) -> f64 {
        let lengths = lengths(1 << 17, mean, sigma);
        let orders = Arc::new(Global::new(1 << 17, 3).unwrap());
        let epoch = Packed::new(orders, Arc::new(lengths), Pack::of(capacity)).unwrap().packed(0).unwrap();
        let cost = Cost { linear: 24_576, quadratic: 1 };
        let mut pieces = Vec::new();
        let mut costs = Vec::new();
        for pack in 0..epoch.packs() {
            let start = epoch.start(pack).unwrap();
            pieces.clear();
            epoch.read(start, epoch.start(pack + 1).unwrap() - start, &mut pieces).unwrap();
            costs.push(cost.of(pieces.iter().map(|piece| piece.length)));
        }
        let mut most = 0.0;
        let mut all = 0.0;
        for step in costs.chunks_exact(64 * 8) {
            let ranks: Vec<u128> =
                Cost::deal(step, 64).chunks(8).map(|own| own.iter().map(|pack| step[*pack]).sum()).collect();
            most += *ranks.iter().max().unwrap() as f64;
            all += ranks.iter().sum::<u128>() as f64 / 64.0;
        }
        most / all
    }

    #[test]
    #[cfg_attr(miri, ignore = "draws too many rows for Miri")]
    fn ranks_with_eight_packs_have_about_as_much_to_do() {
        let [web, web_long] = [8192, 32_768].map(|capacity| imbalance(898.0, 1.2, capacity));
        let [mixed, mixed_long] = [8192, 32_768].map(|capacity| imbalance(2424.0, 1.6, capacity));
        assert!(
            web <= 1.01 && mixed <= 1.01 && mixed_long <= 1.01 && web_long <= 1.08,
            "{web} {mixed} {mixed_long} {web_long}"
        );
    }
}
