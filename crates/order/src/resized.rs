//! Epochs of another length.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::fingerprint::fingerprint;
use super::{EpochOrder, Order, Outline, check_len};
use rowdex_base::error::{Error, ErrorKind, Result};

/// Epochs of a chosen size over the epochs of other orders, one after the other: shorter ones, so that a long pass over
/// the data has more validations and checkpoints in it, or longer ones.
///
/// Nothing is left out or drawn twice for it: position `q` of epoch `e` is position `g = e * size + q` of the inner
/// epochs joined, which is position `g mod n` of inner epoch `g / n`, `n` being their length. So a pass continues in
/// the next epoch where this one stopped, and rows repeat only as passes do.
///
/// An epoch holds the up to `ceil(size / n) + 1` inner epochs that it touches; a position costs what an inner one does.
///
/// [`EpochOrder::position`] is exact where the inner orders serve no row twice. Of a row that one of them serves twice
/// it may not find the position that this epoch has.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Resized {
    #[serde(with = "crate::shared")]
    inner: Arc<dyn Order>,
    size: u64,
}

impl Resized {
    const NAME: &str = "resized";

    /// The most passes in one epoch: each may hold memory in proportion to its rows.
    pub const MAX_PASSES: u64 = 1 << 16;

    /// The inner orders, cut every `size` positions.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if `size` is 0, exceeds [`MAX_LEN`](super::MAX_LEN) or is more than
    /// [`MAX_PASSES`](Self::MAX_PASSES) times the inner length, and if the inner orders are empty.
    pub fn new(inner: Arc<dyn Order>, size: u64) -> Result<Self> {
        let n = inner.len();
        if check_len(size)? == 0 {
            return Err(Error::invalid("epochs of 0 positions").with_hint("use 1 or more"));
        }
        if n == 0 {
            let message = format!("epochs of {size} positions can not be made of an order without any");
            return Err(Error::invalid(message));
        }
        if size / n > Self::MAX_PASSES {
            let message =
                format!("epochs of {size} positions repeat an order of {n} more than {} times", Self::MAX_PASSES);
            return Err(Error::invalid(message).with_hint("use more and shorter epochs"));
        }
        Ok(Self { inner, size })
    }

    /// `size` positions of the inner epochs joined, from `start` on; none of orders that may then be empty.
    pub(super) fn stretch(inner: &Arc<dyn Order>, start: u64, size: u64) -> Result<Arc<dyn EpochOrder>> {
        if size == 0 {
            return Ok(Arc::new(ResizedEpoch { passes: Vec::new(), n: 1, first: 0, size }));
        }
        Self::new(Arc::clone(inner), size)?.joined(start.into())
    }

    fn joined(&self, start: u128) -> Result<Arc<dyn EpochOrder>> {
        let n = u128::from(self.inner.len());
        let last = start + u128::from(self.size) - 1;
        let inner = |g: u128| {
            u64::try_from(g / n).map_err(|_| {
                let message = format!("an epoch of {} positions needs an inner epoch beyond 2^64 - 1", self.size);
                Error::new(ErrorKind::OutOfRange, message)
            })
        };
        let passes = (inner(start)?..=inner(last)?).map(|pass| self.inner.epoch(pass)).collect::<Result<Vec<_>>>()?;
        if let Some(pass) = passes.iter().find(|pass| u128::from(pass.len()) != n) {
            let message = format!("an order has {} positions, not {n}", pass.len());
            return Err(Error::new(ErrorKind::Internal, message)
                .with_hint("the implementation of the inner orders is at fault"));
        }
        Ok(Arc::new(ResizedEpoch { passes, n: self.inner.len(), first: (start % n) as u64, size: self.size }))
    }
}

impl Order for Resized {
    fn len(&self) -> u64 {
        self.size
    }

    fn rows(&self) -> Option<u64> {
        self.inner.rows()
    }

    /// # Errors
    ///
    /// Those of the inner orders, and `OutOfRange` if an inner epoch would be beyond 2^64 - 1.
    fn epoch(&self, epoch: u64) -> Result<Arc<dyn EpochOrder>> {
        self.joined(u128::from(epoch) * u128::from(self.size))
    }

    fn fingerprint(&self) -> u64 {
        fingerprint(Self::NAME, self.size, &[self.inner.fingerprint()])
    }

    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn outline(&self) -> Outline {
        self.inner.outline().resized(self.size)
    }

    fn is_same_every_epoch(&self) -> bool {
        self.inner.is_same_every_epoch() && self.size.is_multiple_of(self.inner.len())
    }

    fn follows_row_groups(&self) -> bool {
        self.inner.follows_row_groups()
    }
}

/// One epoch of [`Resized`].
#[derive(Debug)]
struct ResizedEpoch {
    passes: Vec<Arc<dyn EpochOrder>>,
    /// Positions of each pass.
    n: u64,
    /// Where in the first pass the epoch begins.
    first: u64,
    size: u64,
}

