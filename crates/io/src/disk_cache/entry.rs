//! The file of one entry, which is there whole or not at all.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..8 | `RDXTIER` and a newline |
//! | 8..12 | version of this format, 2 |
//! | 12..16 | length of the identity |
//! | 16..24 | length of the payload |
//! | 24..32 | xxh3-64 of all that follows the header, and then of bytes 0..24 |
//! | 32..64 | zeros |
//! | 64.. | the identity: what the entry is of, in words; zeros up to a multiple of 64 |
//! | ..end | the payload |
//!
//! Integers are little-endian. Nothing is synced: after a power cut an entry may be damaged, which its checksum tells.

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3Default;

use super::CacheKey;
use crate::fs::atomic::AtomicFile;
use crate::fs::mmap;
use rowdex_base::error::{Error, ErrorKind, Result};

pub(super) const SUFFIX: &str = ".rdxt";

const MAGIC: [u8; 8] = *b"RDXTIER\n";
const VERSION: u32 = 2;
const HEADER: usize = 64;

/// What Arrow wants its buffers to begin at multiples of; maps begin at a page.
const ALIGNMENT: usize = 64;

/// Maps an entry, checks every byte of it and gives its payload; `None` if it is not there.
///
/// # Errors
/// If it is anything but a whole entry of this key and version.
pub(super) fn open(path: &Path, key: &CacheKey) -> Result<Option<Bytes>> {
    let bytes = match mmap::map(path, "the entry", ErrorKind::InvalidArgument) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::InvalidArgument => return Err(error),
        // It is not there, or not for us to read, and then not for us to judge.
        Err(_) => return Ok(None),
    };
    let identity = key.identity.as_bytes();
    let start = payload_at(identity.len());
    let (Some(header), Some(payload)) = (bytes.first_chunk::<HEADER>(), bytes.len().checked_sub(start)) else {
        return Err(damaged("is too short"));
    };
    let mut hash = Xxh3Default::new();
    hash.update(&bytes[HEADER..]);
    let is_whole = *header == header_of(payload as u64, identity.len() as u32, hash);
    if !is_whole || bytes[HEADER..HEADER + identity.len()] != *identity {
        return Err(damaged("is none, of another version, of something else, or has other bytes than were written"));
    }
    Ok(Some(bytes.slice(start..)))
}

/// An entry that is being written, under a private name; deleted unless it is committed.
pub(super) struct EntryDraft {
    file: AtomicFile,
    hash: Box<Xxh3Default>,
    identity: usize,
    payload: u64,
}

impl EntryDraft {
    pub(super) fn create(path: &Path, key: &CacheKey) -> Result<Self> {
        let identity = key.identity.len();
        if u32::try_from(identity).is_err() {
            return Err(Error::new(ErrorKind::TooLarge, "the names of an entry are too long"));
        }
        let mut file = AtomicFile::create(path, true)?;
        let mut head = vec![0; payload_at(identity)];
        head[HEADER..HEADER + identity].copy_from_slice(key.identity.as_bytes());
        let mut hash = Box::new(Xxh3Default::new());
        hash.update(&head[HEADER..]);
        file.write_all(&head).map_err(unwritten)?;
        Ok(Self { file, hash, identity, payload: 0 })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(unwritten)?;
        self.hash.update(bytes);
        self.payload += bytes.len() as u64;
        Ok(())
    }

    /// Bytes of the payload so far.
    pub(super) fn position(&self) -> u64 {
        self.payload
    }

    /// Bytes of the file so far.
    pub(super) fn len(&self) -> u64 {
        payload_at(self.identity) as u64 + self.payload
    }

    pub(super) fn commit(mut self) -> Result<()> {
        let header = header_of(self.payload, self.identity as u32, *self.hash);
        self.file.seek(SeekFrom::Start(0)).and_then(|_| self.file.write_all(&header)).map_err(unwritten)?;
        self.file.commit_unsynced()
    }
}

/// The hash of the key in the name of an entry's file.
pub(super) fn hash_in(name: &str) -> Option<u128> {
    let digits = name.strip_suffix(SUFFIX)?;
    (digits.len() == 32).then(|| u128::from_str_radix(digits, 16).ok()).flatten()
}

/// The header before an identity and a payload of these lengths, of which this is the hash.
fn header_of(payload: u64, identity: u32, mut hash: Xxh3Default) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..16].copy_from_slice(&identity.to_le_bytes());
    header[16..24].copy_from_slice(&payload.to_le_bytes());
    hash.update(&header[..24]);
    header[24..32].copy_from_slice(&hash.digest().to_le_bytes());
    header
}

fn payload_at(identity: usize) -> usize {
    (HEADER + identity).next_multiple_of(ALIGNMENT)
}

fn damaged(what: &'static str) -> Error {
    Error::new(ErrorKind::Io, format!("a file of the disk cache {what}"))
}

fn unwritten(error: std::io::Error) -> Error {
    Error::io("cannot write an entry", error)
}
