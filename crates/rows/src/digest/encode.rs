//! Canonical bytes of values: the same for equal values of a kind, and different for others.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::RunEndIndexType;
use arrow_array::{Array, RunArray, downcast_run_array};
use arrow_buffer::NullBuffer;
use arrow_buffer::{ArrowNativeType, IntervalDayTime, IntervalMonthDayNano, i256};
use arrow_schema::{DataType, IntervalUnit};

use super::kind::by_name;
use crate::dictionary::{ValueBytes, text_bytes};
use crate::flat::native_values;
use crate::nested::Lists;

/// Values of a column that are written as canonical bytes.
///
/// Every value begins with a byte that says whether it is there. What follows a null is zeros where all values of the
/// kind are of one length, and nothing otherwise.
pub(super) trait Encode {
    /// The bytes of each value, where all of the kind have as many.
    fn width(&self) -> Option<usize> {
        None
    }

    /// The bytes of one value.
    fn size(&self, at: usize) -> usize;

    /// Writes one value at its place, which moves behind it.
    fn put(&self, at: usize, out: &mut [u8], place: &mut usize);

    /// Adds the bytes that each value takes.
    fn add_sizes(&self, rows: Range<usize>, sizes: &mut [usize]) {
        for (at, size) in rows.zip(sizes) {
            *size += self.size(at);
        }
    }

    /// Writes each value at its own place.
    fn put_apart(&self, rows: Range<usize>, out: &mut [u8], places: &mut [usize]) {
        for (at, place) in rows.zip(places) {
            self.put(at, out, place);
        }
    }

    /// The bytes of several values.
    fn size_together(&self, values: Range<usize>) -> usize {
        match self.width() {
            Some(width) => width * values.len(),
            None => values.map(|at| self.size(at)).sum(),
        }
    }

    /// Writes values one behind the other.
    fn put_together(&self, values: Range<usize>, out: &mut [u8], place: &mut usize) {
        for at in values {
            self.put(at, out, place);
        }
    }
}

pub(super) type Encoder<'a> = Box<dyn Encode + 'a>;

const NULL: u8 = 0;
const THERE: u8 = 1;

fn write(bytes: &[u8], out: &mut [u8], place: &mut usize) {
    if let Some(room) = out.get_mut(*place..*place + bytes.len()) {
        room.copy_from_slice(bytes);
    }
    *place += bytes.len();
}

fn head(length: usize) -> [u8; 9] {
    let mut head = [THERE; 9];
    head[1..].copy_from_slice(&(length as u64).to_le_bytes());
    head
}

/// Numbers and whatever else is of one length: `N` bytes, one of them for nulls.
struct FixedEncoder<'a, F, const N: usize> {
    nulls: Option<&'a NullBuffer>,
    bytes: F,
}

impl<F: Fn(usize) -> [u8; N], const N: usize> Encode for FixedEncoder<'_, F, N> {
    fn width(&self) -> Option<usize> {
        Some(N)
    }

    fn size(&self, _: usize) -> usize {
        N
    }

    #[inline]
    fn put(&self, at: usize, out: &mut [u8], place: &mut usize) {
        let is_there = self.nulls.is_none_or(|nulls| nulls.is_valid(at));
        let bytes = if is_there { (self.bytes)(at) } else { [NULL; N] };
        if let Some(room) = out.get_mut(*place..).and_then(<[u8]>::first_chunk_mut) {
            *room = bytes;
        }
        *place += N;
    }
}

/// Values that are written after a byte that says whether they are there, and that are of any length.
struct LongEncoder<'a> {
    nulls: Option<&'a NullBuffer>,
    values: LongValues<'a>,
}

enum LongValues<'a> {
    /// Strings and binary: the length, and the bytes.
    Bytes(ValueBytes<'a>),
    /// Lists and maps: the number of elements, and these.
    Lists(Lists<'a>, Encoder<'a>),
    /// Structs, and entries of maps: the fields.
    Fields(Vec<Encoder<'a>>),
}

impl LongEncoder<'_> {
    fn is_null(&self, at: usize) -> bool {
        self.nulls.is_some_and(|nulls| nulls.is_null(at))
    }
}

