//! The Arrow types of a file's columns: those that its writer noted down, and those that the decoder is asked for.
//!
//! Both differ from what the parquet crate makes of the footer. It gives back a time zone only where the file has the
//! unit that was noted, and Parquet has no seconds. And it decodes dictionaries as they were noted: with keys that
//! one row group may have too many values for, and not at all where the values are neither strings, bytes nor
//! numbers. And it takes an interval for one of days and milliseconds, and drops its months.
//!
//! A type says how many columns of the file it has, which are its leaves.

use std::ops::Range;
use std::sync::Arc;

use arrow_ipc::convert::try_schema_from_ipc_buffer;
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parquet::arrow::ARROW_SCHEMA_META_KEY;
use parquet::basic::{ConvertedType, Type as Physical};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type, TypePtr};

use rowdex_projection::{children, view_of, with_children, with_wide_keys};

/// The schema with the time zones that the writer noted, where the file itself says no more than UTC.
pub(super) fn with_noted_zones(schema: &SchemaRef, metadata: &ParquetMetaData) -> SchemaRef {
    let is_utc = |of: &DataType| matches!(of, DataType::Timestamp(_, Some(zone)) if zone.as_ref() == "UTC");
    if !schema.fields().iter().any(|field| has(field.data_type(), is_utc)) {
        return Arc::clone(schema);
    }
    let Some(noted) = noted_schema(metadata).filter(|noted| noted.fields().len() == schema.fields().len()) else {
        return Arc::clone(schema);
    };
    changed(schema, Some(&noted), &mut zoned)
}

/// The file's schema with intervals as the 12 bytes that they are, if it has any, and which of its columns these are:
/// months, days and milliseconds, which no Arrow type has room for. `None` where there are none, or where the writer
/// noted which part of them it used.
pub(super) fn with_plain_intervals(
    metadata: &ParquetMetaData,
) -> Result<Option<(SchemaDescPtr, Vec<usize>)>, ParquetError> {
    let schema = metadata.file_metadata().schema_descr();
    let intervals = schema.columns().iter().enumerate();
    let intervals = intervals.filter(|(_, column)| column.converted_type() == ConvertedType::INTERVAL);
    let intervals: Vec<usize> = intervals.map(|(leaf, _)| leaf).collect();
    if intervals.is_empty() {
        return Ok(None);
    }
    let is_interval = |of: &DataType| matches!(of, DataType::Interval(_));
    if noted_schema(metadata)
        .is_some_and(|noted| noted.fields().iter().any(|field| has(field.data_type(), is_interval)))
    {
        return Ok(None);
    }
    let root = plain_interval(&schema.root_schema_ptr())?;
    Ok(Some((Arc::new(SchemaDescriptor::new(root)), intervals)))
}

fn plain_interval(node: &TypePtr) -> Result<TypePtr, ParquetError> {
    match node.as_ref() {
        Type::GroupType { basic_info, fields } => {
            let fields = fields.iter().map(plain_interval).collect::<Result<_, _>>()?;
            Ok(Arc::new(Type::GroupType { basic_info: basic_info.clone(), fields }))
        }
        Type::PrimitiveType { basic_info, physical_type: Physical::FIXED_LEN_BYTE_ARRAY, type_length, .. }
            if basic_info.converted_type() == ConvertedType::INTERVAL =>
        {
            let plain = Type::primitive_type_builder(basic_info.name(), Physical::FIXED_LEN_BYTE_ARRAY)
                .with_repetition(basic_info.repetition())
                .with_length(*type_length)
                .with_id(basic_info.has_id().then(|| basic_info.id()));
            Ok(Arc::new(plain.build()?))
        }
        Type::PrimitiveType { .. } => Ok(Arc::clone(node)),
    }
}

/// The schema that the decoder is asked for: strings and bytes as dictionaries with keys wide enough for any row
/// group, and the values of other dictionaries one by one.
pub(super) fn decodable(schema: &SchemaRef) -> SchemaRef {
    changed(schema, None, &mut |data_type, _| match data_type {
        DataType::Dictionary(_, values) => match values.as_ref() {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
                with_wide_keys(data_type)
            }
            plain => plain.clone(),
        },
        other => other.clone(),
    })
}

