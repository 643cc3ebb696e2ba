//! Permutations held element by element.

use super::reachable;
use rowdex_base::error::{Error, ErrorKind, Result};

/// Numbers below 2^32, 4 bytes each.
#[derive(Debug)]
pub(super) struct RowList(Box<[u32]>);

impl RowList {
    /// `0..len` in the sequence that `shuffle` brings them to.
    ///
    /// # Errors
    ///
    /// `TooLarge` beyond 2^32, or if there is no memory for it.
    pub(super) fn shuffled(len: u64, shuffle: impl FnOnce(&mut [u32])) -> Result<Self> {
        let too_large = || {
            Error::new(ErrorKind::TooLarge, format!("no memory for an order that is held as a list of {len} rows"))
                .with_hint("the order global needs none")
        };
        let count = usize::try_from(len).ok().filter(|_| len <= 1 << 32).ok_or_else(too_large)?;
        let mut elements = Vec::new();
        elements.try_reserve_exact(count).map_err(|_| too_large())?;
        elements.extend((0..len).map(|element| element as u32));
        shuffle(&mut elements);
        Ok(Self(elements.into_boxed_slice()))
    }

    /// For a list that is a permutation: the list in which element `t[i]` is `i`.
    ///
    /// # Errors
    ///
    /// `TooLarge` if there is no memory for it.
    pub(super) fn inverse(&self) -> Result<Self> {
        Self::shuffled(self.len(), |inverse| {
            for (place, element) in (0..).zip(&self.0) {
                inverse[*element as usize] = place;
            }
        })
    }

    pub(super) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    #[inline]
    pub(super) fn get(&self, place: u64) -> Option<u64> {
        self.0.get(usize::try_from(place).ok()?).copied().map(u64::from)
    }

    /// The place of the first element of which this is not true; it is true of none after.
    pub(super) fn partition_point(&self, mut is_true: impl FnMut(u64) -> bool) -> u64 {
        self.0.partition_point(|element| is_true(u64::from(*element))) as u64
    }

    /// What [`EpochOrder::fill_strided`](super::EpochOrder::fill_strided) does.
    pub(super) fn fill_strided(&self, first: u64, stride: u64, rows: &mut [u64]) -> usize {
        let count = reachable(first, stride, self.len(), rows.len());
        // Every place exists, so they fit `usize`.
        let mut place = first as usize;
        for slot in &mut rows[..count] {
            *slot = u64::from(self.0[place]);
            place = place.wrapping_add(stride as usize);
        }
        count
    }

    /// Where `value` is, looked for from the front.
    pub(super) fn find(&self, value: u64) -> Option<u64> {
        self.0.iter().position(|element| u64::from(*element) == value).map(|place| place as u64)
    }
}
