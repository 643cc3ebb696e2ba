//! What other threads do with a loader while one of them waits for a batch: they look at it, and close it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;

use super::LoaderStats;
use super::engine::{Engine, Shared};
use crate::{Error, ErrorKind, Result};

/// Looks at a [`Loader`](super::Loader), or at announced rows, and closes them, from any thread and at any time: from
/// [`Loader::control`](super::Loader::control) and [`Announced::control`](super::Announced::control).
#[derive(Debug, Clone, Default)]
pub struct Control {
    inner: Arc<Inner>,
}

/// No lock is in it: one that another thread held when the process was forked would be held for ever in the child.
#[derive(Debug, Default)]
struct Inner {
    closed: AtomicBool,
    /// The engine at work, which this does not keep alive, and the process that its threads are in.
    engine: ArcSwapOption<(u32, Weak<Shared>)>,
}

impl Control {
    /// Ends the loader. A thread that waits for a batch gets the error `Closed` within a moment, and so does everyone
    /// who asks for one later. A loader without threads finishes the row group at hand first. The threads of the loader
    /// end in the same way; dropping it waits for them.
    pub fn close(&self) {
        self.inner.closed.store(true, Ordering::SeqCst);
        if let Some(engine) = self.engine() {
            engine.stop();
        }
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.inner.closed.load(Ordering::SeqCst)
    }

    /// As [`Loader::stats`](super::Loader::stats).
    pub fn stats(&self) -> LoaderStats {
        self.engine().map_or_else(LoaderStats::default, |engine| engine.stats())
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.is_closed() { Err(closed()) } else { Ok(()) }
    }

    /// Takes note of the engine that works from now on, or ends it if this was closed meanwhile.
    pub(super) fn watch(&self, engine: &Engine) -> Result<()> {
        self.inner.engine.store(Some(Arc::new((std::process::id(), engine.shared()))));
        // Whoever closes it now sees the engine; who did before is seen here.
        self.check()
    }

    fn engine(&self) -> Option<Arc<Shared>> {
        let engine = self.inner.engine.load();
        let (process, engine) = &**engine.as_ref()?;
        if *process == std::process::id() { engine.upgrade() } else { None }
    }
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the loader was closed").with_hint("make another one to go on")
}
