//! The disk cache around a reader: row groups that were read before come from a folder that all processes of the
//! machine share.
//!
//! An entry is named after everything that its bytes depend on: this version of rowdex, where the file is and what it
//! was when it was indexed, the row group, and the types and rows that were decoded. So an entry is never stale: a file
//! that changed is another file.

mod rows;
#[cfg(test)]
mod tests;

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_128};

use super::reader::{AtHand, FileReader, Prefetch, RowGroupRead, Slots};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_index::schema;
use rowdex_io::disk_cache::{CacheFolder, CacheKey, Claim, DiskCache, DiskCacheCounters, Maker};
use rowdex_io::source::FileStat;
use rowdex_parquet::RowSink;
use rowdex_projection::{Projection, children};
use rowdex_rows::{Chunks, detach, gather, join_exactly, record_batch, uncopied};

use self::rows::RowsWriter;

/// An entry that is open: all served rows of a row group, in chunks, in mapped memory but for dictionaries.
pub(super) type Kept = Vec<RecordBatch>;

/// Reads row groups from the disk cache, and from the data files what the disk cache does not have.
pub(super) struct CachedReader {
    reader: Arc<FileReader>,
    disk_cache: CacheFolder<Kept>,
    /// Where the files are, by name.
    place: String,
    /// What may be asked for: what the dataset serves, and the same with strings and binary as views.
    projections: [Projection; 2],
    /// Of the schemas that rows were decoded to, by which Arrow types entries are told apart; `None` for those that
    /// are not kept.
    fingerprints: Mutex<Vec<(SchemaRef, Option<u128>)>>,
}

impl CachedReader {
    pub(super) fn new(options: DiskCache, reader: Arc<FileReader>, place: String, served: &Projection) -> Self {
        let projections = [served.clone(), served.clone().serving_views()];
        Self {
            reader,
            disk_cache: CacheFolder::new(options, |bytes| rows::parse(&bytes)),
            place,
            projections,
            fingerprints: Mutex::default(),
        }
    }

    /// As [`FileReader::read`].
    pub(super) fn read(
        &self,
        read: RowGroupRead<'_>,
        prefetch: Option<Prefetch>,
        sink: &mut dyn RowSink,
    ) -> Result<u64> {
        let Some(key) = self.rows_key(read) else {
            return self.reader.read(read, &AtHand::waited_for(prefetch)?, sink);
        };
        let estimate = read.decoded_bytes();
        let makes = read.keeps && estimate <= self.reader.max_decoded_bytes();
        let claim = match makes {
            true => self.disk_cache.find_or_make(key.clone(), estimate),
            false => self.disk_cache.find(&key).map_or(Claim::Without, Claim::Found),
        };
        match claim {
            Claim::Found(kept) => {
                if are_many(read.slots, read.group.entry.rows()) {
                    self.disk_cache.expect(&key);
                }
                serve_rows(read, &kept, sink)
            }
            Claim::Without => self.reader.read(read, &AtHand::waited_for(prefetch)?, sink),
            Claim::Make(maker) => self.make(read, prefetch, sink, &key, maker),
        }
    }

    /// As [`FileReader::prefetch`].
    pub(super) fn prefetch(&self, read: RowGroupRead<'_>) -> Option<Prefetch> {
        // An entry is of all rows, in the types that whoever is going to ask for them may want.
        let read_to = |projection| RowGroupRead { projection, ..read };
        let mut keys = self.projections.iter().filter_map(|projection| self.rows_key(read_to(projection)));
        if keys.any(|key| self.disk_cache.contains(&key)) { None } else { self.reader.prefetch(read.all()) }
    }

    pub(super) fn counters(&self) -> DiskCacheCounters {
        self.disk_cache.counters()
    }

    /// Why nothing more is kept, if so.
    pub(super) fn fault(&self) -> Option<Error> {
        self.disk_cache.fault()
    }

