//! How object stores are talked to.

use std::ffi::c_char;
use std::time::Duration;

use super::handle::{self, Versioned};
use super::option::{Count, count};
use ::rowdex_io::source::StoreOptions;
use rowdex_base::error::Result;

/// An option of a store, by the name that its environment variable has, in any case: "aws_endpoint_url".
///
/// It goes before the environment. A name that the store does not know is ignored, as an environment variable would be.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_store_config {
    /// The name.
    pub name: *const c_char,
    /// The value, which may be a secret: it is in no message.
    pub value: *const c_char,
}

/// How object stores are talked to, where an index or the data is in one. All zeros are the defaults.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rowdex_store_options {
    /// sizeof(rowdex_store_options)
    pub struct_size: usize,
    /// How many requests may be under way at once. 0: 64.
    pub concurrency: u64,
    /// How long a request may take with all of its retries, in milliseconds. 0: 120 000.
    pub deadline_ms: u64,
    /// How often a request is sent again after a fault that may pass. 0: 10. ROWDEX_NONE: never.
    pub retries: u64,
    /// Options of the store. NULL: those of the environment alone.
    pub config: *const rowdex_store_config,
    /// How many.
    pub num_config: usize,
}

// SAFETY: repr(C), begins with its size, and has only fields of 8 bytes for which 0 is valid.
unsafe impl Versioned for rowdex_store_options {}

/// The defaults for NULL.
///
/// # Safety
/// `given` and the pointers in it are as the header says.
pub(super) unsafe fn store_options(given: *const rowdex_store_options, name: &str) -> Result<StoreOptions> {
    // SAFETY: the caller's promise.
    let given = unsafe { handle::options(given, name) }?;
    let mut options = StoreOptions::new();
    if let Count::Exactly(requests) = count(given.concurrency, "concurrency")? {
        options = options.with_concurrency(requests);
    }
    if given.deadline_ms > 0 {
        options = options.with_deadline(Duration::from_millis(given.deadline_ms));
    }
    if let Count::Exactly(retries) = count(given.retries, "retries")? {
        options = options.with_retries(retries);
    }
    // SAFETY: as above.
    for config in unsafe { handle::slice(given.config, given.num_config, "config") }? {
        // SAFETY: as above.
        let (name, value) =
            unsafe { (handle::text(config.name, "config.name")?, handle::text(config.value, "config.value")?) };
        options = options.with_config(name, value);
    }
    Ok(options)
}
