//! The end of a file, where its footer is.

use bytes::Bytes;

use super::checks::encrypted;
use crate::errors::{internal, invalid, too_large};
use rowdex_base::error::{Error, Result};
use rowdex_io::source::{FileStat, Source};

/// Length of the footer and magic number, at the very end of a file.
const TAIL: u64 = 8;

/// Magic number at the start, length and magic number at the end.
const SMALLEST: u64 = 12;

/// A longer footer is not believed: parsed, it would take several times as much memory.
const MAX_FOOTER: u64 = 512 << 20;

/// The footer of one file, as it is stored.
#[derive(Debug, Clone)]
pub struct Footer {
    /// The encoded metadata, without the length and magic number behind it.
    pub bytes: Bytes,
    /// 64-bit xxh3 of [`bytes`](Self::bytes).
    pub hash: u64,
    /// Length of the whole file in bytes.
    pub file_size: u64,
}

/// Reads the footer of `path`, of which nothing need be known: one read of `guess` bytes, which tells the stat, too,
/// and a second one if the footer is longer than that. `expected` is as in [`Source::end`].
///
/// # Errors
///
/// `InvalidParquet` if the file is empty, too short, not Parquet, or declares a footer that it has no
/// room for; `UnsupportedParquet` if the footer is encrypted; whatever the source reports.
pub fn read_end(
    source: &dyn Source,
    path: &str,
    guess: u64,
    expected: Option<&FileStat>,
) -> Result<(FileStat, Footer)> {
    let read = || {
        let (stat, end) = source.end(path, guess.max(SMALLEST), expected)?;
        let footer = footer_in(source, path, &stat, end)?;
        Ok((stat, footer))
    };
    read().map_err(|error: Error| error.with_file(path))
}

/// The footer in the last bytes of a file, the rest of which is read if it does not fit in.
fn footer_in(source: &dyn Source, path: &str, stat: &FileStat, end: Bytes) -> Result<Footer> {
    let file_size = stat.size;
    match file_size {
        0 => return Err(invalid("the file is empty")),
        1..SMALLEST => return Err(invalid(format!("{file_size} bytes are too few for a Parquet file"))),
        _ => {}
    }
    let Some((before, tail)) = end.split_last_chunk::<{ TAIL as usize }>() else {
        return Err(invalid("the file is too short for a Parquet file"));
    };
    let [l0, l1, l2, l3, magic @ ..] = *tail;
    match &magic {
        b"PAR1" => {}
        b"PARE" => return Err(encrypted("the footer is encrypted")),
        _ => return Err(invalid("not a Parquet file, or one cut off: it does not end in PAR1")),
    }
    let length = u64::from(u32::from_le_bytes([l0, l1, l2, l3]));
    if length == 0 || length > file_size - SMALLEST {
        return Err(invalid(format!("the footer claims {length} bytes, and the file has {file_size}")));
    }
    if length > MAX_FOOTER {
        return Err(too_large(format!("the footer is {length} bytes long")));
    }
    let here = before.len() as u64;
    let bytes = if length <= here {
        end.slice((here - length) as usize..here as usize)
    } else {
        let range = file_size - TAIL - length..file_size - TAIL;
        let mut read = source.read_unchanged(path, Some(stat), std::slice::from_ref(&range))?;
        read.pop().ok_or_else(|| internal("the source answered a read with nothing"))?
    };
    let hash = xxhash_rust::xxh3::xxh3_64(&bytes);
    Ok(Footer { bytes, hash, file_size })
}
