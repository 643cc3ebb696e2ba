//! How many packs, pieces and tokens the blocks of an epoch have, summed up: all that has to be kept to find any pack.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rowdex_base::error::{Error, ErrorKind, Result};
use xxhash_rust::xxh3::xxh3_64;

use super::near::{NearLengths, at_once};
use super::{Pack, PackCounts};
use crate::{EpochOrder, Lengths};

/// Begins what is kept of an epoch.
const MAGIC: &[u8; 16] = b"rowdex packs v1\n";

/// The sums of one epoch. Making them asks for the length of every row once, and is worth keeping: 24 bytes a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackSums {
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
    pub fn counts(&self) -> &PackCounts {
        &self.counts
    }

    /// Which epoch it is of.
    pub fn epoch(&self) -> u64 {
        self.epoch
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

    /// As bytes that [`from_bytes`](Self::from_bytes) takes, to be kept in a file: what they are of, the sums, and a
    /// check of it all.
    pub fn to_bytes(&self) -> Vec<u8> {
        let counts = self.counts.fields();
        let head = [self.fingerprint, self.epoch, self.ends.len() as u64];
        let numbers = head.into_iter().chain(counts).chain(self.ends.iter().flatten().copied());
        let mut bytes = MAGIC.to_vec();
        bytes.extend(numbers.flat_map(u64::to_le_bytes));
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        bytes
    }

    /// What was written by [`to_bytes`](Self::to_bytes); `None` if it was not, or was damaged since.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (said, check) = bytes.split_last_chunk::<8>()?;
        if xxh3_64(said) != u64::from_le_bytes(*check) {
            return None;
        }
        let (numbers, []) = said.strip_prefix(MAGIC)?.as_chunks::<8>() else { return None };
        let mut numbers = numbers.iter().map(|number| u64::from_le_bytes(*number));
        let fingerprint = numbers.next()?;
        let epoch = numbers.next()?;
        let blocks = numbers.next()?;
        let mut fields = [0; 9];
        for field in &mut fields {
            *field = numbers.next()?;
        }
        let sums: Vec<u64> = numbers.collect();
        let (ends, []) = sums.as_chunks::<3>() else { return None };
        let counts = PackCounts::from_fields(fields);
        let last = ends.last().copied().unwrap_or_default();
        let rises = ends.is_sorted_by(|a, b| a.iter().zip(b).all(|(a, b)| a <= b));
        let fits = ends.len() as u64 == blocks && last == [counts.packs, counts.pieces, counts.tokens];
        (rises && fits).then(|| Self { fingerprint, epoch, ends: ends.to_vec(), counts })
    }
}

impl PackCounts {
    fn fields(&self) -> [u64; 9] {
        let Self { packs, pieces, tokens, rows_split, rows_dropped, tokens_dropped, .. } = *self;
        let Self { rows_truncated, tokens_truncated, rows_empty, .. } = *self;
        [packs, pieces, tokens, rows_split, rows_dropped, tokens_dropped, rows_truncated, tokens_truncated, rows_empty]
    }

    fn from_fields(fields: [u64; 9]) -> Self {
        let [packs, pieces, tokens, rows_split, rows_dropped, tokens_dropped, rest @ ..] = fields;
        let [rows_truncated, tokens_truncated, rows_empty] = rest;
        Self {
            packs,
            pieces,
            tokens,
            rows_split,
            rows_dropped,
            tokens_dropped,
            rows_truncated,
            tokens_truncated,
            rows_empty,
        }
    }

    /// Adds those of a block. What exceeds 64 bits stays at the most.
    fn add(&mut self, other: &Self) {
        let mut fields = self.fields();
        let others = other.fields();
        for (field, other) in fields.iter_mut().zip(others) {
            *field = field.saturating_add(other);
        }
        *self = Self::from_fields(fields);
    }
}
