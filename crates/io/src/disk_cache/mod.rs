//! The disk cache: row groups that were decoded once, in a folder that all processes of a machine share.
//!
//! The disk cache knows keys and bytes, not what the bytes mean. An entry is one file. It appears whole, by rename, and
//! is never changed. A process maps an entry and compares its checksum when it first uses it, and unmaps it after the
//! last use, so anybody may delete any entry at any time. Nobody waits for anybody: whoever wants an entry that another
//! one is making reads from the source.

mod entry;
mod room;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use lru::LruCache;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use self::entry::EntryDraft;
use self::room::FolderRoom;

use crate::fs::{open, with_room};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::once::Once;

/// A folder on a local disk that keeps row groups for all processes of a machine, for
/// `DatasetBuilder::with_disk_cache`.
///
/// `docs/disk-cache.md` says what it promises. The folder may be deleted at any time. Only its owner should be able to
/// write to it: what is in it is served as data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskCache {
    folder: PathBuf,
    bytes: u64,
}

impl DiskCache {
    /// Keeps at most `bytes` of files in `folder`, which is made when something is first kept. What is being written
    /// comes on top.
    pub fn new(folder: impl Into<PathBuf>, bytes: u64) -> Self {
        Self { folder: folder.into(), bytes }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The most bytes of files that are kept.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// What a dataset has done with its [`DiskCache`] so far, in this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DiskCacheCounters {
    /// Row groups served from the disk cache, each as often as it was.
    pub hits: u64,
    /// Row groups that were not there and had to be read from the source.
    pub misses: u64,
    /// Entries written.
    pub writes: u64,
    /// Their bytes.
    pub bytes_written: u64,
    /// Entries deleted to make room.
    pub evictions: u64,
    /// Their bytes.
    pub bytes_evicted: u64,
    /// Entries deleted because they were damaged or of another version.
    pub discards: u64,
}

/// What an entry is of. Two keys are the same entry only if all of their text is the same.
#[derive(Debug, Clone)]
pub struct CacheKey {
    identity: String,
    hash: u128,
}

impl CacheKey {
    /// The key of what this text identifies.
    pub fn new(identity: String) -> Self {
        let hash = xxh3_128(identity.as_bytes());
        Self { identity, hash }
    }

    fn file_name(&self) -> String {
        format!("{:032x}{}", self.hash, entry::SUFFIX)
    }
}

/// The result of a look-up of an entry that may be written.
#[derive(Debug)]
pub enum Claim<'a, V> {
    /// The entry.
    Found(Arc<V>),
    /// It is not there, and nobody else is making it.
    Make(Maker<'a, V>),
    /// It is not there and cannot be kept now.
    Without,
}

/// The disk cache as one process sees it. `V` is what an entry's bytes are turned into, once for each time that it is
/// opened.
pub struct CacheFolder<V> {
    options: DiskCache,
    /// From the mapped bytes of an entry to its value, and how much memory besides the map that takes.
    parse: fn(Bytes) -> Result<(V, u64)>,
    /// Entries that are mapped, the one used last first, and the memory that each takes.
    open: Mutex<LruCache<u128, (Arc<V>, u64)>>,
    room: Mutex<FolderRoom>,
    /// Why nothing more is written.
    fault: Once<Error>,
    counters: Mutex<DiskCacheCounters>,
}

/// Memory that mapped entries may take besides their maps. Opening one again costs reading it once for its checksum.
const OPEN_BYTES: u64 = 64 << 20;

/// What a mapped entry takes at least: arrays are small structs, and the number of maps in a process is limited.
const OPEN_LEAST: u64 = 8 << 10;

impl<V> CacheFolder<V> {
    /// A disk cache whose entries `parse` turns into values.
    pub fn new(options: DiskCache, parse: fn(Bytes) -> Result<(V, u64)>) -> Self {
        Self {
            open: Mutex::new(LruCache::unbounded()),
            room: Mutex::new(FolderRoom::new(options.bytes)),
            fault: Once::new(),
            counters: Mutex::default(),
            options,
            parse,
        }
    }

    /// What it has done so far, in this process.
    pub fn counters(&self) -> DiskCacheCounters {
        *lock(&self.counters)
    }

    /// Why nothing more is kept, if that is so.
    pub fn fault(&self) -> Option<Error> {
        self.fault.get().cloned()
    }

