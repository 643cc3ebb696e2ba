//! Reads for all ranks of a machine: threads in the process of the rank that came first.
//!
//! One thread accepts ranks, each rank has one that listens to it, and one hands out what the engine delivers. What
//! they share is behind one lock, which nobody holds while sending, reading or waiting.
//!
//! Whenever a rank joins, or goes to another place, the engine is started anew, with every rank at the batch after the
//! last one that was sent to it. So what a rank gets depends on its own place alone.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Seat;
use super::facts::{advice, difference};
use super::lanes::{Lane, Lanes, Mark, Marks};
use super::message::{Answer, Hello, Parcel, Request, describe};
use crate::loader::assemble::Assembled;
use crate::loader::deliver::{Deliver, Watched};
use crate::loader::engine::{Engine, Settings};
use crate::loader::faults::panicked;
use crate::loader::{Batch, LoaderStats, Place};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::sampler::{self, DistributedSampler, Shard};
use rowdex_rows::bytes_shown;
use rowdex_share::{Connection, Listener, Pool, Received, Signal, put};

/// How long a process that has connected may take to say which rank it is.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long ranks that go to another place together may take, one after the other.
const STRAGGLERS: Duration = Duration::from_millis(200);

/// The most steps of a rank that go into one memory file, as many as the engine makes in one piece.
const MOST_TOGETHER: u64 = 16;

/// The most bytes that they have.
const MOST_BYTES_TOGETHER: u64 = 1 << 20;

/// Windows take at most this part of the memory, unless that is less than a batch for each rank.
const WINDOWS: u64 = 16;

/// Reads for whoever connects, until it is dropped. Then those who are left are told to meet again.
#[derive(Debug)]
pub(super) struct Reader {
    inner: Arc<Inner>,
    acceptor: Option<JoinHandle<()>>,
    sender: Option<JoinHandle<()>>,
}

/// How many ranks are to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meeting {
    /// For the first time: their processes start one after the other.
    First(usize),
    /// They had another reader before, and come when they want a batch.
    Again(usize),
    /// Of whatever job has the name, one after another, with as many workers as they like.
    Served,
}

#[derive(Debug)]
struct Inner {
    seat: Seat,
    meeting: Meeting,
    stop: Signal,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    stop: bool,
    members: BTreeMap<u64, Member>,
    /// Those that go to another place, and have not said where.
    away: BTreeMap<u64, Member>,
    joined: u64,
    /// Connections, whether they are of ranks that have joined or not.
    connected: usize,
    /// When the last one ended.
    left: Instant,
    /// An engine was started. Nobody is waited for any more who was not there.
    begun: bool,
    /// Why nobody is to go on.
    died: Option<Error>,
    /// A rank came since the engine was started.
    new: bool,
    /// The engine is to be started anew without waiting for anyone.
    again: bool,
    /// When the last rank came.
    since: Instant,
    engine: Option<Weak<dyn Watched>>,
    /// What the engines before this one did.
    before: LoaderStats,
    listeners: Vec<JoinHandle<()>>,
}

/// A rank, and the place up to which batches were sent to it.
#[derive(Debug)]
struct Member {
    rank: u32,
    worker: u64,
    visit: u64,
    connection: Arc<Connection>,
    lane: Lane,
    /// Batches that were sent and not taken, and their bytes.
    batches: u64,
    bytes: u64,
    /// It waits for its next batch.
    waits: bool,
    /// Row groups that it was told are lost.
    lost: BTreeSet<u32>,
}

impl Member {
    fn has_room(&self, batches: u64, bytes: u64, drift: u64, window: u64) -> bool {
        self.batches == 0 || (self.batches + batches <= drift && self.bytes + bytes <= window)
    }

    /// The step of its rank that it takes next, counted over epochs.
    fn taken(&self) -> u64 {
        self.sent().saturating_sub(self.batches.saturating_mul(workers(&self.lane.sampler)))
    }

