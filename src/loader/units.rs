//! Small row groups as one: what is planned, read, decoded, held and picked from at once.
//!
//! A row group costs something to plan, read, decode and pick from, however few rows it has. So neighbouring row groups
//! of one file are joined to a *unit* until that cost no longer matters. The rest of the loader knows units by their
//! numbers and calls them groups. What concerns a row group alone still does: an error names it, it is lost alone, and
//! counters count it.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::groups::{Fetch, Groups};
use super::plan::GroupSize;
use crate::dataset::{Prefetch, RunPart};
use rowdex_base::error::Result;
use rowdex_io::source::Link;
use rowdex_parquet::RowSink;

/// Decoded bytes of a unit, at most: the cost of a unit is small beside that of its bytes.
const UNIT_BYTES: u64 = 1 << 20;
/// A unit is at most this part of the memory, because some are decoded besides the rows that are held.
const PART_OF_MEMORY: u64 = 32;
/// Rows of a unit, at most, where they have hardly any bytes.
const UNIT_ROWS: u64 = 1 << 20;

/// Row groups of which neighbours are joined.
#[derive(Debug)]
pub(crate) struct Units {
    groups: Arc<dyn Groups>,
    /// The first row group of each unit, and the number of all row groups.
    starts: Vec<u32>,
    /// The unit of each row group.
    unit_of: Vec<u32>,
    /// The slots of each row group in its unit.
    slots: Vec<Range<u32>>,
    sizes: Vec<GroupSize>,
}

/// Joins small row groups for a loader with so much memory; returns `groups` if there are none that can be joined.
pub(crate) fn joined(groups: Arc<dyn Groups>, memory: u64) -> Arc<dyn Groups> {
    joined_up_to(groups, UNIT_BYTES.min(memory / PART_OF_MEMORY))
}

/// Joins row groups to units of at most so many decoded bytes.
pub(super) fn joined_up_to(groups: Arc<dyn Groups>, most: u64) -> Arc<dyn Groups> {
    let count = groups.count();
    let (mut starts, mut unit_of, mut slots) = (Vec::new(), Vec::new(), Vec::new());
    let mut sizes: Vec<GroupSize> = Vec::new();
    for group in 0..count {
        let own = groups.size(group);
        let fits = |unit: &&mut GroupSize| {
            unit.bytes.max(unit.cost).saturating_add(own.bytes.max(own.cost)) <= most
                && unit.rows.saturating_add(own.rows) <= UNIT_ROWS
        };
        let unit = sizes.last_mut().filter(|_| groups.follows(group)).filter(fits);
        match unit {
            Some(unit) => {
                slots.push(unit.rows as u32..(unit.rows + own.rows) as u32);
                unit.rows += own.rows;
                unit.bytes += own.bytes;
                unit.cost += own.cost;
            }
            None => {
                starts.push(group);
                slots.push(0..u32::try_from(own.rows).unwrap_or(u32::MAX));
                sizes.push(own);
            }
        }
        unit_of.push(starts.len() as u32 - 1);
    }
    if starts.len() == count as usize {
        return groups;
    }
    starts.push(count);
    Arc::new(Units { groups, starts, unit_of, slots, sizes })
}

impl Units {
    /// What to read of each row group for these slots of a unit, which are strictly increasing.
    fn parts(&self, unit: u32, slots: Option<&[u32]>) -> Vec<RunPart> {
        let row_groups = self.row_groups(unit);
        let part = |row_group: u32| {
            let own = self.slots_of(row_group);
            let Some(all) = slots else {
                return (!own.is_empty()).then_some(RunPart { row_group, slots: None });
            };
            let some = &all[all.partition_point(|slot| *slot < own.start)..all.partition_point(|slot| *slot < own.end)];
            let relative = || some.iter().map(|slot| slot - own.start).collect();
            let slots = (some.len() < own.len()).then(relative);
            (!some.is_empty()).then_some(RunPart { row_group, slots })
        };
        let parts: Vec<RunPart> = row_groups.clone().filter_map(part).collect();
        if parts.is_empty() {
            // A read without rows still says of which types they would be.
            let slots = slots.map(|_| Vec::new());
            return vec![RunPart { row_group: row_groups.start, slots }];
        }
        parts
    }
}

impl Groups for Units {
    fn count(&self) -> u32 {
        self.sizes.len() as u32
    }

    fn num_row_groups(&self) -> u32 {
        self.groups.num_row_groups()
    }

