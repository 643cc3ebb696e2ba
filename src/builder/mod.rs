//! From Parquet files to an index: the only part of `index` that knows what the files are.
//!
//! Footers are read in parallel, a window of files at a time, and written out as they come, so memory does not grow
//! with what the footers hold. What stays per file is its path and 72 bytes, per row group 24 bytes.

mod difference;
mod discover;
mod found;
mod listing;
mod partition;
mod parts;
#[cfg(test)]
mod row_list_tests;
mod schema;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use rayon::{ThreadPool, ThreadPoolBuilder};

use self::found::Found;
use self::partition::Partitions;
use self::parts::{Parts, slice_of};
use self::schema::Merged;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::pool;
use rowdex_base::stop;
use rowdex_index::build_info::renames_member;
use rowdex_index::output::{self, Output};
use rowdex_index::writer::{FooterCompressor, FooterRef, IndexWriter, NewFile, NewRowGroup, StoredFooter, Summary};
use rowdex_index::{FileEntry, Index, Root, root, view};
use rowdex_io::source::place::{Place, shown};
use rowdex_io::source::{self, FileStat, Source, StoreOptions};
use rowdex_parquet::{FileMetadata, Footer, read_end};
use rowdex_projection::{Projection, Renames, children, unknown};

pub use self::difference::{DifferenceKind, SchemaDifference};
pub use self::schema::SchemaMode;

/// Files whose footers are in memory at once, for each thread.
const WINDOW_PER_THREAD: usize = 32;

/// The same where a thread does little but wait for one request.
const WINDOW_PER_REQUEST: usize = 4;

/// Bounds of what is read of a file's end in a store, in the hope that its footer is in it.
const MIN_GUESS: u64 = 8 << 10;
const MAX_GUESS: u64 = 4 << 20;

/// How an index is built: from which files, and with which options.
///
/// ```no_run
/// # fn main() -> rowdex::Result<()> {
/// let report = rowdex::IndexBuilder::new(["data/"]).build("train.rdx")?;
/// println!("{} rows in {} row groups", report.rows, report.row_groups);
/// # Ok(()) }
/// ```
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
    rows: Option<PathBuf>,
    parts: Vec<PathBuf>,
    slice: Option<(u64, u64)>,
    store: StoreOptions,
    progress: Box<Progress>,
    differences: Box<dyn Fn(&SchemaDifference) + Send + Sync>,
}

type Progress = dyn Fn(BuildProgress) + Send + Sync;

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
}

/// What a build made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// Rows in those row groups; more than `rows` where rows were selected.
    pub source_rows: u64,
    /// Length of the index file in bytes.
    pub index_bytes: u64,
    /// How often a file was named that was named already: it is in the index once.
    pub repeated_files: u64,
}

