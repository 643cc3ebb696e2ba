//! The bytes of pages that were fetched, decoded batch by batch.

use std::ops::Range;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::FieldRef;
use bytes::Bytes;
use parquet::DecodeResult;
use parquet::arrow::arrow_reader::RowSelection;
use parquet::arrow::push_decoder::{ParquetPushDecoder, ParquetPushDecoderBuilder};

use super::FileMetadata;
use super::direct::{DirectColumn, GroupBytes, Tree};
use super::errors::{caught, caught_panic, internal, invalid};
use rowdex_base::error::Result;
use rowdex_base::once::Once;
use rowdex_rows::take_rows;

/// The bytes of the pages to decode, and how to decode them.
pub(super) struct Pages<'a> {
    pub(super) file: &'a FileMetadata,
    /// The columns of the file, sorted.
    pub(super) leaves: &'a [usize],
    /// The columns that are decoded as views.
    pub(super) views: Vec<usize>,
    /// What is needed where columns are decoded here.
    pub(super) of: GroupBytes<'a>,
    pub(super) selection: Option<RowSelection>,
    pub(super) batch_rows: usize,
    pub(super) ranges: Vec<Range<u64>>,
    pub(super) bytes: Vec<Bytes>,
    /// Columns with types or encodings that only the parquet crate decodes, sorted.
    pub(super) rare: Vec<usize>,
    /// Bytes that are in memory at once while they are decoded: what was read, and a page of each column.
    pub(super) staged: u64,
}

/// Which of the rows that come are selected.
struct Selecting<'a> {
    selected: Option<&'a [u32]>,
    /// Selected rows that were kept, and the first row behind those.
    passed: usize,
    next: u32,
    /// Rows of the batches so far, where all of a row group come in batches.
    seen: u32,
}

impl Selecting<'_> {
    /// The places of those that are selected in the next batch, which has so many rows.
    fn in_batch(&mut self, rows: usize) -> Vec<u32> {
        let start = self.seen;
        self.seen = self.seen.saturating_add(rows as u32);
        let left = self.selected.and_then(|selected| selected.get(self.passed..)).unwrap_or_default();
        left.iter().take_while(|row| **row < self.seen).map(|row| row - start).collect()
    }

    /// The runs that the next selected rows lie in: rows to pass by, and rows to keep.
    fn runs(&mut self, rows: usize) -> Result<Vec<(usize, usize)>> {
        let Some(selected) = self.selected else { return Ok(vec![(0, rows)]) };
        let here = selected.get(self.passed..self.passed + rows);
        let here = here.ok_or_else(|| internal("the decoder has more rows than were selected"))?;
        self.passed += rows;
        let run = |run: &[u32]| {
            let passed = run[0] - self.next;
            self.next = run[0] + run.len() as u32;
            (passed as usize, run.len())
        };
        Ok(here.chunk_by(|a, b| a + 1 == *b).map(run).collect())
    }
}

