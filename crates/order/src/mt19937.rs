//! The Mersenne Twister, as PyTorch's CPU generator runs it.

/// Words of state.
const N: usize = 624;

/// How far ahead the word is that each word is mixed with.
const M: usize = 397;

/// MT19937 by M. Matsumoto and T. Nishimura (1998), with their initialisation of 2002 (`init_genrand`) and the standard
/// tempering.
///
/// Frozen by what it is compared with: `torch.manual_seed` and `numpy.random.RandomState` give the same words.
pub(super) struct Mt19937 {
    state: [u32; N],
    next: usize,
}

impl Mt19937 {
    /// The generator that `torch.Generator().manual_seed(seed)` is, which takes only the low 32 bits.
    pub(super) fn new(seed: u32) -> Self {
        let mut state = [0; N];
        let mut word = seed;
        for (j, slot) in (0..).zip(&mut state) {
            if j > 0 {
                word = (word ^ (word >> 30)).wrapping_mul(1_812_433_253).wrapping_add(j);
            }
            *slot = word;
        }
        Self { state, next: N }
    }

    /// The next tempered word.
    #[inline]
    pub(super) fn next_u32(&mut self) -> u32 {
        if self.next >= N {
            self.twist();
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    /// The next two words, the first one high, as `random64` of torch's generator has them.
    #[inline]
    pub(super) fn next_u64(&mut self) -> u64 {
        let high = u64::from(self.next_u32());
        high << 32 | u64::from(self.next_u32())
    }

    fn twist(&mut self) {
        for i in 0..N {
            let word = (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % N] & 0x7fff_ffff);
            let odd = if word & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[i] = self.state[(i + M) % N] ^ (word >> 1) ^ odd;
        }
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The 10 000th word of the seed 5489 is the one that the C++ standard (`std::mt19937`) and the authors give.
    #[test]
    fn the_ten_thousandth_word_is_that_of_the_standard() {
        let mut words = Mt19937::new(5489);
        assert_eq!(words.next_u32(), 3_499_211_612);
        let word = (1..10_000).map(|_| words.next_u32()).last();
        assert_eq!(word, Some(4_123_659_995));
    }

    /// `numpy.random.RandomState(42)` draws these 32-bit words first.
    #[test]
    fn the_words_are_those_of_numpy() {
        let mut words = Mt19937::new(42);
        let first: [u32; 4] = std::array::from_fn(|_| words.next_u32());
        assert_eq!(first, [1_608_637_542, 3_421_126_067, 4_083_286_876, 787_846_414]);
        let mut words = Mt19937::new(42);
        assert_eq!(words.next_u64(), 1_608_637_542 << 32 | 3_421_126_067);
    }
}
