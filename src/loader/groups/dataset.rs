//! The row groups of a dataset.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use arrow::datatypes::{Fields, Schema};

use super::{FetchCost, Groups, LongValues, Reads, RowForm, Unit, UnitSize};
use crate::dataset::{Dataset, Prefetch, RunPart, Slots};
use rowdex_base::error::{Error, Result};
use rowdex_base::once::Once;
use rowdex_index::RowGroupEntry;
use rowdex_io::source::Link;
use rowdex_parquet::{Likeness, ReadCost, RowSink};
use rowdex_projection::{Projection, view_of};

/// The row groups of a dataset.
#[derive(Debug)]
pub(crate) struct DatasetGroups {
    dataset: Dataset,
    projection: Projection,
    views: bool,
    /// The part of a row's bytes that the chosen columns have.
    chosen: f64,
    /// With fewer bytes a row, finding values takes longer than decoding all and picking.
    long: u64,
    /// Columns have strings or bytes in structs, lists or maps, of which there are no views.
    has_strings_below: bool,
    costs: Once<Vec<ReadCost>>,
    /// Requests for rows of row groups that look alike.
    requests: Mutex<HashMap<Likeness, f64>>,
}

/// With shorter rows there are no values that are read one by one, and nothing need be looked up.
const LONG_ROW: u64 = 4 << 10;

impl DatasetGroups {
    /// With `views`, strings and binary are served as such.
    pub(crate) fn new(dataset: Dataset, views: bool) -> Self {
        let projection = dataset.projection().clone();
        let projection = if views { projection.serving_views() } else { projection };
        Self::decoding(dataset, projection, views)
    }

    fn decoding(dataset: Dataset, projection: Projection, views: bool) -> Self {
        /// Bytes of a value.
        const LONG: u64 = 64;
        let all: f64 = dataset.index().row_groups().map(|entry| served(&entry)).sum();
        let chosen = if all > 0.0 { dataset.decoded_bytes() as f64 / all } else { 1.0 };
        let long = LONG.saturating_mul(projection.internal().flattened_fields().len().max(1) as u64);
        let nested = projection.internal().fields().iter().filter(|field| field.data_type().is_nested());
        let nested = Schema::new(nested.cloned().collect::<Fields>());
        let has_strings_below = nested.flattened_fields().iter().any(|field| view_of(field.data_type()).is_some());
        let costs = Once::new();
        let requests = Mutex::default();
        Self { dataset, projection, views, chosen, long, has_strings_below, costs, requests }
    }

    fn cost(&self, row_group: u32) -> Option<&ReadCost> {
        self.costs.get_or_init(|| self.dataset.read_costs()).get(row_group as usize)
    }

    /// Requests to a store for rows in so many runs.
    fn requests(&self, cost: &ReadCost, rows: u64, runs: u64) -> f64 {
        let likeness = cost.likeness(rows, runs);
        // Nobody waits: a forked child may find it locked for ever.
        let known = self.requests.try_lock().ok().and_then(|known| known.get(&likeness).copied());
        known.unwrap_or_else(|| {
            let requests = self.dataset.requests(&[cost], Some((rows, runs)));
            if let Ok(mut known) = self.requests.try_lock() {
                known.insert(likeness, requests);
            }
            requests
        })
    }
}

/// About how many bytes the served rows take, with all columns.
fn served(entry: &RowGroupEntry<'_>) -> f64 {
    entry.decoded_bytes() as f64 * entry.rows() as f64 / entry.source_rows().max(1) as f64
}

impl Groups for DatasetGroups {
    fn count(&self) -> u32 {
        self.dataset.index().num_row_groups()
    }

    fn unit(&self, row_group: u32) -> Unit {
        let Some(entry) = self.dataset.index().row_group(row_group) else { return Unit::default() };
        let size = UnitSize {
            rows: entry.rows(),
            bytes: (served(&entry) * self.chosen) as u64,
            cost: (entry.decoded_bytes() as f64 * self.chosen) as u64,
        };
        let is_long = size.bytes / size.rows.max(1) >= self.long;
        let is_decoded_here = !self.dataset.has_disk_tier() && entry.selection().is_none();
        Unit {
            size,
            first_row: entry.first_row(),
            decodes_due: is_long && is_decoded_here,
            reads_columns_apart: is_decoded_here && !self.dataset.is_remote(),
        }
    }

