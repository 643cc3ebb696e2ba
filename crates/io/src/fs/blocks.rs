//! An allocator whose large blocks are maps of their own.
//!
//! What a loader holds comes and goes in blocks of some hundred kilobytes, made by one thread and let go by another.
//! glibc maps such a block only until one like it was freed; from then on they lie among small ones, in a heap for each
//! thread, and what is free between them is not given back: several times the memory that was asked for stays resident.
//! A map of its own is given back when it is freed, and grows and shrinks where it lies. Blocks of some kilobytes share
//! maps with others of their size, and a few maps wait to be used again.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

use memmap2::MmapMut;

use super::idle::Idle;
use super::slabs::{self, LARGE, Slabs};

/// What lies in front of a large block, as long as its alignment.
const HEADER: usize = 64;
/// Maps of so many bytes and more have huge pages where that is asked for.
#[cfg(target_os = "linux")]
const HUGE: usize = 4 << 20;
/// Longer ones have them in any case. They do not wait to be used again, and the kernel takes longer to find a small
/// page for every 4 KiB of them than to clear it. At most an eighth more than is written to then takes memory.
#[cfg(target_os = "linux")]
const LONG: usize = 16 << 20;

/// An allocator for a whole program, which gives memory back that is no longer used: blocks of 128 KiB and more are
/// separate maps, those of more than 1 KiB share maps with others of their size, and the system's allocator has the
/// rest.
///
/// The shared library of the C API and of the Python package has it for what the library itself allocates. A Rust
/// program may choose it, and then the memory that it takes is what loaders are allowed:
///
/// ```
/// # mod rowdex { pub use rowdex_io::fs::MappedBlocks; }
/// #[global_allocator]
/// static ALLOCATOR: rowdex::MappedBlocks = rowdex::MappedBlocks::new();
/// # fn main() {}
/// ```
#[derive(Debug)]
pub struct MappedBlocks {
    idle: Idle,
    slabs: Slabs,
    huge: bool,
}

/// What a large block is in.
enum BlockMemory {
    Map(MmapMut),
    /// There were no more maps to be had.
    System,
}

const _: () = assert!(size_of::<BlockMemory>() <= HEADER);

impl MappedBlocks {
    /// Without a block yet.
    pub const fn new() -> Self {
        Self { idle: Idle::new(), slabs: Slabs::new(), huge: false }
    }

    /// Asks the kernel for huge pages for blocks of 4 MiB and more, so that random reads of them wait less for the page
    /// tables; without this for those of 16 MiB and more. What is not written to of such a block takes memory, too, in
    /// pieces of 2 MiB.
    #[must_use]
    pub const fn with_huge_pages(mut self) -> Self {
        self.huge = true;
        self
    }

