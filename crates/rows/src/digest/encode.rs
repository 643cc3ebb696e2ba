//! Canonical bytes of values: the same for equal values of a kind, and different for others.

use std::ops::Range;

use arrow::array::types::*;
use arrow::array::{Array, ArrowPrimitiveType, AsArray, BooleanArray, RunArray, downcast_run_array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, IntervalUnit, TimeUnit, i256};

use super::kind::by_name;

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

    /// Hands out the bytes of one value piece by piece, for values that are too long to be written.
    fn stream(&self, at: usize, out: &mut Vec<u8>, sink: &mut dyn FnMut(&[u8])) {
        out.resize(self.size(at), 0);
        self.put(at, out, &mut 0);
        sink(out);
    }

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

/// Elements of a list that are written before they are handed out.
const PIECE: usize = 4096;

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
struct FixedEncoder<'a, T, F, const N: usize> {
    values: &'a [T],
    nulls: Option<&'a NullBuffer>,
    bytes: F,
}

impl<T: Copy, F: Fn(T) -> [u8; N], const N: usize> Encode for FixedEncoder<'_, T, F, N> {
    fn width(&self) -> Option<usize> {
        Some(N)
    }

    fn size(&self, _: usize) -> usize {
        N
    }

    #[inline]
    fn put(&self, at: usize, out: &mut [u8], place: &mut usize) {
        let value = self.values.get(at).filter(|_| self.nulls.is_none_or(|nulls| nulls.is_valid(at)));
        let bytes = value.map_or([NULL; N], |value| (self.bytes)(*value));
        if let Some(room) = out.get_mut(*place..).and_then(<[u8]>::first_chunk_mut) {
            *room = bytes;
        }
        *place += N;
    }
}

struct BoolEncoder<'a>(&'a BooleanArray);

impl Encode for BoolEncoder<'_> {
    fn width(&self) -> Option<usize> {
        Some(2)
    }

    fn size(&self, _: usize) -> usize {
        2
    }

    fn put(&self, at: usize, out: &mut [u8], place: &mut usize) {
        let bytes = if self.0.is_null(at) { [NULL; 2] } else { [THERE, self.0.value(at).into()] };
        write(&bytes, out, place);
    }
}

/// Values of which none is there.
struct NullEncoder;

impl Encode for NullEncoder {
    fn width(&self) -> Option<usize> {
        Some(1)
    }

    fn size(&self, _: usize) -> usize {
        1
    }

    fn put(&self, _: usize, out: &mut [u8], place: &mut usize) {
        write(&[NULL], out, place);
    }
}

/// Strings and binary: the length, and the bytes.
struct ByteEncoder<'a, F> {
    nulls: Option<&'a NullBuffer>,
    value: F,
}

impl<'a, F: Fn(usize) -> &'a [u8]> ByteEncoder<'a, F> {
    #[inline]
    fn value(&self, at: usize) -> Option<&'a [u8]> {
        self.nulls.is_none_or(|nulls| nulls.is_valid(at)).then(|| (self.value)(at))
    }
}

impl<'a, F: Fn(usize) -> &'a [u8]> Encode for ByteEncoder<'a, F> {
    #[inline]
    fn size(&self, at: usize) -> usize {
        self.value(at).map_or(1, |value| 9 + value.len())
    }

    #[inline]
    fn put(&self, at: usize, out: &mut [u8], place: &mut usize) {
        let Some(value) = self.value(at) else { return write(&[NULL], out, place) };
        write(&head(value.len()), out, place);
        write(value, out, place);
    }

    fn stream(&self, at: usize, _: &mut Vec<u8>, sink: &mut dyn FnMut(&[u8])) {
        let Some(value) = self.value(at) else { return sink(&[NULL]) };
        sink(&head(value.len()));
        sink(value);
    }
}

/// Lists and maps: the number of elements, and these.
struct ListEncoder<'a, F> {
    nulls: Option<&'a NullBuffer>,
    elements: Encoder<'a>,
    range: F,
}

impl<F: Fn(usize) -> Range<usize>> ListEncoder<'_, F> {
    fn range(&self, at: usize) -> Option<Range<usize>> {
        self.nulls.is_none_or(|nulls| nulls.is_valid(at)).then(|| (self.range)(at))
    }
}

