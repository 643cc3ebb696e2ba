//! Reading row groups before they are decoded, where a read takes long.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::files::OpenFile;
use rowdex_base::error::Result;
use rowdex_io::source::{Done, Pending, Source, cut};
use rowdex_io::tier::Passed;

/// A row group whose bytes are on their way. Dropping it gives the read up.
#[derive(Debug)]
pub(crate) struct Prefetch {
    /// Where the bytes are in the file, sorted.
    chunks: Vec<Range<u64>>,
    pending: Pending<Vec<Bytes>>,
    /// The same for other processes, if they are to have it.
    passed: Option<PassedOn>,
}

/// What is there for other processes, once it is. Clones are of the same, which is there until all are dropped.
pub(super) type PassedOn = Arc<Mutex<Option<Passed>>>;

impl Prefetch {
    pub(super) fn begin(source: &dyn Source, file: &OpenFile, chunks: Vec<Range<u64>>) -> Option<Self> {
        if chunks.is_empty() {
            return None;
        }
        let pending = file.begin(source, &chunks)?;
        Some(Self::new(chunks, pending, None))
    }

    /// `passed` is for other processes, and there when it has arrived.
    pub(super) fn new(chunks: Vec<Range<u64>>, pending: Pending<Vec<Bytes>>, passed: Option<PassedOn>) -> Self {
        Self { chunks, pending, passed }
    }

    /// What is in memory already, because another process read it.
    pub(super) fn at_hand(chunks: Vec<Range<u64>>, bytes: Vec<Bytes>) -> Self {
        let done = Done::default();
        done.set();
        Self::new(chunks, Pending::new(done, || Ok(bytes)), None)
    }

    /// Keeps it there for other processes, for as long as the result is held.
    pub(super) fn passed(&self) -> Option<PassedOn> {
        self.passed.clone()
    }

    /// Bytes that come when somebody says so.
    #[cfg(test)]
    pub(crate) fn of(bytes: u64, pending: Pending<Vec<Bytes>>) -> Self {
        Self::new(std::iter::once(0..bytes).collect(), pending, None)
    }

    /// How many bytes it takes in memory, once they are there.
    pub(crate) fn bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.end.saturating_sub(chunk.start)).fold(0, u64::saturating_add)
    }

    /// Whether all of it is there.
    pub(crate) fn has_arrived(&self) -> bool {
        self.pending.is_done()
    }

    /// Calls `tell` when it is, from whatever thread.
    pub(crate) fn when_arrived(&self, tell: impl FnOnce() + Send + 'static) {
        self.pending.when_done(tell);
    }

    pub(super) fn wait(self) -> Result<AtHand> {
        Ok(AtHand { bytes: self.pending.wait()?, chunks: self.chunks })
    }
}

/// Bytes of a file that are in memory.
#[derive(Debug, Default)]
pub(super) struct AtHand {
    chunks: Vec<Range<u64>>,
    bytes: Vec<Bytes>,
}

impl AtHand {
    /// What was read of the data file. The chunks are sorted.
    pub(super) fn read(chunks: Vec<Range<u64>>, bytes: Vec<Bytes>) -> Self {
        Self { chunks, bytes }
    }

    /// These ranges, if all of them are here.
    pub(super) fn cut(&self, ranges: &[Range<u64>]) -> Option<Vec<Bytes>> {
        if self.chunks.is_empty() { None } else { cut(&self.chunks, &self.bytes, ranges).ok() }
    }
}
