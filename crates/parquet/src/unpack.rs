//! Decompressing pages, each to memory of a size that is known.

use std::io::{self, Read};

use bytes::{Bytes, BytesMut};
use parquet::basic::Compression;

/// Whether pages of this codec are decompressed here to be decoded. The others are left to the parquet crate: the older
/// of the two names of LZ4 stands for three layouts, which are told apart by trying.
pub(super) fn knows(compression: Compression) -> bool {
    use Compression::{BROTLI, GZIP, LZ4_RAW, SNAPPY, UNCOMPRESSED, ZSTD};
    matches!(compression, UNCOMPRESSED | SNAPPY | GZIP(_) | BROTLI(_) | ZSTD(_) | LZ4_RAW)
}

/// Pages of at most so many bytes are decompressed to memory that several share, because the allocator takes as long as
/// they do.
const SMALL: usize = 8 << 10;
/// Bytes of such memory.
const TOGETHER: usize = 32 << 10;

/// Decompresses pages one after the other.
#[derive(Default)]
pub(super) struct Unpacker {
    snappy: snap::raw::Decoder,
    /// Made for the first page, because it takes some memory.
    zstd: Option<zstd::bulk::Decompressor<'static>>,
    /// Memory for small pages, of which several lie one behind the other.
    small: BytesMut,
}

impl Unpacker {
    /// What is in a page, of about `size` bytes.
    pub(super) fn page(&mut self, compression: Compression, packed: &[u8], size: usize) -> io::Result<Bytes> {
        if size == 0 {
            // No value is there, and writers differ in what they make of that.
            return Ok(Bytes::new());
        }
        if size <= SMALL && matches!(compression, Compression::SNAPPY | Compression::LZ4_RAW | Compression::ZSTD(_)) {
            if self.small.capacity() < size {
                self.small = BytesMut::with_capacity(TOGETHER);
            }
            self.small.resize(size, 0);
            let mut page = self.small.split();
            let length = self.unpack_to(compression, packed, &mut page)?;
            page.truncate(length);
            return Ok(page.freeze());
        }
        let mut page = Vec::new();
        self.unpack(compression, packed, size, &mut page)?;
        Ok(page.into())
    }

    /// Puts what is packed, at most `size` bytes, in the place of what is in `out`.
    pub(super) fn unpack(
        &mut self,
        compression: Compression,
        packed: &[u8],
        size: usize,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let length = match compression {
            Compression::SNAPPY | Compression::LZ4_RAW => {
                out.resize(size, 0);
                self.unpack_to(compression, packed, out)?
            }
            Compression::ZSTD(_) => {
                // What it writes to need not be cleared.
                out.clear();
                out.reserve_exact(size);
                self.zstd()?.decompress_to_buffer(packed, out)?
            }
            Compression::GZIP(_) => read(&mut flate2::read::MultiGzDecoder::new(packed), size, out)?,
            Compression::LZ4 => unpack_any_lz4(packed, size, out)?,
            Compression::BROTLI(_) => read(&mut brotli::Decompressor::new(packed, 1 << 16), size, out)?,
            other => return Err(io::Error::new(io::ErrorKind::Unsupported, format!("compressed as {other}"))),
        };
        if length > size {
            return Err(io::Error::other("there is more than its header says"));
        }
        out.truncate(length);
        Ok(())
    }

    /// Puts what is packed to the front of `out`. Returns how many bytes it wrote.
    fn unpack_to(&mut self, compression: Compression, packed: &[u8], out: &mut [u8]) -> io::Result<usize> {
        match compression {
            Compression::SNAPPY => self.snappy.decompress(packed, out).map_err(io::Error::other),
            Compression::LZ4_RAW => lz4_flex::block::decompress_into(packed, out).map_err(io::Error::other),
            Compression::ZSTD(_) => self.zstd()?.decompress_to_buffer(packed, out),
            other => Err(io::Error::new(io::ErrorKind::Unsupported, format!("compressed as {other}"))),
        }
    }

    fn zstd(&mut self) -> io::Result<&mut zstd::bulk::Decompressor<'static>> {
        match &mut self.zstd {
            Some(zstd) => Ok(zstd),
            none => Ok(none.insert(zstd::bulk::Decompressor::new()?)),
        }
    }
}

/// The layouts that the older name of LZ4 stands for, in the order in which the parquet crate tries them: Hadoop's,
/// frames, and a bare block.
fn unpack_any_lz4(packed: &[u8], size: usize, out: &mut Vec<u8>) -> io::Result<usize> {
    out.resize(size, 0);
    if let Some(length) = unpack_hadoop_lz4(packed, out) {
        return Ok(length);
    }
    if let Ok(length) = read(&mut lz4_flex::frame::FrameDecoder::new(packed), size, out) {
        return Ok(length);
    }
    out.resize(size, 0);
    lz4_flex::block::decompress_into(packed, out).map_err(io::Error::other)
}

/// Blocks, each behind its length and that of what is in it.
fn unpack_hadoop_lz4(mut packed: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut at = 0;
    while !packed.is_empty() {
        let (size, rest) = packed.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (block, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        let size = u32::from_be_bytes(*size) as usize;
        let room = out.get_mut(at..)?.get_mut(..size)?;
        at += lz4_flex::block::decompress_into(block, room).ok().filter(|length| *length == size)?;
        packed = rest;
    }
    Some(at)
}

/// Reads what comes, and one byte too many if there are more than `size`.
fn read(stream: &mut dyn Read, size: usize, out: &mut Vec<u8>) -> io::Result<usize> {
    out.clear();
    out.reserve_exact(size);
    stream.take(size as u64 + 1).read_to_end(out)
}
