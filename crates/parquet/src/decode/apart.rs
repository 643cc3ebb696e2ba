//! Wide row groups, of which some columns are decoded before the others.
//!
//! While a column is decoded its compressed bytes are in memory, a page of it, and what decodes it, which the parquet
//! crate makes of some kilobytes. Of thousands of columns that is more than what they become.

use std::vec;

use arrow_array::{ArrayRef, RecordBatch};

use super::{GroupDecoder, RowsToDecode, declared};
use crate::columns::ColumnOrigin;
use crate::errors::internal;
use crate::{FileBytes, RowSink};
use rowdex_base::error::Result;
use rowdex_rows::Footprint;

/// Whole rows are put together of columns that were decoded apart if these are more,
const MANY: usize = 512;
/// have no more bytes in the row group on average,
const SHORT: u64 = 64 << 10;
/// and come in no more chunks, which are all in memory then.
const MOST_CHUNKS: usize = 16;
/// So many columns are decoded at once.
const WIDTH: usize = 256;

impl GroupDecoder<'_> {
    /// How many columns of wide rows to decode before the next ones, if that pays.
    pub(super) fn width(
        &self,
        rows: RowsToDecode<'_>,
        origins: &[ColumnOrigin<'_>],
        leaves: &[usize],
        bytes: &dyn FileBytes,
        sink: &dyn RowSink,
    ) -> Option<usize> {
        // Where reads take long there is one for all.
        let count = match rows {
            _ if !bytes.is_near() => return None,
            RowsToDecode::Due(_) => return None,
            RowsToDecode::All => self.file.row_group_rows(self.row_group) as usize,
            RowsToDecode::Selected(rows) => rows.len(),
        };
        let declared = declared(self.file.group(self.row_group)?, leaves);
        self.within_limit(declared).ok()?;
        // Less memory is needed where whole rows are put together of columns that were decoded apart.
        let is_wide = origins.len() > MANY
            && count.div_ceil(sink.chunk_rows().max(1)) <= MOST_CHUNKS
            && declared <= SHORT.saturating_mul(origins.len() as u64);
        match sink.columns_at_once() {
            Some(width) => (1..origins.len()).contains(&width).then_some(width),
            None => is_wide.then_some(WIDTH),
        }
    }

    /// Decodes so many columns before the next ones, for a sink that takes them so or as whole rows.
    pub(super) fn decode_apart(
        &self,
        width: usize,
        rows: RowsToDecode<'_>,
        origins: &[ColumnOrigin<'_>],
        bytes: &dyn FileBytes,
        sink: &mut dyn RowSink,
    ) -> Result<u64> {
        if sink.columns_at_once().is_none() {
            let footprint = Footprint::default();
            let mut whole =
                Whole { decoder: self, width, chunk_rows: sink.chunk_rows(), turns: Vec::new(), footprint, bytes: 0 };
            let decoded = self.decode_apart(width, rows, origins, bytes, &mut whole)?;
            whole.hand_over(sink)?;
            return Ok(decoded);
        }
        let mut decoded = 0_u64;
        for (turn, origins) in origins.chunks(width).enumerate() {
            let first = turn * width;
            let projection = self.projection.part(first..first + origins.len());
            sink.begin_columns(first)?;
            let part = GroupDecoder { projection: &projection, ..*self };
            decoded =
                decoded.saturating_add(part.decode_together(rows, origins, part.leaves(origins)?, bytes, sink)?);
        }
        Ok(decoded)
    }
}

/// Chunks of some columns, until those of the others have come.
struct Whole<'a> {
    decoder: &'a GroupDecoder<'a>,
    width: usize,
    chunk_rows: usize,
    /// The chunks of each turn.
    turns: Vec<Vec<RecordBatch>>,
    footprint: Footprint,
    bytes: u64,
}

impl Whole<'_> {
    /// Gives whole rows to the sink, chunk by chunk.
    fn hand_over(self, sink: &mut dyn RowSink) -> Result<()> {
        let mut turns: Vec<vec::IntoIter<RecordBatch>> = self.turns.into_iter().map(Vec::into_iter).collect();
        loop {
            let parts: Vec<RecordBatch> = turns.iter_mut().filter_map(Iterator::next).collect();
            let Some(rows) = parts.first().map(RecordBatch::num_rows) else { return Ok(()) };
            if parts.len() < turns.len() || parts.iter().any(|part| part.num_rows() != rows) {
                return Err(internal("columns of one row group have chunks of different lengths"));
            }
            let columns: Vec<ArrayRef> = parts.iter().flat_map(|part| part.columns().iter().cloned()).collect();
            drop(parts);
            sink.take(self.decoder.batch(columns, rows)?)?;
        }
    }
}

impl RowSink for Whole<'_> {
    fn chunk_rows(&self) -> usize {
        self.chunk_rows
    }

    fn columns_at_once(&self) -> Option<usize> {
        Some(self.width)
    }

    fn begin_columns(&mut self, _: usize) -> Result<()> {
        self.turns.push(Vec::new());
        Ok(())
    }

    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        self.bytes = self.bytes.saturating_add(self.footprint.add(&chunk));
        self.decoder.within_limit(self.bytes)?;
        self.turns.last_mut().ok_or_else(|| internal("a chunk of no columns"))?.push(chunk);
        Ok(())
    }
}