    /// Makes the entry of a row group, and hands over rows of it.
    fn make(
        &self,
        read: RowGroupRead<'_>,
        prefetch: Option<Prefetch>,
        sink: &mut dyn RowSink,
        key: &CacheKey,
        maker: Maker<'_, Kept>,
    ) -> Result<u64> {
        let mut writer = RowsWriter::new(maker, rows::chunk_rows(read.group.entry.rows(), read.decoded_bytes()));
        let wants_all = matches!(read.slots, Slots::All);
        // Other rows of it will be wanted later: all of them are decoded now, so that none need be then.
        let passes_on: Option<&mut dyn RowSink> = if wants_all { Some(&mut *sink) } else { None };
        let mut copying = Copying { writer: &mut writer, passes_on };
        let at_hand = AtHand::waited_for(prefetch);
        let whole = at_hand.and_then(|at_hand| self.reader.read(read.all(), &at_hand, &mut copying));
        let bytes = match whole {
            Ok(bytes) => {
                writer.finish();
                bytes
            }
            Err(error) if wants_all => return Err(error),
            // The few rows may be sound where others are not.
            Err(_) => 0,
        };
        if wants_all {
            return Ok(bytes);
        }
        match self.disk_cache.look(key) {
            Some(kept) => serve_rows(read, &kept, sink).map(|_| bytes),
            None => Ok(bytes + self.reader.read(read, &AtHand::default(), sink)?),
        }
    }

    fn rows_key(&self, read: RowGroupRead<'_>) -> Option<CacheKey> {
        let entry = &read.group.entry;
        // Nothing is decoded where there are no columns of the file.
        if entry.rows() == 0 || read.chunks().is_empty() {
            return None;
        }
        let schema = self.fingerprint(read.projection.internal())?;
        let mut identity = self.identity(read);
        let mut values = Xxh3Default::new();
        for (name, value) in &read.group.partitions {
            values.update(format!("{name:?}={value:?};").as_bytes());
        }
        // Another index may serve other columns of the file by the same names.
        let renamed = read.group.file.metadata.renamed();
        if !renamed.is_empty() {
            let _ = writeln!(identity, "renamed {renamed:?}");
        }
        let rows = entry.selection().map(|set| {
            let mut rows = Xxh3Default::new();
            set.iter().for_each(|row| rows.update(&row.to_le_bytes()));
            rows.digest128()
        });
        let values = values.digest128();
        // Writing to a string does not fail.
        let _ = write!(identity, "decoded to {schema:032x}\npartitions {values:032x}\nrows {rows:032x?}\n");
        Some(CacheKey::new(identity))
    }

    fn identity(&self, read: RowGroupRead<'_>) -> String {
        let indexed = &read.group.indexed;
        let FileStat { size, mtime_ns, etag } = indexed.stat();
        format!(
            "rowdex {}\nroot {}\nfile {:?}\nsize {size}\nmtime {mtime_ns:?}\netag {etag:?}\nfooter {:016x}\n\
             content {:?}\nrow group {}\n",
            env!("CARGO_PKG_VERSION"),
            self.place,
            indexed.path(),
            indexed.footer_hash(),
            read.group.file.content,
            read.group.entry.ordinal(),
        )
    }

    /// Tells schemas apart; `None` for one whose rows are not kept.
    fn fingerprint(&self, schema: &SchemaRef) -> Option<u128> {
        /// A dataset is read with few projections at a time.
        const REMEMBERED: usize = 8;
        let mut known = self.fingerprints.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, fingerprint)) = known.iter().find(|(known, _)| Arc::ptr_eq(known, schema)) {
            return *fingerprint;
        }
        let is_kept = schema.fields().iter().all(|field| can_be_kept(field.data_type(), true));
        let fingerprint = schema::encode(schema).ok().filter(|_| is_kept).map(|bytes| xxh3_128(&bytes));
        if known.len() >= REMEMBERED {
            known.remove(0);
        }
        known.push((Arc::clone(schema), fingerprint));
        fingerprint
    }
}

/// Writes an entry while its rows are decoded, and passes them on if they are wanted.
struct Copying<'a, 'b> {
    writer: &'a mut RowsWriter<'b>,
    passes_on: Option<&'a mut dyn RowSink>,
}

impl RowSink for Copying<'_, '_> {
    fn chunk_rows(&self) -> usize {
        self.passes_on.as_ref().map_or(self.writer.chunk_rows(), |sink| sink.chunk_rows())
    }

    fn pages_took(&mut self, bytes: u64) {
        if let Some(sink) = &mut self.passes_on {
            sink.pages_took(bytes);
        }
    }

    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        self.writer.add(&chunk);
        self.passes_on.as_mut().map_or(Ok(()), |sink| sink.take(chunk))
    }
}

fn serve_rows(read: RowGroupRead<'_>, rows: &Kept, sink: &mut dyn RowSink) -> Result<u64> {
    if rows.iter().map(|chunk| chunk.num_rows() as u64).sum::<u64>() != read.group.entry.rows() {
        return Err(Error::new(ErrorKind::Internal, "an entry of the disk cache has other rows"));
    }
    serve(rows, read.slots, read.projection.internal(), sink)?;
    Ok(0)
}

