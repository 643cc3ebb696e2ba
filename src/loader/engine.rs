//! The threads of a loader: they do what the schedule says.
//!
//! All progress is behind one lock, which nobody holds while working. A thread that is free asks the schedule what
//! comes next. Segments are claimed and handed out in order, so nothing that is served depends on which thread was when
//! where.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

use super::assemble::{Assembled, Making};
use super::batch::LoaderStats;
use super::carousel::{Carousel, DueRows};
use super::cutting;
use super::deliver::{Deliver, Watched, closed, timed_out};
use super::driver::{BatchRange, Driver, Walk};
use super::extract;
use super::lookahead::Lookahead;
use super::plan::{Budget, Measurement, Plan, PlanAnswer};
use super::recovery::{Faults, Recovery, caught, panicked};
pub(crate) use super::schedule::Settings;
use super::schedule::{Extraction, ExtractionOutcome, Read, Schedule, Task};
use super::units::{Units, some};
use crate::dataset::Prefetch;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::stop::{self, Asked};
use rowdex_io::fs::MoreIdle;
use rowdex_rows::{Dictionaries, Held};

/// Batches that take more than this part of the memory, and more than so many bytes, are not made at once. Segments
/// are much smaller, unless strings repeat in them.
const MADE_PART: u64 = 16;
const LEAST_MADE: u64 = 4 << 20;
/// Blocks that are free wait to be used again, up to this part of the memory beyond the first bytes that wait in any
/// case, and so many bytes: the kernel would clear the pages of a row group of images for each one that is read.
const IDLE_PART: u64 = 8;
const FIRST_IDLE: u64 = 8 << 20;
const MOST_IDLE: u64 = 24 << 20;

/// Threads that work a run off from a given batch on. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Engine {
    shared: Arc<EngineCore>,
    threads: Vec<JoinHandle<()>>,
}

struct EngineCore {
    /// For what comes later, and must not keep it alive.
    me: Weak<Self>,
    /// There are no threads: whoever wants a segment works for it.
    inline: bool,
    units: Arc<Units>,
    faults: Arc<Faults>,
    batch_rows: u64,
    /// Bytes of a batch that was made last, and those that batches may have that are made at once.
    made: AtomicU64,
    most_made: u64,
    progress: Mutex<EngineProgress>,
    /// Whether the threads are to end. It is set under the lock of the progress, and read without one where a thread
    /// waits for a store.
    ending: AtomicBool,
    /// Wakes threads: there may be something to do, or to serve.
    work: Condvar,
    ready: Condvar,
    _idle: MoreIdle,
}

/// Where a run stands.
struct EngineProgress {
    schedule: Schedule,
    /// `None` while the plan is being asked.
    driver: Option<Box<Driver>>,
    /// What comes after the last segment that was planned.
    error: Option<Error>,
    /// What is read ahead, by the number of the extraction.
    prefetch: BTreeMap<u64, Prefetch>,
    /// Segments that were planned and not begun, with how many rows of which unit they are made of.
    tickets: VecDeque<(BatchRange, Vec<(u32, u32)>)>,
    /// Segments of which some batches are made, by number.
    rest: BTreeMap<u64, Making>,
    carousel: Carousel,
    /// Segments that wait for the consumer, by number.
    out: BTreeMap<u64, Assembled>,
    stats: LoaderStats,
}

