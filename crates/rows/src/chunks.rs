//! Decoded batches of any length, cut and joined into chunks of one length.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::Schema;

use super::join_exactly;
use rowdex_base::error::Result;

/// Takes batches in order and gives chunks of `rows` rows; the last chunk may be shorter.
///
/// No relation between the two lengths is assumed: a batch may hold several chunks, and a chunk several batches.
#[derive(Debug)]
pub struct Chunks {
    rows: usize,
    /// Rows that were not given yet.
    waiting: VecDeque<RecordBatch>,
    have: usize,
}

impl Chunks {
    /// Chunks of so many rows, at least one.
    pub fn of(rows: usize) -> Self {
        Self { rows: rows.max(1), waiting: VecDeque::new(), have: 0 }
    }

    /// Adds the rows of a batch.
    pub fn push(&mut self, batch: RecordBatch) {
        self.have += batch.num_rows();
        if batch.num_rows() > 0 {
            self.waiting.push_back(batch);
        }
    }

    /// The next chunk, if there are rows for all of it.
    pub fn next_chunk(&mut self) -> Result<Option<RecordBatch>> {
        if self.have < self.rows {
            return Ok(None);
        }
        let mut parts = Vec::new();
        let mut left = self.rows;
        while let Some(batch) = self.waiting.pop_front() {
            if batch.num_rows() > left {
                parts.push(batch.slice(0, left));
                self.waiting.push_front(batch.slice(left, batch.num_rows() - left));
                break;
            }
            left -= batch.num_rows();
            parts.push(batch);
            if left == 0 {
                break;
            }
        }
        self.have -= self.rows;
        match <[RecordBatch; 1]>::try_from(parts) {
            Ok([only]) => Ok(Some(only)),
            Err(parts) => {
                let schema = parts.first().map_or_else(|| Arc::new(Schema::empty()), RecordBatch::schema);
                join_exactly(&schema, parts).map(Some)
            }
        }
    }

    /// The rows that are left when there are no more batches, if there are any.
    pub fn last(&mut self) -> Result<Option<RecordBatch>> {
        self.rows = self.have.max(1);
        self.next_chunk()
    }

    /// The rows that were not given yet.
    pub fn waiting(&self) -> impl Iterator<Item = &RecordBatch> {
        self.waiting.iter()
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::UInt32Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::UInt32Type;
    use proptest::prelude::*;

    use super::*;
    use crate::record_batch;

    /// All chunks of these batches.
    fn cut(chunk: usize, batches: impl IntoIterator<Item = RecordBatch>) -> Vec<RecordBatch> {
        let (mut chunks, mut found) = (Chunks::of(chunk), Vec::new());
        for batch in batches {
            chunks.push(batch);
            found.extend(std::iter::from_fn(|| chunks.next_chunk().unwrap()));
        }
        found.extend(chunks.last().unwrap());
        assert_eq!(chunks.waiting().count(), 0);
        found
    }

    fn ids(rows: std::ops::Range<u32>) -> RecordBatch {
        RecordBatch::try_from_iter([("id", Arc::new(UInt32Array::from_iter_values(rows)) as _)]).unwrap()
    }

    proptest! {
        #[test]
        fn all_rows_come_in_order_in_chunks_of_one_length(
            chunk in 1usize..40,
            batches in prop::collection::vec(0u32..60, 0..12),
        ) {
            let ends = batches.iter().scan(0, |end, rows| {
                *end += rows;
                Some(*end)
            });
            let total: u32 = batches.iter().sum();
            let found = cut(chunk, ends.zip(&batches).map(|(end, rows)| ids(end - rows..end)));
            let rows = found.iter().flat_map(|chunk| chunk.column(0).as_primitive::<UInt32Type>().values());
            prop_assert!(rows.copied().eq(0..total));
            prop_assert_eq!(found.len(), (total as usize).div_ceil(chunk));
            prop_assert!(found.iter().rev().skip(1).all(|part| part.num_rows() == chunk));
        }
    }

    #[test]
    fn rows_without_columns_are_counted() {
        let batch = record_batch(&Schema::empty().into(), Vec::new(), 5).unwrap();
        let lengths: Vec<usize> = cut(7, vec![batch; 3]).iter().map(RecordBatch::num_rows).collect();
        assert_eq!(lengths, [7, 7, 1]);
    }
}