    /// Whether the entry is there, as far as is known without opening it.
    pub fn contains(&self, key: &CacheKey) -> bool {
        self.path(key).is_file()
    }

    /// The entry if it is there, counted as a hit or a miss.
    pub fn find(&self, key: &CacheKey) -> Option<Arc<V>> {
        let found = self.look(key);
        self.count_look_up(found.is_some());
        found
    }

    /// The entry, or the right to make it. `estimate` is how many bytes it will have, about.
    pub fn find_or_make(&self, key: CacheKey, estimate: u64) -> Claim<'_, V> {
        let claim = match self.look(&key) {
            Some(found) => Claim::Found(found),
            None if self.takes(estimate) => self.make(key),
            None => Claim::Without,
        };
        self.count_look_up(matches!(claim, Claim::Found(_)));
        claim
    }

    fn count_look_up(&self, is_hit: bool) {
        let mut counters = lock(&self.counters);
        counters.hits += u64::from(is_hit);
        counters.misses += u64::from(!is_hit);
    }

    /// Whether an entry of so many bytes is likely to be kept.
    pub fn takes(&self, estimate: u64) -> bool {
        self.fault.get().is_none() && lock(&self.room).may_take(estimate)
    }

    /// Writes nothing more from now on, because of this.
    fn switch_off(&self, cause: Error) {
        let message = format!("nothing more is kept in the disk cache: {cause}");
        let error = Error::new(cause.kind(), message)
            .with_file(self.options.folder.display().to_string())
            .with_hint("rows are read without it; see to room and permissions, or choose another folder")
            .with_source(cause);
        // The first cause is the one that is told.
        self.fault.set(error);
    }

    fn make(&self, key: CacheKey) -> Claim<'_, V> {
        let path = self.path(&key);
        let lock = match self.in_folder(|| EntryLock::try_new(&path)) {
            Ok(Some(lock)) => lock,
            Ok(None) => return Claim::Without,
            Err(error) => {
                self.switch_off(Error::io("cannot lock an entry", error));
                return Claim::Without;
            }
        };
        // Whoever had the lock before may have made it.
        if let Some(found) = self.look(&key) {
            return Claim::Found(found);
        }
        match EntryDraft::create(&path, &key) {
            Ok(draft) => Claim::Make(Maker { disk_cache: self, path, draft: Some(draft), _lock: lock }),
            // Somebody deleted the folder just now, which is anybody's right.
            Err(error) if error.kind() == ErrorKind::NotFound => Claim::Without,
            Err(error) => {
                self.switch_off(error);
                Claim::Without
            }
        }
    }

    /// Does something that needs the folder, which it makes where it is missing.
    fn in_folder<T>(&self, work: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match work() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut builder = fs::DirBuilder::new();
                builder.recursive(true);
                std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
                builder.create(&self.options.folder)?;
                work()
            }
            other => other,
        }
    }

    /// The entry if it is there, counted as neither.
    pub fn look(&self, key: &CacheKey) -> Option<Arc<V>> {
        let path = self.path(key);
        let held = lock(&self.open).get(&key.hash).map(|(value, _)| Arc::clone(value));
        if let Some(value) = held {
            if !is_gone(touch(&path)) {
                return Some(value);
            }
            // Deleted by another process: as long as it is mapped here, its bytes stay on the disk.
            lock(&self.open).pop(&key.hash);
        }
        let parsed = entry::open(&path, key).and_then(|payload| payload.map(self.parse).transpose());
        match parsed {
            Ok(None) => None,
            Ok(Some((value, memory))) => {
                // One that was deleted since is still good to use, once.
                let gone = is_gone(touch(&path));
                let value = Arc::new(value);
                if !gone {
                    self.hold(key.hash, Arc::clone(&value), memory.max(OPEN_LEAST));
                }
                Some(value)
            }
            Err(_) => {
                lock(&self.counters).discards += 1;
                // If it cannot be deleted, replacing it fails as well and is told.
                let _ = fs::remove_file(&path);
                None
            }
        }
    }

    /// Has the system read the whole entry ahead, where it is no longer in the page cache: rows picked out of a map
    /// would be read a few pages at a time.
    pub fn expect(&self, key: &CacheKey) {
        #[cfg(target_os = "linux")]
        if let Ok(file) = open(&self.path(key)) {
            // Advice that is not taken costs time and nothing else.
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::WillNeed);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = key;
    }

    fn hold(&self, hash: u128, value: Arc<V>, memory: u64) {
        let mut open = lock(&self.open);
        open.put(hash, (value, memory));
        let mut bytes: u64 = open.iter().map(|(_, (_, memory))| memory).sum();
        while bytes > OPEN_BYTES
            && open.len() > 1
            && let Some((_, (_, memory))) = open.pop_lru()
        {
            bytes -= memory;
        }
    }

    /// Finds room for a finished entry, or says that there is none.
    fn make_room(&self, bytes: u64) -> bool {
        let cleared = lock(&self.room).make(&self.options.folder, bytes);
        let mut counters = lock(&self.counters);
        counters.evictions += cleared.evictions;
        counters.bytes_evicted += cleared.bytes;
        drop(counters);
        if let Some(present) = cleared.present {
            let mut open = lock(&self.open);
            let gone: Vec<u128> = open.iter().map(|(hash, _)| *hash).filter(|hash| !present.contains(hash)).collect();
            gone.iter().for_each(|hash| drop(open.pop(hash)));
        }
        cleared.enough
    }

    fn path(&self, key: &CacheKey) -> PathBuf {
        self.options.folder.join(key.file_name())
    }
}

