//! The last pass: rows in their places, encoded row group by row group, file by file.

use std::ops::Range;
use std::sync::atomic::Ordering;

use arrow::array::RecordBatch;
use rayon::prelude::*;

use super::bucket::Bucket;
use super::columns::OutputColumns;
use super::encode::{EncodedFile, EncodedGroup, Encoding, GroupEncoder, steps};
use super::output::RewriteOutput;
use super::plan::RewritePlan;
use super::progress::RewriteMeter;
use super::shape::{OutputGroup, OutputShape};
use rowdex_base::error::Result;
use rowdex_base::stop;
use rowdex_io::source::UploadOptions;
use rowdex_order::EpochOrder;

/// What files are written with.
pub(super) struct Writing<'a> {
    pub(super) plan: &'a RewritePlan,
    pub(super) output: &'a RewriteOutput,
    pub(super) uploads: UploadOptions,
    pub(super) columns: &'a OutputColumns,
    pub(super) encoding: &'a Encoding,
    pub(super) order: &'a dyn EpochOrder,
    /// Row groups that are encoded at once.
    pub(super) lanes: usize,
    pub(super) meter: &'a RewriteMeter,
}

/// Files being written: positions come in order, without a gap within a file.
pub(super) struct FileWriter<'a> {
    writing: &'a Writing<'a>,
    shape: OutputShape,
    file: Option<EncodedFile>,
    /// The row group that is not complete, and where it goes on.
    group: Option<GroupEncoder<'a>>,
}

/// What became of the rows of a row group.
enum Encoded<'a> {
    Whole(EncodedGroup),
    /// It goes on in the next bucket.
    Part(GroupEncoder<'a>),
}

impl<'a> FileWriter<'a> {
    pub(super) fn new(writing: &'a Writing<'a>) -> Self {
        Self { writing, shape: writing.plan.shape(), file: None, group: None }
    }

    /// Takes the rows of a bucket. Runs in the pool that encodes.
    pub(super) fn add(&mut self, bucket: &Bucket) -> Result<()> {
        let groups: Vec<OutputGroup> = self.shape.groups(bucket.positions.clone()).collect();
        for groups in groups.chunks(self.writing.lanes) {
            let asked = stop::Asked::of_thread();
            // The first row group may have begun in the bucket before.
            let begun = std::iter::once(self.group.take()).chain(std::iter::repeat_with(|| None));
            let begun: Vec<_> = groups.iter().zip(begun).collect();
            let encode = |(group, begun)| {
                let _asked = asked.clone().map(stop::Asked::enter);
                self.writing.encode(bucket, group, begun)
            };
            let encoded: Vec<Result<Encoded<'a>>> = begun.into_par_iter().map(encode).collect();
            for (group, encoded) in groups.iter().zip(encoded) {
                match encoded? {
                    Encoded::Whole(encoded) => self.put(group, encoded)?,
                    Encoded::Part(encoder) => self.group = Some(encoder),
                }
            }
        }
        Ok(())
    }

    /// Writes the next row group.
    fn put(&mut self, group: &OutputGroup, encoded: EncodedGroup) -> Result<()> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => self.writing.create(group.file)?,
        };
        file.add(encoded)?;
        self.writing.meter.advance(group.positions.end - group.positions.start);
        match group.is_last {
            true => {
                self.writing.meter.bytes_written.fetch_add(file.commit()?, Ordering::Relaxed);
            }
            false => self.file = Some(file),
        }
        Ok(())
    }

    /// Writes a file without rows.
    pub(super) fn write_empty(&mut self, file: u64) -> Result<()> {
        let length = self.writing.create(file)?.commit()?;
        self.writing.meter.bytes_written.fetch_add(length, Ordering::Relaxed);
        Ok(())
    }
}

impl<'a> Writing<'a> {
    fn create(&self, file: u64) -> Result<EncodedFile> {
        let path = self.output.file(self.plan, file);
        EncodedFile::create(path, self.output.create(self.plan, file, self.uploads)?, self.encoding)
    }

    /// Encodes those rows of a row group that are in the bucket.
    fn encode(&self, bucket: &Bucket, group: &OutputGroup, begun: Option<GroupEncoder<'a>>) -> Result<Encoded<'a>> {
        let mut encoder = begun.map_or_else(|| self.encoding.group(), Ok)?;
        let start = group.positions.start.max(bucket.positions.start);
        let end = group.positions.end.min(bucket.positions.end);
        for step in steps(start..end, self.plan.chunk_rows as usize) {
            stop::check()?;
            encoder.add(self.rows(bucket, step)?)?;
        }
        Ok(if end == group.positions.end { Encoded::Whole(encoder.finish()?) } else { Encoded::Part(encoder) })
    }

    /// Rows of a bucket as they are encoded.
    fn rows(&self, bucket: &Bucket, positions: Range<u64>) -> Result<RecordBatch> {
        let rows = bucket.rows(positions.clone(), &self.columns.plain)?;
        self.columns.encoded_of(&rows, || positions.filter_map(|position| self.order.row(position)).collect())
    }
}
