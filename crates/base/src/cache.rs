//! A byte-budgeted LRU over shared values, with one load per key at a time.
//!
//! The cache knows nothing of files or rows: keys are hashable, values come with their weight in bytes.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::ops::{Add, Sub};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lru::LruCache;
use serde::Serialize;

use crate::error::{Error, ErrorKind, Result};
use crate::stop;

/// What a cache or a dataset has done since it was opened. All are counts since then but `held_bytes`.
///
/// The counts are exact and do not depend on timing, except that which of several threads counts the one miss
/// of a key that all of them want does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Counters {
    /// Look-ups that found the row group decoded, or being decoded by another thread.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
    /// Row groups decoded, whole or in part.
    pub decodes: u64,
    /// Bytes of decoded Arrow data that those decodes made.
    pub bytes_decoded: u64,
    /// Bytes read from the source, page indexes and footers included.
    pub bytes_read: u64,
    /// Requests sent to an object store; 0 for local files.
    pub requests: u64,
    /// Bytes that an object store sent: `bytes_read`, the gaps that were read over, and what was read ahead or again.
    pub bytes_fetched: u64,
    /// Row groups dropped to make room.
    pub evictions: u64,
    /// Bytes of decoded row groups held now.
    pub held_bytes: u64,
}

impl Add for Counters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            decodes: self.decodes + other.decodes,
            bytes_decoded: self.bytes_decoded + other.bytes_decoded,
            bytes_read: self.bytes_read + other.bytes_read,
            requests: self.requests + other.requests,
            bytes_fetched: self.bytes_fetched + other.bytes_fetched,
            evictions: self.evictions + other.evictions,
            held_bytes: self.held_bytes + other.held_bytes,
        }
    }
}

impl Sub for Counters {
    type Output = Self;

    /// What happened between two readings; `held_bytes` stays the later one's.
    fn sub(self, earlier: Self) -> Self {
        Self {
            hits: self.hits.saturating_sub(earlier.hits),
            misses: self.misses.saturating_sub(earlier.misses),
            decodes: self.decodes.saturating_sub(earlier.decodes),
            bytes_decoded: self.bytes_decoded.saturating_sub(earlier.bytes_decoded),
            bytes_read: self.bytes_read.saturating_sub(earlier.bytes_read),
            requests: self.requests.saturating_sub(earlier.requests),
            bytes_fetched: self.bytes_fetched.saturating_sub(earlier.bytes_fetched),
            evictions: self.evictions.saturating_sub(earlier.evictions),
            held_bytes: self.held_bytes,
        }
    }
}

/// A value with its weight, as a load returns it.
#[derive(Debug, Clone)]
pub struct Weighed<V> {
    /// What is shared.
    pub value: V,
    /// Its size in bytes, as the budget counts it.
    pub bytes: u64,
}

/// A thread-safe LRU whose values weigh at most `budget` bytes together.
///
/// A value heavier than the whole budget is handed out and not kept, and evicts nothing. Values in use by callers but
/// evicted, and values being loaded, are outside the budget.
pub struct Cache<K, V> {
    budget: u64,
    state: Mutex<CacheContents<K, V>>,
}

struct CacheContents<K, V> {
    held: LruCache<K, Weighed<Arc<V>>>,
    loading: HashMap<K, Arc<Flight<V>>>,
    held_bytes: u64,
    hits: u64,
    misses: u64,
    evictions: u64,
}

/// One load under way, and the place where others wait for it.
struct Flight<V> {
    outcome: Mutex<Option<Result<Arc<V>>>>,
    landed: Condvar,
}

impl<K: Hash + Eq + Copy, V> Cache<K, V> {
    /// A cache that holds at most `budget` bytes; 0 holds nothing, and still loads each key once at a time.
    pub fn new(budget: u64) -> Self {
        let state = CacheContents {
            held: LruCache::unbounded(),
            loading: HashMap::new(),
            held_bytes: 0,
            hits: 0,
            misses: 0,
            evictions: 0,
        };
        Self { budget, state: Mutex::new(state) }
    }

    /// The most that it holds, in bytes.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// The value if it is held, counted as a hit; `None` counts nothing.
    pub fn get(&self, key: K) -> Option<Arc<V>> {
        let mut state = self.lock();
        let value = state.held.get(&key)?.value.clone();
        state.hits += 1;
        Some(value)
    }

