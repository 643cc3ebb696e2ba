//! The levels of a page: which values are there, and where lists begin.

use std::ops::Range;

use arrow_array::builder::BooleanBufferBuilder;
use arrow_buffer::{BooleanBuffer, NullBuffer};

use super::hybrid::{BitPacked, Hybrid, HybridPiece};
use crate::errors::damaged;
use rowdex_base::error::{Error, Result};

/// The definition levels of one page.
#[derive(Debug)]
pub(super) enum Definitions {
    /// Every level is the highest: nothing is null, and no list empty.
    Full,
    /// For every level above 0, which of the page's entries reach it.
    Mixed(Vec<BooleanBuffer>),
}

impl Definitions {
    /// The levels of `count` entries, none above `highest`.
    pub(super) fn new(bytes: &[u8], count: usize, highest: i16) -> Result<Self> {
        if highest <= 0 {
            return Ok(Self::Full);
        }
        let highest = highest.unsigned_abs().into();
        let mut levels = Hybrid::of_levels(bytes, highest)?;
        // Where nothing is null there is one run.
        if count == 0 || levels.repeated()?.is_some_and(|(value, times)| value == highest && times >= count) {
            return Ok(Self::Full);
        }
        let mut reached: Vec<_> = (0..highest).map(|_| BooleanBufferBuilder::new(count)).collect();
        levels.each(count, |piece| match piece {
            HybridPiece::Repeated(value, _) if value > highest => Err(too_high(value)),
            HybridPiece::Repeated(value, times) => {
                reached.iter_mut().zip(1..).for_each(|(reached, level)| reached.append_n(times, value >= level));
                Ok(())
            }
            HybridPiece::Packed(packed) => match &mut reached[..] {
                [reached] => {
                    reached.append_packed_range(packed.first..packed.first + packed.count, packed.bytes);
                    Ok(())
                }
                reached => by_level(packed, reached, highest),
            },
        })?;
        let reached: Vec<_> = reached.into_iter().map(|mut reached| reached.finish()).collect();
        Ok(if reached.last().is_none_or(|full| !full.has_false()) { Self::Full } else { Self::Mixed(reached) })
    }

    /// Which entries reach a level; `None` if all do.
    pub(super) fn reaching(&self, level: i16) -> Option<&BooleanBuffer> {
        match self {
            Self::Full => None,
            Self::Mixed(reached) => reached.get(usize::try_from(level).ok()?.checked_sub(1)?),
        }
    }

    /// How many of these entries are values: those of the highest level.
    pub(super) fn values(&self, entries: Range<usize>) -> usize {
        match self {
            Self::Full => entries.len(),
            Self::Mixed(reached) => {
                reached.last().map_or(entries.len(), |full| full.slice(entries.start, entries.len()).count_set_bits())
            }
        }
    }
}

fn too_high(level: u32) -> Error {
    damaged(format!("has a level of {level}"))
}

fn by_level(packed: BitPacked<'_>, reached: &mut [BooleanBufferBuilder], highest: u32) -> Result<()> {
    packed.each(|values| {
        if let Some(value) = values.iter().find(|value| **value > highest) {
            return Err(too_high(*value));
        }
        for (reached, level) in reached.iter_mut().zip(1..) {
            let bit = |word: u64, (place, value): (usize, &u32)| word | u64::from(*value >= level) << place;
            reached.append_word(values.iter().enumerate().fold(0, bit), values.len());
        }
        Ok(())
    })
}

/// Hands over levels, none above `highest`, and how often each is repeated.
pub(super) fn each_level(bytes: &[u8], count: usize, highest: u32, mut take: impl FnMut(u32, usize)) -> Result<()> {
    let mut take = |level: u32, times: usize| {
        take(level, times);
        if level > highest { Err(too_high(level)) } else { Ok(()) }
    };
    Hybrid::of_levels(bytes, highest)?.each(count, |piece| match piece {
        HybridPiece::Repeated(level, times) => take(level, times),
        HybridPiece::Packed(packed) => packed.each(|levels| levels.iter().try_for_each(|level| take(*level, 1))),
    })
}

/// Where the lists of a page begin: the places of the repetition levels that are 0, where none is above 1.
pub(super) fn starts(bytes: &[u8], count: usize) -> Result<Vec<u32>> {
    let mut starts = Vec::new();
    let mut at = 0_usize;
    Hybrid::new(bytes, 1)?.each(count, |piece| {
        match piece {
            HybridPiece::Repeated(0, times) => starts.extend((at..at + times).map(|place| place as u32)),
            HybridPiece::Repeated(1, _) => {}
            HybridPiece::Repeated(value, _) => return Err(too_high(value)),
            HybridPiece::Packed(packed) => {
                let bits = BooleanBuffer::from_bits(packed.bytes, packed.first, packed.count);
                let mut place = at;
                // A bit of 0 is a start.
                let words = bits.bit_chunks();
                let mut zeros = |mut word: u64| {
                    while word != 0 {
                        starts.push(place as u32 + word.trailing_zeros());
                        word &= word - 1;
                    }
                    place += 64;
                };
                words.iter().for_each(|word| zeros(!word));
                zeros(!words.remainder_bits() & ((1 << words.remainder_len()) - 1));
            }
        }
        at += match piece {
            HybridPiece::Repeated(_, times) => times,
            HybridPiece::Packed(packed) => packed.count,
        };
        Ok(())
    })?;
    Ok(starts)
}

/// Which of the entries that were kept are there.
#[derive(Debug)]
pub(super) struct Validity {
    /// Bits of all entries once one is missing.
    bits: Option<BooleanBufferBuilder>,
    len: usize,
}

impl Validity {
    pub(super) fn new() -> Self {
        Self { bits: None, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds entries, which are all there or all missing.
    pub(super) fn append_n(&mut self, count: usize, there: bool) {
        if !there && count > 0 {
            self.bits();
        }
        if let Some(bits) = &mut self.bits {
            bits.append_n(count, there);
        }
        self.len += count;
    }

    /// Adds these entries, of those that `there` says of which are there; `None` if all are.
    pub(super) fn append(&mut self, there: Option<&BooleanBuffer>, entries: Range<usize>) {
        let Some(there) = there else { return self.append_n(entries.len(), true) };
        let first = there.offset() + entries.start;
        let count = entries.len();
        self.bits().append_packed_range(first..first + count, there.values());
        self.len += count;
    }

    fn bits(&mut self) -> &mut BooleanBufferBuilder {
        let len = self.len;
        self.bits.get_or_insert_with(|| {
            let mut bits = BooleanBufferBuilder::new(len + 64);
            bits.append_n(len, true);
            bits
        })
    }

    /// What was added since the last time; `None` if everything is there.
    pub(super) fn finish(&mut self) -> Option<NullBuffer> {
        self.len = 0;
        let bits = self.bits.take()?.finish();
        Some(NullBuffer::new(bits)).filter(|nulls| nulls.null_count() > 0)
    }
}
