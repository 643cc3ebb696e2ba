//! The carousel for orders that somebody else makes up: a sampler of another library says what it will ask for, and
//! then does.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use arrow::array::RecordBatch;

use super::control::Control;
use super::deliver::{Deliver, Owned};
use super::engine::{Engine, Settings};
use super::groups::dataset::DatasetGroups;
use super::id_feed::{AnnouncedWalk, Ids, Piece};
use super::recovery::Faults;
use super::units::Units;
use super::{LoaderStats, Options};
use crate::dataset::Dataset;
use rowdex_base::error::{Error, ErrorKind, Result};

#[cfg(test)]
mod tests;

impl Dataset {
    /// Announces the row ids that will be asked for, in this order, so that they can be served at about the speed of a
    /// scan within `memory` bytes: each row group is decoded once per horizon, instead of once per call.
    /// `Announced::builder` has more options.
    ///
    /// ```no_run
    /// # fn main() -> rowdex::Result<()> {
    /// # let foreign_sampler = || vec![3u64, 1, 4];
    /// let dataset = rowdex::Dataset::open("train.rdx")?;
    /// let order: Vec<u64> = foreign_sampler(); // one epoch of it, or as much as is known
    /// let mut rows = dataset.plan(order.clone(), 4 << 30)?;
    /// for batch in order.chunks(256) {
    ///     let records = rows.take(batch)?; // as from `dataset.take`
    /// #   let _ = records;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Announced::announce`].
    pub fn plan(&self, rows: impl Into<Vec<u64>>, memory: u64) -> Result<Announced> {
        let mut announced = Announced::builder(self).memory(memory).build();
        announced.announce(rows)?;
        Ok(announced)
    }
}

/// Options of an [`Announced`], from [`Announced::builder`].
#[derive(Debug, Clone)]
pub struct AnnouncedBuilder {
    dataset: Dataset,
    options: Options,
    portion: Option<usize>,
}

impl AnnouncedBuilder {
    /// How many bytes of decoded rows to hold at most, as for [`LoaderBuilder::memory`](super::LoaderBuilder::memory).
    /// Default: 1 GiB.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.options.memory = bytes;
        self
    }

    /// How many threads read ahead; with 0 all work is done by [`Announced::take`]. Default: 2.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.options.threads = threads;
        self
    }

    /// How many rows a call will take, mostly: rows are put together in such portions, and a call for just one of them
    /// copies nothing. Default: as many as the first call takes.
    #[must_use]
    pub fn portion(mut self, rows: usize) -> Self {
        self.portion = Some(rows.max(1));
        self
    }

    /// The handle, with nothing announced. Reads nothing and starts no thread.
    pub fn build(self) -> Announced {
        let Self { dataset, options, portion } = self;
        Announced {
            units: Arc::new(Units::joined(Arc::new(DatasetGroups::new(dataset.clone(), false)), options.memory)),
            dataset,
            options,
            portion,
            ids: Ids::default(),
            announce: None,
            engine: None,
            control: Control::default(),
            window: VecDeque::new(),
            head: 0,
            pulled: 0,
            stats: AnnouncedStats::default(),
        }
    }
}

/// What an [`Announced`] did so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AnnouncedStats {
    /// Rows announced.
    pub announced: u64,
    /// Rows served as they were announced, from the carousel.
    pub followed: u64,
    /// Rows served by [`Dataset::take`], because they were not announced here, or could not be read when they were due.
    pub fell_back: u64,
    /// Rows announced, passed over, and no longer waited for.
    pub skipped: u64,
    /// What the carousel did since it was last started.
    pub loader: LoaderStats,
}

/// Serves rows in an order that was announced, from the carousel; and any other rows as [`Dataset::take`] does.
///
/// A caller *follows* as long as it takes the announced rows in their order, in portions of any size. Otherwise every
/// row that it asks for is looked for among those that were announced close by: not yet taken, and at most *reach* rows
/// before or after the place where the caller was. Those are served from the carousel, and the caller is then after the
/// farthest of them. All others are taken from the dataset, one way being as correct as the other. The reach is 256
/// rows, four portions, or twice the rows of the call, whichever is most. So a caller may leave rows out, take them in
/// another order within a portion, put rows in between that were never announced, and come back to where it was; what
/// it has passed over stays within reach for a while, in memory beyond the budget.
///
/// Announce early: an announcement shorter than the horizon (see the [module](super)) makes more decodes than need be.
///
/// No thread exists before the first [`take`](Self::take) of announced rows; dropping it ends them. It needs `&mut
/// self`, because what comes next depends on what was taken before: give each thread one of its own, with its own part
/// of the order, or put it behind a lock. A forked child goes on where its parent was, with threads of its own.
#[derive(Debug)]
pub struct Announced {
    dataset: Dataset,
    units: Arc<Units>,
    options: Options,
    portion: Option<usize>,
    ids: Ids,
    /// To the walk of the engine.
    announce: Option<Sender<Piece>>,
    engine: Option<Owned<Engine>>,
    control: Control,
    /// What was got from the engine and not taken, or passed over a while ago: all positions up to `pulled` from its
    /// first on.
    window: VecDeque<Held>,
    /// The position after the farthest that was served.
    head: u64,
    pulled: u64,
    stats: AnnouncedStats,
}

