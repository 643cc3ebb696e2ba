//! Picks the rows that are due out of a row group while it is decoded, chunk by chunk.
//!
//! A chunk is small enough to be in the core's cache while its rows are picked, and what is not picked is dropped
//! before the next chunk comes: a row group never lies decoded in memory as a whole. The rows picked of each chunk
//! are in the order in which they are due, so putting them into pieces is a merge that reads every chunk's rows from
//! front to back.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;

use super::held::{DueRows, is_one_run, rows_of_packed};
use super::plan::PIECES;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_rows::{self as rows, ChunkBytes, Layout, Pick, Place, Placer, bytes_of};

/// Decoded bytes of a chunk, about: two or three of them fit a core's own cache.
const CHUNK_BYTES: u64 = 1 << 20;
/// A chunk of fewer rows spends its time on calls.
const MIN_CHUNK: u64 = 64;

/// How many rows of `bytes` in all make a chunk.
pub(crate) fn chunk_rows(rows: u64, bytes: u64) -> usize {
    let chunk = (u128::from(rows) * u128::from(CHUNK_BYTES) / u128::from(bytes.max(1))) as u64;
    chunk.clamp(MIN_CHUNK, 1 << 20) as usize
}

/// The slots as a range, if they are consecutive and most of a group with `rows` rows: then the rows may stay where
/// they were decoded.
pub(crate) fn as_run(slots: &[u32], rows: usize) -> Option<Range<usize>> {
    let run = *slots.first()? as usize..*slots.last()? as usize + 1;
    let most = run.len() == slots.len() && run.len() >= rows.div_ceil(2) && run.end <= rows;
    (most && is_one_run(slots)).then_some(run)
}

/// The rows wanted of a group, and those of them that were found so far.
#[derive(Debug)]
pub(crate) struct Picker {
    wanted: Wanted,
    /// How rows are packed if that pays, which the first chunk says.
    layout: Option<Arc<Layout>>,
    placer: Option<Placer>,
    chunk_rows: usize,
    /// Rows of the group that were not seen yet, and chunks that were.
    left: usize,
    chunks: usize,
    picked: Vec<RecordBatch>,
    chunk_bytes: ChunkBytes,
    decoded_bytes: u64,
    largest: u64,
}

#[derive(Debug)]
enum Wanted {
    /// These rows, which stay in their chunks.
    Run { all: Range<usize>, start: usize },
    /// Rows to copy out.
    Picks {
        /// Wanted rows of all chunks, one chunk after another, each by its place in the chunk and with its place in the
        /// order in which they are due.
        rows: Vec<Pick>,
        /// Where each chunk's wanted rows begin, and the end.
        starts: Vec<usize>,
    },
}

impl Wanted {
    fn picks(slots: &[u32], rows: usize, chunk_rows: u32) -> Self {
        let chunks = rows.div_ceil(chunk_rows as usize).max(1);
        let mut starts = vec![0; chunks + 1];
        for &slot in slots {
            if let Some(count) = starts.get_mut((slot / chunk_rows) as usize + 1) {
                *count += 1;
            }
        }
        for chunk in 1..starts.len() {
            starts[chunk] += starts[chunk - 1];
        }
        let mut next = starts.clone();
        let mut wanted = vec![(0, 0); starts[chunks]];
        for (due, &slot) in (0..).zip(slots) {
            // A slot beyond the group has no place; `finish` then misses it.
            let Some(place) = next.get_mut((slot / chunk_rows) as usize) else { continue };
            if let Some(wanted) = wanted.get_mut(*place) {
                *wanted = (slot % chunk_rows, due);
            }
            *place += 1;
        }
        Self::Picks { rows: wanted, starts }
    }
}

impl Picker {
    /// Wants the rows of these slots of a group with `rows` rows, in the order in which they are due, to be found in
    /// chunks of `chunk_rows`. With `stay`, most of a group as it lies is not copied. Rows are packed by the layout, if
    /// there is one, where that takes hardly more memory.
    pub(crate) fn new(slots: &[u32], rows: usize, chunk_rows: usize, stay: bool, layout: Option<Arc<Layout>>) -> Self {
        let chunk_rows = chunk_rows.clamp(1, u32::MAX as usize);
        let wanted = match as_run(slots, rows).filter(|_| stay) {
            Some(all) => Wanted::Run { all, start: 0 },
            None => Wanted::picks(slots, rows, chunk_rows as u32),
        };
        let picked = Vec::with_capacity(rows.div_ceil(chunk_rows));
        let (chunk_bytes, decoded_bytes, largest) = (ChunkBytes::default(), 0, 0);
        let placer = None;
        Self { wanted, layout, placer, chunk_rows, left: rows, chunks: 0, picked, chunk_bytes, decoded_bytes, largest }
    }

