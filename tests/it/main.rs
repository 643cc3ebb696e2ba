//! The behaviours of rowdex, tested through its public API.

#[cfg(feature = "cli")]
mod cli;
mod guarantees;
mod index_bytes;
mod mixed;
mod oracle;
