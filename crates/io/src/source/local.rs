//! Files below a local directory, read by position.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use bytes::Bytes;

use super::{FileStat, Source, VANISHED, changed, coalesce, cut, short_read};
use crate::fs::{self, OpenFiles};
use rowdex_base::error::{Error, ErrorKind, Result};

/// Reading this many unwanted bytes costs less than another system call and another round trip to a network disk.
const GAP: u64 = 64 << 10;

/// Longest joined read. Longer ones gain nothing and would hold neighbouring columns in one allocation.
const MAX_READ: u64 = 8 << 20;

/// Files below one local directory.
///
/// Every read names its position (`pread`), so threads and forked processes share open files without disturbing each
/// other; nothing is mapped, so a file that is truncated meanwhile causes an error and not a signal. Files stay open
/// between reads: all sources of the process together keep at most a quarter of the files that it may have open, and
/// close some when the system refuses to open more. A file that is replaced by renaming keeps being read as the old one
/// until it is closed, so the ranges of one decode never mix two files.
#[derive(Debug)]
pub struct LocalSource {
    root: PathBuf,
    open: OpenFiles,
}

impl LocalSource {
    /// Files below `root`, which is not looked at until the first read.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), open: OpenFiles::new() }
    }

    /// The directory that paths are relative to.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn file(&self, path: &str) -> Result<Arc<File>> {
        match self.open.get(path) {
            Some(file) => Ok(file),
            // Opened outside the lock: on a network disk an open takes long, and the others need not wait for it.
            None => Ok(self.open.keep(path, open_regular(&self.resolve(path)?)?)),
        }
    }

    /// Joins root and path, and keeps the path below the root: an index from elsewhere must not name other files.
    fn resolve(&self, path: &str) -> Result<PathBuf> {
        let relative = Path::new(path);
        let plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
        if path.is_empty() || path.contains('\0') || !plain {
            return Err(Error::new(ErrorKind::InvalidArgument, "the path is not a plain path below the root"));
        }
        Ok(self.root.join(relative))
    }
}

impl Source for LocalSource {
    fn footer_guess(&self) -> u64 {
        // Copying more than most footers need costs more than reading again for the others.
        8 << 10
    }

    fn location(&self, path: &str) -> Option<String> {
        // Without the `.` that a root beside its index has.
        Some(self.root.join(path).components().collect::<PathBuf>().display().to_string())
    }

    fn stat(&self, path: &str) -> Result<FileStat> {
        let stat = || {
            let metadata = self.file(path)?.metadata();
            // The name may belong to a new file by now. It is the open one that reads are served from, but a caller
            // that asks wants to hear of the change, so the open file is given up and the new one looked at.
            match (metadata, std::fs::metadata(self.resolve(path)?)) {
                (Ok(metadata), Ok(named)) if same_file(&metadata, &named) => Ok(file_stat(&metadata)),
                _ => {
                    self.open.close(path);
                    let metadata = self.file(path)?.metadata();
                    Ok(file_stat(&metadata.map_err(|error| Error::io("cannot stat", error))?))
                }
            }
        };
        stat().map_err(|error: Error| error.with_file(path))
    }

    fn read(&self, path: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.read_unchanged(path, None, ranges)
    }

    fn read_unchanged(&self, path: &str, then: Option<&FileStat>, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.with_file(path, then, |file| {
            let reads = coalesce(ranges, GAP, MAX_READ);
            cut(&reads, &read_exactly(file, ranges, &reads)?, ranges)
        })
    }

    fn read_each_unchanged(&self, path: &str, then: Option<&FileStat>, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.with_file(path, then, |file| read_exactly(file, ranges, ranges))
    }
}

impl LocalSource {
    /// What is read of a file, which is still as it was then. It is opened again if its network disk does not know the
    /// open one any more.
    fn with_file<T>(&self, path: &str, then: Option<&FileStat>, read: impl Fn(&File) -> Result<T>) -> Result<T> {
        let read = |file: &File| {
            let bytes = read(file);
            let Some(then) = then else { return bytes };
            // After the read: whoever writes to the file gives it a new time before it has new bytes.
            match file.metadata().map(|metadata| file_stat(&metadata)) {
                Ok(now) if !then.may_be(&now) => Err(changed(path, then, &now)),
                Ok(_) => bytes,
                Err(error) => Err(Error::io("cannot stat", error)),
            }
        };
        let mut outcome = self.file(path).and_then(|file| read(&file));
        if outcome.as_ref().is_err_and(is_given_up) {
            self.open.close(path);
            // Not from the pool, which may be in use and have kept it.
            outcome = self.resolve(path).and_then(|path| open_regular(&path)).and_then(|file| read(&file));
        }
        outcome.map_err(|error| error.with_file(path))
    }
}

