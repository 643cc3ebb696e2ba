//! Several row groups of a file, read as one.

use arrow_array::RecordBatch;

use super::reader::{AtHand, RowGroupRead, Slots};
use super::{Dataset, Unshared};
use rowdex_base::error::Result;
use rowdex_io::source::coalesce;
use rowdex_parquet::{RowSink, length_of};
use rowdex_projection::Projection;
use rowdex_rows::{Chunks, compact, uncopied};

/// Rows of one of several row groups that are read as one.
#[derive(Debug, Clone)]
pub(crate) struct RunPart {
    pub(crate) row_group: u32,
    /// Strictly increasing; all of them if there are none.
    pub(crate) slots: Option<Vec<u32>>,
}

impl Dataset {
    /// As [`read`](Self::read), of row groups of one file one after the other. Their bytes are read together, and one
    /// by one where that fails before there is a row.
    pub(crate) fn read_run(&self, parts: &[RunPart], projection: &Projection, sink: &mut dyn RowSink) -> Result<()> {
        let state = self.inner.state()?;
        let mut watched = WatchedSink { sink, was_given: false };
        let done = match &state.disk_cache {
            None => read_as_one(state, parts, projection, &mut watched),
            Some(_) => Ok(false),
        };
        let was_given = watched.was_given;
        match done {
            Ok(true) => Ok(()),
            // Rows cannot be taken back: whoever asked reads the row groups one by one, as after any error.
            Err(error) if was_given => Err(error),
            Ok(false) | Err(_) => read_one_by_one(state, parts, projection, sink),
        }
    }
}

/// Reads row groups as if they were one; `false`, before the sink was given anything, if that cannot be done.
fn read_as_one(state: &Unshared, parts: &[RunPart], projection: &Projection, sink: &mut dyn RowSink) -> Result<bool> {
    let Some(first) = parts.first() else { return Ok(false) };
    let group = state.files.row_group(first.row_group)?;
    let mut ordinals = Vec::with_capacity(parts.len());
    for part in parts {
        let entry = state.files.entry(part.row_group)?;
        if part.slots.is_some() || entry.selection().is_some() || entry.file() != group.entry.file() {
            return Ok(false);
        }
        ordinals.push(entry.ordinal() as usize);
    }
    let read = RowGroupRead { group: &group, slots: Slots::All, projection, keeps: true };
    let done = state.reader.read_as_one(read, &ordinals, sink);
    done.map_err(|error| error.with_file(group.indexed.path()))
}

/// Reads row groups one after the other. Their bytes are read together.
fn read_one_by_one(state: &Unshared, parts: &[RunPart], projection: &Projection, sink: &mut dyn RowSink) -> Result<()> {
    let groups: Vec<_> = parts.iter().map(|part| state.files.row_group(part.row_group)).collect::<Result<_>>()?;
    let reads = || {
        let slots = parts.iter().map(|part| part.slots.as_deref().map_or(Slots::All, Slots::Some));
        groups.iter().zip(slots).map(|(group, slots)| RowGroupRead { group, slots, projection, keeps: true })
    };
    let mut joined = JoinedChunks::new(sink);
    let at_hand = match (&state.disk_cache, groups.first()) {
        (None, Some(first)) => {
            let chunks: Vec<_> = reads().flat_map(|read| read.chunks()).collect();
            let chunks = coalesce(&chunks, 0, u64::MAX);
            match length_of(&chunks) <= state.reader.max_decoded_bytes() {
                true => state.reader.at_hand(&first.file, chunks).map_err(|error| first.located(error))?,
                false => AtHand::default(),
            }
        }
        _ => AtHand::default(),
    };
    for read in reads() {
        let done = match &state.disk_cache {
            // It has row groups, each for itself.
            Some(disk_cache) => disk_cache.read(read, None, &mut joined),
            None => state.reader.read(read, &at_hand, &mut joined),
        };
        done.map_err(|error| read.group.located(error))?;
    }
    joined.finish()
}

/// A sink, and what became of it.
struct WatchedSink<'a> {
    sink: &'a mut dyn RowSink,
    was_given: bool,
}

impl RowSink for WatchedSink<'_> {
    fn chunk_rows(&self) -> usize {
        self.sink.chunk_rows()
    }

    fn pages_took(&mut self, bytes: u64) {
        self.sink.pages_took(bytes);
    }

    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        self.was_given = true;
        self.sink.take(chunk)
    }
}

/// Chunks of several row groups, cut anew as if it were one.
pub(crate) struct JoinedChunks<'a> {
    sink: &'a mut dyn RowSink,
    chunks: Chunks,
    /// A chunk without rows, for the case that there are none at all.
    empty: Option<RecordBatch>,
    given: bool,
}

impl<'a> JoinedChunks<'a> {
    pub(crate) fn new(sink: &'a mut dyn RowSink) -> Self {
        let chunks = Chunks::of(sink.chunk_rows());
        Self { sink, chunks, empty: None, given: false }
    }

    /// Hands over what is left.
    pub(crate) fn finish(mut self) -> Result<()> {
        let left = self.chunks.last()?;
        let empty = self.empty.take().filter(|_| !self.given);
        left.or(empty).map_or(Ok(()), |chunk| self.give(chunk))
    }

    /// Views are of many small buffers, each of which every batch would know of.
    fn give(&mut self, chunk: RecordBatch) -> Result<()> {
        self.given = true;
        self.sink.take(compact(chunk).map_err(uncopied)?)
    }
}

impl RowSink for JoinedChunks<'_> {
    fn chunk_rows(&self) -> usize {
        self.sink.chunk_rows()
    }

    fn pages_took(&mut self, bytes: u64) {
        self.sink.pages_took(bytes);
    }

    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        if chunk.num_rows() == 0 {
            self.empty = Some(chunk);
            return Ok(());
        }
        self.chunks.push(chunk);
        while let Some(chunk) = self.chunks.next_chunk()? {
            self.give(chunk)?;
        }
        Ok(())
    }
}
