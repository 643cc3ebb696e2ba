//! Decoded row groups in memory, and when one is worth decoding whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::RecordBatch;

use super::Unshared;
use super::gather::GroupRows;
use super::reader::{RowGroupRead, Slots};
use rowdex_base::cache::{Cache, Counters, Weighed};
use rowdex_base::error::Result;
use rowdex_parquet::{WholeBatch, length_of};

/// The row groups that `get` and `take` hold, the least recently used of which make room for others.
#[derive(Debug)]
pub(super) struct HeldGroups {
    groups: Cache<u32, RecordBatch>,
    bytes: u64,
    /// Bytes that partial reads of each row group have cost so far.
    spent: Cache<u32, AtomicU64>,
}

impl HeldGroups {
    pub(super) fn new(bytes: u64) -> Self {
        /// Row groups whose partial reads are remembered.
        const REMEMBERED: u64 = 1 << 16;
        Self { groups: Cache::new(bytes), bytes, spent: Cache::new(REMEMBERED) }
    }

    pub(super) fn get(&self, row_group: u32) -> Option<Arc<RecordBatch>> {
        self.groups.get(row_group)
    }

    pub(super) fn counters(&self) -> Counters {
        self.groups.counters()
    }

    /// The rows of these slots, strictly increasing, of a row group that is not held: by themselves, or with all
    /// others.
    pub(super) fn load(&self, read: RowGroupRead<'_>, slots: Vec<u32>, state: &Unshared) -> Result<GroupRows> {
        let row_group = read.group.entry.index();
        if self.reads_pages(read, slots.len()) {
            let mut rows = WholeBatch::default();
            let bytes =
                state.read(RowGroupRead { slots: Slots::Some(&slots), keeps: false, ..read }, None, &mut rows)?;
            self.groups.count_miss();
            let spent = self.spent.get_or_load(row_group, || Ok(Weighed { value: AtomicU64::new(0), bytes: 1 }))?;
            spent.fetch_add(bytes, Ordering::Relaxed);
            return Ok(GroupRows::Rows(rows.into_batch()?, slots));
        }
        if let Some(spent) = self.spent.get(row_group) {
            // Bought: should it be evicted, renting starts over.
            spent.store(0, Ordering::Relaxed);
        }
        let whole = self.groups.get_or_load(row_group, || {
            let mut whole = WholeBatch::default();
            state.read(read.all(), None, &mut whole)?;
            let value = whole.into_batch()?;
            let bytes = value.get_array_memory_size() as u64;
            Ok(Weighed { value, bytes })
        })?;
        Ok(GroupRows::Whole(whole))
    }

    /// Whether to read just the pages of these rows, rather than decode the row group and keep it.
    ///
    /// The renter's rule: go on renting (page reads) until the rent paid equals the price (the whole row group), then
    /// buy. Whatever rows come next, that reads at most about twice what the best choice in hindsight would have
    /// (Karlin, Manasse, Rudolph and Sleator, "Competitive snoopy caching", 1988). A row group that the cache cannot
    /// hold is never bought for a few rows.
    fn reads_pages(&self, read: RowGroupRead<'_>, wanted: usize) -> bool {
        /// More rows of one row group at once are a scan in the making, or touch most pages anyway.
        const FEW: u64 = 8;
        /// Pages are rarely smaller than this many rows.
        const ROWS_PER_PAGE: u64 = 64;
        let entry = &read.group.entry;
        let metadata = &read.group.file.metadata;
        if wanted as u64 > FEW.min(entry.rows() / ROWS_PER_PAGE) {
            return false;
        }
        let group = read.group.ordinal();
        if metadata.decoded_bytes(group, Some(read.projection)) > self.bytes {
            return true;
        }
        let price = length_of(&metadata.chunks(group, read.projection, &[]));
        let spent = self.spent.get(entry.index()).map_or(0, |spent| spent.load(Ordering::Relaxed));
        metadata.has_page_positions(group) && spent < price
    }
}
