//! Integers stored as the differences between them (`DELTA_BINARY_PACKED`).

use bytes::Bytes;

use super::hybrid::{BLOCK, packed, unpacker};
use crate::errors::damaged;
use crate::thrift::ThriftReader;
use rowdex_base::error::{Error, Result};

/// Integers of 64 bits, or of 32 if they are cut to those, from front to back.
#[derive(Debug, Clone)]
pub(super) struct Delta<B = Bytes> {
    bytes: B,
    bits: u32,
    /// Behind what was read: the header of a block, or the packed values of a mini block.
    pub(super) at: usize,
    minis_in_block: usize,
    values_in_mini: usize,
    /// Values that are left, the first of all among them.
    pub(super) left: usize,
    is_first: bool,
    last: i64,
    smallest: i64,
    /// Where the widths of the block's mini blocks are, and which mini block comes next.
    widths: usize,
    next_mini: usize,
    mini: Mini,
}

/// Differences packed into bits.
#[derive(Debug, Clone, Copy, Default)]
struct Mini {
    start: usize,
    width: u32,
    next: usize,
    left: usize,
}

fn broken() -> Error {
    damaged("has delta-encoded integers that do not make sense")
}

impl<B: AsRef<[u8]>> Delta<B> {
    /// The integers of a page, of which all that is written fits into `bits` bits. Not so for values of 32 bits that
    /// DuckDB writes, whose differences take up to 33: they are read with 64, and cut.
    pub(super) fn new(bytes: B, bits: u32) -> Result<Self> {
        let mut reader = ThriftReader::new(bytes.as_ref());
        // As the parquet crate does, which takes them for signed ones.
        let mut number = || {
            let number = reader.varint().and_then(|number| i64::try_from(number).ok());
            number.and_then(|number| usize::try_from(number).ok()).ok_or_else(broken)
        };
        let block = number()?;
        let minis = number()?;
        let left = number()?;
        let last = reader.zigzag().filter(|value| fits(*value, bits)).ok_or_else(broken)?;
        let at = reader.at();
        let values_in_mini = block.checked_div(minis).ok_or_else(broken)?;
        // A difference takes no bits where all are alike, so a block of any length takes no more bytes than its widths.
        // The first value is in the header: a page of one value or none has no block.
        let too_many = left > 1 && minis > bytes.as_ref().len();
        if block == 0 || block % 128 != 0 || block % minis != 0 || values_in_mini % 32 != 0 || too_many {
            return Err(broken());
        }
        Ok(Self {
            bytes,
            bits,
            at,
            minis_in_block: minis,
            values_in_mini,
            left,
            is_first: true,
            last,
            smallest: 0,
            widths: 0,
            next_mini: minis,
            mini: Mini::default(),
        })
    }

    /// Hands over the next `count` values.
    pub(super) fn each(&mut self, mut count: usize, mut take: impl FnMut(&[i64])) -> Result<()> {
        if count > self.left {
            return Err(damaged("has fewer values than its pages declare"));
        }
        if count == 0 {
            return Ok(());
        }
        self.left -= count;
        if std::mem::take(&mut self.is_first) {
            take(&[self.last]);
            count -= 1;
        }
        let mut block = [0; BLOCK];
        let mut values = [0; BLOCK];
        while count > 0 {
            if self.mini.left == 0 {
                self.next_mini(count + self.left)?;
                continue;
            }
            let Mini { start, width, next, left } = self.mini;
            let here = count.min(left).min(BLOCK - next % BLOCK);
            let whole = start + next / BLOCK * 4 * width as usize;
            let whole =
                self.bytes.as_ref().get(whole..whole + 4 * width as usize).filter(|_| here == BLOCK && width <= 32);
            match whole {
                Some(whole) => {
                    unpacker(width)(whole, &mut block);
                    values.iter_mut().zip(&block).for_each(|(value, delta)| *value = i64::from(*delta));
                }
                None => {
                    let bits = (next + here).saturating_mul(width as usize);
                    let bytes = self.bytes.as_ref().get(start..).unwrap_or_default();
                    if bits > bytes.len().saturating_mul(8) {
                        return Err(broken());
                    }
                    for (place, value) in values[..here].iter_mut().enumerate() {
                        *value = wide(bytes, width, next + place) as i64;
                    }
                }
            }
            for value in &mut values[..here] {
                self.last = self.last.wrapping_add(self.smallest).wrapping_add(*value);
                *value = self.last;
            }
            take(&values[..here]);
            self.mini.next += here;
            self.mini.left -= here;
            count -= here;
        }
        Ok(())
    }

