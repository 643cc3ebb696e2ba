//! Lists of row ids in files.

use std::path::Path;

use rowdex_base::error::{ErrorKind, Result};
use rowdex_io::fs::mmap;
use rowdex_order::ExplicitIds;

/// Files of at most this many bytes are read into memory, longer ones are mapped.
const MOST_READ: u64 = 64 << 20;

/// The row ids in a file: little-endian 64-bit integers one after another and nothing else, as numpy's
/// `ids.astype("<u8").tofile(path)` writes them.
///
/// A file of more than 64 MiB, eight million row ids, is mapped, and all processes on a machine share its memory. Such
/// a file must not be changed while it is open: replace it by renaming another to its path.
///
/// # Errors
///
/// `NotFound` or `Io` if it can not be opened or mapped, and `InvalidArgument` if it is not a regular file or its size
/// is not a multiple of 8 bytes.
pub fn order_file(path: impl AsRef<Path>) -> Result<ExplicitIds> {
    let path = path.as_ref();
    let bytes = mmap::read_or_map(path, "the order file", ErrorKind::InvalidArgument, MOST_READ);
    bytes.and_then(ExplicitIds::of_bytes).map_err(|error| error.with_file(path.display().to_string()))
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
            let order = Explicit::of(order_file(&path).unwrap(), 1 << 40).unwrap().epoch(0).unwrap();
            let mut rows = vec![0; ids.len()];
            assert_eq!(order.fill(0, &mut rows), ids.len());
            assert_eq!(rows, ids);
        }
    }

    #[test]
    fn a_file_that_is_no_list_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("order.bin");
        std::fs::write(&path, [0; 12]).unwrap();
        let error = order_file(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.file().unwrap().ends_with("order.bin") && error.message().contains("12 bytes"), "{error}");
        assert_eq!(order_file(folder.path()).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(order_file(folder.path().join("none")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
