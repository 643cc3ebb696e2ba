//! Threads that have nothing to do, and work that they can take part in.
//!
//! A thread with much to do offers it as a [`Job`], in parts that any thread may take, and takes parts itself. So the
//! job is done even if no other thread comes, the thread waits at most for parts that another has begun, and no thread
//! is started for it.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::scoped::Scoped;

/// Work in parts.
pub trait Job: Send + Sync {
    /// Whether there is a part to take now.
    fn has_part(&self) -> bool;

    /// Does a part, if there still is one.
    fn help(&self);
}

/// Threads that help each other.
pub struct Crew {
    jobs: Mutex<Vec<Arc<dyn Job>>>,
    /// Threads that look for a job, or wait for one.
    idle: AtomicUsize,
    /// Wakes those that wait.
    wake: Box<dyn Fn() + Send + Sync>,
    /// Fewer bytes to decode are not offered.
    least: u64,
}

impl Crew {
    /// Threads that wait until `wake` is called. Less than `least` bytes to decode are not worth the calls.
    pub fn new(least: u64, wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { jobs: Mutex::default(), idle: AtomicUsize::new(0), wake: Box::new(wake), least }
    }

    /// Whether the decoding of so many bytes is worth an offer.
    pub fn is_worth(&self, bytes: u64) -> bool {
        bytes >= self.least
    }

    /// Offers a job for as long as the offer lives.
    pub fn offer(self: &Arc<Self>, job: Arc<dyn Job>) -> Offer {
        self.jobs().push(Arc::clone(&job));
        Offer { crew: Arc::clone(self), job }
    }

    /// A job with a part to take, for the calling thread; if there is none, the thread counts as one that waits, until
    /// it is [back](Self::back).
    pub fn find(&self) -> Option<Arc<dyn Job>> {
        // Whoever has a part to offer later than the look at the jobs sees that this thread is to be woken.
        self.idle.fetch_add(1, Ordering::SeqCst);
        let found = self.jobs().iter().find(|job| job.has_part()).cloned();
        if found.is_some() {
            self.back();
        }
        found
    }

    /// The calling thread no longer waits.
    pub fn back(&self) {
        self.idle.fetch_sub(1, Ordering::SeqCst);
    }

    fn jobs(&self) -> MutexGuard<'_, Vec<Arc<dyn Job>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Crew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Crew").field("idle", &self.idle).finish_non_exhaustive()
    }
}

/// A job that others may take part in.
pub struct Offer {
    crew: Arc<Crew>,
    job: Arc<dyn Job>,
}

impl std::fmt::Debug for Offer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Offer").finish_non_exhaustive()
    }
}

impl Offer {
    /// Calls the threads that wait: there are parts to take.
    pub fn call(&self) {
        if self.crew.idle.load(Ordering::SeqCst) > 0 {
            (self.crew.wake)();
        }
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        self.crew.jobs().retain(|job| !Arc::ptr_eq(job, &self.job));
    }
}

thread_local! {
    /// Who may help this thread.
    static CURRENT: RefCell<Option<Arc<Crew>>> = const { RefCell::new(None) };
}

/// Lets these threads help the calling one for a while.
pub fn enter(crew: &Arc<Crew>) -> Scoped<Option<Arc<Crew>>> {
    Scoped::put(&CURRENT, Some(Arc::clone(crew)))
}

/// Who may help the calling thread, if anybody may.
pub fn current() -> Option<Arc<Crew>> {
    CURRENT.with_borrow(Clone::clone)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    struct Parts(AtomicU64);

    impl Job for Parts {
        fn has_part(&self) -> bool {
            self.0.load(Ordering::SeqCst) > 0
        }

        fn help(&self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_job_is_found_while_it_is_offered_and_has_parts_and_only_threads_that_wait_are_woken() {
        let woken = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&woken);
        let crew = Arc::new(Crew::new(10, move || {
            count.fetch_add(1, Ordering::SeqCst);
        }));
        assert!(crew.find().is_none());
        crew.back();
        let (empty, some) = (Arc::new(Parts(AtomicU64::new(0))), Arc::new(Parts(AtomicU64::new(1))));
        let _first = crew.offer(empty);
        let offer = crew.offer(some);
        offer.call();
        assert_eq!(woken.load(Ordering::SeqCst), 0);
        crew.find().unwrap().help();
        assert!(crew.find().is_none());
        offer.call();
        assert_eq!(woken.load(Ordering::SeqCst), 1);
        crew.back();
        let again: Arc<dyn Job> = Arc::new(Parts(AtomicU64::new(1)));
        let offer = crew.offer(again);
        assert!(crew.find().is_some());
        drop(offer);
        assert!(crew.find().is_none());
        assert!(crew.is_worth(10) && !crew.is_worth(9));
    }

    #[test]
    fn a_thread_has_the_crew_that_it_entered_last() {
        let (outer, inner) = (Arc::new(Crew::new(0, || {})), Arc::new(Crew::new(0, || {})));
        let is = |of: &Arc<Crew>| current().is_some_and(|current| Arc::ptr_eq(&current, of));
        assert!(current().is_none());
        let entered = enter(&outer);
        {
            let _entered = enter(&inner);
            assert!(is(&inner));
        }
        assert!(is(&outer));
        std::thread::scope(|scope| assert!(scope.spawn(|| current().is_none()).join().unwrap()));
        drop(entered);
        assert!(current().is_none());
    }
}
