//! One column chunk, row by row.

use std::ops::Range;

use arrow_array::ArrayRef;
use arrow_buffer::NullBuffer;
use arrow_schema::ArrowError;
use arrow_schema::DataType;

use super::levels::{Definitions, Validity, starts};
use super::pages::{ColumnPages, DataPage, PageStep};
use super::values::{ColumnValues, ValueNulls};
use crate::errors::{beyond_offsets, cannot_be, damaged, too_large};
use rowdex_base::error::{Error, Result};
use rowdex_rows::list_array;

/// The values of one column chunk, and the page that is open.
pub(super) struct Leaf {
    pages: ColumnPages,
    values: Box<dyn ColumnValues>,
    /// Highest definition level: that of a value.
    highest: i16,
    page: OpenPage,
    /// The levels of a page may not take more bytes than this.
    limit: u64,
}

/// A page, and how far it was read.
struct OpenPage {
    entries: usize,
    /// The next entry.
    at: usize,
    definitions: Definitions,
    /// Entries that begin a list, where the column has lists, and which of them comes next.
    starts: Vec<u32>,
    next: usize,
}

impl OpenPage {
    fn is_over(&self) -> bool {
        self.at == self.entries
    }

    /// Where the lists that are left begin, and the end of the page.
    fn start(&self, list: usize) -> usize {
        self.starts.get(list).map_or(self.entries, |start| *start as usize)
    }
}

impl Leaf {
    pub(super) fn new(pages: ColumnPages, values: Box<dyn ColumnValues>, highest: i16, limit: u64) -> Self {
        let page = OpenPage { entries: 0, at: 0, definitions: Definitions::Full, starts: Vec::new(), next: 0 };
        Self { pages, values, highest, page, limit }
    }

    /// Makes room for what so many of `rows_left` rows have, if they are all alike.
    fn reserve(&mut self, rows: usize, rows_left: usize) {
        let entries = self.pages.left().saturating_add((self.page.entries - self.page.at) as u64);
        let share = u128::from(entries) * rows as u128 / rows_left.max(1) as u128;
        self.values.reserve(usize::try_from(share).unwrap_or(0));
    }

    /// Takes the dictionary if it comes next, and no page behind it, which may be one that was not read.
    fn take_dictionary(&mut self) -> Result<()> {
        while self.pages.is_dictionary_next() {
            match self.pages.next()? {
                Some(PageStep::Dictionary(bytes, count)) => self.values.set_dictionary(&bytes, count)?,
                Some(PageStep::Group) => self.values.forget_dictionary(),
                _ => return Err(damaged("has a page of data in the place of its dictionary")),
            }
        }
        Ok(())
    }

    /// Opens the next page with data; `false` behind the last one.
    fn open(&mut self, has_lists: bool) -> Result<bool> {
        loop {
            let DataPage { entries, repetition, definition, values, encoding, most_values, rows } =
                match self.pages.next()? {
                    None => return Ok(false),
                    Some(PageStep::Group) => {
                        self.values.forget_dictionary();
                        continue;
                    }
                    Some(PageStep::Dictionary(bytes, count)) => {
                        self.values.set_dictionary(&bytes, count)?;
                        continue;
                    }
                    Some(PageStep::Data(page)) => page,
                };
            // A few bytes can stand for as many levels as the page likes.
            let bytes = (entries as u64).saturating_mul(self.highest.unsigned_abs().into()) / 8;
            if bytes > self.limit {
                let limit = self.limit;
                return Err(too_large(format!(
                    "the levels of a page take {bytes} bytes, more than the {limit} allowed"
                )));
            }
            let definitions = Definitions::new(&definition, entries, self.highest)?;
            if definitions.values(0..entries) > most_values {
                return Err(damaged("has fewer values than its levels say"));
            }
            let starts = if has_lists { starts(&repetition, entries)? } else { Vec::new() };
            // Rows that are passed by are counted by the index, and all later ones would be others.
            let begin = if has_lists { starts.len() } else { entries };
            if rows.is_some_and(|rows| rows != begin) {
                return Err(damaged(format!("has a page of {begin} rows where its index says {}", rows.unwrap_or(0))));
            }
            self.values.set_page(encoding, values, most_values)?;
            self.page = OpenPage { entries, at: 0, definitions, starts, next: 0 };
            return Ok(true);
        }
    }

