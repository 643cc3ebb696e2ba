//! From decoded arrays to those the dataset has.

use std::sync::Arc;
use std::{mem, slice};

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, StringArray, UInt32Array, make_array, new_null_array};
use arrow_buffer::NullBuffer;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::ArrowError;
use arrow_schema::{DataType, Field, FieldRef, SchemaRef, TimeUnit};
use arrow_select::filter::filter;

use super::errors::{ASK_FOR_LESS, too_large};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_projection::{children, places_of};
use rowdex_rows::{below, encode, list_array, record_batch, text_bytes, view_bytes, with_below};

/// Brings a decoded batch, or rows taken from one, to the types that are served.
///
/// Costs nothing for the columns that have them already; views are copied into contiguous values.
///
/// # Errors
///
/// [`ErrorKind::Schema`] if `batch` was not decoded with a projection to `output`; [`ErrorKind::TooLarge`] if a column
/// has more bytes of strings than its type can hold.
pub fn finish(batch: &RecordBatch, output: &SchemaRef) -> Result<RecordBatch> {
    if batch.schema_ref() == output {
        return Ok(batch.clone());
    }
    if batch.num_columns() != output.fields().len() {
        let message = format!("{} columns where {} were expected", batch.num_columns(), output.fields().len());
        return Err(Error::new(ErrorKind::Schema, message));
    }
    let columns = batch.columns().iter().zip(output.fields());
    let columns: Result<Vec<ArrayRef>> =
        columns.map(|(column, field)| adapt(column, field.data_type(), field.name(), u64::MAX)).collect();
    record_batch(output, columns?, batch.num_rows())
        .map_err(|error| Error::new(ErrorKind::Schema, error.to_string()).with_source(error))
}

/// The array without the nulls of fields that have none, where a null further up says so already; `None` if it is right
/// as it is. `above` has the nulls further up.
///
/// The decoder makes arrays of levels, which say at which depth a value ends. So below a field that is never null,
/// inside of something that is, it notes a null at the lowest level and none in between. Arrow's own constructors
/// refuse such arrays, and so would everybody who copies them.
///
/// # Errors
/// [`ErrorKind::Schema`] if there is a null that nothing further up says.
pub(super) fn mask(array: &ArrayRef, above: Option<&NullBuffer>, path: &str) -> Result<Option<ArrayRef>> {
    let all = || NullBuffer::union(above, array.nulls());
    let (fields, own, visible) = match array.data_type() {
        DataType::Struct(fields) => (&fields[..], array.nulls().cloned(), all()),
        DataType::FixedSizeList(item, size) => {
            let of_items = |nulls: NullBuffer| nulls.expand(size.unsigned_abs() as usize);
            (slice::from_ref(item), array.nulls().cloned().map(of_items), all().map(of_items))
        }
        // The items of a null list are not there, so what is above a list masks nothing in it.
        DataType::Map(entries, _) => (children(entries.data_type()), None, None),
        other => (children(other), None, None),
    };
    let is_named = matches!(array.data_type(), DataType::Struct(_) | DataType::Map(..));
    let mut columns = if fields.is_empty() { Vec::new() } else { below(array) };
    let mut is_right = true;
    for (column, field) in columns.iter_mut().zip(fields) {
        let path = if is_named { format!("{path}.{}", field.name()) } else { path.to_owned() };
        if let Some(changed) = mask(column, visible.as_ref(), &path)? {
            (*column, is_right) = (changed, false);
        }
        if let Some(changed) = without_nulls(column, field, own.as_ref(), visible.as_ref(), &path)? {
            (*column, is_right) = (changed, false);
        }
    }
    if is_right {
        return Ok(None);
    }
    with_below(array, array.data_type(), &columns).map(Some).map_err(|error| broken(array, path, error))
}

