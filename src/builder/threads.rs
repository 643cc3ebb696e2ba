//! The threads of a build.

use rayon::ThreadPool;

use rowdex_base::error::Result;
use rowdex_base::pool::start;
use rowdex_io::source::StoreOptions;

/// Column chunks of a store that are in memory at once. Footers are smaller.
const COUNTED_AT_ONCE: usize = 16;

const NAME: &str = "rowdex-build";

/// Threads that read footers.
pub(super) fn reading(threads: Option<usize>, store: &StoreOptions, remote: bool) -> Result<ThreadPool> {
    start(if remote { store.concurrency } else { threads.unwrap_or(0) }, NAME)
}

/// Threads that count lengths.
pub(super) fn counting(threads: Option<usize>, store: &StoreOptions, remote: bool) -> Result<ThreadPool> {
    start(threads.unwrap_or(if remote { store.concurrency.min(COUNTED_AT_ONCE) } else { 0 }), NAME)
}
