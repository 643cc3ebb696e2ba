//! Which rows an epoch serves, and how often: hashed in no memory, or counted in a byte a row.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::command::failure::Failure;

/// A hash of a multiset of row ids: the sum modulo 2^64 of a hash of each.
///
/// Adding is all there is to it, so parts are hashed apart, in any order and in no memory. Of two different multisets
/// of the same size one in 2^64 pairs has the same sum, unless somebody looks for such a pair. (Bellare and Micciancio
/// 1997; Clarke et al. 2003, MSet-Add-Hash.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct SetHash(u64);

impl SetHash {
    #[inline]
    pub(super) fn add(&mut self, rows: &[u64]) {
        self.0 = rows.iter().fold(self.0, |sum, row| sum.wrapping_add(element(*row)));
    }

    pub(super) fn join(&mut self, other: Self) {
        self.0 = self.0.wrapping_add(other.0);
    }

    /// The hash of 0, 1, … `len - 1`, once each.
    pub(super) fn of_all(len: u64) -> Self {
        Self((0..len).fold(0, |sum, row| sum.wrapping_add(element(row))))
    }
}

/// Stafford's variant 13 of the MurmurHash3 finalizer, as in SplitMix64, with its increment so that 0 is hashed, too.
#[inline]
pub(super) fn element(row: u64) -> u64 {
    let x = row.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// How often each row was served: one byte a row, and what does not fit it beside.
#[derive(Debug)]
pub(super) struct Counts {
    low: Vec<AtomicU8>,
    /// Multiples of 256, for the few rows that are served so often.
    high: Mutex<BTreeMap<u64, u64>>,
}

impl Counts {
    pub(super) fn new(rows: u64) -> Result<Self, Failure> {
        let too_many = || Failure::new(format!("no memory to count how often each of {rows} rows is served"));
        let count = usize::try_from(rows).map_err(|_| too_many())?;
        let mut low = Vec::new();
        low.try_reserve_exact(count).map_err(|_| too_many())?;
        low.resize_with(count, AtomicU8::default);
        Ok(Self { low, high: Mutex::default() })
    }

    /// Counts rows that are known to exist.
    pub(super) fn add(&self, rows: &[u64]) {
        for &row in rows {
            let Some(low) = self.low.get(row as usize) else { continue };
            if low.fetch_add(1, Ordering::Relaxed) == u8::MAX
                && let Ok(mut high) = self.high.lock()
            {
                *high.entry(row).or_default() += 256;
            }
        }
    }

    /// Row ids and how often each was served, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let high = self.high.lock().map(|high| high.clone()).unwrap_or_default();
        let low = self.low.iter().map(|low| u64::from(low.load(Ordering::Relaxed)));
        (0..).zip(low).map(move |(row, low)| (row, low + high.get(&row).copied().unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_same_hash_in_any_order_and_in_any_parts() {
        let mut rows: Vec<u64> = (0..1000).collect();
        rows.reverse();
        let mut first = SetHash::default();
        let mut second = SetHash::default();
        first.add(&rows[..300]);
        second.add(&rows[300..]);
        first.join(second);
        assert_eq!(first, SetHash::of_all(1000));
    }

    #[test]
    fn every_exchange_of_one_row_for_another_shows_in_the_hash() {
        let len = 200;
        for missing in 0..len {
            for instead in (0..len + 5).filter(|row| *row != missing) {
                let mut hash = SetHash::default();
                hash.add(&(0..len).map(|row| if row == missing { instead } else { row }).collect::<Vec<_>>());
                assert_ne!(hash, SetHash::of_all(len), "{missing} {instead}");
            }
        }
    }

    #[test]
    fn counts_beyond_a_byte_are_exact() {
        let counts = Counts::new(3).unwrap();
        counts.add(&[1; 255]);
        counts.add(&vec![2; 100_000]);
        assert!(counts.iter().eq([(0, 0), (1, 255), (2, 100_000)]));
    }
}
