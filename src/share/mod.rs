//! What processes of one machine share: a name to meet under, connections, messages, and memory files with batches.
//!
//! It knows nothing of what is said over a connection, nor of who serves which batches.

mod file;
mod job;
mod pool;
#[cfg(test)]
mod pool_model;
mod socket;
mod wire;

pub(crate) use file::{put, read};
pub(crate) use job::{address, job_of_launcher};
pub(crate) use pool::Pool;
pub(crate) use socket::{Connection, Listener, Met, Received, Signal, meet};
pub(crate) use wire::{MOST_MESSAGE, Reader, Writer};