impl Engine {
    /// Starts its threads, if any.
    pub(crate) fn start(
        units: Arc<Units>,
        faults: Arc<Faults>,
        walk: Box<dyn Walk>,
        settings: &Settings,
    ) -> Result<Self> {
        let sizes = units.due_sizes();
        let lookahead = Lookahead::new(&units, settings.memory, settings.threads, settings.read_concurrency);
        let memory = settings.memory - lookahead.reserve();
        let budget = Budget { memory: memory as f64, batch_rows: settings.batch_rows, cutting: units.cutting() };
        let mut plan = Plan::new(&sizes, budget, 1, settings.seed);
        plan.set_aside(units.places_bytes());
        let driver = Driver::new(plan, walk, units.finder(), Arc::clone(&units), Arc::clone(&faults));
        let progress = EngineProgress {
            schedule: Schedule::new(settings.clone(), lookahead),
            driver: Some(Box::new(driver)),
            error: None,
            prefetch: BTreeMap::new(),
            tickets: VecDeque::new(),
            rest: BTreeMap::new(),
            carousel: Carousel::new(sizes.len()),
            out: BTreeMap::new(),
            stats: LoaderStats::default(),
        };
        let shared = Arc::new_cyclic(|me: &Weak<EngineCore>| EngineCore {
            me: Weak::clone(me),
            inline: settings.threads == 0,
            units,
            faults,
            batch_rows: settings.batch_rows,
            made: AtomicU64::new(0),
            most_made: (settings.memory / MADE_PART).max(LEAST_MADE),
            progress: Mutex::new(progress),
            ending: AtomicBool::new(false),
            work: Condvar::new(),
            ready: Condvar::new(),
            _idle: MoreIdle::of((settings.memory / IDLE_PART).saturating_sub(FIRST_IDLE).min(MOST_IDLE) as usize),
        });
        let mut engine = Self { shared, threads: Vec::new() };
        for number in 0..settings.threads {
            let shared = Arc::clone(&engine.shared);
            let thread = std::thread::Builder::new().name(format!("rowdex-loader-{number}"));
            let work = move || {
                let ends = Arc::clone(&shared);
                let _asked = Asked::new(move || ends.ending.load(Ordering::Relaxed)).enter();
                shared.work();
            };
            let thread = thread.spawn(work).map_err(|error| {
                Error::io("cannot start a thread of the loader", error).with_hint("ask for fewer threads")
            })?;
            engine.threads.push(thread);
        }
        Ok(engine)
    }

    /// Goes on after the end, because the walk has more.
    pub(crate) fn go_on(&self) {
        let mut progress = self.shared.lock();
        if progress.error.is_none() {
            progress.schedule.ended = false;
        }
        drop(progress);
        self.shared.work.notify_all();
    }
}

impl Deliver for Engine {
    /// Works for it if there are no threads.
    fn next(&self, until: Option<Instant>) -> Result<Option<Assembled>> {
        let shared = &*self.shared;
        let mut progress = shared.lock();
        // Whoever never waits gets its batches, too, if it asks often enough.
        let mut worked = false;
        loop {
            let number = progress.schedule.next_out();
            if let Some(assembled) = progress.out.remove(&number) {
                progress.schedule.handed_out();
                shared.work.notify_all();
                return Ok(Some(assembled));
            }
            if progress.schedule.is_over() {
                return progress.error.clone().map_or(Ok(None), Err);
            }
            if shared.ending.load(Ordering::Relaxed) {
                return Err(closed());
            }
            stop::check()?;
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let is_too_late = left.is_some_and(|left| left.is_zero());
            if is_too_late && (worked || !shared.inline) {
                return Err(timed_out());
            }
            if shared.inline {
                let Some(task) = progress.schedule.next() else {
                    return Err(Error::new(ErrorKind::Internal, "the loader has nothing to do and is not done"));
                };
                progress = shared.run(task, progress);
                worked = true;
            } else {
                progress = match left.into_iter().chain(stop::tick()).min() {
                    None => shared.ready.wait(progress).unwrap_or_else(PoisonError::into_inner),
                    Some(left) => shared.ready.wait_timeout(progress, left).unwrap_or_else(PoisonError::into_inner).0,
                };
            }
        }
    }

    fn watched(&self) -> Arc<dyn Watched> {
        self.shared.clone()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.stop();
        for thread in self.threads.drain(..) {
            // A thread of the loader catches what it runs, so there is no panic to pass on.
            let _ = thread.join();
        }
    }
}

impl Watched for EngineCore {
    /// Ends the threads too, each once it is done with what it has at hand, which is not waited for where it is to come
    /// from a store.
    fn stop(&self) {
        let progress = self.lock();
        self.ending.store(true, Ordering::Relaxed);
        drop(progress);
        self.work.notify_all();
        self.ready.notify_all();
    }

