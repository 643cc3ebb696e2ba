//! Runs of small integers: the hybrid of repeated and bit-packed values that levels and references to dictionaries
//! have.

use bytes::Bytes;

use crate::errors::damaged;
use crate::thrift::ThriftReader;
use rowdex_base::error::Result;

/// Integers of up to 32 bits, from front to back.
#[derive(Debug, Clone)]
pub(super) struct Hybrid<B = Bytes> {
    bytes: B,
    /// Where the next run begins.
    at: usize,
    width: u32,
    run: HybridRun,
}

#[derive(Debug, Clone, Copy)]
enum HybridRun {
    Repeated {
        value: u32,
        left: usize,
    },
    /// Values packed from the byte `start` on, of which `first` is the next.
    Packed {
        start: usize,
        first: usize,
        left: usize,
    },
}

/// Values that follow each other.
#[derive(Debug, Clone, Copy)]
pub(super) enum HybridPiece<'a> {
    /// One value, so many times.
    Repeated(u32, usize),
    Packed(BitPacked<'a>),
}

/// Values packed into bits.
#[derive(Debug, Clone, Copy)]
pub(super) struct BitPacked<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) width: u32,
    /// How many values lie before these.
    pub(super) first: usize,
    pub(super) count: usize,
}

impl<B: AsRef<[u8]>> Hybrid<B> {
    /// The values of `width` bits, at most 32.
    pub(super) fn new(bytes: B, width: u32) -> Result<Self> {
        if width > 32 {
            return Err(damaged(format!("has integers of {width} bits")));
        }
        Ok(Self { bytes, at: 0, width, run: HybridRun::Repeated { value: 0, left: 0 } })
    }

    /// Levels of which this is the highest that there can be.
    pub(super) fn of_levels(bytes: B, highest: u32) -> Result<Self> {
        Self::new(bytes, u32::BITS - u32::leading_zeros(highest))
    }

