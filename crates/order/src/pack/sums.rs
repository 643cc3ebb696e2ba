//! How many packs, pieces and tokens the blocks of an epoch have, summed up: all that has to be kept to find any pack.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rowdex_base::error::{Error, ErrorKind, Result};

use super::block::two_in_one;
use super::near::{Looked, at_once};
use super::{Pack, PackCounts};
use crate::{EpochOrder, Lengths};

/// The sums of one epoch: 16 bytes a block.
#[derive(Debug)]
pub(super) struct PackSums {
    /// Packs and pieces up to the end of each block.
    ends: Vec<[u64; 2]>,
    /// What the epoch comes to. Of buckets the packs and pieces are told alone.
    pub(super) counts: PackCounts,
}

/// What the blocks of an epoch are made from.
#[derive(Debug)]
pub(super) struct PackSource {
    pub(super) order: Arc<dyn EpochOrder>,
    pub(super) lengths: Arc<dyn Lengths>,
    pub(super) pack: Pack,
}

impl PackSource {
    /// The rows at the positions of some blocks that follow each other, and their lengths: both numbers of each where
    /// packs have two limits.
    pub(super) fn read(&self, blocks: Range<u64>, looked: &mut Looked) -> Result<()> {
        let rows = &mut looked.rows;
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
        looked.fill(&*self.lengths)?;
        if self.pack.second.is_some() {
            for (length, second) in looked.lengths.iter_mut().zip(self.pack.second_of(&*self.lengths, &looked.rows)?) {
                *length = two_in_one(*length, second);
            }
        }
        Ok(())
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
        let rows = at_once(&*self.lengths, threads);
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

    /// The sums of all blocks, by so many threads. Asks for the length of every row once.
    pub(super) fn sums(&self, threads: usize) -> Result<PackSums> {
        let mut counts = PackCounts::default();
        let mut ends = Vec::new();
        for block in self.counted(threads)? {
            counts.add(&block);
            ends.push([counts.packs, counts.pieces]);
        }
        Ok(PackSums { ends, counts })
    }

    /// Those of as many packs as positions, of whose tokens nothing is asked.
    pub(super) fn sums_of_rows(&self) -> PackSums {
        let len = self.order.len();
        let ends = (1..=self.pack.blocks(len)).map(|block| [self.start(block); 2]).collect();
        PackSums { ends, counts: PackCounts { packs: len, pieces: len, ..PackCounts::default() } }
    }
}

impl PackSums {
    /// Packs and pieces before a block.
    pub(super) fn before(&self, block: u64) -> (u64, u64) {
        let before = (block as usize).checked_sub(1).and_then(|before| self.ends.get(before));
        before.map_or((0, 0), |[packs, pieces]| (*packs, *pieces))
    }

    /// The block that has a pack.
    pub(super) fn block_of_pack(&self, pack: u64) -> u64 {
        self.ends.partition_point(|[packs, _]| *packs <= pack) as u64
    }

    /// The block that has a piece.
    pub(super) fn block_of_piece(&self, piece: u64) -> u64 {
        self.ends.partition_point(|[_, pieces]| *pieces <= piece) as u64
    }

    /// The last block before which there are packs and pieces of which this is true; it is of no block after one of
    /// which it is not.
    pub(super) fn last_block(&self, mut is_true: impl FnMut(u64, u64) -> bool) -> u64 {
        let blocks = self.ends.get(..self.ends.len().saturating_sub(1)).unwrap_or_default();
        blocks.partition_point(|[packs, pieces]| is_true(*packs, *pieces)) as u64
    }
}

impl PackCounts {
    /// Adds those of a block. What exceeds 64 bits stays at the most.
    fn add(&mut self, block: &Self) {
        self.packs += block.packs;
        self.pieces += block.pieces;
        self.tokens = self.tokens.saturating_add(block.tokens);
        self.rows_split += block.rows_split;
        self.rows_dropped += block.rows_dropped;
        self.tokens_dropped = self.tokens_dropped.saturating_add(block.tokens_dropped);
        self.rows_truncated += block.rows_truncated;
        self.tokens_truncated = self.tokens_truncated.saturating_add(block.tokens_truncated);
        self.rows_empty += block.rows_empty;
    }
}
