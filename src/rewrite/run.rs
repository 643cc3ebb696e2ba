//! A rewrite from beginning to end, or one of its tasks.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;

use rayon::ThreadPool;

use super::bucket::{Bucket, Loading};
use super::columns::OutputColumns;
use super::destinations::Destinations;
use super::encode::Encoding;
use super::held::RowsInMemory;
use super::output::{ExistingOutput, RewriteOutput};
use super::part::SpillPart;
use super::plan::RewritePlan;
use super::progress::{Phase, RewriteMeter, RewriteReport};
use super::reading::FirstPass;
use super::shape::Buckets;
use super::spill::{Spill, SpillLayout, remove_all};
use super::spread::{SpillPass, units};
use super::write::{FileWriter, Writing};
use super::{Rewrite, RewriteTask, within};
use rowdex_base::error::{Error, ErrorKind, Remedy, Result};
use rowdex_base::stop::{Asked, check};
use rowdex_io::fs::MoreIdle;
use rowdex_io::source::UploadOptions;
use rowdex_io::source::place::Place;
use rowdex_order::EpochOrder;

/// What one encoded row group lets go of waits for the next one, within the part of the memory that encoding has.
const MOST_IDLE: usize = 64 << 20;

/// A rewrite at work.
struct Rewriting {
    rewrite: Rewrite,
    plan: RewritePlan,
    columns: OutputColumns,
    encoding: Encoding,
    order: Arc<dyn EpochOrder>,
    output: RewriteOutput,
    uploads: UploadOptions,
    spill: Spill,
    meter: RewriteMeter,
    pool: ThreadPool,
    /// Whether nothing of it was there before.
    is_new: bool,
    _idle: MoreIdle,
}

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
        let _asked = self.asked.clone().map(Asked::enter);
        let found = match (self.resume, self.overwrite) {
            (true, _) => ExistingOutput::Resume,
            (false, true) => ExistingOutput::Replace,
            (false, false) => ExistingOutput::Refuse,
        };
        let mut run = self.begin(found, true)?;
        let missing = run.output.missing(&run.plan, 0..run.plan.files)?;
        let kept_files = run.plan.files - missing.iter().map(|files| files.end - files.start).sum::<u64>();
        let has_rows = run.plan.rows > 0 && !missing.is_empty();
        let held = if has_rows { run.hold(&missing)? } else { None };
        if has_rows && held.is_none() {
            run.spread(0, 1)?;
        }
        run.write(&missing, held)?;
        run.index()?;
        Ok(run.report(kept_files, true))
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
        let _asked = self.asked.clone().map(Asked::enter);
        if let RewriteTask::Spill { task, tasks } | RewriteTask::Write { task, tasks } = task {
            check_task(task, tasks)?;
        }
        let mut run = self.begin(ExistingOutput::Resume, false)?;
        match task {
            RewriteTask::Spill { task, tasks } => {
                // Nobody wants the rows of what is written already.
                if !run.output.missing(&run.plan, 0..run.plan.files)?.is_empty() {
                    run.spread(task, tasks)?;
                }
                Ok(run.report(0, false))
            }
            RewriteTask::Write { task, tasks } => {
                let files = slice(run.plan.files, task, tasks);
                let missing = run.output.missing(&run.plan, files.clone())?;
                let wanted: u64 = missing.iter().map(|files| files.end - files.start).sum();
                run.write(&missing, None)?;
                Ok(run.report(files.end - files.start - wanted, false))
            }
            RewriteTask::Index => {
                if let Some(files) = run.output.missing(&run.plan, 0..run.plan.files)?.first() {
                    return Err(Error::new(ErrorKind::NotFound, "the file is not written yet")
                        .with_file(run.output.file(&run.plan, files.start).display().to_string())
                        .with_hint("wait for the tasks that write"));
                }
                run.index()?;
                Ok(run.report(run.plan.files, true))
            }
        }
    }

    fn begin(&self, found: ExistingOutput, is_alone: bool) -> Result<Rewriting> {
        let pool = self.pool(self.threads)?;
        let mut output = RewriteOutput::new(&self.output, &self.dataset)?;
        let plan = self.planned(&pool)?;
        let (rewrite, uploads) = self.beside_uploads(&plan)?;
        let spill = Spill::new(self.spill.as_deref(), (output.folder(), &output.path()), &plan)?;
        if let Err(error) = spill.folder()
            && (!is_alone || !rewrite.fits(&plan))
            && !(found == ExistingOutput::Resume && output.missing(&plan, 0..plan.files)?.is_empty())
        {
            // Before anything is written.
            return Err(error);
        }
        let goes_on = output.prepare(&plan, found, is_alone)?;
        if is_alone && !goes_on {
            spill.remove()?;
        }
        let columns = self.columns()?;
        let encoding = Encoding::new(&columns, &plan.columns, &plan.groups, plan.chunk_rows as usize)?;
        let order = self.orders.epoch(0)?;
        let meter = RewriteMeter::new(self.progress.clone());
        let _idle = MoreIdle::of(usize::try_from(self.memory / 4).unwrap_or(usize::MAX).min(MOST_IDLE));
        let is_new = !goes_on;
        Ok(Rewriting { rewrite, plan, columns, encoding, order, output, uploads, spill, meter, pool, is_new, _idle })
    }
}

