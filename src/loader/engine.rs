//! Who does what when: plans, extracts and assembles on threads of its own, within the memory.
//!
//! All state is behind one lock, which nobody holds while working. A thread that is free takes, in this order, a segment
//! whose rows are all there, an extraction that the memory permits, or the plan to walk on with. Segments are claimed
//! and handed out in order, so nothing that is served depends on which thread was when where.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

use arrow::array::RecordBatch;

use super::LoaderStats;
use super::assemble::{Assembled, assemble};
use super::carousel::{Carousel, Claimed, Lot};
use super::control::closed;
use super::driver::{Driver, Planned};
use super::extract::{self, Extracted};
use super::faults::Faults;
use super::groups::Groups;
use super::lookahead::{Found, Lookahead};
use super::plan::{Extract, GroupSize, PIECES, Plan};
use super::stand_ins::StandIns;
use super::walk::{Span, Walk};
use crate::dataset::Ahead;
use crate::{Error, ErrorKind, Result};

/// Segments of more epochs than the consumer's and so many are not planned before it takes some: preparing an epoch may take time and memory in
/// proportion to the rows.
const EPOCHS_AHEAD: u64 = 2;

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

/// Threads that work a run off from a given batch on. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Engine {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

pub(super) struct Shared {
    /// For what comes later, and must not keep it alive.
    me: Weak<Self>,
    /// There are no threads: whoever wants a segment works for it.
    inline: bool,
    groups: Arc<dyn Groups>,
    faults: Arc<Faults>,
    memory: u64,
    /// By how much the memory may be exceeded: rows fill the memory, and the largest group must be decoded besides them.
    excess: u64,
    /// How many extractions are planned before the first of them has begun.
    jobs_ahead: usize,
    read_ahead: Option<usize>,
    read_concurrency: usize,
    state: Mutex<State>,
    /// There may be something to do.
    work: Condvar,
    /// There may be something to serve.
    ready: Condvar,
}

struct State {
    stop: bool,
    driver: Option<Box<Driver>>,
    /// Everything is planned; the error is what comes after the last segment.
    planned: Option<Option<Error>>,
    /// What was measured since the driver was last at work.
    measured: Vec<Measured>,
    staged: Staged,
    jobs: VecDeque<(u64, Extract)>,
    next_job: u64,
    /// The first extraction for which it was not decided yet whether to read ahead.
    next_read: u64,
    /// The extraction for which a read is being started.
    starting: Option<u64>,
    lookahead: Lookahead,
    ahead: BTreeMap<u64, Ahead>,
    ahead_bytes: u64,
    /// The extraction that was waited for, with as much read ahead as may be.
    late: Option<u64>,
    /// Bytes read ahead so far, and what they take when decoded.
    expansion: (u64, u64),
    /// What rows will take in memory when all that is planned was done.
    planned_bytes: u64,
    /// All extractions before this one are done, and these after it.
    done_before: u64,
    done: BTreeSet<u64>,
    /// Groups that are being decoded to stay.
    busy: BTreeSet<u32>,
    tickets: VecDeque<Ticket>,
    next_ticket: u64,
    /// The epochs of the segments that were planned and not handed out.
    epochs: VecDeque<u64>,
    carousel: Carousel,
    running: usize,
    assembling: usize,
    ready_limit: usize,
    /// About how many bytes the batches of a segment take.
    segment_bytes: u64,
    out: BTreeMap<u64, (Assembled, u64)>,
    next_out: u64,
    held: u64,
    in_flight: u64,
    stats: LoaderStats,
}

/// A segment that waits for its rows.
struct Ticket {
    number: u64,
    /// The extractions before this one must be done.
    needs: u64,
    span: Span,
    parts: Vec<(u32, u32)>,
}

/// What the plan is to know.
#[derive(Debug, Clone, Copy)]
enum Measured {
    /// Bytes estimated and real.
    Kept(u64, u64),
    Decoded(u64, u64),
    /// What the rows that are held may take from now on.
    Memory(u64),
}

