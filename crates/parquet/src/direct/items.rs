//! How many items the lists of a column have, by its levels alone.

use arrow::array::BooleanBufferBuilder;
use arrow::buffer::BooleanBuffer;
use parquet::schema::types::SchemaDescriptor;

use super::checks::item_levels;
use super::damaged;
use super::hybrid::{Hybrid, HybridPiece};
use super::leaf::goes_on_empty;
use super::levels::{Definitions, starts, too_high};
use super::pages::{ColumnPages, DataPage, PageStep, sum};
use crate::chunks::ColumnChunk;
use crate::guard::{FilePage, PageKind};
use rowdex_base::error::Result;

/// Whether the items of a column can be counted by its levels: whether it is in a list.
pub(crate) fn has_items(schema: &SchemaDescriptor, leaf: usize) -> bool {
    !item_levels(schema, leaf).is_empty()
}

/// For each row of a column chunk, of which these are all pages, the number of items of its outermost list. Lists that
/// are null, or in something that is null, have none.
///
/// Memory grows with the entries of the largest page, of which there are at most `most_entries`.
pub(crate) fn count_items(
    (schema, leaf, column): (&SchemaDescriptor, usize, ColumnChunk<'_>),
    pages: Vec<FilePage>,
    rows: usize,
    most_entries: usize,
) -> Result<Vec<u64>> {
    let descriptor = column.column_descr();
    let Some(item) = item_levels(schema, leaf).first().copied() else { return Err(damaged("has no lists")) };
    let of = CountedLevels { item: item as i16, highest: (descriptor.max_rep_level(), descriptor.max_def_level()) };
    let pages = pages.into_iter().map(levels_of).collect::<Result<Vec<_>>>()?;
    let pages: Vec<FilePage> = pages.into_iter().flatten().collect();
    let mut pages = ColumnPages::new(column, pages.into(), Default::default(), 0, None, false);
    let mut counts = Vec::new();
    while let Some(step) = pages.next()? {
        let PageStep::Data(page) = step else { continue };
        if page.entries > most_entries {
            return Err(damaged(format!("has a page of {} entries, more than fit in memory", page.entries)));
        }
        of.count(&page, &mut counts, rows)?;
    }
    match counts.len() == rows {
        true => Ok(counts),
        false => Err(damaged(format!("holds {} rows where the footer says {rows}", counts.len()))),
    }
}

/// A page without what need not be decompressed for its levels; `None` for one that has none.
fn levels_of(mut page: FilePage) -> Result<Option<FilePage>> {
    match &mut page.kind {
        PageKind::Dictionary => return Ok(None),
        PageKind::First => {}
        PageKind::Second { repetition_bytes, definition_bytes, is_plain, .. } => {
            if page.checksum.take().is_some_and(|checksum| checksum != sum(&page.body)) {
                return Err(damaged("has a page with another checksum than its header says"));
            }
            page.expanded = repetition_bytes.saturating_add(*definition_bytes);
            page.body.truncate(page.expanded);
            *is_plain = true;
        }
    }
    Ok(Some(page))
}

/// What is counted.
struct CountedLevels {
    /// The definition level of an item.
    item: i16,
    highest: (i16, i16),
}

impl CountedLevels {
    /// Adds the counts of the rows that begin in a page; what comes before belongs to the last row so far.
    fn count(&self, page: &DataPage, counts: &mut Vec<u64>, rows: usize) -> Result<()> {
        let definitions = Definitions::new(&page.definition, page.entries, self.highest.1)?;
        let (starts, begun) = match self.highest.0 {
            1 => (starts(&page.repetition, page.entries)?, None),
            highest => nested_starts(page, highest.unsigned_abs().into())?,
        };
        let there = definitions.reaching(self.item);
        // Of entries that follow each other: which begin an item of the list, or stand for one without any; and items.
        let in_range = |from: usize, to: usize| -> (u64, u64) {
            let length = to.saturating_sub(from);
            let begun = begun.as_ref().map(|begun| begun.slice(from, length));
            let there = there.map(|there| there.slice(from, length));
            let all = begun.as_ref().map_or(length, BooleanBuffer::count_set_bits);
            let items = match (begun, there) {
                (_, None) => all,
                (None, Some(there)) => there.count_set_bits(),
                (Some(begun), Some(there)) => (&begun & &there).count_set_bits(),
            };
            (all as u64, items as u64)
        };
        let first = starts.first().map_or(page.entries, |first| *first as usize);
        if first > 0 {
            let (all, items) = in_range(0, first);
            let last = counts.last_mut().ok_or_else(|| damaged("begins inside a list"))?;
            if items < all || (*last == 0 && all > 0) {
                return Err(goes_on_empty());
            }
            *last = last.saturating_add(items);
        }
        if starts.len() > rows.saturating_sub(counts.len()) {
            return Err(damaged(format!("holds more rows than the {rows} that the footer says")));
        }
        let ends = starts.iter().skip(1).map(|end| *end as usize).chain([page.entries]);
        for (start, end) in starts.iter().zip(ends) {
            let (all, items) = in_range(*start as usize, end);
            if items < all && all > 1 {
                return Err(goes_on_empty());
            }
            counts.push(items);
        }
        Ok(())
    }
}

/// As [`starts`], where lists are in lists; and which entries begin an item of the outermost one.
fn nested_starts(page: &DataPage, highest: u32) -> Result<(Vec<u32>, Option<BooleanBuffer>)> {
    let mut starts = Vec::new();
    let mut begun = BooleanBufferBuilder::new(page.entries);
    let mut one = |level: u32, times: usize| {
        if level > highest {
            return Err(too_high(level));
        }
        if level == 0 {
            let at = begun.len();
            starts.extend((at..at.saturating_add(times)).map(|place| place as u32));
        }
        begun.append_n(times, level <= 1);
        Ok(())
    };
    let mut levels = Hybrid::new(&page.repetition[..], u32::BITS - u32::leading_zeros(highest))?;
    levels.each(page.entries, |piece| match piece {
        HybridPiece::Repeated(level, times) => one(level, times),
        HybridPiece::Packed(packed) => packed.each(|levels| levels.iter().try_for_each(|level| one(*level, 1))),
    })?;
    Ok((starts, Some(begun.finish())))
}
