//! Which types and encodings are decoded here, and by what.

use arrow_schema::DataType;
use parquet::basic::{Encoding, Type};

use super::flags::Flags;
use super::numbers::FixedValues;
use super::texts::TextValues;
use super::values::ColumnValues;

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
pub(super) fn values_of(physical: Type, data_type: &DataType, limit: u64) -> Option<Box<dyn ColumnValues>> {
    use DataType::*;
    match (physical, data_type) {
        (Type::INT32, Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32 | Date32 | Time32(_) | Decimal32(_, _))
        | (Type::FLOAT, Float32) => Some(Box::new(FixedValues::<u32>::new(data_type))),
        (Type::INT64, Int64 | UInt64 | Date64 | Time64(_) | Timestamp(_, _) | Duration(_) | Decimal64(_, _))
        | (Type::DOUBLE, Float64) => Some(Box::new(FixedValues::<u64>::new(data_type))),
        (Type::BOOLEAN, Boolean) => Some(Box::new(Flags::default())),
        (Type::BYTE_ARRAY, Utf8 | Binary) => Some(Box::new(TextValues::<i32>::new(*data_type == Utf8, limit))),
        (Type::BYTE_ARRAY, LargeUtf8 | LargeBinary) => {
            Some(Box::new(TextValues::<i64>::new(*data_type == LargeUtf8, limit)))
        }
        _ => None,
    }
}
