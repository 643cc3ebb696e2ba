//! What the loader needs of a dataset: sizes, places and decoded rows.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::plan::GroupSize;
use crate::dataset::{Dataset, Joined, MixedDataset, Prefetch, RunPart, Slots};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::once::Once;
use rowdex_index::Index;
use rowdex_index::RowGroupEntry;
use rowdex_io::source::Link;
use rowdex_parquet::{Likeness, ReadCost, RowSink, WholeBatch, finish};
use rowdex_projection::Projection;

/// What is read for a group.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Fetch {
    pub(crate) bytes: u64,
    /// Of a store, on average; 0 for local files.
    pub(crate) requests: f64,
    /// Requests for the positions of its pages, once.
    pub(crate) positions: u64,
    /// Row groups that are decoded.
    pub(crate) row_groups: u64,
}

/// Groups of rows that can be decoded one by one: row groups, or [units](super::units) of several.
///
/// The loader sees a dataset only through this, so that it can be tested on sources that are slow, count, or fail.
pub(crate) trait Groups: std::fmt::Debug + Send + Sync {
    /// How many groups there are.
    fn count(&self) -> u32;

    /// How many row groups they are made of.
    fn num_row_groups(&self) -> u32 {
        self.count()
    }

    /// The row groups that a group is made of, by their numbers in the index. It has at least one.
    fn row_groups(&self, group: u32) -> Range<u32> {
        group..group + 1
    }

    /// The slots that the rows of a row group have in their group.
    fn slots_of(&self, row_group: u32) -> Range<u32> {
        0..u32::try_from(self.size(row_group).rows).unwrap_or(u32::MAX)
    }

    /// Whether a row group may be read together with the one before.
    fn follows(&self, row_group: u32) -> bool {
        row_group > 0
    }

    /// How large one is.
    fn size(&self, group: u32) -> GroupSize;

    /// About what is read to decode a group: all of it, or so many of its rows in so many runs of neighbours.
    fn fetch(&self, group: u32, some: Option<(u64, u64)>) -> Fetch;

    /// About what is read to decode so many rows of a group [alone](Self::decodes_due) that was decoded before.
    fn fetch_due(&self, group: u32, rows: u64) -> Fetch {
        let _ = rows;
        self.fetch(group, None)
    }

    /// What is read to decode all rows of these row groups together.
    fn fetch_run(&self, row_groups: &[u32]) -> Fetch {
        let each = row_groups.iter().map(|group| self.fetch(*group, None));
        each.fold(Fetch::default(), |all, one| Fetch {
            bytes: all.bytes.saturating_add(one.bytes),
            requests: all.requests + one.requests,
            positions: all.positions + one.positions,
            row_groups: all.row_groups + one.row_groups,
        })
    }

    /// Requests for all files together, before anything is read of their groups.
    fn opening_requests(&self) -> u64 {
        0
    }

    /// The row group of a row id, and the row's slot in it; `None` if there is no such row.
    fn locate(&self, row: u64) -> Option<(u32, u32)>;

    /// The row id of a group's first slot; those of the other slots follow.
    fn first_row(&self, group: u32) -> u64;

    /// The types of decoded rows.
    fn schema(&self) -> SchemaRef;

    /// Reads and decodes rows of a group on the calling thread, all of them or those of strictly increasing slots, and
    /// hands them to the sink. What was read ahead is used.
    fn read(&self, group: u32, slots: Option<&[u32]>, prefetch: Option<Prefetch>, sink: &mut dyn RowSink)
    -> Result<()>;

    /// Whether rows of a group are decoded faster if the others are not, where many of them are wanted.
    fn decodes_due(&self, group: u32) -> bool {
        let _ = group;
        false
    }

    /// Whether most of what is read of a group are long values, of which only those that are due are read once it was
    /// decoded.
    fn reads_alone(&self, group: u32) -> bool {
        let _ = group;
        false
    }

    /// Bytes of memory that are kept, once rows of a group were decoded [alone](Self::decodes_due), of where its long
    /// values lie.
    fn places_bytes(&self, group: u32) -> u64 {
        let _ = group;
        0
    }

    /// As [`read`](Self::read), of rows of a group that is read as a whole, if it [decodes such](Self::decodes_due).
    /// Chunks may have any number of rows up to what the sink asks for.
    fn read_due(&self, group: u32, slots: &[u32], prefetch: Option<Prefetch>, sink: &mut dyn RowSink) -> Result<()> {
        self.read(group, Some(slots), prefetch, sink)
    }