    /// Goes on to the next mini block, where so many values are left to be read of the page.
    fn next_mini(&mut self, left: usize) -> Result<()> {
        if self.next_mini == self.minis_in_block {
            let mut reader = ThriftReader::new(self.bytes.as_ref().get(self.at..).unwrap_or_default());
            self.smallest = reader.zigzag().filter(|value| fits(*value, self.bits)).ok_or_else(broken)?;
            self.widths = self.at + reader.at();
            reader.skip(self.minis_in_block as u64).ok_or_else(broken)?;
            self.at += reader.at();
            self.next_mini = 0;
        }
        let width = u32::from(*self.bytes.as_ref().get(self.widths + self.next_mini).ok_or_else(broken)?);
        if width > self.bits {
            return Err(broken());
        }
        self.mini = Mini { start: self.at, width, next: 0, left: self.values_in_mini.min(left) };
        let length = (self.values_in_mini / 8).saturating_mul(width as usize);
        let here = self.bytes.as_ref().len() - self.at;
        // Some writers cut the last mini block off, just behind its last value.
        if here < length && here != self.mini.left.saturating_mul(width as usize).div_ceil(8) {
            return Err(broken());
        }
        self.at += length.min(here);
        self.next_mini += 1;
        Ok(())
    }
}

fn fits(value: i64, bits: u32) -> bool {
    bits == 64 || i32::try_from(value).is_ok()
}

/// The value at place `at` of those packed into so many bits each, at most 64.
fn wide(bytes: &[u8], width: u32, at: usize) -> u64 {
    if width <= 57 {
        return packed(bytes, width, at);
    }
    let bit = at * width as usize;
    let mut word = [0; 16];
    let bytes = bytes.get(bit / 8..).unwrap_or_default();
    let bytes = &bytes[..bytes.len().min(16)];
    word[..bytes.len()].copy_from_slice(bytes);
    let value = (u128::from_le_bytes(word) >> (bit % 8)) as u64;
    if width == 64 { value } else { value & ((1 << width) - 1) }
}

/// Bytes of all values of a delta-encoded page of strings; `None` if their lengths do not make sense. `values` is how
/// many the page declares.
pub(crate) fn spelled_out(data: &[u8], values: u64, prefixed: bool) -> Option<u64> {
    let sum = |lengths: &[u32]| lengths.iter().map(|length| u64::from(*length)).sum::<u64>();
    let (first, at) = lengths(data, values)?;
    if !prefixed {
        return Some(sum(&first));
    }
    let (rest, _) = lengths(data.get(at..)?, values)?;
    let mut last = 0_u64;
    let fits = first.iter().zip(&rest).all(|(prefix, length)| {
        let before = std::mem::replace(&mut last, u64::from(*prefix) + u64::from(*length));
        u64::from(*prefix) <= before
    });
    (fits && first.len() == rest.len()).then(|| sum(&first) + sum(&rest))
}

/// Lengths of values, and where what follows them begins; `None` if they are malformed, negative, or more than `most`.
pub(super) fn lengths(data: &[u8], most: u64) -> Option<(Vec<u32>, usize)> {
    let mut delta = Delta::new(data, i32::BITS).ok().filter(|delta| delta.left as u64 <= most)?;
    let count = delta.left;
    let mut lengths = Vec::with_capacity(count);
    let mut are_sound = true;
    let take = |numbers: &[i64]| {
        // The decoder's arithmetic is of 32 bits, and wraps.
        are_sound &= numbers.iter().all(|number| (*number as i32) >= 0);
        lengths.extend(numbers.iter().map(|number| *number as u32));
    };
    delta.each(count, take).ok()?;
    are_sound.then_some((lengths, delta.at))
}