/// The Arrow schema in the file's key-value metadata. One that cannot be read says nothing: the decoder did without,
/// too.
fn noted_schema(metadata: &ParquetMetaData) -> Option<Schema> {
    let pairs = metadata.file_metadata().key_value_metadata()?;
    let noted = pairs.iter().find(|pair| pair.key == ARROW_SCHEMA_META_KEY)?.value.as_deref()?;
    try_schema_from_ipc_buffer(&STANDARD.decode(noted).ok()?).ok()
}

fn zoned(data_type: &DataType, noted: Option<&DataType>) -> DataType {
    match (data_type, noted.map(plain)) {
        (DataType::Timestamp(unit, Some(utc)), Some(DataType::Timestamp(_, Some(zone)))) if utc.as_ref() == "UTC" => {
            DataType::Timestamp(*unit, Some(Arc::clone(zone)))
        }
        _ => data_type.clone(),
    }
}

/// The schema with its leaves changed, each by its type and the one at its place in the schema that was `noted`.
fn changed(
    schema: &SchemaRef,
    noted: Option<&Schema>,
    change: &mut dyn FnMut(&DataType, Option<&DataType>) -> DataType,
) -> SchemaRef {
    let noted = |place: usize| noted.and_then(|noted| noted.fields().get(place));
    let fields = schema.fields().iter().enumerate().map(|(place, field)| with_leaves(field, noted(place), change));
    let fields: Fields = fields.collect();
    if fields == *schema.fields() {
        return Arc::clone(schema);
    }
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn with_leaves(
    field: &FieldRef,
    noted: Option<&FieldRef>,
    change: &mut dyn FnMut(&DataType, Option<&DataType>) -> DataType,
) -> FieldRef {
    let own = children(field.data_type());
    let data_type = if own.is_empty() {
        change(field.data_type(), noted.map(|field| field.data_type()))
    } else {
        let noted = noted.map_or(&[][..], |field| children(field.data_type()));
        let noted = |place: usize| noted.get(place).filter(|_| noted.len() == own.len());
        let fields = own.iter().enumerate().map(|(place, field)| with_leaves(field, noted(place), change));
        with_children(field.data_type(), fields.collect())
    };
    if data_type == *field.data_type() {
        return Arc::clone(field);
    }
    Arc::new(Field::new(field.name(), data_type, field.is_nullable()).with_metadata(field.metadata().clone()))
}

/// How many columns of a Parquet file hold a value of this type.
pub(super) fn leaf_count(data_type: &DataType) -> usize {
    match data_type {
        DataType::Struct(fields) => fields.iter().map(|field| leaf_count(field.data_type())).sum(),
        other => match children(other) {
            [] => 1,
            below => below.iter().map(|field| leaf_count(field.data_type())).sum(),
        },
    }
}

/// The type of the leaf at this place among those below a type.
pub(super) fn leaf_type(data_type: &DataType, mut place: usize) -> Option<&DataType> {
    let below = children(data_type);
    for field in below {
        match place.checked_sub(leaf_count(field.data_type())) {
            None => return leaf_type(field.data_type(), place),
            Some(rest) => place = rest,
        }
    }
    (below.is_empty() && place == 0).then_some(data_type)
}

/// Whether one of the leaves, which are sorted, is in this range.
pub(super) fn has_some_of(leaves: &[usize], range: &Range<usize>) -> bool {
    leaves.get(leaves.partition_point(|leaf| *leaf < range.start)).is_some_and(|leaf| *leaf < range.end)
}

/// A field with the given columns, by their number in the file, changed to views; these are its own.
pub(super) fn with_views(field: &FieldRef, leaves: &Range<usize>, views: &[usize]) -> FieldRef {
    if !has_some_of(views, leaves) {
        return Arc::clone(field);
    }
    let mut leaves = leaves.clone();
    with_leaves(field, None, &mut |data_type, _| {
        let is_one = leaves.by_ref().take(leaf_count(data_type)).any(|leaf| views.binary_search(&leaf).is_ok());
        view_of(plain(data_type)).filter(|_| is_one).unwrap_or_else(|| data_type.clone())
    })
}

/// The type of a dictionary's values, or the type itself.
pub(super) fn plain(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => values,
        other => other,
    }
}

/// Whether this is so of a type, or of one below it.
fn has(data_type: &DataType, is_one: fn(&DataType) -> bool) -> bool {
    let data_type = plain(data_type);
    is_one(data_type) || children(data_type).iter().any(|field| has(field.data_type(), is_one))
}
