//! A keyed bijection of `[0, n)`: the right engine for the length, and the hashing of its key.
//!
//! Order v1 as a whole is the four files `permutation`, `fisher_yates`, `feistel` and `global`; `docs/orders.md`
//! specifies it. Frozen: no number that comes out of these files may change.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::feistel::Feistel;
use super::fisher_yates::FisherYates;

/// Where the engines take their randomness from: words hashed from one message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PermutationKey {
    message: [u8; 40],
    /// How many bytes of the message count: 32, or 40 with a number beside seed and epoch.
    len: usize,
}

impl PermutationKey {
    /// The key of one epoch of order v1: the tag, a zero byte, the seed and the epoch, both little-endian.
    pub(crate) fn order_v1(seed: u64, epoch: u64) -> Self {
        Self::tagged(b"rowdex order v1\0", seed, epoch)
    }

    /// The key of one epoch for the purpose that the tag names: no two purposes share a tag.
    pub(crate) fn tagged(tag: &[u8; 16], seed: u64, epoch: u64) -> Self {
        let mut message = [0; 40];
        message[..16].copy_from_slice(tag);
        message[16..24].copy_from_slice(&seed.to_le_bytes());
        message[24..32].copy_from_slice(&epoch.to_le_bytes());
        Self { message, len: 32 }
    }

    /// The key for number `i` of several of the same purpose: the message goes on with `i`, little-endian.
    pub(crate) fn numbered(mut self, i: u64) -> Self {
        self.message[32..].copy_from_slice(&i.to_le_bytes());
        self.len = 40;
        self
    }

    /// Word `i` of the key: xxh3-64 of the message with `i` as the hash's seed.
    fn word(&self, i: u64) -> u64 {
        xxh3_64_with_seed(&self.message[..self.len], i)
    }

    /// Words 0 to 7, the round keys of the Feistel network.
    pub(super) fn rounds(&self) -> [u64; 8] {
        std::array::from_fn(|i| self.word(i as u64))
    }

    /// Words 8 to 11 as little-endian bytes, the key of ChaCha.
    pub(super) fn chacha(&self) -> [u8; 32] {
        let mut key = [0; 32];
        for (i, bytes) in key.chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&self.word(8 + i as u64).to_le_bytes());
        }
        key
    }
}

/// A keyed bijection of `[0, len)`.
#[derive(Debug)]
pub(crate) enum Permutation {
    Table(FisherYates),
    Computed(Feistel),
}

impl Permutation {
    /// The most rows that get a real Fisher-Yates shuffle, as a table; what is longer is computed. Row ids up to here
    /// fit `u16`.
    pub(crate) const MAX_TABLE: u64 = 1 << 16;

    /// O(len) time and memory up to 2^16, O(1) beyond. `len` is at most [`MAX_LEN`](super::MAX_LEN).
    pub(crate) fn new(len: u64, key: &PermutationKey) -> Self {
        match u32::try_from(len) {
            Ok(short) if len <= Self::MAX_TABLE => Self::Table(FisherYates::new(short, key.chacha())),
            _ => Self::Computed(Feistel::new(len, key.rounds())),
        }
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Table(table) => table.len(),
            Self::Computed(feistel) => feistel.len(),
        }
    }

    /// Where `x` goes; `None` from `len` on.
    #[inline]
    pub(crate) fn forward(&self, x: u64) -> Option<u64> {
        match self {
            Self::Table(table) => table.forward(x),
            Self::Computed(feistel) => (x < feistel.len()).then(|| feistel.forward(x)),
        }
    }

    /// What goes to `y`; `None` from `len` on.
    #[inline]
    pub(crate) fn inverse(&self, y: u64) -> Option<u64> {
        match self {
            Self::Table(table) => table.inverse(y),
            Self::Computed(feistel) => (y < feistel.len()).then(|| feistel.inverse(y)),
        }
    }

    /// Replaces every element by where it goes. All of them must be below `len`.
    pub(crate) fn forward_all(&self, xs: &mut [u64]) {
        match self {
            Self::Table(table) => table.forward_all(xs),
            Self::Computed(feistel) => feistel.forward_all(xs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_used_up_to_its_last_length() {
        let key = PermutationKey::order_v1(0, 0);
        assert!(matches!(Permutation::new(1 << 16, &key), Permutation::Table(_)));
        assert!(matches!(Permutation::new((1 << 16) + 1, &key), Permutation::Computed(_)));
    }

    #[test]
    fn a_length_of_32_bits_more_is_not_taken_for_a_short_one() {
        assert_eq!(Permutation::new((1 << 32) + 5, &PermutationKey::order_v1(0, 0)).len(), (1 << 32) + 5);
    }
}
