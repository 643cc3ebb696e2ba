//! Wide row groups, of which some columns are decoded before the others.
//!
//! While a column is decoded its compressed bytes are in memory, a page of it, and what decodes it, which the parquet
//! crate makes of some kilobytes. Of thousands of columns that is more than what they become.

use std::vec;

use arrow::array::{ArrayRef, RecordBatch};

use super::{GroupDecoder, RowsToDecode};
use crate::columns::{ColumnOrigin, leaves_from, origins};
use crate::{FileBytes, RowSink};
use rowdex_base::error::{Error, ErrorKind, Result};
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
    pub(super) fn run(&self, rows: RowsToDecode<'_>, bytes: &dyn FileBytes, sink: &mut dyn RowSink) -> Result<u64> {
        let origins = origins(self.file, self.projection, self.partitions);
        if !self.may_come_apart(rows, &origins, bytes) {
            return self.run_columns(rows, &origins, bytes, sink);
        }
        match sink.columns_at_once() {
            Some(width) if (1..origins.len()).contains(&width) => self.run_apart(width, rows, &origins, bytes, sink),
            None if self.is_wide(rows, &origins, sink.chunk_rows()) => {
                let mut whole = Whole::new(self, sink.chunk_rows());
                let decoded = self.run_apart(WIDTH, rows, &origins, bytes, &mut whole)?;
                whole.hand_over(sink)?;
                Ok(decoded)
            }
            _ => self.run_columns(rows, &origins, bytes, sink),
        }
    }

    /// Whether columns may be decoded one after the other. Where reads take long there is one for all.
    fn may_come_apart(&self, rows: RowsToDecode<'_>, origins: &[ColumnOrigin<'_>], bytes: &dyn FileBytes) -> bool {
        let is_whole = !matches!(rows, RowsToDecode::Due(_));
        is_whole && bytes.is_near() && self.declared(origins).is_some_and(|bytes| self.within_limit(bytes).is_ok())
    }

    /// Bytes of the pages of these columns, by the footer.
    fn declared(&self, origins: &[ColumnOrigin<'_>]) -> Option<u64> {
        let group = self.file.group(self.row_group)?;
        let leaves = leaves_from(self.file, self.projection, origins);
        let declared = leaves.iter().map(|leaf| group.column(*leaf).uncompressed_size().unsigned_abs());
        Some(declared.fold(0, u64::saturating_add))
    }

    /// Whether less memory is needed where whole rows are put together of columns that were decoded apart.
    fn is_wide(&self, rows: RowsToDecode<'_>, origins: &[ColumnOrigin<'_>], chunk_rows: usize) -> bool {
        let count = match rows {
            RowsToDecode::All => self.file.row_group_rows(self.row_group) as usize,
            RowsToDecode::Selected(rows) | RowsToDecode::Due(rows) => rows.len(),
        };
        let short = SHORT.saturating_mul(origins.len() as u64);
        origins.len() > MANY
            && count.div_ceil(chunk_rows.max(1)) <= MOST_CHUNKS
            && self.declared(origins).is_some_and(|bytes| bytes <= short)
    }

    /// Decodes so many columns before the next ones.
    fn run_apart(
        &self,
        width: usize,
        rows: RowsToDecode<'_>,
        origins: &[ColumnOrigin<'_>],
        bytes: &dyn FileBytes,
        sink: &mut dyn RowSink,
    ) -> Result<u64> {
        let mut decoded = 0_u64;
        for (turn, origins) in origins.chunks(width).enumerate() {
            let first = turn * width;
            let projection = self.projection.part(first..first + origins.len());
            sink.begin_columns(first)?;
            let part = GroupDecoder { projection: &projection, ..*self };
            decoded = decoded.saturating_add(part.run_columns(rows, origins, bytes, sink)?);
        }
        Ok(decoded)
    }
}

/// Chunks of some columns, until those of the others have come.
struct Whole<'a> {
    decoder: &'a GroupDecoder<'a>,
    chunk_rows: usize,
    /// The chunks of each turn.
    turns: Vec<Vec<RecordBatch>>,
    footprint: Footprint,
    bytes: u64,
}

impl<'a> Whole<'a> {
    fn new(decoder: &'a GroupDecoder<'a>, chunk_rows: usize) -> Self {
        Self { decoder, chunk_rows, turns: Vec::new(), footprint: Footprint::default(), bytes: 0 }
    }

    /// Gives whole rows to the sink, chunk by chunk.
    fn hand_over(self, sink: &mut dyn RowSink) -> Result<()> {
        let mut turns: Vec<vec::IntoIter<RecordBatch>> = self.turns.into_iter().map(Vec::into_iter).collect();
        loop {
            let parts: Vec<RecordBatch> = turns.iter_mut().filter_map(Iterator::next).collect();
            let Some(rows) = parts.first().map(RecordBatch::num_rows) else { return Ok(()) };
            if parts.len() < turns.len() || parts.iter().any(|part| part.num_rows() != rows) {
                return Err(Error::new(
                    ErrorKind::Internal,
                    "columns of one row group have chunks of different lengths",
                ));
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

    fn begin_columns(&mut self, _: usize) -> Result<()> {
        self.turns.push(Vec::new());
        Ok(())
    }

    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        self.bytes = self.bytes.saturating_add(self.footprint.add(&chunk));
        self.decoder.within_limit(self.bytes)?;
        match self.turns.last_mut() {
            Some(turn) => turn.push(chunk),
            None => self.turns.push(vec![chunk]),
        }
        Ok(())
    }
}
