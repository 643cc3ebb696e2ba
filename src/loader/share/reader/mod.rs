//! Reads for all ranks of a machine.
//!
//! One thread accepts ranks, each rank has one that listens to it, and one hands out what the engine delivers. What
//! they share is behind one lock, which nobody holds while sending, reading or waiting.
//!
//! Whenever a rank joins, which it does anew when it goes to another place, the engine is started anew, with every rank
//! at the batch after the last one that was sent to it. So what a rank gets depends on its own place alone.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

use self::roster::{Member, Roster};
use super::lanes::Lane;
use super::message::{Hello, Request, failure, garbled, parse_request};
use super::{Fact, Seat};
use crate::loader::LoaderStats;
use crate::loader::recovery::panicked;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::sampler::{DistributedSampler, Shard};
use rowdex_share::{Connection, Listener, Met, Received, Signal, meet};

mod roster;
mod send;

/// How long a process that has connected may take to say which rank it is.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long no loader may have been there when a reader ends that ranks have started.
const IDLE: Duration = Duration::from_secs(3);

/// Reads for the loaders of a machine's ranks until it is dropped, in the place of a reader that these would start.
/// From [`LoaderBuilder::serve`](crate::loader::LoaderBuilder::serve).
///
/// When it is dropped, or its process is killed, the loaders that are there start a reader, and continue.
#[derive(Debug)]
pub struct Server {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Inner {
    seat: Seat,
    stop: Signal,
    roster: Mutex<Roster>,
    changed: Condvar,
}

impl Server {
    pub(in crate::loader) fn start(seat: Seat) -> Result<Self> {
        match meet(&seat.group.address, &Signal::new()?)? {
            Some(Met::First(listener)) => Self::at(seat, listener),
            Some(Met::Joined(other)) => {
                let message = format!("process {} reads for this job already", other.peer());
                Err(Error::new(ErrorKind::AlreadyExists, message)
                    .with_hint("start the server before the ranks, or give it another job or share name"))
            }
            None => Err(Error::new(ErrorKind::Internal, "the server was not asked to end")),
        }
    }

