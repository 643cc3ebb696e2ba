//! A value made at its first use, published without a lock.

use std::fmt;

use once_cell::race::OnceBox;

/// A value made when it is first asked for, and never changed.
///
/// Nobody waits for the thread that makes it, because in a forked child that thread may not exist: threads that ask at
/// once each make a value, one of these is published, and the others are dropped. With `OnceLock` and `LazyLock` they
/// wait, and so does a child that was forked while another thread of its parent was about to make the value.
pub struct Once<T>(OnceBox<T>);

impl<T> Once<T> {
    /// One that is not made yet.
    pub const fn new() -> Self {
        Self(OnceBox::new())
    }

    /// The value, if there is one already.
    pub fn get(&self) -> Option<&T> {
        self.0.get()
    }

    /// The value, made by this call if there is none.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        self.0.get_or_init(|| Box::new(make()))
    }

    /// Makes this the value; false if there is one already.
    pub fn set(&self, value: T) -> bool {
        self.0.set(Box::new(value)).is_ok()
    }
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for Once<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Once").field(&self.get()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn nobody_waits_for_another_thread_that_makes_the_value() {
        let once: Once<u32> = Once::new();
        let (begun, has_begun) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let once = &once;
            let slow = scope.spawn(move || {
                *once.get_or_init(|| {
                    begun.send(()).unwrap();
                    may_go_on.recv().unwrap();
                    1
                })
            });
            has_begun.recv().unwrap();
            assert_eq!((once.get(), *once.get_or_init(|| 2)), (None, 2));
            go_on.send(()).unwrap();
            assert_eq!(slow.join().unwrap(), 2);
        });
        assert!(!once.set(3));
        assert_eq!(format!("{once:?}"), "Once(Some(2))");
    }
}
