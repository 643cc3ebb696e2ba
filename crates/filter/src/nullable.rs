//! What a struct has not, its fields have not: the nulls of structs, told by the fields below them.
//!
//! A field that is required within a struct has some value in memory where the struct itself is null. DataFusion takes
//! it for a value, and so it must not be there.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, StructArray, make_array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema};
use arrow::error::ArrowError;

/// The same field, with fields of structs that may be null.
pub(super) fn field(of: &FieldRef) -> FieldRef {
    match of.data_type() {
        DataType::Struct(fields) => {
            let below = |of: &FieldRef| Arc::new(field(of).as_ref().clone().with_nullable(true));
            let fields: Fields = fields.iter().map(below).collect();
            Arc::new(Field::new(of.name(), DataType::Struct(fields), of.is_nullable()))
        }
        _ => Arc::clone(of),
    }
}

/// The same rows, with the nulls of structs in the fields below them.
pub(super) fn batch(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let schema = batch.schema_ref();
    if !schema.fields().iter().any(|field| matches!(field.data_type(), DataType::Struct(_))) {
        return Ok(batch.clone());
    }
    let fields: Fields = schema.fields().iter().map(field).collect();
    let columns = batch.columns().iter().map(|column| array(column, None)).collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
}

fn array(values: &ArrayRef, above: Option<&NullBuffer>) -> Result<ArrayRef, ArrowError> {
    let nulls = NullBuffer::union(above, values.nulls());
    match values.data_type() {
        DataType::Struct(fields) => {
            let fields: Fields =
                fields.iter().map(|of| Arc::new(field(of).as_ref().clone().with_nullable(true))).collect();
            let below = values.as_struct().columns().iter().map(|column| array(column, nulls.as_ref()));
            let below = below.collect::<Result<Vec<_>, _>>()?;
            Ok(Arc::new(StructArray::try_new_with_length(fields, below, nulls, values.len())?))
        }
        // Its null bits say what its keys or types say already.
        DataType::Null | DataType::Union(_, _) | DataType::RunEndEncoded(_, _) => Ok(Arc::clone(values)),
        _ if above.is_none() => Ok(Arc::clone(values)),
        _ => Ok(make_array(values.to_data().into_builder().nulls(nulls).build()?)),
    }
}
