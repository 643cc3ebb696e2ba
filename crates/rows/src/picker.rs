//! Picks the rows that are due out of a unit while it is decoded, chunk by chunk.
//!
//! A chunk is small enough to be in the core's cache while its rows are picked, and what is not picked is dropped
//! before the next chunk comes: a unit never lies decoded in memory as a whole. The rows picked of each chunk are in
//! the order in which they are due, so putting them into pieces is a merge that reads every chunk's rows from front to
//! back.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;

use super::held::Held;
use super::memory::{ChunkBytes, Elsewhere, Footprint, show_what_they_keep};
use super::packed::Layout;
use super::picks::BatchRow;
use super::pieces::{PIECES, placer};
use super::placing::{Placer, RowPick};
use super::{RowSink, take};
use rowdex_base::error::{Error, ErrorKind, Result};

/// How due rows get out of chunks.
#[derive(Debug, Clone)]
pub enum Picking {
    /// They stay in their chunks, because they lie one after the other and are most of all rows.
    Keep,
    /// Each is copied from its chunk straight to its place, packed. As [`Pick`](Self::Pick) if the first chunk says
    /// that packed rows would take much more memory.
    Place(Arc<Layout>),
    /// They are copied out of each chunk, and then to their places.
    Pick,
}

/// The rows wanted of a unit, and those of them that were found so far.
#[derive(Debug)]
pub struct Picker {
    picking: Picking,
    wanted: RowChoice,
    /// Rows of the unit, and of each chunk but the last.
    rows: usize,
    chunk_rows: usize,
    /// How many columns a chunk has, if rows need not come whole.
    columns: Option<usize>,
    /// Rows of the unit that were not seen yet, and chunks that were.
    left: usize,
    chunks: usize,
    placer: Option<Placer>,
    picked: Vec<RecordBatch>,
    /// The rows, if the only chunk has all of them.
    copied: Option<Vec<Held>>,
    chunk_bytes: ChunkBytes,
    elsewhere: Elsewhere,
    decoded_bytes: u64,
    largest: u64,
    pages: u64,
    took: Duration,
}

#[derive(Debug)]
enum RowChoice {
    /// These rows, which stay in their chunks.
    Run { all: Range<usize>, start: usize },
    /// Rows to copy out.
    Picks {
        /// Wanted rows of all chunks, one chunk after another, each by its place in the chunk and with its place in the
        /// order in which they are due.
        rows: Vec<RowPick>,
        /// Where each chunk's wanted rows begin, and the end.
        starts: Vec<usize>,
    },
}

impl RowChoice {
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
            // A slot beyond the unit has no place; `finish` then misses it.
            let Some(place) = next.get_mut((slot / chunk_rows) as usize) else { continue };
            if let Some(wanted) = wanted.get_mut(*place) {
                *wanted = (slot % chunk_rows, due);
            }
            *place += 1;
        }
        Self::Picks { rows: wanted, starts }
    }

    fn len(&self) -> usize {
        match self {
            Self::Run { all, .. } => all.len(),
            Self::Picks { rows, .. } => rows.len(),
        }
    }
}

impl Picker {
    /// Wants the rows of these slots of a unit with `rows` rows, in the order in which they are due, to be found in
    /// chunks of `chunk_rows`.
    pub fn new(picking: Picking, slots: &[u32], rows: usize, chunk_rows: usize) -> Self {
        let began = Instant::now();
        let chunk_rows = chunk_rows.clamp(1, u32::MAX as usize);
        let wanted = match (&picking, slots.first(), slots.last()) {
            (Picking::Keep, Some(first), Some(last)) => {
                RowChoice::Run { all: *first as usize..(*last as usize + 1).min(rows), start: 0 }
            }
            _ => RowChoice::picks(slots, rows, chunk_rows as u32),
        };
        Self {
            picking,
            wanted,
            rows,
            chunk_rows,
            columns: None,
            left: rows,
            chunks: 0,
            placer: None,
            picked: Vec::with_capacity(rows.div_ceil(chunk_rows)),
            copied: None,
            chunk_bytes: ChunkBytes::default(),
            elsewhere: Elsewhere::default(),
            decoded_bytes: 0,
            largest: 0,
            pages: 0,
            took: began.elapsed(),
        }
    }

