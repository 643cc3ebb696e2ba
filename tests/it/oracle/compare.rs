//! When a table of rowdex and one of pyarrow are the same.
//!
//! Values are compared bit by bit: NaN equals the same NaN, and 0.0 is not -0.0. Before that both sides are brought to
//! one form, in which the same values look the same:
//!
//! - dictionaries are decoded;
//! - strings, large strings and string views are large strings, and so with binary;
//! - lists, large lists and list views are large lists;
//! - the items of lists are named `item`, the entries of maps `entries`, `key` and `value`: writers name them as they
//!   like;
//! - every field may be null and has no metadata;
//! - a time zone says only that there is one: the values are the same moments in any.
//!
//! Types are compared apart from values, by [`type_differences`].

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, LargeListArray, MapArray, RecordBatch, RecordBatchOptions,
    StructArray, UInt32Array,
};
use arrow::compute::{CastOptions, cast, cast_with_options, take};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};

/// The common form of the values.
pub(super) fn plain(array: &ArrayRef) -> ArrayRef {
    use DataType::*;
    let item = |values: &ArrayRef| Arc::new(Field::new("item", values.data_type().clone(), true));
    match array.data_type() {
        Dictionary(_, values) => plain(&cast(array, values).unwrap()),
        Utf8 | Utf8View => cast(array, &LargeUtf8).unwrap(),
        Binary | BinaryView => cast(array, &LargeBinary).unwrap(),
        Timestamp(unit, Some(_)) => cast(array, &Timestamp(*unit, Some("UTC".into()))).unwrap(),
        List(field) | ListView(field) | LargeListView(field) => {
            plain(&cast(array, &LargeList(Arc::clone(field))).unwrap())
        }
        LargeList(_) => {
            let list = array.as_list::<i64>();
            let values = plain(list.values());
            Arc::new(LargeListArray::new(item(&values), list.offsets().clone(), values, list.nulls().cloned()))
        }
        FixedSizeList(_, size) => {
            let list = array.as_fixed_size_list();
            let values = plain(list.values());
            let nulls = list.nulls().cloned();
            Arc::new(FixedSizeListArray::try_new_with_length(item(&values), *size, values, nulls, list.len()).unwrap())
        }
        Struct(fields) => {
            let columns: Vec<ArrayRef> = array.as_struct().columns().iter().map(plain).collect();
            let names = fields.iter().map(|field| field.name().as_str());
            structure(names, columns, array.as_ref())
        }
        Map(_, _) => {
            let map = array.as_map();
            map_like(map, plain(map.keys()), plain(map.values()))
        }
        _ => Arc::clone(array),
    }
}

fn structure<'a>(names: impl Iterator<Item = &'a str>, columns: Vec<ArrayRef>, like: &dyn Array) -> ArrayRef {
    let fields: Fields =
        names.zip(&columns).map(|(name, column)| Field::new(name, column.data_type().clone(), true)).collect();
    Arc::new(StructArray::try_new_with_length(fields, columns, like.nulls().cloned(), like.len()).unwrap())
}

fn map_like(map: &MapArray, keys: ArrayRef, values: ArrayRef) -> ArrayRef {
    let fields =
        vec![Field::new("key", keys.data_type().clone(), false), Field::new("value", values.data_type().clone(), true)];
    let entries = StructArray::new(fields.into(), vec![keys, values], None);
    let field = Arc::new(Field::new("entries", entries.data_type().clone(), false));
    Arc::new(MapArray::new(field, map.offsets().clone(), entries, map.nulls().cloned(), false))
}

/// [`plain`] for all columns.
pub(super) fn plain_batch(batch: &RecordBatch) -> RecordBatch {
    let columns: Vec<ArrayRef> = batch.columns().iter().map(plain).collect();
    batch_of(batch.schema().fields().iter().map(|field| field.name().as_str()), columns, batch.num_rows())
}

/// A batch of plain columns.
pub(super) fn batch_of<'a>(names: impl Iterator<Item = &'a str>, columns: Vec<ArrayRef>, rows: usize) -> RecordBatch {
    let fields: Fields =
        names.zip(&columns).map(|(name, column)| Field::new(name, column.data_type().clone(), true)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options).unwrap()
}