impl IndexBuilder {
    /// An index of these files, folders and glob patterns: local ones, or URLs (`s3://`, `gs://`, `az://`, `http://`,
    /// `https://`) in one bucket, container or host.
    ///
    /// Folders are searched recursively for `*.parquet`, `*.parq` and `*.pq`, leaving out names that begin with `.` or
    /// `_`; files and matches of a pattern are taken as they are. In a store, what ends in `/` is a folder, and so is
    /// what has none of these extensions if there is something below it. The index lists them by path, bytewise,
    /// whatever the order given here.
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
            rows: None,
            parts: Vec::new(),
            slice: None,
            store: StoreOptions::default(),
            progress: Box::new(|_| ()),
            differences: Box::new(|_| ()),
        }
    }

    /// Stores paths relative to this directory, which must contain all files. Default: the deepest one that does.
    #[must_use]
    pub fn with_root(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = Some(root.into());
        self
    }

    /// How the schemas of the files are brought together. Default: [`SchemaMode::Strict`].
    #[must_use]
    pub fn with_schema_mode(mut self, mode: SchemaMode) -> Self {
        self.schema_mode = mode;
        self
    }

    /// Whether to store the footers, so that nobody who opens the index needs to read them again. Default: yes.
    #[must_use]
    pub fn with_footers(mut self, footers: bool) -> Self {
        self.footers = footers;
        self
    }

    /// Whether folders named `key=value` below the root become columns (hive partitioning). Default: yes.
    #[must_use]
    pub fn with_partitions(mut self, partitions: bool) -> Self {
        self.partitions = partitions;
        self
    }

    /// Serves columns of the files by other names: pairs of the name in the files and the name to serve. Default: none.
    ///
    /// Only columns at the top level have other names, whatever the schema mode. A file may have either name, or, in a
    /// union, neither; a file with both is an error, and so is a name that no file has. Several names may become one.
    /// An update goes on with the renames of the index that it updates.
    #[must_use]
    pub fn with_renames(mut self, renames: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>) -> Self {
        self.renames = renames.into_iter().map(|(old, new)| (old.into(), new.into())).collect();
        self
    }

    /// Reads footers with this many threads. Default: one per available core. From a store, they are as many as
    /// [`StoreOptions::with_concurrency`] says.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Whether to replace an existing file. Default: no.
    #[must_use]
    pub fn with_overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// Whether to update the index at the output path, if there is one: its leading files that have not changed keep
    /// their row ids and are not read, all others follow, by path. Default: no.
    #[must_use]
    pub fn with_update(mut self, update: bool) -> Self {
        self.update = update;
        self
    }

    /// Serves only the rows that this file lists, in the order of the data: a list as [`Index::read_rows`] takes it,
    /// whose row ids are those of the index built without this option. A row that is listed twice is an error.
    #[must_use]
    pub fn with_rows(mut self, rows: impl Into<PathBuf>) -> Self {
        self.rows = Some(rows.into());
        self
    }

    /// Indexes one part of the data alone: slice `slice` of `slices` of the sorted list of files. Machines that each
    /// build one slice share the reading of footers; [`with_parts`](Self::with_parts) then makes the whole index.
    ///
    /// Slices are consecutive, and their numbers of files differ by one at most; there may be more slices than files.
    /// The index of a slice records an absolute root, so that it may be copied to another machine.
    #[must_use]
    pub fn with_slice(mut self, slice: u64, slices: u64) -> Self {
        self.slice = Some((slice, slices));
        self
    }

    /// Takes footers from these indexes instead of reading them, for files that are as the index recorded them: of the
    /// same size, and of the same time or entity tag. Other files are read; files that only a part has are left out.
    ///
    /// The index has the very bytes that it has without parts. Parts must have the root of the whole, store footers,
    /// and select no rows. A local file costs a look at its size and time, one in a store nothing beyond the listing.
    #[must_use]
    pub fn with_parts(mut self, parts: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        self.parts = parts.into_iter().map(Into::into).collect();
        self
    }

    /// How object stores are talked to, if the data or the index is in one. Default: [`StoreOptions::default`].
    #[must_use]
    pub fn with_store_options(mut self, options: StoreOptions) -> Self {
        self.store = options;
        self
    }

    /// Is called after each window of files, on the building thread.
    #[must_use]
    pub fn with_progress(mut self, progress: impl Fn(BuildProgress) + Send + Sync + 'static) -> Self {
        self.progress = Box::new(progress);
        self
    }

    /// Is told each way in which files differ from the schema that is served, once, on the building thread, when all
    /// files are known to fit together. Of an index that is updated, only the files that follow are compared.
    #[must_use]
    pub fn with_differences(mut self, differences: impl Fn(&SchemaDifference) + Send + Sync + 'static) -> Self {
        self.differences = Box::new(differences);
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
    /// or the data.
    pub fn build(&self, output: impl AsRef<Path>) -> Result<BuildReport> {
        let place = Place::of(&output)?;
        self.check_slice()?;
        // Before anything is read.
        Renames::new(self.renames.iter().cloned())?;
        let old = self.old_index(output.as_ref(), &place)?;
        let exists = |error: Error| match error.kind() {
            ErrorKind::AlreadyExists => Error::new(ErrorKind::AlreadyExists, "the index exists already")
                .with_file(shown(output.as_ref()))
                .with_hint("overwrite it (`--force`), update it (`--update`) or choose another path"),
            _ => error,
        };
        let overwrite = self.overwrite || self.update;
        let mut file = Output::create(place.clone(), overwrite, &self.store).map_err(exists)?;
        if place.url().is_some() && !overwrite && output::exists(&place, &self.store)? {
            return Err(exists(Error::new(ErrorKind::AlreadyExists, "")));
        }
        let mut found = discover::discover(&self.inputs, self.root.as_deref(), &self.store)?;
        if found.has(&place) {
            return Err(output::is_data(&shown(output.as_ref())));
        }
        if let Some((slice, slices)) = self.slice {
            let own = slice_of(found.paths.len(), slice, slices);
            found.paths = found.paths.drain(own).collect();
        }
        let write = |file: &mut Output| match &self.rows {
            Some(rows) => self.write_listed(file, &place, &found, rows),
            None => self.write(file, &place, &found, old.as_ref()),
        };
        let report = write(&mut file).map_err(|error| match error.kind() {
            // What fails without a name is the writing.
            ErrorKind::Io => error.with_file(shown(output.as_ref())),
            _ => error,
        })?;
        file.commit().map_err(exists)?;
        Ok(report)
    }

    fn check_slice(&self) -> Result<()> {
        let refuse =
            |message: String, hint: &'static str| Err(Error::new(ErrorKind::InvalidArgument, message).with_hint(hint));
        match self.slice {
            Some((slice, slices)) if slice >= slices => {
                refuse(format!("there is no slice {slice} of {slices}"), "slices are counted from 0")
            }
            Some(_) if self.rows.is_some() => refuse(
                "a slice of the files cannot select rows".to_owned(),
                "select rows when the parts are joined to the whole",
            ),
            Some(_) if self.update => {
                refuse("a slice of the files cannot be updated".to_owned(), "update the whole index")
            }
            _ => Ok(()),
        }
    }

    fn old_index(&self, output: &Path, place: &Place) -> Result<Option<Index>> {
        if !self.update {
            return Ok(None);
        }
        if self.rows.is_some() {
            return Err(Error::new(ErrorKind::InvalidArgument, "an update cannot select rows")
                .with_hint("build the index anew with the list of rows"));
        }
        if !output::exists(place, &self.store)? {
            return Ok(None);
        }
        let old = Index::open_with(output, &self.store)?;
        if old.row_groups().any(|group| group.selection().is_some()) {
            return Err(Error::new(ErrorKind::InvalidArgument, "an index of selected rows cannot be updated")
                .with_file(shown(output))
                .with_hint("build it anew (`--force`) with a new list of rows"));
        }
        Ok(Some(old))
    }

    /// An index of all rows beside the one that is wanted, and of that one the listed rows.
    fn write_listed(&self, out: &mut Output, output: &Place, found: &Found, rows: &Path) -> Result<BuildReport> {
        let mut all = Output::create(output.clone(), true, &self.store)?;
        let mut report = self.write(&mut all, output, found, None)?;
        let all = all.read_back()?;
        let listed = all.read_rows(rows)?;
        if listed.repeated > 0 {
            let message = match listed.repeated_row {
                Some(row) => format!("row id {row} is listed twice"),
                None => format!("{} rows are listed twice", listed.repeated),
            };
            return Err(Error::new(ErrorKind::InvalidArgument, message)
                .with_file(rows.display().to_string())
                .with_hint("list each row once, or use `rowdex select`, which serves it once and says so"));
        }
        report.rows = listed.rows.len();
        report.index_bytes = view::write(out, &all, &all.to_source(&listed.rows)?, all.root(), all.build_info())?;
        Ok(report)
    }

    fn write(&self, out: &mut Output, output: &Place, found: &Found, old: Option<&Index>) -> Result<BuildReport> {
        let source = &*source::open(found.root.clone(), &self.store)?;
        // A slice is not opened beside the data, but joined to others elsewhere.
        let root =
            if self.slice.is_some() { root::absolute(&found.root) } else { root::recorded(output, &found.root) }?;
        let parts = Parts::open(&self.parts, &found.root, &self.store)?;
        let parts = parts.files();
        let unchanged = match old {
            Some(old) => unchanged(old, found, source, *old.root() == root),
            None => HashMap::new(),
        };
        let kept = old.map_or(0, |old| old.files().take_while(|file| unchanged.contains_key(file.path())).count());
        let kept_paths: HashSet<&str> =
            old.iter().flat_map(|old| old.files().take(kept)).map(|file| file.path()).collect();
        let fresh: Vec<&str> =
            found.paths.iter().map(String::as_str).filter(|path| !kept_paths.contains(path)).collect();
        let all = || kept_paths_in_order(old, kept).chain(fresh.iter().copied());
        let partitions = if self.partitions { Partitions::of(all())? } else { Partitions::default() };
        let renames = self.all_renames(old.filter(|_| kept > 0), old)?;

        let pool = self.pool(source.is_remote())?;
        let mut build = Build {
            writer: IndexWriter::new(out)?,
            merged: Merged::new(self.schema_mode),
            partitions: &partitions,
            renames: &renames,
            // Those of the index that is updated were in its files.
            renamed: old.iter().flat_map(|old| old.renames()).map(|(name, _)| name.to_owned()).collect(),
            compressor: self.footers.then(FooterCompressor::new).transpose()?,
            report: BuildReport {
                files: 0,
                kept_files: kept as u64,
                read_files: 0,
                requests: 0,
                footer_bytes: 0,
                row_groups: 0,
                rows: 0,
                source_rows: 0,
                index_bytes: 0,
                repeated_files: found.repeated,
            },
        };
        let total = kept + fresh.len();
        let progress = |report: &BuildReport| {
            let &BuildReport { files: files_done, rows, footer_bytes: bytes, .. } = report;
            (self.progress)(BuildProgress { files_done, files: total as u64, rows, bytes });
        };
        if let Some(old) = old {
            build.merged.start_with(old, kept, &partitions)?;
            for (entry, now) in old.files().map_while(|file| Some((file, unchanged.get(file.path())?))).take(kept) {
                build.keep(old, &entry, now, source)?;
            }
        }
        progress(&build.report);
        let located = |error: Error, path: &str| error.with_location(path, || source.location(path));
        let threads = pool.current_num_threads();
        let window = threads * if source.is_remote() { WINDOW_PER_REQUEST } else { WINDOW_PER_THREAD };
        let mut guess = source.footer_guess();
        for window in fresh.chunks(window) {
            stop::check()?;
            let compressor = || self.footers.then(FooterCompressor::new).transpose();
            let read = |compressor: &mut Result<Option<FooterCompressor>>, path: &&str| {
                let compressor = compressor.as_mut().map_err(|error| error.clone())?;
                if let (Some(old), Some(now)) = (old, unchanged.get(path))
                    && let Some(known) = Scanned::known(old, now, &renames, compressor.as_mut())?
                {
                    return Ok((known, false));
                }
                let listed = found.listed.get(*path);
                if let Some((part, now)) = parts.find(path, listed, source)
                    && let Some(known) = Scanned::known(part, &now, &renames, compressor.as_mut())?
                {
                    return Ok((known, false));
                }
                let read = Scanned::read(source, path, guess, listed, &renames, compressor.as_mut());
                Ok((read.map_err(|error| located(not_there(error, found, path), path))?, true))
            };
            let scanned = pool::each(Some(&pool), window, compressor, read)?;
            let mut longest = 0;
            for file in scanned {
                let (file, read) = file?;
                let length = file.footer.bytes.len() as u64;
                longest = longest.max(length);
                if read {
                    build.report.read_files += 1;
                    build.report.footer_bytes += length;
                }
                let path = file.metadata.path().to_owned();
                build.add(file).map_err(|error| located(error, &path))?;
            }
            if source.is_remote() {
                // Files of one dataset have footers of about one length.
                guess = (longest + longest / 8 + 8).next_multiple_of(4 << 10).clamp(MIN_GUESS, MAX_GUESS);
            }
            build.report.requests = source.traffic().requests;
            progress(&build.report);
        }
        build.finish(&root, self)
    }

    /// The renames of the index that is updated, and those that were asked for. Of the files that are kept footers are
    /// not read, so no column of theirs can get another name.
    fn all_renames(&self, kept: Option<&Index>, old: Option<&Index>) -> Result<Renames> {
        let before = old.map_or(&[][..], |old| old.renaming().pairs());
        let more = || self.renames.iter().filter(|pair| !before.contains(pair));
        if let Some((name, new)) =
            more().find(|(name, _)| kept.is_some_and(|kept| kept.schema().column_with_name(name).is_some()))
        {
            let message = format!("the index serves this column, so an update cannot rename it to {new:?}");
            return Err(Error::new(ErrorKind::InvalidArgument, message)
                .with_column(name)
                .with_hint("build it anew (`--force`)"));
        }
        Renames::new(before.iter().chain(more()).cloned())
    }

    fn pool(&self, remote: bool) -> Result<ThreadPool> {
        let threads = if remote { self.store.concurrency } else { self.threads.unwrap_or(0) };
        let named = |thread| format!("rowdex-build-{thread}");
        ThreadPoolBuilder::new().num_threads(threads).thread_name(named).build().map_err(|error| {
            Error::new(ErrorKind::Io, format!("cannot start threads: {error}"))
                .with_hint("ask for fewer")
                .with_source(error)
        })
    }
}

