//! Row ids that somebody says will be asked for, as those who serve them and as the walk sees them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::walk::{BatchRange, Batches, Each, Walk};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::sampler::BatchPlan;

/// Prefetched row ids by their position, from the first that may still be asked for.
#[derive(Debug, Default)]
pub(crate) struct PrefetchedIds {
    /// Each with the position of its first id; none is empty.
    pieces: VecDeque<(u64, Arc<Vec<u64>>)>,
    end: u64,
}

impl PrefetchedIds {
    /// The position after the last.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn push(&mut self, piece: Arc<Vec<u64>>) {
        if !piece.is_empty() {
            let start = self.end;
            self.end += piece.len() as u64;
            self.pieces.push_back((start, piece));
        }
    }

    /// Lets go of what is before a position, a piece at a time.
    pub(crate) fn forget_before(&mut self, position: u64) {
        while self.pieces.pop_front_if(|(start, piece)| *start + piece.len() as u64 <= position).is_some() {}
    }

    /// The pieces from a position on, and where in each to begin.
    pub(crate) fn pieces_from(&self, position: u64) -> impl Iterator<Item = (&Arc<Vec<u64>>, usize)> {
        let first = self.pieces.partition_point(|(start, piece)| *start + piece.len() as u64 <= position);
        let rest = self.pieces.range(first..);
        rest.map(move |(start, piece)| (piece, position.saturating_sub(*start) as usize))
    }

    /// The ids from one position up to another, as far as they are there.
    pub(crate) fn range(&self, from: u64, to: u64) -> impl Iterator<Item = &[u64]> {
        let mut left = usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX);
        self.pieces_from(from).map_while(move |(piece, first)| {
            let ids = piece.get(first..)?;
            let ids = ids.get(..left).unwrap_or(ids);
            left -= ids.len();
            (!ids.is_empty()).then_some(ids)
        })
    }

    /// Whether just these ids are at a position.
    pub(crate) fn has_at(&self, position: u64, mut rows: &[u64]) -> bool {
        for ids in self.range(position, position.saturating_add(rows.len() as u64)) {
            match rows.strip_prefix(ids) {
                Some(rest) => rows = rest,
                None => return false,
            }
        }
        rows.is_empty()
    }
}

/// A piece of prefetched row ids, and where in it to begin.
pub(crate) type IdChunk = (Arc<Vec<u64>>, usize);

/// Walks over what was prefetched so far.
#[derive(Debug)]
pub(crate) struct PrefetchedWalk {
    /// What is walked over, and what comes behind it.
    piece: IdChunk,
    pieces: Receiver<IdChunk>,
    /// Rows of a batch.
    portion: usize,
}

impl PrefetchedWalk {
    /// A walk in portions of so many rows, and where to send what it walks over.
    pub(crate) fn new(portion: usize) -> (Sender<IdChunk>, Self) {
        let (prefetch, pieces) = channel();
        (prefetch, Self { piece: IdChunk::default(), pieces, portion })
    }

    fn take(&mut self, count: usize) -> Vec<u64> {
        let mut ids = Vec::new();
        while ids.len() < count && self.has_more() {
            let (piece, first) = &mut self.piece;
            let rest = piece.get(*first..).unwrap_or_default();
            let taken = rest.get(..count - ids.len()).unwrap_or(rest);
            ids.extend_from_slice(taken);
            *first += taken.len();
        }
        ids
    }
}

impl Walk for PrefetchedWalk {
    fn next_range(&mut self, target: u64, each: &mut Each<'_>) -> Result<Option<BatchRange>> {
        let rows = usize::try_from(target).unwrap_or(usize::MAX).max(1);
        let rows = self.take(rows.div_ceil(self.portion).saturating_mul(self.portion));
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
        while self.piece.1 >= self.piece.0.len() {
            let Ok(next) = self.pieces.try_recv() else { return false };
            self.piece = next;
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
    fn ids_are_found_by_position_across_pieces_until_they_are_forgotten() {
        let mut ids = PrefetchedIds::default();
        for piece in [vec![5, 6, 7], vec![], vec![8], vec![9, 5]] {
            ids.push(Arc::new(piece));
        }
        assert_eq!(ids.end(), 6);
        let all = |ids: &PrefetchedIds, from, to| ids.range(from, to).flatten().copied().collect::<Vec<_>>();
        assert_eq!(all(&ids, 0, 9), [5, 6, 7, 8, 9, 5]);
        assert_eq!(all(&ids, 1, 1), [0; 0]);
        assert_eq!(all(&ids, 2, 5), [7, 8, 9]);
        assert!(ids.has_at(2, &[7, 8, 9]) && ids.has_at(6, &[]));
        assert!(!ids.has_at(2, &[7, 8, 8]) && !ids.has_at(5, &[5, 5]) && !ids.has_at(9, &[5]));
        ids.forget_before(2);
        assert_eq!(all(&ids, 0, 6).len(), 6);
        ids.forget_before(4);
        assert_eq!(all(&ids, 4, 9), [9, 5]);
        assert!(ids.has_at(4, &[9, 5]));
        ids.forget_before(6);
        ids.push(Arc::new(vec![1]));
        assert!(ids.has_at(6, &[1]));
    }

    #[test]
    fn a_walk_goes_on_when_more_is_prefetched() {
        let (prefetch, mut walk) = PrefetchedWalk::new(4);
        prefetch.send((Arc::new((0..10).collect()), 1)).unwrap();
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
        prefetch.send((Arc::new(Vec::new()), 0)).unwrap();
        assert!(!walk.has_more());
        prefetch.send((Arc::new(vec![20, 21]), 0)).unwrap();
        assert!(walk.has_more());
        assert_eq!(range(&mut walk, 5).unwrap().unwrap().batches, 0..1);
        assert_eq!(seen, [1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 21]);
    }
}
