//! Writes the sections of an index file one behind the other, and around them what makes them one.

use std::io::{Seek, SeekFrom, Write};

use xxhash_rust::xxh3::Xxh3Default;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{Immutable, IntoBytes};

use super::format::{ALIGNMENT, Envelope, IndexHeader, MAGIC, MAJOR, SectionRecord, Trailer, hash, minor};
use super::stored::IndexBytes;
use rowdex_base::error::{Error, Result};

/// The header of an index file, which is written last.
const HEADER: u64 = size_of::<IndexHeader>() as u64;

pub(crate) struct SectionWriter<W> {
    out: W,
    /// Bytes written so far.
    position: u64,
    sections: Vec<SectionRecord>,
    /// Where the section begins that is being written, and the hash of what it has so far.
    start: u64,
    hasher: Xxh3Default,
}

impl<W: Write + Seek> SectionWriter<W> {
    /// Starts an index at the start of `out`, which should be buffered.
    pub(crate) fn new(mut out: W) -> Result<Self> {
        // The header needs what is known at the end; zeros are no index, should the end never come.
        out.write_all(&[0; HEADER as usize]).map_err(write_error)?;
        Ok(Self { out, position: HEADER, sections: Vec::new(), start: HEADER, hasher: Xxh3Default::new() })
    }

    /// Goes on behind the sections of an index that was written to `out`. Until [`close`](Self::close) it is none.
    pub(crate) fn resume(mut out: W, envelope: &Envelope) -> Result<Self> {
        let sections: Vec<SectionRecord> = envelope.sections().map(|(record, _)| record).collect();
        let position = sections.last().map_or(HEADER, |last| last.offset.get().saturating_add(last.length.get()));
        out.seek(SeekFrom::Start(0)).map_err(write_error)?;
        out.write_all(&[0; HEADER as usize]).map_err(write_error)?;
        out.seek(SeekFrom::Start(position)).map_err(write_error)?;
        Ok(Self { out, position, sections, start: position, hasher: Xxh3Default::new() })
    }

    /// Writes a section of another index as it is there.
    pub(crate) fn copy(&mut self, record: SectionRecord, bytes: &IndexBytes) -> Result<()> {
        self.begin()?;
        let mut written = Ok(());
        bytes.for_each(|bytes| {
            if written.is_ok() {
                written = self.write(bytes);
            }
        })?;
        written?;
        self.end(record.id.get(), record.flags.get(), record.element_size.get() as usize);
        Ok(())
    }

    /// Begins a section, to which what is written then belongs.
    pub(crate) fn begin(&mut self) -> Result<()> {
        let padding = self.position.next_multiple_of(ALIGNMENT) - self.position;
        self.write(&[0; ALIGNMENT as usize][..padding as usize])?;
        self.start = self.position;
        self.hasher.reset();
        Ok(())
    }

    /// Bytes of the section so far.
    pub(crate) fn begun(&self) -> u64 {
        self.position - self.start
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(write_error)?;
        self.hasher.update(bytes);
        self.position += bytes.len() as u64;
        Ok(())
    }

    /// Ends the section.
    pub(crate) fn end(&mut self, id: u32, flags: u32, element_size: usize) {
        self.sections.push(SectionRecord {
            id: U32::new(id),
            flags: U32::new(flags),
            offset: U64::new(self.start),
            length: U64::new(self.begun()),
            element_size: U32::new(element_size as u32),
            reserved: U32::new(0),
            hash: U64::new(self.hasher.digest()),
        });
    }

    /// Writes a whole section.
    pub(crate) fn section<T: IntoBytes + Immutable>(&mut self, id: u32, flags: u32, elements: &[T]) -> Result<()> {
        self.begin()?;
        self.write(elements.as_bytes())?;
        self.end(id, flags, size_of::<T>());
        Ok(())
    }

    /// Writes section table and trailer, then the header that makes it an index. Returns what was written to, flushed.
    pub(crate) fn close(mut self) -> Result<W> {
        self.begin()?;
        let table_offset = self.position;
        let sections = std::mem::take(&mut self.sections);
        let table = sections.as_bytes();
        let file_len = U64::new(table_offset + table.len() as u64 + size_of::<Trailer>() as u64);
        let mut header = IndexHeader {
            magic: MAGIC,
            major: U16::new(MAJOR),
            minor: U16::new(minor(&sections)),
            header_len: U32::new(HEADER as u32),
            file_len,
            table_offset: U64::new(table_offset),
            table_count: U32::new(sections.len() as u32),
            table_entry_size: U32::new(size_of::<SectionRecord>() as u32),
            incompatible: U32::new(0),
            compatible: U32::new(0),
            table_hash: U64::new(hash(table)),
            header_hash: U64::new(0),
        };
        let hashed = size_of::<IndexHeader>() - size_of::<U64>();
        header.header_hash = U64::new(hash(&header.as_bytes()[..hashed]));
        self.write(table)?;
        self.write(Trailer { file_len, magic: MAGIC }.as_bytes())?;
        self.out.seek(SeekFrom::Start(0)).map_err(write_error)?;
        self.write(header.as_bytes())?;
        self.out.flush().map_err(write_error)?;
        Ok(self.out)
    }
}

pub(crate) fn write_error(error: std::io::Error) -> Error {
    Error::io("cannot write the index", error)
}