    /// Hands over the next `count` values, piece by piece.
    ///
    /// # Errors
    /// If there are fewer, and whatever `take` reports.
    pub(super) fn each(&mut self, mut count: usize, mut take: impl FnMut(HybridPiece<'_>) -> Result<()>) -> Result<()> {
        while count > 0 {
            let taken = match &mut self.run {
                HybridRun::Repeated { left: 0, .. } | HybridRun::Packed { left: 0, .. } => {
                    self.next_run()?;
                    continue;
                }
                HybridRun::Repeated { value, left } => {
                    let taken = count.min(*left);
                    take(HybridPiece::Repeated(*value, taken))?;
                    *left -= taken;
                    taken
                }
                HybridRun::Packed { start, first, left } => {
                    let taken = count.min(*left);
                    let bytes = self.bytes.as_ref().get(*start..).unwrap_or_default();
                    take(HybridPiece::Packed(BitPacked { bytes, width: self.width, first: *first, count: taken }))?;
                    *first += taken;
                    *left -= taken;
                    taken
                }
            };
            count -= taken;
        }
        Ok(())
    }

    pub(super) fn skip(&mut self, count: usize) -> Result<()> {
        self.each(count, |_| Ok(()))
    }

    /// The next value and how often it is repeated, if it is, without going on.
    pub(super) fn repeated(&mut self) -> Result<Option<(u32, usize)>> {
        if matches!(self.run, HybridRun::Repeated { left: 0, .. } | HybridRun::Packed { left: 0, .. }) {
            self.next_run()?;
        }
        Ok(match self.run {
            HybridRun::Repeated { value, left } => Some((value, left)),
            HybridRun::Packed { .. } => None,
        })
    }

    fn next_run(&mut self) -> Result<()> {
        let short = || damaged("has fewer levels or references than its pages declare");
        // Some writers pad a page with zeros, and no run is of no values: what looks like one is no header of a run.
        let mut reader = ThriftReader::new(self.bytes.as_ref().get(self.at..).unwrap_or_default());
        let header = reader.varint().filter(|header| header >> 1 != 0).ok_or_else(short)?;
        self.at += reader.at();
        let count = usize::try_from(header >> 1).map_err(|_| short())?;
        if header & 1 == 0 {
            let bytes = self.width.div_ceil(8) as usize;
            let value = self.bytes.as_ref().get(self.at..self.at + bytes).ok_or_else(short)?;
            let mut word = [0; 4];
            word[..bytes].copy_from_slice(value);
            self.at += bytes;
            self.run = HybridRun::Repeated { value: u32::from_le_bytes(word), left: count };
            return Ok(());
        }
        let start = self.at;
        let here = self.bytes.as_ref().len() - start;
        // Eight values take as many bytes as each has bits. Some writers cut the last eight of a page off behind the
        // last value. A run that lacks more than that is damaged, and what follows it are not its values.
        let declared = count.saturating_mul(self.width as usize);
        if self.width > 0 && declared.saturating_sub(here) >= self.width as usize {
            return Err(short());
        }
        let bytes = declared.min(here);
        let values = count.saturating_mul(8);
        let left = (bytes * 8).checked_div(self.width as usize).map_or(values, |whole| values.min(whole));
        self.at += bytes;
        self.run = HybridRun::Packed { start, first: 0, left };
        Ok(())
    }
}

/// Values that are unpacked together.
pub(super) const BLOCK: usize = 32;

impl BitPacked<'_> {
    /// Hands over the values, as many at a time as are unpacked together, or fewer.
    pub(super) fn each(self, mut take: impl FnMut(&[u32]) -> Result<()>) -> Result<()> {
        let mut block = [0; BLOCK];
        let mut at = self.first;
        let end = self.first + self.count;
        let unpack = unpacker(self.width);
        let bytes = self.width as usize * BLOCK / 8;
        while at < end {
            let whole = if at.is_multiple_of(BLOCK) && end - at >= BLOCK {
                let start = at / BLOCK * bytes;
                self.bytes.get(start..start + bytes)
            } else {
                None
            };
            let count = match whole {
                Some(whole) => {
                    unpack(whole, &mut block);
                    BLOCK
                }
                None => {
                    let count = (end - at).min(BLOCK - at % BLOCK);
                    for (place, value) in block[..count].iter_mut().enumerate() {
                        *value = packed(self.bytes, self.width, at + place) as u32;
                    }
                    count
                }
            };
            take(&block[..count])?;
            at += count;
        }
        Ok(())
    }
}

/// The value at place `at` of those packed into so many bits each, at most 57.
pub(super) fn packed(bytes: &[u8], width: u32, at: usize) -> u64 {
    let bit = at * width as usize;
    let bytes = bytes.get(bit / 8..).unwrap_or_default();
    let word = match bytes.first_chunk() {
        Some(word) => *word,
        None => {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            word
        }
    };
    (u64::from_le_bytes(word) >> (bit % 8)) & ((1 << width) - 1)
}

/// What unpacks a block of values of so many bits, at most 32.
pub(super) fn unpacker(width: u32) -> fn(&[u8], &mut [u32; BLOCK]) {
    macro_rules! by_width {
        ($($width:literal)*) => {
            match width {
                $($width => block::<$width>,)*
                _ => |_, values| values.fill(0),
            }
        };
    }
    by_width!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32)
}

/// Unpacks a block of values of `W` bits each.
fn block<const W: usize>(bytes: &[u8], values: &mut [u32; BLOCK]) {
    let mut words = [0u32; W];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    // Written out value by value: all places and shifts are constants then.
    macro_rules! each {
        ($($place:literal)*) => { $(values[$place] = value::<W, $place>(&words);)* };
    }
    each!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
}

#[inline(always)]
fn value<const W: usize, const PLACE: usize>(words: &[u32; W]) -> u32 {
    let word = PLACE * W / 32;
    let shift = PLACE * W % 32;
    let low = words[word] >> shift;
    let value = if shift + W > 32 { low | words[word + 1] << (32 - shift) } else { low };
    if W == 32 { value } else { value & ((1 << (W % 32)) - 1) }
}