impl<F: Fn(usize) -> Range<usize>> Encode for ListEncoder<'_, F> {
    fn size(&self, at: usize) -> usize {
        self.range(at).map_or(1, |range| 9 + self.elements.size_together(range))
    }

    fn put(&self, at: usize, out: &mut [u8], place: &mut usize) {
        let Some(range) = self.range(at) else { return write(&[NULL], out, place) };
        write(&head(range.len()), out, place);
        self.elements.put_together(range, out, place);
    }

    fn stream(&self, at: usize, out: &mut Vec<u8>, sink: &mut dyn FnMut(&[u8])) {
        let Some(range) = self.range(at) else { return sink(&[NULL]) };
        sink(&head(range.len()));
        if self.elements.width().is_none() {
            return range.for_each(|at| self.elements.stream(at, out, sink));
        }
        for start in range.clone().step_by(PIECE) {
            let piece = start..range.end.min(start + PIECE);
            out.resize(self.elements.size_together(piece.clone()), 0);
            self.elements.put_together(piece, out, &mut 0);
            sink(out);
        }
    }
}

/// Structs, and entries of maps: the fields.
struct StructEncoder<'a> {
    nulls: Option<&'a NullBuffer>,
    fields: Vec<Encoder<'a>>,
}

impl StructEncoder<'_> {
    fn is_null(&self, at: usize) -> bool {
        self.nulls.is_some_and(|nulls| nulls.is_null(at))
    }
}

impl Encode for StructEncoder<'_> {
    fn size(&self, at: usize) -> usize {
        if self.is_null(at) { 1 } else { 1 + self.fields.iter().map(|field| field.size(at)).sum::<usize>() }
    }

    fn put(&self, at: usize, out: &mut [u8], place: &mut usize) {
        if self.is_null(at) {
            return write(&[NULL], out, place);
        }
        write(&[THERE], out, place);
        self.fields.iter().for_each(|field| field.put(at, out, place));
    }

    fn stream(&self, at: usize, out: &mut Vec<u8>, sink: &mut dyn FnMut(&[u8])) {
        if self.is_null(at) {
            return sink(&[NULL]);
        }
        sink(&[THERE]);
        self.fields.iter().for_each(|field| field.stream(at, out, sink));
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

    fn stream(&self, at: usize, out: &mut Vec<u8>, sink: &mut dyn FnMut(&[u8])) {
        match self.key(at) {
            Some(key) => self.values.stream(key, out, sink),
            None => (0..self.width().unwrap_or(1)).for_each(|_| sink(&[NULL])),
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
        D::Null => Box::new(NullEncoder),
        D::Boolean => Box::new(BoolEncoder(array.as_boolean())),
        D::Int8 => numbers::<Int8Type>(array),
        D::Int16 => numbers::<Int16Type>(array),
        D::Int32 => numbers::<Int32Type>(array),
        D::Int64 => numbers::<Int64Type>(array),
        D::UInt8 => unsigned::<UInt8Type>(array),
        D::UInt16 => unsigned::<UInt16Type>(array),
        D::UInt32 => unsigned::<UInt32Type>(array),
        D::UInt64 => unsigned::<UInt64Type>(array),
        D::Float16 => fixed::<Float16Type, 3>(array, |value| there(value.to_le_bytes())),
        D::Float32 => fixed::<Float32Type, 5>(array, |value| there(value.to_le_bytes())),
        D::Float64 => fixed::<Float64Type, 9>(array, |value| there(value.to_le_bytes())),
        D::Date32 => numbers::<Date32Type>(array),
        D::Date64 => numbers::<Date64Type>(array),
        D::Time32(_) | D::Time64(_) | D::Timestamp(..) | D::Duration(_) => times(array)?,
        D::Interval(unit) => intervals(array, *unit),
        D::Decimal32(..) => decimals::<Decimal32Type>(array, |value| i256::from_i128(value.into())),
        D::Decimal64(..) => decimals::<Decimal64Type>(array, |value| i256::from_i128(value.into())),
        D::Decimal128(..) => decimals::<Decimal128Type>(array, i256::from_i128),
        D::Decimal256(..) => decimals::<Decimal256Type>(array, |value| value),
        D::Utf8 | D::LargeUtf8 | D::Utf8View => strings(array),
        D::Binary | D::LargeBinary | D::BinaryView | D::FixedSizeBinary(_) => binary(array),
        D::List(_) | D::LargeList(_) | D::ListView(_) | D::LargeListView(_) | D::FixedSizeList(..) | D::Map(..) => {
            lists(array)?
        }
        D::Struct(fields) => {
            let columns = array.as_struct().columns();
            let places = by_name(fields).into_iter().filter_map(|at| columns.get(at));
            let fields = places.map(|column| encoder(column)).collect::<Result<_, _>>()?;
            Box::new(StructEncoder { nulls, fields })
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
        other => return Err(other.clone()),
    })
}

#[inline]
fn there<const N: usize, const M: usize>(bytes: [u8; N]) -> [u8; M] {
    let mut all = [THERE; M];
    all[M - N..].copy_from_slice(&bytes);
    all
}

fn fixed<'a, T: ArrowPrimitiveType, const N: usize>(
    array: &'a dyn Array,
    bytes: impl Fn(T::Native) -> [u8; N] + 'a,
) -> Encoder<'a> {
    Box::new(FixedEncoder { values: array.as_primitive::<T>().values(), nulls: array.nulls(), bytes })
}

