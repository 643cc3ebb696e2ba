//! A rewrite from beginning to end, or one of its tasks.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::bucket::{Bucket, HeldInput, PLACE_BYTES, SpilledBuckets};
use super::encode::Encoding;
use super::output::{INDEX, RewriteOutput};
use super::part::{MOST_ROWS, Spill, SpillPart};
use super::shape::{Buckets, slice};
use super::write::FileWriter;
use super::{Rewrite, RewriteMeter, RewritePlan, RewriteReport, RewriteTask, Rewriting, within};
use crate::builder::{IndexBuilder, LengthsBuilder};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::stop::{Asked, check};
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
    /// [`ErrorKind::Stale`] for a file that is not the one that was indexed; [`ErrorKind::Closed`] if it was told to
    /// stop; and those of reading and writing. What was finished before an error is kept, and can be resumed.
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
            return Err(Error::new(ErrorKind::InvalidArgument, format!("task {task} of {tasks}"))
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
        let wanted: u64 = missing.iter().map(|files| files.end - files.start).sum();
        let rows = |files: &Range<u64>| run.positions(files).end - run.positions(files).start;
        let rows_to_write: u64 = missing.iter().map(rows).sum();
        let has_rows = rows_to_write > 0;
        run.meter.rows = match task {
            None if has_rows => self.dataset.len() + rows_to_write,
            Some(RewriteTask::Write { .. }) => rows_to_write,
            _ => 0,
        };
        match task {
            None => {
                let held = if has_rows { run.hold()? } else { None };
                if has_rows && held.is_none() {
                    run.spill_rows(0, 1)?;
                }
                run.write(&missing, held.as_ref())?;
            }
            // Nobody wants the rows of what is written already.
            Some(RewriteTask::Spill { .. }) if missing.is_empty() => {}
            Some(RewriteTask::Spill { task, tasks }) => run.spill_rows(task, tasks)?,
            Some(RewriteTask::Write { .. }) => run.write(&missing, None)?,
            Some(RewriteTask::Index) => {
                if let Some(files) = missing.first() {
                    return Err(Error::new(ErrorKind::NotFound, "the file is not written yet")
                        .with_file(run.output.file(&run.plan, files.start).display().to_string())
                        .with_hint("wait for the tasks that write"));
                }
            }
        }
        let has_index = matches!(task, None | Some(RewriteTask::Index));
        if has_index {
            run.index()?;
        }
        Ok(RewriteReport {
            rows: run.plan.rows,
            files: run.plan.files,
            kept_files: files.end - files.start - wanted,
            bytes_written: run.meter.bytes_written.load(Ordering::Relaxed),
            bytes_spilled: run.meter.bytes_spilled.load(Ordering::Relaxed),
            index: has_index.then(|| run.output.path(INDEX)),
        })
    }

    fn begin(&self, task: Option<RewriteTask>) -> Result<Rewriting<'_>> {
        let pool = self.pool(self.threads)?;
        let output = RewriteOutput::new(&self.output, &self.dataset)?;
        let plan = self.planned(&pool)?;
        let spill = Spill::new(self.spill.as_deref(), &output, &plan, self.row_groups())?;
        let spills = match task {
            None => !self.fits(&plan),
            Some(task) => task != RewriteTask::Index,
        };
        if spills {
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

    /// Buckets that take a third of the memory, and parts that threads and tasks share evenly.
    pub(super) fn layout(&self, plan: &RewritePlan, tasks: u64) -> Buckets {
        /// Bytes of a segment, below which reading them one by one takes too long.
        const LEAST_SEGMENT: u64 = 64 << 10;
        const LEAST_BUCKETS: u64 = 16;
        const LEAST_PART: f64 = (8 << 20) as f64;
        let threads = self.threads_that_read() as u64;
        let most_buckets = (self.memory / threads / LEAST_SEGMENT).max(LEAST_BUCKETS);
        // Something less than fits, because sizes of rows differ.
        let fits = (self.memory / 3) as f64 * 0.85 / (plan.row_bytes() + 12.0);
        let rows = (fits as u64).max(plan.rows.div_ceil(most_buckets)).clamp(1, MOST_ROWS);
        let groups = rows / plan.row_group_rows * plan.row_group_rows;
        let bytes = self.dataset.len() as f64 * plan.row_bytes();
        let by_memory = bytes / self.memory.max(1) as f64;
        let parts = by_memory.max((threads * 4).saturating_mul(tasks) as f64).min(bytes / LEAST_PART) as u64;
        Buckets {
            rows: plan.rows,
            bucket_rows: if groups > 0 { groups } else { rows },
            parts: parts.clamp(1, self.row_groups().max(1)),
        }
    }

    /// How many rows these row groups have.
    pub(super) fn rows_of(&self, groups: Range<u64>) -> u64 {
        let index = self.dataset.index();
        groups.filter_map(|group| index.row_group(group as u32)).map(|group| group.rows()).sum()
    }

    pub(super) fn row_groups(&self) -> u64 {
        u64::from(self.dataset.index().num_row_groups())
    }
}

