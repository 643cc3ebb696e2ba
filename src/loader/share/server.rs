//! A reader for the ranks of a machine.

use std::os::fd::OwnedFd;
use std::time::Duration;

use super::Seat;
use super::reader::Reader;
use crate::loader::LoaderStats;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_share::{Listener, Met, Signal, meet};

/// How the command is told that it was started by a rank.
pub(super) const SOCKET: &str = "--socket";

/// A reader that ranks have started ends when no loader has been there for so long.
const IDLE: Duration = Duration::from_secs(3);

/// Reads for the loaders of a machine's ranks until it is dropped, in the place of a reader that these would start.
/// From [`LoaderBuilder::serve`](crate::loader::LoaderBuilder::serve).
///
/// When it is dropped, or its process is killed, the loaders that are there start a reader, and go on.
#[derive(Debug)]
pub struct Server {
    reader: Reader,
    wait: Duration,
}

impl Server {
    pub(in crate::loader) fn start(seat: Seat) -> Result<Self> {
        let wait = seat.group.wait;
        match meet(&seat.group.address, &Signal::new()?)? {
            Some(Met::First(listener)) => Ok(Self { reader: Reader::start(seat, listener)?, wait }),
            Some(Met::Joined(other)) => {
                let message = format!("process {} reads for this job already", other.peer());
                Err(Error::new(ErrorKind::AlreadyExists, message)
                    .with_hint("start the server before the ranks, or give it another job or share name"))
            }
            None => Err(Error::new(ErrorKind::Internal, "nobody asked the server to end")),
        }
    }

    /// Reads for the ranks that meet at this socket until they have left.
    pub(in crate::loader) fn listen(seat: Seat, socket: OwnedFd) -> Result<()> {
        let reader = Reader::start(seat, Listener::of(socket)?)?;
        while !reader.is_over(IDLE) {
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// How many loaders are connected: one for each rank, or for each of its workers.
    pub fn connected(&self) -> usize {
        self.reader.connected()
    }

    /// Whether loaders were there and all have left, the last one for as long as the reader
    /// [waits](crate::loader::Share::wait) for those that have not come. More may come nevertheless.
    pub fn is_deserted(&self) -> bool {
        self.reader.was_used() && self.reader.is_over(self.wait)
    }

    /// What was done for all loaders.
    pub fn stats(&self) -> LoaderStats {
        self.reader.stats()
    }
}