/// Whether the server of a network disk has given up an open file, as it does when it starts anew.
fn is_given_up(error: &Error) -> bool {
    let cause = std::error::Error::source(error);
    let cause = cause.and_then(|cause| cause.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>());
    let code = cause.and_then(|cause| cause.downcast_ref::<io::Error>()).and_then(io::Error::raw_os_error);
    code == Some(rustix::io::Errno::STALE.raw_os_error())
}

/// What `reads` bring, in which these ranges lie. That the file has them is made sure before anything is allocated, so
/// that no range from a damaged footer can ask for more memory than the file has bytes.
fn read_exactly(file: &File, ranges: &[Range<u64>], reads: &[Range<u64>]) -> Result<Vec<Bytes>> {
    let size = file.metadata().map_err(|error| Error::io("cannot stat", error))?.len();
    if let Some(range) = ranges.iter().find(|range| range.start < range.end && range.end > size) {
        return Err(short_read(range, size.saturating_sub(range.start) as usize));
    }
    let exactly = |read: &Range<u64>| {
        let bytes = fs::read_at(file, read.clone()).map_err(|error| Error::io("cannot read", error))?;
        if (bytes.len() as u64) < read.end - read.start { Err(short_read(read, bytes.len())) } else { Ok(bytes) }
    };
    reads.iter().map(exactly).collect()
}

fn open_regular(path: &Path) -> Result<File> {
    match fs::regular(path, "the file", ErrorKind::Io) {
        Err(error) if error.kind() == ErrorKind::NotFound => Err(error.with_hint(VANISHED)),
        opened => opened.map(|(file, _)| file),
    }
}

fn file_stat(metadata: &std::fs::Metadata) -> FileStat {
    let mtime = metadata.modified().ok().and_then(|time| match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_nanos()).ok(),
        Err(before) => i64::try_from(before.duration().as_nanos()).ok().map(|nanos| -nanos),
    });
    FileStat { size: metadata.len(), mtime_ns: mtime, etag: None }
}

fn same_file(a: &std::fs::Metadata, b: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "one range is a list of ranges here")]
mod tests {
    use super::*;

