//! Options for opening a dataset.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Dataset, OpenDataset, Staleness, Unshared};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::once::Once;
use rowdex_base::per_process::PerProcess;
use rowdex_index::{Index, root};
use rowdex_io::disk_cache::DiskCache;
use rowdex_io::source::place::Place;
use rowdex_io::source::{self, Source, StoreOptions};
use rowdex_parquet::{FileMetadata, MAX_DECODED_BYTES, views_pay, views_save_nothing};
use rowdex_projection::Projection;

/// Threads for a store unless said otherwise: they wait for it most of the time.
const REMOTE_THREADS: usize = 16;

/// How a [`Dataset`] is opened. Made by [`Dataset::builder`].
#[derive(Clone)]
#[must_use]
pub struct DatasetBuilder {
    pub(super) index: Index,
    pub(super) columns: Option<Vec<String>>,
    pub(super) cache_bytes: u64,
    pub(super) threads: Option<usize>,
    pub(super) root: Option<PathBuf>,
    pub(super) source: Option<Arc<dyn Source>>,
    pub(super) store: StoreOptions,
    pub(super) staleness: Staleness,
    pub(super) max_decoded_bytes: u64,
    pub(super) disk_cache: Option<DiskCache>,
}

/// What another process opens the same dataset with.
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "no reader is shared there"))]
#[derive(Serialize, Deserialize)]
pub(crate) struct SavedDataset {
    index: PathBuf,
    /// Of the index, if that is in no file.
    bytes: Option<Vec<u8>>,
    columns: Option<Vec<String>>,
    root: Option<PathBuf>,
    store: StoreOptions,
    staleness: Staleness,
    max_decoded_bytes: u64,
    disk_cache: Option<DiskCache>,
}

impl SavedDataset {
    pub(crate) fn open(self) -> Result<Dataset> {
        let index = match self.bytes {
            Some(bytes) => Index::from_bytes(bytes)?,
            None => Index::open_with(&self.index, &self.store)?,
        };
        let SavedDataset { columns, root, store, staleness, max_decoded_bytes, disk_cache, .. } = self;
        let new = DatasetBuilder::new(index);
        DatasetBuilder { columns, root, store, staleness, max_decoded_bytes, disk_cache, cache_bytes: 0, ..new }.open()
    }
}

impl Dataset {
    /// The dataset as data; an error if it has a source of the caller's.
    pub(crate) fn saved(&self) -> Result<SavedDataset> {
        let options = &self.inner.options;
        if self.inner.place.is_empty() {
            let message = "a dataset with a source of your own, which another process cannot read";
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let index = options.index.path();
        Ok(SavedDataset {
            index: index.map(absolute).unwrap_or_default(),
            bytes: if index.is_none() { Some(options.index.bytes()?.to_vec()) } else { None },
            columns: options.columns.clone(),
            root: options.root.as_deref().map(absolute),
            store: options.store.clone(),
            staleness: options.staleness,
            max_decoded_bytes: options.max_decoded_bytes,
            disk_cache: options.disk_cache.clone(),
        })
    }
}

impl DatasetBuilder {
    /// Decoded row groups kept unless said otherwise: 1 GiB.
    pub const DEFAULT_CACHE_BYTES: u64 = 1 << 30;

    /// Threads used unless said otherwise: one per available core, at most eight, because more outrun most disks and
    /// several ranks usually share a machine.
    pub fn default_threads() -> usize {
        std::thread::available_parallelism().map_or(1, |cores| cores.get().min(8))
    }

    pub(super) fn new(index: Index) -> Self {
        Self {
            index,
            columns: None,
            cache_bytes: Self::DEFAULT_CACHE_BYTES,
            threads: None,
            root: None,
            source: None,
            store: StoreOptions::default(),
            staleness: Staleness::default(),
            max_decoded_bytes: MAX_DECODED_BYTES,
            disk_cache: None,
        }
    }

    /// Serves these columns, in this order; all of them unless called. A path with dots names a nested field:
    /// `person.name`.
    pub fn with_columns(mut self, columns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.columns = Some(columns.into_iter().map(Into::into).collect());
        self
    }

    /// Keeps at most this many bytes of decoded row groups; 0 keeps none. Default: 1 GiB.
    pub fn with_cache_bytes(mut self, bytes: u64) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// Decodes with this number of its own threads; 0 and 1 decode on the caller's. Default:
    /// [`default_threads`](Self::default_threads), and 16 for data in an object store, for which they mostly wait.
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Finds the data files below this directory or URL, instead of where the index says that they were.
    ///
    /// An index from somebody else should only be opened with a root, so that it cannot choose which directory is read.
    pub fn with_root(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = Some(root.into());
        self
    }

    /// How object stores are talked to, if the data is in one. Default: [`StoreOptions::default`].
    pub fn with_store_options(mut self, options: StoreOptions) -> Self {
        self.store = options;
        self
    }

