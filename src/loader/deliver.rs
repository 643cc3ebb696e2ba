//! What a loader gets its batches from: threads of its own, or the reader of its machine. And what other threads do
//! with a loader while one of them waits for a batch: they look at it, and close it.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use arc_swap::ArcSwapOption;

use super::assemble::Assembled;
use super::recovery::Faults;
use super::{LoaderStats, LostGroup, NextBatch};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::stop;
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

/// Looks at a [`Loader`](super::Loader), or at prefetched rows, and closes them, from any thread and at any time: from
/// [`Loader::control`](super::Loader::control) and [`Prefetched::control`](super::Prefetched::control).
// No lock is in it: one that another thread held when the process was forked would be held for ever in the child.
#[derive(Debug, Clone, Default)]
pub struct Control {
    closed: Arc<AtomicBool>,
    faults: Arc<Faults>,
    /// What delivers, which this does not keep alive, and the process that it is in.
    delivery: Arc<ArcSwapOption<(u32, Weak<dyn Watched>)>>,
}

impl Control {
    pub(super) fn new(faults: &Arc<Faults>) -> Self {
        Self { faults: Arc::clone(faults), ..Self::default() }
    }

    /// Ends the loader. A thread that waits for a batch gets the error `Closed` within a moment, and so does everyone
    /// who asks for one later. A loader without threads finishes the row group at hand first. The threads of the loader
    /// end in the same way; dropping it waits for them.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        if let Some(delivery) = self.delivery() {
            delivery.stop();
        }
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// As [`Loader::stats`](super::Loader::stats).
    pub fn stats(&self) -> LoaderStats {
        self.delivery().map_or_else(LoaderStats::default, |delivery| delivery.stats())
    }

    /// As [`Loader::lost_groups`](super::Loader::lost_groups).
    pub fn lost_groups(&self) -> Vec<LostGroup> {
        self.faults.lost_groups()
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.is_closed() { Err(closed()) } else { Ok(()) }
    }

    /// Takes note of what delivers from now on, or ends it if this was closed meanwhile.
    pub(super) fn watch(&self, delivery: &Arc<dyn Watched>) -> Result<()> {
        self.delivery.store(Some(Arc::new((std::process::id(), Arc::downgrade(delivery)))));
        // Whoever closes it now sees the delivery; who did before is seen here.
        self.check()
    }

    fn delivery(&self) -> Option<Arc<dyn Watched>> {
        let delivery = self.delivery.load();
        let (process, delivery) = &**delivery.as_ref()?;
        if *process == std::process::id() { delivery.upgrade() } else { None }
    }
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the loader was closed").with_hint("make another one to continue")
}

pub(crate) fn timed_out() -> Error {
    Error::new(ErrorKind::TimedOut, "no batch came within the time to wait").with_hint("ask again: nothing is lost")
}

/// Whether it says that a batch is not there yet, or that the call is not to wait for it any more.
pub(super) fn is_to_come(error: &Error) -> bool {
    error.kind() == ErrorKind::TimedOut || stop::is_stop(error)
}
