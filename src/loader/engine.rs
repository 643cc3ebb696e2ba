//! The threads of a loader: they do what the schedule says.
//!
//! All state is behind one lock, which nobody holds while working. A thread that is free asks the schedule what comes
//! next. Segments are claimed and handed out in order, so nothing that is served depends on which thread was when
//! where.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

use super::LoaderStats;
use super::assemble::{Assembled, assemble};
use super::carousel::{Carousel, Claimed, DueRows};
use super::control::{closed, timed_out};
use super::deliver::{Deliver, Watched};
use super::driver::{Driver, Planned};
use super::extract::{self, Serving};
use super::lookahead::Lookahead;
use super::plan::Plan;
use super::recovery::{Faults, Recovery, caught, panicked};
use super::row_table::{Near, RowTable};
use super::schedule::{Extracted, Extraction, Limits, Measured, Outlook, Read, Schedule, Step, Task};
use super::units::{Units, some};
use super::walk::{BatchRange, Walk};
use crate::dataset::Prefetch;
use rowdex_base::buffers::{self, Buffers};
use rowdex_base::crew::{self, Crew};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::stop::{self, Asked};
use rowdex_rows::{Held, Layout};

/// What an engine is made for.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) memory: u64,
    pub(crate) threads: usize,
    /// Batches that may wait for the consumer; `None` leaves it to the plan.
    pub(crate) read_ahead: Option<usize>,
    /// Row groups that may be read ahead at once, where reads take long; `None` leaves it to what is measured.
    pub(crate) read_concurrency: Option<usize>,
    pub(crate) batch_rows: u64,
    pub(crate) seed: u64,
}

/// Bytes of buffers that may lie unused, and no more than the largest row group has: while one is decoded, what it
/// needs of them is in use.
const MOST_IDLE: u64 = 64 << 20;

/// Segments whose batches may have come back from the consumer and wait to be filled again.
const BATCHES_IDLE: u64 = 2;

/// A row group with less to decode is not divided among threads: calling one takes microseconds, as decoding some tens
/// of kilobytes does.
const WORTH_HELP: u64 = 1 << 20;

/// Threads that work a run off from a given batch on. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Engine {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    /// For what comes later, and must not keep it alive.
    me: Weak<Self>,
    /// There are no threads: whoever wants a segment works for it.
    inline: bool,
    units: Arc<Units>,
    faults: Arc<Faults>,
    batch_rows: u64,
    /// Finds the unit of a row.
    table: Option<Arc<RowTable>>,
    /// How rows are packed, if their columns can be.
    layout: Option<Arc<Layout>>,
    /// For what is read and decompressed, while it is decoded.
    buffers: Arc<Buffers<Vec<u8>>>,
    /// For the long values of batches.
    batches: Arc<Buffers<Vec<u8>>>,
    /// The threads, which help one that decodes when the schedule has nothing for them; `None` if there is no other.
    crew: Option<Arc<Crew>>,
    /// Whether the threads are to end. It is set under the lock of the state, and read without one where a thread waits
    /// for a store.
    stop: AtomicBool,
    state: Mutex<State>,
    /// There may be something to do.
    work: Condvar,
    /// There may be something to serve.
    ready: Condvar,
}

struct State {
    schedule: Schedule,
    /// `None` while the plan is being asked.
    driver: Option<Box<Driver>>,
    /// What comes after the last segment that was planned.
    error: Option<Error>,
    /// What is read ahead, by the number of the extraction.
    prefetch: BTreeMap<u64, Prefetch>,
    /// Segments that were planned and not begun.
    tickets: VecDeque<Ticket>,
    carousel: Carousel,
    /// Segments that wait for the consumer, by number.
    out: BTreeMap<u64, Assembled>,
    stats: LoaderStats,
}

/// A segment that waits for its rows.
struct Ticket {
    range: BatchRange,
    parts: Vec<(u32, u32)>,
}

/// A task with what there is for it.
enum Work {
    Plan(Box<Driver>, Vec<Measured>),
    Read(Read),
    /// The unit if it stayed in memory, and what was read ahead.
    Extract(Extraction, Option<Held>, Option<Prefetch>),
    Assemble(u64, BatchRange, Claimed),
}

