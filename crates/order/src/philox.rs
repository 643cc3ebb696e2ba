//! Random words by their number, for orders that draw rows instead of permuting them.

use xxhash_rust::xxh3::xxh3_64;

/// Philox2x64-10: 64-bit words as a function of a 64-bit key and a 128-bit counter.
///
/// J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw: *Parallel random numbers: as easy as 1, 2, 3*, SC 2011. It
/// passes BigCrush, and any word costs the same, which is what lets a run resume anywhere.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Philox {
    key: u64,
    epoch: u64,
}

const MULTIPLIER: u64 = 0xd2b7_4407_b1ce_6e93;
const KEY_STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const ROUNDS: usize = 10;

impl Philox {
    /// The words of one epoch. The tag keeps orders of different sorts with one seed from drawing the same words.
    pub(crate) fn new(tag: &[u8; 16], seed: u64, epoch: u64) -> Self {
        Self { key: key(tag, seed), epoch }
    }

    /// The words of another epoch.
    pub(crate) fn in_epoch(self, epoch: u64) -> Self {
        Self { epoch, ..self }
    }

    /// The two words with this number.
    #[inline]
    pub(crate) fn words(&self, number: u64) -> [u64; 2] {
        philox([number, self.epoch], self.key)
    }
}

fn key(tag: &[u8; 16], seed: u64) -> u64 {
    let mut message = [0; 24];
    message[..16].copy_from_slice(tag);
    message[16..].copy_from_slice(&seed.to_le_bytes());
    xxh3_64(&message)
}

/// The key of the random numbers that functions of rows get, *augment v1*: `docs/orders.md` has the generator.
pub fn augment_key(seed: u64) -> u64 {
    key(b"rowdex augment1\0", seed)
}

#[inline]
fn philox([mut first, mut second]: [u64; 2], mut key: u64) -> [u64; 2] {
    for _ in 0..ROUNDS {
        let product = u128::from(MULTIPLIER) * u128::from(first);
        (first, second) = ((product >> 64) as u64 ^ key ^ second, product as u64);
        key = key.wrapping_add(KEY_STEP);
    }
    [first, second]
}

/// `floor(word * bound / 2^64)`: below `bound`, each value as likely as any other within `2^-64`.
#[inline]
pub(crate) fn below(bound: u64, word: u64) -> u64 {
    ((u128::from(word) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that the authors of Philox publish.
    #[test]
    fn known_answers_come_out() {
        for (counter, key, words) in [
            ([0, 0], 0, [0xca00_a045_9843_d731, 0x66c2_4222_c9a8_45b5]),
            ([u64::MAX, u64::MAX], u64::MAX, [0x65b0_21d6_0cd8_310f, 0x4d02_f322_2f86_df20]),
            (
                [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344],
                0xa409_3822_299f_31d0,
                [0x0a5e_742c_2997_341c, 0xb0f8_83d3_8000_de5d],
            ),
        ] {
            assert_eq!(philox(counter, key), words);
        }
    }

    #[test]
    fn bounds_are_kept() {
        assert_eq!((below(10, 0), below(10, u64::MAX), below(1, u64::MAX), below(0, 5)), (0, 9, 0, 0));
        assert_eq!(below(u64::MAX, u64::MAX), u64::MAX - 1);
    }
}
