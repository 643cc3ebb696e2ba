//! Reads for all ranks of a machine: threads in the process of the rank that came first.
//!
//! One thread accepts ranks, each rank has one that listens to it, and one hands out what the engine delivers. What
//! they share is behind one lock, which nobody holds while sending, reading or waiting.
//!
//! Whenever a rank joins, or goes to another place, the engine is started anew, with every rank at the batch after the
//! last one that was sent to it. So what a rank gets depends on its own place alone.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use self::roster::{Gathering, Member, Roster};
use self::send::sum;
use super::Seat;
use super::facts::{advice, difference};
use super::lanes::Lane;
use super::message::{Answer, Hello, Request};
use crate::loader::LoaderStats;
use crate::loader::recovery::panicked;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::sampler::{DistributedSampler, Shard};
use rowdex_share::{Connection, Listener, Received, Signal};

mod roster;
mod send;

/// How long a process that has connected may take to say which rank it is.
const PATIENCE: Duration = Duration::from_secs(20);

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
    roster: Mutex<Roster>,
    changed: Condvar,
}

impl Reader {
    /// Starts its threads.
    pub(super) fn start(seat: Seat, listener: Listener, meeting: Meeting) -> Result<Self> {
        let roster = Roster {
            stop: false,
            members: BTreeMap::new(),
            away: BTreeMap::new(),
            joined: 0,
            connected: 0,
            left: Instant::now(),
            died: None,
            engine: None,
            before: LoaderStats::default(),
            listeners: Vec::new(),
            faults: Arc::clone(&seat.faults),
            gathering: Gathering { begun: false, new: false, again: false, since: Instant::now() },
        };
        let inner = Inner { seat, meeting, stop: Signal::new()?, roster: Mutex::new(roster), changed: Condvar::new() };
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
        let roster = self.inner.lock();
        (roster.joined > 0 && roster.connected == 0).then(|| roster.left.elapsed())
    }