impl Rewriting {
    /// The positions of consecutive files.
    fn positions(&self, files: &Range<u64>) -> Range<u64> {
        let shape = self.plan.shape();
        shape.file(files.start).start..shape.file(files.end - 1).end
    }

    fn rows_of(&self, missing: &[Range<u64>]) -> u64 {
        missing.iter().map(|files| self.positions(files)).map(|positions| positions.end - positions.start).sum()
    }

    /// All rows in memory, if they fit and nothing was spilled before.
    fn hold(&mut self, missing: &[Range<u64>]) -> Result<Option<RowsInMemory>> {
        // What was begun with a spill goes on with it.
        if self.spill.layout()?.is_some() {
            return Ok(None);
        }
        let fits = self.rewrite.fits(&self.plan);
        self.check_room(missing, !fits)?;
        if !fits {
            return Ok(None);
        }
        self.meter.begin(Phase::Read, self.rewrite.dataset.len());
        let most = self.rewrite.most_held(&self.plan);
        let pool = self.rewrite.pool(self.rewrite.threads_that_read())?;
        let held = RowsInMemory::read(&self.reading(), &pool, &self.meter, most)?;
        if held.is_none() {
            self.check_room(missing, true)?;
        }
        Ok(held)
    }

    /// Refuses to begin where there is no room.
    fn check_room(&self, missing: &[Range<u64>], spills: bool) -> Result<()> {
        let share = self.rows_of(missing) as f64 / self.plan.rows.max(1) as f64;
        let written = (self.plan.output_bytes() as f64 * share) as u64;
        let spilled = if spills { self.plan.spilled_bytes() } else { 0 };
        let folder = if spills { self.spill.folder().map(drop) } else { Ok(()) };
        let checked = folder.and_then(|()| self.spill.check_room(spilled, self.output.folder(), written));
        // The folder is as free for another rewrite as it was before this one.
        if checked.is_err() && self.is_new {
            self.output.remove_plan()?;
        }
        checked
    }