impl fmt::Debug for IndexBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexBuilder")
            .field("inputs", &self.inputs.iter().map(|input| shown(input)).collect::<Vec<_>>())
            .field("root", &self.root.as_deref().map(shown))
            .field("schema_mode", &self.schema_mode)
            .field("update", &self.update)
            .field("rows", &self.rows)
            .field("slice", &self.slice)
            .field("parts", &self.parts.iter().map(|part| shown(part)).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// A file whose footer is read and parsed.
struct Scanned {
    stat: FileStat,
    footer: Footer,
    metadata: FileMetadata,
    /// `None` for an index without footers.
    stored: Option<StoredFooter>,
}

impl Scanned {
    fn read(
        source: &dyn Source,
        path: &str,
        guess: u64,
        listed: Option<&FileStat>,
        renames: &Renames,
        compressor: Option<&mut FooterCompressor>,
    ) -> Result<Self> {
        let (stat, footer) = read_end(source, path, guess, listed)?;
        Self::parse(path, stat, footer, renames, compressor)
    }

    /// From the stored footer of another index; `None` if it has none.
    fn known(
        old: &Index,
        now: &Unchanged,
        renames: &Renames,
        compressor: Option<&mut FooterCompressor>,
    ) -> Result<Option<Self>> {
        let Some(entry) = old.file(now.file) else { return Ok(None) };
        let Some(bytes) = old.footer(now.file)? else { return Ok(None) };
        let footer = Footer { bytes, hash: entry.footer_hash(), file_size: entry.size() };
        Self::parse(entry.path(), now.stat.clone(), footer, renames, compressor).map(Some)
    }

    fn parse(
        path: &str,
        stat: FileStat,
        footer: Footer,
        renames: &Renames,
        compressor: Option<&mut FooterCompressor>,
    ) -> Result<Self> {
        let metadata = FileMetadata::parse(path, &footer.bytes, footer.file_size, renames)?;
        let stored = compressor.map(|compressor| compressor.compress(&footer.bytes)).transpose();
        Ok(Self { stat, footer, metadata, stored: stored.map_err(|error| error.with_file(path))? })
    }
}

/// An index being written.
struct Build<'a> {
    writer: IndexWriter<&'a mut Output>,
    merged: Merged,
    partitions: &'a Partitions,
    renames: &'a Renames,
    /// The names of columns that were found in files and are served by others.
    renamed: HashSet<String>,
    /// For footers that are kept; `None` for an index without footers.
    compressor: Option<FooterCompressor>,
    report: BuildReport,
}

