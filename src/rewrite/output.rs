//! The output of a rewrite: where files go, what may be there, and what is finished.

use std::collections::BTreeSet;
use std::fs::{self, DirEntry, File};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::RewritePlan;
use crate::dataset::Dataset;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_io::fs::{atomic::AtomicFile, with_room};
use rowdex_io::source::place::{Place, Scheme, Url, shown};
use rowdex_io::source::{ObjectSource, ObjectWriter, UploadOptions};

const PLAN: &str = "_rewrite.json";
pub(super) const INDEX: &str = "index.rdx";
/// Where rows are spilled in an output folder.
pub(super) const SPILL: &str = "_spill";

/// The version of the plan that is noted in the output, and its name there.
const VERSION: u64 = 3;
const VERSION_NAME: &str = "rowdex_rewrite";

/// Where a rewrite writes to. Each file appears whole or not at all, so its name alone says that it is finished, to
/// whichever process and machine looks.
#[derive(Debug)]
pub(super) enum RewriteOutput {
    /// A local folder, which need not be there.
    Folder(PathBuf),
    /// Objects of a store whose keys begin alike.
    Prefix { url: Url, store: Arc<ObjectSource> },
}

impl RewriteOutput {
    /// The folder or prefix at this path, which need not be there.
    ///
    /// # Errors
    /// `InvalidArgument` for what is only read, and for a folder that has files of the input.
    pub(super) fn new(path: &Path, dataset: &Dataset) -> Result<Self> {
        let output = match Place::of(path)? {
            Place::Local(path) => Self::Folder(
                std::path::absolute(&path).map_err(|error| failed("cannot find the folder", &path, error))?,
            ),
            Place::Remote(url) if matches!(url.scheme, Scheme::Hf | Scheme::Http | Scheme::Https) => {
                let what = if url.scheme == Scheme::Hf { "the hub" } else { "a web server" };
                return Err(Error::invalid(format!("{what} is read, and not written to"))
                    .with_file(url.to_string())
                    .with_hint("write to a store (s3, gs or az), or to a local folder and upload that"));
            }
            Place::Remote(url) => {
                let url = url.with_key(url.key.trim_end_matches('/'));
                Self::Prefix { store: Arc::new(ObjectSource::at(url.clone(), dataset.store_options())?), url }
            }
        };
        output.check_input(dataset)?;
        Ok(output)
    }

