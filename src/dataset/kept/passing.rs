//! Which bytes the processes of a machine fetch for each other, where these come from a store.

use std::ops::Range;

use super::{DatasetTier, Group, Kept, length_of, parts_of};
use crate::dataset::ahead::Ahead;
use crate::dataset::{Inner, Slots};
use crate::tier::{Fetched, Fetching, Key, Reservation, Tier, TierKind};

impl Inner {
    /// Starts reading what decoding a row group takes, by the tier: other processes find it there. `None` where that gains nothing, or
    /// somebody else is reading it.
    pub(in crate::dataset) fn read_by_tier(
        &self,
        tier: &DatasetTier,
        group: &Group<'_>,
        places: Vec<Range<u64>>,
    ) -> Option<Ahead> {
        let is_entry = tier.tier.kind() == TierKind::Fetched;
        let takes = if is_entry { length_of(&places) } else { group.decoded_bytes() };
        let shared = places == group.chunks() && (is_entry || self.rows_key(tier, group).is_some());
        if !shared || takes > self.decode.max_decoded_bytes || !tier.tier.takes(takes) {
            return Ahead::begin(&*self.source, group.file, places);
        }
        match tier.tier.reserve(self.chunks_key(group, &places), is_entry) {
            // The entry may have been made since it was looked for.
            Reservation::Mine(_) if self.is_kept(tier, group) => None,
            Reservation::Mine(reserved) => {
                let pending = group.file.begin(&*self.source, &places)?;
                Some(tier.keeper.pass_on(places, pending, reserved))
            }
            Reservation::Taken => None,
            Reservation::Unknown => Ahead::begin(&*self.source, group.file, places),
        }
    }

    /// What processes pass on to each other of a row group: its column chunks, unless it is local or pages of it are enough.
    fn passed_chunks(&self, group: &Group<'_>) -> Option<Vec<Range<u64>>> {
        let chunks = if self.source.is_remote() { group.chunks() } else { Vec::new() };
        let whole = !chunks.is_empty() && self.places(group, Slots::All).is_some_and(|places| places == chunks);
        whole.then_some(chunks)
    }

    /// What others have fetched of a row group, waited for or not, or else the right to fetch it.
    pub(super) fn fetched_by_others(
        &self,
        tier: &Tier<Kept>,
        group: &Group<'_>,
        wait: bool,
    ) -> (Option<Ahead>, Option<Fetching>) {
        let Some(chunks) = self.passed_chunks(group) else { return (None, None) };
        let key = self.chunks_key(group, &chunks);
        let fetched = match wait {
            true => tier.fetch(&key),
            false => tier.passed(&key).map_or(Fetched::Without, Fetched::Passed),
        };
        match fetched {
            Fetched::Passed(all) if all.len() as u64 == length_of(&chunks) => {
                let parts = parts_of(&chunks, &all);
                (Some(Ahead::at_hand(chunks, parts)), None)
            }
            Fetched::Mine(fetching) => (None, Some(fetching)),
            Fetched::Passed(_) | Fetched::Without => (None, None),
        }
    }

    /// Deletes what was fetched of a row group whose rows are an entry by now, whoever left it.
    pub(super) fn forget_passed(&self, tier: &Tier<Kept>, key: &Key, group: &Group<'_>) {
        if let Some(chunks) = self.passed_chunks(group)
            && tier.contains(key)
        {
            tier.forget_passed(&self.chunks_key(group, &chunks));
        }
    }
}
