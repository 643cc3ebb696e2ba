//! The only memory maps.
//!
//! The map of a file is shared by every process that opens the same file and costs no copy, but it reads a file that
//! others could change. The contract that makes it sound: **an order file, an entry of a disk cache or a large index is
//! replaced by rename, never modified in place.** This library writes them only that way. A file that is shortened
//! under the map raises SIGBUS, and one that is overwritten under it gives wrong rows. So small files are read instead,
//! see [`read_or_map`]. Memory files of other processes are mapped only if they are sealed. Those that are sealed for
//! good need no contract. For those that one process writes again, it is that **whoever maps one has a shared lock on
//! the open file that it maps, and never takes it off, and that process writes only with the exclusive lock**.

#![allow(unsafe_code)]

use std::fs::File;
#[cfg(target_os = "linux")]
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use bytes::Bytes;
use memmap2::Mmap;
#[cfg(target_os = "linux")]
use memmap2::{Advice, MmapMut, MmapOptions};
#[cfg(target_os = "linux")]
use rustix::fs::{
    FallocateFlags, FlockOperation, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, flock, ftruncate,
};

#[cfg(target_os = "linux")]
use super::with_room;
use super::{error, read_regular, regular};
#[cfg(target_os = "linux")]
use rowdex_base::error::Error;
use rowdex_base::error::{ErrorKind, Result};

/// Maps the whole file read-only; errors call it `what`, and are of kind `invalid` if it is not a file. No access
/// advice is given: whoever opens a file checks it from front to back, and by then it is in the page cache, where
/// advice changes nothing.
pub fn map(path: &Path, what: &str, invalid: ErrorKind) -> Result<Bytes> {
    map_file(&regular(path, what, invalid)?.0, what)
}

/// Reads a file of at most `most_read` bytes into memory, which nothing that happens to the file can harm, and maps a
/// longer one.
pub fn read_or_map(path: &Path, what: &str, invalid: ErrorKind, most_read: u64) -> Result<Bytes> {
    let (file, length) = regular(path, what, invalid)?;
    if length <= most_read { read_regular(&file, length, what) } else { map_file(&file, what) }
}

/// Maps the whole of an open file read-only; errors call it `what`.
pub fn map_file(file: &File, what: &str) -> Result<Bytes> {
    let metadata = file.metadata().map_err(|cause| error(format!("cannot inspect {what}"), cause))?;
    if metadata.len() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the map is read-only, and the contract above keeps every other process from changing the file while it is
    // mapped. The bytes of indexes and order files are only ever read as integers of alignment 1, for which every bit
    // pattern is valid, and each use re-checks its bounds, so a broken contract gives wrong numbers or SIGBUS but no
    // out-of-bounds access. An entry's bytes become arrays, whose offsets Arrow checks once: there the contract is all
    // there is. That is why entries are files of the disk cache's own, in a folder that it makes for its owner alone.
    let map = unsafe { Mmap::map(file) }.map_err(|cause| error(format!("cannot map {what}"), cause))?;
    Ok(Bytes::from_owner(map))
}

/// Maps the first bytes of a memory file of another process, which must be sealed: nobody can change its length, and
/// nobody its bytes, but for the process that made it while no other has it.
///
/// Writing to the map changes a copy of the page that is this process's own, as it does with any other memory that
/// batches are in.
#[cfg(target_os = "linux")]
pub fn map_sealed(file: &File, length: u64) -> Result<Bytes> {
    let refused = |message| Err(Error::new(ErrorKind::Internal, message));
    let sealed = SealFlags::SHRINK | SealFlags::GROW;
    let seals = fcntl_get_seals(file).unwrap_or(SealFlags::empty());
    if !seals.contains(sealed) || !seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
        return refused("a file from another process is not a sealed memory file");
    }
    if !seals.contains(SealFlags::WRITE) && flock(file, FlockOperation::NonBlockingLockShared).is_err() {
        return refused("a memory file from another process is being written");
    }
    let metadata = file.metadata().map_err(|cause| error("cannot inspect a memory file", cause))?;
    let length = match usize::try_from(length) {
        Ok(length) if length as u64 <= metadata.len() => length,
        _ => return refused("a memory file from another process is shorter than it should be"),
    };
    if length == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: seals can never be taken off. The first two keep the length, so no access is beyond the end. With the
    // third of them no process can write any more: the kernel gives it only if no writable map is left. With the fourth
    // one process can, through a map that it made before. It does so only while it has the exclusive lock. This process
    // has a shared one from before the map until the open file is gone, which every map of it keeps, also in a forked
    // child, and it never takes it off. So the bytes stay what they are for as long as the map is there, whoever lives,
    // dies or forks. The map is private, so writes through it are seen by nobody else and are made by nobody in this
    // crate.
    //
    // Its pages are mapped as they are read, several at once: all at once takes longer.
    let map = unsafe { MmapOptions::new().len(length).map_copy(file) };
    let map = map.map_err(|cause| error("cannot map a memory file", cause))?;
    Ok(Bytes::from_owner(map))
}

/// A memory file that the process that made it writes again, once nobody else has it.
///
/// Whoever it is lent to gets an open file of its own with a shared lock. The kernel takes that off with the last
/// reference: of a descriptor, of a message on its way, or of a map, in whichever processes those are. It does so when
/// they die, too. The exclusive lock is to be had when all of them are gone.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub struct Rewritable {
    file: OwnedFd,
    map: MmapMut,
    /// How many of its first bytes have a page in the map.
    mapped: usize,
}

#[cfg(target_os = "linux")]
impl Rewritable {
    /// Of a memory file that nobody else has, which is made so long.
    pub fn new(file: OwnedFd, length: usize) -> io::Result<Self> {
        ftruncate(&file, length as u64)?;
        // SAFETY: nobody else has the file, so nobody has a map that this one could change. `write` keeps the contract
        // from here on.
        let map = unsafe { MmapOptions::new().len(length).map_mut(file.as_raw_fd()) }?;
        // A forked child has no business with it.
        map.advise(Advice::DontFork)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        fcntl_add_seals(&file, seals)?;
        Ok(Self { file, map, mapped: 0 })
    }

    /// Length in bytes.
    pub fn length(&self) -> usize {
        self.map.len()
    }

    /// Whether nobody has it. Then nobody gets it before it is lent again.
    pub fn is_back(&self) -> bool {
        flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok()
    }

    /// Writes these pieces one behind the other; `false` if anybody has it, it is too short or there is no memory.
    pub fn write(&mut self, pieces: &[&[u8]]) -> bool {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        if length > self.map.len() || !self.is_back() {
            return false;
        }
        if self.mapped < length {
            // Whoever writes to a map for which there is no memory ends.
            let from = self.mapped as u64;
            let more = (length - self.mapped) as u64;
            if fallocate(&self.file, FallocateFlags::empty(), from, more).is_err() {
                return false;
            }
            // All at once, rather than each page as it is written for the first time. Older kernels cannot.
            let _ = self.map.advise_range(Advice::PopulateWrite, 0, length);
            self.mapped = length;
        }
        let mut left = &mut *self.map;
        for piece in pieces {
            let Some((to, rest)) = left.split_at_mut_checked(piece.len()) else { return false };
            to.copy_from_slice(piece);
            left = rest;
        }
        true
    }

    /// An open file to send to others, who may read it.
    pub fn lend(&self) -> io::Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let lent = with_room(|| File::open(&path))?;
        flock(&self.file, FlockOperation::Unlock)?;
        // Nobody but this process asks for the exclusive lock, and that after this.
        flock(&lent, FlockOperation::NonBlockingLockShared)?;
        Ok(lent.into())
    }
}
