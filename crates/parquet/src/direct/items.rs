//! How many items the lists of a column have, by its levels alone.

use arrow_array::{ArrayRef, NullArray};
use arrow_schema::DataType;
use bytes::Bytes;
use parquet::basic::Encoding;

use super::checks::item_levels;
use super::leaf::{Leaf, ListColumn};
use super::pages::{ColumnPages, sum};
use super::values::{ColumnValues, ValueNulls};
use crate::chunks::ColumnChunk;
use crate::errors::damaged;
use crate::guard::{FilePage, PageKind};
use rowdex_base::error::Result;

/// The definition level of an item, if the items of a column can be counted by its levels: if it is in one list.
pub(crate) fn item_level(column: ColumnChunk<'_>) -> Option<i16> {
    let levels = item_levels(column);
    (levels.len() == 1).then(|| levels[0] as i16)
}

/// For each row of a column chunk, of which these are all pages, the number of items of its list, each of which has the
/// definition level `item`. Lists that are null, or in something that is null, have none.
///
/// Memory grows with the entries of the largest page, of which there are at most `most_entries`.
pub(crate) fn count_items(
    column: ColumnChunk<'_>,
    item: i16,
    pages: Vec<FilePage>,
    rows: usize,
    most_entries: usize,
) -> Result<Vec<u64>> {
    if let Some(page) = pages.iter().find(|page| page.values > most_entries) {
        return Err(damaged(format!("has a page of {} entries, more than fit in memory", page.values)));
    }
    let pages: Vec<FilePage> =
        pages.into_iter().filter_map(|page| levels_of(page).transpose()).collect::<Result<_>>()?;
    let pages = ColumnPages::new(column, pages.into(), Default::default(), rows, None, false);
    let leaf = Leaf::new(pages, Box::new(Uncounted), column.max_levels().1, u64::MAX);
    let mut lists = ListColumn::new(leaf, DataType::Null, rows, item - 1, false);
    lists.read(rows, &[(0, rows)])?;
    lists.end()?;
    Ok(lists.lengths().map(|length| length as u64).collect())
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

/// Values that nobody looks at.
#[derive(Debug)]
struct Uncounted;

impl ColumnValues for Uncounted {
    fn set_dictionary(&mut self, _: &Bytes, _: usize) -> Result<()> {
        Ok(())
    }

    fn forget_dictionary(&mut self) {}

    fn set_page(&mut self, _: Encoding, _: Bytes, _: usize) -> Result<()> {
        Ok(())
    }

    fn reserve(&mut self, _: usize) {}

    fn read(&mut self, _: usize) -> Result<()> {
        Ok(())
    }

    fn skip(&mut self, _: usize) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self, nulls: ValueNulls) -> Result<ArrayRef> {
        Ok(std::sync::Arc::new(NullArray::new(nulls.len)))
    }
}
