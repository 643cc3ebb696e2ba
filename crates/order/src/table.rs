//! Rows held one by one, in the fewest bytes.

use std::fmt;

use super::reachable;
use rowdex_base::error::{Error, ErrorKind, Result};

/// A list of integers: 4 bytes each where all fit, else 8.
pub(super) enum RowList {
    Short(Box<[u32]>),
    Long(Box<[u64]>),
}

/// What a table is a list of.
pub(super) trait Element: Copy {
    fn of(value: u64) -> Self;
    fn value(self) -> u64;
}

impl Element for u32 {
    #[inline(always)]
    fn of(value: u64) -> Self {
        value as u32
    }

    #[inline(always)]
    fn value(self) -> u64 {
        u64::from(self)
    }
}

impl Element for u64 {
    #[inline(always)]
    fn of(value: u64) -> Self {
        value
    }

    #[inline(always)]
    fn value(self) -> u64 {
        self
    }
}

/// Makes a permutation of `0..n` in place, for either element.
pub(super) trait Shuffle {
    /// `elements` are `0..n` in order.
    fn shuffle<T: Element>(self, elements: &mut [T]);
}

impl RowList {
    /// `shuffle` of `0..len`.
    ///
    /// # Errors
    ///
    /// `TooLarge` if there is no memory for it.
    pub(super) fn shuffled(len: u64, shuffle: impl Shuffle) -> Result<Self> {
        if fits_u32(len) {
            let mut elements = identity::<u32>(len)?;
            shuffle.shuffle(&mut elements);
            Ok(Self::Short(elements))
        } else {
            let mut elements = identity::<u64>(len)?;
            shuffle.shuffle(&mut elements);
            Ok(Self::Long(elements))
        }
    }

    /// For a table that is a permutation: the table in which element `t[i]` is `i`.
    ///
    /// # Errors
    ///
    /// `TooLarge` if there is no memory for it.
    pub(super) fn inverse(&self) -> Result<Self> {
        fn invert<T: Element>(elements: &[T]) -> Result<Box<[T]>> {
            let mut inverse = identity::<T>(elements.len() as u64)?;
            for (place, element) in (0..).zip(elements) {
                inverse[element.value() as usize] = T::of(place);
            }
            Ok(inverse)
        }
        match self {
            Self::Short(elements) => invert(elements).map(Self::Short),
            Self::Long(elements) => invert(elements).map(Self::Long),
        }
    }

    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Short(elements) => elements.len() as u64,
            Self::Long(elements) => elements.len() as u64,
        }
    }

    #[inline]
    pub(super) fn get(&self, place: u64) -> Option<u64> {
        let place = usize::try_from(place).ok()?;
        match self {
            Self::Short(elements) => elements.get(place).map(|element| element.value()),
            Self::Long(elements) => elements.get(place).map(|element| element.value()),
        }
    }

    /// What [`EpochOrder::fill_strided`](super::EpochOrder::fill_strided) does.
    pub(super) fn fill_strided(&self, first: u64, stride: u64, rows: &mut [u64]) -> usize {
        fn copy<T: Element>(elements: &[T], first: u64, stride: u64, rows: &mut [u64]) {
            // The caller has seen that every place exists, so they fit `usize`.
            let mut place = first as usize;
            for slot in rows {
                *slot = elements[place].value();
                place = place.wrapping_add(stride as usize);
            }
        }
        let count = reachable(first, stride, self.len(), rows.len());
        match self {
            Self::Short(elements) => copy(elements, first, stride, &mut rows[..count]),
            Self::Long(elements) => copy(elements, first, stride, &mut rows[..count]),
        }
        count
    }

    /// Where `value` is, looked for from the front.
    pub(super) fn find(&self, value: u64) -> Option<u64> {
        let place = match self {
            Self::Short(elements) => elements.iter().position(|element| element.value() == value),
            Self::Long(elements) => elements.iter().position(|element| element.value() == value),
        };
        place.map(|place| place as u64)
    }
}

/// Whether `0..len` fit 4 bytes each.
fn fits_u32(len: u64) -> bool {
    len <= 1 << 32
}

fn identity<T: Element>(len: u64) -> Result<Box<[T]>> {
    let too_large = || {
        Error::new(ErrorKind::TooLarge, format!("no memory for an order that is held as a list of {len} rows"))
            .with_hint("the order global needs none")
    };
    let count = usize::try_from(len).map_err(|_| too_large())?;
    let mut elements = Vec::new();
    elements.try_reserve_exact(count).map_err(|_| too_large())?;
    elements.extend((0..len).map(T::of));
    Ok(elements.into_boxed_slice())
}

impl fmt::Debug for RowList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowList").field("len", &self.len()).finish_non_exhaustive()
    }
}
