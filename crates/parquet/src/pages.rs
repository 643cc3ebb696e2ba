//! The bytes of pages that were fetched, decoded batch by batch.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::FieldRef;
use bytes::Bytes;
use parquet::DecodeResult;
use parquet::arrow::arrow_reader::RowSelection;
use parquet::arrow::push_decoder::{ParquetPushDecoder, ParquetPushDecoderBuilder};
use parquet::file::page_index::offset_index::{OffsetIndexMetaData, PageLocation};
use parquet::schema::types::SchemaDescriptor;

use super::FileMetadata;
use super::chunks::RowGroup;
use super::direct::{ColumnShape, DirectColumn, GroupBytes};
use super::footer::PagePositions;
use super::guard::FilePage;
use super::{caught, caught_panic};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::once::Once;
use rowdex_rows::take_rows;

/// The bytes of the pages to decode, and how to decode them.
pub(super) struct Pages<'a> {
    pub(super) file: &'a FileMetadata,
    /// The columns that are decoded as views.
    pub(super) views: Vec<usize>,
    pub(super) row_group: usize,
    pub(super) group: RowGroup<'a>,
    /// Row groups whose rows follow, of columns without lists that are decoded here.
    pub(super) more: Vec<RowGroup<'a>>,
    /// The positions of the row group's pages, if they are made use of.
    pub(super) paged: Option<PagePositions>,
    /// Rows of all of them.
    pub(super) rows: usize,
    pub(super) selection: Option<RowSelection>,
    pub(super) batch_rows: usize,
    pub(super) ranges: Vec<Range<u64>>,
    pub(super) bytes: Vec<Bytes>,
    /// Columns with encodings that only the parquet crate decodes, sorted.
    pub(super) rare: Vec<usize>,
    /// The pages of the other columns, by the column's number.
    pub(super) found: Vec<(usize, Arc<[FilePage]>)>,
    /// The levels of a page may not take more bytes than this.
    pub(super) limit: u64,
}

/// Rows to pass by and rows to keep, in turn.
struct Selecting<'a> {
    selected: Option<&'a [u32]>,
    /// The first row behind those that were kept.
    next: u32,
    /// Selected rows that were kept.
    passed: usize,
    found: Vec<(usize, usize)>,
}

/// Which of the rows that come in batches are due.
struct Due<'a> {
    left: &'a [u32],
    /// Rows of the batches so far.
    seen: u32,
    slots: Vec<u32>,
}

impl<'a> Due<'a> {
    fn of(rows: &'a [u32]) -> Self {
        Self { left: rows, seen: 0, slots: Vec::new() }
    }

    /// The places of those that are due in the next batch, which has so many rows.
    fn next(&mut self, rows: usize) -> &[u32] {
        let start = self.seen;
        let end = u64::from(self.seen) + rows as u64;
        let (here, left) = self.left.split_at(self.left.partition_point(|row| u64::from(*row) < end));
        (self.left, self.seen) = (left, end as u32);
        self.slots.clear();
        self.slots.extend(here.iter().map(|row| row - start));
        &self.slots
    }
}

impl Selecting<'_> {
    /// The runs that the next rows lie in.
    fn of(&mut self, rows: usize) -> Result<&[(usize, usize)]> {
        self.found.clear();
        let Some(selected) = self.selected else {
            self.found.push((0, rows));
            return Ok(&self.found);
        };
        let more = || Error::new(ErrorKind::Internal, "the decoder has more rows than were selected");
        let here = selected.get(self.passed..self.passed + rows).ok_or_else(more)?;
        for run in here.chunk_by(|a, b| a + 1 == *b) {
            self.found.push(((run[0] - self.next) as usize, run.len()));
            self.next = run[0] + run.len() as u32;
        }
        self.passed += rows;
        Ok(&self.found)
    }
}

