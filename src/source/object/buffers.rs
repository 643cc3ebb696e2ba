//! Memory for what arrives, used again and again.
//!
//! The kernel clears every page that a process gets anew, which for megabytes that are read once takes about as long as
//! copying them.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};

/// Bytes that may lie unused.
const IDLE: usize = 64 << 20;

/// Less than this comes from memory that the allocator has at hand.
const SMALL: usize = 128 << 10;

/// Buffers that nobody uses now.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    idle: Mutex<Vec<BytesMut>>,
}

/// A buffer that is given back when the last who reads it lets go.
struct Lent {
    bytes: BytesMut,
    home: Arc<Buffers>,
}

impl Buffers {
    /// An empty buffer with room for so many bytes.
    pub(super) fn take(&self, length: usize) -> BytesMut {
        if length >= SMALL {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            let fits = |buffer: &BytesMut| (length..=length.saturating_mul(2)).contains(&buffer.capacity());
            if let Some(place) = idle.iter().position(fits) {
                return idle.remove(place);
            }
        }
        BytesMut::with_capacity(length)
    }

    /// The bytes in a buffer, for anybody to share.
    pub(super) fn lend(self: &Arc<Self>, bytes: BytesMut) -> Bytes {
        if bytes.capacity() < SMALL {
            return bytes.freeze();
        }
        Bytes::from_owner(Lent { bytes, home: Arc::clone(self) })
    }

    fn give_back(&self, mut buffer: BytesMut) {
        buffer.clear();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut total = idle.iter().map(BytesMut::capacity).fold(buffer.capacity(), usize::saturating_add);
        idle.push(buffer);
        // Those that have been of no use for longest go first.
        let mut gone = 0;
        while total > IDLE {
            total -= idle.get(gone).map_or(total, BytesMut::capacity);
            gone += 1;
        }
        let freed: Vec<BytesMut> = idle.drain(..gone).collect();
        drop(idle);
        drop(freed);
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.home.give_back(mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_when_the_last_slice_of_it_is_gone() {
        let buffers = Arc::new(Buffers::default());
        let mut buffer = buffers.take(1 << 20);
        buffer.extend_from_slice(&[7; 1 << 20]);
        let place = buffer.as_ptr();
        let slice = {
            let whole = buffers.lend(buffer);
            whole.slice(5..10)
        };
        assert_ne!(buffers.take(1 << 20).as_ptr(), place);
        assert_eq!(slice, [7; 5].as_slice());
        drop(slice);
        let again = buffers.take((1 << 20) - 100);
        assert_eq!((again.as_ptr(), again.len(), again.capacity()), (place, 0, 1 << 20));
    }

    #[test]
    fn a_buffer_that_was_taken_apart_is_used_again_as_a_whole() {
        let buffers = Arc::new(Buffers::default());
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
        let buffers = Arc::new(Buffers::default());
        let sizes = [IDLE / 2, IDLE / 4, IDLE / 2, IDLE * 2, IDLE / 4];
        drop(sizes.map(|size| buffers.lend(buffers.take(size))));
        let idle: usize = buffers.idle.lock().unwrap().iter().map(BytesMut::capacity).sum();
        assert!(idle > 0 && idle <= IDLE, "{idle}");
        assert!(buffers.take(SMALL).capacity() < IDLE / 4);
        drop(buffers.lend(buffers.take(SMALL - 1)));
        assert!(buffers.idle.lock().unwrap().iter().all(|buffer| buffer.capacity() >= IDLE / 4));
    }
}
