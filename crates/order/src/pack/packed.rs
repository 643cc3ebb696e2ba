//! Orders whose epochs are packed.

use std::sync::{Arc, Mutex};
use std::thread;

use rowdex_base::error::{Error, ErrorKind, Result};

use super::block::{PackBlock, Seeds};
use super::sums::{Looked, PackSource, PackSums};
use super::{Pack, PackCounts, Piece};
use crate::{EpochOrder, Lengths, Order, Outline, Uses, fingerprint, reachable};

/// How many packed blocks an epoch keeps: what is served follows each other, and a batch may begin in one block and end
/// in the next.
const BLOCKS: usize = 4;

/// How many epochs are kept: while one is served, the next one is planned.
const EPOCHS: usize = 2;

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
#[derive(Debug)]
pub struct Packed {
    orders: Arc<dyn Order>,
    lengths: Arc<dyn Lengths>,
    pack: Pack,
    /// Rows of a step, for which buckets are cut.
    step: u64,
    threads: usize,
    fingerprint: u64,
    recent: Mutex<Vec<Arc<PackedEpoch>>>,
}

/// One epoch of [`Packed`].
#[derive(Debug)]
pub struct PackedEpoch {
    order: Arc<dyn EpochOrder>,
    lengths: Arc<dyn Lengths>,
    pack: Pack,
    step: u64,
    sums: PackSums,
    recent: Mutex<Vec<(u64, Arc<PackBlock>)>>,
}

impl Packed {
    const VERSION: u64 = 1;

    /// The rows that `orders` serve, by their `lengths`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` as [`Pack::check`] says, or if the lengths are of another number of rows.
    pub fn new(orders: Arc<dyn Order>, lengths: Arc<dyn Lengths>, pack: Pack) -> Result<Self> {
        pack.check()?;
        if let Some(rows) = orders.rows().filter(|rows| *rows != lengths.len()) {
            let message = format!("lengths of {} rows, and orders of {rows} rows", lengths.len());
            return Err(Error::new(ErrorKind::InvalidArgument, message)
                .with_hint("note the lengths of the same rows as the order serves"));
        }
        let [a, b, c, d, e, f, g, h] = pack.parameters();
        let parameters = [orders.fingerprint(), lengths.fingerprint(), a, b, c, d, e, f, g, h];
        let fingerprint = fingerprint(name_of(&pack), Self::VERSION, orders.len(), &parameters);
        Ok(Self { orders, lengths, pack, step: 1, threads: 1, fingerprint, recent: Mutex::default() })
    }

    /// The same buckets for steps of so many rows on all ranks. What they are for other steps has another fingerprint;
    /// that of a run says nothing of its ranks.
    pub(crate) fn in_steps(&self, rows: u64) -> Self {
        let parameters = [self.fingerprint, rows];
        let fingerprint = fingerprint("steps of buckets", Self::VERSION, self.orders.len(), &parameters);
        Self {
            orders: Arc::clone(&self.orders),
            lengths: Arc::clone(&self.lengths),
            pack: self.pack.in_steps(rows),
            step: rows,
            threads: self.threads,
            fingerprint,
            recent: Mutex::default(),
        }
    }

    /// The same, with epochs planned by so many threads.
    #[must_use]
    pub fn with_threads(self, threads: usize) -> Self {
        Self { threads: threads.max(1), ..self }
    }

    /// How many threads plan an epoch.
    pub(crate) fn threads(&self) -> usize {
        self.threads
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
        if let Some(held) = self.held(epoch) {
            return Ok(held);
        }
        let order = self.orders.epoch(epoch)?;
        if self.pack.is_of_rows() {
            let sums = PackSums::of_rows(order.len(), &self.pack, self.fingerprint, epoch);
            return Ok(self.hold(order, sums));
        }
        let source = PackSource { order: &*order, lengths: &*self.lengths, pack: &self.pack };
        let sums = PackSums::of(source, self.threads, self.fingerprint, epoch)?;
        Ok(self.hold(order, sums))
    }

    /// Does not wait for long, as a process may have been forked while another thread had the slot: whoever finds it
    /// taken again and again plans an epoch of its own.
    fn held(&self, epoch: u64) -> Option<Arc<PackedEpoch>> {
        let tries = (0..1000).map(|_| {
            let recent = self.recent.try_lock();
            if recent.is_err() {
                thread::yield_now();
            }
            recent
        });
        let recent = tries.into_iter().find_map(std::result::Result::ok)?;
        recent.iter().find(|held| held.sums.epoch == epoch).cloned()
    }

