//! Decoded rows as the payload of an entry: messages of Arrow's streaming format, uncompressed, which can be mapped.
//!
//! The schema, then for each chunk its new dictionaries and its record batch; each message begins at a multiple of 64
//! bytes. At the end, two integers for each chunk (where its record batch begins and ends) and the number of chunks,
//! all `u64`, little-endian. Record batches are used where they are mapped. Dictionaries are copied, because rows
//! that are picked out share them, and would keep the map alive.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::{
    DictionaryTracker, EncodedData, IpcDataGenerator, IpcWriteContext, IpcWriteOptions, write_message,
};
use arrow_schema::ArrowError;
use bytes::Bytes;

use super::Kept;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_io::disk_cache::Maker;
use rowdex_rows::{compact_sparse, record_batch};

/// Decoded bytes of a chunk, about: two or three of them fit a core's own cache.
const CHUNK_BYTES: u64 = 1 << 20;
const INTEGER: usize = size_of::<u64>();

/// How many rows of `bytes` in all make a chunk.
pub(super) fn chunk_rows(rows: u64, bytes: u64) -> usize {
    let chunk = u128::from(rows) * u128::from(CHUNK_BYTES) / u128::from(bytes.max(1));
    usize::try_from(chunk).unwrap_or(usize::MAX).max(64)
}

/// Writes the rows of a row group while they are decoded.
pub(super) struct RowsWriter<'a> {
    maker: Maker<'a, Kept>,
    chunk_rows: usize,
    dictionaries: DictionaryTracker,
    options: IpcWriteOptions,
    context: IpcWriteContext,
    /// Where record batches begin and end.
    table: Vec<u64>,
}

impl<'a> RowsWriter<'a> {
    /// Rows that come in one piece are cut into chunks of so many.
    pub(super) fn new(maker: Maker<'a, Kept>, chunk_rows: usize) -> Self {
        let dictionaries = DictionaryTracker::new(false);
        let options = IpcWriteOptions::default();
        let context = IpcWriteContext::default();
        Self { maker, chunk_rows, dictionaries, options, context, table: Vec::new() }
    }

    pub(super) fn chunk_rows(&self) -> usize {
        self.chunk_rows
    }

    /// Adds the next rows. What goes wrong switches the disk cache off.
    pub(super) fn add(&mut self, batch: &RecordBatch) {
        // Chunks of a reader are about as large as ours, and cut alike by its like.
        let large = batch.num_rows() > self.chunk_rows.saturating_mul(2);
        let step = if large { self.chunk_rows } else { batch.num_rows().max(1) };
        for start in (0..batch.num_rows()).step_by(step) {
            if !self.maker.goes_on() {
                return;
            }
            let rows = step.min(batch.num_rows() - start);
            if let Err(error) = self.add_chunk(&batch.slice(start, rows)) {
                self.maker.fail(Error::new(ErrorKind::UnsupportedParquet, error.to_string()).with_source(error));
            }
        }
    }

    fn add_chunk(&mut self, chunk: &RecordBatch) -> Result<(), ArrowError> {
        // Views of pages that the chunk shares with others would each bring all of those pages along.
        let mut columns = chunk.columns().to_vec();
        columns.iter_mut().for_each(compact_sparse);
        let chunk = record_batch(chunk.schema_ref(), columns, chunk.num_rows())?;
        let generator = IpcDataGenerator::default();
        if self.table.is_empty() {
            let schema = chunk.schema();
            let schema =
                generator.schema_to_bytes_with_dictionary_tracker(&schema, &mut self.dictionaries, &self.options);
            self.write(schema)?;
        }
        let (dictionaries, rows) =
            generator.encode(&chunk, &mut self.dictionaries, &self.options, &mut self.context)?;
        for dictionary in dictionaries {
            self.write(dictionary)?;
        }
        self.table.push(self.maker.position());
        self.write(rows)?;
        self.table.push(self.maker.position());
        Ok(())
    }

    fn write(&mut self, message: EncodedData) -> Result<(), ArrowError> {
        write_message(EntryRows(&mut self.maker), message, &self.options).map(drop)
    }

    /// Puts the entry in its place.
    pub(super) fn finish(mut self) {
        let chunks = (self.table.len() / 2) as u64;
        let table: Vec<u8> = self.table.iter().chain([&chunks]).flat_map(|integer| integer.to_le_bytes()).collect();
        self.maker.write(&table);
        self.maker.commit();
    }
}

/// What is written to an entry that was given up is nobody's concern.
struct EntryRows<'a, 'b>(&'a mut Maker<'b, Kept>);

impl io::Write for EntryRows<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The chunks of a payload, and how much memory they take besides it.
///
/// # Errors
/// If it is anything but what a [`RowsWriter`] writes. Every array is validated.
pub(super) fn parse(payload: &Bytes) -> Result<(Vec<RecordBatch>, u64)> {
    let damaged =
        |what: String| Error::new(ErrorKind::Io, format!("an entry of the disk cache cannot be read: {what}"));
    let parsed = catch_unwind(AssertUnwindSafe(|| parse_messages(payload)));
    parsed.map_err(|_| damaged("the reader panicked".into()))?.map_err(|error| damaged(error.to_string()))
}

fn parse_messages(payload: &Bytes) -> Result<(Vec<RecordBatch>, u64), ArrowError> {
    let wrong = || ArrowError::IpcError("its table is wrong".into());
    let (front, count) = payload.split_last_chunk::<INTEGER>().ok_or_else(wrong)?;
    let chunks = usize::try_from(u64::from_le_bytes(*count)).map_err(|_| wrong())?;
    let table = chunks.checked_mul(2 * INTEGER).and_then(|length| front.len().checked_sub(length));
    let end = table.filter(|_| chunks > 0).ok_or_else(wrong)?;
    let integers = front[end..].chunks_exact(INTEGER).filter_map(|bytes| bytes.first_chunk::<INTEGER>());
    let places: Vec<usize> = integers.map(|bytes| u64::from_le_bytes(*bytes) as usize).collect();
    let mut decoder = StreamDecoder::new().with_require_alignment(true);
    let mut batches = Vec::with_capacity(chunks);
    let mut at = 0;
    let mut copied = 0;
    for place in places.chunks_exact(2) {
        let start = place[0];
        let stop = place[1];
        if start < at || stop < start || stop > end {
            return Err(wrong());
        }
        let mut before = Buffer::from_slice_ref(&payload[at..start]);
        copied += before.len() as u64;
        if decoder.decode(&mut before)?.is_some() {
            return Err(wrong());
        }
        let mut mapped = Buffer::from(payload.slice(start..stop));
        batches.push(decoder.decode(&mut mapped)?.ok_or_else(wrong)?);
        at = stop;
    }
    Ok((batches, copied))
}
