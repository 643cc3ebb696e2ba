//! Spilled rows: a folder of parts, each with segments in Arrow's streaming format with a checksum each, and a table of
//! them.
//!
//! A part is written whole or not at all, by one unit of the first pass. Segments of one bucket are anywhere in it. At
//! the end come the table as JSON, its length and its checksum.

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::CompressionType;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_schema::ArrowError;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::json;
use xxhash_rust::xxh3::xxh3_64;

use super::RewritePlan;
use super::output::{RewriteOutput, SPILL, failed, real, remove_folder};
use super::shape::Buckets;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_io::fs::{self, atomic::AtomicFile};
use rowdex_io::source::place::{Place, shown};

/// A length and a checksum.
const TAIL: u64 = 16;

/// Rows of one bucket that lie together: one batch.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct SpillSegment {
    bucket: u32,
    offset: u64,
    length: u64,
    /// Bytes that the rows take in memory when they are read.
    pub(super) memory: u64,
    hash: u64,
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

    /// Adds rows of a bucket, which take so many bytes in memory.
    pub(super) fn add(&mut self, bucket: u32, rows: &RecordBatch, bytes: u64) -> Result<()> {
        let encoded = encoded(rows, self.compresses)?;
        self.write(&encoded)?;
        let length = encoded.len() as u64;
        // What is not compressed stays as it is.
        let memory = bytes.max(length);
        self.segments.push(SpillSegment { bucket, offset: self.at, length, memory, hash: xxh3_64(&encoded) });
        self.at += length;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|error| failed("cannot write spilled rows", &self.path, error))
    }

    /// Puts the part in its place. It need not outlive a power cut: who reads it compares checksums. Returns how many
    /// bytes of rows it has.
    pub(super) fn finish(mut self) -> Result<u64> {
        let mut end = json!(self.segments).to_string().into_bytes();
        let tail = [end.len() as u64, xxh3_64(&end)];
        end.extend(tail.into_iter().flat_map(u64::to_le_bytes));
        self.write(&end)?;
        self.file.commit_unsynced()?;
        Ok(self.at)
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
    pub(super) fn open(path: &Path, buckets: Range<u32>) -> Result<Self> {
        let open = || {
            let (file, length) = fs::regular(path, "the part", ErrorKind::Io)?;
            let end = length.checked_sub(TAIL).ok_or_else(damaged)?;
            let tail = read(&file, end..length)?;
            let [size, hash] = [0, 8].map(|at| tail[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes)));
            let start = size.and_then(|size| end.checked_sub(size)).ok_or_else(damaged)?;
            let table = read(&file, start..end)?;
            if Some(xxh3_64(&table)) != hash {
                return Err(damaged());
            }
            let mut segments: Vec<SpillSegment> = serde_json::from_slice(&table).map_err(|_| damaged())?;
            segments.retain(|segment| buckets.contains(&segment.bucket));
            Ok(Self { path: path.to_owned(), segments })
        };
        open().map_err(|error: Error| error.with_file(shown(path)))
    }

    /// The segments of a bucket.
    pub(super) fn segments(&self, bucket: u32) -> impl Iterator<Item = &SpillSegment> {
        self.segments.iter().filter(move |segment| segment.bucket == bucket)
    }

    /// The rows of a segment, whose checksum is compared. What is not compressed is not copied: the rows keep all of
    /// their segment in memory.
    pub(super) fn read(&self, segment: &SpillSegment) -> Result<RecordBatch> {
        let rows = || {
            let (file, _) = fs::regular(&self.path, "the part", ErrorKind::Io)?;
            let bytes = read(&file, segment.offset..segment.offset.saturating_add(segment.length))?;
            if bytes.len() as u64 != segment.length || xxh3_64(&bytes) != segment.hash {
                return Err(damaged());
            }
            let rows = StreamDecoder::new().decode(&mut Buffer::from(bytes));
            rows.ok().flatten().ok_or_else(damaged)
        };
        rows().map_err(|error: Error| error.with_file(shown(&self.path)))
    }
}

fn read(file: &File, range: Range<u64>) -> Result<Bytes> {
    fs::read_at(file, range).map_err(|error| Error::io("cannot read spilled rows", error))
}

