//! Row groups whose tokens come in lists of offsets, whatever lists they are in the files: a part of a list of a fixed
//! size is none of that size.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::{Fetch, Groups, LongValues, Reads, RowForm, Unit};
use crate::dataset::{Prefetch, RunPart, Slots};
use rowdex_base::error::{Error, Result};
use rowdex_io::source::Link;
use rowdex_parquet::{RowSink, finish};
use rowdex_rows::{listed, to_lists};

/// Row groups with other lists.
#[derive(Debug)]
pub(crate) struct ListedGroups {
    groups: Arc<dyn Groups>,
    form: RowForm,
}

impl ListedGroups {
    /// The row groups with lists of offsets in these columns, which are names or paths.
    pub(crate) fn of(groups: Arc<dyn Groups>, columns: &[String]) -> Arc<dyn Groups> {
        let form = groups.form();
        let (Some(decoded), Some(served)) = (listed(&form.decoded, columns), listed(&form.served, columns)) else {
            return groups;
        };
        Arc::new(Self { form: RowForm { decoded, served, ..form }, groups })
    }
}

struct Listing<'a> {
    schema: &'a SchemaRef,
    sink: &'a mut dyn RowSink,
}

impl RowSink for Listing<'_> {
    fn chunk_rows(&self) -> usize {
        self.sink.chunk_rows()
    }

    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        self.sink.take(to_lists(&chunk, self.schema)?)
    }

    fn values_are_own(&mut self) {
        self.sink.values_are_own();
    }

    fn places_are_kept(&mut self, bytes: u64) {
        self.sink.places_are_kept(bytes);
    }
}

impl Groups for ListedGroups {
    fn count(&self) -> u32 {
        self.groups.count()
    }

    fn unit(&self, row_group: u32) -> Unit {
        self.groups.unit(row_group)
    }

    fn follows(&self, row_group: u32) -> bool {
        self.groups.follows(row_group)
    }

    fn long_values(&self, row_group: u32) -> LongValues {
        self.groups.long_values(row_group)
    }

    fn locate(&self, row: u64) -> Option<(u32, u32)> {
        self.groups.locate(row)
    }

    fn located(&self, error: Error, row_group: u32) -> Error {
        self.groups.located(error, row_group)
    }

    fn form(&self) -> RowForm {
        self.form.clone()
    }

    fn output(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        if self.form.shares_values {
            return Ok(batch.clone());
        }
        rowdex_rows::compact(finish(batch, &self.form.served)?).map_err(rowdex_rows::uncopied)
    }

    fn fetch(&self, row_group: u32, reads: Reads) -> Fetch {
        self.groups.fetch(row_group, reads)
    }

    fn fetch_run(&self, row_groups: &[u32]) -> Fetch {
        self.groups.fetch_run(row_groups)
    }

    fn opening_requests(&self) -> u64 {
        self.groups.opening_requests()
    }

    fn read(&self, row_group: u32, slots: Slots<'_>, prefetch: Option<Prefetch>, sink: &mut dyn RowSink) -> Result<()> {
        self.groups.read(row_group, slots, prefetch, &mut Listing { schema: &self.form.decoded, sink })
    }

    fn read_run(&self, parts: &[RunPart], prefetch: Option<Prefetch>, sink: &mut dyn RowSink) -> Result<()> {
        self.groups.read_run(parts, prefetch, &mut Listing { schema: &self.form.decoded, sink })
    }

    fn prefetch(&self, row_group: u32, slots: Slots<'_>) -> Option<Prefetch> {
        self.groups.prefetch(row_group, slots)
    }

    fn link(&self) -> Option<Link> {
        self.groups.link()
    }
}
