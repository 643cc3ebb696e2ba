//! The row groups of several datasets as one.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Fields, Schema, SchemaRef};

use super::{DatasetGroups, FetchCost, Groups, LongValues, Reads, RowForm, Unit};
use crate::dataset::{Dataset, MixedDataset, Prefetch, RunPart, Slots};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_io::source::Link;
use rowdex_parquet::{RowSink, finish};

/// Brings rows to the types that all datasets have in common.
struct Finishing<'a> {
    schema: &'a SchemaRef,
    /// The first column of the next chunk.
    first: usize,
    sink: &'a mut dyn RowSink,
}

impl RowSink for Finishing<'_> {
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

    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        let all = self.schema.fields();
        if chunk.num_columns() == all.len() {
            return self.sink.take(finish(&chunk, self.schema)?);
        }
        let part = all.iter().skip(self.first).take(chunk.num_columns()).cloned();
        self.sink.take(finish(&chunk, &Arc::new(Schema::new(part.collect::<Fields>())))?)
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
pub(super) struct MixedGroups {
    dataset: MixedDataset,
    parts: Vec<DatasetGroups>,
    /// The first row group of each dataset.
    starts: Vec<u32>,
    form: RowForm,
}

impl MixedGroups {
    pub(super) fn new(dataset: MixedDataset, views: bool) -> Self {
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
        let forms: Vec<RowForm> = parts.iter().map(Groups::form).collect();
        let decoded = dataset.common_schema(forms.iter().map(|form| form.decoded.clone()));
        let form = RowForm {
            served: if views { decoded.clone() } else { dataset.schema().clone() },
            decoded,
            shares_values: views,
            chunks_are_own: forms.iter().all(|form| form.chunks_are_own),
            is_remote: forms.iter().any(|form| form.is_remote),
        };
        Self { dataset, parts, starts, form }
    }

    /// The number of the dataset that a row group is of, the dataset, and the row group's number there.
    fn part(&self, row_group: u32) -> Option<(usize, &DatasetGroups, u32)> {
        let number = self.starts.partition_point(|start| *start <= row_group).checked_sub(1)?;
        Some((number, self.parts.get(number)?, row_group - self.starts.get(number)?))
    }

    /// What a dataset says of a row group.
    fn told<T: Default>(&self, row_group: u32, tell: impl FnOnce(&DatasetGroups, u32) -> T) -> T {
        self.part(row_group).map_or_else(T::default, |(_, part, own)| tell(part, own))
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
        self.parts.iter().map(Groups::count).fold(0, u32::saturating_add)
    }

    fn unit(&self, row_group: u32) -> Unit {
        let Some((number, part, own)) = self.part(row_group) else { return Unit::default() };
        let unit = part.unit(own);
        let first_row = self.dataset.first_row(number) + unit.first_row;
        Unit { first_row, ..unit }
    }

    fn follows(&self, row_group: u32) -> bool {
        self.told(row_group, Groups::follows)
    }

    fn long_values(&self, row_group: u32) -> LongValues {
        self.told(row_group, Groups::long_values)
    }

    fn locate(&self, row: u64) -> Option<(u32, u32)> {
        let (number, row) = self.dataset.locate(row)?;
        let (row_group, slot) = self.parts.get(number)?.locate(row)?;
        Some((self.starts.get(number)? + row_group, slot))
    }

    fn located(&self, error: Error, row_group: u32) -> Error {
        match self.part(row_group) {
            Some((number, part, own)) => part.located(error, own).within_dataset(number),
            None => error,
        }
    }

    fn form(&self) -> RowForm {
        self.form.clone()
    }

    fn output(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        if self.form.shares_values {
            return Ok(batch.clone());
        }
        self.dataset.output_types(batch)
    }

    fn fetch(&self, row_group: u32, reads: Reads) -> FetchCost {
        self.told(row_group, |part, own| part.fetch(own, reads))
    }

    fn fetch_run(&self, row_groups: &[u32]) -> FetchCost {
        let own = |row_group: &u32| self.part(*row_group).map_or(0, |(_, _, own)| own);
        let own = row_groups.iter().map(own).collect::<Vec<_>>();
        self.told(row_groups.first().copied().unwrap_or_default(), |part, _| part.fetch_run(&own))
    }

    fn opening_requests(&self) -> u64 {
        self.parts.iter().map(Groups::opening_requests).sum()
    }

    fn read(&self, row_group: u32, slots: Slots<'_>, prefetch: Option<Prefetch>, sink: &mut dyn RowSink) -> Result<()> {
        let Some((number, part, own)) = self.part(row_group) else {
            return Err(Error::new(ErrorKind::OutOfRange, format!("no row group {row_group}")));
        };
        let sink = &mut Finishing { schema: &self.form.decoded, first: 0, sink };
        part.read(own, slots, prefetch, sink).map_err(|error| error.within_dataset(number))
    }

    fn read_run(&self, parts: &[RunPart], prefetch: Option<Prefetch>, sink: &mut dyn RowSink) -> Result<()> {
        let Some((number, part, own)) = self.run(parts) else {
            return Err(Error::new(ErrorKind::Internal, "a run of no row groups"));
        };
        let sink = &mut Finishing { schema: &self.form.decoded, first: 0, sink };
        part.read_run(&own, prefetch, sink).map_err(|error| error.within_dataset(number))
    }

    fn prefetch(&self, row_group: u32, slots: Slots<'_>) -> Option<Prefetch> {
        let (_, part, own) = self.part(row_group)?;
        part.prefetch(own, slots)
    }

    fn link(&self) -> Option<Link> {
        // They share the machine's link, whatever part of it each has at the time.
        self.parts.iter().filter_map(Groups::link).reduce(|a, b| Link {
            latency: a.latency.max(b.latency),
            bytes_per_second: a.bytes_per_second + b.bytes_per_second,
        })
    }
}
