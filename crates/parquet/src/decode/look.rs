//! Pages are looked at before they are decoded: what they are, and what they will take.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use bytes::Bytes;
use parquet::basic::{Compression, Type};

use super::GroupDecoder;
use crate::chunks::{ColumnChunk, RowGroup};
use crate::columns::is_view;
use crate::direct;
use crate::guard::{self, FilePage, Tally, WalkedChunk};
use crate::pages::Pages;
use crate::types::leaf_type;
use rowdex_base::error::{Error, ErrorKind, Result};

/// What was found of the pages to decode.
pub(super) struct Findings {
    pub(super) batch_rows: usize,
    pub(super) views: Vec<usize>,
    /// Columns with encodings that only the parquet crate decodes.
    pub(super) rare: Vec<usize>,
    /// The pages of the other columns.
    pub(super) pages: Vec<(usize, Arc<[FilePage]>)>,
}

/// The pages of one column.
struct WalkedColumn {
    leaf: usize,
    pages: Arc<[FilePage]>,
    tally: Tally,
    /// Whether all of them are at hand.
    is_whole: bool,
}

impl GroupDecoder<'_> {
    /// Walks the page headers before the decoder does. Of the selected rows there are `count`; with `all` every row of
    /// the pages is decoded.
    pub(super) fn look_into(
        &self,
        pages: &Pages<'_>,
        group: RowGroup<'_>,
        leaves: &[usize],
        selective: bool,
        count: usize,
        all: bool,
    ) -> Result<Findings> {
        let limit = self.max_decoded_bytes;
        let mut found = Findings { batch_rows: count, views: Vec::new(), rare: Vec::new(), pages: Vec::new() };
        let mut total = 0u64;
        let mut walked = Vec::with_capacity(leaves.len());
        let wanted_views = self.wanted_views(leaves);
        let mut in_order: Vec<(&Range<u64>, &Bytes)> = pages.ranges.iter().zip(&pages.bytes).collect();
        in_order.sort_by_key(|(range, _)| range.start);
        for &leaf in leaves {
            let column = group.column(leaf);
            let nested = column.column_descr().max_rep_level() > 0;
            let own = self.walk_chunk(&in_order, group, leaf, selective);
            let own = own.map_err(|error| error.with_column(column.column_path().string()))?;
            let tally = own.tally;
            if !direct::decodes(column, &tally) || !pages.decodes_leaf(leaf, leaves) {
                found.rare.push(leaf);
            }
            let touched = |values: u64| if selective && !nested { values.min(count as u64) } else { values };
            let entries = touched(tally.values);
            total = total.saturating_add(self.takes(leaf, column, &tally, entries, count, !selective || nested));
            if column.column_type() == Type::BYTE_ARRAY {
                // Every reference to the dictionary is spelled out unless the values are views of it. How long they
                // are cannot be seen from here, so if it could be too much, views come first and are measured, unless
                // what decodes them measures them before it copies them.
                let spelled_out = touched(tally.referring).saturating_mul(tally.dictionary);
                if wanted_views.binary_search(&leaf).is_ok()
                    || (spelled_out > limit
                        && self.file.can_explode(leaf, &tally)
                        && !(all && direct::decodes(column, &tally) && pages.decodes_root(leaf)))
                {
                    found.views.push(leaf);
                }
            }
            let batch_rows = usize::try_from(limit / tally.largest.max(1)).unwrap_or(usize::MAX);
            if selective && batch_rows < count {
                found.batch_rows = found.batch_rows.min(batch_rows);
            }
            walked.push(own);
        }
        self.within_limit(total)?;
        self.part(pages, group, walked, &mut found)?;
        Ok(found)
    }

    /// Walks the page headers of one column.
    fn walk_chunk(
        &self,
        in_order: &[(&Range<u64>, &Bytes)],
        group: RowGroup<'_>,
        leaf: usize,
        selective: bool,
    ) -> Result<WalkedColumn> {
        let column = group.column(leaf);
        let nested = column.column_descr().max_rep_level() > 0;
        let (start, length) = column.byte_range();
        let own = in_order.partition_point(|(range, _)| range.start < start);
        let own = in_order[own..].iter().take_while(|(range, _)| range.start < start + length);
        let own: Vec<_> = own.filter(|(range, _)| range.end <= start + length).collect();
        let is_whole = !selective || own.iter().any(|(range, _)| **range == (start..start + length));
        let own = own.into_iter().map(|(range, bytes)| (range.start, *bytes));
        let mut pages = Vec::new();
        let tally = walk(own, &self.chunk(column, selective && !nested), &mut pages)?;
        check_values(group, column, &tally, is_whole, selective)?;
        pages.sort_unstable_by_key(|page| page.at);
        Ok(WalkedColumn { leaf, pages: pages.into(), tally, is_whole })
    }

    /// Gives the pages of each column to what decodes it. The parquet crate takes levels and times of 96 bits as they
    /// are, so those of its columns are checked first.
    fn part(
        &self,
        pages: &Pages<'_>,
        group: RowGroup<'_>,
        walked: Vec<WalkedColumn>,
        found: &mut Findings,
    ) -> Result<()> {
        let schema = pages.schema();
        let root = |leaf: &usize| schema.get_column_root_idx(*leaf);
        let left: Vec<usize> = found.rare.iter().map(root).collect();
        for WalkedColumn { leaf, pages: own, tally, is_whole } in walked {
            if left.binary_search(&root(&leaf)).is_err() {
                found.pages.push((leaf, own));
                continue;
            }
            let column = group.column(leaf);
            let times = self.times(leaf, column);
            if tally.has_rare && times.is_some() {
                let message = "has INT96 timestamps behind levels, or of an encoding, that cannot be looked into";
                let error = Error::new(ErrorKind::UnsupportedParquet, message).with_hint("write the column anew");
                return Err(error.with_column(column.column_path().string()));
            }
            if !tally.has_rare && !self.file.levels_are_checked(self.row_group, leaf) {
                let rows = is_whole.then_some(group.num_rows().unsigned_abs() as usize);
                let told = |at: u64| pages.rows_at(leaf, at);
                let checked = direct::check_levels((schema, leaf, column), &own, rows, &told, times);
                checked.map_err(|error| error.with_column(column.column_path().string()))?;
                if is_whole {
                    self.file.note_levels(self.row_group, leaf);
                }
            }
        }
        found.pages.sort_unstable_by_key(|(leaf, _)| *leaf);
        Ok(())
    }

    /// The unit that times of 96 bits are decoded to, if the column has such.
    fn times(&self, leaf: usize, column: ColumnChunk<'_>) -> Option<TimeUnit> {
        let field = self.file.field_of(leaf).filter(|_| column.column_type() == Type::INT96)?;
        let place = leaf.checked_sub(self.file.leaves(field).start)?;
        match leaf_type(self.file.field(field, &[])?.data_type(), place)? {
            DataType::Timestamp(unit, _) => Some(*unit),
            _ => None,
        }
    }

    /// Bytes that a column takes while so many of its entries, of so many rows, are decoded; with `all`, all of them.
    pub(crate) fn takes(
        &self,
        leaf: usize,
        column: ColumnChunk<'_>,
        tally: &Tally,
        entries: u64,
        rows: usize,
        all: bool,
    ) -> u64 {
        let measure = self.file.measure(leaf);
        // Every entry has two levels of two bytes while it is decoded.
        let mut bytes = measure.values(entries, rows as u64).saturating_mul(measure.width);
        bytes = bytes.saturating_add(entries.saturating_mul(4));
        bytes = bytes.saturating_add(tally.dictionary_values.saturating_mul(measure.width.max(16)));
        if column.column_type() == Type::BYTE_ARRAY {
            bytes = bytes.saturating_add(tally.spelled_out);
            if all {
                bytes = bytes.saturating_add(tally.data).saturating_add(tally.dictionary);
            }
        }
        bytes
    }

    /// Whether what is decoded may be views of the bytes that are read, rather than of pages that were decompressed.
    pub(super) fn keeps_pages(&self, group: RowGroup<'_>, leaves: &[usize]) -> bool {
        let views = self.wanted_views(leaves);
        views.iter().any(|leaf| group.column(*leaf).compression() == Compression::UNCOMPRESSED)
    }

    /// What is known of a column chunk before its pages are walked; of some of its pages with `some`.
    pub(crate) fn chunk(&self, column: ColumnChunk<'_>, some: bool) -> WalkedChunk {
        let descriptor = column.column_descr();
        let limit = self.max_decoded_bytes;
        WalkedChunk {
            compression: column.compression(),
            values: column.num_values().unsigned_abs(),
            max_levels: (descriptor.max_rep_level(), descriptor.max_def_level()),
            has_booleans: descriptor.physical_type() == Type::BOOLEAN,
            page_limit: limit,
            limit: if some { u64::MAX } else { limit },
        }
    }

    /// The columns that the projection keeps as views, sorted.
    pub(crate) fn wanted_views(&self, leaves: &[usize]) -> Vec<usize> {
        let file = self.file.arrow_schema().fields();
        let internal = self.projection.internal().fields().iter().enumerate();
        let viewed: Vec<usize> = internal.filter(|(_, field)| is_view(field.data_type())).map(|(at, _)| at).collect();
        if viewed.is_empty() {
            return Vec::new();
        }
        let places = self.projection.places_in(file);
        let places = viewed.into_iter().filter_map(|column| places.get(column).copied().flatten());
        let own = places.flat_map(|place| self.file.leaves(place));
        let mut views: Vec<usize> = own.filter(|leaf| leaves.binary_search(leaf).is_ok()).collect();
        views.sort_unstable();
        views
    }
}

