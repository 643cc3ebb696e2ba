//! Digests of rows, added up for each row group, in a section that is read when it is asked for.
//!
//! ```text
//! sums         one record for each row group
//! columns      one record for each column
//! text         the name and the kind of each column, one behind the other, UTF-8
//! tail         one record
//! ```

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)]
mod tests;

use std::io::{Seek, Write};

use zerocopy::little_endian::{U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Index;
use super::format::{DEFERRED, Envelope, hash, hash_matches, id};
use super::sections::SectionWriter;
use super::stored::invalid;
use rowdex_base::error::{Error, ErrorKind, Remedy, Result};

/// The version of the digests: how a row has one.
const VERSION: u32 = 1;

/// The most columns that digests are of.
const MAX_COLUMNS: u32 = 1 << 16;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SumRecord {
    /// How many rows are in the sum: all that the row group serves, or none where it is not known.
    rows: U64,
    sum: U128,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ColumnRecord {
    name_length: U32,
    kind_length: U32,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct TailRecord {
    /// What the digests are of.
    index: U64,
    version: U32,
    columns: U32,
    text_length: U64,
    /// Over all that is before it.
    hash: U64,
}

/// The digests of the rows of an index, added up for each row group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotedDigests {
    /// Name and kind of each column that counts, in the order of the names.
    pub columns: Vec<(String, String)>,
    /// The sum of each row group of the index, in order; `None` where it is not known.
    pub sums: Vec<Option<u128>>,
}

impl NotedDigests {
    /// Whether the sum of any row group with rows is known.
    pub fn says_something(&self, index: &Index) -> bool {
        self.sums.iter().zip(index.row_groups()).any(|(sum, group)| sum.is_some() && group.rows() > 0)
    }

    /// The sum over all row groups; `None` if that of one is not known.
    pub fn total(&self) -> Option<u128> {
        self.sums.iter().try_fold(0_u128, |total, sum| Some(total.wrapping_add((*sum)?)))
    }
}

impl Index {
    /// The digests that were noted, if any were.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidIndex`] when the section with them is damaged, or of another index.
    pub fn noted_digests(&self) -> Result<Option<NotedDigests>> {
        let stored = &self.inner.contents.unread.digests;
        if stored.len() == 0 {
            return Ok(None);
        }
        let read = || parse(self, &stored.read(0..stored.len())?);
        read().map(Some).map_err(|error: Error| self.name(error))
    }
}

fn parse(index: &Index, bytes: &[u8]) -> Result<NotedDigests> {
    let short = |of: &str| invalid(format!("DIGESTS is damaged: it has no room for {of}"));
    let (before, tail) = TailRecord::read_from_suffix(bytes).map_err(|_| short("its end"))?;
    let hashed = bytes.len().saturating_sub(size_of::<U64>());
    if !hash_matches(bytes.get(..hashed).unwrap_or_default(), tail.hash.get()) {
        return Err(invalid("DIGESTS is damaged: it does not have the hash that was written"));
    }
    let anew = |message: String| {
        Error::new(ErrorKind::InvalidIndex, message).with_remedies("note the digest anew ({})", &[Remedy::Digest])
    };
    if tail.version.get() != VERSION {
        return Err(anew(format!("DIGESTS has digests of version {}, {VERSION} is known", tail.version)));
    }
    if tail.index.get() != own_binding(index) {
        return Err(anew("DIGESTS is of another index: its rows are not those of this one".to_owned()));
    }
    let groups = index.num_row_groups() as usize;
    let (sums, rest) =
        <[SumRecord]>::ref_from_prefix_with_elems(before, groups).map_err(|_| short("its row groups"))?;
    let count = tail.columns.get();
    if count == 0 || count > MAX_COLUMNS {
        return Err(invalid(format!("DIGESTS has {count} columns, 1 to {MAX_COLUMNS} expected")));
    }
    let (records, text) =
        <[ColumnRecord]>::ref_from_prefix_with_elems(rest, count as usize).map_err(|_| short("its columns"))?;
    if text.len() as u64 != tail.text_length.get() {
        return Err(invalid("DIGESTS is damaged: its columns do not fill it"));
    }
    let sum = |(record, group): (&SumRecord, u64)| match record.rows.get() {
        rows if rows == group => Ok(Some(record.sum.get())),
        0 if record.sum.get() == 0 => Ok(None),
        rows => Err(invalid(format!("DIGESTS is damaged: it has {rows} rows of a row group of {group}"))),
    };
    let rows = index.row_groups().map(|group| group.rows());
    let sums = sums.iter().zip(rows).map(sum).collect::<Result<_>>()?;
    Ok(NotedDigests { columns: columns_of(records, text)?, sums })
}

fn columns_of(records: &[ColumnRecord], text: &[u8]) -> Result<Vec<(String, String)>> {
    let damaged = |what: &str| invalid(format!("DIGESTS is damaged: {what}"));
    let mut rest = std::str::from_utf8(text).map_err(|_| damaged("the names of its columns are not UTF-8"))?;
    let mut next = |length: U32| {
        let (part, behind) = rest.split_at_checked(length.get() as usize)?;
        rest = behind;
        Some(part.to_owned())
    };
    let column = |record: &ColumnRecord| Some((next(record.name_length)?, next(record.kind_length)?));
    let columns: Option<Vec<(String, String)>> = records.iter().map(column).collect();
    match columns {
        Some(columns) if rest.is_empty() && columns.is_sorted_by(|a, b| a.0 < b.0) => Ok(columns),
        _ => Err(damaged("its columns do not follow each other")),
    }
}

fn own_binding(index: &Index) -> u64 {
    index.binding(b"rowdex digests 1")
}

/// Copies an index to the start of `out`, with these digests instead of those that it has. Returns `out`, flushed.
///
/// # Errors
/// [`ErrorKind::Internal`] if the sums are not as many as the row groups; those of writing, and of reading the index.
pub fn with_digests<W: Write + Seek>(out: W, index: &Index, digests: Option<&NotedDigests>) -> Result<W> {
    let envelope = Envelope::parse(&index.inner.bytes)?;
    let mut copy = SectionWriter::new(out)?;
    for (record, bytes) in envelope.sections().filter(|(record, _)| record.id.get() != id::DIGESTS) {
        copy.copy(record, bytes)?;
    }
    match digests {
        Some(digests) => write(copy, index, digests),
        None => copy.close(),
    }
}

/// Adds digests behind an index without any, which was just written to `out`. Until the end it is none.
///
/// # Errors
/// As [`with_digests`].
pub fn add_digests<W: Write + Seek>(out: W, index: &Index, digests: &NotedDigests) -> Result<W> {
    write(SectionWriter::resume(out, &Envelope::parse(&index.inner.bytes)?)?, index, digests)
}

fn write<W: Write + Seek>(mut out: SectionWriter<W>, index: &Index, digests: &NotedDigests) -> Result<W> {
    let NotedDigests { columns, sums } = digests;
    let misuse = |message: &'static str| Err(Error::new(ErrorKind::Internal, message));
    if sums.len() != index.num_row_groups() as usize {
        return misuse("there is not one digest for each row group");
    }
    if columns.is_empty() || columns.len() > MAX_COLUMNS as usize || !columns.is_sorted_by(|a, b| a.0 < b.0) {
        return misuse("digests are of columns in the order of their names");
    }
    let record = |(sum, group): (&Option<u128>, u64)| SumRecord {
        rows: U64::new(if sum.is_some() { group } else { 0 }),
        sum: U128::new(sum.unwrap_or(0)),
    };
    let sums: Vec<SumRecord> = sums.iter().zip(index.row_groups().map(|group| group.rows())).map(record).collect();
    let record = |(name, kind): &(String, String)| ColumnRecord {
        name_length: U32::new(name.len() as u32),
        kind_length: U32::new(kind.len() as u32),
    };
    let records: Vec<ColumnRecord> = columns.iter().map(record).collect();
    let text: String = columns.iter().flat_map(|(name, kind)| [name.as_str(), kind]).collect();
    let tail = TailRecord {
        index: U64::new(own_binding(index)),
        version: U32::new(VERSION),
        columns: U32::new(columns.len() as u32),
        text_length: U64::new(text.len() as u64),
        hash: U64::new(0),
    };
    let mut bytes = [sums.as_bytes(), records.as_bytes(), text.as_bytes(), tail.as_bytes()].concat();
    bytes.truncate(bytes.len().saturating_sub(size_of::<U64>()));
    bytes.extend_from_slice(&hash(&bytes).to_le_bytes());
    out.begin()?;
    out.write(&bytes)?;
    out.end(id::DIGESTS, DEFERRED, 1);
    out.close()
}

/// The digests that are known of the row groups of an index that was just written: for each, another index that may
/// have it, and the id there of its first row.
pub fn known_digests<'a>(
    index: &Index,
    columns: &[(String, String)],
    known: impl Fn(&super::RowGroupEntry<'_>) -> Option<(&'a Index, &'a NotedDigests, u64)>,
) -> NotedDigests {
    let sum = |group: super::RowGroupEntry<'_>| {
        if group.rows() == 0 {
            return Some(0);
        }
        let (before, digests, first) = known(&group).filter(|(_, digests, _)| digests.columns == columns)?;
        let other = before.row_group(before.locate(first)?.row_group)?;
        let same = other.first_row() == first
            && (other.rows(), other.source_rows()) == (group.rows(), group.source_rows())
            && other.selection().map(|set| set.content_hash()) == group.selection().map(|set| set.content_hash());
        *digests.sums.get(other.index() as usize).filter(|_| same)?
    };
    NotedDigests { columns: columns.to_vec(), sums: index.row_groups().map(sum).collect() }
}
