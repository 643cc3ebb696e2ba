//! A rewrite from beginning to end, or one of its tasks.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::bucket::{HeldInput, PLACE_BYTES, SpilledBuckets};
use super::encode::Encoding;
use super::output::{INDEX, RewriteOutput};
use super::part::{Spill, SpillPart};
use super::shape::{OutputGroup, slice};
use super::{Rewrite, RewriteMeter, RewritePlan, RewriteReport, RewriteTask, Rewriting};
use crate::builder::{IndexBuilder, LengthsBuilder};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::stop::Asked;
use rowdex_index::LengthsOf;
use rowdex_io::fs::MoreIdle;
use rowdex_projection::Projection;

/// What one encoded row group lets go of waits for the next one, within the part of the memory that encoding has.
const MOST_IDLE: usize = 64 << 20;

impl Rewrite {
    /// Writes all files, and the index.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`] if the folder has something already, or another process writes to it;
    /// [`ErrorKind::StateMismatch`] if what is resumed is another rewrite; [`ErrorKind::InvalidArgument`] if the folder
    /// has files of the input, and for options that cannot be; [`ErrorKind::Io`] if there is no room;
    /// [`ErrorKind::Stale`] for a file that is not the one that was indexed; [`ErrorKind::Closed`] if it was stopped;
    /// and those of reading and writing. What was finished before an error is kept, and can be resumed.
    pub fn run(&self) -> Result<RewriteReport> {
        self.work(None)
    }

    /// Does one task of a rewrite. All tasks need the same rows, order, options of the output and folders; memory and
    /// threads may differ, and any task may be done again: one that is done does nothing.
    ///
    /// First come all tasks that [spill](RewriteTask::Spill), then all that [write](RewriteTask::Write), then the
    /// [index](RewriteTask::Index). Numbers of tasks need not be equal. The files are those of [`run`](Self::run), to
    /// the byte.
    ///
    /// # Errors
    /// Those of [`run`](Self::run), and [`ErrorKind::NotFound`] if what the task needs is not done.
    pub fn run_task(&self, task: RewriteTask) -> Result<RewriteReport> {
        if let RewriteTask::Spill { task, tasks } | RewriteTask::Write { task, tasks } = task
            && task >= tasks
        {
            return Err(Error::invalid(format!("task {task} of {tasks}"))
                .with_hint("tasks count from 0 to their number less one"));
        }
        self.work(Some(task))
    }

    fn work(&self, task: Option<RewriteTask>) -> Result<RewriteReport> {
        let _asked = self.asked.clone().map(Asked::enter);
        let mut run = self.begin(task)?;
        let files = match task {
            Some(RewriteTask::Write { task, tasks }) => slice(run.plan.files, task, tasks),
            _ => 0..run.plan.files,
        };
        let missing = run.output.missing(&run.plan, files.clone())?;
        let groups: Vec<OutputGroup> = missing.iter().flat_map(|file| run.plan.groups(*file)).collect();
        let rows_to_write: u64 = groups.iter().map(OutputGroup::rows).sum();
        run.meter.rows = match task {
            None if rows_to_write > 0 => self.dataset.len() + rows_to_write,
            Some(RewriteTask::Write { .. }) => rows_to_write,
            _ => 0,
        };
        match task {
            // Nobody wants the rows of what is written already.
            Some(RewriteTask::Spill { .. }) if missing.is_empty() => {}
            Some(RewriteTask::Spill { task, tasks }) => run.spill_rows(task, tasks)?,
            Some(RewriteTask::Index) => {
                if let Some(file) = missing.first() {
                    let file = run.plan.file_name(*file);
                    return Err(Error::new(ErrorKind::NotFound, "the file is not written yet")
                        .with_file(run.output.shown(&file))
                        .with_hint("wait for the tasks that write"));
                }
            }
            _ if rows_to_write > 0 => run.write_rows(&groups, task.is_none())?,
            _ if missing.is_empty() => {}
            _ => run.put(&mut None, 0, true, None)?,
        }
        let has_index = matches!(task, None | Some(RewriteTask::Index));
        if has_index {
            run.index()?;
        }
        Ok(RewriteReport {
            rows: run.plan.rows,
            files: run.plan.files,
            kept_files: files.end - files.start - missing.len() as u64,
            bytes_written: run.meter.bytes_written.load(Ordering::Relaxed),
            bytes_spilled: run.meter.bytes_spilled.load(Ordering::Relaxed),
            index: has_index.then(|| run.output.path(INDEX)),
        })
    }

