//! The threads of a build.

use rayon::{ThreadPool, ThreadPoolBuilder};

use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_io::source::StoreOptions;

/// Column chunks of a store that are in memory at once. Footers are smaller.
const COUNTED_AT_ONCE: usize = 16;

/// Threads that read footers.
pub(super) fn reading(threads: Option<usize>, store: &StoreOptions, remote: bool) -> Result<ThreadPool> {
    pool(if remote { store.concurrency } else { threads.unwrap_or(0) })
}

/// Threads that count lengths.
pub(super) fn counting(threads: Option<usize>, store: &StoreOptions, remote: bool) -> Result<ThreadPool> {
    pool(threads.unwrap_or(if remote { store.concurrency.min(COUNTED_AT_ONCE) } else { 0 }))
}

fn pool(threads: usize) -> Result<ThreadPool> {
    let named = |thread| format!("rowdex-build-{thread}");
    ThreadPoolBuilder::new().num_threads(threads).thread_name(named).build().map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot start threads: {error}"))
            .with_hint("ask for fewer")
            .with_source(error)
    })
}
