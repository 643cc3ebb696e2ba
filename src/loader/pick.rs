//! Picks the rows that are due out of a row group while it is decoded, chunk by chunk.
//!
//! A chunk is small enough to be in the core's cache while its rows are picked, and what is not picked is dropped before the next chunk comes: a
//! row group never lies decoded in memory as a whole. The rows picked of each chunk are in the order in which they are due, so putting them
//! into pieces is a merge that reads every chunk's rows from front to back.

use std::collections::HashSet;

use arrow::array::{Array, ArrayData, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::buffer::Buffer;
use arrow::compute::take;

use super::carousel::{Lot, broken, bytes_of};
use super::plan::PIECES;
use crate::dataset::interleave::Place;
use crate::{Error, ErrorKind, Result};

/// Decoded bytes of a chunk, about: two or three of them fit a core's own cache.
const CHUNK_BYTES: u64 = 1 << 20;
/// A chunk of fewer rows spends its time on calls.
const MIN_CHUNK: u64 = 64;

/// How many rows of `bytes` in all make a chunk.
pub(crate) fn chunk_rows(rows: u64, bytes: u64) -> usize {
    let chunk = (u128::from(rows) * u128::from(CHUNK_BYTES) / u128::from(bytes.max(1))) as u64;
    chunk.clamp(MIN_CHUNK, 1 << 20) as usize
}

/// The rows wanted of a group, and those of them that were found so far.
#[derive(Debug)]
pub(crate) struct Picker {
    /// Wanted rows of all chunks, one chunk after another, each by its place in the chunk and in the order in which they are due.
    rows: Vec<u32>,
    /// Where each chunk's wanted rows begin, and the end.
    starts: Vec<usize>,
    /// For every wanted row in the order in which they are due, its chunk and its place among that chunk's wanted rows.
    places: Vec<Place>,
    picked: Vec<RecordBatch>,
    shown: HashSet<usize>,
    decoded_bytes: u64,
    largest: u64,
}

impl Picker {
    /// Wants the rows of these slots of a group with `rows` rows, in the order in which they are due, to be found in chunks of `chunk_rows`.
    pub(crate) fn new(slots: &[u32], rows: usize, chunk_rows: usize) -> Self {
        let chunk_rows = chunk_rows.clamp(1, u32::MAX as usize) as u32;
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
        let mut found = vec![0u32; chunks];
        let mut wanted = vec![0; starts[chunks]];
        let mut places = Vec::with_capacity(slots.len());
        for &slot in slots {
            let chunk = (slot / chunk_rows) as usize;
            // A slot beyond the group has no place; `finish` then misses it.
            let Some(place) = found.get_mut(chunk) else { continue };
            wanted[starts[chunk] + *place as usize] = slot % chunk_rows;
            places.push((chunk as u32, *place));
            *place += 1;
        }
        let picked = Vec::with_capacity(chunks);
        Self { rows: wanted, starts, places, picked, shown: HashSet::new(), decoded_bytes: 0, largest: 0 }
    }

    /// Takes the wanted rows out of the next chunk.
    pub(crate) fn take(&mut self, chunk: &RecordBatch) -> Result<()> {
        let number = self.picked.len();
        let wanted = self.starts.get(number).zip(self.starts.get(number + 1));
        let Some((&start, &end)) = wanted else {
            return Err(Error::new(ErrorKind::Internal, "more chunks than a row group has"));
        };
        let bytes = self.new_bytes(chunk);
        self.decoded_bytes += bytes;
        self.largest = self.largest.max(bytes);
        let rows = UInt32Array::from(self.rows[start..end].to_vec());
        if rows.iter().flatten().any(|row| row as usize >= chunk.num_rows()) {
            return Err(Error::new(ErrorKind::Internal, "a chunk is shorter than it should be"));
        }
        let columns = chunk.columns().iter().map(|column| take(column, &rows, None));
        let columns = columns.collect::<Result<Vec<_>, _>>().map_err(broken)?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        self.picked.push(RecordBatch::try_new_with_options(chunk.schema(), columns, &options).map_err(broken)?);
        Ok(())
    }

    /// The rows, all `wanted` of them.
    pub(crate) fn finish(self, wanted: usize) -> Result<Picked> {
        if self.picked.len() + 1 != self.starts.len() || self.places.len() != wanted {
            return Err(Error::new(ErrorKind::Internal, "fewer rows than a row group has"));
        }
        let staged: u64 = self.picked.iter().map(bytes_of).sum();
        let lot = Lot::merge(&self.picked, &self.places, PIECES)?;
        let staged = staged.min(self.decoded_bytes) + self.largest;
        Ok(Picked { lot, decoded_bytes: self.decoded_bytes, staged_bytes: staged })
    }

    /// Bytes that a chunk takes which the chunks before it did not.
    ///
    /// Rows that were picked as views keep the pages alive that the next chunks' views show, too; every other buffer is the chunk's own.
    fn new_bytes(&mut self, chunk: &RecordBatch) -> u64 {
        // The arrays of a mapped chunk are all parts of one buffer.
        let mut own = HashSet::new();
        chunk.columns().iter().map(|column| self.new_bytes_of(column, &mut own)).sum()
    }

    fn new_bytes_of(&mut self, column: &ArrayRef, own: &mut HashSet<usize>) -> u64 {
        let pages = match (column.as_string_view_opt(), column.as_binary_view_opt()) {
            (Some(strings), _) => strings.data_buffers(),
            (_, Some(binary)) => binary.data_buffers(),
            _ => return self.own_bytes(&column.to_data(), own),
        };
        let mut is_new = |page: &Buffer| {
            let place = page.data_ptr().as_ptr() as usize;
            self.shown.insert(place) && !own.contains(&place)
        };
        let new = pages.iter().filter(|page| is_new(page));
        new.map(|page| page.capacity() as u64).sum::<u64>() + 16 * column.len() as u64
    }

    fn own_bytes(&self, data: &ArrayData, own: &mut HashSet<usize>) -> u64 {
        let nulls = data.nulls().map(|nulls| nulls.buffer());
        let mut bytes = 0;
        for buffer in data.buffers().iter().chain(nulls) {
            let place = buffer.data_ptr().as_ptr() as usize;
            if own.insert(place) && !self.shown.contains(&place) {
                bytes += buffer.capacity() as u64;
            }
        }
        bytes + data.child_data().iter().map(|child| self.own_bytes(child, own)).sum::<u64>()
    }
}

/// What was picked, and what that took.
#[derive(Debug)]
pub(crate) struct Picked {
    pub(crate) lot: Lot,
    /// Bytes of all chunks together.
    pub(crate) decoded_bytes: u64,
    /// About how many bytes were in memory at the worst moment, besides the lot.
    pub(crate) staged_bytes: u64,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringViewArray, UInt64Array};
    use arrow::datatypes::Int64Type;
    use proptest::prelude::*;

    use super::*;
    use crate::loader::carousel::Carousel;

    fn group(rows: usize) -> RecordBatch {
        let text = (0..rows).map(|row| format!("the text of row {row}"));
        let columns: [(&str, ArrayRef); 2] = [
            ("id", Arc::new(Int64Array::from_iter_values(0..rows as i64))),
            ("text", Arc::new(text.map(Some).collect::<StringViewArray>())),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
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
            let mut picker = Picker::new(&slots, rows, chunk);
            for start in (0..rows).step_by(chunk) {
                picker.take(&group.slice(start, chunk.min(rows - start))).unwrap();
            }
            let lot = picker.finish(slots.len()).unwrap().lot;
            let mut carousel = Carousel::new(1);
            carousel.insert(0, 0, lot);
            let (_, parts) = carousel.claim(&[(0, slots.len() as u32)]).parts.pop().unwrap();
            let parts = parts.unwrap();
            let ids = parts.iter().flat_map(|part| part.batch.column(0).as_primitive::<Int64Type>().values().to_vec());
            prop_assert!(ids.eq(slots.iter().map(|slot| i64::from(*slot))));
            let texts = parts.iter().flat_map(|part| part.batch.column(1).as_string_view().iter().flatten());
            let expected = slots.iter().map(|slot| format!("the text of row {slot}"));
            prop_assert!(texts.eq(expected));
        }
    }

    #[test]
    fn chunks_that_do_not_add_up_to_the_group_are_refused() {
        let ids: ArrayRef = Arc::new(UInt64Array::from_iter_values(0..10));
        let batch = RecordBatch::try_from_iter([("id", ids)]).unwrap();
        let picker = || Picker::new(&[19, 0], 20, 10);
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
        let mut beyond = Picker::new(&[25], 20, 10);
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
