//! Single bits of words.

/// The place of the `n`-th one of `word`, counted from 0; 64 where `word` has no more than `n` ones.
///
/// S. Vigna: *Broadword implementation of rank/select queries*, WEA 2008: the ones of all bytes are counted and summed
/// up at once, which tells the byte; only its ones are gone through.
pub fn nth_one(word: u64, n: u64) -> u64 {
    const ONE_EACH: u64 = u64::MAX / 0xff;
    const HIGH_EACH: u64 = ONE_EACH << 7;
    let n = n.min(64);
    let pairs = word - (word >> 1 & (ONE_EACH * 0x55));
    let nibbles = (pairs & (ONE_EACH * 0x33)) + (pairs >> 2 & (ONE_EACH * 0x33));
    let bytes = (nibbles + (nibbles >> 4)) & (ONE_EACH * 0x0f);
    // Byte i has the ones of bytes 0 to i: 64 at most, so that no difference below borrows from the next byte.
    let sums = bytes.wrapping_mul(ONE_EACH);
    let passed = (((n * ONE_EACH) | HIGH_EACH) - sums) & HIGH_EACH;
    let place = ((passed >> 7).wrapping_mul(ONE_EACH) >> 56) * 8;
    if place == 64 {
        return 64;
    }
    let mut byte = word >> place & 0xff;
    for _ in (sums << 8) >> place & 0xff..n {
        byte &= byte.wrapping_sub(1);
    }
    place + u64::from(byte.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::nth_one;

    #[test]
    fn every_one_is_found_at_its_place() {
        let mixed = (0..if cfg!(miri) { 20 } else { 1000_u64 })
            .map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) & (i << 55 | i << 30 | i.wrapping_mul(i)));
        for word in mixed.chain([0, 1, 0b1011, u64::MAX, 1 << 63, 0x8000_0000_0000_0001, 0xdead_beef_0123_4567_u64]) {
            let ones: Vec<u64> = (0..64).filter(|place| word >> place & 1 == 1).collect();
            for (n, place) in (0..).zip(&ones) {
                assert_eq!(nth_one(word, n), *place);
            }
            assert_eq!([ones.len() as u64, 64, 65, u64::MAX].map(|n| nth_one(word, n.max(ones.len() as u64))), [64; 4]);
        }
    }
}
