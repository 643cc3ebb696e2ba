//! Memory for what is read and decompressed, used again and again.
//!
//! The kernel clears every page that a process gets anew, which for megabytes that are used once takes about as long as
//! copying them. Allocators give large blocks back to it.

use std::cell::RefCell;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

use bytes::Bytes;
#[cfg(feature = "object-store")]
use bytes::BytesMut;

use crate::scoped::Scoped;

/// Less than this comes from memory that the allocator has at hand.
const SMALL: usize = 128 << 10;

/// Memory of a kind that can be lent.
pub trait LentMemory: AsRef<[u8]> + Default + Send + Into<Bytes> + 'static {
    /// Empty, with room for so many bytes.
    fn with_room(length: usize) -> Self;

    /// How many bytes it has room for.
    fn room(&self) -> usize;

    /// Forgets its bytes and keeps the room.
    #[cfg(any(feature = "object-store", test))]
    fn clear(&mut self);
}

impl LentMemory for Vec<u8> {
    fn with_room(length: usize) -> Self {
        Self::with_capacity(length)
    }

    fn room(&self) -> usize {
        self.capacity()
    }

    #[cfg(any(feature = "object-store", test))]
    fn clear(&mut self) {
        self.clear();
    }
}

#[cfg(feature = "object-store")]
impl LentMemory for BytesMut {
    fn with_room(length: usize) -> Self {
        Self::with_capacity(length)
    }

    fn room(&self) -> usize {
        self.capacity()
    }

    fn clear(&mut self) {
        self.clear();
    }
}

/// Buffers that nobody uses now.
#[derive(Debug)]
pub struct Buffers<M> {
    idle: Mutex<Vec<M>>,
    /// Bytes that may lie unused.
    most: usize,
    /// Bytes that are lent, and the most that were since somebody asked.
    lent: AtomicUsize,
    most_lent: AtomicUsize,
}

/// A buffer that is given back when the last who reads it lets go.
struct Lent<M: LentMemory> {
    bytes: M,
    home: Arc<Buffers<M>>,
}

impl<M: LentMemory> Buffers<M> {
    /// Buffers of which so many bytes may lie unused.
    pub fn keeping(most: usize) -> Self {
        Self { idle: Mutex::default(), most, lent: AtomicUsize::new(0), most_lent: AtomicUsize::new(0) }
    }

    /// An empty buffer with room for so many bytes.
    #[cfg(any(feature = "object-store", test))]
    pub fn take(&self, length: usize) -> M {
        let mut buffer = self.take_any(length);
        buffer.clear();
        buffer
    }

    /// A buffer with room for so many bytes, and with what it had last.
    pub fn take_any(&self, length: usize) -> M {
        self.find(length).unwrap_or_else(|| M::with_room(length))
    }

    /// The bytes in a buffer, for anybody to share.
    pub fn lend(self: &Arc<Self>, bytes: M) -> Bytes {
        let room = bytes.room();
        let lent = self.lent.fetch_add(room, Ordering::Relaxed) + room;
        self.most_lent.fetch_max(lent, Ordering::Relaxed);
        Bytes::from_owner(Lent { bytes, home: Arc::clone(self) })
    }

    /// The most bytes that were lent at a time since this was last asked, beyond those that still are.
    pub fn most_lent(&self) -> usize {
        let lent = self.lent.load(Ordering::Relaxed);
        self.most_lent.swap(lent, Ordering::Relaxed).saturating_sub(lent)
    }

    /// How many bytes lie unused.
    #[cfg(test)]
    fn idle(&self) -> usize {
        self.with_idle(|idle| total(idle)).unwrap_or(0)
    }

    fn find(&self, length: usize) -> Option<M> {
        if length < SMALL {
            return None;
        }
        let fits = |buffer: &M| (length..=length.saturating_mul(2)).contains(&buffer.room());
        self.with_idle(|idle| Some(idle.remove(idle.iter().position(fits)?)))?
    }

    fn give_back(&self, buffer: M) {
        self.lent.fetch_sub(buffer.room(), Ordering::Relaxed);
        if buffer.room() < SMALL {
            return;
        }
        let freed = self.with_idle(|idle| {
            idle.push(buffer);
            let mut total = total(idle);
            // Those that have been of no use for longest go first.
            let mut gone = 0;
            while total > self.most {
                total -= idle.get(gone).map_or(total, M::room);
                gone += 1;
            }
            idle.drain(..gone).collect::<Vec<M>>()
        });
        drop(freed);
    }