impl Build<'_> {
    fn add(&mut self, file: Scanned) -> Result<()> {
        let path = file.metadata.path();
        let renamed = file.metadata.renamed();
        self.merged.add(path, file.metadata.arrow_schema(), renamed, self.partitions)?;
        for (old, _) in renamed {
            if !self.renamed.contains(old) {
                self.renamed.insert(old.clone());
            }
        }
        let footer = match &file.stored {
            Some(stored) => self.writer.push_footer(stored)?,
            None => FooterRef::not_stored(&file.footer.bytes),
        };
        self.push_file(path, &file.stat, footer)?;
        let groups = 0..file.metadata.num_row_groups();
        for ordinal in groups {
            let source_rows = u64::from(file.metadata.row_group_rows(ordinal));
            let decoded_bytes = file.metadata.decoded_bytes(ordinal, None);
            self.push_row_group(NewRowGroup { ordinal: ordinal as u32, source_rows, decoded_bytes, selection: None })?;
        }
        Ok(())
    }

    /// Takes a file over from the index that is updated.
    fn keep(&mut self, old: &Index, entry: &FileEntry<'_>, now: &Unchanged, source: &dyn Source) -> Result<()> {
        let footer = match old.footer(entry.index())? {
            Some(raw) => self.footer(&raw)?,
            None => {
                let (_, footer) = read_end(source, entry.path(), source.footer_guess(), Some(&now.stat))?;
                self.report.read_files += 1;
                self.report.footer_bytes += footer.bytes.len() as u64;
                self.footer(&footer.bytes)?
            }
        };
        self.push_file(entry.path(), &now.stat, footer)?;
        for group in entry.row_groups().filter_map(|group| old.row_group(group)) {
            self.push_row_group(NewRowGroup {
                ordinal: group.ordinal(),
                source_rows: group.source_rows(),
                decoded_bytes: group.decoded_bytes(),
                selection: None,
            })?;
        }
        Ok(())
    }

    fn footer(&mut self, raw: &[u8]) -> Result<FooterRef> {
        match &mut self.compressor {
            Some(compressor) => self.writer.push_footer(&compressor.compress(raw)?),
            None => Ok(FooterRef::not_stored(raw)),
        }
    }

    fn push_file(&mut self, path: &str, stat: &FileStat, footer: FooterRef) -> Result<()> {
        let values = self.partitions.values_of(path)?;
        let values: Vec<Option<&str>> = values.iter().map(Option::as_deref).collect();
        self.writer.push_file(NewFile {
            path,
            size: stat.size,
            mtime_ns: stat.mtime_ns,
            etag: stat.etag.as_deref(),
            footer,
            partition_values: &values,
        })?;
        self.report.files += 1;
        Ok(())
    }

    fn push_row_group(&mut self, group: NewRowGroup<'_>) -> Result<()> {
        let source_rows = group.source_rows;
        self.writer.push_row_group(group)?;
        self.report.rows += source_rows;
        self.report.source_rows += source_rows;
        self.report.row_groups += 1;
        Ok(())
    }

    fn finish(mut self, root: &Root, builder: &IndexBuilder) -> Result<BuildReport> {
        let schema: Arc<Schema> = self.merged.finish(self.partitions)?;
        self.check_renames(&schema, builder)?;
        self.merged.differences(&schema).iter().for_each(|difference| (builder.differences)(difference));
        // Only what the index follows from belongs here: a time of day would make equal builds unequal.
        let info = format!(
            r#"{{"rowdex":"{}","schema":"{}","footers":{},"partitions":{},"selected":{}{}}}"#,
            env!("CARGO_PKG_VERSION"),
            builder.schema_mode,
            builder.footers,
            builder.partitions,
            builder.rows.is_some(),
            renames_member(self.renames)
        );
        let summary = Summary {
            schema: &schema,
            partition_columns: self.partitions.names(),
            renames: self.renames,
            root,
            build_info: &info,
        };
        let out = self.writer.finish(&summary)?;
        self.report.index_bytes =
            out.seek(SeekFrom::End(0)).map_err(|error| Error::io("cannot write the index", error))?;
        Ok(self.report)
    }

    /// Refuses names that no file has, and new ones that lead elsewhere.
    fn check_renames(&self, schema: &SchemaRef, builder: &IndexBuilder) -> Result<()> {
        let refuse = |name: &str, message: &'static str, hint: &str| {
            Err(Error::new(ErrorKind::InvalidArgument, message).with_column(name).with_hint(hint.to_owned()))
        };
        for (old, new) in &builder.renames {
            if let Some((above, _)) = new.split_once('.')
                && schema.field_with_name(above).is_ok_and(|field| !children(field.data_type()).is_empty())
            {
                return refuse(new, "the new name is that of a field of a column", "give a name without dots");
            }
            // One slice need not have what the whole has.
            if builder.slice.is_some() || self.renamed.contains(old) {
                continue;
            }
            if self.partitions.names().contains(old) {
                let message = "the column comes from the names of folders, and only columns of files can be renamed";
                return refuse(old, message, "rename the folders");
            }
            if Projection::columns(schema, &[old]).is_ok() {
                let message = "it is a field of a column, and only whole columns can be renamed";
                return refuse(old, message, "leave it out");
            }
            let near = unknown(schema, old);
            return refuse(old, "no file has the column that is to be renamed", near.hint().unwrap_or_default());
        }
        Ok(())
    }
}

