//! Lengths of rows by each column of lists, against the lists that pyarrow read.

use std::path::Path;

use arrow::array::AsArray;
use arrow::array::{Array, RecordBatch};
use arrow::compute::cast;
use arrow::compute::kernels::length::length;
use arrow::datatypes::{DataType, UInt64Type};
use rowdex::Index;
use rowdex::index::builder::LengthsBuilder;

/// Notes the lengths in the index at this path.
pub(super) fn check(index: &Path, want: &RecordBatch) -> Result<(), String> {
    let schema = want.schema();
    let is_list = |data_type: &DataType| {
        matches!(data_type, DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..))
    };
    let once = |name: &str| schema.fields().iter().filter(|field| field.name() == name).count() == 1;
    let is_counted = |name: &str, data_type: &DataType| is_list(data_type) && once(name) && !name.is_empty();
    let fields = schema.fields().iter().zip(want.columns());
    let lists: Vec<_> = fields.filter(|(field, _)| is_counted(field.name(), field.data_type())).collect();
    if lists.is_empty() {
        return Ok(());
    }
    let fail = |error: rowdex::Error| format!("lengths: {error}");
    let builder = LengthsBuilder::new(index).with_threads(1);
    lists.iter().fold(builder, |builder, (field, _)| builder.with_column(field.name())).write().map_err(fail)?;
    let known = Index::open(index).map_err(fail)?;
    for (field, column) in lists {
        let name = field.name();
        let mut read = Vec::new();
        known.lengths(name).and_then(|known| known.read(0..want.num_rows() as u64, &mut read)).map_err(fail)?;
        let lengths = cast(&length(column).unwrap(), &DataType::UInt64).unwrap();
        let lengths = lengths.as_primitive::<UInt64Type>();
        let expected = (0..lengths.len()).map(|row| if lengths.is_null(row) { 0 } else { lengths.value(row) });
        if let Some(row) = expected.zip(&read).position(|(expected, read)| expected != *read) {
            return Err(format!("lengths by {name}: row {row} has {}, and another in pyarrow", read[row]));
        }
    }
    Ok(())
}
