//! The values that were made last, for whoever asks for the same again.

use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard};
use std::thread;

use lru::LruCache;

/// A few values by their keys.
///
/// Does not wait for long, as a process may have been forked while another thread had them: whoever finds them taken
/// again and again makes a value of its own.
#[derive(Debug)]
pub(crate) struct Recent<K: Hash + Eq, V>(Mutex<LruCache<K, V>>);

impl<K: Hash + Eq, V: Clone> Recent<K, V> {
    /// Room for so many.
    pub(crate) fn new(most: usize) -> Self {
        Self(Mutex::new(LruCache::new(NonZeroUsize::new(most).unwrap_or(NonZeroUsize::MIN))))
    }

    /// The value of a key, made if it is not kept.
    pub(crate) fn get<E>(&self, key: K, make: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        if let Some(held) = self.values().and_then(|mut values| values.get(&key).cloned()) {
            return Ok(held);
        }
        let made = make()?;
        if let Some(mut values) = self.values() {
            values.put(key, made.clone());
        }
        Ok(made)
    }

    fn values(&self) -> Option<MutexGuard<'_, LruCache<K, V>>> {
        (0..100).find_map(|_| {
            let values = self.0.try_lock().ok();
            if values.is_none() {
                thread::yield_now();
            }
            values
        })
    }
}

/// Room for two: for what is used, and for what is next.
impl<K: Hash + Eq, V: Clone> Default for Recent<K, V> {
    fn default() -> Self {
        Self::new(2)
    }
}

/// The same values, held apart.
impl<K: Hash + Eq + Clone, V: Clone> Clone for Recent<K, V> {
    fn clone(&self) -> Self {
        match self.values() {
            Some(values) => Self(Mutex::new(values.clone())),
            None => Self::default(),
        }
    }
}
