//! Work that a fork of the process waits for.
//!
//! Other people's code has values that are made at first use, and caches behind locks, in statics of its own. A child
//! that is forked while a thread makes such a value or holds such a lock finds it so for ever, and hangs when it comes
//! there. Nothing but the fork itself can be made to wait. So what comes to such statics is done in [`undivided`], and
//! whoever forks calls `before`, and then `after` or `after_in_child`: the C API has the system do so.
//!
//! Such work never waits for a thread that may be forking, and so calls nothing of the caller's.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;
#[cfg(any(feature = "capi", test))]
use std::time::Instant;

/// Forks under way.
static FORKS: AtomicUsize = AtomicUsize::new(0);

/// Threads within such work.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

const PAUSE: Duration = Duration::from_micros(20);

/// The longest that a fork waits. Work that takes longer than that, or forks itself, must not stop the process.
#[cfg(any(feature = "capi", test))]
const LONGEST: Duration = Duration::from_secs(10);

struct Inside;

/// Does work that no fork of the process comes between. Not to be nested.
pub fn undivided<T>(work: impl FnOnce() -> T) -> T {
    loop {
        // Whoever forks counts itself first and then looks here, and so one of the two sees the other.
        INSIDE.fetch_add(1, Ordering::SeqCst);
        let inside = Inside;
        if FORKS.load(Ordering::SeqCst) == 0 {
            return work();
        }
        drop(inside);
        while FORKS.load(Ordering::SeqCst) > 0 {
            sleep(PAUSE);
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        less(&INSIDE);
    }
}

/// A child begins with none, also within work that forked.
fn less(count: &AtomicUsize) {
    let _ = count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
}

/// Waits until nobody is within such work, and keeps everybody from beginning any.
#[cfg(any(feature = "capi", test))]
pub fn before() {
    FORKS.fetch_add(1, Ordering::SeqCst);
    let since = Instant::now();
    while INSIDE.load(Ordering::SeqCst) > 0 && since.elapsed() < LONGEST {
        sleep(PAUSE);
    }
}

/// In the process that has forked.
#[cfg(any(feature = "capi", test))]
pub fn after() {
    less(&FORKS);
}

/// In the child, which has none of the threads that were within such work or forked, too.
#[cfg(feature = "capi")]
pub fn after_in_child() {
    INSIDE.store(0, Ordering::SeqCst);
    FORKS.store(0, Ordering::SeqCst);
}

/// Makes the statics of other people's code that every use of the library comes to.
#[cfg(feature = "capi")]
pub fn make_statics() {
    undivided(|| {
        // It holds its memory as a number, which Miri takes for leaked.
        if !cfg!(miri) {
            crossbeam_epoch::default_collector();
        }
        drop(lru::LruCache::<u64, ()>::unbounded());
    });
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn a_fork_waits_for_undivided_work_and_keeps_other_such_work_waiting() {
        let (begun, has_begun) = mpsc::channel();
        let (end, may_end) = mpsc::channel::<()>();
        let (say, said) = mpsc::channel();
        thread::scope(|scope| {
            let first = say.clone();
            scope.spawn(move || {
                undivided(|| {
                    begun.send(()).unwrap();
                    may_end.recv().unwrap();
                    first.send("work").unwrap();
                });
            });
            has_begun.recv().unwrap();
            let forks = scope.spawn(|| {
                before();
                say.send("fork").unwrap();
            });
            while FORKS.load(Ordering::SeqCst) == 0 {
                sleep(PAUSE);
            }
            let second = say.clone();
            let later = scope.spawn(move || undivided(|| second.send("later work").unwrap()));
            end.send(()).unwrap();
            forks.join().unwrap();
            after();
            later.join().unwrap();
        });
        drop(say);
        assert_eq!(said.into_iter().collect::<Vec<_>>(), ["work", "fork", "later work"]);
    }
}
