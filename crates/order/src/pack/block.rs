//! One block of positions: its pieces, and the packs that they are in.

use std::cmp::Reverse;
use std::iter;

use rowdex_base::error::{Error, ErrorKind, Result};

use super::fit::{best_fit, first_fit, next_fit};
use super::{Algorithm, Empty, Overflow, Pack, Piece};
use crate::permutation::{Permutation, PermutationKey};
use crate::philox::{Philox, below};

/// Keeps the random numbers of packs apart from all others.
const TAG: &[u8; 16] = b"rowdex packs v1\0";

/// Where the random numbers of one block come from.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seeds {
    pub(super) seed: u64,
    pub(super) epoch: u64,
    pub(super) number: u64,
}

impl Seeds {
    /// Which permutes `len` packs, or steps.
    pub(super) fn permuted(self, tag: &[u8; 16], len: u64) -> Vec<u64> {
        let key = PermutationKey::tagged(tag, self.seed, self.epoch).numbered(self.number);
        let mut numbers: Vec<u64> = (0..len).collect();
        Permutation::new(len, &key).forward_all(&mut numbers);
        numbers
    }
}

/// What a block, or an epoch, comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PackCounts {
    /// Packs, before any is opened.
    pub packs: u64,
    /// Pieces in them.
    pub pieces: u64,
    /// Tokens of rows in them, the extra ones not counted.
    pub tokens: u64,
    /// Rows that are several pieces.
    pub rows_split: u64,
    /// Rows that are left out, as they are too long.
    pub rows_dropped: u64,
    /// Tokens of these.
    pub tokens_dropped: u64,
    /// Rows that are cut short.
    pub rows_truncated: u64,
    /// Tokens that these lose.
    pub tokens_truncated: u64,
    /// Rows that have no tokens, served or not.
    pub rows_empty: u64,
}

/// Tokens of a position of the block that are served together. What a row of 16 bytes can hold, as a block may have
/// millions.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct InBlock {
    pub(super) offset: u64,
    pub(super) length: u32,
    pub(super) at: u32,
}

/// A block that is packed.
#[derive(Debug)]
pub(super) struct PackBlock {
    /// The rows at its positions.
    rows: Vec<u64>,
    /// The pieces as they were cut.
    cut: Vec<InBlock>,
    /// Which of them come one after the other: so millions of small numbers are moved about, and not the pieces.
    sequence: Vec<u32>,
    /// The number of the first piece after each pack.
    ends: Vec<u32>,
}

impl Pack {
    /// How many tokens of a row are served; `None` if the row is left out.
    #[inline]
    fn kept(&self, row: u64, length: u64, second: u32, counts: &mut PackCounts) -> Result<Option<u64>> {
        let longest = self.longest();
        let mut kept = Some(length);
        if length == 0 {
            counts.rows_empty += 1;
            kept = kept.filter(|_| self.empty == Empty::Keep);
        }
        if kept.is_some() && (length > longest || second > self.limit()) {
            match self.overflow {
                Overflow::Split => {}
                Overflow::Truncate => {
                    kept = Some(longest);
                    counts.rows_truncated += 1;
                    counts.tokens_truncated = counts.tokens_truncated.saturating_add(length - longest);
                }
                Overflow::Drop => {
                    kept = None;
                    counts.rows_dropped += 1;
                    counts.tokens_dropped = counts.tokens_dropped.saturating_add(length);
                }
                Overflow::Error => return Err(self.too_long(row, length, second)),
            }
        }
        counts.tokens = counts.tokens.saturating_add(kept.unwrap_or(0));
        Ok(kept)
    }

    /// Cuts the rows at the positions of a block, whose lengths these are, into pieces. `put` is told of a position, an
    /// offset, a length, and how many pieces of this length follow each other from there.
    #[inline]
    pub(super) fn cut(
        &self,
        rows: &[u64],
        lengths: &[u64],
        mut put: impl FnMut(u32, u64, u64, u32),
    ) -> Result<PackCounts> {
        let longest = self.longest();
        let mut counts = PackCounts::default();
        for ((at, row), length) in (0..).zip(rows).zip(lengths) {
            // Both numbers of a row with two lie in one, see `two_in_one`.
            let (length, second) = match self.second {
                Some(_) => (u64::from(*length as u32), (length >> 32) as u32),
                None => (*length, 0),
            };
            // Almost all rows: with tokens, and not too long.
            if length.wrapping_sub(1) < longest && second <= self.limit() {
                counts.tokens = counts.tokens.saturating_add(length);
                counts.pieces += 1;
                put(at, 0, length, 1);
                continue;
            }
            let Some(kept) = self.kept(*row, length, second, &mut counts)? else { continue };
            let full = kept / longest;
            let rest = kept % longest;
            let pieces = (full + u64::from(rest > 0)).max(1);
            counts.rows_split += u64::from(pieces > 1);
            counts.pieces = check_pieces(counts.pieces.saturating_add(pieces))?;
            if full > 0 {
                put(at, 0, longest, full as u32);
            }
            if full < pieces {
                put(at, full * longest, rest, 1);
            }
        }
        Ok(counts)
    }

