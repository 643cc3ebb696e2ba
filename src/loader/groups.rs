//! What the loader needs of a dataset: sizes, places and decoded rows.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::plan::GroupSize;
use crate::Result;
use crate::dataset::{Ahead, Dataset, Slots};
use crate::index::RowGroupEntry;

/// Row groups that can be decoded one by one.
///
/// The loader sees a dataset only through this, so that it can be tested on sources that are slow, count, or fail.
pub(crate) trait Groups: std::fmt::Debug + Send + Sync {
    /// How many row groups there are.
    fn count(&self) -> u32;

    /// How large one is.
    fn size(&self, group: u32) -> GroupSize;

    /// The row group of a row id, and the row's slot in it; `None` if there is no such row.
    fn locate(&self, row: u64) -> Option<(u32, u32)>;

    /// The types of decoded rows.
    fn schema(&self) -> SchemaRef;

    /// Reads and decodes rows of a group on the calling thread: all of them, or those of strictly increasing slots.
    fn decode(&self, group: u32, slots: Option<&[u32]>) -> Result<RecordBatch>;

    /// Brings rows to the types that are served.
    fn output(&self, batch: &RecordBatch) -> Result<RecordBatch>;

    /// Whether reading takes so long that groups should be read ahead.
    fn is_remote(&self) -> bool {
        false
    }

    /// Starts reading a whole group; `None` where that gains nothing.
    fn read_ahead(&self, group: u32) -> Option<Ahead> {
        let _ = group;
        None
    }

    /// As [`decode`](Self::decode), of a group that was read ahead.
    fn decode_ahead(&self, group: u32, slots: Option<&[u32]>, ahead: Ahead) -> Result<RecordBatch> {
        drop(ahead);
        self.decode(group, slots)
    }
}

/// The row groups of a dataset.
#[derive(Debug)]
pub(crate) struct DatasetGroups {
    dataset: Dataset,
    /// The part of a row's bytes that the chosen columns have.
    chosen: f64,
}

impl DatasetGroups {
    pub(crate) fn new(dataset: Dataset) -> Self {
        let all: f64 = dataset.index().row_groups().map(|group| served(&group)).sum();
        let chosen = if all > 0.0 { dataset.decoded_bytes() as f64 / all } else { 1.0 };
        Self { dataset, chosen }
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

    fn locate(&self, row: u64) -> Option<(u32, u32)> {
        let location = self.dataset.index().locate(row)?;
        Some((location.row_group, u32::try_from(location.slot).ok()?))
    }

    fn schema(&self) -> SchemaRef {
        self.dataset.internal_schema().clone()
    }

    fn decode(&self, group: u32, slots: Option<&[u32]>) -> Result<RecordBatch> {
        let slots = slots.map_or(Slots::All, Slots::Some);
        Ok(self.dataset.decode_group(group, slots, None)?.batch)
    }

    fn is_remote(&self) -> bool {
        self.dataset.is_remote()
    }

    fn read_ahead(&self, group: u32) -> Option<Ahead> {
        self.dataset.read_ahead(group)
    }

    fn decode_ahead(&self, group: u32, slots: Option<&[u32]>, ahead: Ahead) -> Result<RecordBatch> {
        let slots = slots.map_or(Slots::All, Slots::Some);
        Ok(self.dataset.decode_group(group, slots, Some(ahead))?.batch)
    }

    fn output(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        self.dataset.output_types(batch)
    }
}
