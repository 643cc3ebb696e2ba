//! Every second epoch backwards.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::fingerprint::fingerprint;
use super::{EpochOrder, Order, Outline, Uses, reachable};
use rowdex_base::error::Result;

/// Other orders, each epoch of which comes twice: forwards, and then backwards.
///
/// Epoch `2e` is epoch `e` inside, and epoch `2e + 1` has the same positions, the last one first. So what an epoch ends
/// with is what the next one begins with, and no epoch inside is passed over: orders that [continue](super::Resized) in
/// the next epoch leave no row out.
///
/// What a rank serves of an odd epoch another one served of the epoch before: of `R` ranks, where `R` divides the
/// number of positions, rank `R - 1 - r` what rank `r` did.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Paired {
    #[serde(with = "crate::shared")]
    orders: Arc<dyn Order>,
}

impl Paired {
    const NAME: &str = "paired";

    /// `orders`, each epoch forwards and then backwards.
    pub fn new(orders: Arc<dyn Order>) -> Self {
        Self { orders }
    }
}

impl Order for Paired {
    fn len(&self) -> u64 {
        self.orders.len()
    }

    fn rows(&self) -> Option<u64> {
        self.orders.rows()
    }

    /// # Errors
    ///
    /// Those of the orders inside.
    fn epoch(&self, epoch: u64) -> Result<Arc<dyn EpochOrder>> {
        let order = self.orders.epoch(epoch / 2)?;
        Ok(if epoch.is_multiple_of(2) { order } else { Arc::new(Backwards(order)) })
    }

    fn fingerprint(&self) -> u64 {
        fingerprint(Self::NAME, self.len(), &[self.orders.fingerprint()])
    }

    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn outline(&self) -> Outline {
        self.orders.outline().paired()
    }

    fn follows_row_groups(&self) -> bool {
        self.orders.follows_row_groups()
    }
}

/// An epoch from its last position to its first.
#[derive(Debug)]
struct Backwards(Arc<dyn EpochOrder>);

impl Backwards {
    /// The position inside of a position that exists, and the other way round.
    fn mirrored(&self, position: u64) -> Option<u64> {
        (self.len().checked_sub(1)?).checked_sub(position)
    }
}

impl EpochOrder for Backwards {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn uses(&self) -> Uses {
        self.0.uses()
    }

    fn occurrence(&self, position: u64) -> u64 {
        self.mirrored(position).map_or(0, |position| self.0.occurrence(position))
    }

    fn row(&self, position: u64) -> Option<u64> {
        self.0.row(self.mirrored(position)?)
    }

    fn position(&self, row: u64) -> Option<u64> {
        self.mirrored(self.0.position(row)?)
    }

    fn fill_strided(&self, first: u64, stride: u64, rows: &mut [u64]) -> usize {
        let count = reachable(first, stride, self.len(), rows.len());
        let rows = &mut rows[..count];
        // What is served last comes first inside. It exists, so this does not overflow.
        let last = self.mirrored(first + stride * (count.max(1) as u64 - 1));
        let written = last.map_or(0, |last| self.0.fill_strided(last, stride, rows));
        rows.reverse();
        written
    }
}
