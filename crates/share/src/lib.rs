//! What processes of one machine share: a name to meet under, connections, messages, and memory files with batches.
//!
//! It knows nothing of what is said over a connection, nor of who serves which batches.

mod file;
mod job;
mod memory;
mod pool;
#[cfg(test)]
mod pool_model;
mod socket;
mod wire;

pub use file::{put, read};
pub use job::{address, job_of_launcher};
pub use pool::Pool;
pub use socket::{Connection, Listener, Met, Received, Signal, meet};
pub(crate) use wire::MOST_MESSAGE;
pub use wire::{Reader, Writer};
