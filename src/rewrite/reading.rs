//! The rows of a row group, in the types in which they are held and spilled.

use arrow::array::RecordBatch;

use super::columns::{OutputColumns, as_read};
use crate::dataset::{Dataset, Slots};
use rowdex_base::error::{Error, Result};
use rowdex_base::stop;
use rowdex_parquet::RowSink;

/// What the first pass reads.
#[derive(Clone, Copy)]
pub(super) struct FirstPass<'a> {
    pub(super) dataset: &'a Dataset,
    pub(super) columns: &'a OutputColumns,
    pub(super) chunk_rows: usize,
}

impl FirstPass<'_> {
    /// Rows of a row group.
    pub(super) fn rows(&self, group: u32) -> u64 {
        self.dataset.index().row_group(group).map_or(0, |entry| entry.rows())
    }

    /// Hands over the rows of a row group with the row id of the first, chunk by chunk.
    pub(super) fn read(&self, group: u32, take: &mut dyn FnMut(u64, RecordBatch) -> Result<()>) -> Result<()> {
        stop::check()?;
        let Some(entry) = self.dataset.index().row_group(group) else { return Ok(()) };
        let mut sink = FirstPassSink { reading: self, take, next: entry.first_row(), failed: None };
        let read = self.dataset.read(group, Slots::All, as_read(self.dataset), None, &mut sink);
        // What becomes of rows is no fault of the file that they are from.
        sink.failed.map_or(read, Err)
    }
}

struct FirstPassSink<'a> {
    reading: &'a FirstPass<'a>,
    take: &'a mut dyn FnMut(u64, RecordBatch) -> Result<()>,
    /// The row id of the next row.
    next: u64,
    failed: Option<Error>,
}

impl RowSink for FirstPassSink<'_> {
    fn chunk_rows(&self) -> usize {
        self.reading.chunk_rows
    }

    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        let first = self.next;
        self.next += chunk.num_rows() as u64;
        let taken = self.reading.columns.plain_of(&chunk).and_then(|plain| (self.take)(first, plain));
        taken.inspect_err(|error| self.failed = Some(error.clone()))
    }
}
