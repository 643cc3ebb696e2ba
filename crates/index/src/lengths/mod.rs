//! Lengths of rows: how many tokens each has, by columns with names, in a section that is read when it is asked for.
//!
//! Opening an index leaves the section where it is. What says where the lengths of a column are is checked when a
//! column is first asked for, and a block of 2^16 rows when a length of it is first read.

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

mod layout;
#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)]
mod tests;
mod writer;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3Default;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

use self::layout::{BLOCK_ROWS, BlockRecord, LengthBlock, LengthsRecord, LengthsTail};
use super::Index;
use super::format::{RecordTable, hash_matches};
use super::stored::{IndexBytes, MOST_READ, invalid};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::{Lengths, Measure};

pub use self::writer::{LengthsWriter, NewLengths};

/// The most columns that have lengths in one index.
const MAX_COLUMNS: u32 = 1024;

const TAIL: u64 = size_of::<LengthsTail>() as u64;

/// What the lengths of a column are of. The numbers are those that are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LengthsOf {
    /// The items of a list column of the same name: a row can be served in parts.
    Items = 0,
    /// The numbers of a column of the same name: rows are served whole.
    Numbers = 1,
    /// What was given from outside: rows are served whole.
    Given = 2,
}

impl LengthsOf {
    /// What they are called: `items`, `numbers` or `given`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Items => "items",
            Self::Numbers => "numbers",
            Self::Given => "given",
        }
    }
}

/// How long each row of an index is, in tokens or any other unit.
///
/// Cheap to clone, and shared between threads without locks. A length is read in O(1).
#[derive(Clone)]
pub struct RowLengths {
    section: Arc<LengthsSection>,
    column: usize,
    own: Arc<ColumnLengths>,
}

/// The section, once it was asked for.
pub(crate) struct LengthsSection {
    rows: u64,
    columns: Vec<Arc<ColumnLengths>>,
    blocks: RecordTable<BlockRecord>,
    /// Of the values; mapped where there are many.
    bytes: Bytes,
    /// Whether a block was found to be what was written.
    checked: Box<[AtomicBool]>,
    /// For messages.
    file: Option<String>,
}

struct ColumnLengths {
    name: String,
    of: LengthsOf,
    sum: u64,
    longest: u64,
    fingerprint: u64,
}

fn binding(index: &Index) -> u64 {
    index.binding(b"rowdex lengths 1")
}

impl Index {
    /// The names of the columns that have lengths, bytewise sorted; none where no lengths were recorded.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidIndex`] when the section with the lengths is damaged, or of another index.
    pub fn lengths_columns(&self) -> Result<Vec<&str>> {
        let columns = self.lengths_section()?.map(|section| section.columns.as_slice()).unwrap_or_default();
        Ok(columns.iter().map(|column| column.name.as_str()).collect())
    }

    /// The lengths that were recorded under this name.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if there are none; [`ErrorKind::InvalidIndex`] when they are damaged, or of
    /// another index.
    pub fn lengths(&self, name: &str) -> Result<RowLengths> {
        let mut columns = self.lengths_section()?.into_iter().flat_map(LengthsSection::lengths);
        if let Some(found) = columns.find(|lengths| lengths.own.name == name) {
            return Ok(found);
        }
        let known = self.lengths_columns()?;
        let message = match known.is_empty() {
            true => "the index has no lengths".to_owned(),
            false => format!("the index has no lengths of this name, but of {}", known.join(", ")),
        };
        let error = Error::invalid(message).with_column(name);
        let hint = "note them: of a column of lists or of integers, or those that a tokenizer found (`given`)";
        Err(self.name(error).with_hint(hint))
    }

    fn lengths_section(&self) -> Result<Option<&Arc<LengthsSection>>> {
        let stored = &self.inner.contents.lengths;
        if stored.len() == 0 {
            return Ok(None);
        }
        let section = self.inner.lengths.get_or_init(|| LengthsSection::read(self, stored).map(Arc::new));
        section.as_ref().map(Some).map_err(|error| self.name(error.clone()))
    }

