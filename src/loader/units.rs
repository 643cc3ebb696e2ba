//! Units: what is planned, read, decoded, held and picked from at once.
//!
//! A row group costs something to plan, read, decode and pick from, however few rows it has. So neighbouring row groups
//! of one file are joined to a *unit* until that cost no longer matters; others are units of their own. The loader
//! knows units by their numbers. What concerns a row group alone still does: an error names it, it is lost alone, and
//! counters count it.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Fields, Schema, SchemaRef};

use super::groups::{FetchCost, Groups, LongValues, Reads, RowForm, Unit, UnitSize};
use super::packing::ServedPacks;
use super::route::has_long_values;
use crate::dataset::{Prefetch, RunPart, Slots};
use rowdex_base::error::Result;
use rowdex_order::sampler::DistributedSampler;
use rowdex_parquet::{RowSink, finish};
use rowdex_rows::{self as rows, Cutting, Dictionaries, Elsewhere, Layout, Sharing};

/// Decoded bytes of a unit, at most: the cost of a unit is small beside that of its bytes.
const UNIT_BYTES: u64 = 1 << 20;
/// A unit is at most this part of the memory, because some are decoded besides the rows that are held.
const PART_OF_MEMORY: u64 = 32;
/// Rows of a unit, at most, where they have hardly any bytes.
const UNIT_ROWS: u64 = 1 << 20;

/// The units of a loader.
#[derive(Debug)]
pub(crate) struct Units {
    /// The row groups that they are made of.
    pub(super) groups: Arc<dyn Groups>,
    /// In which form their rows come.
    pub(super) form: RowForm,
    /// Those that several units have, if columns have some.
    pub(super) dictionaries: Option<Dictionaries>,
    /// The first row group of each unit, and the number of all row groups.
    starts: Vec<u32>,
    /// The slots of each row group in its unit.
    slots: Vec<Range<u32>>,
    /// How large each unit is.
    pub(super) sizes: Vec<UnitSize>,
    table: Arc<RowTable>,
    /// How rows are packed, if their columns can be. Pieces of rows are cut in columns.
    pub(super) layout: Option<Arc<Layout>>,
    /// If pieces of rows are served.
    pub(super) packing: Option<Arc<ServedPacks>>,
}

impl Units {
    /// Joins small row groups for a loader with so much memory.
    pub(crate) fn joined(groups: Arc<dyn Groups>, memory: u64) -> Self {
        Self::new(groups, Some(UNIT_BYTES.min(memory / PART_OF_MEMORY)))
    }

    /// Joins row groups to units of at most so many decoded bytes; `None`: each is a unit.
    pub(crate) fn new(groups: Arc<dyn Groups>, most: Option<u64>) -> Self {
        let mut starts = Vec::new();
        let mut slots = Vec::new();
        let mut sizes: Vec<UnitSize> = Vec::new();
        for row_group in 0..groups.count() {
            let own = groups.unit(row_group).size;
            let fits = |unit: &&mut UnitSize| {
                most.is_some_and(|most| unit.bytes.max(unit.cost).saturating_add(own.bytes.max(own.cost)) <= most)
                    && unit.rows.saturating_add(own.rows) <= UNIT_ROWS
                    && groups.follows(row_group)
            };
            let before = match sizes.last_mut().filter(fits) {
                Some(unit) => {
                    let before = unit.rows;
                    unit.rows += own.rows;
                    unit.bytes += own.bytes;
                    unit.cost += own.cost;
                    before
                }
                None => {
                    starts.push(row_group);
                    sizes.push(own);
                    0
                }
            };
            let slot = |row: u64| u32::try_from(row).unwrap_or(u32::MAX);
            slots.push(slot(before)..slot(before + own.rows));
        }
        starts.push(groups.count());
        let table = Arc::new(RowTable::new(sizes.iter().map(|size| size.rows)));
        let form = groups.form();
        let layout = Layout::of(&form.decoded, &form.served);
        Self { groups, form, dictionaries: None, starts, slots, sizes, table, layout, packing: None }
    }

    /// The same of which dictionaries are shared, for a loader with so much memory.
    pub(crate) fn sharing_dictionaries(self, memory: u64) -> Self {
        let dictionaries = rows::has_dictionaries(&self.form.decoded).then(|| Dictionaries::within(memory));
        Self { dictionaries, ..self }
    }

    /// The same with lists of offsets in these columns, which are names or paths, whatever lists they are in the files:
    /// a part of a list of a fixed size is none of that size.
    pub(crate) fn with_lists(self, columns: &[String]) -> Self {
        match (rows::listed(&self.form.decoded, columns), rows::listed(&self.form.served, columns)) {
            (Some(decoded), Some(served)) => {
                Self { form: RowForm { decoded, served, is_adapted: true, ..self.form }, ..self }
            }
            _ => self,
        }
    }

    /// What counts with all units rather than with one.
    pub(crate) fn elsewhere(&self) -> Elsewhere {
        self.dictionaries.as_ref().map_or_else(Elsewhere::default, Dictionaries::elsewhere)
    }

