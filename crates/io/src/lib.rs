//! Bytes: ranged reads of named files, local or in a store, the disk cache, and files of the system.
//!
//! It knows names and ranges of bytes, and nothing of what the bytes mean.

pub mod disk_cache;
pub mod fs;
pub mod source;
