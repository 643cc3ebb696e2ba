//! The index of data that nobody has built yet: found in the cache folder of the user, or built there.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64;

use super::discover::discover;
use super::found::{FilesToIndex, has_extension};
use super::run::updatable;
use super::unchanged::unchanged;
use super::{BuildReport, IndexBuilder};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::stop;
use rowdex_index::output::{self, Output};
use rowdex_index::{Index, root};
use rowdex_io::source::place::{Place, shown};
use rowdex_io::source::{self, FileStat, Source};

/// How long a process that waits for another one's index sleeps at a time.
const NAP: Duration = Duration::from_millis(50);

/// What [`IndexBuilder::find_or_build`] found or built.
#[derive(Debug)]
#[non_exhaustive]
pub struct FoundIndex {
    /// The index.
    pub index: Index,
    /// What was built; `None` if the index was there.
    pub built: Option<BuildReport>,
    /// Whether an index was there that was of the same data before it changed.
    pub is_rebuilt: bool,
}

impl FoundIndex {
    fn there(index: Index) -> Self {
        Self { index, built: None, is_rebuilt: false }
    }
}

impl IndexBuilder {
    /// The index of these files as they are now: the one at `at`, or in the cache folder of the user if that is `None`.
    /// It is built if it is not there, and again if files were added, removed or changed. A single input that is an
    /// index itself is opened.
    ///
    /// The cache folder is `$ROWDEX_CACHE`, `$XDG_CACHE_HOME/rowdex` or `~/.cache/rowdex`. An index there is named by
    /// what was listed (paths, sizes, times or entity tags) and by the options, so a run that is under way keeps the
    /// one it opened. Of several processes one builds, under a lock, and the others wait for it; where a file system
    /// has no locks, several build the same. Costs a listing of the data, and a `stat` for each local file.
    ///
    /// # Errors
    /// As [`build`](Self::build); [`ErrorKind::Io`] if the index cannot be written there.
    pub fn find_or_build(&self, at: Option<&Path>) -> Result<FoundIndex> {
        self.found(at, true)
    }

    /// As [`find_or_build`](Self::find_or_build), but builds nothing.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no index of the files as they are now.
    pub fn find(&self, at: Option<&Path>) -> Result<Index> {
        Ok(self.found(at, false)?.index)
    }

    fn found(&self, at: Option<&Path>, builds: bool) -> Result<FoundIndex> {
        if at.is_none()
            && let Some(index) = self.given_index()?
        {
            return Ok(FoundIndex::there(index));
        }
        let files = discover(&self.inputs, self.root.as_deref(), &self.store)?;
        let source = source::open(files.root.clone(), &self.store)?;
        let path = match at {
            Some(path) => path.to_owned(),
            None => self.cached(&files, &*source)?,
        };
        // What a cached index is of, its name says.
        let is_same = |index: &Index| at.is_none() || is_of(index, &files, &*source);
        let is_current = |index: &Index| is_same(index) && self.has_lengths(index);
        let current = || Ok(self.opened(&path)?.filter(is_current));
        if let Some(index) = current()? {
            return Ok(FoundIndex::there(index));
        }
        if !builds {
            return Err(Error::new(ErrorKind::NotFound, "there is no index of the data as it is now")
                .with_file(shown(&path))
                .with_hint("build it"));
        }
        let build = || {
            let _lock = locked(&path, at.is_none())?;
            if let Some(index) = current()? {
                return Ok(FoundIndex::there(index));
            }
            let old = self.opened(&path)?.map(updatable).transpose()?;
            let is_rebuilt = match at {
                Some(_) => old.as_ref().is_some_and(|old| !is_same(old)),
                None => has_index(path.parent()),
            };
            let file = Output::create(Place::of(&path)?, true, &self.store)?;
            let built = self.write_index(file, &path, &files, old.as_ref())?;
            Ok(FoundIndex { index: Index::open_with(&path, &self.store)?, built: Some(built), is_rebuilt })
        };
        build().or_else(|error: Error| match current() {
            // Where there are no locks, another process may have been faster.
            Ok(Some(index)) => Ok(FoundIndex::there(index)),
            _ if error.kind() == ErrorKind::Io && at.is_none() => Err(elsewhere(error)),
            _ => Err(error),
        })
    }

    /// The index that the only input is, if it is one.
    fn given_index(&self) -> Result<Option<Index>> {
        let [only] = &self.inputs[..] else { return Ok(None) };
        let is_index = match &Place::of(only)? {
            Place::Local(path) => !path.is_dir() && (is_named_index(path) || path.is_file() && !has_extension(path)),
            place @ Place::Remote(url) => {
                let key = Path::new(&url.key);
                let may_be = !(url.key.is_empty() || url.key.ends_with('/') || has_extension(key));
                may_be && (is_named_index(key) || output::exists(place, &self.store).unwrap_or(false))
            }
        };
        if is_index { Index::open_with(only, &self.store).map(Some) } else { Ok(None) }
    }

