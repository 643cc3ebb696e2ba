//! The map-style dataset: where index, source, decode and cache meet.
//!
//! A [`Dataset`] turns row ids into Arrow [`RecordBatch`]es. It keeps decoded row groups in an LRU of a fixed size,
//! decodes each at most once at a time however many threads want it, and reads only the pages that hold the wanted
//! rows where a file says where its pages are.

mod builder;
mod column;
mod disk_cache;
mod estimate;
mod files;
#[cfg(feature = "filter")]
mod filter;
mod gather;
mod held;
mod map;
mod mixed;
mod reader;
mod run;
mod scan;
mod staleness;
#[cfg(test)]
mod tests;
mod verify;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use rayon::ThreadPool;

use crate::builder::IndexBuilder;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::once::Once;
use rowdex_base::per_process::PerProcess;
use rowdex_base::pool;
use rowdex_index::Index;
use rowdex_io::source::{Link, Source, StoreOptions};
use rowdex_parquet::{self as row_group, Annotated, RowSink, WholeBatch};
use rowdex_projection::Projection;
use rowdex_rows as rows;

use disk_cache::CachedReader;
use files::FileTable;
use gather::{GatheredRows, GroupRows};
use held::HeldGroups;
use reader::{AtHand, FileReader, RowGroupRead};

pub use builder::DatasetBuilder;
pub(crate) use builder::SavedDataset;
pub use column::{Class, Column, Labels};
#[cfg(feature = "filter")]
pub use filter::{Filter, FilterReport};
pub use map::MapDataset;
pub use mixed::MixedDataset;
pub(crate) use mixed::common_schema;
pub(crate) use reader::{Prefetch, Slots};
pub use rowdex_base::cache::Counters;
pub use rowdex_io::disk_cache::{DiskCache, DiskCacheCounters};
#[doc(hidden)]
pub use rowdex_parquet::parse_newer;
pub(crate) use run::{JoinedChunks, RunPart};
pub use scan::RowProgress;
pub(crate) use scan::{EachChunk, RowsDone};
pub use staleness::Staleness;
pub use verify::{VerifyProgress, VerifyReport};

/// Rows by their row id. Cheap to clone: clones share the cache, the open files and the counters.
///
/// All methods take `&self` and may be called from many threads at once. No thread is started before the first
/// [`take`](Self::take) that needs several row groups decoded, and a process forked from this one gets its own cache
/// and threads at its first call.
#[derive(Clone)]
pub struct Dataset {
    inner: Arc<OpenDataset>,
}

struct OpenDataset {
    /// What it was opened with.
    options: DatasetBuilder,
    source: Arc<dyn Source>,
    projection: Projection,
    /// The same for rows that are served as they lie.
    in_order: Projection,
    threads: usize,
    /// Where the files are, by name.
    place: String,
    decoded_bytes: Once<u64>,
    state: PerProcess<Unshared>,
}

/// What must not be shared with a forked child.
struct Unshared {
    files: FileTable,
    held: HeldGroups,
    reader: Arc<FileReader>,
    /// Around the reader, if there is a disk cache.
    disk_cache: Option<CachedReader>,
    pool: Once<Option<ThreadPool>>,
}

impl Dataset {
    /// Opens the dataset of an index file, with every column and the defaults of [`DatasetBuilder`]. Reads no data
    /// file.
    ///
    /// # Errors
    /// As [`Index::open`] and [`DatasetBuilder::open`].
    pub fn open(index: impl AsRef<Path>) -> Result<Self> {
        Self::builder(Index::open(index)?).open()
    }

    /// Opens the dataset of Parquet files: of a file, a folder, a pattern or a URL of these. Their index is found in
    /// the cache folder of the user, or built there, as [`IndexBuilder::find_or_build`](crate::IndexBuilder) does it.
    /// The path of an index will do, too.
    ///
    /// ```no_run
    /// let dataset = rowdex::Dataset::open_or_build("data/")?;
    /// # Ok::<(), rowdex::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of building and of opening.
    pub fn open_or_build(data: impl AsRef<Path>) -> Result<Self> {
        Self::builder(IndexBuilder::new([data.as_ref()]).find_or_build(None)?.index).open()
    }

