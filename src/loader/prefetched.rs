//! The carousel for orders that somebody else makes up: a sampler of another library says what it will ask for, and
//! then does.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use arrow::array::RecordBatch;

use super::LoaderStats;
use super::assemble::Assembled;
use super::control::Control;
use super::deliver::{Deliver, Owned};
use super::engine::{Engine, Settings};
use super::groups::dataset::DatasetGroups;
use super::recovery::Faults;
use super::units::Units;
use super::walk::{BatchRange, Batches, Each, Walk};
use crate::dataset::Dataset;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::sampler::BatchPlan;

#[cfg(test)]
mod tests;

impl Dataset {
    /// Reads ahead for row ids that will be asked for in this order, so that they can be served at about the speed of a
    /// scan within `memory` bytes: each row group is decoded once per horizon, instead of once per call.
    /// [`Prefetched::new`] has a choice of threads.
    ///
    /// ```no_run
    /// # fn main() -> rowdex::Result<()> {
    /// # let foreign_sampler = || vec![3u64, 1, 4];
    /// let dataset = rowdex::Dataset::open("train.rdx")?;
    /// let order: Vec<u64> = foreign_sampler(); // one epoch of it, or as much as is known
    /// let mut rows = dataset.prefetch(order.clone(), 4 << 30)?;
    /// for batch in order.chunks(256) {
    ///     let records = rows.take(batch)?; // as from `dataset.take`
    /// #   let _ = records;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Prefetched::prefetch`].
    pub fn prefetch(&self, rows: impl Into<Vec<u64>>, memory: u64) -> Result<Prefetched> {
        let mut prefetched = Prefetched::new(self, memory, 2);
        prefetched.prefetch(rows)?;
        Ok(prefetched)
    }
}

/// What a [`Prefetched`] did so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrefetchedStats {
    /// Rows prefetched.
    pub prefetched: u64,
    /// Rows that followed, served from the carousel.
    pub followed: u64,
    /// Rows served by [`Dataset::take`], because other rows come next, or because they could not be read when they were
    /// due.
    pub fell_back: u64,
    /// What the carousel did since it was last started.
    pub loader: LoaderStats,
}

/// Serves rows in the order in which they were prefetched, and any others as [`Dataset::take`] does.
///
/// A call for exactly the next prefetched rows, any number of them, *follows* and is served from the carousel. Any
/// other call is served as by [`Dataset::take`], one way being as correct as the other, and the same rows still come
/// next. Whoever leaves prefetched rows out calls [`clear`](Self::clear) and prefetches what comes now.
///
/// Prefetch early: fewer rows than the horizon (see the [module](super)) mean more decodes than need be.
///
/// No thread exists before the first [`take`](Self::take) of prefetched rows; dropping it ends them. It needs `&mut
/// self`, because what comes next depends on what was taken before: give each thread one of its own, with its own part
/// of the order, or put it behind a lock. A forked child goes on where its parent was, with threads of its own.
#[derive(Debug)]
pub struct Prefetched {
    dataset: Dataset,
    units: Arc<Units>,
    memory: u64,
    threads: usize,
    /// Rows of the first call that followed: rows are put together in such portions.
    portion: Option<usize>,
    /// Those that were not taken.
    ids: PrefetchedIds,
    /// To the walk of the engine.
    prefetch: Option<Sender<Arc<Vec<u64>>>>,
    engine: Option<Owned<Engine>>,
    control: Control,
    /// What was got from the engine of the first of them, and how many rows that is.
    window: VecDeque<WindowRows>,
    pulled: usize,
    stats: PrefetchedStats,
}

/// Rows at consecutive positions.
#[derive(Debug)]
struct WindowRows {
    /// `None` if they could not be had.
    batch: Option<RecordBatch>,
    rows: usize,
    taken: usize,
}

impl Prefetched {
    /// Serves rows of `dataset`, with nothing prefetched. It holds so many bytes of decoded rows at most, as
    /// [`LoaderBuilder::memory`](super::LoaderBuilder::memory) says, and so many threads read ahead; with 0
    /// [`take`](Self::take) does all work. Reads nothing and starts no thread.
    pub fn new(dataset: &Dataset, memory: u64, threads: usize) -> Self {
        let groups = DatasetGroups::new(std::slice::from_ref(dataset), dataset.schema(), false);
        Self {
            units: Arc::new(Units::joined(Arc::new(groups), memory).sharing_dictionaries(memory)),
            dataset: dataset.clone(),
            memory,
            threads,
            portion: None,
            ids: PrefetchedIds::default(),
            prefetch: None,
            engine: None,
            control: Control::default(),
            window: VecDeque::new(),
            pulled: 0,
            stats: PrefetchedStats::default(),
        }
    }

