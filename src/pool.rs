//! Work on a thread pool of one's own.

use std::panic::resume_unwind;
use std::thread;

use rayon::ThreadPool;

use crate::{Error, Result};

/// Does the work on the threads of `pool` while the caller waits.
///
/// A worker of another rayon pool does not merely wait in [`ThreadPool::install`]: it begins other tasks of its own
/// pool on top of its stack, and if those come here too, the stack grows with the number of tasks until it overflows.
/// So a thread waits in its place.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io) if that thread cannot be started.
pub(crate) fn run_on<T: Send>(pool: &ThreadPool, work: impl FnOnce() -> T + Send) -> Result<T> {
    if rayon::current_thread_index().is_none() || pool.current_thread_index().is_some() {
        return Ok(pool.install(work));
    }
    thread::scope(|scope| {
        let named = thread::Builder::new().name("rowdex-wait".to_owned());
        let waiting = named
            .spawn_scoped(scope, || pool.install(work))
            .map_err(|error| Error::io("cannot start a thread", error).with_hint("use fewer threads"))?;
        waiting.join().or_else(|panic| resume_unwind(panic))
    })
}
