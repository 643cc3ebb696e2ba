//! From Parquet files to an index: the only part of `index` that knows what the files are.
//!
//! Footers are read in parallel, a window of files at a time, and written out as they come, so memory does not grow
//! with what the footers hold. What stays per file is its path and 72 bytes, per row group 24 bytes.

mod discover;
mod footers;
mod found;
mod found_index;
mod lengths;
mod listing;
mod partition;
mod run;
mod scanned;
mod schema;
#[cfg(test)]
mod tests;
mod unchanged;
mod writing;

use std::fmt;
use std::path::{Path, PathBuf};

use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_index::Index;
use rowdex_index::output::{self, Output};
use rowdex_io::source::StoreOptions;
use rowdex_io::source::place::{Place, shown};
use rowdex_projection::Renames;

use self::found::FilesToIndex;
pub use self::found_index::FoundIndex;
pub use self::lengths::LengthsBuilder;
pub use self::schema::SchemaMode;

/// What the threads of a build are called.
const THREADS: &str = "rowdex-build";

/// How an index is built: from which files, and with which options.
///
/// ```no_run
/// # fn main() -> rowdex::Result<()> {
/// let report = rowdex::IndexBuilder::new(["data/"]).build("train.rdx")?;
/// println!("{} rows in {} row groups", report.rows, report.row_groups);
/// # Ok(()) }
/// ```
#[must_use]
pub struct IndexBuilder {
    inputs: Vec<PathBuf>,
    root: Option<PathBuf>,
    schema_mode: SchemaMode,
    footers: bool,
    partitions: bool,
    renames: Vec<(String, String)>,
    threads: Option<usize>,
    overwrite: bool,
    update: bool,
    lengths: Vec<String>,
    store: StoreOptions,
    progress: Box<OnProgress>,
}

type OnProgress = dyn Fn(BuildProgress) + Send + Sync;

/// How far a build has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuildProgress {
    /// Files whose footers are read.
    pub files_done: u64,
    /// Files in all.
    pub files: u64,
    /// Rows found so far.
    pub rows: u64,
    /// Bytes of footers read so far.
    pub bytes: u64,
    /// Whether footers are done, and files and rows are those whose lengths are known.
    pub counts_lengths: bool,
}

/// What a build made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "capi", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BuildReport {
    /// Files in the index.
    pub files: u64,
    /// Files that keep the row ids they had in the index that was updated.
    pub kept_files: u64,
    /// Files whose footers were read, because no index was updated, or it did not have them as they are now.
    pub read_files: u64,
    /// Requests sent to an object store for footers; 0 for local files. Listings come on top.
    pub requests: u64,
    /// Bytes of the footers that were read.
    pub footer_bytes: u64,
    /// Row groups in the index.
    pub row_groups: u64,
    /// Rows served: row ids are `0..rows`.
    pub rows: u64,
    /// Length of the index file in bytes.
    pub index_bytes: u64,
    /// How often a file was named that was named already: it is in the index once.
    pub repeated_files: u64,
    /// Files with other columns, types, nulls or another order of columns than the first one; of an update, those that
    /// are new and differ from the index.
    pub unlike_files: u64,
    /// The first of them, and in what it differs.
    pub unlike_example: Option<String>,
    /// Columns that this version cannot decode, because a newer writer encoded or compressed them. They cannot be
    /// served; all others can.
    pub undecodable_columns: Vec<String>,
}

impl IndexBuilder {
    /// An index of these files, folders and glob patterns: local ones, or URLs (`s3://`, `gs://`, `az://`, `http://`,
    /// `https://`) in one bucket, container or host.
    ///
    /// Folders are searched recursively for `*.parquet`, `*.parq` and `*.pq`, leaving out names that begin with `.` or
    /// `_`; files and matches of a pattern are taken as they are. In a store, what ends in `/` is a folder, and so is
    /// what has none of these extensions if there is something below it. The index lists them by path, bytewise, and
    /// not in the order given here.
    pub fn new(inputs: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        Self {
            inputs: inputs.into_iter().map(Into::into).collect(),
            root: None,
            schema_mode: SchemaMode::default(),
            footers: true,
            partitions: true,
            renames: Vec::new(),
            threads: None,
            overwrite: false,
            update: false,
            lengths: Vec::new(),
            store: StoreOptions::default(),
            progress: Box::new(|_| ()),
        }
    }

    /// Stores paths relative to this directory, which must contain all files. Default: the deepest one that does.
    pub fn with_root(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = Some(root.into());
        self
    }

    /// How the schemas of the files are brought together. Default: [`SchemaMode::Strict`].
    pub fn with_schema_mode(mut self, mode: SchemaMode) -> Self {
        self.schema_mode = mode;
        self
    }

