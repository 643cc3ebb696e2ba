//! Reads for all ranks of a machine.
//!
//! One thread accepts ranks, each rank has one that listens to it, and one hands out what the engine delivers. What
//! they share is behind one lock, which nobody holds while sending, reading or waiting.
//!
//! Whenever a rank joins, which it does anew when it goes to another place, the engine is started anew, with every rank
//! at the batch after the last one that was sent to it. So what a rank gets depends on its own place alone.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use self::roster::{Member, Roster};
use self::send::sum;
use super::lanes::Lane;
use super::message::{Answer, Hello, Request, garbled};
use super::{Fact, Seat};
use crate::loader::LoaderStats;
use crate::loader::recovery::panicked;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::sampler::{DistributedSampler, Shard};
use rowdex_share::{Connection, Listener, Received, Signal};

mod roster;
mod send;

/// How long a process that has connected may take to say which rank it is.
const PATIENCE: Duration = Duration::from_secs(20);

/// Reads for whoever connects, until it is dropped.
#[derive(Debug)]
pub(super) struct Reader {
    inner: Arc<Inner>,
    acceptor: Option<JoinHandle<()>>,
    sender: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Inner {
    seat: Seat,
    stop: Signal,
    roster: Mutex<Roster>,
    changed: Condvar,
}

impl Reader {
    /// Starts its threads.
    pub(super) fn start(seat: Seat, listener: Listener) -> Result<Self> {
        let roster = Roster {
            stop: false,
            members: BTreeMap::new(),
            joined: 0,
            connected: 0,
            left: Instant::now(),
            engine: None,
            before: LoaderStats::default(),
            listeners: Vec::new(),
            faults: Arc::new(seat.faults.afresh()),
            has_begun: false,
            is_to_start: false,
            since: Instant::now(),
        };
        let inner = Inner { seat, stop: Signal::new()?, roster: Mutex::new(roster), changed: Condvar::new() };
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

    /// Whether a loader has joined.
    pub(super) fn was_used(&self) -> bool {
        self.inner.lock().joined > 0
    }

    /// Whether no loader has been there for so long; for longer if none has come yet.
    pub(super) fn is_over(&self, idle: Duration) -> bool {
        let roster = self.inner.lock();
        let idle = if roster.joined > 0 { idle } else { idle.max(PATIENCE) };
        roster.connected == 0 && roster.left.elapsed() >= idle
    }

    /// What was done for all ranks.
    pub(super) fn stats(&self) -> LoaderStats {
        let roster = self.inner.lock();
        let engine = roster.engine.as_ref().and_then(Weak::upgrade);
        let before = roster.before;
        drop(roster);
        sum(&before, &engine.map_or_else(LoaderStats::default, |engine| engine.stats()))
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

    /// Ends all connections, and wakes all threads, which end. Whoever looks for a reader before the address is free
    /// again finds nobody there and tries once more.
    fn stop(&self) {
        let mut roster = self.lock();
        roster.stop = true;
        let members = std::mem::take(&mut roster.members);
        self.stop_engine(&roster);
        drop(roster);
        self.stop.set();
        self.changed.notify_all();
        members.values().for_each(|member| member.connection.end());
    }

    fn stop_engine(&self, roster: &Roster) {
        if let Some(engine) = roster.engine.as_ref().and_then(Weak::upgrade) {
            engine.stop();
        }
    }

    fn accept(self: &Arc<Self>, listener: &Listener) {
        while !self.stop.is_set() {
            match listener.accept(&self.stop, None) {
                Ok(Some(connection)) => self.hear_of(Arc::new(connection)),
                Ok(None) => return,
                // Out of files or memory: whoever connects waits until there is room.
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    fn hear_of(self: &Arc<Self>, connection: Arc<Connection>) {
        let here = Here::new(self);
        let listening = thread("rowdex-share-rank", move || here.0.listen(&connection));
        let mut roster = self.lock();
        roster.listeners.retain(|thread| !thread.is_finished());
        // Without a thread the connection is closed, and whoever was at its end tries again.
        roster.listeners.extend(listening);
    }

    /// Listens to one rank for as long as it is there.
    fn listen(&self, connection: &Arc<Connection>) {
        let mut buffer = Vec::new();
        let Ok(Received::Message(length, _)) = connection.receive(&mut buffer, &self.stop, Some(PATIENCE)) else {
            return;
        };
        let joined = match Request::parse(buffer.get(..length).unwrap_or_default()) {
            Ok(Request::Hello(hello)) => {
                // The rank would wait for this thread if it ended.
                let lane = catch_unwind(AssertUnwindSafe(|| self.lane(&hello, connection.peer())));
                lane.unwrap_or_else(|_| Err(panicked("finding a rank's place"))).map(|lane| (hello, lane))
            }
            wrong => Err(wrong.map_or_else(|error| error, |_| garbled())),
        };
        let member = match joined {
            Ok((hello, lane)) => self.join(&hello, lane, connection),
            Err(error) => return self.refuse(connection, error),
        };
        while let Some(member) = member
            && let Ok(Received::Message(length, _)) = connection.receive(&mut buffer, &self.stop, None)
        {
            match Request::parse(buffer.get(..length).unwrap_or_default()) {
                Ok(Request::Taken { batches, bytes }) => self.hear(member, |member| {
                    member.batches = member.batches.saturating_sub(batches);
                    member.bytes = member.bytes.saturating_sub(bytes);
                }),
                wrong => {
                    self.refuse(connection, wrong.map_or_else(|error| error, |_| garbled()));
                    break;
                }
            }
        }
        self.leave(connection);
    }

    /// Takes note of what a rank says that has joined.
    fn hear(&self, member: u64, note: impl FnOnce(&mut Member)) {
        self.lock().members.get_mut(&member).map(note);
        self.changed.notify_all();
    }

    fn refuse(&self, connection: &Connection, error: Error) {
        let _ = connection.send(&Answer::Failed(error).to_bytes(), None, &self.stop);
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
        if hello.workers > 0 {
            sampler = sampler.worker(hello.worker, hello.workers)?;
            hello.own.bring(&mut sampler)?;
        }
        Ok(Lane { sampler, epoch: hello.place.epoch, next: hello.place.batch, end: hello.end })
    }

    /// Adds a rank. One that is there already has come anew: from another place, or as another loader, which takes the
    /// place of the first.
    fn join(&self, hello: &Hello, lane: Lane, connection: &Arc<Connection>) -> Option<u64> {
        let mut roster = self.lock();
        if roster.stop {
            return None;
        }
        let same = |_: &u64, member: &mut Member| (member.rank, member.worker) == (hello.rank, hello.worker);
        let older: Vec<Member> = roster.members.extract_if(.., same).map(|(_, member)| member).collect();
        roster.joined += 1;
        let id = roster.joined;
        let (rank, worker, connection) = (hello.rank, hello.worker, Arc::clone(connection));
        let process = connection.peer();
        let member = Member { rank, worker, connection, lane, batches: 0, bytes: 0 };
        roster.members.insert(id, member);
        roster.is_to_start = true;
        roster.since = Instant::now();
        self.stop_engine(&roster);
        drop(roster);
        self.changed.notify_all();
        for member in older {
            let message = format!("another loader of rank {rank} (process {process}) has taken its place");
            let error = Error::new(ErrorKind::Closed, message)
                .with_hint("give each of the loaders of a rank a share name of its own");
            self.refuse(&member.connection, error);
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
            roster.has_begun = false;
            roster.left = Instant::now();
            roster.faults = Arc::new(roster.faults.afresh());
        }
    }
}
