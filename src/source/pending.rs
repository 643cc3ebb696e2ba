//! Something that is under way.

use std::fmt;

use crate::Result;

/// A result that is being worked for. Dropping it gives the work up.
pub struct Pending<T> {
    wait: Box<dyn FnOnce() -> Result<T> + Send>,
}

impl<T> Pending<T> {
    /// What `wait` waits for.
    pub fn new(wait: impl FnOnce() -> Result<T> + Send + 'static) -> Self {
        Self { wait: Box::new(wait) }
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// Those of the work.
    pub fn wait(self) -> Result<T> {
        (self.wait)()
    }

    /// The same with the result passed through `step`, on the thread that waits.
    pub fn then<U>(self, step: impl FnOnce(T) -> Result<U> + Send + 'static) -> Pending<U>
    where
        T: 'static,
    {
        Pending::new(move || step(self.wait()?))
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}