#[cfg(test)]
thread_local! {
    /// Whether this thread leaves all columns to the parquet crate, for tests that compare both.
    pub(super) static LEFT_TO_PARQUET: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

impl Pages<'_> {
    /// Whether no column is decoded here, for tests that compare both ways: `ROWDEX_DECODE=parquet` says so.
    fn is_left_to_parquet() -> bool {
        static LEFT: Once<bool> = Once::new();
        #[cfg(test)]
        if LEFT_TO_PARQUET.get() {
            return true;
        }
        *LEFT.get_or_init(|| std::env::var_os("ROWDEX_DECODE").is_some_and(|value| value == "parquet"))
    }

    /// How a field of the file is decoded here, of which these columns are wanted; `None` if that is left to the
    /// parquet crate.
    pub(super) fn tree(&self, root: usize) -> Option<(FieldRef, Tree)> {
        let field = self.file.field(root, &self.views).filter(|_| !Self::is_left_to_parquet())?;
        let schema = self.file.metadata().file_metadata().schema_descr();
        let tree = Tree::of(schema, self.file.leaves(root), self.leaves_of(root), &field)?;
        Some((field, tree))
    }

    /// The fields of the file that have some of the leaves.
    pub(super) fn roots(&self) -> Vec<usize> {
        let mut roots: Vec<usize> = self.leaves.iter().filter_map(|leaf| self.file.field_of(*leaf)).collect();
        roots.dedup();
        roots
    }

    /// Those of the leaves that belong to a field.
    pub(super) fn leaves_of(&self, root: usize) -> &[usize] {
        let all = self.file.leaves(root);
        let at = |leaf: usize| self.leaves.partition_point(|known| *known < leaf);
        self.leaves.get(at(all.start)..at(all.end)).unwrap_or_default()
    }

    /// How many rows begin in the page of a column at a place in the file, if that was read.
    pub(super) fn rows_at(&self, leaf: usize, at: u64) -> Option<usize> {
        let pages = self.of.paged.as_ref()?.get(leaf)?.page_locations();
        let place = pages.binary_search_by_key(&at, |page| page.offset.unsigned_abs()).ok()?;
        let rows = i64::try_from(self.of.rows).ok()?;
        let end = pages.get(place + 1).map_or(rows, |next| next.first_row_index);
        usize::try_from(end.checked_sub(pages.get(place)?.first_row_index)?).ok()
    }

    /// Where the wanted rows of these columns are in the file.
    pub(super) fn needed(&self) -> Result<Vec<Range<u64>>> {
        let mut decoder = self.decoder(self.leaves)?;
        match caught("the row group", || decoder.try_decode())? {
            DecodeResult::NeedsData(ranges) => Ok(ranges),
            _ => Ok(Vec::new()),
        }
    }

    fn decoder(&self, leaves: &[usize]) -> Result<ParquetPushDecoder> {
        let (reader, mask) = self.file.group_reader(self.of.group, self.of.paged.as_ref(), leaves, &self.views)?;
        caught("the row group", || {
            let builder = ParquetPushDecoderBuilder::new_with_metadata(reader)
                .with_row_groups(vec![0])
                .with_projection(mask)
                .with_batch_size(self.batch_rows);
            match &self.selection {
                Some(selection) => builder.with_row_selection(selection.clone()).build(),
                None => builder.build(),
            }
        })
    }

    /// Hands over the columns of the fields `roots` batch by batch, with the number of rows.
    /// There are `count` rows, and `selected` has their places if they are not all.
    pub(super) fn each_batch(
        &self,
        roots: &[usize],
        selected: Option<&[u32]>,
        count: usize,
        mut take: impl FnMut(&[ArrayRef], usize) -> Result<()>,
    ) -> Result<()> {
        // For each of the fields, the column if it is decoded straight from its pages; and the leaves of the others.
        let mut direct = Vec::with_capacity(roots.len());
        let mut rest = Vec::new();
        for &root in roots {
            let own = self.leaves_of(root);
            let is_rare = own.iter().any(|leaf| self.rare.binary_search(leaf).is_ok());
            let tree = self.tree(root).filter(|_| !is_rare);
            if tree.is_none() {
                rest.extend_from_slice(own);
            }
            direct.push(tree.map(|(field, tree)| DirectColumn::new(tree, field.name(), &self.of)).transpose()?);
        }
        // Of what is read as a whole, the crate decodes all rows: passing by many of them takes it longer.
        let picks = selected.is_some() && self.selection.is_none() && !rest.is_empty();
        let mut selecting = Selecting { selected, passed: 0, next: 0, seen: 0 };
        let mut with_direct = |decoded: &[ArrayRef], mut rows: usize| {
            let mut picked = Vec::new();
            if picks {
                let slots = selecting.in_batch(rows);
                rows = slots.len();
                if slots.is_empty() {
                    return Ok(());
                }
                picked = decoded.iter().map(|array| take_rows(array.as_ref(), &slots)).collect::<Result<_>>()?;
            }
            let mut decoded = if picks { picked.iter() } else { decoded.iter() };
            let runs = selecting.runs(rows)?;
            let next = |column: &mut Option<DirectColumn>| match column {
                Some(column) => caught_panic(|| column.next(&runs)),
                None => decoded.next().cloned().ok_or_else(|| internal("the decoder has fewer columns than it should")),
            };
            take(&direct.iter_mut().map(next).collect::<Result<Vec<ArrayRef>>>()?, rows)
        };
        if rest.is_empty() {
            (0..count)
                .step_by(self.batch_rows)
                .try_for_each(|start| with_direct(&[], self.batch_rows.min(count - start)))?;
        } else {
            self.each_decoded(&rest, |batch| with_direct(batch.columns(), batch.num_rows()))?;
        }
        // Rows behind the last one that is due, or too few of them, show that others may have moved.
        if picks && selecting.seen as usize != self.of.rows {
            let message = "the row group cannot be decoded: its pages do not hold as many rows as the footer says";
            return Err(invalid(message));
        }
        // Nothing may be left in columns of which all wanted rows were decoded. What is behind the last row that is due
        // may show that what was before is damaged.
        if self.selection.is_none() || self.of.paged.is_none() {
            direct.iter_mut().flatten().try_for_each(|column| caught_panic(|| column.end(selected.is_some())))?;
        }
        Ok(())
    }

    pub(super) fn each_decoded(&self, leaves: &[usize], mut take: impl FnMut(RecordBatch) -> Result<()>) -> Result<()> {
        let mut decoder = self.decoder(leaves)?;
        let mut fed = false;
        loop {
            match caught("the row group", || decoder.try_decode())? {
                DecodeResult::Data(batch) => take(batch)?,
                DecodeResult::Finished => return Ok(()),
                DecodeResult::NeedsData(_) if fed => {
                    return Err(internal("the decoder asks for bytes it has not announced"));
                }
                DecodeResult::NeedsData(_) => {
                    fed = true;
                    caught("the row group", || decoder.push_ranges(self.ranges.clone(), self.bytes.clone()))?;
                }
            }
        }
    }
}
