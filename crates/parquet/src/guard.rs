//! Looks at pages before they are decoded, so that no page can make the decoder allocate more than the limit.
//!
//! The decoder trusts what a page says of itself: it reserves the declared size before it decompresses, lets gzip and
//! brotli expand as far as they like, and sizes its buffers by counts inside the page. A page of a hundred bytes can
//! ask for gigabytes in each of these ways, and an allocation that fails ends the process. So the same numbers are
//! read here first.

use std::borrow::Cow;
use std::io::{self, Read};

use bytes::Bytes;
use parquet::basic::{Compression, Encoding};

use super::direct::delta::spelled_out;
use super::errors::{invalid, too_large, unsupported};
use super::newer::Undecodable;
use super::thrift::{BINARY, FALSE, I32, I64, STRUCT, TRUE, ThriftReader};
use super::unpack::{self, Unpacker};
use rowdex_base::error::{Error, Result};

/// What the pages of one column chunk add up to.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Tally {
    /// Values of the data pages, nulls included.
    pub(super) values: u64,
    /// Rows that begin in the data pages whose headers say so.
    rows: u64,
    /// Whether there are others: pages of version 1 of a column with lists.
    has_untold_rows: bool,
    /// Uncompressed bytes of the data pages.
    pub(super) data: u64,
    /// Uncompressed bytes of the dictionary page.
    pub(super) dictionary: u64,
    /// Values in the dictionary page.
    pub(super) dictionary_values: u64,
    /// Values of the pages that refer to the dictionary.
    pub(super) referring: u64,
    /// Bytes that the values of prefix-shortened (`DELTA_BYTE_ARRAY`) pages have when spelled out.
    pub(super) spelled_out: u64,
    /// Uncompressed bytes of the largest page.
    pub(super) largest: u64,
    /// Encodings of the data pages, a bit for each by its number.
    encodings: u16,
    /// Whether these are all of its pages.
    pub(super) is_whole: bool,
    /// Whether some page has levels, or values, of an encoding without a name here.
    pub(super) has_rare: bool,
}

impl Tally {
    /// Rows that begin in the data pages, if their headers say so.
    pub(super) fn rows(&self) -> Option<u64> {
        (!self.has_untold_rows).then_some(self.rows)
    }

    /// The encodings of the data pages.
    pub(super) fn encodings(&self) -> impl Iterator<Item = Encoding> {
        (0..16).filter(|number| self.encodings & (1 << number) != 0).filter_map(encoding)
    }

    /// Whether some data pages refer to the dictionary and others do not.
    pub(super) fn is_mixed(&self) -> bool {
        self.referring > 0 && self.referring < self.values
    }
}

/// Says which column chunk is walked.
#[derive(Debug, Clone, Copy)]
pub(super) struct WalkedChunk {
    pub(super) compression: Compression,
    /// Values of the chunk according to the footer: what follows them is not read by the decoder.
    pub(super) values: u64,
    /// Highest repetition and definition level, which say how the levels of a page are laid out.
    pub(super) max_levels: (i16, i16),
    /// Whether its values are booleans, which no dictionary has. What a footer says of encodings is not relied on: old
    /// writers list a dictionary's for every column.
    pub(super) has_booleans: bool,
    /// No page may expand to more bytes than this.
    pub(super) page_limit: u64,
    /// All pages together may not expand to more than this.
    pub(super) limit: u64,
}

impl WalkedChunk {
    fn page_too_large(&self, bytes: u64) -> Error {
        let limit = self.page_limit;
        too_large(format!("a page expands to {bytes} bytes, more than the {limit} allowed"))
    }
}

