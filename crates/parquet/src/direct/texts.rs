//! Strings and binary values, with offsets.

use std::fmt::Debug;

use arrow_array::{ArrayRef, GenericBinaryArray, GenericStringArray, OffsetSizeTrait};
use arrow_buffer::{BooleanBuffer, Buffer, OffsetBuffer, ScalarBuffer};
use bytes::Bytes;
use parquet::basic::Encoding;

use super::delta::lengths;
use super::hybrid::{Hybrid, HybridPiece};
use super::values::{ColumnValues, ValueNulls, beyond, no_dictionary, references, short, unknown, unspread};
use crate::errors::{ASK_FOR_LESS, beyond_offsets, cannot_be, damaged, too_large};
use rowdex_base::error::Result;

/// Values of any length.
#[derive(Debug)]
pub(super) struct TextValues<O> {
    is_text: bool,
    dictionary: Option<TextDictionary>,
    page: TextPage,
    /// Where each value that was kept begins, and the end of all.
    offsets: Vec<O>,
    data: Vec<u8>,
    /// Values that are still expected, nulls included.
    expected: usize,
    /// References of the values that are being read, kept for their memory.
    references: Vec<u32>,
    /// The values of a dictionary may not take more bytes than this when they are spelled out.
    limit: u64,
}

#[derive(Debug)]
struct TextDictionary {
    bytes: Bytes,
    /// Place and length of each value.
    values: Vec<(u32, u32)>,
}

/// Values of a page that were not read yet.
#[derive(Debug)]
enum TextPage {
    /// Each value behind its length.
    Plain(Bytes),
    /// The values follow each other, and their lengths are known.
    Lengths {
        lengths: Vec<u32>,
        next: usize,
        bytes: Bytes,
    },
    Dictionary(Hybrid),
}

/// Room that is made for values that were not seen yet, at most, before there are as many bytes.
const MOST_AHEAD: usize = 64 << 20;

/// Bytes that are copied at once where a value is no longer: one instruction instead of a call.
const SHORT: usize = 16;

impl<O: OffsetSizeTrait> TextValues<O> {
    pub(super) fn new(is_text: bool, limit: u64) -> Self {
        Self {
            is_text,
            dictionary: None,
            page: TextPage::Plain(Bytes::new()),
            offsets: vec![O::default()],
            data: Vec::new(),
            expected: 0,
            references: Vec::new(),
            limit,
        }
    }
}

/// Makes room for values of `length` bytes, and for those that are expected behind them, as if they were as long.
fn make_room(data: &mut Vec<u8>, length: usize, count: usize, expected: &mut usize) {
    *expected = expected.saturating_sub(count);
    let needed = length + SHORT;
    if data.capacity() - data.len() >= needed {
        return;
    }
    let rest = length as u128 * *expected as u128 / count.max(1) as u128;
    // No more than growing to twice the size would take, or what all of a first page has.
    let rest = usize::try_from(rest + rest / 64).unwrap_or(usize::MAX).min(data.len().max(length).max(MOST_AHEAD));
    data.reserve_exact(needed.saturating_add(rest));
}

/// The length of the value at the front of `bytes`, and what follows the length.
fn split_length(bytes: &[u8]) -> Result<(usize, &[u8])> {
    let (length, rest) = bytes.split_first_chunk().ok_or_else(short)?;
    let length = u32::from_le_bytes(*length) as usize;
    if length > rest.len() { Err(short()) } else { Ok((length, rest)) }
}

/// Notes where values of these lengths end. Returns how many bytes they have.
fn push_lengths<O: OffsetSizeTrait>(
    offsets: &mut Vec<O>,
    start: usize,
    lengths: impl Iterator<Item = Result<usize>>,
) -> Result<usize> {
    let mut end = start;
    for length in lengths {
        end += length?;
        offsets.push(O::from_usize(end).ok_or_else(|| beyond_offsets("its values are too long"))?);
    }
    Ok(end - start)
}