    /// Options for opening the dataset of an index.
    pub fn builder(index: Index) -> DatasetBuilder {
        DatasetBuilder::new(index)
    }

    /// How many rows there are; row ids are `0..len`.
    pub fn len(&self) -> u64 {
        self.inner.options.index.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The index it was opened with.
    pub fn index(&self) -> &Index {
        &self.inner.options.index
    }

    /// The schema of every batch served: the chosen columns, in the order they were chosen.
    pub fn schema(&self) -> &SchemaRef {
        self.inner.projection.output()
    }

    /// What it has done so far, in this process.
    pub fn counters(&self) -> Counters {
        let Ok(state) = self.inner.state() else { return Counters::default() };
        let traffic = self.inner.source.traffic();
        let mut counters = state.held.counters();
        counters.bytes_read = state.files.bytes_read();
        state.reader.count(&mut counters);
        counters.requests = traffic.requests;
        counters.bytes_fetched = traffic.bytes;
        counters
    }

    /// What it has done with its disk cache so far, in this process; zeros without one.
    pub fn disk_cache_counters(&self) -> DiskCacheCounters {
        let disk_cache = self.inner.state().ok().and_then(|state| state.disk_cache.as_ref());
        disk_cache.map_or_else(DiskCacheCounters::default, CachedReader::counters)
    }

    pub(crate) fn has_disk_cache(&self) -> bool {
        self.inner.options.disk_cache.is_some()
    }

    /// Why nothing more is kept in the disk cache since some time: the disk is full, say, or the folder cannot be
    /// written to. `None` while all is well.
    ///
    /// Rows are served all the same; what the disk cache has already, too, from there.
    pub fn disk_cache_fault(&self) -> Option<Error> {
        self.inner.state().ok()?.disk_cache.as_ref()?.fault()
    }

    /// About how many bytes the chosen columns of all rows take when decoded, according to the footers.
    ///
    /// With a choice of columns the first call parses the footers of up to sixteen files and scales what they say.
    pub fn decoded_bytes(&self) -> u64 {
        *self.inner.decoded_bytes.get_or_init(|| self.inner.estimate_decoded_bytes())
    }

    /// One row, as a batch of one row that shares nothing with the cache.
    ///
    /// Microseconds when its row group is cached. Otherwise it reads the pages that hold the row; once such reads
    /// have cost as much as decoding the whole row group would, that is what is done, and cached.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`] at `len` and beyond; [`ErrorKind::Stale`] if the file is not the one that was
    /// indexed; [`ErrorKind::InvalidParquet`], [`ErrorKind::TooLarge`], [`ErrorKind::Io`] and others from reading and
    /// decoding, naming file, row group and, where it can be known, column.
    pub fn get(&self, row: u64) -> Result<RecordBatch> {
        let state = self.inner.state()?;
        let location = self.index().locate(row).ok_or_else(|| self.out_of_range(row))?;
        let slot = location.slot as u32;
        let loaded = match state.held.get(location.row_group) {
            Some(group) => GroupRows::Whole(group),
            None => self.load(state, location.row_group, vec![slot])?,
        };
        match loaded {
            GroupRows::Whole(group) => gather::gather(&[&group], &[(0, slot)], self.schema()),
            GroupRows::Rows(rows, _) => self.output_types(&rows),
        }
    }

    /// The rows in the order asked, as one batch; row ids may repeat, and an empty slice gives an empty batch.
    ///
    /// Each row group is decoded at most once per call, several in parallel on the dataset's own threads. Beyond the
    /// cache it holds the rows asked for, one row group per thread, and those of the row groups asked for that would
    /// fit in the cache together, should other calls have displaced them from there.
    ///
    /// # Errors
    /// As [`get`](Self::get); the row group that comes first in the index is reported where several fail.
    pub fn take(&self, rows: &[u64]) -> Result<RecordBatch> {
        let inner = &*self.inner;
        let state = inner.state()?;
        let wanted = GatheredRows::locate(rows, |row| match self.index().locate(row) {
            Some(location) => Ok((location.row_group, location.slot as u32)),
            None => Err(self.out_of_range(row)),
        })?;
        let mut held = Vec::new();
        let mut missing = Vec::new();
        for (at, group) in wanted.groups().iter().enumerate() {
            match state.held.get(group.row_group) {
                Some(group) => held.push((at, group)),
                None => missing.push(at),
            }
        }
        if missing.is_empty() {
            let held: Vec<_> = held.into_iter().map(|(at, group)| (at, GroupRows::Whole(group))).collect();
            return wanted.assemble(self.schema(), &held);
        }
        let room = AtomicU64::new(inner.options.cache_bytes);
        // Row groups that fit in the cache together stay until the end. The others are let go as soon as their rows are
        // copied out, so that those of a call need not fit in memory together.
        let within_room = |at: usize, loaded: GroupRows| {
            let GroupRows::Whole(group) = &loaded else { return Ok((at, loaded)) };
            let bytes = group.get_array_memory_size() as u64;
            let fits = room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| room.checked_sub(bytes));
            if fits.is_ok() {
                return Ok((at, loaded));
            }
            let slots = wanted.distinct_slots(&wanted.groups()[at]);
            Ok((at, GroupRows::Rows(Self::pick(group, &slots, self.projection().internal())?, slots)))
        };
        let mut pieces = Vec::with_capacity(wanted.groups().len());
        for (at, held) in held {
            pieces.push(within_room(at, GroupRows::Whole(held))?);
        }
        let load = |(): &mut (), &at: &usize| {
            let group = &wanted.groups()[at];
            within_room(at, self.load(state, group.row_group, wanted.distinct_slots(group))?)
        };
        let pool = if missing.len() > 1 { inner.pool(state)? } else { None };
        for piece in pool::each(pool, &missing, || (), load)? {
            pieces.push(piece?);
        }
        wanted.assemble(self.schema(), &pieces)
    }

