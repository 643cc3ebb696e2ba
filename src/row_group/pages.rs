//! The bytes of pages that were fetched, decoded batch by batch.

use std::ops::Range;

use arrow::array::{ArrayRef, RecordBatch};
use bytes::Bytes;
use parquet::DecodeResult;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, RowSelection};
use parquet::arrow::push_decoder::{ParquetPushDecoder, ParquetPushDecoderBuilder};

use super::lists::{Lists, Shape};
use super::{caught, caught_panic};
use crate::{Error, ErrorKind, Result};

/// The bytes of the pages to decode, and how to decode them.
pub(super) struct Pages {
    pub(super) reader: ArrowReaderMetadata,
    /// The row group's place in `reader`'s metadata.
    pub(super) group: usize,
    pub(super) selection: Option<RowSelection>,
    pub(super) batch_rows: usize,
    pub(super) ranges: Vec<Range<u64>>,
    pub(super) bytes: Vec<Bytes>,
}

impl Pages {
    pub(super) fn decoder(&self, leaves: &[usize]) -> Result<ParquetPushDecoder> {
        let mask = ProjectionMask::leaves(self.reader.parquet_schema(), leaves.iter().copied());
        caught("the row group", || {
            let builder = ParquetPushDecoderBuilder::new_with_metadata(self.reader.clone())
                .with_row_groups(vec![self.group])
                .with_projection(mask)
                .with_batch_size(self.batch_rows);
            match &self.selection {
                Some(selection) => builder.with_row_selection(selection.clone()).build(),
                None => builder.build(),
            }
        })
    }

    /// Hands over the columns of the fields `roots`, which `leaves` belong to, batch by batch, with the number of rows.
    pub(super) fn each_batch(
        &self,
        leaves: &[usize],
        roots: &[usize],
        count: usize,
        mut take: impl FnMut(&[ArrayRef], usize) -> Result<()>,
    ) -> Result<()> {
        let mut lists = self.lists(leaves, roots)?;
        let rest: Vec<usize> =
            leaves.iter().copied().filter(|leaf| lists.iter().all(|(_, own, _)| own != leaf)).collect();
        if lists.is_empty() {
            return self.each_decoded(&rest, |batch| take(batch.columns(), batch.num_rows()));
        }
        let mut with_lists = |decoded: &[ArrayRef], rows: usize| {
            let mut columns = decoded.to_vec();
            for (place, _, lists) in &mut lists {
                columns.insert(*place, caught_panic(|| lists.next(rows))?);
            }
            take(&columns, rows)
        };
        if rest.is_empty() {
            for start in (0..count).step_by(self.batch_rows) {
                with_lists(&[], self.batch_rows.min(count - start))?;
            }
        } else {
            self.each_decoded(&rest, |batch| with_lists(batch.columns(), batch.num_rows()))?;
        }
        lists.iter_mut().try_for_each(|(_, _, lists)| lists.end())
    }

    /// The columns that [`Lists`] decodes, each with its place in `roots` and its leaf, in rising order. A selection
    /// leaves all to the decoder, which can skip.
    fn lists(&self, leaves: &[usize], roots: &[usize]) -> Result<Vec<(usize, usize, Lists)>> {
        let mut found = Vec::new();
        let group = self.reader.metadata().row_groups().get(self.group);
        let Some(group) = group.filter(|_| self.selection.is_none()) else { return Ok(found) };
        for (place, &root) in roots.iter().enumerate() {
            let Some(field) = self.reader.schema().fields().get(root) else { continue };
            let own = |leaf: &&usize| self.reader.parquet_schema().get_column_root_idx(**leaf) == root;
            let Some(&leaf) = leaves.iter().find(own) else { continue };
            let Some(shape) = Shape::of(self.reader.parquet_schema(), root, leaf, field.data_type()) else { continue };
            let column = group.column(leaf);
            let (start, length) = column.byte_range();
            let at = self.ranges.iter().position(|range| *range == (start..start + length));
            let Some(bytes) = at.and_then(|at| self.bytes.get(at)) else { continue };
            found.push((place, leaf, Lists::new(shape, field.name(), column, start, bytes.clone())?));
        }
        Ok(found)
    }

    pub(super) fn each_decoded(&self, leaves: &[usize], mut take: impl FnMut(RecordBatch) -> Result<()>) -> Result<()> {
        let mut decoder = self.decoder(leaves)?;
        let mut fed = false;
        loop {
            match caught("the row group", || decoder.try_decode())? {
                DecodeResult::Data(batch) => take(batch)?,
                DecodeResult::Finished => return Ok(()),
                DecodeResult::NeedsData(_) if fed => {
                    return Err(Error::new(ErrorKind::Internal, "the decoder asks for bytes it has not announced"));
                }
                DecodeResult::NeedsData(_) => {
                    fed = true;
                    caught("the row group", || decoder.push_ranges(self.ranges.clone(), self.bytes.clone()))?;
                }
            }
        }
    }
}
