//! Single bits of words.

/// The place of the `n`-th one of `word`, counted from 0; 64 where `word` has no more than `n` ones.
pub(crate) fn nth_one(mut word: u64, n: u64) -> u64 {
    for _ in 0..n {
        word &= word.wrapping_sub(1);
    }
    u64::from(word.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::nth_one;

    #[test]
    fn every_one_is_found_at_its_place() {
        for word in [1, 0b1011, u64::MAX, 1 << 63, 0x8000_0000_0000_0001, 0xdead_beef_0123_4567_u64] {
            let ones: Vec<u64> = (0..64).filter(|place| word >> place & 1 == 1).collect();
            for (n, place) in (0..).zip(&ones) {
                assert_eq!(nth_one(word, n), *place);
            }
            assert_eq!(nth_one(word, ones.len() as u64), 64);
        }
    }
}