enum Task {
    Plan(Box<Driver>, Vec<Measured>),
    ReadAhead { number: u64, group: u32, slots: Option<Vec<u32>>, whole: u64 },
    Extract(Work),
    Assemble { ticket: Ticket, claimed: Claimed },
}

/// An extraction with what there is for it.
struct Work {
    number: u64,
    extract: Extract,
    whole: Option<(RecordBatch, u64)>,
    needs: u64,
    ahead: Option<Ahead>,
    found: Found,
}

impl Engine {
    /// Starts its threads, if any.
    pub(crate) fn start(
        groups: Arc<dyn Groups>,
        faults: Arc<Faults>,
        walk: Box<dyn Walk>,
        settings: &Settings,
    ) -> Result<Self> {
        let sizes: Vec<GroupSize> = (0..groups.count()).map(|group| groups.size(group)).collect();
        let largest = sizes.iter().map(|size| size.bytes.max(size.cost)).max().unwrap_or(0);
        let lookahead = Lookahead::new(&*groups, settings.memory, settings.threads, settings.read_concurrency);
        let plan = Plan::new(&sizes, settings.memory - lookahead.reserve(), settings.batch_rows, settings.seed);
        let driver = Driver::new(plan, walk);
        let state = State {
            stop: false,
            driver: Some(Box::new(driver)),
            planned: None,
            measured: Vec::new(),
            staged: Staged(1.0),
            jobs: VecDeque::new(),
            next_job: 0,
            next_read: 0,
            starting: None,
            lookahead,
            ahead: BTreeMap::new(),
            ahead_bytes: 0,
            late: None,
            expansion: (0, 0),
            planned_bytes: 0,
            done_before: 0,
            done: BTreeSet::new(),
            busy: BTreeSet::new(),
            tickets: VecDeque::new(),
            next_ticket: 0,
            epochs: VecDeque::new(),
            carousel: Carousel::new(sizes.len()),
            running: 0,
            assembling: 0,
            ready_limit: 1,
            segment_bytes: 0,
            out: BTreeMap::new(),
            next_out: 0,
            held: 0,
            in_flight: 0,
            stats: LoaderStats::default(),
        };
        let shared = Arc::new_cyclic(|me| Shared {
            me: Weak::clone(me),
            inline: settings.threads == 0,
            memory: settings.memory,
            excess: largest,
            jobs_ahead: 2 * settings.threads + 1,
            read_ahead: settings.read_ahead,
            read_concurrency: settings.read_concurrency.unwrap_or(usize::MAX),
            groups,
            faults,
            state: Mutex::new(state),
            work: Condvar::new(),
            ready: Condvar::new(),
        });
        let mut engine = Self { shared, threads: Vec::new() };
        for number in 0..settings.threads {
            let shared = Arc::clone(&engine.shared);
            let thread = std::thread::Builder::new().name(format!("rowdex-loader-{number}"));
            let thread = thread.spawn(move || shared.work()).map_err(|error| {
                Error::io("cannot start a thread of the loader", error).with_hint("ask for fewer threads")
            })?;
            engine.threads.push(thread);
        }
        Ok(engine)
    }

