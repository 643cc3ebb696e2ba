//! Which columns of tokens are lists of offsets, whatever lists they were: a part of a list of a fixed size is none of
//! that size.

use std::sync::Arc;

use arrow_schema::{DataType, Fields, Schema, SchemaRef};

use super::tokens::find;

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
