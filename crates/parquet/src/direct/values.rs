//! Values without their nulls, from the encodings that writers choose.

use std::fmt::Debug;

use arrow::array::{ArrayData, ArrayRef, BooleanArray, BooleanBufferBuilder, make_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::datatypes::DataType;
use bytes::Bytes;
use parquet::basic::{Encoding, Type};

use super::delta::Delta;
use super::hybrid::{Hybrid, Piece};
use super::texts::Texts;
use super::{Nulls, damaged, unspread};
use rowdex_base::error::Result;

/// The values of one column chunk, page by page. They are kept without the nulls between them until all are there.
pub(super) trait Values: Debug + Send {
    /// Takes a dictionary of so many values.
    fn set_dictionary(&mut self, bytes: &Bytes, count: usize) -> Result<()>;

    /// Expects that values of another row group follow, which may have another dictionary or none.
    fn forget_dictionary(&mut self);

    /// Takes the values of a page, of which there are at most so many.
    fn set_page(&mut self, encoding: Encoding, bytes: Bytes, most: usize) -> Result<()>;

    /// Makes room for so many more values and nulls.
    fn reserve(&mut self, count: usize);

    /// Keeps the next values of the page.
    fn read(&mut self, count: usize) -> Result<()>;

    /// Passes by the next values of the page.
    fn skip(&mut self, count: usize) -> Result<()>;

    /// What was kept since the last time, as an array.
    fn finish(&mut self, nulls: Nulls) -> Result<ArrayRef>;
}

/// Whether values of this encoding are decoded here, where they are of this type.
pub(super) fn decodes(physical: Type, encoding: Encoding) -> bool {
    use Encoding::{
        BYTE_STREAM_SPLIT, DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY, PLAIN, PLAIN_DICTIONARY, RLE, RLE_DICTIONARY,
    };
    match physical {
        Type::INT32 | Type::INT64 => {
            matches!(encoding, PLAIN | PLAIN_DICTIONARY | RLE_DICTIONARY | BYTE_STREAM_SPLIT | DELTA_BINARY_PACKED)
        }
        Type::FLOAT | Type::DOUBLE => {
            matches!(encoding, PLAIN | PLAIN_DICTIONARY | RLE_DICTIONARY | BYTE_STREAM_SPLIT)
        }
        Type::BOOLEAN => matches!(encoding, PLAIN | RLE),
        Type::BYTE_ARRAY => {
            matches!(encoding, PLAIN | PLAIN_DICTIONARY | RLE_DICTIONARY | DELTA_LENGTH_BYTE_ARRAY)
        }
        _ => false,
    }
}

/// What decodes the values of a column to this Arrow type, if that is done here.
///
/// Values that a dictionary has once take at most `limit` bytes when they are spelled out.
pub(super) fn values_of(physical: Type, data_type: &DataType, limit: u64) -> Option<Box<dyn Values>> {
    use DataType::*;
    match (physical, data_type) {
        (Type::INT32, Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32 | Date32 | Time32(_) | Decimal32(_, _))
        | (Type::FLOAT, Float32) => Some(Box::new(Fixed::<u32>::new(data_type))),
        (Type::INT64, Int64 | UInt64 | Date64 | Time64(_) | Timestamp(_, _) | Duration(_) | Decimal64(_, _))
        | (Type::DOUBLE, Float64) => Some(Box::new(Fixed::<u64>::new(data_type))),
        (Type::BOOLEAN, Boolean) => Some(Box::new(Flags::default())),
        (Type::BYTE_ARRAY, Utf8 | Binary) => Some(Box::new(Texts::<i32>::new(*data_type == Utf8, limit))),
        (Type::BYTE_ARRAY, LargeUtf8 | LargeBinary) => {
            Some(Box::new(Texts::<i64>::new(*data_type == LargeUtf8, limit)))
        }
        _ => None,
    }
}

pub(super) fn short() -> rowdex_base::error::Error {
    damaged("has fewer values than its pages declare")
}

pub(super) fn unknown(encoding: Encoding) -> rowdex_base::error::Error {
    damaged(format!("has values encoded as {encoding}"))
}

/// Numbers of one width, whatever they stand for.
trait Word: Copy + Default + Debug + Send + 'static {
    const WIDTH: usize;

    fn append_plain(bytes: &[u8], values: &mut Vec<Self>);

    /// Appends the numbers whose bytes lie so far apart each, beginning with the number at `start`.
    fn append_split(bytes: &[u8], stride: usize, start: usize, count: usize, values: &mut Vec<Self>);

    fn cut(value: i64) -> Self;

    /// The values as memory of an array of this type.
    fn buffer(values: Vec<Self>, data_type: &DataType) -> Buffer;
}