    /// Takes the wanted rows out of the next chunk.
    pub(crate) fn take(&mut self, chunk: &RecordBatch) -> Result<()> {
        if chunk.num_rows() != self.left.min(self.chunk_rows) {
            return Err(Error::new(ErrorKind::Internal, "chunks are not what a row group is made of"));
        }
        let bytes = self.chunk_bytes.add(chunk);
        self.decoded_bytes += bytes;
        self.largest = self.largest.max(bytes);
        match &mut self.wanted {
            Wanted::Run { all, start } => {
                let here = *start..*start + chunk.num_rows();
                let wanted = all.start.max(here.start)..all.end.min(here.end);
                if !wanted.is_empty() {
                    self.picked.push(chunk.slice(wanted.start - here.start, wanted.len()));
                }
                *start = here.end;
            }
            Wanted::Picks { rows, starts } => {
                let span = starts.get(self.chunks).zip(starts.get(self.chunks + 1));
                let wanted = span.and_then(|(&start, &end)| rows.get(start..end)).unwrap_or_default();
                if wanted.iter().any(|&(row, _)| row as usize >= chunk.num_rows()) {
                    return Err(Error::new(ErrorKind::Internal, "a wanted row is beyond its row group"));
                }
                if let Some(layout) = self.layout.take().filter(|layout| layout.is_worth(chunk)) {
                    let piece = rows_of_packed(&layout, rows.len(), PIECES);
                    self.placer = Some(Placer::new(layout, rows.len(), piece));
                }
                match &mut self.placer {
                    Some(placer) => placer.put(chunk, wanted)?,
                    None => {
                        let slots: Vec<u32> = wanted.iter().map(|(row, _)| *row).collect();
                        self.picked.push(rows::take(chunk, &slots)?);
                    }
                }
            }
        }
        self.left -= chunk.num_rows();
        self.chunks += 1;
        Ok(())
    }

    /// The rows, all `wanted` of them.
    pub(crate) fn finish(self, wanted: usize) -> Result<Picked> {
        let found = match &self.wanted {
            Wanted::Run { all, .. } => all.len(),
            Wanted::Picks { rows, .. } => rows.len(),
        };
        if self.left > 0 || self.chunks == 0 || found != wanted {
            return Err(Error::new(ErrorKind::Internal, "fewer rows than a row group has"));
        }
        let (rows, staged) = match (self.wanted, self.placer) {
            (Wanted::Run { .. }, _) => (DueRows::run(self.picked), 0),
            (Wanted::Picks { .. }, Some(placer)) => (DueRows::packed(placer.finish()), 0),
            (Wanted::Picks { rows, starts }, None) => {
                let mut places: Vec<Place> = vec![(0, 0); rows.len()];
                for (chunk, span) in (0..).zip(starts.windows(2)) {
                    for (place, (_, due)) in (0..).zip(rows.get(span[0]..span[1]).unwrap_or_default()) {
                        places[*due as usize] = (chunk, place);
                    }
                }
                let staged = self.picked.iter().map(bytes_of).sum::<u64>().min(self.decoded_bytes);
                (DueRows::merge(&self.picked, &places, PIECES, false)?, staged)
            }
        };
        Ok(Picked { rows, decoded_bytes: self.decoded_bytes, staged_bytes: staged + self.largest })
    }
}

