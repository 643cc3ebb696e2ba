//! The map-style dataset: where index, source, decode and cache meet.
//!
//! A [`Dataset`] turns row ids into Arrow [`RecordBatch`]es. It keeps decoded row groups in an LRU of a fixed size, decodes each at
//! most once at a time however many threads want it, and reads only the pages that hold the wanted rows where a file says where its
//! pages are.

mod ahead;
mod builder;
#[cfg(feature = "burn")]
mod burn;
mod column;
mod estimate;
mod files;
mod gather;
mod kept;
mod map;
mod mixed;
mod staleness;
#[cfg(test)]
mod tests;
mod verify;

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::cache::{Cache, Counters, Weighed};
use crate::index::{Index, RowGroupEntry};
use crate::per_process::PerProcess;
use crate::pool::run_on;
use crate::projection::Projection;
use crate::row_group::{self, DecodeOptions, Rows};
use crate::rows;
use crate::source::{Link, Source};
use crate::{Error, ErrorKind, Result};

use ahead::{Arrived, ReadAhead};
use files::{FileTable, Pinned};
use gather::{Piece, Wanted};
use kept::{Chunked, DatasetTier, Group, TierUse};

pub use crate::tier::{DiskTier, TierCounters, TierKind};
pub(crate) use ahead::Ahead;
pub use builder::DatasetBuilder;
pub use column::{Class, Column, Labels};
pub use map::MapDataset;
pub use mixed::MixedDataset;
pub use staleness::Staleness;
pub use verify::{VerifyProgress, VerifyReport};

/// Rows by their row id. Cheap to clone: clones share the cache, the open files and the counters.
///
/// All methods take `&self` and may be called from many threads at once. No thread is started before the first [`take`](Self::take) that
/// needs several row groups decoded, and a process forked from this one gets a cache and threads of its own at its first call.
#[derive(Clone)]
pub struct Dataset {
    inner: Arc<Inner>,
}

struct Inner {
    index: Index,
    source: Arc<dyn Source>,
    projection: Projection,
    /// The same with strings and binary as views.
    viewed: OnceLock<Projection>,
    decode: DecodeOptions,
    staleness: Staleness,
    cache_bytes: u64,
    threads: usize,
    tier: Option<DiskTier>,
    /// Where the files are, by name.
    place: String,
    decoded_bytes: OnceLock<u64>,
    state: PerProcess<State>,
}

/// What must not be shared with a forked child.
struct State {
    groups: Cache<u32, RecordBatch>,
    files: FileTable,
    tier: Option<DatasetTier>,
    pool: OnceLock<Option<ThreadPool>>,
    /// Bytes that partial reads of each row group have cost so far, for [`Inner::reads_pages`].
    spent: Cache<u32, AtomicU64>,
    decodes: AtomicU64,
    bytes_decoded: AtomicU64,
    bytes_read: AtomicU64,
}

/// Which of the served rows of a row group to decode; slots count them from 0.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Slots<'a> {
    All,
    /// Strictly increasing.
    Some(&'a [u32]),
}

/// Rows of one row group that are to be read and decoded.
#[derive(Debug)]
pub(crate) struct GroupRead<'a> {
    pub(crate) row_group: u32,
    pub(crate) slots: Slots<'a>,
    /// What to decode to, which may be other types than the dataset's own.
    pub(crate) projection: &'a Projection,
    /// Its bytes, if they are on their way.
    pub(crate) ahead: Option<Ahead>,
    pub(crate) tier: TierUse,
}

impl<'a> GroupRead<'a> {
    pub(crate) fn new(row_group: u32, slots: Slots<'a>, projection: &'a Projection) -> Self {
        Self { row_group, slots, projection, ahead: None, tier: TierUse::Make }
    }
}

/// Decoded rows of one row group, with the internal types of a projection.
#[derive(Debug, Clone)]
pub(crate) struct GroupRows {
    pub(crate) batch: RecordBatch,
    pub(crate) bytes_read: u64,
}

