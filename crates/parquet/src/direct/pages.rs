//! The pages of one column chunk, decompressed one at a time.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use flate2::Crc;
use parquet::basic::{Compression, Encoding};
use parquet::errors::ParquetError;
use parquet::file::page_index::offset_index::PageLocation;

use crate::chunks::ColumnChunk;
use crate::errors::{caught, damaged};
use crate::guard::{FilePage, PageKind};
use crate::unpack::Unpacker;
use rowdex_base::error::{Error, Result};

/// The pages of a column chunk, from front to back.
pub(super) struct ColumnPages {
    /// Those that are at hand, by their place in the file.
    pages: Arc<[FilePage]>,
    /// Those that come, the next of them, and whether the file says where they are, so that each begins with a row.
    upcoming: Vec<UpcomingPage>,
    next: usize,
    is_located: bool,
    compression: Compression,
    unpacker: Rc<RefCell<Unpacker>>,
    /// Highest repetition and definition level.
    levels: (i16, i16),
    /// Whether pages may be passed by unseen. Their headers may say other things than is in them, and where all pages
    /// are at hand that is found out.
    may_skip: bool,
    /// Entries that were not met yet, according to the footer.
    left: u64,
    /// Whether it was said that the next page begins a row group.
    is_group_told: bool,
}

/// A page that comes next.
#[derive(Clone, Copy)]
struct UpcomingPage {
    /// Its place among those at hand; `None` where another page lies, or none.
    place: Option<usize>,
    /// How many rows begin in it, as far as can be known before it is read.
    rows: Option<usize>,
    is_dictionary: bool,
}

/// What comes next in a column chunk.
pub(super) enum PageStep {
    /// The pages of another row group, before the first of them.
    Group,
    /// A dictionary of so many values.
    Dictionary(Bytes, usize),
    Data(DataPage),
}

/// One page of values.
pub(super) struct DataPage {
    /// Values, nulls and lists without items.
    pub(super) entries: usize,
    pub(super) repetition: Bytes,
    pub(super) definition: Bytes,
    pub(super) values: Bytes,
    pub(super) encoding: Encoding,
    /// No more values than this are in the page.
    pub(super) most_values: usize,
    /// How many rows begin in the page, where the file says so beside its pages.
    pub(super) rows: Option<usize>,
}

impl ColumnPages {
    /// The pages of a column of a row group with `rows` rows, as far as they are at hand: all of them, one after the
    /// other, unless the file says where they are.
    pub(super) fn new(
        column: ColumnChunk<'_>,
        pages: Arc<[FilePage]>,
        unpacker: Rc<RefCell<Unpacker>>,
        rows: usize,
        locations: Option<&[PageLocation]>,
        may_skip: bool,
    ) -> Self {
        let levels = column.max_levels();
        let in_order = |(place, page): (usize, &FilePage)| {
            let is_dictionary = matches!(page.kind, PageKind::Dictionary);
            // Without lists a value is a row, and their sum was compared with the footer. A count of lists was not, and
            // if it were wrong, all rows behind would be others; so lists are counted where they are.
            let rows = (levels.0 == 0 && !is_dictionary).then_some(page.values);
            UpcomingPage { place: Some(place), rows, is_dictionary }
        };
        let found = |at: u64| pages.binary_search_by_key(&at, |page| page.at).ok();
        let upcoming = match locations {
            None => pages.iter().enumerate().map(in_order).collect(),
            Some(locations) => {
                let start = column.byte_range().0;
                // What lies in front of the first page is a dictionary.
                let has_dictionary = locations.first().is_some_and(|first| first.offset.unsigned_abs() != start);
                let dictionary = UpcomingPage { place: found(start), rows: None, is_dictionary: true };
                let ends = locations.iter().skip(1).map(|next| next.first_row_index).chain([rows as i64]);
                let located = locations.iter().zip(ends).map(|(location, end)| {
                    let size = usize::try_from(location.compressed_page_size).ok();
                    let place = found(location.offset.unsigned_abs());
                    let place = place.filter(|place| pages.get(*place).map(|page| page.size) == size);
                    let rows = end.checked_sub(location.first_row_index).and_then(|rows| usize::try_from(rows).ok());
                    UpcomingPage { place, rows, is_dictionary: false }
                });
                has_dictionary.then_some(dictionary).into_iter().chain(located).collect()
            }
        };
        Self {
            pages,
            upcoming,
            next: 0,
            is_located: locations.is_some(),
            compression: column.compression(),
            unpacker,
            levels,
            may_skip,
            left: column.num_values(),
            is_group_told: false,
        }
    }

    /// Says that the pages of the same column of another row group follow.
    pub(super) fn go_on(&mut self, column: ColumnChunk<'_>) {
        self.left = self.left.saturating_add(column.num_values());
    }

    /// Whether there are more entries, according to the footer.
    pub(super) fn has_more(&self) -> bool {
        self.left > 0
    }

    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// The next page, if it is told by the order in which pages lie.
    fn following(&self) -> Option<&FilePage> {
        let place = self.upcoming.get(self.next).filter(|_| !self.is_located)?.place?;
        self.pages.get(place)
    }

