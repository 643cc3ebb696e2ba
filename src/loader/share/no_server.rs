//! Ranks share a reader on Linux only.

use super::{Seat, invalid};
use crate::loader::LoaderStats;
use rowdex_base::error::Result;

/// Would read for the loaders of a machine's ranks.
#[derive(Debug)]
pub enum Server {}

impl Server {
    pub(in crate::loader) fn start(_: Seat) -> Result<Self> {
        Err(invalid("ranks share a reader on Linux only"))
    }

    /// How many loaders are connected.
    pub fn connected(&self) -> usize {
        match *self {}
    }

    /// Whether all have left.
    pub fn is_deserted(&self) -> bool {
        match *self {}
    }

    /// What was done for all loaders.
    pub fn stats(&self) -> LoaderStats {
        match *self {}
    }
}

/// Callers drop it to end it, as where there is one.
impl Drop for Server {
    fn drop(&mut self) {
        match *self {}
    }
}
