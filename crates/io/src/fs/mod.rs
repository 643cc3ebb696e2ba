//! Files of the operating system: opened within the limit of the process, read by position, mapped, and written whole.

pub mod atomic;
mod blocks;
mod idle;
pub mod mmap;
mod open_files;
mod slabs;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use bytes::Bytes;

pub use blocks::MappedBlocks;
pub use idle::MoreIdle;
pub(crate) use open_files::OpenFiles;
pub use open_files::{most_open, open, with_room};

use rowdex_base::error::{Error, ErrorKind, Result};

/// The error of an operation on a file, with advice where the process has too many files open.
pub fn error(message: impl Into<std::borrow::Cow<'static, str>>, error: io::Error) -> Error {
    let hint = open_files::is_out_of_files(&error);
    let error = Error::io(message, error);
    if hint { error.with_hint("raise the number of files that the process may have open (`ulimit -n`)") } else { error }
}

/// Opens what must be a file, and tells its length. Errors call it `what`, and are of kind `invalid` if it is something
/// else.
pub fn regular(path: &Path, what: &str, invalid: ErrorKind) -> Result<(File, u64)> {
    // Looked at before it is opened, because opening a named pipe waits for a writer.
    let metadata = std::fs::metadata(path).map_err(|cause| error(format!("cannot open {what}"), cause))?;
    if !metadata.is_file() {
        let is = if metadata.is_dir() { "a folder" } else { "not a regular file" };
        return Err(Error::new(invalid, format!("{what} is {is}")).with_hint("check the path"));
    }
    let file = open(path).map_err(|cause| error(format!("cannot open {what}"), cause))?;
    let length = file.metadata().map_err(|cause| error(format!("cannot inspect {what}"), cause))?.len();
    Ok((file, length))
}

/// Reads a whole file into memory.
pub(crate) fn read_regular(file: &File, length: u64, what: &str) -> Result<Bytes> {
    let read = read_at(file, 0..length).map_err(|cause| error(format!("cannot read {what}"), cause))?;
    if read.len() as u64 != length {
        return Err(Error::new(ErrorKind::Io, format!("{what} was shortened while it was read"))
            .with_hint("replace a file that is in use by renaming another one to its path"));
    }
    Ok(read)
}

/// The bytes of a range, or those that there are if the file ends in it. Goes on after signals and short reads.
pub fn read_at(file: &File, range: Range<u64>) -> io::Result<Bytes> {
    let length = range.end.saturating_sub(range.start);
    let length = usize::try_from(length).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    let mut buffer = Vec::with_capacity(length);
    while buffer.len() < length {
        let start = range.start + buffer.len() as u64;
        // Room behind the end need not be cleared: that takes a third of the time of reading from the page cache.
        match rustix::io::pread(file, rustix::buffer::spare_capacity(&mut buffer), start) {
            Ok(0) => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // The allocator may give more than was asked for, and then more may have been read.
    buffer.truncate(length);
    Ok(buffer.into())
}
