//! What a loader gets its batches from: threads of its own, or the reader of its machine.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;

use super::assemble::Assembled;
use super::{LoaderStats, NextBatch};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::sampler::DistributedSampler;

/// Delivers the batches of a run one after another, from a given batch on. Dropping it ends what it does.
pub(crate) trait Deliver: Debug + Send + Sync {
    /// The next segment; `None` at the end of the run. Waits for it, and if it is to come by a certain time and does
    /// not, returns the error `TimedOut`: it is still to come then.
    fn next(&self, until: Option<Instant>) -> Result<Option<Assembled>>;

    /// Goes on from another place of a sampler, which differs from the one before in its state alone. `false` if it
    /// cannot: whoever wants that makes another one.
    fn go_to(&self, sampler: &DistributedSampler, place: NextBatch) -> bool {
        let _ = (sampler, place);
        false
    }

    /// What other threads may see of it.
    fn watched(&self) -> Arc<dyn Watched>;
}

/// What other threads may see of a delivery, and end.
pub(crate) trait Watched: Send + Sync {
    /// Ends the wait of whoever wants a segment, with the error `Closed`.
    fn stop(&self);

    fn stats(&self) -> LoaderStats;
}

/// What delivers batches, and the process that its threads are in.
#[derive(Debug)]
pub(super) struct Owned<E> {
    pub(super) process: u32,
    /// `None` only while being dropped.
    engine: Option<E>,
}

impl<E> Owned<E> {
    /// Itself, unless this is a forked child of its process: its threads are not here, and its locks may be held for
    /// ever.
    pub(super) fn own(&self) -> Result<&E> {
        let own = self.engine.as_ref().filter(|_| self.process == std::process::id());
        own.ok_or_else(|| {
            Error::new(ErrorKind::Closed, "this process was forked from one that has begun to read")
                .with_hint("make a loader in the forked process, or open the one that it inherited again")
        })
    }

    pub(super) fn new(engine: E) -> Self {
        Self { process: std::process::id(), engine: Some(engine) }
    }
}

impl<E> Drop for Owned<E> {
    fn drop(&mut self) {
        if self.own().is_err() {
            std::mem::forget(self.engine.take());
        }
    }
}
