//! A rank's end of a shared reader.
//!
//! It has no thread. What it waits for is one of three: a message of the reader, the end of the reader, and somebody
//! who closes the loader. A reader that is gone is looked for again, and started if there is none: this rank says where
//! it goes on, which is after the last batch that came.

use std::fs::File;
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::message::{About, Hello, PacksSent, Parcel, Request, Standpoint, VERSION, bytes, garbled, parse};
use super::{Seat, start};
use crate::loader::assemble::Assembled;
use crate::loader::batch::BatchSlice;
use crate::loader::deliver::{Deliver, Watched, closed, timed_out};
use crate::loader::driver::Empty;
use crate::loader::{Batch, LoaderStats, LostGroup, NextBatch, Packs};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::stop;
use rowdex_order::sampler::DistributedSampler;
use rowdex_share::{Connection, Met, Received, Signal, meet, read};

/// How many readers may end before one of them has sent a batch.
const MOST_ENDED: u32 = 5;

/// Delivers the batches of one rank. It looks for a reader when a batch is asked for.
#[derive(Debug)]
pub(super) struct Client {
    seat: Seat,
    shared: Arc<RankView>,
    at: Mutex<At>,
}

/// What other threads may see.
#[derive(Debug)]
struct RankView {
    stop: Signal,
    stats: Mutex<LoaderStats>,
    /// It ends with the loader, though that may be kept: the others would wait for this rank.
    connection: Mutex<Weak<Connection>>,
}

#[derive(Debug)]
struct At {
    connection: Option<Arc<Connection>>,
    /// The reader that this rank has started.
    started: Option<Child>,
    /// How many readers have ended since the last batch came.
    ended: u32,
    sampler: DistributedSampler,
    /// The batch after the last one that came.
    place: NextBatch,
    buffer: Vec<u8>,
}

impl Watched for RankView {
    fn stop(&self) {
        self.stop.set();
        if let Some(connection) = self.connection().upgrade() {
            connection.end();
        }
    }

    fn stats(&self) -> LoaderStats {
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RankView {
    fn connection(&self) -> MutexGuard<'_, Weak<Connection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        start::reap(self.lock().started.take());
    }
}

impl Client {
    pub(super) fn new(seat: Seat) -> Result<Self> {
        let shared = RankView { stop: Signal::new()?, stats: Mutex::default(), connection: Mutex::default() };
        let at = At {
            connection: None,
            started: None,
            ended: 0,
            sampler: seat.sampler.clone(),
            place: seat.place,
            buffer: Vec::new(),
        };
        Ok(Self { seat, shared: Arc::new(shared), at: Mutex::new(at) })
    }

    fn lock(&self) -> MutexGuard<'_, At> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The message that says where this rank goes on.
    fn hello(&self, at: &At) -> Vec<u8> {
        let part = at.sampler.part_of();
        let of = part.map_or(&at.sampler, |part| &part.rank);
        let hello = Hello {
            version: VERSION.to_owned(),
            rank: of.shard().rank(),
            worker: part.map(|part| (part.worker, part.workers)),
            state: Standpoint::of(of),
            own: Standpoint::of(&at.sampler),
            place: at.place,
            end: self.seat.options.epochs,
            facts: self.seat.group.facts.iter().filter(|fact| fact.said).cloned().collect(),
        };
        bytes(&Request::Hello(Box::new(hello)))
    }

    /// Connects to the reader, which is started if there is none, and says where this rank goes on. Whether it may, the
    /// answer says.
    fn join(&self, at: &mut At) -> Result<Arc<Connection>> {
        let signal = &self.shared.stop;
        let hello = self.hello(at);
        let (connection, listener) = match meet(&self.seat.group.address, signal)?.ok_or_else(closed)? {
            Met::Joined(connection) => (connection, None),
            Met::First(listener) => (listener.connect()?, Some(listener)),
        };
        // If the reader is about to end, that shows when its answer is waited for.
        connection.send(&hello, None, signal)?;
        if let Some(listener) = listener {
            start::reap(at.started.take());
            at.started = start::reader(&self.seat, listener)?;
        }
        let connection = Arc::new(connection);
        *self.shared.connection() = Arc::downgrade(&connection);
        at.connection = Some(Arc::clone(&connection));
        if signal.is_set() {
            // Whoever closed the loader may have done so before there was this connection to end.
            connection.end();
        }
        Ok(connection)
    }

    /// What the reader says next, and a file that comes with it; nothing if it is gone.
    fn receive(
        &self,
        at: &mut At,
        connection: &Connection,
        until: Option<Instant>,
    ) -> Result<Option<(Result<Parcel>, Option<File>)>> {
        let signal = &self.shared.stop;
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            match connection.receive(&mut at.buffer, signal, left.into_iter().chain(stop::tick()).min())? {
                Received::Message(length, file) => {
                    return Ok(Some((parse(at.buffer.get(..length).unwrap_or_default())?, file)));
                }
                Received::Gone if !signal.is_set() => return Ok(None),
                Received::Gone | Received::Stopped => return Err(closed()),
                Received::TimedOut if left.is_some_and(|left| left.is_zero()) => return Err(timed_out()),
                Received::TimedOut => stop::check()?,
            }
        }
    }

    /// Whether there is a batch to come, which is at the place then: the one behind the last step of an epoch is the
    /// first of the next epoch that has any.
    fn goes_on(&self, At { sampler, place, .. }: &mut At) -> bool {
        let mut empty = Empty::default();
        while self.seat.options.epochs.is_none_or(|end| place.epoch < end) {
            // What keeps an epoch from being served, the reader says.
            let Some(steps) = sampler.known_steps_of(place.epoch) else { return true };
            place.batch = place.batch.max(sampler.first_step(place.epoch));
            if place.batch < steps {
                return true;
            }
            if empty.is_last(steps, sampler) {
                return false;
            }
            *place = NextBatch { epoch: place.epoch.saturating_add(1), batch: 0 };
        }
        false
    }

