//! Writes lengths behind the other sections of an index.

use std::fmt;
use std::io::{Seek, Write};

use xxhash_rust::xxh3::Xxh3Default;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

use super::layout::{BLOCK_ROWS, BlockRecord, LengthsRecord, LengthsTail, MAX_LENGTH, encode};
use super::{Index, LengthsOf, MAX_COLUMNS, add_to_fingerprint, binding, fingerprint_of};
use crate::format::{DEFERRED, Envelope, hash, id};
use crate::sections::SectionWriter;
use rowdex_base::error::{Error, ErrorKind, Result};

/// The longest name of lengths, in bytes.
const MAX_NAME: usize = 4096;

/// Lengths to write: their name, and what they are of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewLengths {
    /// The name of the column that was counted, or any other for lengths that were given.
    pub name: String,
    /// What they are of.
    pub of: LengthsOf,
}

/// Writes the lengths of all rows of an index, column by column or in turn.
///
/// What is written depends on the lengths alone, not on how many come at once.
pub struct LengthsWriter<W> {
    out: SectionWriter<W>,
    rows: u64,
    index: u64,
    columns: Vec<ColumnWriter>,
    blocks: Vec<BlockRecord>,
    /// Bytes of the block that is written next.
    bytes: Vec<u8>,
}

struct ColumnWriter {
    new: NewLengths,
    /// Lengths that are not written yet.
    waiting: Vec<u64>,
    /// How many came.
    rows: u64,
    sum: u64,
    longest: u64,
    fingerprint: Xxh3Default,
}

impl<W> fmt::Debug for LengthsWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.columns.iter().map(|column| column.new.name.as_str()).collect();
        f.debug_struct("LengthsWriter").field("rows", &self.rows).field("columns", &names).finish_non_exhaustive()
    }
}

impl<W: Write + Seek> LengthsWriter<W> {
    /// Goes on behind an index without lengths, which was just written to `out`. Until the end it is none.
    ///
    /// # Errors
    /// As [`copy`](Self::copy).
    pub fn append(out: W, index: &Index, columns: Vec<NewLengths>) -> Result<Self> {
        let envelope = Envelope::parse(&index.inner.bytes)?;
        Self::new(SectionWriter::resume(out, &envelope)?, index, columns)
    }

    /// Copies an index, without its lengths, to the start of `out`, which should be buffered.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] unless the columns are in the order of their names, and each name is there once;
    /// those of writing, and of reading the index.
    pub fn copy(out: W, index: &Index, columns: Vec<NewLengths>) -> Result<Self> {
        Self::new(copied(out, index)?, index, columns)
    }

    fn new(mut out: SectionWriter<W>, index: &Index, columns: Vec<NewLengths>) -> Result<Self> {
        let refuse = |message: String| Err(Error::invalid(message));
        if columns.is_empty() || columns.len() > MAX_COLUMNS as usize {
            return refuse(format!("lengths of {} columns, 1 to {MAX_COLUMNS} can be recorded", columns.len()));
        }
        if let Some(new) = columns.iter().find(|new| new.name.is_empty() || new.name.len() > MAX_NAME) {
            return refuse(format!("lengths have a name of 1 to {MAX_NAME} bytes, and not of {}", new.name.len()));
        }
        if !columns.is_sorted_by(|a, b| a.name < b.name) {
            return refuse("lengths come in the order of their names, each once".to_owned());
        }
        out.begin()?;
        let column = |new| ColumnWriter {
            new,
            waiting: Vec::new(),
            rows: 0,
            sum: 0,
            longest: 0,
            fingerprint: fingerprint_of(index.len()),
        };
        let columns = columns.into_iter().map(column).collect();
        Ok(Self { out, rows: index.len(), index: binding(index), columns, blocks: Vec::new(), bytes: Vec::new() })
    }

