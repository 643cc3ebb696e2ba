//! Rows in memory files that never change while anybody has them.
//!
//! A small file is written and then sealed for good, before anybody else sees it. So whoever maps it sees the same
//! bytes for ever, whatever the process that wrote it does, or whatever becomes of it. A large one is of a [`Pool`],
//! which writes it again when nobody has it any more. The layout is an Arrow IPC stream (schema, dictionaries, one
//! record batch) whose buffers begin at multiples of 64 bytes, and what the caller adds behind it.

use std::fs::File;
use std::os::fd::OwnedFd;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::MetadataVersion;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::{IpcWriteOptions, StreamEncoder};
use arrow_schema::ArrowError;
use arrow_schema::SchemaRef;
use bytes::Bytes;

use super::memory::sealed;
use super::pool::Pool;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_io::fs::mmap::map_sealed;
use rowdex_rows::{compact, record_batch};

/// A memory file with rows.
#[derive(Debug)]
pub struct Placed {
    pub file: OwnedFd,
    /// Bytes of the Arrow stream.
    pub stream: u64,
    /// Bytes of the file.
    pub length: u64,
}

/// Writes rows, and more behind them, to a file of the pool if they are large. The pool keeps at most `spare` bytes in
/// files that nobody has.
///
/// The rows are copied once, to the file. The kernel need not clear pages that are written as a whole.
pub fn put(rows: &RecordBatch, more: &[u8], pool: &mut Pool, spare: u64) -> Result<Placed> {
    let rows = compact(rows.clone()).map_err(unwritten)?;
    let options = IpcWriteOptions::try_new(64, false, MetadataVersion::V5).map_err(unwritten)?;
    let mut encoder = StreamEncoder::try_new_with_options(rows.schema_ref(), options).map_err(unwritten)?;
    let mut pieces = encoder.encode(&rows).map_err(unwritten)?;
    pieces.extend(encoder.finish().map_err(unwritten)?);
    let stream = pieces.iter().map(|piece| piece.len() as u64).sum();
    let slices: Vec<&[u8]> =
        pieces.iter().map(Buffer::as_slice).chain([more]).filter(|piece| !piece.is_empty()).collect();
    let length = stream + more.len() as u64;
    let file = match pool.put(&slices, length, spare) {
        Some(file) => file,
        None => sealed("rowdex-batch", &slices)?.into(),
    };
    Ok(Placed { file, stream, length })
}

/// The rows of a file from another process, without a copy, and what is behind them. They are the first `length` bytes
/// of the file; those of the Arrow stream are the first `stream`. `rows` are as many as they should be; `schema` is
/// what they should have.
pub fn read(file: &File, stream: u64, length: u64, schema: &SchemaRef, rows: usize) -> Result<(RecordBatch, Bytes)> {
    let whole = map_sealed(file, length).map_err(|error| match error.kind() {
        ErrorKind::Io => error.with_hint("the process or its container may have no more memory"),
        _ => error,
    })?;
    let stream = usize::try_from(stream).ok().filter(|stream| *stream <= whole.len()).ok_or_else(garbled)?;
    let more = whole.slice(stream..);
    let mut buffer = Buffer::from(whole.slice(..stream));
    let mut decoder = StreamDecoder::new();
    let batch = decoder.decode(&mut buffer).map_err(unread)?.ok_or_else(garbled)?;
    if batch.num_rows() != rows || batch.num_columns() != schema.fields().len() {
        return Err(garbled());
    }
    let batch = record_batch(schema, batch.columns().to_vec(), rows).map_err(unread)?;
    Ok((batch, more))
}

fn garbled() -> Error {
    Error::new(ErrorKind::Internal, "a memory file of another process does not have the batch that it should have")
}

fn unread(error: ArrowError) -> Error {
    let message = format!("cannot read a batch of another process: {error}");
    Error::new(ErrorKind::Internal, message).with_source(error)
}

