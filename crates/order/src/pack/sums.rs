//! How many packs, pieces and tokens the blocks of an epoch have, summed up: all that has to be kept to find any pack.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rowdex_base::error::{Error, ErrorKind, Result};

use super::near::{NearLengths, at_once};
use super::{Pack, PackCounts};
use crate::{EpochOrder, Lengths};

/// The sums of one epoch: 24 bytes a block. Making them asks for the length of every row once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PackSums {
    /// Of the orders, the lengths and the packing.
    pub(super) fingerprint: u64,
    pub(super) epoch: u64,
    /// Packs, pieces and tokens up to the end of each block.
    ends: Vec<[u64; 3]>,
    counts: PackCounts,
}

/// What the sums of an epoch are made from.
#[derive(Debug, Clone, Copy)]
pub(super) struct PackSource<'a> {
    pub(super) order: &'a dyn EpochOrder,
    pub(super) lengths: &'a dyn Lengths,
    pub(super) pack: &'a Pack,
}

/// The rows at the positions of some blocks, and their lengths; kept from one reading to the next, which allocates
/// nothing then.
#[derive(Debug, Default)]
pub(super) struct Looked {
    pub(super) rows: Vec<u64>,
    pub(super) lengths: Vec<u64>,
    near: NearLengths,
}

impl PackSource<'_> {
    /// The rows at the positions of some blocks that follow each other, and their lengths.
    pub(super) fn read(&self, blocks: Range<u64>, looked: &mut Looked) -> Result<()> {
        let Looked { rows, lengths, near } = looked;
        let first = self.start(blocks.start);
        let end = self.start(blocks.end);
        rows.resize((end - first) as usize, 0);
        let filled = self.order.fill(first, rows);
        if filled < rows.len() {
            let len = self.order.len();
            let at = first + filled as u64;
            let message = format!("an order of {len} positions has no row at position {at}");
            return Err(
                Error::new(ErrorKind::Internal, message).with_hint("the implementation of this EpochOrder is at fault")
            );
        }
        near.fill(self.lengths, rows, lengths)
    }

    /// The first position of a block.
    fn start(&self, block: u64) -> u64 {
        let len = self.order.len();
        if block == self.pack.blocks(len) { len } else { block * self.pack.block }
    }

    /// What each of some blocks comes to.
    fn count(&self, blocks: Range<u64>, looked: &mut Looked, scratch: &mut Vec<u32>) -> Result<Vec<PackCounts>> {
        self.read(blocks.clone(), looked)?;
        let mut rows = looked.rows.as_slice();
        let mut lengths = looked.lengths.as_slice();
        let counts = blocks.map(|block| {
            let len = (self.start(block + 1) - self.start(block)) as usize;
            let (of_block, lengths_of_block);
            (of_block, rows) = rows.split_at(len);
            (lengths_of_block, lengths) = lengths.split_at(len);
            self.pack.count(of_block, lengths_of_block, scratch)
        });
        counts.collect()
    }

    /// What each block comes to, by so many threads.
    fn counted(&self, threads: usize) -> Result<Vec<PackCounts>> {
        let blocks = self.pack.blocks(self.order.len());
        let threads = threads.clamp(1, usize::try_from(blocks).unwrap_or(usize::MAX).max(1));
        let rows = at_once(self.lengths, threads);
        let some = (rows / self.pack.block).clamp(1, blocks.div_ceil(threads as u64).max(1));
        let next = AtomicU64::new(0);
        let work = || {
            let mut counted = Vec::new();
            let mut looked = Looked::default();
            let mut scratch = Vec::new();
            loop {
                let first = next.fetch_add(some, Ordering::Relaxed);
                if first >= blocks {
                    return counted;
                }
                let counts = self.count(first..blocks.min(first + some), &mut looked, &mut scratch);
                if counts.is_err() {
                    next.store(blocks, Ordering::Relaxed);
                }
                counted.push((first, counts));
            }
        };
        let mut counted = thread::scope(|scope| {
            let others: Vec<_> =
                (1..threads).filter_map(|_| thread::Builder::new().spawn_scoped(scope, work).ok()).collect();
            let mut counted = work();
            for other in others {
                counted.extend(other.join().unwrap_or_default());
            }
            counted
        });
        counted.sort_unstable_by_key(|(first, _)| *first);
        // Of several errors, that of the first block.
        let counted = counted.into_iter().map(|(_, counts)| counts).collect::<Result<Vec<_>>>()?.concat();
        if counted.len() as u64 == blocks {
            return Ok(counted);
        }
        Err(Error::new(ErrorKind::Internal, "a thread that planned packs came to no end"))
    }
}

