//! Small files that one process of a machine makes for all.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use super::entry_lock::{Patience, Turn};
use crate::fs::atomic::AtomicFile;
use crate::fs::with_room;
use rowdex_base::error::Result;

/// What `read` finds in the file at `path`; else what `make` makes, whose bytes are put there whole for everyone.
///
/// Of several processes one makes it, and the others wait for that, at most for `wait`. A file in which `read` finds
/// nothing is replaced. What can be neither read nor written is made by everyone alone: that is no error.
///
/// # Errors
///
/// Those of `make`.
pub fn made_once<T>(
    path: &Path,
    wait: Duration,
    read: impl Fn(&[u8]) -> Option<T>,
    make: impl FnOnce() -> Result<(T, Vec<u8>)>,
) -> Result<T> {
    let found = || read(&with_room(|| fs::read(path)).ok()?);
    if let Some(found) = found() {
        return Ok(found);
    }
    if let Some(folder) = path.parent() {
        // What cannot be made is told by the lock.
        let _ = fs::create_dir_all(folder);
    }
    let turn = Patience::new(wait).wait_for(path, || found().is_some());
    let lock = match turn {
        Ok(Turn::Mine(lock)) => Some(lock),
        Ok(Turn::Done | Turn::TimedOut) | Err(_) => None,
    };
    // Another process may have made it before the lock was taken.
    if let Some(found) = found() {
        return Ok(found);
    }
    let (made, bytes) = make()?;
    if lock.is_some() {
        let write = || {
            let mut file = AtomicFile::create(path, true).ok()?;
            file.write_all(&bytes).ok()?;
            // Not on disk yet: what a power cut leaves is found to be nothing.
            file.commit_unsynced().ok()
        };
        let _: Option<()> = write();
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::*;
    use rowdex_base::error::{Error, ErrorKind};

    const WAIT: Duration = Duration::from_secs(60);

    fn read(bytes: &[u8]) -> Option<u64> {
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    fn make(number: u64) -> Result<(u64, Vec<u8>)> {
        Ok((number, number.to_le_bytes().to_vec()))
    }

    #[test]
    fn it_is_made_once_and_made_anew_where_it_is_gone_or_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/folder/made");
        let at = |number| made_once(&path, WAIT, read, || make(number)).unwrap();
        assert_eq!((at(1), at(2)), (1, 1));
        fs::write(&path, [0; 3]).unwrap();
        assert_eq!((at(3), at(4)), (3, 3));
        fs::remove_dir_all(folder.path().join("new")).unwrap();
        assert_eq!((at(5), at(6)), (5, 5));
        let left: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().collect();
        assert_eq!(left.len(), 1, "nothing but the file is left: {left:?}");
    }

    #[test]
    fn of_many_that_ask_at_once_one_makes_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made");
        let (made, ready) = (AtomicU64::new(0), Barrier::new(8));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    ready.wait();
                    let found = made_once(&path, WAIT, read, || make(made.fetch_add(1, Ordering::Relaxed) + 7));
                    assert_eq!(found.unwrap(), 7);
                });
            }
        });
        assert_eq!(made.into_inner(), 1);
    }

    #[test]
    fn a_folder_that_cannot_be_is_no_error_and_one_of_making_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(made_once(&file.join("made"), WAIT, read, || make(1)).unwrap(), 1);
        let path = folder.path().join("made");
        let error = made_once(&path, WAIT, read, || Err(Error::new(ErrorKind::TooLarge, "no"))).unwrap_err();
        assert_eq!((error.kind(), path.exists()), (ErrorKind::TooLarge, false));
        assert_eq!(made_once(&path, WAIT, read, || make(2)).unwrap(), 2);
    }
}
