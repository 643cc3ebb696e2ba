//! A file that appears whole or not at all.
//!
//! The bytes go to a temporary file beside the target, which takes its place by rename once they are on disk. Whenever
//! the process or the machine stops, the path holds the old file, the new one, or nothing if there was nothing.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::{error as fs_error, open, with_room};
use rowdex_base::error::{Error, ErrorKind, Result};

const BUFFER: usize = 1 << 18;

/// A file being written, deleted unless it is committed.
#[derive(Debug)]
pub struct AtomicFile {
    target: PathBuf,
    overwrite: bool,
    /// Named `.NAME.tmp-XXXXXXXXXXXXXXXX`, so that what a killed process left behind can be told.
    temporary: PathBuf,
    file: BufWriter<File>,
    committed: bool,
}

impl AtomicFile {
    /// Starts a file that will be at `path`; without `overwrite`, an existing one is kept and is an error, now or when
    /// it appears before [`commit`](Self::commit).
    pub fn create(path: impl AsRef<Path>, overwrite: bool) -> Result<Self> {
        let target = path.as_ref();
        refuse_special(target)?;
        if !overwrite && target.symlink_metadata().is_ok() {
            return Err(already_exists(target));
        }
        if target.is_dir() {
            return Err(Error::new(ErrorKind::InvalidArgument, "cannot create the file: it is a directory")
                .with_file(target.display().to_string()));
        }
        let (temporary, file) = create_beside(target)
            .map_err(|error| fs_error("cannot create a file", error).with_file(target.display().to_string()))?;
        let file = BufWriter::with_capacity(BUFFER, file);
        Ok(Self { target: target.to_owned(), overwrite, temporary, file, committed: false })
    }

    /// Where the bytes written so far are, for reading them back.
    pub fn written(&mut self) -> Result<&Path> {
        self.file.flush().map_err(|error| self.failed(error))?;
        Ok(&self.temporary)
    }

    /// Puts the file in its place, after its bytes are on disk.
    pub fn commit(mut self) -> Result<()> {
        self.put(|file| file.sync_all())?;
        sync_directory(directory(&self.target)).map_err(|error| self.failed(error))
    }

    /// Puts the file in its place without waiting for the disk: after a power cut it may hold anything.
    pub fn commit_unsynced(mut self) -> Result<()> {
        self.put(|_| Ok(()))
    }

