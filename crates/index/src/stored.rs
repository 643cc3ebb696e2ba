//! The bytes of an index: in memory, or in a file that is read by position.
//!
//! What a lookup needs is read into memory when the index is opened, up to [`MOST_READ`] bytes. Stored footers are read
//! when they are asked for, and compared with their hashes. So whoever overwrites or shortens the file in place, rather
//! than replacing it by renaming another, can make this process report an error and nothing worse. Only the tables of a
//! larger index are mapped: see `docs/format.md` for why.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_io::fs::{self, mmap};

/// Tables of at most this many bytes are read into memory, larger ones are mapped. That is an index of about two
/// million row groups, or of half a billion rows of which a part was selected. Reading so many takes about 45 ms,
/// nearly all of it for the memory: 28 MB (10^6 row groups) take 18 ms, and 3 ms where they are mapped.
pub(super) const MOST_READ: u64 = 64 << 20;

/// How much of a long section is in memory while its hash is computed.
const STRIDE: u64 = 1 << 20;

/// The bytes of an index, or of a part of it.
#[derive(Debug, Clone)]
pub(super) enum IndexBytes {
    Memory(Bytes),
    File {
        file: Arc<File>,
        /// Where in the file the bytes are.
        range: Range<u64>,
    },
}

impl IndexBytes {
    /// The bytes of a local file. Errors do not name it.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let opened = fs::regular(path, "the index", ErrorKind::InvalidIndex);
        let (file, length) = opened.map_err(|error| if path.exists() { error } else { not_there(path, error) })?;
        Ok(Self::File { file: Arc::new(file), range: 0..length })
    }

    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File { range, .. } => range.end - range.start,
        }
    }

    /// The bytes of a range that lies within these, without reading them.
    pub(super) fn slice(&self, range: Range<u64>) -> Option<Self> {
        if range.start > range.end || range.end > self.len() {
            return None;
        }
        Some(match self {
            Self::Memory(bytes) => {
                Self::Memory(bytes.slice(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?))
            }
            Self::File { file, range: own } => {
                let range = own.start.checked_add(range.start)?..own.start.checked_add(range.end)?;
                Self::File { file: Arc::clone(file), range }
            }
        })
    }

    /// The bytes of a range, in memory.
    pub(super) fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let whole = |range: &Range<u64>, got: u64| {
            invalid(format!("the index has no bytes {} to {}: it ends after {got}", range.start, range.end))
        };
        match self.slice(range.clone()).ok_or_else(|| whole(&range, self.len()))? {
            Self::Memory(bytes) => Ok(bytes),
            Self::File { file, range } => {
                let read =
                    fs::read_at(&file, range.clone()).map_err(|error| fs::error("cannot read the index", error))?;
                let length = range.end - range.start;
                if read.len() as u64 != length { Err(shortened()) } else { Ok(read) }
            }
        }
    }

    /// All of what these bytes are a part of: the whole file is mapped.
    pub(super) fn map(&self) -> Result<Bytes> {
        match self {
            Self::Memory(bytes) => Ok(bytes.clone()),
            Self::File { file, .. } => mmap::map_file(file, "the index"),
        }
    }

    /// These bytes out of what [`map`](Self::map) gave.
    pub(super) fn within(&self, whole: &Bytes) -> Result<Bytes> {
        match self {
            Self::Memory(bytes) => Ok(bytes.clone()),
            Self::File { range, .. } => {
                let start = usize::try_from(range.start).ok();
                let range = start.zip(usize::try_from(range.end).ok()).filter(|(start, end)| start <= end);
                let range = range.filter(|&(_, end)| end <= whole.len()).ok_or_else(shortened)?;
                Ok(whole.slice(range.0..range.1))
            }
        }
    }

    /// Hands over all bytes, piece by piece.
    pub(super) fn for_each(&self, mut each: impl FnMut(&[u8])) -> Result<()> {
        let mut at = 0;
        while at < self.len() {
            let end = self.len().min(at.saturating_add(STRIDE));
            each(&self.read(at..end)?);
            at = end;
        }
        Ok(())
    }
}

/// Whoever names an index in another folder may mean the one of that name where the process runs.
fn not_there(path: &Path, error: Error) -> Error {
    match path.file_name().map(Path::new).filter(|name| name.is_file()) {
        Some(name) => error.with_hint(format!("there is `{}` in the current folder: open that", name.display())),
        None => error.with_hint("check the path, or build the index first"),
    }
}

/// The error of bytes that are not what the writer wrote.
pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidIndex, message.into()).with_hint("build the index again")
}

fn shortened() -> Error {
    invalid("the index was shortened while it was open")
        .with_hint("open it again; replace an index by renaming another to its path, never in place")
}