/// Rows at consecutive positions.
#[derive(Debug)]
struct Held {
    start: u64,
    /// `None` if they could not be had.
    batch: Option<RecordBatch>,
    /// For each row whether it was served.
    taken: Vec<bool>,
    left: usize,
}

impl Held {
    fn end(&self) -> u64 {
        self.start + self.taken.len() as u64
    }
}

impl Announced {
    /// Options for serving announced rows of `dataset`.
    pub fn builder(dataset: &Dataset) -> AnnouncedBuilder {
        AnnouncedBuilder { dataset: dataset.clone(), options: Options::default(), portion: None }
    }

    /// Says what will be asked for after all that was announced before. Row ids may repeat. Takes 8 bytes a row until
    /// they are passed, and as many again within the horizon.
    ///
    /// # Errors
    ///
    /// `OutOfRange` naming the first row id that is not there; nothing is then announced.
    pub fn announce(&mut self, rows: impl Into<Vec<u64>>) -> Result<()> {
        let rows = rows.into();
        let len = self.dataset.len();
        if let Some(at) = rows.iter().position(|row| *row >= len) {
            let place = self.ids.end() + at as u64;
            let row = rows.get(at).copied().unwrap_or_default();
            let message = format!("row id {row}, announced at place {place}, of a dataset of {len} rows");
            return Err(Error::new(ErrorKind::OutOfRange, message).with_row_ids(len));
        }
        self.stats.announced += rows.len() as u64;
        let rows = Arc::new(rows);
        self.ids.push(Arc::clone(&rows));
        self.leave_parent();
        if let (Some(engine), Some(announce)) = (self.engine(), &self.announce) {
            // Without a walk behind it, the engine is over, and says so itself.
            let _ = announce.send((rows, 0));
            engine.go_on();
        }
        Ok(())
    }

    /// Forgets what was announced and not taken, as when an epoch is abandoned.
    pub fn clear(&mut self) {
        self.engine = None;
        let head = self.head;
        let passed = |held: Held| held.taken.iter().zip(held.start..head).filter(|(taken, _)| !**taken).count() as u64;
        let passed: u64 = self.window.drain(..).map(passed).sum();
        self.stats.skipped += passed + self.waiting();
        (self.head, self.pulled) = (self.ids.end(), self.ids.end());
        self.ids.forget_before(self.head);
    }

    /// How many announced rows are ahead of the farthest one taken.
    pub fn waiting(&self) -> u64 {
        self.ids.end() - self.head
    }

    /// The rows in the order asked, as one batch: what [`Dataset::take`] gives, whether they were announced or not.
    ///
    /// # Errors
    ///
    /// As [`Dataset::take`], for these rows alone: an announced row that cannot be read is an error for the call that
    /// asks for it. And `Io` if a thread cannot be started.
    pub fn take(&mut self, rows: &[u64]) -> Result<RecordBatch> {
        self.control.check()?;
        if rows.is_empty() {
            return self.dataset.take(rows);
        }
        self.leave_parent();
        let portion = *self.portion.get_or_insert(rows.len());
        let reach = (4 * portion as u64).max(2 * rows.len() as u64).max(256);
        let positions: Vec<Option<u64>> = if self.ids.has_at(self.head, rows) {
            (self.head..).map(Some).take(rows.len()).collect()
        } else {
            self.find(rows, reach)
        };
        if let Some(last) = positions.iter().flatten().max() {
            self.pull(last + 1)?;
            self.head = self.head.max(last + 1);
        }
        let taken = self.gather(rows, &positions);
        self.pass(reach);
        taken
    }

    /// What other threads may do with it while one waits for rows.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// What it did so far.
    pub fn stats(&self) -> AnnouncedStats {
        AnnouncedStats { loader: self.engine().map(Deliver::stats).unwrap_or_default(), ..self.stats }
    }

    /// For each of these rows the first position within reach where it is announced and not yet taken, each position
    /// once.
    fn find(&self, rows: &[u64], reach: u64) -> Vec<Option<u64>> {
        let first = self.window.front().map_or(self.pulled, |held| held.start).max(self.head.saturating_sub(reach));
        let taken = |position: u64| {
            let at = self.window.partition_point(|held| held.end() <= position);
            let held = self.window.get(at).filter(|_| position < self.pulled);
            held.is_some_and(|held| held.taken.get((position - held.start) as usize) == Some(&true))
        };
        let ids = self.ids.range(first, self.head.saturating_add(reach)).flatten().copied();
        let mut near: Vec<(u64, u64)> = ids.zip(first..).filter(|(_, position)| !taken(*position)).collect();
        near.sort_unstable();
        let mut used = vec![false; near.len()];
        let find = |row: &u64| {
            let from = near.partition_point(|(id, _)| id < row);
            let same = near.iter().enumerate().skip(from).take_while(|(_, (id, _))| id == row);
            let (at, (_, position)) = same.into_iter().find(|(at, _)| !used[*at])?;
            used[at] = true;
            Some(*position)
        };
        rows.iter().map(find).collect()
    }