fn numbers<T: ArrowPrimitiveType<Native: Into<i64>>>(array: &dyn Array) -> Encoder<'_> {
    fixed::<T, 9>(array, |value| there(value.into().to_le_bytes()))
}

fn unsigned<T: ArrowPrimitiveType<Native: Into<u64>>>(array: &dyn Array) -> Encoder<'_> {
    fixed::<T, 9>(array, |value| there(value.into().to_le_bytes()))
}

fn times(array: &dyn Array) -> Result<Encoder<'_>, DataType> {
    use DataType as D;
    Ok(match array.data_type() {
        D::Time32(TimeUnit::Second) => numbers::<Time32SecondType>(array),
        D::Time32(TimeUnit::Millisecond) => numbers::<Time32MillisecondType>(array),
        D::Time64(TimeUnit::Microsecond) => numbers::<Time64MicrosecondType>(array),
        D::Time64(TimeUnit::Nanosecond) => numbers::<Time64NanosecondType>(array),
        D::Timestamp(TimeUnit::Second, _) => numbers::<TimestampSecondType>(array),
        D::Timestamp(TimeUnit::Millisecond, _) => numbers::<TimestampMillisecondType>(array),
        D::Timestamp(TimeUnit::Microsecond, _) => numbers::<TimestampMicrosecondType>(array),
        D::Timestamp(TimeUnit::Nanosecond, _) => numbers::<TimestampNanosecondType>(array),
        D::Duration(TimeUnit::Second) => numbers::<DurationSecondType>(array),
        D::Duration(TimeUnit::Millisecond) => numbers::<DurationMillisecondType>(array),
        D::Duration(TimeUnit::Microsecond) => numbers::<DurationMicrosecondType>(array),
        D::Duration(TimeUnit::Nanosecond) => numbers::<DurationNanosecondType>(array),
        other => return Err(other.clone()),
    })
}

fn intervals(array: &dyn Array, unit: IntervalUnit) -> Encoder<'_> {
    let int = |bytes: &mut [u8], value: i64| bytes.copy_from_slice(&value.to_le_bytes());
    match unit {
        IntervalUnit::YearMonth => numbers::<IntervalYearMonthType>(array),
        IntervalUnit::DayTime => fixed::<IntervalDayTimeType, 17>(array, move |value| {
            let mut bytes = [THERE; 17];
            int(&mut bytes[1..9], value.days.into());
            int(&mut bytes[9..], value.milliseconds.into());
            bytes
        }),
        IntervalUnit::MonthDayNano => fixed::<IntervalMonthDayNanoType, 25>(array, move |value| {
            let mut bytes = [THERE; 25];
            int(&mut bytes[1..9], value.months.into());
            int(&mut bytes[9..17], value.days.into());
            int(&mut bytes[17..], value.nanoseconds);
            bytes
        }),
    }
}

