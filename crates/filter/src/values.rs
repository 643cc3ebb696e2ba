//! Values as conditions are to see them, whatever bytes stand for them.
//!
//! What a struct has not, its fields have not: a field that is required within a struct has some value in memory where
//! the struct itself is null, and DataFusion takes it for a value.
//!
//! There is one NaN and one zero. Arrow compares floating-point numbers by the total order of IEEE 754, in which -0.0
//! is less than 0.0, and NaN is below or above all numbers by its sign, which no user sees and no bound tells.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, RecordBatch, RecordBatchOptions, StructArray, make_array};
use arrow_buffer::NullBuffer;
use arrow_schema::ArrowError;
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema};
use datafusion_common::ScalarValue;

type Half = <Float16Type as ArrowPrimitiveType>::Native;

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
        DataType::Dictionary(_, of) if of.is_floating() => {
            let values = values.as_any_dictionary();
            values.with_values(array(values.values(), None)?)
        }
        DataType::Float64 => Arc::new(values.as_primitive::<Float64Type>().unary::<_, Float64Type>(double)),
        DataType::Float32 => Arc::new(values.as_primitive::<Float32Type>().unary::<_, Float32Type>(single)),
        DataType::Float16 => Arc::new(values.as_primitive::<Float16Type>().unary::<_, Float16Type>(half)),
        _ => Arc::clone(values),
    };
    if above.is_none() {
        return Ok(own);
    }
    Ok(make_array(own.to_data().into_builder().nulls(nulls).build()?))
}

/// The same constant.
pub(super) fn constant(value: ScalarValue) -> ScalarValue {
    match value {
        ScalarValue::Float64(of) => ScalarValue::Float64(of.map(double)),
        ScalarValue::Float32(of) => ScalarValue::Float32(of.map(single)),
        ScalarValue::Float16(of) => ScalarValue::Float16(of.map(half)),
        other => other,
    }
}

fn double(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value + 0.0 }
}

fn single(value: f32) -> f32 {
    if value.is_nan() { f32::NAN } else { value + 0.0 }
}

fn half(value: Half) -> Half {
    if value.is_nan() { Half::NAN } else { value + Half::ZERO }
}