/// What was picked, and what that took.
#[derive(Debug)]
pub(crate) struct Picked {
    pub(crate) rows: DueRows,
    /// Bytes of all chunks together.
    pub(crate) decoded_bytes: u64,
    /// About how many bytes were in memory at the worst moment, besides these rows.
    pub(crate) staged_bytes: u64,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringViewArray, UInt32Array, UInt64Array};
    use arrow::compute::take_record_batch;
    use arrow::datatypes::Int64Type;
    use proptest::prelude::*;

    use super::*;
    use crate::loader::held::Slice;

    fn group(rows: usize) -> RecordBatch {
        let text = (0..rows).map(|row| format!("the text of row {row}"));
        let columns: [(&str, ArrayRef); 2] = [
            ("id", Arc::new(Int64Array::from_iter_values(0..rows as i64))),
            ("text", Arc::new(text.map(Some).collect::<StringViewArray>())),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn claimed(mut due: DueRows, rows: usize) -> Vec<Slice> {
        let mut slices = Vec::new();
        assert_eq!(due.claim(rows, &mut slices).1, 0);
        assert!(due.is_used_up());
        slices
    }

    proptest! {
        #[test]
        fn rows_come_in_the_order_in_which_they_are_due(
            rows in 1usize..200,
            picks in prop::collection::vec(any::<prop::sample::Index>(), 1..300),
            chunk in 1usize..250,
        ) {
            let slots: Vec<u32> = picks.iter().map(|pick| pick.index(rows) as u32).collect();
            let group = group(rows);
            let mut picker = Picker::new(&slots, rows, chunk, false, None);
            for start in (0..rows).step_by(chunk) {
                picker.take(&group.slice(start, chunk.min(rows - start))).unwrap();
            }
            let parts = claimed(picker.finish(slots.len()).unwrap().rows, slots.len());
            let parts: Vec<&RecordBatch> = parts.iter().map(|part| part.columns().unwrap()).collect();
            let ids = parts.iter().flat_map(|part| part.column(0).as_primitive::<Int64Type>().values().to_vec());
            prop_assert!(ids.eq(slots.iter().map(|slot| i64::from(*slot))));
            let texts = parts.iter().flat_map(|part| part.column(1).as_string_view().iter().flatten());
            let expected = slots.iter().map(|slot| format!("the text of row {slot}"));
            prop_assert!(texts.eq(expected));
        }
    }

    proptest! {
        #[test]
        fn most_of_a_group_as_it_lies_stays_in_its_chunks(
            rows in 1usize..200,
            start in 0usize..100,
            chunk in 1usize..250,
        ) {
            let slots: Vec<u32> = (start.min(rows / 2)..rows).map(|slot| slot as u32).collect();
            let group = group(rows);
            let mut picker = Picker::new(&slots, rows, chunk, true, None);
            let mut shown = HashSet::new();
            for start in (0..rows).step_by(chunk) {
                // A chunk has memory of its own.
                let rows = UInt32Array::from_iter_values(start as u32..(start + chunk).min(rows) as u32);
                let chunk = take_record_batch(&group, &rows).unwrap();
                shown.insert(chunk.column(0).to_data().buffers()[0].data_ptr());
                picker.take(&chunk).unwrap();
            }
            let mut found = Vec::new();
            for part in claimed(picker.finish(slots.len()).unwrap().rows, slots.len()) {
                let ids = part.columns().unwrap().column(0);
                prop_assert!(shown.contains(&ids.to_data().buffers()[0].data_ptr()));
                found.extend_from_slice(&ids.as_primitive::<Int64Type>().values()[part.first..part.first + part.rows]);
            }
            prop_assert!(found.iter().copied().eq(slots.iter().map(|slot| i64::from(*slot))));
        }
    }

    #[test]
    fn chunks_that_do_not_add_up_to_the_group_are_refused() {
        let ids: ArrayRef = Arc::new(UInt64Array::from_iter_values(0..10));
        let batch = RecordBatch::try_from_iter([("id", ids)]).unwrap();
        let picker = || Picker::new(&[19, 0], 20, 10, true, None);
        let mut short = picker();
        short.take(&batch).unwrap();
        assert_eq!(short.take(&batch.slice(0, 5)).unwrap_err().kind(), ErrorKind::Internal);
        let mut few = picker();
        few.take(&batch).unwrap();
        assert_eq!(few.finish(2).unwrap_err().kind(), ErrorKind::Internal);
        let mut many = picker();
        many.take(&batch).unwrap();
        many.take(&batch).unwrap();
        assert_eq!(many.take(&batch).unwrap_err().kind(), ErrorKind::Internal);
        let mut beyond = Picker::new(&[25], 20, 10, true, None);
        beyond.take(&batch).unwrap();
        beyond.take(&batch).unwrap();
        assert_eq!(beyond.finish(1).unwrap_err().kind(), ErrorKind::Internal);
    }

    #[test]
    fn a_chunk_has_about_its_bytes_and_never_too_few_rows() {
        assert_eq!(chunk_rows(1000, 100 << 20), 64);
        assert_eq!(chunk_rows(1 << 20, 1 << 26), 1 << 14);
        assert_eq!(chunk_rows(1 << 30, 1), 1 << 20);
        assert_eq!(chunk_rows(0, 0), 64);
        assert_eq!(chunk_rows(u64::MAX, u64::MAX), 1 << 20);
    }
}