impl Dataset {
    /// Opens the dataset of an index file, with every column and the defaults of [`DatasetBuilder`]. Reads no data file.
    ///
    /// # Errors
    /// As [`Index::open`] and [`DatasetBuilder::open`].
    pub fn open(index: impl AsRef<Path>) -> Result<Self> {
        Self::builder(Index::open(index)?).open()
    }

    /// Options for opening the dataset of an index.
    pub fn builder(index: Index) -> DatasetBuilder {
        DatasetBuilder::new(index)
    }

    /// How many rows there are; row ids are `0..len`.
    pub fn len(&self) -> u64 {
        self.inner.index.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The index it was opened with.
    pub fn index(&self) -> &Index {
        &self.inner.index
    }

    /// The schema of every batch served: the chosen columns, in the order they were chosen.
    pub fn schema(&self) -> &SchemaRef {
        self.inner.projection.output()
    }

    /// What it has done so far, in this process.
    pub fn counters(&self) -> Counters {
        let Ok(state) = self.inner.state() else { return Counters::default() };
        Counters {
            decodes: state.decodes.load(Ordering::Relaxed),
            bytes_decoded: state.bytes_decoded.load(Ordering::Relaxed),
            bytes_read: state.bytes_read.load(Ordering::Relaxed) + state.files.bytes_read(),
            requests: self.inner.source.traffic().requests,
            bytes_fetched: self.inner.source.traffic().bytes,
            ..state.groups.counters()
        }
    }

    /// What it has done with its disk tier so far, in this process; zeros without one.
    pub fn tier_counters(&self) -> TierCounters {
        let tier = self.inner.state().ok().and_then(|state| state.tier.as_ref());
        tier.map_or_else(TierCounters::default, |tier| tier.tier.counters())
    }

    pub(crate) fn has_disk_tier(&self) -> bool {
        self.inner.tier.is_some()
    }

    /// Why nothing more is kept in the disk tier since some time: the disk is full, say, or the folder cannot be written to. `None` while all is well.
    ///
    /// Rows are served all the same; what the tier has already, too, from there.
    pub fn tier_fault(&self) -> Option<Error> {
        self.inner.state().ok()?.tier.as_ref()?.tier.fault()
    }

    /// About how many bytes the chosen columns of all rows take when decoded, as the footers tell.
    ///
    /// With a choice of columns the first call parses the footers of up to sixteen files and scales what they say.
    pub fn decoded_bytes(&self) -> u64 {
        *self.inner.decoded_bytes.get_or_init(|| self.inner.estimate_decoded_bytes())
    }

    /// One row, as a batch of one row that shares nothing with the cache.
    ///
    /// Microseconds when its row group is cached. Otherwise it reads the pages that hold the row; once such reads have cost as much as
    /// decoding the whole row group would, that is what is done, and cached.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`] at `len` and beyond; [`ErrorKind::Stale`] if the file is not the one that was indexed;
    /// [`ErrorKind::InvalidParquet`], [`ErrorKind::TooLarge`], [`ErrorKind::Io`] and others from reading and decoding, naming file, row
    /// group and, where it can be known, column.
    pub fn get(&self, row: u64) -> Result<RecordBatch> {
        let inner = &*self.inner;
        let state = inner.state()?;
        let location = inner.index.locate(row).ok_or_else(|| self.out_of_range(row))?;
        let slot = location.slot as u32;
        match state.groups.get(location.row_group) {
            Some(group) => self.copy_out(&group, &[slot]),
            None => inner.load(state, location.row_group, &[slot], |rows, slots| self.copy_out(rows, slots)),
        }
    }

    /// The rows in the order asked, as one batch; row ids may repeat, and an empty slice gives an empty batch.
    ///
    /// Each row group is decoded at most once per call, several in parallel on the dataset's own threads. Beyond the cache it holds
    /// the rows asked for and one row group per thread.
    ///
    /// # Errors
    /// As [`get`](Self::get); the row group that comes first in the index is reported where several fail.
    pub fn take(&self, rows: &[u64]) -> Result<RecordBatch> {
        let inner = &*self.inner;
        let state = inner.state()?;
        let wanted = Wanted::locate(rows, |row| match inner.index.locate(row) {
            Some(location) => Ok((location.row_group, location.slot as u32)),
            None => Err(self.out_of_range(row)),
        })?;
        let mut held = Vec::new();
        let mut missing = Vec::new();
        for (at, group) in wanted.groups().iter().enumerate() {
            match state.groups.get(group.row_group) {
                Some(batch) => held.push((at, Piece::Whole(batch))),
                None => missing.push(at),
            }
        }
        if missing.is_empty() {
            return wanted.assemble(self.schema(), &held);
        }
        // Each row group is let go as soon as its rows are copied out, so that those of a call need not fit in memory together.
        let copy_held = |(at, piece): (usize, Piece)| {
            let slots = wanted.distinct_slots(&wanted.groups()[at]);
            Ok((at, Piece::Rows(self.copy_out(piece.batch(), &slots)?, slots)))
        };
        let mut pieces = held.into_iter().map(copy_held).collect::<Result<Vec<_>>>()?;
        let load = |&at: &usize| {
            let group = &wanted.groups()[at];
            let slots = wanted.distinct_slots(group);
            let rows = inner.load(state, group.row_group, &slots, |rows, slots| self.copy_out(rows, slots))?;
            Ok((at, Piece::Rows(rows, slots)))
        };
        let pool = if missing.len() > 1 { inner.pool(state)? } else { None };
        let loaded: Vec<Result<(usize, Piece)>> = match pool {
            Some(pool) => run_on(pool, || missing.par_iter().map(load).collect())?,
            None => missing.iter().map(load).collect(),
        };
        for piece in loaded {
            pieces.push(piece?);
        }
        wanted.assemble(self.schema(), &pieces)
    }

    /// What is served, and how it is decoded: long strings and binary as views.
    pub(crate) fn projection(&self) -> &Projection {
        &self.inner.projection
    }

    /// Brings rows to the types served, in memory of their own.
    pub(crate) fn output_types(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        rows::compact(row_group::finish(batch, self.schema())?).map_err(rows::uncopied)
    }

    /// Copies rows, given as batch and row, out of batches of the types served.
    pub(crate) fn gather_rows(&self, batches: &[&RecordBatch], places: &[(u32, u32)]) -> Result<RecordBatch> {
        gather::gather(batches, places, self.schema())
    }

    /// Reads and decodes rows of one row group on the calling thread, past the cache, and counts it.
    pub(crate) fn decode_group(&self, read: GroupRead<'_>) -> Result<GroupRows> {
        self.inner.decode(self.inner.state()?, read)
    }

    /// As [`decode_group`](Self::decode_group), but hands the rows over in chunks of so many, the last one shorter.
    pub(crate) fn decode_group_in_chunks(
        &self,
        read: GroupRead<'_>,
        chunk_rows: usize,
        each: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<()> {
        self.inner.decode_in_chunks(self.inner.state()?, read, chunk_rows, each).map(drop)
    }

    /// Whether reads take so long that row groups should be read ahead.
    pub(crate) fn is_remote(&self) -> bool {
        self.inner.source.is_remote()
    }

    /// How fast the store answers, if it is one and was asked.
    pub(crate) fn link(&self) -> Option<Link> {
        self.inner.source.link()
    }

    /// Starts reading what decoding these rows of a row group takes; `None` where that gains nothing.
    pub(crate) fn read_ahead(&self, row_group: u32, slots: Slots<'_>) -> Option<Ahead> {
        let inner = &*self.inner;
        let entry = inner.index.row_group(row_group).filter(|_| inner.source.is_remote())?;
        // An error comes again, with its words, when the row group is decoded.
        let state = inner.state().ok()?;
        let file = state.files.get(entry.file()).ok()?;
        let partitions = inner.partitions(entry.file());
        let indexed = inner.index.file(entry.file())?;
        let projection = &inner.projection;
        let group = Group { state, file: &file, indexed, entry, partitions: &partitions, projection };
        if state.tier.as_ref().is_some_and(|tier| inner.is_kept(tier, &group)) {
            return None;
        }
        // A tier keeps row groups whole.
        let places = inner.places(&group, if state.tier.is_some() { Slots::All } else { slots })?;
        let bytes = places.iter().map(|place| place.end.saturating_sub(place.start)).fold(0, u64::saturating_add);
        if bytes > inner.decode.max_decoded_bytes || places.is_empty() {
            return None;
        }
        match &state.tier {
            Some(tier) => inner.read_by_tier(tier, &group, places),
            None => Ahead::begin(&*inner.source, &file, places),
        }
    }

    /// The rows at these slots, of the types served: a slice would keep the whole row group in memory for as long as the caller keeps
    /// one row.
    fn copy_out(&self, group: &RecordBatch, slots: &[u32]) -> Result<RecordBatch> {
        match slots {
            [slot] => gather::gather(&[group], &[(0, *slot)], self.schema()),
            _ => {
                let places: Vec<_> = slots.iter().map(|&slot| (0, slot)).collect();
                gather::gather(&[group], &places, self.schema())
            }
        }
    }

    pub(crate) fn out_of_range(&self, row: u64) -> Error {
        let len = self.len();
        Error::new(ErrorKind::OutOfRange, format!("row id {row} of a dataset of {len} rows"))
            .with_hint(format!("row ids are 0 to {}", len.saturating_sub(1)))
    }
}

/// The rows in the file that slots stand for; `None` for all of them.
fn source_rows(entry: &RowGroupEntry<'_>, slots: Slots<'_>) -> Option<Vec<u32>> {
    match (slots, entry.selection()) {
        (Slots::All, None) => None,
        (Slots::All, Some(set)) => Some(set.iter().map(|row| row as u32).collect()),
        (Slots::Some(slots), None) => Some(slots.to_vec()),
        (Slots::Some(slots), Some(set)) => {
            Some(slots.iter().filter_map(|&slot| set.select(u64::from(slot))).map(|row| row as u32).collect())
        }
    }
}

impl Inner {
    fn state(&self) -> Result<&State> {
        self.state
            .get(|| State::new(self))
            .ok_or_else(|| Error::new(ErrorKind::Internal, "the dataset is being dropped"))
    }

    /// The rows of these slots, strictly increasing, of a row group that is not cached: `copy_out` takes them from its decoded rows.
    fn load(
        &self,
        state: &State,
        row_group: u32,
        slots: &[u32],
        copy_out: impl Fn(&RecordBatch, &[u32]) -> Result<RecordBatch>,
    ) -> Result<RecordBatch> {
        if self.reads_pages(state, row_group, slots.len()) {
            let read = GroupRead::new(row_group, Slots::Some(slots), &self.projection);
            let rows = self.decode(state, GroupRead { tier: TierUse::Look, ..read })?;
            state.groups.count_miss();
            let spent = state.spent.get_or_load(row_group, || Ok(Weighed { value: AtomicU64::new(0), bytes: 1 }))?;
            spent.fetch_add(rows.bytes_read, Ordering::Relaxed);
            let all: Vec<u32> = (0..slots.len() as u32).collect();
            return copy_out(&rows.batch, &all);
        }
        if let Some(spent) = state.spent.get(row_group) {
            // Bought: should it be evicted, renting starts over.
            spent.store(0, Ordering::Relaxed);
        }
        let whole = state.groups.get_or_load(row_group, || {
            let batch = self.decode(state, GroupRead::new(row_group, Slots::All, &self.projection))?.batch;
            let bytes = rows::bytes_of(&batch);
            Ok(Weighed { value: batch, bytes })
        })?;
        copy_out(&whole, slots)
    }

    /// Whether to read just the pages of these rows, rather than decode the row group and keep it.
    ///
    /// The renter's rule: go on renting (page reads) until the rent paid equals the price (the whole row group), then buy. Whatever
    /// rows come next, that reads at most about twice what the best choice in hindsight would have (Karlin, Manasse, Rudolph and
    /// Sleator, "Competitive snoopy caching", 1988). A row group that the cache cannot hold is never bought for a few rows.
    fn reads_pages(&self, state: &State, row_group: u32, wanted: usize) -> bool {
        /// More rows of one row group at once are a scan in the making, or touch most pages anyway.
        const FEW: u64 = 8;
        /// Pages are rarely smaller than this many rows.
        const ROWS_PER_PAGE: u64 = 64;
        let Some(entry) = self.index.row_group(row_group) else { return false };
        if wanted as u64 > FEW.min(entry.rows() / ROWS_PER_PAGE) {
            return false;
        }
        let Ok(file) = state.files.get(entry.file()) else { return false };
        let group = entry.ordinal() as usize;
        if file.metadata.decoded_bytes(group, Some(&self.projection)) > self.cache_bytes {
            return true;
        }
        let price = file.metadata.compressed_bytes(group, &self.projection);
        let spent = state.spent.get(row_group).map_or(0, |spent| spent.load(Ordering::Relaxed));
        file.metadata.has_page_positions(group) && spent < price
    }

    /// The columns of a file that come from its path, with their values.
    fn partitions(&self, file: u32) -> Vec<(&str, Option<&str>)> {
        let columns = self.index.partition_columns().iter().map(String::as_str);
        self.index.file(file).map_or_else(Vec::new, |file| columns.zip(file.partition_values()).collect())
    }

    /// Where in the file that is which decoding these rows of a row group takes.
    fn places(&self, group: &Group<'_>, slots: Slots<'_>) -> Option<Vec<Range<u64>>> {
        // What a tier keeps of the file serves any rows.
        let whole = self.tier.as_ref().is_some_and(|tier| tier.kind() == TierKind::Fetched);
        let selected = if whole { None } else { source_rows(&group.entry, slots) };
        let request = row_group::Request {
            source: &*self.source,
            file: &group.file.metadata,
            row_group: group.entry.ordinal() as usize,
            projection: group.projection,
            partitions: group.partitions,
            rows: selected.as_deref().map_or(Rows::All, Rows::Selected),
            seeks_pages: true,
            options: &self.decode,
        };
        request.places().ok()
    }

    fn decode(&self, state: &State, read: GroupRead<'_>) -> Result<GroupRows> {
        let mut batch = None;
        let bytes_read = self.decode_in_chunks(state, read, usize::MAX, &mut |chunk| {
            batch = Some(chunk);
            Ok(())
        })?;
        let batch = batch.ok_or_else(|| Error::new(ErrorKind::Internal, "a row group without a batch"))?;
        Ok(GroupRows { batch, bytes_read })
    }

    /// Returns the bytes read.
    fn decode_in_chunks(
        &self,
        state: &State,
        read: GroupRead<'_>,
        chunk_rows: usize,
        each: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<u64> {
        let GroupRead { row_group, slots, projection, ahead, tier: uses } = read;
        let entry = self.index.row_group(row_group);
        let entry = entry.ok_or_else(|| Error::new(ErrorKind::OutOfRange, format!("no row group {row_group}")))?;
        let indexed = self.index.file(entry.file());
        let indexed = indexed.ok_or_else(|| Error::new(ErrorKind::OutOfRange, format!("no file {}", entry.file())))?;
        let located = |error: Error| error.with_row_group(u64::from(entry.ordinal())).with_file(indexed.path());
        let file = state.files.get(entry.file()).map_err(located)?;
        let partitions = self.partitions(entry.file());
        let group = Group { state, file: &file, indexed, entry, partitions: &partitions, projection };
        let out = Chunked { rows: chunk_rows, each };
        let done = match state.tier.as_ref().filter(|_| uses != TierUse::Bypass) {
            Some(tier) => self.decode_by_tier(tier, &group, slots, ahead, uses, out),
            None => self.decode_from_source(&group, slots, ahead, out),
        };
        done.map_err(located)
    }

    /// Reads and decodes, past the tier. Returns the bytes read.
    fn decode_from_source(
        &self,
        group: &Group<'_>,
        slots: Slots<'_>,
        ahead: Option<Ahead>,
        out: Chunked<'_>,
    ) -> Result<u64> {
        let arrived = ahead.map_or_else(|| Ok(Arrived::default()), Ahead::wait)?;
        let source = ReadAhead { file: Pinned { source: &*self.source, file: group.file }, arrived };
        let read = self.decode_from(group, slots, &source, true, out)?;
        group.state.bytes_read.fetch_add(read, Ordering::Relaxed);
        Ok(read)
    }

    /// Decodes what `source` delivers, and returns how many bytes that was.
    fn decode_from(
        &self,
        group: &Group<'_>,
        slots: Slots<'_>,
        source: &dyn Source,
        seeks_pages: bool,
        out: Chunked<'_>,
    ) -> Result<u64> {
        let state = group.state;
        let selected = source_rows(&group.entry, slots);
        state.decodes.fetch_add(1, Ordering::Relaxed);
        let request = row_group::Request {
            source,
            file: &group.file.metadata,
            row_group: group.entry.ordinal() as usize,
            projection: group.projection,
            partitions: group.partitions,
            rows: selected.as_deref().map_or(Rows::All, Rows::Selected),
            seeks_pages,
            options: &self.decode,
        };
        let done = request.decode_in_chunks(out.rows, &mut |chunk| {
            state.bytes_decoded.fetch_add(rows::bytes_of(&chunk), Ordering::Relaxed);
            (out.each)(chunk)
        });
        Ok(done?.bytes_read)
    }

    /// The dataset's own threads; `None` when it works on the caller's.
    fn pool<'a>(&self, state: &'a State) -> Result<Option<&'a ThreadPool>> {
        if let Some(pool) = state.pool.get() {
            return Ok(pool.as_ref());
        }
        let pool = match self.threads {
            0 | 1 => None,
            threads => {
                let named = |thread| format!("rowdex-decode-{thread}");
                let pool = ThreadPoolBuilder::new().num_threads(threads).thread_name(named).build();
                Some(pool.map_err(|error| {
                    Error::new(ErrorKind::Io, format!("cannot start {threads} threads: {error}"))
                        .with_hint("ask for fewer threads")
                        .with_source(error)
                })?)
            }
        };
        Ok(state.pool.get_or_init(|| pool).as_ref())
    }
}

impl State {
    fn new(inner: &Inner) -> Self {
        let files = FileTable::new(inner.index.clone(), Arc::clone(&inner.source), inner.staleness);
        Self::with_cache(inner.cache_bytes, files, inner.tier.clone())
    }

    fn with_cache(cache_bytes: u64, files: FileTable, tier: Option<DiskTier>) -> Self {
        /// Row groups whose page reads are remembered.
        const REMEMBERED: u64 = 1 << 16;
        Self {
            groups: Cache::new(cache_bytes),
            files,
            tier: tier.map(DatasetTier::new),
            pool: OnceLock::new(),
            spent: Cache::new(REMEMBERED),
            decodes: AtomicU64::new(0),
            bytes_decoded: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
        }
    }
}

impl fmt::Debug for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dataset")
            .field("index", &self.inner.index)
            .field("source", &self.inner.source)
            .field("columns", &self.schema().fields().iter().map(|field| field.name()).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
