//! Pages are looked at before they are decoded: what they are, and what they will take.

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{DataType, TimeUnit};
use bytes::Bytes;
use parquet::basic::{Compression, Type};

use super::GroupDecoder;
use crate::chunks::{ColumnChunk, RowGroup};
use crate::columns::is_view;
use crate::direct;
use crate::errors::{invalid, unsupported};
use crate::guard::{self, FilePage, Tally, WalkedChunk};
use crate::pages::Pages;
use crate::types::leaf_type;
use rowdex_base::error::Result;

/// The pages of one column, by their place in the file.
struct WalkedColumn {
    leaf: usize,
    pages: Vec<FilePage>,
    tally: Tally,
}

impl GroupDecoder<'_> {
    /// Walks the page headers before the decoder does, and notes what they say. With `all` every row of the row group
    /// is decoded.
    pub(super) fn look_into(&self, pages: &mut Pages<'_>, all: bool) -> Result<()> {
        let limit = self.max_decoded_bytes;
        let group = pages.of.group;
        let leaves = pages.leaves;
        let selective = pages.selection.is_some();
        let count = pages.batch_rows;
        let mut total = 0u64;
        let mut walked = Vec::with_capacity(leaves.len());
        let mut views = Vec::new();
        let wanted_views = self.wanted_views(leaves);
        let mut in_order: Vec<(&Range<u64>, &Bytes)> = pages.ranges.iter().zip(&pages.bytes).collect();
        in_order.sort_by_key(|(range, _)| range.start);
        for &leaf in leaves {
            let column = group.column(leaf);
            let nested = column.max_levels().0 > 0;
            let mut own = Vec::new();
            let tally = self.walk(&in_order, group, leaf, selective, &mut own).map_err(|error| column.named(error))?;
            own.sort_unstable_by_key(|page| page.at);
            pages.staged = pages.staged.saturating_add(unpacked(column, &tally));
            let is_direct = direct::decodes(column, &tally)
                && self.file.field_of(leaf).is_some_and(|root| pages.tree(root).is_some());
            if !is_direct {
                pages.rare.push(leaf);
            }
            let touched = |values: u64| if selective && !nested { values.min(count as u64) } else { values };
            let entries = touched(tally.values);
            total = total.saturating_add(self.takes(leaf, column, &tally, entries, count, !selective || nested));
            if column.column_type() == Type::BYTE_ARRAY {
                // Every reference to the dictionary is spelled out unless the values are views of it. How long they
                // are cannot be seen from here, so if it could be too much, views come first and are measured, unless
                // what decodes them measures them before it copies them.
                let spelled_out = touched(tally.referring).saturating_mul(tally.dictionary);
                let is_measured = all && is_direct && column.root().is_primitive();
                if wanted_views.binary_search(&leaf).is_ok()
                    || (spelled_out > limit && self.file.can_explode(leaf, &tally) && !is_measured)
                {
                    views.push(leaf);
                }
            }
            let batch_rows = usize::try_from(limit / tally.largest.max(1)).unwrap_or(usize::MAX);
            if selective {
                pages.batch_rows = pages.batch_rows.min(batch_rows.max(1));
            }
            walked.push(WalkedColumn { leaf, pages: own, tally });
        }
        pages.views = views;
        self.within_limit(total)?;
        self.part(pages, walked)
    }

    /// Gives the pages of each column to what decodes it. The parquet crate takes levels and times of 96 bits as they
    /// are, so those of its columns are checked first.
    fn part(&self, pages: &mut Pages<'_>, walked: Vec<WalkedColumn>) -> Result<()> {
        let group = pages.of.group;
        let left: Vec<Option<usize>> = pages.rare.iter().map(|leaf| self.file.field_of(*leaf)).collect();
        for WalkedColumn { leaf, pages: own, tally } in walked {
            let own: Arc<[FilePage]> = own.into();
            if left.binary_search(&self.file.field_of(leaf)).is_err() {
                pages.of.found.push((leaf, own));
                continue;
            }
            let column = group.column(leaf);
            let times = self.times(leaf, column);
            if tally.has_rare && times.is_some() {
                let message = "has INT96 timestamps behind levels, or of an encoding, that cannot be looked into";
                return Err(column.named(unsupported(message).with_hint("write the column again")));
            }
            if !tally.has_rare && !self.file.levels_are_checked(self.row_group, leaf) {
                let rows = tally.is_whole.then_some(group.num_rows());
                let checked = direct::check_levels(column, &own, rows, &|at: u64| pages.rows_at(leaf, at), times);
                checked.map_err(|error| column.named(error))?;
                if tally.is_whole {
                    self.file.note_levels(self.row_group, leaf);
                }
            }
        }
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

    /// Walks the page headers of a column chunk in what was `read`, by rising ranges, and notes the pages.
    ///
    /// Makes sure that the pages have as many values as the chunk needs. A header that miscounts values makes later
    /// rows others, or the parquet crate wait for values for ever.
    pub(crate) fn walk(
        &self,
        read: &[(&Range<u64>, &Bytes)],
        group: RowGroup<'_>,
        leaf: usize,
        selective: bool,
        found: &mut Vec<FilePage>,
    ) -> Result<Tally> {
        let column = group.column(leaf);
        let nested = column.max_levels().0 > 0;
        let limit = self.max_decoded_bytes;
        let declared = column.num_values();
        let chunk = WalkedChunk {
            compression: column.compression(),
            values: declared,
            max_levels: column.max_levels(),
            has_booleans: column.column_type() == Type::BOOLEAN,
            page_limit: limit,
            limit: if selective && !nested { u64::MAX } else { limit },
        };
        let Range { start, end } = column.range();
        let first = read.partition_point(|(range, _)| range.start < start);
        let own = read[first..].iter().take_while(|(range, _)| range.start < end);
        let own = own.filter(|(range, _)| range.end <= end);
        let is_whole = !selective || own.clone().any(|(range, _)| **range == (start..end));
        let mut tally = Tally::default();
        for (range, bytes) in own {
            guard::walk(range.start, bytes, &chunk, &mut tally, found)?;
        }
        tally.is_whole = is_whole;
        let values = tally.values;
        let rows = group.num_rows() as u64;
        if is_whole && (values < rows || (!nested && values > rows)) {
            return Err(invalid(format!("its pages hold {values} values for {rows} rows")));
        }
        if (!selective || is_whole) && values != declared {
            return Err(invalid(format!("its pages hold {values} values, and the footer says {declared}")));
        }
        match tally.rows() {
            Some(begun) if is_whole && begun != rows => {
                Err(invalid(format!("its pages hold {begun} rows where the footer says {rows}")))
            }
            _ => Ok(tally),
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

/// Bytes of memory that a page of a column chunk is decompressed to.
pub(crate) fn unpacked(column: ColumnChunk<'_>, tally: &Tally) -> u64 {
    if column.compression() == Compression::UNCOMPRESSED { 0 } else { tally.largest }
}