    /// Nobody waits for the lock: in a forked child it may be held for ever.
    fn with_idle<T>(&self, step: impl FnOnce(&mut Vec<M>) -> T) -> Option<T> {
        match self.idle.try_lock() {
            Ok(mut idle) => Some(step(&mut idle)),
            Err(TryLockError::Poisoned(idle)) => Some(step(&mut idle.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Buffers<Vec<u8>> {
    /// A buffer with so many bytes, whatever they are.
    pub fn take_filled(&self, length: usize) -> Vec<u8> {
        let Some(mut buffer) = self.find(length) else { return vec![0; length] };
        buffer.resize(length, 0);
        buffer
    }
}

fn total<M: LentMemory>(buffers: &[M]) -> usize {
    buffers.iter().map(M::room).fold(0, usize::saturating_add)
}

impl<M: LentMemory> AsRef<[u8]> for Lent<M> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

impl<M: LentMemory> Drop for Lent<M> {
    fn drop(&mut self) {
        self.home.give_back(mem::take(&mut self.bytes));
    }
}

thread_local! {
    /// Buffers for what this thread reads and decompresses.
    static CURRENT: RefCell<Option<Arc<Buffers<Vec<u8>>>>> = const { RefCell::new(None) };
    /// Whether what it reads is soon let go.
    static READS: RefCell<bool> = const { RefCell::new(false) };
    /// Buffers for the batches that this thread makes.
    static BATCHES: RefCell<Option<Arc<Buffers<Vec<u8>>>>> = const { RefCell::new(None) };
}

/// Makes batches whose long values go to these buffers, which come back when the consumer lets go of a batch.
pub fn making_batches<T>(buffers: &Arc<Buffers<Vec<u8>>>, make: impl FnOnce() -> T) -> T {
    let _buffers = Scoped::put(&BATCHES, Some(Arc::clone(buffers)));
    make()
}

/// The spans one after the other, `length` bytes in all, if they are long and of a batch that this thread makes.
pub fn batch_bytes<'a>(length: usize, spans: impl Iterator<Item = &'a [u8]>) -> Option<Bytes> {
    let buffers = if length < SMALL { None } else { BATCHES.with_borrow(Clone::clone) }?;
    // Lengths differ a little from batch to batch, so a buffer of just this one would hardly ever be used again.
    let mut all = buffers.find(length).unwrap_or_else(|| Vec::with_capacity(length + length / 16));
    all.clear();
    spans.for_each(|span| all.extend_from_slice(span));
    Some(buffers.lend(all))
}

/// Gives the calling thread these buffers for a while.
pub fn enter(buffers: &Arc<Buffers<Vec<u8>>>) -> Scoped<Option<Arc<Buffers<Vec<u8>>>>> {
    Scoped::put(&CURRENT, Some(Arc::clone(buffers)))
}

/// The calling thread's buffers, if it has any.
pub fn current() -> Option<Arc<Buffers<Vec<u8>>>> {
    CURRENT.with_borrow(Clone::clone)
}

/// Reads files to the calling thread's buffers: what is read is let go before long.
pub fn reading<T>(read: impl FnOnce() -> T) -> T {
    let _reads = Scoped::put(&READS, true);
    read()
}

/// The buffers to read to, if a file is [read to them](reading).
pub fn of_reads() -> Option<Arc<Buffers<Vec<u8>>>> {
    READS.with_borrow(|reads| reads.then(current))?
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const MOST: usize = 64 << 20;

    fn buffers() -> Arc<Buffers<Vec<u8>>> {
        Arc::new(Buffers::keeping(MOST))
    }

    #[test]
    fn it_is_counted_how_much_was_lent_at_a_time() {
        let buffers = buffers();
        let lend = |length: usize| buffers.lend(buffers.take(length));
        let kept = lend(1000);
        assert_eq!(buffers.most_lent(), 0);
        let (large, small) = (lend(SMALL), lend(10));
        drop((large, lend(20)));
        assert_eq!(buffers.most_lent(), SMALL + 20);
        drop((kept, small));
        assert_eq!(buffers.most_lent(), 1010);
        assert_eq!(buffers.most_lent(), 0);
    }

    #[test]
    fn a_buffer_is_used_again_when_the_last_slice_of_it_is_gone() {
        const ROOM: usize = SMALL + 100;
        let buffers = buffers();
        let mut buffer = buffers.take(ROOM);
        buffer.extend_from_slice(&[7; ROOM]);
        let place = buffer.as_ptr();
        let slice = {
            let whole = buffers.lend(buffer);
            whole.slice(5..10)
        };
        let other = buffers.take(ROOM);
        assert_ne!(other.as_ptr(), place);
        assert_eq!((slice.as_ref(), buffers.idle()), (&[7; 5][..], 0));
        drop(slice);
        assert_eq!(buffers.idle(), ROOM);
        let again = buffers.take(ROOM - 100);
        assert_eq!((again.as_ptr(), again.len(), again.capacity()), (place, 0, ROOM));
        drop(buffers.lend(again));
        let filled = buffers.take_filled(ROOM - 100);
        assert_eq!((filled.as_ptr(), filled.len()), (place, ROOM - 100));
    }

    #[test]
    fn a_batch_is_made_in_memory_of_one_that_was_let_go() {
        let buffers = buffers();
        let span = vec![7; 1 << 19];
        let make = |spans: usize| {
            let length = spans * span.len();
            making_batches(&buffers, || batch_bytes(length, std::iter::repeat_n(&span[..], spans)))
        };
        let (first, second) = (make(2).unwrap(), make(2).unwrap());
        let place = first.as_ptr();
        assert_eq!((first.len(), second.len()), (1 << 20, 1 << 20));
        drop(first);
        let third = make(2).unwrap();
        assert!(third.as_ptr() == place && second.as_ptr() != place && third[..] == vec![7; 1 << 20]);
        assert!(batch_bytes(1 << 20, [&span[..], &span].into_iter()).is_none(), "not of a batch");
        assert!(making_batches(&buffers, || batch_bytes(3, [&b"abc"[..]].into_iter())).is_none(), "short");
    }

    #[cfg(feature = "object-store")]
    #[test]
    fn a_buffer_that_was_taken_apart_is_used_again_as_a_whole() {
        let buffers = Arc::new(Buffers::<BytesMut>::keeping(MOST));
        let mut front = buffers.take(1 << 20);
        let place = front.as_ptr();
        let mut back = front.split_off(1 << 19);
        front.extend_from_slice(&[1; 1 << 19]);
        back.extend_from_slice(&[2; 1 << 19]);
        front.unsplit(back);
        drop(buffers.lend(front));
        let again = buffers.take(1 << 20);
        assert_eq!((again.as_ptr(), again.capacity()), (place, 1 << 20));
    }

    #[test]
    fn what_lies_unused_is_bounded_and_far_too_large_is_not_used() {
        let buffers = buffers();
        let sizes = [MOST / 2, MOST / 4, MOST / 2, MOST * 2, MOST / 4];
        drop(sizes.map(|size| buffers.lend(buffers.take(size))));
        assert!(buffers.idle() > 0 && buffers.idle() <= MOST, "{}", buffers.idle());
        assert!(buffers.take(SMALL).capacity() < MOST / 4);
        let idle = buffers.idle();
        drop(buffers.lend(buffers.take(SMALL - 1)));
        assert_eq!(buffers.idle(), idle);
    }

    #[test]
    fn a_thread_has_the_buffers_that_it_entered_last_and_reads_to_them_only_where_it_says_so() {
        let (outer, inner) = (buffers(), buffers());
        let is = |of: &Arc<Buffers<Vec<u8>>>| current().is_some_and(|current| Arc::ptr_eq(&current, of));
        assert!(current().is_none() && reading(of_reads).is_none());
        let entered = enter(&outer);
        {
            let _entered = enter(&inner);
            assert!(is(&inner));
        }
        assert!(is(&outer) && of_reads().is_none());
        assert!(reading(|| Arc::ptr_eq(&of_reads().unwrap(), &outer)));
        assert!(of_reads().is_none());
        thread::scope(|scope| assert!(scope.spawn(|| current().is_none()).join().unwrap()));
        drop(entered);
        assert!(current().is_none());
    }

    #[test]
    fn buffers_that_somebody_else_is_looking_at_are_not_waited_for() {
        let buffers = buffers();
        drop(buffers.lend(buffers.take(1 << 20)));
        let lent = buffers.lend(buffers.take(1 << 21));
        let held = buffers.idle.lock().unwrap();
        assert_eq!(buffers.take(1 << 20).capacity(), 1 << 20);
        drop(lent);
        assert_eq!(held.len(), 1);
    }
}
