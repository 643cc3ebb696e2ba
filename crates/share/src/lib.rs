//! What processes of one machine share: a name to meet under, connections, messages, and memory files with batches.
//!
//! It knows nothing of what is said over a connection, nor of who serves which batches.

mod file;
mod job;
mod memory;
mod pool;
mod socket;

pub use file::{put, read};
pub use job::{address, job_of_launcher};
pub use memory::sealed;
pub use pool::Pool;
pub use socket::{Connection, Listener, MOST_MESSAGE, Met, Received, Signal, meet};
