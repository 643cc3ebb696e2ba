//! A digest of what was served: positions, row ids and values, and nothing else.
//!
//! Equal rows in equal order give an equal digest on every machine, whatever the number of threads, the size of the
//! batches in which they are read, or how Arrow happens to lay them out: offsets, slices, views, dictionaries and what
//! lies below nulls do not show.
//!
//! Every value has a 64-bit hash, which is computed column by column because that is fast:
//!
//! - `mix(a, b)` is the low half xor the high half of the 128-bit product `(a ^ P0) * (b ^ P1)`.
//! - `tag(t)` is xxh3-64 of the type's name `t`; `null` is `tag("null")`.
//! - Booleans, integers, floats, dates, times, timestamps, durations: `mix(tag, bits)`, the bits being the value
//!   sign-extended (signed), zero-extended (unsigned) or as they are (floats) in 64 bits. All signed integers have the
//!   tag `int` and all unsigned ones `uint`; the tag of anything with a unit names the unit, and not the time zone.
//! - Decimals: `mix(mix(tag, low), high)` of the value in 128 bits, and two more of these for one that needs 256. The
//!   tag names the scale.
//! - Intervals: their fields, from the first to the last, mixed as the limbs of a decimal are.
//! - Strings and binary: xxh3-64 of the bytes with the tag as seed.
//! - Lists and maps: `mix(tag, length)`, then `mix(so far, element)` over the elements. An entry of a map is a struct.
//! - Structs: `tag`, then `mix(so far, field)` over the fields.
//!
//! A row's hash is that of a struct of its columns. The digest is xxh3-64 over position, row id and row hash of all
//! rows served, each as 8 little-endian bytes.

use std::sync::LazyLock;

use arrow::array::types::*;
use arrow::array::{Array, ArrayAccessor, ArrayRef, ArrowPrimitiveType, AsArray, OffsetSizeTrait, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, IntervalUnit, TimeUnit, i256};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64, xxh3_64_with_seed};

use crate::command::failure::Failure;

/// Digits of pi after the point.
const P0: u64 = 0x243f_6a88_85a3_08d3;
const P1: u64 = 0x1319_8a2e_0370_7344;

static NULL: LazyLock<u64> = LazyLock::new(|| tag("null"));

/// What one rank was served so far.
pub(crate) struct Digest {
    hasher: Xxh3Default,
    bytes: Vec<u8>,
}

impl Digest {
    pub(crate) fn new() -> Self {
        Self { hasher: Xxh3Default::new(), bytes: Vec::new() }
    }

    /// Adds rows at positions `first`, `first + stride`, and so on.
    pub(crate) fn add(&mut self, first: u64, stride: u64, rows: &[u64], values: &RecordBatch) -> Result<(), Failure> {
        let hashes = row_hashes(values)?;
        if rows.len() != hashes.len() {
            return Err(Failure::new(format!("{} rows were asked for and {} came", rows.len(), hashes.len())));
        }
        self.bytes.clear();
        let mut position = first;
        for (row, hash) in rows.iter().zip(hashes) {
            for word in [position, *row, hash] {
                self.bytes.extend_from_slice(&word.to_le_bytes());
            }
            position = position.wrapping_add(stride);
        }
        self.hasher.update(&self.bytes);
        Ok(())
    }

    pub(crate) fn finish(&self) -> u64 {
        self.hasher.digest()
    }
}

fn row_hashes(batch: &RecordBatch) -> Result<Vec<u64>, Failure> {
    let mut rows = vec![tag("struct"); batch.num_rows()];
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        let values = hashes(column).map_err(|unknown| {
            Failure::new(format!("column {:?}: a {unknown} has no digest; leave it out (`--columns`)", field.name()))
        })?;
        fold(&mut rows, &values);
    }
    Ok(rows)
}

fn tag(name: &str) -> u64 {
    xxh3_64(name.as_bytes())
}

#[inline]
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ P0) * u128::from(b ^ P1);
    product as u64 ^ (product >> 64) as u64
}

fn fold(so_far: &mut [u64], values: &[u64]) {
    for (so_far, value) in so_far.iter_mut().zip(values) {
        *so_far = mix(*so_far, *value);
    }
}

/// One for each value; the type that has none otherwise.
type Hashes = Result<Vec<u64>, DataType>;

fn hashes(array: &dyn Array) -> Hashes {
    let unknown = || array.data_type().clone();
    let known = numbers(array).or_else(|| moments(array)).or_else(|| intervals_and_decimals(array));
    let mut hashes = match known.or_else(|| texts(array)) {
        Some(hashes) => hashes,
        None => lists(array).or_else(|| composed(array)).ok_or_else(unknown)??,
    };
    if let Some(nulls) = array.nulls() {
        for (hash, valid) in hashes.iter_mut().zip(nulls.iter()) {
            if !valid {
                *hash = *NULL;
            }
        }
    }
    Ok(hashes)
}