    /// As [`read`](Self::read), of several row groups one after the other.
    fn read_run(&self, parts: &[RunPart], prefetch: Option<Prefetch>, sink: &mut dyn RowSink) -> Result<()> {
        drop(prefetch);
        let mut joined = Joined::new(sink);
        for part in parts {
            self.read(part.row_group, part.slots.as_deref(), None, &mut joined)?;
        }
        joined.finish()
    }

    /// How many row groups a read decodes.
    fn decodes(&self, group: u32, slots: Option<&[u32]>) -> u64 {
        let _ = (group, slots);
        1
    }

    /// As [`read`](Self::read), in one batch.
    fn read_whole(&self, group: u32, slots: Option<&[u32]>, prefetch: Option<Prefetch>) -> Result<RecordBatch> {
        let mut whole = WholeBatch::default();
        self.read(group, slots, prefetch, &mut whole)?;
        whole.into_batch()
    }

    /// The same, for a loader that serves all rows as they lie, if there is something to gain: values that others keep
    /// as views are decoded to where batches show them.
    fn in_order(&self) -> Option<Arc<dyn Groups>> {
        None
    }

    /// Whether strings and binary are served as views, whose values batches share with what is held.
    fn shares_values(&self) -> bool {
        false
    }

    /// Whether chunks are memory that was made for them, rather than a part of something larger.
    fn chunks_are_own(&self) -> bool {
        true
    }

    /// The types that are served.
    fn served_schema(&self) -> SchemaRef;

    /// Brings rows to the types that are served.
    fn output(&self, batch: &RecordBatch) -> Result<RecordBatch>;

    /// Whether reading takes so long that groups should be read ahead.
    fn is_remote(&self) -> bool {
        false
    }

    /// How fast what is read remotely comes; `None` before anything did.
    fn link(&self) -> Option<Link> {
        None
    }

    /// Starts reading what [`read`](Self::read) will read; `None` where that gains nothing.
    fn prefetch(&self, group: u32, slots: Option<&[u32]>) -> Option<Prefetch> {
        let _ = (group, slots);
        None
    }
}

/// What a [`Loader`](super::Loader) can serve: a [`Dataset`], or several as a [`MixedDataset`].
pub trait Loadable: sealed::RowGroups + Clone + 'static {}

impl Loadable for Dataset {}
impl Loadable for MixedDataset {}

pub(super) mod sealed {
    use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

    use super::{Arc, Dataset, DatasetGroups, Groups, Index, MixedDataset, MixedGroups};

    /// The row groups of a dataset, which are nobody's business but the loader's.
    #[derive(Debug)]
    pub struct Opened(pub(in crate::loader) Arc<dyn Groups>);

    pub trait RowGroups: std::fmt::Debug + Send + Sync {
        /// With `views`, strings and binary are served as such.
        fn row_groups(&self, views: bool) -> Opened;

        /// Which rows these are: the fingerprints of the indexes, and what they call the columns of the files.
        fn fingerprint(&self) -> u64;
    }

    impl RowGroups for Dataset {
        fn row_groups(&self, views: bool) -> Opened {
            Opened(Arc::new(DatasetGroups::new(self.clone(), views)))
        }

        fn fingerprint(&self) -> u64 {
            served(self.index())
        }
    }

    impl RowGroups for MixedDataset {
        fn row_groups(&self, views: bool) -> Opened {
            Opened(Arc::new(MixedGroups::new(self.clone(), views)))
        }

        fn fingerprint(&self) -> u64 {
            let all = self.datasets().iter().flat_map(|dataset| served(dataset.index()).to_le_bytes());
            xxh3_64(&all.collect::<Vec<_>>())
        }
    }

    /// The fingerprint of an index. By another name the values of a column are others, so renames are part of it here.
    fn served(index: &Index) -> u64 {
        match index.renames().len() {
            0 => index.fingerprint(),
            _ => {
                xxh3_64_with_seed(format!("{:?}", index.renames().collect::<Vec<_>>()).as_bytes(), index.fingerprint())
            }
        }
    }
}

/// The row groups of a dataset.
#[derive(Debug)]
pub(crate) struct DatasetGroups {
    dataset: Dataset,
    projection: Projection,
    views: bool,
    /// The part of a row's bytes that the chosen columns have.
    chosen: f64,
    costs: Once<Vec<ReadCost>>,
    /// Requests for rows of groups that look alike.
    requests: Mutex<HashMap<Likeness, f64>>,
}