    /// What a block comes to.
    pub(super) fn count(&self, rows: &[u64], lengths: &[u64], scratch: &mut Vec<u32>) -> Result<PackCounts> {
        match self.algorithm {
            Algorithm::BestFit if self.second.is_some() => {
                let (block, counts) = self.fitted(rows.to_vec(), lengths, Seeds::default())?;
                Ok(PackCounts { packs: block.packs(), ..counts })
            }
            Algorithm::BestFit | Algorithm::Budget | Algorithm::Padded => {
                scratch.clear();
                scratch.resize(self.units() as usize + 1, 0);
                let put = |_, _, length, count| scratch[self.units_of(length) as usize] += count;
                let counts = self.cut(rows, lengths, put)?;
                let packs = self.fit(runs(scratch), |_, _| {});
                Ok(PackCounts { packs: packs.into(), ..counts })
            }
            Algorithm::Concat => self.concatenated(rows, lengths, |_, _| {}),
            Algorithm::Buckets => {
                let counts = self.cut(rows, lengths, |_, _, _, _| {})?;
                Ok(PackCounts { packs: counts.pieces, ..counts })
            }
        }
    }

    /// Packs a block. Buckets are cut for steps of `step` rows.
    pub(super) fn pack(&self, rows: Vec<u64>, lengths: &[u64], seeds: Seeds, step: u64) -> Result<PackBlock> {
        match self.algorithm {
            Algorithm::BestFit | Algorithm::Budget | Algorithm::Padded => Ok(self.fitted(rows, lengths, seeds)?.0),
            Algorithm::Concat => {
                let mut pieces = Vec::with_capacity(rows.len());
                let mut ends = Vec::new();
                self.concatenated(&rows, lengths, |piece, pack| {
                    pieces.push(piece);
                    let end = pieces.len() as u32;
                    // No pack is begun but for a piece.
                    match ends.get_mut(pack as usize) {
                        Some(known) => *known = end,
                        None => ends.push(end),
                    }
                })?;
                Ok(PackBlock::as_cut(rows, pieces, ends))
            }
            Algorithm::Buckets => self.bucketed(rows, lengths, seeds, step),
        }
    }

    fn too_long(&self, row: u64, length: u64, second: u32) -> Error {
        // Those that `check` allows.
        let policies = match self.algorithm {
            Algorithm::BestFit if self.second.is_some() => "\"drop\"",
            Algorithm::BestFit | Algorithm::Concat => "\"split\", \"truncate\" or \"drop\"",
            Algorithm::Budget | Algorithm::Padded => "\"truncate\" or \"drop\"",
            Algorithm::Buckets => "\"truncate\"",
        };
        let mut message = format!("row {row} has {length} tokens, and a piece at most {}", self.longest());
        if let Some(limit) = self.second {
            message += &format!("; its second number is {second}, and that of a pack at most {limit}");
        }
        Error::invalid(message).with_hint(format!("use a larger capacity, or overflow {policies}"))
    }

    fn most(&self) -> u32 {
        self.max_pieces.unwrap_or(u32::MAX)
    }

    /// Puts pieces into packs, the largest ones first.
    fn fit(&self, runs: impl IntoIterator<Item = (u32, u32)>, put: impl FnMut(u32, u32)) -> u32 {
        let units = self.units();
        let most = self.most();
        match self.algorithm {
            Algorithm::Budget | Algorithm::Padded => {
                next_fit(units, most, self.algorithm == Algorithm::Padded, runs, put)
            }
            Algorithm::BestFit | Algorithm::Concat | Algorithm::Buckets => best_fit(units, most, runs, put),
        }
    }

    fn limit(&self) -> u32 {
        self.second.unwrap_or(u32::MAX)
    }