/// A page of a file, as its header describes it.
#[derive(Debug)]
pub(super) struct FilePage {
    /// Where it begins in the file.
    pub(super) at: u64,
    /// Bytes of its header and of what follows that.
    pub(super) size: usize,
    /// What follows its header.
    pub(super) body: Bytes,
    /// How many bytes that has when decompressed.
    pub(super) expanded: usize,
    pub(super) checksum: Option<u32>,
    /// Nulls and lists without items included.
    pub(super) values: usize,
    pub(super) encoding: Encoding,
    pub(super) kind: PageKind,
    /// Whether it is the first page of another row group than the page before.
    pub(super) begins_group: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum PageKind {
    Dictionary,
    /// Its levels are compressed with its values, each kind of them behind its length.
    First,
    /// Its levels come first and are not compressed.
    Second {
        repetition_bytes: usize,
        definition_bytes: usize,
        nulls: usize,
        /// Whether its values are not compressed, whatever the codec of its column chunk.
        is_plain: bool,
    },
}

/// Checks the pages that lie one behind the other in `bytes`, which begin at this place of the file, adds them to
/// `tally`, and notes them.
pub(super) fn walk(
    start: u64,
    bytes: &Bytes,
    chunk: &WalkedChunk,
    tally: &mut Tally,
    found: &mut Vec<FilePage>,
) -> Result<()> {
    let mut at = 0;
    while at < bytes.len() {
        let mut reader = ThriftReader::new(&bytes[at..]);
        let Some(header) = read_header(&mut reader) else {
            // Some writers pad a chunk. The decoder stops when it has all values and never sees the padding.
            if tally.values >= chunk.values {
                return Ok(());
            }
            return Err(invalid("a page header is damaged"));
        };
        let body = at + reader.at();
        let sizes = header.compressed.zip(header.uncompressed);
        let sizes = sizes.and_then(|(a, b)| Some((usize::try_from(a).ok()?, u64::try_from(b).ok()?)));
        let Some((compressed, uncompressed)) = sizes.filter(|(compressed, _)| *compressed <= bytes.len() - body) else {
            if tally.values >= chunk.values {
                return Ok(());
            }
            return Err(invalid("a page declares a size that does not fit into its column chunk"));
        };
        page(&header, &bytes[body..body + compressed], uncompressed, chunk, tally)?;
        // An index page says nothing of values.
        if header.kind != Some(INDEX_PAGE) {
            let size = body + compressed - at;
            match header.page(start + at as u64, size, bytes.slice(body..body + compressed)) {
                Some(page) => found.push(page),
                None => tally.has_rare = true,
            }
        }
        at = body + compressed;
    }
    Ok(())
}

fn page(header: &PageHeader, body: &[u8], uncompressed: u64, chunk: &WalkedChunk, tally: &mut Tally) -> Result<()> {
    let Some(kind @ (DATA_PAGE | DICTIONARY_PAGE | DATA_PAGE_V2)) = header.kind else { return Ok(()) };
    if let Some(unknown) = header.encoding.and_then(Undecodable::encoding) {
        return Err(unknown.error().with_hint("choose other `columns`"));
    }
    if uncompressed > chunk.page_limit {
        return Err(chunk.page_too_large(uncompressed));
    }
    let values = u64::try_from(header.values.unwrap_or(-1))
        .map_err(|_| invalid("a page does not say how many values it has"))?;
    let levels = header.levels.unwrap_or(0);
    if levels > uncompressed || levels > body.len() as u64 {
        return Err(invalid("a page declares more bytes of levels than it has"));
    }
    let (levels, packed) = body.split_at(levels as usize);
    let packed_size = uncompressed - levels.len() as u64;
    if !header.plain && packed_size > 0 {
        bound(packed, packed_size, chunk)?;
    }
    tally.largest = tally.largest.max(uncompressed);
    if kind == DICTIONARY_PAGE {
        tally.dictionary += uncompressed;
        tally.dictionary_values += values;
    } else {
        tally.values += values;
        let rows = rows_of(header, values, chunk)?;
        tally.rows = tally.rows.saturating_add(rows.unwrap_or(0));
        tally.has_untold_rows |= rows.is_none();
        tally.data += uncompressed;
        values_of(header, values, packed, packed_size, chunk, tally)?;
    }
    let total = tally.data.saturating_add(tally.dictionary);
    if total > chunk.limit {
        return Err(too_large(format!("its pages expand to more than the {} bytes allowed", chunk.limit)));
    }
    Ok(())
}

/// Counts what the values of a page with data take, which follow its levels in `packed`, of so many bytes when it is
/// decompressed.
fn values_of(
    header: &PageHeader,
    values: u64,
    packed: &[u8],
    packed_size: u64,
    chunk: &WalkedChunk,
    tally: &mut Tally,
) -> Result<()> {
    let encoding = header.encoding.and_then(encoding);
    let levels = [(chunk.max_levels.0, header.level_encodings.0), (chunk.max_levels.1, header.level_encodings.1)];
    let is_v1 = header.kind == Some(DATA_PAGE);
    let rare = |(highest, encoding): (i16, Option<i32>)| is_v1 && highest > 0 && encoding != Some(RLE);
    tally.has_rare |= encoding.is_none() || levels.into_iter().any(rare);
    tally.encodings |= header.encoding.and_then(|number| 1_u16.checked_shl(number.try_into().ok()?)).unwrap_or(0);
    match encoding {
        Some(Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY) if chunk.has_booleans => {
            return Err(invalid("a page of booleans refers to a dictionary, which has none"));
        }
        Some(Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY) => tally.referring += values,
        Some(Encoding::DELTA_LENGTH_BYTE_ARRAY | Encoding::DELTA_BYTE_ARRAY) => {
            let prefixed = encoding == Some(Encoding::DELTA_BYTE_ARRAY);
            // Their lengths are kept until all are met.
            if values.saturating_mul(4) > chunk.page_limit {
                return Err(chunk.page_too_large(values.saturating_mul(4)));
            }
            let plain = expand(packed, packed_size, header.plain, chunk)?;
            let data = if header.levels.is_some() { Some(&*plain) } else { after_levels(&plain, chunk) };
            let data = data.ok_or_else(|| invalid("a page ends inside its levels"))?;
            tally.spelled_out += spelled_out(data, values, prefixed)
                .ok_or_else(|| invalid("the lengths of a delta-encoded page do not make sense"))?;
        }
        _ => {}
    }
    Ok(())
}

/// How many rows begin in a page with data, if that can be known from its header.
fn rows_of(header: &PageHeader, values: u64, chunk: &WalkedChunk) -> Result<Option<u64>> {
    let has_lists = chunk.max_levels.0 > 0;
    if header.kind != Some(DATA_PAGE_V2) {
        return Ok((!has_lists).then_some(values));
    }
    let [nulls, rows] = header.counts.map(|count| u64::try_from(count.unwrap_or(-1)).unwrap_or(u64::MAX));
    if nulls > values || rows > values || (!has_lists && rows != values) {
        let counts = header.counts.map(Option::unwrap_or_default);
        let message = format!("a page declares {} rows and {} nulls among {values} values", counts[1], counts[0]);
        return Err(invalid(message));
    }
    Ok(Some(rows))
}

/// Makes sure that decompressing cannot pass the size that the page declares.
///
/// snappy, lz4 and zstd write into a buffer of the declared size and stop there. The rest are run once to see how far
/// they go, without keeping what comes out.
fn bound(packed: &[u8], declared: u64, chunk: &WalkedChunk) -> Result<()> {
    /// No byte of deflate stands for more than this many.
    const GZIP_RATIO: u64 = 1032;
    let stream: Box<dyn Read + '_> = match chunk.compression {
        Compression::GZIP(_) if (packed.len() as u64).saturating_mul(GZIP_RATIO) > chunk.page_limit.max(declared) => {
            Box::new(flate2::read::MultiGzDecoder::new(packed))
        }
        Compression::BROTLI(_) => Box::new(brotli::Decompressor::new(packed, 1 << 16)),
        // This codec's name covers three layouts; the one with frames is the one that has no end given.
        Compression::LZ4 if packed.starts_with(&[0x04, 0x22, 0x4d, 0x18]) => {
            Box::new(lz4_flex::frame::FrameDecoder::new(packed))
        }
        _ => return Ok(()),
    };
    let length = io::copy(&mut stream.take(declared.saturating_add(1)), &mut io::sink()).map_err(packed_wrong)?;
    if length > declared {
        return Err(too_large(format!("a page expands to more than the {declared} bytes it declares")));
    }
    Ok(())
}

