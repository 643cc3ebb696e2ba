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
    /// Whether it is read of the data file, rather than kept by the disk tier.
    is_read: bool,
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
        Self { chunks, pending, passed, is_read: true }
    }

    /// What is in memory already, because another process read it.
    pub(super) fn at_hand(chunks: Vec<Range<u64>>, bytes: Vec<Bytes>) -> Self {
        let done = Done::default();
        done.set();
        Self::new(chunks, Pending::new(done, || Ok(bytes)), None)
    }

    /// What is in memory already, and was kept or counted before.
    pub(super) fn kept(chunks: Vec<Range<u64>>, bytes: Vec<Bytes>) -> Self {
        Self { is_read: false, ..Self::at_hand(chunks, bytes) }
    }

    /// Whether other processes get it from this one.
    pub(super) fn is_for_others(&self) -> bool {
        self.passed.is_some()
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
        Ok(AtHand { bytes: self.pending.wait()?, chunks: self.chunks, is_read: self.is_read })
    }
}

/// Bytes of a file that are in memory.
#[derive(Debug, Default)]
pub(super) struct AtHand {
    chunks: Vec<Range<u64>>,
    bytes: Vec<Bytes>,
    is_read: bool,
}

impl AtHand {
    /// What was read of the data file. The chunks are sorted.
    pub(super) fn read(chunks: Vec<Range<u64>>, bytes: Vec<Bytes>) -> Self {
        Self { chunks, bytes, is_read: true }
    }

    /// The bytes of each chunk.
    pub(super) fn into_bytes(self) -> Vec<Bytes> {
        self.bytes
    }

    /// Whether they were read of the data file, rather than kept by the disk tier.
    pub(super) fn is_read(&self) -> bool {
        self.is_read
    }

    /// These ranges, if all of them are here.
    pub(super) fn cut(&self, ranges: &[Range<u64>]) -> Option<Vec<Bytes>> {
        if self.chunks.is_empty() { None } else { cut(&self.chunks, &self.bytes, ranges).ok() }
    }
}
