//! Orders whose epochs are packed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use rowdex_base::error::{Error, ErrorKind, Result};

use super::block::{PackBlock, Seeds};
use super::near::Looked;
use super::sums::{PackSource, PackSums};
use super::{Pack, PackCounts, Piece};
use crate::recent::Recent;
use crate::{EpochOrder, Lengths, Order, Outline, Uses, fingerprint};

/// How many packed blocks an epoch keeps: what is served follows each other, and a batch may begin in one block and end
/// in the next.
const BLOCKS: usize = 4;

/// Other orders, whose rows are put into packs by their lengths.
///
/// The positions of an epoch are its *pieces*, pack after pack. So where a run stands is one number, and how many ranks
/// there are comes last, as it does for rows. Epochs have different numbers of positions; [`len`](Order::len) is that
/// of the orders inside.
///
/// Making an epoch asks for the length of every row, block by block, and keeps how many packs, pieces and tokens each
/// has. A block is packed when a pack of it is asked for. [Buckets](Pack::buckets) need no such plan: each row is a
/// pack, and lengths are asked for window by window. How they are cut, the steps of a sampler decide; by itself, each
/// row is a step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Packed {
    #[serde(with = "crate::shared")]
    orders: Arc<dyn Order>,
    #[serde(with = "crate::shared")]
    lengths: Arc<dyn Lengths>,
    pack: Pack,
    /// Rows of a step, for which buckets are cut.
    step: u64,
    threads: usize,
    fingerprint: u64,
    #[serde(skip)]
    recent: Recent<u64, Arc<PackedEpoch>>,
}

/// One epoch of [`Packed`].
#[derive(Debug)]
pub struct PackedEpoch {
    source: PackSource,
    step: u64,
    /// The fingerprint of the orders, the lengths and the packing.
    seed: u64,
    epoch: u64,
    sums: PackSums,
    recent: Recent<u64, Arc<PackBlock>>,
}

impl Packed {
    /// The rows that `orders` serve, by their `lengths`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` as [`Pack::check`] says, or if the lengths are of another number of rows.
    pub fn new(orders: Arc<dyn Order>, lengths: Arc<dyn Lengths>, pack: Pack) -> Result<Self> {
        pack.check()?;
        let numbers = 1 + u64::from(pack.second.is_some());
        if let Some(rows) = orders.rows().filter(|rows| rows * numbers != lengths.len()) {
            return Err(Error::invalid(format!("{} lengths, and orders of {rows} rows", lengths.len()))
                .with_hint("record the lengths of the same rows as the order serves"));
        }
        let mut parameters = vec![orders.fingerprint(), lengths.fingerprint()];
        parameters.extend(pack.parameters());
        parameters.extend(pack.second.map(u64::from));
        let fingerprint = fingerprint(name_of(&pack), orders.len(), &parameters);
        Ok(Self { orders, lengths, pack, step: 1, threads: 1, fingerprint, recent: Recent::default() })
    }

    /// The same buckets for steps of so many rows on all ranks. What they are for other steps has another fingerprint;
    /// that of a run says nothing of its ranks.
    pub(crate) fn in_steps(&self, rows: u64) -> Self {
        Self {
            pack: self.pack.in_steps(rows),
            step: rows,
            fingerprint: fingerprint("steps of buckets", self.orders.len(), &[self.fingerprint, rows]),
            recent: Recent::default(),
            ..self.clone()
        }
    }

    /// The same, with epochs planned by so many threads.
    #[must_use]
    pub fn with_threads(self, threads: usize) -> Self {
        Self { threads: threads.max(1), ..self }
    }

    /// The orders inside.
    pub fn orders(&self) -> &Arc<dyn Order> {
        &self.orders
    }

    /// The lengths by which rows are packed.
    pub fn lengths(&self) -> &Arc<dyn Lengths> {
        &self.lengths
    }

    /// How rows are packed.
    pub fn pack(&self) -> &Pack {
        &self.pack
    }

    /// One epoch.
    ///
    /// # Errors
    ///
    /// Those of the orders inside and of the lengths; `InvalidArgument` for a row that [`Overflow::Error`] refuses, and
    /// `TooLarge` if a block has more than [`Pack::MAX_PIECES`] pieces.
    ///
    /// [`Overflow::Error`]: super::Overflow::Error
    pub fn packed(&self, epoch: u64) -> Result<Arc<PackedEpoch>> {
        self.recent.get(epoch, || {
            let order = self.orders.epoch(epoch)?;
            let source = PackSource { order, lengths: Arc::clone(&self.lengths), pack: self.pack };
            let sums = if self.pack.is_of_rows() { source.sums_of_rows() } else { source.sums(self.threads)? };
            let recent = Recent::new(BLOCKS);
            Ok(Arc::new(PackedEpoch { source, step: self.step, seed: self.fingerprint, epoch, sums, recent }))
        })
    }
}

fn name_of(pack: &Pack) -> &'static str {
    if pack.is_of_rows() { "buckets" } else { "packed" }
}

impl Order for Packed {
    fn len(&self) -> u64 {
        self.orders.len()
    }

    fn rows(&self) -> Option<u64> {
        self.orders.rows()
    }

    fn epoch_len(&self, epoch: u64) -> Result<u64> {
        if self.pack.is_of_rows() {
            return self.orders.epoch_len(epoch);
        }
        Ok(self.packed(epoch)?.len())
    }

    fn epoch(&self, epoch: u64) -> Result<Arc<dyn EpochOrder>> {
        Ok(self.packed(epoch)?)
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn name(&self) -> &'static str {
        name_of(&self.pack)
    }

    fn outline(&self) -> Outline {
        self.orders.outline()
    }

