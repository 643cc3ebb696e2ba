//! How long the rows of an index are, as `rowdex info` shows it.

use rowdex::Index;
use rowdex::index::RowLengths;
use rowdex::order::Lengths;
use serde_json::{Value, json};

use crate::command::failure::Failure;

/// Which shares of the rows are told.
const QUANTILES: [f64; 7] = [0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0];

/// All lengths of an index.
pub(crate) fn told(index: &Index) -> Result<Vec<Value>, Failure> {
    let one = |name: &str| {
        let lengths = index.lengths(name)?;
        let counts = LengthCounts::of(&lengths)?;
        let quantiles = QUANTILES.map(|share| json!({"share": share, "length": counts.quantile(share)}));
        Ok(json!({
            "name": name,
            "of": lengths.of().name(),
            "sum": lengths.sum(),
            "longest": lengths.longest(),
            "mean": counts.mean(lengths.sum()),
            "median": counts.quantile(0.5),
            "quantiles": quantiles,
            "fingerprint": format!("{:016x}", lengths.fingerprint()),
        }))
    };
    index.lengths_columns()?.into_iter().map(one).collect()
}

/// Bits of a length that are told apart: all below 2^16, and a 32 768th of longer ones.
const BITS: u32 = 16;

/// How many rows have which length.
struct LengthCounts {
    rows: u64,
    longest: u64,
    counts: Vec<u64>,
}

impl LengthCounts {
    fn of(lengths: &RowLengths) -> Result<Self, Failure> {
        const AT_ONCE: u64 = 1 << 16;
        let mut counts = Self { rows: lengths.len(), longest: lengths.longest(), counts: Vec::new() };
        let mut read = Vec::new();
        let mut at = 0;
        while at < counts.rows {
            let end = counts.rows.min(at + AT_ONCE);
            read.clear();
            lengths.read(at..end, &mut read)?;
            read.iter().for_each(|length| counts.add(*length));
            at = end;
        }
        Ok(counts)
    }

    fn add(&mut self, length: u64) {
        let place = place_of(length);
        if place >= self.counts.len() {
            self.counts.resize(place + 1, 0);
        }
        self.counts[place] += 1;
    }

    /// The length that this share of the rows is not longer than.
    fn quantile(&self, share: f64) -> u64 {
        let wanted = ((share * self.rows as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        if share >= 1.0 { self.longest } else { found.map_or(0, length_at) }
    }

    fn mean(&self, sum: u64) -> f64 {
        if self.rows == 0 { 0.0 } else { sum as f64 / self.rows as f64 }
    }
}

/// Where lengths like this are counted.
fn place_of(length: u64) -> usize {
    let shift = (u64::BITS - length.leading_zeros()).saturating_sub(BITS);
    // Behind all short lengths there is half as much room for each shift.
    ((u64::from(shift) << (BITS - 1)) + (length >> shift)) as usize
}

/// The shortest length that is counted there.
fn length_at(place: usize) -> u64 {
    let place = place as u64;
    let shift = (place >> (BITS - 1)).saturating_sub(1);
    (place - (shift << (BITS - 1))) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(lengths: &[u64]) -> LengthCounts {
        let longest = lengths.iter().copied().max().unwrap_or_default();
        let mut counts = LengthCounts { rows: lengths.len() as u64, longest, counts: Vec::new() };
        lengths.iter().for_each(|length| counts.add(*length));
        counts
    }

    #[test]
    fn short_lengths_are_told_exactly_and_long_ones_to_a_32_768th() {
        for length in [0, 1, 7, 65_535] {
            assert_eq!(length_at(place_of(length)), length);
        }
        let mut before = place_of(65_535);
        for length in (16..40).flat_map(|bits| [1_u64 << bits, (1 << bits) + (1 << (bits - 1)), (2 << bits) - 1]) {
            let told = length_at(place_of(length));
            assert!(told <= length && length - told <= length >> 15, "{length} is told as {told}");
            assert!(place_of(length) > before);
            before = place_of(length);
        }
    }

    #[test]
    fn quantiles_are_lengths_of_rows() {
        let counts = counts(&(0..=100).collect::<Vec<_>>());
        assert_eq!([0.0, 0.25, 0.5, 0.95, 1.0].map(|share| counts.quantile(share)), [0, 25, 50, 95, 100]);
        assert_eq!(counts.mean(5050), 50.0);
        let none = super::tests::counts(&[]);
        assert_eq!((none.quantile(0.5), none.mean(0)), (0, 0.0));
    }
}
