//! Columns of tokens as lists of offsets, whatever lists they are: a part of a list of a fixed size is none of that
//! size.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Fields, Schema, SchemaRef};

use super::tokens::find;
use super::{record_batch, uncopied};
use rowdex_base::error::Result;

/// The schema with lists of offsets in these columns, names or paths, if any of them has other lists.
pub fn listed(schema: &SchemaRef, names: &[String]) -> Option<SchemaRef> {
    let mut fields = schema.fields().clone();
    for name in names {
        let Some((path, field)) = find(&fields, name) else { continue };
        let item = match field.data_type() {
            DataType::FixedSizeList(item, _) | DataType::ListView(item) | DataType::LargeListView(item) => item,
            _ => continue,
        };
        fields = with_type(&fields, &path, DataType::LargeList(Arc::clone(item)))?;
    }
    let is_other = &fields != schema.fields();
    is_other.then(|| Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())))
}

fn with_type(fields: &Fields, path: &[usize], data_type: DataType) -> Option<Fields> {
    let (place, below) = path.split_first()?;
    let mut fields = fields.to_vec();
    let field = fields.get_mut(*place)?;
    let data_type = match (field.data_type(), below.is_empty()) {
        (_, true) => data_type,
        (DataType::Struct(inner), _) => DataType::Struct(with_type(inner, below, data_type)?),
        _ => return None,
    };
    *field = Arc::new(field.as_ref().clone().with_data_type(data_type));
    Some(fields.into())
}

/// The batch with the types of a schema that has [lists of offsets](listed) where it has others.
///
/// # Errors
/// Those of Arrow's `cast`.
pub fn to_lists(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let column = |(column, field): (&ArrayRef, &FieldRef)| match column.data_type() == field.data_type() {
        true => Ok(Arc::clone(column)),
        false => cast(column, field.data_type()),
    };
    let columns = batch.columns().iter().zip(schema.fields()).map(column).collect::<std::result::Result<Vec<_>, _>>();
    record_batch(schema, columns.map_err(uncopied)?, batch.num_rows()).map_err(uncopied)
}