/// Hands over rows of an entry with the types of `schema`, in chunks as asked.
///
/// Chunks of all rows are mapped memory, to be picked from and let go. Whatever comes in one piece, and rows of some
/// slots, are copies, because whoever asks for those keeps them.
fn serve(chunks: &[RecordBatch], slots: Slots<'_>, schema: &SchemaRef, sink: &mut dyn RowSink) -> Result<()> {
    let total: usize = chunks.iter().map(RecordBatch::num_rows).sum();
    match slots {
        Slots::All if sink.chunk_rows() >= total => sink.take(copied(chunks, schema, total)?),
        Slots::All => in_chunks(chunks, schema, sink),
        Slots::Some(slots) | Slots::Due(slots) => picked(chunks, slots, schema, sink),
    }
}

/// Whole chunks of as many rows as asked, which those kept may have or not.
fn in_chunks(kept: &[RecordBatch], schema: &SchemaRef, sink: &mut dyn RowSink) -> Result<()> {
    let mut chunks = Chunks::of(sink.chunk_rows());
    for chunk in kept {
        chunks.push(record_batch(schema, chunk.columns().to_vec(), chunk.num_rows()).map_err(uncopied)?);
        while let Some(chunk) = chunks.next_chunk()? {
            sink.take(chunk)?;
        }
    }
    chunks.last()?.map_or(Ok(()), |chunk| sink.take(chunk))
}

/// Copies of the rows at these slots.
fn picked(chunks: &[RecordBatch], slots: &[u32], schema: &SchemaRef, sink: &mut dyn RowSink) -> Result<()> {
    let mut starts = Vec::with_capacity(chunks.len());
    let mut end = 0;
    for chunk in chunks {
        starts.push(end);
        end += chunk.num_rows();
    }
    let place = |slot: &u32| {
        let slot = *slot as usize;
        let chunk = starts.partition_point(|start| *start <= slot).checked_sub(1).filter(|_| slot < end);
        let chunk = chunk.ok_or_else(|| Error::new(ErrorKind::Internal, "an entry of the disk cache lacks rows"))?;
        Ok((chunk as u32, (slot - starts[chunk]) as u32))
    };
    let batches: Vec<&RecordBatch> = chunks.iter().collect();
    // No rows at all are handed over as well.
    let none: [&[u32]; 1] = [&[]];
    let pieces: Vec<&[u32]> =
        if slots.is_empty() { none.to_vec() } else { slots.chunks(sink.chunk_rows().max(1)).collect() };
    for slots in pieces {
        let places = slots.iter().map(place).collect::<Result<Vec<_>>>()?;
        let types = chunks.first().map(RecordBatch::schema).unwrap_or_else(|| Arc::clone(schema));
        let rows = gather(&batches, &places, &types)?;
        sink.take(detached(schema, rows.columns(), places.len())?)?;
    }
    Ok(())
}

/// Copies of all rows, in one batch.
fn copied(chunks: &[RecordBatch], schema: &SchemaRef, rows: usize) -> Result<RecordBatch> {
    let types = chunks.first().map_or_else(|| Arc::clone(schema), RecordBatch::schema);
    // What is joined with nothing is copied nevertheless.
    let parts = chunks.iter().cloned().chain([RecordBatch::new_empty(Arc::clone(&types))]).collect();
    detached(schema, join_exactly(&types, parts)?.columns(), rows)
}

fn detached(schema: &SchemaRef, columns: &[ArrayRef], rows: usize) -> Result<RecordBatch> {
    let columns = columns.iter().map(detach).collect::<Result<Vec<_>, _>>().map_err(uncopied)?;
    record_batch(schema, columns, rows).map_err(uncopied)
}

/// Rows picked out of arrays of some types share the values of all: kept alive by a few rows, whole entries would
/// stay mapped.
fn can_be_kept(data_type: &DataType, top: bool) -> bool {
    match data_type {
        DataType::Utf8View | DataType::BinaryView => top,
        DataType::ListView(_) | DataType::LargeListView(_) | DataType::Union(..) | DataType::RunEndEncoded(..) => false,
        DataType::Dictionary(_, values) => can_be_kept(values, false),
        other => children(other).iter().all(|child| can_be_kept(child.data_type(), false)),
    }
}

/// Whether so many rows are wanted that hardly a page of the entry is without one.
fn are_many(slots: Slots<'_>, rows: u64) -> bool {
    match slots {
        Slots::All => true,
        Slots::Some(slots) | Slots::Due(slots) => (slots.len() as u64).saturating_mul(16) > rows,
    }
}
