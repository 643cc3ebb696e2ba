//! Work on a thread pool of one's own.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::{Error, ErrorKind, Result};
use crate::stop::Asked;

/// Threads of a pool, at most. Each of them looks for work with all others, so that some thousands are busy for minutes
/// with nothing but that.
const MOST_THREADS: usize = 1024;

/// A pool of so many threads, or of one for each core with 0. They are called by their number behind `name`.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for more than 1,024, and [`ErrorKind::Io`] if they cannot be started.
pub fn start(threads: usize, name: &'static str) -> Result<ThreadPool> {
    if threads > MOST_THREADS {
        return Err(Error::new(ErrorKind::InvalidArgument, format!("{threads} threads at once"))
            .with_hint(format!("use at most {MOST_THREADS}")));
    }
    let named = move |thread| format!("{name}-{thread}");
    ThreadPoolBuilder::new().num_threads(threads).thread_name(named).build().map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot start {threads} threads: {error}"))
            .with_hint("ask for fewer threads")
            .with_source(error)
    })
}

/// Does the work on the threads of `pool` while the caller waits.
///
/// A worker of another rayon pool does not merely wait in [`ThreadPool::install`]: it begins other tasks of its own
/// pool on top of its stack, and if those come here too, the stack grows with the number of tasks until it overflows.
/// So a thread waits in its place.
///
/// # Errors
/// [`ErrorKind::Io`] if that thread cannot be started.
pub fn run_on<T: Send>(pool: &ThreadPool, work: impl FnOnce() -> T + Send) -> Result<T> {
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

/// What `work` makes of each item, in order, on the threads of `pool` if there is one, up to the first error. Behind an
/// item that fails no other is begun, since nobody needs it, and each could take as long to fail.
///
/// # Errors
/// Those of [`run_on`]; the errors of items are among what comes.
pub fn each<I: Sync, S, T: Send>(
    pool: Option<&ThreadPool>,
    items: &[I],
    state: impl Fn() -> S + Sync + Send,
    work: impl Fn(&mut S, &I) -> Result<T> + Sync + Send,
) -> Result<Vec<Result<T>>> {
    let asked = Asked::of_thread();
    let next = AtomicUsize::new(0);
    let first_failed = AtomicUsize::new(usize::MAX);
    let one = |state: &mut S| {
        // Begun in order, whichever thread comes: so the first that fails is among those that are begun first.
        let at = next.fetch_add(1, Ordering::Relaxed);
        let item = items.get(at).filter(|_| at < first_failed.load(Ordering::Relaxed))?;
        let _asked = asked.clone().map(Asked::enter);
        let made = work(state, item);
        if made.is_err() {
            first_failed.fetch_min(at, Ordering::Relaxed);
        }
        Some((at, made))
    };
    let mut made: Vec<(usize, Result<T>)> = match pool {
        Some(pool) => {
            // Where no state is made for them, items are divided to the last: they may differ much in what they take.
            let most = if size_of::<S>() == 0 { 1 } else { usize::MAX };
            let each = (0..items.len()).into_par_iter().with_max_len(most);
            run_on(pool, || each.map_init(&state, |state, _| one(state)).flatten_iter().collect())?
        }
        None => {
            let mut state = state();
            items.iter().map_while(|_| one(&mut state)).collect()
        }
    };
    made.sort_unstable_by_key(|(at, _)| *at);
    Ok(made.into_iter().map(|(_, made)| made).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "rayon makes pointers of integers")]
    fn the_first_error_in_order_is_told_and_what_follows_it_is_not_begun() {
        let pool = start(2, "test").unwrap();
        let items: Vec<usize> = (0..1000).collect();
        let twice = each(Some(&pool), &items, || (), |(), item| Ok(item * 2)).unwrap();
        assert_eq!(twice.into_iter().collect::<Result<Vec<_>>>().unwrap()[999], 1998);
        for pool in [None, Some(&pool)] {
            let begun = AtomicUsize::new(0);
            let fail = |(): &mut (), item: &usize| -> Result<()> {
                begun.fetch_add(1, Ordering::Relaxed);
                Err(Error::new(ErrorKind::Io, format!("item {item}")))
            };
            let made = each(pool, &items, || (), fail).unwrap();
            assert_eq!(made[0].as_ref().unwrap_err().message(), "item 0");
            assert!(begun.into_inner() < 100);
        }
    }
    #[test]
    fn more_threads_than_could_do_anything_are_refused() {
        let error = start(MOST_THREADS + 1, "test").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert_eq!(error.to_string(), "1025 threads at once; use at most 1024");
    }
}
