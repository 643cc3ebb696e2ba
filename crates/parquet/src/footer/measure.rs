//! How much memory the values of columns take, by their types.

use arrow::datatypes::{DataType, Schema};

/// How much memory the values of one column take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ValueMemory {
    /// Bytes of a value, without what a string points to.
    pub(crate) width: u64,
    /// How many values one entry of the column can turn into: a null in a list of fixed size takes up all its places.
    factor: u64,
    /// How many values there are in every row, if that does not depend on the row.
    per_row: Option<u64>,
}

impl Default for ValueMemory {
    fn default() -> Self {
        Self { width: 16, factor: 1, per_row: None }
    }
}

impl ValueMemory {
    /// How many values `rows` rows with `entries` entries turn into, at most.
    pub(crate) fn values(&self, entries: u64, rows: u64) -> u64 {
        match self.per_row {
            Some(per_row) => rows.saturating_mul(per_row),
            None => entries.saturating_mul(self.factor),
        }
    }
}

/// The measures of all columns of a schema, and which of them are decoded to dictionaries.
pub(super) fn measures(schema: &Schema) -> (Vec<ValueMemory>, Vec<usize>) {
    let mut measures = Vec::new();
    let mut dictionaries = Vec::new();
    for field in schema.fields() {
        let above = Above { nullable: field.is_nullable(), factor: 1, per_row: Some(1) };
        measure(field.data_type(), above, &mut measures, &mut dictionaries);
    }
    (measures, dictionaries)
}

/// What lies above a field.
#[derive(Debug, Clone, Copy)]
struct Above {
    nullable: bool,
    factor: u64,
    per_row: Option<u64>,
}

/// Notes the measure of every leaf below a type.
fn measure(data_type: &DataType, mut above: Above, measures: &mut Vec<ValueMemory>, dictionaries: &mut Vec<usize>) {
    match data_type {
        DataType::Struct(_) => {}
        DataType::FixedSizeList(_, size) => {
            let size = u64::from(size.unsigned_abs()).max(1);
            above.per_row = above.per_row.map(|per_row| per_row.saturating_mul(size));
            if above.nullable {
                above.factor = above.factor.saturating_mul(size);
            }
        }
        _ if rowdex_projection::children(data_type).is_empty() => {
            let width = match data_type {
                DataType::FixedSizeBinary(size) => u64::from(size.unsigned_abs()),
                DataType::Dictionary(_, _) => {
                    dictionaries.push(measures.len());
                    8
                }
                other => other.primitive_width().map_or(16, |width| width as u64),
            };
            measures.push(ValueMemory { width, factor: above.factor, per_row: above.per_row });
            return;
        }
        _ => above.per_row = None,
    }
    for child in rowdex_projection::children(data_type) {
        let above = Above { nullable: above.nullable || child.is_nullable(), ..above };
        measure(child.data_type(), above, measures, dictionaries);
    }
}