impl DatasetGroups {
    /// With `views`, strings and binary are served as such.
    pub(crate) fn new(dataset: Dataset, views: bool) -> Self {
        let all: f64 = dataset.index().row_groups().map(|group| served(&group)).sum();
        let chosen = if all > 0.0 { dataset.decoded_bytes() as f64 / all } else { 1.0 };
        let projection = dataset.projection().clone();
        let projection = if views { projection.serving_views() } else { projection };
        Self { dataset, projection, views, chosen, costs: Once::new(), requests: Mutex::default() }
    }
}

/// With shorter rows there are no values that are read one by one, and nothing need be looked up.
const LONG_ROW: u64 = 4 << 10;

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

    fn fetch(&self, group: u32, some: Option<(u64, u64)>) -> Fetch {
        let costs = self.costs.get_or_init(|| self.dataset.read_costs());
        let Some(cost) = costs.get(group as usize) else { return Fetch::default() };
        // Rows that the index leaves out are taken to lie anywhere.
        let (served, all) =
            self.dataset.index().row_group(group).map_or((0, 0), |group| (group.rows(), group.source_rows()));
        let (rows, runs) = some.unwrap_or((served, served));
        let bytes = cost.of_rows(rows, runs);
        if !self.dataset.is_remote() {
            return Fetch { bytes, row_groups: 1, ..Fetch::default() };
        }
        if rows == all {
            return Fetch { bytes, requests: self.dataset.requests(&[cost], None), positions: 0, row_groups: 1 };
        }
        let likeness = cost.likeness(rows, runs);
        // Nobody waits: a forked child may find it locked for ever.
        let known = self.requests.try_lock().ok().and_then(|known| known.get(&likeness).copied());
        let requests = known.unwrap_or_else(|| {
            let requests = self.dataset.requests(&[cost], Some((rows, runs)));
            if let Ok(mut known) = self.requests.try_lock() {
                known.insert(likeness, requests);
            }
            requests
        });
        Fetch { bytes, requests, positions: 1, row_groups: 1 }
    }

    fn fetch_due(&self, group: u32, rows: u64) -> Fetch {
        let costs = self.costs.get_or_init(|| self.dataset.read_costs());
        match costs.get(group as usize) {
            Some(cost) if !self.dataset.is_remote() && self.decodes_due(group) => {
                Fetch { bytes: cost.of_due(rows), ..self.fetch(group, None) }
            }
            _ => self.fetch(group, None),
        }
    }

    fn fetch_run(&self, row_groups: &[u32]) -> Fetch {
        let costs = self.costs.get_or_init(|| self.dataset.read_costs());
        let costs: Vec<&ReadCost> = row_groups.iter().filter_map(|group| costs.get(*group as usize)).collect();
        let bytes = costs.iter().map(|cost| cost.bytes).fold(0, u64::saturating_add);
        let requests = self.dataset.requests(&costs, None);
        Fetch { bytes, requests, positions: 0, row_groups: row_groups.len() as u64 }
    }

    fn follows(&self, row_group: u32) -> bool {
        let file = |number: u32| Some(self.dataset.index().row_group(number)?.file());
        // Row groups of a store are asked for one by one.
        !self.is_remote() && row_group.checked_sub(1).is_some_and(|before| file(before) == file(row_group))
    }

    fn opening_requests(&self) -> u64 {
        self.dataset.opening_requests()
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

    fn read(
        &self,
        group: u32,
        slots: Option<&[u32]>,
        prefetch: Option<Prefetch>,
        sink: &mut dyn RowSink,
    ) -> Result<()> {
        self.dataset.read(group, slots.map_or(Slots::All, Slots::Some), &self.projection, prefetch, sink)
    }

    fn decodes_due(&self, group: u32) -> bool {
        /// With shorter values, finding them takes longer than decoding all and picking.
        const LONG: u64 = 64;
        let fields = self.projection.internal().flattened_fields().len() as u64;
        let size = self.size(group);
        let is_long = size.bytes / size.rows.max(1) >= LONG.saturating_mul(fields.max(1));
        let entry = self.dataset.index().row_group(group);
        is_long && !self.dataset.has_disk_tier() && entry.is_some_and(|entry| entry.selection().is_none())
    }

    fn reads_alone(&self, group: u32) -> bool {
        let size = self.size(group);
        if size.bytes / size.rows.max(1) < LONG_ROW || self.is_remote() {
            return false;
        }
        let costs = self.costs.get_or_init(|| self.dataset.read_costs());
        costs.get(group as usize).is_some_and(ReadCost::is_read_alone)
    }

    fn places_bytes(&self, group: u32) -> u64 {
        let size = self.size(group);
        if size.bytes / size.rows.max(1) < LONG_ROW || self.is_remote() || !self.decodes_due(group) {
            return 0;
        }
        let costs = self.costs.get_or_init(|| self.dataset.read_costs());
        costs.get(group as usize).map_or(0, |cost| cost.places)
    }

    fn read_due(&self, group: u32, slots: &[u32], prefetch: Option<Prefetch>, sink: &mut dyn RowSink) -> Result<()> {
        self.dataset.read(group, Slots::Due(slots), &self.projection, prefetch, sink)
    }

    fn read_run(&self, parts: &[RunPart], prefetch: Option<Prefetch>, sink: &mut dyn RowSink) -> Result<()> {
        self.dataset.read_run(parts, &self.projection, prefetch, sink)
    }

    fn in_order(&self) -> Option<Arc<dyn Groups>> {
        let projection = self.dataset.projection_in_order();
        // Entries of the disk tier are of the other types.
        if self.views || self.dataset.has_disk_tier() || projection.internal() == self.projection.internal() {
            return None;
        }
        Some(Arc::new(Self { projection: projection.clone(), ..Self::new(self.dataset.clone(), false) }))
    }

    fn shares_values(&self) -> bool {
        self.views
    }

    fn is_remote(&self) -> bool {
        self.dataset.is_remote()
    }

    fn link(&self) -> Option<Link> {
        self.dataset.link()
    }

    fn prefetch(&self, group: u32, slots: Option<&[u32]>) -> Option<Prefetch> {
        self.dataset.prefetch(group, slots.map_or(Slots::All, Slots::Some))
    }

    fn chunks_are_own(&self) -> bool {
        !self.dataset.has_disk_tier()
    }

    fn served_schema(&self) -> SchemaRef {
        if self.views { self.schema() } else { self.dataset.schema().clone() }
    }

    fn output(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        if self.views {
            return Ok(batch.clone());
        }
        self.dataset.output_types(batch)
    }
}

