//! From row ids in any order to row groups, and from row groups back to that order.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_rows::{self as rows, BatchRow, compact, uncopied};

/// The rows of one call, by row group.
#[derive(Debug)]
pub(super) struct GatheredRows {
    groups: Vec<WantedGroup>,
    /// Places in the caller's order, by row group and then by place.
    places: Vec<u32>,
    /// Slots, in the caller's order.
    slots: Vec<u32>,
}

#[derive(Debug)]
pub(super) struct WantedGroup {
    pub(super) row_group: u32,
    /// Its part of `GatheredRows::places`.
    places: Range<usize>,
}

/// Where the rows of one row group come from.
#[derive(Debug)]
pub(super) enum GroupRows {
    /// All its slots.
    Whole(Arc<RecordBatch>),
    /// The rows of these slots only.
    Rows(RecordBatch, Vec<u32>),
}

impl GatheredRows {
    pub(super) fn locate(rows: &[u64], locate: impl Fn(u64) -> Result<(u32, u32)>) -> Result<Self> {
        if u32::try_from(rows.len()).is_err() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("{} rows are too many for one batch", rows.len()),
            )
            .with_hint("take them in several calls"));
        }
        let mut slots = Vec::with_capacity(rows.len());
        // Both halves in one integer sort several times as fast as a pair does.
        let mut keys = Vec::with_capacity(rows.len());
        for (place, &row) in (0u64..).zip(rows) {
            let (row_group, slot) = locate(row)?;
            slots.push(slot);
            keys.push(u64::from(row_group) << 32 | place);
        }
        keys.sort_unstable();
        let mut groups = Vec::new();
        for same in keys.chunk_by(|a, b| a >> 32 == b >> 32) {
            let start = groups.last().map_or(0, |before: &WantedGroup| before.places.end);
            groups.push(WantedGroup { row_group: (same[0] >> 32) as u32, places: start..start + same.len() });
        }
        Ok(Self { groups, places: keys.into_iter().map(|key| key as u32).collect(), slots })
    }

    /// The row groups, in order.
    pub(super) fn groups(&self) -> &[WantedGroup] {
        &self.groups
    }

    /// The slots of a row group, strictly increasing.
    pub(super) fn distinct_slots(&self, group: &WantedGroup) -> Vec<u32> {
        let places = &self.places[group.places.clone()];
        let mut slots: Vec<u32> = places.iter().map(|&place| self.slots[place as usize]).collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// The rows in the caller's order, of the types in `output`; `pieces` has each row group's rows with its place in
    /// [`groups`](Self::groups).
    pub(super) fn assemble(&self, output: &SchemaRef, pieces: &[(usize, GroupRows)]) -> Result<RecordBatch> {
        let mut rows = vec![(0, 0); self.slots.len()];
        for (batch, (group, piece)) in (0u32..).zip(pieces) {
            for &place in &self.places[self.groups[*group].places.clone()] {
                let slot = self.slots[place as usize];
                rows[place as usize] = match piece {
                    GroupRows::Whole(_) => (batch, slot),
                    GroupRows::Rows(_, slots) => (batch, slots.partition_point(|&at| at < slot) as u32),
                };
            }
        }
        let batches: Vec<&RecordBatch> = pieces.iter().map(|(_, piece)| piece.batch()).collect();
        gather(&batches, &rows, output)
    }
}

impl GroupRows {
    pub(super) fn batch(&self) -> &RecordBatch {
        match self {
            GroupRows::Whole(batch) => batch,
            GroupRows::Rows(batch, _) => batch,
        }
    }
}

/// The rows at these places, of the types in `output`, in memory of their own.
pub(super) fn gather(batches: &[&RecordBatch], places: &[BatchRow], output: &SchemaRef) -> Result<RecordBatch> {
    compact(rows::gather(batches, places, output)?).map_err(uncopied)
}