impl ResizedEpoch {
    /// The pass of a position, and the position in it; `None` from `size` on.
    fn place(&self, position: u64) -> Option<(&dyn EpochOrder, u64)> {
        // No overflow: both are below 2^63.
        let joined = self.first + Some(position).filter(|position| *position < self.size)?;
        let pass = self.passes.get(usize::try_from(joined / self.n).ok()?)?;
        Some((&**pass, joined % self.n))
    }
}

impl EpochOrder for ResizedEpoch {
    fn len(&self) -> u64 {
        self.size
    }

    fn row(&self, position: u64) -> Option<u64> {
        let (pass, inner) = self.place(position)?;
        pass.row(inner)
    }

    fn position(&self, row: u64) -> Option<u64> {
        (0_u128..).zip(&self.passes).find_map(|(number, pass)| {
            let joined = number * u128::from(self.n) + u128::from(pass.position(row)?);
            let position = u64::try_from(joined.checked_sub(u128::from(self.first))?).ok()?;
            (position < self.size).then_some(position)
        })
    }

    fn fill_strided(&self, first: u64, stride: u64, rows: &mut [u64]) -> usize {
        let mut written = 0;
        let mut position = Some(first);
        while let Some(at) = position.filter(|_| written < rows.len()) {
            let Some((pass, inner)) = self.place(at) else { break };
            // Up to the end of this pass and of the epoch, whichever is nearer.
            let left = (self.n - inner).min(self.size - at);
            let count = match stride {
                0 => rows.len() - written,
                _ => usize::try_from(left.div_ceil(stride)).unwrap_or(usize::MAX).min(rows.len() - written),
            };
            let filled = pass.fill_strided(inner, stride, &mut rows[written..written + count]);
            written += filled;
            if filled < count {
                break;
            }
            position = stride.checked_mul(count as u64).and_then(|far| at.checked_add(far));
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::conformance;
    use crate::{Global, Sequential};

    fn resized(n: u64, size: u64) -> Resized {
        Resized::new(Arc::new(Global::new(n, 3).unwrap()), size).unwrap()
    }

    fn rows(orders: &dyn Order, epoch: u64) -> Vec<u64> {
        let order = orders.epoch(epoch).unwrap();
        (0..order.len()).map(|q| order.row(q).unwrap()).collect()
    }

    #[test]
    fn a_pass_goes_on_where_the_epoch_before_stopped() {
        let orders = Resized::new(Arc::new(Sequential::new(5).unwrap()), 3).unwrap();
        assert_eq!(rows(&orders, 0), [0, 1, 2]);
        assert_eq!(rows(&orders, 1), [3, 4, 0]);
        assert_eq!(rows(&orders, 2), [1, 2, 3]);
        let longer = Resized::new(Arc::new(Sequential::new(3).unwrap()), 8).unwrap();
        assert_eq!(rows(&longer, 0), [0, 1, 2, 0, 1, 2, 0, 1]);
        assert_eq!(rows(&longer, 1), [2, 0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn epochs_of_the_inner_length_are_the_inner_epochs() {
        let inner = Global::new(70, 3).unwrap();
        for epoch in [0, 1, u64::MAX] {
            assert_eq!(rows(&resized(70, 70), epoch), rows(&inner, epoch));
        }
    }

    #[test]
    fn sizes_that_can_not_be_are_refused() {
        let refused = |n, size| Resized::new(Arc::new(Sequential::new(n).unwrap()), size).unwrap_err().kind();
        assert_eq!(refused(5, 0), ErrorKind::InvalidArgument);
        assert_eq!(refused(0, 5), ErrorKind::InvalidArgument);
        assert_eq!(refused(1, 1 << 17), ErrorKind::InvalidArgument);
        assert_eq!(refused(5, 1 << 63), ErrorKind::InvalidArgument);
        assert_eq!(resized(5, 9).epoch(u64::MAX).unwrap_err().kind(), ErrorKind::OutOfRange);
        assert_eq!(resized(u64::MAX / 2, 9).epoch(u64::MAX).unwrap().len(), 9);
    }

    #[test]
    fn another_size_or_another_inner_order_has_another_fingerprint() {
        assert_ne!(resized(5, 9).fingerprint(), resized(5, 8).fingerprint());
        assert_ne!(resized(5, 9).fingerprint(), resized(6, 9).fingerprint());
        assert_ne!(resized(5, 5).fingerprint(), Global::new(5, 3).unwrap().fingerprint());
    }

    proptest! {
        #[test]
        fn epochs_joined_are_inner_epochs_joined(n in 1_u64..40, size in 1_u64..130) {
            let orders = resized(n, size);
            conformance::check(&orders, [0, 1, 7]).unwrap();
            let inner = Global::new(n, 3).unwrap();
            let outer: Vec<u64> = (0..n).flat_map(|epoch| rows(&orders, epoch)).collect();
            let joined: Vec<u64> = (0..size).flat_map(|epoch| rows(&inner, epoch)).collect();
            prop_assert_eq!(outer, joined);
        }
    }
}
