//! The columns of a row group, decoded batch by batch by one thread, and by others where some have nothing to do.
//!
//! Columns do not depend on each other, so a few of them at a time go from batch to batch as a lane, on whichever
//! thread is free. A batch is handed over when all lanes have made their part of it. An error is the one of the first
//! column in the first batch that has any, whichever thread met another one before.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use arrow::array::ArrayRef;

use super::caught_panic;
use super::direct::DirectColumn;
use rowdex_base::crew::{self, Job, Offer};
use rowdex_base::error::{Error, ErrorKind, Result};

/// Wide row groups are cut into so many lanes: enough that no thread waits long for the last one.
const LANES: usize = 16;

/// With so many batches of a row group or more, each is decoded while the one before is used, if there are threads for
/// it. Where there are fewer, a batch is a large part of the row group, for which no memory was set aside.
pub const AHEAD_FROM: usize = 16;

/// Columns that are decoded together.
pub(super) struct Team {
    lanes: Arc<TeamLanes>,
    /// Taken back before the last thread is waited for.
    offer: Option<Offer>,
}

struct TeamLanes {
    state: Mutex<TeamProgress>,
    /// A lane is back.
    back: Condvar,
}

struct TeamProgress {
    lanes: Vec<TeamLane>,
    /// Batches that were announced and not handed over.
    batches: VecDeque<TeamBatch>,
    /// The number of the first of them.
    first: usize,
}

struct TeamLane {
    /// `None` while a thread has them.
    columns: Option<Vec<DirectColumn>>,
    /// The number of its next batch.
    next: usize,
}

struct TeamBatch {
    runs: Arc<[(usize, usize)]>,
    /// What each lane has made of it.
    made: Vec<Option<Vec<Result<ArrayRef>>>>,
}

/// A lane that a thread has, to make its part of a batch.
struct LaneShare {
    lane: usize,
    batch: usize,
    columns: Vec<DirectColumn>,
    runs: Arc<[(usize, usize)]>,
}

impl Team {
    /// Columns whose pages have so many bytes.
    pub(super) fn new(columns: Vec<DirectColumn>, bytes: u64) -> Self {
        let crew = crew::current().filter(|crew| columns.len() > 1 && crew.is_worth(bytes));
        let lanes = if crew.is_some() { LANES } else { 1 };
        let width = columns.len().div_ceil(lanes).max(1);
        let mut columns = columns.into_iter().peekable();
        let mut lanes = Vec::with_capacity(lanes);
        while columns.peek().is_some() {
            lanes.push(TeamLane { columns: Some(columns.by_ref().take(width).collect()), next: 0 });
        }
        let state = Mutex::new(TeamProgress { lanes, batches: VecDeque::new(), first: 0 });
        let lanes = Arc::new(TeamLanes { state, back: Condvar::new() });
        let offer = crew.map(|crew| crew.offer(Arc::clone(&lanes) as Arc<dyn Job>));
        Self { lanes, offer }
    }

    /// Whether other threads may help.
    pub(super) fn may_have_help(&self) -> bool {
        self.offer.is_some()
    }

    /// Says what the next batch is made of.
    pub(super) fn announce(&self, runs: &[(usize, usize)]) {
        let mut state = self.lanes.lock();
        let made = state.lanes.iter().map(|_| None).collect();
        state.batches.push_back(TeamBatch { runs: runs.into(), made });
        drop(state);
        self.call();
    }

    /// The columns of the first batch that was announced and not handed over.
    pub(super) fn collect(&self) -> Result<Vec<ArrayRef>> {
        let mut state = self.lanes.lock();
        while state.batches.front().is_some_and(|batch| batch.made.iter().any(Option::is_none)) {
            state = match state.take() {
                Some(part) => {
                    drop(state);
                    self.lanes.run(part);
                    self.call();
                    self.lanes.lock()
                }
                None => self.lanes.back.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        let batch = state.batches.pop_front();
        state.first += 1;
        drop(state);
        let batch = batch.ok_or_else(|| Error::new(ErrorKind::Internal, "a batch that was not announced"))?;
        batch.made.into_iter().flatten().flatten().collect()
    }

    /// The columns, which all have made every batch that was announced.
    pub(super) fn into_columns(self) -> Vec<DirectColumn> {
        let lanes = std::mem::take(&mut self.lanes.all_back().lanes);
        lanes.into_iter().filter_map(|lane| lane.columns).flatten().collect()
    }

    fn call(&self) {
        if let Some(offer) = &self.offer
            && self.lanes.has_part()
        {
            offer.call();
        }
    }
}

impl Drop for Team {
    /// No thread is left with a column, or with the memory of its pages.
    fn drop(&mut self) {
        self.offer = None;
        drop(self.lanes.all_back());
    }
}

impl TeamLanes {
    fn lock(&self) -> MutexGuard<'_, TeamProgress> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, part: LaneShare) {
        let LaneShare { lane, batch, mut columns, runs } = part;
        let made: Vec<_> = columns.iter_mut().map(|column| caught_panic(|| column.next(&runs))).collect();
        if made.iter().any(Result::is_err) {
            // No batch behind this one is handed over.
            columns.clear();
        }
        let mut state = self.lock();
        if let Some(place) = batch.checked_sub(state.first)
            && let Some(batch) = state.batches.get_mut(place)
            && let Some(slot) = batch.made.get_mut(lane)
        {
            *slot = Some(made);
        }
        if let Some(lane) = state.lanes.get_mut(lane) {
            lane.columns = Some(columns);
        }
    }

    /// Forgets what was announced, and waits until no other thread has a lane.
    fn all_back(&self) -> MutexGuard<'_, TeamProgress> {
        let mut state = self.lock();
        state.batches.clear();
        while state.lanes.iter().any(|lane| lane.columns.is_none()) {
            state = self.back.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }
}

impl Job for TeamLanes {
    fn has_part(&self) -> bool {
        self.lock().next().is_some()
    }

    fn help(&self) {
        let part = self.lock().take();
        if let Some(part) = part {
            self.run(part);
            self.back.notify_all();
        }
    }
}

impl TeamProgress {
    /// The lane that is farthest behind, of those that are here and have something to do.
    fn next(&self) -> Option<usize> {
        let end = self.first + self.batches.len();
        let free = self.lanes.iter().enumerate().filter(|(_, lane)| lane.columns.is_some() && lane.next < end);
        free.min_by_key(|(_, lane)| lane.next).map(|(place, _)| place)
    }

    fn take(&mut self) -> Option<LaneShare> {
        let place = self.next()?;
        let lane = self.lanes.get_mut(place)?;
        let batch = lane.next;
        let runs = Arc::clone(&self.batches.get(batch.checked_sub(self.first)?)?.runs);
        let columns = lane.columns.take()?;
        lane.next += 1;
        Some(LaneShare { lane: place, batch, columns, runs })
    }
}