    fn put(&mut self, sync: impl Fn(&File) -> io::Result<()>) -> Result<()> {
        // A failed sync may have dropped the pages already, so a second one that succeeds would prove nothing.
        self.file.flush().and_then(|()| sync(self.file.get_ref())).map_err(|error| self.failed(error))?;
        let renamed = match self.overwrite {
            true => fs::rename(&self.temporary, &self.target),
            false => rename_to_new(&self.temporary, &self.target),
        };
        renamed.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => already_exists(&self.target),
            _ => self.failed(error),
        })?;
        self.committed = true;
        Ok(())
    }

    fn failed(&self, error: io::Error) -> Error {
        Error::io("cannot put the file on disk", error).with_file(self.target.display().to_string())
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for AtomicFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.committed {
            // Nobody is left to tell, and the name says that the file is nothing.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Refuses a device, a pipe or a socket, which a file would take the place of.
///
/// # Errors
/// `InvalidArgument`, which says how to write to a stream.
fn refuse_special(target: &Path) -> Result<()> {
    match target.metadata() {
        Ok(found) if !found.is_file() && !found.is_dir() => {
            Err(Error::new(ErrorKind::InvalidArgument, "cannot replace a device, a pipe or a socket by a file")
                .with_file(target.display().to_string())
                .with_hint("name a regular file, or write to stdout and redirect it"))
        }
        _ => Ok(()),
    }
}

/// The file that a link is of, so that the link stays when the file is replaced; or the path itself.
pub fn behind_link(path: &Path) -> PathBuf {
    let linked = path.is_symlink().then(|| fs::canonicalize(path).ok()).flatten();
    linked.filter(|file| file.is_file()).unwrap_or_else(|| path.to_owned())
}

fn already_exists(target: &Path) -> Error {
    Error::new(ErrorKind::AlreadyExists, "the file exists already")
        .with_file(target.display().to_string())
        .with_hint("set `overwrite` or choose another path")
}

fn directory(target: &Path) -> &Path {
    match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn create_beside(target: &Path) -> io::Result<(PathBuf, File)> {
    let Some(name) = target.file_name() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name"));
    };
    // Cut to what leaves room for the suffix in the 255 bytes that file systems allow.
    let name: String = name.to_string_lossy().chars().take(50).collect();
    loop {
        let random = RandomState::new().hash_one(std::process::id());
        let mut temporary = OsString::from(".");
        temporary.push(format!("{name}.tmp-{random:016x}"));
        let temporary = directory(target).join(temporary);
        match with_room(|| OpenOptions::new().write(true).create_new(true).open(&temporary)) {
            Ok(file) => return Ok((temporary, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Renames, but never over a file: a hard link to an existing name fails, whoever was faster.
fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => {
            // Both names are whole files; failing to drop the spare one does not undo the commit.
            let _ = fs::remove_file(from);
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        // Some file systems have no hard links; there the last of two racing writers wins.
        Err(_) if to.symlink_metadata().is_ok() => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => fs::rename(from, to),
    }
}

/// Makes the rename itself survive a power cut. Some file systems cannot sync a directory and need not.
fn sync_directory(directory: &Path) -> io::Result<()> {
    match open(directory).and_then(|directory| directory.sync_all()) {
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_committed_file_replaces_the_old_one_and_leaves_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.rdx");
        fs::write(&path, "old").unwrap();
        let mut file = AtomicFile::create(&path, true).unwrap();
        file.write_all(b"_ew").unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.write_all(b"n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        file.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(dir.path()), ["x.rdx"]);
    }

    #[test]
    fn an_abandoned_file_leaves_the_old_one_and_no_trace() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.rdx");
        fs::write(&path, "old").unwrap();
        let mut file = AtomicFile::create(&path, true).unwrap();
        file.write_all(b"half").unwrap();
        file.flush().unwrap();
        let during = names(dir.path());
        assert!(during[0].starts_with(".x.rdx.tmp-"), "{during:?}");
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(dir.path()), ["x.rdx"]);
    }

    #[test]
    fn an_existing_file_is_kept_unless_overwriting_was_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.rdx");
        let mut late = AtomicFile::create(&path, false).unwrap();
        late.write_all(b"late").unwrap();
        fs::write(&path, "old").unwrap();
        assert_eq!(AtomicFile::create(&path, false).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(late.commit().unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(dir.path()), ["x.rdx"]);
    }

    #[test]
    fn a_new_file_is_put_where_nothing_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.rdx");
        let mut file = AtomicFile::create(&path, false).unwrap();
        file.write_all(b"new").unwrap();
        file.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(dir.path()), ["x.rdx"]);
    }

    #[test]
    fn what_is_no_file_is_not_replaced_by_one_and_a_link_leads_to_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let _listening = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        for path in [&socket, &link, Path::new("/dev/null")] {
            for overwrite in [true, false] {
                let error = AtomicFile::create(path, overwrite).unwrap_err();
                assert_eq!((error.kind(), error.file()), (ErrorKind::InvalidArgument, path.to_str()));
            }
        }
        assert_eq!(names(dir.path()), ["link", "socket"]);
        let (file, to_file) = (dir.path().join("file"), dir.path().join("to_file"));
        std::os::unix::fs::symlink(&file, &to_file).unwrap();
        assert_eq!(behind_link(&to_file), to_file, "there is no file yet");
        fs::write(&file, "old").unwrap();
        assert_eq!(behind_link(&to_file), fs::canonicalize(&file).unwrap());
        assert_eq!(behind_link(&file), file);
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("no/such/x.rdx");
        let error = AtomicFile::create(&missing, true).unwrap_err();
        assert_eq!((error.kind(), error.file()), (ErrorKind::NotFound, missing.to_str()));
        assert_eq!(AtomicFile::create(dir.path(), true).unwrap_err().kind(), ErrorKind::InvalidArgument);
        let long = dir.path().join("x".repeat(255));
        AtomicFile::create(&long, true).unwrap().commit().unwrap();
    }

    #[test]
    fn sixteen_writers_of_one_path_leave_one_whole_file() {
        let dir = tempfile::tempdir().unwrap();
        for overwrite in [true, false] {
            let path = dir.path().join(format!("{overwrite}.rdx"));
            let write = |writer: u8| {
                let mut file = AtomicFile::create(&path, overwrite)?;
                file.write_all(&vec![writer; 300_000]).unwrap();
                file.commit()
            };
            let won = thread::scope(|scope| {
                let threads: Vec<_> = (0..16).map(|writer| scope.spawn(move || write(writer))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).filter(Result::is_ok).count()
            });
            assert_eq!(won, if overwrite { 16 } else { 1 });
            let bytes = fs::read(&path).unwrap();
            assert!(bytes.len() == 300_000 && bytes.iter().all(|byte| *byte == bytes[0]));
        }
        assert_eq!(names(dir.path()), ["false.rdx", "true.rdx"]);
    }
}
