//! Which bytes the processes of a machine fetch for each other, where these come from a store.

use std::ops::Range;

use super::{DiskCache, length_of, parts_of};
use crate::dataset::prefetch::Prefetch;
use crate::dataset::reader::RowGroupRead;
use rowdex_io::tier::{Fetched, Fetching, Key, Reservation};

impl DiskCache {
    /// Starts reading what decoding a row group takes, so that other processes find it in the tier. `None` where that
    /// gains nothing, or somebody else is reading it.
    pub(super) fn fetch_for_all(&self, read: RowGroupRead<'_>, places: Vec<Range<u64>>) -> Option<Prefetch> {
        let (reader, tier, file) = (&self.reader, &self.tier, &read.group.file);
        let takes = read.decoded_bytes();
        let shared = places == read.chunks() && self.rows_key(read).is_some();
        if !shared || takes > reader.max_decoded_bytes() || !tier.takes(takes) {
            return reader.begin(file, places);
        }
        match tier.reserve(self.chunks_key(read, &places)) {
            // The entry may have been made since it was looked for.
            Reservation::Mine(_) if self.contains(read) => None,
            Reservation::Mine(reserved) => {
                let pending = reader.pending(file, &places)?;
                Some(self.keeper.pass_on(places, pending, reserved))
            }
            Reservation::Taken => None,
            Reservation::Unknown => reader.begin(file, places),
        }
    }

    /// What processes pass on to each other of a row group: its column chunks, unless it is local or pages of it are
    /// enough.
    fn passed_chunks(&self, read: RowGroupRead<'_>) -> Option<Vec<Range<u64>>> {
        let chunks = if self.reader.is_remote() { read.chunks() } else { Vec::new() };
        let whole = !chunks.is_empty()
            && read.all().places(self.reader.max_decoded_bytes()).is_some_and(|places| places == chunks);
        whole.then_some(chunks)
    }

    /// What others have fetched of a row group, waited for or not, or else the right to fetch it.
    pub(super) fn fetched_by_others(&self, read: RowGroupRead<'_>, wait: bool) -> (Option<Prefetch>, Option<Fetching>) {
        let Some(chunks) = self.passed_chunks(read) else { return (None, None) };
        let key = self.chunks_key(read, &chunks);
        let fetched = match wait {
            true => self.tier.fetch(&key),
            false => self.tier.passed(&key).map_or(Fetched::Without, Fetched::Passed),
        };
        match fetched {
            Fetched::Passed(all) if all.len() as u64 == length_of(&chunks) => {
                let parts = parts_of(&chunks, &all);
                (Some(Prefetch::at_hand(chunks, parts)), None)
            }
            Fetched::Mine(fetching) => (None, Some(fetching)),
            Fetched::Passed(_) | Fetched::Without => (None, None),
        }
    }

    /// Deletes what was fetched of a row group whose rows are an entry by now, whoever left it.
    pub(super) fn forget_passed(&self, key: &Key, read: RowGroupRead<'_>) {
        if let Some(chunks) = self.passed_chunks(read)
            && self.tier.contains(key)
        {
            self.tier.forget_passed(&self.chunks_key(read, &chunks));
        }
    }
}
