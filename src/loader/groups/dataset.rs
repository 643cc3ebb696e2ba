//! The row groups of a dataset, or of several, those of one after those of the other.

use std::collections::HashMap;
use std::sync::Mutex;

use arrow_schema::{Fields, Schema, SchemaRef};

use super::{FetchCost, Groups, LongValues, Reads, RowForm, Unit, UnitSize};
use crate::dataset::{Dataset, Prefetch, RunPart, Slots, common_schema};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::once::Once;
use rowdex_index::RowGroupEntry;
use rowdex_io::source::Link;
use rowdex_parquet::{ReadCost, RowSink};
use rowdex_projection::{Projection, view_of};

/// The row groups of some datasets.
#[derive(Debug)]
pub(crate) struct DatasetGroups {
    parts: Vec<LoadedDataset>,
    count: u32,
    pub(crate) form: RowForm,
}

/// One of the datasets, as it is decoded.
#[derive(Debug)]
struct LoadedDataset {
    /// Its number among them, and its first row group among those of all.
    number: usize,
    first_group: u32,
    dataset: Dataset,
    projection: Projection,
    /// The part of a row's bytes that the chosen columns have.
    chosen: f64,
    /// With fewer bytes a row, finding values takes longer than decoding all and picking.
    long: u64,
    /// Columns have strings or bytes in structs, lists or maps, of which there are no views.
    has_strings_below: bool,
    costs: Once<Vec<ReadCost>>,
    /// Requests for rows of row groups that look alike.
    requests: Mutex<HashMap<[u64; 5], f64>>,
}

/// With shorter rows there are no values that are read one by one, and nothing need be looked up.
const LONG_ROW: u64 = 4 << 10;

impl DatasetGroups {
    /// Of these datasets, whose columns are served by this schema; with `views`, strings and binary as such.
    pub(crate) fn new(datasets: &[Dataset], served: &SchemaRef, views: bool) -> Self {
        let projection = |dataset: &Dataset| match views {
            true => dataset.projection().clone().serving_views(),
            false => dataset.projection().clone(),
        };
        Self::decoding(datasets.iter().map(|dataset| (dataset.clone(), projection(dataset))), served, views)
    }

    fn decoding(datasets: impl Iterator<Item = (Dataset, Projection)>, served: &SchemaRef, views: bool) -> Self {
        let mut parts: Vec<LoadedDataset> = Vec::new();
        let mut first_group = 0_u32;
        for (number, (dataset, projection)) in datasets.enumerate() {
            // No overflow: several datasets have fewer than 2^32 row groups together.
            let end = first_group.saturating_add(dataset.index().num_row_groups());
            parts.push(LoadedDataset::new(dataset, projection, number, first_group));
            first_group = end;
        }
        let decoded = match &parts[..] {
            // The very schema that its chunks have, which is compared at once.
            [only] => only.projection.internal().clone(),
            _ => common_schema(parts.iter().map(|part| part.projection.internal())).unwrap_or_else(|_| served.clone()),
        };
        let form = RowForm {
            served: if views { decoded.clone() } else { served.clone() },
            decoded,
            is_adapted: parts.len() != 1,
            shares_values: views,
            chunks_are_own: !parts.iter().any(|part| part.dataset.has_disk_cache()),
            is_remote: parts.iter().any(|part| part.dataset.is_remote()),
        };
        Self { parts, count: first_group, form }
    }

    /// The same, for a loader that serves all rows as they lie, if there is something to gain: values that others keep
    /// as views are decoded to where batches show them.
    pub(crate) fn in_order(&self) -> Option<Self> {
        let [part] = &self.parts[..] else { return None };
        let projection = part.dataset.projection_in_order();
        // Entries of the disk cache are of the other types.
        let gains = projection.internal() != part.projection.internal();
        if self.form.shares_values || !self.form.chunks_are_own || !gains {
            return None;
        }
        let decoded = std::iter::once((part.dataset.clone(), projection.clone()));
        Some(Self::decoding(decoded, &self.form.served, false))
    }

    /// The dataset that a row group is of, and the row group's number there.
    fn part(&self, row_group: u32) -> Option<(&LoadedDataset, u32)> {
        let number = self.parts.partition_point(|part| part.first_group <= row_group).checked_sub(1)?;
        let part = self.parts.get(number)?;
        Some((part, row_group - part.first_group))
    }

    /// Says which of several datasets an error is of.
    fn within(&self, part: &LoadedDataset, error: Error) -> Error {
        if self.parts.len() == 1 { error } else { error.within_dataset(part.number) }
    }
}

impl LoadedDataset {
    fn new(dataset: Dataset, projection: Projection, number: usize, first_group: u32) -> Self {
        /// Bytes of a value.
        const LONG: u64 = 64;
        let all: f64 = dataset.index().row_groups().map(|entry| served(&entry)).sum();
        let chosen = if all > 0.0 { dataset.decoded_bytes() as f64 / all } else { 1.0 };
        let long = LONG.saturating_mul(projection.internal().flattened_fields().len().max(1) as u64);
        let nested = projection.internal().fields().iter().filter(|field| field.data_type().is_nested());
        let nested = Schema::new(nested.cloned().collect::<Fields>());
        let has_strings_below = nested.flattened_fields().iter().any(|field| view_of(field.data_type()).is_some());
        Self {
            number,
            first_group,
            dataset,
            projection,
            chosen,
            long,
            has_strings_below,
            costs: Once::new(),
            requests: Mutex::default(),
        }
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
        self.count
    }

