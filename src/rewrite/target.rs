//! Where files go, and where they are found again: a local folder, or a prefix of a store.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_io::fs::{atomic::AtomicFile, with_room};
use rowdex_io::source::place::{Place, Scheme, Url};
use rowdex_io::source::{NOTES, ObjectSource, ObjectWriter, StoreOptions, UploadOptions};

pub(super) const PLAN: &str = "_rewrite.json";
pub(super) const INDEX: &str = "index.rdx";
/// In a folder with spilled rows.
pub(super) const LAYOUT: &str = "layout.json";

/// A place that holds files by name.
#[derive(Debug)]
pub(super) enum OutputPlace {
    /// A local folder, which need not be there.
    Folder(PathBuf),
    /// Objects of a store whose keys begin alike.
    Prefix { url: Url, store: Arc<ObjectSource> },
}

impl OutputPlace {
    /// # Errors
    /// `InvalidArgument` for what is only read.
    pub(super) fn new(path: &Path, options: &StoreOptions) -> Result<Self> {
        match Place::of(path)? {
            Place::Local(path) => std::path::absolute(&path)
                .map(Self::Folder)
                .map_err(|error| failed("cannot find the folder", &path, error)),
            Place::Remote(url) if matches!(url.scheme, Scheme::Hf | Scheme::Http | Scheme::Https) => {
                let what = if url.scheme == Scheme::Hf { "the hub" } else { "a web server" };
                Err(Error::new(ErrorKind::InvalidArgument, format!("{what} is read, and not written to"))
                    .with_file(url.to_string())
                    .with_hint("write to a store (s3, gs or az), or to a local folder and upload that"))
            }
            Place::Remote(url) => {
                let url = url.with_key(url.key.trim_end_matches('/'));
                Ok(Self::Prefix { store: Arc::new(ObjectSource::at(url.clone(), options)?), url })
            }
        }
    }

    /// The folder, if it is a local one.
    pub(super) fn folder(&self) -> Option<&Path> {
        if let Self::Folder(path) = self { Some(path) } else { None }
    }

    /// The path or URL of a file; of all of it, if there is no name.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        match self {
            Self::Folder(path) if name.is_empty() => path.clone(),
            Self::Folder(path) => path.join(name),
            Self::Prefix { url, .. } => url.join(name).map_or_else(PathBuf::new, |url| url.to_string().into()),
        }
    }

    /// The same, as errors name it.
    pub(super) fn shown(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// What a folder has, and the keys below a prefix.
    pub(super) fn names(&self) -> Result<BTreeSet<String>> {
        match self {
            Self::Folder(path) => {
                let failed = |error| failed("cannot list the output folder", path, error);
                let names = fs::read_dir(path).map_err(failed)?.map(|entry| entry.map_err(failed));
                names.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
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

    /// What a small file says; `None` if there is none.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>> {
        match self {
            Self::Folder(path) => match with_room(|| fs::read_to_string(path.join(name))) {
                Ok(text) => Ok(Some(text)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(failed("cannot read the file", &path.join(name), error)),
            },
            Self::Prefix { store, .. } => match store.get_whole(name) {
                Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            },
        }
    }

    /// Writes a small file, whole or not at all, in the place of one that is there if it is to `overwrite`.
    ///
    /// # Errors
    /// `AlreadyExists` for one that is there.
    pub(super) fn put(&self, name: &str, text: &str, overwrite: bool) -> Result<()> {
        match self {
            Self::Folder(path) => {
                let path = path.join(name);
                let mut file = AtomicFile::create(&path, overwrite)?;
                file.write_all(text.as_bytes()).map_err(|error| failed("cannot write the file", &path, error))?;
                file.commit()
            }
            Self::Prefix { store, .. } => store.put(name, text.as_bytes().to_vec().into(), overwrite),
        }
    }

    /// Removes a file, if it is there.
    pub(super) fn remove(&self, name: &str) -> Result<()> {
        match self {
            Self::Folder(path) => remove_file(&path.join(name)),
            Self::Prefix { store, .. } => store.remove(name),
        }
    }

    /// Begins a file that is not there, which appears whole or not at all.
    pub(super) fn create(&self, name: &str, uploads: UploadOptions) -> Result<OutFile> {
        match self {
            Self::Folder(path) => AtomicFile::create(path.join(name), false).map(OutFile::File),
            Self::Prefix { store, .. } => store.create(name, uploads).map(OutFile::Object),
        }
    }

    /// Takes back what processes that were killed had begun of the files of these names.
    pub(super) fn clean(&self, is_ours: impl Fn(&str) -> bool) -> Result<()> {
        match self {
            Self::Folder(path) => {
                let is_noted = |name: &str| [PLAN, INDEX].contains(&name) || is_ours(name);
                remove_files(path, |name| begun(name).is_some_and(is_noted))
            }
            Self::Prefix { store, .. } => {
                let names = self.names()?;
                let noted = names.iter().filter_map(|name| name.strip_prefix(NOTES));
                noted.filter(|name| is_ours(name)).try_for_each(|name| store.take_back(name))
            }
        }
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
}

impl Write for OutFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.write(bytes),
            Self::Object(object) => object.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.flush(),
            Self::Object(object) => object.flush(),
        }
    }
}

/// Whoever holds the result is the only process that writes to the folder, or one of several tasks that do, and nobody
/// else does. `None` where there are no locks.
///
/// # Errors
/// `AlreadyExists` if another process has it.
pub(super) fn lock(path: &Path, is_alone: bool) -> Result<Option<File>> {
    let folder = rowdex_io::fs::open(path).map_err(|error| failed("cannot open the output folder", path, error))?;
    match if is_alone { folder.try_lock() } else { folder.try_lock_shared() } {
        Ok(()) => Ok(Some(folder)),
        Err(fs::TryLockError::WouldBlock) => {
            Err(Error::new(ErrorKind::AlreadyExists, "another process writes to the folder")
                .with_file(path.display().to_string())
                .with_hint("wait for it, or choose another folder"))
        }
        // Some file systems have no locks.
        Err(fs::TryLockError::Error(_)) => Ok(None),
    }
}

/// Which file a name is of that was begun and not finished.
pub(super) fn begun(name: &str) -> Option<&str> {
    let (name, _) = name.rsplit_once(".tmp-").filter(|(_, random)| random.len() == 16)?;
    name.strip_prefix('.')
}

/// Removes the files of a folder with some names.
pub(super) fn remove_files(folder: &Path, is_ours: impl Fn(&str) -> bool) -> Result<()> {
    let failed = |error| failed("cannot list the folder", folder, error);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if is_ours(&path.file_name().unwrap_or_default().to_string_lossy()) {
            remove_file(&path)?;
        }
    }
    Ok(())
}

pub(super) fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("cannot remove the file", path, error)),
        _ => Ok(()),
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
    Error::io(what, error).with_file(path.display().to_string())
}