    /// Takes so many columns at once, of rows that are placed in columns that are [packed
    /// apart](Layout::packs_columns_apart).
    #[must_use]
    pub fn by_columns(self, columns: Option<usize>) -> Self {
        Self { columns, ..self }
    }

    /// Some of what chunks have counts elsewhere.
    #[must_use]
    pub fn beside(self, elsewhere: Elsewhere) -> Self {
        Self { chunk_bytes: ChunkBytes::beside(&elsewhere), elsewhere, ..self }
    }

    /// The rows, all `wanted` of them.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if there were fewer, and as [`take`](super::take).
    pub fn finish(self, wanted: usize) -> Result<Picked> {
        let began = Instant::now();
        let has_all_columns = self.placer.as_ref().is_none_or(Placer::is_whole);
        if self.left > 0 || self.chunks == 0 || self.wanted.len() != wanted || !has_all_columns {
            return Err(Error::new(ErrorKind::Internal, "fewer rows than a row group has"));
        }
        let mut staged = 0;
        let rows = match (self.copied, self.placer, self.wanted) {
            (Some(rows), _, _) => rows,
            (_, Some(placer), _) => Held::packed_in_turn(placer.finish()),
            (_, _, RowChoice::Run { .. }) => Held::in_turn(self.picked, &self.elsewhere),
            (_, _, RowChoice::Picks { rows, starts }) => {
                let mut places: Vec<BatchRow> = vec![(0, 0); rows.len()];
                for (chunk, span) in (0..).zip(starts.windows(2)) {
                    for (place, (_, due)) in (0..).zip(rows.get(span[0]..span[1]).unwrap_or_default()) {
                        places[*due as usize] = (chunk, place);
                    }
                }
                let mut footprint = Footprint::beside(&self.elsewhere);
                staged = self.picked.iter().map(|batch| footprint.add(batch)).sum::<u64>().min(self.decoded_bytes);
                Held::merged(&self.picked, &places, false, &self.elsewhere)?
            }
        };
        Ok(Picked {
            rows,
            decoded_bytes: self.decoded_bytes,
            staged_bytes: staged + self.largest,
            page_bytes: self.pages,
            took: self.took + began.elapsed(),
        })
    }
}

impl RowSink for Picker {
    fn chunk_rows(&self) -> usize {
        self.chunk_rows
    }

    fn columns_at_once(&self) -> Option<usize> {
        self.columns
    }

    fn pages_took(&mut self, bytes: u64) {
        self.pages = self.pages.max(bytes);
    }

    fn begin_columns(&mut self, first: usize) -> Result<()> {
        if first > 0 && (self.left > 0 || self.placer.is_none()) {
            return Err(Error::new(ErrorKind::Internal, "columns of rows that come one by one are not placed"));
        }
        (self.left, self.chunks) = (self.rows, 0);
        self.placer.iter_mut().for_each(|placer| placer.begin_columns(first));
        Ok(())
    }

