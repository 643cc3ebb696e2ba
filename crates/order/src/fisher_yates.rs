//! Fisher-Yates over a table, for orders short enough to hold.

use rand::rngs::ChaCha12Rng;
use rand::{Rng, SeedableRng};

/// A permutation of at most 2^16 elements and its inverse, as tables: 4 bytes an element.
#[derive(Debug)]
pub(crate) struct FisherYates {
    forward: Box<[u16]>,
    inverse: Box<[u16]>,
}

impl FisherYates {
    /// Philox the permutation from the ChaCha12 keystream of `key` (block counter and stream id from 0).
    ///
    /// `len` is at most 2^16, which makes every element fit `u16`.
    pub(crate) fn new(len: u32, key: [u8; 32]) -> Self {
        debug_assert!(len <= 1 << 16);
        let mut words = ChaCha12Rng::from_seed(key);
        let mut forward: Box<[u16]> = (0..len).map(|x| x as u16).collect();
        for last in (1..len).rev() {
            forward.swap(last as usize, below(last + 1, &mut words) as usize);
        }
        let mut inverse = vec![0; forward.len()].into_boxed_slice();
        for (x, y) in forward.iter().enumerate() {
            inverse[usize::from(*y)] = x as u16;
        }
        Self { forward, inverse }
    }

    pub(crate) fn len(&self) -> u64 {
        self.forward.len() as u64
    }

    pub(crate) fn forward(&self, x: u64) -> Option<u64> {
        look_up(&self.forward, x)
    }

    pub(crate) fn inverse(&self, y: u64) -> Option<u64> {
        look_up(&self.inverse, y)
    }

    /// Replaces every element, all below `len`, by where it goes.
    pub(crate) fn forward_all(&self, xs: &mut [u64]) {
        for x in xs {
            *x = u64::from(self.forward[*x as usize]);
        }
    }
}

fn look_up(table: &[u16], x: u64) -> Option<u64> {
    table.get(usize::try_from(x).ok()?).map(|y| u64::from(*y))
}

/// An unbiased integer in `[0, bound)` by Lemire's multiply-shift with rejection.
///
/// Written out on raw words, rather than asked of `rand`, because the crate may change how it draws ranges and the
/// order may not change.
fn below(bound: u32, words: &mut impl Rng) -> u32 {
    loop {
        let product = u64::from(words.next_u32()) * u64::from(bound);
        // What is rejected is below 2^32 modulo the bound, hence below the bound: so the division is hardly ever made.
        if product as u32 >= bound || product as u32 >= bound.wrapping_neg() % bound {
            return (product >> 32) as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permutation::PermutationKey;

    #[test]
    fn every_short_length_gives_a_permutation_and_its_inverse() {
        let short = (0..=4096).step_by(if cfg!(miri) { 400 } else { 1 });
        let longer = [65_536, 65_535, 32_769, 32_768, 32_767, 8193, 8192, 8191];
        for len in short.chain(longer.into_iter().skip(if cfg!(miri) { 5 } else { 0 })) {
            let table = FisherYates::new(len, PermutationKey::order_v1(u64::from(len), 3).chacha());
            let mut seen = vec![false; len as usize];
            for x in 0..u64::from(len) {
                let y = table.forward(x).unwrap();
                assert!(!std::mem::replace(&mut seen[y as usize], true), "{len}: {y} twice");
                assert_eq!(table.inverse(y), Some(x));
            }
            assert_eq!((table.forward(u64::from(len)), table.inverse(u64::from(len))), (None, None));
        }
    }

    #[test]
    fn draws_reject_the_words_that_would_bias_them() {
        struct Words(Vec<u32>);
        impl rand::rand_core::TryRng for Words {
            type Error = std::convert::Infallible;
            fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
                Ok(self.0.remove(0))
            }
            fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
                unreachable!("only 32-bit words are drawn")
            }
            fn try_fill_bytes(&mut self, _: &mut [u8]) -> Result<(), Self::Error> {
                unreachable!("only 32-bit words are drawn")
            }
        }
        // 2^32 = 3 * 1_431_655_765 + 1: of all words exactly one, 0, must go.
        assert_eq!(below(3, &mut Words(vec![0, 1])), 0);
        assert_eq!(below(3, &mut Words(vec![u32::MAX])), 2);
        assert_eq!(below(1, &mut Words(vec![0])), 0);
        assert_eq!(below(1 << 16, &mut Words(vec![0])), 0);
    }
}