    fn directory_with(name: &str, bytes: &[u8]) -> (tempfile::TempDir, LocalSource) {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(name), bytes).unwrap();
        let source = LocalSource::new(directory.path());
        (directory, source)
    }

    #[test]
    fn a_missing_file_is_not_found_and_named() {
        let (_directory, source) = directory_with("here", b"");
        for error in [source.stat("gone").unwrap_err(), source.read("gone", &[0..1]).unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert_eq!(error.file(), Some("gone"));
            assert!(error.to_string().contains("vanished"), "{error}");
        }
    }

    #[test]
    fn a_directory_is_refused() {
        let (directory, source) = directory_with("here", b"");
        std::fs::create_dir(directory.path().join("sub")).unwrap();
        let error = source.stat("sub").unwrap_err();
        assert_eq!((error.kind(), error.file()), (ErrorKind::Io, Some("sub")));
    }

    #[test]
    fn no_path_leads_out_of_the_root() {
        let (_directory, source) = directory_with("here", b"x");
        for path in ["", "/etc/passwd", "../here", "a/../../here", "a\0b", "./here"] {
            let error = source.read(path, &[0..1]).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::InvalidArgument), "{path:?}: {error}");
        }
    }

    #[test]
    fn a_range_beyond_the_end_is_an_error_however_long() {
        let (_directory, source) = directory_with("f", b"0123456789");
        for range in [0..11, 10..11, 5..u64::MAX, 1 << 60..1 << 61] {
            let error = source.read("f", std::slice::from_ref(&range)).unwrap_err();
            assert_eq!((error.kind(), error.file()), (ErrorKind::Io, Some("f")), "{range:?}");
        }
        assert_eq!(source.read("f", &[3..5, 0..0, 9..10]).unwrap(), ["34", "", "9"]);
    }

    #[test]
    fn a_replaced_file_is_read_as_the_old_one_until_somebody_asks_for_its_stat() {
        let (directory, source) = directory_with("f", b"old bytes");
        assert_eq!(source.stat("f").unwrap().size, 9);
        std::fs::write(directory.path().join("new"), b"new").unwrap();
        std::fs::rename(directory.path().join("new"), directory.path().join("f")).unwrap();
        assert_eq!(source.read("f", &[0..9]).unwrap(), ["old bytes"]);
        assert_eq!(source.stat("f").unwrap().size, 3);
        assert_eq!(source.read("f", &[0..3]).unwrap(), ["new"]);
    }

    #[test]
    fn a_file_that_its_network_disk_has_given_up_is_opened_once_more() {
        let (_directory, source) = directory_with("f", b"0123456789");
        let given_up = || Error::io("cannot read", rustix::io::Errno::STALE.into());
        let first = source.file("f").unwrap();
        let read = |file: &File| match std::ptr::eq(file, &*first) {
            true => Err(given_up()),
            false => read_exactly(file, &[3..5], &[3..5]),
        };
        assert_eq!(source.with_file("f", None, read).unwrap(), ["34"]);
        let error = source.with_file("f", None, |_| Err::<(), _>(given_up())).unwrap_err();
        assert_eq!((error.kind(), error.file()), (ErrorKind::Io, Some("f")));
    }

    #[test]
    fn a_truncated_file_is_an_error() {
        let (directory, source) = directory_with("f", b"0123456789");
        assert_eq!(source.read("f", &[0..10]).unwrap(), ["0123456789"]);
        std::fs::write(directory.path().join("f"), b"01").unwrap();
        assert_eq!(source.read("f", &[0..10]).unwrap_err().kind(), ErrorKind::Io);
    }

    /// A source that only has what it must have.
    #[derive(Debug)]
    struct Plain(LocalSource);

    impl Source for Plain {
        fn location(&self, path: &str) -> Option<String> {
            // Without the `.` that a root beside its index has.
            Some(self.0.root.join(path).components().collect::<PathBuf>().display().to_string())
        }

        fn stat(&self, path: &str) -> Result<FileStat> {
            self.0.stat(path)
        }

        fn read(&self, path: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
            self.0.read(path, ranges)
        }
    }

    #[test]
    fn bytes_of_another_content_are_not_given_where_one_is_asked_for() {
        let (directory, source) = directory_with("f", b"0123456789");
        let path = directory.path().join("f");
        let set_time = |seconds| {
            let file = File::options().write(true).open(&path).unwrap();
            file.set_modified(UNIX_EPOCH + std::time::Duration::from_secs(seconds)).unwrap();
        };
        set_time(1000);
        let plain = Plain(LocalSource::new(directory.path()));
        let sources: [&dyn Source; 2] = [&source, &plain];
        let stat = source.stat("f").unwrap();
        for source in sources {
            assert_eq!(source.read_unchanged("f", Some(&stat), &[3..5]).unwrap(), ["34"]);
        }
        std::fs::write(&path, b"abcdefghij").unwrap();
        for size in [10, 5, 20] {
            File::options().write(true).open(&path).unwrap().set_len(size).unwrap();
            set_time(if size == 10 { 2000 } else { 1000 });
            for source in sources {
                let error = source.read_unchanged("f", Some(&stat), &[0..10]).unwrap_err();
                assert_eq!((error.kind(), error.file()), (ErrorKind::Stale, Some("f")), "{error}");
            }
        }
        assert_eq!(source.read("f", &[0..3]).unwrap(), ["abc"]);
    }

    #[test]
    fn more_files_than_are_kept_open_can_be_read() {
        let directory = tempfile::tempdir().unwrap();
        for file in 0..300 {
            std::fs::write(directory.path().join(format!("{file}")), format!("{file:04}")).unwrap();
        }
        let source = LocalSource::new(directory.path());
        for file in (0..300).chain(0..300) {
            assert_eq!(source.read(&format!("{file}"), &[0..4]).unwrap(), [format!("{file:04}")]);
        }
        assert!(source.open.count() <= fs::most_open());
    }
}
