//! Telling how far something has come.

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use rowdex_base::stop;

/// Gets how far a build or a check has come: files done, files in all, and rows found so far (0 where they are not
/// counted).
///
/// It is called by one thread at a time, not always the same one, and never after the call that it was given to has
/// returned. It must return: by no exception, and by no longjmp. It must not use the dataset that it reports on, whose
/// threads may be waiting for it.
pub type rowdex_progress = Option<unsafe extern "C" fn(userdata: *mut c_void, files_done: u64, files: u64, rows: u64)>;

/// A progress callback with its userdata, which one thread at a time calls.
pub(super) struct Progress {
    callback: rowdex_progress,
    userdata: *mut c_void,
    /// What was told last, of how many: threads that are done at once come in any order.
    told: Mutex<(u64, u64)>,
}

// SAFETY: the header says that the callback is called from other threads than the one that gave it, and userdata with
// it.
unsafe impl Send for Progress {}
// SAFETY: as above, and calls do not overlap.
unsafe impl Sync for Progress {}

impl Progress {
    pub(super) fn new(callback: rowdex_progress, userdata: *mut c_void) -> Self {
        Self { callback, userdata, told: Mutex::default() }
    }

    pub(super) fn tell(&self, files_done: u64, files: u64, rows: u64) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let least = if told.1 == files { told.0 } else { 0 };
        *told = (files_done.max(least), files);
        if let Some(callback) = self.callback.filter(|_| stop::check().is_ok()) {
            // SAFETY: a function of this type, by the caller's promise, with the userdata that came with it.
            unsafe { callback(self.userdata, told.0, files, rows) }
        }
    }
}
