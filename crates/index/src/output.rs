//! Where a new index goes.

use std::io::{self, Cursor, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use super::Index;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::stop;
use rowdex_io::fs;
use rowdex_io::fs::atomic::{AtomicFile, behind_link};
use rowdex_io::source::place::{Place, Scheme, Url, shown};
use rowdex_io::source::{ObjectSource, StoreOptions};

/// An index being written, which nobody sees before it is committed.
#[derive(Debug)]
pub enum Output {
    /// A local file.
    File(AtomicFile),
    /// Held in memory, and sent in one piece.
    Object {
        /// Where it goes.
        url: Url,
        /// What was written so far.
        bytes: Cursor<Vec<u8>>,
        /// Whether it may take the place of another.
        overwrite: bool,
        /// How the store is reached.
        options: StoreOptions,
    },
}

impl Output {
    /// An output for this place.
    ///
    /// # Errors
    /// `InvalidArgument` for a folder, `AlreadyExists` without `overwrite`, and those of the file system.
    pub fn create(place: Place, overwrite: bool, options: &StoreOptions) -> Result<Self> {
        match place {
            Place::Local(path) => {
                refuse_folder(&path)?;
                if !overwrite {
                    return AtomicFile::create(path, false).map(Self::File);
                }
                refuse_parquet(&path)?;
                AtomicFile::create(behind_link(&path), true).map(Self::File)
            }
            Place::Remote(url) if url.scheme == Scheme::Hf => {
                Err(Error::invalid("the hub is read, and not written to")
                    .with_file(url.to_string())
                    .with_hint("write the index to a local file, and upload it"))
            }
            Place::Remote(url) => {
                if url.key.is_empty() || url.key.ends_with('/') {
                    return Err(Error::invalid("the URL names no object to write").with_file(url.to_string()));
                }
                if !overwrite && exists(&Place::Remote(url.clone()), options)? {
                    return Err(Error::new(ErrorKind::AlreadyExists, "the object exists already")
                        .with_file(url.to_string())
                        .with_hint("set `overwrite` or choose another path"));
                }
                let bytes = Cursor::new(Vec::new());
                Ok(Self::Object { url, bytes, overwrite, options: options.clone() })
            }
        }
    }

    /// What was written so far, as an index.
    pub fn read_back(&mut self) -> Result<Index> {
        match self {
            Self::File(file) => Index::open(file.written()?),
            Self::Object { bytes, .. } => Index::from_bytes(bytes.get_ref().clone()),
        }
    }

    /// Puts what was written in its place, unless the call is to stop.
    pub fn commit(self) -> Result<()> {
        stop::check()?;
        match self {
            Self::File(file) => file.commit(),
            Self::Object { url, bytes, overwrite, options } => {
                let (folder, name) = url.key.rsplit_once('/').unwrap_or(("", &url.key));
                let source = Arc::new(ObjectSource::at(url.with_key(folder), &options)?);
                source.put(name, bytes.into_inner().into(), overwrite)
            }
        }
    }

    /// Puts what was written in its place, where this index was and still is: what somebody else wrote there meanwhile
    /// is not undone, unless it comes in the moment that this takes.
    ///
    /// # Errors
    /// [`ErrorKind::Stale`] if another index is there, or one with other notes; those of reading and writing.
    pub fn commit_over(self, before: &Index) -> Result<()> {
        let path = before.path().unwrap_or(Path::new(""));
        let now = match &self {
            Self::File(_) => Index::open(path),
            Self::Object { options, .. } => Index::open_with(path, options),
        };
        if !now?.has_sections_of(before)? {
            return Err(Error::new(ErrorKind::Stale, "another process wrote the index meanwhile")
                .with_file(shown(path))
                .with_hint("do it again with what is there now"));
        }
        self.commit()
    }
}

fn refuse_folder(path: &Path) -> Result<()> {
    if !path.is_dir() {
        return Ok(());
    }
    Err(Error::invalid("a folder, where an index was to be written")
        .with_file(path.display().to_string())
        .with_hint(format!("name a file, such as {}", path.join("train.rdx").display())))
}

/// Refuses to replace a Parquet file, whose rows would be gone: whoever names one as the output meant another path.
fn refuse_parquet(path: &Path) -> Result<()> {
    // What is not there, or cannot be opened, is told when the output is put in its place.
    let Ok((file, _)) = fs::regular(path, "the file", ErrorKind::InvalidArgument) else { return Ok(()) };
    let is_parquet = fs::read_at(&file, 0..4).is_ok_and(|start| matches!(start.as_ref(), b"PAR1" | b"PARE"));
    if is_parquet { Err(is_data(&path.display().to_string())) } else { Ok(()) }
}

/// The output of a build or of a choice of rows is a data file.
pub fn is_data(path: &str) -> Error {
    Error::invalid("the index would replace a Parquet file")
        .with_file(path)
        .with_hint("name another path for the index, such as train.rdx")
}

/// Whether there is something at the place.
pub fn exists(place: &Place, options: &StoreOptions) -> Result<bool> {
    use rowdex_io::source::Source;
    match place {
        Place::Local(path) => {
            refuse_folder(path)?;
            Ok(Path::exists(path))
        }
        Place::Remote(url) => match ObjectSource::at(url.clone(), options)?.stat("") {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error.with_file(url.to_string())),
        },
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.write(bytes),
            Self::Object { bytes: held, .. } => held.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.flush(),
            Self::Object { .. } => Ok(()),
        }
    }
}

impl Seek for Output {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Self::File(file) => file.seek(to),
            Self::Object { bytes, .. } => bytes.seek(to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_no_place_for_an_index_and_no_index_that_is_there_already() {
        let folder = tempfile::tempdir().unwrap();
        let place = |path: &Path| Place::Local(path.to_owned());
        let error = exists(&place(folder.path()), &StoreOptions::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("name a file"), "{error}");
        let error = Output::create(place(folder.path()), false, &StoreOptions::default()).unwrap_err();
        assert!(error.to_string().contains("folder") && error.to_string().contains("/train.rdx"), "{error}");
        assert!(!exists(&place(&folder.path().join("train.rdx")), &StoreOptions::default()).unwrap());
    }
}