    fn row_groups(&self, unit: u32) -> Range<u32> {
        let place = |unit: usize| self.starts.get(unit).copied().unwrap_or_default();
        place(unit as usize)..place(unit as usize + 1)
    }

    fn slots_of(&self, row_group: u32) -> Range<u32> {
        self.slots.get(row_group as usize).cloned().unwrap_or_default()
    }

    fn size(&self, unit: u32) -> GroupSize {
        self.sizes.get(unit as usize).copied().unwrap_or_default()
    }

    fn fetch(&self, unit: u32, some: Option<(u64, u64)>) -> Fetch {
        let row_groups = self.row_groups(unit);
        if row_groups.len() == 1 {
            return self.groups.fetch(row_groups.start, some);
        }
        let with_rows: Vec<u32> = row_groups.filter(|group| !self.slots_of(*group).is_empty()).collect();
        let touched = match some {
            None => with_rows,
            Some((_, runs)) => {
                // Runs at random places, each about in one row group.
                let count = with_rows.len() as f64;
                let touched = (count * (1.0 - (1.0 - 1.0 / count.max(1.0)).powf(runs as f64))).round();
                let touched = (touched as usize).clamp(1, with_rows.len().max(1));
                (0..touched).filter_map(|at| with_rows.get(at * with_rows.len() / touched).copied()).collect()
            }
        };
        self.groups.fetch_run(&touched)
    }

    fn fetch_due(&self, unit: u32, rows: u64) -> Fetch {
        let row_groups = self.row_groups(unit);
        if row_groups.len() == 1 { self.groups.fetch_due(row_groups.start, rows) } else { self.fetch(unit, None) }
    }

    fn fetch_run(&self, row_groups: &[u32]) -> Fetch {
        self.groups.fetch_run(row_groups)
    }

    fn opening_requests(&self) -> u64 {
        self.groups.opening_requests()
    }

    fn locate(&self, row: u64) -> Option<(u32, u32)> {
        let (row_group, slot) = self.groups.locate(row)?;
        let first = self.slots.get(row_group as usize)?.start;
        Some((*self.unit_of.get(row_group as usize)?, first + slot))
    }

    fn first_row(&self, unit: u32) -> u64 {
        self.groups.first_row(self.row_groups(unit).start)
    }

    fn schema(&self) -> SchemaRef {
        self.groups.schema()
    }

    fn read(&self, unit: u32, slots: Option<&[u32]>, prefetch: Option<Prefetch>, sink: &mut dyn RowSink) -> Result<()> {
        match self.parts(unit, slots).as_slice() {
            [only] => self.groups.read(only.row_group, only.slots.as_deref(), prefetch, sink),
            parts => self.groups.read_run(parts, prefetch, sink),
        }
    }

    fn decodes_due(&self, unit: u32) -> bool {
        let row_groups = self.row_groups(unit);
        row_groups.len() == 1 && self.groups.decodes_due(row_groups.start)
    }

    fn reads_alone(&self, unit: u32) -> bool {
        let row_groups = self.row_groups(unit);
        row_groups.len() == 1 && self.groups.reads_alone(row_groups.start)
    }

    fn places_bytes(&self, unit: u32) -> u64 {
        let row_groups = self.row_groups(unit);
        if row_groups.len() == 1 { self.groups.places_bytes(row_groups.start) } else { 0 }
    }

    fn read_due(&self, unit: u32, slots: &[u32], prefetch: Option<Prefetch>, sink: &mut dyn RowSink) -> Result<()> {
        self.groups.read_due(self.row_groups(unit).start, slots, prefetch, sink)
    }

    fn decodes(&self, unit: u32, slots: Option<&[u32]>) -> u64 {
        self.parts(unit, slots).len() as u64
    }

    fn shares_values(&self) -> bool {
        self.groups.shares_values()
    }

    fn chunks_are_own(&self) -> bool {
        self.groups.chunks_are_own()
    }

    fn served_schema(&self) -> SchemaRef {
        self.groups.served_schema()
    }

    fn output(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        self.groups.output(batch)
    }

    fn is_remote(&self) -> bool {
        self.groups.is_remote()
    }

    fn link(&self) -> Option<Link> {
        self.groups.link()
    }

    fn prefetch(&self, unit: u32, slots: Option<&[u32]>) -> Option<Prefetch> {
        match self.parts(unit, slots).as_slice() {
            [only] => self.groups.prefetch(only.row_group, only.slots.as_deref()),
            // What is joined is not read ahead.
            _ => None,
        }
    }
}
