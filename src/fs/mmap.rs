//! The only memory map.
//!
//! A map is shared by every process that opens the same file and costs no copy, but it reads a file that others could
//! change. The contract that makes it sound: **an order file, an entry of a disk tier or a large index is replaced by
//! rename, never modified in place.** This library writes them only that way. A file that is shortened under the map
//! raises SIGBUS, and one that is overwritten under it gives wrong rows. So small files are read instead, see
//! [`read_or_map`].

#![allow(unsafe_code)]

use std::fs::File;
use std::path::Path;

use bytes::Bytes;
use memmap2::Mmap;

use super::{error, read_regular, regular};
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