    /// What is served, and how it is decoded: long strings and binary as views.
    pub(crate) fn projection(&self) -> &Projection {
        &self.inner.projection
    }

    /// What is served, and how it is decoded where rows are served as they lie.
    pub(crate) fn projection_in_order(&self) -> &Projection {
        &self.inner.in_order
    }

    /// Brings rows to the types served, in memory of their own.
    pub(crate) fn output_types(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        rows::compact(row_group::finish(batch, self.schema())?).map_err(rows::uncopied)
    }

    /// Copies rows, given as batch and row, out of batches of the types served.
    pub(crate) fn gather_rows(&self, batches: &[&RecordBatch], places: &[(u32, u32)]) -> Result<RecordBatch> {
        gather::gather(batches, places, self.schema())
    }

    /// Reads and decodes rows of one row group on the calling thread, past what is held in memory, and hands them to
    /// the sink. What was read ahead is used.
    pub(crate) fn read(
        &self,
        row_group: u32,
        slots: Slots<'_>,
        projection: &Projection,
        prefetch: Option<Prefetch>,
        sink: &mut dyn RowSink,
    ) -> Result<()> {
        let state = self.inner.state()?;
        let group = &state.files.row_group(row_group)?;
        let read = RowGroupRead { group, slots, projection, keeps: true };
        state.read(read, prefetch, sink).map_err(|error| group.located(error)).map(drop)
    }

    /// Says in which file and row group an error is.
    pub(crate) fn located(&self, error: Error, row_group: u32) -> Error {
        let Some(entry) = self.index().row_group(row_group) else { return error };
        let error = error.with_row_group(u64::from(entry.ordinal()));
        match self.index().file(entry.file()) {
            Some(file) => files::in_file(error, file.path(), &*self.inner.source),
            None => error,
        }
    }

    /// What a file says of columns that Arrow's types do not, as [`FileMetadata::annotated`].
    pub(crate) fn annotated(&self, file: u32) -> Result<Vec<Annotated>> {
        Ok(self.inner.state()?.files.get(file)?.metadata.annotated())
    }

    /// As [`read`](Self::read) in one batch, of the types that the dataset decodes to.
    pub(crate) fn read_whole(&self, row_group: u32) -> Result<RecordBatch> {
        let mut whole = WholeBatch::default();
        self.read(row_group, Slots::All, self.projection(), None, &mut whole)?;
        whole.into_batch()
    }