impl Engine {
    /// Starts its threads, if any.
    pub(crate) fn start(
        units: Arc<Units>,
        faults: Arc<Faults>,
        walk: Box<dyn Walk>,
        settings: &Settings,
    ) -> Result<Self> {
        let (sizes, form) = (units.sizes(), units.form().clone());
        let lookahead = Lookahead::new(&units, settings.memory, settings.threads, settings.read_concurrency);
        let mut plan = Plan::new(&sizes, settings.memory - lookahead.reserve(), settings.batch_rows, settings.seed);
        plan.set_aside(units.places_bytes());
        let limits = Limits {
            memory: settings.memory,
            threads: settings.threads,
            extractions_planned: 2 * settings.threads + 1,
            batches_waiting: settings.read_ahead,
            reads: settings.read_concurrency.unwrap_or(usize::MAX),
            waits_for_reads: settings.threads > 0,
        };
        let most_idle = MOST_IDLE.min(plan.largest()) as usize;
        let batches_idle = MOST_IDLE.min(plan.segment_bytes().saturating_mul(BATCHES_IDLE)) as usize;
        let table = RowTable::of(&units).map(Arc::new);
        let driver = Driver::new(plan, walk, Near::with(table.clone()));
        let state = State {
            schedule: Schedule::new(limits, lookahead),
            driver: Some(Box::new(driver)),
            error: None,
            prefetch: BTreeMap::new(),
            tickets: VecDeque::new(),
            carousel: Carousel::new(sizes.len()),
            out: BTreeMap::new(),
            stats: LoaderStats::default(),
        };
        let shared = Arc::new_cyclic(|me: &Weak<Shared>| Shared {
            crew: (settings.threads > 1).then(|| Arc::new(Crew::new(WORTH_HELP, wake(Weak::clone(me))))),
            me: Weak::clone(me),
            inline: settings.threads == 0,
            layout: Layout::of(&form.decoded, &form.served),
            table,
            units,
            faults,
            batch_rows: settings.batch_rows,
            buffers: Arc::new(Buffers::keeping(most_idle)),
            batches: Arc::new(Buffers::keeping(batches_idle)),
            stop: AtomicBool::new(false),
            state: Mutex::new(state),
            work: Condvar::new(),
            ready: Condvar::new(),
        });
        let mut engine = Self { shared, threads: Vec::new() };
        for number in 0..settings.threads {
            let shared = Arc::clone(&engine.shared);
            let thread = std::thread::Builder::new().name(format!("rowdex-loader-{number}"));
            let work = move || {
                let ends = Arc::clone(&shared);
                let _asked = Asked::new(move || ends.stop.load(Ordering::Relaxed)).enter();
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
        let mut state = self.shared.lock();
        if state.error.is_none() {
            state.schedule.reopen();
        }
        drop(state);
        self.shared.work.notify_all();
    }
}

/// Wakes the threads that wait for something to do.
fn wake(shared: Weak<Shared>) -> impl Fn() + Send + Sync {
    move || {
        if let Some(shared) = shared.upgrade() {
            // A thread that has just looked in vain waits once the lock is free, and not before.
            drop(shared.lock());
            shared.work.notify_all();
        }
    }
}

impl Deliver for Engine {
    /// Works for it if there are no threads.
    fn next(&self, until: Option<Instant>) -> Result<Option<Assembled>> {
        let shared = &*self.shared;
        let mut state = shared.lock();
        // Whoever never waits gets its batches, too, if it asks often enough.
        let mut worked = false;
        loop {
            let number = state.schedule.next_out();
            if let Some(assembled) = state.out.remove(&number) {
                state.schedule.handed_out();
                shared.work.notify_all();
                return Ok(Some(assembled));
            }
            if state.schedule.is_over() {
                return state.error.clone().map_or(Ok(None), Err);
            }
            if shared.stop.load(Ordering::Relaxed) {
                return Err(closed());
            }
            stop::check()?;
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let is_too_late = left.is_some_and(|left| left.is_zero());
            if is_too_late && (worked || !shared.inline) {
                return Err(timed_out());
            }
            if shared.inline {
                let Some(work) = shared.pick(&mut state) else {
                    return Err(Error::new(ErrorKind::Internal, "the loader has nothing to do and is not done"));
                };
                drop(state);
                shared.run(work);
                (state, worked) = (shared.lock(), true);
            } else {
                state = match left.into_iter().chain(stop::tick()).min() {
                    None => shared.ready.wait(state).unwrap_or_else(PoisonError::into_inner),
                    Some(left) => shared.ready.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                };
            }
        }
    }

    fn watched(&self) -> Weak<dyn Watched> {
        let watched: Weak<Shared> = Arc::downgrade(&self.shared);
        watched
    }

    fn stats(&self) -> LoaderStats {
        self.shared.stats()
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

impl Watched for Shared {
    /// Ends the threads too, each once it is done with what it has at hand, which is not waited for where it is to come
    /// from a store.
    fn stop(&self) {
        let state = self.lock();
        self.stop.store(true, Ordering::Relaxed);
        drop(state);
        self.work.notify_all();
        self.ready.notify_all();
    }

    fn stats(&self) -> LoaderStats {
        let state = self.lock();
        let (held_bytes, peak_bytes) = state.schedule.bytes();
        LoaderStats { held_bytes, peak_bytes, ..state.stats }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.lock();
        while !self.stop.load(Ordering::Relaxed) {
            match self.pick(&mut state) {
                Some(work) => {
                    drop(state);
                    self.run(work);
                    state = self.lock();
                }
                None => match &self.crew {
                    Some(crew) => state = self.help_or_wait(crew, state),
                    None => state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
                },
            }
        }
    }

    /// Does a part of what another thread decodes, or waits for something to do.
    fn help_or_wait<'a>(&'a self, crew: &Crew, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let Some(job) = crew.find() else {
            let state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            crew.back();
            return state;
        };
        drop(state);
        let began = Instant::now();
        let buffers = buffers::enter(&self.buffers);
        job.help();
        drop(buffers);
        let mut state = self.lock();
        state.stats.decoding += began.elapsed();
        state
    }

    fn pick(&self, state: &mut State) -> Option<Work> {
        Some(match state.schedule.next()? {
            Task::Plan(measured) => Work::Plan(state.driver.take()?, measured),
            Task::Read(read) => Work::Read(read),
            Task::Extract(extraction) => {
                let whole = if extraction.stayed { state.carousel.whole(extraction.extract.unit) } else { None };
                let prefetch = state.prefetch.remove(&extraction.number);
                Work::Extract(extraction, whole, prefetch)
            }
            Task::Assemble(segment) => {
                let Ticket { range, parts } = state.tickets.pop_front()?;
                Work::Assemble(segment, range, state.carousel.claim(&parts))
            }
        })
    }

    fn run(&self, work: Work) {
        match work {
            Work::Plan(driver, measured) => self.plan(driver, &measured),
            Work::Read(read) => self.start_read(read),
            Work::Extract(extraction, whole, prefetch) => {
                // This one was read ahead until now, so there is room for another, which need not wait for this.
                self.start_reads();
                self.extract(extraction, whole, prefetch);
            }
            Work::Assemble(segment, range, claimed) => self.assemble(segment, &range, claimed),
        }
    }

    fn start_reads(&self) {
        loop {
            let read = self.lock().schedule.next_read();
            let Some(read) = read else { return };
            self.start_read(read);
        }
    }

    fn start_read(&self, mut read: Read) {
        let slots = read.slots.as_mut().map(|slots| extract::distinct(slots));
        let start = || self.units.prefetch(read.unit, some(slots.as_deref()));
        let prefetch = catch_unwind(AssertUnwindSafe(start)).unwrap_or(None);
        if let Some(prefetch) = &prefetch {
            let (me, number) = (Weak::clone(&self.me), read.number);
            prefetch.when_arrived(move || {
                if let Some(shared) = me.upgrade() {
                    shared.lock().schedule.arrived(number);
                    shared.work.notify_all();
                }
            });
        }
        let mut state = self.lock();
        state.schedule.read_started(&read, prefetch.as_ref().map(Prefetch::bytes));
        if let Some(prefetch) = prefetch {
            // It may have arrived before the schedule knew of it.
            if prefetch.has_arrived() {
                state.schedule.arrived(read.number);
            }
            state.prefetch.insert(read.number, prefetch);
        }
        self.work.notify_all();
    }

    fn plan(&self, mut driver: Box<Driver>, measured: &[Measured]) {
        let began = Instant::now();
        let planned = catch_unwind(AssertUnwindSafe(|| {
            for measured in measured {
                match *measured {
                    Measured::Kept(estimate, real) => driver.plan.measure_kept(estimate, real),
                    Measured::Decoded(estimate, real) => driver.plan.measure_decoded(estimate, real),
                    Measured::Memory(bytes) => driver.plan.set_memory(bytes),
                }
            }
            driver.advance(|near, row| self.faults.resolve(row, near, &self.units))
        }));
        let planned = planned.unwrap_or_else(|_| Planned::End(Some(panicked("the order"))));
        let outlook = Outlook {
            segments_ready: driver.plan.segments_ready(),
            segment_bytes: driver.plan.segment_bytes(),
            held: driver.plan.held(),
            listing: driver.plan.listing(),
            largest: driver.plan.largest(),
        };
        let mut state = self.lock();
        state.stats.planning += began.elapsed();
        let step = match planned {
            Planned::Walked => Step::Walked,
            Planned::Extract(extract) => Step::Extract(extract),
            Planned::Segment(range, segment) => {
                let epoch = range.epoch;
                state.tickets.push_back(Ticket { range, parts: segment.parts });
                Step::Segment { epoch }
            }
            // What comes later is announced under this lock, so it is seen here or there.
            Planned::End(None) if driver.has_more() => Step::Walked,
            Planned::End(error) => {
                state.error = error;
                self.ready.notify_all();
                Step::End
            }
        };
        state.schedule.planned(step, outlook);
        state.driver = Some(driver);
        self.work.notify_all();
    }

    fn extract(&self, mut extraction: Extraction, held: Option<Held>, prefetch: Option<Prefetch>) {
        let slots = std::mem::take(&mut extraction.extract.slots);
        let (unit, keep, was_held) = (extraction.extract.unit, extraction.extract.keep, held.is_some());
        let began = Instant::now();
        let (extracted, decodes) = {
            let _buffers = buffers::enter(&self.buffers);
            let _crew = self.crew.as_ref().map(crew::enter);
            let serving = Serving { units: &self.units, batch_rows: self.batch_rows, layout: self.layout.as_ref() };
            let whole = |unit| self.lock().carousel.whole(unit);
            let mut recovery = Recovery::new(serving, &self.faults, &whole);
            // Whatever panics, a thread that ends here would be waited for for ever.
            let extracted =
                caught(self.units.row_groups(unit).start, || recovery.extract(unit, &slots, keep, held, prefetch));
            (extracted, recovery.decodes)
        };
        let (took, link) = (began.elapsed(), self.units.link());
        let mut state = self.lock();
        state.stats.decodes += decodes;
        state.stats.extractions += 1;
        let mut done = Extracted { decodes, ..Extracted::default() };
        let (rows, stays) = match extracted {
            Ok(brought) => {
                state.stats.extracting += brought.picking;
                state.stats.decoding += took.saturating_sub(brought.picking);
                done.rows = Some(brought.rows.bytes());
                done.stays = brought.stays.as_ref().map(Held::bytes);
                done.decoded = brought.decoded_bytes.map(|bytes| (self.units.size(unit).bytes, bytes));
                done.staged = brought.staged_bytes;
                done.places = brought.places_bytes;
                (brought.rows, brought.stays)
            }
            Err(error) => (DueRows::failed(error, slots.len()), None),
        };
        state.schedule.extracted(&extraction, done, link);
        if !(was_held && keep) {
            state.carousel.stay(unit, stays);
        }
        state.carousel.insert(unit, extraction.number, rows);
        self.work.notify_all();
    }

    fn assemble(&self, segment: u64, range: &BatchRange, mut claimed: Claimed) {
        let began = Instant::now();
        let make = || {
            buffers::making_batches(&self.batches, || {
                let near = Near::with(self.table.clone());
                assemble(&self.units, near, range, &mut claimed)
            })
        };
        let assembled = catch_unwind(AssertUnwindSafe(make));
        let assembled = assembled.unwrap_or_else(|_| Assembled {
            batches: Vec::new(),
            bytes: 0,
            rows: claimed.rows,
            error: Some(panicked("assembling batches")),
        });
        let freed = claimed.bytes;
        drop(claimed);
        let mut state = self.lock();
        state.stats.assembling += began.elapsed();
        state.stats.substituted += assembled.batches.iter().map(|batch| batch.substituted.len() as u64).sum::<u64>();
        state.stats.rows += assembled.batches.iter().map(|batch| batch.row_ids.len() as u64).sum::<u64>();
        state.schedule.assembled(segment, assembled.batches.len(), assembled.bytes, freed);
        state.out.insert(segment, assembled);
        self.work.notify_all();
        self.ready.notify_all();
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("inline", &self.inline).finish_non_exhaustive()
    }
}