fn packed_wrong(error: io::Error) -> Error {
    invalid(format!("a page cannot be decompressed: {error}"))
}

/// Decompresses a page, to no more than the size it declares.
fn expand<'a>(packed: &'a [u8], declared: u64, plain: bool, chunk: &WalkedChunk) -> Result<Cow<'a, [u8]>> {
    if plain || chunk.compression == Compression::UNCOMPRESSED {
        return Ok(packed.into());
    }
    if !unpack::knows(chunk.compression) {
        return Err(unsupported(format!("delta-encoded strings compressed as {}", chunk.compression)));
    }
    let mut out = Vec::new();
    Unpacker::default().unpack(chunk.compression, packed, declared as usize, &mut out).map_err(packed_wrong)?;
    Ok(out.into())
}

/// What follows the levels of a version 1 page, each kind of which is preceded by its length.
fn after_levels<'a>(mut page: &'a [u8], chunk: &WalkedChunk) -> Option<&'a [u8]> {
    for level in [chunk.max_levels.0, chunk.max_levels.1] {
        if level > 0 {
            let (length, rest) = page.split_first_chunk::<4>()?;
            page = rest.get(u32::from_le_bytes(*length) as usize..)?;
        }
    }
    Some(page)
}

/// A header, read without a value of its own believed.
#[derive(Debug, Default)]
struct PageHeader {
    kind: Option<i32>,
    uncompressed: Option<i32>,
    compressed: Option<i32>,
    values: Option<i32>,
    encoding: Option<i32>,
    /// Of a version 1 page: the encodings of its repetition and definition levels.
    level_encodings: (Option<i32>, Option<i32>),
    /// Of a version 2 page: bytes of its levels, which are never compressed, and whether the rest is.
    levels: Option<u64>,
    plain: bool,
    /// Of a version 2 page: bytes of its definition and of its repetition levels.
    level_bytes: [Option<i32>; 2],
    /// Of a version 2 page: nulls and rows.
    counts: [Option<i32>; 2],
    checksum: Option<i32>,
    /// Whether there is something in it that no writer puts there, of which the parquet crate may think otherwise.
    is_odd: bool,
}

impl PageHeader {
    /// The page that lies there; `None` if it has something that only the parquet crate makes sense of.
    fn page(&self, at: u64, size: usize, body: Bytes) -> Option<FilePage> {
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
const RLE: i32 = 3;
/// The one that they have in old files, and levels that are not there in some others.
const BIT_PACKED: i32 = 4;

const DATA_PAGE: i32 = 0;
const INDEX_PAGE: i32 = 1;
const DICTIONARY_PAGE: i32 = 2;
const DATA_PAGE_V2: i32 = 3;

fn encoding(number: i32) -> Option<Encoding> {
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

fn read_header(reader: &mut ThriftReader<'_>) -> Option<PageHeader> {
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