    fn follows(&self, row_group: u32) -> bool {
        let file = |number: u32| Some(self.dataset.index().row_group(number)?.file());
        let is_unknown =
            |number: u32| self.has_strings_below && self.cost(number).is_some_and(|cost| cost.decodes_to_unknown);
        // Row groups of a store are asked for one by one.
        !self.dataset.is_remote()
            && row_group
                .checked_sub(1)
                .is_some_and(|before| file(before) == file(row_group) && !is_unknown(before) && !is_unknown(row_group))
    }

    fn long_values(&self, row_group: u32) -> LongValues {
        let Unit { size, decodes_due, .. } = self.unit(row_group);
        if !decodes_due || size.bytes / size.rows.max(1) < LONG_ROW || self.dataset.is_remote() {
            return LongValues::default();
        }
        let known = |cost: &ReadCost| LongValues { are_read_alone: cost.is_read_alone(), places_bytes: cost.places };
        self.cost(row_group).map(known).unwrap_or_default()
    }

    fn locate(&self, row: u64) -> Option<(u32, u32)> {
        let location = self.dataset.index().locate(row)?;
        Some((location.row_group, u32::try_from(location.slot).ok()?))
    }

    fn located(&self, error: Error, row_group: u32) -> Error {
        self.dataset.located(error, row_group)
    }

    fn form(&self) -> RowForm {
        let decoded = self.projection.internal().clone();
        RowForm {
            served: if self.views { decoded.clone() } else { self.dataset.schema().clone() },
            decoded,
            shares_values: self.views,
            chunks_are_own: !self.dataset.has_disk_tier(),
            is_remote: self.dataset.is_remote(),
        }
    }

    fn output(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        if self.views {
            return Ok(batch.clone());
        }
        self.dataset.output_types(batch)
    }

    fn in_order(&self) -> Option<Arc<dyn Groups>> {
        let projection = self.dataset.projection_in_order();
        // Entries of the disk tier are of the other types.
        if self.views || self.dataset.has_disk_tier() || projection.internal() == self.projection.internal() {
            return None;
        }
        Some(Arc::new(Self::decoding(self.dataset.clone(), projection.clone(), false)))
    }

    fn fetch(&self, row_group: u32, reads: Reads) -> FetchCost {
        let Some(cost) = self.cost(row_group) else { return FetchCost::default() };
        // Rows that the index leaves out are taken to lie anywhere.
        let entry = self.dataset.index().row_group(row_group);
        let (served, all) = entry.map_or((0, 0), |entry| (entry.rows(), entry.source_rows()));
        let (rows, runs) = if let Reads::Some(rows, runs) = reads { (rows, runs) } else { (served, served) };
        let bytes = cost.of_rows(rows, runs);
        if !self.dataset.is_remote() {
            let bytes = match reads {
                Reads::Due(rows) if self.unit(row_group).decodes_due => cost.of_due(rows),
                _ => bytes,
            };
            return FetchCost { bytes, row_groups: 1, ..FetchCost::default() };
        }
        if rows == all {
            return FetchCost { bytes, requests: self.dataset.requests(&[cost], None), positions: 0, row_groups: 1 };
        }
        FetchCost { bytes, requests: self.requests(cost, rows, runs), positions: 1, row_groups: 1 }
    }

    fn fetch_run(&self, row_groups: &[u32]) -> FetchCost {
        let costs: Vec<&ReadCost> = row_groups.iter().filter_map(|row_group| self.cost(*row_group)).collect();
        let bytes = costs.iter().map(|cost| cost.bytes).fold(0, u64::saturating_add);
        let requests = self.dataset.requests(&costs, None);
        FetchCost { bytes, requests, positions: 0, row_groups: row_groups.len() as u64 }
    }

    fn opening_requests(&self) -> u64 {
        self.dataset.opening_requests()
    }

    fn read(&self, row_group: u32, slots: Slots<'_>, prefetch: Option<Prefetch>, sink: &mut dyn RowSink) -> Result<()> {
        self.dataset.read(row_group, slots, &self.projection, prefetch, sink)
    }

    fn read_run(&self, parts: &[RunPart], prefetch: Option<Prefetch>, sink: &mut dyn RowSink) -> Result<()> {
        self.dataset.read_run(parts, &self.projection, prefetch, sink)
    }

    fn prefetch(&self, row_group: u32, slots: Slots<'_>) -> Option<Prefetch> {
        self.dataset.read_ahead(row_group, slots)
    }

    fn link(&self) -> Option<Link> {
        self.dataset.link()
    }
}