fn unwritten(error: ArrowError) -> Error {
    Error::new(ErrorKind::Internal, format!("cannot lay out a batch for another process: {error}")).with_source(error)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int32Type;
    use arrow_array::{ArrayRef, DictionaryArray, Int64Array, ListArray, StringArray, StringViewArray};
    use arrow_schema::Schema;
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    use rustix::io::Errno;

    use super::*;

    fn rows(count: usize) -> RecordBatch {
        let texts = (0..count).map(|row| (row % 7 != 3).then(|| format!("row number {row} of many")));
        let texts: Vec<Option<String>> = texts.collect();
        let short = texts.iter().map(|text| text.as_ref().map(|text| &text[..text.len() % 5]));
        let lists = (0..count).map(|row| (row % 5 != 1).then(|| vec![Some(row as i32), None]));
        let columns: [(&str, ArrayRef); 5] = [
            ("id", Arc::new(Int64Array::from_iter((0..count as i64).map(|row| (row % 3 > 0).then_some(row))))),
            ("text", Arc::new(StringArray::from_iter(texts.iter()))),
            ("view", Arc::new(StringViewArray::from_iter(texts.iter()))),
            ("class", Arc::new(short.collect::<DictionaryArray<Int32Type>>())),
            ("list", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists))),
        ];
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
    }

    fn sealed(rows: &RecordBatch, more: &[u8]) -> Result<Placed> {
        put(rows, more, &mut Pool::default(), 0)
    }

    fn back(placed: Placed, rows: &RecordBatch) -> Result<(RecordBatch, Bytes)> {
        read(&placed.file.into(), placed.stream, placed.length, &rows.schema(), rows.num_rows())
    }

    #[test]
    fn rows_come_back_as_they_were() {
        let all = rows(1000);
        for rows in [all.clone(), all.slice(0, 0), all.slice(17, 100), all.slice(999, 1)] {
            let (read, more) = back(sealed(&rows, b"more").unwrap(), &rows).unwrap();
            assert_eq!(read, rows);
            assert_eq!(&*more, b"more");
        }
        let none = record_batch(&Arc::new(Schema::empty()), vec![], 7).unwrap();
        assert_eq!(back(sealed(&none, b"").unwrap(), &none).unwrap().0, none);
    }

    #[test]
    fn a_part_of_rows_takes_the_bytes_of_a_part() {
        let all = rows(10_000);
        let (whole, part) = (sealed(&all, b"").unwrap(), sealed(&all.slice(3, 10), b"").unwrap());
        assert!(part.length < 8 << 10 && whole.length > 100 << 10, "{} of {}", part.length, whole.length);
    }

    #[test]
    fn rows_are_not_copied_out_of_the_file() {
        let rows = rows(1000).project(&[0, 1, 2]).unwrap();
        let placed = sealed(&rows, b"").unwrap();
        let (file, stream, length) = (File::from(placed.file), placed.stream, placed.length);
        let before = map_sealed(&file, length).unwrap();
        let (read, more) = self::read(&file, stream, length, &rows.schema(), 1000).unwrap();
        let map = more.as_ptr() as usize - stream as usize;
        for column in read.columns() {
            for buffer in column.to_data().buffers() {
                let at = buffer.as_ptr() as usize;
                assert!((map..map + before.len()).contains(&at), "{at:x} is not in the map");
                assert_eq!(at % 64, 0);
            }
        }
    }

    #[test]
    fn nobody_can_change_a_file_any_more() {
        let placed = sealed(&rows(10), b"").unwrap();
        assert_eq!(rustix::io::pwrite(&placed.file, b"x", 0), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&placed.file, 0), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&placed.file, 1 << 20), Err(Errno::PERM));
    }

    #[test]
    fn a_file_that_is_not_sealed_is_refused() {
        let open = memfd_create("x", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::io::pwrite(&open, &[0; 100], 0).unwrap();
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&open, seals).unwrap();
        for file in [File::from(open), tempfile::tempfile().unwrap()] {
            let error = read(&file, 50, 100, &rows(1).schema(), 1).unwrap_err();
            assert!(error.to_string().contains("sealed"), "{error}");
        }
    }

    #[test]
    fn a_file_with_other_contents_is_an_error() {
        let all = rows(10);
        let Placed { stream, length, .. } = sealed(&all, b"").unwrap();
        let file = || File::from(sealed(&all, b"").unwrap().file);
        assert!(read(&file(), stream + 1, length, &all.schema(), 10).is_err());
        assert!(read(&file(), stream / 2, length, &all.schema(), 10).is_err());
        assert!(read(&file(), stream, length + 1, &all.schema(), 10).is_err());
        assert!(read(&file(), stream, length, &all.schema(), 11).is_err());
        assert!(read(&file(), stream, length, &all.project(&[0]).unwrap().schema(), 10).is_err());
    }

    #[test]
    fn large_rows_are_written_again_to_the_same_file() {
        let (mut pool, mut files) = (Pool::default(), std::collections::BTreeSet::new());
        for count in [60_000, 55_000, 61_000, 20_000, 63_000] {
            let rows = rows(count);
            let placed = put(&rows, b"more", &mut pool, u64::MAX).unwrap();
            files.insert(rustix::fs::fstat(&placed.file).unwrap().st_ino);
            let (read, more) = back(placed, &rows).unwrap();
            assert_eq!((read, &*more), (rows, &b"more"[..]));
        }
        assert_eq!(files.len(), 1);
    }
}
