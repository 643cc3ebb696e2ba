//! What the loader needs of a dataset: sizes, places and decoded rows.

use std::sync::OnceLock;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::plan::GroupSize;
use crate::Result;
use crate::dataset::{Dataset, Slots};
use crate::index::RowGroupEntry;
use crate::projection::Projection;
use crate::row_group::ReadCost;

/// Row groups that can be decoded one by one.
///
/// The loader sees a dataset only through this, so that it can be tested on sources that are slow, count, or fail.
pub(crate) trait Groups: std::fmt::Debug + Send + Sync {
    /// How many row groups there are.
    fn count(&self) -> u32;

    /// How large one is.
    fn size(&self, group: u32) -> GroupSize;

    /// About how many bytes are read to decode a group: all of it, or so many of its rows in so many runs of neighbours.
    fn read_bytes(&self, group: u32, some: Option<(u64, u64)>) -> u64;

    /// The row group of a row id, and the row's slot in it; `None` if there is no such row.
    fn locate(&self, row: u64) -> Option<(u32, u32)>;

    /// The row id of a group's first slot; those of the other slots follow.
    fn first_row(&self, group: u32) -> u64;

    /// The types of decoded rows.
    fn schema(&self) -> SchemaRef;

    /// Reads and decodes rows of a group on the calling thread: all of them, or those of strictly increasing slots.
    fn decode(&self, group: u32, slots: Option<&[u32]>) -> Result<RecordBatch>;

    /// Whether strings and binary are served as views, whose values batches share with what is held.
    fn shares_values(&self) -> bool {
        false
    }

    /// Brings rows to the types that are served.
    fn output(&self, batch: &RecordBatch) -> Result<RecordBatch>;
}

/// The row groups of a dataset.
#[derive(Debug)]
pub(crate) struct DatasetGroups {
    dataset: Dataset,
    projection: Projection,
    views: bool,
    /// The part of a row's bytes that the chosen columns have.
    chosen: f64,
    costs: OnceLock<Vec<ReadCost>>,
}

impl DatasetGroups {
    /// With `views`, strings and binary are served as such.
    pub(crate) fn new(dataset: Dataset, views: bool) -> Self {
        let all: f64 = dataset.index().row_groups().map(|group| served(&group)).sum();
        let chosen = if all > 0.0 { dataset.decoded_bytes() as f64 / all } else { 1.0 };
        let projection = dataset.projection().clone();
        let projection = if views { projection.serving_views() } else { projection };
        Self { dataset, projection, views, chosen, costs: OnceLock::new() }
    }
}

/// About how many bytes the served rows take, with all columns.
fn served(group: &RowGroupEntry<'_>) -> f64 {
    group.decoded_bytes() as f64 * group.rows() as f64 / group.source_rows().max(1) as f64
}

impl Groups for DatasetGroups {
    fn count(&self) -> u32 {
        self.dataset.index().num_row_groups()
    }

    fn size(&self, group: u32) -> GroupSize {
        let Some(group) = self.dataset.index().row_group(group) else { return GroupSize::default() };
        GroupSize {
            rows: group.rows(),
            bytes: (served(&group) * self.chosen) as u64,
            cost: (group.decoded_bytes() as f64 * self.chosen) as u64,
        }
    }

    fn read_bytes(&self, group: u32, some: Option<(u64, u64)>) -> u64 {
        let costs = self.costs.get_or_init(|| self.dataset.read_costs());
        let Some(cost) = costs.get(group as usize) else { return 0 };
        // Rows that the index leaves out are taken to lie anywhere.
        let served = self.dataset.index().row_group(group).map_or(0, |group| group.rows());
        let (rows, runs) = some.unwrap_or((served, served));
        cost.of_rows(rows, runs)
    }

    fn locate(&self, row: u64) -> Option<(u32, u32)> {
        let location = self.dataset.index().locate(row)?;
        Some((location.row_group, u32::try_from(location.slot).ok()?))
    }

    fn first_row(&self, group: u32) -> u64 {
        self.dataset.index().row_group(group).map_or(0, |group| group.first_row())
    }

    fn schema(&self) -> SchemaRef {
        self.projection.internal().clone()
    }

    fn decode(&self, group: u32, slots: Option<&[u32]>) -> Result<RecordBatch> {
        let slots = slots.map_or(Slots::All, Slots::Some);
        Ok(self.dataset.decode_group(group, slots, &self.projection)?.batch)
    }

    fn shares_values(&self) -> bool {
        self.views
    }

    fn output(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        if self.views {
            return Ok(batch.clone());
        }
        self.dataset.output_types(batch)
    }
}