    /// What was done for all ranks.
    pub(super) fn stats(&self) -> LoaderStats {
        let roster = self.inner.lock();
        let engine = roster.engine.as_ref().and_then(Weak::upgrade);
        let before = roster.before;
        drop(roster);
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
    fn lock(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells all ranks to meet again, and wakes all threads, which end. Whoever meets before the address is free again
    /// finds nobody there and tries once more.
    fn stop(&self) {
        let mut roster = self.lock();
        if std::mem::replace(&mut roster.stop, true) {
            return;
        }
        let mut members = std::mem::take(&mut roster.members);
        members.append(&mut roster.away);
        self.stop_engine(&roster);
        drop(roster);
        self.stop.set();
        self.changed.notify_all();
        let sampler = &self.seat.sampler;
        let own = (self.rank(), sampler.part_of().map_or(0, |part| part.worker), std::process::id() as i32);
        let others = |member: &&Member| (Some(member.rank), member.worker, member.connection.peer()) != own;
        let left = members.values().filter(others).count();
        let bye = Answer::Bye(left as u32);
        for member in members.into_values() {
            // Whoever does not get it sees that the connection ends, and that this process does not.
            let _ = member.connection.send_last(&bye.to_bytes(member.visit));
        }
    }

    /// The rank that the reader is with, unless it is with none.
    fn rank(&self) -> Option<u32> {
        let sampler = &self.seat.sampler;
        let of = sampler.part_of().map_or(sampler, |part| &part.rank);
        (!self.seat.group.is_server).then(|| of.shard().rank())
    }

    fn stop_engine(&self, roster: &Roster) {
        if let Some(engine) = roster.engine.as_ref().and_then(Weak::upgrade) {
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
            let mut roster = self.lock();
            roster.listeners.retain(|thread| !thread.is_finished());
            // Without a thread the connection is closed, and whoever was at its end tries again.
            roster.listeners.extend(listening);
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
        let mut roster = self.lock();
        let rank = roster.members.get(&member).or_else(|| roster.away.get(&member)).map(|member| member.rank);
        // Another loader of its rank has taken the place of one that is not here any more.
        let Some(rank) = rank else { return };
        let process = connection.peer();
        let message = format!("rank {rank} (process {process}) has died, which shared a reader with this rank");
        let error = Error::new(ErrorKind::Io, message)
            .with_hint("see how that process ended, and go on from the last state with all ranks");
        let mut members = std::mem::take(&mut roster.members);
        members.append(&mut roster.away);
        roster.died = Some(error.clone());
        self.stop_engine(&roster);
        drop(roster);
        self.changed.notify_all();
        for other in members.into_values().filter(|other| !Arc::ptr_eq(&other.connection, connection)) {
            let told = Answer::Died(error.clone()).to_bytes(other.visit);
            let _ = other.connection.send(&told, None, &self.stop);
        }
    }

    /// Takes note of what a rank says that has joined.
    fn hear(&self, member: u64, request: &Request) {
        let mut roster = self.lock();
        if let Request::Away = request {
            let away = roster.members.remove(&member);
            roster.away.extend(away.map(|away| (member, away)));
        } else if let Some(member) = roster.members.get_mut(&member) {
            match *request {
                Request::Taken(batches, bytes) => {
                    member.batches = member.batches.saturating_sub(batches);
                    member.bytes = member.bytes.saturating_sub(bytes);
                }
                // It may have been sent one meanwhile.
                _ => member.waits = member.batches == 0,
            }
        }
        drop(roster);
        self.changed.notify_all();
    }

    fn refuse(&self, connection: &Connection, visit: u64, error: Error) {
        let _ = connection.send(&Answer::Failed(error).to_bytes(visit), None, &self.stop);
    }

    /// Adds a rank, or lets it go on from another place; `None` if it is none of this group, or gone, or if
    /// the reader ends.
    fn welcome(&self, hello: &Hello, connection: &Arc<Connection>) -> Option<u64> {
        let died = self.lock().died.clone();
        // A rank that goes to another place keeps its connection, and would wait for this thread if it ended.
        let lane = || catch_unwind(AssertUnwindSafe(|| self.lane(hello, connection.peer())));
        let lane = || lane().unwrap_or_else(|_| Err(panicked("finding a rank's place")));
        let lane = match died.map_or_else(lane, Err) {
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
        let [of_rank, of_own] = hello.begun;
        sampler.resume(&of_rank.in_state(sampler.state(), &hello.state))?;
        if hello.workers > 0 {
            sampler = sampler.worker(hello.worker, hello.workers)?;
            sampler.resume(&of_own.in_state(sampler.state(), &hello.own))?;
        }
        Ok(Lane { sampler, epoch: hello.place.epoch, next: hello.place.batch, end: hello.end })
    }

    /// Adds a rank. One that is there already has come anew: from another place, or as another loader, which takes the
    /// place of the first.
    fn join(&self, hello: &Hello, lane: Lane, connection: &Arc<Connection>) -> Option<u64> {
        let mut roster = self.lock();
        if roster.stop {
            drop(roster);
            // The others were told before it came.
            let _ = connection.send(&Answer::Bye(1).to_bytes(hello.visit), None, &self.stop);
            return None;
        }
        let same = |_: &u64, member: &mut Member| (member.rank, member.worker) == (hello.rank, hello.worker);
        let mut older: Vec<Member> = roster.members.extract_if(.., same).map(|(_, member)| member).collect();
        older.extend(roster.away.extract_if(.., same).map(|(_, member)| member));
        older.retain(|member| !Arc::ptr_eq(&member.connection, connection));
        roster.joined += 1;
        let id = roster.joined;
        let connection = Arc::clone(connection);
        let (rank, worker, visit, lost) = (hello.rank, hello.worker, hello.visit, BTreeSet::new());
        let member = Member { rank, worker, visit, connection, lane, batches: 0, bytes: 0, waits: true, lost };
        let process = member.connection.peer();
        roster.members.insert(id, member);
        (roster.gathering.new, roster.gathering.since) = (true, Instant::now());
        self.stop_engine(&roster);
        drop(roster);
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
        let mut roster = self.lock();
        let stays = |_: &u64, member: &mut Member| !Arc::ptr_eq(&member.connection, connection);
        roster.members.retain(stays);
        roster.away.retain(stays);
        drop(roster);
        self.changed.notify_all();
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
        let mut roster = self.0.lock();
        roster.connected -= 1;
        if roster.connected == 0 {
            (roster.gathering.begun, roster.died, roster.left) = (false, None, Instant::now());
            if self.0.meeting == Meeting::Served {
                roster.faults = Arc::new(roster.faults.afresh());
            }
        }
    }
}

fn internal(message: &'static str) -> Error {
    Error::new(ErrorKind::Internal, message)
}