    /// The path or URL of a file; of all of it, if there is no name.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        match self {
            Self::Folder(path) if name.is_empty() => path.clone(),
            Self::Folder(path) => path.join(name),
            Self::Prefix { url, .. } => url.join(name).map_or_else(PathBuf::new, |url| url.to_string().into()),
        }
    }

    /// The same as messages name it.
    pub(super) fn shown(&self, name: &str) -> String {
        shown(&self.path(name))
    }

    /// What a folder has, and the keys below a prefix.
    fn names(&self) -> Result<BTreeSet<String>> {
        match self {
            Self::Folder(path) => {
                let name = |entry: io::Result<DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
                let names = fs::read_dir(path).and_then(|entries| entries.map(name).collect());
                names.map_err(|error| failed("cannot list the output folder", path, error))
            }
            Self::Prefix { url, store } => {
                let below = |(key, _): (String, _)| match url.key.as_str() {
                    "" => Some(key),
                    prefix => Some(key.strip_prefix(prefix)?.strip_prefix('/')?.to_owned()),
                };
                Ok(store.list()?.into_iter().filter_map(below).collect())
            }
        }
    }

    /// Removes a file, if it is there.
    pub(super) fn remove(&self, name: &str) -> Result<()> {
        match self {
            Self::Folder(path) => {
                let path = path.join(name);
                if_there(fs::remove_file(&path), "cannot remove the file", &path).map(drop)
            }
            Self::Prefix { store, .. } => store.remove(name),
        }
    }

    /// Refuses to write among the files that are read.
    fn check_input(&self, dataset: &Dataset) -> Result<()> {
        let folder = self.folder().map(real);
        let is_inside = |location: &String| match (self, Place::of(location)) {
            // A file, or a folder on the way to it, may be a link.
            (Self::Folder(_), Ok(Place::Local(file))) => {
                folder.as_ref().is_some_and(|folder| real(&file).starts_with(folder))
            }
            (Self::Prefix { url: output, .. }, Ok(Place::Remote(url))) => {
                let rest = url.key.strip_prefix(&output.key);
                url.same_store(output) && (output.key.is_empty() || rest.is_some_and(|rest| rest.starts_with('/')))
            }
            _ => false,
        };
        let mut files = dataset.index().files().filter_map(|file| dataset.location(file.path()));
        files.find(is_inside).map_or(Ok(()), |file| {
            Err(Error::invalid("the output folder has a file of the input")
                .with_file(file)
                .with_hint("write to a separate folder"))
        })
    }

    /// Makes it ready for this plan: goes on with what is there if it resumes, and replaces it if it is to overwrite.
    /// The result is held for as long as the process writes to it: by one that writes all of it alone, by tasks
    /// together.
    pub(super) fn prepare(
        &self,
        plan: &RewritePlan,
        resumes: bool,
        overwrites: bool,
        is_alone: bool,
    ) -> Result<Option<File>> {
        let lock = match self.folder() {
            None => None,
            Some(folder) => {
                fs::create_dir_all(folder).map_err(|error| failed("cannot make the output folder", folder, error))?;
                lock(folder, is_alone)?
            }
        };
        match self.plan()? {
            Some(known) if resumes => {
                self.check_plan(plan, Some(known))?;
                if is_alone {
                    self.clean(plan)?;
                }
                return Ok(lock);
            }
            Some(known) if overwrites => self.remove_all(&known)?,
            Some(_) => {
                return Err(Error::new(ErrorKind::AlreadyExists, "the folder has a rewrite already")
                    .with_file(self.shown(""))
                    .with_hint("resume it, set `overwrite`, or choose another folder"));
            }
            None => {}
        }
        self.check_empty()?;
        let mut noted = json!(plan);
        noted[VERSION_NAME] = VERSION.into();
        let put = || {
            let mut file = self.create(PLAN, 0.0)?;
            writeln!(file, "{noted:#}").map_err(|error| Error::io("cannot write the plan", error))?;
            file.commit()
        };
        match put() {
            // Another process was faster; or this one, whose first attempt was not answered.
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error.with_file(self.shown(PLAN))),
            _ => self.check_plan(plan, self.plan()?)?,
        }
        Ok(lock)
    }

    fn check_plan(&self, plan: &RewritePlan, known: Option<RewritePlan>) -> Result<()> {
        if known.as_ref() == Some(plan) {
            return Ok(());
        }
        let message = "the folder has a rewrite of other rows, in another order, or with other options";
        Err(Error::new(ErrorKind::StateMismatch, message)
            .with_file(self.shown(""))
            .with_hint("resume with the same options, or set `overwrite`"))
    }

    /// The plan that it was begun with.
    fn plan(&self) -> Result<Option<RewritePlan>> {
        let bytes = match self {
            Self::Folder(path) => {
                let path = path.join(PLAN);
                if_there(with_room(|| fs::read(&path)), "cannot read the plan", &path)?
            }
            Self::Prefix { store, .. } => match store.get_whole(PLAN) {
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                bytes => Some(bytes?.into()),
            },
        };
        let Some(bytes) = bytes else { return Ok(None) };
        let noted = serde_json::from_slice(&bytes).ok().filter(|noted: &Value| noted[VERSION_NAME] == VERSION);
        noted.and_then(|noted| serde_json::from_value(noted).ok()).map(Some).ok_or_else(|| {
            Error::invalid("this is no plan of a rewrite of this version of rowdex")
                .with_file(self.shown(PLAN))
                .with_hint("choose another folder, or remove this file and what was written next to it")
        })
    }

    /// Removes what processes that are no more had begun and not finished of files of a folder.
    pub(super) fn clean(&self, plan: &RewritePlan) -> Result<()> {
        if self.folder().is_none() {
            return Ok(());
        }
        let begun: BTreeSet<String> = own_names(plan).map(|name| format!(".{name}.tmp-")).collect();
        for name in self.names()? {
            let random = name.len().saturating_sub(16);
            if name.get(..random).is_some_and(|name| begun.contains(name)) {
                self.remove(&name)?;
            }
        }
        Ok(())
    }

    /// Removes what a rewrite of this plan left, the plan last.
    fn remove_all(&self, plan: &RewritePlan) -> Result<()> {
        self.clean(plan)?;
        self.remove_spilled()?;
        let there = self.names()?;
        own_names(plan).filter(|name| there.contains(name)).try_for_each(|name| self.remove(&name))
    }

    /// Refuses a place with anything that readers of it would take for a part of the output.
    fn check_empty(&self) -> Result<()> {
        let is_data = |name: &&String| {
            let ends = [".parquet", ".parq", ".pq", ".rdx"];
            ends.iter().any(|end| name.ends_with(end)) && !name.split('/').any(|part| part.starts_with('_'))
        };
        self.names()?.iter().find(is_data).map_or(Ok(()), |name| {
            Err(Error::new(ErrorKind::AlreadyExists, "the output folder has files that no rewrite wrote")
                .with_file(self.shown(name))
                .with_hint("choose another folder, or remove them"))
        })
    }

    /// The files that are not there, of these.
    pub(super) fn missing(&self, plan: &RewritePlan, files: Range<u64>) -> Result<Vec<u64>> {
        let there = self.names()?;
        Ok(files.filter(|file| !there.contains(&plan.file_name(*file))).collect())
    }

    /// Begins a file that is not there, and will have about so many bytes.
    pub(super) fn create(&self, name: &str, bytes: f64) -> Result<OutFile> {
        match self {
            Self::Folder(path) => AtomicFile::create(path.join(name), false).map(OutFile::File),
            Self::Prefix { store, .. } => {
                // Half of the parts that S3 allows, because the size is an estimate.
                let part_bytes = ((bytes / 5000.0) as usize).next_multiple_of(1 << 20).max(8 << 20);
                store.create(name, UploadOptions { part_bytes, parts: 2 }).map(OutFile::Object)
            }
        }
    }

    /// The local folder, if it is one.
    pub(super) fn folder(&self) -> Option<&Path> {
        if let Self::Folder(path) = self { Some(path) } else { None }
    }

    pub(super) fn file(&self, plan: &RewritePlan, file: u64) -> PathBuf {
        self.path(&plan.file_name(file))
    }

    /// Removes what was spilled in the folder, for whatever plan.
    pub(super) fn remove_spilled(&self) -> Result<()> {
        self.folder().map_or(Ok(()), |folder| remove_folder(&folder.join(SPILL)))
    }
}