fn numbers(array: &dyn Array) -> Option<Vec<u64>> {
    use DataType as D;
    Some(match array.data_type() {
        D::Null => vec![*NULL; array.len()],
        D::Boolean => {
            let (tag, values) = (tag("bool"), array.as_boolean().values());
            values.iter().map(|value| mix(tag, u64::from(value))).collect()
        }
        D::Int8 => primitive::<Int8Type>(array, "int", |value| value as u64),
        D::Int16 => primitive::<Int16Type>(array, "int", |value| value as u64),
        D::Int32 => primitive::<Int32Type>(array, "int", |value| value as u64),
        D::Int64 => primitive::<Int64Type>(array, "int", |value| value as u64),
        D::UInt8 => primitive::<UInt8Type>(array, "uint", u64::from),
        D::UInt16 => primitive::<UInt16Type>(array, "uint", u64::from),
        D::UInt32 => primitive::<UInt32Type>(array, "uint", u64::from),
        D::UInt64 => primitive::<UInt64Type>(array, "uint", |value| value),
        D::Float16 => primitive::<Float16Type>(array, "float16", |value| u64::from(value.to_bits())),
        D::Float32 => primitive::<Float32Type>(array, "float32", |value| u64::from(value.to_bits())),
        D::Float64 => primitive::<Float64Type>(array, "float64", f64::to_bits),
        _ => return None,
    })
}

/// Dates, times, timestamps and durations, by the integers that they are.
fn moments(array: &dyn Array) -> Option<Vec<u64>> {
    use DataType as D;
    let (what, unit) = match array.data_type() {
        D::Date32 => ("date", "d"),
        D::Date64 => ("date", "ms"),
        D::Time32(unit) | D::Time64(unit) => ("time", short(*unit)),
        D::Timestamp(unit, _) => ("timestamp", short(*unit)),
        D::Duration(unit) => ("duration", short(*unit)),
        _ => return None,
    };
    let whole = cast(array, &D::Int64).ok()?;
    Some(primitive::<Int64Type>(&whole, &format!("{what}[{unit}]"), |value| value as u64))
}

fn short(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}

fn intervals_and_decimals(array: &dyn Array) -> Option<Vec<u64>> {
    use DataType as D;
    Some(match array.data_type() {
        D::Interval(IntervalUnit::YearMonth) => {
            limbs::<IntervalYearMonthType, 1>(array, "interval[month]", |value| [value as u64])
        }
        D::Interval(IntervalUnit::DayTime) => limbs::<IntervalDayTimeType, 2>(array, "interval[day,ms]", |value| {
            [value.days as u64, value.milliseconds as u64]
        }),
        D::Interval(IntervalUnit::MonthDayNano) => {
            limbs::<IntervalMonthDayNanoType, 3>(array, "interval[month,day,ns]", |value| {
                [value.months as u64, value.days as u64, value.nanoseconds as u64]
            })
        }
        D::Decimal32(_, scale) => limbs::<Decimal32Type, 2>(array, &decimal(*scale), |value| halves(value.into())),
        D::Decimal64(_, scale) => limbs::<Decimal64Type, 2>(array, &decimal(*scale), |value| halves(value.into())),
        D::Decimal128(_, scale) => limbs::<Decimal128Type, 2>(array, &decimal(*scale), halves),
        D::Decimal256(_, scale) => decimal256(array, tag(&decimal(*scale))),
        _ => return None,
    })
}

fn texts(array: &dyn Array) -> Option<Vec<u64>> {
    fn of<A: ArrayAccessor>(array: &dyn Array, name: &str, values: A) -> Vec<u64>
    where
        A::Item: AsRef<[u8]>,
    {
        let tag = tag(name);
        // Below a null there may be anything, and reading it would only cost time.
        let hash = |at| if array.is_null(at) { *NULL } else { xxh3_64_with_seed(values.value(at).as_ref(), tag) };
        (0..array.len()).map(hash).collect()
    }
    use DataType as D;
    Some(match array.data_type() {
        D::Utf8 => of(array, "string", array.as_string::<i32>()),
        D::LargeUtf8 => of(array, "string", array.as_string::<i64>()),
        D::Utf8View => of(array, "string", array.as_string_view()),
        D::Binary => of(array, "binary", array.as_binary::<i32>()),
        D::LargeBinary => of(array, "binary", array.as_binary::<i64>()),
        D::BinaryView => of(array, "binary", array.as_binary_view()),
        D::FixedSizeBinary(_) => of(array, "binary", array.as_fixed_size_binary()),
        _ => return None,
    })
}