    /// Keeps or passes by the values of these entries of the page.
    fn take(&mut self, entries: Range<usize>, keep: bool) -> Result<()> {
        let values = self.page.definitions.values(entries.clone());
        self.page.at = entries.end;
        if keep { self.values.read(values) } else { self.values.skip(values) }
    }
}

pub(super) fn goes_on_empty() -> Error {
    damaged("continues a list that has no items")
}

fn no_more_rows() -> Error {
    damaged("holds fewer rows than the footer says")
}

/// A column without lists, which may be within structs.
pub(super) struct Flat {
    leaf: Leaf,
    rows_left: usize,
    /// Whether values are there.
    there: Validity,
    /// Which rows reach the levels of structs above, from the outermost on.
    above: Vec<(i16, Validity)>,
    /// Whether the array may show nulls, rather than what is above it.
    is_nullable: bool,
}

impl Flat {
    /// A column of a row group with so many rows, which also notes the rows that reach the levels `above`.
    pub(super) fn new(leaf: Leaf, rows: usize, is_nullable: bool, above: &[i16]) -> Self {
        let above = above.iter().map(|level| (*level, Validity::new())).collect();
        Self { leaf, rows_left: rows, there: Validity::new(), above, is_nullable }
    }

    /// Keeps so many of the next rows, in runs of rows to pass by and rows to keep.
    pub(super) fn read(&mut self, rows: usize, runs: &[(usize, usize)]) -> Result<()> {
        self.leaf.values.reserve(rows);
        for &(passed, kept) in runs {
            if passed > 0 {
                self.skip(passed)?;
            }
            self.walk(kept, true)?;
        }
        Ok(())
    }

    /// Passes by the next rows.
    fn skip(&mut self, mut rows: usize) -> Result<()> {
        let here = rows.min(self.leaf.page.entries - self.leaf.page.at);
        self.walk(here, false)?;
        rows -= here;
        while rows > 0 {
            self.leaf.take_dictionary()?;
            match self.leaf.pages.rows_next() {
                Some(next) if next <= rows => {
                    self.leaf.pages.skip_page();
                    self.rows_left = self.rows_left.saturating_sub(next);
                    rows -= next;
                }
                _ => {
                    if !self.leaf.open(false)? {
                        return Err(no_more_rows());
                    }
                    let here = rows.min(self.leaf.page.entries);
                    self.walk(here, false)?;
                    rows -= here;
                }
            }
        }
        Ok(())
    }

    /// Passes by all rows that are left.
    pub(super) fn skip_rest(&mut self) -> Result<()> {
        self.skip(self.rows_left)
    }

    fn walk(&mut self, mut rows: usize, keep: bool) -> Result<()> {
        self.rows_left = self.rows_left.saturating_sub(rows);
        while rows > 0 {
            if self.leaf.page.is_over() {
                if !self.leaf.open(false)? {
                    return Err(no_more_rows());
                }
                continue;
            }
            let at = self.leaf.page.at;
            let end = self.leaf.page.entries.min(at + rows);
            if keep {
                let definitions = &self.leaf.page.definitions;
                self.there.append(definitions.reaching(self.leaf.highest), at..end);
                for (level, reached) in &mut self.above {
                    reached.append(definitions.reaching(*level), at..end);
                }
            }
            self.leaf.take(at..end, keep)?;
            rows -= end - at;
        }
        Ok(())
    }

    /// What was kept since the last time, and which of the rows were missing at each of the levels above.
    pub(super) fn finish(&mut self) -> Result<(ArrayRef, Vec<Option<NullBuffer>>)> {
        let len = self.there.len();
        let there = self.there.finish();
        let above = self.above.iter_mut().map(|(_, reached)| reached.finish()).collect();
        Ok((self.leaf.values.finish(ValueNulls { len, there, is_shown: self.is_nullable })?, above))
    }
}