    fn begin(&self, task: Option<RewriteTask>) -> Result<Rewriting<'_>> {
        let pool = self.pool(self.threads)?;
        let output = RewriteOutput::new(&self.output, &self.dataset)?;
        let plan = self.planned(&pool)?;
        let spill = Spill::new(self.spill.as_deref(), &output, &plan, plan.buckets(self.row_groups()))?;
        if task.map_or(!self.fits(&plan), |task| task != RewriteTask::Index) {
            // Before anything is written.
            spill.folder()?;
        }
        let resumes = self.resume || task.is_some();
        let lock = output.prepare(&plan, resumes, self.overwrite, task.is_none())?;
        if !resumes {
            spill.remove()?;
        }
        let columns = self.columns()?;
        let encoding = Encoding::new(&columns, &plan.columns, &plan.logical_types, plan.chunk_rows)?;
        let idle = usize::try_from(self.memory / 4).unwrap_or(usize::MAX).min(MOST_IDLE);
        Ok(Rewriting {
            rewrite: self,
            plan,
            columns,
            encoding,
            order: self.orders.epoch(0)?,
            output,
            spill,
            meter: RewriteMeter { tell: self.progress.clone(), ..RewriteMeter::default() },
            pool,
            _lock: lock,
            _idle: MoreIdle::of(idle),
        })
    }

    /// Bytes of rows that may be held if nothing is spilled: row groups that are encoded take a quarter of the memory.
    fn most_held(&self, plan: &RewritePlan) -> u64 {
        (self.memory - self.memory / 4).saturating_sub(plan.rows.saturating_mul(PLACE_BYTES))
    }

    /// Whether all rows of the input are held, by their sizes in the sample.
    fn fits(&self, plan: &RewritePlan) -> bool {
        self.dataset.len() as f64 * plan.row_bytes() <= self.most_held(plan) as f64
    }

    /// Threads of the first pass: so few that what they read fits beside what they hold.
    pub(super) fn threads_that_read(&self) -> usize {
        let index = self.dataset.index();
        let bytes: u64 = index.files().map(|file| file.size()).sum();
        let group = bytes / self.row_groups().max(1);
        let more = (self.memory / 4).checked_div(group).unwrap_or(u64::MAX);
        usize::try_from(more.saturating_add(2)).unwrap_or(usize::MAX).clamp(1, self.threads)
    }

    /// How many rows these row groups have.
    pub(super) fn rows_of(&self, groups: Range<u64>) -> u64 {
        let index = self.dataset.index();
        let first = |group: u64| index.row_group(group as u32).map_or(index.len(), |group| group.first_row());
        first(groups.end) - first(groups.start)
    }

    pub(super) fn row_groups(&self) -> u64 {
        u64::from(self.dataset.index().num_row_groups())
    }
}

impl Rewriting<'_> {
    /// Writes row groups: of all rows of the input in memory, if they fit and nothing was spilled before, which is gone
    /// on with; else of what was spilled, of which one that works alone spills what is missing.
    fn write_rows(&mut self, groups: &[OutputGroup], is_alone: bool) -> Result<()> {
        if is_alone {
            if self.rewrite.fits(&self.plan) && !self.spill.is_begun() {
                if let Some(held) = HeldInput::read(self, self.rewrite.most_held(&self.plan))? {
                    let load = |positions| held.bucket(&*self.order, positions);
                    return self.write(groups.chunks(1).collect(), 0.0, load);
                }
                // All rows are read again.
                self.meter.rows_done = AtomicU64::default();
            }
            self.spill_rows(0, 1)?;
        }
        let buckets = &self.spill.buckets;
        let [first, last] = [groups.first(), groups.last()]
            .map(|group| group.map_or(0, |group| buckets.place(group.positions.start).0));
        let open = |part: u64| {
            SpillPart::open(&self.spill.part(part)?, first..last + 1).map_err(|error| match error.kind() {
                ErrorKind::NotFound => error.with_hint("run the tasks that spill first"),
                _ => error,
            })
        };
        let parts = (0..buckets.parts).map(open).collect::<Result<_>>()?;
        let spilled = SpilledBuckets { parts, buckets, most: self.rewrite.memory / 4 };
        self.write(spilled.pieces(groups).collect(), self.plan.row_bytes(), |positions| spilled.load(positions))
    }

    /// Writes the index of the files, and removes what was spilled.
    fn index(&self) -> Result<()> {
        let found = self.build_index()?;
        if found != self.plan.rows {
            self.output.remove(INDEX)?;
            let wanted = self.plan.rows;
            let message = format!("the files have {found} rows where {wanted} were written: some of them are others");
            return Err(Error::new(ErrorKind::Io, message)
                .with_file(self.output.shown(""))
                .with_hint("remove the wrong files and resume, or write the output again with `overwrite`"));
        }
        self.output.clean(&self.plan)?;
        self.spill.remove()?;
        // What was spilled here before it was resumed with a spill folder elsewhere.
        self.output.remove_spilled()
    }

    /// Lengths of columns that are written are read of them. Others, given ones among them, are brought to the order of
    /// the rows, which takes eight bytes a row for as long as they are noted. Returns how many rows the files have.
    fn build_index(&self) -> Result<u64> {
        let dataset = &self.rewrite.dataset;
        let input = dataset.index();
        let path = self.output.path(INDEX);
        let is_written = |name: &str| Projection::columns(dataset.schema(), &[name]).is_ok();
        let mut columns = Vec::new();
        let mut given = LengthsBuilder::new(&path).with_store_options(dataset.store_options().clone());
        let mut has_given = false;
        for name in input.lengths_columns()? {
            let lengths = input.lengths(name)?;
            if matches!(lengths.of(), LengthsOf::Items | LengthsOf::Numbers) && is_written(name) {
                columns.push(name.to_owned());
                continue;
            }
            let mut all = Vec::new();
            lengths.read(0..input.len(), &mut all)?;
            let rows = (0..self.plan.rows).filter_map(|position| self.order.row(position));
            let ordered = rows.filter_map(|row| all.get(usize::try_from(row).ok()?).copied()).collect::<Vec<_>>();
            given = given.with_given(name, ordered);
            has_given = true;
        }
        let files = (0..self.plan.files).map(|file| self.output.file(&self.plan, file));
        let builder = IndexBuilder::new(files).with_root(self.output.path("")).with_partitions(false);
        let builder = builder.with_overwrite(true).with_store_options(dataset.store_options().clone());
        let found = builder.with_lengths(columns).build(&path)?.rows;
        // Lengths of other rows could not be noted.
        if has_given && found == self.plan.rows {
            given.write()?;
        }
        Ok(found)
    }
}