/// Rows of a plain batch.
pub(super) fn rows_of(batch: &RecordBatch, rows: &[u64]) -> RecordBatch {
    let places: UInt32Array = rows.iter().map(|&row| row as u32).collect();
    let columns = batch.columns().iter().map(|column| take(column, &places, None).unwrap()).collect();
    let schema = batch.schema();
    batch_of(schema.fields().iter().map(|field| field.name().as_str()), columns, rows.len())
}

/// Says where two plain batches first differ.
pub(super) fn value_difference(rowdex: &RecordBatch, pyarrow: &RecordBatch) -> Option<String> {
    if (rowdex.num_rows(), rowdex.num_columns()) != (pyarrow.num_rows(), pyarrow.num_columns()) {
        let shape = |batch: &RecordBatch| format!("{} rows of {} columns", batch.num_rows(), batch.num_columns());
        return Some(format!("{}, pyarrow has {}", shape(rowdex), shape(pyarrow)));
    }
    for (place, (ours, theirs)) in rowdex.columns().iter().zip(pyarrow.columns()).enumerate() {
        let name = pyarrow.schema().field(place).name().clone();
        let ours = &times_as(ours, theirs.data_type());
        if ours.data_type() != theirs.data_type() {
            return Some(format!("{name:?} is {}, in pyarrow {}", ours.data_type(), theirs.data_type()));
        }
        if ours.to_data() == theirs.to_data() {
            continue;
        }
        let differs = |row: &usize| ours.slice(*row, 1).to_data() != theirs.slice(*row, 1).to_data();
        let row = (0..ours.len()).find(differs).unwrap_or(0);
        let (a, b) = (show(ours, row), show(theirs, row));
        return Some(format!("{name:?} ({}), row {row} of those read: {a}, pyarrow has {b}", ours.data_type()));
    }
    None
}

/// Brings dates and timestamps to the unit that pyarrow gave them, where [`type_differences`] lets units differ.
fn times_as(array: &ArrayRef, want: &DataType) -> ArrayRef {
    use DataType::*;
    /// The type with every date and timestamp, of whatever unit, as the same type.
    fn timeless(data_type: &DataType) -> DataType {
        let below = |field: &FieldRef| Field::new(field.name(), timeless(field.data_type()), field.is_nullable());
        match data_type {
            Timestamp(_, _) => Timestamp(TimeUnit::Second, None),
            Date64 => Date32,
            LargeList(item) => LargeList(Arc::new(below(item))),
            FixedSizeList(item, size) => FixedSizeList(Arc::new(below(item)), *size),
            Struct(fields) => Struct(fields.iter().map(below).collect()),
            Map(entries, sorted) => Map(Arc::new(below(entries)), *sorted),
            other => other.clone(),
        }
    }
    if array.data_type() == want || timeless(array.data_type()) != timeless(want) {
        return Arc::clone(array);
    }
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(array, want, &strict).unwrap_or_else(|_| Arc::clone(array))
}

fn show(array: &ArrayRef, row: usize) -> String {
    let options = FormatOptions::new().with_null("null");
    let shown = ArrayFormatter::try_new(array.as_ref(), &options).unwrap().value(row).try_to_string();
    let mut shown = shown.unwrap_or_else(|error| error.to_string());
    if shown.len() > 300 {
        shown = shown.chars().take(300).collect();
    }
    shown
}

/// Says where the fields differ in name, type or nullability, each as `path: rowdex, pyarrow`.
///
/// Not compared: metadata, and the names of list items and map entries. And these differences are let pass, where the
/// writer noted the Arrow types that it wrote, and rowdex (the parquet crate) and pyarrow make different use of that:
///
/// - rowdex gives back dictionaries of any values, pyarrow those of strings and binary only, never large;
/// - rowdex gives back a `Date64`, pyarrow what Parquet has instead, a `Date32`;
/// - rowdex gives back the unit and zone of a timestamp stored as INT96, pyarrow nanoseconds without zone.
pub(super) fn type_differences(rowdex: &Fields, pyarrow: &Fields) -> Vec<String> {
    let mut found = Vec::new();
    fields("", rowdex, pyarrow, &mut found);
    found
}

fn fields(path: &str, ours: &Fields, theirs: &Fields, found: &mut Vec<String>) {
    if ours.len() != theirs.len() {
        found.push(format!("{path}: {} fields, {}", ours.len(), theirs.len()));
    }
    for (a, b) in ours.iter().zip(theirs) {
        let path = format!("{path}.{}", b.name());
        if a.name() != b.name() {
            found.push(format!("{path}: named {:?}, {:?}", a.name(), b.name()));
        }
        field(&path, a, b, found);
    }
}

