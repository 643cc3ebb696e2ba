//! Blocks of some kilobytes, many of one size in a map: a slab.
//!
//! A long value that a loader holds has a block of its own, which one thread allocates and another one frees. In a heap
//! of glibc such blocks of many sizes lie side by side: each takes a search for a place, during which all threads wait
//! that free one of that heap. In a slab any place will do, and the map is given back with its last block. The design
//! is that of Bonwick, *The Slab Allocator* (USENIX 1994), without its caches of objects.
//!
//! A forked child may find a size locked for ever, so nobody waits for a lock: who finds it taken allocates elsewhere,
//! and leaves what is to be freed to the next one.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

use memmap2::MmapMut;

use super::idle::Idle;

/// Blocks of more bytes than this are in slabs: glibc has lists for each thread of those up to it.
const SMALL: usize = 1 << 10;
/// Blocks of so many bytes and more are not.
pub(super) const LARGE: usize = 128 << 10;
/// How many sizes there are from a power of two to the next. Blocks are rounded up by 6 % on average.
const STEPS: usize = 8;
const SIZES: usize = (LARGE / SMALL).ilog2() as usize * STEPS;
/// Bytes of a slab, about, and of how many blocks it is in any case.
const SLAB: usize = 256 << 10;
const FEWEST: usize = 4;
const MOST: usize = 64;
/// Of sizes up to this one, an empty slab is kept.
const KEPT: usize = 8 << 10;
/// What lies in front of a block, as long as its alignment: the address of its slab.
const HEADER: usize = 16;
/// How often an allocation looks whether a lock is free again: for about a microsecond.
const LOOKS: usize = 64;

/// The slabs of all sizes.
#[derive(Debug)]
pub(super) struct Slabs {
    sizes: [Size; SIZES],
}

/// The slabs of blocks of one size.
#[derive(Debug)]
struct Size {
    open: Mutex<OpenSlabs>,
    /// Blocks that were freed while somebody else had the lock: the last one, which has the address of the one before.
    late: AtomicPtr<u8>,
}

/// The first of the slabs in which blocks are free, or null.
#[derive(Debug)]
struct OpenSlabs(*mut Slab);

// SAFETY: slabs are only touched by whoever has the lock.
unsafe impl Send for OpenSlabs {}

/// What is at the front of a slab's map.
struct Slab {
    map: MmapMut,
    /// The last block that was freed, which has the address of the one before, or null.
    free: *mut u8,
    /// The first block that was never used.
    fresh: u32,
    used: u32,
    next: *mut Slab,
    previous: *mut Slab,
}

/// Blocks begin behind it.
const FRONT: usize = 64;
const _: () = assert!(size_of::<Slab>() <= FRONT);

/// The number of the size of blocks for a layout, if those are in slabs.
fn number(layout: Layout) -> Option<usize> {
    if layout.size() <= SMALL || layout.size() >= LARGE || layout.align() > HEADER {
        return None;
    }
    let power = (layout.size() - 1).ilog2();
    let steps = (layout.size() - 1) >> (power - STEPS.ilog2());
    Some((power - SMALL.ilog2()) as usize * STEPS + steps % STEPS)
}

/// Bytes of a block, without what is in front of it.
fn bytes_of(number: usize) -> usize {
    let power = SMALL << (number / STEPS);
    power / STEPS * (STEPS + number % STEPS + 1)
}

fn blocks_of(number: usize) -> usize {
    (SLAB / bytes_of(number)).clamp(FEWEST, MOST)
}

/// Whether blocks of a layout are in slabs.
pub(super) fn have(layout: Layout) -> bool {
    number(layout).is_some()
}

/// Whether both layouts have blocks of the same size, so that one can be the other.
pub(super) fn are_alike(one: Layout, other: Layout) -> bool {
    number(one).is_some_and(|size| number(other) == Some(size))
}

impl Slabs {
    pub(super) const fn new() -> Self {
        Self { sizes: [const { Size::new() }; SIZES] }
    }

    /// A block for a layout, whose bytes may be anything; `None` if such are not in slabs. It is null if there is no
    /// more memory.
    pub(super) fn take(&self, layout: Layout, maps: &Idle) -> Option<*mut u8> {
        let number = number(layout)?;
        let block = self.sizes[number].take(number, maps);
        Some(block.unwrap_or_else(|| elsewhere(number)))
    }