/// A file in a store that was named, and not listed, may not be there.
fn not_there(error: Error, found: &Found, path: &str) -> Error {
    match found.root.url().and_then(|root| root.join(path)) {
        Some(url) if error.kind() == ErrorKind::NotFound && error.file() == Some(path) => {
            Error::new(ErrorKind::NotFound, error.message().to_owned())
                .with_file(url.to_string())
                .with_hint("check the name; a folder ends in `/`")
        }
        _ => error,
    }
}

/// A file of the index that is updated, whose content is still the same.
struct Unchanged {
    /// Its number in the old index.
    file: u32,
    /// What is recorded of it: a copy has a time of its own.
    stat: FileStat,
}

/// The files of the old index, by path, that are there and have not changed.
///
/// Below another root the same path may be another file, so there the footers decide; and so they do where only the
/// time of a local file is another.
fn unchanged<'a>(old: &'a Index, found: &Found, source: &dyn Source, same_root: bool) -> HashMap<&'a str, Unchanged> {
    let unchanged = |entry: &FileEntry<'_>| -> Option<Unchanged> {
        found.paths.binary_search_by(|path| path.as_str().cmp(entry.path())).ok()?;
        let stat = match found.listed.get(entry.path()) {
            Some(now) => now.clone(),
            None => source.stat(entry.path()).ok()?,
        };
        let file = entry.index();
        // What was recorded may say more than a listing, which has no entity tags in some stores.
        if same_root && entry.stat().is_surely(&stat) {
            return Some(Unchanged { file, stat: entry.stat() });
        }
        has_footer_of(entry, &stat, source).then_some(Unchanged { file, stat })
    };
    old.files().filter_map(|entry| Some((entry.path(), unchanged(&entry)?))).collect()
}

/// Whether a file is as long as the indexed one and has its footer. A request to a store costs as much as reading it
/// anew.
fn has_footer_of(entry: &FileEntry<'_>, now: &FileStat, source: &dyn Source) -> bool {
    let read = || read_end(source, entry.path(), source.footer_guess(), Some(now));
    !source.is_remote() && now.size == entry.size() && read().is_ok_and(|(_, end)| end.hash == entry.footer_hash())
}

fn kept_paths_in_order(old: Option<&Index>, kept: usize) -> impl Iterator<Item = &str> {
    old.into_iter().flat_map(move |old| old.files().take(kept)).map(|file| file.path())
}