    /// The index at a path; `None` if there is none, or none that can be read.
    fn opened(&self, path: &Path) -> Result<Option<Index>> {
        match Index::open_with(path, &self.store) {
            Ok(index) => Ok(Some(index)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidIndex) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether an index has the lengths that are asked for.
    fn has_lengths(&self, index: &Index) -> bool {
        self.lengths.iter().all(|name| index.lengths(name).is_ok())
    }

    /// Where the index of these files is, in the cache folder of the user.
    fn cached(&self, files: &FilesToIndex, source: &dyn Source) -> Result<PathBuf> {
        let folder = cache_folder()?;
        // What is recorded of the root holds for all who come to the same.
        let root = root::recorded(&Place::Local(folder.join("index.rdx")), &files.root).map_err(elsewhere)?;
        let mut listed = String::new();
        for path in &files.paths {
            let FileStat { size, mtime_ns, etag } = match files.listed.get(path) {
                Some(stat) => stat.clone(),
                None => source.stat(path).map_err(|error| error.with_file(path))?,
            };
            listed += &format!("{path:?} {size} {mtime_ns:?} {etag:?}\n");
        }
        let inputs = self.inputs.iter().map(|input| match Place::of(input)? {
            Place::Local(path) => absolute(&path),
            Place::Remote(url) => Ok(url.to_string().into()),
        });
        let inputs = inputs.collect::<Result<Vec<PathBuf>>>()?;
        let options = (self.schema_mode, self.footers, self.partitions, &self.renames, &self.lengths);
        let asked = format!("{root:?} {inputs:?} {options:?}");
        let hash = |text: &str| format!("{:016x}", xxh3_64(text.as_bytes()));
        Ok(folder.join(hash(&asked)).join(hash(&listed)).with_extension("rdx"))
    }
}

/// Whether an index is of all rows of these files as they are now.
fn is_of(index: &Index, files: &FilesToIndex, source: &dyn Source) -> bool {
    index.row_groups().all(|group| group.selection().is_none())
        && index.files().map(|file| file.path().to_owned()).eq(files.paths.iter().cloned())
        && unchanged(index, files, source, true).len() == files.paths.len()
}

/// Where indexes are that nobody has named.
fn cache_folder() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = set("ROWDEX_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|folder| folder.join("rowdex")))
        .or_else(|| std::env::home_dir().map(|folder| folder.join(".cache/rowdex")))
        .ok_or_else(|| elsewhere(Error::new(ErrorKind::NotFound, "this user has no folder for caches")))?;
    absolute(&folder)
}

/// What to do where the cache folder does not serve.
fn elsewhere(error: Error) -> Error {
    error.with_hint("set ROWDEX_CACHE to a folder that can be written, or name a path for the index")
}

fn absolute(path: &Path) -> Result<PathBuf> {
    let whole = std::path::absolute(path);
    let whole = whole.map_err(|error| Error::io("cannot resolve the path", error).with_file(shown(path)))?;
    // Without a slash at its end.
    Ok(whole.components().collect())
}

/// A file beside an index that is being built, which the system unlocks when its process ends.
struct IndexLock {
    _file: File,
    path: PathBuf,
}

impl Drop for IndexLock {
    fn drop(&mut self) {
        // Another process may be waiting for it: it finds the index.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether a folder has an index.
fn has_index(folder: Option<&Path>) -> bool {
    let entries = folder.and_then(|folder| folder.read_dir().ok());
    entries.into_iter().flatten().flatten().any(|entry| is_named_index(&entry.path()))
}

fn is_named_index(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rdx")
}

/// Waits until no other process builds the index; `None` where there are no locks.
fn locked(index: &Path, is_cached: bool) -> Result<Option<IndexLock>> {
    let Place::Local(index) = Place::of(index)? else { return Ok(None) };
    let failed = |path: &Path, error| {
        let error = Error::io("cannot write here", error).with_file(shown(path));
        if is_cached { elsewhere(error) } else { error }
    };
    if is_cached && let Some(folder) = index.parent() {
        std::fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    }
    let path = index.with_extension("rdx.lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|error| failed(&path, error))?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(IndexLock { _file: file, path })),
            Err(TryLockError::Error(_)) => return Ok(None),
            Err(TryLockError::WouldBlock) => {
                stop::check()?;
                std::thread::sleep(NAP);
            }
        }
    }
}