fn lists(array: &dyn Array) -> Option<Hashes> {
    fn between<O: OffsetSizeTrait>(offsets: &[O]) -> impl Fn(usize) -> (usize, usize) {
        |at| (offsets[at].as_usize(), offsets[at + 1].as_usize())
    }
    fn viewed<'a, O: OffsetSizeTrait>(offsets: &'a [O], sizes: &'a [O]) -> impl Fn(usize) -> (usize, usize) + 'a {
        |at| (offsets[at].as_usize(), (offsets[at] + sizes[at]).as_usize())
    }
    use DataType as D;
    Some(match array.data_type() {
        D::List(_) => {
            let list = array.as_list::<i32>();
            nested(array, "list", list.values(), between(list.value_offsets()))
        }
        D::LargeList(_) => {
            let list = array.as_list::<i64>();
            nested(array, "list", list.values(), between(list.value_offsets()))
        }
        D::ListView(_) => {
            let list = array.as_list_view::<i32>();
            nested(array, "list", list.values(), viewed(list.value_offsets(), list.value_sizes()))
        }
        D::LargeListView(_) => {
            let list = array.as_list_view::<i64>();
            nested(array, "list", list.values(), viewed(list.value_offsets(), list.value_sizes()))
        }
        D::FixedSizeList(_, _) => {
            let list = array.as_fixed_size_list();
            let length = list.value_length() as usize;
            nested(array, "list", list.values(), |at| (at * length, (at + 1) * length))
        }
        D::Map(_, _) => {
            let map = array.as_map();
            nested(array, "map", map.entries(), between(map.value_offsets()))
        }
        _ => return None,
    })
}

/// Structs, and arrays whose values are those of another one.
fn composed(array: &dyn Array) -> Option<Hashes> {
    Some(match array.data_type() {
        DataType::Struct(_) => {
            let fold_all = |mut rows: Vec<u64>, column: &ArrayRef| {
                fold(&mut rows, &hashes(column)?);
                Ok(rows)
            };
            array.as_struct().columns().iter().try_fold(vec![tag("struct"); array.len()], fold_all)
        }
        DataType::Dictionary(_, _) => {
            let array = array.as_any_dictionary();
            hashes(array.values()).map(|values| match values.is_empty() {
                // Normalising keys needs a value to point null keys at.
                true => vec![*NULL; array.len()],
                false => {
                    array.normalized_keys().into_iter().map(|key| values.get(key).copied().unwrap_or(*NULL)).collect()
                }
            })
        }
        DataType::RunEndEncoded(_, values) => {
            cast(array, values.data_type()).map_err(|_| array.data_type().clone()).and_then(|plain| hashes(&plain))
        }
        _ => return None,
    })
}

fn primitive<T: ArrowPrimitiveType>(array: &dyn Array, name: &str, bits: impl Fn(T::Native) -> u64) -> Vec<u64> {
    let tag = tag(name);
    array.as_primitive::<T>().values().iter().map(|&value| mix(tag, bits(value))).collect()
}

fn limbs<T: ArrowPrimitiveType, const N: usize>(
    array: &dyn Array,
    name: &str,
    limbs: impl Fn(T::Native) -> [u64; N],
) -> Vec<u64> {
    let tag = tag(name);
    array.as_primitive::<T>().values().iter().map(|&value| limbs(value).into_iter().fold(tag, mix)).collect()
}

fn decimal(scale: i8) -> String {
    format!("decimal[{scale}]")
}

fn halves(value: i128) -> [u64; 2] {
    [value as u64, (value >> 64) as u64]
}

/// As a narrower decimal wherever the value fits one, so that the width does not show.
fn decimal256(array: &dyn Array, tag: u64) -> Vec<u64> {
    let hash = |&value: &i256| {
        let (low, high) = value.to_parts();
        let low = halves(low as i128).into_iter().fold(tag, mix);
        if value.to_i128().is_some() { low } else { halves(high).into_iter().fold(low, mix) }
    };
    array.as_primitive::<Decimal256Type>().values().iter().map(hash).collect()
}