macro_rules! word {
    ($word:ident, $width:literal, $buffer:expr) => {
        impl Word for $word {
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
word!(u32, 4, |values, data_type| match data_type {
    DataType::Int8 | DataType::UInt8 => Buffer::from_vec(values.into_iter().map(|value| value as u8).collect()),
    DataType::Int16 | DataType::UInt16 => {
        Buffer::from_vec(values.into_iter().map(|value| value as u16).collect())
    }
    _ => Buffer::from_vec(values),
});
word!(u64, 8, |values, _| Buffer::from_vec(values));

#[derive(Debug)]
struct Fixed<T> {
    data_type: DataType,
    dictionary: Option<Vec<T>>,
    /// Memory of a dictionary that was forgotten.
    spare: Vec<T>,
    page: Page,
    values: Vec<T>,
}

/// Values of a page that were not read yet.
#[derive(Debug)]
enum Page {
    None,
    Plain(Bytes),
    Dictionary(Hybrid),
    Split { bytes: Bytes, stride: usize, at: usize },
    Delta(Delta),
}

impl<T: Word> Fixed<T> {
    fn new(data_type: &DataType) -> Self {
        Self { data_type: data_type.clone(), dictionary: None, spare: Vec::new(), page: Page::None, values: Vec::new() }
    }
}

impl<T: Word> Values for Fixed<T> {
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
            Encoding::PLAIN => Page::Plain(bytes),
            Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY => Page::Dictionary(references(bytes)?),
            Encoding::BYTE_STREAM_SPLIT => Page::Split { stride: bytes.len() / T::WIDTH, bytes, at: 0 },
            Encoding::DELTA_BINARY_PACKED => Page::Delta(Delta::new(bytes, u64::BITS)?),
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
            Page::Plain(bytes) => {
                let length = count.checked_mul(T::WIDTH).filter(|length| *length <= bytes.len()).ok_or_else(short)?;
                T::append_plain(&bytes.split_to(length), values);
                Ok(())
            }
            Page::Dictionary(references) => {
                let dictionary = dictionary.as_deref().ok_or_else(no_dictionary)?;
                references.each(count, |piece| match piece {
                    Piece::Repeated(reference, times) => {
                        let value = *dictionary.get(reference as usize).ok_or_else(|| beyond(reference))?;
                        values.resize(values.len() + times, value);
                        Ok(())
                    }
                    Piece::Packed(packed) => packed.each(|references| look_up(dictionary, references, values)),
                })
            }
            Page::Split { bytes, stride, at } => {
                if count > *stride - *at {
                    return Err(short());
                }
                T::append_split(bytes, *stride, *at, count, values);
                *at += count;
                Ok(())
            }
            Page::Delta(delta) => {
                delta.each(count, |numbers| values.extend(numbers.iter().map(|number| T::cut(*number))))
            }
            Page::None if count > 0 => Err(short()),
            Page::None => Ok(()),
        }
    }

    fn skip(&mut self, count: usize) -> Result<()> {
        match &mut self.page {
            Page::Plain(bytes) => {
                let length = count.checked_mul(T::WIDTH).filter(|length| *length <= bytes.len()).ok_or_else(short)?;
                let _ = bytes.split_to(length);
                Ok(())
            }
            Page::Dictionary(references) => references.skip(count),
            Page::Split { stride, at, .. } => {
                if count > *stride - *at {
                    return Err(short());
                }
                *at += count;
                Ok(())
            }
            Page::Delta(delta) => delta.each(count, |_| {}),
            Page::None if count > 0 => Err(short()),
            Page::None => Ok(()),
        }
    }

    fn finish(&mut self, nulls: Nulls) -> Result<ArrayRef> {
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
    Ok(make_array(data.map_err(|error| damaged(format!("has values that cannot be: {error}")))?))
}

/// The references of a page to its dictionary.
pub(super) fn references(bytes: Bytes) -> Result<Hybrid> {
    let width = *bytes.first().ok_or_else(short)?;
    Hybrid::new(bytes.slice(1..), width.into())
}

pub(super) fn no_dictionary() -> rowdex_base::error::Error {
    damaged("refers to a dictionary that is not there")
}

pub(super) fn beyond(reference: u32) -> rowdex_base::error::Error {
    damaged(format!("refers to value {reference} of its dictionary, which has fewer"))
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
pub(super) fn spread<T: Copy + Default>(values: &mut Vec<T>, there: &BooleanBuffer) -> Result<()> {
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

/// Booleans.
#[derive(Debug)]
struct Flags {
    page: FlagPage,
    values: BooleanBufferBuilder,
}

#[derive(Debug)]
enum FlagPage {
    Plain { bytes: Bytes, at: usize },
    Runs(Hybrid),
}

impl Default for Flags {
    fn default() -> Self {
        Self { page: FlagPage::Plain { bytes: Bytes::new(), at: 0 }, values: BooleanBufferBuilder::new(0) }
    }
}

impl Values for Flags {
    fn set_dictionary(&mut self, _: &Bytes, _: usize) -> Result<()> {
        Err(damaged("has a dictionary of booleans"))
    }

    fn forget_dictionary(&mut self) {}

    fn set_page(&mut self, encoding: Encoding, bytes: Bytes, _: usize) -> Result<()> {
        self.page = match encoding {
            Encoding::PLAIN => FlagPage::Plain { bytes, at: 0 },
            Encoding::RLE => {
                let (length, rest) = bytes.split_first_chunk().ok_or_else(short)?;
                let length = u32::from_le_bytes(*length) as usize;
                if length > rest.len() {
                    return Err(short());
                }
                FlagPage::Runs(Hybrid::new(bytes.slice(4..4 + length), 1)?)
            }
            other => return Err(unknown(other)),
        };
        Ok(())
    }

    fn reserve(&mut self, count: usize) {
        self.values.reserve(count);
    }

    fn read(&mut self, count: usize) -> Result<()> {
        let values = &mut self.values;
        match &mut self.page {
            FlagPage::Plain { bytes, at } => {
                let end = at.checked_add(count).filter(|end| *end <= bytes.len() * 8).ok_or_else(short)?;
                values.append_packed_range(*at..end, bytes);
                *at = end;
                Ok(())
            }
            FlagPage::Runs(runs) => runs.each(count, |piece| {
                match piece {
                    Piece::Repeated(value @ 2.., _) => return Err(damaged(format!("has a boolean of {value}"))),
                    Piece::Repeated(value, times) => values.append_n(times, value == 1),
                    Piece::Packed(packed) => {
                        values.append_packed_range(packed.first..packed.first + packed.count, packed.bytes);
                    }
                }
                Ok(())
            }),
        }
    }

    fn skip(&mut self, count: usize) -> Result<()> {
        match &mut self.page {
            FlagPage::Plain { bytes, at } => {
                *at = at.checked_add(count).filter(|end| *end <= bytes.len() * 8).ok_or_else(short)?;
                Ok(())
            }
            FlagPage::Runs(runs) => runs.skip(count),
        }
    }

    fn finish(&mut self, nulls: Nulls) -> Result<ArrayRef> {
        let mut values = self.values.finish();
        if let Some(there) = &nulls.there {
            if values.len() != there.len() - there.null_count() {
                return Err(unspread());
            }
            let mut spread = BooleanBufferBuilder::new(there.len());
            spread.append_n(there.len(), false);
            there.valid_indices().zip(values.iter()).for_each(|(place, value)| spread.set_bit(place, value));
            values = spread.finish();
        }
        if values.len() != nulls.len {
            return Err(unspread());
        }
        Ok(std::sync::Arc::new(BooleanArray::new(values, nulls.shown())))
    }
}
