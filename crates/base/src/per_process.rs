//! State that belongs to one process, so that a forked child never touches its parent's locks and threads.

use std::fmt;

use crate::once::Once;

/// A value made anew in each process that uses it.
///
/// After `fork` a child inherits locks that threads of its parent may hold and a pool whose threads do not exist, so
/// using either can hang for ever, and so can dropping them. Each process therefore gets its own value at its first
/// `get`; inherited ones are left alone and leaked. The chain is walked without a lock, because an inherited lock is
/// just what must not be touched.
pub struct PerProcess<T> {
    pid: u32,
    /// `None` only while being dropped.
    value: Option<T>,
    next: Once<PerProcess<T>>,
}

impl<T> PerProcess<T> {
    /// With a value for the process that calls.
    pub fn new(value: T) -> Self {
        Self { pid: std::process::id(), value: Some(value), next: Once::new() }
    }

    /// This process's value, which `make` makes in each process but the first; `None` never, but while being dropped.
    /// Threads that ask at once may each make one, of which one is used.
    pub fn get(&self, make: impl FnOnce() -> T) -> Option<&T> {
        let pid = std::process::id();
        let mut node = self;
        while node.pid != pid {
            match node.next.get() {
                Some(next) => node = next,
                None => {
                    node = node.next.get_or_init(|| Self::new(make()));
                    break;
                }
            }
        }
        node.value.as_ref()
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            std::mem::forget(self.value.take());
        }
    }
}

impl<T> fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerProcess").field("pid", &self.pid).finish_non_exhaustive()
    }
}
