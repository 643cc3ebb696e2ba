//! From decoded columns of the file to chunks of what is served.

use std::borrow::Cow;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::FieldRef;

use super::alone::ColumnReadAlone;
use super::{GroupDecoder, WantedRows};
use crate::columns::ColumnOrigin;
use crate::masked::masked;
use crate::pages::Pages;
use crate::{FileBytes, adapt, caught_panic};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_rows::{Chunks, Footprint, compact_sparse, record_batch};

/// What an output column is made of.
pub(super) enum OutputColumn<'a> {
    Constant(Option<&'a str>),
    Null,
    /// A decoded column of the file, by its place among them.
    Decoded(usize),
}

impl GroupDecoder<'_> {
    /// Decodes what was fetched, batch by batch, and stops when a chunk becomes too much.
    pub(crate) fn decode_pages(
        &self,
        pages: &Pages,
        wanted: &WantedRows<'_>,
        bytes_of_file: &dyn FileBytes,
        each: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let WantedRows { leaves, origins, alone, selected, chunk_rows } = *wanted;
        let count = selected.map_or(pages.rows, <[u32]>::len);
        let roots = self.roots(leaves);
        let sources = self.sources(origins, &roots, alone);
        let mut footprint = Footprint::default();
        let mut bytes = 0_u64;
        // What is due of a row group need not be copied to chunks of one length.
        let is_due = selected.is_some() && pages.selection.is_none();
        let mut chunks = Chunks::of(chunk_rows);
        let mut seen = 0;
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
                return each(part);
            }
            chunks.push(part);
            while let Some(chunk) = caught_panic(|| chunks.next_chunk())? {
                footprint = Footprint::default();
                bytes = chunks.waiting().map(|part| footprint.add(part)).fold(0, u64::saturating_add);
                each(chunk)?;
            }
            Ok(())
        })?;
        if seen != count {
            let message = format!("holds {seen} rows where {count} were expected");
            return Err(Error::new(ErrorKind::InvalidParquet, message));
        }
        caught_panic(|| chunks.last())?.map_or(Ok(()), each)
    }

    /// Finds out which column an error comes from by decoding each alone.
    pub(super) fn blame(&self, pages: &Pages, leaves: &[usize], error: Error) -> Error {
        if error.column().is_some()
            || !matches!(error.kind(), ErrorKind::InvalidParquet | ErrorKind::UnsupportedParquet)
        {
            return error;
        }
        for root in self.roots(leaves) {
            let range = self.file.leaves(root);
            let at = |leaf: usize| leaves.partition_point(|known| *known < leaf);
            let own = leaves.get(at(range.start)..at(range.end)).unwrap_or_default();
            if pages.each_decoded(own, |_| Ok(())).is_err() {
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
    /// read alone.
    pub(super) fn sources<'a>(
        &self,
        origins: &[ColumnOrigin<'a>],
        roots: &[usize],
        alone: &[ColumnReadAlone<'_>],
    ) -> Vec<OutputColumn<'a>> {
        let of_root = |place: usize| {
            let alone = || Some(roots.len() + alone.iter().position(|alone| alone.root == place)?);
            roots.binary_search(&place).ok().or_else(alone)
        };
        let made = |origin: &ColumnOrigin<'a>| match *origin {
            ColumnOrigin::Partition(value) => OutputColumn::Constant(value),
            // Of a group without columns, or of no rows at all, there is nothing to decode.
            ColumnOrigin::File(place) => of_root(place).map_or(OutputColumn::Null, OutputColumn::Decoded),
            ColumnOrigin::Missing => OutputColumn::Null,
        };
        origins.iter().map(made).collect()
    }

    /// The output columns, from the decoded columns of the file.
    pub(super) fn columns(
        &self,
        sources: &[OutputColumn<'_>],
        decoded: &[ArrayRef],
        rows: usize,
    ) -> Result<Vec<ArrayRef>> {
        let limit = self.max_decoded_bytes;
        let column = |(made, field): (&OutputColumn<'_>, &FieldRef)| {
            let array = match *made {
                OutputColumn::Constant(value) => adapt::constant(value, field, rows, limit)?,
                OutputColumn::Null => adapt::nulls(field.data_type(), rows, field.name(), limit)?,
                OutputColumn::Decoded(place) => {
                    let array =
                        decoded.get(place).ok_or_else(|| Error::new(ErrorKind::Internal, "a column is lost"))?;
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
            .map_err(|error| Error::new(ErrorKind::Internal, error.to_string()).with_source(error))
    }
}
