//! Bloom filters: values that a column of a row group surely lacks.
//!
//! A filter is asked for the bytes of a value as the file stores it, so only values are looked up whose bytes are known
//! for sure. One that is not whole, or of a kind that is not known, is passed over. Like a bound, a filter whose bits
//! are others than its writer wrote cannot be told from a sound one.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::compute::cast_with_options;
use arrow::datatypes::*;
use parquet::basic::{LogicalType, TimeUnit as StoredUnit, Type};
use parquet::bloom_filter::Sbbf;

use super::FileBytes;
use super::adapt::{STRICT, widens};
use super::chunks::ColumnChunk;
use super::footer::FileMetadata;
use super::seam::read_exactly;
use super::thrift::{I32, ThriftReader};

/// Bytes of a block of a filter.
const BLOCK: i32 = 32;

/// The Bloom filter of a column of a row group.
#[derive(Debug)]
pub struct BloomFilter {
    filter: Sbbf,
    physical: Type,
    /// Of values of fixed length.
    width: i32,
    /// The type of the column in the file.
    own: DataType,
}

impl FileMetadata {
    /// Where the Bloom filter of a column of a row group is, if the file says so and values of type `own` can be looked
    /// up.
    pub fn filter_place(&self, row_group: usize, leaf: usize, own: &DataType) -> Option<std::ops::Range<u64>> {
        let column = self.group(row_group).filter(|group| leaf < group.num_columns())?.column(leaf);
        let (start, length) = column.bloom_filter()?;
        let start = u64::try_from(start).ok()?;
        let length = u64::try_from(length).ok().filter(|length| *length > 0)?;
        let end = start.checked_add(length).filter(|end| *end <= self.file_size())?;
        (column.column_descr().max_rep_level() == 0 && is_stored_as(column, own)).then_some(start..end)
    }
}

impl BloomFilter {
    /// Reads the filter of a column, whose values are of type `own` in the file; nothing where none can be used.
    pub fn read(
        file: &FileMetadata,
        bytes: &dyn FileBytes,
        row_group: usize,
        leaf: usize,
        own: &DataType,
    ) -> Option<Self> {
        let place = file.filter_place(row_group, leaf, own)?;
        let column = file.group(row_group)?.column(leaf);
        let read = read_exactly(bytes, std::slice::from_ref(&place)).ok()?.pop()?;
        let physical = column.column_type();
        let width = column.column_descr().type_length();
        Some(Self { filter: parse(&read)?, physical, width, own: own.clone() })
    }

    /// Whether no value of the column equals this one, an array of one value. Values are served as type `served`.
    pub fn lacks(&self, value: &ArrayRef, served: &DataType) -> bool {
        let asked = catch_unwind(AssertUnwindSafe(|| self.may_have(value, served)));
        asked.ok().flatten() == Some(false)
    }