    /// Frees a block, if blocks of its layout are in slabs.
    ///
    /// # Safety
    /// It is of this layout, and not used any more.
    pub(super) unsafe fn give(&self, block: *mut u8, layout: Layout, maps: &Idle) -> bool {
        let Some(number) = number(layout) else { return false };
        // SAFETY: the address of its slab is in front of each block.
        unsafe {
            match slab_of(block).is_null() {
                true => System.dealloc(block.sub(HEADER), with_header(number)),
                false => self.sizes[number].give(block, number, maps),
            }
        }
        true
    }
}

/// The slab that a block is in, or null.
///
/// # Safety
/// It is a block of [`Slabs::take`].
unsafe fn slab_of(block: *mut u8) -> *mut Slab {
    // SAFETY: as the caller says, that is in front of it, and aligned as the block is.
    unsafe { block.sub(HEADER).cast::<*mut Slab>().read() }
}

fn with_header(number: usize) -> Layout {
    // SAFETY: it is at most 129 KiB, and the alignment a power of two.
    unsafe { Layout::from_size_align_unchecked(bytes_of(number) + HEADER, HEADER) }
}

/// A block of the system's allocator, or null.
fn elsewhere(number: usize) -> *mut u8 {
    // SAFETY: its size is not zero, and the header fits in front of the block.
    unsafe {
        let start = System.alloc(with_header(number));
        if start.is_null() {
            return start;
        }
        start.cast::<*mut Slab>().write(ptr::null_mut());
        start.add(HEADER)
    }
}

impl Size {
    const fn new() -> Self {
        Self { open: Mutex::new(OpenSlabs(ptr::null_mut())), late: AtomicPtr::new(ptr::null_mut()) }
    }

    fn take(&self, number: usize, maps: &Idle) -> Option<*mut u8> {
        let mut looks = 0;
        let mut open = loop {
            match self.open.try_lock() {
                Ok(open) => break open,
                Err(_) if looks == LOOKS => return None,
                Err(_) => looks += 1,
            }
            hint::spin_loop();
        };
        // SAFETY: they are blocks of this size, and this has the lock.
        unsafe { open.free_late(&self.late, number, maps) };
        if open.0.is_null() {
            open.add(number, maps)?;
        }
        // SAFETY: the first slab is there, and has a free block.
        Some(unsafe { open.take(number) })
    }

    /// # Safety
    /// It is a block of a slab of this size, and not used any more.
    unsafe fn give(&self, block: *mut u8, number: usize, maps: &Idle) {
        // SAFETY: as the caller says; a block is long enough for an address, and aligned.
        unsafe {
            if let Ok(mut open) = self.open.try_lock() {
                open.give(block, number, maps);
                open.free_late(&self.late, number, maps);
                return;
            }
            let mut last = self.late.load(Ordering::Relaxed);
            loop {
                block.cast::<*mut u8>().write(last);
                match self.late.compare_exchange_weak(last, block, Ordering::Release, Ordering::Relaxed) {
                    Ok(_) => return,
                    Err(other) => last = other,
                }
            }
        }
    }
}

impl OpenSlabs {
    /// Puts a new slab in front.
    fn add(&mut self, number: usize, maps: &Idle) -> Option<()> {
        let length = FRONT + blocks_of(number) * (HEADER + bytes_of(number));
        let mut map = maps.take(length).or_else(|| MmapMut::map_anon(length).ok())?;
        let slab = map.as_mut_ptr().cast::<Slab>();
        let empty =
            Slab { map, free: ptr::null_mut(), fresh: 0, used: 0, next: ptr::null_mut(), previous: ptr::null_mut() };
        // SAFETY: a map begins at a page, and stays where it is when its owner is moved. Nobody has an address in it.
        unsafe {
            slab.write(empty);
            self.open(slab);
        }
        Some(())
    }

