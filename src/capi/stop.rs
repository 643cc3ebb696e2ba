//! Ending a call from another thread.

use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

use super::error::{call, rowdex_error, rowdex_status};
use super::handle;
use rowdex_base::stop::Asked;

/// Lets calls of this thread be ended by another: those that wait for an object store or for a batch of a loader, or
/// that put a file in its place, end with ROWDEX_STATUS_CLOSED soon after `*flag` is no longer 0. They leave no file
/// half written, and report no progress any more. A loader whose call was ended so continues with the same batch at the
/// next call.
///
/// Any thread may write to the flag while the calls last, as an atomic number of 4 bytes. It must be there until this
/// thread has ended or has called this again. NULL: calls are not ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rowdex_stop_when(
    flag: *const u32,
    error: Option<&mut MaybeUninit<*mut rowdex_error>>,
) -> rowdex_status {
    call(error, || {
        // SAFETY: the conventions of the header, and what is said above: the number is there for as long as it is read,
        // and whoever writes to it does so atomically.
        let flag = unsafe { handle::shared_number(flag, "flag") }?;
        Asked::give(flag.map(|flag| Asked::new(move || flag.load(Ordering::Relaxed) != 0)));
        Ok(())
    })
}