/// Rows as they are spilled, compressed or not.
pub(super) fn encoded(rows: &RecordBatch, compresses: bool) -> Result<Vec<u8>> {
    let encode = || {
        let compression = compresses.then_some(CompressionType::LZ4_FRAME);
        let options = IpcWriteOptions::default().try_with_compression(compression)?;
        let mut writer = StreamWriter::try_new_with_options(Vec::new(), &rows.schema(), options)?;
        writer.write(rows)?;
        writer.into_inner()
    };
    encode().map_err(|error: ArrowError| Error::new(ErrorKind::Internal, format!("cannot spill rows: {error}")))
}

fn damaged() -> Error {
    Error::new(ErrorKind::Io, "the part with spilled rows is damaged")
        .with_hint("remove it, and resume with what is left: its rows are spilled again")
}

/// The folder with spilled rows.
#[derive(Debug)]
pub(super) struct Spill {
    /// `None` if the output is in a store, and no folder was named.
    path: Option<PathBuf>,
    pub(super) buckets: Buckets,
}

impl Spill {
    /// The folder for a plan and an output: in `given`, where other rewrites may have theirs, or in the output folder.
    /// Its name has the fingerprint of the plan, so that rows of another plan are never gone on with.
    ///
    /// # Errors
    /// `InvalidArgument` for a URL.
    pub(super) fn new(
        given: Option<&Path>,
        output: &RewriteOutput,
        plan: &RewritePlan,
        buckets: Buckets,
    ) -> Result<Self> {
        let name = format!("rowdex-spill-{:016x}", plan.fingerprint());
        let path = match given.map(Place::of).transpose()? {
            None => output.folder().map(|folder| folder.join(SPILL).join(name)),
            Some(Place::Local(folder)) => {
                let place = output.folder().map_or_else(|| output.path(""), real);
                Some(folder.join(format!("{name}-{:016x}", xxh3_64(place.as_os_str().as_encoded_bytes()))))
            }
            Some(Place::Remote(url)) => {
                return Err(Error::invalid("rows are not spilled to a store")
                    .with_file(url.to_string())
                    .with_hint("name a folder of a local disk, or one that all machines mount"));
            }
        };
        Ok(Self { path, buckets })
    }

    /// # Errors
    /// `InvalidArgument` if there is none.
    pub(super) fn folder(&self) -> Result<&Path> {
        self.path.as_deref().ok_or_else(|| {
            Error::invalid("rows have to be spilled, and no folder is named for them").with_hint(
                "name a spill folder on a local disk (or one that all machines mount, for tasks), or give more memory",
            )
        })
    }

    /// Whether anything was spilled here.
    pub(super) fn is_begun(&self) -> bool {
        self.path.as_deref().is_some_and(Path::exists)
    }

    /// The file of a part.
    pub(super) fn part(&self, part: u64) -> Result<PathBuf> {
        Ok(self.folder()?.join(format!("{part:06}.part")))
    }

    pub(super) fn remove(&self) -> Result<()> {
        self.path.as_deref().map_or(Ok(()), remove_folder)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::Int64Array;
    use rowdex_rows::Footprint;

    use super::*;

    fn batch(first: i64, rows: i64) -> RecordBatch {
        let ids = Int64Array::from_iter_values(first..first + rows);
        RecordBatch::try_from_iter([("id", Arc::new(ids) as _)]).unwrap()
    }

    fn written(path: &Path, compresses: bool) {
        let mut writer = PartWriter::create(path, compresses).unwrap();
        for (bucket, first) in [(2, 0), (5, 100), (2, 200)] {
            writer.add(bucket, &batch(first, 50), 400).unwrap();
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
            let found: Vec<_> = part.segments(2).map(|segment| part.read(segment).unwrap()).collect();
            assert_eq!(found, [batch(0, 50), batch(200, 50)]);
            assert_eq!(part.segments(5).count(), 0);
        }
    }

    #[test]
    fn rows_that_are_not_compressed_take_the_memory_of_their_segment() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.part");
        let mut writer = PartWriter::create(&path, false).unwrap();
        writer.add(0, &batch(0, 5000), 40_000).unwrap();
        writer.finish().unwrap();
        let part = SpillPart::open(&path, 0..1).unwrap();
        let segment = part.segments(0).next().unwrap();
        assert_eq!(Footprint::default().add(&part.read(segment).unwrap()), segment.memory);
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
            part.segments.iter().try_for_each(|segment| part.read(segment).map(drop))
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
