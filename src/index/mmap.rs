//! The only memory map.
//!
//! A map is shared by every process that opens the same file and costs no copy, but it reads a file that others could
//! change. The contract that makes it sound: **an index, an order file or an entry of a disk tier is replaced by rename, never modified in
//! place.** This library writes them only that way. A file that is shortened under the map raises SIGBUS, and one
//! that is overwritten under it gives wrong rows; [`Index::read`](super::Index::read) copies the bytes and is immune to
//! both.

#![allow(unsafe_code)]

use std::fs::File;
use std::path::Path;

use bytes::Bytes;
use memmap2::Mmap;

use crate::{Error, ErrorKind, Result};

/// Maps the whole file read-only; errors call it `what`, and are of kind `invalid` if it is not a file. No access
/// advice is given: opening reads it once from front to back, and by then its tables are in the page cache, where
/// advice changes nothing.
pub(crate) fn map(path: &Path, what: &str, invalid: ErrorKind) -> Result<Bytes> {
    let file = File::open(path).map_err(|error| Error::io(format!("cannot open {what}"), error))?;
    let metadata = file.metadata().map_err(|error| Error::io(format!("cannot inspect {what}"), error))?;
    if !metadata.is_file() {
        return Err(Error::new(invalid, "this is not a regular file").with_hint("check the path"));
    }
    if metadata.len() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the map is read-only, and the contract above keeps every other process from changing the file while it
    // is mapped. An index's bytes are only ever read as integers of alignment 1, for which every bit pattern is valid, and
    // each use re-checks its bounds, so a broken contract gives wrong numbers or SIGBUS but no out-of-bounds access. An
    // entry's bytes become arrays, whose offsets Arrow checks once: there the contract is all there is. That is why
    // entries are files of the tier's own, in a folder that it makes for its owner alone.
    let map = unsafe { Mmap::map(&file) }.map_err(|error| Error::io(format!("cannot map {what}"), error))?;
    Ok(Bytes::from_owner(map))
}