    /// Checks the section and all of its blocks.
    pub(crate) fn verify_lengths(&self) -> Result<()> {
        let stored = &self.inner.contents.lengths;
        if stored.len() == 0 {
            return Ok(());
        }
        LengthsSection::lengths(&Arc::new(LengthsSection::read(self, stored)?)).try_for_each(|lengths| lengths.verify())
    }
}

/// Takes so many bytes off the end.
fn split_tail<'a>(bytes: &mut &'a [u8], length: u64, of: &str) -> Result<&'a [u8]> {
    let short = || invalid(format!("LENGTHS is damaged: it has no room for {of}"));
    let length = usize::try_from(length).map_err(|_| short())?;
    let at = bytes.len().checked_sub(length).ok_or_else(short)?;
    let (rest, tail) = bytes.split_at_checked(at).ok_or_else(short)?;
    *bytes = rest;
    Ok(tail)
}

impl LengthsSection {
    /// Those of each column.
    fn lengths(self: &Arc<Self>) -> impl Iterator<Item = RowLengths> {
        let columns = self.columns.iter().enumerate();
        columns.map(|(column, own)| RowLengths { section: Arc::clone(self), column, own: Arc::clone(own) })
    }

    fn read(index: &Index, stored: &IndexBytes) -> Result<Self> {
        let bytes = match stored.len() > MOST_READ {
            true => stored.within(&stored.map()?)?,
            false => stored.read(0..stored.len())?,
        };
        let mut rest: &[u8] = &bytes;
        let tail = LengthsTail::read_from_bytes(split_tail(&mut rest, TAIL, "its end")?)
            .map_err(|_| invalid("LENGTHS is damaged: it has no end"))?;
        let rows = tail.rows.get();
        let columns = tail.columns.get();
        if columns == 0 || columns > MAX_COLUMNS {
            return Err(invalid(format!("LENGTHS has {columns} columns, 1 to {MAX_COLUMNS} expected")));
        }
        let before = rest.len();
        let names = split_tail(&mut rest, tail.names_length.get().into(), "the names of its columns")?;
        let blocks = rows.div_ceil(BLOCK_ROWS).saturating_mul(columns.into());
        let blocks_length = blocks.saturating_mul(size_of::<BlockRecord>() as u64);
        split_tail(&mut rest, blocks_length, "its blocks")?;
        let blocks_at = rest.len();
        let records =
            split_tail(&mut rest, u64::from(columns).saturating_mul(size_of::<LengthsRecord>() as u64), "its columns")?;
        let values = rest.len();
        let end = bytes.len().saturating_sub(size_of::<u64>());
        if !hash_matches(bytes.get(values..end).unwrap_or_default(), tail.hash.get()) {
            return Err(invalid("LENGTHS is damaged: its records do not have the hash that was written"));
        }
        if rows != index.len() || tail.index.get() != binding(index) {
            let message = "LENGTHS is of another index: its rows are not those of this one";
            return Err(Error::new(ErrorKind::InvalidIndex, message).with_hint("record the lengths again"));
        }
        let blocks_end = before.saturating_sub(names.len());
        let blocks = RecordTable::of(bytes.slice(blocks_at..blocks_end));
        let checked = blocks.as_slice().iter().map(|_| AtomicBool::new(false)).collect();
        let columns = columns_of(records, names)?;
        check_blocks(blocks.as_slice(), values as u64)?;
        let file = index.path().map(|path| path.display().to_string());
        Ok(Self { rows, columns, blocks, bytes: bytes.slice(..values), checked, file })
    }
}

