//! Memory files that are written again.
//!
//! A new file costs the kernel more than the bytes that are written to it: it finds a page for each 4 KiB, maps and
//! frees it. So files are kept, and written again when nobody has them any more. Who has one is what the kernel counts,
//! see [`mmap::Rewritable`]: no process says that it is done with a file, so none can say it too early, or die without
//! saying it. A file that somebody keeps is left to them, and another one is made.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::OwnedFd;

use super::memory::{make, write};
use rowdex_io::fs::{mmap, most_open};

/// Batches of fewer bytes get files of their own: those cost as little.
const LEAST: u64 = 16 << 10;

/// A file is longer than its batch by this part, so that the next batch fits it, too. What is not written takes no
/// memory.
const SLACK: u64 = 8;

/// Files end at multiples of this.
const STEP: u64 = 4 << 10;

/// The most files of a pool; fewer where the process may not have as many open.
const MOST: usize = 256;

/// How many files are looked after with each batch.
const LOOKS: usize = 32;

/// A file that did not come back for so many batches is left to whoever has it.
const KEPT: u64 = 16 * MOST as u64;

/// The files of one reader.
#[derive(Debug)]
pub struct Pool {
    /// Batches of fewer bytes get files of their own.
    least: u64,
    /// Those that nobody has, the one that came back last at the end.
    idle: VecDeque<mmap::Rewritable>,
    /// Those that others have, or had, and when they were lent.
    lent: VecDeque<(u64, mmap::Rewritable)>,
    /// How many batches were written.
    count: u64,
    /// Whether this system counts as it should, once that was tried.
    works: Option<bool>,
}

impl Default for Pool {
    fn default() -> Self {
        Self { least: LEAST, idle: VecDeque::new(), lent: VecDeque::new(), count: 0, works: None }
    }
}

impl Pool {
    /// Writes pieces of so many bytes to a file that nobody has. At most `spare` bytes are kept in other such files.
    /// `None` if they are few, or if it cannot be done: then they need a file of their own.
    pub(super) fn put(&mut self, pieces: &[&[u8]], length: u64, spare: u64) -> Option<OwnedFd> {
        if length < self.least || !*self.works.get_or_insert_with(|| counts().unwrap_or(false)) {
            return None;
        }
        self.count += 1;
        self.look();
        // That which came back last is most likely in the cache of the processor.
        let fits = self.idle.iter().rposition(|file| file.length() as u64 >= length);
        let found = fits.and_then(|at| self.idle.remove(at));
        self.shrink(spare.saturating_sub(length));
        let file = match found {
            Some(mut file) => file.write(pieces).then_some(file)?,
            None => self.new_file(pieces, length)?,
        };
        let lent = file.lend().ok()?;
        self.lent.push_back((self.count, file));
        Some(lent)
    }

    /// Finds files that came back.
    fn look(&mut self) {
        for _ in 0..self.lent.len().min(LOOKS) {
            let Some((since, file)) = self.lent.pop_front() else { break };
            if file.is_back() {
                self.idle.push_back(file);
            } else if self.count - since < KEPT {
                self.lent.push_back((since, file));
            }
        }
    }

    /// Lets go of files that nobody has: no more are of use than are under way.
    fn shrink(&mut self, spare: u64) {
        let mut bytes: u64 = self.idle.iter().map(|file| file.length() as u64).sum();
        while bytes > spare || self.idle.len() > self.lent.len() + 2 {
            let Some(file) = self.idle.pop_front() else { break };
            bytes -= file.length() as u64;
        }
    }

    fn new_file(&mut self, pieces: &[&[u8]], length: u64) -> Option<mmap::Rewritable> {
        while self.idle.len() + self.lent.len() >= most_open().min(MOST) {
            // Too short.
            self.idle.pop_front()?;
        }
        let file = make("rowdex-batch-again").ok()?;
        // Faster than through a map that has no pages yet.
        write(&file, pieces).ok()?;
        let length = (length + length / SLACK).next_multiple_of(STEP);
        mmap::Rewritable::new(file.into(), usize::try_from(length).ok()?).ok()
    }
}