fn field(path: &str, ours: &FieldRef, theirs: &FieldRef, found: &mut Vec<String>) {
    use DataType::*;
    if ours.is_nullable() != theirs.is_nullable() {
        found.push(format!("{path}: nullable {}, {}", ours.is_nullable(), theirs.is_nullable()));
    }
    match (ours.data_type(), theirs.data_type()) {
        (Struct(a), Struct(b)) => fields(path, a, b, found),
        (List(a), List(b)) | (LargeList(a), LargeList(b)) => field(path, a, b, found),
        (ListView(a), ListView(b)) | (LargeListView(a), LargeListView(b)) => field(path, a, b, found),
        (FixedSizeList(a, n), FixedSizeList(b, m)) if n == m => field(path, a, b, found),
        (Map(a, _), Map(b, _)) => match (a.data_type(), b.data_type()) {
            (Struct(a), Struct(b)) if a.len() == 2 && b.len() == 2 => {
                field(&format!("{path}.key"), &a[0], &b[0], found);
                field(&format!("{path}.value"), &a[1], &b[1], found);
            }
            _ => found.push(format!("{path}: {a}, {b}")),
        },
        (Dictionary(_, a), Dictionary(_, b)) if short(a) == short(b) => {}
        (Dictionary(_, a), b) if **a == *b => {}
        (Date64, Date32) => {}
        (Timestamp(unit, _), Timestamp(TimeUnit::Nanosecond, None)) if *unit != TimeUnit::Nanosecond => {}
        (Timestamp(TimeUnit::Nanosecond, Some(_)), Timestamp(TimeUnit::Nanosecond, None)) => {}
        (a, b) if a == b => {}
        (a, b) => found.push(format!("{path}: {a}, {b}")),
    }
}

fn short(data_type: &DataType) -> DataType {
    match data_type {
        DataType::LargeUtf8 => DataType::Utf8,
        DataType::LargeBinary => DataType::Binary,
        other => other.clone(),
    }
}

/// The dotted paths of the fields inside structs, with the places to go down: lists and maps are looked through.
pub(super) fn nested_paths(column: &Field) -> Vec<(String, Vec<usize>)> {
    fn walk(data_type: &DataType, path: &str, places: &[usize], found: &mut Vec<(String, Vec<usize>)>) {
        use DataType::*;
        match data_type {
            Struct(fields) => {
                for (place, field) in fields.iter().enumerate().filter(|(_, field)| !field.name().contains('.')) {
                    let path = format!("{path}.{}", field.name());
                    let places = [places, &[place]].concat();
                    walk(field.data_type(), &path, &places, found);
                    found.push((path, places));
                }
            }
            List(item) | LargeList(item) | FixedSizeList(item, _) => walk(item.data_type(), path, places, found),
            Map(entries, _) => match entries.data_type() {
                Struct(entries) => walk(entries[1].data_type(), path, places, found),
                _ => unreachable!("a map without entries"),
            },
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(column.data_type(), column.name(), &[], &mut found);
    found
}

/// A plain array with nothing of its structs but the field that [`nested_paths`] found at these places.
pub(super) fn prune(array: &ArrayRef, places: &[usize]) -> ArrayRef {
    use DataType::*;
    let Some((&place, below)) = places.split_first() else { return Arc::clone(array) };
    let item = |values: &ArrayRef| Arc::new(Field::new("item", values.data_type().clone(), true));
    match array.data_type() {
        Struct(fields) => {
            let child = prune(array.as_struct().column(place), below);
            structure([fields[place].name().as_str()].into_iter(), vec![child], array.as_ref())
        }
        LargeList(_) => {
            let list = array.as_list::<i64>();
            let values = prune(list.values(), places);
            Arc::new(LargeListArray::new(item(&values), list.offsets().clone(), values, list.nulls().cloned()))
        }
        FixedSizeList(_, size) => {
            let list = array.as_fixed_size_list();
            let values = prune(list.values(), places);
            let nulls = list.nulls().cloned();
            Arc::new(FixedSizeListArray::try_new_with_length(item(&values), *size, values, nulls, list.len()).unwrap())
        }
        Map(_, _) => {
            let map = array.as_map();
            map_like(map, Arc::clone(map.keys()), prune(map.values(), places))
        }
        other => unreachable!("nothing lies below {other}"),
    }
}