    /// The value, loaded on the calling thread if nobody holds or loads it; other threads that ask meanwhile wait for
    /// that load.
    ///
    /// A failed load is not kept: it fails every caller that waited, and the next one tries again. `load` must not wait
    /// for another key of the same cache on another thread's behalf, as a thread pool that steals work inside it would.
    /// A load that failed because its thread [was told to stop](stop) fails nobody else: one of those who waited loads.
    ///
    /// # Errors
    /// What `load` returns; [`ErrorKind::Internal`] if it panicked on another thread; [`ErrorKind::Closed`] if this
    /// thread is told to stop.
    pub fn get_or_load(&self, key: K, load: impl FnOnce() -> Result<Weighed<V>>) -> Result<Arc<V>> {
        let flight = loop {
            let mut state = self.lock();
            if let Some(held) = state.held.get(&key) {
                let value = held.value.clone();
                state.hits += 1;
                return Ok(value);
            }
            let Some(flight) = state.loading.get(&key).cloned() else {
                state.misses += 1;
                let flight = Arc::new(Flight { outcome: Mutex::new(None), landed: Condvar::new() });
                state.loading.insert(key, flight.clone());
                break flight;
            };
            drop(state);
            match flight.wait() {
                Err(error) if error.kind() == ErrorKind::Closed && stop::check().is_ok() => {}
                outcome => {
                    self.lock().hits += 1;
                    return outcome;
                }
            }
        };
        let landing = Landing { cache: self, key, flight: &flight };
        let outcome = load();
        landing.land(outcome)
    }

    /// Counts a look-up that the caller answers without this cache.
    pub fn count_miss(&self) {
        self.lock().misses += 1;
    }

    /// Drops everything held.
    pub fn clear(&self) {
        let mut state = self.lock();
        state.held.clear();
        state.held_bytes = 0;
    }

    /// The counters that a cache knows of: hits, misses, evictions and held bytes.
    pub fn counters(&self) -> Counters {
        let state = self.lock();
        Counters {
            hits: state.hits,
            misses: state.misses,
            evictions: state.evictions,
            held_bytes: state.held_bytes,
            ..Counters::default()
        }
    }

    /// A panic while the lock is held can only come from `K`'s own `Hash` or `Eq`, before anything was changed.
    fn lock(&self) -> MutexGuard<'_, CacheContents<K, V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq + Copy, V> CacheContents<K, V> {
    fn insert(&mut self, key: K, value: Weighed<Arc<V>>, budget: u64) {
        if value.bytes > budget {
            return;
        }
        while self.held_bytes > budget - value.bytes {
            let Some((_, evicted)) = self.held.pop_lru() else { break };
            self.held_bytes -= evicted.bytes;
            self.evictions += 1;
        }
        self.held_bytes += value.bytes;
        self.held.put(key, value);
    }
}

impl<K, V> fmt::Debug for Cache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("budget", &self.budget).finish_non_exhaustive()
    }
}

impl<V> Flight<V> {
    fn wait(&self) -> Result<Arc<V>> {
        let tick = stop::tick().unwrap_or(Duration::MAX);
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(outcome) = &*outcome {
                return outcome.clone();
            }
            stop::check()?;
            outcome = self.landed.wait_timeout(outcome, tick).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Ends a flight exactly once, also when the load panics: nobody may be left waiting.
struct Landing<'a, K: Hash + Eq + Copy, V> {
    cache: &'a Cache<K, V>,
    key: K,
    flight: &'a Flight<V>,
}

impl<K: Hash + Eq + Copy, V> Landing<'_, K, V> {
    fn land(self, outcome: Result<Weighed<V>>) -> Result<Arc<V>> {
        let outcome = outcome.map(|loaded| Weighed { value: Arc::new(loaded.value), bytes: loaded.bytes });
        self.end(outcome.as_ref().ok().cloned(), outcome.map(|loaded| loaded.value))
    }

    fn end(&self, keep: Option<Weighed<Arc<V>>>, outcome: Result<Arc<V>>) -> Result<Arc<V>> {
        let mut state = self.cache.lock();
        if state.loading.remove(&self.key).is_none() {
            return outcome;
        }
        if let Some(keep) = keep {
            state.insert(self.key, keep, self.cache.budget);
        }
        drop(state);
        *self.flight.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome.clone());
        self.flight.landed.notify_all();
        outcome
    }
}