    /// A free block of the first slab.
    ///
    /// # Safety
    /// There is a slab. This is said of all below, too: slabs and blocks are those of this size, and the lock is held.
    unsafe fn take(&mut self, number: usize) -> *mut u8 {
        // SAFETY: an open slab has a free block, or one that was never used, which lie one after the other.
        unsafe {
            let slab = &mut *self.0;
            let mut block = slab.free;
            if block.is_null() {
                let place = FRONT + slab.fresh as usize * (HEADER + bytes_of(number));
                let front = self.0.cast::<u8>().add(place);
                front.cast::<*mut Slab>().write(self.0);
                block = front.add(HEADER);
                slab.fresh += 1;
            } else {
                slab.free = block.cast::<*mut u8>().read();
            }
            slab.used += 1;
            if slab.used as usize == blocks_of(number) {
                self.close(self.0);
            }
            block
        }
    }

    unsafe fn give(&mut self, block: *mut u8, number: usize, maps: &Idle) {
        // SAFETY: as the caller says, the block and its slab are nobody else's.
        unsafe {
            let slab = slab_of(block);
            block.cast::<*mut u8>().write((*slab).free);
            (*slab).free = block;
            let was_full = (*slab).used as usize == blocks_of(number);
            (*slab).used -= 1;
            match (was_full, (*slab).used) {
                (true, _) => self.open(slab),
                // The last one of a short size stays, so that a block that comes and goes takes no map each time.
                (false, 0) if bytes_of(number) > KEPT || !(*slab).next.is_null() || !(*slab).previous.is_null() => {
                    self.close(slab);
                    maps.give(slab.read().map);
                }
                (false, _) => {}
            }
        }
    }

    /// Frees what was freed while the lock was taken.
    unsafe fn free_late(&mut self, late: &AtomicPtr<u8>, number: usize, maps: &Idle) {
        if late.load(Ordering::Relaxed).is_null() {
            return;
        }
        let mut block = late.swap(ptr::null_mut(), Ordering::Acquire);
        while !block.is_null() {
            // SAFETY: whoever freed it has written the address of the one before, and nothing since.
            unsafe {
                let before = block.cast::<*mut u8>().read();
                self.give(block, number, maps);
                block = before;
            }
        }
    }

    /// Puts a slab in front.
    unsafe fn open(&mut self, slab: *mut Slab) {
        // SAFETY: slabs in the list are there until they are taken out of it.
        unsafe {
            (*slab).previous = ptr::null_mut();
            (*slab).next = self.0;
            if let Some(next) = self.0.as_mut() {
                next.previous = slab;
            }
        }
        self.0 = slab;
    }