    /// Gets everything before a position from the engine.
    fn pull(&mut self, to: u64) -> Result<()> {
        while self.pulled < to {
            if self.engine.is_none() {
                let engine = self.start()?;
                self.control.watch(engine.watched())?;
                self.engine = Some(Owned::new(engine));
            }
            let next = self.engine().map_or(Ok(None), |engine| engine.next(None))?;
            let Some(assembled) = next else {
                return Err(Error::new(ErrorKind::Internal, "announced rows are missing"));
            };
            let end = self.pulled + assembled.rows;
            for batch in assembled.batches {
                self.hold(batch.row_ids.len(), Some(batch.records));
            }
            // After an error, the rest of the segment.
            self.hold(end.saturating_sub(self.pulled) as usize, None);
        }
        Ok(())
    }

    fn hold(&mut self, rows: usize, batch: Option<RecordBatch>) {
        if rows > 0 {
            self.window.push_back(Held { start: self.pulled, batch, taken: vec![false; rows], left: rows });
            self.pulled += rows as u64;
        }
    }

    fn start(&mut self) -> Result<Engine> {
        let portion = self.portion.unwrap_or(1);
        let (announce, walk) = AnnouncedWalk::new(portion);
        for (piece, first) in self.ids.pieces_from(self.pulled) {
            let _ = announce.send((Arc::clone(piece), first));
        }
        self.announce = Some(announce);
        let settings = Settings {
            memory: self.options.memory,
            threads: self.options.threads,
            read_ahead: None,
            read_concurrency: self.options.read_concurrency,
            batch_rows: portion as u64,
            seed: 0,
        };
        Engine::start(Arc::clone(&self.units), Arc::new(Faults::default()), Box::new(walk), &settings)
    }

    /// The rows at these positions; those without one, or that could not be had, from the dataset.
    fn gather(&mut self, rows: &[u64], positions: &[Option<u64>]) -> Result<RecordBatch> {
        let mut parts: Vec<RecordBatch> = Vec::new();
        // For each part its place in the window.
        let mut places_of: Vec<usize> = Vec::new();
        let mut places = Vec::with_capacity(rows.len());
        let mut missing = Vec::new();
        for (place, (row, position)) in (0u32..).zip(rows.iter().zip(positions)) {
            let found = position.and_then(|position| {
                let at = self.window.partition_point(|held| held.end() <= position);
                let held = self.window.get_mut(at)?;
                let slot = (position - held.start) as usize;
                held.left -= usize::from(!std::mem::replace(held.taken.get_mut(slot)?, true));
                let batch = held.batch.as_ref()?;
                let part = places_of.iter().rposition(|known| *known == at).unwrap_or_else(|| {
                    parts.push(batch.clone());
                    places_of.push(at);
                    parts.len() - 1
                });
                Some((part as u32, slot as u32))
            });
            if found.is_none() {
                missing.push((place, *row));
            }
            places.push(found.unwrap_or_default());
        }
        self.stats.followed += (rows.len() - missing.len()) as u64;
        self.stats.fell_back += missing.len() as u64;
        let whole = places.iter().zip(0..).all(|((_, slot), row)| *slot == row);
        if let ([part], true, true) = (parts.as_slice(), missing.is_empty(), whole)
            && part.num_rows() == rows.len()
        {
            return Ok(part.clone());
        }
        if missing.len() == rows.len() {
            return self.dataset.take(rows);
        }
        if !missing.is_empty() {
            let rows: Vec<u64> = missing.iter().map(|(_, row)| *row).collect();
            let part = parts.len() as u32;
            parts.push(self.dataset.take(&rows)?);
            for ((place, _), row) in missing.iter().zip(0..) {
                if let Some(place) = places.get_mut(*place as usize) {
                    *place = (part, row);
                }
            }
        }
        self.dataset.gather_rows(&parts.iter().collect::<Vec<_>>(), &places)
    }

    /// Lets go of what is taken, and of what was passed over and is out of reach.
    fn pass(&mut self, reach: u64) {
        let far = |held: &Held| held.end().saturating_add(reach) <= self.head;
        while let Some(held) = self.window.pop_front_if(|held| held.left == 0 || far(held)) {
            self.stats.skipped += held.left as u64;
        }
        self.ids.forget_before(self.window.front().map_or(self.pulled, |held| held.start).min(self.head));
    }

    fn engine(&self) -> Option<&Engine> {
        self.engine.as_ref().and_then(Owned::own)
    }

    /// In a forked child the parent's engine is of no use; what was got from it is.
    fn leave_parent(&mut self) {
        if self.engine.as_ref().is_some_and(|owned| !owned.is_own()) {
            self.engine = None;
        }
    }
}
