//! Calls that can be told to stop while they wait for a store, and before they put a file in its place.
//!
//! Whether to stop is asked of the thread that makes the call, and of the threads of a pool while they work for it. A
//! thread of which nobody said anything goes on.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};

/// How often a wait looks whether it should go on.
const TICK: Duration = Duration::from_millis(50);

/// What a call says that was told to stop.
const STOPPED: &str = "the call was stopped";

thread_local! {
    static ASKED: RefCell<Option<Asked>> = const { RefCell::new(None) };
}

/// Tells whether to stop.
#[derive(Clone)]
pub struct Asked(Arc<dyn Fn() -> bool + Send + Sync>);

impl Asked {
    /// Stops when `asked` says so, which any thread may ask.
    pub fn new(asked: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(asked))
    }

    /// What this thread was given.
    pub fn of_thread() -> Option<Self> {
        ASKED.with_borrow(Clone::clone)
    }

    /// Gives this thread another one, or none.
    #[cfg(feature = "capi")]
    pub fn give(asked: Option<Self>) {
        ASKED.set(asked);
    }

    /// Gives this thread another one for as long as the result lives.
    pub fn enter(self) -> Entered {
        Entered { before: ASKED.replace(Some(self)), of_this_thread: PhantomData }
    }
}

/// While it lives, its thread was [given](Asked::enter) another one. Then the thread gets back what it had before.
#[derive(Debug)]
pub struct Entered {
    before: Option<Asked>,
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        ASKED.set(self.before.take());
    }
}

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Asked").field(&(self.0)()).finish()
    }
}

/// Fails if the call that this thread works for is to stop.
pub fn check() -> Result<()> {
    match Asked::of_thread() {
        Some(Asked(asked)) if asked() => Err(Error::new(ErrorKind::Closed, STOPPED)),
        _ => Ok(()),
    }
}

/// Whether an error says that a call was told to stop, and nothing of what it was at.
pub fn is_stop(error: &Error) -> bool {
    error.kind() == ErrorKind::Closed && error.message() == STOPPED
}

/// How long to wait for something before asking again whether to stop; `None` if nobody may say so.
pub fn tick() -> Option<Duration> {
    ASKED.with_borrow(|asked| asked.as_ref().map(|_| TICK))
}

/// What comes through a channel, unless the call is to stop. `None` if nothing will.
pub fn receive<T>(receiver: &Receiver<T>) -> Result<Option<T>> {
    let tick = tick().unwrap_or(Duration::MAX);
    loop {
        match receiver.recv_timeout(tick) {
            Ok(value) => return Ok(Some(value)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => check()?,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_wait_ends_when_its_thread_is_to_stop_and_no_other_does() {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = mpsc::sync_channel(1);
        std::thread::scope(|scope| {
            let told = scope.spawn(|| {
                let stop = Arc::clone(&stop);
                let _asked = Asked::new(move || stop.load(Ordering::Relaxed)).enter();
                let (_never, nothing) = mpsc::sync_channel::<()>(1);
                check().and_then(|()| receive(&nothing))
            });
            let other = scope.spawn(move || receive(&receiver));
            stop.store(true, Ordering::Relaxed);
            assert!(is_stop(&told.join().unwrap().unwrap_err()));
            sender.send(7).unwrap();
            assert_eq!(other.join().unwrap().unwrap(), Some(7));
        });
        assert!(check().is_ok());
    }
}