    /// Says what will be asked for after all that was prefetched before. Row ids may repeat. Takes 8 bytes a row until
    /// they are passed, and as many again within the horizon.
    ///
    /// # Errors
    ///
    /// `OutOfRange` naming the first row id that is not there; nothing is then prefetched.
    pub fn prefetch(&mut self, rows: impl Into<Vec<u64>>) -> Result<()> {
        let rows = rows.into();
        let len = self.dataset.len();
        if let Some(at) = rows.iter().position(|row| *row >= len) {
            let place = self.stats.prefetched + at as u64;
            let row = rows.get(at).copied().unwrap_or_default();
            let message = format!("row id {row}, prefetched at place {place}, of a dataset of {len} rows");
            return Err(Error::new(ErrorKind::OutOfRange, message).with_row_ids(len));
        }
        self.stats.prefetched += rows.len() as u64;
        let rows = Arc::new(rows);
        self.ids.push(Arc::clone(&rows));
        self.leave_parent();
        if let (Some(engine), Some(prefetch)) = (self.engine(), &self.prefetch) {
            // Without a walk behind it, the engine is over, and says so itself.
            let _ = prefetch.send(rows);
            engine.go_on();
        }
        Ok(())
    }

    /// Forgets what was prefetched and not taken, as when an epoch is abandoned.
    pub fn clear(&mut self) {
        self.engine = None;
        self.window.clear();
        self.pulled = 0;
        self.ids = PrefetchedIds::default();
    }

    /// How many prefetched rows were not taken yet.
    pub fn waiting(&self) -> u64 {
        self.ids.len() as u64
    }

    /// The rows in the order asked, as one batch: what [`Dataset::take`] gives, whether they were prefetched or not.
    ///
    /// # Errors
    ///
    /// As [`Dataset::take`], for these rows alone: a prefetched row that cannot be read is an error for the call that
    /// asks for it. And `Io` if a thread cannot be started.
    pub fn take(&mut self, rows: &[u64]) -> Result<RecordBatch> {
        self.control.check()?;
        if rows.is_empty() || !self.ids.begin_with(rows) {
            self.stats.fell_back += rows.len() as u64;
            return self.dataset.take(rows);
        }
        self.leave_parent();
        self.portion.get_or_insert(rows.len());
        self.pull(rows.len())?;
        self.ids.take(rows.len(), |_| {});
        self.pulled -= rows.len();
        let taken = self.gather(rows);
        self.window.retain(|held| held.taken < held.rows);
        taken
    }

    /// What other threads may do with it while one waits for rows.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// What it did so far.
    pub fn stats(&self) -> PrefetchedStats {
        PrefetchedStats { loader: self.engine().map(Deliver::stats).unwrap_or_default(), ..self.stats }
    }

    /// Gets so many rows from the engine.
    fn pull(&mut self, rows: usize) -> Result<()> {
        while self.pulled < rows {
            if self.engine.is_none() {
                let engine = self.start()?;
                self.control.watch(engine.watched())?;
                self.engine = Some(Owned::new(engine));
            }
            let next = self.engine().map_or(Ok(None), |engine| engine.next(None))?;
            let Some(Assembled { batches, rows, .. }) = next else {
                return Err(Error::new(ErrorKind::Internal, "prefetched rows are missing"));
            };
            let mut left = rows as usize;
            self.pulled += left;
            let held = batches.into_iter().map(|batch| (batch.row_ids.len(), Some(batch.records)));
            self.window.extend(held.map(|(rows, batch)| {
                left = left.saturating_sub(rows);
                WindowRows { batch, rows, taken: 0 }
            }));
            if left > 0 {
                // After an error, the rest of the segment.
                self.window.push_back(WindowRows { batch: None, rows: left, taken: 0 });
            }
        }
        Ok(())
    }

    fn start(&mut self) -> Result<Engine> {
        let portion = self.portion.unwrap_or(1);
        let mut ids = self.ids.clone();
        ids.take(self.pulled, |_| {});
        let (prefetch, walk) = PrefetchedWalk::new(ids, portion);
        self.prefetch = Some(prefetch);
        let settings = Settings {
            memory: self.memory,
            threads: self.threads,
            read_ahead: None,
            read_concurrency: None,
            batch_rows: portion as u64,
            seed: 0,
        };
        Engine::start(Arc::clone(&self.units), Arc::new(Faults::default()), Box::new(walk), &settings)
    }

