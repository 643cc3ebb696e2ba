//! Numbers of 32 and of 64 bits, whatever they stand for.

use std::fmt::Debug;

use arrow_array::{ArrayRef, make_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::DataType;
use bytes::Bytes;
use parquet::basic::Encoding;

use super::delta::Delta;
use super::hybrid::{Hybrid, HybridPiece};
use super::values::{ColumnValues, ValueNulls, beyond, no_dictionary, references, short, unknown, unspread};
use crate::errors::{cannot_be, damaged};
use rowdex_base::error::Result;

/// Numbers of one width.
pub(super) trait FixedNumber: Copy + Default + Debug + 'static {
    const WIDTH: usize;

    fn append_plain(bytes: &[u8], values: &mut Vec<Self>);

    /// Appends the numbers whose bytes lie so far apart each, beginning with the number at `start`.
    fn append_split(bytes: &[u8], stride: usize, start: usize, count: usize, values: &mut Vec<Self>);

    fn cut(value: i64) -> Self;

    /// The values as memory of an array of this type.
    fn buffer(values: Vec<Self>, data_type: &DataType) -> Buffer;
}

macro_rules! fixed_number {
    ($word:ident, $width:literal, $buffer:expr) => {
        impl FixedNumber for $word {
            const WIDTH: usize = $width;

            fn append_plain(bytes: &[u8], values: &mut Vec<Self>) {
                values.extend(bytes.as_chunks().0.iter().map(|bytes| Self::from_le_bytes(*bytes)));
            }

            fn append_split(bytes: &[u8], stride: usize, start: usize, count: usize, values: &mut Vec<Self>) {
                let streams: [&[u8]; $width] = std::array::from_fn(|byte| {
                    let start = byte * stride + start;
                    bytes.get(start..start + count).unwrap_or_default()
                });
                if streams.iter().any(|stream| stream.len() != count) {
                    return;
                }
                let value = |place: usize| Self::from_le_bytes(std::array::from_fn(|byte| streams[byte][place]));
                values.extend((0..count).map(value));
            }

            fn cut(value: i64) -> Self {
                value as Self
            }

            fn buffer(values: Vec<Self>, data_type: &DataType) -> Buffer {
                let narrow: fn(Vec<Self>, &DataType) -> Buffer = $buffer;
                narrow(values, data_type)
            }
        }
    };
}

// As the parquet crate does, and Arrow's C++: what does not fit its declared type wraps.
fixed_number!(u32, 4, |values, data_type| match data_type {
    DataType::Int8 | DataType::UInt8 => Buffer::from_vec(values.into_iter().map(|value| value as u8).collect()),
    DataType::Int16 | DataType::UInt16 => {
        Buffer::from_vec(values.into_iter().map(|value| value as u16).collect())
    }
    _ => Buffer::from_vec(values),
});
fixed_number!(u64, 8, |values, _| Buffer::from_vec(values));

#[derive(Debug)]
pub(super) struct FixedValues<T> {
    data_type: DataType,
    dictionary: Option<Vec<T>>,
    /// Memory of a dictionary that was forgotten.
    spare: Vec<T>,
    page: NumberPage,
    values: Vec<T>,
}

/// Values of a page that were not read yet.
#[derive(Debug)]
enum NumberPage {
    None,
    Plain(Bytes),
    Dictionary(Hybrid),
    Split { bytes: Bytes, stride: usize, at: usize },
    Delta(Delta),
}

impl<T: FixedNumber> FixedValues<T> {
    pub(super) fn new(data_type: &DataType) -> Self {
        Self {
            data_type: data_type.clone(),
            dictionary: None,
            spare: Vec::new(),
            page: NumberPage::None,
            values: Vec::new(),
        }
    }
}

impl<T: FixedNumber> ColumnValues for FixedValues<T> {
    fn set_dictionary(&mut self, bytes: &Bytes, count: usize) -> Result<()> {
        if self.dictionary.is_some() {
            return Err(damaged("has more than one dictionary"));
        }
        let bytes = count.checked_mul(T::WIDTH).and_then(|length| bytes.get(..length)).ok_or_else(short)?;
        let mut dictionary = std::mem::take(&mut self.spare);
        dictionary.clear();
        dictionary.reserve_exact(count);
        T::append_plain(bytes, &mut dictionary);
        self.dictionary = Some(dictionary);
        Ok(())
    }

    fn forget_dictionary(&mut self) {
        self.spare = self.dictionary.take().unwrap_or_default();
    }

