//! Which unit a row is in, for orders that ask for one row after the other from anywhere.
//!
//! An index finds a row group in an array of all that it knows of row groups. Here is one array of where units begin,
//! small enough to stay in the core's cache, and a guide: for every run of so many rows, the units that it meets. With
//! as many runs as units there is about one unit to look at.

use std::sync::Arc;

/// Where the units begin.
#[derive(Debug)]
pub(crate) struct RowTable {
    /// The first row of each unit, and the number of all rows.
    starts: Vec<u64>,
    /// For each run of `2^shift` rows the unit of its first row, and the last unit behind all.
    guide: Vec<u32>,
    shift: u32,
}

impl RowTable {
    /// Units of so many rows each, one after the other.
    pub(crate) fn new(rows: impl Iterator<Item = u64>) -> Self {
        let mut end = 0_u64;
        let ends = rows.map(|rows| {
            end = end.saturating_add(rows);
            end
        });
        let starts: Vec<u64> = std::iter::once(0).chain(ends).collect();
        let count = starts.len().saturating_sub(1);
        let runs = count.max(1).next_power_of_two() as u64;
        let shift = (end / runs).checked_ilog2().map_or(0, |log| log + 1);
        let mut guide = Vec::new();
        let mut unit = 0;
        for run in 0..=end >> shift {
            while starts.get(unit + 1).is_some_and(|next| *next <= run << shift) && unit + 1 < count {
                unit += 1;
            }
            guide.push(unit as u32);
        }
        guide.push(count.saturating_sub(1) as u32);
        Self { starts, guide, shift }
    }

    /// The first row of a unit.
    pub(crate) fn first_row(&self, unit: u32) -> u64 {
        self.starts.get(unit as usize).copied().unwrap_or_default()
    }

    /// The unit of a row and the row's slot in it; `None` if there is no such row.
    pub(crate) fn locate(&self, row: u64) -> Option<(u32, u32)> {
        if row >= *self.starts.last()? {
            return None;
        }
        let run = (row >> self.shift) as usize;
        let first = *self.guide.get(run)? as usize;
        let last = *self.guide.get(run + 1)? as usize;
        let behind = self.starts.get(first + 1..=last)?.partition_point(|start| *start <= row);
        let unit = first + behind;
        Some((unit as u32, (row - self.starts.get(unit)?) as u32))
    }
}

/// Where the last row was. Rows that follow each other are found in a step, however many units there are.
#[derive(Debug)]
pub(crate) struct RowFinder {
    table: Arc<RowTable>,
    unit: u32,
    first: u64,
    rows: u64,
    /// The row that would follow.
    next: u64,
}

impl RowFinder {
    pub(crate) fn new(table: Arc<RowTable>) -> Self {
        Self { table, unit: 0, first: 0, rows: 0, next: 0 }
    }

    /// As [`RowTable::locate`].
    pub(crate) fn locate(&mut self, row: u64) -> Option<(u32, u32)> {
        let slot = row.wrapping_sub(self.first);
        if slot < self.rows {
            return Some((self.unit, slot as u32));
        }
        let follows = row == self.next;
        self.next = row.wrapping_add(1);
        let (unit, slot) = self.table.locate(row)?;
        // A shuffled order never pays for what only others use.
        self.rows = 0;
        if follows {
            let first = row - u64::from(slot);
            self.next = self.table.first_row(unit + 1);
            (self.unit, self.first, self.rows) = (unit, first, self.next - first);
        }
        Some((unit, slot))
    }

    /// How many rows of its unit begin with this one, or fewer, but 1 at least.
    pub(crate) fn following(&self, row: u64) -> u64 {
        self.rows.saturating_sub(row.wrapping_sub(self.first)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_row_is_found_whatever_the_groups_are(
            sizes in prop::collection::vec(prop_oneof![0_u64..4, 0_u64..1000, Just(1 << 40)], 0..60),
        ) {
            let mut starts = vec![0];
            sizes.iter().for_each(|rows| starts.push(starts.last().unwrap() + rows));
            let table = RowTable::new(sizes.iter().copied());
            for (group, pair) in starts.windows(2).enumerate() {
                let [first, last] = [pair[0], pair[1].wrapping_sub(1)];
                if pair[0] < pair[1] {
                    prop_assert_eq!(table.locate(first), Some((group as u32, 0)));
                    prop_assert_eq!(table.locate(last), Some((group as u32, (last - first) as u32)));
                }
            }
            prop_assert_eq!(table.locate(*starts.last().unwrap()), None);
            prop_assert_eq!(table.locate(u64::MAX), None);
            // No more runs than twice as many as groups, and two.
            prop_assert!(table.guide.len() <= 2 * sizes.len().max(1).next_power_of_two() + 2);
        }
    }
}