/// The next references to a dictionary, each for itself.
fn spell_out(references: &mut Hybrid, count: usize, all: &mut Vec<u32>) -> Result<()> {
    all.clear();
    references.each(count, |piece| match piece {
        HybridPiece::Repeated(reference, times) => {
            all.resize(all.len() + times, reference);
            Ok(())
        }
        HybridPiece::Packed(packed) => packed.each(|references| {
            all.extend_from_slice(references);
            Ok(())
        }),
    })
}

/// Adds values to `data`, which has room for the `length` bytes of all and of a short one behind them: each with the
/// bytes that it is in, where it begins in these, and its length.
fn append<'a>(data: &mut Vec<u8>, length: usize, count: usize, values: impl Iterator<Item = (&'a [u8], usize, usize)>) {
    if length > SHORT * count {
        // What is written need not be cleared before.
        values.for_each(|(from, at, length)| data.extend_from_slice(from.get(at..at + length).unwrap_or_default()));
        return;
    }
    let mut begin = data.len();
    data.resize(begin + length + SHORT, 0);
    for (from, at, length) in values {
        copy(from, at, length, data, begin);
        begin += length;
    }
    data.truncate(begin);
}

/// Copies a value to `start` of `to`, which has room behind it.
fn copy(from: &[u8], at: usize, length: usize, to: &mut [u8], start: usize) {
    if length <= SHORT
        && let Some(from) = from.get(at..at + SHORT)
        && let Some(to) = to.get_mut(start..start + SHORT)
    {
        to.copy_from_slice(from);
    } else if let Some(from) = from.get(at..at + length)
        && let Some(to) = to.get_mut(start..start + length)
    {
        to.copy_from_slice(from);
    }
}

impl<O: OffsetSizeTrait + Debug> ColumnValues for TextValues<O> {
    fn set_dictionary(&mut self, bytes: &Bytes, count: usize) -> Result<()> {
        if self.dictionary.is_some() {
            return Err(damaged("has more than one dictionary"));
        }
        if count > bytes.len() / 4 {
            return Err(short());
        }
        let mut values = Vec::with_capacity(count);
        let mut rest = &bytes[..];
        for _ in 0..count {
            let (length, behind) = split_length(rest)?;
            values.push(((bytes.len() - behind.len()) as u32, length as u32));
            rest = &behind[length..];
        }
        self.dictionary = Some(TextDictionary { bytes: bytes.clone(), values });
        Ok(())
    }

    fn forget_dictionary(&mut self) {
        self.dictionary = None;
    }

    fn set_page(&mut self, encoding: Encoding, bytes: Bytes, most: usize) -> Result<()> {
        self.page = match encoding {
            Encoding::PLAIN => TextPage::Plain(bytes),
            Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY => TextPage::Dictionary(references(bytes)?),
            Encoding::DELTA_LENGTH_BYTE_ARRAY => {
                let unfit = || damaged("has lengths that do not fit its values");
                let (lengths, end) = lengths(&bytes, most as u64).ok_or_else(unfit)?;
                let bytes = bytes.slice(end..);
                if lengths.iter().map(|length| u64::from(*length)).sum::<u64>() > bytes.len() as u64 {
                    return Err(unfit());
                }
                TextPage::Lengths { lengths, next: 0, bytes }
            }
            other => return Err(unknown(other)),
        };
        Ok(())
    }

    fn reserve(&mut self, count: usize) {
        self.offsets.reserve_exact(count);
        self.expected = count;
    }