fn nested(array: &dyn Array, name: &str, elements: &dyn Array, range: impl Fn(usize) -> (usize, usize)) -> Hashes {
    let tag = tag(name);
    let ranges = || (0..array.len()).filter(|&at| array.is_valid(at)).map(&range).filter(|(start, end)| start < end);
    // A slice of a long list array keeps all elements of the whole one.
    let first = ranges().map(|(start, _)| start).min().unwrap_or_default();
    let end = ranges().map(|(_, end)| end).max().unwrap_or(first);
    let elements = hashes(&elements.slice(first, end - first))?;
    let hash = |at| {
        if array.is_null(at) {
            return *NULL;
        }
        let (start, end) = range(at);
        let length = end.saturating_sub(start);
        let own = if length == 0 { &[] } else { &elements[start - first..end - first] };
        own.iter().fold(mix(tag, length as u64), |so_far, &element| mix(so_far, element))
    };
    Ok((0..array.len()).map(hash).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::*;
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::{Field, Int32Type};

    use super::*;

    /// People compare digests of runs that are years and machines apart.
    const GOLDEN: u64 = 11_729_231_193_082_101_441;

    fn same(arrays: &[&dyn Array]) {
        let all: Vec<Vec<u64>> = arrays.iter().map(|array| hashes(*array).unwrap()).collect();
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{arrays:?}");
    }

    #[test]
    fn the_layout_of_strings_does_not_show() {
        let values = [Some("a"), None, Some(""), Some("a string that is too long for a view"), Some("a")];
        let plain = StringArray::from(values.to_vec());
        let longer = StringArray::from([&[Some("before")], &values[..], &[None]].concat());
        let dictionary: DictionaryArray<Int32Type> = values.into_iter().collect();
        let large = LargeStringArray::from(values.to_vec());
        let view = StringViewArray::from(values.to_vec());
        same(&[&plain, &longer.slice(1, 5), &dictionary, &dictionary.slice(0, 5), &large, &view]);
        assert_eq!(hashes(&plain).unwrap()[0], hashes(&plain).unwrap()[4]);
        assert_ne!(hashes(&plain).unwrap()[1], hashes(&plain).unwrap()[2]);
    }

    #[test]
    fn the_width_of_integers_and_decimals_does_not_show() {
        same(&[&Int8Array::from(vec![-1, 7]), &Int64Array::from(vec![-1, 7])]);
        same(&[&UInt8Array::from(vec![255]), &UInt64Array::from(vec![255])]);
        let narrow = Decimal32Array::from(vec![-5, 9]).with_precision_and_scale(4, 2).unwrap();
        let middle = Decimal128Array::from(vec![-5, 9]).with_precision_and_scale(30, 2).unwrap();
        let wide = Decimal256Array::from(vec![i256::from(-5), i256::from(9)]).with_precision_and_scale(60, 2).unwrap();
        same(&[&narrow, &middle, &wide]);
    }

    #[test]
    fn the_layout_of_lists_does_not_show() {
        let values = vec![Some(vec![Some(1), None]), None, Some(vec![]), Some(vec![Some(3), Some(4)])];
        let plain = ListArray::from_iter_primitive::<Int32Type, _, _>(values.clone());
        let large = LargeListArray::from_iter_primitive::<Int32Type, _, _>(values.clone());
        let longer = ListArray::from_iter_primitive::<Int32Type, _, _>([vec![Some(vec![Some(9)])], values].concat());
        // The null has elements below it.
        let field = Arc::new(Field::new_list_field(DataType::Int32, true));
        let elements = Int32Array::from(vec![Some(1), None, Some(8), Some(8), Some(3), Some(4)]);
        let offsets = OffsetBuffer::new(vec![0, 2, 4, 4, 6].into());
        let nulls = vec![true, false, true, true].into();
        let below = ListArray::new(field, offsets, Arc::new(elements), Some(nulls));
        same(&[&plain, &large, &longer.slice(1, 4), &below]);
        let pairs = vec![Some(vec![Some(1), None]), Some(vec![Some(3), Some(4)])];
        let fixed = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(pairs.clone(), 2);
        let variable = ListArray::from_iter_primitive::<Int32Type, _, _>(pairs);
        same(&[&fixed, &variable]);
        same(&[&fixed.slice(1, 1), &variable.slice(1, 1)]);
    }

    #[test]
    fn values_that_differ_have_hashes_that_differ() {
        let lists = |values: Vec<Vec<i32>>| {
            let values = values.into_iter().map(|list| Some(list.into_iter().map(Some).collect::<Vec<_>>()));
            hashes(&ListArray::from_iter_primitive::<Int32Type, _, _>(values)).unwrap()
        };
        let mut all = lists(vec![vec![], vec![0], vec![0, 0], vec![1, 2], vec![2, 1]]);
        all.extend(hashes(&Int32Array::from(vec![Some(0), Some(1), None])).unwrap());
        all.extend(hashes(&UInt32Array::from(vec![0])).unwrap());
        all.extend(hashes(&Float32Array::from(vec![0.0, -0.0])).unwrap());
        all.extend(hashes(&Float64Array::from(vec![0.0])).unwrap());
        all.extend(hashes(&BooleanArray::from(vec![false, true])).unwrap());
        all.extend(hashes(&StringArray::from(vec!["", "0"])).unwrap());
        all.extend(hashes(&BinaryArray::from(vec![&b""[..]])).unwrap());
        let distinct: std::collections::HashSet<u64> = all.iter().copied().collect();
        assert_eq!(distinct.len(), all.len());
    }

    #[test]
    fn digests_are_the_same_for_ever() {
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None, Some(vec![])]);
        let columns: [(&str, ArrayRef); 4] = [
            ("a", Arc::new(Int32Array::from(vec![Some(-1), None, Some(i32::MAX)]))),
            ("b", Arc::new(Float64Array::from(vec![0.5, f64::NAN, -0.0]))),
            ("c", Arc::new(StringArray::from(vec!["", "a", "a string that is longer than sixteen bytes"]))),
            ("d", Arc::new(lists)),
        ];
        let mut digest = Digest::new();
        digest.add(5, 7, &[10, 20, 30], &RecordBatch::try_from_iter(columns).unwrap()).unwrap();
        assert_eq!(digest.finish(), GOLDEN);
    }

    #[test]
    fn the_hash_of_a_moment_is_that_of_its_integer_and_the_name_of_its_unit() {
        let whole: ArrayRef = Arc::new(Int64Array::from(vec![Some(-1), None, Some(86_400_000)]));
        let narrow: ArrayRef = Arc::new(Int32Array::from(vec![Some(-1), None, Some(86_400_000)]));
        let zone = Some("Europe/Berlin".into());
        let of = [
            (&narrow, DataType::Date32, "date[d]"),
            (&whole, DataType::Date64, "date[ms]"),
            (&narrow, DataType::Time32(TimeUnit::Second), "time[s]"),
            (&narrow, DataType::Time32(TimeUnit::Millisecond), "time[ms]"),
            (&whole, DataType::Time64(TimeUnit::Microsecond), "time[us]"),
            (&whole, DataType::Time64(TimeUnit::Nanosecond), "time[ns]"),
            (&whole, DataType::Timestamp(TimeUnit::Second, None), "timestamp[s]"),
            (&whole, DataType::Timestamp(TimeUnit::Millisecond, zone), "timestamp[ms]"),
            (&whole, DataType::Timestamp(TimeUnit::Microsecond, None), "timestamp[us]"),
            (&whole, DataType::Timestamp(TimeUnit::Nanosecond, None), "timestamp[ns]"),
            (&whole, DataType::Duration(TimeUnit::Second), "duration[s]"),
            (&whole, DataType::Duration(TimeUnit::Millisecond), "duration[ms]"),
            (&whole, DataType::Duration(TimeUnit::Microsecond), "duration[us]"),
            (&whole, DataType::Duration(TimeUnit::Nanosecond), "duration[ns]"),
        ];
        for (integers, unit, name) in of {
            let moments = make_array(integers.to_data().into_builder().data_type(unit).build().unwrap());
            let hash = |value: i64| mix(tag(name), value as u64);
            assert_eq!(hashes(&moments).unwrap(), [hash(-1), *NULL, hash(86_400_000)], "{name}");
        }
    }

    #[test]
    fn a_digest_covers_positions_row_ids_and_values_but_not_batches() {
        let batch = |values: &[i32]| {
            let column: ArrayRef = Arc::new(Int32Array::from(values.to_vec()));
            RecordBatch::try_from_iter([("a", column)]).unwrap()
        };
        let digest = |parts: &[(u64, &[u64], &[i32])]| {
            let mut digest = Digest::new();
            for (first, rows, values) in parts {
                digest.add(*first, 2, rows, &batch(values)).unwrap();
            }
            digest.finish()
        };
        let whole = digest(&[(1, &[4, 5, 6], &[7, 8, 9])]);
        assert_eq!(whole, digest(&[(1, &[4], &[7]), (3, &[5, 6], &[8, 9])]));
        assert_ne!(whole, digest(&[(0, &[4, 5, 6], &[7, 8, 9])]));
        assert_ne!(whole, digest(&[(1, &[4, 6, 5], &[7, 8, 9])]));
        assert_ne!(whole, digest(&[(1, &[4, 5, 6], &[7, 9, 8])]));
        assert!(Digest::new().add(0, 1, &[1], &batch(&[])).is_err());
    }
}