    /// The next segment; `None` at the end of the run. Waits for it, or works for it if there are no threads.
    pub(crate) fn next(&self) -> Result<Option<Assembled>> {
        let shared = &*self.shared;
        let mut state = shared.lock();
        loop {
            let number = state.next_out;
            if let Some((assembled, bytes)) = state.out.remove(&number) {
                state.next_out += 1;
                state.epochs.pop_front();
                state.held -= bytes;
                shared.work.notify_all();
                return Ok(Some(assembled));
            }
            if let Some(error) = &state.planned
                && state.tickets.is_empty()
                && state.next_ticket == number
            {
                return error.clone().map_or(Ok(None), Err);
            }
            if state.stop {
                return Err(closed());
            }
            if shared.inline {
                let Some(task) = shared.pick(&mut state) else {
                    return Err(Error::new(ErrorKind::Internal, "the loader has nothing to do and is not done"));
                };
                drop(state);
                shared.run(task);
                state = shared.lock();
            } else {
                state = shared.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Goes on after the end, because the walk has more.
    pub(crate) fn go_on(&self) {
        self.shared.lock().planned.take_if(|error| error.is_none());
        self.shared.work.notify_all();
    }

    pub(crate) fn stats(&self) -> LoaderStats {
        self.shared.stats()
    }

    /// What other threads may see of it.
    pub(super) fn shared(&self) -> Weak<Shared> {
        Arc::downgrade(&self.shared)
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

impl Shared {
    /// Ends the threads, each once it is done with what it has at hand, and the wait of whoever wants a segment.
    pub(super) fn stop(&self) {
        self.lock().stop = true;
        self.work.notify_all();
        self.ready.notify_all();
    }

    pub(super) fn stats(&self) -> LoaderStats {
        let state = self.lock();
        LoaderStats { held_bytes: state.held + state.in_flight + state.ahead_bytes, ..state.stats }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.lock();
        while !state.stop {
            match self.pick(&mut state) {
                Some(task) => {
                    drop(state);
                    self.run(task);
                    state = self.lock();
                }
                None => state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn pick(&self, state: &mut State) -> Option<Task> {
        if let Some(ticket) = state.tickets.front()
            && ticket.needs <= state.done_before
            && self.has_room(state)
            && let Some(ticket) = state.tickets.pop_front()
        {
            state.assembling += 1;
            state.running += 1;
            let claimed = state.carousel.claim(&ticket.parts);
            return Some(Task::Assemble { ticket, claimed });
        }
        if let Some(task) = self.pick_read(state) {
            return Some(task);
        }
        // An extraction may wait for the store, and all that is not asked for before it waits with it.
        let hungry = self.may_read_ahead(state);
        let plan = if hungry { self.pick_plan(state) } else { None };
        plan.or_else(|| self.pick_extract(state)).or_else(|| self.pick_plan(state))
    }

    fn pick_plan(&self, state: &mut State) -> Option<Task> {
        // Until a group is decoded nobody knows what rows really take, so no more is planned than must be; or, where that would cost the latency of a
        // store once more, than does no harm if they take several times as much.
        let harmless = state.lookahead.reserve() > 0 && state.planned_bytes < self.memory / 8;
        let unmeasured = state.stats.decodes == 0 && state.next_job > 0 && !harmless;
        if state.jobs.len() < (if unmeasured { 1 } else { self.jobs_ahead + state.ahead.len() })
            && state.tickets.len() < self.tickets_ahead(state)
            && state.epochs.back().zip(state.epochs.front()).is_none_or(|(last, first)| last - first < EPOCHS_AHEAD)
            && state.planned.is_none()
        {
            let driver = state.driver.take()?;
            return Some(Task::Plan(driver, std::mem::take(&mut state.measured)));
        }
        None
    }

    /// How many segments may be planned before their rows are there.
    fn tickets_ahead(&self, state: &State) -> usize {
        // So far ahead that the memory, not the plan, is what holds the threads up.
        const TICKETS_AHEAD: usize = 16;
        let ahead = state.lookahead.bytes(state.planned_bytes);
        if ahead <= state.ahead_bytes && !state.jobs.is_empty() {
            return TICKETS_AHEAD;
        }
        // An order that follows the files has all rows of a row group before the next one is asked for: without more, there would never be a
        // second one to decode meanwhile.
        let (read, decoded) = state.expansion;
        let decoded =
            u128::from(ahead) * u128::from(decoded.max(1)) / u128::from(read.max(1)) + u128::from(self.excess);
        let segments = decoded / u128::from(state.segment_bytes.max(1));
        TICKETS_AHEAD + usize::try_from(segments).unwrap_or(usize::MAX).min(1 << 12)
    }

    fn has_room(&self, state: &State) -> bool {
        match self.read_ahead {
            None => state.out.len() + state.assembling < state.ready_limit,
            Some(limit) => {
                let waiting: usize = state.out.values().map(|(assembled, _)| assembled.batches.len()).sum();
                state.assembling == 0 && (waiting < limit || state.out.is_empty())
            }
        }
    }

    fn may_read_ahead(&self, state: &State) -> bool {
        state.ahead.len() < self.read_concurrency
            && state.ahead_bytes < state.lookahead.bytes(state.planned_bytes)
            // More rows than planned may be held for a while, and the plan follows slowly when more is to be on its way.
            && state.held + state.in_flight + state.ahead_bytes < self.memory + self.excess
    }

    /// The next group to read ahead. Starting it takes a moment, so that comes before all that takes longer.
    fn pick_read(&self, state: &mut State) -> Option<Task> {
        if state.starting.is_some() {
            return None;
        }
        while self.may_read_ahead(state)
            && let Some((number, extract)) = state.jobs.iter().find(|(number, _)| *number >= state.next_read)
        {
            let (number, group, whole) = (*number, extract.group, extract.whole);
            let held = state.carousel.whole(group).is_some() || state.busy.contains(&group);
            let kept_before = |(other, job): &&(u64, Extract)| *other < number && job.group == group && job.keep;
            let kept_before = state.jobs.iter().any(|job| kept_before(&job));
            state.next_read = number + 1;
            if !(held || kept_before) {
                let sparse = !extract.keep && extract::is_sparse(extract.slots.len(), self.groups.size(group).rows);
                let slots = sparse.then(|| extract.slots.clone());
                state.starting = Some(number);
                return Some(Task::ReadAhead { number, group, slots, whole });
            }
        }
        None
    }

    fn start_reads(&self) {
        loop {
            let task = self.pick_read(&mut self.lock());
            let Some(Task::ReadAhead { number, group, slots, whole }) = task else { return };
            self.start_read(number, group, slots, whole);
        }
    }

    fn start_read(&self, number: u64, group: u32, slots: Option<Vec<u32>>, whole: u64) {
        let is_whole = slots.is_none();
        let slots = slots.map(|mut slots| extract::distinct(&mut slots));
        let start = || self.groups.read_ahead(group, slots.as_deref());
        let ahead = catch_unwind(AssertUnwindSafe(start)).unwrap_or(None);
        if let Some(ahead) = &ahead {
            let me = Weak::clone(&self.me);
            ahead.when_arrived(move || {
                if let Some(shared) = me.upgrade() {
                    // Whoever looked and saw that it had not arrived is waiting by the time that the lock is free.
                    drop(shared.lock());
                    shared.work.notify_all();
                }
            });
        }
        let mut state = self.lock();
        state.starting = None;
        if let Some(ahead) = ahead {
            state.ahead_bytes += ahead.bytes();
            if is_whole {
                state.expansion = (state.expansion.0 + ahead.bytes(), state.expansion.1.saturating_add(whole));
            }
            state.ahead.insert(number, ahead);
        }
        self.settle(&mut state);
    }

    fn pick_extract(&self, state: &mut State) -> Option<Task> {
        let (number, extract) = state.jobs.front()?;
        if state.starting == Some(*number) {
            return None;
        }
        let whole = state.carousel.whole(extract.group);
        if whole.is_none() && state.busy.contains(&extract.group) {
            return None;
        }
        let needs = match &whole {
            Some(_) => extract.bytes,
            None if extract.keep => extract.bytes + extract.whole,
            None => extract.bytes + state.staged.of(extract.whole),
        };
        // When nothing else goes on and the consumer waits for just this, it must be done whatever it takes.
        let due = state.tickets.front().is_none_or(|ticket| *number < ticket.needs);
        let must = due && state.running == 0 && state.out.is_empty();
        let segments = state.ready_limit.saturating_sub(state.out.len()) as u64;
        let needed = state.held + state.in_flight + state.ahead_bytes + needs + segments * state.segment_bytes;
        if !must && needed > self.memory + self.excess {
            return None;
        }
        if !self.inline && whole.is_none() && state.ahead.get(number).is_some_and(|ahead| !ahead.has_arrived()) {
            // There may be other work before it comes, such as rows that somebody waits for.
            if !self.may_read_ahead(state) {
                state.late = Some(*number);
            }
            return None;
        }
        let (number, extract) = state.jobs.pop_front()?;
        state.running += 1;
        let ahead = state.ahead.remove(&number);
        let arrived = state.ahead.values().filter(|other| other.has_arrived()).map(Ahead::bytes).sum::<u64>();
        let found = match &ahead {
            Some(_) if state.late == Some(number) => Found::Late,
            Some(own) if arrived > (state.ahead_bytes - own.bytes()) / 3 => Found::Plenty,
            _ => Found::InTime,
        };
        // While it is decoded it is no longer read ahead: its compressed bytes come on top of the memory, as those of any group do.
        state.ahead_bytes -= ahead.as_ref().map_or(0, Ahead::bytes);
        state.in_flight += needs;
        state.stats.peak_bytes = state.stats.peak_bytes.max(state.held + state.in_flight + state.ahead_bytes);
        if whole.is_none() && extract.keep {
            state.busy.insert(extract.group);
        }
        Some(Task::Extract(Work { number, extract, whole, needs, ahead, found }))
    }

    fn run(&self, task: Task) {
        match task {
            Task::Plan(driver, measured) => self.plan(driver, &measured),
            Task::ReadAhead { number, group, slots, whole } => self.start_read(number, group, slots, whole),
            Task::Extract(work) => {
                // This one was read ahead until now, so there is room for another, which need not wait for this.
                self.start_reads();
                self.extract(work);
            }
            Task::Assemble { ticket, claimed } => self.assemble(&ticket, claimed),
        }
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
            driver.advance(|near, row| self.faults.resolve(row, near, &*self.groups))
        }));
        let planned = planned.unwrap_or_else(|_| Planned::End(Some(panicked("the order"))));
        let mut state = self.lock();
        state.stats.planning += began.elapsed();
        state.ready_limit = driver.plan.segments_ready();
        state.segment_bytes = driver.plan.segment_bytes();
        state.planned_bytes = driver.plan.held();
        match planned {
            Planned::Walked => {}
            Planned::Extract(extract) => {
                let number = state.next_job;
                state.next_job += 1;
                state.jobs.push_back((number, extract));
            }
            Planned::Segment(span, segment) => {
                let (number, needs) = (state.next_ticket, state.next_job);
                state.next_ticket += 1;
                state.epochs.push_back(span.epoch);
                state.tickets.push_back(Ticket { number, needs, span, parts: segment.parts });
            }
            // What comes later is announced under this lock, so it is seen here or there.
            Planned::End(None) if driver.has_more() => {}
            Planned::End(error) => {
                state.planned = Some(error);
                self.ready.notify_all();
            }
        }
        state.driver = Some(driver);
        self.work.notify_all();
    }

    fn extract(&self, work: Work) {
        let Work { number, mut extract, whole, needs, ahead, found } = work;
        let held = whole.is_some();
        let group = extract.group;
        let slots = std::mem::take(&mut extract.slots);
        let rows = slots.len();
        let due = self.faults.substitutes().then(|| slots.clone());
        let began = Instant::now();
        let mut decodes = u64::from(!held);
        let work = || match whole {
            Some((whole, bytes)) => extract::from_whole(whole, bytes, slots, extract.keep, &*self.groups),
            None => extract::from_file(&*self.groups, group, slots, extract.keep, ahead),
        };
        // What is known to be lost is not tried again.
        let lost = self.faults.is_lost(group);
        let result = if lost { None } else { Some(catch_unwind(AssertUnwindSafe(work))) };
        let result = result.map(|result| result.unwrap_or_else(|_| Err(undecoded(group))));
        let replaced = |decodes: &mut u64| {
            let whole = |group| self.lock().carousel.whole(group).map(|(batch, _)| batch);
            let pieces = if extract.keep { 1 } else { PIECES };
            StandIns::new(&*self.groups, &self.faults, &whole)
                .lot(group, &due.unwrap_or_default(), pieces, decodes)
                .map(Extracted::of_stand_ins)
        };
        let extracted = match result {
            Some(Ok(extracted)) => Ok(extracted),
            Some(Err(error)) => {
                let lost = self.faults.lose(group, self.groups.size(group).rows, error);
                lost.and_then(|()| replaced(&mut decodes))
            }
            None => {
                decodes = 0;
                replaced(&mut decodes)
            }
        };
        let took = began.elapsed();
        let link = self.groups.link();
        let mut state = self.lock();
        let next = state.next_read;
        if state.lookahead.note(number, found, next, link) {
            let memory = self.memory - state.lookahead.reserve();
            state.measured.push(Measured::Memory(memory));
        }
        state.running -= 1;
        state.in_flight -= needs;
        state.busy.remove(&group);
        state.stats.decodes += decodes;
        state.stats.extractions += 1;
        let (lot, stays) = match extracted {
            Ok(done) => {
                state.stats.extracting += done.picking;
                state.stats.decoding += took.saturating_sub(done.picking);
                if let Some(bytes) = done.decoded_bytes {
                    state.measured.push(Measured::Decoded(self.groups.size(group).bytes, bytes));
                }
                if !extract.keep {
                    // Short extractions from groups that stay would say more of allocations than of rows.
                    state.measured.push(Measured::Kept(extract.estimate, done.lot.bytes()));
                }
                if !held && !extract.keep {
                    state.staged.add(done.staged_bytes, extract.whole);
                }
                (done.lot, done.stays)
            }
            Err(error) => (Lot::failed(error, rows), None),
        };
        if !(held && extract.keep) {
            let (added, removed) = state.carousel.stay(group, stays);
            state.held = (state.held + added) - removed;
        }
        state.held += lot.bytes();
        state.carousel.insert(group, number, lot);
        state.done.insert(number);
        while let done = state.done_before
            && state.done.remove(&done)
        {
            state.done_before += 1;
        }
        self.settle(&mut state);
    }

    fn assemble(&self, ticket: &Ticket, claimed: Claimed) {
        let began = Instant::now();
        let assembled = catch_unwind(AssertUnwindSafe(|| assemble(&*self.groups, &ticket.span, &claimed)));
        let assembled = assembled.unwrap_or_else(|_| Assembled {
            batches: Vec::new(),
            bytes: 0,
            rows: claimed.rows,
            error: Some(panicked("assembling batches")),
        });
        let freed = claimed.bytes;
        drop(claimed);
        let bytes = assembled.bytes;
        let mut state = self.lock();
        state.running -= 1;
        state.assembling -= 1;
        state.stats.assembling += began.elapsed();
        state.held = state.held + bytes - freed;
        state.stats.substituted += assembled.batches.iter().map(|batch| batch.substituted.len() as u64).sum::<u64>();
        state.stats.rows += assembled.batches.iter().map(|batch| batch.row_ids.len() as u64).sum::<u64>();
        state.out.insert(ticket.number, (assembled, bytes));
        self.settle(&mut state);
        self.ready.notify_all();
    }

    fn settle(&self, state: &mut State) {
        state.stats.peak_bytes = state.stats.peak_bytes.max(state.held + state.in_flight + state.ahead_bytes);
        self.work.notify_all();
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("memory", &self.memory).finish_non_exhaustive()
    }
}

/// How much of a decoded group is in memory at once, beside the rows that are kept of it: little where chunks come and go, all of it where
/// the rows are views of its pages.
#[derive(Debug)]
struct Staged(f64);

impl Staged {
    fn of(&self, whole: u64) -> u64 {
        (whole as f64 * self.0) as u64
    }

    /// Follows the truth quickly when it is worse than believed, and slowly when it is better.
    fn add(&mut self, bytes: u64, whole: u64) {
        let real = bytes as f64 / whole.max(1) as f64;
        self.0 = real.max(self.0 * 0.75 + real * 0.25).min(4.0);
    }
}

/// The error of a decode that panicked.
pub(crate) fn undecoded(group: u32) -> Error {
    panicked(&format!("decoding row group {group}"))
}

fn panicked(what: &str) -> Error {
    Error::new(ErrorKind::Internal, format!("{what} panicked")).with_hint("please report this")
}