/// Brings rows to the types that all datasets have in common.
struct Finishing<'a> {
    schema: &'a SchemaRef,
    sink: &'a mut dyn RowSink,
}

impl RowSink for Finishing<'_> {
    fn chunk_rows(&self) -> usize {
        self.sink.chunk_rows()
    }

    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        self.sink.take(finish(&chunk, self.schema)?)
    }

    fn values_are_own(&mut self) {
        self.sink.values_are_own();
    }

    fn places_are_kept(&mut self, bytes: u64) {
        self.sink.places_are_kept(bytes);
    }
}

/// The row groups of several datasets, those of one after those of the other.
#[derive(Debug)]
struct MixedGroups {
    dataset: MixedDataset,
    views: bool,
    parts: Vec<DatasetGroups>,
    /// The first row group of each dataset.
    starts: Vec<u32>,
    schema: SchemaRef,
}

impl MixedGroups {
    fn new(dataset: MixedDataset, views: bool) -> Self {
        let part = |dataset: &Dataset| DatasetGroups::new(dataset.clone(), views);
        let parts: Vec<DatasetGroups> = dataset.datasets().iter().map(part).collect();
        let mut next = 0_u32;
        let starts = parts.iter().map(|part| {
            let start = next;
            // No overflow: a mixed dataset has fewer than 2^32 row groups.
            next = next.saturating_add(part.count());
            start
        });
        let starts = starts.collect();
        let schema = dataset.common_schema(parts.iter().map(DatasetGroups::schema));
        Self { schema, dataset, views, parts, starts }
    }

    /// The number of the dataset that a row group is of, the dataset, and the row group's number there.
    fn part(&self, group: u32) -> Option<(usize, &DatasetGroups, u32)> {
        let number = self.starts.partition_point(|start| *start <= group).checked_sub(1)?;
        Some((number, self.parts.get(number)?, group - self.starts.get(number)?))
    }

    /// The number of the dataset that row groups are of, the dataset, and the same with its own numbers.
    fn run(&self, parts: &[RunPart]) -> Option<(usize, &DatasetGroups, Vec<RunPart>)> {
        let (number, part, _) = self.part(parts.first()?.row_group)?;
        let start = *self.starts.get(number)?;
        let own = |run: &RunPart| Some(RunPart { row_group: run.row_group.checked_sub(start)?, ..run.clone() });
        Some((number, part, parts.iter().map(own).collect::<Option<_>>()?))
    }
}

impl Groups for MixedGroups {
    fn count(&self) -> u32 {
        self.parts.iter().map(DatasetGroups::count).fold(0, u32::saturating_add)
    }