    /// Whether a value may be there; nothing where its bytes in the file are not known.
    fn may_have(&self, value: &ArrayRef, served: &DataType) -> Option<bool> {
        let served = plain(served);
        let own = &self.own;
        let comparable = value.data_type() == served || (is_bytes(value.data_type()) && is_bytes(served));
        if value.len() != 1 || value.is_null(0) || !comparable || !(own == served || widens(own, served)) {
            return None;
        }
        if is_bytes(own) {
            let bytes = bytes_of(value)?;
            return (self.physical == Type::BYTE_ARRAY).then(|| self.filter.check(bytes));
        }
        let value = exactly(value, own)?;
        match (self.physical, own) {
            (Type::INT32, _) => integer(&value).map(|value| self.filter.check(&(value as i32))),
            (Type::INT64, _) => integer(&value).map(|value| self.filter.check(&value)),
            (Type::FLOAT, DataType::Float32) => {
                let value = value.as_primitive::<Float32Type>().value(0);
                // Both zeros are equal, and NaN has many bytes.
                let either = || self.filter.check(&0.0_f32) || self.filter.check(&-0.0_f32);
                (!value.is_nan()).then(|| if value == 0.0 { either() } else { self.filter.check(&value) })
            }
            (Type::DOUBLE, DataType::Float64) => {
                let value = value.as_primitive::<Float64Type>().value(0);
                let either = || self.filter.check(&0.0_f64) || self.filter.check(&-0.0_f64);
                (!value.is_nan()).then(|| if value == 0.0 { either() } else { self.filter.check(&value) })
            }
            (Type::FIXED_LEN_BYTE_ARRAY, DataType::FixedSizeBinary(width)) if *width == self.width => {
                Some(self.filter.check(value.as_fixed_size_binary().value(0)))
            }
            (Type::FIXED_LEN_BYTE_ARRAY, DataType::Decimal128(..)) => {
                let value = value.as_primitive::<Decimal128Type>().value(0);
                let width = usize::try_from(self.width).ok().filter(|width| (1..=16).contains(width))?;
                let bytes = value.to_be_bytes();
                let (sign, digits) = bytes.split_at(16 - width);
                let extended = if digits[0] & 0x80 == 0 { 0 } else { 0xff };
                sign.iter().all(|byte| *byte == extended).then(|| self.filter.check(digits))
            }
            _ => None,
        }
    }
}

/// A filter that is whole: as long as its header says, and not empty.
fn parse(bytes: &[u8]) -> Option<Sbbf> {
    let mut header = ThriftReader::new(bytes);
    let length = match header.field(&mut 0)? {
        Some((I32, 1)) => header.i32()?,
        _ => return None,
    };
    let bits = bytes.len().checked_sub(usize::try_from(length).ok()?)?;
    if length < BLOCK || length % BLOCK != 0 || bytes[bits..].iter().all(|byte| *byte == 0) {
        return None;
    }
    catch_unwind(|| Sbbf::from_bytes(bytes)).ok()?.ok().filter(|filter| filter.num_blocks() > 0)
}

/// Whether the file stores values of this type in a way that leaves no doubt about their bytes.
fn is_stored_as(column: ColumnChunk<'_>, own: &DataType) -> bool {
    use DataType::*;
    let descriptor = column.column_descr();
    let logical = descriptor.logical_type_ref();
    let unit = |unit: &TimeUnit| {
        let stored = match logical {
            Some(LogicalType::Timestamp(stored)) => Some(&stored.unit),
            Some(LogicalType::Time(stored)) => Some(&stored.unit),
            _ => None,
        };
        matches!(
            (stored, unit),
            (Some(StoredUnit::MILLIS), TimeUnit::Millisecond)
                | (Some(StoredUnit::MICROS), TimeUnit::Microsecond)
                | (Some(StoredUnit::NANOS), TimeUnit::Nanosecond)
        )
    };
    let scale = |scale: &i8| i32::from(*scale) == descriptor.type_scale();
    match (column.column_type(), own) {
        (Type::INT32, Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32 | Date32) => true,
        (Type::INT32, Time32(own)) | (Type::INT64, Time64(own) | Timestamp(own, _)) => unit(own),
        (Type::INT64, Int64 | UInt64) => true,
        (Type::INT32 | Type::INT64, Decimal32(_, own) | Decimal64(_, own) | Decimal128(_, own)) => scale(own),
        (Type::FIXED_LEN_BYTE_ARRAY, Decimal128(_, own)) => scale(own),
        (Type::FIXED_LEN_BYTE_ARRAY, FixedSizeBinary(_)) => true,
        (Type::FLOAT, Float32) | (Type::DOUBLE, Float64) => true,
        (Type::BYTE_ARRAY, own) => is_bytes(own),
        _ => false,
    }
}

fn plain(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => values,
        other => other,
    }
}

fn is_bytes(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(data_type, Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView)
}

