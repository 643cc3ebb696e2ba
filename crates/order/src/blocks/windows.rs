//! The shuffles inside windows, and those of them that are kept.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

use lru::LruCache;

use crate::permutation::{Permutation, PermutationKey};

/// Rows of kept shuffles, at 4 bytes each: 64 MiB.
const KEPT_ROWS: u64 = 1 << 24;

/// Shuffles kept, however short.
const KEPT: u64 = 1 << 12;

/// The shuffle of each window of an epoch.
#[derive(Debug)]
pub(super) struct WindowShuffles {
    key: PermutationKey,
    kept: Mutex<LruCache<u64, Arc<Permutation>>>,
}

impl WindowShuffles {
    /// `count` windows of at most `longest` rows.
    pub(super) fn new(key: PermutationKey, longest: u64, count: u64) -> Self {
        let room = (KEPT_ROWS / longest.clamp(1, Permutation::MAX_TABLE)).min(KEPT).min(count);
        let room = NonZeroUsize::new(room as usize).unwrap_or(NonZeroUsize::MIN);
        Self { key, kept: Mutex::new(LruCache::new(room)) }
    }

    /// The shuffle of a window of `len` rows.
    ///
    /// Never waits: whoever finds the kept ones locked makes its own. So a process forked while another thread held the
    /// lock goes on, too.
    pub(super) fn get(&self, number: u64, len: u64) -> Arc<Permutation> {
        let make = || Arc::new(Permutation::new(len, &self.key.numbered(number)));
        if len > Permutation::MAX_TABLE {
            return make();
        }
        if let Ok(mut kept) = self.kept.try_lock()
            && let Some(held) = kept.get(&number)
        {
            return Arc::clone(held);
        }
        let made = make();
        if let Ok(mut kept) = self.kept.try_lock() {
            kept.put(number, Arc::clone(&made));
        }
        made
    }
}
