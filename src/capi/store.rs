//! How object stores are talked to.

use std::ffi::{CStr, c_char};

use crate::describe::{self, StoreDescription};
use ::rowdex_io::source::StoreOptions;
use rowdex_base::error::Result;

/// What a text describes; the defaults for NULL.
///
/// # Safety
/// `json` is NULL or a text, as the header says.
pub(super) unsafe fn store_options(json: *const c_char) -> Result<StoreOptions> {
    if json.is_null() {
        return Ok(StoreOptions::default());
    }
    // SAFETY: the caller's promise.
    describe::read::<StoreDescription>("store", unsafe { CStr::from_ptr(json) }.to_bytes())?.options()
}
