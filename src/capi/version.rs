//! Which library this is, and numbers that belong to no handle.

/// The version of this header's functions and structs. It grows when one is taken away or changed, not when one is
/// added.
pub const ROWDEX_ABI_VERSION: u32 = 1;

/// In an option, where 0 stands for the default: really none at all.
pub const ROWDEX_NONE: u64 = u64::MAX;

/// The ROWDEX_ABI_VERSION of the library that is linked, to be compared with that of the header.
#[unsafe(no_mangle)]
pub extern "C" fn rowdex_abi_version() -> u32 {
    ROWDEX_ABI_VERSION
}