    fn follows_row_groups(&self) -> bool {
        self.orders.follows_row_groups()
    }
}

impl PackedEpoch {
    /// What it was planned to come to. Of buckets the packs and pieces are told alone.
    pub(crate) fn planned(&self) -> &PackCounts {
        &self.sums.counts
    }

    /// What it comes to. Of buckets, this asks for the length of every row.
    ///
    /// # Errors
    ///
    /// Those of the lengths; `InvalidArgument` for a row that is too long.
    pub fn counts(&self) -> Result<PackCounts> {
        Ok(if self.source.pack.is_of_rows() { self.source.sums(1)?.counts } else { self.sums.counts })
    }

    /// How many packs it has, before any is opened.
    pub fn packs(&self) -> u64 {
        self.sums.counts.packs
    }

    /// The position of the first piece of a pack; the number of pieces from [`packs`](Self::packs) on.
    ///
    /// # Errors
    ///
    /// Those of the lengths.
    pub fn start(&self, pack: u64) -> Result<u64> {
        if pack >= self.packs() {
            return Ok(self.len());
        }
        if self.source.pack.is_of_rows() {
            return Ok(pack);
        }
        let number = self.sums.block_of_pack(pack);
        let (packs, pieces) = self.sums.before(number);
        Ok(if pack == packs { pieces } else { pieces + self.block(number)?.start(pack - packs) })
    }

    /// The pack that has a piece; [`packs`](Self::packs) from [`len`](EpochOrder::len) on.
    ///
    /// # Errors
    ///
    /// Those of the lengths.
    pub fn pack_of(&self, piece: u64) -> Result<u64> {
        if piece >= self.len() {
            return Ok(self.packs());
        }
        if self.source.pack.is_of_rows() {
            return Ok(piece);
        }
        let number = self.sums.block_of_piece(piece);
        let (packs, pieces) = self.sums.before(number);
        Ok(packs + self.block(number)?.pack_of(piece - pieces))
    }

    /// Writes the pieces at positions `first`, `first + 1`, … behind `pieces`: as many as asked for, or fewer where the
    /// epoch ends.
    ///
    /// # Errors
    ///
    /// Those of the lengths.
    pub fn read(&self, first: u64, count: u64, pieces: &mut Vec<Piece>) -> Result<()> {
        let mut at = first;
        let end = first.saturating_add(count).min(self.len());
        while at < end {
            let number = self.sums.block_of_piece(at);
            let start = self.sums.before(number).1;
            let stop = self.sums.before(number + 1).1.min(end);
            pieces.extend(self.block(number)?.pieces(at - start..stop - start));
            at = stop;
        }
        Ok(())
    }

    /// The last pack from `first` on, which begins at `position`, that has to be opened so that there are `more` packs
    /// if all after it are opened wholly; and how many pieces have to be taken out of it. The caller knows that there
    /// are so many pieces.
    pub(crate) fn opened(&self, first: u64, position: u64, more: u64) -> Result<(u64, u64)> {
        let packs = self.packs();
        let len = self.len();
        let gain = |pack: u64, start: u64| (len - start).saturating_sub(packs - pack);
        let number = self.sums.last_block(|packs, pieces| gain(packs, pieces) >= more);
        let mut from = self.sums.before(number).0.max(first);
        let mut to = self.sums.before(number + 1).0;
        let gain = |pack: u64| Ok::<_, Error>(gain(pack, if pack == first { position } else { self.start(pack)? }));
        // The pack is at `from` or after, and before `to`.
        while from + 1 < to {
            let middle = from + (to - from) / 2;
            match gain(middle)? >= more {
                true => from = middle,
                false => to = middle,
            }
        }
        Ok((from, more.saturating_sub(gain(from + 1)?)))
    }

    fn block(&self, number: u64) -> Result<Arc<PackBlock>> {
        self.recent.get(number, || {
            let mut looked = Looked::default();
            self.source.read(number..number + 1, &mut looked)?;
            let seeds = Seeds { seed: self.seed, epoch: self.epoch, number };
            let block = self.source.pack.pack(looked.rows, &looked.lengths, seeds, self.step)?;
            let before = self.sums.before(number);
            let after = self.sums.before(number + 1);
            if (before.0 + block.packs(), before.1 + block.start(block.packs())) != after {
                let message =
                    format!("block {number} of epoch {} has other packs than when it was planned", self.epoch);
                return Err(Error::new(ErrorKind::Internal, message)
                    .with_hint("the lengths or the order changed meanwhile: plan the epoch again"));
            }
            Ok(Arc::new(block))
        })
    }
}

impl EpochOrder for PackedEpoch {
    fn len(&self) -> u64 {
        self.sums.counts.pieces
    }

    /// `None` for a piece that exists, too, if lengths can not be read. [`read`](Self::read) says why.
    fn row(&self, position: u64) -> Option<u64> {
        if position >= self.len() {
            return None;
        }
        let number = self.sums.block_of_piece(position);
        let piece = position - self.sums.before(number).1;
        Some(self.block(number).ok()?.pieces(piece..piece + 1).next()?.row)
    }

    /// The position of the row's first piece.
    fn position(&self, row: u64) -> Option<u64> {
        let PackSource { order, pack, .. } = &self.source;
        let inside = order.position(row)?;
        let last = pack.blocks(order.len()).checked_sub(1)?;
        let number = (inside / pack.block).min(last);
        let first = self.block(number).ok()?.first_piece_at(inside - number * pack.block)?;
        Some(self.sums.before(number).1 + first)
    }

    fn uses(&self) -> Uses {
        match self.source.order.uses() {
            Uses::Any => Uses::Any,
            _ if self.sums.counts.rows_split > 0 => Uses::Any,
            _ => Uses::AtMostOnce,
        }
    }
}