impl Encode for LongEncoder<'_> {
    fn size(&self, at: usize) -> usize {
        match &self.values {
            _ if self.is_null(at) => 1,
            LongValues::Bytes(value) => 9 + value(at).len(),
            LongValues::Lists(lists, elements) => 9 + elements.size_together(lists.range(at)),
            LongValues::Fields(fields) => 1 + fields.iter().map(|field| field.size(at)).sum::<usize>(),
        }
    }

    fn put(&self, at: usize, out: &mut [u8], place: &mut usize) {
        match &self.values {
            _ if self.is_null(at) => write(&[NULL], out, place),
            LongValues::Bytes(value) => {
                write(&head(value(at).len()), out, place);
                write(value(at), out, place);
            }
            LongValues::Lists(lists, elements) => {
                let range = lists.range(at);
                write(&head(range.len()), out, place);
                elements.put_together(range, out, place);
            }
            LongValues::Fields(fields) => {
                write(&[THERE], out, place);
                fields.iter().for_each(|field| field.put(at, out, place));
            }
        }
    }
}

/// Values that are found through keys: of dictionaries, and of runs.
struct Keyed<'a> {
    /// Where the value of each row is; none for a null.
    keys: Vec<Option<usize>>,
    values: Encoder<'a>,
}

impl Keyed<'_> {
    fn key(&self, at: usize) -> Option<usize> {
        self.keys.get(at).copied().flatten()
    }
}

impl Encode for Keyed<'_> {
    fn width(&self) -> Option<usize> {
        self.values.width()
    }

    fn size(&self, at: usize) -> usize {
        self.key(at).map_or(self.width().unwrap_or(1), |key| self.values.size(key))
    }

    fn put(&self, at: usize, out: &mut [u8], place: &mut usize) {
        match self.key(at) {
            Some(key) => self.values.put(key, out, place),
            None => (0..self.width().unwrap_or(1)).for_each(|_| write(&[NULL], out, place)),
        }
    }
}

