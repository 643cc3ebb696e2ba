//! The carousel for orders that somebody else makes up: a sampler of another library says what it will ask for, and
//! then does.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use arrow_array::RecordBatch;

use super::LoaderStats;
use super::assemble::Assembled;
use super::deliver::{Control, Deliver, Owned};
use super::driver::{BatchRange, Each, Walk};
use super::engine::{Engine, Settings};
use super::groups::dataset::DatasetGroups;
use super::units::Units;
use crate::dataset::Dataset;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::Explicit;
use rowdex_order::sampler::{BatchPlan, DistributedSampler, Shard};

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
    /// needed.
    pub fell_back: u64,
    /// What the carousel did since it was last started.
    pub loader: LoaderStats,
}

/// Serves rows in the order in which they were prefetched, and any others as [`Dataset::take`] does.
///
/// A call for exactly the next prefetched rows, any number of them, *follows* and is served from the carousel. Any
/// other call is served as by [`Dataset::take`], one way being as correct as the other, and the same rows still come
/// next. To leave prefetched rows out, call [`clear`](Self::clear) and prefetch what comes now.
///
/// Prefetch early: fewer rows than the horizon (see the [module](super)) mean more decodes than need be.
///
/// No thread exists before the first [`take`](Self::take) of prefetched rows; dropping it ends them. It needs `&mut
/// self`, because what comes next depends on what was taken before: give each thread another one, with its own part of
/// the order, or put it behind a lock. In a forked child, rows that its parent has begun to read ahead for return the
/// error `Closed`, until they are [cleared](Self::clear) and prefetched there.
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
    engine: Option<Owned<Engine>>,
    /// To the walk of the engine.
    prefetch: Option<Sender<Arc<Vec<u64>>>>,
    control: Control,
    /// What was got from the engine of the first of them, if it could be had, with how many rows are left of each; and
    /// of all of them.
    window: VecDeque<(Option<RecordBatch>, usize)>,
    pulled: usize,
    stats: PrefetchedStats,
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
            engine: None,
            prefetch: None,
            control: Control::default(),
            window: VecDeque::new(),
            pulled: 0,
            stats: PrefetchedStats::default(),
        }
    }

    /// Says what will be asked for after all that was prefetched before. Row ids may repeat. Takes 8 bytes a row until
    /// they are passed, and 8 bytes more within the horizon.
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
        if let (Some(engine), Some(prefetch)) = (&self.engine, &self.prefetch)
            && let Ok(engine) = engine.own()
        {
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
        let all: usize = self.ids.pieces.iter().map(|piece| piece.len()).sum();
        (all - self.ids.taken) as u64
    }

    /// The rows in the order asked, as one batch: what [`Dataset::take`] gives, whether they were prefetched or not.
    ///
    /// # Errors
    ///
    /// As [`Dataset::take`], for these rows alone: a prefetched row that cannot be read fails the call that asks for
    /// it. And `Io` if a thread cannot be started.
    pub fn take(&mut self, rows: &[u64]) -> Result<RecordBatch> {
        self.control.check()?;
        if rows.is_empty() || !self.ids.begin_with(rows) {
            self.stats.fell_back += rows.len() as u64;
            return self.dataset.take(rows);
        }
        self.portion.get_or_insert(rows.len());
        self.pull(rows.len())?;
        self.ids.take(rows.len(), |_| {});
        self.pulled -= rows.len();
        self.gather(rows)
    }

    /// What other threads may do with it while one waits for rows.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// What it did so far.
    pub fn stats(&self) -> PrefetchedStats {
        PrefetchedStats { loader: self.control.stats(), ..self.stats }
    }

    /// Gets so many rows from the engine.
    fn pull(&mut self, rows: usize) -> Result<()> {
        while self.pulled < rows {
            if self.engine.is_none() {
                self.start()?;
            }
            let next = match &self.engine {
                Some(engine) => engine.own()?.next(None)?,
                None => None,
            };
            let Some(Assembled { batches, rows, .. }) = next else {
                return Err(Error::new(ErrorKind::Internal, "prefetched rows are missing"));
            };
            let mut left = rows as usize;
            self.pulled += left;
            for batch in batches {
                let rows = batch.row_ids.len();
                left = left.saturating_sub(rows);
                self.window.push_back((Some(batch.records), rows));
            }
            if left > 0 {
                // After an error, the rest of the segment.
                self.window.push_back((None, left));
            }
        }
        Ok(())
    }

    fn start(&mut self) -> Result<()> {
        let portion = self.portion.unwrap_or(1);
        let mut ids = self.ids.clone();
        ids.take(self.pulled, |_| {});
        let (prefetch, pieces) = channel();
        let walk = PrefetchedWalk { ids, pieces, portion };
        let settings =
            Settings { memory: self.memory, threads: self.threads, batch_rows: portion as u64, ..Settings::default() };
        let engine = Engine::start(Arc::clone(&self.units), Arc::default(), Box::new(walk), &settings)?;
        self.control.watch(&engine.watched())?;
        self.engine = Some(Owned::new(engine));
        self.prefetch = Some(prefetch);
        Ok(())
    }

    /// The next rows, of which those that could not be had come from the dataset.
    fn gather(&mut self, mut rows: &[u64]) -> Result<RecordBatch> {
        let mut parts: Vec<RecordBatch> = Vec::new();
        let mut fault = None;
        while let Some((batch, left)) = self.window.front_mut()
            && !rows.is_empty()
        {
            let (ids, behind) = rows.split_at(rows.len().min(*left));
            rows = behind;
            *left -= ids.len();
            let part = match batch {
                Some(batch) => {
                    self.stats.followed += ids.len() as u64;
                    let part = batch.slice(0, ids.len());
                    *batch = batch.slice(ids.len(), *left);
                    Ok(part)
                }
                None => {
                    self.stats.fell_back += ids.len() as u64;
                    self.dataset.take(ids)
                }
            };
            if *left == 0 {
                self.window.pop_front();
                if parts.is_empty() && rows.is_empty() {
                    return part;
                }
            }
            match part {
                Ok(part) => parts.push(part),
                Err(error) => fault = fault.or(Some(error)),
            }
        }
        if let Some(fault) = fault {
            return Err(fault);
        }
        let places =
            (0..).zip(&parts).flat_map(|(number, part)| (0..part.num_rows() as u32).map(move |row| (number, row)));
        self.dataset.gather_rows(&parts.iter().collect::<Vec<_>>(), &places.collect::<Vec<_>>())
    }
}

