//! Something that is under way.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rowdex_base::error::Result;

/// A result that is being worked for. Dropping it gives the work up.
pub struct Pending<T> {
    wait: Box<dyn FnOnce() -> Result<T> + Send>,
    done: Done,
}

/// Whether there is a need to wait for a [`Pending`]. Clones are of the same one.
#[derive(Clone, Default)]
pub struct Done(Arc<Mutex<WaitStage>>);

#[derive(Default)]
enum WaitStage {
    #[default]
    Working,
    Watched(Box<dyn FnOnce() + Send>),
    Done,
}

impl Done {
    /// Says that it is done, however it ended.
    pub fn set(&self) {
        let before = std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), WaitStage::Done);
        if let WaitStage::Watched(tell) = before {
            tell();
        }
    }

    fn is_set(&self) -> bool {
        matches!(*self.0.lock().unwrap_or_else(PoisonError::into_inner), WaitStage::Done)
    }
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Done").field(&self.is_set()).finish()
    }
}

impl<T> Pending<T> {
    /// What `wait` waits for. `done` must be set when there is no more need to, or it would be waited for in vain.
    pub fn new(done: Done, wait: impl FnOnce() -> Result<T> + Send + 'static) -> Self {
        Self { wait: Box::new(wait), done }
    }

    /// Whether there is no need to wait.
    pub fn is_done(&self) -> bool {
        self.done.is_set()
    }

    /// Calls `tell` when there is no need to wait any more, on whatever thread that is seen, instead of what was to be
    /// called before.
    pub fn when_done(&self, tell: impl FnOnce() + Send + 'static) {
        let mut state = self.done.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*state, WaitStage::Done) {
            *state = WaitStage::Watched(Box::new(tell));
            return;
        }
        drop(state);
        tell();
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// Those of the work.
    pub fn wait(self) -> Result<T> {
        (self.wait)()
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("is_done", &self.is_done()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn whoever_watches_is_told_once_whether_before_or_after_it_is_done() {
        for early in [false, true] {
            let (sender, told) = mpsc::channel();
            let done = Done::default();
            let pending = Pending::new(done.clone(), || Ok(7));
            if early {
                done.set();
            }
            assert_eq!(pending.is_done(), early);
            pending.when_done(move || sender.send(()).unwrap());
            assert_eq!(told.try_recv().is_ok(), early);
            done.set();
            done.set();
            assert!(pending.is_done());
            assert_eq!(told.into_iter().count(), usize::from(!early));
            assert_eq!(pending.wait().unwrap(), 7);
        }
    }
}