    fn unit(&self, row_group: u32) -> Unit {
        let found = self.part(row_group).and_then(|(part, own)| Some((part, part.dataset.index().row_group(own)?)));
        let Some((part, entry)) = found else { return Unit::default() };
        let size = UnitSize {
            rows: entry.rows(),
            bytes: (served(&entry) * part.chosen) as u64,
            cost: (entry.decoded_bytes() as f64 * part.chosen) as u64,
        };
        let is_long = size.bytes / size.rows.max(1) >= part.long;
        let is_decoded_here = !part.dataset.has_disk_cache() && entry.selection().is_none();
        Unit {
            size,
            decodes_due: is_long && is_decoded_here,
            reads_columns_apart: is_decoded_here && !part.dataset.is_remote(),
        }
    }

    fn follows(&self, row_group: u32) -> bool {
        let Some((part, own)) = self.part(row_group) else { return false };
        let file = |number: u32| Some(part.dataset.index().row_group(number)?.file());
        let is_unknown =
            |number: u32| part.has_strings_below && part.cost(number).is_some_and(|cost| cost.decodes_to_unknown);
        // Row groups of a store are asked for one by one.
        !part.dataset.is_remote()
            && own
                .checked_sub(1)
                .is_some_and(|before| file(before) == file(own) && !is_unknown(before) && !is_unknown(own))
    }

    fn long_values(&self, row_group: u32) -> LongValues {
        let Unit { size, decodes_due, .. } = self.unit(row_group);
        let part = self.part(row_group).filter(|(part, _)| !part.dataset.is_remote());
        let Some((part, own)) = part.filter(|_| decodes_due && size.bytes / size.rows.max(1) >= LONG_ROW) else {
            return LongValues::default();
        };
        let known = |cost: &ReadCost| LongValues { are_read_alone: cost.is_read_alone(), places_bytes: cost.places };
        part.cost(own).map(known).unwrap_or_default()
    }

    fn located(&self, error: Error, row_group: u32) -> Error {
        match self.part(row_group) {
            Some((part, own)) => self.within(part, part.dataset.located(error, own)),
            None => error,
        }
    }

    fn form(&self) -> RowForm {
        self.form.clone()
    }

    fn fetch(&self, row_groups: &[u32], reads: Reads) -> FetchCost {
        let first = row_groups.first().and_then(|first| self.part(*first));
        let Some((part, own)) = first else { return FetchCost::default() };
        let of = |row_group: &u32| part.cost(row_group.checked_sub(part.first_group)?);
        let costs: Vec<&ReadCost> = row_groups.iter().filter_map(of).collect();
        let [cost] = costs[..] else {
            let bytes = costs.iter().map(|cost| cost.bytes).fold(0, u64::saturating_add);
            let requests = part.dataset.requests(&costs, None);
            return FetchCost { bytes, requests, positions: 0, row_groups: costs.len() as u64 };
        };
        // Rows that the index leaves out are taken to lie anywhere.
        let entry = part.dataset.index().row_group(own);
        let (served, all) = entry.map_or((0, 0), |entry| (entry.rows(), entry.source_rows()));
        let (rows, runs) = if let Reads::Some(rows, runs) = reads { (rows, runs) } else { (served, served) };
        let is_remote = part.dataset.is_remote();
        let bytes = match reads {
            Reads::Due(rows) if !is_remote && row_groups.iter().all(|group| self.unit(*group).decodes_due) => {
                cost.of_due(rows)
            }
            _ => cost.of_rows(rows, runs),
        };
        let (requests, positions) = match is_remote {
            false => (0.0, 0),
            true if rows == all => (part.dataset.requests(&[cost], None), 0),
            true => (part.requests(cost, rows, runs), 1),
        };
        FetchCost { bytes, requests, positions, row_groups: 1 }
    }

    fn opening_requests(&self) -> u64 {
        self.parts.iter().map(|part| part.dataset.opening_requests()).sum()
    }

    fn read(&self, row_group: u32, slots: Slots<'_>, prefetch: Option<Prefetch>, sink: &mut dyn RowSink) -> Result<()> {
        let Some((part, own)) = self.part(row_group) else {
            return Err(Error::new(ErrorKind::OutOfRange, format!("no row group {row_group}")));
        };
        let read = part.dataset.read(own, slots, &part.projection, prefetch, sink);
        read.map_err(|error| self.within(part, error))
    }

    fn read_run(&self, mut run: Vec<RunPart>, sink: &mut dyn RowSink) -> Result<()> {
        let Some((part, _)) = run.first().and_then(|first| self.part(first.row_group)) else {
            return Err(Error::new(ErrorKind::Internal, "a run of no row groups"));
        };
        run.iter_mut().for_each(|read| read.row_group -= part.first_group);
        let read = part.dataset.read_run(&run, &part.projection, sink);
        read.map_err(|error| self.within(part, error))
    }

    fn prefetch(&self, row_group: u32, slots: Slots<'_>) -> Option<Prefetch> {
        let (part, own) = self.part(row_group)?;
        part.dataset.read_ahead(own, slots)
    }

    fn link(&self) -> Option<Link> {
        // They share the machine's link, whatever part of it each has at the time.
        self.parts.iter().filter_map(|part| part.dataset.link()).reduce(|a, b| Link {
            latency: a.latency.max(b.latency),
            bytes_per_second: a.bytes_per_second + b.bytes_per_second,
        })
    }
}
