//! Files of the operating system: opened within the limit of the process, read by position, mapped, and written whole.

pub mod atomic;
mod blocks;
pub mod mmap;
mod open_files;
mod read;

pub use blocks::{MappedBlocks, MoreIdle};
pub(crate) use open_files::OpenFiles;
pub use open_files::{most_open, open, with_room};
pub(crate) use read::read_regular;
pub use read::{read_at, regular};

use rowdex_base::error::Error;

/// The error of an operation on a file, with advice where the process has too many files open.
pub fn error(message: impl Into<std::borrow::Cow<'static, str>>, error: std::io::Error) -> Error {
    let hint = open_files::is_out_of_files(&error);
    let error = Error::io(message, error);
    if hint { error.with_hint("raise the number of files that the process may have open (`ulimit -n`)") } else { error }
}
