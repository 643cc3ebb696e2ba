//! Which rows are for training and which for validation.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::id_set::IdSet;
use super::names::named;
use rowdex_base::error::{Error, Result};

/// Begins the message that a split's key is hashed from.
const TAG: &[u8; 16] = b"rowdex split v1\0";

/// The same for a sample.
const SAMPLE_TAG: &[u8; 16] = b"rowdex sample v1";

/// A side of a [`Split`].
///
/// Written and parsed as `train` and `validation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// Rows to train on.
    Train,
    /// Rows to validate with.
    Validation,
}

named!(Side, "side of a split", "use train or validation", Train = "train", Validation = "validation");

/// A split into training and validation rows by a hash, so that nothing but the seed and a row's own key decides its
/// side.
///
/// The key is the row id, or what identifies the row to its user. A row keeps its side when files are appended, and
/// with a key column wherever it moves; rows with equal keys are on one side. The sizes are as by a coin toss for each
/// key: a validation fraction `f` of `n` keys gives `f n` of them, within about `sqrt(f (1 - f) n)`.
///
/// `docs/orders.md` specifies the hash. It is frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Split {
    key: u64,
    /// Hashes below are for validation: 0 to 2^64.
    threshold: u128,
}

impl Split {
    /// The split that gives this fraction of the keys to validation. Another seed is another split.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` unless the fraction is from 0 to 1.
    pub fn new(validation_fraction: f64, seed: u64) -> Result<Self> {
        if !(0.0..=1.0).contains(&validation_fraction) {
            let message = format!("a validation fraction of {validation_fraction}");
            return Err(Error::invalid(message).with_hint("use a fraction from 0 to 1"));
        }
        Ok(Self::tagged(TAG, validation_fraction, seed))
    }

    /// The same hash for a sample of the rows: its rows are those of [`Side::Validation`]. Another seed is another
    /// sample, and a sample has nothing to do with the split of its seed. A row that is in it stays in it when files
    /// are appended, and in every larger sample of the same seed.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` unless the fraction is from 0 to 1.
    pub fn sample(fraction: f64, seed: u64) -> Result<Self> {
        if !(0.0..=1.0).contains(&fraction) {
            let message = format!("a sample of {fraction} of the rows");
            return Err(Error::invalid(message).with_hint("use a fraction from 0 to 1"));
        }
        Ok(Self::tagged(SAMPLE_TAG, fraction, seed))
    }

    fn tagged(tag: &[u8; 16], fraction: f64, seed: u64) -> Self {
        let mut message = [0; 24];
        message[..16].copy_from_slice(tag);
        message[16..].copy_from_slice(&seed.to_le_bytes());
        // Scaling by a power of two is exact, and so is the conversion of what is at most 2^64.
        let threshold = (fraction * 2.0_f64.powi(64)) as u128;
        Self { key: xxh3_64(&message), threshold }
    }

    /// The side of this key. O(its length).
    pub fn side(&self, key: &[u8]) -> Side {
        match u128::from(xxh3_64_with_seed(key, self.key)) < self.threshold {
            true => Side::Validation,
            false => Side::Train,
        }
    }

    /// The side of a row by its row id: the key is its 8 bytes, little-endian.
    pub fn side_of_row(&self, row: u64) -> Side {
        self.side(&row.to_le_bytes())
    }