    /// Whether to store the footers, so that nobody who opens the index needs to read them again. Default: yes.
    pub fn with_footers(mut self, footers: bool) -> Self {
        self.footers = footers;
        self
    }

    /// Whether folders named `key=value` below the root become columns (hive partitioning). Default: yes.
    pub fn with_partitions(mut self, partitions: bool) -> Self {
        self.partitions = partitions;
        self
    }

    /// Serves columns of the files by other names: pairs of the name in the files and the name to serve. Default: none.
    ///
    /// Only columns at the top level have other names, in any schema mode. A file may have either name, or, in a union,
    /// neither; a file with both is refused, and so is a name that no file has. Several names may become one. An update
    /// keeps the renames of the index that it updates.
    pub fn with_renames(mut self, renames: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>) -> Self {
        self.renames = renames.into_iter().map(|(old, new)| (old.into(), new.into())).collect();
        self
    }

    /// Reads footers with this many threads. Default: one per available core. From a store, they are as many as
    /// [`StoreOptions::with_concurrency`] says.
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Whether to replace an existing file. Default: no.
    pub fn with_overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// Whether to update the index at the output path, if there is one: its leading files that have not changed keep
    /// their row ids and are not read, all others follow, by path. Default: no.
    pub fn with_update(mut self, update: bool) -> Self {
        self.update = update;
        self
    }

    /// Records how long rows are by these columns, of lists or of integers, as [`LengthsBuilder::with_column`] does.
    /// Default: none; an update keeps those of the index that it updates.
    ///
    /// An update reads these columns of the files that are new.
    pub fn with_lengths(mut self, columns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.lengths = columns.into_iter().map(Into::into).collect();
        self
    }

    /// How object stores are talked to, if the data or the index is in one. Default: [`StoreOptions::default`].
    pub fn with_store_options(mut self, options: StoreOptions) -> Self {
        self.store = options;
        self
    }

    /// Is called after each window of files, on the building thread; and when lengths are recorded, once more for all
    /// files.
    pub fn with_progress(mut self, progress: impl Fn(BuildProgress) + Send + Sync + 'static) -> Self {
        self.progress = Box::new(progress);
        self
    }

    /// Builds the index at `output`, a path or a URL: the path holds what it held, or the whole new index, at any
    /// moment.
    ///
    /// Costs about one read per file, and in a store one request, after one for each thousand files that are listed.
    /// Nothing is decoded. An index that goes to a store is held in memory until it is done.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`] if there is a file and neither overwriting nor updating was asked for;
    /// [`ErrorKind::NotFound`] if an input does not exist or nothing matches; [`ErrorKind::InvalidParquet`] and
    /// [`ErrorKind::UnsupportedParquet`] for a file that cannot be read; [`ErrorKind::Schema`] for files that do not
    /// fit together, naming both and the field; [`ErrorKind::InvalidArgument`] for options that contradict each other
    /// or the data; [`ErrorKind::Stale`] if somebody else wrote the index that is updated meanwhile.
    pub fn build(&self, output: impl AsRef<Path>) -> Result<BuildReport> {
        let output = output.as_ref();
        let place = Place::of(output)?;
        // Before anything is read.
        Renames::new(self.renames.iter().cloned())?;
        let old = self.old_index(output, &place)?;
        let overwrite = self.overwrite || self.update;
        let file = Output::create(place, overwrite, &self.store).map_err(|error| exists_already(error, output))?;
        let found = discover::discover(&self.inputs, self.root.as_deref(), &self.store)?;
        self.write_index(file, output, &found, old.as_ref())
    }

    /// Writes the index of files that were found, and puts it at `output`.
    fn write_index(
        &self,
        mut file: Output,
        output: &Path,
        found: &FilesToIndex,
        old: Option<&Index>,
    ) -> Result<BuildReport> {
        let place = Place::of(output)?;
        if found.has(&place) {
            return Err(output::is_data(&shown(output)));
        }
        let report = self.write_noted(&mut file, &place, found, old).map_err(|error| match error.kind() {
            // What fails without a name is the writing.
            ErrorKind::Io => error.with_file(shown(output)),
            _ => error,
        })?;
        match old {
            Some(old) => file.commit_over(old)?,
            None => file.commit().map_err(|error| exists_already(error, output))?,
        }
        Ok(report)
    }
}

fn exists_already(error: Error, output: &Path) -> Error {
    match error.kind() {
        ErrorKind::AlreadyExists => Error::new(ErrorKind::AlreadyExists, "the index exists already")
            .with_file(shown(output))
            .with_hint("set `overwrite` or `update`, or choose another path"),
        _ => error,
    }
}

impl fmt::Debug for IndexBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexBuilder").finish_non_exhaustive()
    }
}
