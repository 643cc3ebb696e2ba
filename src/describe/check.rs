//! What is checked, and which digest is made.

use std::sync::Arc;

use serde::Deserialize;

use super::invalid;
use crate::dataset::Staleness;
use rowdex_base::error::Result;
use rowdex_order::{EpochOrder, Order};

/// How closely data files are compared with what was indexed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VerifyDescription {
    check: Option<String>,
}

impl VerifyDescription {
    pub(crate) fn check(&self) -> Result<Staleness> {
        self.check.as_deref().map_or(Ok(Staleness::Footer), str::parse)
    }
}

/// The digest of rows, which may be compared with those of others in an epoch of an order.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DigestDescription {
    epoch: Option<u64>,
}

impl DigestDescription {
    /// The epoch of the orders, if there are any.
    pub(crate) fn epoch(&self, orders: Option<Arc<dyn Order>>) -> Result<Option<Arc<dyn EpochOrder>>> {
        match (orders, self.epoch) {
            (None, Some(_)) => Err(invalid("digest: `epoch` says nothing of rows without an order")),
            (orders, epoch) => orders.map(|orders| orders.epoch(epoch.unwrap_or(0))).transpose(),
        }
    }
}
