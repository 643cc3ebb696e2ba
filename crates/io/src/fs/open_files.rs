//! How many files this process keeps open, and what happens when it may open no more.
//!
//! Sources of local files keep files open between reads, because opening a file costs more than a short read from it.
//! All of them share one pool, so the number of open files does not grow with the number of datasets. The pool holds at
//! most a quarter of the files that the process may have open. When the system refuses to open one more file, of
//! whatever kind, the pool closes half of its own and the file is opened again.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lru::LruCache;

use rowdex_base::once::Once;
use rowdex_base::per_process::PerProcess;

/// The pool takes one part in so many of the files that the process may have open. A child that was forked inherits
/// what its parent has open and has a pool of its own.
const SHARE: u64 = 4;

/// Bounds of the pool. More open files than the upper one gain little, and each takes memory of the kernel.
const FEWEST: usize = 8;
const MOST: usize = 4096;

/// The files that one source has open: a file of the same path of another source is another file, which may have been
/// opened before or after the path was given to another content.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    source: u64,
}

/// By source and path.
type FileHandles = LruCache<(u64, Box<str>), Arc<File>>;

static POOL: Once<PerProcess<Mutex<FileHandles>>> = Once::new();

impl OpenFiles {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { source: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// The file, if it is open.
    pub(crate) fn get(&self, path: &str) -> Option<Arc<File>> {
        pool()?.get(&self.key(path)).map(Arc::clone)
    }

    /// Keeps a file open, and gives back the one to use: another thread may have opened the same file earlier.
    pub(crate) fn keep(&self, path: &str, file: File) -> Arc<File> {
        let file = Arc::new(file);
        let most = most_open();
        let Some(mut files) = pool() else { return file };
        if let Some(earlier) = files.get(&self.key(path)) {
            return Arc::clone(earlier);
        }
        files.put(self.key(path), Arc::clone(&file));
        let surplus = pop(&mut files, most);
        drop(files);
        // Closing a file may take long on a network disk, so nobody waits for it.
        drop(surplus);
        file
    }

    /// Closes the file, as soon as nobody reads from it any more.
    pub(crate) fn close(&self, path: &str) {
        let closed = pool().and_then(|mut files| files.pop(&self.key(path)));
        drop(closed);
    }

    fn key(&self, path: &str) -> (u64, Box<str>) {
        (self.source, path.into())
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        pool().map_or(0, |files| files.iter().filter(|((source, _), _)| *source == self.source).count())
    }
}

impl Drop for OpenFiles {
    fn drop(&mut self) {
        let Some(mut files) = pool() else { return };
        let own = files.iter().map(|(key, _)| key).filter(|(source, _)| *source == self.source);
        let own: Vec<_> = own.cloned().collect();
        let closed: Vec<_> = own.iter().map(|key| files.pop(key)).collect();
        drop(files);
        drop(closed);
    }
}

/// Opens a file for reading, after closing others where the process may open no more.
pub fn open(path: &Path) -> io::Result<File> {
    with_room(|| File::open(path))
}

/// Does what opens files, and does it again after closing others where the process may open no more.
pub fn with_room<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match open() {
            Err(error) if is_out_of_files(&error) && close_half() => {}
            done => return done,
        }
    }
}

/// How many files the pool may hold; no other part of the crate should hold more.
pub fn most_open() -> usize {
    usize::try_from(limit() / SHARE).unwrap_or(MOST).clamp(FEWEST, MOST)
}

/// How many files the process may have open now: programs raise the limit while they run.
fn limit() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Whether the process, or the machine, has too many files open.
pub(super) fn is_out_of_files(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let codes = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// Closes the half of the pool that was used least recently; false if it is empty.
fn close_half() -> bool {
    let Some(mut files) = pool() else { return false };
    let left = files.len() / 2;
    let closed = pop(&mut files, left);
    drop(files);
    !closed.is_empty()
}

/// Takes the files that were used least recently out of the pool, until it has so many left.
fn pop(files: &mut FileHandles, left: usize) -> Vec<Arc<File>> {
    std::iter::from_fn(|| if files.len() > left { files.pop_lru() } else { None }).map(|(_, file)| file).collect()
}

/// The pool of this process: a forked child must not wait for a lock that a thread of its parent held.
fn pool() -> Option<MutexGuard<'static, FileHandles>> {
    let new = || Mutex::new(LruCache::unbounded());
    let pool = POOL.get_or_init(|| PerProcess::new(new())).get(new)?;
    // A panic cannot leave the table half changed.
    Some(pool.lock().unwrap_or_else(PoisonError::into_inner))
}