    /// The step of its rank that it is sent next, counted over epochs.
    fn sent(&self) -> u64 {
        let Lane { sampler, epoch, next, .. } = &self.lane;
        let step = (*next).max(sampler.first_step(*epoch));
        match sampler.part_of() {
            Some(part) => part.step_of_rank(*epoch, step),
            None => epoch.saturating_mul(sampler.steps()).saturating_add(step),
        }
    }
}

/// How to go on after something was sent, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Go {
    On,
    /// Another engine is needed, or none.
    Out,
}

/// What a run of an engine is made for.
struct Run {
    marks: Marks,
    /// The ranks of each lane.
    members: Vec<Vec<u64>>,
    /// Bytes that may wait for a rank, and for all of them.
    window: u64,
    windows: u64,
}

impl Reader {
    /// Starts its threads.
    pub(super) fn start(seat: Seat, listener: Listener, meeting: Meeting) -> Result<Self> {
        let state = State {
            stop: false,
            members: BTreeMap::new(),
            away: BTreeMap::new(),
            joined: 0,
            connected: 0,
            left: Instant::now(),
            begun: false,
            died: None,
            new: false,
            again: false,
            since: Instant::now(),
            engine: None,
            before: LoaderStats::default(),
            listeners: Vec::new(),
        };
        let inner = Inner { seat, meeting, stop: Signal::new()?, state: Mutex::new(state), changed: Condvar::new() };
        let mut reader = Self { inner: Arc::new(inner), acceptor: None, sender: None };
        let inner = Arc::clone(&reader.inner);
        reader.acceptor = Some(thread("rowdex-share-accept", move || inner.accept(&listener))?);
        let inner = Arc::clone(&reader.inner);
        reader.sender = Some(thread("rowdex-share-send", move || inner.send_all())?);
        Ok(reader)
    }

    /// How many loaders are connected.
    pub(super) fn connected(&self) -> usize {
        self.inner.lock().connected
    }

    /// For how long no loader has been connected, if one was before.
    pub(super) fn deserted(&self) -> Option<Duration> {
        let state = self.inner.lock();
        (state.joined > 0 && state.connected == 0).then(|| state.left.elapsed())
    }

    /// What was done for all ranks.
    pub(super) fn stats(&self) -> LoaderStats {
        let state = self.inner.lock();
        let engine = state.engine.as_ref().and_then(Weak::upgrade);
        let before = state.before;
        drop(state);
        sum(&before, &engine.map_or_else(LoaderStats::default, |engine| engine.stats()))
    }

    /// What ends it, and does not wait for its threads.
    pub(super) fn stopper(&self) -> Stopper {
        Stopper(Arc::downgrade(&self.inner))
    }
}

/// Ends a reader, if it is still there.
#[derive(Debug)]
pub(super) struct Stopper(Weak<Inner>);