    /// The same, of which pieces are served.
    pub(crate) fn with_packing(self, packing: Option<ServedPacks>) -> Self {
        let layout = self.layout.filter(|_| packing.is_none());
        Self { packing: packing.map(Arc::new), layout, ..self }
    }

    /// How many units there are.
    pub(crate) fn count(&self) -> u32 {
        self.sizes.len() as u32
    }

    /// How rows that wait are cut into pieces, as most of them are.
    pub(crate) fn cutting(&self) -> Cutting {
        let all = self.sizes.iter().fold(UnitSize::default(), |sum, size| UnitSize {
            rows: sum.rows.saturating_add(size.rows),
            bytes: sum.bytes.saturating_add(size.bytes),
            cost: 0,
        });
        let has_long_values = has_long_values(all, self.form.decoded.fields().len());
        match self.layout.is_some() && !has_long_values {
            true => Cutting::Packed,
            false => Cutting::of(&self.form.decoded, has_long_values),
        }
    }

    /// What is known of a unit. Rows of joined row groups are not decoded alone.
    pub(crate) fn unit(&self, unit: u32) -> Unit {
        let row_groups = self.row_groups(unit);
        match row_groups.len() {
            1 => self.groups.unit(row_groups.start),
            _ => Unit { size: self.size(unit), ..Unit::default() },
        }
    }

    /// How large a unit is.
    pub(crate) fn size(&self, unit: u32) -> UnitSize {
        self.sizes.get(unit as usize).copied().unwrap_or_default()
    }

    /// The row id of a unit's first slot; those of the others follow.
    pub(crate) fn first_row(&self, unit: u32) -> u64 {
        self.table.first_row(unit)
    }

    /// How large each unit is, counted in what may be due: rows, or pieces of them.
    pub(crate) fn due_sizes(&self) -> Vec<UnitSize> {
        let pieces = self.packing.as_ref().map_or(1.0, |packing| packing.pieces_per_row);
        let due = |size: &UnitSize| UnitSize { rows: (size.rows as f64 * pieces).ceil() as u64, ..*size };
        self.sizes.iter().map(due).collect()
    }

    /// About how many rows, or pieces of rows, a batch of a sampler has.
    pub(crate) fn rows_of_batch(&self, sampler: &DistributedSampler) -> u64 {
        let pieces = self.packing.as_ref().map_or(1.0, |packing| packing.pieces_per_pack);
        ((sampler.batch_size() as f64 * pieces).ceil() as u64).min(sampler.orders().len()).max(1)
    }

    /// The row groups of a unit.
    pub(crate) fn row_groups(&self, unit: u32) -> Range<u32> {
        let start = |unit: usize| self.starts.get(unit).copied().unwrap_or_default();
        start(unit as usize)..start(unit as usize + 1)
    }

    /// The slots that the rows of a row group have in their unit.
    pub(crate) fn slots_of(&self, row_group: u32) -> Range<u32> {
        self.slots.get(row_group as usize).cloned().unwrap_or_default()
    }

    /// The row group that a slot of a unit is of.
    pub(crate) fn row_group_of(&self, unit: u32, slot: u32) -> u32 {
        let Range { mut start, mut end } = self.row_groups(unit);
        // The last one that does not begin behind the slot; what is empty ends where it begins.
        while end.saturating_sub(start) > 1 {
            let middle = start + (end - start) / 2;
            if self.slots_of(middle).start <= slot { start = middle } else { end = middle }
        }
        start
    }

    /// What is known of the long values of a unit. Those of joined row groups are not read one by one.
    pub(crate) fn long_values(&self, unit: u32) -> LongValues {
        let row_groups = self.row_groups(unit);
        if row_groups.len() == 1 { self.groups.long_values(row_groups.start) } else { LongValues::default() }
    }

    /// Bytes that are kept at most of where long values lie.
    pub(crate) fn places_bytes(&self) -> u64 {
        (0..self.count()).map(|unit| self.long_values(unit).places_bytes).sum()
    }

    /// The unit of a row id, and the row's slot in it; `None` if there is no such row.
    pub(crate) fn locate(&self, row: u64) -> Option<(u32, u32)> {
        self.table.locate(row)
    }

    /// The same for one row after the other.
    pub(crate) fn finder(&self) -> RowFinder {
        RowFinder::new(Arc::clone(&self.table))
    }

    /// About what is read to decode rows of a unit.
    pub(crate) fn fetch(&self, unit: u32, reads: Reads) -> FetchCost {
        let mut row_groups: Vec<u32> = self.row_groups(unit).collect();
        if row_groups.len() > 1 {
            row_groups.retain(|row_group| !self.slots_of(*row_group).is_empty());
            if let Reads::Some(_, runs) = reads {
                // Runs at random places, each about in one row group.
                let count = row_groups.len();
                let all = count as f64;
                let touched = (all * (1.0 - (1.0 - 1.0 / all.max(1.0)).powf(runs as f64))).round();
                let touched = (touched as usize).clamp(1, count.max(1));
                row_groups = (0..touched).filter_map(|at| row_groups.get(at * count / touched).copied()).collect();
            }
        }
        self.groups.fetch(&row_groups, reads)
    }