fn columns_of(records: &[u8], names: &[u8]) -> Result<Vec<Arc<ColumnLengths>>> {
    let names = std::str::from_utf8(names).map_err(|_| invalid("LENGTHS is damaged: its names are not UTF-8"))?;
    let records = <[LengthsRecord]>::ref_from_bytes(records).unwrap_or_default();
    let column = |record: &LengthsRecord| {
        let start = record.name_offset.get() as usize;
        let name = start.checked_add(record.name_length.get() as usize).and_then(|end| names.get(start..end));
        let name = name.ok_or_else(|| invalid("LENGTHS is damaged: a column has no name"))?.to_owned();
        let of = match record.kind.get() {
            0 => LengthsOf::Items,
            1 => LengthsOf::Numbers,
            2 => LengthsOf::Given,
            other => return Err(invalid(format!("LENGTHS has a column of the unknown kind {other}"))),
        };
        let sum = record.sum.get();
        let longest = record.longest.get();
        let fingerprint = record.fingerprint.get();
        Ok(Arc::new(ColumnLengths { name, of, sum, longest, fingerprint }))
    };
    let columns: Vec<Arc<ColumnLengths>> = records.iter().map(column).collect::<Result<_>>()?;
    if !columns.is_sorted_by(|a, b| a.name < b.name) {
        return Err(invalid("LENGTHS is damaged: the names of its columns are not in order"));
    }
    Ok(columns)
}

/// The blocks lie one behind the other and fill what is there.
fn check_blocks(blocks: &[BlockRecord], values: u64) -> Result<()> {
    let increase = blocks.is_sorted_by(|a, b| a.end.get() <= b.end.get());
    let last = blocks.last().map_or(0, |last| last.end.get());
    match increase && last == values {
        true => Ok(()),
        false => Err(invalid("LENGTHS is damaged: its blocks do not follow each other")),
    }
}

impl RowLengths {
    /// The name that they were recorded under.
    pub fn name(&self) -> &str {
        &self.own.name
    }

    /// What they are of.
    pub fn of(&self) -> LengthsOf {
        self.own.of
    }

    /// The sum over all rows.
    pub fn sum(&self) -> u64 {
        self.own.sum
    }

    /// The length of the longest row; 0 where there are no rows.
    pub fn longest(&self) -> u64 {
        self.own.longest
    }

    /// Appends the lengths of rows that follow each other.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`] if there are fewer rows; [`ErrorKind::InvalidIndex`] when a block is damaged.
    pub fn read(&self, rows: Range<u64>, lengths: &mut Vec<u64>) -> Result<()> {
        let mut at = rows.start;
        while at < rows.end {
            let (block, first) = self.block(at)?;
            let end = first.saturating_add(BLOCK_ROWS).min(rows.end).min(self.section.rows);
            for row in at..end {
                lengths.push(block.length(row.saturating_sub(first)).ok_or_else(|| self.damaged(row))?);
            }
            at = end;
        }
        Ok(())
    }

    /// The number of the block that a row is in, and where it begins.
    #[inline]
    fn place(&self, row: u64) -> (usize, usize) {
        let columns = self.section.columns.len() as u64;
        let place = (row / BLOCK_ROWS).saturating_mul(columns).saturating_add(self.column as u64) as usize;
        let before = place.checked_sub(1).and_then(|before| self.section.blocks.as_slice().get(before));
        (place, before.map_or(0, |before| before.end.get() as usize))
    }

    /// The length of a row as most are: in a block that was checked before, and no escape. Orders ask for rows
    /// anywhere, so this takes no more than the record of the block and the value.
    #[inline]
    fn plain(&self, row: u64) -> Option<u64> {
        let section = &*self.section;
        let (place, start) = self.place(row);
        let checked = row < section.rows && section.checked.get(place)?.load(Ordering::Relaxed);
        let record = section.blocks.as_slice().get(place).filter(|_| checked)?;
        let values = section.bytes.get(start..)?;
        let width = record.width.get();
        let slot = (row % BLOCK_ROWS) as usize;
        let value = layout::value(values, width, slot)?;
        (record.escapes.get() == 0 || value != layout::widest(width)).then_some(value)
    }

