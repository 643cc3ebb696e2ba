//! The behaviours of rowdex, tested through its public API.

#[cfg(feature = "cli")]
mod cli;
mod guarantees;
mod index_bytes;
mod mixed;
mod oracle;
#[cfg(all(feature = "cli", feature = "object-store"))]
mod stores;
