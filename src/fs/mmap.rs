//! The only memory maps.
//!
//! The map of a file is shared by every process that opens the same file and costs no copy, but it reads a file that
//! others could change. The contract that makes it sound: **an order file, an entry of a disk tier or a large index is
//! replaced by rename, never modified in place.** This library writes them only that way. A file that is shortened
//! under the map raises SIGBUS, and one that is overwritten under it gives wrong rows. So small files are read instead,
//! see [`read_or_map`]. Memory files of other processes are mapped only if they are sealed, and need no contract.

#![allow(unsafe_code)]

use std::fs::File;
use std::path::Path;

use bytes::Bytes;
use memmap2::{Mmap, MmapOptions};

use super::{error, read_regular, regular};
#[cfg(target_os = "linux")]
use crate::Error;
use crate::{ErrorKind, Result};

/// Maps the whole file read-only; errors call it `what`, and are of kind `invalid` if it is not a file. No access
/// advice is given: whoever opens a file checks it from front to back, and by then it is in the page cache, where
/// advice changes nothing.
pub(crate) fn map(path: &Path, what: &str, invalid: ErrorKind) -> Result<Bytes> {
    map_file(&regular(path, what, invalid)?.0, what)
}

/// Reads a file of at most `most_read` bytes into memory, which nothing that happens to the file can harm, and maps a
/// longer one.
pub(crate) fn read_or_map(path: &Path, what: &str, invalid: ErrorKind, most_read: u64) -> Result<Bytes> {
    let (file, length) = regular(path, what, invalid)?;
    if length <= most_read { read_regular(&file, length, what) } else { map_file(&file, what) }
}

/// Maps the whole of an open file read-only; errors call it `what`.
pub(crate) fn map_file(file: &File, what: &str) -> Result<Bytes> {
    let metadata = file.metadata().map_err(|cause| error(format!("cannot inspect {what}"), cause))?;
    if metadata.len() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the map is read-only, and the contract above keeps every other process from changing the file while it is
    // mapped. The bytes of indexes and order files are only ever read as integers of alignment 1, for which every bit
    // pattern is valid, and each use re-checks its bounds, so a broken contract gives wrong numbers or SIGBUS but no
    // out-of-bounds access. An entry's bytes become arrays, whose offsets Arrow checks once: there the contract is all
    // there is. That is why entries are files of the tier's own, in a folder that it makes for its owner alone.
    let map = unsafe { Mmap::map(file) }.map_err(|cause| error(format!("cannot map {what}"), cause))?;
    Ok(Bytes::from_owner(map))
}

/// Maps a memory file of another process, which must be sealed: nobody can change its bytes or its length any more.
///
/// Writing to the map changes a copy of the page that is this process's own, as it does with any other memory that
/// batches are in.
#[cfg(target_os = "linux")]
pub(crate) fn map_sealed(file: &File) -> Result<Bytes> {
    use rustix::fs::{SealFlags, fcntl_get_seals};

    let wanted = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    if !fcntl_get_seals(file).is_ok_and(|seals| seals.contains(wanted)) {
        return Err(Error::new(ErrorKind::Internal, "a file from another process is not a sealed memory file"));
    }
    let metadata = file.metadata().map_err(|cause| error("cannot inspect a memory file", cause))?;
    if metadata.len() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: these seals can never be taken off. The first two keep the length, so no access is beyond the end. The
    // third keeps every process from writing, and the kernel gives it only if no writable map is left. So the bytes
    // stay what they are, whoever lives, dies or forks. The map is private, so writes through it are seen by nobody
    // else and are made by nobody in this crate.
    let map = unsafe { MmapOptions::new().populate().map_copy_read_only(file) };
    let map = map.map_err(|cause| error("cannot map a memory file", cause))?;
    // Read-only until here, so that its pages were not copied but shared.
    let map = map.make_mut().map_err(|cause| error("cannot map a memory file", cause))?;
    Ok(Bytes::from_owner(map))
}