impl Stopper {
    pub(super) fn stop(&self) {
        if let Some(inner) = self.0.upgrade() {
            inner.stop();
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.inner.stop();
        for thread in [self.acceptor.take(), self.sender.take()].into_iter().flatten() {
            let _ = thread.join();
        }
        let listeners = std::mem::take(&mut self.inner.lock().listeners);
        for thread in listeners {
            let _ = thread.join();
        }
    }
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(|error| Error::io("cannot start a thread of the reader that ranks share", error))
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells all ranks to meet again, and wakes all threads, which end. Whoever meets before the address is free again
    /// finds nobody there and tries once more.
    fn stop(&self) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.stop, true) {
            return;
        }
        let mut members = std::mem::take(&mut state.members);
        members.append(&mut state.away);
        self.stop_engine(&state);
        drop(state);
        self.stop.set();
        self.changed.notify_all();
        let sampler = &self.seat.sampler;
        let own = (self.rank(), sampler.part_of().map_or(0, |part| part.worker), std::process::id() as i32);
        let others = |member: &&Member| (Some(member.rank), member.worker, member.connection.peer()) != own;
        let left = members.values().filter(others).count();
        let bye = Answer::Bye(left as u32);
        for member in members.into_values() {
            // Whoever does not get it sees that the connection ends.
            let _ = member.connection.send(&bye.to_bytes(member.visit), None, &self.stop);
        }
    }

    /// The rank that the reader is with, unless it is with none.
    fn rank(&self) -> Option<u32> {
        let sampler = &self.seat.sampler;
        let of = sampler.part_of().map_or(sampler, |part| &part.rank);
        (!self.seat.group.is_server).then(|| of.shard().rank())
    }

    fn stop_engine(&self, state: &State) {
        if let Some(engine) = state.engine.as_ref().and_then(Weak::upgrade) {
            engine.stop();
        }
    }

    fn accept(self: &Arc<Self>, listener: &Listener) {
        while !self.stop.is_set() {
            let connection = match listener.accept(&self.stop) {
                Ok(Some(connection)) => Arc::new(connection),
                Ok(None) => return,
                Err(_) => {
                    // Out of files or memory: whoever connects waits until there is room.
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                }
            };
            let here = Here::new(self);
            let listening = thread("rowdex-share-rank", move || here.0.listen(&connection));
            let mut state = self.lock();
            state.listeners.retain(|thread| !thread.is_finished());
            // Without a thread the connection is closed, and whoever was at its end tries again.
            state.listeners.extend(listening);
        }
    }

    /// Listens to one rank for as long as it is there.
    fn listen(&self, connection: &Arc<Connection>) {
        let (mut buffer, mut member, mut patience) = (Vec::new(), None, Some(PATIENCE));
        let mut leaves = false;
        while let Ok(Received::Message(length, _)) = connection.receive(&mut buffer, &self.stop, patience.take()) {
            let request = Request::parse(buffer.get(..length).unwrap_or_default());
            member = match (request, member) {
                (Ok(Request::Hello(hello)), _) => self.welcome(&hello, connection),
                (Ok(Request::Leaving), _) => {
                    leaves = true;
                    None
                }
                (Ok(request), Some(member)) => {
                    self.hear(member, &request);
                    Some(member)
                }
                (Ok(_), None) => {
                    self.refuse(connection, 0, internal("a rank did not say which one it is"));
                    None
                }
                (Err(error), _) => {
                    self.refuse(connection, 0, error);
                    None
                }
            };
            if member.is_none() {
                break;
            }
        }
        if self.stop.is_set() {
            return;
        }
        match member.filter(|_| self.seat.group.fails && !leaves) {
            Some(member) => self.die(member, connection),
            None => self.leave(connection),
        }
    }

    /// Ends all others because one has died.
    fn die(&self, member: u64, connection: &Arc<Connection>) {
        let mut state = self.lock();
        let rank = state.members.get(&member).or_else(|| state.away.get(&member)).map(|member| member.rank);
        // Another loader of its rank has taken the place of one that is not here any more.
        let Some(rank) = rank else { return };
        let process = connection.peer();
        let message = format!("rank {rank} (process {process}) has died, which shared a reader with this rank");
        let error = Error::new(ErrorKind::Io, message)
            .with_hint("see how that process ended, and go on from the last state with all ranks");
        let mut members = std::mem::take(&mut state.members);
        members.append(&mut state.away);
        state.died = Some(error.clone());
        self.stop_engine(&state);
        drop(state);
        self.changed.notify_all();
        for other in members.into_values().filter(|other| !Arc::ptr_eq(&other.connection, connection)) {
            let told = Answer::Died(error.clone()).to_bytes(other.visit);
            let _ = other.connection.send(&told, None, &self.stop);
        }
    }

    /// Takes note of what a rank says that has joined.
    fn hear(&self, member: u64, request: &Request) {
        let mut state = self.lock();
        if let Request::Away = request {
            let away = state.members.remove(&member);
            state.away.extend(away.map(|away| (member, away)));
        } else if let Some(member) = state.members.get_mut(&member) {
            match *request {
                Request::Taken(batches, bytes) => {
                    member.batches = member.batches.saturating_sub(batches);
                    member.bytes = member.bytes.saturating_sub(bytes);
                }
                // It may have been sent one meanwhile.
                _ => member.waits = member.batches == 0,
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    fn refuse(&self, connection: &Connection, visit: u64, error: Error) {
        let _ = connection.send(&Answer::Failed(error).to_bytes(visit), None, &self.stop);
    }

    /// Adds a rank, or lets it go on from another place; `None` if it is none of this group, or gone, or if
    /// the reader ends.
    fn welcome(&self, hello: &Hello, connection: &Arc<Connection>) -> Option<u64> {
        let died = self.lock().died.clone();
        let lane = match died.map_or_else(|| self.lane(hello, connection.peer()), Err) {
            Ok(lane) => lane,
            Err(error) => {
                self.refuse(connection, hello.visit, error);
                return None;
            }
        };
        // Before the first batch that is sent to it.
        let welcome = Answer::Welcome(self.rank()).to_bytes(hello.visit);
        let is_there = connection.send(&welcome, None, &self.stop).unwrap_or(false);
        if is_there { self.join(hello, lane, connection) } else { None }
    }

    /// What a rank is to get, if it is one of this group.
    fn lane(&self, hello: &Hello, process: i32) -> Result<Lane> {
        let own = self.seat.sampler.part_of().map_or(&self.seat.sampler, |part| &part.rank);
        let is_server = self.seat.group.is_server;
        if let Some((fact, other)) = difference(&self.seat.group.facts, &hello.facts, is_server) {
            let host = self.rank().map_or_else(|| "`rowdex serve`".to_owned(), |rank| format!("rank {rank}"));
            let message = format!(
                "rank {} (process {process}) cannot share a reader with {host} (process {}): its {} is {other}, and \
                 not {}",
                hello.rank,
                std::process::id(),
                fact.name,
                fact.value,
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint(match is_server {
                true => advice(fact, other),
                false => "give the loaders of all ranks the same arguments, and each of the loaders of a rank a share \
                          name"
                    .to_owned(),
            }));
        }
        let shard = own.shard();
        let shard = Shard::new(hello.rank, shard.world_size())?
            .with_tail(shard.tail())
            .with_replicas(shard.replicas(), shard.layout())?;
        let mut sampler: DistributedSampler = own.with_shard(shard)?;
        let [of_rank, of_own] = hello.began;
        sampler.resume(&state_of(&sampler, &hello.state, of_rank))?;
        if hello.workers > 0 {
            sampler = sampler.worker(hello.worker, hello.workers)?;
            sampler.resume(&state_of(&sampler, &hello.own, of_own))?;
        }
        Ok(Lane { sampler, epoch: hello.place.epoch, next: hello.place.batch, end: hello.end })
    }

    /// Adds a rank. One that is there already has come anew: from another place, or as another loader, which takes the
    /// place of the first.
    fn join(&self, hello: &Hello, lane: Lane, connection: &Arc<Connection>) -> Option<u64> {
        let mut state = self.lock();
        if state.stop {
            drop(state);
            // The others were told before it came.
            let _ = connection.send(&Answer::Bye(1).to_bytes(hello.visit), None, &self.stop);
            return None;
        }
        let same = |_: &u64, member: &mut Member| (member.rank, member.worker) == (hello.rank, hello.worker);
        let mut older: Vec<Member> = state.members.extract_if(.., same).map(|(_, member)| member).collect();
        older.extend(state.away.extract_if(.., same).map(|(_, member)| member));
        older.retain(|member| !Arc::ptr_eq(&member.connection, connection));
        state.joined += 1;
        let id = state.joined;
        let connection = Arc::clone(connection);
        let (rank, worker, visit, lost) = (hello.rank, hello.worker, hello.visit, BTreeSet::new());
        let member = Member { rank, worker, visit, connection, lane, batches: 0, bytes: 0, waits: true, lost };
        let process = member.connection.peer();
        state.members.insert(id, member);
        (state.new, state.since) = (true, Instant::now());
        self.stop_engine(&state);
        drop(state);
        self.changed.notify_all();
        for member in older {
            let message = format!("another loader of rank {} (process {process}) has taken its place", hello.rank);
            let error = Error::new(ErrorKind::Closed, message)
                .with_hint("give each of the loaders of a rank a share name of its own");
            self.refuse(&member.connection, member.visit, error);
        }
        Some(id)
    }

    fn leave(&self, connection: &Arc<Connection>) {
        let mut state = self.lock();
        let stays = |_: &u64, member: &mut Member| !Arc::ptr_eq(&member.connection, connection);
        state.members.retain(stays);
        state.away.retain(stays);
        drop(state);
        self.changed.notify_all();
    }

    /// Hands out batches for as long as the reader is there.
    fn send_all(&self) {
        let mut pool = Pool::default();
        while let Some((lanes, members)) = self.wait_for_ranks() {
            let served = catch_unwind(AssertUnwindSafe(|| self.serve(lanes, members, &mut pool)));
            if let Err(error) = served.unwrap_or_else(|_| Err(panicked("reading for several ranks"))) {
                let all: Vec<u64> = self.lock().members.keys().copied().collect();
                self.fail(&all, &error);
            }
        }
    }

    /// Waits until the engine is to be started; `None` if the reader ends. Says which ranks have which lane.
    fn wait_for_ranks(&self) -> Option<(Vec<Lane>, Vec<Vec<u64>>)> {
        let mut state = self.lock();
        loop {
            if state.stop {
                return None;
            }
            if state.members.is_empty() {
                state.again = false;
            }
            if !(state.new || state.again) || state.members.is_empty() {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let (most, waited) = (self.patience(&state), state.since.elapsed());
            if state.again || waited >= most {
                break;
            }
            state = self.changed.wait_timeout(state, most - waited).unwrap_or_else(PoisonError::into_inner).0;
        }
        (state.new, state.again, state.begun) = (false, false, true);
        let (mut lanes, mut members): (Vec<Lane>, Vec<Vec<u64>>) = (Vec::new(), Vec::new());
        for (id, member) in &mut state.members {
            // Batches on their way will be taken; those that were planned for it come anew.
            let lane = &member.lane;
            let same = |other: &Lane| {
                (other.sampler.shard().index(), other.sampler.state(), other.epoch, other.next, other.end)
                    == (lane.sampler.shard().index(), lane.sampler.state(), lane.epoch, lane.next, lane.end)
            };
            match lanes.iter().position(same).and_then(|at| members.get_mut(at)) {
                Some(members) => members.push(*id),
                None => {
                    lanes.push(lane.clone());
                    members.push(vec![*id]);
                }
            }
        }
        Some((lanes, members))
    }

    /// How long to wait after the last rank has come.
    fn patience(&self, state: &State) -> Duration {
        let most = self.seat.group.wait;
        let here = state.members.len() + state.away.len();
        match self.meeting {
            Meeting::First(ranks) if !state.begun && here < ranks => return most,
            Meeting::Again(ranks) if !state.begun && here < ranks => return most.min(STRAGGLERS),
            Meeting::Served if !state.begun => {
                let members = state.members.values().chain(state.away.values());
                let ranks = members.map(|member| self.seat.group.consumers(&member.lane.sampler)).max();
                if here < ranks.unwrap_or(0) {
                    return most;
                }
            }
            _ => {}
        }
        let places = || state.members.values().map(Member::sent);
        let spread = places().max().unwrap_or(0) - places().min().unwrap_or(0);
        // Ranks that are on their way to another place, and have not left the old one yet, are far from the others and
        // do not wait for a batch.
        let workers = state.members.values().map(|member| workers(&member.lane.sampler)).max().unwrap_or(1);
        let drift = self.seat.group.drift.saturating_mul(workers);
        let are_on_their_way = spread > drift && !state.members.values().all(|member| member.waits);
        match are_on_their_way || !state.away.is_empty() {
            true => most.min(STRAGGLERS),
            false => Duration::ZERO,
        }
    }

    /// Starts an engine and hands out what it delivers, until another one is needed.
    fn serve(&self, lanes: Vec<Lane>, members: Vec<Vec<u64>>, pool: &mut Pool) -> Result<()> {
        let seat = &self.seat;
        let options = &seat.options;
        let ranks: u64 = members.iter().map(|members| members.len() as u64).sum();
        let batch_rows = seat.sampler.batch_size().min(seat.sampler.orders().len()).max(1);
        let sizes = (0..seat.groups.count()).map(|group| seat.groups.size(group));
        let (rows, bytes) = sizes.fold((0, 0), |(rows, bytes), size| (rows + size.rows, bytes + size.bytes));
        let batch_bytes = (u128::from(bytes) * u128::from(batch_rows) / u128::from(rows.max(1))).max(1) as u64;
        let drift = seat.group.drift;
        let most = (options.memory / WINDOWS / ranks).max(batch_bytes);
        let window = (drift.saturating_mul(batch_bytes) / 4 * 5).clamp(batch_bytes, most);
        let most = (MOST_BYTES_TOGETHER / batch_bytes).clamp(1, MOST_TOGETHER).min(drift / 2).max(1);
        // A power of two, so that it divides how many batches are made in one piece.
        let stretch = 1 << most.ilog2();
        let walk = Lanes::new(lanes, stretch);
        let run = Run { marks: walk.marks(), members, window, windows: window.saturating_mul(ranks) };
        let settings = Settings {
            memory: options.memory.saturating_sub(run.windows).max(options.memory / 2),
            threads: options.threads,
            read_ahead: options.read_ahead.map(|batches| batches.saturating_mul(run.members.len())),
            read_concurrency: options.read_concurrency,
            batch_rows,
            seed: seat.sampler.orders().fingerprint(),
        };
        let engine = Engine::start(Arc::clone(&seat.groups), Arc::clone(&seat.faults), Box::new(walk), &settings)?;
        let mut state = self.lock();
        if state.stop || state.new {
            return Ok(());
        }
        state.engine = Some(engine.watched());
        drop(state);
        let done = self.run(&engine, &run, pool);
        let mut state = self.lock();
        state.engine = None;
        state.before = sum(&state.before, &engine.stats());
        done
    }

    fn run(&self, engine: &Engine, run: &Run, pool: &mut Pool) -> Result<()> {
        loop {
            let go = match engine.next(None) {
                Ok(Some(assembled)) => self.hand_out(assembled, run, &engine.stats(), pool)?,
                Ok(None) => {
                    let all: Vec<u64> = run.members.iter().flatten().copied().collect();
                    self.end(&all);
                    Go::Out
                }
                Err(error) => {
                    let state = self.lock();
                    let ended = state.stop || state.new;
                    drop(state);
                    if !ended {
                        self.fail_lane(run.marks.failed(), run, &error);
                    }
                    Go::Out
                }
            };
            if go == Go::Out {
                return Ok(());
            }
        }
    }

    /// Sends the batches of a segment to their ranks, those that lie together in one file.
    fn hand_out(&self, assembled: Assembled, run: &Run, stats: &LoaderStats, pool: &mut Pool) -> Result<Go> {
        let Assembled { batches, error, .. } = assembled;
        let (mut marks, mut found) = (Vec::with_capacity(batches.len()), 0);
        while found < batches.len() {
            // The walk notes a batch before the engine has it.
            let mark = run.marks.pop().ok_or_else(|| internal("a batch that nobody asked for"))?;
            found += usize::from(matches!(mark, Mark::Batch(_)));
            marks.push(mark);
        }
        let (mut marks, mut batches) = (&marks[..], &batches[..]);
        while let Some(mark) = marks.first() {
            let count = match *mark {
                Mark::End(lane) => {
                    self.end(run.members.get(lane).map_or(&[], Vec::as_slice));
                    1
                }
                Mark::Batch(lane) => {
                    let same = marks.iter().take_while(|other| *other == mark).count();
                    let together = together(batches.get(..same).unwrap_or_default());
                    if self.send(lane, together, run, stats, pool)? == Go::Out {
                        return Ok(Go::Out);
                    }
                    let count = together.len().max(1);
                    batches = batches.get(count..).unwrap_or_default();
                    count
                }
            };
            marks = marks.get(count..).unwrap_or_default();
        }
        let Some(error) = error else { return Ok(Go::On) };
        let failed = std::iter::from_fn(|| run.marks.pop()).find_map(|mark| match mark {
            Mark::Batch(lane) => Some(lane),
            Mark::End(lane) => {
                self.end(run.members.get(lane).map_or(&[], Vec::as_slice));
                None
            }
        });
        self.fail_lane(failed, run, &error);
        Ok(Go::Out)
    }

    /// Sends batches of a lane to its ranks, once all of them have room.
    fn send(&self, lane: usize, batches: &[Batch], run: &Run, stats: &LoaderStats, pool: &mut Pool) -> Result<Go> {
        let (Some(first), Some(last)) = (batches.first(), batches.last()) else { return Ok(Go::On) };
        let rows = batches.iter().map(|batch| batch.row_ids.len()).sum();
        let joined = match batches.len() {
            1 => None,
            _ => Some(first.part.rows(rows).ok_or_else(|| internal("batches that do not lie together"))?),
        };
        let records = joined.as_ref().unwrap_or(&first.records);
        let (count, bytes) = (batches.len() as u64, bytes_shown(records));
        let of = run.members.get(lane).map_or(&[][..], Vec::as_slice);
        let mut state = self.lock();
        loop {
            if state.stop || state.new {
                return Ok(Go::Out);
            }
            let here: Vec<&Member> = of.iter().filter_map(|id| state.members.get(id)).collect();
            let Some(step) = here.iter().map(|member| member.sent()).min() else {
                run.marks.leave(lane);
                return Ok(Go::On);
            };
            // The walk has several steps of a lane before those of the next one. Whoever waits for one of these must
            // get it, though this lane has paused among its own: it may pause until all have come as far.
            let is_waited_for =
                state.members.iter().any(|(id, other)| other.waits && other.sent() < step && !of.contains(id));
            if is_waited_for
                || here.iter().all(|member| member.has_room(count, bytes, self.seat.group.drift, run.window))
            {
                break;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let waiting: u64 = state.members.values().map(|member| member.bytes).sum();
        drop(state);
        let placed = put(records, &describe(batches), pool, run.windows.saturating_sub(waiting))?;
        let lost = if self.seat.faults.substitutes() { self.seat.faults.lost_groups() } else { Vec::new() };
        let mut state = self.lock();
        let mut ready = Vec::with_capacity(of.len());
        for id in of {
            let Some(member) = state.members.get_mut(id) else { continue };
            member.batches += count;
            member.waits = false;
            member.bytes += placed.length;
            let Place { epoch, batch } = Place::after(last);
            (member.lane.epoch, member.lane.next) = (epoch, batch);
            let news = lost.iter().filter(|lost| member.lost.insert(lost.row_group)).cloned();
            ready.push((*id, member.visit, Arc::clone(&member.connection), news.collect::<Vec<_>>()));
        }
        let taken = || state.members.values().map(Member::taken);
        let stats = LoaderStats {
            drift: taken().max().unwrap_or(0) - taken().min().unwrap_or(0),
            window_bytes: state.members.values().map(|member| member.bytes).sum(),
            ..sum(&state.before, stats)
        };
        drop(state);
        let parcel = Parcel { stream: placed.stream, length: placed.length, rows: rows as u64, batches: count, stats };
        let answer = Answer::Batches(parcel);
        for (id, visit, connection, lost) in ready {
            let told = lost.into_iter().try_for_each(|lost| {
                let message = Answer::Lost(lost.row_group, lost.error).to_bytes(visit);
                connection.send(&message, None, &self.stop).map(|_| ())
            });
            let message = answer.to_bytes(visit);
            match told.and_then(|()| connection.send(&message, Some(placed.file.as_fd()), &self.stop)) {
                Ok(true) => {}
                Ok(false) => self.leave(&connection),
                Err(error) => self.fail(&[id], &error),
            }
        }
        Ok(Go::On)
    }

    /// Tells ranks that their run is over.
    fn end(&self, members: &[u64]) {
        self.let_go(members, &Answer::End);
    }

    /// Tells ranks why they get nothing more.
    fn fail(&self, members: &[u64], error: &Error) {
        self.let_go(members, &Answer::Failed(error.clone()));
    }

    /// As [`fail`](Self::fail), for the ranks of a lane or of all; the others go on.
    fn fail_lane(&self, lane: Option<usize>, run: &Run, error: &Error) {
        let all: Vec<u64> = run.members.iter().flatten().copied().collect();
        self.fail(lane.and_then(|lane| run.members.get(lane)).unwrap_or(&all), error);
        self.lock().again = true;
    }

    fn let_go(&self, members: &[u64], answer: &Answer) {
        let mut state = self.lock();
        let left: Vec<Member> = members.iter().filter_map(|id| state.members.remove(id)).collect();
        drop(state);
        for member in left {
            // If it is not there any more, nobody wants to know.
            let _ = member.connection.send(&answer.to_bytes(member.visit), None, &self.stop);
        }
    }
}

/// A connection, for as long as somebody listens to it. What was decided for those who were there is over when nobody
/// is any more.
struct Here(Arc<Inner>);

impl Here {
    fn new(inner: &Arc<Inner>) -> Self {
        inner.lock().connected += 1;
        Self(Arc::clone(inner))
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.connected -= 1;
        if state.connected == 0 {
            (state.begun, state.died, state.left) = (false, None, Instant::now());
        }
    }
}

/// The first of these batches of a lane, and those after it that lie beside it.
fn together(batches: &[Batch]) -> &[Batch] {
    let Some(first) = batches.first() else { return batches };
    let (mut count, mut rows) = (0, 0);
    for batch in batches.iter().take(MOST_TOGETHER as usize) {
        if count > 0 && (batch.epoch != first.epoch || !first.part.goes_on(rows, &batch.part)) {
            break;
        }
        (count, rows) = (count + 1, rows + batch.row_ids.len());
    }
    batches.get(..count).unwrap_or_default()
}

/// A state as another process has it of a sampler like this one, which began the epoch at this position.
fn state_of(sampler: &DistributedSampler, state: &sampler::State, began: u64) -> sampler::State {
    let mut run = sampler.state().run;
    if let Some(run) = &mut run {
        run.start = began;
    }
    sampler::State { run, ..*state }
}

/// Among how many workers the steps of a rank are dealt.
fn workers(sampler: &DistributedSampler) -> u64 {
    sampler.part_of().map_or(1, |part| part.workers)
}

fn internal(message: &'static str) -> Error {
    Error::new(ErrorKind::Internal, message)
}

fn sum(a: &LoaderStats, b: &LoaderStats) -> LoaderStats {
    LoaderStats {
        decodes: a.decodes + b.decodes,
        extractions: a.extractions + b.extractions,
        substituted: a.substituted + b.substituted,
        rows: a.rows + b.rows,
        held_bytes: b.held_bytes,
        peak_bytes: a.peak_bytes.max(b.peak_bytes),
        planning: a.planning + b.planning,
        decoding: a.decoding + b.decoding,
        extracting: a.extracting + b.extracting,
        assembling: a.assembling + b.assembling,
        drift: b.drift,
        window_bytes: b.window_bytes,
    }
}
