//! The envelope of an index file: header, sections, section table, trailer; see `docs/format.md`.
//!
//! Everything in here reads bytes that may be damaged or hostile. The envelope answers one question, "are these the
//! bytes that were written?", and hands out sections by id; what the sections mean is the business of `contents`.

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

use std::marker::PhantomData;

use bytes::Bytes;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::stored::{IndexBytes, MOST_READ, invalid};
use rowdex_base::error::{Error, ErrorKind, Result};

/// A non-ASCII byte catches 7-bit transfers, CR LF and LF catch newline translation, 0x1A stops a DOS `type`.
pub(crate) const MAGIC: [u8; 8] = *b"\x89RDX\r\n\x1a\n";
pub(crate) const MAJOR: u16 = 1;
/// The minor version of an index that has lengths.
const MINOR_LENGTHS: u16 = 1;
/// The minor version of an index that has digests of rows, which are passed over and no longer written.
const MINOR_DIGESTS: u16 = 2;
pub(crate) const ALIGNMENT: u64 = 64;
/// Keeps the search for a section, and for a repeated one, short whatever the file says.
const MAX_SECTIONS: usize = 256;

/// A reader that does not know this section must refuse the file.
pub(crate) const CRITICAL: u32 = 1;
/// The hash of this section is checked by `verify`, not when the file is opened.
pub(crate) const DEFERRED: u32 = 2;

/// Section ids. An id that was ever released is never given another meaning.
pub(crate) mod id {
    pub(crate) const META: u32 = 1;
    pub(crate) const STRINGS: u32 = 2;
    pub(crate) const FILES: u32 = 3;
    pub(crate) const ROW_GROUPS: u32 = 4;
    pub(crate) const GUIDE: u32 = 5;
    pub(crate) const SCHEMA: u32 = 6;
    pub(crate) const PARTITIONS: u32 = 7;
    pub(crate) const BUILD_INFO: u32 = 8;
    pub(crate) const ROOT: u32 = 9;
    pub(crate) const FOOTERS: u32 = 10;
    pub(crate) const ROW_SETS: u32 = 11;
    pub(crate) const ROW_SET_DATA: u32 = 12;
    pub(crate) const RENAMES: u32 = 13;
    pub(crate) const LENGTHS: u32 = 14;
    pub(crate) const DIGESTS: u32 = 15;
}

/// The minor version of an index with these sections: the first whose readers know all of them.
pub(crate) fn minor(sections: &[SectionRecord]) -> u16 {
    let of_section = |section: &SectionRecord| match section.id.get() {
        id::DIGESTS => MINOR_DIGESTS,
        id::LENGTHS => MINOR_LENGTHS,
        _ => 0,
    };
    sections.iter().map(of_section).max().unwrap_or(0)
}

