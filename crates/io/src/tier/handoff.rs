//! Bytes that one process fetches for all processes that are about to need them.
//!
//! A process that reads ahead takes the lock of a row group before it fetches, and holds it only until the bytes have
//! arrived. It must not hold the lock until it uses the bytes: that may be never, or may have to wait for the very
//! processes that wait for the lock. When the bytes have arrived, the process writes them to a file beside the entry,
//! the handoff, where the others look. Whoever fetched deletes the handoff when it needs the bytes no more, and so does
//! whoever has written the entry.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::entry::{self, Draft};
use super::entry_lock::{EntryLock, Turn};
use super::{Key, Tier, count};
use crate::fs::most_open;
use rowdex_base::error::{Error, ErrorKind, Result};

pub(super) const SUFFIX: &str = ".fetched";

/// The most rights to fetch that are held at once, however many files the process may have open: each is an open file.
const MOST_RESERVED: usize = 256;

/// The answer to a request for the right to fetch.
pub enum Reservation<V> {
    /// The right to fetch it.
    Mine(Reserved<V>),
    /// Somebody else is fetching it or has fetched it.
    Taken,
    /// The tier is off, or this process holds too many rights.
    Unknown,
}

impl<V> fmt::Debug for Reservation<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mine(_) => "Mine",
            Self::Taken => "Taken",
            Self::Unknown => "Unknown",
        })
    }
}

/// The right to fetch the bytes of a row group, which nobody else has as long as this lives.
pub struct Reserved<V> {
    tier: Arc<Tier<V>>,
    key: Key,
    path: PathBuf,
    /// `None` only while it is made or used up.
    lock: Option<EntryLock>,
}

/// A handoff that other processes can read until this is dropped.
#[derive(Debug)]
pub struct Passed {
    path: PathBuf,
    process: u32,
}

/// The result of a wait for the bytes of a row group.
#[derive(Debug)]
pub enum Fetched {
    /// Another process passed them on.
    Passed(Bytes),
    /// Nobody else has fetched them, and nobody else does as long as this lives.
    Mine(Fetching),
    /// The wait was too long, or the tier is off.
    Without,
}

/// The right to fetch bytes that become an entry of decoded rows and are not handed to others.
#[derive(Debug)]
pub struct Fetching(#[expect(dead_code, reason = "it is held")] EntryLock);

impl<V> Tier<V> {
    /// The right to fetch these bytes, of which an entry is to be made, if nobody else has it. Never waits.
    pub fn reserve(self: &Arc<Self>, key: Key) -> Reservation<V> {
        if self.reserved.fetch_add(1, Ordering::Relaxed) >= MOST_RESERVED.min(most_open()) {
            self.reserved.fetch_sub(1, Ordering::Relaxed);
            return Reservation::Unknown;
        }
        let path = self.handoff_path(&key);
        // From here on, dropping it counts it out.
        let mut reserved = Reserved { tier: Arc::clone(self), key, path, lock: None };
        match self.in_folder(|| EntryLock::try_take(&reserved.path, self.options.wait)) {
            Ok(lock) => reserved.lock = lock.map(|lock| self.counted(lock)),
            Err(error) => {
                self.switch_off(Error::io("cannot lock an entry", error));
                return Reservation::Unknown;
            }
        }
        match reserved.lock {
            Some(_) if !reserved.path.exists() => Reservation::Mine(reserved),
            _ => Reservation::Taken,
        }
    }

    /// The bytes of a handoff, if there is one.
    pub fn passed(&self, key: &Key) -> Option<Bytes> {
        entry::open(&self.handoff_path(key), key).ok().flatten()
    }

    /// The bytes of a handoff, after a wait for whoever fetches them now, or else the right to fetch them.
    pub fn fetch(&self, key: &Key) -> Fetched {
        let path = self.handoff_path(key);
        let passed = || self.passed(key).map_or(Fetched::Without, Fetched::Passed);
        if path.exists() {
            return passed();
        }
        match self.in_folder(|| self.patience.wait_for(&path, || path.exists())) {
            // Whoever had the lock before may have fetched them.
            Ok(Turn::Mine(_)) if path.exists() => passed(),
            Ok(Turn::Mine(lock)) => Fetched::Mine(Fetching(self.counted(lock))),
            Ok(Turn::Done) => passed(),
            Ok(Turn::TimedOut) => {
                count(&self.counts.timeouts, 1);
                Fetched::Without
            }
            Err(error) => {
                self.switch_off(Error::io("cannot lock an entry", error));
                Fetched::Without
            }
        }
    }

    /// Deletes the handoff of an entry that has been written.
    pub fn forget_passed(&self, key: &Key) {
        // Most entries had none.
        let _ = fs::remove_file(self.handoff_path(key));
    }

    fn handoff_path(&self, key: &Key) -> PathBuf {
        let mut path = OsString::from(self.path(key));
        path.push(SUFFIX);
        PathBuf::from(path)
    }
}

impl<V> Reserved<V> {
    /// Writes the bytes where other processes look for them, and gives the lock up.
    pub fn deliver(mut self, parts: &[Bytes]) -> Option<Passed> {
        match self.put(parts) {
            Ok(passed) => passed,
            // Somebody deleted the folder, which is anybody's right.
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => {
                self.tier.switch_off(error);
                None
            }
        }
    }

    fn put(&mut self, parts: &[Bytes]) -> Result<Option<Passed>> {
        if self.tier.fault.get().is_some() {
            return Ok(None);
        }
        let Some(_lock) = self.lock.take() else { return Ok(None) };
        let mut draft = Draft::create(&self.path, &self.key)?;
        parts.iter().try_for_each(|part| draft.write(part))?;
        draft.commit()?;
        Ok(Some(Passed { path: self.path.clone(), process: process::id() }))
    }
}

impl<V> Drop for Reserved<V> {
    fn drop(&mut self) {
        self.lock = None;
        self.tier.reserved.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<V> fmt::Debug for Reserved<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserved").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        // A forked child must not delete the handoff of its parent.
        if self.process == process::id() {
            let _ = fs::remove_file(&self.path);
        }
    }
}