    fn set_page(&mut self, encoding: Encoding, bytes: Bytes, _: usize) -> Result<()> {
        self.page = match encoding {
            Encoding::PLAIN => NumberPage::Plain(bytes),
            Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY => NumberPage::Dictionary(references(bytes)?),
            Encoding::BYTE_STREAM_SPLIT => NumberPage::Split { stride: bytes.len() / T::WIDTH, bytes, at: 0 },
            Encoding::DELTA_BINARY_PACKED => NumberPage::Delta(Delta::new(bytes, u64::BITS)?),
            other => return Err(unknown(other)),
        };
        Ok(())
    }

    fn reserve(&mut self, count: usize) {
        self.values.reserve_exact(count);
    }

    fn read(&mut self, count: usize) -> Result<()> {
        let Self { page, dictionary, values, .. } = self;
        match page {
            NumberPage::Plain(bytes) => {
                let length = count.checked_mul(T::WIDTH).filter(|length| *length <= bytes.len()).ok_or_else(short)?;
                T::append_plain(&bytes.split_to(length), values);
                Ok(())
            }
            NumberPage::Dictionary(references) => {
                let dictionary = dictionary.as_deref().ok_or_else(no_dictionary)?;
                references.each(count, |piece| match piece {
                    HybridPiece::Repeated(reference, times) => {
                        let value = *dictionary.get(reference as usize).ok_or_else(|| beyond(reference))?;
                        values.resize(values.len() + times, value);
                        Ok(())
                    }
                    HybridPiece::Packed(packed) => packed.each(|references| look_up(dictionary, references, values)),
                })
            }
            NumberPage::Split { bytes, stride, at } => {
                if count > *stride - *at {
                    return Err(short());
                }
                T::append_split(bytes, *stride, *at, count, values);
                *at += count;
                Ok(())
            }
            NumberPage::Delta(delta) => {
                delta.each(count, |numbers| values.extend(numbers.iter().map(|number| T::cut(*number))))
            }
            NumberPage::None if count > 0 => Err(short()),
            NumberPage::None => Ok(()),
        }
    }

    fn skip(&mut self, count: usize) -> Result<()> {
        match &mut self.page {
            NumberPage::Plain(bytes) => {
                let length = count.checked_mul(T::WIDTH).filter(|length| *length <= bytes.len()).ok_or_else(short)?;
                let _ = bytes.split_to(length);
                Ok(())
            }
            NumberPage::Dictionary(references) => references.skip(count),
            NumberPage::Split { stride, at, .. } => {
                if count > *stride - *at {
                    return Err(short());
                }
                *at += count;
                Ok(())
            }
            NumberPage::Delta(delta) => delta.each(count, |_| {}),
            NumberPage::None if count > 0 => Err(short()),
            NumberPage::None => Ok(()),
        }
    }

    fn finish(&mut self, nulls: ValueNulls) -> Result<ArrayRef> {
        let mut values = std::mem::take(&mut self.values);
        if let Some(there) = &nulls.there {
            spread(&mut values, there.inner())?;
        }
        if values.len() != nulls.len {
            return Err(unspread());
        }
        array(&self.data_type, nulls.len, T::buffer(values, &self.data_type), nulls.shown())
    }
}

/// An array of values that lie in one buffer.
pub(super) fn array(data_type: &DataType, len: usize, values: Buffer, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    let data = ArrayData::builder(data_type.clone()).len(len).add_buffer(values).nulls(nulls).build();
    Ok(make_array(data.map_err(cannot_be)?))
}

/// Appends the values that are referred to.
fn look_up<T: Copy + Default>(dictionary: &[T], references: &[u32], values: &mut Vec<T>) -> Result<()> {
    let mut missing = None;
    values.extend(references.iter().map(|reference| match dictionary.get(*reference as usize) {
        Some(value) => *value,
        None => {
            missing = Some(*reference);
            T::default()
        }
    }));
    missing.map_or(Ok(()), |reference| Err(beyond(reference)))
}

/// Moves values to the places where they are there. In between is nothing that anybody relies on.
fn spread<T: Copy + Default>(values: &mut Vec<T>, there: &BooleanBuffer) -> Result<()> {
    let mut from = values.len();
    if from != there.count_set_bits() {
        return Err(unspread());
    }
    let mut to = there.len();
    values.resize(to, T::default());
    // From the end, so that no value is overwritten before it was moved.
    while from < to {
        let start = (to - 1) / 64 * 64;
        let bits = there.slice(start, to - start);
        let count = bits.count_set_bits();
        if count == to - start {
            values.copy_within(from - count..from, start);
            from -= count;
        } else {
            for place in (start..to).rev() {
                if bits.value(place - start) {
                    from -= 1;
                    values[place] = values[from];
                } else {
                    values[place] = T::default();
                }
            }
        }
        to = start;
    }
    Ok(())
}