/// A column of lists, one level deep.
pub(super) struct ListColumn {
    leaf: Leaf,
    list: DataType,
    rows_left: usize,
    /// Definition level of a list without items; below it, the list is null.
    empty: i16,
    /// Items that every list has, where that is so; a null list has as many nulls.
    fixed: Option<usize>,
    /// Whether all rows are wanted.
    all_rows: bool,
    /// Number of items before each list that was kept, and in the end of all of them.
    starts: Vec<usize>,
    lists: Validity,
    items: Validity,
    /// Whether the last list was kept, if it may go on in the next page.
    last: Option<bool>,
    is_last_empty: bool,
}

impl ListColumn {
    /// A column of a row group with so many rows. An item's level is above that of an empty list.
    pub(super) fn new(leaf: Leaf, list: DataType, rows: usize, empty: i16, all_rows: bool) -> Self {
        let fixed = match list {
            DataType::FixedSizeList(_, size) => usize::try_from(size).ok(),
            _ => None,
        };
        Self {
            leaf,
            list,
            rows_left: rows,
            empty,
            fixed,
            all_rows,
            starts: vec![0],
            lists: Validity::new(),
            items: Validity::new(),
            last: None,
            is_last_empty: false,
        }
    }

    /// As [`Flat::read`].
    pub(super) fn read(&mut self, rows: usize, runs: &[(usize, usize)]) -> Result<()> {
        // Only where all rows are read, the footer's number of entries was compared with that of the pages.
        if self.all_rows {
            self.leaf.reserve(rows, self.rows_left);
        }
        self.starts.reserve_exact(rows);
        for &(passed, kept) in runs {
            if passed > 0 {
                self.walk(passed, false)?;
            }
            self.walk(kept, true)?;
        }
        Ok(())
    }

    /// Passes by all rows that are left.
    pub(super) fn skip_rest(&mut self) -> Result<()> {
        self.walk(self.rows_left, false)
    }

    fn walk(&mut self, mut rows: usize, keep: bool) -> Result<()> {
        while rows > 0 {
            if self.leaf.page.is_over() {
                if !keep {
                    self.leaf.take_dictionary()?;
                }
                if !keep
                    && let Some(next) = self.leaf.pages.rows_next()
                    && next <= rows
                {
                    self.leaf.pages.skip_page();
                    self.rows_left = self.rows_left.saturating_sub(next);
                    rows -= next;
                    continue;
                }
                if !self.open()? {
                    return Err(no_more_rows());
                }
                continue;
            }
            let page = &self.leaf.page;
            let end = page.starts.len().min(page.next + rows);
            let lists = page.next..end;
            rows -= lists.len();
            self.rows_left = self.rows_left.saturating_sub(lists.len());
            let entries = page.at..page.start(end);
            if keep {
                self.keep(lists, entries.clone())?;
            }
            self.leaf.page.next = end;
            self.leaf.take(entries, keep)?;
            self.last = Some(keep);
            let page = &self.leaf.page;
            let has_item = page.definitions.reaching(self.empty + 1);
            self.is_last_empty = has_item.is_some_and(|has_item| !has_item.value(page.start(end - 1)));
        }
        while self.last.is_some() && self.leaf.page.is_over() && self.leaf.pages.has_more() {
            if self.leaf.pages.is_row_next() || !self.open()? {
                self.last = None;
            }
        }
        Ok(())
    }

    /// Opens the next page, and takes the items at its front that belong to the last list.
    fn open(&mut self) -> Result<bool> {
        if !self.leaf.open(true)? {
            return Ok(false);
        }
        let page = &self.leaf.page;
        if page.starts.len() > self.rows_left {
            return Err(damaged("holds more lists than there are rows"));
        }
        self.check()?;
        let page = &self.leaf.page;
        let more = 0..page.start(0);
        if more.is_empty() {
            self.last = self.last.filter(|_| page.is_over());
            return Ok(true);
        }
        let keep = self.last.ok_or_else(|| damaged("begins inside a list"))?;
        if self.is_last_empty {
            return Err(goes_on_empty());
        }
        if keep {
            let there = page.definitions.reaching(self.leaf.highest);
            self.items.append(there, more.clone());
            if let Some(end) = self.starts.last_mut() {
                *end += more.len();
            }
        }
        self.leaf.take(more, keep)?;
        if !self.leaf.page.is_over() {
            self.last = None;
        }
        Ok(true)
    }