    fn stats(&self) -> LoaderStats {
        let progress = self.lock();
        let (held_bytes, peak_bytes) = progress.schedule.bytes();
        LoaderStats { held_bytes, peak_bytes, ..progress.stats }
    }
}

impl EngineCore {
    fn lock(&self) -> MutexGuard<'_, EngineProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut progress = self.lock();
        while !self.ending.load(Ordering::Relaxed) {
            progress = match progress.schedule.next() {
                Some(task) => self.run(task, progress),
                None => self.work.wait(progress).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Does a task, without the lock but where it takes what there is for it and says what became of it.
    fn run<'a>(&'a self, task: Task, progress: MutexGuard<'a, EngineProgress>) -> MutexGuard<'a, EngineProgress> {
        match task {
            Task::Plan(measured) => self.plan(&measured, progress),
            Task::Read(read) => {
                drop(progress);
                self.start_read(read);
            }
            Task::Extract(extraction) => self.extract(extraction, progress),
            Task::Assemble(segment) => self.assemble(segment, progress),
        }
        self.lock()
    }

    fn start_read(&self, mut read: Read) {
        let slots = read.slots.as_mut().map(|slots| extract::distinct(slots));
        let start = || self.units.prefetch(read.unit, some(slots.as_deref()));
        let prefetch = catch_unwind(AssertUnwindSafe(start)).unwrap_or(None);
        if let Some(prefetch) = &prefetch {
            let me = Weak::clone(&self.me);
            let number = read.number;
            prefetch.when_arrived(move || {
                if let Some(shared) = me.upgrade() {
                    shared.lock().schedule.arrived(number);
                    shared.work.notify_all();
                }
            });
        }
        let mut progress = self.lock();
        progress.schedule.read_started(&read, prefetch.as_ref().map(Prefetch::bytes));
        if let Some(prefetch) = prefetch {
            // It may have arrived before the schedule knew of it.
            if prefetch.has_arrived() {
                progress.schedule.arrived(read.number);
            }
            progress.prefetch.insert(read.number, prefetch);
        }
        self.work.notify_all();
    }

    fn plan(&self, measured: &[Measurement], mut progress: MutexGuard<'_, EngineProgress>) {
        let Some(mut driver) = progress.driver.take() else { return };
        drop(progress);
        let began = Instant::now();
        let planned = catch_unwind(AssertUnwindSafe(|| {
            measured.iter().for_each(|measured| driver.plan.note(*measured));
            driver.advance()
        }));
        let planned = planned.unwrap_or_else(|_| {
            driver.error = Some(panicked("the order"));
            PlanAnswer::End
        });
        let outlook = driver.plan.outlook();
        let mut progress = self.lock();
        progress.stats.planning += began.elapsed();
        match planned {
            PlanAnswer::Look => {}
            PlanAnswer::Extract(extract) => progress.schedule.add_extraction(extract),
            PlanAnswer::Segment(parts) => {
                if let Some(range) = driver.ranges.pop_front() {
                    progress.schedule.add_segment(range.epoch);
                    progress.tickets.push_back((range, parts));
                }
            }
            // What comes later is prefetched under this lock, so it is seen here or there.
            PlanAnswer::End if driver.has_more() => {}
            PlanAnswer::End => {
                progress.error = driver.error.take();
                self.ready.notify_all();
                progress.schedule.ended = true;
            }
        }
        progress.schedule.planned(outlook);
        progress.driver = Some(driver);
        self.work.notify_all();
    }

    fn extract<'a>(&'a self, mut extraction: Extraction, mut progress: MutexGuard<'a, EngineProgress>) {
        let due = std::mem::take(&mut extraction.extract.due);
        let unit = extraction.extract.unit;
        let keep = extraction.extract.keep;
        let units = &*self.units;
        let held = if extraction.stayed { progress.carousel.whole(unit) } else { None };
        let was_held = held.is_some();
        let prefetch = progress.prefetch.remove(&extraction.number);
        let read = prefetch.as_ref().map_or(0, Prefetch::bytes);
        // This one was read ahead until now, so there is room for another, which need not wait for this.
        while let Some(read) = progress.schedule.next_read() {
            drop(progress);
            self.start_read(read);
            progress = self.lock();
        }
        drop(progress);
        let began = Instant::now();
        let mut recovery = Recovery {
            units,
            faults: &self.faults,
            batch_rows: self.batch_rows,
            unit,
            stays: keep,
            held,
            prefetch,
            decodes: 0,
        };
        // Whatever panics, a thread that ends here would be waited for for ever.
        let extracted = caught(units.row_groups(unit).start, || match &units.packing {
            None => recovery.extract(&|| due.slots.to_vec()),
            Some(packing) => cutting::extract(packing, &mut recovery, &due),
        });
        let decodes = recovery.decodes;
        let took = began.elapsed();
        let link = units.groups.link();
        let mut progress = self.lock();
        progress.stats.decodes += decodes;
        progress.stats.extractions += 1;
        let shared = units.dictionaries.as_ref().map_or(0, Dictionaries::bytes);
        let mut done = ExtractionOutcome { decodes, read, shared, ..ExtractionOutcome::default() };
        let (rows, stays) = match extracted {
            Ok(brought) => {
                progress.stats.extracting += brought.picking;
                progress.stats.decoding += took.saturating_sub(brought.picking);
                done.rows = Some(brought.rows.bytes());
                done.stays = brought.stays.as_ref().map(Held::bytes);
                done.decoded = brought.decoded_bytes.map(|bytes| (units.size(unit).bytes, bytes));
                done.staged = brought.staged_bytes;
                done.read += brought.read_bytes;
                done.places = brought.places_bytes;
                (brought.rows, brought.stays)
            }
            Err(error) => (DueRows::default().before(error, due.len()), None),
        };
        progress.schedule.extracted(&extraction, done, link);
        if !(was_held && keep) {
            progress.carousel.stay(unit, stays);
        }
        progress.carousel.insert(unit, extraction.number, rows);
        self.work.notify_all();
    }

    fn assemble(&self, segment: u64, mut progress: MutexGuard<'_, EngineProgress>) {
        let making = progress.rest.remove(&segment).or_else(|| {
            let (range, parts) = progress.tickets.pop_front()?;
            Some(Making { range, claimed: progress.carousel.claim(&parts), cursors: Vec::new() })
        });
        drop(progress);
        let Some(mut making) = making else { return };
        let began = Instant::now();
        // What the batches before took tells how many there is room for; the first segments have few.
        let most = self.most_made.checked_div(self.made.load(Ordering::Relaxed)).unwrap_or(u64::MAX);
        let assembled = catch_unwind(AssertUnwindSafe(|| making.assemble(&self.units, most)));
        let assembled = assembled.unwrap_or_else(|_| making.fail(panicked("assembling batches")));
        if let Some(bytes) = assembled.bytes.checked_div(assembled.batches.len() as u64) {
            self.made.store(bytes, Ordering::Relaxed);
        }
        let (freed, rest) = match making.range.batches.is_empty() {
            true => {
                let bytes = making.claimed.bytes;
                drop(making);
                (bytes, None)
            }
            false => (0, Some(making)),
        };
        let mut progress = self.lock();
        progress.stats.assembling += began.elapsed();
        progress.stats.substituted += assembled.batches.iter().map(|batch| batch.substituted.len() as u64).sum::<u64>();
        progress.stats.rows += assembled.batches.iter().map(|batch| batch.row_ids.len() as u64).sum::<u64>();
        progress.schedule.assembled(segment, assembled.batches.len(), assembled.bytes, freed, rest.is_none());
        progress.rest.extend(rest.map(|rest| (segment, rest)));
        progress.out.insert(segment, assembled);
        self.work.notify_all();
        self.ready.notify_all();
    }
}

impl std::fmt::Debug for EngineCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineCore").field("inline", &self.inline).finish_non_exhaustive()
    }
}
