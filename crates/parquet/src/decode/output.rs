//! From decoded columns of the file to chunks of what is served.

use std::borrow::Cow;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::FieldRef;

use super::alone::ColumnReadAlone;
use super::{GroupDecoder, WantedRows};
use crate::columns::ColumnOrigin;
use crate::errors::{caught_panic, internal, invalid};
use crate::masked::masked;
use crate::pages::Pages;
use crate::{FileBytes, RowSink, adapt};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_rows::{Chunks, Footprint, compact_sparse, record_batch};

impl GroupDecoder<'_> {
    /// Makes `count` rows of what needs no pages. Returns how many bytes they took.
    pub(super) fn decode_without_pages(
        &self,
        wanted: &WantedRows<'_>,
        count: usize,
        bytes: &dyn FileBytes,
        sink: &mut dyn RowSink,
    ) -> Result<u64> {
        let WantedRows { origins, alone, selected, chunk_rows, .. } = *wanted;
        let sources = self.sources(origins, &[], alone);
        let mut decoded = 0;
        let mut at = 0;
        loop {
            let rows = chunk_rows.min(count - at);
            let here = selected.and_then(|selected| selected.get(at..at + rows)).unwrap_or_default();
            let columns = self.with_alone(&[], alone, here, bytes)?;
            give(self.batch(self.columns(&sources, &columns, rows)?, rows)?, sink, &mut decoded)?;
            at += rows;
            if at == count {
                return Ok(decoded);
            }
        }
    }

    /// Decodes what was fetched, batch by batch, and stops when a chunk becomes too much. Returns how many bytes the
    /// rows took.
    pub(crate) fn decode_pages(
        &self,
        pages: &Pages,
        wanted: &WantedRows<'_>,
        bytes_of_file: &dyn FileBytes,
        sink: &mut dyn RowSink,
    ) -> Result<u64> {
        let WantedRows { leaves, origins, alone, selected, chunk_rows } = *wanted;
        let count = selected.map_or(pages.of.rows, <[u32]>::len);
        let roots = self.roots(leaves);
        let sources = self.sources(origins, &roots, alone);
        let mut footprint = Footprint::default();
        let mut bytes = 0_u64;
        // What is due of a row group need not be copied to chunks of one length.
        let is_due = selected.is_some() && pages.selection.is_none();
        let mut chunks = Chunks::of(chunk_rows);
        let mut seen = 0;
        let mut decoded = 0;
        // The decoder makes short batches where values are large.
        pages.each_batch(leaves, &roots, selected, count, |batch, rows| {
            let first = seen;
            seen += rows;
            let here = selected.and_then(|selected| selected.get(first..seen)).unwrap_or_default();
            let batch = match alone {
                [] => Cow::from(batch),
                alone => Cow::from(self.with_alone(batch, alone, here, bytes_of_file)?),
            };
            let part = caught_panic(|| {
                let mut columns = self.columns(&sources, &batch, rows)?;
                if pages.selection.is_some() {
                    columns.iter_mut().for_each(compact_sparse);
                }
                let added = columns.iter().map(|column| footprint.add_array(column.as_ref()));
                bytes = added.fold(bytes, u64::saturating_add);
                self.within_limit(bytes)?;
                self.batch(columns, rows)
            })?;
            if is_due {
                (footprint, bytes) = (Footprint::default(), 0);
                return give(part, sink, &mut decoded);
            }
            chunks.push(part);
            while let Some(chunk) = caught_panic(|| chunks.next_chunk())? {
                footprint = Footprint::default();
                bytes = chunks.waiting().map(|part| footprint.add(part)).fold(0, u64::saturating_add);
                give(chunk, sink, &mut decoded)?;
            }
            Ok(())
        })?;
        if seen != count {
            return Err(invalid(format!("holds {seen} rows where {count} were expected")));
        }
        if let Some(chunk) = caught_panic(|| chunks.last())? {
            give(chunk, sink, &mut decoded)?;
        }
        sink.pages_took(pages.staged);
        Ok(decoded)
    }

    /// Finds out which column an error comes from by decoding each alone.
    pub(super) fn blame(&self, pages: &Pages, leaves: &[usize], error: Error) -> Error {
        if error.column().is_some()
            || !matches!(error.kind(), ErrorKind::InvalidParquet | ErrorKind::UnsupportedParquet)
        {
            return error;
        }
        for root in self.roots(leaves) {
            if pages.each_decoded(pages.leaves_of(root, leaves), |_| Ok(())).is_err() {
                return error.with_column(self.file.arrow_schema().field(root).name());
            }
        }
        error
    }

    /// The fields of the file that have some of the leaves.
    pub(crate) fn roots(&self, leaves: &[usize]) -> Vec<usize> {
        let mut roots: Vec<usize> = leaves.iter().filter_map(|leaf| self.file.field_of(*leaf)).collect();
        roots.dedup();
        roots
    }

    /// What the output columns are made of, where the file's fields `roots` are decoded, and behind them those that are
    /// read alone: each [`ColumnOrigin::File`] is then by its place among these.
    fn sources<'a>(
        &self,
        origins: &[ColumnOrigin<'a>],
        roots: &[usize],
        alone: &[ColumnReadAlone<'_>],
    ) -> Vec<ColumnOrigin<'a>> {
        let made = |origin: &ColumnOrigin<'a>| match *origin {
            ColumnOrigin::File(root) => {
                let alone = || Some(roots.len() + alone.iter().position(|alone| alone.root == root)?);
                // Of a group without columns, or of no rows at all, there is nothing to decode.
                roots.binary_search(&root).ok().or_else(alone).map_or(ColumnOrigin::Missing, ColumnOrigin::File)
            }
            other => other,
        };
        origins.iter().map(made).collect()
    }

    /// The output columns, from the decoded columns of the file.
    fn columns(&self, sources: &[ColumnOrigin<'_>], decoded: &[ArrayRef], rows: usize) -> Result<Vec<ArrayRef>> {
        let limit = self.max_decoded_bytes;
        let column = |(source, field): (&ColumnOrigin<'_>, &FieldRef)| {
            let array = match *source {
                ColumnOrigin::Partition(value) => adapt::constant(value, field, rows, limit)?,
                ColumnOrigin::Missing => adapt::nulls(field.data_type(), rows, field.name(), limit)?,
                ColumnOrigin::File(place) => {
                    let array = decoded.get(place).ok_or_else(|| internal("a column is lost"))?;
                    adapt::adapt(&masked(array, field.name())?, field.data_type(), field.name(), limit)?
                }
            };
            adapt::check_nulls(&array, field)?;
            Ok(array)
        };
        sources.iter().zip(self.projection.internal().fields()).map(column).collect()
    }

    pub(super) fn batch(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        record_batch(self.projection.internal(), columns, rows)
            .map_err(|error| internal(error.to_string()).with_source(error))
    }
}

/// Hands a chunk to the sink, and counts its bytes.
fn give(chunk: RecordBatch, sink: &mut dyn RowSink, decoded: &mut u64) -> Result<()> {
    *decoded = decoded.saturating_add(chunk.get_array_memory_size() as u64);
    sink.take(chunk)
}