    /// Makes sure that only a list's first entry can be one without an item, and that such a list has no other entry.
    fn check(&self) -> Result<()> {
        let page = &self.leaf.page;
        let Some(has_item) = page.definitions.reaching(self.empty + 1) else { return Ok(()) };
        let mut items = page.start(0);
        for list in 0..page.starts.len() {
            let start = page.start(list);
            let end = page.start(list + 1);
            if has_item.value(start) {
                items += end - start;
            } else if end - start > 1 {
                return Err(goes_on_empty());
            }
        }
        if items != has_item.count_set_bits() {
            return Err(goes_on_empty());
        }
        Ok(())
    }

    /// Notes where these lists of the page begin, and what of them is null.
    fn keep(&mut self, lists: Range<usize>, entries: Range<usize>) -> Result<()> {
        let Self { leaf, empty, fixed, starts, lists: lists_there, items: items_there, .. } = self;
        let page = &leaf.page;
        let definitions = &page.definitions;
        let mut end = starts.last().copied().unwrap_or(0);
        let Some(has_item) = definitions.reaching(*empty + 1) else {
            // Every entry is an item.
            let first = entries.start;
            starts.extend(lists.clone().map(|list| end + page.start(list + 1) - first));
            lists_there.append_n(lists.len(), true);
            items_there.append(definitions.reaching(leaf.highest), entries);
            return Ok(());
        };
        let there = if *empty > 0 { definitions.reaching(*empty) } else { None };
        let values = definitions.reaching(leaf.highest);
        // Entries that are items and follow each other are noted together.
        let mut run = entries.start..entries.start;
        for list in lists {
            let first = page.start(list);
            let next = page.start(list + 1);
            let is_there = there.is_none_or(|there| there.value(first));
            lists_there.append_n(1, is_there);
            if has_item.value(first) {
                end += next - first;
                run.end = next;
            } else {
                items_there.append(values, run);
                run = next..next;
                if let (Some(fixed), false) = (*fixed, is_there) {
                    items_there.append_n(fixed, false);
                    end += fixed;
                }
            }
            starts.push(end);
        }
        items_there.append(values, run);
        Ok(())
    }

    /// Items of each list that was kept since the last time.
    pub(super) fn lengths(&self) -> impl Iterator<Item = usize> {
        self.starts.windows(2).map(|ends| ends[1] - ends[0])
    }

    /// What was kept since the last time.
    pub(super) fn finish(&mut self) -> Result<ArrayRef> {
        let starts = std::mem::replace(&mut self.starts, vec![0]);
        if let Some(fixed) = self.fixed
            && let Some(pair) = starts.windows(2).find(|pair| pair[1] - pair[0] != fixed)
        {
            let length = pair[1] - pair[0];
            return Err(damaged(format!("has a list of {length} items where all have {fixed}")));
        }
        let lists = self.lists.finish();
        let items = ValueNulls { len: self.items.len(), there: self.items.finish(), is_shown: true };
        let items = self.leaf.values.finish(items)?;
        let lengths = starts.windows(2).map(|ends| ends[1] - ends[0]);
        list_array(&self.list, starts.len().saturating_sub(1), lengths, items, lists).map_err(|error| match error {
            ArrowError::OffsetOverflowError(_) => beyond_offsets("the items of its lists are too many"),
            error => cannot_be(error),
        })
    }

    /// Makes sure that there are no more lists than rows.
    pub(super) fn end(&mut self) -> Result<()> {
        while self.leaf.page.is_over() && self.leaf.pages.has_more() {
            if !self.open()? {
                break;
            }
        }
        if !self.leaf.page.is_over() || self.leaf.pages.has_more() {
            return Err(damaged("holds more lists than there are rows"));
        }
        Ok(())
    }
}
