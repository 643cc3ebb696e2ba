//! Several row groups of a file, read as one.

use std::ops::Range;

use arrow::array::RecordBatch;

use super::files::OpenGroup;
use super::prefetch::{AtHand, Prefetch};
use super::reader::{RowGroupRead, RowGroupReader, Slots, length_of};
use super::{Dataset, State};
use crate::Result;
use crate::projection::Projection;
use crate::row_group::RowSink;
use crate::rows::{Chunks, compact, uncopied};

/// Rows of one of several row groups that are read as one.
#[derive(Debug, Clone)]
pub(crate) struct RunPart {
    pub(crate) row_group: u32,
    /// Strictly increasing; all of them if there are none.
    pub(crate) slots: Option<Vec<u32>>,
}

impl RunPart {
    fn slots(&self) -> Slots<'_> {
        self.slots.as_deref().map_or(Slots::All, Slots::Some)
    }
}

impl Dataset {
    /// As [`read`](Self::read), of row groups of one file one after the other. Their bytes are read together.
    pub(crate) fn read_run(
        &self,
        parts: &[RunPart],
        projection: &Projection,
        prefetch: Option<Prefetch>,
        sink: &mut dyn RowSink,
    ) -> Result<()> {
        let state = self.inner.state()?;
        let groups = open(state, parts)?;
        let reads = || {
            let read = |(group, part)| RowGroupRead { group, slots: RunPart::slots(part), projection, keeps: true };
            groups.iter().zip(parts).map(read)
        };
        let mut joined = Joined::new(sink);
        match (&state.disk_cache, prefetch) {
            // The tier has row groups, each for itself.
            (Some(tier), _) => {
                for read in reads() {
                    tier.read(read, None, &mut joined).map_err(|error| read.group.located(error))?;
                }
            }
            (None, prefetch) => {
                let at_hand = match (prefetch, groups.first()) {
                    (Some(prefetch), _) => prefetch.wait()?,
                    (None, Some(first)) => {
                        let chunks = together(reads().flat_map(|read| read.chunks()).collect());
                        let read = |chunks: &Vec<Range<u64>>| length_of(chunks) <= state.reader.max_decoded_bytes();
                        match Some(chunks).filter(read) {
                            Some(chunks) => state.reader.at_hand(&first.file, chunks).map_err(|e| first.located(e))?,
                            None => AtHand::default(),
                        }
                    }
                    (None, None) => AtHand::default(),
                };
                for read in reads() {
                    let done = state.reader.read_from(read, &at_hand, &mut joined);
                    done.map_err(|error| read.group.located(error))?;
                }
            }
        }
        joined.finish()
    }
}

fn open<'a>(state: &'a State, parts: &[RunPart]) -> Result<Vec<OpenGroup<'a>>> {
    parts.iter().map(|part| state.files.row_group(part.row_group)).collect()
}

/// Sorts ranges, and joins those that touch.
fn together(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

/// Chunks of several row groups, cut anew as if it were one.
pub(crate) struct Joined<'a> {
    sink: &'a mut dyn RowSink,
    chunks: Chunks,
    /// A chunk without rows, for the case that there are none at all.
    empty: Option<RecordBatch>,
    given: bool,
}

impl<'a> Joined<'a> {
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

impl RowSink for Joined<'_> {
    fn chunk_rows(&self) -> usize {
        self.sink.chunk_rows()
    }

    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        if chunk.num_rows() == 0 {
            self.empty = Some(chunk);
            return Ok(());
        }
        self.chunks.push(chunk);
        while let Some(chunk) = self.chunks.next()? {
            self.give(chunk)?;
        }
        Ok(())
    }
}