    fn hold(&self, order: Arc<dyn EpochOrder>, sums: PackSums) -> Arc<PackedEpoch> {
        let epoch = Arc::new(PackedEpoch {
            order,
            lengths: Arc::clone(&self.lengths),
            pack: self.pack,
            step: self.step,
            sums,
            recent: Mutex::default(),
        });
        if let Ok(mut recent) = self.recent.try_lock() {
            recent.insert(0, Arc::clone(&epoch));
            recent.truncate(EPOCHS);
        }
        epoch
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
    /// The sums of its blocks.
    pub(crate) fn sums(&self) -> &PackSums {
        &self.sums
    }

    /// What it comes to. Of buckets, this asks for the length of every row.
    ///
    /// # Errors
    ///
    /// Those of the lengths; `InvalidArgument` for a row that is too long.
    pub fn counts(&self) -> Result<PackCounts> {
        if !self.pack.is_of_rows() {
            return Ok(*self.sums.counts());
        }
        let source = PackSource { order: &*self.order, lengths: &*self.lengths, pack: &self.pack };
        Ok(*PackSums::of(source, 1, self.sums.fingerprint, self.sums.epoch)?.counts())
    }

    /// How many packs it has, before any is opened.
    pub fn packs(&self) -> u64 {
        self.sums.counts().packs
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
        if self.pack.is_of_rows() {
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
        if self.pack.is_of_rows() {
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

    fn seeds(&self) -> Seeds {
        Seeds { seed: self.sums.fingerprint, epoch: self.sums.epoch }
    }

    /// Never waits: whoever finds the slot taken packs the block once more.
    fn block(&self, number: u64) -> Result<Arc<PackBlock>> {
        if let Ok(mut recent) = self.recent.try_lock()
            && let Some(at) = recent.iter().position(|(held, _)| *held == number)
        {
            recent[..=at].rotate_right(1);
            return Ok(Arc::clone(&recent[0].1));
        }
        let source = PackSource { order: &*self.order, lengths: &*self.lengths, pack: &self.pack };
        let mut looked = Looked::default();
        source.read(number..number + 1, &mut looked)?;
        let block = Arc::new(self.pack.pack(looked.rows, &looked.lengths, self.seeds(), number, self.step)?);
        let before = self.sums.before(number);
        let after = self.sums.before(number + 1);
        if (before.0 + block.packs(), before.1 + block.start(block.packs())) != after {
            let message =
                format!("block {number} of epoch {} has other packs than when it was planned", self.seeds().epoch);
            return Err(Error::new(ErrorKind::Internal, message)
                .with_hint("the lengths or the order changed meanwhile: plan the epoch again"));
        }
        if let Ok(mut recent) = self.recent.try_lock() {
            recent.insert(0, (number, Arc::clone(&block)));
            recent.truncate(BLOCKS);
        }
        Ok(block)
    }
}

impl EpochOrder for PackedEpoch {
    fn len(&self) -> u64 {
        self.sums.counts().pieces
    }

    /// `None` for a piece that exists, too, if lengths can not be read. [`read`](Self::read) says why.
    fn row(&self, position: u64) -> Option<u64> {
        let mut rows = [0];
        (self.fill(position, &mut rows) == 1).then_some(rows[0])
    }

    /// The position of the row's first piece.
    fn position(&self, row: u64) -> Option<u64> {
        let inside = self.order.position(row)?;
        let last = self.pack.blocks(self.order.len()).checked_sub(1)?;
        let number = (inside / self.pack.block).min(last);
        let first = self.block(number).ok()?.first_piece_at(inside - number * self.pack.block)?;
        Some(self.sums.before(number).1 + first)
    }

    fn uses(&self) -> Uses {
        match self.order.uses() {
            Uses::Any => Uses::Any,
            _ if self.sums.counts().rows_split > 0 => Uses::Any,
            _ => Uses::AtMostOnce,
        }
    }

    fn fill_strided(&self, first: u64, stride: u64, rows: &mut [u64]) -> usize {
        let count = reachable(first, stride, self.len(), rows.len());
        let mut held = None::<(u64, u64, Arc<PackBlock>)>;
        for (i, slot) in rows[..count].iter_mut().enumerate() {
            let at = first + i as u64 * stride;
            if held.as_ref().is_none_or(|(start, end, _)| !(*start..*end).contains(&at)) {
                let number = self.sums.block_of_piece(at);
                let Ok(block) = self.block(number) else { return i };
                held = Some((self.sums.before(number).1, self.sums.before(number + 1).1, block));
            }
            let Some((start, _, block)) = &held else { return i };
            let Some(piece) = block.pieces(at - start..at - start + 1).next() else { return i };
            *slot = piece.row;
        }
        count
    }
}