impl Rewriting<'_> {
    /// The positions of consecutive files.
    fn positions(&self, files: &Range<u64>) -> Range<u64> {
        let shape = self.plan.shape();
        shape.file(files.start).start..shape.file(files.end - 1).end
    }

    /// All rows in memory, if they fit and nothing was spilled before, which is gone on with.
    fn hold(&mut self) -> Result<Option<HeldInput>> {
        if !self.rewrite.fits(&self.plan) || self.spill.layout()?.is_some() {
            return Ok(None);
        }
        let pool = self.rewrite.pool(self.rewrite.threads_that_read())?;
        let held = HeldInput::read(self, &pool, self.rewrite.most_held(&self.plan))?;
        if held.is_none() {
            // All rows are read again.
            self.meter.rows_done = AtomicU64::default();
        }
        Ok(held)
    }

    /// The second pass, for these files: of rows that are held, or that were spilled.
    fn write(&self, missing: &[Range<u64>], held: Option<&HeldInput>) -> Result<()> {
        let wanted: Vec<_> = missing.iter().map(|files| self.positions(files)).collect();
        let (Some(first), Some(last)) = (wanted.first(), wanted.last()) else { return Ok(()) };
        let all = first.start..last.end;
        let mut writer = FileWriter::new(self);
        if self.plan.rows == 0 {
            return writer.write_empty(0);
        }
        if let Some(held) = held {
            return self.write_each(writer, wanted.into_iter().map(|positions| held.bucket(&*self.order, positions)));
        }
        let spilled = self.spilled(all)?;
        let pieces = wanted.into_iter().flat_map(|positions| spilled.pieces(positions));
        self.write_each(writer, pieces.map(|(bucket, positions)| spilled.load(bucket, positions)))
    }

    /// Writes buckets. One is loaded while the one before is written.
    fn write_each(
        &self,
        mut writer: FileWriter<'_>,
        mut buckets: impl Iterator<Item = Result<Bucket>> + Send,
    ) -> Result<()> {
        let asked = Asked::of_thread();
        within(&self.pool, || {
            let mut load = || {
                let _asked = asked.clone().map(Asked::enter);
                buckets.next().transpose()
            };
            let mut next = load()?;
            while let Some(bucket) = next {
                check()?;
                let (loaded, written) = rayon::join(&mut load, || {
                    let _asked = asked.clone().map(Asked::enter);
                    writer.add(&bucket)
                });
                written?;
                next = loaded?;
            }
            Ok(())
        })
    }

    /// What was spilled for these positions.
    fn spilled(&self, positions: Range<u64>) -> Result<SpilledBuckets> {
        let missing = |error: Error| error.with_hint("run the tasks that spill first");
        let buckets = self.spill.layout()?.ok_or_else(|| {
            let folder = self.spill.folder().map(|folder| folder.display().to_string()).unwrap_or_default();
            missing(Error::new(ErrorKind::NotFound, "nothing is spilled yet").with_file(folder))
        })?;
        let of = positions.start / buckets.bucket_rows..positions.end.div_ceil(buckets.bucket_rows);
        let parts = self.spill.parts(buckets)?;
        let parts = parts.iter().map(|path| {
            SpillPart::open(path, of.clone())
                .map_err(|error| if error.kind() == ErrorKind::NotFound { missing(error) } else { error })
        });
        Ok(SpilledBuckets { parts: parts.collect::<Result<_>>()?, buckets, most: self.rewrite.memory / 3 })
    }

    /// Writes the index of the files, and removes what was spilled.
    fn index(&self) -> Result<()> {
        let found = self.build_index()?;
        if found != self.plan.rows {
            self.output.remove(INDEX)?;
            let wanted = self.plan.rows;
            let message = format!("the files have {found} rows where {wanted} were written: some of them are others");
            return Err(Error::new(ErrorKind::Io, message)
                .with_file(self.output.path("").display().to_string())
                .with_hint("remove the wrong files and resume, or write the output anew with `overwrite`"));
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