    /// The rows of these slots, strictly increasing, of a row group that is not held.
    fn load(&self, state: &Unshared, row_group: u32, slots: Vec<u32>) -> Result<GroupRows> {
        let group = &state.files.row_group(row_group)?;
        let read = RowGroupRead { group, slots: Slots::All, projection: self.projection(), keeps: true };
        state.held.load(read, slots, state).map_err(|error| group.located(error))
    }

    /// Where a file is: a path or a URL.
    pub(crate) fn location(&self, path: &str) -> Option<String> {
        self.inner.source.location(path)
    }

    /// How object stores are talked to.
    pub(crate) fn store_options(&self) -> &StoreOptions {
        &self.inner.options.store
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
    pub(crate) fn read_ahead(&self, row_group: u32, slots: Slots<'_>) -> Option<Prefetch> {
        if !self.is_remote() {
            return None;
        }
        // An error comes again, with its words, when the row group is decoded.
        let state = self.inner.state().ok()?;
        let group = &state.files.row_group(row_group).ok()?;
        let read = RowGroupRead { group, slots, projection: self.projection(), keeps: true };
        match &state.disk_cache {
            Some(disk_cache) => disk_cache.prefetch(read),
            None => state.reader.prefetch(read),
        }
    }

    /// The rows at these slots, of the types in `output`: a slice would keep the whole row group in memory for as
    /// long as the caller keeps one row.
    fn pick(group: &RecordBatch, slots: &[u32], output: &SchemaRef) -> Result<RecordBatch> {
        let places: Vec<_> = slots.iter().map(|&slot| (0, slot)).collect();
        gather::gather(&[group], &places, output)
    }

    pub(crate) fn out_of_range(&self, row: u64) -> Error {
        let len = self.len();
        Error::new(ErrorKind::OutOfRange, format!("row id {row} of a dataset of {len} rows")).with_row_ids(len)
    }
}

impl OpenDataset {
    fn state(&self) -> Result<&Unshared> {
        self.state
            .get(|| Unshared::new(&self.options, &self.source, &self.projection, &self.place))
            .ok_or_else(|| Error::new(ErrorKind::Internal, "the dataset is being dropped"))
    }

    /// The dataset's own threads; `None` when it works on the caller's.
    fn pool<'a>(&self, state: &'a Unshared) -> Result<Option<&'a ThreadPool>> {
        if let Some(pool) = state.pool.get() {
            return Ok(pool.as_ref());
        }
        let pool = match self.threads {
            0 | 1 => None,
            threads => Some(pool::start(threads, "rowdex-decode")?),
        };
        Ok(state.pool.get_or_init(|| pool).as_ref())
    }
}

impl Unshared {
    fn new(options: &DatasetBuilder, source: &Arc<dyn Source>, projection: &Projection, place: &str) -> Self {
        let reader = Arc::new(FileReader::new(Arc::clone(source), options.max_decoded_bytes));
        let around = |disk_cache: &DiskCache| {
            CachedReader::new(disk_cache.clone(), Arc::clone(&reader), place.into(), projection)
        };
        Self {
            files: FileTable::new(options.index.clone(), Arc::clone(source), options.staleness),
            held: HeldGroups::new(options.cache_bytes),
            disk_cache: options.disk_cache.as_ref().map(around),
            reader,
            pool: Once::new(),
        }
    }

    /// As [`FileReader::read`], from the disk cache where there is one.
    fn read(&self, read: RowGroupRead<'_>, prefetch: Option<Prefetch>, sink: &mut dyn RowSink) -> Result<u64> {
        match &self.disk_cache {
            Some(disk_cache) => disk_cache.read(read, prefetch, sink),
            None => self.reader.read(read, &AtHand::waited_for(prefetch)?, sink),
        }
    }
}

impl fmt::Debug for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dataset")
            .field("index", &self.inner.options.index)
            .field("source", &self.inner.source)
            .field("columns", &self.schema().fields().iter().map(|field| field.name()).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
