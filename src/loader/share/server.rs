//! A reader for the ranks of a machine that is none of them.

#[cfg(target_os = "linux")]
use std::time::Duration;

use super::Seat;
#[cfg(target_os = "linux")]
use super::reader::{Meeting, Reader};
use crate::loader::LoaderStats;
use rowdex_base::error::Result;
#[cfg(target_os = "linux")]
use rowdex_base::error::{Error, ErrorKind};
#[cfg(target_os = "linux")]
use rowdex_share::{Met, Signal, meet};

/// Reads for the loaders of a machine's ranks, as the first of them does otherwise, until it is dropped. From
/// [`LoaderBuilder::serve`](crate::loader::LoaderBuilder::serve).
///
/// When it is dropped, the loaders that are there meet again, and one of them reads on. When its process is killed,
/// they get an error that says so.
#[derive(Debug)]
pub struct Server {
    reader: Reader,
    #[cfg(target_os = "linux")]
    wait: Duration,
}

impl Server {
    #[cfg(target_os = "linux")]
    pub(in crate::loader) fn start(seat: Seat) -> Result<Self> {
        let wait = seat.group.wait;
        match meet(&seat.group.address, &Signal::new()?)? {
            Some(Met::First(listener)) => Ok(Self { reader: Reader::start(seat, listener, Meeting::Served)?, wait }),
            Some(Met::Joined(other)) => {
                let message = format!("process {} reads for this job already", other.peer());
                Err(Error::new(ErrorKind::AlreadyExists, message)
                    .with_hint("start the server before the ranks, or give it another job or share name"))
            }
            None => Err(Error::new(ErrorKind::Internal, "nobody asked the server to end")),
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(in crate::loader) fn start(_: Seat) -> Result<Self> {
        Err(super::invalid("ranks share a reader on Linux only"))
    }

    /// How many loaders are connected: one for each rank, or for each of its workers.
    pub fn connected(&self) -> usize {
        self.reader.connected()
    }

    /// Whether loaders were there and all have left, the last one for as long as the reader
    /// [waits](crate::loader::Share::wait) for those that have not come. More may come nevertheless.
    pub fn is_deserted(&self) -> bool {
        #[cfg(target_os = "linux")]
        return self.reader.deserted().is_some_and(|since| since >= self.wait);
        #[cfg(not(target_os = "linux"))]
        match self.reader {}
    }

    /// What was done for all loaders.
    pub fn stats(&self) -> LoaderStats {
        self.reader.stats()
    }
}

/// There is none.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
enum Reader {}

#[cfg(not(target_os = "linux"))]
impl Reader {
    fn connected(&self) -> usize {
        match *self {}
    }

    fn stats(&self) -> LoaderStats {
        match *self {}
    }
}

/// Callers drop it to end it, as where there is one.
#[cfg(not(target_os = "linux"))]
impl Drop for Reader {
    fn drop(&mut self) {
        match *self {}
    }
}