impl PackSums {
    pub(super) fn of(source: PackSource<'_>, threads: usize, fingerprint: u64, epoch: u64) -> Result<Self> {
        let mut counts = PackCounts::default();
        let mut ends = Vec::new();
        for block in source.counted(threads)? {
            counts.add(&block);
            ends.push([counts.packs, counts.pieces, counts.tokens]);
        }
        Ok(Self { fingerprint, epoch, ends, counts })
    }

    /// Of as many packs as positions, of whose tokens nothing is asked.
    pub(super) fn of_rows(len: u64, pack: &Pack, fingerprint: u64, epoch: u64) -> Self {
        let blocks = pack.blocks(len);
        let end = |block| if block == blocks { len } else { block * pack.block };
        let ends = (1..=blocks).map(|block| [end(block), end(block), 0]).collect();
        let counts = PackCounts { packs: len, pieces: len, ..PackCounts::default() };
        Self { fingerprint, epoch, ends, counts }
    }

    /// What the epoch comes to. Of buckets the packs and pieces are told alone: see [`PackedEpoch::counts`].
    ///
    /// [`PackedEpoch::counts`]: super::PackedEpoch::counts
    pub(crate) fn counts(&self) -> &PackCounts {
        &self.counts
    }

    /// Packs and pieces before a block.
    pub(crate) fn before(&self, block: u64) -> (u64, u64) {
        let before = (block as usize).checked_sub(1).and_then(|before| self.ends.get(before));
        before.map_or((0, 0), |[packs, pieces, _]| (*packs, *pieces))
    }

    /// The block that has a pack.
    pub(crate) fn block_of_pack(&self, pack: u64) -> u64 {
        self.ends.partition_point(|[packs, ..]| *packs <= pack) as u64
    }

    /// The block that has a piece.
    pub(crate) fn block_of_piece(&self, piece: u64) -> u64 {
        self.ends.partition_point(|[_, pieces, _]| *pieces <= piece) as u64
    }

    /// The last block before which there are packs and pieces of which this is true; it is of no block after one of
    /// which it is not.
    pub(crate) fn last_block(&self, mut is_true: impl FnMut(u64, u64) -> bool) -> u64 {
        let blocks = self.ends.get(..self.ends.len().saturating_sub(1)).unwrap_or_default();
        blocks.partition_point(|[packs, pieces, _]| is_true(*packs, *pieces)) as u64
    }
}

impl PackCounts {
    /// Adds those of a block. What exceeds 64 bits stays at the most.
    fn add(&mut self, other: &Self) {
        let Self { packs, pieces, tokens, rows_split, rows_dropped, tokens_dropped, .. } = self;
        let Self { rows_truncated, tokens_truncated, rows_empty, .. } = self;
        for (sum, more) in [
            (packs, other.packs),
            (pieces, other.pieces),
            (tokens, other.tokens),
            (rows_split, other.rows_split),
            (rows_dropped, other.rows_dropped),
            (tokens_dropped, other.tokens_dropped),
            (rows_truncated, other.rows_truncated),
            (tokens_truncated, other.tokens_truncated),
            (rows_empty, other.rows_empty),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}
