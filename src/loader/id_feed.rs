//! Row ids that somebody says will be asked for, as those who serve them and as the walk sees them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::walk::{BatchRange, Batches, Each, Walk};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::sampler::BatchPlan;

/// Row ids in the order in which they will be asked for, of which the first are taken off.
#[derive(Debug, Clone, Default)]
pub(crate) struct PrefetchedIds {
    pieces: VecDeque<Arc<Vec<u64>>>,
    /// Taken of the first piece.
    taken: usize,
    /// How many are left.
    len: usize,
}

impl PrefetchedIds {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn push(&mut self, piece: Arc<Vec<u64>>) {
        self.len += piece.len();
        self.pieces.push_back(piece);
    }

    /// Takes so many off, which `each` is given piece by piece.
    pub(crate) fn take(&mut self, mut count: usize, mut each: impl FnMut(&[u64])) {
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
    pub(crate) fn begin_with(&self, mut rows: &[u64]) -> bool {
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
pub(crate) struct PrefetchedWalk {
    ids: PrefetchedIds,
    /// What comes behind these.
    pieces: Receiver<Arc<Vec<u64>>>,
    /// Rows of a batch.
    portion: usize,
}

impl PrefetchedWalk {
    /// A walk over these in portions of so many rows, and where to send what comes behind them.
    pub(crate) fn new(ids: PrefetchedIds, portion: usize) -> (Sender<Arc<Vec<u64>>>, Self) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_taken_across_pieces() {
        let mut ids = PrefetchedIds::default();
        for piece in [vec![5, 6, 7], vec![], vec![8], vec![9, 5]] {
            ids.push(Arc::new(piece));
        }
        let taken = |ids: &mut PrefetchedIds, count| {
            let mut rows = Vec::new();
            ids.take(count, |piece| rows.extend_from_slice(piece));
            rows
        };
        assert!(ids.begin_with(&[5, 6, 7, 8, 9, 5]) && ids.begin_with(&[]) && !ids.begin_with(&[5, 6, 7, 8, 9, 5, 1]));
        assert_eq!(taken(&mut ids, 2), [5, 6]);
        assert!(ids.begin_with(&[7, 8, 9]) && !ids.begin_with(&[7, 8, 8]) && !ids.begin_with(&[5]));
        assert_eq!(taken(&mut ids, 3), [7, 8, 9]);
        assert_eq!((ids.len(), taken(&mut ids, 9)), (1, vec![5]));
        ids.push(Arc::new(vec![1]));
        assert!(ids.begin_with(&[1]));
    }

    #[test]
    fn a_walk_goes_on_when_more_is_prefetched() {
        let mut ids = PrefetchedIds::default();
        ids.push(Arc::new((0..10).collect()));
        ids.take(1, |_| {});
        let (more, mut walk) = PrefetchedWalk::new(ids, 4);
        let mut seen = Vec::new();
        let mut range = |walk: &mut PrefetchedWalk, target| {
            walk.next_range(target, &mut |batch| {
                seen.extend_from_slice(&batch.rows);
                Ok(true)
            })
        };
        assert_eq!(range(&mut walk, 5).unwrap().unwrap().batches, 0..2);
        assert_eq!(range(&mut walk, 5).unwrap().unwrap().batches, 0..1);
        assert!(range(&mut walk, 5).unwrap().is_none() && !walk.has_more());
        more.send(Arc::new(Vec::new())).unwrap();
        assert!(!walk.has_more());
        more.send(Arc::new(vec![20, 21])).unwrap();
        assert!(walk.has_more());
        assert_eq!(range(&mut walk, 5).unwrap().unwrap().batches, 0..1);
        assert_eq!(seen, [1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 21]);
    }
}
