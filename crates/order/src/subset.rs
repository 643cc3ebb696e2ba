//! Orders over some of the rows.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::fingerprint::fingerprint;
use super::id_set::IdSet;
use super::{EpochOrder, Order, Outline, Uses};
use rowdex_base::error::{Error, Result};

/// Orders over the rows that are left when others are skipped, banned or split off.
///
/// The inner orders are over as many rows as are left, `0` to `kept.len()`; what they serve as row `i` is the `i`-th
/// row that is left. So all that they promise holds for the rows that are left: a global shuffle is a global shuffle of
/// those, and all ranks have the same number of them. A position costs what the inner one does and O(log) of the set.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Subset {
    #[serde(with = "crate::shared")]
    inner: Arc<dyn Order>,
    #[serde(with = "crate::shared")]
    kept: Arc<IdSet>,
    kept_hash: u64,
}

impl Subset {
    const NAME: &str = "subset";

    /// The orders `inner` over the rows `kept`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if `inner` is over more rows than are kept.
    pub fn new(inner: Arc<dyn Order>, kept: impl Into<Arc<IdSet>>) -> Result<Self> {
        let kept = kept.into();
        if let Some(rows) = inner.rows().filter(|rows| *rows > kept.len()) {
            let message = format!("an order over {rows} rows, of which {} are left", kept.len());
            return Err(Error::invalid(message).with_hint("make the inner order for as many rows as are left"));
        }
        let kept_hash = kept.content_hash();
        Ok(Self { inner, kept, kept_hash })
    }
}

impl Order for Subset {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn rows(&self) -> Option<u64> {
        Some(self.kept.rows())
    }

    fn epoch(&self, epoch: u64) -> Result<Arc<dyn EpochOrder>> {
        Ok(Arc::new(Mapped { inner: self.inner.epoch(epoch)?, kept: Arc::clone(&self.kept) }))
    }

    fn fingerprint(&self) -> u64 {
        fingerprint(Self::NAME, self.len(), &[self.inner.fingerprint(), self.kept_hash])
    }

    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn outline(&self) -> Outline {
        self.inner.outline().subset()
    }

    fn is_same_every_epoch(&self) -> bool {
        self.inner.is_same_every_epoch()
    }

    fn follows_row_groups(&self) -> bool {
        self.inner.follows_row_groups()
    }
}

/// One epoch of [`Subset`].
#[derive(Debug)]
struct Mapped {
    inner: Arc<dyn EpochOrder>,
    kept: Arc<IdSet>,
}

impl EpochOrder for Mapped {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn uses(&self) -> Uses {
        match self.inner.uses() {
            Uses::Once | Uses::AtMostOnce => Uses::AtMostOnce,
            Uses::Any => Uses::Any,
        }
    }

    fn row(&self, position: u64) -> Option<u64> {
        self.kept.select(self.inner.row(position)?)
    }

    fn position(&self, row: u64) -> Option<u64> {
        self.inner.position(self.kept.contains(row).then(|| self.kept.rank(row))?)
    }

    fn fill_strided(&self, first: u64, stride: u64, rows: &mut [u64]) -> usize {
        let written = self.inner.fill_strided(first, stride, rows);
        for (i, row) in rows[..written].iter_mut().enumerate() {
            match self.kept.select(*row) {
                Some(kept) => *row = kept,
                None => return i,
            }
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
    use rowdex_base::error::ErrorKind;

    fn subset(kept: IdSet, seed: u64) -> Subset {
        Subset::new(Arc::new(Global::new(kept.len(), seed).unwrap()), kept).unwrap()
    }

    #[test]
    fn a_sequential_order_serves_what_is_left_as_it_lies() {
        let kept = IdSet::from_ranges(20, [0..3, 5..6, 18..20]).unwrap();
        let orders = Subset::new(Arc::new(Sequential::new(6).unwrap()), kept).unwrap();
        let order = orders.epoch(0).unwrap();
        assert!((0..6).map(|q| order.row(q).unwrap()).eq([0, 1, 2, 5, 18, 19]));
        conformance::check(&orders, 0..2).unwrap();
    }

    #[test]
    fn an_order_over_more_rows_than_are_left_is_refused() {
        let error = Subset::new(Arc::new(Sequential::new(3).unwrap()), IdSet::from_ids(9, [1, 2]).unwrap());
        assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }

    #[test]
    fn runs_with_another_set_or_another_inner_order_have_other_fingerprints() {
        let set = |ids: [u64; 3]| IdSet::from_ids(9, ids).unwrap();
        let print = subset(set([1, 2, 3]), 0).fingerprint();
        assert_eq!(print, subset(set([3, 2, 1]), 0).fingerprint());
        assert_ne!(print, subset(set([1, 2, 4]), 0).fingerprint());
        assert_ne!(print, subset(set([1, 2, 3]), 1).fingerprint());
    }

    proptest! {
        #[test]
        fn exactly_what_is_left_is_served(
            rows in 0_u64..200, skipped in prop::collection::btree_set(0_u64..200, 0..150), seed: u64,
        ) {
            let kept = IdSet::filter(rows, |row| !skipped.contains(&row)).unwrap();
            let members: Vec<u64> = kept.iter().collect();
            let orders = subset(kept, seed);
            conformance::check(&orders, 0..2).unwrap();
            let order = orders.epoch(5).unwrap();
            let mut served: Vec<u64> = (0..order.len()).map(|q| order.row(q).unwrap()).collect();
            served.sort_unstable();
            prop_assert_eq!(served, members);
        }
    }
}
