//! Room for a new entry, within the bytes that all entries together may take.
//!
//! The folder is the only record: what is in it, how long the files are, and when each was last used, which is its time
//! of modification. Any process may look, and any may delete.
//!
//! Entries are evicted the least recently used first, with one exception. What was used since this process began, and
//! in the last hour, makes no room for something new: the new entry is then not kept. A loader comes by every row group
//! in turn, and under the plain rule a folder that holds nine tenths of them would always have evicted just the one
//! that comes next. So it holds nine tenths.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::entry;
use crate::fs::with_room;

/// What was used so recently is in use.
const IN_USE: Duration = Duration::from_secs(3600);
/// How long a full folder is taken to be still full.
const FULL_FOR: Duration = Duration::from_secs(1);
/// Looking through the folder takes at most about one part in so many of the time.
const LOOKING_SHARE: u32 = 16;
/// The extension of a lock beside an entry.
pub(super) const LOCK: &str = "lock";

/// What a process knows of the folder.
#[derive(Debug)]
pub(super) struct FolderRoom {
    budget: u64,
    /// Bytes in the folder when it was last looked through, and what this process added since.
    known: u64,
    /// When that was, and how long it took.
    looked: Option<(Instant, Duration)>,
    full_until: Option<Instant>,
    began: SystemTime,
}

/// What was done for a new entry.
#[derive(Debug, Default)]
pub(super) struct Cleared {
    pub(super) enough: bool,
    pub(super) evictions: u64,
    pub(super) bytes: u64,
    /// The entries that are there, if the folder was looked through.
    pub(super) present: Option<HashSet<u128>>,
}

#[derive(Debug)]
struct FoundEntry {
    path: PathBuf,
    hash: u128,
    bytes: u64,
    used: SystemTime,
}

impl FolderRoom {
    pub(super) fn new(budget: u64) -> Self {
        Self { budget, known: 0, looked: None, full_until: None, began: SystemTime::now() }
    }

    /// Whether it is worth making an entry of so many bytes, as far as is known.
    pub(super) fn may_take(&self, bytes: u64) -> bool {
        bytes <= self.budget && self.full_until.is_none_or(|until| until <= Instant::now())
    }

    /// Evicts what must go for an entry of so many bytes.
    pub(super) fn make(&mut self, folder: &Path, bytes: u64) -> Cleared {
        if bytes > self.budget {
            return Cleared::default();
        }
        let fresh = self.looked.is_some_and(|(when, took)| when.elapsed() < took * LOOKING_SHARE);
        if fresh && self.known.saturating_add(bytes) <= self.budget {
            self.known += bytes;
            return Cleared { enough: true, ..Cleared::default() };
        }
        let began = Instant::now();
        let mut entries = look_through(folder);
        entries.sort_unstable_by_key(|entry| entry.used);
        let mut left: u64 = entries.iter().map(|entry| entry.bytes).sum();
        let target = self.budget - bytes;
        let spared = self.began.max(SystemTime::now().checked_sub(IN_USE).unwrap_or(SystemTime::UNIX_EPOCH));
        let mut cleared = Cleared::default();
        let mut present: HashSet<u128> = entries.iter().map(|entry| entry.hash).collect();
        for entry in entries.iter().take_while(|entry| entry.used < spared) {
            if left <= target {
                break;
            }
            match fs::remove_file(&entry.path) {
                Ok(()) => {
                    cleared.evictions += 1;
                    cleared.bytes += entry.bytes;
                }
                // Another process was faster, and the bytes are gone, too.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // That of another user, in a folder where only its owner may remove a file.
                Err(_) => continue,
            }
            left = left.saturating_sub(entry.bytes);
            present.remove(&entry.hash);
        }
        cleared.enough = left <= target;
        cleared.present = Some(present);
        self.known = if cleared.enough { left + bytes } else { left };
        self.looked = Some((Instant::now(), began.elapsed()));
        self.full_until = (!cleared.enough).then(|| Instant::now() + FULL_FOR);
        cleared
    }
}

/// The entries of a folder. Files that are not the disk cache's are none of its business; its own leftovers are deleted
/// when they are old.
fn look_through(folder: &Path) -> Vec<FoundEntry> {
    let Ok(files) = with_room(|| fs::read_dir(folder)) else { return Vec::new() };
    let mut entries = Vec::new();
    let latest = SystemTime::now() + IN_USE;
    for file in files.flatten() {
        let name = file.file_name();
        let Some(name) = name.to_str() else { continue };
        let hash = entry::hash_in(name);
        let leftover = is_leftover(name);
        if hash.is_none() && !leftover {
            continue;
        }
        let Ok(metadata) = file.metadata() else { continue };
        let Ok(used) = metadata.modified() else { continue };
        // A clock that was set back must not make entries last for ever.
        let used = if used > latest { SystemTime::UNIX_EPOCH } else { used };
        match hash {
            Some(hash) => entries.push(FoundEntry { path: file.path(), hash, bytes: metadata.len(), used }),
            None if used.elapsed().is_ok_and(|age| age > IN_USE) => {
                let _ = fs::remove_file(file.path());
            }
            None => {}
        }
    }
    entries
}

/// Whether a file is one that a killed process left behind, or a living one is using, by its name.
fn is_leftover(name: &str) -> bool {
    let begun = name.strip_prefix('.').and_then(|name| name.split_once(".tmp-"));
    let lock = || name.strip_suffix(LOCK).map(|stem| format!("{stem}{}", &entry::SUFFIX[1..]));
    begun.map(|(name, _)| name.to_owned()).or_else(lock).is_some_and(|name| entry::hash_in(&name).is_some())
}
