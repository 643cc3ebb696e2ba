//! A file with spilled rows: segments in Arrow's streaming format with a checksum each, and a table of them.
//!
//! A part is written whole or not at all, by one unit of the first pass. Segments of one bucket are anywhere in it. At
//! the end come the table, its length, its checksum and a mark.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::CompressionType;
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::writer::{IpcWriteOptions, StreamWriter};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_io::fs::{self, atomic::AtomicFile};

const MARK: &[u8; 8] = b"rdxpart2";
/// A length, a checksum and the mark.
const TAIL: u64 = 24;
/// Integers of a segment in the table.
const FIELDS: usize = 6;

/// Rows of one bucket that lie together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpillSegment {
    pub(super) bucket: u64,
    offset: u64,
    length: u64,
    rows: u64,
    /// Bytes that the rows take in memory of just their size.
    bytes: u64,
    hash: u64,
}

impl SpillSegment {
    /// Bytes that the rows take in memory when they are read.
    pub(super) fn memory(&self) -> u64 {
        // What is not compressed stays as it is.
        self.bytes.max(self.length)
    }
}

/// A part being written.
#[derive(Debug)]
pub(super) struct PartWriter {
    file: AtomicFile,
    path: PathBuf,
    compresses: bool,
    at: u64,
    segments: Vec<SpillSegment>,
}

impl PartWriter {
    /// A part that will be at this path, compressed or not.
    pub(super) fn create(path: &Path, compresses: bool) -> Result<Self> {
        let file = AtomicFile::create(path, true)?;
        Ok(Self { file, path: path.to_owned(), compresses, at: 0, segments: Vec::new() })
    }

    /// Adds rows of a bucket, in batches of this schema that are made one by one.
    pub(super) fn add(
        &mut self,
        bucket: u64,
        schema: &SchemaRef,
        batches: impl Iterator<Item = Result<(RecordBatch, u64)>>,
    ) -> Result<()> {
        let mut counted = HashedFile { file: &mut self.file, length: 0, hash: Xxh3Default::new() };
        let mut rows = 0;
        let mut bytes = 0;
        let failed = |error: ArrowError| cannot_write(&self.path, error);
        let options = options(self.compresses)?;
        let mut writer = StreamWriter::try_new_with_options(&mut counted, schema, options).map_err(failed)?;
        for batch in batches {
            let (batch, size) = batch?;
            rows += batch.num_rows() as u64;
            bytes += size;
            writer.write(&batch).map_err(failed)?;
        }
        writer.finish().map_err(failed)?;
        drop(writer);
        let offset = self.at;
        let length = counted.length;
        let hash = counted.hash.digest();
        self.at += length;
        self.segments.push(SpillSegment { bucket, offset, length, rows, bytes, hash });
        Ok(())
    }

    /// How many bytes were written.
    pub(super) fn written(&self) -> u64 {
        self.at
    }

    /// Puts the part in its place. It need not outlive a power cut: who reads it compares checksums.
    pub(super) fn finish(mut self) -> Result<SpillPart> {
        let segments = std::mem::take(&mut self.segments);
        let integers = segments.iter().flat_map(|segment| {
            let SpillSegment { bucket, offset, length, rows, bytes, hash } = *segment;
            [bucket, offset, length, rows, bytes, hash]
        });
        let mut end: Vec<u8> = integers.flat_map(u64::to_le_bytes).collect();
        let tail = [end.len() as u64, xxh3_64(&end)];
        end.extend(tail.into_iter().flat_map(u64::to_le_bytes));
        end.extend_from_slice(MARK);
        self.file.write_all(&end).map_err(|error| cannot_write(&self.path, error.into()))?;
        self.file.commit_unsynced()?;
        Ok(SpillPart { path: self.path, segments })
    }
}

/// A part that is there, whole as far as its table tells.
#[derive(Debug, Clone)]
pub(super) struct SpillPart {
    path: PathBuf,
    segments: Vec<SpillSegment>,
}

impl SpillPart {
    /// Opens a part, and keeps of its table the segments of these buckets.
    ///
    /// # Errors
    /// `NotFound` if it is not there, and `Io` if it is damaged.
    pub(super) fn open(path: &Path, buckets: Range<u64>) -> Result<Self> {
        let named = |error: Error| error.with_file(path.display().to_string());
        let read =
            |file: &File, range| fs::read_at(file, range).map_err(|error| Error::io("cannot read the part", error));
        let open = || {
            let (file, length) = fs::regular(path, "the part", ErrorKind::Io)?;
            let tail = read(&file, length.saturating_sub(TAIL)..length)?;
            let Some((tail, mark)) = tail.split_last_chunk::<8>().filter(|_| length >= TAIL) else {
                return Err(damaged());
            };
            let [size, hash] = <[u64; 2]>::try_from(integers(tail)).map_err(|_| damaged())?;
            let size = Some(size).filter(|size| mark == MARK && *size <= length - TAIL).ok_or_else(damaged)?;
            let table = read(&file, length - TAIL - size..length - TAIL)?;
            if xxh3_64(&table) != hash {
                return Err(damaged());
            }
            let segment = |fields: &[u64]| match *fields {
                [bucket, offset, length, rows, bytes, hash] if buckets.contains(&bucket) => {
                    Some(SpillSegment { bucket, offset, length, rows, bytes, hash })
                }
                _ => None,
            };
            let segments = integers(&table).chunks(FIELDS).filter_map(segment).collect();
            Ok(Self { path: path.to_owned(), segments })
        };
        open().map_err(named)
    }

    /// The segments of a bucket.
    pub(super) fn segments(&self, bucket: u64) -> impl Iterator<Item = &SpillSegment> {
        self.segments.iter().filter(move |segment| segment.bucket == bucket)
    }

