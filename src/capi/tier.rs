//! The local disk that row groups are kept on.

use std::ffi::c_char;

use super::handle::{self, Versioned};
use crate::dataset::DiskCache;
use rowdex_base::error::Result;

/// A folder on a local disk that keeps row groups for all processes of a machine. Only its owner should be able to
/// write to it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_disk_cache {
    /// sizeof(rowdex_disk_cache)
    pub struct_size: usize,
    /// The folder, which is made when something is first kept.
    pub folder: *const c_char,
    /// The most bytes of files to keep in it.
    pub bytes: u64,
}

// SAFETY: repr(C), begins with its size, and has only fields of 8 bytes for which 0 is valid.
unsafe impl Versioned for rowdex_disk_cache {}

/// `None` for NULL.
///
/// # Safety
/// `given` and the pointers in it are as the header says.
pub(super) unsafe fn disk_cache(given: *const rowdex_disk_cache, name: &str) -> Result<Option<DiskCache>> {
    if given.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let given = unsafe { handle::options(given, name) }?;
    // SAFETY: as above.
    let folder = unsafe { handle::optional_path(given.folder) };
    let folder = folder.ok_or_else(|| handle::invalid("a disk cache needs a folder"))?;
    if given.bytes == 0 {
        return Err(
            handle::invalid("a disk cache of 0 bytes keeps nothing").with_hint("set its bytes, or give no tier")
        );
    }
    Ok(Some(DiskCache::new(folder, given.bytes)))
}
