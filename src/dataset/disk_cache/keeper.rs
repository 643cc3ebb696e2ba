//! Puts what was read ahead where other processes find it, as soon as it has arrived.
//!
//! Whoever asked for it may come back for it much later, or wait for just those who wait for it. So this is left
//! neither to the loader's threads nor to those of the store, which have better to do than to write files: a thread
//! of its own does it, which the first read starts.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use bytes::Bytes;

use super::Kept;
use crate::dataset::prefetch::{PassedOn, Prefetch};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::once::Once;
use rowdex_io::source::{Done, Pending};
use rowdex_io::tier::Reserved;

/// The thread, which ends with the last read and the dataset.
#[derive(Default)]
pub(super) struct Keeper {
    /// Reads that have arrived; `None` if there can be no thread.
    arrived: Once<Option<Sender<Slot>>>,
}

/// A read that is under way, and what is to be done with it.
struct Job {
    pending: Pending<Vec<Bytes>>,
    reserved: Reserved<Kept>,
    passed: PassedOn,
    out: SyncSender<Result<Vec<Bytes>>>,
    done: Done,
}

/// Where a job is until the thread takes it; when it is emptied before, the read is given up.
type Slot = Arc<Mutex<Option<Job>>>;

impl Keeper {
    /// The read as the loader sees it: it has arrived when it is there for other processes.
    pub(super) fn pass_on(
        &self,
        places: Vec<Range<u64>>,
        pending: Pending<Vec<Bytes>>,
        reserved: Reserved<Kept>,
    ) -> Prefetch {
        let Some(arrived) = self.arrived.get_or_init(start) else { return Prefetch::new(places, pending, None) };
        let passed = PassedOn::default();
        let (out, outcome) = mpsc::sync_channel(1);
        let done = Done::default();
        let slot = Slot::default();
        {
            // The thread looks only after it is filled.
            let mut slot_now = slot.lock().unwrap_or_else(PoisonError::into_inner);
            let (arrived, slot) = (arrived.clone(), Arc::clone(&slot));
            // There is a thread as long as there is a sender.
            pending.when_done(move || drop(arrived.send(slot)));
            *slot_now = Some(Job { pending, reserved, passed: Arc::clone(&passed), out, done: done.clone() });
        }
        let on_drop = EmptyOnDrop(slot);
        let wait = move || {
            let outcome = outcome.recv();
            drop(on_drop);
            outcome.unwrap_or_else(|_| Err(given_up()))
        };
        Prefetch::new(places, Pending::new(done, wait), Some(passed))
    }
}

fn given_up() -> Error {
    Error::new(ErrorKind::Internal, "a read was given up")
}

fn start() -> Option<Sender<Slot>> {
    let (sender, arrived) = mpsc::channel();
    let thread = thread::Builder::new().name("rowdex-tier".into());
    thread.spawn(move || work(&arrived)).ok().map(|_| sender)
}

fn work(arrived: &Receiver<Slot>) {
    for slot in arrived {
        let Some(Job { pending, reserved, passed, out, done }) = take(&slot) else { continue };
        // Whatever happens, whoever waits is told.
        let outcome = catch_unwind(AssertUnwindSafe(|| pending.wait())).unwrap_or_else(|_| Err(given_up()));
        if let Ok(parts) = &outcome {
            // What cannot be passed on is good for this process nevertheless.
            let file = catch_unwind(AssertUnwindSafe(|| reserved.deliver(parts))).unwrap_or(None);
            *passed.lock().unwrap_or_else(PoisonError::into_inner) = file;
        }
        drop(passed);
        // Nobody waits any more if this fails.
        let _ = out.send(outcome);
        done.set();
    }
}

fn take(slot: &Slot) -> Option<Job> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

struct EmptyOnDrop(Slot);

impl Drop for EmptyOnDrop {
    fn drop(&mut self) {
        drop(take(&self.0));
    }
}