    /// Reads the data files through this source, instead of from where the index or the root says that they are.
    pub fn with_source(mut self, source: Arc<dyn Source>) -> Self {
        self.source = Some(source);
        self
    }

    /// How closely files are compared with what was indexed. Default: [`Staleness::Stat`].
    pub fn with_check(mut self, staleness: Staleness) -> Self {
        self.staleness = staleness;
        self
    }

    /// Refuses a row group that takes more than this many bytes when decoded, before it is decoded. Default: 2 GiB.
    ///
    /// This is what bounds memory against hostile files, whose few bytes may claim to be many.
    pub fn with_max_decoded_bytes(mut self, bytes: u64) -> Self {
        self.max_decoded_bytes = bytes;
        self
    }

    /// Keeps row groups in a folder on a local disk, for all processes of the machine: each is fetched and decoded
    /// once between them. Default: no.
    ///
    /// A loader comes back to row groups that are kept instead of decoding them again, and `take` does when its cache
    /// does not have them. Rows are the same with and without. The folder is made when something is first kept; when
    /// that fails, or the disk is full, rows are read as if there were no disk cache, and [`Dataset::disk_cache_fault`]
    /// says why.
    ///
    /// ```no_run
    /// use rowdex::dataset::DiskCache;
    /// use rowdex::{Dataset, Index};
    ///
    /// # fn main() -> rowdex::Result<()> {
    /// let disk_cache = DiskCache::new("/nvme/rowdex", 500 << 30);
    /// let dataset = Dataset::builder(Index::open("s3://bucket/train.rdx")?).with_disk_cache(disk_cache).open()?;
    /// # Ok(()) }
    /// ```
    pub fn with_disk_cache(mut self, disk_cache: DiskCache) -> Self {
        self.disk_cache = Some(disk_cache);
        self
    }

    /// Opens the dataset. Reads no data file and starts no thread.
    ///
    /// # Errors
    /// [`ErrorKind::UnsupportedParquet`] for a column that this version cannot decode, by what the index records;
    /// [`ErrorKind::InvalidArgument`] for an unknown or repeated column, if neither the index nor the caller says
    /// where the files are, or for a disk cache without comparing files ([`Staleness::Off`]).
    pub fn open(self) -> Result<Dataset> {
        let schema = self.index.schema();
        let projection = match &self.columns {
            Some(columns) => Projection::columns(schema, columns)?,
            None => Projection::all(schema),
        };
        let (projection, in_order) = match first_file(&self.index)? {
            Some(file) => {
                let pay = views_pay(&file);
                let save_nothing = views_save_nothing(&file);
                let in_order = projection.clone().with_views(|field| pay(field) && !save_nothing(field));
                (projection.with_views(pay), in_order)
            }
            None => (projection.clone(), projection),
        };
        if self.disk_cache.is_some() && self.staleness == Staleness::Off {
            return Err(Error::new(ErrorKind::InvalidArgument, "a disk cache, and files that are not compared")
                .with_hint("what is kept is of the files that were indexed: compare them (`stat`), or leave it out"));
        }
        let (source, place) = match &self.source {
            Some(source) => (Arc::clone(source), String::new()),
            None => {
                let root = match &self.root {
                    Some(root) => Place::of(root)?,
                    None => root::of(&self.index)?,
                };
                let place = name(&root);
                (source::open(root, &self.store)?, place)
            }
        };
        let default_threads = || if source.is_remote() { REMOTE_THREADS } else { Self::default_threads() };
        let threads = self.threads.unwrap_or_else(default_threads);
        let state = PerProcess::new(Unshared::new(&self, &source, &projection, &place));
        let decoded_bytes = Once::new();
        let open = OpenDataset { options: self, source, projection, in_order, threads, place, decoded_bytes, state };
        open.check_columns()?;
        Ok(Dataset { inner: Arc::new(open) })
    }
}

/// The same path for a process that may be in another folder.
fn absolute(path: &Path) -> PathBuf {
    match Place::of(path) {
        Ok(Place::Local(path)) => std::path::absolute(&path).unwrap_or(path),
        _ => path.to_owned(),
    }
}

/// The same for all who find the files in the same place.
fn name(place: &Place) -> String {
    match place {
        Place::Local(folder) => format!("{:?}", std::path::absolute(folder).as_deref().unwrap_or(folder)),
        Place::Remote(url) => url.to_string(),
    }
}

/// A file that can be expected to be like the others, if the index has its footer.
fn first_file(index: &Index) -> Result<Option<FileMetadata>> {
    let Some(entry) = index.files().find(|entry| entry.rows() > 0) else { return Ok(None) };
    match index.footer(entry.index())? {
        Some(footer) => FileMetadata::parse(entry.path(), &footer, entry.size(), index.renaming()).map(Some),
        None => Ok(None),
    }
}

impl fmt::Debug for DatasetBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatasetBuilder").finish_non_exhaustive()
    }
}
