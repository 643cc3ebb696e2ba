//! The last pass: rows in their places, encoded row group by row group, file by file.

use std::ops::Range;
use std::sync::atomic::Ordering;

use arrow::array::RecordBatch;
use parquet::arrow::arrow_writer::ArrowColumnChunk;
use parquet::file::writer::SerializedFileWriter;
use rayon::prelude::*;

use super::Rewriting;
use super::bucket::Bucket;
use super::encode::{GroupEncoder, append, unwritten};
use super::output::OutFile;
use super::shape::OutputGroup;
use rowdex_base::error::{Error, Result};
use rowdex_base::stop;

/// Files being written: positions come in order, without a gap within a file.
pub(super) struct FileWriter<'a> {
    run: &'a Rewriting<'a>,
    /// Row groups that are encoded at once.
    lanes: usize,
    file: Option<SerializedFileWriter<OutFile>>,
    /// The row group that is not complete.
    group: Option<GroupEncoder<'a>>,
}

/// What became of the rows of a row group.
enum Encoded<'a> {
    Whole(Vec<ArrowColumnChunk>),
    /// It goes on in the next bucket.
    Part(GroupEncoder<'a>),
}

impl<'a> FileWriter<'a> {
    pub(super) fn new(run: &'a Rewriting<'a>) -> Self {
        let Rewriting { plan, rewrite, .. } = run;
        let group =
            plan.row_group_rows as f64 * plan.encoded_row_bytes() + 2.0 * plan.chunk_rows as f64 * plan.row_bytes();
        let lanes = (rewrite.memory as f64 / 4.0 / group.max(1.0)) as usize;
        // Two row groups are beside the memory.
        Self { run, lanes: lanes.max(2).min(rewrite.threads), file: None, group: None }
    }

    /// Takes the rows of a bucket. Runs in the pool that encodes.
    pub(super) fn add(&mut self, bucket: &Bucket) -> Result<()> {
        let groups: Vec<OutputGroup> = self.run.plan.shape().groups(bucket.positions.clone()).collect();
        let asked = stop::Asked::of_thread();
        for groups in groups.chunks(self.lanes) {
            // The first row group may have begun in the bucket before.
            let begun = std::iter::once(self.group.take()).chain(std::iter::repeat_with(|| None));
            let begun: Vec<_> = groups.iter().zip(begun).collect();
            let encode = |(group, begun)| {
                let _asked = asked.clone().map(stop::Asked::enter);
                self.run.encode(bucket, group, begun)
            };
            let encoded: Vec<Result<Encoded<'a>>> = begun.into_par_iter().map(encode).collect();
            for (group, encoded) in groups.iter().zip(encoded) {
                match encoded? {
                    Encoded::Part(encoder) => self.group = Some(encoder),
                    Encoded::Whole(encoded) => {
                        self.put(group.file, group.is_last, Some(encoded))?;
                        self.run.meter.advance(group.positions.end - group.positions.start);
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes a file without rows.
    pub(super) fn write_empty(&mut self, file: u64) -> Result<()> {
        self.put(file, true, None)
    }

    /// Adds a row group to a file, which is begun if none is, and put in its place if this is the last of it.
    fn put(&mut self, number: u64, is_last: bool, group: Option<Vec<ArrowColumnChunk>>) -> Result<()> {
        let Rewriting { plan, output, encoding, meter, .. } = self.run;
        let path = output.file(plan, number).display().to_string();
        let put = || {
            let mut file = match self.file.take() {
                Some(file) => file,
                None => encoding.file(output.create(plan, number)?)?,
            };
            if let Some(group) = group {
                append(&mut file, group).map_err(unwritten)?;
            }
            if is_last {
                stop::check()?;
                let length = file.into_inner().map_err(unwritten)?.commit()?;
                meter.bytes_written.fetch_add(length, Ordering::Relaxed);
            } else {
                self.file = Some(file);
            }
            Ok(())
        };
        put().map_err(|error: Error| error.with_file(path))
    }
}

impl Rewriting<'_> {
    /// Encodes those rows of a row group that are in the bucket.
    fn encode<'a>(
        &'a self,
        bucket: &Bucket,
        group: &OutputGroup,
        begun: Option<GroupEncoder<'a>>,
    ) -> Result<Encoded<'a>> {
        let mut encoder = begun.map_or_else(|| self.encoding.group(), Ok)?;
        let start = group.positions.start.max(bucket.positions.start);
        let end = group.positions.end.min(bucket.positions.end);
        for first in (start..end).step_by(self.plan.chunk_rows as usize) {
            stop::check()?;
            encoder.add(self.rows(bucket, first..end.min(first + self.plan.chunk_rows))?)?;
        }
        Ok(if end == group.positions.end { Encoded::Whole(encoder.finish()?) } else { Encoded::Part(encoder) })
    }

    /// Rows of a bucket as they are encoded.
    fn rows(&self, bucket: &Bucket, positions: Range<u64>) -> Result<RecordBatch> {
        let rows = bucket.rows(positions.clone(), &self.columns.plain)?;
        self.columns.encoded_of(&rows, || positions.filter_map(|position| self.order.row(position)).collect())
    }
}
