//! Lists of row ids in files.

use std::fmt;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_io::fs::mmap;

/// Files of at most this many bytes are read into memory, longer ones are mapped.
const MOST_READ: u64 = 64 << 20;

/// A file of row ids: little-endian 64-bit integers one after another and nothing else, as numpy's
/// `ids.astype("<u8").tofile(path)` writes them.
///
/// What [`Explicit::from_le_bytes`](rowdex_order::Explicit::from_le_bytes) makes orders of. A file of more than 64 MiB,
/// eight million row ids, is mapped, and all processes on a machine share its memory. Such a file must not be changed
/// while it is open: replace it by renaming another to its path.
pub struct OrderFile {
    path: PathBuf,
    bytes: Bytes,
}

impl OrderFile {
    /// Reads or maps the file. Its row ids are not checked yet.
    ///
    /// # Errors
    ///
    /// `NotFound` or `Io` if it can not be opened or mapped, and `InvalidArgument` if it is not a regular file or its
    /// size is not a multiple of 8 bytes.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let open = || {
            let bytes = mmap::read_or_map(path, "the order file", ErrorKind::InvalidArgument, MOST_READ)?;
            if !bytes.len().is_multiple_of(8) {
                let message = format!("{} bytes are not a whole number of row ids of 8 bytes", bytes.len());
                return Err(Error::new(ErrorKind::InvalidArgument, message)
                    .with_hint("write row ids as little-endian 64-bit integers and nothing else"));
            }
            Ok(Self { path: path.to_owned(), bytes })
        };
        open().map_err(|error| error.with_file(path.display().to_string()))
    }

    /// The path that it was opened at.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many row ids it has.
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64 / 8
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl AsRef<[u8]> for OrderFile {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for OrderFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrderFile").field("path", &self.path).field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowdex_order::{Explicit, Order};

    #[test]
    fn a_file_serves_its_row_ids() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("order.bin");
        for ids in [vec![], vec![7_u64, 0, u64::from(u32::MAX) + 1]] {
            std::fs::write(&path, ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
            let file = OrderFile::open(&path).unwrap();
            assert_eq!((file.len(), file.is_empty()), (ids.len() as u64, ids.is_empty()));
            let order = Explicit::from_le_bytes(file, 1 << 40).unwrap().epoch(0).unwrap();
            let mut rows = vec![0; ids.len()];
            order.fill(0, &mut rows);
            assert_eq!(rows, ids);
        }
    }

    #[test]
    fn a_file_that_is_no_list_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("order.bin");
        std::fs::write(&path, [0; 12]).unwrap();
        let error = OrderFile::open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.file().unwrap().ends_with("order.bin") && error.message().contains("12 bytes"), "{error}");
        assert_eq!(OrderFile::open(folder.path()).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(OrderFile::open(folder.path().join("none")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
