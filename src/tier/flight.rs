//! One maker of an entry at a time, among all threads and processes of a machine.
//!
//! The lock is advisory, on an empty file beside the entry. Every thread opens the file anew and so takes part on its own. Locks end
//! with the process that has them, so a killed one holds nobody up; one that is stopped, or slow, holds the others up for a bounded time.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub(super) const SUFFIX: &str = ".lock";

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// A wait is worth this much, whatever was in vain before.
const LEAST_MILLIS: u64 = 10;

/// The right to make an entry. Dropping it gives it up.
#[derive(Debug)]
pub(super) struct Flight {
    file: File,
    path: PathBuf,
}

impl Drop for Flight {
    fn drop(&mut self) {
        // Deleted first: whoever gets a lock on the deleted file finds the entry, and a new file is nobody's yet.
        let _ = fs::remove_file(&self.path);
        // Said, because a forked child that inherited the file would keep the lock for as long as it lives.
        let _ = self.file.unlock();
    }
}

/// How a wait ended.
#[derive(Debug)]
pub(super) enum Turn {
    Mine(Flight),
    /// Somebody else made the entry.
    Done,
    TimedOut,
}

/// How long to wait for others, which waiting in vain makes shorter and success makes long again.
#[derive(Debug)]
pub(super) struct Patience {
    full: u64,
    millis: AtomicU64,
}

impl Patience {
    pub(super) fn new(wait: Duration) -> Self {
        let full = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        Self { full, millis: AtomicU64::new(full) }
    }

    /// Waits for the lock of an entry, until somebody else made it (`done`), or in vain.
    pub(super) fn wait_for(&self, entry: &Path, done: impl Fn() -> bool) -> io::Result<Turn> {
        let mut path = OsString::from(entry);
        path.push(SUFFIX);
        let path = PathBuf::from(path);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
        let began = Instant::now();
        let patience = Duration::from_millis(self.millis.load(Ordering::Relaxed));
        let mut pause = FIRST_PAUSE;
        loop {
            match file.try_lock() {
                // A file system without locks only makes two processes do the same.
                Ok(()) | Err(TryLockError::Error(_)) => return Ok(Turn::Mine(Flight { file, path })),
                Err(TryLockError::WouldBlock) => {}
            }
            if done() {
                self.millis.store(self.full, Ordering::Relaxed);
                return Ok(Turn::Done);
            }
            let left = patience.saturating_sub(began.elapsed());
            if left.is_zero() {
                self.millis
                    .store((patience.as_millis() as u64 / 4).max(LEAST_MILLIS.min(self.full)), Ordering::Relaxed);
                return Ok(Turn::TimedOut);
            }
            thread::sleep(pause.min(left));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