    fn reading(&self) -> FirstPass<'_> {
        FirstPass { dataset: &self.rewrite.dataset, columns: &self.columns, chunk_rows: self.plan.chunk_rows as usize }
    }

    fn writing(&self) -> Writing<'_> {
        let memory = self.rewrite.memory / 4;
        let group = self.plan.row_group_rows as f64 * self.plan.encoded_row_bytes()
            + 2.0 * self.plan.chunk_rows as f64 * self.plan.row_bytes();
        let lanes = (memory as f64 / group.max(1.0)) as usize;
        Writing {
            plan: &self.plan,
            output: &self.output,
            uploads: self.uploads,
            columns: &self.columns,
            encoding: &self.encoding,
            order: &*self.order,
            // Two row groups are beside the memory.
            lanes: lanes.max(2).min(self.rewrite.threads),
            meter: &self.meter,
        }
    }

    /// Spills all rows, or those of one of so many equal parts of the input.
    fn spread(&mut self, task: u64, tasks: u64) -> Result<()> {
        let memory = self.rewrite.memory;
        let layout = self.spill.prepare(self.rewrite.layout(&self.plan, tasks), tasks == 1)?;
        let destinations = Destinations::new(Arc::clone(&self.order), memory / 4)?;
        let index = self.rewrite.dataset.index();
        let own = slice(layout.units.len() as u64, task, tasks);
        let own = own.start as usize..own.end as usize;
        let start = own.start.checked_sub(1).map_or(0, |before| layout.units[before]);
        let end = if own.is_empty() { start } else { layout.units[own.end - 1] };
        let rows = (start..end).filter_map(|group| index.row_group(group)).map(|group| group.rows()).sum();
        self.meter.begin(Phase::Read, rows);
        let threads = self.rewrite.threads_that_read();
        let spread = SpillPass {
            reading: self.reading(),
            destinations: &destinations,
            spill: &self.spill,
            layout: &layout,
            compresses: self.plan.compresses_spill(),
            held: (memory - memory / 4).saturating_sub(destinations.bytes()) / threads as u64,
            meter: &self.meter,
        };
        spread.run(&self.rewrite.pool(threads)?, own)
    }

    /// The second pass, for these files: of rows that are held, or that were spilled.
    fn write(&mut self, missing: &[Range<u64>], held: Option<RowsInMemory>) -> Result<()> {
        self.meter.begin(Phase::Write, self.rows_of(missing));
        let writing = self.writing();
        let mut writer = FileWriter::new(&writing);
        if self.plan.rows == 0 {
            return missing.iter().try_for_each(|files| writer.write_empty(files.start));
        }
        let wanted: Vec<_> = missing.iter().map(|files| self.positions(files)).collect();
        let Some(held) = held else { return self.write_spilled(&wanted, writer) };
        wanted
            .into_iter()
            .try_for_each(|positions| within(&self.pool, || writer.add(&held.bucket(&*self.order, positions)?)))
    }

    fn write_spilled(&self, wanted: &[Range<u64>], mut writer: FileWriter<'_>) -> Result<()> {
        let (Some(first), Some(last)) = (wanted.first(), wanted.last()) else { return Ok(()) };
        let layout = self.layout()?;
        let buckets = layout.buckets.place(first.start).0..layout.buckets.place(last.end - 1).0 + 1;
        let parts = self.parts(&layout, buckets)?;
        let loading = Loading {
            rows: &self.columns.plain,
            most: self.rewrite.memory / 3,
            batch_rows: self.plan.chunk_rows as usize,
            compresses: self.plan.compresses_spill(),
            folder: self.spill.folder()?,
        };
        // One bucket is loaded while the one before is written.
        let (sender, receiver) = sync_channel::<Bucket>(0);
        let asked = Asked::of_thread();
        thread::scope(|scope| {
            let load = || {
                let _asked = asked.map(Asked::enter);
                let mut hand =
                    |bucket| sender.send(bucket).map_err(|_| Error::new(ErrorKind::Closed, "the writing has failed"));
                for positions in wanted {
                    for (bucket, positions) in layout.buckets.within(positions.clone()) {
                        loading.load(&parts, &layout.buckets, bucket, positions, &mut hand)?;
                    }
                }
                drop(sender);
                Ok(())
            };
            let named = thread::Builder::new().name("rowdex-load".to_owned());
            let loader = named.spawn_scoped(scope, load).map_err(|error| Error::io("cannot start a thread", error))?;
            let receive = || {
                for bucket in receiver {
                    check()?;
                    within(&self.pool, || writer.add(&bucket))?;
                }
                Ok(())
            };
            let written = receive();
            let loaded = loader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            written.and(loaded)
        })
    }

    fn layout(&self) -> Result<SpillLayout> {
        self.spill.layout()?.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "nothing is spilled yet")
                .with_file(self.spill.folder().map(|folder| folder.display().to_string()).unwrap_or_default())
                .with_hint("run the tasks that spill first")
        })
    }

    /// All parts, with their segments of these buckets.
    fn parts(&self, layout: &SpillLayout, buckets: Range<u64>) -> Result<Vec<SpillPart>> {
        let parts =
            (0..layout.units.len()).map(|unit| SpillPart::open(&self.spill.part(layout, unit)?, buckets.clone()));
        parts.collect::<Result<_>>().map_err(|error| match error.kind() {
            ErrorKind::NotFound => error.with_hint("run the tasks that spill first"),
            _ => error,
        })
    }

    /// Writes the index of the files, and removes what was spilled.
    fn index(&self) -> Result<()> {
        let rows = || (0..self.plan.rows).filter_map(|position| self.order.row(position));
        let files = (0..self.plan.files).map(|file| self.output.file(&self.plan, file));
        let found = super::lengths::build(&self.rewrite.dataset, files.collect(), &self.output, rows)?;
        if found != self.plan.rows {
            self.output.remove_index()?;
            let wanted = self.plan.rows;
            let message = format!("the files have {found} rows where {wanted} were written: some of them are others");
            return Err(Error::new(ErrorKind::Io, message)
                .with_file(self.output.path().display().to_string())
                .with_remedies(
                    "remove the wrong files and resume, or write the output anew ({})",
                    &[Remedy::Overwrite],
                ));
        }
        self.output.clean(&self.plan)?;
        self.spill.remove()?;
        // What was spilled here before it was resumed with a spill folder elsewhere.
        self.output.folder().map_or(Ok(()), remove_all)
    }

    fn report(&self, kept_files: u64, has_index: bool) -> RewriteReport {
        use std::sync::atomic::Ordering::Relaxed;
        RewriteReport {
            rows: self.plan.rows,
            files: self.plan.files,
            kept_files,
            bytes_written: self.meter.bytes_written.load(Relaxed),
            bytes_spilled: self.meter.bytes_spilled.load(Relaxed),
            index: has_index.then(|| self.output.index()),
        }
    }
}

