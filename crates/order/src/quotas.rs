//! Weights as integers, so that what is drawn by them does not depend on how a machine or a language adds floats.

use rowdex_base::error::{Error, Result};

/// The most things that can be weighed: their numbers fit 32 bits.
const MAX_COUNT: u64 = u32::MAX as u64;

/// Integers in proportion to weights, which add up to less than 2^63.
///
/// Each is exact to one part in 2^62 of their sum, and at least 1 where the weight is above zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Quotas {
    shares: Vec<u64>,
    total: u64,
}

impl Quotas {
    /// `thing` says in errors what is weighed: `row`.
    pub(super) fn new(weights: &[f64], thing: &str) -> Result<Self> {
        let invalid = |message: String| Error::invalid(message);
        if weights.len() as u64 > MAX_COUNT {
            return Err(invalid(format!("weights for {} {thing}s, at most {MAX_COUNT} can be weighed", weights.len())));
        }
        let wrong = |weight: &f64| !weight.is_finite() || *weight < 0.0;
        if let Some(at) = weights.iter().position(wrong) {
            let weight = weights.get(at).copied().unwrap_or_default();
            return Err(invalid(format!("{thing} {at} has the weight {weight}"))
                .with_hint("weights are finite and not negative; 0 leaves out"));
        }
        let max = weights.iter().copied().fold(0.0, f64::max);
        if max == 0.0 {
            return Err(invalid(format!("of {} {thing}s none has a weight above zero", weights.len())));
        }
        let (mantissa, exponent) = parts(max);
        // The greatest weight becomes 2^62 or more, and less than 2^63.
        let shift = i32::try_from(mantissa.leading_zeros()).unwrap_or(0) - 1 - exponent;
        let scaled = |weight: &f64| {
            let (mantissa, exponent) = parts(*weight);
            let shift = exponent + shift;
            let by = shift.unsigned_abs();
            if shift >= 0 { mantissa << by } else { mantissa.checked_shr(by).unwrap_or(0) }
        };
        let sum: u128 = weights.iter().map(|weight| u128::from(scaled(weight))).sum();
        let excess = (u128::BITS - sum.leading_zeros()).saturating_sub(62);
        let share = |weight: &f64| if *weight > 0.0 { (scaled(weight) >> excess).max(1) } else { 0 };
        let shares: Vec<u64> = weights.iter().map(share).collect();
        // At most 2^62, and one more for each.
        let total = shares.iter().sum();
        Ok(Self { shares, total })
    }

    pub(super) fn as_slice(&self) -> &[u64] {
        &self.shares
    }

    /// Whole numbers in the same proportions that add up to `len`, by the method of largest remainders: rounded down,
    /// and one more for those that lost most by it, the first ones where several lost the same.
    pub(super) fn counts(&self, len: u64) -> Vec<u64> {
        let len = u128::from(len);
        let total = u128::from(self.total);
        let mut counts: Vec<u64> = self.shares.iter().map(|share| (len * u128::from(*share) / total) as u64).collect();
        let given: u128 = counts.iter().map(|count| u128::from(*count)).sum();
        let lost = |at: usize| self.shares.get(at).map_or(0, |share| len * u128::from(*share) % total);
        let mut losers: Vec<usize> = (0..counts.len()).collect();
        losers.sort_by_key(|at| std::cmp::Reverse(lost(*at)));
        for at in losers.into_iter().take((len - given) as usize) {
            if let Some(count) = counts.get_mut(at) {
                *count += 1;
            }
        }
        counts
    }
}

/// A finite float that is not negative, as an integer times a power of two.
fn parts(x: f64) -> (u64, i32) {
    let bits = x.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as i32;
    let fraction = bits & ((1 << 52) - 1);
    if exponent == 0 { (fraction, -1074) } else { (fraction | 1 << 52, exponent - 1075) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use rowdex_base::error::ErrorKind;

    fn shares(weights: &[f64]) -> Quotas {
        Quotas::new(weights, "row").unwrap()
    }

    #[test]
    fn shares_are_in_proportion_whatever_the_scale() {
        for scale in [1.0, 3.7e300, 1e-300, f64::MIN_POSITIVE] {
            let shares = shares(&[scale, 3.0 * scale, 0.0, 0.5 * scale]);
            let part = |at: usize| shares.as_slice()[at] as f64 / shares.total as f64;
            assert!((part(0) - 1.0 / 4.5).abs() < 1e-15 && (part(1) - 3.0 / 4.5).abs() < 1e-15);
            assert_eq!(shares.as_slice()[2], 0);
        }
        assert_eq!(shares(&[2.0_f64.powi(1023); 3]), shares(&[5e-324; 3]));
    }

    #[test]
    fn the_smallest_weight_beside_the_greatest_is_not_lost() {
        let shares = shares(&[f64::MAX, 5e-324, 0.0]);
        assert_eq!(shares.as_slice()[1..], [1, 0]);
    }

    #[test]
    fn weights_that_can_not_be_are_refused_by_place() {
        for (weights, word) in [
            (&[1.0, -2.0][..], "row 1"),
            (&[f64::NAN], "row 0"),
            (&[0.0, 1.0, f64::INFINITY], "row 2"),
            (&[0.0, -0.0], "none"),
            (&[], "none"),
        ] {
            let error = Quotas::new(weights, "row").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().contains(word), "{error}");
        }
    }

    #[test]
    fn remainders_go_to_who_lost_most_and_then_to_the_first() {
        assert_eq!(shares(&[7.0, 3.0]).counts(1000), [700, 300]);
        assert_eq!(shares(&[1.0; 3]).counts(8), [3, 3, 2]);
        assert_eq!(shares(&[0.48, 0.0, 0.27, 0.25]).counts(10), [5, 0, 3, 2]);
        assert_eq!(shares(&[1.0, 1e-9]).counts(10), [10, 0]);
        assert_eq!(shares(&[1.0, 2.0]).counts(0), [0, 0]);
    }

    proptest! {
        #[test]
        fn counts_add_up_and_are_within_one_of_their_proportion(
            weights in prop::collection::vec(0.0..1e6_f64, 1..20), len in 0..1_u64 << 40,
        ) {
            prop_assume!(weights.iter().any(|weight| *weight > 0.0));
            let shares = shares(&weights);
            prop_assert!(shares.total < 1 << 63);
            let counts = shares.counts(len);
            prop_assert_eq!(counts.iter().sum::<u64>(), len);
            for (count, share) in counts.iter().zip(shares.as_slice()) {
                let exact = u128::from(len) * u128::from(*share);
                let total = u128::from(shares.total);
                prop_assert!(u128::from(*count) * total < exact + total);
                prop_assert!(u128::from(*count + 1) * total > exact);
            }
        }
    }
}
