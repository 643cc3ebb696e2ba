//! The order that a sampler made last.

use std::sync::{Arc, Mutex};

use crate::{EpochOrder, Order};
use rowdex_base::error::{Error, ErrorKind, Result};

/// The order of the epoch asked for last, because making one can cost time in proportion to the number of rows.
#[derive(Debug, Default)]
pub(super) struct Recent {
    slot: Mutex<Option<(u64, Arc<dyn EpochOrder>)>>,
}

impl Recent {
    /// The same order, held apart. Never waits, either.
    pub(super) fn share(&self) -> Self {
        let held = self.slot.try_lock().map(|slot| slot.clone()).unwrap_or_default();
        Self { slot: Mutex::new(held) }
    }

    /// Never waits: whoever finds the slot taken makes an order of its own. So a process forked while another thread
    /// held the slot goes on, too.
    pub(super) fn get(&self, epoch: u64, orders: &dyn Order) -> Result<Arc<dyn EpochOrder>> {
        if let Ok(slot) = self.slot.try_lock()
            && let Some((held, order)) = &*slot
            && *held == epoch
        {
            return Ok(Arc::clone(order));
        }
        let order = orders.epoch(epoch)?;
        let len = orders.epoch_len(epoch)?;
        if order.len() != len {
            let message = format!("the order of epoch {epoch} has {} positions, not {len}", order.len());
            return Err(
                Error::new(ErrorKind::Internal, message).with_hint("the implementation of these Order is at fault")
            );
        }
        if let Ok(mut slot) = self.slot.try_lock() {
            *slot = Some((epoch, Arc::clone(&order)));
        }
        Ok(order)
    }
}
