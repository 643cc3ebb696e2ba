//! How much memory the values of columns take, by their types.

use arrow_schema::{DataType, Field, Schema};

use rowdex_projection::children;

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
        let above = ValueMemory { per_row: Some(1), ..ValueMemory::default() };
        measure(field, above, false, &mut measures, &mut dictionaries);
    }
    (measures, dictionaries)
}

/// Notes the memory of every leaf below a field, by what is known of what is above it.
fn measure(
    field: &Field,
    mut above: ValueMemory,
    is_above_nullable: bool,
    measures: &mut Vec<ValueMemory>,
    dictionaries: &mut Vec<usize>,
) {
    let is_nullable = is_above_nullable || field.is_nullable();
    let below = children(field.data_type());
    match field.data_type() {
        DataType::Struct(_) => {}
        DataType::FixedSizeList(_, size) => {
            let size = u64::from(size.unsigned_abs()).max(1);
            above.per_row = above.per_row.map(|per_row| per_row.saturating_mul(size));
            if is_nullable {
                above.factor = above.factor.saturating_mul(size);
            }
        }
        leaf if below.is_empty() => {
            above.width = match leaf {
                DataType::FixedSizeBinary(size) => u64::from(size.unsigned_abs()),
                DataType::Dictionary(_, _) => {
                    dictionaries.push(measures.len());
                    8
                }
                other => other.primitive_width().map_or(16, |width| width as u64),
            };
            measures.push(above);
        }
        _ => above.per_row = None,
    }
    for child in below {
        measure(child, above, is_nullable, measures, dictionaries);
    }
}
