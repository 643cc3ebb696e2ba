//! Headers of pages, read without a value of theirs believed.

use bytes::Bytes;
use parquet::basic::Encoding;

use super::{FilePage, PageKind};
use crate::thrift::{BINARY, FALSE, I32, I64, STRUCT, TRUE, ThriftReader};

#[derive(Debug, Default)]
pub(super) struct PageHeader {
    pub(super) kind: Option<i32>,
    pub(super) uncompressed: Option<i32>,
    pub(super) compressed: Option<i32>,
    pub(super) values: Option<i32>,
    pub(super) encoding: Option<i32>,
    /// Of a version 1 page: the encodings of its repetition and definition levels.
    pub(super) level_encodings: (Option<i32>, Option<i32>),
    /// Of a version 2 page: bytes of its levels, which are never compressed, and whether the rest is.
    pub(super) levels: Option<u64>,
    pub(super) plain: bool,
    /// Of a version 2 page: bytes of its definition and of its repetition levels.
    pub(super) level_bytes: [Option<i32>; 2],
    /// Of a version 2 page: nulls and rows.
    pub(super) counts: [Option<i32>; 2],
    pub(super) checksum: Option<i32>,
    /// Whether there is something in it that no writer puts there, of which the parquet crate may think otherwise.
    pub(super) is_odd: bool,
}

impl PageHeader {
    /// The page that lies there; `None` if it has something that only the parquet crate makes sense of.
    pub(super) fn page(&self, at: u64, size: usize, body: Bytes) -> Option<FilePage> {
        let number = |number: Option<i32>| usize::try_from(number?).ok();
        let of_levels = |encoding: Option<i32>| matches!(encoding, Some(RLE | BIT_PACKED));
        let kind = match self.kind? {
            _ if self.is_odd => return None,
            DICTIONARY_PAGE if self.levels.is_none() => PageKind::Dictionary,
            DATA_PAGE if of_levels(self.level_encodings.0) && of_levels(self.level_encodings.1) => PageKind::First,
            DATA_PAGE_V2 => {
                let [definition, repetition] = self.level_bytes;
                let [nulls, rows] = self.counts;
                number(rows)?;
                PageKind::Second {
                    repetition_bytes: number(repetition)?,
                    definition_bytes: number(definition)?,
                    nulls: number(nulls)?,
                    is_plain: self.plain,
                }
            }
            _ => return None,
        };
        Some(FilePage {
            at,
            size,
            body,
            expanded: number(self.uncompressed)?,
            checksum: self.checksum.map(|checksum| checksum as u32),
            values: number(self.values)?,
            encoding: encoding(self.encoding?)?,
            kind,
            begins_group: false,
        })
    }
}

/// The number of the encoding that levels have in all but old files.
pub(super) const RLE: i32 = 3;
/// The one that they have in old files, and levels that are not there in some others.
const BIT_PACKED: i32 = 4;

pub(super) const DATA_PAGE: i32 = 0;
pub(super) const INDEX_PAGE: i32 = 1;
pub(super) const DICTIONARY_PAGE: i32 = 2;
pub(super) const DATA_PAGE_V2: i32 = 3;

pub(super) fn encoding(number: i32) -> Option<Encoding> {
    Some(match number {
        0 => Encoding::PLAIN,
        RLE => Encoding::RLE,
        5 => Encoding::DELTA_BINARY_PACKED,
        9 => Encoding::BYTE_STREAM_SPLIT,
        2 => Encoding::PLAIN_DICTIONARY,
        6 => Encoding::DELTA_LENGTH_BYTE_ARRAY,
        7 => Encoding::DELTA_BYTE_ARRAY,
        8 => Encoding::RLE_DICTIONARY,
        _ => return None,
    })
}

pub(super) fn read_header(reader: &mut ThriftReader<'_>) -> Option<PageHeader> {
    let mut header = PageHeader::default();
    let mut last = 0;
    loop {
        let before = last;
        let Some((kind, id)) = reader.field(&mut last)? else { return Some(header) };
        header.is_odd |= id <= before;
        match (id, kind) {
            (1, I32) => header.kind = Some(reader.i32()?),
            (2, I32) => header.uncompressed = Some(reader.i32()?),
            (3, I32) => header.compressed = Some(reader.i32()?),
            (4, I32) => header.checksum = Some(reader.i32()?),
            (5 | 7 | 8, STRUCT) => read_details(reader, id, &mut header)?,
            // The same id with another type would be read as something else by a parser that does not look.
            (1..=3 | 5 | 7 | 8, _) => return None,
            _ => {
                header.is_odd = true;
                reader.skip_value(kind)?;
            }
        }
    }
}

/// Reads the part of a header that belongs to one kind of page; only the part of the page's own kind counts.
fn read_details(reader: &mut ThriftReader<'_>, part: i16, header: &mut PageHeader) -> Option<()> {
    let mine = header.kind
        == Some(match part {
            5 => DATA_PAGE,
            7 => DICTIONARY_PAGE,
            _ => DATA_PAGE_V2,
        });
    let set = |number: &mut Option<i32>, found: i32| {
        if mine {
            *number = Some(found);
        }
    };
    header.is_odd |= !mine;
    let encoding_id = if part == 8 { 4 } else { 2 };
    let mut levels = 0u64;
    let mut last = 0;
    loop {
        let before = last;
        let Some((kind, id)) = reader.field(&mut last)? else { break };
        header.is_odd |= id <= before;
        match (id, kind) {
            (1, I32) => set(&mut header.values, reader.i32()?),
            (id, I32) if id == encoding_id => set(&mut header.encoding, reader.i32()?),
            (3, I32) if part == 5 => set(&mut header.level_encodings.1, reader.i32()?),
            (4, I32) if part == 5 => set(&mut header.level_encodings.0, reader.i32()?),
            (5 | 6, I32) if part == 8 => {
                let bytes = reader.i32()?;
                header.level_bytes[id as usize - 5] = Some(bytes);
                levels += u64::try_from(bytes).ok()?;
            }
            (2 | 3, I32) if part == 8 => header.counts[id as usize - 2] = Some(reader.i32()?),
            (7, FALSE) if part == 8 => header.plain = true,
            (7, TRUE) if part == 8 => header.plain = false,
            // Whether a dictionary is sorted.
            (3, TRUE | FALSE) if part == 7 => {}
            (5, STRUCT) if part == 5 => header.is_odd |= !are_statistics(reader)?,
            (8, STRUCT) if part == 8 => header.is_odd |= !are_statistics(reader)?,
            (1, _) => return None,
            (id, _) if id == encoding_id => return None,
            _ => {
                header.is_odd = true;
                reader.skip_value(kind)?;
            }
        }
    }
    if part == 8 {
        // The decoder heeds these whatever kind of page it is.
        header.levels = Some(levels);
    }
    Some(())
}

/// Passes by a structure, and says whether it has nothing but what statistics have.
fn are_statistics(reader: &mut ThriftReader<'_>) -> Option<bool> {
    let mut last = 0;
    let mut are = true;
    loop {
        let before = last;
        let Some((kind, id)) = reader.field(&mut last)? else { return Some(are) };
        are &= id > before && matches!((id, kind), (1 | 2 | 5 | 6, BINARY) | (3 | 4 | 9, I64) | (7 | 8, TRUE | FALSE));
        reader.skip_value(kind)?;
    }
}
