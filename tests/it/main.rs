//! The behaviours of rowdex, tested through its public API.

mod alone;
mod changed_index;
mod cli;
mod dictionaries;
mod fuzz;
mod golden;
mod house;
mod index_bytes;
mod mixed;
mod open_files;
mod oracle;
#[cfg(feature = "filter")]
mod pruned;
mod renamed;
#[cfg(feature = "object-store")]
mod stores;
mod synthetic;