/// A file being written, of which nothing is left unless it is committed.
#[derive(Debug)]
pub(super) enum OutFile {
    File(AtomicFile),
    Object(ObjectWriter),
}

impl OutFile {
    /// Puts the file in its place; returns its length.
    pub(super) fn commit(self) -> Result<u64> {
        match self {
            Self::File(mut file) => {
                let length =
                    fs::metadata(file.written()?).map_err(|error| Error::io("cannot inspect the file", error))?.len();
                file.commit().map(|()| length)
            }
            Self::Object(object) => object.commit(),
        }
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::File(file) => file,
            Self::Object(object) => object,
        }
    }
}

impl Write for OutFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer().flush()
    }
}

/// Whoever holds the result is the only process that writes to the folder, or one of several tasks that do, and nobody
/// else does. `None` where there are no locks.
///
/// # Errors
/// `AlreadyExists` if another process has it.
fn lock(path: &Path, is_alone: bool) -> Result<Option<File>> {
    let folder = rowdex_io::fs::open(path).map_err(|error| failed("cannot open the output folder", path, error))?;
    match if is_alone { folder.try_lock() } else { folder.try_lock_shared() } {
        Ok(()) => Ok(Some(folder)),
        Err(fs::TryLockError::WouldBlock) => {
            Err(Error::new(ErrorKind::AlreadyExists, "another process writes to the folder")
                .with_file(shown(path))
                .with_hint("wait for it, or choose another folder"))
        }
        // Some file systems have no locks.
        Err(fs::TryLockError::Error(_)) => Ok(None),
    }
}

/// The files of a rewrite, the plan last.
fn own_names(plan: &RewritePlan) -> impl Iterator<Item = String> {
    (0..plan.files).map(|file| plan.file_name(file)).chain([INDEX, PLAN].map(str::to_owned))
}

/// Removes a folder that only rewrites write to, if it is there.
pub(super) fn remove_folder(path: &Path) -> Result<()> {
    if_there(fs::remove_dir_all(path), "cannot remove the folder", path).map(drop)
}

/// What was made of a file or folder; `None` if it is not there.
fn if_there<T>(made: io::Result<T>, what: &'static str, path: &Path) -> Result<Option<T>> {
    match made {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        made => made.map(Some).map_err(|error| failed(what, path, error)),
    }
}

/// The path without links as far as it is there, and from there on as it is written.
pub(super) fn real(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let there = |above: &Path| Some(fs::canonicalize(above).ok()?.join(path.strip_prefix(above).ok()?));
    let found = path.ancestors().find_map(there).unwrap_or_else(|| path.clone());
    // One that ends in a separator is the same one.
    found.components().collect()
}

pub(super) fn failed(what: &'static str, path: &Path, error: io::Error) -> Error {
    Error::io(what, error).with_file(shown(path))
}