    /// Asks for huge pages for a map, if it may have some.
    fn advise(&self, map: &MmapMut) {
        #[cfg(target_os = "linux")]
        if map.len() >= LONG || self.huge && map.len() >= HUGE {
            // A kernel without them has the map as it is.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = map;
    }

    /// A large block, and whether all its bytes are zero.
    fn large(&self, layout: Layout) -> (*mut u8, bool) {
        let Some(length) = layout.size().checked_add(HEADER) else { return (ptr::null_mut(), false) };
        let waiting = self.idle.take(length);
        let is_new = waiting.is_none();
        if let Some(map) = waiting.or_else(|| MmapMut::map_anon(length).ok()) {
            // One that has waited may have been shorter.
            self.advise(&map);
            return (settle(map), is_new);
        }
        let Ok(whole) = Layout::from_size_align(length, HEADER) else { return (ptr::null_mut(), false) };
        // SAFETY: its size is not zero.
        let start = unsafe { System.alloc(whole) };
        if start.is_null() {
            return (start, false);
        }
        // SAFETY: the header fits in front of the block, and is aligned.
        unsafe {
            start.cast::<BlockMemory>().write(BlockMemory::System);
            (start.add(HEADER), false)
        }
    }
}

impl Default for MappedBlocks {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether the system's allocator has blocks of this layout.
fn is_system(layout: Layout) -> bool {
    !is_large(layout) && !slabs::have(layout)
}

fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= HEADER
}

/// The block in a map of more bytes than a header has.
fn settle(mut map: MmapMut) -> *mut u8 {
    let start = map.as_mut_ptr();
    // SAFETY: a map begins at a page, and its first bytes are nobody's but the header's. It stays where it is when its
    // owner is moved.
    unsafe {
        start.cast::<BlockMemory>().write(BlockMemory::Map(map));
        start.add(HEADER)
    }
}

/// Takes a large block out of what it is in.
///
/// # Safety
/// The block is one of [`settle`], or of [`MappedBlocks::large`], and is not used any more.
unsafe fn home_of(block: *mut u8) -> BlockMemory {
    // SAFETY: as the caller says, the header is in front of the block; it is read once.
    unsafe { block.sub(HEADER).cast::<BlockMemory>().read() }
}

// SAFETY: a block is at least as long as asked for, since a map or a block of the system's allocator is longer by a
// header, and aligned to 64 bytes behind the header, or it is the system's. Which of both follows from the layout
// alone, which is the same when the block is freed. Nothing here panics or allocates.
unsafe impl GlobalAlloc for MappedBlocks {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            return self.large(layout).0;
        }
        if let Some(block) = self.slabs.take(layout, &self.idle) {
            return block;
        }
        // SAFETY: as the caller says.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            let (block, is_zero) = self.large(layout);
            if !block.is_null() && !is_zero {
                // SAFETY: the block has so many bytes.
                unsafe { block.write_bytes(0, layout.size()) };
            }
            return block;
        }
        if let Some(block) = self.slabs.take(layout, &self.idle) {
            if !block.is_null() {
                // SAFETY: the block has so many bytes.
                unsafe { block.write_bytes(0, layout.size()) };
            }
            return block;
        }
        // SAFETY: as the caller says.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !is_large(layout) {
            // SAFETY: as the caller says; which of the two has the block follows from the layout.
            unsafe {
                if !self.slabs.give(block, layout, &self.idle) {
                    System.dealloc(block, layout);
                }
            }
            return;
        }
        // SAFETY: a block of a large layout is one of `large`.
        match unsafe { home_of(block) } {
            BlockMemory::Map(map) => self.idle.give(map),
            BlockMemory::System => {
                if let Ok(whole) = Layout::from_size_align(layout.size() + HEADER, HEADER) {
                    // SAFETY: `large` has asked for this layout and returned what is behind the header.
                    unsafe { System.dealloc(block.sub(HEADER), whole) };
                }
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller says that the size, rounded up to the alignment, does not overflow.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if slabs::are_alike(layout, wanted) {
            return block;
        }
        if is_system(layout) && is_system(wanted) {
            // SAFETY: as the caller says.
            return unsafe { System.realloc(block, layout, size) };
        }
        #[cfg(target_os = "linux")]
        if is_large(layout) && is_large(wanted) {
            // SAFETY: a block of a large layout is one of `large`; the header is written again below.
            match unsafe { home_of(block) } {
                BlockMemory::Map(map) => {
                    if let Some(moved) = resized(map, size, block, |map| self.advise(map)) {
                        return moved;
                    }
                }
                BlockMemory::System => {}
            }
        }
        // SAFETY: the new block is another one, and both have as many bytes as are copied.
        unsafe {
            let other = self.alloc(wanted);
            if !other.is_null() {
                ptr::copy_nonoverlapping(block, other, layout.size().min(size));
                self.dealloc(block, layout);
            }
            other
        }
    }
}

