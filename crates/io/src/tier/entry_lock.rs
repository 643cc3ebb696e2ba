//! The lock of an entry: one writer at a time among all threads and processes of a machine.
//!
//! The lock is an advisory one (`flock`) on an empty file beside the entry. Every thread opens the file anew, so
//! threads exclude each other as processes do. The system releases the lock of a process that ends. A process that is
//! stopped or slow delays the others for a bounded time: the modification time of the file says since when the lock is
//! held, and whoever finds it held for too long replaces the file. Then two writers write the same entry, which does no
//! harm.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use std::{process, thread};

use crate::fs::with_room;

pub(super) const SUFFIX: &str = ".lock";

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const SHORTEST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// The shortest wait, however many were in vain before.
const LEAST_MILLIS: u64 = 10;

/// The right to write the entry of a path. Dropping it releases the lock.
#[derive(Debug)]
pub(super) struct EntryLock {
    file: File,
    path: PathBuf,
    process: u32,
    /// Whether it was taken over from a holder that had it for too long.
    pub(super) was_overdue: bool,
}

impl Drop for EntryLock {
    fn drop(&mut self) {
        // A forked child shares the lock with its parent, and would give up what is not its own.
        if self.process != process::id() {
            return;
        }
        if !is_at(&self.file, &self.path) {
            // Somebody did not wait any longer, and has another file there.
            return;
        }
        // Deleted first: whoever gets a lock on the deleted file sees that it is, and a new file is nobody's yet.
        let _ = fs::remove_file(&self.path);
        // Released by name, because a forked child that inherited the file would keep the lock for as long as it lives.
        let _ = self.file.unlock();
    }
}

/// The lock, or for how long somebody else has had it.
fn try_lock(entry: &Path, wait: Duration) -> io::Result<Result<EntryLock, Duration>> {
    let mut path = OsString::from(entry);
    path.push(SUFFIX);
    let path = PathBuf::from(path);
    let mut was_overdue = false;
    loop {
        let file = with_room(|| OpenOptions::new().create(true).truncate(false).write(true).open(&path))?;
        match file.try_lock() {
            Ok(()) if !is_at(&file, &path) => continue,
            // A file system without locks only makes two processes do the same.
            Ok(()) | Err(TryLockError::Error(_)) => {
                // It may have been left behind long ago, and the others go by its age.
                let _ = file.set_modified(SystemTime::now());
                return Ok(Ok(EntryLock { file, path, process: process::id(), was_overdue }));
            }
            Err(TryLockError::WouldBlock) => {
                let since = file.metadata().and_then(|metadata| metadata.modified());
                let age = since.ok().and_then(|since| since.elapsed().ok()).unwrap_or_default();
                if age < wait || (is_at(&file, &path) && fs::remove_file(&path).is_err()) {
                    return Ok(Err(age));
                }
                was_overdue = true;
            }
        }
    }
}

/// Whether a file that is open has that name still.
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |metadata: io::Result<fs::Metadata>| metadata.ok().map(|metadata| (metadata.dev(), metadata.ino()));
    identity(file.metadata()) == identity(fs::metadata(path))
}

/// The result of a wait.
#[derive(Debug)]
pub(super) enum Turn {
    Mine(EntryLock),
    /// Somebody else made the entry.
    Done,
    TimedOut,
}

/// How long to wait for others: a wait in vain makes the next ones shorter, and a success makes them long again.
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
    ///
    /// A lock that is held for longer than anybody waits is taken over: of all that a stopped process holds, only the
    /// first is waited for.
    pub(super) fn wait_for(&self, entry: &Path, done: impl Fn() -> bool) -> io::Result<Turn> {
        let began = Instant::now();
        let full = Duration::from_millis(self.full);
        let patience = Duration::from_millis(self.millis.load(Ordering::Relaxed));
        let mut pause = FIRST_PAUSE;
        loop {
            // Looked at first, so that a lock that was there before the wait is overdue before the wait is over.
            let left = patience.saturating_sub(began.elapsed());
            let age = match try_lock(entry, full)? {
                Ok(lock) => return Ok(Turn::Mine(lock)),
                Err(age) => age,
            };
            if done() {
                self.millis.store(self.full, Ordering::Relaxed);
                return Ok(Turn::Done);
            }
            if left.is_zero() {
                self.millis
                    .store((patience.as_millis() as u64 / 4).max(LEAST_MILLIS.min(self.full)), Ordering::Relaxed);
                return Ok(Turn::TimedOut);
            }
            let left = left.min(full.saturating_sub(age));
            thread::sleep(pause.min(left).max(SHORTEST_PAUSE));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
