//! The threads of a build.

use rayon::{ThreadPool, ThreadPoolBuilder};

use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_io::source::StoreOptions;

/// Threads that read.
pub(super) fn pool(threads: Option<usize>, store: &StoreOptions, remote: bool) -> Result<ThreadPool> {
    let threads = if remote { store.concurrency } else { threads.unwrap_or(0) };
    let named = |thread| format!("rowdex-build-{thread}");
    ThreadPoolBuilder::new().num_threads(threads).thread_name(named).build().map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot start threads: {error}"))
            .with_hint("ask for fewer")
            .with_source(error)
    })
}
