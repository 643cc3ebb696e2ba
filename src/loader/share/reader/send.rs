//! Sends ranks what the engine delivers.

use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

use super::Inner;
use super::roster::Member;
use crate::loader::assemble::Assembled;
use crate::loader::deliver::Deliver;
use crate::loader::engine::{Engine, Settings};
use crate::loader::recovery::panicked;
use crate::loader::share::lanes::{Lane, Lanes, Mark, Marks};
use crate::loader::share::message::{Answer, Parcel, describe};
use crate::loader::{Batch, LoaderStats, NextBatch};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_rows::{Elsewhere, bytes_shown};
use rowdex_share::{Connection, Pool, put};

/// The most steps of a rank that go into one memory file, as many as the engine makes in one piece.
const MOST_TOGETHER: u64 = 16;

/// The most bytes that they have.
const MOST_BYTES_TOGETHER: u64 = 1 << 20;

/// Windows take at most this part of the memory, unless that is less than a batch for each rank.
const WINDOWS: u64 = 16;

/// What an engine is made for, until another one is needed.
struct Round {
    marks: Marks,
    /// The ranks of each lane.
    members: Vec<Vec<u64>>,
    /// Bytes that may wait for a rank, and for all of them.
    window: u64,
    windows: u64,
}

/// Whether batches may be sent to ranks.
enum Room {
    /// Yes, while so many bytes wait for all ranks.
    For(u64),
    /// None of them is there any more.
    Nobody,
    /// Another engine is needed, or none.
    Over,
}

