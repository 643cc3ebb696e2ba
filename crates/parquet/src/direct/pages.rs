//! The pages of one column chunk, decompressed one at a time.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use flate2::Crc;
use parquet::basic::{Compression, Encoding};
use parquet::errors::ParquetError;
use parquet::file::page_index::offset_index::PageLocation;

use super::damaged;
use crate::caught;
use crate::chunks::ColumnChunk;
use crate::guard::{FilePage, PageKind};
use crate::unpack::{self, Unpacker};
use rowdex_base::buffers;
use rowdex_base::error::{Error, Result};

/// Pages of at most so many bytes are decompressed to memory that several share, because the allocator takes as long as
/// they do.
const SMALL: usize = 8 << 10;
/// Bytes of such memory.
const TOGETHER: usize = 32 << 10;

/// The pages of a column chunk, from front to back.
pub(super) struct ColumnPages {
    /// Those that are at hand, by their place in the file.
    pages: Arc<[FilePage]>,
    next: PageSequence,
    unpacking: Unpacking,
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

/// What pages are decompressed with, and to.
struct Unpacking {
    compression: Compression,
    unpacker: Rc<RefCell<Unpacker>>,
    /// Memory for small pages, of which several lie one behind the other.
    small: BytesMut,
}

/// Which page comes next.
enum PageSequence {
    /// They lie one after the other, and all are at hand.
    InOrder(usize),
    /// The file says where they are, so that each begins with a row.
    Located {
        /// Where the dictionary is, until it was passed.
        dictionary: Option<u64>,
        locations: VecDeque<PageLocation>,
        /// Rows of the row group.
        rows: usize,
    },
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
    /// The pages of a column of a row group with `rows` rows, as far as they are at hand.
    pub(super) fn new(
        column: ColumnChunk<'_>,
        pages: Arc<[FilePage]>,
        unpacker: Rc<RefCell<Unpacker>>,
        rows: usize,
        locations: Option<Vec<PageLocation>>,
        may_skip: bool,
    ) -> Self {
        let start = column.byte_range().0;
        let next = match locations {
            None => PageSequence::InOrder(0),
            Some(locations) => {
                // What lies in front of the first page is a dictionary.
                let has_dictionary = locations.first().is_some_and(|first| first.offset.unsigned_abs() != start);
                PageSequence::Located { dictionary: has_dictionary.then_some(start), locations: locations.into(), rows }
            }
        };
        let descriptor = column.column_descr();
        let levels = (descriptor.max_rep_level(), descriptor.max_def_level());
        let unpacking = Unpacking { compression: column.compression(), unpacker, small: BytesMut::new() };
        let left = column.num_values().unsigned_abs();
        Self { pages, next, unpacking, levels, may_skip, left, is_group_told: false }
    }

    /// Says that the pages of the same column of another row group follow.
    pub(super) fn go_on(&mut self, column: ColumnChunk<'_>) {
        self.left = self.left.saturating_add(column.num_values().unsigned_abs());
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
        match self.next {
            PageSequence::InOrder(next) => self.pages.get(next),
            PageSequence::Located { .. } => None,
        }
    }

    /// Whether the next page begins with a row, as far as can be known before it is read.
    pub(super) fn is_row_next(&self) -> bool {
        // In version 2, which counts rows, no page begins inside of one.
        self.following().is_none_or(|page| matches!(page.kind, PageKind::Second { .. }))
    }

    /// Whether the next page is a dictionary.
    pub(super) fn is_dictionary_next(&self) -> bool {
        match &self.next {
            PageSequence::InOrder(_) => self.following().is_some_and(|page| matches!(page.kind, PageKind::Dictionary)),
            PageSequence::Located { dictionary, .. } => dictionary.is_some(),
        }
    }

    /// How many rows the next page has, if it has data, begins with a row, and may be passed by unseen.
    pub(super) fn rows_next(&self) -> Option<usize> {
        if self.may_skip { self.rows_told() } else { None }
    }

    /// How many rows the next page has, if it has data and begins with a row, as far as can be known before it is read.
    fn rows_told(&self) -> Option<usize> {
        match &self.next {
            PageSequence::InOrder(_) => {
                let head = self.following()?;
                // Without lists a value is a row, and their sum was compared with the footer. A count of lists was not,
                // and if it were wrong, all rows behind would be others; so lists are counted where they are.
                let is_told = self.levels.0 == 0 && !matches!(head.kind, PageKind::Dictionary);
                is_told.then_some(head.values)
            }
            PageSequence::Located { dictionary: Some(_), .. } => None,
            PageSequence::Located { dictionary: None, locations, rows } => {
                let first = |location: &PageLocation| usize::try_from(location.first_row_index).ok();
                let end = locations.get(1).map_or(Some(*rows), first);
                end?.checked_sub(first(locations.front()?)?)
            }
        }
    }

    /// Passes by the next page without looking into it.
    pub(super) fn skip_page(&mut self) {
        let entries = self.following().map_or(0, |page| page.values);
        self.left = self.left.saturating_sub(entries as u64);
        match &mut self.next {
            PageSequence::InOrder(next) => *next += 1,
            PageSequence::Located { dictionary, locations, .. } => {
                if dictionary.take().is_none() {
                    locations.pop_front();
                }
            }
        }
    }