/// Walks the page headers in these bytes of a column chunk, each with its place in the file, and notes the pages.
pub(crate) fn walk<'a>(
    bytes: impl Iterator<Item = (u64, &'a Bytes)>,
    chunk: &WalkedChunk,
    found: &mut Vec<FilePage>,
) -> Result<Tally> {
    let mut tally = Tally::default();
    for (start, bytes) in bytes {
        guard::walk(start, bytes, chunk, &mut tally, found)?;
    }
    Ok(tally)
}

/// Makes sure that the pages of a column chunk have as many values as it needs. A header that miscounts values makes
/// later rows others, or the parquet crate wait for values for ever.
pub(crate) fn check_values(
    group: RowGroup<'_>,
    column: ColumnChunk<'_>,
    tally: &Tally,
    is_whole: bool,
    selective: bool,
) -> Result<()> {
    let nested = column.column_descr().max_rep_level() > 0;
    let rows = group.num_rows().unsigned_abs();
    if is_whole && (tally.values < rows || (!nested && tally.values > rows)) {
        let message = format!("its pages hold {} values for {rows} rows", tally.values);
        return Err(Error::new(ErrorKind::InvalidParquet, message));
    }
    let declared = column.num_values().unsigned_abs();
    if (!selective || is_whole) && tally.values != declared {
        let message = format!("its pages hold {} values, and the footer says {declared}", tally.values);
        return Err(Error::new(ErrorKind::InvalidParquet, message));
    }
    if let Some(begun) = tally.rows().filter(|begun| is_whole && *begun != rows) {
        let message = format!("its pages hold {begun} rows where the footer says {rows}");
        return Err(Error::new(ErrorKind::InvalidParquet, message));
    }
    Ok(())
}
