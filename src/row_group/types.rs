//! The Arrow types of a file's columns: those that its writer noted down, and those that the decoder is asked for.
//!
//! Both differ from what the parquet crate makes of the footer. It gives back a time zone only where the file has the
//! unit that was noted, and Parquet has no seconds. And it decodes dictionaries as they were noted: with keys that
//! one row group may have too many values for, and not at all where the values are neither strings, bytes nor
//! numbers.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use arrow::ipc::convert::try_schema_from_ipc_buffer;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parquet::arrow::ARROW_SCHEMA_META_KEY;
use parquet::file::metadata::ParquetMetaData;

use crate::projection::{children, with_children, with_wide_keys};

/// The schema with the time zones that the writer noted, where the file itself says no more than UTC.
pub(super) fn with_noted_zones(schema: &SchemaRef, metadata: &ParquetMetaData) -> SchemaRef {
    if !schema.fields().iter().any(|field| has_utc(field.data_type())) {
        return Arc::clone(schema);
    }
    let Some(noted) = noted_schema(metadata).filter(|noted| noted.fields().len() == schema.fields().len()) else {
        return Arc::clone(schema);
    };
    changed(schema, noted.fields().iter().map(Some).collect(), &mut zoned)
}

/// The schema that the decoder is asked for: strings and bytes as dictionaries with keys wide enough for any row
/// group, and the values of other dictionaries one by one.
pub(super) fn decodable(schema: &SchemaRef) -> SchemaRef {
    changed(schema, vec![None; schema.fields().len()], &mut |data_type, _| match data_type {
        DataType::Dictionary(_, values) => match values.as_ref() {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
                with_wide_keys(data_type)
            }
            plain => plain.clone(),
        },
        other => other.clone(),
    })
}

fn has_utc(data_type: &DataType) -> bool {
    match data_type {
        DataType::Timestamp(_, Some(zone)) => zone.as_ref() == "UTC",
        DataType::Dictionary(_, values) => has_utc(values),
        other => children(other).iter().any(|field| has_utc(field.data_type())),
    }
}

/// The Arrow schema in the file's key-value metadata. One that cannot be read says nothing: the decoder did without,
/// too.
fn noted_schema(metadata: &ParquetMetaData) -> Option<Schema> {
    let pairs = metadata.file_metadata().key_value_metadata()?;
    let noted = pairs.iter().find(|pair| pair.key == ARROW_SCHEMA_META_KEY)?.value.as_deref()?;
    try_schema_from_ipc_buffer(&STANDARD.decode(noted).ok()?).ok()
}

fn zoned(data_type: &DataType, noted: Option<&DataType>) -> DataType {
    let noted = match noted {
        Some(DataType::Dictionary(_, values)) if !matches!(data_type, DataType::Dictionary(_, _)) => Some(&**values),
        other => other,
    };
    match (data_type, noted) {
        (DataType::Timestamp(unit, Some(utc)), Some(DataType::Timestamp(_, Some(zone)))) if utc.as_ref() == "UTC" => {
            DataType::Timestamp(*unit, Some(Arc::clone(zone)))
        }
        _ => data_type.clone(),
    }
}

/// The schema with its leaves changed, each by its type and the one at its place in the schema that was `noted`.
fn changed(
    schema: &SchemaRef,
    noted: Vec<Option<&FieldRef>>,
    change: &mut dyn FnMut(&DataType, Option<&DataType>) -> DataType,
) -> SchemaRef {
    fn below(
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
            let fields = own.iter().enumerate().map(|(place, field)| below(field, noted(place), change));
            with_children(field.data_type(), fields.collect())
        };
        if data_type == *field.data_type() {
            return Arc::clone(field);
        }
        Arc::new(Field::new(field.name(), data_type, field.is_nullable()).with_metadata(field.metadata().clone()))
    }
    let fields: Fields = schema.fields().iter().zip(noted).map(|(field, noted)| below(field, noted, change)).collect();
    if fields == *schema.fields() {
        return Arc::clone(schema);
    }
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}