    /// Reads for the ranks that meet at this socket until they have left.
    pub(in crate::loader) fn listen(seat: Seat, socket: OwnedFd) -> Result<()> {
        let server = Self::at(seat, Listener::of(socket)?)?;
        while !server.is_over(IDLE) {
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Starts its threads.
    pub(super) fn at(seat: Seat, listener: Listener) -> Result<Self> {
        let roster = Roster {
            members: BTreeMap::new(),
            joined: 0,
            connected: 0,
            left: Instant::now(),
            engine: None,
            stats: LoaderStats::default(),
            faults: Arc::new(seat.faults.afresh()),
            has_begun: false,
            is_to_start: false,
            since: Instant::now(),
        };
        let inner = Inner { seat, stop: Signal::new()?, roster: Mutex::new(roster), changed: Condvar::new() };
        let mut server = Self { inner: Arc::new(inner), threads: Vec::new() };
        let inner = Arc::clone(&server.inner);
        let accepting = Builder::new().name("rowdex-share-accept".to_owned()).spawn(move || inner.accept(&listener));
        server.threads.push(accepting.map_err(unstarted)?);
        let inner = Arc::clone(&server.inner);
        let sending = Builder::new().name("rowdex-share-send".to_owned()).spawn(move || inner.send_all());
        server.threads.push(sending.map_err(unstarted)?);
        Ok(server)
    }

    /// How many loaders are connected: one for each rank, or for each of its workers.
    pub fn connected(&self) -> usize {
        self.inner.lock().connected
    }

    /// Whether loaders were there and all have left, the last one for as long as the reader
    /// [waits](crate::loader::Share::wait) for those that have not come. More may come nevertheless.
    pub fn is_deserted(&self) -> bool {
        self.inner.lock().joined > 0 && self.is_over(self.inner.seat.group.wait)
    }

    /// Whether no loader has been there for so long; for longer if none has come yet.
    pub(super) fn is_over(&self, idle: Duration) -> bool {
        let roster = self.inner.lock();
        let idle = if roster.joined > 0 { idle } else { idle.max(PATIENCE) };
        roster.connected == 0 && roster.left.elapsed() >= idle
    }

    /// What was done for all loaders since the last of them has come.
    pub fn stats(&self) -> LoaderStats {
        let roster = self.inner.lock();
        roster.engine.as_ref().and_then(Weak::upgrade).map_or(roster.stats, |engine| engine.stats())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.inner.stop();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn unstarted(error: std::io::Error) -> Error {
    Error::io("cannot start a thread of the reader that ranks share", error)
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all connections, and wakes all threads, which end. Whoever looks for a reader before the address is free
    /// again finds nobody there and tries once more.
    fn stop(&self) {
        self.stop.set();
        let mut roster = self.lock();
        let members = std::mem::take(&mut roster.members);
        self.stop_engine(&roster);
        drop(roster);
        self.changed.notify_all();
        members.values().for_each(|member| member.connection.end());
    }

    fn stop_engine(&self, roster: &Roster) {
        if let Some(engine) = roster.engine.as_ref().and_then(Weak::upgrade) {
            engine.stop();
        }
    }

    fn accept(&self, listener: &Listener) {
        thread::scope(|scope| {
            while !self.stop.is_set() {
                match listener.accept(&self.stop, None) {
                    Ok(Some(connection)) => {
                        let name = "rowdex-share-rank".to_owned();
                        self.lock().connected += 1;
                        let hearing =
                            Builder::new().name(name).spawn_scoped(scope, move || self.hear(connection.into()));
                        // Without a thread the connection is closed, and whoever was at its end tries again.
                        if hearing.is_err() {
                            self.lock().connected -= 1;
                        }
                    }
                    Ok(None) => return,
                    // Out of files or memory: whoever connects waits until there is room.
                    Err(_) => thread::sleep(Duration::from_millis(50)),
                }
            }
        });
    }

    /// Listens to one rank for as long as it is there. What was decided for those who were there is over when nobody is
    /// any more.
    fn hear(&self, connection: Arc<Connection>) {
        // The rank would wait for this thread if it ended.
        let heard = catch_unwind(AssertUnwindSafe(|| self.listen(&connection)));
        if let Err(error) = heard.unwrap_or_else(|_| Err(panicked("finding a rank's place"))) {
            self.refuse(&connection, &error);
        }
        self.leave(&connection);
        let mut roster = self.lock();
        roster.connected -= 1;
        if roster.connected == 0 {
            roster.has_begun = false;
            roster.left = Instant::now();
            roster.faults = Arc::new(roster.faults.afresh());
        }
    }

    fn listen(&self, connection: &Arc<Connection>) -> Result<()> {
        let mut buffer = Vec::new();
        let mut member = None;
        loop {
            let most = member.is_none().then_some(PATIENCE);
            let Ok(Received::Message(length, _)) = connection.receive(&mut buffer, &self.stop, most) else {
                return Ok(());
            };
            match (parse_request(buffer.get(..length).unwrap_or_default())?, member) {
                (Request::Hello(hello), None) => {
                    let lane = self.lane(&hello, connection.peer())?;
                    member = self.join(&hello, lane, connection);
                    if member.is_none() {
                        return Ok(());
                    }
                }
                (Request::Taken { batches, bytes }, Some(member)) => {
                    if let Some(member) = self.lock().members.get_mut(&member) {
                        member.batches = member.batches.saturating_sub(batches);
                        member.bytes = member.bytes.saturating_sub(bytes);
                    }
                    self.changed.notify_all();
                }
                _ => return Err(garbled()),
            }
        }
    }

    fn refuse(&self, connection: &Connection, error: &Error) {
        // If it is not there any more, nobody wants to know.
        let _ = connection.send(&failure(error), None, &self.stop);
    }

    /// What a rank is to get, if it is one of this group.
    fn lane(&self, hello: &Hello, process: i32) -> Result<Lane> {
        let own = self.seat.sampler.part_of().map_or(&self.seat.sampler, |part| &part.rank);
        let other = |own: &&Fact| hello.facts.iter().find(|fact| fact.name == own.name && fact.value != own.value);
        if let Some((own, other)) = self.seat.group.facts.iter().find_map(|own| Some((own, other(&own)?))) {
            let message = format!(
                "rank {} (process {process}) cannot share the reader of this machine (process {}): its {} is {}, and \
                 not {}",
                hello.rank,
                std::process::id(),
                own.name,
                other.value,
                own.value,
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint(
                "give the loaders of all ranks, and `rowdex serve` if you have started it, the same arguments, and \
                 each of the loaders of a rank a share name",
            ));
        }
        let shard = own.shard();
        let shard = Shard::new(hello.rank, shard.world_size())?
            .with_tail(shard.tail())
            .with_replication(shard.replicas(), shard.layout())?;
        let mut sampler: DistributedSampler = own.with_shard(shard)?;
        hello.state.bring(&mut sampler)?;
        if let Some((worker, workers)) = hello.worker {
            sampler = sampler.worker(worker, workers)?;
            hello.own.bring(&mut sampler)?;
        }
        Ok(Lane { sampler, epoch: hello.place.epoch, next: hello.place.batch, end: hello.end })
    }

    /// Adds a rank. One that is there already has come anew: from another place, or as another loader, which takes the
    /// place of the first.
    fn join(&self, hello: &Hello, lane: Lane, connection: &Arc<Connection>) -> Option<u64> {
        let mut roster = self.lock();
        if self.stop.is_set() {
            return None;
        }
        let same = |_: &u64, member: &mut Member| (member.rank, member.worker) == (hello.rank, hello.worker);
        let older: Vec<Member> = roster.members.extract_if(.., same).map(|(_, member)| member).collect();
        roster.joined += 1;
        let id = roster.joined;
        let Hello { rank, worker, .. } = *hello;
        let member = Member { rank, worker, connection: Arc::clone(connection), lane, batches: 0, bytes: 0 };
        roster.members.insert(id, member);
        roster.is_to_start = true;
        roster.since = Instant::now();
        self.stop_engine(&roster);
        drop(roster);
        self.changed.notify_all();
        for member in older {
            let process = connection.peer();
            let message = format!("another loader of rank {rank} (process {process}) has taken its place");
            let error = Error::new(ErrorKind::Closed, message)
                .with_hint("give each of the loaders of a rank another share name");
            self.refuse(&member.connection, &error);
        }
        Some(id)
    }

    fn leave(&self, connection: &Arc<Connection>) {
        let mut roster = self.lock();
        roster.members.retain(|_, member| !Arc::ptr_eq(&member.connection, connection));
        drop(roster);
        self.changed.notify_all();
    }
}