    fn fitted(&self, rows: Vec<u64>, lengths: &[u64], seeds: Seeds) -> Result<(PackBlock, PackCounts)> {
        let mut cut = Vec::with_capacity(rows.len());
        let mut next = vec![0_u32; self.units() as usize + 1];
        let longest = self.longest();
        let second_of = |at: u32| self.second.map_or(0, |_| (lengths[at as usize] >> 32) as u32);
        // What a piece takes of the limit that it takes more of, in units.
        let share_of = |at, length| match (self.units_of(length) as usize, second_of(at)) {
            (units, 0) => units,
            (units, second) => units.max(second as usize * self.units() as usize / self.limit() as usize),
        };
        let counts = self.cut(&rows, lengths, |at, offset, length, count| {
            next[share_of(at, length)] += count;
            let part = |i| InBlock { offset: offset + u64::from(i) * longest, length: length as u32, at };
            match count {
                1 => cut.push(part(0)),
                _ => cut.extend((0..count).map(part)),
            }
        })?;
        // Which pack each piece is put into, the largest pieces first, those of one size by position.
        let mut places = Vec::with_capacity(cut.len());
        let mut sizes = Vec::new();
        let put = |pack, count| {
            places.extend(iter::repeat_n(pack, count as usize));
            sizes.resize(sizes.len().max(pack as usize + 1), 0_u32);
            sizes[pack as usize] += count;
        };
        let packs = if self.second.is_some() {
            cut.sort_by_key(|piece: &InBlock| Reverse(share_of(piece.at, piece.length.into())));
            let takes = cut.iter().map(|piece| [self.units_of(piece.length.into()), second_of(piece.at), 1]);
            first_fit([self.units(), self.limit(), self.most()], takes, put)
        } else {
            self.fit(runs(&next), put)
        };
        let mut ends = Vec::with_capacity(packs as usize);
        let mut end = 0;
        for pack in seeds.permuted(TAG, packs.into()) {
            let size = &mut sizes[pack as usize];
            (*size, end) = (end, end + *size);
            ends.push(end);
        }
        // From here on, `sizes` has the place of the next piece of each pack, and `places` that of each piece.
        for place in &mut places {
            let of_pack = &mut sizes[*place as usize];
            (*place, *of_pack) = (*of_pack, *of_pack + 1);
        }
        let mut before = 0;
        for count in next.iter_mut().rev() {
            (*count, before) = (before, before + *count);
        }
        let mut sequence = vec![0; cut.len()];
        // Some pieces at a time: were the next number of a size read where it is not yet known which place of the
        // sequence was written last, the processor would wait for that with each piece.
        let mut of_pieces = [0; 64];
        for (first, pieces) in (0..).step_by(of_pieces.len()).zip(cut.chunks(of_pieces.len())) {
            for (number, piece) in of_pieces.iter_mut().zip(pieces) {
                let next = &mut next[share_of(piece.at, piece.length.into())];
                (*number, *next) = (*next, *next + 1);
            }
            for (i, number) in (first..).zip(&of_pieces[..pieces.len()]) {
                sequence[places[*number as usize] as usize] = i;
            }
        }
        shuffle_within(&mut sequence, &ends, seeds);
        Ok((PackBlock { rows, cut, sequence, ends }, counts))
    }

    /// Row after row, cut where a pack is full. `put` is told of each piece and its pack.
    fn concatenated(&self, rows: &[u64], lengths: &[u64], mut put: impl FnMut(InBlock, u64)) -> Result<PackCounts> {
        let mut counts = PackCounts::default();
        let mut left = 0;
        let mut inside = 0;
        for ((at, row), length) in (0..).zip(rows).zip(lengths) {
            let holds = (u64::from(left) * self.multiple).saturating_sub(self.extra);
            // Almost all rows: with tokens, and none too many for what is left of the pack.
            if length.wrapping_sub(1) < holds && inside < self.most() {
                (left, inside) = (left - self.units_of(*length), inside + 1);
                counts.tokens = counts.tokens.saturating_add(*length);
                counts.pieces = check_pieces(counts.pieces + 1)?;
                put(InBlock { offset: 0, length: *length as u32, at }, counts.packs - 1);
                continue;
            }
            let Some(kept) = self.kept(*row, *length, 0, &mut counts)? else { continue };
            let mut offset = 0;
            let before = counts.pieces;
            while counts.pieces == before || offset < kept {
                let holds = (u64::from(left) * self.multiple).saturating_sub(self.extra);
                let fits = if kept > 0 { holds > 0 } else { left >= self.units_of(0) };
                if !fits || inside == self.most() {
                    (left, inside) = (self.units(), 0);
                    counts.packs += 1;
                    continue;
                }
                let length = holds.min(kept - offset);
                (left, inside) = (left - self.units_of(length), inside + 1);
                counts.pieces = check_pieces(counts.pieces + 1)?;
                put(InBlock { offset, length: length as u32, at }, counts.packs - 1);
                offset += length;
            }
            counts.rows_split += u64::from(counts.pieces - before > 1);
        }
        Ok(counts)
    }
}

