//! The behaviours of rowdex, tested through its public API.

#[cfg(feature = "cli")]
mod cli;
mod index_bytes;
mod oracle;