    /// The rows of one side by their row ids, of `rows` rows: about 1.06 bits a row, and a few nanoseconds each to find
    /// out.
    ///
    /// # Errors
    ///
    /// Those of [`IdSet::filter`].
    pub fn rows(&self, side: Side, rows: u64) -> Result<IdSet> {
        IdSet::filter(rows, |row| self.side_of_row(row) == side)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowdex_base::error::ErrorKind;

    #[test]
    #[cfg_attr(miri, ignore = "draws too many rows for Miri")]
    fn sides_are_as_large_as_asked_for_within_chance() {
        for (fraction, seed) in [(0.5, 0), (0.1, 0), (0.1, 1), (0.1, u64::MAX), (0.001, 3), (0.9, 4)] {
            let n = 1_000_000;
            let validation = Split::new(fraction, seed).unwrap().rows(Side::Validation, n).unwrap();
            let mean = fraction * n as f64;
            let z = (validation.len() as f64 - mean) / (mean * (1.0 - fraction)).sqrt();
            assert!(z.abs() < 5.0, "{fraction} with seed {seed}: {z}");
            // Neighbours are on one side no more often than chance has it.
            let pairs = validation.iter().zip(validation.iter().skip(1)).filter(|(a, b)| a + 1 == *b).count();
            let mean = fraction * fraction * n as f64;
            assert!((pairs as f64 - mean).abs() < 6.0 * mean.sqrt() + 3.0, "{fraction} with seed {seed}: {pairs}");
        }
    }

    #[test]
    fn sides_do_not_overlap_and_leave_nothing_out() {
        for fraction in [0.0, 0.3, 1.0] {
            let split = Split::new(fraction, 7).unwrap();
            let [train, validation] = [Side::Train, Side::Validation].map(|side| split.rows(side, 5000).unwrap());
            assert_eq!(train.complement().unwrap(), validation);
        }
        assert_eq!(Split::new(0.0, 7).unwrap().rows(Side::Validation, 5000).unwrap().len(), 0);
        assert_eq!(Split::new(1.0, 7).unwrap().rows(Side::Train, 5000).unwrap().len(), 0);
    }

    #[test]
    fn a_row_keeps_its_side_when_rows_are_appended_and_when_the_fraction_grows() {
        let [small, large] = [0.1, 0.2].map(|fraction| Split::new(fraction, 5).unwrap());
        let [few, many] = [1000, 3000].map(|rows| small.rows(Side::Validation, rows).unwrap());
        assert!(few.iter().eq(many.iter().take_while(|row| *row < 1000)));
        let more = large.rows(Side::Validation, 3000).unwrap();
        assert!(many.iter().all(|row| more.contains(row)));
    }

    #[test]
    #[cfg_attr(miri, ignore = "draws too many rows for Miri")]
    fn a_sample_is_as_large_as_asked_for_and_knows_nothing_of_the_split_of_its_seed() {
        let n = 1_000_000;
        let sample = Split::sample(0.1, 3).unwrap().rows(Side::Validation, n).unwrap();
        let deviation = (0.09 * n as f64).sqrt();
        assert!((sample.len() as f64 - 0.1 * n as f64).abs() < 5.0 * deviation, "{}", sample.len());
        let validation = Split::new(0.1, 3).unwrap().rows(Side::Validation, n).unwrap();
        let both = sample.intersection(&validation).unwrap().len() as f64;
        assert!((both - 0.01 * n as f64).abs() < 5.0 * 100.0, "{both}");
        let larger = Split::sample(0.2, 3).unwrap();
        assert!(sample.iter().take(1000).all(|row| larger.side_of_row(row) == Side::Validation));
        let few = Split::sample(0.1, 3).unwrap().rows(Side::Validation, 1000).unwrap();
        assert!(few.iter().eq(sample.iter().take_while(|row| *row < 1000)));
    }

    #[test]
    fn a_fraction_beyond_0_and_1_is_refused() {
        for fraction in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Split::new(fraction, 0).unwrap_err().kind(), ErrorKind::InvalidArgument);
            assert_eq!(Split::sample(fraction, 0).unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
    }

    #[test]
    fn names_are_parsed_as_they_are_written() {
        for side in [Side::Train, Side::Validation] {
            assert_eq!(side.to_string().parse::<Side>().unwrap(), side);
        }
        assert_eq!("test".parse::<Side>().unwrap_err().kind(), ErrorKind::InvalidArgument);
    }

    /// People compare models over years by what they never trained on: a change here leaks it.
    #[test]
    fn splits_are_frozen() {
        let rows = |fraction, seed| {
            Split::new(fraction, seed).unwrap().rows(Side::Validation, 100).unwrap().iter().collect::<Vec<_>>()
        };
        assert_eq!(rows(0.1, 0), [48, 57, 59, 63, 74, 75, 79, 93, 97]);
        assert_eq!(rows(0.1, 42), [11, 26, 29, 31, 54, 55, 87]);
        let split = Split::new(0.5, 0).unwrap();
        let sides: Vec<Side> = ["", "a", "user 17", "a longer key than fits a few words"]
            .into_iter()
            .map(|key| split.side(key.as_bytes()))
            .collect();
        assert_eq!(sides, [Side::Validation, Side::Validation, Side::Train, Side::Validation]);
    }
}