fn decimals<'a, T: ArrowPrimitiveType>(array: &'a dyn Array, wide: impl Fn(T::Native) -> i256 + 'a) -> Encoder<'a> {
    fixed::<T, 33>(array, move |value| there(wide(value).to_le_bytes()))
}

fn strings(array: &dyn Array) -> Encoder<'_> {
    let nulls = array.nulls();
    match array.data_type() {
        DataType::Utf8 => {
            let array = array.as_string::<i32>();
            Box::new(ByteEncoder { nulls, value: |at| array.value(at).as_bytes() })
        }
        DataType::LargeUtf8 => {
            let array = array.as_string::<i64>();
            Box::new(ByteEncoder { nulls, value: |at| array.value(at).as_bytes() })
        }
        _ => {
            let array = array.as_string_view();
            Box::new(ByteEncoder { nulls, value: |at| array.value(at).as_bytes() })
        }
    }
}

fn binary(array: &dyn Array) -> Encoder<'_> {
    let nulls = array.nulls();
    match array.data_type() {
        DataType::Binary => {
            let array = array.as_binary::<i32>();
            Box::new(ByteEncoder { nulls, value: |at| array.value(at) })
        }
        DataType::LargeBinary => {
            let array = array.as_binary::<i64>();
            Box::new(ByteEncoder { nulls, value: |at| array.value(at) })
        }
        DataType::BinaryView => {
            let array = array.as_binary_view();
            Box::new(ByteEncoder { nulls, value: |at| array.value(at) })
        }
        _ => {
            let array = array.as_fixed_size_binary();
            Box::new(ByteEncoder { nulls, value: |at| array.value(at) })
        }
    }
}

fn lists(array: &dyn Array) -> Result<Encoder<'_>, DataType> {
    let nulls = array.nulls();
    Ok(match array.data_type() {
        DataType::List(_) => {
            let array = array.as_list::<i32>();
            let elements = encoder(array.values())?;
            let offsets = array.value_offsets();
            Box::new(ListEncoder { nulls, elements, range: |at| offsets[at] as usize..offsets[at + 1] as usize })
        }
        DataType::LargeList(_) => {
            let array = array.as_list::<i64>();
            let elements = encoder(array.values())?;
            let offsets = array.value_offsets();
            Box::new(ListEncoder { nulls, elements, range: |at| offsets[at] as usize..offsets[at + 1] as usize })
        }
        DataType::ListView(_) => {
            let array = array.as_list_view::<i32>();
            let elements = encoder(array.values())?;
            let range = |at| array.value_offset(at) as usize..(array.value_offset(at) + array.value_size(at)) as usize;
            Box::new(ListEncoder { nulls, elements, range })
        }
        DataType::LargeListView(_) => {
            let array = array.as_list_view::<i64>();
            let elements = encoder(array.values())?;
            let range = |at| array.value_offset(at) as usize..(array.value_offset(at) + array.value_size(at)) as usize;
            Box::new(ListEncoder { nulls, elements, range })
        }
        DataType::Map(..) => {
            let array = array.as_map();
            let offsets = array.value_offsets();
            // Keys and values as they are, whatever they are called.
            let fields = array.entries().columns().iter().map(|column| encoder(column)).collect::<Result<_, _>>()?;
            let elements = Box::new(StructEncoder { nulls: None, fields });
            Box::new(ListEncoder { nulls, elements, range: |at| offsets[at] as usize..offsets[at + 1] as usize })
        }
        _ => {
            let array = array.as_fixed_size_list();
            let elements = encoder(array.values())?;
            let length = array.value_length() as usize;
            Box::new(ListEncoder { nulls, elements, range: move |at| at * length..(at + 1) * length })
        }
    })
}

fn runs<R: RunEndIndexType>(array: &RunArray<R>) -> Result<Encoder<'_>, DataType> {
    let keys = (0..array.len()).map(|at| Some(array.get_physical_index(at))).collect();
    Ok(Box::new(Keyed { keys, values: encoder(array.values())? }))
}
