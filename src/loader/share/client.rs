//! A rank's end of a shared reader.
//!
//! It has no thread. What it waits for is one of three: a message of the reader, the end of the reader's process, and
//! somebody who closes the loader.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::Seat;
use super::begun::Begun;
use super::message::{About, Answer, Hello, PacksSent, Parcel, away, leaving, taken, waiting};
use super::reader::{Meeting, Reader, Stopper};
use crate::loader::assemble::Assembled;
use crate::loader::control::{closed, timed_out};
use crate::loader::deliver::{Deliver, Watched};
use crate::loader::part::Part;
use crate::loader::walk::Empty;
use crate::loader::{Batch, LoaderStats, NextBatch, Packs};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::stop;
use rowdex_order::sampler::DistributedSampler;
use rowdex_share::{Connection, Met, Received, Signal, meet, read};

/// How long to try again where a reader ends before it has answered.
const MEETING: Duration = Duration::from_secs(30);

/// How long a process may take to end after its sockets are closed. One that takes longer has closed its loader.
const ENDING: Duration = Duration::from_secs(2);

/// Delivers the batches of one rank. It meets the others when the first batch is asked for, and again when their reader
/// has ended in good order. When it goes to another place it stays with them: if the reader is in this process, the
/// others are read for all the while.
#[derive(Debug)]
pub(super) struct Client {
    seat: Seat,
    shared: Arc<Shared>,
    at: Mutex<At>,
}

/// What other threads may see.
#[derive(Debug)]
struct Shared {
    stop: Signal,
    stats: Mutex<LoaderStats>,
    /// What ends with it, though the loader may be kept: the connection, for which the others would wait, and the
    /// reader if that is in this process.
    ends: Mutex<(Weak<Connection>, Option<Stopper>)>,
}

#[derive(Debug)]
struct At {
    link: Option<Link>,
    stage: Stage,
    /// How many times a reader was told where this rank is.
    visit: u64,
    /// The reader was told that this rank waits, and nothing came since.
    waits: bool,
    sampler: DistributedSampler,
    /// The batch after the last one that came.
    place: NextBatch,
    /// How many ranks are left of those that met before.
    left: Option<u32>,
    /// Why nobody is to go on, if that came while this rank went to another place.
    died: Option<Error>,
    buffer: Vec<u8>,
}

/// What the reader knows of this rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// That it is not at the place any more where it was.
    Away,
    /// Where it goes on, if the message has arrived.
    Asked,
    /// As [`Asked`](Self::Asked), of a reader that it has just met and that has not answered yet.
    Greeted,
    /// Where it is.
    Here,
}

/// What was met with while one batch was waited for.
#[derive(Debug, Default)]
struct Search {
    /// Since when no reader has answered.
    began: Option<Instant>,
    /// A reader ended without a word, whose process lives.
    was_let_down: bool,
}

/// The first so many bytes of the buffer, and a file that came with them.
type Message = (usize, Option<std::fs::File>);

#[derive(Debug)]
struct Link {
    // Closed before the reader ends.
    connection: Arc<Connection>,
    /// The rank that the reader is with, unless it is with none, or has not answered.
    host: Option<u32>,
    /// If that is this one.
    #[expect(dead_code, reason = "it reads until it is dropped")]
    reader: Option<Reader>,
}

impl Watched for Shared {
    fn stop(&self) {
        self.stop.set();
        let (connection, reader) = std::mem::take(&mut *self.ends());
        if let Some(connection) = connection.upgrade() {
            let _ = connection.send(&leaving(), None, &self.stop);
            connection.end();
        }
        if let Some(reader) = reader {
            reader.stop();
        }
    }

