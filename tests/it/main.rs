//! The behaviours of rowdex, tested through its public API.

mod index_bytes;
mod oracle;