    /// The next rows, of which those that could not be had come from the dataset.
    fn gather(&mut self, rows: &[u64]) -> Result<RecordBatch> {
        let mut parts: Vec<RecordBatch> = Vec::new();
        let mut places = Vec::with_capacity(rows.len());
        let mut rest = rows;
        let mut fault = None;
        for held in &mut self.window {
            let (ids, behind) = rest.split_at(rest.len().min(held.rows - held.taken));
            let first = held.taken;
            held.taken += ids.len();
            rest = behind;
            let part = parts.len() as u32;
            match &held.batch {
                Some(batch) if ids.len() == rows.len() && batch.num_rows() == rows.len() => {
                    self.stats.followed += ids.len() as u64;
                    return Ok(batch.clone());
                }
                Some(batch) => {
                    self.stats.followed += ids.len() as u64;
                    parts.push(batch.clone());
                    places.extend((first..held.taken).map(|slot| (part, slot as u32)));
                }
                None => {
                    self.stats.fell_back += ids.len() as u64;
                    match self.dataset.take(ids) {
                        Ok(batch) => parts.push(batch),
                        Err(error) => fault = fault.or(Some(error)),
                    }
                    places.extend((0..ids.len() as u32).map(|slot| (part, slot)));
                }
            }
            if rest.is_empty() {
                break;
            }
        }
        match fault {
            Some(fault) => Err(fault),
            None => self.dataset.gather_rows(&parts.iter().collect::<Vec<_>>(), &places),
        }
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

/// Row ids in the order in which they will be asked for, of which the first are taken off.
#[derive(Debug, Clone, Default)]
struct PrefetchedIds {
    pieces: VecDeque<Arc<Vec<u64>>>,
    /// Taken of the first piece.
    taken: usize,
    /// How many are left.
    len: usize,
}

impl PrefetchedIds {
    fn len(&self) -> usize {
        self.len
    }

    fn push(&mut self, piece: Arc<Vec<u64>>) {
        self.len += piece.len();
        self.pieces.push_back(piece);
    }

    /// Takes so many off, which `each` is given piece by piece.
    fn take(&mut self, mut count: usize, mut each: impl FnMut(&[u64])) {
        while let Some(first) = self.pieces.front() {
            let rest = first.get(self.taken..).unwrap_or_default();
            if count < rest.len() {
                each(&rest[..count]);
                self.taken += count;
                self.len -= count;
                return;
            }
            each(rest);
            count -= rest.len();
            self.len -= rest.len();
            self.taken = 0;
            self.pieces.pop_front();
        }
    }

    /// Whether just these are the first.
    fn begin_with(&self, mut rows: &[u64]) -> bool {
        let mut taken = self.taken;
        for piece in &self.pieces {
            let ids = piece.get(std::mem::take(&mut taken)..).unwrap_or_default();
            if rows.len() <= ids.len() {
                return ids.starts_with(rows);
            }
            match rows.strip_prefix(ids) {
                Some(rest) => rows = rest,
                None => return false,
            }
        }
        rows.is_empty()
    }
}

/// Walks over what was prefetched so far.
#[derive(Debug)]
struct PrefetchedWalk {
    ids: PrefetchedIds,
    /// What comes behind these.
    pieces: Receiver<Arc<Vec<u64>>>,
    /// Rows of a batch.
    portion: usize,
}

impl PrefetchedWalk {
    /// A walk over these in portions of so many rows, and where to send what comes behind them.
    fn new(ids: PrefetchedIds, portion: usize) -> (Sender<Arc<Vec<u64>>>, Self) {
        let (more, pieces) = channel();
        (more, Self { ids, pieces, portion })
    }
}

impl Walk for PrefetchedWalk {
    fn next_range(&mut self, target: u64, each: &mut Each<'_>) -> Result<Option<BatchRange>> {
        let rows = usize::try_from(target).unwrap_or(usize::MAX).max(1);
        let most = rows.div_ceil(self.portion).saturating_mul(self.portion);
        let mut rows = Vec::new();
        while rows.len() < most && self.has_more() {
            self.ids.take(most - rows.len(), |ids| rows.extend_from_slice(ids));
        }
        if rows.is_empty() {
            return Ok(None);
        }
        let batch = BatchPlan { rows, ..BatchPlan::default() };
        each(&batch)?;
        let portions = Portions { rows: batch.rows, portion: self.portion };
        Ok(Some(BatchRange { epoch: 0, batches: 0..portions.count(), all: Arc::new(portions), replaced: Vec::new() }))
    }

    fn epoch(&self) -> u64 {
        0
    }

    fn has_more(&mut self) -> bool {
        while self.ids.len() == 0 {
            let Ok(next) = self.pieces.try_recv() else { return false };
            self.ids.push(next);
        }
        true
    }
}

/// Row ids cut into batches.
#[derive(Debug)]
struct Portions {
    rows: Vec<u64>,
    portion: usize,
}

impl Batches for Portions {
    fn count(&self) -> u64 {
        self.rows.len().div_ceil(self.portion) as u64
    }

    fn steps(&self, _: u64) -> u64 {
        self.count()
    }

    fn fill(&self, b: u64, batch: &mut BatchPlan) -> Result<u32> {
        let rows = self.rows.chunks(self.portion).nth(b as usize);
        let rows = rows.ok_or_else(|| Error::new(ErrorKind::Internal, "a portion beyond the last"))?;
        batch.step = b;
        batch.rows.clear();
        batch.rows.extend_from_slice(rows);
        Ok(0)
    }
}
