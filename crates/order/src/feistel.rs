//! A keyed bijection computed position by position, for orders too long to hold.
//!
//! The network permutes `[0, 2^b)` with the smallest `b` that covers the domain; a value that lands outside the domain
//! is sent through again until it lands inside (cycle walking), which keeps it a bijection of the domain itself. At
//! least half of the values are inside, so fewer than two walks are expected.

/// A bijection of `[0, len)` from eight rounds of an unbalanced Feistel network.
#[derive(Debug)]
pub(crate) struct Feistel {
    len: u64,
    /// Low half: `ceil(b / 2)` bits. The high half has the rest.
    right_bits: u32,
    /// `64 -` the width of each half: what takes the top bits of a word down to that width.
    left_shift: u32,
    right_shift: u32,
    keys: [[u64; 2]; 4],
}

/// Stafford's thirteenth variant of the 64-bit finaliser, as in SplitMix64.
const FIRST: u64 = 0xbf58_476d_1ce4_e5b9;
const SECOND: u64 = 0x94d0_49bb_1331_11eb;

/// Elements that [`Feistel::forward_all`] takes through the network together: so many that the last group of each walk,
/// which is hardly ever a full one, costs little.
const LANES: usize = 512;

/// Elements whose rounds are computed side by side: twice as many as the registers hold, because the processor waits
/// longer for multiplications than for the stack.
const TOGETHER: usize = 8;

/// The round function; the caller takes its top bits.
///
/// Only the top bits of a product depend on all bits of its factors, hence the shift that brings them down between the
/// two multiplications and the use of the top bits after.
#[inline(always)]
fn mix(half: u64, key: u64) -> u64 {
    let product = (half ^ key).wrapping_mul(FIRST);
    (product ^ (product >> 32)).wrapping_mul(SECOND)
}