    fn size(&self, group: u32) -> GroupSize {
        self.part(group).map_or_else(GroupSize::default, |(_, part, group)| part.size(group))
    }

    fn fetch(&self, group: u32, some: Option<(u64, u64)>) -> Fetch {
        self.part(group).map_or_else(Fetch::default, |(_, part, group)| part.fetch(group, some))
    }

    fn fetch_due(&self, group: u32, rows: u64) -> Fetch {
        self.part(group).map_or_else(Fetch::default, |(_, part, own)| part.fetch_due(own, rows))
    }

    fn fetch_run(&self, row_groups: &[u32]) -> Fetch {
        let Some((_, part, _)) = row_groups.first().and_then(|group| self.part(*group)) else {
            return Fetch::default();
        };
        let own = |group: &u32| self.part(*group).map_or(0, |(_, _, own)| own);
        part.fetch_run(&row_groups.iter().map(own).collect::<Vec<_>>())
    }

    fn follows(&self, row_group: u32) -> bool {
        self.part(row_group).is_some_and(|(_, part, own)| part.follows(own))
    }

    fn opening_requests(&self) -> u64 {
        self.parts.iter().map(Groups::opening_requests).sum()
    }

    fn locate(&self, row: u64) -> Option<(u32, u32)> {
        let (number, row) = self.dataset.locate(row)?;
        let (group, slot) = self.parts.get(number)?.locate(row)?;
        Some((self.starts.get(number)? + group, slot))
    }

    fn first_row(&self, group: u32) -> u64 {
        let Some((number, part, group)) = self.part(group) else { return 0 };
        self.dataset.first_row(number) + part.first_row(group)
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn read(
        &self,
        group: u32,
        slots: Option<&[u32]>,
        prefetch: Option<Prefetch>,
        sink: &mut dyn RowSink,
    ) -> Result<()> {
        let Some((number, part, group)) = self.part(group) else {
            return Err(Error::new(ErrorKind::OutOfRange, format!("no row group {group}")));
        };
        let sink = &mut Finishing { schema: &self.schema, sink };
        part.read(group, slots, prefetch, sink).map_err(|error| error.within_dataset(number))
    }

    fn decodes_due(&self, group: u32) -> bool {
        self.part(group).is_some_and(|(_, part, own)| part.decodes_due(own))
    }

    fn reads_alone(&self, group: u32) -> bool {
        self.part(group).is_some_and(|(_, part, own)| part.reads_alone(own))
    }

    fn places_bytes(&self, group: u32) -> u64 {
        self.part(group).map_or(0, |(_, part, own)| part.places_bytes(own))
    }

    fn read_due(&self, group: u32, slots: &[u32], prefetch: Option<Prefetch>, sink: &mut dyn RowSink) -> Result<()> {
        let Some((number, part, group)) = self.part(group) else {
            return Err(Error::new(ErrorKind::OutOfRange, format!("no row group {group}")));
        };
        let sink = &mut Finishing { schema: &self.schema, sink };
        part.read_due(group, slots, prefetch, sink).map_err(|error| error.within_dataset(number))
    }

    fn read_run(&self, parts: &[RunPart], prefetch: Option<Prefetch>, sink: &mut dyn RowSink) -> Result<()> {
        let Some((number, part, own)) = self.run(parts) else {
            return Err(Error::new(ErrorKind::Internal, "a run of no row groups"));
        };
        let sink = &mut Finishing { schema: &self.schema, sink };
        part.read_run(&own, prefetch, sink).map_err(|error| error.within_dataset(number))
    }

    fn is_remote(&self) -> bool {
        self.parts.iter().any(Groups::is_remote)
    }

    fn link(&self) -> Option<Link> {
        // They share the machine's link, whatever part of it each has at the time.
        self.parts.iter().filter_map(Groups::link).reduce(|a, b| Link {
            latency: a.latency.max(b.latency),
            bytes_per_second: a.bytes_per_second + b.bytes_per_second,
        })
    }

    fn prefetch(&self, group: u32, slots: Option<&[u32]>) -> Option<Prefetch> {
        let (_, part, group) = self.part(group)?;
        part.prefetch(group, slots)
    }

    fn shares_values(&self) -> bool {
        self.views
    }

    fn chunks_are_own(&self) -> bool {
        self.parts.iter().all(|part| part.chunks_are_own())
    }

    fn served_schema(&self) -> SchemaRef {
        if self.views { self.schema() } else { self.dataset.schema().clone() }
    }

    fn output(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        if self.views {
            return Ok(batch.clone());
        }
        self.dataset.output_types(batch)
    }
}
