//! Sends ranks what the engine delivers.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

use super::Inner;
use super::roster::Member;
use crate::loader::assemble::Assembled;
use crate::loader::deliver::Deliver;
use crate::loader::engine::{Engine, Settings};
use crate::loader::recovery::panicked;
use crate::loader::share::lanes::{Lane, LaneMarks, Lanes};
use crate::loader::share::message::{Parcel, bytes, describe};
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
    marks: LaneMarks,
    /// The ranks of each lane.
    members: Vec<Vec<u64>>,
    /// Bytes that may wait for a rank, and for all of them.
    window: u64,
    windows: u64,
}

/// Whether batches may be sent to ranks.
enum BatchRoom {
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
        let (walk, marks) = Lanes::new(lanes, stretch);
        let round = Round { marks, members, window, windows: window.saturating_mul(ranks) };
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
        if self.stop.is_set() || roster.is_to_start {
            return Ok(());
        }
        roster.engine = Some(Arc::downgrade(&engine.watched()));
        drop(roster);
        let done = self.deliver(&engine, &round, pool);
        let mut roster = self.lock();
        roster.engine = None;
        roster.stats = engine.watched().stats();
        done
    }

    fn deliver(&self, engine: &Engine, round: &Round, pool: &mut Pool) -> Result<()> {
        loop {
            let error = match engine.next(None) {
                // Each rank knows that it has its last batch.
                Ok(None) => return Ok(()),
                Ok(Some(Assembled { batches, error, .. })) => {
                    if !self.hand_out(&batches, round, &engine.watched().stats(), pool)? {
                        return Ok(());
                    }
                    let Some(error) = error else { continue };
                    error
                }
                Err(error) => {
                    let roster = self.lock();
                    if self.stop.is_set() || roster.is_to_start {
                        return Ok(());
                    }
                    error
                }
            };
            // The ranks of its lane get it; the others go on.
            let all: Vec<u64> = round.members.iter().flatten().copied().collect();
            let of = round.marks.pop().and_then(|lane| round.members.get(lane));
            self.fail(of.unwrap_or(&all), &error);
            self.lock().is_to_start = true;
            return Ok(());
        }
    }

    /// Sends the batches of a segment to their ranks, those that lie together in one file. Whether the engine goes on:
    /// not if another one is needed, or none.
    fn hand_out(&self, mut batches: &[Batch], round: &Round, stats: &LoaderStats, pool: &mut Pool) -> Result<bool> {
        // The walk notes a batch before the engine has it.
        let mut lanes: VecDeque<usize> = batches.iter().map_while(|_| round.marks.pop()).collect();
        while !batches.is_empty() {
            let lane = lanes.front().copied();
            let lane = lane.ok_or_else(|| Error::new(ErrorKind::Internal, "a batch that was not asked for"))?;
            let of_lane = lanes.iter().take_while(|other| **other == lane).count();
            let (together, rest) = batches.split_at(count_together(batches.get(..of_lane).unwrap_or_default()));
            lanes.drain(..together.len());
            if !self.send(lane, together, round, stats, pool)? {
                return Ok(false);
            }
            batches = rest;
        }
        Ok(true)
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
        let records = if batches.len() > 1 { first.part.rows(rows) } else { Some(first.records.clone()) };
        let records = records.ok_or_else(|| Error::new(ErrorKind::Internal, "batches that do not lie together"))?;
        let count = batches.len() as u64;
        let of = round.members.get(lane).map_or(&[][..], Vec::as_slice);
        let size = bytes_shown(std::iter::once(&records), &Elsewhere::default());
        let waiting = match self.wait_for_room(of, count, size, round.window) {
            BatchRoom::For(waiting) => waiting,
            BatchRoom::Nobody => {
                round.marks.leave(lane);
                return Ok(true);
            }
            BatchRoom::Over => return Ok(false),
        };
        let faults = Arc::clone(&self.lock().faults);
        let lost = if faults.substitutes() { faults.lost_groups() } else { Vec::new() };
        let placed = put(&records, &describe(batches, &lost), pool, round.windows.saturating_sub(waiting))?;
        let (members, stats) = self.note_sent(of, count, placed.length, NextBatch::after(last, 0, 1), stats);
        let (stream, length) = (placed.stream, placed.length);
        let answer = Parcel { stream, length, rows: rows as u64, batches: count, stats };
        let answer = bytes(&Ok::<_, Error>(answer));
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
    fn wait_for_room(&self, of: &[u64], batches: u64, bytes: u64, window: u64) -> BatchRoom {
        let mut roster = self.lock();
        loop {
            if self.stop.is_set() || roster.is_to_start {
                return BatchRoom::Over;
            }
            let here: Vec<&Member> = of.iter().filter_map(|id| roster.members.get(id)).collect();
            let Some(step) = here.iter().map(|member| member.lane.place()).min() else { return BatchRoom::Nobody };
            // The walk has several steps of a lane before those of the next one. Whoever waits for one of these must
            // get it, though this lane has paused among its own: it may pause until all have come as far.
            let waits = |member: &Member| member.batches == 0 && member.lane.place() < step;
            let is_waited_for = roster.members.iter().any(|(id, other)| waits(other) && !of.contains(id));
            let drift = self.seat.group.drift;
            if is_waited_for || here.iter().all(|member| member.has_room(batches, bytes, drift, window)) {
                return BatchRoom::For(roster.members.values().map(|member| member.bytes).sum());
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
            ..*stats
        };
        (members, stats)
    }

    /// Tells ranks why they get nothing more.
    fn fail(&self, members: &[u64], error: &Error) {
        let mut roster = self.lock();
        let left: Vec<Member> = members.iter().filter_map(|id| roster.members.remove(id)).collect();
        drop(roster);
        left.iter().for_each(|member| self.refuse(&member.connection, error));
    }
}

/// How many of these batches are of the lane of the first, and lie beside it.
fn count_together(batches: &[Batch]) -> usize {
    let Some(first) = batches.first() else { return 0 };
    let mut rows = first.row_ids.len();
    let more = batches.iter().take(MOST_TOGETHER as usize).skip(1).take_while(|batch| {
        let begin = rows;
        rows += batch.row_ids.len();
        (batch.rank, batch.epoch) == (first.rank, first.epoch) && first.part.goes_on(begin, &batch.part)
    });
    1 + more.count()
}