impl Feistel {
    /// `len` is at most 2^63. Any length from 1 on is a bijection, but a network over a few bits can not reach all
    /// permutations, so short lengths belong to a table.
    pub(crate) fn new(len: u64, keys: [u64; 8]) -> Self {
        // Two bits at the least, so that neither half is empty and no shift is by 64.
        let bits = (u64::BITS - len.saturating_sub(1).leading_zeros()).max(2);
        let left_bits = bits / 2;
        let right_bits = bits - left_bits;
        let [a, b, c, d, e, f, g, h] = keys;
        Self {
            len,
            right_bits,
            left_shift: u64::BITS - left_bits,
            right_shift: u64::BITS - right_bits,
            keys: [[a, b], [c, d], [e, f], [g, h]],
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Where `x`, below `len`, goes.
    #[inline]
    pub(crate) fn forward(&self, x: u64) -> u64 {
        debug_assert!(x < self.len);
        let [mut y] = self.encrypt([x]);
        while y >= self.len {
            [y] = self.encrypt([y]);
        }
        y
    }

    /// What goes to `y`, below `len`.
    #[inline]
    pub(crate) fn inverse(&self, y: u64) -> u64 {
        debug_assert!(y < self.len);
        let mut x = self.decrypt(y);
        while x >= self.len {
            x = self.decrypt(x);
        }
        x
    }

    /// Replaces every element, all below `len`, by where it goes.
    ///
    /// Elements are independent, so the processor overlaps their rounds as long as no branch is mispredicted; who has
    /// to walk on is therefore written to a list without branching, rather than walked at once.
    pub(crate) fn forward_all(&self, xs: &mut [u64]) {
        for lanes in xs.chunks_mut(LANES) {
            let mut outside = [0_u16; LANES];
            let mut count = 0;
            let mut look_at = |lane: u16, y: u64| {
                outside[count] = lane;
                count += usize::from(y >= self.len);
            };
            let (groups, rest) = lanes.as_chunks_mut::<TOGETHER>();
            let mut lane = 0;
            for group in groups {
                *group = self.encrypt(*group);
                for y in group {
                    look_at(lane, *y);
                    lane += 1;
                }
            }
            for x in rest {
                [*x] = self.encrypt([*x]);
                look_at(lane, *x);
                lane += 1;
            }
            while count > 0 {
                let walking = count;
                count = 0;
                for first in (0..walking).step_by(TOGETHER) {
                    // Where they are fewer, the last one goes along more than once.
                    let at: [u16; TOGETHER] = std::array::from_fn(|i| outside[(first + i).min(walking - 1)]);
                    let ys = self.encrypt(at.map(|lane| lanes[usize::from(lane)]));
                    for (lane, y) in at.into_iter().zip(ys).take(walking - first) {
                        lanes[usize::from(lane)] = y;
                        outside[count] = lane;
                        count += usize::from(y >= self.len);
                    }
                }
            }
        }
    }

    /// One pass of each element through the network, over all of `[0, 2^b)`.
    #[inline(always)]
    fn encrypt<const N: usize>(&self, xs: [u64; N]) -> [u64; N] {
        let mut left = xs.map(|x| x >> self.right_bits);
        let mut right = xs.map(|x| x & (u64::MAX >> self.right_shift));
        for [first, second] in self.keys {
            for i in 0..N {
                left[i] ^= mix(right[i], first) >> self.left_shift;
            }
            for i in 0..N {
                right[i] ^= mix(left[i], second) >> self.right_shift;
            }
        }
        std::array::from_fn(|i| left[i] << self.right_bits | right[i])
    }

    /// Undoes [`encrypt`](Self::encrypt).
    #[inline(always)]
    fn decrypt(&self, y: u64) -> u64 {
        let mut left = y >> self.right_bits;
        let mut right = y & (u64::MAX >> self.right_shift);
        for [first, second] in self.keys.into_iter().rev() {
            right ^= mix(left, second) >> self.right_shift;
            left ^= mix(right, first) >> self.left_shift;
        }
        left << self.right_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permutation::PermutationKey;

    fn feistel(len: u64, seed: u64) -> Feistel {
        Feistel::new(len, PermutationKey::order_v1(seed, 0).rounds())
    }

    fn assert_bijection(len: u64) {
        let feistel = feistel(len, len);
        let mut seen = vec![false; len as usize];
        for x in 0..len {
            let y = feistel.forward(x);
            assert!(y < len && !std::mem::replace(&mut seen[y as usize], true), "{len}: {x} to {y}");
            assert_eq!(feistel.inverse(y), x, "{len}");
        }
    }

    #[test]
    fn every_small_length_is_a_bijection_with_its_inverse() {
        for len in (1..=4096).step_by(if cfg!(miri) { 400 } else { 1 }) {
            assert_bijection(len);
        }
    }

    #[test]
    fn lengths_around_powers_of_two_are_bijections() {
        for power in 12..=if cfg!(miri) { 12 } else { 19 } {
            for len in [(1 << power) - 1, 1 << power, (1 << power) + 1] {
                assert_bijection(len);
            }
        }
    }

    #[test]
    fn the_longest_orders_round_trip() {
        for len in [(1 << 62) - 1, 1 << 62, (1 << 62) + 1, (1 << 63) - 1, 1 << 63] {
            let feistel = feistel(len, 7);
            for x in [0, 1, len / 3, len / 2, len - 2, len - 1] {
                assert!(feistel.forward(x) < len);
                assert_eq!(feistel.inverse(feistel.forward(x)), x);
                assert_eq!(feistel.forward(feistel.inverse(x)), x);
            }
        }
    }

    #[test]
    fn many_at_once_gives_what_one_by_one_gives() {
        for len in [65_537, 131_071, 1 << 20, (1 << 33) + 1] {
            let feistel = feistel(len, 2);
            for count in [0, 1, 63, 64, 65, 1000] {
                let mut xs: Vec<u64> = (0..count).collect();
                feistel.forward_all(&mut xs);
                assert!(xs.into_iter().eq((0..count).map(|x| feistel.forward(x))));
            }
        }
    }
}