    fn read(&mut self, count: usize) -> Result<()> {
        let Self { dictionary, page, offsets, data, expected, references: kept, limit, .. } = self;
        let first = offsets.len();
        let start = data.len();
        match page {
            TextPage::Plain(bytes) => {
                let mut rest = &bytes[..];
                let lengths = (0..count).map(|_| {
                    let (length, behind) = split_length(rest)?;
                    rest = &behind[length..];
                    Ok(length)
                });
                let length = push_lengths(offsets, start, lengths)?;
                let passed = bytes.len() - rest.len();
                make_room(data, length, count, expected);
                let mut at = 0;
                let mut begin = start;
                let values = offsets[first..].iter().map(|end| {
                    let length = end.as_usize() - begin;
                    (at, begin) = (at + 4 + length, end.as_usize());
                    (&bytes[..], at - length, length)
                });
                append(data, length, count, values);
                let _ = bytes.split_to(passed);
            }
            TextPage::Lengths { lengths, next, bytes } => {
                let here = lengths.get(*next..).and_then(|lengths| lengths.get(..count)).ok_or_else(short)?;
                let length = push_lengths(offsets, start, here.iter().map(|length| Ok(*length as usize)))?;
                make_room(data, length, count, expected);
                data.extend_from_slice(&bytes.split_to(length));
                *next += count;
            }
            TextPage::Dictionary(references) => {
                let TextDictionary { bytes, values } = dictionary.as_ref().ok_or_else(no_dictionary)?;
                spell_out(references, count, kept)?;
                let length_of = |reference: &u32| {
                    values.get(*reference as usize).map(|value| value.1 as usize).ok_or_else(|| beyond(*reference))
                };
                let length = push_lengths(offsets, start, kept.iter().map(length_of))?;
                // A few bytes can stand for as many as the dictionary likes.
                let bytes_of_all = (start as u64).saturating_add(length as u64);
                if bytes_of_all > *limit {
                    let message = format!("its values take {bytes_of_all} bytes or more, and {limit} are possible");
                    return Err(too_large(message).with_hint(ASK_FOR_LESS));
                }
                make_room(data, length, count, expected);
                let found = kept.iter().filter_map(|reference| values.get(*reference as usize));
                append(data, length, count, found.map(|value| (&bytes[..], value.0 as usize, value.1 as usize)));
            }
        }
        Ok(())
    }

    fn skip(&mut self, count: usize) -> Result<()> {
        match &mut self.page {
            TextPage::Plain(bytes) => {
                let mut rest = &bytes[..];
                for _ in 0..count {
                    let (length, behind) = split_length(rest)?;
                    rest = &behind[length..];
                }
                let passed = bytes.len() - rest.len();
                let _ = bytes.split_to(passed);
                Ok(())
            }
            TextPage::Lengths { lengths, next, bytes } => {
                let here = lengths.get(*next..).and_then(|lengths| lengths.get(..count)).ok_or_else(short)?;
                let _ = bytes.split_to(here.iter().map(|length| *length as usize).sum());
                *next += count;
                Ok(())
            }
            TextPage::Dictionary(references) => references.skip(count),
        }
    }

    fn finish(&mut self, nulls: ValueNulls) -> Result<ArrayRef> {
        let mut offsets = std::mem::replace(&mut self.offsets, vec![O::default()]);
        let mut data = std::mem::take(&mut self.data);
        // What grew as it was read may have room for twice as much.
        if data.capacity() - data.len() > data.len() / 4 {
            data.shrink_to_fit();
        }
        if let Some(there) = &nulls.there {
            offsets = spread(&offsets, there.inner())?;
        }
        if offsets.len() != nulls.len + 1 {
            return Err(unspread());
        }
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        let data = Buffer::from_vec(data);
        let nulls = nulls.shown();
        if self.is_text {
            let array = GenericStringArray::<O>::try_new(offsets, data, nulls).map_err(cannot_be)?;
            return Ok(std::sync::Arc::new(array));
        }
        let array = GenericBinaryArray::<O>::try_new(offsets, data, nulls).map_err(cannot_be)?;
        Ok(std::sync::Arc::new(array))
    }
}

/// The offsets of values and of the nulls between them, which have no bytes.
fn spread<O: OffsetSizeTrait>(offsets: &[O], there: &BooleanBuffer) -> Result<Vec<O>> {
    if offsets.len() != there.count_set_bits() + 1 {
        return Err(unspread());
    }
    let mut spread = Vec::with_capacity(there.len() + 1);
    spread.extend(offsets.first());
    let mut at = 0;
    spread.extend(there.iter().map(|is_there| {
        at += usize::from(is_there);
        offsets[at]
    }));
    Ok(spread)
}