    fn stats(&self) -> LoaderStats {
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn ends(&self) -> MutexGuard<'_, (Weak<Connection>, Option<Stopper>)> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that ends without a word is that of a process that died.
impl Drop for Client {
    fn drop(&mut self) {
        if let Some(link) = &self.lock().link {
            let _ = link.connection.send(&leaving(), None, &self.shared.stop);
        }
    }
}

impl Client {
    pub(super) fn new(seat: Seat) -> Result<Self> {
        let shared = Shared { stop: Signal::new()?, stats: Mutex::default(), ends: Mutex::default() };
        let (sampler, place) = (seat.sampler.clone(), begin_of(&seat.sampler, seat.place));
        let at = At {
            link: None,
            stage: Stage::Away,
            visit: 0,
            waits: false,
            sampler,
            place,
            left: None,
            died: None,
            buffer: Vec::new(),
        };
        Ok(Self { seat, shared: Arc::new(shared), at: Mutex::new(at) })
    }

    fn lock(&self) -> MutexGuard<'_, At> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The message that says where this rank goes on.
    fn hello(&self, at: &mut At) -> Vec<u8> {
        at.visit += 1;
        at.waits = false;
        let part = at.sampler.part_of();
        let (worker, workers) = part.map_or((0, 0), |part| (part.worker, part.workers));
        let of = part.map_or(&at.sampler, |part| &part.rank);
        let (state, own) = (of.state(), at.sampler.state());
        let hello = Hello {
            visit: at.visit,
            rank: of.shard().rank(),
            worker,
            workers,
            state,
            own,
            begun: [state, own].map(|state| Begun::of(&state)),
            place: at.place,
            end: self.seat.options.epochs,
            facts: self.seat.group.facts.clone(),
        };
        hello.to_bytes()
    }

    /// Meets the others, and tells whoever reads where this rank goes on. Whether it may, the answer says.
    fn meet(&self, at: &mut At) -> Result<()> {
        let (seat, signal) = (&self.seat, &self.shared.stop);
        let (connection, reader) = match meet(&seat.group.address, signal)?.ok_or_else(closed)? {
            Met::Joined(connection) => (connection, None),
            Met::First(listener) => {
                let connection = listener.connect()?;
                let meeting = match at.left {
                    Some(left) => Meeting::Again(left as usize),
                    None => Meeting::First(seat.group.consumers(&at.sampler)),
                };
                let seat = Seat { sampler: at.sampler.clone(), place: at.place, ..seat.clone() };
                let reader = Reader::start(seat, listener, meeting)?;
                (connection, Some(reader))
            }
        };
        let connection = Arc::new(connection);
        *self.shared.ends() = (Arc::downgrade(&connection), reader.as_ref().map(Reader::stopper));
        // If the reader is about to end, that shows when its answer is waited for.
        connection.send(&self.hello(at), None, signal)?;
        (at.link, at.stage) = (Some(Link { connection, host: None, reader }), Stage::Greeted);
        Ok(())
    }

    /// What the reader says next; nothing if its end of the connection is closed. If nothing is there yet, the reader
    /// is told that this rank waits.
    fn receive(&self, at: &mut At, connection: &Connection, until: Option<Instant>) -> Result<Option<Message>> {
        let signal = &self.shared.stop;
        let (mut most, mut is_last) = (Some(Duration::ZERO), false);
        loop {
            match connection.receive(&mut at.buffer, signal, most)? {
                Received::Message(length, file) => {
                    at.waits = false;
                    return Ok(Some((length, file)));
                }
                Received::Gone if !signal.is_set() => {
                    at.waits = false;
                    return Ok(None);
                }
                Received::Gone | Received::Stopped => {
                    if at.stage == Stage::Greeted {
                        // Whoever closed the loader may have done so before there was this connection to end.
                        let _ = connection.send(&leaving(), None, signal);
                        at.link = None;
                    }
                    return Err(closed());
                }
                Received::TimedOut if is_last => return Err(timed_out()),
                Received::TimedOut => {}
            }
            stop::check()?;
            if !at.waits {
                connection.send(&waiting(), None, signal)?;
                at.waits = true;
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            is_last = left.is_some_and(|left| left.is_zero());
            most = left.into_iter().chain(stop::tick()).min();
        }
    }

    /// Lets go of a reader that is gone, to meet the others again; an error if this rank has lost its place with it.
    fn let_go(&self, at: &mut At, connection: &Connection, search: &mut Search) -> Result<()> {
        match at.stage {
            Stage::Greeted => {
                // It was about to end.
                if search.began.get_or_insert_with(Instant::now).elapsed() > MEETING {
                    return Err(Error::new(ErrorKind::Io, "the reader of this machine ends before it answers"));
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            // It ended while this rank was at no place, which has lost nothing.
            Stage::Away | Stage::Asked => at.left = None,
            Stage::Here => {
                // One that ends in good order says so, but for ranks that had too much to read. These see that its
                // process lives. A second one in a row is not taken for such.
                if search.was_let_down || !connection.is_outlived(ENDING, &self.shared.stop) {
                    return Err(gone(connection, at.link.as_ref().and_then(|link| link.host)));
                }
                search.was_let_down = true;
                // Nobody has said how many are left: the most that may come again.
                at.left = Some(self.seat.group.consumers(&at.sampler).try_into().unwrap_or(u32::MAX));
            }
        }
        at.link = None;
        Ok(())
    }

    /// The batches of a memory file.
    fn unpack(&self, parcel: &Parcel, file: &std::fs::File, at: &mut At) -> Result<Assembled> {
        let rows = usize::try_from(parcel.rows).unwrap_or(usize::MAX);
        let (whole, about) = read(file, parcel.stream, parcel.length, &self.seat.units.form().served, rows)?;
        let whole = Arc::new(whole);
        let mut about = rowdex_share::Reader::new(&about);
        let (mut batches, mut first) = (Vec::new(), 0);
        let rank = at.sampler.shard().rank();
        for _ in 0..parcel.batches {
            let About { epoch, step, steps, row_ids, substituted, pads, packs } =
                About::parse(&mut about, rows - first)?;
            let mut due = (at.place.epoch, at.place.batch.max(at.sampler.first_step(at.place.epoch)));
            for _ in 0..Empty::MOST {
                if due.0 >= epoch || at.sampler.steps_of(due.0) > due.1 {
                    break;
                }
                due = (due.0 + 1, at.sampler.first_step(due.0 + 1));
            }
            if (epoch, step) != due {
                let message = format!("the reader sent step {step} of epoch {epoch}, and not {} of {}", due.1, due.0);
                return Err(Error::new(ErrorKind::Internal, message));
            }
            let count = row_ids.len();
            let records = if count == rows { (*whole).clone() } else { whole.slice(first, count) };
            let part = Part::of(&whole, first);
            let packs = self.packs(packs)?;
            let batch = Batch { epoch, step, steps, rank, records, row_ids, substituted, pads, packs, part };
            at.place = NextBatch::after(&batch);
            batches.push(batch);
            first += count;
        }
        *self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner) = parcel.stats;
        Ok(Assembled { batches, bytes: parcel.length, rows: parcel.rows, error: None })
    }
}

impl Client {
    /// Packs as the reader sent them, with what this process knows of them.
    fn packs(&self, sent: Option<PacksSent>) -> Result<Option<Packs>> {
        match (sent, self.seat.units.packing()) {
            (Some(PacksSent { pieces, ends, unended, behind }), Some(packing)) => {
                Ok(Some(packing.packs_of(pieces, ends, unended, behind)))
            }
            (None, None) => Ok(None),
            _ => Err(Error::new(ErrorKind::Internal, "the reader sent packs for rows, or rows for packs")),
        }
    }
}

/// A place as the reader counts. The one behind the last step of an epoch is the first of the next one.
fn begin_of(sampler: &DistributedSampler, place: NextBatch) -> NextBatch {
    // Only a place within an epoch is worth asking for its steps: packs are planned for the answer.
    let steps = if place.batch > 0 { sampler.steps_of(place.epoch) } else { 0 };
    // After an epoch without a step there are only such.
    match place.epoch.checked_add(1).filter(|_| steps > 0 && place.batch >= steps) {
        Some(epoch) => NextBatch { epoch, batch: 0 },
        None => place,
    }
}

/// The error of a reader that has ended without a word.
fn gone(connection: &Connection, host: Option<u32>) -> Error {
    let host = host.map_or_else(|| "`rowdex serve`".to_owned(), |rank| format!("rank {rank}"));
    let process = connection.peer();
    let message = format!("the reader that this machine's ranks share has ended (process {process}, {host})");
    Error::new(ErrorKind::Io, message).with_hint("see how that process ended, and go on from the last state")
}

impl Deliver for Client {
    fn next(&self, until: Option<Instant>) -> Result<Option<Assembled>> {
        let at = &mut *self.lock();
        if let Some(error) = at.died.take() {
            return Err(error);
        }
        let mut search = Search::default();
        loop {
            if at.link.is_none() {
                self.meet(at)?;
            }
            let Some(Link { connection, .. }) = &at.link else { continue };
            let connection = Arc::clone(connection);
            if at.stage == Stage::Away {
                // If the reader is gone, what it has sent says why.
                connection.send(&self.hello(at), None, &self.shared.stop)?;
                at.stage = Stage::Asked;
            }
            let Some((length, file)) = self.receive(at, &connection, until)? else {
                self.let_go(at, &connection, &mut search)?;
                stop::check()?;
                if until.is_some_and(|until| until <= Instant::now()) {
                    return Err(timed_out());
                }
                continue;
            };
            let (visit, answer) = Answer::parse(at.buffer.get(..length).unwrap_or_default())?;
            let is_for_all = visit == 0 || matches!(answer, Answer::Bye(_) | Answer::Died(_));
            if visit != at.visit && !is_for_all {
                // It is for the place where this rank was.
                continue;
            }
            match answer {
                Answer::Batches(parcel) => {
                    let file = file.ok_or_else(|| Error::new(ErrorKind::Internal, "batches without their file"))?;
                    let sent = connection.send(&taken(parcel.batches, parcel.length), None, &self.shared.stop);
                    // If the reader is gone, this is what it has sent before.
                    sent?;
                    return self.unpack(&parcel, &file, at).map(Some);
                }
                Answer::Lost(row_group, error) => {
                    // Its error if rows are not to be replaced.
                    self.seat.faults.lose(row_group, error, &self.seat.units)?;
                }
                Answer::Failed(error) | Answer::Died(error) => return Err(error),
                Answer::End => return Ok(None),
                Answer::Bye(left) => (at.left, at.link) = (Some(left), None),
                Answer::Welcome(host) => {
                    (at.stage, search.began) = (Stage::Here, None);
                    at.link.iter_mut().for_each(|link| link.host = host);
                }
            }
        }
    }

    fn go_to(&self, sampler: &DistributedSampler, place: NextBatch) -> bool {
        let at = &mut *self.lock();
        (at.sampler, at.place) = (sampler.clone(), begin_of(sampler, place));
        let Some(connection) = at.link.as_ref().map(|link| Arc::clone(&link.connection)) else { return true };
        if at.stage == Stage::Away {
            return true;
        }
        at.stage = Stage::Away;
        // Nobody is to wait for this rank, nor for room among what it has not taken.
        let mut ended = !connection.send(&away(), None, &self.shared.stop).unwrap_or(false);
        while let Ok(received) = connection.receive(&mut at.buffer, &self.shared.stop, Some(Duration::ZERO)) {
            match received {
                Received::Message(length, _) => match Answer::parse(at.buffer.get(..length).unwrap_or_default()) {
                    Ok((_, Answer::Bye(left))) => {
                        (at.left, ended) = (Some(left), true);
                        break;
                    }
                    Ok((_, Answer::Died(error))) => at.died = Some(error),
                    _ => {}
                },
                Received::Gone => {
                    ended = true;
                    break;
                }
                Received::Stopped | Received::TimedOut => break,
            }
        }
        if ended {
            at.link = None;
        }
        true
    }

    fn watched(&self) -> Weak<dyn Watched> {
        let watched: Weak<Shared> = Arc::downgrade(&self.shared);
        watched
    }

    fn stats(&self) -> LoaderStats {
        Watched::stats(&*self.shared)
    }
}
