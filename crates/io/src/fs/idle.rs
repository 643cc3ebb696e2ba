//! Maps that wait to be used again, since the kernel clears each page of a new one.
//!
//! A forked child may find them locked for ever, so nobody waits for the lock.

#![allow(unsafe_code)]

use std::mem;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use memmap2::MmapMut;

/// Maps that wait, at most, and their bytes together: less than the 32 MiB that a loader may take besides its memory.
/// With 4 MiB, decoding lists of tokens took twice the time, all of it for the kernel to clear pages.
const MAPS: usize = 128;
pub(super) const MOST_IDLE: usize = 24 << 20;

/// Longer ones do not wait, but for as much longer ones as there is [`MoreIdle`]. Columns of a decoded row group are
/// rarely longer.
const LONGEST_IDLE: usize = 8 << 20;

/// Bytes of maps that may wait beside [`MOST_IDLE`].
static MORE_IDLE: AtomicUsize = AtomicUsize::new(0);

/// While it lives, more bytes of maps may wait to be used again, in each [`MappedBlocks`](super::MappedBlocks) of the
/// process.
#[derive(Debug)]
pub struct MoreIdle(usize);

impl MoreIdle {
    /// So many bytes more.
    pub fn of(bytes: usize) -> Self {
        // Of several at a time, all have had it counted in their memory.
        MORE_IDLE.fetch_add(bytes, Ordering::Relaxed);
        Self(bytes)
    }
}

impl Drop for MoreIdle {
    fn drop(&mut self) {
        MORE_IDLE.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// The map with so many bytes or a few more; `None` if it cannot be made so long.
#[cfg(target_os = "linux")]
fn fitted(mut map: MmapMut, length: usize) -> Option<MmapMut> {
    if !(length..=length.saturating_add(length / 4)).contains(&map.len()) {
        // SAFETY: nobody has an address in a map that waited.
        unsafe { map.remap(length, memmap2::RemapOptions::new().may_move(true)) }.ok()?;
    }
    Some(map)
}

#[cfg(not(target_os = "linux"))]
fn fitted(map: MmapMut, length: usize) -> Option<MmapMut> {
    (map.len() >= length).then_some(map)
}

/// How long a map may be that waits.
fn longest_idle() -> usize {
    LONGEST_IDLE.saturating_add(MORE_IDLE.load(Ordering::Relaxed))
}

/// Maps that wait to be used again. Whoever finds somebody at it does without.
#[derive(Debug)]
pub(super) struct Idle(Mutex<[Option<MmapMut>; MAPS]>);

impl Idle {
    pub(super) const fn new() -> Self {
        Self(Mutex::new([const { None }; MAPS]))
    }

    pub(super) fn with<T>(&self, step: impl FnOnce(&mut [Option<MmapMut>; MAPS]) -> T) -> Option<T> {
        self.0.try_lock().ok().map(|mut maps| step(&mut maps))
    }

    /// A map of so many bytes or a few more, out of one with half to twice as many: pages of one that waits need not be
    /// cleared. To cut or grow others would have the kernel take away and clear more than is used again.
    pub(super) fn take(&self, length: usize) -> Option<MmapMut> {
        if length > longest_idle() {
            return None;
        }
        // The shortest that is long enough, or else the longest.
        let found = self.with(|maps| {
            let waiting = |at: &usize| maps[*at].as_ref().map(|map| map.len());
            let like = Some(length / 2)..=Some(length * 2);
            let all = || (0..MAPS).filter(|at| like.contains(&waiting(at)));
            let fits = all().filter(|at| waiting(at) >= Some(length)).min_by_key(waiting);
            maps[fits.or_else(|| all().max_by_key(waiting))?].take()
        })?;
        fitted(found?, length)
    }

    /// Lets a map wait, and those go that have waited for longest, if they are too many.
    pub(super) fn give(&self, map: MmapMut) {
        let length = map.len();
        if length > longest_idle() {
            return;
        }
        let mut map = Some(map);
        let mut gone: [Option<MmapMut>; MAPS] = [const { None }; MAPS];
        self.with(|maps| {
            let mut bytes: usize = maps.iter().flatten().map(|map| map.len()).sum();
            let last = maps.len() - 1;
            let most = (MOST_IDLE - LONGEST_IDLE).saturating_add(MORE_IDLE.load(Ordering::Relaxed));
            let most = most.saturating_sub(length.saturating_sub(LONGEST_IDLE));
            // The oldest are in front.
            for (waiting, gone) in maps.iter_mut().zip(&mut gone) {
                if bytes <= most {
                    break;
                }
                bytes -= waiting.as_ref().map_or(0, |map| map.len());
                *gone = waiting.take();
            }
            if maps[0].is_some() && maps.iter().all(Option::is_some) {
                gone[0] = maps[0].take();
            }
            let free = maps.iter().position(Option::is_none).unwrap_or(0);
            maps[free..].rotate_left(1);
            mem::swap(&mut maps[last], &mut map);
        });
        // What waits no longer is given back here, while others may look for one.
        drop((map, gone));
    }
}

#[cfg(all(test, target_os = "linux"))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_map_that_waits_is_made_as_long_as_the_next_block() {
        let idle = Idle::new();
        let wait = |length: usize| {
            let mut map = MmapMut::map_anon(length).unwrap();
            map[..3].copy_from_slice(b"old");
            idle.give(map);
        };
        let lengths = |wanted: usize| {
            let found = idle.take(wanted).unwrap();
            assert_eq!(&found[..3], b"old", "its pages are those that it had");
            found.len()
        };
        wait(1 << 20);
        wait(3 << 20);
        assert_eq!(lengths(1 << 20), 1 << 20);
        assert_eq!(lengths(2 << 20), 2 << 20, "it has let go of the rest");
        wait(2 << 20);
        assert!(idle.take((1 << 20) - 1).is_none(), "most of it would be cut off");
        assert!(idle.take((4 << 20) + 2).is_none(), "most of it would be new");
        assert_eq!(lengths(4 << 20), 4 << 20, "it has grown");
        assert!(idle.take(4 << 20).is_none());
    }
}
