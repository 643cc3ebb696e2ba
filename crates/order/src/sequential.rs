//! Rows as they lie in the index.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::fingerprint::fingerprint;
use super::{EpochOrder, Order, OrderKind, OrderSpec, Outline, Uses, check_len, reachable};
use rowdex_base::error::Result;

/// Rows 0, 1, 2, … in every epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sequential {
    len: u64,
}

impl Sequential {
    const NAME: &str = "sequential";

    /// Sequential orders over `len` rows.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if `len` exceeds [`MAX_LEN`](super::MAX_LEN).
    pub fn new(len: u64) -> Result<Self> {
        Ok(Self { len: check_len(len)? })
    }
}

impl Order for Sequential {
    fn len(&self) -> u64 {
        self.len
    }

    fn rows(&self) -> Option<u64> {
        Some(self.len)
    }

    fn epoch(&self, _epoch: u64) -> Result<Arc<dyn EpochOrder>> {
        Ok(Arc::new(Identity { len: self.len }))
    }

    fn fingerprint(&self) -> u64 {
        fingerprint(Self::NAME, self.len, &[])
    }

    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn outline(&self) -> Outline {
        Outline::new(OrderKind::Named(OrderSpec::Sequential))
    }

    fn is_same_every_epoch(&self) -> bool {
        true
    }
}

/// Position = row.
#[derive(Debug)]
struct Identity {
    len: u64,
}

impl EpochOrder for Identity {
    fn len(&self) -> u64 {
        self.len
    }

    fn row(&self, position: u64) -> Option<u64> {
        (position < self.len).then_some(position)
    }

    fn position(&self, row: u64) -> Option<u64> {
        (row < self.len).then_some(row)
    }

    fn uses(&self) -> Uses {
        Uses::Once
    }

    fn fill_strided(&self, first: u64, stride: u64, rows: &mut [u64]) -> usize {
        let count = reachable(first, stride, self.len, rows.len());
        super::stride(first, stride, &mut rows[..count]);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowdex_base::error::ErrorKind;

    #[test]
    fn every_epoch_serves_the_rows_as_they_lie() {
        let orders = Sequential::new(10).unwrap();
        let order = orders.epoch(3).unwrap();
        let mut rows = [0; 12];
        assert_eq!(order.fill(0, &mut rows), 10);
        assert_eq!(rows[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(order.fill_strided(1, 4, &mut rows), 3);
        assert_eq!(rows[..3], [1, 5, 9]);
        assert_eq!((order.row(9), order.row(10)), (Some(9), None));
        assert_eq!((order.position(9), order.position(10)), (Some(9), None));
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused() {
        assert_eq!(Sequential::new(1 << 63).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}
