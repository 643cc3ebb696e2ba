//! What a dataset keeps in its disk tier: which entry a read is of, and what to do with what is found.
//!
//! An entry is named after everything that its bytes depend on: this version of rowdex, where the file is and what it was when it was indexed,
//! the row group, and then either the byte ranges that were fetched or the types and rows that were decoded. So an entry is never stale: a
//! file that changed is another file.

mod keeper;
mod passing;
mod rows;
mod serve;
#[cfg(test)]
mod tests;

use std::fmt::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use bytes::Bytes;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_128};

use super::ahead::Ahead;
use super::files::{OpenFile, Pinned};
use super::{Inner, Slots, State};
use crate::index::{FileEntry, RowGroupEntry, schema};
use crate::projection::{Projection, children};
use crate::source::{FileStat, Source, cut};
use crate::tier::{Claim, DiskTier, Key, Tier, TierKind};
use crate::{Error, ErrorKind, Result};

use self::keeper::Keeper;
use self::rows::RowsWriter;

/// How a read of a row group uses the disk tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TierUse {
    /// What is not there is put there, whole.
    Make,
    /// What is there is taken.
    Look,
    /// The file itself is what is wanted.
    Bypass,
}

/// An entry that is open.
#[derive(Debug)]
pub(super) enum Kept {
    /// All served rows of a row group, in chunks, in mapped memory but for dictionaries.
    Rows(Vec<RecordBatch>),
    /// The bytes of its column chunks, one after the other, mapped.
    Chunks(Bytes),
}

/// The tier of a dataset in this process.
pub(super) struct DatasetTier {
    pub(super) tier: Arc<Tier<Kept>>,
    keeper: Keeper,
    /// Of the schemas that rows were decoded to, by which Arrow types entries are told apart; `None` for those that are not kept.
    fingerprints: Mutex<Vec<(SchemaRef, Option<u128>)>>,
}

/// A row group that is to be read.
#[derive(Clone, Copy)]
pub(super) struct Group<'a> {
    pub(super) state: &'a State,
    pub(super) file: &'a OpenFile,
    pub(super) indexed: FileEntry<'a>,
    pub(super) entry: RowGroupEntry<'a>,
    pub(super) partitions: &'a [(&'a str, Option<&'a str>)],
    pub(super) projection: &'a Projection,
}

/// How decoded rows are handed over.
pub(super) struct Chunked<'a> {
    pub(super) rows: usize,
    pub(super) each: &'a mut dyn FnMut(RecordBatch) -> Result<()>,
}