impl<K: Hash + Eq + Copy, V> Drop for Landing<'_, K, V> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let panicked = Error::new(ErrorKind::Internal, "the load of a shared value panicked on another thread");
            let _ = self.end(None, Err(panicked));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use proptest::prelude::*;

    use super::*;
    use crate::stop::Asked;

    fn weighed(bytes: u64) -> Result<Weighed<u64>> {
        Ok(Weighed { value: bytes, bytes })
    }

    #[test]
    fn a_held_value_is_not_loaded_again() {
        let cache = Cache::new(100);
        assert_eq!(*cache.get_or_load(1, || weighed(10)).unwrap(), 10);
        assert_eq!(*cache.get_or_load(1, || panic!("loaded twice")).unwrap(), 10);
        let counters = cache.counters();
        assert_eq!((counters.hits, counters.misses, counters.held_bytes), (1, 1, 10));
    }

    #[test]
    fn the_least_recently_used_value_goes_first() {
        let cache = Cache::new(30);
        for key in 0..3 {
            cache.get_or_load(key, || weighed(10)).unwrap();
        }
        cache.get(0).unwrap();
        cache.get_or_load(3, || weighed(10)).unwrap();
        assert!(cache.get(1).is_none());
        assert!(cache.get(0).is_some() && cache.get(2).is_some() && cache.get(3).is_some());
        assert_eq!(cache.counters().evictions, 1);
    }

    #[test]
    fn a_value_larger_than_the_budget_is_served_and_evicts_nothing() {
        let cache = Cache::new(30);
        cache.get_or_load(1, || weighed(20)).unwrap();
        assert_eq!(*cache.get_or_load(2, || weighed(31)).unwrap(), 31);
        assert!(cache.get(1).is_some());
        assert!(cache.get(2).is_none());
        assert_eq!(cache.counters().held_bytes, 20);
    }

    #[test]
    fn many_threads_that_miss_one_key_load_it_once() {
        let cache = Cache::new(100);
        let loads = AtomicU64::new(0);
        let barrier = Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    barrier.wait();
                    let value = cache.get_or_load(7, || {
                        loads.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        weighed(5)
                    });
                    assert_eq!(*value.unwrap(), 5);
                });
            }
        });
        assert_eq!(loads.into_inner(), 1);
        assert_eq!((cache.counters().hits, cache.counters().misses), (7, 1));
    }

    #[test]
    fn a_failed_load_fails_those_who_waited_and_is_tried_again() {
        let cache = Cache::new(100);
        let failed = cache.get_or_load(1, || Err(Error::new(ErrorKind::Io, "disk on fire")));
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(*cache.get_or_load(1, || weighed(5)).unwrap(), 5);
    }

    /// Loads on a thread that is told to stop once `meanwhile` is done, which is called when the load has begun.
    fn stopped_load(cache: &Cache<u32, u64>, meanwhile: impl FnOnce(&AtomicBool)) {
        let stop = Arc::<AtomicBool>::default();
        let begun = Barrier::new(2);
        std::thread::scope(|scope| {
            let stopped = scope.spawn(|| {
                let asked = Arc::clone(&stop);
                let _asked = Asked::new(move || asked.load(Ordering::Relaxed)).enter();
                cache.get_or_load(1, || {
                    begun.wait();
                    while stop::check().is_ok() {
                        std::thread::yield_now();
                    }
                    stop::check().and_then(|()| weighed(1))
                })
            });
            begun.wait();
            meanwhile(&stop);
            assert_eq!(stopped.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
        });
    }

    #[test]
    fn a_load_that_is_told_to_stop_fails_nobody_else() {
        let cache: Cache<u32, u64> = Cache::new(100);
        std::thread::scope(|scope| {
            stopped_load(&cache, |stop| {
                for _ in 0..3 {
                    scope.spawn(|| assert_eq!(*cache.get_or_load(1, || weighed(5)).unwrap(), 5));
                }
                // Long enough for them to wait for the load, mostly.
                std::thread::sleep(Duration::from_millis(20));
                stop.store(true, Ordering::Relaxed);
            });
        });
        assert_eq!((cache.counters().hits, cache.counters().misses), (2, 2));
    }

    #[test]
    fn who_waits_for_a_load_can_be_told_to_stop() {
        let cache: Cache<u32, u64> = Cache::new(100);
        stopped_load(&cache, |stop| {
            let _asked = Asked::new(|| true).enter();
            assert_eq!(cache.get_or_load(1, || weighed(5)).unwrap_err().kind(), ErrorKind::Closed);
            stop.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_panicking_load_leaves_nobody_waiting() {
        let cache: Cache<u32, u64> = Cache::new(100);
        let entered = Barrier::new(2);
        std::thread::scope(|scope| {
            let panicking = scope.spawn(|| {
                let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    cache.get_or_load(1, || {
                        entered.wait();
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        panic!("decode panicked")
                    })
                }));
                assert!(caught.is_err());
            });
            entered.wait();
            // Either it waited for the load that panics, or it came after and loads by itself.
            let outcome = cache.get_or_load(1, || weighed(5));
            assert!(outcome.is_ok() || outcome.unwrap_err().kind() == ErrorKind::Internal);
            panicking.join().unwrap();
        });
        assert_eq!(*cache.get_or_load(1, || weighed(5)).unwrap(), 5);
    }

    proptest! {
        #[test]
        fn the_cache_agrees_with_a_naive_lru(
            budget in 0u64..60, ops in prop::collection::vec((0u32..12, 1u64..25), 0..200),
        ) {
            let cache = Cache::new(budget);
            let mut weights = HashMap::new();
            let mut model: Vec<(u32, u64)> = vec![];
            for (key, weight) in ops {
                let weight = *weights.entry(key).or_insert(weight);
                let mut loaded = false;
                cache.get_or_load(key, || { loaded = true; weighed(weight) }).unwrap();
                let place = model.iter().position(|entry| entry.0 == key);
                prop_assert_eq!(loaded, place.is_none());
                if let Some(place) = place { model.remove(place); }
                if weight <= budget {
                    while model.iter().map(|entry| entry.1).sum::<u64>() + weight > budget { model.remove(0); }
                    model.push((key, weight));
                }
                prop_assert_eq!(cache.counters().held_bytes, model.iter().map(|entry| entry.1).sum::<u64>());
            }
        }
    }
}