    /// Takes the wanted rows out of the next chunk.
    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        let began = Instant::now();
        if chunk.num_rows() != self.left.min(self.chunk_rows) {
            return Err(Error::new(ErrorKind::Internal, "chunks are not what a row group is made of"));
        }
        let bytes = self.chunk_bytes.add(&chunk);
        self.decoded_bytes += bytes;
        self.largest = self.largest.max(bytes);
        self.left -= chunk.num_rows();
        let is_only = self.chunks == 0 && self.left == 0;
        match &mut self.wanted {
            RowChoice::Run { all, start } => {
                let here = *start..*start + chunk.num_rows();
                let wanted = all.start.max(here.start)..all.end.min(here.end);
                let rows_shown =
                    chunk.slice(wanted.start.saturating_sub(here.start).min(chunk.num_rows()), wanted.len());
                if is_only && !show_what_they_keep(std::slice::from_ref(&rows_shown), &self.elsewhere) {
                    let slots: Vec<u32> = wanted.map(|row| row as u32).collect();
                    self.copied = Some(Held::copied(&chunk, &slots, PIECES, &self.elsewhere)?);
                } else if rows_shown.num_rows() > 0 {
                    self.picked.push(rows_shown);
                }
                *start = here.end;
            }
            RowChoice::Picks { rows, starts } => {
                let span = starts.get(self.chunks).zip(starts.get(self.chunks + 1));
                let wanted = span.and_then(|(&start, &end)| rows.get(start..end)).unwrap_or_default();
                if wanted.iter().any(|&(row, _)| row as usize >= chunk.num_rows()) {
                    return Err(Error::new(ErrorKind::Internal, "a wanted row is beyond its row group"));
                }
                if let Picking::Place(layout) = std::mem::replace(&mut self.picking, Picking::Pick)
                    && layout.is_worth(&chunk)
                {
                    self.placer = Some(placer(layout, rows.len()));
                }
                let slots = || wanted.iter().map(|(row, _)| *row).collect::<Vec<u32>>();
                match &mut self.placer {
                    Some(placer) => placer.put(&chunk, wanted)?,
                    None if is_only => self.copied = Some(Held::copied(&chunk, &slots(), PIECES, &self.elsewhere)?),
                    None => self.picked.push(take(&chunk, &slots())?),
                }
            }
        }
        self.chunks += 1;
        self.took += began.elapsed();
        Ok(())
    }
}

/// What was picked, and what that took.
#[derive(Debug)]
pub struct Picked {
    /// The rows in the order in which they are due.
    pub rows: Vec<Held>,
    /// Bytes of all chunks together.
    pub decoded_bytes: u64,
    /// About how many bytes were in memory at the worst moment, besides these rows.
    pub staged_bytes: u64,
    /// The same of pages, as the decoder told.
    pub page_bytes: u64,
    /// Time that was spent picking.
    pub took: Duration,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{Array, ArrayRef, Int64Array, StringViewArray, UInt32Array, UInt64Array};
    use arrow_select::take::take_record_batch;
    use proptest::prelude::*;

    use super::*;