/// The array of a field without nulls; `None` if it may have those that it has. `above` has the nulls of what is
/// directly above the field, `visible` those of all that is above it.
fn without_nulls(
    array: &ArrayRef,
    field: &Field,
    above: Option<&NullBuffer>,
    visible: Option<&NullBuffer>,
    path: &str,
) -> Result<Option<ArrayRef>> {
    let Some(nulls) = array.nulls().filter(|nulls| !field.is_nullable() && nulls.null_count() > 0) else {
        return Ok(None);
    };
    if above.is_some_and(|above| above.contains(nulls)) {
        return Ok(None);
    }
    if !visible.is_some_and(|visible| visible.contains(nulls)) {
        let message = "has nulls, and the file's schema says it has none";
        return Err(Error::new(ErrorKind::Schema, message).with_column(path));
    }
    let data = with_a_value(array).to_data().into_builder().nulls(None).build();
    Ok(Some(make_array(data.map_err(|error| broken(array, path, error))?)))
}

/// The same dictionary array, whose dictionary has a value: the keys below nulls are those of the first one.
fn with_a_value(array: &ArrayRef) -> ArrayRef {
    let Some(dictionary) = array.as_any_dictionary_opt().filter(|dictionary| dictionary.values().is_empty()) else {
        return Arc::clone(array);
    };
    let null = new_null_array(dictionary.values().data_type(), 1).to_data();
    match null.into_builder().nulls(None).build() {
        Ok(blank) => dictionary.with_values(make_array(blank)),
        Err(_) => Arc::clone(array),
    }
}

fn broken(array: &ArrayRef, path: &str, error: ArrowError) -> Error {
    let message = format!("was decoded to something that is no {}", array.data_type());
    Error::new(ErrorKind::Internal, message).with_column(path).with_source(error)
}

/// Refuses nulls where the schema has none.
pub(super) fn check_nulls(array: &ArrayRef, field: &Field) -> Result<()> {
    if field.is_nullable() || array.logical_null_count() == 0 {
        return Ok(());
    }
    let message = format!("has {} nulls, and the dataset's schema says it has none", array.logical_null_count());
    Err(Error::new(ErrorKind::Schema, message).with_column(field.name()))
}

/// The column of a partition: one value, the same in every row.
pub(super) fn constant(value: Option<&str>, field: &Field, rows: usize, limit: u64) -> Result<ArrayRef> {
    let wrong = |error: ArrowError| {
        let message = format!("the partition value {value:?} is not of type {}", field.data_type());
        Error::new(ErrorKind::Schema, message).with_column(field.name()).with_source(error)
    };
    let Some(text) = value else { return nulls(field.data_type(), rows, field.name(), limit) };
    if (text.len() as u64).saturating_mul(rows as u64) > limit {
        let message = format!("the partition value takes more than {limit} bytes in {rows} rows");
        return Err(too_large(message).with_column(field.name()));
    }
    let one: ArrayRef = Arc::new(StringArray::from(vec![text]));
    let one = cast_with_options(&one, field.data_type(), &STRICT).map_err(wrong)?;
    arrow_select::take::take(&one, &UInt32Array::from(vec![0; rows]), None).map_err(wrong)
}