    /// The block that a row is in, checked, and its first row.
    fn block(&self, row: u64) -> Result<(LengthBlock<'_>, u64)> {
        let section = &*self.section;
        if row >= section.rows {
            let message = format!("the length of row {row}, and lengths of {} rows are known", section.rows);
            return Err(self.located(Error::new(ErrorKind::OutOfRange, message)));
        }
        let (place, start) = self.place(row);
        let first = row.saturating_sub(row % BLOCK_ROWS);
        let rows = section.rows.saturating_sub(first).min(BLOCK_ROWS);
        let found =
            section.blocks.as_slice().get(place).zip(section.checked.get(place)).and_then(|(record, checked)| {
                let bytes = section.bytes.get(start..record.end.get() as usize)?;
                let block = LengthBlock::new(bytes, rows, record)?;
                if !checked.load(Ordering::Relaxed) {
                    if !hash_matches(bytes, record.hash.get()) || !block.check() {
                        return None;
                    }
                    checked.store(true, Ordering::Relaxed);
                }
                Some(block)
            });
        Ok((found.ok_or_else(|| self.damaged(row))?, first))
    }

    fn damaged(&self, row: u64) -> Error {
        let first = row.saturating_sub(row % BLOCK_ROWS);
        let message = format!("the index is damaged: the block of LENGTHS from row {first} on is not what was written");
        self.located(invalid(message).with_hint("record the lengths again"))
    }

    fn located(&self, error: Error) -> Error {
        let error = error.with_column(self.name());
        match &self.section.file {
            Some(file) => error.with_file(file),
            None => error,
        }
    }

    /// Checks all blocks, and what is told of them as a whole.
    fn verify(&self) -> Result<()> {
        let mut sum = 0_u64;
        let mut longest = 0;
        let mut hasher = fingerprint_of(self.section.rows);
        let mut lengths = Vec::new();
        let mut at = 0;
        while at < self.section.rows {
            let end = at.saturating_add(BLOCK_ROWS).min(self.section.rows);
            lengths.clear();
            self.read(at..end, &mut lengths)?;
            add_to_fingerprint(&mut hasher, &lengths);
            for length in &lengths {
                sum = sum.saturating_add(*length);
                longest = longest.max(*length);
            }
            at = end;
        }
        match (self.own.sum, self.own.longest, self.own.fingerprint) == (sum, longest, hasher.digest()) {
            true => Ok(()),
            false => Err(self.located(invalid("the index is damaged: LENGTHS has another sum than was written"))),
        }
    }
}

/// What the fingerprint of lengths is computed with: over the number of rows, and then the lengths.
fn fingerprint_of(rows: u64) -> Xxh3Default {
    let mut hasher = Xxh3Default::new();
    hasher.update(&rows.to_le_bytes());
    hasher
}

fn add_to_fingerprint(hasher: &mut Xxh3Default, lengths: &[u64]) {
    let bytes: Vec<U64> = lengths.iter().copied().map(U64::new).collect();
    hasher.update(bytes.as_bytes());
}

impl Lengths for RowLengths {
    fn len(&self) -> u64 {
        self.section.rows
    }

    fn length(&self, row: u64) -> Result<u64> {
        if let Some(length) = self.plain(row) {
            return Ok(length);
        }
        let (block, first) = self.block(row)?;
        block.length(row.saturating_sub(first)).ok_or_else(|| self.damaged(row))
    }

    fn measure(&self) -> Option<Measure<'_>> {
        match self.of() {
            LengthsOf::Items => Some(Measure::Items(self.name())),
            LengthsOf::Numbers => Some(Measure::Numbers(self.name())),
            LengthsOf::Given => None,
        }
    }

    fn fingerprint(&self) -> u64 {
        self.own.fingerprint
    }
}

impl fmt::Debug for RowLengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowLengths")
            .field("name", &self.name())
            .field("of", &self.of())
            .field("rows", &self.section.rows)
            .field("sum", &self.sum())
            .finish_non_exhaustive()
    }
}