impl DatasetTier {
    pub(super) fn new(options: DiskTier) -> Self {
        let parse: fn(Bytes) -> Result<(Kept, u64)> = match options.kind() {
            TierKind::Decoded => |bytes| rows::parse(&bytes).map(|(rows, memory)| (Kept::Rows(rows), memory)),
            TierKind::Fetched => |bytes| Ok((Kept::Chunks(bytes), 0)),
        };
        let tier = Arc::new(Tier::new(options, parse));
        Self { tier, keeper: Keeper::default(), fingerprints: Mutex::new(Vec::new()) }
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

/// Rows picked out of arrays of some types share the values of all: kept alive by a few rows, whole entries would stay mapped.
fn can_be_kept(data_type: &DataType, top: bool) -> bool {
    match data_type {
        DataType::Utf8View | DataType::BinaryView => top,
        DataType::ListView(_) | DataType::LargeListView(_) | DataType::Union(..) | DataType::RunEndEncoded(..) => false,
        DataType::Dictionary(_, values) => can_be_kept(values, false),
        other => children(other).iter().all(|child| can_be_kept(child.data_type(), false)),
    }
}

impl Inner {
    /// Hands over rows of a row group from the tier, or from the source by way of the tier. Returns the bytes read from the source.
    pub(super) fn decode_by_tier(
        &self,
        tier: &DatasetTier,
        group: &Group<'_>,
        slots: Slots<'_>,
        ahead: Option<Ahead>,
        uses: TierUse,
        out: Chunked<'_>,
    ) -> Result<u64> {
        match tier.tier.kind() {
            TierKind::Decoded => self.decode_by_rows(tier, group, slots, ahead, uses, out),
            TierKind::Fetched => self.decode_by_chunks(&tier.tier, group, slots, ahead, uses, out),
        }
    }

    /// Whether the tier has all that decoding a row group takes, or just that.
    pub(super) fn is_kept(&self, tier: &DatasetTier, group: &Group<'_>) -> bool {
        let contains = |key: Option<Key>| key.is_some_and(|key| tier.tier.contains(&key));
        match tier.tier.kind() {
            TierKind::Fetched => contains(Some(self.chunks_key(group, &group.chunks()))),
            // Who is going to ask for it may want either.
            TierKind::Decoded => {
                let viewed = self.viewed.get_or_init(|| self.projection.clone().serving_views());
                let rows = |projection| contains(self.rows_key(tier, &Group { projection, ..*group }));
                rows(&self.projection) || rows(viewed)
            }
        }
    }

    fn decode_by_rows(
        &self,
        tier: &DatasetTier,
        group: &Group<'_>,
        slots: Slots<'_>,
        ahead: Option<Ahead>,
        uses: TierUse,
        out: Chunked<'_>,
    ) -> Result<u64> {
        let Some(key) = self.rows_key(tier, group) else {
            return self.decode_from_source(group, slots, ahead, out);
        };
        let tier = &tier.tier;
        let estimate = group.decoded_bytes();
        let makes = uses == TierUse::Make && estimate <= self.decode.max_decoded_bytes;
        let claim = match makes {
            true => tier.find_or_make(key.clone(), estimate),
            false => tier.find(&key).map_or(Claim::Without, Claim::Found),
        };
        let makes_it = matches!(claim, Claim::Make(_));
        // Until the entry is there, others find the bytes, or somebody who fetches them.
        let _passed = ahead.as_ref().map(Ahead::passed);
        let (ahead, _fetching) = match ahead {
            None if makes && !matches!(claim, Claim::Found(_)) => self.fetched_by_others(tier, group, makes_it),
            ahead => (ahead, None),
        };
        let maker = match claim {
            Claim::Found(kept) => {
                if are_many(slots, group.entry.rows()) {
                    tier.expect(&key);
                }
                return self.serve_rows(group, &kept, slots, out);
            }
            Claim::Without => return self.decode_from_source(group, slots, ahead, out),
            Claim::Make(maker) => maker,
        };
        let mut writer = RowsWriter::new(maker, rows::chunk_rows(group.entry.rows(), estimate));
        if matches!(slots, Slots::All) {
            let mut tee = |chunk: RecordBatch| {
                writer.add(&chunk);
                (out.each)(chunk)
            };
            let read = self.decode_from_source(group, slots, ahead, Chunked { rows: out.rows, each: &mut tee })?;
            writer.finish();
            self.forget_passed(tier, &key, group);
            return Ok(read);
        }
        // Other rows of it will be wanted later: all of them are decoded now, so that none need be then.
        let chunk = writer.chunk_rows();
        let mut add = |chunk: RecordBatch| {
            writer.add(&chunk);
            Ok(())
        };
        let whole = self.decode_from_source(group, Slots::All, ahead, Chunked { rows: chunk, each: &mut add });
        let read = match whole {
            Ok(read) => {
                writer.finish();
                self.forget_passed(tier, &key, group);
                read
            }
            // The few rows may be sound where others are not.
            Err(_) => 0,
        };
        match tier.look(&key) {
            Some(kept) => self.serve_rows(group, &kept, slots, out).map(|_| read),
            None => Ok(read + self.decode_from_source(group, slots, None, out)?),
        }
    }

    fn serve_rows(&self, group: &Group<'_>, kept: &Kept, slots: Slots<'_>, out: Chunked<'_>) -> Result<u64> {
        let Kept::Rows(rows) = kept else {
            return Err(Error::new(ErrorKind::Internal, "an entry of the disk tier is of the other kind"));
        };
        if rows.iter().map(|chunk| chunk.num_rows() as u64).sum::<u64>() != group.entry.rows() {
            return Err(Error::new(ErrorKind::Internal, "an entry of the disk tier has other rows"));
        }
        serve::serve(rows, slots, group.projection.internal(), out)?;
        Ok(0)
    }

    fn decode_by_chunks(
        &self,
        tier: &Tier<Kept>,
        group: &Group<'_>,
        slots: Slots<'_>,
        ahead: Option<Ahead>,
        uses: TierUse,
        out: Chunked<'_>,
    ) -> Result<u64> {
        let chunks = group.chunks();
        let bytes = length_of(&chunks);
        if bytes == 0 || bytes > self.decode.max_decoded_bytes {
            return self.decode_from_source(group, slots, ahead, out);
        }
        let key = self.chunks_key(group, &chunks);
        let file = Pinned { source: &*self.source, file: group.file };
        let fetch = |ahead: Option<Ahead>| match ahead {
            Some(ahead) => Ok(ahead.wait()?.into_bytes()),
            None => file.read(group.file.metadata.path(), &chunks),
        };
        let (parts, fetched) = if ahead.as_ref().is_some_and(Ahead::is_for_others) {
            // When it has arrived it is an entry, if it can be.
            tier.count_miss();
            (fetch(ahead)?, bytes)
        } else {
            let claim = match uses {
                TierUse::Make => tier.find_or_make(key, bytes),
                _ => tier.find(&key).map_or(Claim::Without, Claim::Found),
            };
            match claim {
                Claim::Found(kept) => match &*kept {
                    Kept::Chunks(all) if all.len() as u64 == bytes => (parts_of(&chunks, all), 0),
                    _ => return Err(Error::new(ErrorKind::Internal, "an entry of the disk tier is of other bytes")),
                },
                Claim::Without => return self.decode_from_source(group, slots, ahead, out),
                Claim::Make(mut maker) => {
                    let parts = fetch(ahead)?;
                    parts.iter().for_each(|part| maker.write(part));
                    maker.commit();
                    (parts, bytes)
                }
            }
        };
        let source = PartlyKept { file, chunks, parts, served: AtomicU64::new(0) };
        let delivered = self.decode_from(group, slots, &source, false, out)?;
        let read = fetched + delivered.saturating_sub(source.served.into_inner());
        group.state.bytes_read.fetch_add(read, Ordering::Relaxed);
        Ok(read)
    }

    fn rows_key(&self, tier: &DatasetTier, group: &Group<'_>) -> Option<Key> {
        let schema = group.projection.internal();
        // Nothing is decoded where there are no columns of the file.
        if group.entry.rows() == 0 || group.chunks().is_empty() {
            return None;
        }
        let schema = tier.fingerprint(schema)?;
        let mut identity = self.identity(group);
        let mut values = Xxh3Default::new();
        for (name, value) in group.partitions {
            values.update(format!("{name:?}={value:?};").as_bytes());
        }
        let rows = group.entry.selection().map(|set| {
            let mut rows = Xxh3Default::new();
            set.iter().for_each(|row| rows.update(&row.to_le_bytes()));
            rows.digest128()
        });
        let values = values.digest128();
        // Writing to a string does not fail.
        let _ = write!(identity, "decoded to {schema:032x}\npartitions {values:032x}\nrows {rows:032x?}\n");
        Some(Key::new(identity))
    }

    fn chunks_key(&self, group: &Group<'_>, chunks: &[Range<u64>]) -> Key {
        let mut identity = self.identity(group);
        let _ = writeln!(identity, "bytes {chunks:?}");
        Key::new(identity)
    }

    fn identity(&self, group: &Group<'_>) -> String {
        let FileStat { size, mtime_ns, etag } = group.indexed.stat();
        format!(
            "rowdex {}\nroot {}\nfile {:?}\nsize {size}\nmtime {mtime_ns:?}\netag {etag:?}\nfooter {:016x}\ncontent {:?}\nrow group {}\n",
            env!("CARGO_PKG_VERSION"),
            self.place,
            group.indexed.path(),
            group.indexed.footer_hash(),
            group.file.content,
            group.entry.ordinal(),
        )
    }
}

impl Group<'_> {
    fn chunks(&self) -> Vec<Range<u64>> {
        self.file.metadata.chunks(self.entry.ordinal() as usize, self.projection, self.partitions)
    }

    /// About how many bytes its served rows take when decoded.
    fn decoded_bytes(&self) -> u64 {
        let all = self.file.metadata.decoded_bytes(self.entry.ordinal() as usize, Some(self.projection));
        (u128::from(all) * u128::from(self.entry.rows()) / u128::from(self.entry.source_rows().max(1))) as u64
    }
}

/// Whether so many rows are wanted that hardly a page of the entry is without one.
fn are_many(slots: Slots<'_>, rows: u64) -> bool {
    match slots {
        Slots::All => true,
        Slots::Some(slots) => (slots.len() as u64).saturating_mul(16) > rows,
    }
}

fn length_of(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end.saturating_sub(range.start)).fold(0, u64::saturating_add)
}

/// Copies what was kept of `ranges`, one after the other. Views that are decoded from plain pages show those pages, and would keep the map alive.
fn parts_of(ranges: &[Range<u64>], all: &[u8]) -> Vec<Bytes> {
    let mut rest = all;
    let part = |range: &Range<u64>| {
        let length = (range.end.saturating_sub(range.start) as usize).min(rest.len());
        let (part, behind) = rest.split_at(length);
        rest = behind;
        Bytes::copy_from_slice(part)
    };
    ranges.iter().map(part).collect()
}

/// A file of which some bytes are at hand.
#[derive(Debug)]
struct PartlyKept<'a> {
    file: Pinned<'a>,
    chunks: Vec<Range<u64>>,
    parts: Vec<Bytes>,
    /// Bytes that were not read from the file.
    served: AtomicU64,
}

impl Source for PartlyKept<'_> {
    fn stat(&self, path: &str) -> Result<FileStat> {
        self.file.stat(path)
    }

    fn read(&self, path: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        match cut(&self.chunks, &self.parts, ranges) {
            Ok(bytes) => {
                self.served.fetch_add(length_of(ranges), Ordering::Relaxed);
                Ok(bytes)
            }
            Err(_) => self.file.read(path, ranges),
        }
    }
}
