//! Going on from where a run stood.

use std::sync::Arc;

use super::{DistributedSampler, Rest, Rotation, State, after};
use crate::recent::Recent;
use crate::{Order, OrderKind, Rotated};
use rowdex_base::error::{Error, ErrorKind, Result};

/// An epoch of which a part was served before this sampler existed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resumed {
    pub(super) epoch: u64,
    pub(super) consumed: u64,
    /// Where this world took over from another one, which is before `consumed` if it stopped since.
    pub(super) took_over: u64,
    /// How many rows a step of all ranks had where the epoch began, if its order depends on that; else 0.
    pub(super) step: u64,
}

impl DistributedSampler {
    /// Resumes from `state`, which may come from a world of another size and another batch size. O(1), but for planning
    /// an epoch of packs.
    ///
    /// The state's epoch becomes current, and of its order only the positions from `consumed` on are left; the samples
    /// and steps that are left, and repeated rows, are counted on them. With the shard count and batch size of the run
    /// that was interrupted, what follows is exactly what would have followed, step numbers included. With others,
    /// every remaining row is still served exactly once, apart from the repeated rows or the dropped tail of the new
    /// world, and the last step of the epoch has the number that it always has in that world, so the first one left is
    /// [`steps`](Self::steps) less [`steps_left`](Self::steps_left).
    ///
    /// # Errors
    ///
    /// `StateMismatch` if the state is from another order, length or seed, or of another kind of plan, `OutOfRange` if
    /// more positions are consumed than there are, and `InvalidArgument` if the tail policy is
    /// [`Tail::Error`](super::Tail::Error) and the number of shards does not divide the number of remaining positions,
    /// or if these can not be assigned as [`Tail::Even`](super::Tail::Even) demands. The sampler is then unchanged.
    pub fn resume(&mut self, state: &State) -> Result<()> {
        self.check_kind(state)?;
        let orders = self.orders_of(state)?;
        let len = orders.epoch_len(state.epoch)?;
        let Some(left) = len.checked_sub(state.consumed) else {
            let message = format!("the state has consumed {} positions of {len}", state.consumed);
            return Err(Error::new(ErrorKind::OutOfRange, message));
        };
        let (epoch, consumed) = match left {
            0 if len > 0 => (after(state.epoch)?, 0),
            _ => (state.epoch, state.consumed),
        };
        let took_over = self.took_over(state);
        let step = self.step_of(state)?;
        let resumed = (consumed > 0).then_some(Resumed { epoch, consumed, took_over, step });
        let (began, step) = if consumed > 0 { (took_over, step) } else { (0, 0) };
        let len = orders.epoch_len(epoch)?;
        self.deal(&Rest {
            epoch,
            len,
            start: consumed,
            began,
            step,
            shard: self.shard,
            drop_last_batch: self.drop_last_batch,
        })?;
        (self.epoch, self.resumed) = (epoch, resumed);
        self.rotation = Rotation::Resumed;
        if !Arc::ptr_eq(&self.orders, &orders) {
            self.orders = orders;
            self.recent = Recent::new(1);
        }
        Ok(())
    }

    /// The orders that a state is of: those given or their rotation, whatever the new world would need. So a run goes
    /// on with its positions where it stopped, and any number of ranks can take over.
    fn orders_of(&self, state: &State) -> Result<Arc<dyn Order>> {
        let fingerprint = self.orders.fingerprint_before(state.epoch, state.consumed);
        if state.fingerprint == fingerprint {
            return Ok(Arc::clone(&self.orders));
        }
        let rotated: Arc<dyn Order> = Arc::new(Rotated::new(Arc::clone(&self.given)));
        if self.given.is_same_every_epoch() {
            let other =
                [Arc::clone(&self.given), rotated].into_iter().find(|orders| orders.fingerprint() == state.fingerprint);
            if let Some(orders) = other {
                return Ok(orders);
            }
        }
        let message = format!(
            "the state is of orders with fingerprint {:016x}, these orders ({}, {} rows) have {fingerprint:016x}",
            state.fingerprint,
            self.orders.name(),
            self.orders.len(),
        );
        let hint = match self.orders.outline().kind {
            OrderKind::Mixed => {
                "use the datasets, proportions, size and seed that the state was saved with, and of stages those that \
                 begin before it; to change the mixture, use stages, or leave the state out and set the epoch to begin \
                 with"
            }
            _ => {
                "use the dataset, order and seed that the state was saved with; with a contiguous partition, the \
                 same number of ranks"
            }
        };
        Err(Error::new(ErrorKind::StateMismatch, message).with_hint(hint))
    }
}
