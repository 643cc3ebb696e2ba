//! What a struct has not, its fields have not: a field that is required within a struct has some value in memory where
//! the struct itself is null, and DataFusion takes it for a value.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, StructArray, make_array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema};
use arrow::error::ArrowError;

/// The same rows.
pub(super) fn batch(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let fields: Fields = batch.schema_ref().fields().iter().map(|of| field(of, of.is_nullable())).collect();
    let columns = batch.columns().iter().map(|column| array(column, None)).collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
}

/// The same field, with fields of structs that may be null.
fn field(of: &FieldRef, nullable: bool) -> FieldRef {
    match of.data_type() {
        DataType::Struct(below) => {
            let below: Fields = below.iter().map(|of| field(of, true)).collect();
            Arc::new(Field::new(of.name(), DataType::Struct(below), nullable))
        }
        _ => Arc::new(of.as_ref().clone().with_nullable(nullable)),
    }
}

fn array(values: &ArrayRef, above: Option<&NullBuffer>) -> Result<ArrayRef, ArrowError> {
    let nulls = NullBuffer::union(above, values.nulls());
    let own = match values.data_type() {
        DataType::Struct(fields) => {
            let fields: Fields = fields.iter().map(|of| field(of, true)).collect();
            let below = values.as_struct().columns().iter().map(|column| array(column, nulls.as_ref()));
            let below = below.collect::<Result<Vec<_>, _>>()?;
            return Ok(Arc::new(StructArray::try_new_with_length(fields, below, nulls, values.len())?));
        }
        // Its null bits say what its keys or types say already.
        DataType::Null | DataType::Union(_, _) | DataType::RunEndEncoded(_, _) => return Ok(Arc::clone(values)),
        _ if above.is_none() => return Ok(Arc::clone(values)),
        _ => values.to_data().into_builder().nulls(nulls).build()?,
    };
    Ok(make_array(own))
}