    /// Lets go of a reader that is gone, to look for another one; an error if that has led to nothing.
    fn lose(at: &mut At, connection: &Connection) -> Result<()> {
        // The reader may live, if the process that it is taken for is the rank that has started it.
        connection.end();
        at.connection = None;
        start::check(at.started.take())?;
        at.ended += 1;
        if at.ended < MOST_ENDED {
            // It may have been about to end, as nobody used it.
            std::thread::sleep(Duration::from_millis(1 << at.ended));
            return Ok(());
        }
        let ended = std::mem::take(&mut at.ended);
        let last = connection.peer();
        let message = format!("{ended} readers of this machine have ended before a batch came (the last was {last})");
        Err(Error::new(ErrorKind::Io, message)
            .with_hint("see how these processes ended (out of memory?), and resume from the last state"))
    }

    /// The batches of a memory file.
    fn unpack(&self, parcel: &Parcel, file: &File, at: &mut At) -> Result<Assembled> {
        let rows = usize::try_from(parcel.rows).unwrap_or(usize::MAX);
        let (whole, about) = read(file, parcel.stream, parcel.length, &self.seat.units.form.served, rows)?;
        let whole = Arc::new(whole);
        let (lost, about): (Vec<LostGroup>, Vec<About>) = parse(&about)?;
        for LostGroup { row_group, error } in lost {
            // Its error if rows are not to be replaced.
            self.seat.faults.lose(row_group, error, &self.seat.units)?;
        }
        let mut batches = Vec::new();
        let mut first = 0;
        let rank = at.sampler.shard().rank();
        for About { epoch, step, steps, row_ids, positions, substituted, pads, packs } in about {
            let count = row_ids.len();
            let has_positions = positions.is_empty() || positions.len() == count;
            if !has_positions
                || count > rows - first
                || pads > count
                || substituted.iter().any(|row| row.place >= count)
            {
                return Err(garbled());
            }
            if (epoch, step) != (at.place.epoch, at.place.batch) {
                let message = format!("the reader sent step {step} of epoch {epoch}, and not {:?}", at.place);
                return Err(Error::new(ErrorKind::Internal, message));
            }
            let records = if count == rows { (*whole).clone() } else { whole.slice(first, count) };
            let part = BatchSlice::of(&whole, first);
            let packs = self.packs(packs, count)?;
            let batch = Batch { epoch, step, steps, rank, records, row_ids, positions, substituted, pads, packs, part };
            at.place = NextBatch::after(&batch, 0, 1);
            batches.push(batch);
            first += count;
        }
        *self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner) = parcel.stats;
        Ok(Assembled { batches, bytes: parcel.length, rows: parcel.rows, error: None })
    }

    /// Packs of so many pieces as the reader sent them, with what this process knows of them.
    fn packs(&self, sent: Option<PacksSent>, count: usize) -> Result<Option<Packs>> {
        match (sent, &self.seat.units.packing) {
            (Some(PacksSent { pieces, ends, unended, behind }), Some(packing)) => {
                let is_sound = pieces.len() == count
                    && ends.is_sorted()
                    && ends.last().is_none_or(|last| *last == count)
                    && unended.is_sorted_by(|a, b| a.place < b.place);
                if !is_sound {
                    return Err(garbled());
                }
                Ok(Some(packing.packs_of(pieces, ends, unended, behind)))
            }
            (None, None) => Ok(None),
            _ => Err(Error::new(ErrorKind::Internal, "the reader sent packs for rows, or rows for packs")),
        }
    }
}

/// Ends the connection: nobody is to wait for this rank, nor for room among what it has not taken.
fn leave(at: &mut At) {
    if let Some(connection) = at.connection.take() {
        connection.end();
    }
}

impl Deliver for Client {
    fn next(&self, until: Option<Instant>) -> Result<Option<Assembled>> {
        let at = &mut *self.lock();
        if !self.goes_on(at) {
            leave(at);
            return Ok(None);
        }
        loop {
            let connection = match &at.connection {
                Some(connection) => Arc::clone(connection),
                None => self.join(at)?,
            };
            let Some((answer, file)) = self.receive(at, &connection, until)? else {
                Self::lose(at, &connection)?;
                stop::check()?;
                if until.is_some_and(|until| until <= Instant::now()) {
                    return Err(timed_out());
                }
                continue;
            };
            match answer {
                Ok(parcel) => {
                    let file = file.ok_or_else(garbled)?;
                    let taken = Request::Taken { batches: parcel.batches, bytes: parcel.length };
                    // If the reader is gone, this is what it has sent before.
                    connection.send(&bytes(&taken), None, &self.shared.stop)?;
                    at.ended = 0;
                    let batches = self.unpack(&parcel, &file, at)?;
                    if self.seat.options.epochs.is_some_and(|end| at.place.epoch >= end) {
                        leave(at);
                    }
                    return Ok(Some(batches));
                }
                Err(error) => {
                    at.connection = None;
                    return Err(error);
                }
            }
        }
    }

    fn go_to(&self, sampler: &DistributedSampler, place: NextBatch) -> bool {
        let at = &mut *self.lock();
        (at.sampler, at.place) = (sampler.clone(), place);
        leave(at);
        true
    }

    fn watched(&self) -> Arc<dyn Watched> {
        self.shared.clone()
    }
}