    /// Whether the next page begins with a row, as far as can be known before it is read.
    pub(super) fn is_row_next(&self) -> bool {
        // In version 2, which counts rows, no page begins inside of one.
        self.following().is_none_or(|page| matches!(page.kind, PageKind::Second { .. }))
    }

    /// Whether the next page is a dictionary.
    pub(super) fn is_dictionary_next(&self) -> bool {
        self.upcoming.get(self.next).is_some_and(|next| next.is_dictionary)
    }

    /// How many rows the next page has, if it has data, begins with a row, and may be passed by unseen.
    pub(super) fn rows_next(&self) -> Option<usize> {
        self.upcoming.get(self.next).filter(|_| self.may_skip)?.rows
    }

    /// Passes by the next page without looking into it.
    pub(super) fn skip_page(&mut self) {
        let entries = self.following().map_or(0, |page| page.values);
        self.left = self.left.saturating_sub(entries as u64);
        self.next += 1;
    }

    /// The next page; `None` behind the last one.
    pub(super) fn next(&mut self) -> Result<Option<PageStep>> {
        let begins_group = self.following().is_some_and(|page| page.begins_group);
        self.is_group_told = begins_group && !self.is_group_told;
        if self.is_group_told {
            return Ok(Some(PageStep::Group));
        }
        let Some(&UpcomingPage { place, rows, .. }) = self.upcoming.get(self.next) else { return Ok(None) };
        self.next += 1;
        let rows = rows.filter(|_| self.is_located);
        let place = place.ok_or_else(|| damaged("has another page where its index says that there is one"))?;
        let Some(head) = self.pages.get(place) else { return Ok(None) };
        let body = &head.body;
        if head.checksum.is_some_and(|checksum| checksum != sum(body)) {
            return caught("the row group", || Err(ParquetError::General("Page CRC checksum mismatch".into())));
        }
        let mut rest = body.clone();
        let (repetition, definition, values, most_values) = match head.kind {
            PageKind::Dictionary => {
                if !matches!(head.encoding, Encoding::PLAIN | Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY) {
                    return Err(damaged(format!("has a dictionary encoded as {}", head.encoding)));
                }
                let values = self.unpacked(rest, head.expanded)?;
                return Ok(Some(PageStep::Dictionary(values, head.values)));
            }
            PageKind::First => {
                let mut rest = self.unpacked(rest, head.expanded)?;
                // Columns with levels of other encodings are left to the parquet crate.
                let repetition = levels(&mut rest, self.levels.0, Encoding::RLE)?;
                let definition = levels(&mut rest, self.levels.1, Encoding::RLE)?;
                (repetition, definition, rest, head.values)
            }
            PageKind::Second { repetition_bytes, definition_bytes, nulls, is_plain, .. } => {
                let repetition = cut(&mut rest, repetition_bytes)?;
                let definition = cut(&mut rest, definition_bytes)?;
                let expanded = head.expanded.checked_sub(repetition_bytes + definition_bytes);
                let expanded = expanded.ok_or_else(|| damaged("has a page of fewer bytes than its levels have"))?;
                let most_values = head
                    .values
                    .checked_sub(nulls)
                    .ok_or_else(|| damaged(format!("has {nulls} nulls in a page of {} values", head.values)))?;
                let values = if is_plain { rest } else { self.unpacked(rest, expanded)? };
                (repetition, definition, values, most_values)
            }
        };
        let entries = head.values;
        let encoding = head.encoding;
        self.left = self.left.saturating_sub(entries as u64);
        Ok(Some(PageStep::Data(DataPage { entries, repetition, definition, values, encoding, most_values, rows })))
    }

    /// What is in a page, which has so many bytes then.
    fn unpacked(&self, packed: Bytes, size: usize) -> Result<Bytes> {
        if self.compression == Compression::UNCOMPRESSED {
            return Ok(packed);
        }
        let page = caught("the row group", || {
            let page = self.unpacker.borrow_mut().page(self.compression, &packed, size);
            page.map_err(|error| ParquetError::External(error.into()))
        })?;
        let length = page.len();
        if length != size {
            return Err(damaged(format!("has a page of {length} bytes where its header says {size}")));
        }
        Ok(page)
    }
}

pub(super) fn sum(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// Takes the levels off the front of a page of version 1.
pub(super) fn levels(page: &mut Bytes, highest: i16, encoding: Encoding) -> Result<Bytes> {
    if highest == 0 {
        return Ok(Bytes::new());
    }
    if encoding != Encoding::RLE {
        return Err(damaged(format!("has levels encoded as {encoding}")));
    }
    let length = page.try_get_u32_le().map_err(|_| no_levels())?;
    cut(page, length as usize)
}

pub(super) fn cut(page: &mut Bytes, length: usize) -> Result<Bytes> {
    if length > page.len() {
        return Err(no_levels());
    }
    Ok(page.split_to(length))
}

fn no_levels() -> Error {
    damaged("has a page that ends inside its levels")
}
