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
use super::row_table::{RowFinder, RowTable};
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
        match &self.packing {
            Some(packing) => packing.sizes(&self.sizes),
            None => self.sizes.clone(),
        }
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
            _ => self.groups.read_run(parts, prefetch, sink)?,
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