/// Row ids in the order in which they will be asked for, of which the first are taken off.
#[derive(Debug, Clone, Default)]
struct PrefetchedIds {
    pieces: VecDeque<Arc<Vec<u64>>>,
    /// Taken of the first piece, which has more.
    taken: usize,
}

impl PrefetchedIds {
    fn push(&mut self, piece: Arc<Vec<u64>>) {
        self.pieces.extend((!piece.is_empty()).then_some(piece));
    }

    /// Takes so many off, which `each` is given piece by piece.
    fn take(&mut self, mut count: usize, mut each: impl FnMut(&[u64])) {
        while let Some(first) = self.pieces.front() {
            let rest = first.get(self.taken..).unwrap_or_default();
            if count < rest.len() {
                each(&rest[..count]);
                self.taken += count;
                return;
            }
            each(rest);
            count -= rest.len();
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
        let orders = Arc::new(Explicit::new(rows.clone(), u64::MAX)?);
        let plan = Arc::new(DistributedSampler::new(orders, Shard::new(0, 1)?, self.portion)?.plan(0)?);
        each(&BatchPlan { rows, ..BatchPlan::default() })?;
        let batches = 0..plan.steps();
        Ok(Some(BatchRange { epoch: 0, plans: [(plan, 0)].into(), batches, replaced: Vec::new() }))
    }

    fn epoch(&self) -> u64 {
        0
    }

    fn has_more(&mut self) -> bool {
        while self.ids.pieces.is_empty() {
            let Ok(next) = self.pieces.try_recv() else { return false };
            self.ids.push(next);
        }
        true
    }
}