/// An empty file beside an entry that is being made, with an advisory lock, so that one process at a time writes it.
/// The system releases the lock of a process that ends.
struct EntryLock {
    _file: File,
    path: PathBuf,
}

impl EntryLock {
    /// `None` if somebody else has it.
    fn try_new(entry: &Path) -> io::Result<Option<Self>> {
        let path = entry.with_extension(room::LOCK);
        let file = with_room(|| OpenOptions::new().create(true).truncate(false).write(true).open(&path))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Ok(None),
            // A file system without locks only makes two processes do the same.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(Some(Self { _file: file, path })),
        }
    }
}

impl Drop for EntryLock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The right to make an entry, which nobody else has as long as this lives. Dropped before it is committed, there is
/// none.
pub struct Maker<'a, V> {
    disk_cache: &'a CacheFolder<V>,
    path: PathBuf,
    /// `None` once it is known that there will be no entry.
    draft: Option<EntryDraft>,
    _lock: EntryLock,
}

impl<V> fmt::Debug for Maker<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Maker").field("path", &self.path).finish_non_exhaustive()
    }
}

impl<V> Maker<'_, V> {
    /// Adds to the entry. What goes wrong switches the disk cache off and is nobody else's business.
    pub fn write(&mut self, bytes: &[u8]) {
        let Some(draft) = &mut self.draft else { return };
        match draft.write(bytes) {
            // An entry that the disk cache will never hold is not worth its room while it is written.
            Ok(()) if draft.len() > self.disk_cache.options.bytes => self.draft = None,
            Ok(()) => {}
            Err(error) => self.fail(error),
        }
    }

    /// Whether there is still going to be an entry.
    pub fn goes_on(&self) -> bool {
        self.draft.is_some()
    }

    /// How many bytes were written so far.
    pub fn position(&self) -> u64 {
        self.draft.as_ref().map_or(0, EntryDraft::position)
    }

    /// Gives the entry up and switches the disk cache off.
    pub fn fail(&mut self, error: Error) {
        self.draft = None;
        self.disk_cache.switch_off(error);
    }

    /// Puts the entry in its place.
    pub fn commit(mut self) {
        let Some(draft) = self.draft.take() else { return };
        let bytes = draft.len();
        if !self.disk_cache.make_room(bytes) {
            return;
        }
        match draft.commit() {
            Ok(()) => {
                // The system's own time of a write may lie some milliseconds back.
                let _ = touch(&self.path);
                let mut counters = lock(&self.disk_cache.counters);
                counters.writes += 1;
                counters.bytes_written += bytes;
            }
            // Somebody deleted the folder, which is anybody's right.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => self.fail(error),
        }
    }
}

impl<V> fmt::Debug for CacheFolder<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheFolder").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Notes that an entry was used just now, for whoever looks for one to evict: its time of modification says when, in
/// all processes.
fn touch(path: &Path) -> io::Result<()> {
    open(path)?.set_modified(SystemTime::now())
}

/// Whether the entry is no longer there. That another user's entry cannot be touched is no harm.
fn is_gone(touched: io::Result<()>) -> bool {
    touched.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// A panic while a lock is held leaves counts and tables that are whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