impl Rewrite {
    /// The rewrite within the memory that uploads leave, if the output is in a store, and what these take.
    ///
    /// # Errors
    /// `InvalidArgument` if files are so large that parts of them do not fit.
    fn beside_uploads(&self, plan: &RewritePlan) -> Result<(Self, UploadOptions)> {
        const LEAST_PART: u64 = 8 << 20;
        /// Half of what S3 allows, because the size of a file is an estimate.
        const MOST_PARTS: u64 = 5000;
        let file = plan.output_bytes() / plan.files.max(1);
        let part = (file / MOST_PARTS).next_multiple_of(1 << 20).max(LEAST_PART);
        let parts = (self.memory / 8 / part).clamp(2, 4);
        let mut rewrite = self.clone();
        if Place::of(&self.output)?.url().is_some() {
            if part > LEAST_PART && 2 * part > self.memory / 2 {
                let message = format!("files of {file} bytes go up in parts of {part}, two of which are in memory");
                return Err(Error::new(ErrorKind::InvalidArgument, message)
                    .with_hint("write more files (or name their bytes), or give four times as much memory as a part"));
            }
            rewrite.memory -= (parts * part).min(self.memory / 2);
        }
        Ok((rewrite, UploadOptions { part_bytes: part as usize, parts: parts as usize }))
    }

    /// Bytes of rows that may be held if nothing is spilled: row groups that are encoded take a quarter of the memory.
    fn most_held(&self, plan: &RewritePlan) -> u64 {
        (self.memory - self.memory / 4).saturating_sub(RowsInMemory::place_bytes(plan.rows))
    }

    /// Whether all rows of the input are held, by their sizes in the sample.
    fn fits(&self, plan: &RewritePlan) -> bool {
        self.dataset.len() as f64 * plan.row_bytes() <= self.most_held(plan) as f64
    }

    /// Threads of the first pass: so few that what they read fits beside what they hold.
    fn threads_that_read(&self) -> usize {
        let index = self.dataset.index();
        let bytes: u64 = index.files().map(|file| file.size()).sum();
        let group = bytes / u64::from(index.num_row_groups().max(1));
        let more = (self.memory / 4).checked_div(group).unwrap_or(u64::MAX);
        usize::try_from(more.saturating_add(2)).unwrap_or(usize::MAX).clamp(1, self.threads)
    }

    /// Buckets that take a third of the memory, and units of row groups that make parts.
    fn layout(&self, plan: &RewritePlan, tasks: u64) -> SpillLayout {
        /// Bytes of a segment, below which reading them one by one takes too long.
        const LEAST_SEGMENT: u64 = 64 << 10;
        const LEAST_BUCKETS: u64 = 16;
        const LEAST_UNIT: u64 = 8 << 20;
        let threads = self.threads_that_read() as u64;
        let most_buckets = (self.memory / threads / LEAST_SEGMENT).max(LEAST_BUCKETS);
        // Something less than fits, because sizes of rows differ.
        let fits = (self.memory / 3) as f64 * 0.85 / (plan.row_bytes() + 12.0);
        let rows = (fits as u64).max(plan.rows.div_ceil(most_buckets)).clamp(1, u64::from(u32::MAX));
        let rows = if rows >= plan.row_group_rows { rows / plan.row_group_rows * plan.row_group_rows } else { rows };
        let index = self.dataset.index();
        let told: f64 = index.row_groups().map(|group| group.decoded_bytes() as f64).sum();
        let decoded = plan.row_bytes() * index.source_rows() as f64;
        let scale = if told > 0.0 { decoded / told } else { 1.0 };
        let unit = (decoded as u64 / threads.saturating_mul(4).saturating_mul(tasks))
            .clamp(LEAST_UNIT, self.memory.max(LEAST_UNIT));
        SpillLayout::new(Buckets { positions: 0..plan.rows, rows }, units(index, unit, scale))
    }
}

/// One of so many consecutive pieces, whose sizes differ by one at most.
fn slice(count: u64, task: u64, tasks: u64) -> Range<u64> {
    let at = |task: u64| (u128::from(count) * u128::from(task) / u128::from(tasks)) as u64;
    at(task)..at(task + 1)
}

fn check_task(task: u64, tasks: u64) -> Result<()> {
    if task < tasks {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidArgument, format!("task {task} of {tasks}"))
        .with_hint("tasks count from 0 to their number less one"))
}