impl Inner {
    /// Hands out batches for as long as the reader is there. Whatever panics, ranks would wait for this thread if it
    /// ended.
    pub(super) fn send_all(&self) {
        let mut pool = Pool::default();
        let mut round = || {
            let Some((lanes, members)) = self.wait_for_ranks() else { return Ok(false) };
            self.serve(lanes, members, &mut pool).map(|()| true)
        };
        loop {
            let served = catch_unwind(AssertUnwindSafe(&mut round));
            match served.unwrap_or_else(|_| Err(panicked("reading for several ranks"))) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    let all: Vec<u64> = self.lock().members.keys().copied().collect();
                    self.fail(&all, &error);
                }
            }
        }
    }

    /// Starts an engine and hands out what it delivers, until another one is needed.
    fn serve(&self, lanes: Vec<Lane>, members: Vec<Vec<u64>>, pool: &mut Pool) -> Result<()> {
        let seat = &self.seat;
        let options = &seat.options;
        let ranks: u64 = members.iter().map(|members| members.len() as u64).sum();
        let batch_rows = seat.units.rows_of_batch(&seat.sampler);
        let sizes = seat.units.due_sizes();
        let (rows, bytes) = sizes.iter().fold((0, 0), |(rows, bytes), size| (rows + size.rows, bytes + size.bytes));
        let batch_bytes = (u128::from(bytes) * u128::from(batch_rows) / u128::from(rows.max(1))).max(1) as u64;
        let drift = seat.group.drift;
        let most = (options.memory / WINDOWS / ranks).max(batch_bytes);
        let window = (drift.saturating_mul(batch_bytes) / 4 * 5).clamp(batch_bytes, most);
        let most = (MOST_BYTES_TOGETHER / batch_bytes).clamp(1, MOST_TOGETHER).min(drift / 2).max(1);
        // A power of two, so that it divides how many batches are made in one piece.
        let stretch = 1 << most.ilog2();
        let walk = Lanes::new(lanes, stretch);
        let round = Round { marks: walk.marks(), members, window, windows: window.saturating_mul(ranks) };
        let settings = Settings {
            memory: options.memory.saturating_sub(round.windows).max(options.memory / 2),
            threads: options.threads,
            read_ahead: options.read_ahead.map(|batches| batches.saturating_mul(round.members.len())),
            read_concurrency: options.read_concurrency,
            batch_rows,
            seed: seat.sampler.orders().fingerprint(),
        };
        let faults = Arc::clone(&self.lock().faults);
        let engine = Engine::start(Arc::clone(&seat.units), faults, Box::new(walk), &settings)?;
        let mut roster = self.lock();
        if roster.stop || roster.is_to_start {
            return Ok(());
        }
        roster.engine = Some(Arc::downgrade(&engine.watched()));
        drop(roster);
        let done = self.deliver(&engine, &round, pool);
        let mut roster = self.lock();
        roster.engine = None;
        roster.before = sum(&roster.before, &engine.watched().stats());
        done
    }

    fn deliver(&self, engine: &Engine, round: &Round, pool: &mut Pool) -> Result<()> {
        loop {
            let goes_on = match engine.next(None) {
                Ok(Some(assembled)) => self.hand_out(assembled, round, &engine.watched().stats(), pool)?,
                Ok(None) => {
                    let all: Vec<u64> = round.members.iter().flatten().copied().collect();
                    self.end(&all);
                    false
                }
                Err(error) => {
                    let roster = self.lock();
                    let ended = roster.stop || roster.is_to_start;
                    drop(roster);
                    if !ended {
                        self.fail_lane(round.marks.failed(), round, &error);
                    }
                    false
                }
            };
            if !goes_on {
                return Ok(());
            }
        }
    }

    /// Sends the batches of a segment to their ranks, those that lie together in one file. Whether the engine goes on:
    /// not if another one is needed, or none.
    fn hand_out(&self, assembled: Assembled, round: &Round, stats: &LoaderStats, pool: &mut Pool) -> Result<bool> {
        let Assembled { batches, error, .. } = assembled;
        let (mut marks, mut found) = (Vec::with_capacity(batches.len()), 0);
        while found < batches.len() {
            // The walk notes a batch before the engine has it.
            let mark =
                round.marks.pop().ok_or_else(|| Error::new(ErrorKind::Internal, "a batch that nobody asked for"))?;
            found += usize::from(matches!(mark, Mark::Batch(_)));
            marks.push(mark);
        }
        let (mut marks, mut batches) = (&marks[..], &batches[..]);
        while let Some(mark) = marks.first() {
            let count = match *mark {
                Mark::End(lane) => {
                    self.end(round.members.get(lane).map_or(&[], Vec::as_slice));
                    1
                }
                Mark::Batch(lane) => {
                    let same = marks.iter().take_while(|other| *other == mark).count();
                    let together = together(batches.get(..same).unwrap_or_default());
                    if !self.send(lane, together, round, stats, pool)? {
                        return Ok(false);
                    }
                    let count = together.len().max(1);
                    batches = batches.get(count..).unwrap_or_default();
                    count
                }
            };
            marks = marks.get(count..).unwrap_or_default();
        }
        let Some(error) = error else { return Ok(true) };
        let failed = std::iter::from_fn(|| round.marks.pop()).find_map(|mark| match mark {
            Mark::Batch(lane) => Some(lane),
            Mark::End(lane) => {
                self.end(round.members.get(lane).map_or(&[], Vec::as_slice));
                None
            }
        });
        self.fail_lane(failed, round, &error);
        Ok(false)
    }

    /// Sends batches of a lane to its ranks, once all of them have room. Whether the engine goes on.
    fn send(
        &self,
        lane: usize,
        batches: &[Batch],
        round: &Round,
        stats: &LoaderStats,
        pool: &mut Pool,
    ) -> Result<bool> {
        let (Some(first), Some(last)) = (batches.first(), batches.last()) else { return Ok(true) };
        let rows = batches.iter().map(|batch| batch.row_ids.len()).sum();
        let joined = match batches.len() {
            1 => None,
            _ => Some(
                first
                    .part
                    .rows(rows)
                    .ok_or_else(|| Error::new(ErrorKind::Internal, "batches that do not lie together"))?,
            ),
        };
        let records = joined.as_ref().unwrap_or(&first.records);
        let count = batches.len() as u64;
        let of = round.members.get(lane).map_or(&[][..], Vec::as_slice);
        let bytes = bytes_shown(std::iter::once(records), &Elsewhere::default());
        let waiting = match self.wait_for_room(of, count, bytes, round.window) {
            Room::For(waiting) => waiting,
            Room::Nobody => {
                round.marks.leave(lane);
                return Ok(true);
            }
            Room::Over => return Ok(false),
        };
        let faults = Arc::clone(&self.lock().faults);
        let lost = if faults.substitutes() { faults.lost_groups() } else { Vec::new() };
        let placed = put(records, &describe(batches, &lost), pool, round.windows.saturating_sub(waiting))?;
        let (members, stats) = self.note_sent(of, count, placed.length, NextBatch::after(last), stats);
        let (stream, length) = (placed.stream, placed.length);
        let answer = Answer::Batches(Parcel { stream, length, rows: rows as u64, batches: count, stats }).to_bytes();
        for (id, connection) in members {
            match connection.send(&answer, Some(placed.file.as_fd()), &self.stop) {
                Ok(true) => {}
                Ok(false) => self.leave(&connection),
                Err(error) => self.fail(&[id], &error),
            }
        }
        Ok(true)
    }

    /// Waits until all of these ranks have room for so many batches of so many bytes.
    fn wait_for_room(&self, of: &[u64], batches: u64, bytes: u64, window: u64) -> Room {
        let mut roster = self.lock();
        loop {
            if roster.stop || roster.is_to_start {
                return Room::Over;
            }
            let here: Vec<&Member> = of.iter().filter_map(|id| roster.members.get(id)).collect();
            let Some(step) = here.iter().map(|member| member.sent()).min() else { return Room::Nobody };
            // The walk has several steps of a lane before those of the next one. Whoever waits for one of these must
            // get it, though this lane has paused among its own: it may pause until all have come as far.
            let waits = |member: &Member| member.batches == 0 && member.sent() < step;
            let is_waited_for = roster.members.iter().any(|(id, other)| waits(other) && !of.contains(id));
            let drift = self.seat.group.drift;
            if is_waited_for || here.iter().all(|member| member.has_room(batches, bytes, drift, window)) {
                return Room::For(roster.members.values().map(|member| member.bytes).sum());
            }
            roster = self.changed.wait(roster).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes note of what is sent to these ranks, which are at the batch after it then. Gives their connections, and
    /// what was done for all.
    fn note_sent(
        &self,
        of: &[u64],
        batches: u64,
        bytes: u64,
        next: NextBatch,
        stats: &LoaderStats,
    ) -> (Vec<(u64, Arc<Connection>)>, LoaderStats) {
        let mut roster = self.lock();
        let mut members = Vec::with_capacity(of.len());
        for id in of {
            let Some(member) = roster.members.get_mut(id) else { continue };
            member.batches += batches;
            member.bytes += bytes;
            (member.lane.epoch, member.lane.next) = (next.epoch, next.batch);
            members.push((*id, Arc::clone(&member.connection)));
        }
        let steps = roster.steps();
        let taken = || roster.members.values().map(|member| member.taken(steps));
        let stats = LoaderStats {
            drift: taken().max().unwrap_or(0) - taken().min().unwrap_or(0),
            window_bytes: roster.members.values().map(|member| member.bytes).sum(),
            ..sum(&roster.before, stats)
        };
        (members, stats)
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
    fn fail_lane(&self, lane: Option<usize>, round: &Round, error: &Error) {
        let all: Vec<u64> = round.members.iter().flatten().copied().collect();
        self.fail(lane.and_then(|lane| round.members.get(lane)).unwrap_or(&all), error);
        self.lock().is_to_start = true;
    }

    fn let_go(&self, members: &[u64], answer: &Answer) {
        let mut roster = self.lock();
        let left: Vec<Member> = members.iter().filter_map(|id| roster.members.remove(id)).collect();
        drop(roster);
        for member in left {
            // If it is not there any more, nobody wants to know.
            let _ = member.connection.send(&answer.to_bytes(), None, &self.stop);
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

pub(super) fn sum(a: &LoaderStats, b: &LoaderStats) -> LoaderStats {
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