/// Whether a map alone keeps a file from coming back.
fn counts() -> Option<bool> {
    let file = mmap::Rewritable::new(make("rowdex-batch-again").ok()?.into(), 1 << 12).ok()?;
    let lent = File::from(file.lend().ok()?);
    let map = mmap::map_sealed(&lent, 1).ok()?;
    drop(lent);
    let is_held = !file.is_back();
    drop(map);
    Some(is_held)
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use bytes::Bytes;
    use rustix::fs::{fcntl_get_seals, fstat};
    use rustix::io::Errno;

    use super::*;

    fn small() -> Pool {
        Pool { least: 0, ..Pool::default() }
    }

    fn number(file: &impl AsFd) -> u64 {
        fstat(file).unwrap().st_ino
    }

    fn path(file: &OwnedFd) -> String {
        format!("/proc/self/fd/{}", file.as_raw_fd())
    }

    fn map(file: OwnedFd, length: u64) -> Bytes {
        mmap::map_sealed(&File::from(file), length).unwrap()
    }

    #[test]
    fn a_file_is_written_again_when_nobody_has_it() {
        let (mut pool, all) = (Pool::default(), u64::MAX);
        let batch = |byte: u8| vec![byte; LEAST as usize];
        let first = pool.put(&[&batch(1), b"end"], LEAST + 3, all).unwrap();
        let file = number(&first);
        let held = map(first, LEAST + 3);
        let second = pool.put(&[&batch(2)], LEAST, all).unwrap();
        assert_ne!(number(&second), file);
        assert!(held.ends_with(b"\x01end"));
        drop(held);
        let third = pool.put(&[&batch(3)], LEAST, all).unwrap();
        assert_eq!(number(&third), file);
        assert_eq!((&map(second, LEAST)[..], &map(third, LEAST)[..]), (&batch(2)[..], &batch(3)[..]));
        assert!(pool.put(&[b"x"], 1, all).is_none(), "a small one gets a file of its own");
    }

    #[test]
    fn whatever_keeps_a_file_keeps_it_from_being_written() {
        let mut pool = small();
        let lent = pool.put(&[b"rows"], 4, u64::MAX).unwrap();
        // What a forked child has: a copy of the descriptor. And a map alone.
        let copy = lent.try_clone().unwrap();
        let file = number(&lent);
        let held = map(lent, 4);
        assert_ne!(number(&pool.put(&[b"more"], 4, u64::MAX).unwrap()), file);
        drop(copy);
        for _ in 0..3 {
            assert_ne!(number(&pool.put(&[b"more"], 4, u64::MAX).unwrap()), file);
        }
        assert_eq!(&*held, b"rows");
        drop(held);
        pool.look();
        assert!(pool.idle.iter().any(|file| file.is_back()) && pool.lent.is_empty());
    }

    #[test]
    fn nobody_else_can_write_to_a_file_or_change_its_length() {
        let mut pool = small();
        let lent = pool.put(&[b"rows"], 4, u64::MAX).unwrap();
        assert_eq!(rustix::io::pwrite(&lent, b"x", 0), Err(Errno::BADF));
        let again = File::options().write(true).read(true).open(path(&lent)).unwrap();
        assert_eq!(rustix::io::pwrite(&again, b"x", 0), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&again, 0), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&again, 1 << 30), Err(Errno::PERM));
        assert!(fcntl_get_seals(&lent).unwrap().contains(rustix::fs::SealFlags::SEAL));
        assert!(mmap::Rewritable::new(again.into(), 1 << 16).is_err(), "nor map it to write");
        let length = File::from(lent.try_clone().unwrap()).metadata().unwrap().len();
        assert!(mmap::map_sealed(&lent.into(), length + 1).is_err());
    }

    #[test]
    fn a_file_that_is_being_written_cannot_be_mapped() {
        let file = mmap::Rewritable::new(make("x").unwrap().into(), 1 << 12).unwrap();
        let lent = file.lend().unwrap();
        let other = File::open(path(&lent)).unwrap();
        drop(lent);
        // As if it were taken for one that came back, which `other` is not known to have.
        assert!(file.is_back());
        let error = mmap::map_sealed(&other, 1).unwrap_err();
        assert!(error.to_string().contains("being written"), "{error}");
    }

    #[test]
    fn whoever_keeps_all_files_stops_nobody() {
        let mut pool = small();
        let most = most_open().min(MOST);
        let mut kept = Vec::new();
        for byte in 0..most + 50 {
            let text = [byte as u8; 100];
            match pool.put(&[&text], 100, u64::MAX) {
                Some(file) => kept.push((text, map(file, 100))),
                None => assert!(kept.len() == most, "{} of {most}", kept.len()),
            }
        }
        assert!(kept.iter().all(|(text, held)| held == &text[..]));
        // Those that are kept for long are left to whoever has them.
        pool.count += KEPT;
        assert!((0..=most / LOOKS).any(|_| pool.put(&[b"x"], 1, u64::MAX).is_some()));
        assert!(kept.iter().all(|(text, held)| held == &text[..]));
        assert!(pool.lent.len() < most);
    }

    #[test]
    fn no_more_files_are_kept_than_there_is_room_for_or_use() {
        let mut pool = small();
        let lent: Vec<_> = (0..20).map(|_| pool.put(&[b"rows"], 4, u64::MAX).unwrap()).collect();
        drop(lent);
        let one = pool.put(&[b"rows"], 4, u64::MAX).unwrap();
        assert!(pool.idle.len() <= 3, "{}", pool.idle.len());
        drop(one);
        drop(pool.put(&[b"rows"], 4, STEP + 10));
        assert!(pool.idle.len() <= 1);
        drop(pool.put(&[b"rows"], 4, 0));
        assert!(pool.idle.is_empty());
        // One that is too short is no use.
        let long = vec![7; 3 * STEP as usize];
        assert_eq!(map(pool.put(&[&long], 3 * STEP, u64::MAX).unwrap(), 3 * STEP), long);
    }

    /// What may be done with files, by whoever has them.
    #[derive(Debug, Clone, Copy)]
    enum Deed {
        Put,
        /// Maps the file that was sent first, and closes it.
        Take,
        /// Maps it twice, as a process and its forked child have it.
        TakeForTwo,
        /// Loses the file that was sent last, as with a message that nobody reads.
        Lose,
        DropFirst,
        DropLast,
    }

    #[test]
    fn no_map_ever_changes_in_whichever_order_files_are_sent_mapped_and_dropped() {
        let deeds = [Deed::Put, Deed::Take, Deed::TakeForTwo, Deed::Lose, Deed::DropFirst, Deed::DropLast];
        let (length, mut reused) = (6, 0);
        for number in 0..deeds.len().pow(length) {
            let mut pool = small();
            let (mut sent, mut held, mut byte) = (VecDeque::new(), VecDeque::new(), 0_u8);
            let order = (0..length).map(|place| deeds[number / deeds.len().pow(place) % deeds.len()]);
            let mut put = |sent: &mut VecDeque<_>| {
                byte += 1;
                let files = pool.lent.len() + pool.idle.len();
                sent.push_back((byte, pool.put(&[&[byte; 5000]], 5000, u64::MAX).unwrap()));
                reused += usize::from(pool.lent.len() + pool.idle.len() <= files);
            };
            for deed in order {
                match deed {
                    Deed::Put => put(&mut sent),
                    Deed::Take => held.extend(sent.pop_front().map(|(byte, file)| (byte, map(file, 5000)))),
                    Deed::TakeForTwo => {
                        let Some((byte, file)) = sent.pop_front() else { continue };
                        let copy = file.try_clone().unwrap();
                        held.extend([(byte, map(file, 5000)), (byte, map(copy, 5000))]);
                    }
                    Deed::Lose => drop(sent.pop_back()),
                    Deed::DropFirst => drop(held.pop_front()),
                    Deed::DropLast => drop(held.pop_back()),
                }
            }
            put(&mut sent);
            held.extend(sent.drain(..).map(|(byte, file)| (byte, map(file, 5000))));
            assert!(held.iter().all(|(byte, held)| held.iter().all(|own| own == byte)), "order {number}");
        }
        assert!(reused > 1000, "{reused}");
    }
}