    /// The batches of a segment, whose checksum is compared. What is not compressed is not copied: batches keep all of
    /// their segment in memory.
    pub(super) fn read(&self, segment: &SpillSegment) -> Result<impl Iterator<Item = Result<RecordBatch>> + use<>> {
        let path = self.path.display().to_string();
        let read = || {
            let (file, _) = fs::regular(&self.path, "the part", ErrorKind::Io)?;
            let range = segment.offset..segment.offset.saturating_add(segment.length);
            let bytes = fs::read_at(&file, range).map_err(|error| Error::io("cannot read the part", error))?;
            if bytes.len() as u64 != segment.length || xxh3_64(&bytes) != segment.hash {
                return Err(damaged());
            }
            Ok(Buffer::from(bytes))
        };
        let mut rest = read().map_err(|error| error.with_file(path.clone()))?;
        let mut decoder = StreamDecoder::new();
        Ok(std::iter::from_fn(move || {
            let batch = decoder.decode(&mut rest).map_err(|error| unread(&error).with_file(path.clone()));
            batch.transpose()
        }))
    }
}

/// How many bytes a batch takes when it is spilled, compressed or not.
pub(super) fn spilled_bytes(batch: &RecordBatch, compresses: bool) -> Result<u64> {
    let failed = |error: ArrowError| Error::new(ErrorKind::Internal, format!("cannot encode rows: {error}"));
    let mut bytes = Vec::new();
    let options = options(compresses)?;
    let mut writer = StreamWriter::try_new_with_options(&mut bytes, &batch.schema(), options).map_err(failed)?;
    writer.write(batch).and_then(|()| writer.finish()).map_err(failed)?;
    drop(writer);
    Ok(bytes.len() as u64)
}

fn options(compresses: bool) -> Result<IpcWriteOptions> {
    IpcWriteOptions::default()
        .try_with_compression(compresses.then_some(CompressionType::LZ4_FRAME))
        .map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))
}

fn integers(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
}

fn damaged() -> Error {
    Error::new(ErrorKind::Io, "the part with spilled rows is damaged")
        .with_hint("remove it, and go on with what is left: its rows are spilled again")
}

fn unread(error: &ArrowError) -> Error {
    Error::new(ErrorKind::Io, format!("the part with spilled rows cannot be decoded: {error}"))
}

fn cannot_write(path: &Path, error: ArrowError) -> Error {
    let error = match error {
        ArrowError::IoError(_, error) => Error::io("cannot write spilled rows", error),
        other => Error::new(ErrorKind::Internal, format!("cannot spill rows: {other}")),
    };
    error.with_file(path.display().to_string())
}

/// Counts and hashes what passes.
struct HashedFile<'a> {
    file: &'a mut AtomicFile,
    length: u64,
    hash: Xxh3Default,
}

impl Write for HashedFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all(bytes)?;
        self.hash.update(bytes);
        self.length += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int64Array;
    use rowdex_rows::Footprint;

    use super::*;

    fn batch(first: i64, rows: i64) -> RecordBatch {
        let ids = Int64Array::from_iter_values(first..first + rows);
        RecordBatch::try_from_iter([("id", Arc::new(ids) as _)]).unwrap()
    }

    fn written(path: &Path, compresses: bool) {
        let mut writer = PartWriter::create(path, compresses).unwrap();
        for (bucket, first) in [(2, 0), (5, 100), (2, 200)] {
            let rows = batch(first, 50);
            writer.add(bucket, &rows.schema(), [Ok((rows.clone(), 400))].into_iter()).unwrap();
        }
        writer.finish().unwrap();
    }

    #[test]
    fn segments_of_a_bucket_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.part");
        for compresses in [false, true] {
            written(&path, compresses);
            let part = SpillPart::open(&path, 0..3).unwrap();
            let read = |segment| part.read(segment).unwrap().map(Result::unwrap).collect::<Vec<_>>();
            let found: Vec<_> = part.segments(2).flat_map(read).collect();
            assert_eq!(found, [batch(0, 50), batch(200, 50)]);
            let bytes = part.segments(2).map(|segment| segment.bytes).sum::<u64>();
            assert_eq!((part.segments(5).count(), bytes), (0, 800));
        }
    }

    #[test]
    fn batches_that_are_not_compressed_share_the_memory_of_their_segment() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.part");
        let mut writer = PartWriter::create(&path, false).unwrap();
        let rows = batch(0, 5000);
        writer.add(0, &rows.schema(), [Ok((rows.clone(), 40_000)), Ok((rows.clone(), 40_000))].into_iter()).unwrap();
        let part = writer.finish().unwrap();
        let segment = part.segments(0).next().unwrap();
        let read: Vec<_> = part.read(segment).unwrap().map(Result::unwrap).collect();
        let mut footprint = Footprint::default();
        assert_eq!(read.iter().map(|batch| footprint.add(batch)).collect::<Vec<_>>(), [segment.memory(), 0]);
    }

    #[test]
    fn every_flipped_byte_is_noticed_and_so_is_every_missing_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.part");
        written(&path, true);
        let whole = std::fs::read(&path).unwrap();
        let check = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let part = SpillPart::open(&path, 0..9)?;
            for segment in &part.segments {
                part.read(segment)?.try_for_each(|batch| batch.map(drop))?;
            }
            Ok::<_, Error>(())
        };
        check(&whole).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            assert_eq!(check(&bytes).unwrap_err().kind(), ErrorKind::Io, "byte {at}");
            assert_eq!(check(&whole[..at]).unwrap_err().kind(), ErrorKind::Io, "{at} bytes");
        }
    }
}
