//! Reading row groups before they are decoded, where a read takes long.

use std::ops::Range;

use bytes::Bytes;

use super::files::OpenDataFile;
use rowdex_base::error::Result;
use rowdex_io::source::{Pending, Source, cut};

/// A row group whose bytes are on their way. Dropping it gives the read up.
#[derive(Debug)]
pub(crate) struct Prefetch {
    /// Where the bytes are in the file, sorted.
    chunks: Vec<Range<u64>>,
    pending: Pending<Vec<Bytes>>,
}

impl Prefetch {
    pub(super) fn begin(source: &dyn Source, file: &OpenDataFile, chunks: Vec<Range<u64>>) -> Option<Self> {
        if chunks.is_empty() {
            return None;
        }
        let pending = source.begin(file.metadata.path(), file.content.as_ref()?, &chunks)?;
        Some(Self { chunks, pending })
    }

    /// Bytes that come when somebody says so.
    #[cfg(test)]
    pub(crate) fn of(bytes: u64, pending: Pending<Vec<Bytes>>) -> Self {
        Self { chunks: std::iter::once(0..bytes).collect(), pending }
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

    /// What was read ahead, if anything was, once it is there.
    pub(super) fn waited_for(prefetch: Option<Prefetch>) -> Result<Self> {
        let Some(Prefetch { chunks, pending }) = prefetch else { return Ok(Self::default()) };
        Ok(Self::read(chunks, pending.wait()?))
    }

    /// These ranges, if all of them are here.
    pub(super) fn cut(&self, ranges: &[Range<u64>]) -> Option<Vec<Bytes>> {
        if self.chunks.is_empty() { None } else { cut(&self.chunks, &self.bytes, ranges).ok() }
    }
}