#[cfg(test)]
thread_local! {
    /// Whether this thread leaves all columns to the parquet crate, for tests that compare both.
    pub(super) static LEFT_TO_PARQUET: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

impl Pages<'_> {
    /// Whether no column is decoded here, for tests that compare both ways: `ROWDEX_DECODE=parquet` says so.
    pub(super) fn is_left_to_parquet() -> bool {
        static LEFT: Once<bool> = Once::new();
        #[cfg(test)]
        if LEFT_TO_PARQUET.get() {
            return true;
        }
        *LEFT.get_or_init(|| std::env::var_os("ROWDEX_DECODE").is_some_and(|value| value == "parquet"))
    }

    pub(super) fn schema(&self) -> &SchemaDescriptor {
        self.file.metadata().file_metadata().schema_descr()
    }

    /// How a field of the file is decoded here, of which these columns are wanted; `None` if that is left to the
    /// parquet crate.
    fn shape(&self, root: usize, leaves: &[usize]) -> Option<(FieldRef, ColumnShape)> {
        let field = self.file.field(root, &self.views).filter(|_| !Self::is_left_to_parquet())?;
        let own = leaves_of_root(self.schema(), leaves, root);
        let shape = ColumnShape::of(self.schema(), root, own, &field)?;
        Some((field, shape))
    }

    /// Whether all of these columns go on from a row group to the next one.
    pub(super) fn go_on(&self, leaves: &[usize], roots: &[usize]) -> bool {
        roots.iter().all(|root| self.shape(*root, leaves).is_some_and(|(_, shape)| shape.goes_on()))
    }

    /// How many rows begin in the page of a column at a place in the file, if that was read.
    pub(super) fn rows_at(&self, leaf: usize, at: u64) -> Option<usize> {
        let pages = self.located()?.get(leaf)?.page_locations();
        let place = pages.binary_search_by_key(&at, |page| page.offset.unsigned_abs()).ok()?;
        let rows = i64::try_from(self.rows).ok()?;
        let end = pages.get(place + 1).map_or(rows, |next| next.first_row_index);
        usize::try_from(end.checked_sub(pages.get(place)?.first_row_index)?).ok()
    }

    /// Whether the field that a column belongs to is of a type that is decoded here.
    pub(super) fn decodes_leaf(&self, leaf: usize, leaves: &[usize]) -> bool {
        self.shape(self.schema().get_column_root_idx(leaf), leaves).is_some()
    }

    /// Whether a column is a root field of its own, of a type that is decoded here.
    pub(super) fn decodes_root(&self, leaf: usize) -> bool {
        let root = self.schema().get_column_root_idx(leaf);
        let node = self.schema().root_schema().get_fields().get(root);
        node.is_some_and(|node| node.is_primitive()) && self.shape(root, &[leaf]).is_some()
    }

    /// Where the wanted rows of these columns are in the file.
    pub(super) fn needed(&self, leaves: &[usize]) -> Result<Vec<Range<u64>>> {
        let mut decoder = self.decoder(leaves)?;
        match caught("the row group", || decoder.try_decode())? {
            DecodeResult::NeedsData(ranges) => Ok(ranges),
            _ => Ok(Vec::new()),
        }
    }

    fn decoder(&self, leaves: &[usize]) -> Result<ParquetPushDecoder> {
        let (reader, mask) = self.file.group_reader(self.row_group, self.paged.as_ref(), leaves, &self.views)?;
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

    /// Hands over the columns of the fields `roots`, which `leaves` belong to, batch by batch, with the number of rows.
    /// There are `count` rows, and `selected` has their places if they are not all.
    pub(super) fn each_batch(
        &self,
        leaves: &[usize],
        roots: &[usize],
        selected: Option<&[u32]>,
        count: usize,
        mut take: impl FnMut(&[ArrayRef], usize) -> Result<()>,
    ) -> Result<()> {
        let (direct, rest) = self.direct(leaves, roots)?;
        // Of what is read as a whole, the crate decodes all rows: passing by many of them takes it longer.
        let mut due = selected.filter(|_| self.selection.is_none() && !rest.is_empty()).map(Due::of);
        let mut is_direct: Vec<bool> = direct.iter().map(Option::is_some).collect();
        is_direct.resize(roots.len(), false);
        let mut direct: Vec<DirectColumn> = direct.into_iter().flatten().collect();
        if direct.is_empty() && due.is_none() {
            return self.each_decoded(&rest, |batch| take(batch.columns(), batch.num_rows()));
        }
        let mut runs = Selecting { selected, next: 0, passed: 0, found: Vec::new() };
        let mut made_of = |rows: usize| {
            let runs = runs.of(rows)?;
            direct.iter_mut().map(|column| caught_panic(|| column.next(runs))).collect::<Result<Vec<ArrayRef>>>()
        };
        let mut with_direct = |decoded: &[ArrayRef], mut rows: usize| {
            let mut picked = Vec::new();
            if let Some(due) = &mut due {
                let slots = due.next(rows);
                rows = slots.len();
                if slots.is_empty() {
                    return Ok(());
                }
                picked = decoded.iter().map(|array| take_rows(array.as_ref(), slots)).collect::<Result<_>>()?;
            }
            let decoded = if picked.is_empty() { decoded } else { &picked };
            let mut made = made_of(rows)?.into_iter();
            let mut decoded = decoded.iter().cloned();
            let next = |is_direct: &bool| if *is_direct { made.next() } else { decoded.next() };
            take(&is_direct.iter().filter_map(next).collect::<Vec<_>>(), rows)
        };
        if rest.is_empty() {
            (0..count)
                .step_by(self.batch_rows)
                .try_for_each(|start| with_direct(&[], self.batch_rows.min(count - start)))?;
        } else {
            self.each_decoded(&rest, |batch| with_direct(batch.columns(), batch.num_rows()))?;
        }
        self.end(direct, selected.is_some(), due.map(|due| due.seen))
    }

    /// Makes sure that nothing is left in columns of which all wanted rows were decoded, and that the parquet crate has
    /// `seen` as many rows as there are.
    fn end(&self, mut columns: Vec<DirectColumn>, selective: bool, seen: Option<u32>) -> Result<()> {
        if let Some(seen) = seen {
            // Rows behind the last one that is due, or too few of them, show that others may have moved.
            if i64::from(seen) != self.group.num_rows() {
                let message = "the row group cannot be decoded: its pages do not hold as many rows as the footer says";
                return Err(Error::new(ErrorKind::InvalidParquet, message));
            }
        }
        if self.selection.is_some() && self.located().is_some() {
            return Ok(());
        }
        if selective || self.selection.is_some() {
            // What is behind the last row that is due may show that what was before is damaged.
            columns.iter_mut().try_for_each(|column| caught_panic(|| column.skip_rest()))?;
        }
        columns.iter_mut().try_for_each(|column| caught_panic(|| column.end()))
    }

    /// For each of the fields, the column if it is decoded straight from its pages; and the leaves of the others.
    fn direct(&self, leaves: &[usize], roots: &[usize]) -> Result<(Vec<Option<DirectColumn>>, Vec<usize>)> {
        let index = self.located();
        let locations = |leaf: usize| -> Vec<PageLocation> {
            index.and_then(|columns| columns.get(leaf)).map_or_else(Vec::new, |column| column.page_locations().clone())
        };
        let bytes = GroupBytes {
            group: self.group,
            more: &self.more,
            rows: self.rows,
            locations: index.is_some().then_some(&locations as &dyn Fn(usize) -> Vec<PageLocation>),
            pages: &self.found,
            unpacker: Rc::default(),
            all_rows: self.selection.is_none(),
            limit: self.limit,
        };
        let schema = self.schema();
        let mut found = Vec::with_capacity(roots.len());
        let mut rest = Vec::new();
        for &root in roots {
            let own = leaves_of_root(schema, leaves, root);
            let is_rare = own.iter().any(|leaf| self.rare.binary_search(leaf).is_ok());
            match self.shape(root, leaves).filter(|_| !is_rare) {
                Some((field, shape)) => found.push(Some(DirectColumn::new(shape, field.name(), &bytes)?)),
                None => {
                    found.push(None);
                    rest.extend_from_slice(own);
                }
            }
        }
        if found.iter().all(Option::is_none) {
            found.clear();
        }
        Ok((found, rest))
    }

    /// Where the pages of the row group are, if that was read.
    fn located(&self) -> Option<&[OffsetIndexMetaData]> {
        self.paged.as_deref()
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

/// Those of the leaves, which are sorted, that belong to a root field.
fn leaves_of_root<'a>(schema: &SchemaDescriptor, leaves: &'a [usize], root: usize) -> &'a [usize] {
    let start = leaves.partition_point(|leaf| schema.get_column_root_idx(*leaf) < root);
    let own = leaves.get(start..).unwrap_or_default();
    &own[..own.partition_point(|leaf| schema.get_column_root_idx(*leaf) == root)]
}