/// What the sections of this version are called in messages; `None` for a section that this version does not know.
pub(crate) fn section_name(id: u32) -> Option<&'static str> {
    const NAMES: [&str; 15] = [
        "META",
        "STRINGS",
        "FILES",
        "ROW_GROUPS",
        "GUIDE",
        "SCHEMA",
        "PARTITIONS",
        "BUILD_INFO",
        "ROOT",
        "FOOTERS",
        "ROW_SETS",
        "ROW_SET_DATA",
        "RENAMES",
        "LENGTHS",
        "DIGESTS",
    ];
    NAMES.get(id.checked_sub(id::META)? as usize).copied()
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct IndexHeader {
    pub(crate) magic: [u8; 8],
    pub(crate) major: U16,
    pub(crate) minor: U16,
    pub(crate) header_len: U32,
    pub(crate) file_len: U64,
    pub(crate) table_offset: U64,
    pub(crate) table_count: U32,
    pub(crate) table_entry_size: U32,
    /// A reader refuses the file when it does not know one of these bits.
    pub(crate) incompatible: U32,
    /// A reader ignores the bits that it does not know.
    pub(crate) compatible: U32,
    pub(crate) table_hash: U64,
    /// Over the bytes of the header before this field.
    pub(crate) header_hash: U64,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct SectionRecord {
    pub id: U32,
    pub(crate) flags: U32,
    pub offset: U64,
    pub length: U64,
    pub(crate) element_size: U32,
    pub reserved: U32,
    pub hash: U64,
}

impl SectionRecord {
    fn name(&self) -> String {
        let id = self.id.get();
        section_name(id).map_or_else(|| format!("section {id}"), str::to_owned)
    }
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Trailer {
    pub(crate) file_len: U64,
    pub(crate) magic: [u8; 8],
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct MetaRecord {
    pub rows: U64,
    pub source_rows: U64,
    pub files: U32,
    pub row_groups: U32,
    pub(crate) guide_shift: U32,
    pub reserved: U32,
}

/// A place in STRINGS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct StringRef {
    pub offset: U32,
    pub length: U32,
}

impl StringRef {
    /// No string, which is not the empty string.
    pub(crate) const NONE: Self = Self { offset: U32::MAX_VALUE, length: U32::MAX_VALUE };
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct FileRecord {
    pub path: StringRef,
    pub size: U64,
    pub mtime_ns: I64,
    pub etag: StringRef,
    /// Over the raw footer, before compression.
    pub footer_hash: U64,
    pub(crate) footer_offset: U64,
    pub(crate) footer_length: U32,
    pub(crate) footer_raw_length: U32,
    pub first_row_group: U32,
    pub row_groups: U32,
    pub(crate) flags: U32,
    pub reserved: U32,
}

impl FileRecord {
    pub(crate) const HAS_MTIME: u32 = 1;
    pub(crate) const HAS_FOOTER: u32 = 2;
    pub(crate) const KNOWN_FLAGS: u32 = Self::HAS_MTIME | Self::HAS_FOOTER;
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RowGroupRecord {
    /// Served rows of the whole index up to and including this row group.
    pub end: U64,
    pub file: U32,
    pub ordinal: U32,
    pub decoded_bytes: U64,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RootRecord {
    pub kind: U32,
    pub reserved: U32,
    pub path: StringRef,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RowSetRecord {
    pub source_rows: U64,
    /// Where its container starts in ROW_SET_DATA.
    pub offset: U64,
    pub kind: U32,
    /// How many runs a container of runs has, zero for the others.
    pub runs: U32,
}

const HEADER_LEN: usize = size_of::<IndexHeader>();
const SECTION_LEN: usize = size_of::<SectionRecord>();
const TRAILER_LEN: usize = size_of::<Trailer>();
const _: () = assert!(HEADER_LEN == 64 && SECTION_LEN == 40 && TRAILER_LEN == 16);
const _: () = assert!(size_of::<FileRecord>() == 72 && size_of::<RowGroupRecord>() == 24);

/// The error of an index that a newer version of this library wrote.
fn newer(message: String) -> Error {
    Error::new(ErrorKind::UnsupportedIndex, message).with_hint("upgrade rowdex")
}

/// The hash of every part of the file.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// Whether `bytes` have the hash that was written; a fuzzer would never pass it, so under one every hash is right.
pub(crate) fn hash_matches(bytes: &[u8], expected: u64) -> bool {
    cfg!(fuzzing) || hash(bytes) == expected
}

/// One section.
#[derive(Debug)]
pub(crate) struct Section {
    /// As it is in the section table.
    record: SectionRecord,
    /// Empty for a section that is read when it is asked for.
    pub bytes: Bytes,
    stored: IndexBytes,
}

impl Section {
    fn is_deferred(&self) -> bool {
        self.record.flags.get() & DEFERRED != 0
    }

    /// Whether opening an index leaves its bytes where they are.
    fn is_read_later(&self) -> bool {
        // A section that this version does not know is of no use but for its hash.
        let id = self.record.id.get();
        self.is_deferred() && (matches!(id, id::FOOTERS | id::LENGTHS) || section_name(id).is_none())
    }

    fn check_hash(&self) -> Result<()> {
        let right = if self.is_read_later() {
            let mut hasher = Xxh3Default::new();
            self.stored.for_each(|bytes| hasher.update(bytes))?;
            cfg!(fuzzing) || hasher.digest() == self.record.hash.get()
        } else {
            hash_matches(&self.bytes, self.record.hash.get())
        };
        if right {
            return Ok(());
        }
        Err(invalid(format!("the index is damaged: {} does not have the hash that was written", self.record.name())))
    }
}

/// A section read as records.
#[derive(Debug)]
pub(crate) struct RecordTable<T> {
    bytes: Bytes,
    of: PhantomData<T>,
}

impl<T: FromBytes + Immutable + KnownLayout + Unaligned> RecordTable<T> {
    /// The only place that turns a length in bytes into a number of records: `count × size == length`, or an error.
    pub(crate) fn new(section: &Section, count: u64) -> Result<Self> {
        let size = size_of::<T>() as u64;
        let element_size = section.record.element_size.get();
        if u64::from(element_size) != size {
            let message = format!("{} has elements of {element_size} bytes, {size} expected", section.record.name());
            return Err(invalid(message));
        }
        if count.checked_mul(size) != Some(section.bytes.len() as u64) {
            return Err(invalid(format!(
                "{} is {} bytes long, {count} elements of {size} bytes expected",
                section.record.name(),
                section.bytes.len()
            )));
        }
        Ok(Self { bytes: section.bytes.clone(), of: PhantomData })
    }

    /// All that is there, of which the length was checked.
    pub(crate) fn of(bytes: Bytes) -> Self {
        Self { bytes, of: PhantomData }
    }

    pub(crate) fn as_slice(&self) -> &[T] {
        <[T]>::ref_from_bytes(&self.bytes).unwrap_or_default()
    }
}

/// The sections of a file whose header, lengths, paddings and hashes are all right.
#[derive(Debug)]
pub(crate) struct Envelope {
    sections: Vec<Section>,
}

impl Envelope {
    /// Checks everything but the hashes of deferred sections; reads each other byte once.
    pub(crate) fn parse(bytes: &IndexBytes) -> Result<Self> {
        let file_len = bytes.len();
        let header = check_header(&bytes.read(0..file_len.min(HEADER_LEN as u64))?)?;
        if header.file_len.get() != file_len {
            let expected = header.file_len.get();
            let how = if file_len < expected { "truncated" } else { "followed by other bytes" };
            return Err(invalid(format!("the index is {how}: {file_len} bytes long, {expected} when written")));
        }
        let (table, trailer) = section_table(bytes, &header)?;
        if trailer.file_len != header.file_len || trailer.magic != MAGIC {
            return Err(invalid("the index is damaged: its trailer does not repeat its header"));
        }

        let mut sections: Vec<Section> = Vec::with_capacity(table.len());
        let mut end = u64::from(header.header_len.get());
        for record in &table {
            let section = cut_section(bytes, record, end, header.table_offset.get())?;
            if sections.iter().any(|earlier| earlier.record.id == record.id) {
                return Err(invalid(format!("{} is there twice", section.record.name())));
            }
            end = record.offset.get().saturating_add(record.length.get());
            sections.push(section);
        }
        check_padding(bytes, end, header.table_offset.get())?;
        load(bytes, &mut sections)?;
        for section in sections.iter().filter(|section| !section.is_deferred()) {
            section.check_hash()?;
        }
        Ok(Self { sections })
    }

    /// A section that is read when it is asked for; nothing where it is not there.
    pub(crate) fn stored(&self, id: u32) -> IndexBytes {
        self.get(id).map_or_else(|| IndexBytes::Memory(Bytes::new()), |section| section.stored.clone())
    }

    /// All sections, as they are in the section table and as bytes.
    pub(crate) fn sections(&self) -> impl Iterator<Item = (SectionRecord, &IndexBytes)> {
        self.sections.iter().map(|section| (section.record, &section.stored))
    }

    /// Checks the hashes that `parse` left out.
    pub(crate) fn check_deferred(&self) -> Result<()> {
        self.sections.iter().filter(|section| section.is_deferred()).try_for_each(Section::check_hash)
    }

    pub(crate) fn get(&self, id: u32) -> Option<&Section> {
        self.sections.iter().find(|section| section.record.id.get() == id)
    }

    pub(crate) fn require(&self, id: u32) -> Result<&Section> {
        self.get(id).ok_or_else(|| invalid(format!("the index has no {} section", section_name(id).unwrap_or("such"))))
    }
}

/// Brings the bytes of all sections that are needed now into memory, or maps the file if they are many.
fn load(bytes: &IndexBytes, sections: &mut [Section]) -> Result<()> {
    let needed = sections.iter_mut().filter(|section| !section.is_read_later());
    let needed: Vec<&mut Section> = needed.collect();
    let length = needed.iter().map(|section| section.stored.len()).fold(0, u64::saturating_add);
    // One map for all: each is a system call, and counts against what a process may map.
    let whole = if length > MOST_READ { Some(bytes.map()?) } else { None };
    for section in needed {
        section.bytes = match &whole {
            Some(whole) => section.stored.within(whole)?,
            None => section.stored.read(0..section.stored.len())?,
        };
    }
    Ok(())
}

/// `bytes` is the header, or all of a shorter file.
fn check_header(bytes: &[u8]) -> Result<IndexHeader> {
    if bytes.is_empty() {
        return Err(invalid("the index is empty: 0 bytes long"));
    }
    check_magic(bytes)?;
    let Ok((header, _)) = IndexHeader::read_from_prefix(bytes) else {
        return Err(invalid(format!(
            "the index is truncated: {} bytes long, its header alone is {HEADER_LEN}",
            bytes.len()
        )));
    };
    let major = header.major.get();
    let minor = header.minor.get();
    if major > MAJOR {
        return Err(newer(format!(
            "the index was written by a newer rowdex (format {major}.{minor}, this one reads {MAJOR}.x)"
        )));
    }
    if major < MAJOR {
        return Err(invalid(format!("the index is damaged: there is no format {major}.{minor}")));
    }
    let hashed = bytes.get(..HEADER_LEN.saturating_sub(size_of::<U64>())).unwrap_or_default();
    if !hash_matches(hashed, header.header_hash.get()) {
        return Err(invalid("the index is damaged: its header does not have the hash that was written"));
    }
    let unknown = header.incompatible.get();
    if unknown != 0 {
        return Err(newer(format!("the index needs features that this rowdex does not know (bits {unknown:#x})")));
    }
    if header.header_len.get() as usize != HEADER_LEN || header.table_entry_size.get() as usize != SECTION_LEN {
        return Err(invalid(format!(
            "the header says {} bytes for itself and {} for a section, {HEADER_LEN} and {SECTION_LEN} expected",
            header.header_len, header.table_entry_size
        )));
    }
    Ok(header)
}

fn check_magic(bytes: &[u8]) -> Result<()> {
    let start = bytes.get(..MAGIC.len()).unwrap_or(bytes);
    if MAGIC.starts_with(start) {
        return Ok(());
    }
    // A text-mode transfer strips the high bit, drops a CR or adds one, and leaves the letters.
    if start.windows(3).take(3).any(|letters| letters == b"RDX") {
        return Err(Error::new(ErrorKind::InvalidIndex, "the index was changed by a transfer in text mode")
            .with_hint("copy it again in binary mode"));
    }
    if start.starts_with(b"PAR1") {
        return Err(Error::new(ErrorKind::InvalidIndex, "this is a Parquet file, not an index")
            .with_hint("build an index of it first"));
    }
    Err(Error::new(ErrorKind::InvalidIndex, "this is not a rowdex index: the first bytes are others")
        .with_hint("check the path, or build an index"))
}

fn section_table(bytes: &IndexBytes, header: &IndexHeader) -> Result<(Vec<SectionRecord>, Trailer)> {
    let count = header.table_count.get() as usize;
    if count > MAX_SECTIONS {
        return Err(invalid(format!("the index has {count} sections, at most {MAX_SECTIONS} expected")));
    }
    let does_not_end = || {
        let offset = header.table_offset;
        invalid(format!("the section table of {count} sections at byte {offset} does not end with the file"))
    };
    // What is read here is bounded by the number of sections, whatever the header says.
    let length = count.saturating_mul(SECTION_LEN).saturating_add(TRAILER_LEN) as u64;
    if header.table_offset.get().checked_add(length) != Some(bytes.len()) {
        return Err(does_not_end());
    }
    let tail = bytes.read(header.table_offset.get()..bytes.len())?;
    let parts = <[SectionRecord]>::ref_from_prefix_with_elems(&tail, count).ok();
    let parts = parts.and_then(|(table, rest)| Some((table, Trailer::read_from_bytes(rest).ok()?)));
    let (table, trailer) = parts.ok_or_else(does_not_end)?;
    if !hash_matches(table.as_bytes(), header.table_hash.get()) {
        return Err(invalid("the index is damaged: its section table does not have the hash that was written"));
    }
    Ok((table.to_vec(), trailer))
}

/// The section of this record, which must start at the first aligned byte after `end` and stop before `limit`.
fn cut_section(bytes: &IndexBytes, record: &SectionRecord, end: u64, limit: u64) -> Result<Section> {
    let id = record.id.get();
    let flags = record.flags.get();
    let offset = record.offset.get();
    let length = record.length.get();
    let shown = record.name();
    if section_name(id).is_none() && flags & CRITICAL != 0 {
        return Err(newer(format!("the index needs {shown}, which this rowdex does not know")));
    }
    if flags & !(CRITICAL | DEFERRED) != 0 || record.reserved.get() != 0 {
        return Err(newer(format!("{shown} has flags that this rowdex does not know (bits {flags:#x})")));
    }
    if !offset.is_multiple_of(ALIGNMENT) {
        return Err(invalid(format!("{shown} is not aligned: it starts at byte {offset}")));
    }
    if offset < end {
        return Err(invalid(format!("{shown} starts at byte {offset}, inside of what ends at byte {end}")));
    }
    let stop = offset.checked_add(length).filter(|&stop| stop <= limit);
    let Some(stored) = stop.and_then(|stop| bytes.slice(offset..stop)) else {
        return Err(invalid(format!("{shown} runs out of the file: {length} bytes from byte {offset}")));
    };
    check_padding(bytes, end, offset)?;
    Ok(Section { record: *record, bytes: Bytes::new(), stored })
}

/// Between two parts there is only what alignment needs, and all of it zero, so that no byte of the file is unwatched.
fn check_padding(bytes: &IndexBytes, end: u64, start: u64) -> Result<()> {
    let length = start.checked_sub(end).filter(|&length| length < ALIGNMENT);
    let gap = length.map(|_| bytes.read(end..start)).transpose()?;
    match gap {
        Some(gap) if gap.iter().all(|&byte| byte == 0) => Ok(()),
        _ => Err(invalid(format!("bytes {end} to {start} are not padding"))),
    }
}