/// What writes the values of this array.
///
/// # Errors
/// The type that has no canonical bytes.
pub(super) fn encoder(array: &dyn Array) -> Result<Encoder<'_>, DataType> {
    use DataType as D;
    let nulls = array.nulls();
    Ok(match array.data_type() {
        D::Null => Box::new(FixedEncoder { nulls: None, bytes: |_| [NULL] }),
        D::Boolean => {
            let values = array.as_boolean().values();
            Box::new(FixedEncoder { nulls, bytes: |at| [THERE, values.value(at).into()] })
        }
        D::Int8 => number(array, |value: i8| i64::from(value).to_le_bytes()),
        D::Int16 => number(array, |value: i16| i64::from(value).to_le_bytes()),
        D::Int32 | D::Date32 | D::Time32(_) | D::Interval(IntervalUnit::YearMonth) => {
            number(array, |value: i32| i64::from(value).to_le_bytes())
        }
        D::Int64 | D::Date64 | D::Time64(_) | D::Timestamp(..) | D::Duration(_) => number(array, i64::to_le_bytes),
        D::UInt8 => number(array, |value: u8| u64::from(value).to_le_bytes()),
        D::UInt16 => number(array, |value: u16| u64::from(value).to_le_bytes()),
        D::UInt32 => number(array, |value: u32| u64::from(value).to_le_bytes()),
        D::UInt64 => number(array, u64::to_le_bytes),
        D::Float16 => fixed(array, |value: u16| there::<2, 3>(value.to_le_bytes())),
        D::Float32 => fixed(array, |value: u32| there::<4, 5>(value.to_le_bytes())),
        D::Float64 => number(array, u64::to_le_bytes),
        D::Interval(IntervalUnit::DayTime) => fixed(array, |value: IntervalDayTime| {
            let parts = [value.days.into(), value.milliseconds.into()];
            there::<16, 17>(together(parts.map(i64::to_le_bytes)))
        }),
        D::Interval(IntervalUnit::MonthDayNano) => fixed(array, |value: IntervalMonthDayNano| {
            let parts = [value.months.into(), value.days.into(), value.nanoseconds];
            there::<24, 25>(together(parts.map(i64::to_le_bytes)))
        }),
        D::Decimal32(..) => decimal(array, |value: i32| i256::from_i128(value.into())),
        D::Decimal64(..) => decimal(array, |value: i64| i256::from_i128(value.into())),
        D::Decimal128(..) => decimal(array, i256::from_i128),
        D::Decimal256(..) => decimal(array, |value: i256| value),
        D::Struct(fields) => {
            let columns = array.as_struct().columns();
            let places = by_name(fields).into_iter().filter_map(|at| columns.get(at));
            let fields = places.map(|column| encoder(column)).collect::<Result<_, _>>()?;
            Box::new(LongEncoder { nulls, values: LongValues::Fields(fields) })
        }
        D::Dictionary(..) => {
            let array = array.as_any_dictionary();
            // Normalising keys needs a value to point null keys at.
            let all_null = array.values().is_empty();
            let keys = if all_null { vec![0; array.len()] } else { array.normalized_keys() };
            let nulls = array.keys().nulls();
            let valid = |at| !all_null && nulls.is_none_or(|nulls| nulls.is_valid(at));
            let keys = keys.into_iter().enumerate().map(|(at, key)| valid(at).then_some(key)).collect();
            Box::new(Keyed { keys, values: encoder(array.values())? })
        }
        D::RunEndEncoded(..) => downcast_run_array!(
            array => runs(array)?,
            other => return Err(other.clone())
        ),
        other => {
            let values = match (Lists::of(array), text_bytes(array)) {
                (Some(lists), _) => {
                    let elements = match array.as_map_opt() {
                        // Keys and values as they are, whatever they are called.
                        Some(map) => {
                            let fields = map.entries().columns().iter().map(|column| encoder(column));
                            let values = LongValues::Fields(fields.collect::<Result<_, _>>()?);
                            Box::new(LongEncoder { nulls: None, values })
                        }
                        None => encoder(lists.items)?,
                    };
                    LongValues::Lists(lists, elements)
                }
                (None, Some(value)) => LongValues::Bytes(value),
                (None, None) => return Err(other.clone()),
            };
            Box::new(LongEncoder { nulls, values })
        }
    })
}

#[inline]
fn there<const N: usize, const M: usize>(bytes: [u8; N]) -> [u8; M] {
    let mut all = [THERE; M];
    all[M - N..].copy_from_slice(&bytes);
    all
}

/// Words one behind the other.
fn together<const W: usize, const N: usize>(words: [[u8; 8]; W]) -> [u8; N] {
    let mut all = [0; N];
    all.copy_from_slice(words.as_flattened());
    all
}

fn fixed<'a, T: ArrowNativeType, const N: usize>(
    array: &'a dyn Array,
    bytes: impl Fn(T) -> [u8; N] + 'a,
) -> Encoder<'a> {
    let values = native_values::<T>(array);
    Box::new(FixedEncoder {
        nulls: array.nulls(),
        bytes: move |at| values.get(at).map_or([NULL; N], |value| bytes(*value)),
    })
}

fn number<'a, T: ArrowNativeType>(array: &'a dyn Array, bytes: impl Fn(T) -> [u8; 8] + 'a) -> Encoder<'a> {
    fixed(array, move |value: T| there::<8, 9>(bytes(value)))
}

fn decimal<'a, T: ArrowNativeType>(array: &'a dyn Array, wide: impl Fn(T) -> i256 + 'a) -> Encoder<'a> {
    fixed(array, move |value: T| there::<32, 33>(wide(value).to_le_bytes()))
}

fn runs<R: RunEndIndexType>(array: &RunArray<R>) -> Result<Encoder<'_>, DataType> {
    let keys = (0..array.len()).map(|at| Some(array.get_physical_index(at))).collect();
    Ok(Box::new(Keyed { keys, values: encoder(array.values())? }))
}
