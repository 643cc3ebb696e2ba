//! The last pass: rows in their places, encoded row group by row group, file by file.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::RecordBatch;
use rayon::prelude::*;

use super::bucket::Bucket;
use super::columns::Columns;
use super::encode::{EncodedGroup, Encoding, GroupEncoder, OpenFile, steps};
use super::folder::Folder;
use super::plan::RewritePlan;
use super::progress::Meter;
use super::shape::{Group, Shape};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::stop;
use rowdex_order::EpochOrder;

/// What files are written with.
pub(super) struct Writing<'a> {
    pub(super) plan: &'a RewritePlan,
    pub(super) folder: &'a Folder,
    pub(super) columns: &'a Columns,
    pub(super) encoding: &'a Encoding,
    pub(super) order: &'a dyn EpochOrder,
    /// Row groups that are encoded at once.
    pub(super) lanes: usize,
    pub(super) meter: &'a Meter,
}

/// Files being written: positions come in order, without a gap within a file.
pub(super) struct Writer<'a> {
    writing: &'a Writing<'a>,
    shape: Shape,
    file: Option<OpenFile>,
    /// The row group that is not complete, and where it goes on.
    group: Option<GroupEncoder<'a>>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(writing: &'a Writing<'a>) -> Self {
        Self { writing, shape: writing.plan.shape(), file: None, group: None }
    }

    /// Takes the rows of a bucket. Runs in the pool that encodes.
    pub(super) fn add(&mut self, bucket: &Bucket) -> Result<()> {
        let mut whole: Vec<Group> = Vec::new();
        for group in self.shape.groups(bucket.positions.clone()) {
            let positions = &group.positions;
            let is_whole = positions.start >= bucket.positions.start && positions.end <= bucket.positions.end;
            if is_whole {
                let ends_file = group.is_last;
                whole.push(group);
                if whole.len() == self.writing.lanes || ends_file {
                    self.add_whole(bucket, std::mem::take(&mut whole))?;
                }
                continue;
            }
            self.add_whole(bucket, std::mem::take(&mut whole))?;
            let start = positions.start.max(bucket.positions.start);
            let end = positions.end.min(bucket.positions.end);
            for step in steps(start..end, self.writing.plan.chunk_rows as usize) {
                stop::check()?;
                let rows = self.writing.rows(bucket, step.clone())?;
                self.add_rows(&group, step, rows)?;
            }
        }
        self.add_whole(bucket, whole)
    }

    /// Row groups of one file that are all in the bucket.
    fn add_whole(&mut self, bucket: &Bucket, groups: Vec<Group>) -> Result<()> {
        let Some(first) = groups.first() else { return Ok(()) };
        let writing = self.writing;
        let factory = Arc::clone(&self.open(first)?.file.factory);
        let asked = stop::Asked::of_thread();
        let encode = |group: &Group| {
            let _asked = asked.clone().map(stop::Asked::enter);
            let mut encoder = GroupEncoder::new(writing.encoding, &factory)?;
            for step in steps(group.positions.clone(), writing.plan.chunk_rows as usize) {
                stop::check()?;
                encoder.add(writing.rows(bucket, step)?)?;
            }
            encoder.finish()
        };
        let encoded: Vec<Result<EncodedGroup>> = groups.par_iter().map(encode).collect();
        for (group, encoded) in groups.iter().zip(encoded) {
            self.put(group, encoded?)?;
        }
        Ok(())
    }

    /// Rows at the next positions of a row group.
    pub(super) fn add_rows(&mut self, group: &Group, positions: Range<u64>, rows: RecordBatch) -> Result<()> {
        let encoding = self.writing.encoding;
        let factory = Arc::clone(&self.open(group)?.file.factory);
        let made = match self.group.take() {
            Some(encoder) => Ok(encoder),
            None => GroupEncoder::new(encoding, &factory),
        };
        let encoder = self.group.insert(made?);
        encoder.add(rows)?;
        if positions.end == group.positions.end
            && let Some(encoder) = self.group.take()
        {
            self.put(group, encoder.finish()?)?;
        }
        Ok(())
    }

    fn open(&mut self, group: &Group) -> Result<&OpenFile> {
        let made = match self.file.take() {
            Some(file) => Ok(file),
            None => {
                let path = self.writing.folder.file(self.writing.plan, group.file);
                OpenFile::create(path, false, self.writing.encoding)
            }
        };
        Ok(self.file.insert(made?))
    }

    fn put(&mut self, group: &Group, encoded: EncodedGroup) -> Result<()> {
        let nothing = || Error::new(ErrorKind::Internal, "a row group of no file");
        self.file.as_mut().ok_or_else(nothing)?.add(encoded)?;
        self.writing.meter.advance(group.positions.end - group.positions.start);
        if group.is_last
            && let Some(file) = self.file.take()
        {
            self.writing.meter.bytes_written.fetch_add(file.commit()?, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Writes a file without rows.
    pub(super) fn write_empty(&mut self, file: u64) -> Result<()> {
        let path = self.writing.folder.file(self.writing.plan, file);
        let length = OpenFile::create(path, false, self.writing.encoding)?.commit()?;
        self.writing.meter.bytes_written.fetch_add(length, Ordering::Relaxed);
        Ok(())
    }
}

impl Writing<'_> {
    /// Rows of a bucket as they are encoded.
    fn rows(&self, bucket: &Bucket, positions: Range<u64>) -> Result<RecordBatch> {
        let (rows, positions) = bucket.rows(positions, &self.columns.plain)?;
        self.columns.encoded_of(&rows, || self.row_ids(positions.into_iter()))
    }

    pub(super) fn row_ids(&self, positions: impl Iterator<Item = u64>) -> Vec<u64> {
        positions.filter_map(|position| self.order.row(position)).collect()
    }
}