    /// The place of the next page among those at hand, which is then passed; `None` behind the last one.
    fn pass(&mut self) -> Result<Option<usize>> {
        let (at, size) = match &mut self.next {
            PageSequence::InOrder(next) => {
                *next += 1;
                return Ok(Some(*next - 1).filter(|next| *next < self.pages.len()));
            }
            PageSequence::Located { dictionary, locations, .. } => match dictionary.take() {
                Some(at) => (at, None),
                None => match locations.pop_front() {
                    Some(location) => {
                        (location.offset.unsigned_abs(), usize::try_from(location.compressed_page_size).ok())
                    }
                    None => return Ok(None),
                },
            },
        };
        let found = self.pages.binary_search_by_key(&at, |page| page.at).ok();
        let fits = |place: &usize| {
            let page = self.pages.get(*place);
            size.is_none_or(|size| page.is_some_and(|page| page.size == size))
        };
        match found.filter(fits) {
            Some(place) => Ok(Some(place)),
            None => Err(damaged("has another page where its index says that there is one")),
        }
    }

    /// The next page; `None` behind the last one.
    pub(super) fn next(&mut self) -> Result<Option<PageStep>> {
        let begins_group = self.following().is_some_and(|page| page.begins_group);
        self.is_group_told = begins_group && !self.is_group_told;
        if self.is_group_told {
            return Ok(Some(PageStep::Group));
        }
        let rows = if matches!(self.next, PageSequence::Located { .. }) { self.rows_told() } else { None };
        let Some(place) = self.pass()? else { return Ok(None) };
        let Some(head) = self.pages.get(place) else { return Ok(None) };
        let body = &head.body;
        if head.checksum.is_some_and(|checksum| checksum != sum(body)) {
            return caught("the row group", || Err(ParquetError::General("Page CRC checksum mismatch".into())));
        }
        let mut rest = body.clone();
        let behind = &self.pages[place..];
        let page = match head.kind {
            PageKind::Dictionary => {
                if !matches!(head.encoding, Encoding::PLAIN | Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY) {
                    return Err(damaged(format!("has a dictionary encoded as {}", head.encoding)));
                }
                let values = self.unpacking.unpacked(rest, head.expanded, false, behind)?;
                return Ok(Some(PageStep::Dictionary(values, head.values)));
            }
            PageKind::First => {
                let mut rest = self.unpacking.unpacked(rest, head.expanded, false, behind)?;
                // Columns with levels of other encodings are left to the parquet crate.
                let repetition = levels(&mut rest, self.levels.0, Encoding::RLE)?;
                let definition = levels(&mut rest, self.levels.1, Encoding::RLE)?;
                DataPage {
                    entries: head.values,
                    repetition,
                    definition,
                    values: rest,
                    encoding: head.encoding,
                    most_values: head.values,
                    rows,
                }
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
                DataPage {
                    entries: head.values,
                    repetition,
                    definition,
                    values: self.unpacking.unpacked(rest, expanded, is_plain, behind)?,
                    encoding: head.encoding,
                    most_values,
                    rows,
                }
            }
        };
        self.left = self.left.saturating_sub(page.entries as u64);
        Ok(Some(PageStep::Data(page)))
    }
}

impl Unpacking {
    /// What is in a page, which has so many bytes then. `pages` begins with this page.
    fn unpacked(&mut self, packed: Bytes, size: usize, is_plain: bool, pages: &[FilePage]) -> Result<Bytes> {
        if is_plain || self.compression == Compression::UNCOMPRESSED {
            return Ok(packed);
        }
        if size == 0 {
            // No value is there, and writers differ in what they make of that.
            return Ok(Bytes::new());
        }
        if size <= SMALL && unpack::knows_length(self.compression) {
            return self.unpacked_small(&packed, size, pages);
        }
        let buffers = buffers::current();
        let mut page = buffers.as_ref().map_or_else(Vec::new, |buffers| buffers.take_any(size));
        self.step(|unpacker, compression| unpacker.unpack(compression, &packed, size, &mut page))?;
        check_length(page.len(), size)?;
        Ok(match buffers {
            Some(buffers) => buffers.lend(page),
            None => page.into(),
        })
    }

    fn unpacked_small(&mut self, packed: &[u8], size: usize, pages: &[FilePage]) -> Result<Bytes> {
        if self.small.capacity() < size {
            let mut room = 0;
            let sizes = pages.iter().map(|page| page.expanded).filter(|size| *size <= SMALL);
            sizes
                .take_while(|size| {
                    room += size;
                    room <= TOGETHER
                })
                .for_each(drop);
            self.small = BytesMut::with_capacity(room.clamp(size, TOGETHER));
        }
        self.small.resize(size, 0);
        let mut page = self.small.split();
        let length = self.step(|unpacker, compression| unpacker.unpack_to(compression, packed, &mut page))?;
        check_length(length, size)?;
        Ok(page.freeze())
    }

    fn step<T>(&self, step: impl FnOnce(&mut Unpacker, Compression) -> io::Result<T>) -> Result<T> {
        caught("the row group", || {
            let done = step(&mut self.unpacker.borrow_mut(), self.compression);
            done.map_err(|error| ParquetError::External(error.into()))
        })
    }
}

fn check_length(length: usize, size: usize) -> Result<()> {
    if length == size {
        return Ok(());
    }
    Err(damaged(format!("has a page of {length} bytes where its header says {size}")))
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