impl PackBlock {
    /// Pieces that come as they are cut.
    pub(super) fn as_cut(rows: Vec<u64>, cut: Vec<InBlock>, ends: Vec<u32>) -> Self {
        let sequence = (0..cut.len() as u32).collect();
        Self { rows, cut, sequence, ends }
    }

    /// How many packs it has.
    pub(super) fn packs(&self) -> u64 {
        self.ends.len() as u64
    }

    /// How many pieces there are before a pack.
    pub(super) fn start(&self, pack: u64) -> u64 {
        let before = (pack as usize).checked_sub(1);
        before.and_then(|before| self.ends.get(before)).copied().map_or(0, u64::from)
    }

    /// The pack that has a piece.
    pub(super) fn pack_of(&self, piece: u64) -> u64 {
        self.ends.partition_point(|end| u64::from(*end) <= piece) as u64
    }

    /// The pieces from one number up to another one.
    pub(super) fn pieces(&self, numbers: std::ops::Range<u64>) -> impl Iterator<Item = Piece> + '_ {
        let sequence = self.sequence.get(numbers.start as usize..numbers.end as usize).unwrap_or_default();
        sequence.iter().map(|i| {
            let InBlock { offset, length, at } = self.cut[*i as usize];
            Piece { row: self.rows[at as usize], offset, length: length.into() }
        })
    }

    /// The number of the first piece of the row at a position of the block.
    pub(super) fn first_piece_at(&self, at: u64) -> Option<u64> {
        let of_row = (0..).zip(&self.cut).filter(|(_, piece)| u64::from(piece.at) == at);
        let (first, _) = of_row.min_by_key(|(_, piece)| piece.offset)?;
        self.sequence.iter().position(|i| *i == first).map(|number| number as u64)
    }
}

/// The length of a row and its second number as one. What has more than 32 bits is beyond any limit, as the most is.
pub(super) fn two_in_one(length: u64, second: u64) -> u64 {
    let most = u64::from(u32::MAX);
    length.min(most) | second.min(most) << 32
}

/// Sizes and numbers of pieces, the largest size first.
fn runs(counts: &[u32]) -> impl Iterator<Item = (u32, u32)> {
    let counts = counts.iter().enumerate().rev();
    counts.filter(|(_, count)| **count > 0).map(|(size, count)| (size as u32, *count))
}

/// Shuffles the pieces of each pack, by the words of the block one after the other.
fn shuffle_within(pieces: &mut [u32], ends: &[u32], seeds: Seeds) {
    let words = Philox::new(TAG, seeds.seed, seeds.epoch);
    // Words are computed some hundred at a time, which do not wait for each other.
    let mut drawn = [0; 256];
    let mut at = usize::MAX;
    let mut first = seeds.number << 24;
    let mut start = 0;
    for end in ends {
        let pack = &mut pieces[start..*end as usize];
        start = *end as usize;
        for last in (1..pack.len()).rev() {
            if at >= drawn.len() {
                for (number, pair) in (first..).zip(drawn.as_chunks_mut::<2>().0) {
                    *pair = words.words(number);
                }
                (at, first) = (0, first + drawn.len() as u64 / 2);
            }
            pack.swap(last, below(last as u64 + 1, drawn[at]) as usize);
            at += 1;
        }
    }
}

#[inline]
fn check_pieces(pieces: u64) -> Result<u64> {
    if pieces <= Pack::MAX_PIECES { Ok(pieces) } else { Err(too_many(pieces)) }
}

#[cold]
fn too_many(pieces: u64) -> Error {
    let message = format!("a block of positions has {pieces} pieces or more, and {} are possible", Pack::MAX_PIECES);
    Error::new(ErrorKind::TooLarge, message)
        .with_hint("use a smaller block, a larger capacity, or overflow \"truncate\" or \"drop\"")
}
