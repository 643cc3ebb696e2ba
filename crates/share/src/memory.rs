//! Memory files: made, written and sealed.

use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::os::fd::AsFd;

use rowdex_base::error::Result;
use rowdex_io::fs;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;

pub(super) fn make(name: &str) -> io::Result<File> {
    fs::with_room(|| Ok(memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?.into()))
}

/// A file of these pieces, one behind the other, which never changes again.
///
/// # Errors
/// `Io` if the system has no more memory or descriptors.
pub fn sealed(name: &str, pieces: &[&[u8]]) -> Result<File> {
    let made = make(name).and_then(|mut file| {
        write(&file, pieces)?;
        seal(&file)?;
        // Whoever inherits it reads it from its beginning.
        file.rewind()?;
        Ok(file)
    });
    made.map_err(|error| {
        let is_full = matches!(error.kind(), io::ErrorKind::OutOfMemory | io::ErrorKind::StorageFull);
        let error = fs::error("cannot make a memory file", error);
        let hint = "the process or its container may have no more memory: give the loader less";
        if is_full { error.with_hint(hint) } else { error }
    })
}

/// Writes pieces to a file that is empty, small ones together.
pub(super) fn write(file: &File, pieces: &[&[u8]]) -> io::Result<()> {
    let mut file = BufWriter::new(file);
    pieces.iter().try_for_each(|piece| file.write_all(piece))?;
    file.flush()
}

/// Seals a file for good, to which there never was a map.
pub(super) fn seal(file: &impl AsFd) -> rustix::io::Result<()> {
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
        assert_eq!(map_sealed(&file, 8192).unwrap(), [7; 8192][..]);
        let mut piped = Vec::new();
        std::io::Read::read_to_end(&mut read, &mut piped).unwrap();
        assert_eq!(piped, [7; 8192]);
    }
}