/// Brings an array to type `want`: fields by name, missing ones null, narrower values widened, views copied.
///
/// `path` names the column in errors; `limit` bounds the bytes of strings that views are copied into.
pub(super) fn adapt(array: &ArrayRef, want: &DataType, path: &str, limit: u64) -> Result<ArrayRef> {
    if array.data_type() == want {
        return Ok(Arc::clone(array));
    }
    let mismatch = |error: ArrowError| {
        let message = format!("cannot be brought from {} to {want}", array.data_type());
        Error::new(ErrorKind::Schema, message).with_column(path).with_source(error)
    };
    let named = |field: &FieldRef| format!("{path}.{}", field.name());
    match (array.data_type(), want) {
        (DataType::Null, _) => nulls(want, array.len(), path, limit),
        (DataType::Struct(have), DataType::Struct(fields)) => {
            let child = |(field, place): (&FieldRef, Option<usize>)| match place {
                Some(place) => adapt(array.as_struct().column(place), field.data_type(), &named(field), limit),
                None => nulls(field.data_type(), array.len(), &named(field), limit),
            };
            let columns = fields.iter().zip(places_of(fields, have)).map(child).collect::<Result<Vec<_>>>()?;
            with_below(array, want, &columns).map_err(mismatch)
        }
        // Lists of another kind first, and then their items.
        (DataType::List(item) | DataType::ListView(item) | DataType::LargeListView(item), DataType::LargeList(_)) => {
            let large = cast_with_options(array, &DataType::LargeList(Arc::clone(item)), &STRICT).map_err(mismatch)?;
            adapt(&large, want, path, limit)
        }
        (DataType::FixedSizeList(item, _), DataType::List(_) | DataType::LargeList(_)) => {
            let of = if matches!(want, DataType::List(_)) { DataType::List } else { DataType::LargeList };
            adapt(&variable(array, &of(Arc::clone(item))).map_err(mismatch)?, want, path, limit)
        }
        (have, want) if are_alike(have, want) => {
            // Keys and values of maps are told apart by their place: their names differ between writers.
            let fields = match want {
                DataType::Map(entries, _) => children(entries.data_type()),
                other => children(other),
            };
            let child =
                |(values, field): (&ArrayRef, &FieldRef)| adapt(values, field.data_type(), &named(field), limit);
            let columns = below(array).iter().zip(fields).map(child).collect::<Result<Vec<_>>>()?;
            with_below(array, want, &columns).map_err(mismatch)
        }
        (have, want) if !widens(have, want) => Err(mismatch(ArrowError::CastError("the values might not fit".into()))),
        (DataType::Dictionary(_, _), DataType::Dictionary(_, _)) => {
            cast_with_options(array, want, &STRICT).map_err(mismatch)
        }
        // Each value once comes first: views may share one long value.
        (_, DataType::Dictionary(key, plain)) => {
            let encoded = encode(array, key).map_err(|error| error.with_column(path))?;
            let values = adapt(encoded.as_any_dictionary().values(), plain, path, limit)?;
            Ok(encoded.as_any_dictionary().with_values(values))
        }
        _ => {
            copied_bytes(array, want, path, limit)?;
            cast_with_options(array, want, &STRICT).map_err(mismatch)
        }
    }
}

/// Whether both are lists of one kind, or maps.
fn are_alike(have: &DataType, want: &DataType) -> bool {
    match (have, want) {
        (DataType::FixedSizeList(_, have), DataType::FixedSizeList(_, want)) => have == want,
        (DataType::Struct(_), _) => false,
        _ => !children(have).is_empty() && mem::discriminant(have) == mem::discriminant(want),
    }
}

/// A value that does not fit is an error, not a null.
pub(super) const STRICT: CastOptions<'_> =
    CastOptions { safe: false, format_options: arrow_cast::display::FormatOptions::new() };

/// Lists of a fixed size as lists of any length. A null one has items there, which may be nulls where there are to be
/// none, and has none here: so Arrow's own cast will not do.
fn variable(array: &ArrayRef, want: &DataType) -> Result<ArrayRef, ArrowError> {
    let lists = array.as_fixed_size_list();
    let size = usize::try_from(lists.value_length()).unwrap_or_default();
    let values = match lists.nulls() {
        Some(nulls) => filter(lists.values(), &BooleanArray::new(nulls.expand(size).into_inner(), None))?,
        None => Arc::clone(lists.values()),
    };
    let lengths = (0..lists.len()).map(|row| if lists.is_valid(row) { size } else { 0 });
    list_array(want, lists.len(), lengths, values, lists.nulls().cloned())
}

/// So many nulls. They are measured first, because one of a long type takes as much as a value.
pub(super) fn nulls(data_type: &DataType, rows: usize, path: &str, limit: u64) -> Result<ArrayRef> {
    let bytes = null_bytes(data_type, rows as u64);
    if bytes > limit {
        let message = format!("{rows} nulls of its type take {bytes} bytes, more than the {limit} possible");
        return Err(too_large(message).with_column(path).with_hint(ASK_FOR_LESS));
    }
    Ok(new_null_array(data_type, rows))
}

/// Bytes of the values of so many nulls, those without a width left out.
fn null_bytes(data_type: &DataType, rows: u64) -> u64 {
    match data_type {
        DataType::FixedSizeBinary(size) => rows.saturating_mul(u64::try_from(*size).unwrap_or(0)),
        DataType::FixedSizeList(item, size) => {
            null_bytes(item.data_type(), rows.saturating_mul(u64::try_from(*size).unwrap_or(0)))
        }
        DataType::Struct(fields) => {
            fields.iter().map(|field| null_bytes(field.data_type(), rows)).fold(0, u64::saturating_add)
        }
        other => rows.saturating_mul(other.primitive_width().unwrap_or(0) as u64),
    }
}

