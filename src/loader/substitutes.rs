//! Rows of other groups in the place of those of a lost one.
//!
//! The walk replaces rows of groups that are known to be lost, and those are then served like any other row. What is
//! here is for the rows that were walked over before the loss was noticed: their substitutes are all over the dataset
//! and were not looked ahead for, so each group that has some is decoded for them. That happens about once for each
//! lost group.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::array::RecordBatch;

use super::extract::wanted;
use super::faults::{Faults, Placed, undecoded};
use super::groups::Groups;
use super::held::{DueRows, Held, pick};
use super::row_table::Near;
use super::salvage::lose;
use rowdex_base::error::Result;
use rowdex_rows::{self as rows, Place};

pub(crate) struct Substitutes<'a> {
    groups: &'a dyn Groups,
    faults: &'a Faults,
    /// A group that is decoded already.
    whole: &'a dyn Fn(u32) -> Option<Held>,
    parts: Vec<RecordBatch>,
    /// Which part has a group's slot, and where.
    at: HashMap<(u32, u32), Place>,
}

impl<'a> Substitutes<'a> {
    pub(crate) fn new(groups: &'a dyn Groups, faults: &'a Faults, whole: &'a dyn Fn(u32) -> Option<Held>) -> Self {
        Self { groups, faults, whole, parts: Vec::new(), at: HashMap::new() }
    }

    /// Stand-ins for these slots of a lost group, one for each. Counts what it decodes.
    pub(crate) fn rows(mut self, group: u32, slots: &[u32], pieces: usize, decodes: &mut u64) -> Result<DueRows> {
        let first = self.groups.first_row(group);
        let rows = loop {
            let resolve = |slot: &u32| self.faults.resolve(first + u64::from(*slot), &mut Near::default(), self.groups);
            let rows = slots.iter().map(resolve).collect::<Result<Vec<Placed>>>()?;
            if self.fetch(&rows, decodes)? {
                break rows;
            }
        };
        let ids: Vec<u64> = rows.iter().map(|(row, _)| *row).collect();
        let places: Vec<Place> =
            rows.iter().map(|(_, place)| self.at.get(place).copied().unwrap_or_default()).collect();
        let parts: Vec<&RecordBatch> = self.parts.iter().collect();
        let batch = rows::gather(&parts, &places, &self.groups.schema())?;
        let all = (0..batch.num_rows() as u32).collect();
        Ok(DueRows::extract(&batch, all, pieces)?.with_ids(&ids))
    }

    /// Gets what is not there yet. `false` if a group among them turns out to be lost, too.
    pub(super) fn fetch(&mut self, rows: &[Placed], decodes: &mut u64) -> Result<bool> {
        let mut wanted: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (_, (group, slot)) in rows.iter().filter(|(_, place)| !self.at.contains_key(place)) {
            wanted.entry(*group).or_default().push(*slot);
        }
        let mut complete = true;
        for (group, mut slots) in wanted {
            slots.sort_unstable();
            slots.dedup();
            let lost = self.faults.lost_slots(group, self.groups);
            // Another thread may have found that some are lost since they were chosen.
            if slots.iter().any(|slot| lost.iter().any(|lost| lost.contains(slot))) {
                complete = false;
                continue;
            }
            match self.read(group, &slots, &lost, decodes) {
                Ok(batch) => {
                    let part = self.parts.len() as u32;
                    self.at.extend((0..).zip(&slots).map(|(row, slot)| ((group, *slot), (part, row))));
                    self.parts.push(batch);
                }
                Err(error) => {
                    if !lose(self.groups, self.faults, group, error.clone(), decodes)? {
                        return Err(error);
                    }
                    complete = false;
                }
            }
        }
        Ok(complete)
    }

    /// Rows of a group, of which none are among those that are `lost`.
    fn read(&self, group: u32, slots: &[u32], lost: &[Range<u32>], decodes: &mut u64) -> Result<RecordBatch> {
        if let Some(whole) = (self.whole)(group) {
            return whole.take(slots, &self.groups.schema());
        }
        let mut slots = slots.to_vec();
        let wanted = wanted(self.groups, group, &mut slots, false, lost);
        *decodes += self.groups.decodes(group, wanted.as_deref());
        let decode = || self.groups.read_whole(group, wanted.as_deref(), None);
        let first = self.groups.row_groups(group).start;
        let batch = catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|_| Err(undecoded(first)))?;
        if batch.num_rows() == slots.len() { Ok(batch) } else { pick(&batch, &slots) }
    }
}