    /// Adds lengths of the rows that follow, of the column of this number.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] for a row of 2^40 tokens or more, and for more than 2^64 in all;
    /// [`ErrorKind::Internal`] for more lengths than there are rows; those of writing.
    pub fn push(&mut self, column: usize, lengths: &[u64]) -> Result<()> {
        let misuse = || Error::new(ErrorKind::Internal, "there are more lengths than rows");
        let rows = self.rows;
        let own = self.columns.get_mut(column).ok_or_else(misuse)?;
        for (row, length) in (own.rows..).zip(lengths) {
            let sum = own.sum.checked_add(*length).filter(|_| *length < MAX_LENGTH);
            let too_long = || {
                let message = match *length < MAX_LENGTH {
                    true => "the lengths of all rows add up to more than 2^64".to_owned(),
                    false => format!("row {row} has a length of {length}, and lengths are below 2^40"),
                };
                Error::new(ErrorKind::TooLarge, message).with_column(&own.new.name)
            };
            own.sum = sum.ok_or_else(too_long)?;
            own.longest = own.longest.max(*length);
        }
        own.rows = own.rows.checked_add(lengths.len() as u64).filter(|sum| *sum <= rows).ok_or_else(misuse)?;
        add_to_fingerprint(&mut own.fingerprint, lengths);
        own.waiting.extend_from_slice(lengths);
        // A block of each column, in turn.
        while self.columns.iter().all(|column| column.waiting.len() as u64 >= BLOCK_ROWS) {
            self.write_blocks()?;
        }
        Ok(())
    }

    fn write_blocks(&mut self) -> Result<()> {
        for column in &mut self.columns {
            let rows = column.waiting.len().min(BLOCK_ROWS as usize);
            self.bytes.clear();
            let (width, escapes) = encode(column.waiting.get(..rows).unwrap_or_default(), &mut self.bytes);
            column.waiting.drain(..rows);
            self.out.write(&self.bytes)?;
            self.blocks.push(BlockRecord {
                end: U64::new(self.out.begun()),
                width: U32::new(width),
                escapes: U32::new(escapes),
                hash: U64::new(hash(&self.bytes)),
            });
        }
        Ok(())
    }

    /// Writes what is left, and what makes it an index. Returns what was written to, flushed.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if lengths of some rows are missing; those of writing.
    pub fn finish(mut self) -> Result<W> {
        if let Some(column) = self.columns.iter().find(|column| column.rows != self.rows) {
            let message = format!("there are lengths of {} rows, and {} rows", column.rows, self.rows);
            return Err(Error::new(ErrorKind::Internal, message).with_column(&column.new.name));
        }
        if self.columns.iter().any(|column| !column.waiting.is_empty()) {
            self.write_blocks()?;
        }
        let mut names = String::new();
        let mut records = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            records.push(LengthsRecord {
                name_offset: U32::new(names.len() as u32),
                name_length: U32::new(column.new.name.len() as u32),
                kind: U32::new(column.new.of as u32),
                reserved: U32::new(0),
                sum: U64::new(column.sum),
                longest: U64::new(column.longest),
                fingerprint: U64::new(column.fingerprint.digest()),
            });
            names.push_str(&column.new.name);
        }
        let mut tail = LengthsTail {
            rows: U64::new(self.rows),
            index: U64::new(self.index),
            columns: U32::new(self.columns.len() as u32),
            names_length: U32::new(names.len() as u32),
            hash: U64::new(0),
        };
        let mut records = [records.as_bytes(), self.blocks.as_bytes(), names.as_bytes()].concat();
        let kept = size_of::<LengthsTail>().saturating_sub(size_of::<U64>());
        records.extend(tail.as_bytes().iter().take(kept));
        tail.hash = U64::new(hash(&records));
        self.out.write(&records)?;
        self.out.write(tail.hash.as_bytes())?;
        self.out.end(id::LENGTHS, DEFERRED, 1);
        self.out.close()
    }
}

/// Copies an index without its lengths, from which more may follow.
fn copied<W: Write + Seek>(out: W, index: &Index) -> Result<SectionWriter<W>> {
    let envelope = Envelope::parse(&index.inner.bytes)?;
    let mut out = SectionWriter::new(out)?;
    for (record, bytes) in envelope.sections().filter(|(record, _)| record.id.get() != id::LENGTHS) {
        out.copy(record, bytes)?;
    }
    Ok(out)
}