fn bytes_of(value: &ArrayRef) -> Option<&[u8]> {
    Some(match value.data_type() {
        DataType::Utf8 => value.as_string::<i32>().value(0).as_bytes(),
        DataType::LargeUtf8 => value.as_string::<i64>().value(0).as_bytes(),
        DataType::Utf8View => value.as_string_view().value(0).as_bytes(),
        DataType::Binary => value.as_binary::<i32>().value(0),
        DataType::LargeBinary => value.as_binary::<i64>().value(0),
        DataType::BinaryView => value.as_binary_view().value(0),
        _ => return None,
    })
}

/// The value as the file has it; nothing where that is another value.
fn exactly(value: &ArrayRef, own: &DataType) -> Option<ArrayRef> {
    if value.data_type() == own {
        return Some(ArrayRef::clone(value));
    }
    let there = cast_with_options(value, own, &STRICT).ok().filter(|there| there.is_valid(0))?;
    let back = cast_with_options(&there, value.data_type(), &STRICT).ok()?;
    (back.to_data() == value.to_data()).then_some(there)
}

/// A value that is stored as an integer, with the bits of an unsigned one.
fn integer(value: &ArrayRef) -> Option<i64> {
    fn of<T: ArrowPrimitiveType>(value: &ArrayRef) -> Option<&PrimitiveArray<T>> {
        value.as_primitive_opt::<T>()
    }
    use TimeUnit::*;
    Some(match value.data_type() {
        DataType::Int8 => of::<Int8Type>(value)?.value(0).into(),
        DataType::Int16 => of::<Int16Type>(value)?.value(0).into(),
        DataType::Int32 => of::<Int32Type>(value)?.value(0).into(),
        DataType::Int64 => of::<Int64Type>(value)?.value(0),
        DataType::UInt8 => of::<UInt8Type>(value)?.value(0).into(),
        DataType::UInt16 => of::<UInt16Type>(value)?.value(0).into(),
        DataType::UInt32 => of::<UInt32Type>(value)?.value(0).into(),
        DataType::UInt64 => of::<UInt64Type>(value)?.value(0) as i64,
        DataType::Date32 => of::<Date32Type>(value)?.value(0).into(),
        DataType::Time32(Millisecond) => of::<Time32MillisecondType>(value)?.value(0).into(),
        DataType::Time64(Microsecond) => of::<Time64MicrosecondType>(value)?.value(0),
        DataType::Time64(Nanosecond) => of::<Time64NanosecondType>(value)?.value(0),
        DataType::Timestamp(Millisecond, _) => of::<TimestampMillisecondType>(value)?.value(0),
        DataType::Timestamp(Microsecond, _) => of::<TimestampMicrosecondType>(value)?.value(0),
        DataType::Timestamp(Nanosecond, _) => of::<TimestampNanosecondType>(value)?.value(0),
        DataType::Decimal32(..) => of::<Decimal32Type>(value)?.value(0).into(),
        DataType::Decimal64(..) => of::<Decimal64Type>(value)?.value(0),
        DataType::Decimal128(..) => i64::try_from(of::<Decimal128Type>(value)?.value(0)).ok()?,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_that_are_not_whole_are_passed_over() {
        let mut filter = Sbbf::new_with_num_of_bytes(64);
        filter.insert("here");
        let mut bytes = Vec::new();
        filter.write(&mut bytes).unwrap();
        assert!(parse(&bytes).unwrap().check("here"));
        for length in 0..bytes.len() {
            assert!(parse(&bytes[..length]).is_none(), "{length}");
        }
        assert!(parse(&[&bytes[..], &[0; 32]].concat()).is_none());
        let header = bytes.len() - 64;
        // Whatever is in the header, the filter is that which was written, or none.
        for at in 0..header {
            for value in 0..=255 {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                if let Some(parsed) = parse(&damaged) {
                    assert_eq!(parsed.num_blocks(), 2, "byte {at} is {value}");
                }
            }
        }
        let empty = [&bytes[..header], &[0; 64]].concat();
        assert!(parse(&empty).is_none(), "no value would be in it");
    }
}