    /// Reads and decodes rows of a unit on the calling thread, and hands them to the sink. What was read ahead is used.
    /// Returns how many row groups were decoded.
    pub(crate) fn read(
        &self,
        unit: u32,
        slots: Slots<'_>,
        prefetch: Option<Prefetch>,
        sink: &mut dyn RowSink,
    ) -> Result<u64> {
        let schema = self.form.is_adapted.then_some(&self.form.decoded);
        let sharing = self.dictionaries.as_ref().map(|dictionaries| dictionaries.of_unit(unit));
        let mut adapting = UnitSink { schema, first: 0, sharing, sink };
        let sink: &mut dyn RowSink =
            if schema.is_some() || adapting.sharing.is_some() { &mut adapting } else { adapting.sink };
        let row_groups = self.row_groups(unit);
        if row_groups.len() == 1 {
            return self.groups.read(row_groups.start, slots, prefetch, sink).map(|()| 1);
        }
        let parts = self.parts(unit, slots);
        let decoded = parts.len() as u64;
        match parts.as_slice() {
            [RunPart { row_group, slots }] => self.groups.read(*row_group, some(slots.as_deref()), prefetch, sink)?,
            _ => self.groups.read_run(parts, sink)?,
        }
        Ok(decoded)
    }

    /// How many row groups of a unit have rows.
    pub(crate) fn filled(&self, unit: u32) -> u64 {
        self.row_groups(unit).filter(|row_group| !self.slots_of(*row_group).is_empty()).count() as u64
    }

    /// Starts reading what [`read`](Self::read) will read; `None` where that gains nothing, as where row groups were
    /// joined.
    pub(crate) fn prefetch(&self, unit: u32, slots: Slots<'_>) -> Option<Prefetch> {
        let row_groups = self.row_groups(unit);
        if row_groups.len() == 1 {
            return self.groups.prefetch(row_groups.start, slots);
        }
        match self.parts(unit, slots).as_slice() {
            [RunPart { row_group, slots }] => self.groups.prefetch(*row_group, some(slots.as_deref())),
            _ => None,
        }
    }

    /// What to read of each row group of a unit.
    fn parts(&self, unit: u32, slots: Slots<'_>) -> Vec<RunPart> {
        let row_groups = self.row_groups(unit);
        let part = |row_group: u32| {
            let own = self.slots_of(row_group);
            let (Slots::Some(all) | Slots::Due(all)) = slots else {
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
            let slots = (!matches!(slots, Slots::All)).then(Vec::new);
            return vec![RunPart { row_group: row_groups.start, slots }];
        }
        parts
    }
}

/// A sink of rows that are brought to the form in which a unit has them.
struct UnitSink<'a> {
    /// The types that they are brought to, if they come in others: those that several datasets have in common, and
    /// lists of offsets.
    schema: Option<&'a SchemaRef>,
    /// The first column of the next chunk.
    first: usize,
    /// If dictionaries are shared.
    sharing: Option<Sharing<'a>>,
    sink: &'a mut dyn RowSink,
}

impl RowSink for UnitSink<'_> {
    fn chunk_rows(&self) -> usize {
        self.sink.chunk_rows()
    }

    fn columns_at_once(&self) -> Option<usize> {
        self.sink.columns_at_once()
    }

    fn begin_columns(&mut self, first: usize) -> Result<()> {
        self.first = first;
        self.sink.begin_columns(first)
    }

    fn values_are_own(&mut self) {
        self.sink.values_are_own();
    }

    fn places_are_kept(&mut self, bytes: u64) {
        self.sink.places_are_kept(bytes);
    }

    fn pages_took(&mut self, bytes: u64) {
        self.sink.pages_took(bytes);
    }

    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        let chunk = match self.schema {
            Some(schema) if chunk.num_columns() == schema.fields().len() => finish(&chunk, schema)?,
            Some(schema) => {
                let part = schema.fields().iter().skip(self.first).take(chunk.num_columns()).cloned();
                finish(&chunk, &Arc::new(Schema::new(part.collect::<Fields>())))?
            }
            None => chunk,
        };
        self.sink.take(match &mut self.sharing {
            Some(sharing) => sharing.share(chunk)?,
            None => chunk,
        })
    }
}

/// These slots, or all.
pub(crate) fn some(slots: Option<&[u32]>) -> Slots<'_> {
    slots.map_or(Slots::All, Slots::Some)
}

/// Where the units begin, for orders that ask for one row after the other from anywhere.
///
/// An index finds a row group in an array of all that it knows of row groups. Here is one array of where units begin,
/// small enough to stay in the core's cache, and a guide: for every run of so many rows, the units that it meets. With
/// as many runs as units there is about one unit to look at.
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
    fn first_row(&self, unit: u32) -> u64 {
        self.starts.get(unit as usize).copied().unwrap_or_default()
    }

    /// The unit of a row and the row's slot in it; `None` if there is no such row.
    fn locate(&self, row: u64) -> Option<(u32, u32)> {
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