    fn group(rows: usize) -> RecordBatch {
        let text = (0..rows).map(|row| format!("the text of row {row}"));
        let columns: [(&str, ArrayRef); 2] = [
            ("id", Arc::new(Int64Array::from_iter_values(0..rows as i64))),
            ("text", Arc::new(text.map(Some).collect::<StringViewArray>().gc())),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn picked(picker: Picker, rows: usize) -> Vec<Held> {
        let held = picker.finish(rows).unwrap().rows;
        assert_eq!(held.iter().map(Held::num_rows).sum::<usize>(), rows);
        held
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
            let mut picker = Picker::new(Picking::Pick, &slots, rows, chunk);
            for start in (0..rows).step_by(chunk) {
                picker.take(group.slice(start, chunk.min(rows - start))).unwrap();
            }
            let parts = picked(picker, slots.len());
            let parts: Vec<&RecordBatch> = parts.iter().map(|part| part.in_columns().unwrap()).collect();
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
            let mut picker = Picker::new(Picking::Keep, &slots, rows, chunk);
            let mut shown = HashSet::new();
            for start in (0..rows).step_by(chunk) {
                // A chunk has memory of its own.
                let rows = UInt32Array::from_iter_values(start as u32..(start + chunk).min(rows) as u32);
                let chunk = take_record_batch(&group, &rows).unwrap();
                shown.insert(chunk.column(0).to_data().buffers()[0].data_ptr());
                picker.take(chunk).unwrap();
            }
            let mut found = Vec::new();
            for part in picked(picker, slots.len()) {
                let ids = part.in_columns().unwrap().column(0);
                prop_assert!(shown.contains(&ids.to_data().buffers()[0].data_ptr()));
                let first = part.place(0) as usize;
                found.extend_from_slice(&ids.as_primitive::<Int64Type>().values()[first..first + part.num_rows()]);
            }
            prop_assert!(found.iter().copied().eq(slots.iter().map(|slot| i64::from(*slot))));
        }
    }

    #[test]
    fn columns_that_come_in_turns_are_placed_if_all_of_their_rows_come() {
        let column = |first: i64| Arc::new(Int64Array::from_iter_values(first..first + 10)) as ArrayRef;
        let batch = RecordBatch::try_from_iter([("a", column(0)), ("b", column(10)), ("c", column(20))]).unwrap();
        let layout = Layout::of(batch.schema_ref(), batch.schema_ref()).unwrap();
        let picker = || Picker::new(Picking::Place(Arc::clone(&layout)), &[7, 0, 7, 4], 10, 4);
        let turn = |picker: &mut Picker, columns: &[usize], rows: usize| {
            picker.begin_columns(columns[0])?;
            let part = batch.project(columns).unwrap();
            (0..rows).step_by(4).try_for_each(|start| picker.take(part.slice(start, 4.min(rows - start))))
        };
        let mut whole = picker();
        turn(&mut whole, &[0, 1], 10).unwrap();
        turn(&mut whole, &[2], 10).unwrap();
        let picked = whole.finish(4).unwrap();
        let found = picked.rows[0].in_rows().unwrap().take(&[0, 1, 2, 3], batch.schema_ref()).unwrap();
        assert_eq!(found, take(&batch, &[7, 0, 7, 4]).unwrap());
        // The last column is missing, or some rows of it, or of the one before.
        let mut narrow = picker();
        turn(&mut narrow, &[0, 1], 10).unwrap();
        assert_eq!(narrow.finish(4).unwrap_err().kind(), ErrorKind::Internal);
        let mut short = picker();
        turn(&mut short, &[0, 1], 10).unwrap();
        turn(&mut short, &[2], 8).unwrap();
        assert_eq!(short.finish(4).unwrap_err().kind(), ErrorKind::Internal);
        let mut early = picker();
        turn(&mut early, &[0, 1], 8).unwrap();
        assert_eq!(turn(&mut early, &[2], 10).unwrap_err().kind(), ErrorKind::Internal);
        // Rows that are picked come whole.
        let mut other = Picker::new(Picking::Pick, &[1], 10, 4);
        turn(&mut other, &[0, 1], 10).unwrap();
        assert_eq!(turn(&mut other, &[2], 10).unwrap_err().kind(), ErrorKind::Internal);
    }

    #[test]
    fn chunks_that_do_not_add_up_to_the_group_are_refused() {
        let ids: ArrayRef = Arc::new(UInt64Array::from_iter_values(0..10));
        let batch = RecordBatch::try_from_iter([("id", ids)]).unwrap();
        let picker = || Picker::new(Picking::Pick, &[19, 0], 20, 10);
        let mut short = picker();
        short.take(batch.clone()).unwrap();
        assert_eq!(short.take(batch.slice(0, 5)).unwrap_err().kind(), ErrorKind::Internal);
        let mut few = picker();
        few.take(batch.clone()).unwrap();
        assert_eq!(few.finish(2).unwrap_err().kind(), ErrorKind::Internal);
        let mut many = picker();
        many.take(batch.clone()).unwrap();
        many.take(batch.clone()).unwrap();
        assert_eq!(many.take(batch.clone()).unwrap_err().kind(), ErrorKind::Internal);
        let mut beyond = Picker::new(Picking::Pick, &[25], 20, 10);
        beyond.take(batch.clone()).unwrap();
        beyond.take(batch.clone()).unwrap();
        assert_eq!(beyond.finish(1).unwrap_err().kind(), ErrorKind::Internal);
    }
}
