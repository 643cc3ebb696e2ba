//! Values that a thread has for a while.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::thread::LocalKey;

/// While it lives, its thread has another value. Then the thread gets back what it had before.
#[derive(Debug)]
pub struct Scoped<T: 'static> {
    cell: &'static LocalKey<RefCell<T>>,
    before: Option<T>,
    of_this_thread: PhantomData<*const ()>,
}

impl<T> Scoped<T> {
    pub(super) fn put(cell: &'static LocalKey<RefCell<T>>, value: T) -> Self {
        Self { cell, before: Some(cell.replace(value)), of_this_thread: PhantomData }
    }
}

impl<T> Drop for Scoped<T> {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            self.cell.set(before);
        }
    }
}