/// A block of another size in the map of this one; `None` if it cannot be had, and then the block is as it was.
#[cfg(target_os = "linux")]
fn resized(mut map: MmapMut, size: usize, block: *mut u8, advise: impl FnOnce(&MmapMut)) -> Option<*mut u8> {
    /// What a block may leave unused, as a part of it.
    const PART: usize = 16;
    let length = size.checked_add(HEADER);
    let fits = length.is_some_and(|length| (length..=length.saturating_add(length / PART)).contains(&map.len()));
    if fits {
        settle(map);
        return Some(block);
    }
    // SAFETY: nobody but the owner of the block has an address in the map, and is told the new one.
    let moved =
        length.is_some_and(|length| unsafe { map.remap(length, memmap2::RemapOptions::new().may_move(true)) }.is_ok());
    advise(&map);
    let place = settle(map);
    moved.then_some(place)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::thread;

    use super::super::idle::{MOST_IDLE, MoreIdle};
    use super::*;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 64).unwrap()
    }

    #[test]
    fn blocks_keep_what_is_written_to_them_whatever_they_grow_and_shrink_to() {
        let blocks = MappedBlocks::new();
        let sizes = [100, LARGE - 1, LARGE, LARGE + 5000, 3 << 20, 64 << 20, 10 << 20, LARGE, 1000, 2 << 20];
        // SAFETY: blocks are used by their layouts, and as far as they reach.
        unsafe {
            let mut block = blocks.alloc(layout(sizes[0]));
            block.write_bytes(7, sizes[0]);
            for pair in sizes.windows(2) {
                block = blocks.realloc(block, layout(pair[0]), pair[1]);
                assert_eq!(block as usize % 8, 0);
                let same = pair[0].min(pair[1]);
                let bytes = std::slice::from_raw_parts_mut(block, pair[1]);
                assert!(bytes[..same].iter().all(|byte| *byte == 7), "{pair:?}");
                bytes.fill(7);
            }
            blocks.dealloc(block, layout(sizes[sizes.len() - 1]));
            for size in [LARGE, 1 << 20, 5 << 20] {
                let block = blocks.alloc_zeroed(layout(size));
                assert!(std::slice::from_raw_parts(block, size).iter().all(|byte| *byte == 0), "{size}");
                block.write_bytes(1, size);
                blocks.dealloc(block, layout(size));
            }
        }
    }

    #[test]
    fn a_few_maps_wait_to_be_used_again_and_no_more_than_somebody_asked_for() {
        const MORE: usize = 8 << 20;
        let blocks = MappedBlocks::new();
        let waiting = || blocks.idle.with(|maps| maps.iter().flatten().map(|map| map.len()).sum::<usize>()).unwrap();
        // SAFETY: blocks are used by their layouts.
        unsafe {
            let first = blocks.alloc(layout(1 << 20));
            blocks.dealloc(first, layout(1 << 20));
            assert_eq!(blocks.alloc(layout((1 << 20) - 1000)), first);
            blocks.dealloc(first, layout((1 << 20) - 1000));
            let sizes = [LARGE, 1 << 20, 2 << 20, 1 << 19, 3 << 20, LARGE + 1, LARGE + 2];
            for size in sizes.iter().cycle().take(100) {
                let all: Vec<*mut u8> = (0..20).map(|_| blocks.alloc(layout(*size))).collect();
                all.into_iter().for_each(|block| blocks.dealloc(block, layout(*size)));
                assert!(waiting() <= MOST_IDLE, "{} after {size}", waiting());
            }
            let turn = || {
                let all: Vec<*mut u8> = (0..30).map(|_| blocks.alloc(layout(1 << 20))).collect();
                all.into_iter().for_each(|block| blocks.dealloc(block, layout(1 << 20)));
                waiting()
            };
            let more = MoreIdle::of(MORE);
            let asked = turn();
            assert!((MOST_IDLE..=MOST_IDLE + MORE).contains(&asked), "{asked}");
            drop(more);
            assert!(turn() <= MOST_IDLE, "{}", waiting());
        }
    }

    /// Whether the map that an address is in was asked to have huge pages.
    #[cfg(target_os = "linux")]
    fn is_huge(block: *mut u8) -> bool {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut within = false;
        for line in maps.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            if let Some((start, end)) = range
                && let (Ok(start), Ok(end)) = (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16))
            {
                within = (start..end).contains(&(block as usize));
            } else if within && let Some(flags) = line.strip_prefix("VmFlags:") {
                return flags.split(' ').any(|flag| flag == "hg");
            }
        }
        panic!("no map has the block");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn long_blocks_have_huge_pages_where_that_was_asked_for_and_the_longest_anyhow() {
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            return;
        }
        for (blocks, expected) in [(MappedBlocks::new(), false), (MappedBlocks::new().with_huge_pages(), true)] {
            // SAFETY: blocks are used by their layouts.
            unsafe {
                let long = blocks.alloc(layout(HUGE));
                assert_eq!(is_huge(long), expected);
                let grown = blocks.alloc(layout(1 << 20));
                assert!(!is_huge(grown));
                blocks.dealloc(long, layout(HUGE));
                let grown = blocks.realloc(grown, layout(1 << 20), 2 * HUGE);
                assert_eq!(is_huge(grown), expected);
                blocks.dealloc(grown, layout(2 * HUGE));
                let longest = blocks.alloc(layout(LONG));
                assert!(is_huge(longest));
                blocks.dealloc(longest, layout(LONG));
            }
        }
    }

    #[test]
    fn blocks_of_many_threads_do_not_meet() {
        let blocks = MappedBlocks::new();
        let work = |thread: u8| {
            for round in 0..200_usize {
                let size = LARGE + (round * 7919 + usize::from(thread) * 104_729) % (1 << 20);
                // SAFETY: the block is used by its layout.
                unsafe {
                    let block = blocks.alloc(layout(size));
                    block.write_bytes(thread, size);
                    thread::yield_now();
                    assert!(std::slice::from_raw_parts(block, size).iter().all(|byte| *byte == thread));
                    blocks.dealloc(block, layout(size));
                }
            }
        };
        thread::scope(|scope| (0..4).for_each(|thread| drop(scope.spawn(move || work(thread)))));
    }
}
