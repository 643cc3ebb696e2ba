//! The pages of one column chunk, decompressed one at a time.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use parquet::basic::Encoding;
use parquet::column::page::{Page, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::page_index::offset_index::PageLocation;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;

use super::damaged;
use crate::Result;
use crate::row_group::caught;

/// The pages of a column chunk, from front to back.
pub(super) struct ColumnPages {
    reader: SerializedPageReader<ChunkBytes>,
    /// Highest repetition and definition level.
    levels: (i16, i16),
    /// Whether the file says where its pages are, so that each begins with a row.
    is_located: bool,
    /// Whether pages may be passed by unseen. Their headers may say other things than is in them, and where all pages
    /// are at hand that is found out.
    may_skip: bool,
    /// Entries that were not met yet, according to the footer.
    left: u64,
}

/// What comes next in a column chunk.
pub(super) enum Step {
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
    /// The pages of a column of a row group with `rows` rows, as far as their bytes are in `pieces`, whose ranges of
    /// the file are sorted.
    pub(super) fn new(
        column: &ColumnChunkMetaData,
        pieces: Vec<(Range<u64>, Bytes)>,
        rows: usize,
        locations: Option<Vec<PageLocation>>,
        may_skip: bool,
    ) -> Result<Self> {
        let is_located = locations.is_some();
        let reader = caught("the row group", || {
            SerializedPageReader::new(Arc::new(ChunkBytes { pieces }), column, rows, locations)
        })?;
        let descriptor = column.column_descr();
        let levels = (descriptor.max_rep_level(), descriptor.max_def_level());
        Ok(Self { reader, levels, is_located, may_skip, left: column.num_values().unsigned_abs() })
    }

    /// Whether there are more entries, according to the footer.
    pub(super) fn has_more(&self) -> bool {
        self.left > 0
    }

    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// Whether the next page begins with a row, as far as can be known before it is read.
    pub(super) fn is_row_next(&mut self) -> Result<bool> {
        if self.is_located {
            return Ok(true);
        }
        let next = caught("the row group", || self.reader.peek_next_page())?;
        // In version 2, which counts rows, no page begins inside of one.
        Ok(next.is_none_or(|page| page.num_rows.is_some()))
    }

    /// Whether the next page is a dictionary.
    pub(super) fn is_dictionary_next(&mut self) -> Result<bool> {
        Ok(caught("the row group", || self.reader.peek_next_page())?.is_some_and(|page| page.is_dict))
    }

    /// How many rows the next page has, if it has data, begins with a row, and may be passed by unseen.
    pub(super) fn rows_next(&mut self) -> Result<Option<usize>> {
        if self.may_skip { self.rows_told() } else { Ok(None) }
    }

    /// How many rows the next page has, if it has data and begins with a row, as far as can be known before it is read.
    fn rows_told(&mut self) -> Result<Option<usize>> {
        let next = caught("the row group", || self.reader.peek_next_page())?;
        let flat = self.levels.0 == 0;
        Ok(next.filter(|page| !page.is_dict).and_then(|page| page.num_rows.or(page.num_levels.filter(|_| flat))))
    }

    /// Passes by the next page without looking into it.
    pub(super) fn skip_page(&mut self) -> Result<()> {
        caught("the row group", || {
            let entries = self.reader.peek_next_page()?.and_then(|page| page.num_levels).unwrap_or(0);
            self.left = self.left.saturating_sub(entries as u64);
            self.reader.skip_next_page()
        })
    }

    /// The next page; `None` behind the last one.
    pub(super) fn next(&mut self) -> Result<Option<Step>> {
        let rows = if self.is_located { self.rows_told()? } else { None };
        let Some(page) = caught("the row group", || self.reader.get_next_page())? else { return Ok(None) };
        let page = match page {
            Page::DictionaryPage { buf, num_values, encoding, .. } => {
                if !matches!(encoding, Encoding::PLAIN | Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY) {
                    return Err(damaged(format!("has a dictionary encoded as {encoding}")));
                }
                return Ok(Some(Step::Dictionary(buf, num_values as usize)));
            }
            Page::DataPage { buf, num_values, encoding, def_level_encoding, rep_level_encoding, .. } => {
                let mut rest = buf;
                let repetition = levels(&mut rest, self.levels.0, rep_level_encoding)?;
                let definition = levels(&mut rest, self.levels.1, def_level_encoding)?;
                let entries = num_values as usize;
                DataPage { entries, repetition, definition, values: rest, encoding, most_values: entries, rows }
            }
            Page::DataPageV2 {
                buf, num_values, encoding, num_nulls, def_levels_byte_len, rep_levels_byte_len, ..
            } => {
                let mut rest = buf;
                let repetition = cut(&mut rest, rep_levels_byte_len as usize)?;
                let definition = cut(&mut rest, def_levels_byte_len as usize)?;
                let most_values = num_values
                    .checked_sub(num_nulls)
                    .ok_or_else(|| damaged(format!("has {num_nulls} nulls in a page of {num_values} values")))?;
                DataPage {
                    entries: num_values as usize,
                    repetition,
                    definition,
                    values: rest,
                    encoding,
                    most_values: most_values as usize,
                    rows,
                }
            }
        };
        self.left = self.left.saturating_sub(page.entries as u64);
        Ok(Some(Step::Data(page)))
    }
}

/// Takes the levels off the front of a page of version 1.
pub(super) fn levels(page: &mut Bytes, highest: i16, encoding: Encoding) -> Result<Bytes> {
    if highest == 0 {
        return Ok(Bytes::new());
    }
    if encoding != Encoding::RLE {
        return Err(damaged(format!("has levels encoded as {encoding}")));
    }
    let length = cut(page, 4)?.try_get_u32_le().unwrap_or(0);
    cut(page, length as usize)
}

pub(super) fn cut(page: &mut Bytes, length: usize) -> Result<Bytes> {
    if length > page.len() {
        return Err(damaged("has a page that ends inside its levels"));
    }
    Ok(page.split_to(length))
}

/// The bytes of a column chunk that are at hand, each with its place in the file.
struct ChunkBytes {
    pieces: Vec<(Range<u64>, Bytes)>,
}

impl ChunkBytes {
    /// The bytes from a place on, as far as they are at hand.
    fn from(&self, at: u64) -> Result<Bytes, ParquetError> {
        let next = self.pieces.partition_point(|(range, _)| range.start <= at);
        let piece = next.checked_sub(1).and_then(|place| self.pieces.get(place));
        let (range, bytes) = piece.ok_or_else(|| ParquetError::EOF("a page outside its column chunk".into()))?;
        let offset = usize::try_from(at - range.start).ok().filter(|offset| *offset <= bytes.len());
        let offset = offset.ok_or_else(|| ParquetError::EOF("a page outside its column chunk".into()))?;
        Ok(bytes.slice(offset..))
    }
}

impl Length for ChunkBytes {
    fn len(&self) -> u64 {
        self.pieces.last().map_or(0, |(range, _)| range.end)
    }
}

impl ChunkReader for ChunkBytes {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(self.from(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let mut bytes = self.from(start)?;
        if length > bytes.len() {
            return Err(ParquetError::EOF("a page goes beyond its column chunk".into()));
        }
        Ok(bytes.split_to(length))
    }
}