    /// Takes a slab out of the list.
    unsafe fn close(&mut self, slab: *mut Slab) {
        // SAFETY: as for `open`.
        unsafe {
            let Slab { next, previous, .. } = *slab;
            if let Some(next) = next.as_mut() {
                next.previous = previous;
            }
            match previous.as_mut() {
                Some(previous) => previous.next = next,
                None => self.0 = next,
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::HashSet;
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, HEADER).unwrap()
    }

    #[test]
    fn each_size_has_the_shortest_block_that_is_long_enough() {
        for size in SMALL + 1..LARGE {
            let number = number(layout(size)).unwrap();
            assert!(size <= bytes_of(number), "{size}");
            assert!(number == 0 || size > bytes_of(number - 1), "{size}");
            assert!(bytes_of(number).is_multiple_of(HEADER) && bytes_of(number) <= size + size / STEPS, "{size}");
        }
        assert!(!have(layout(SMALL)) && !have(layout(LARGE)));
        assert!(!have(Layout::from_size_align(SMALL + 1, 32).unwrap()));
    }

    proptest! {
        #[test]
        fn no_two_blocks_share_a_byte_whatever_was_freed(
            steps in prop::collection::vec((any::<bool>(), SMALL + 1..LARGE, any::<prop::sample::Index>()), 1..400),
        ) {
            let slabs = Slabs::new();
            let maps = Idle::new();
            let mut blocks: Vec<(*mut u8, usize, u8)> = Vec::new();
            for (number, (more, size, which)) in steps.into_iter().enumerate() {
                // SAFETY: blocks are used by their layouts.
                unsafe {
                    if more || blocks.is_empty() {
                        let block = slabs.take(layout(size), &maps).unwrap();
                        block.write_bytes(number as u8, size);
                        blocks.push((block, size, number as u8));
                    } else {
                        let (block, size, filled) = blocks.swap_remove(which.index(blocks.len()));
                        let bytes = std::slice::from_raw_parts(block, size);
                        prop_assert!(bytes.iter().all(|byte| *byte == filled));
                        prop_assert!(slabs.give(block, layout(size), &maps));
                    }
                }
            }
        }
    }

    /// The slabs of a size that are open.
    fn open(slabs: &Slabs, size: usize) -> usize {
        let mut slab = slabs.sizes[number(layout(size)).unwrap()].open.try_lock().unwrap().0;
        let mut count = 0;
        while !slab.is_null() {
            count += 1;
            // SAFETY: it is in the list.
            slab = unsafe { (*slab).next };
        }
        count
    }

    #[test]
    fn one_map_of_a_short_size_stays_when_all_blocks_are_freed() {
        for (size, stays) in [(2_000, 1), (20_000, 0)] {
            let slabs = Slabs::new();
            let maps = Idle::new();
            let blocks: Vec<*mut u8> = (0..100).map(|_| slabs.take(layout(size), &maps).unwrap()).collect();
            assert_eq!(blocks.iter().collect::<HashSet<_>>().len(), 100);
            // SAFETY: blocks are used by their layouts.
            blocks.into_iter().for_each(|block| assert!(unsafe { slabs.give(block, layout(size), &maps) }));
            assert_eq!(open(&slabs, size), stays, "{size}");
        }
    }

    #[test]
    fn a_size_that_is_locked_is_not_waited_for_and_loses_nothing() {
        const SIZE: usize = 20_000;
        let slabs = Slabs::new();
        let maps = Idle::new();
        let blocks: Vec<*mut u8> = (0..100).map(|_| slabs.take(layout(SIZE), &maps).unwrap()).collect();
        let locked = slabs.sizes[number(layout(SIZE)).unwrap()].open.try_lock().unwrap();
        let other = slabs.take(layout(SIZE), &maps).unwrap();
        // SAFETY: blocks are used by their layouts.
        unsafe {
            other.write_bytes(1, SIZE);
            blocks.into_iter().for_each(|block| assert!(slabs.give(block, layout(SIZE), &maps)));
            drop(locked);
            let next = slabs.take(layout(SIZE), &maps).unwrap();
            assert!(slabs.give(next, layout(SIZE), &maps));
            assert!(slabs.give(other, layout(SIZE), &maps));
        }
        assert_eq!(open(&slabs, SIZE), 0);
    }

    #[test]
    fn blocks_that_other_threads_free_are_used_again() {
        const SIZE: usize = 30_000;
        let slabs = Slabs::new();
        let maps = Idle::new();
        let (sender, receiver) = std::sync::mpsc::channel::<(usize, u8)>();
        let receiver = Mutex::new(receiver);
        thread::scope(|scope| {
            for thread in 0..2 {
                let (sender, slabs, maps) = (sender.clone(), &slabs, &maps);
                scope.spawn(move || {
                    for round in 0..2_000 {
                        let block = slabs.take(layout(SIZE), maps).unwrap();
                        let filled = (round * 2 + thread) as u8;
                        // SAFETY: the block has so many bytes.
                        unsafe { block.write_bytes(filled, SIZE) };
                        sender.send((block.expose_provenance(), filled)).unwrap();
                    }
                });
            }
            drop(sender);
            for _ in 0..2 {
                scope.spawn(|| {
                    while let Ok((block, filled)) = receiver.lock().unwrap().recv() {
                        let block: *mut u8 = ptr::with_exposed_provenance_mut(block);
                        // SAFETY: the block was sent by the only thread that had it.
                        unsafe {
                            assert!(std::slice::from_raw_parts(block, SIZE).iter().all(|byte| *byte == filled));
                            assert!(slabs.give(block, layout(SIZE), &maps));
                        }
                    }
                });
            }
        });
        let next = slabs.take(layout(SIZE), &maps).unwrap();
        // SAFETY: the block is used by its layout.
        assert!(unsafe { slabs.give(next, layout(SIZE), &maps) });
        assert_eq!(open(&slabs, SIZE), 0);
    }
}
