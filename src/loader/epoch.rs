//! The batches of one epoch.

use super::deliver::is_to_come;
use super::{Batch, Loader, NextBatch};
use rowdex_base::error::Result;
use rowdex_order::sampler::State;

/// The batches of one epoch, from [`Loader::epoch`].
#[derive(Debug)]
pub struct Epoch<'a> {
    pub(super) loader: &'a mut Loader,
    pub(super) epoch: u64,
    pub(super) ended: bool,
}

impl Epoch<'_> {
    /// Which epoch it is.
    pub fn number(&self) -> u64 {
        self.epoch
    }

    /// As [`Loader::state`].
    pub fn state(&self) -> State {
        self.loader.state()
    }
}

impl Iterator for Epoch<'_> {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Result<Batch>> {
        if self.ended || self.loader.place.epoch != self.epoch {
            return None;
        }
        let next = self.loader.serve(Some(self.epoch)).transpose();
        self.ended = !matches!(&next, Some(Ok(_))) && !matches!(&next, Some(Err(error)) if is_to_come(error));
        if next.is_none() {
            // An epoch without a batch is over before it has begun: what comes next is of a later one.
            self.loader.place = NextBatch { epoch: self.epoch.saturating_add(1), batch: 0 };
        }
        next
    }
}