/// Bytes of the strings that the keys of a dictionary stand for, each as often as it comes; `None` of other values.
fn spelled_bytes(array: &dyn Array) -> Option<u64> {
    let dictionary = array.as_any_dictionary_opt()?;
    let values = dictionary.values();
    let bytes = text_bytes(values)?;
    let lengths: Vec<u64> = (0..values.len()).map(|value| bytes(value).len() as u64).collect();
    let keys = dictionary.normalized_keys().into_iter().enumerate();
    let valid = keys.filter(|(row, _)| array.is_valid(*row));
    Some(valid.filter_map(|(_, key)| lengths.get(key)).fold(0, |bytes, length| bytes.saturating_add(*length)))
}

/// Measures views and dictionaries before they are copied: many rows may share one long value.
fn copied_bytes(array: &ArrayRef, want: &DataType, path: &str, limit: u64) -> Result<()> {
    let Some(bytes) = view_bytes(array.as_ref()).or_else(|| spelled_bytes(array.as_ref())) else { return Ok(()) };
    let (limit, hint) = match want {
        DataType::Utf8View | DataType::BinaryView => return Ok(()),
        DataType::Utf8 | DataType::Binary if limit > i32::MAX as u64 => {
            (i32::MAX as u64, "take fewer rows at once, or give the dataset a schema with large strings")
        }
        _ => (limit, ASK_FOR_LESS),
    };
    if bytes <= limit {
        return Ok(());
    }
    let message = format!("its values take {bytes} bytes, more than the {limit} possible");
    Err(too_large(message).with_column(path).with_hint(hint))
}

/// Whether every value of type `from` is also one of type `to`, so that casting loses nothing.
pub fn widens(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    if from == to {
        return true;
    }
    match (from, to) {
        (Null, _) => true,
        (Dictionary(_, values), _) => widens(values, to),
        (_, Dictionary(_, values)) => widens(from, values),
        (Int8, Int16 | Int32 | Int64 | Float32 | Float64) => true,
        (Int16, Int32 | Int64 | Float32 | Float64) => true,
        (Int32, Int64 | Float64) => true,
        (UInt8, UInt16 | UInt32 | UInt64 | Int16 | Int32 | Int64 | Float32 | Float64) => true,
        (UInt16, UInt32 | UInt64 | Int32 | Int64 | Float32 | Float64) => true,
        (UInt32, UInt64 | Int64 | Float64) => true,
        (Float16, Float32 | Float64) | (Float32, Float64) => true,
        (Utf8 | LargeUtf8 | Utf8View, Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView) => true,
        (Binary | LargeBinary | BinaryView | FixedSizeBinary(_), Binary | LargeBinary | BinaryView) => true,
        (Date32, Date64) | (Time32(_), Time64(_)) => true,
        (Time32(a), Time32(b)) | (Time64(a), Time64(b)) | (Duration(a), Duration(b)) => finer(a, b),
        // With any time zone a timestamp is a moment, without one it is a reading of a clock.
        (Timestamp(a, x), Timestamp(b, y)) => finer(a, b) && x.is_some() == y.is_some(),
        (List(a), List(b) | LargeList(b)) | (LargeList(a), LargeList(b)) => widens(a.data_type(), b.data_type()),
        (FixedSizeList(a, _), List(b) | LargeList(b)) => widens(a.data_type(), b.data_type()),
        _ => match (decimal(from), decimal(to)) {
            (Some((p, s)), Some((q, t))) => t >= s && q - t >= p - s,
            _ => false,
        },
    }
}

fn decimal(data_type: &DataType) -> Option<(i16, i16)> {
    match *data_type {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => Some((precision.into(), scale.into())),
        _ => None,
    }
}

fn finer(from: &TimeUnit, to: &TimeUnit) -> bool {
    let rank = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 1,
        TimeUnit::Microsecond => 2,
        TimeUnit::Nanosecond => 3,
    };
    rank(from) <= rank(to)
}
