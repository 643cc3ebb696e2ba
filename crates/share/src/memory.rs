//! Memory files: made, written and sealed.

use std::fs::File;
use std::io::IoSlice;
use std::os::fd::OwnedFd;

use rowdex_base::error::Result;
use rowdex_io::fs;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::{Errno, pwritev, retry_on_intr};

/// Pieces that the system takes in one write.
const MOST_PIECES: usize = 1024;

pub(super) fn make(name: &str) -> std::io::Result<OwnedFd> {
    fs::with_room(|| Ok(memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?))
}

/// A file of these bytes, which never changes again.
///
/// # Errors
/// `Io` if the system has no more memory or descriptors.
pub fn sealed(name: &str, bytes: &[u8]) -> Result<File> {
    let failed = |error| fs::error("cannot make a memory file", error);
    let file = make(name).map_err(failed)?;
    write(&file, &[bytes]).and_then(|()| seal(&file)).map_err(|error| failed(error.into()))?;
    Ok(File::from(file))
}

/// Writes the pieces one behind the other to a file that is empty.
pub(super) fn write(file: &OwnedFd, pieces: &[&[u8]]) -> rustix::io::Result<()> {
    let (mut at, mut skip, mut length) = (0, 0, 0_u64);
    while let Some(rest) = pieces.get(at..).filter(|rest| !rest.is_empty()) {
        let mut slices: Vec<IoSlice<'_>> = rest.iter().take(MOST_PIECES).map(|piece| IoSlice::new(piece)).collect();
        if let (Some(first), Some(piece)) = (slices.first_mut(), rest.first()) {
            *first = IoSlice::new(piece.get(skip..).unwrap_or_default());
        }
        let mut written = retry_on_intr(|| pwritev(file, &slices, length))?;
        if written == 0 {
            return Err(Errno::NOSPC);
        }
        length += written as u64;
        while let Some(left) = pieces.get(at).map(|piece| piece.len() - skip).filter(|left| *left <= written) {
            (at, skip, written) = (at + 1, 0, written - left);
        }
        skip += written;
    }
    Ok(())
}

/// Seals a file for good, to which there never was a map.
pub(super) fn seal(file: &OwnedFd) -> rustix::io::Result<()> {
    let length = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    match fcntl_add_seals(file, length | SealFlags::WRITE) {
        // The kernel itself has a reference to one of the pages, for whatever reason, and cannot tell that from one to
        // write with. Without a map nobody can write with this seal, either.
        Err(Errno::BUSY) => fcntl_add_seals(file, length | SealFlags::FUTURE_WRITE),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowdex_io::fs::mmap::map_sealed;

    #[test]
    fn a_file_is_sealed_while_the_kernel_has_one_of_its_pages() {
        let file = make("x").unwrap();
        write(&file, &[&[7; 8192]]).unwrap();
        // The pages themselves are in the pipe, until it is read.
        let (mut read, into) = std::io::pipe().unwrap();
        assert_eq!(rustix::fs::sendfile(into, &file, Some(&mut 0), 8192), Ok(8192));
        let for_good = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
        assert_eq!(fcntl_add_seals(&file, for_good), Err(Errno::BUSY));
        seal(&file).unwrap();
        assert_eq!(rustix::io::pwrite(&file, b"x", 0), Err(Errno::PERM));
        assert_eq!(map_sealed(&File::from(file), 8192).unwrap(), [7; 8192][..]);
        let mut piped = Vec::new();
        std::io::Read::read_to_end(&mut read, &mut piped).unwrap();
        assert_eq!(piped, [7; 8192]);
    }
}
