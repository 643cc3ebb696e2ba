//! One column of many rows, read for what it says about the rows: their class, their weight, their side of a split.

use std::collections::HashMap;
use std::fmt;

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array, make_array};
use arrow::buffer::NullBuffer;
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, Float64Type, Int64Type, UInt64Type};

use super::Dataset;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::pool;
use rowdex_index::RowGroupEntry;
use rowdex_order::id_set::Builder;
use rowdex_order::{IdSet, Side, Split};

/// One column of a dataset, from [`Dataset::column`]: what orders by class or weight, and splits by key, need to know.
///
/// Reading decodes the column of every row group that has one of the rows, once, on the dataset's threads and past
/// its cache.
#[derive(Debug, Clone)]
pub struct Column<'a> {
    dataset: &'a Dataset,
    name: String,
    rows: Option<&'a IdSet>,
}

/// The class of every row, from [`Column::labels`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labels {
    codes: Vec<u32>,
    classes: Vec<Class>,
}

/// A value that rows are of one class by, or belong together by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Class {
    /// A truth value.
    Bool(bool),
    /// An integer, or the days of a date.
    Int(i128),
    /// A string.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl Dataset {
    /// One column by name, a dotted path for a nested one. It need not be among the columns that the dataset serves.
    pub fn column(&self, name: impl Into<String>) -> Column<'_> {
        Column { dataset: self, name: name.into(), rows: None }
    }
}

impl<'a> Column<'a> {
    /// Only these rows, out of all rows of the dataset: what others have in the column does not matter.
    #[must_use]
    pub fn of(self, rows: &'a IdSet) -> Self {
        Self { rows: Some(rows), ..self }
    }

    /// The classes of the rows, in order: equal values are one class. Integers, dates, booleans, strings and binary,
    /// and dictionaries of them. 4 bytes a row.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if there is no such column, or if a row has no value; [`ErrorKind::Schema`] if
    /// the column is of another type; and those of reading. They name file, row group and column.
    pub fn labels(&self) -> Result<Labels> {
        let mut codes = Vec::new();
        self.reserve(&mut codes)?;
        let mut known: HashMap<Vec<u8>, u32> = HashMap::new();
        let mut classes = Vec::new();
        let (mut key, mut last) = (Vec::new(), None);
        self.each_value("label", |_, value| {
            value.write(&mut key);
            // Neighbours are often of one class.
            let code = match &last {
                Some((of, code)) if *of == key => *code,
                _ => {
                    let code = match known.get(&key) {
                        Some(code) => *code,
                        None => {
                            let code = u32::try_from(classes.len())
                                .map_err(|_| Error::new(ErrorKind::TooLarge, "more than 2^32 classes"))?;
                            classes.push(value.to_class());
                            known.insert(key.clone(), code);
                            code
                        }
                    };
                    last = Some((key.clone(), code));
                    code
                }
            };
            codes.push(code);
            Ok(())
        })?;
        Ok(Labels::sorted(codes, classes))
    }

    /// How many rows each class has, ascending by value, and last how many have no value, if any. Types as for
    /// [`labels`](Self::labels). Memory is in proportion to the classes.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if there is no such column; [`ErrorKind::Schema`] if the column is of another
    /// type; and those of reading.
    pub fn counts(&self) -> Result<Vec<(Option<Class>, u64)>> {
        let mut known: HashMap<Vec<u8>, (Class, u64)> = HashMap::new();
        let (mut key, mut nulls) = (Vec::new(), 0);
        self.each_optional("label", |_, value| {
            let Some(value) = value else {
                nulls += 1;
                return Ok(());
            };
            value.write(&mut key);
            match known.get_mut(&key) {
                Some((_, count)) => *count += 1,
                None => {
                    known.insert(key.clone(), (value.to_class(), 1));
                }
            }
            Ok(())
        })?;
        let mut counts: Vec<(Class, u64)> = known.into_values().collect();
        counts.sort();
        let counts = counts.into_iter().map(|(class, count)| (Some(class), count));
        Ok(counts.chain((nulls > 0).then_some((None, nulls))).collect())
    }

    /// The weights of the rows, in order: any numbers that are finite and not negative. 8 bytes a row.
    ///
    /// # Errors
    /// As [`labels`](Self::labels), and [`ErrorKind::InvalidArgument`] for another number.
    pub fn weights(&self) -> Result<Vec<f64>> {
        let mut weights = Vec::new();
        self.reserve(&mut weights)?;
        self.each_array(|entry, ids, array| {
            let numeric = array.data_type().is_numeric() || array.data_type() == &DataType::Boolean;
            if !numeric {
                return Err(self.unfit(&array, "weight", "numbers or booleans"));
            }
            let numbers = cast(&array, &DataType::Float64).map_err(|error| self.unreadable(error))?;
            for (at, weight) in numbers.as_primitive::<Float64Type>().iter().enumerate() {
                match weight {
                    Some(weight) if weight.is_finite() && weight >= 0.0 => weights.push(weight),
                    Some(weight) => {
                        let message = format!("row id {} has the weight {weight}", ids.id(&entry, at));
                        return Err(Error::new(ErrorKind::InvalidArgument, message)
                            .with_hint("weights are finite and not negative; 0 leaves a row out"));
                    }
                    None => return Err(missing("weight", ids.id(&entry, at))),
                }
            }
            Ok(())
        })?;
        Ok(weights)
    }

    /// The rows whose value is on this side of the split. Rows with equal values are on one side, in all files and
    /// whatever width or encoding their columns have. Types as for [`labels`](Self::labels).
    ///
    /// # Errors
    /// As [`labels`](Self::labels).
    pub fn split(&self, split: &Split, side: Side) -> Result<IdSet> {
        let mut set = Builder::new(self.dataset.len());
        let mut key = Vec::new();
        self.each_value("key", |id, value| {
            value.write(&mut key);
            if split.side(&key) == side { set.add(id..id + 1) } else { Ok(()) }
        })?;
        Ok(set.finish())
    }

    fn len(&self) -> u64 {
        self.rows.map_or(self.dataset.len(), IdSet::len)
    }

    fn reserve<T>(&self, values: &mut Vec<T>) -> Result<()> {
        let len = self.len();
        let reserved = usize::try_from(len).is_ok_and(|len| values.try_reserve_exact(len).is_ok());
        if reserved { Ok(()) } else { Err(Error::new(ErrorKind::TooLarge, format!("no memory for {len} values"))) }
    }

    /// Calls `each` with row id and value of every row, in order. `what` says in errors what a value is: `label`.
    fn each_value(&self, what: &str, mut each: impl FnMut(u64, Value<'_>) -> Result<()>) -> Result<()> {
        self.each_optional(what, |id, value| each(id, value.ok_or_else(|| missing(what, id))?))
    }

    /// As [`each_value`](Self::each_value), with rows that have no value.
    fn each_optional(&self, what: &str, mut each: impl FnMut(u64, Option<Value<'_>>) -> Result<()>) -> Result<()> {
        self.each_array(|entry, ids, array| {
            let data_type = match array.data_type() {
                DataType::Dictionary(_, values) => values.as_ref(),
                other => other,
            };
            let plain = match data_type {
                DataType::Boolean => DataType::Boolean,
                DataType::Date32 => DataType::Int32,
                DataType::UInt64 => DataType::UInt64,
                integer if integer.is_integer() => DataType::Int64,
                DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::LargeUtf8,
                DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
                    DataType::LargeBinary
                }
                _ => return Err(self.unfit(&array, what, "integers, booleans, dates, strings or binary")),
            };
            let mut values = cast(&array, &plain).map_err(|error| self.unreadable(error))?;
            if plain == DataType::Int32 {
                values = cast(&values, &DataType::Int64).map_err(|error| self.unreadable(error))?;
            }
            let nulls = values.logical_nulls();
            for at in 0..values.len() {
                if nulls.as_ref().is_some_and(|nulls| nulls.is_null(at)) {
                    each(ids.id(&entry, at), None)?;
                    continue;
                }
                let value = match values.data_type() {
                    DataType::Boolean => Value::Bool(values.as_boolean().value(at)),
                    DataType::UInt64 => Value::Int(values.as_primitive::<UInt64Type>().value(at).into()),
                    DataType::Int64 => Value::Int(values.as_primitive::<Int64Type>().value(at).into()),
                    DataType::LargeUtf8 => Value::Text(values.as_string::<i64>().value(at)),
                    _ => Value::Bytes(values.as_binary::<i64>().value(at)),
                };
                each(ids.id(&entry, at), Some(value))?;
            }
            Ok(())
        })
    }

    /// Calls `each` with the wanted rows of every row group that has any, in order.
    fn each_array(&self, mut each: impl FnMut(RowGroupEntry<'_>, Ids<'_>, ArrayRef) -> Result<()>) -> Result<()> {
        if let Some(rows) = self.rows.filter(|rows| rows.rows() != self.dataset.len()) {
            let message = format!("a set out of {} rows for a dataset of {}", rows.rows(), self.dataset.len());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let inner = &self.dataset.inner.settings;
        let reader = Dataset::builder(inner.index.clone())
            .with_columns([&self.name])
            .with_source(inner.source.clone())
            .with_staleness(inner.staleness)
            .with_max_decoded_bytes(inner.max_decoded_bytes)
            .with_cache_bytes(0)
            .with_threads(inner.threads)
            .open()?;
        let ids = Ids(self.rows);
        let wanted: Vec<RowGroupEntry<'_>> = inner.index.row_groups().filter(|entry| ids.count(entry) > 0).collect();
        let pool = reader.inner.pool(reader.inner.state()?)?;
        let read = |(): &mut (), entry: &RowGroupEntry<'_>| {
            let batch = reader.read_whole(entry.index())?;
            let array = batch.columns().first().cloned();
            array.ok_or_else(|| Error::new(ErrorKind::Internal, "a column that was chosen is not there"))
        };
        // Only a few row groups at a time are in memory.
        for entries in wanted.chunks(inner.threads.max(1)) {
            let arrays = pool::each(pool.filter(|_| entries.len() > 1), entries, || (), read)?;
            for (entry, array) in entries.iter().zip(arrays) {
                let picked = ids.pick(entry, array?).and_then(leaf).map_err(|error| self.unreadable(error));
                let checked = picked.and_then(|array| each(*entry, ids, array));
                checked.map_err(|error| {
                    let error = error.with_column(&self.name).with_row_group(u64::from(entry.ordinal()));
                    match inner.index.file(entry.file()) {
                        Some(file) => error.with_file(file.path()),
                        None => error,
                    }
                })?;
            }
        }
        Ok(())
    }

    fn unfit(&self, array: &ArrayRef, what: &str, fit: &str) -> Error {
        Error::new(ErrorKind::Schema, format!("a value of type {} can not be a {what}", array.data_type()))
            .with_column(&self.name)
            .with_hint(format!("use a column of {fit}"))
    }

    fn unreadable(&self, error: arrow::error::ArrowError) -> Error {
        Error::new(ErrorKind::Schema, format!("cannot read the values: {error}"))
            .with_column(&self.name)
            .with_source(error)
    }
}

fn missing(what: &str, id: u64) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("row id {id} has no {what}"))
        .with_hint("give it one, or leave out the rows that have none")
}

/// What a dotted path led to: structs of one field are looked through, and what a struct has not, its field has not.
fn leaf(array: ArrayRef) -> Result<ArrayRef, arrow::error::ArrowError> {
    let Some(fields) = array.as_struct_opt().filter(|fields| fields.num_columns() == 1) else { return Ok(array) };
    let nulls = NullBuffer::union(fields.nulls(), fields.column(0).nulls());
    leaf(make_array(fields.column(0).to_data().into_builder().nulls(nulls).build()?))
}

/// Which rows are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ids<'a>(pub(super) Option<&'a IdSet>);

impl Ids<'_> {
    /// How many of a row group.
    pub(super) fn count(self, entry: &RowGroupEntry<'_>) -> u64 {
        let ids = entry.row_ids();
        self.0.map_or(entry.rows(), |set| set.rank(ids.end) - set.rank(ids.start))
    }

    /// The row id of the `at`-th one of a row group.
    pub(super) fn id(self, entry: &RowGroupEntry<'_>, at: usize) -> u64 {
        let all = entry.first_row() + at as u64;
        self.0.map_or(all, |set| set.select(set.rank(entry.first_row()) + at as u64).unwrap_or(all))
    }

    /// Those of a whole row group's values.
    fn pick(self, entry: &RowGroupEntry<'_>, values: ArrayRef) -> Result<ArrayRef, arrow::error::ArrowError> {
        let count = self.count(entry);
        if count == entry.rows() {
            return Ok(values);
        }
        let slots = (0..count as usize).map(|at| (self.id(entry, at) - entry.first_row()) as u32);
        take(&values, &UInt32Array::from_iter_values(slots), None)
    }
}

/// One value, borrowed.
#[derive(Debug, Clone, Copy)]
enum Value<'a> {
    Bool(bool),
    Int(i128),
    Text(&'a str),
    Bytes(&'a [u8]),
}

impl Value<'_> {
    /// Writes the canonical bytes over `key`: the same for equal values of whatever width or encoding, and different
    /// for others. Splits hash them, so they are frozen.
    fn write(self, key: &mut Vec<u8>) {
        key.clear();
        match self {
            Self::Int(int) => {
                key.push(1);
                key.extend_from_slice(&int.to_le_bytes());
            }
            Self::Bool(bool) => key.extend_from_slice(&[2, u8::from(bool)]),
            Self::Text(text) => {
                key.push(3);
                key.extend_from_slice(text.as_bytes());
            }
            Self::Bytes(bytes) => {
                key.push(4);
                key.extend_from_slice(bytes);
            }
        }
    }

    fn to_class(self) -> Class {
        match self {
            Self::Bool(bool) => Class::Bool(bool),
            Self::Int(int) => Class::Int(int),
            Self::Text(text) => Class::Text(text.to_owned()),
            Self::Bytes(bytes) => Class::Bytes(bytes.to_owned()),
        }
    }
}

impl Labels {
    /// With the classes in the order of their values, so that the code of a class does not depend on which row has it
    /// first.
    fn sorted(mut codes: Vec<u32>, mut classes: Vec<Class>) -> Self {
        let mut by_value: Vec<u32> = (0..classes.len() as u32).collect();
        by_value.sort_by(|a, b| classes.get(*a as usize).cmp(&classes.get(*b as usize)));
        let mut code_of = vec![0; classes.len()];
        for (new, old) in (0..).zip(&by_value) {
            if let Some(code) = code_of.get_mut(*old as usize) {
                *code = new;
            }
        }
        for code in &mut codes {
            *code = code_of.get(*code as usize).copied().unwrap_or_default();
        }
        classes.sort();
        Self { codes, classes }
    }

    /// The class of every row that was read, in order, as its place in [`classes`](Self::classes).
    pub fn codes(&self) -> &[u32] {
        &self.codes
    }

    /// The classes, ascending by value.
    pub fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// Codes and classes, for whoever takes them over.
    #[cfg(feature = "capi")]
    pub(crate) fn into_parts(self) -> (Vec<u32>, Vec<Class>) {
        (self.codes, self.classes)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(bool) => bool.fmt(f),
            Self::Int(int) => int.fmt(f),
            Self::Text(text) => f.pad(text),
            Self::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use arrow::array::{
        BooleanArray, Date32Array, DictionaryArray, Float32Array, Int32Array, Int64Array, ListArray, RecordBatch,
        StringArray, StringViewArray, StructArray, UInt64Array,
    };
    use arrow::datatypes::{Field, Fields, Int32Type};
    use parquet::arrow::ArrowWriter;
    use parquet::file::properties::WriterProperties;
    use tempfile::TempDir;

    use super::*;
    use crate::builder::IndexBuilder;
    use rowdex_index::Index;

    fn write(path: &Path, columns: Vec<(&str, ArrayRef)>) {
        let batch = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true))).unwrap();
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(7)).build();
        let file = std::fs::File::create(path).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }

    /// The rows of one file in row groups of 7.
    fn dataset(columns: Vec<(&str, ArrayRef)>) -> (TempDir, Dataset) {
        let folder = TempDir::new().unwrap();
        write(&folder.path().join("a.parquet"), columns);
        let dataset = indexed(&folder);
        (folder, dataset)
    }

    fn indexed(folder: &TempDir) -> Dataset {
        let index = folder.path().join("i.rdx");
        IndexBuilder::new([folder.path()]).with_overwrite(true).build(&index).unwrap();
        Dataset::builder(Index::open(index).unwrap()).with_threads(2).open().unwrap()
    }

    fn array(array: impl Array + 'static) -> ArrayRef {
        Arc::new(array)
    }

    fn words(rows: usize) -> Vec<String> {
        (0..rows).map(|row| format!("w{}", row * row % 5)).collect()
    }

    #[test]
    fn equal_values_are_one_class_whatever_their_type() {
        let rows = 40;
        let numbers = || (0..rows).map(|row| (row * row % 5) as i64);
        let words = words(rows as usize);
        let inner = array(Int64Array::from_iter_values(numbers()));
        let nested = StructArray::new(Fields::from(vec![Field::new("x", DataType::Int64, false)]), vec![inner], None);
        let (_folder, dataset) = dataset(vec![
            ("int", array(Int64Array::from_iter_values(numbers()))),
            ("small", array(Int32Array::from_iter_values(numbers().map(|n| n as i32)))),
            ("unsigned", array(UInt64Array::from_iter_values(numbers().map(|n| n as u64)))),
            ("date", array(Date32Array::from_iter_values(numbers().map(|n| n as i32)))),
            ("text", array(StringArray::from_iter_values(&words))),
            ("view", array(StringViewArray::from_iter_values(&words))),
            ("word", array(words.iter().map(String::as_str).collect::<DictionaryArray<Int32Type>>())),
            ("even", array(BooleanArray::from_iter(numbers().map(|n| Some(n % 2 == 0))))),
            ("nested", array(nested)),
        ]);
        let expected: Vec<u32> = numbers().map(|n| [0, 1, 9, 9, 2][n as usize]).collect();
        for name in ["int", "small", "unsigned", "date", "text", "view", "word", "nested.x"] {
            let labels = dataset.column(name).labels().unwrap();
            assert_eq!(labels.codes(), expected, "{name}");
            assert_eq!(labels.classes().len(), 3, "{name}");
        }
        assert_eq!(dataset.column("int").labels().unwrap().classes(), [0, 1, 4].map(Class::Int));
        let names: Vec<String> =
            dataset.column("word").labels().unwrap().classes().iter().map(Class::to_string).collect();
        assert_eq!(names, ["w0", "w1", "w4"]);
        assert_eq!(dataset.column("even").labels().unwrap().classes(), [false, true].map(Class::Bool));
    }

    #[test]
    fn equal_keys_are_on_one_side_in_every_file_and_type() {
        let keys = || (0..60_u64).map(|row| row * 7 % 20);
        let folder = TempDir::new().unwrap();
        let names: Vec<String> = keys().map(|key| format!("user {key}")).collect();
        write(
            &folder.path().join("a.parquet"),
            vec![
                ("user", array(UInt64Array::from_iter_values(keys()))),
                ("name", array(StringArray::from_iter_values(&names))),
            ],
        );
        let split = Split::new(0.4, 3).unwrap();
        let wide = indexed(&folder);
        let [train, validation] =
            [Side::Train, Side::Validation].map(|side| wide.column("user").split(&split, side).unwrap());
        assert_eq!(train.complement().unwrap(), validation);
        assert!(!train.is_empty() && !validation.is_empty());
        let keys: Vec<u64> = keys().collect();
        for (row, key) in (0..).zip(&keys) {
            let mut canonical = vec![1];
            canonical.extend_from_slice(&i128::from(*key).to_le_bytes());
            assert_eq!(validation.contains(row), split.side(&canonical) == Side::Validation, "key {key}");
        }
        let by_name = wide.column("name").split(&split, Side::Validation).unwrap();
        assert!((0..60).all(|row| by_name.contains(row)
            == (split.side(format!("\u{3}user {}", keys[row as usize]).as_bytes()) == Side::Validation)));

        // Appended files change no side, and a narrower type is the same key.
        let (narrow_folder, narrow) =
            dataset(vec![("user", array(Int32Array::from_iter_values(keys.iter().map(|key| *key as i32))))]);
        assert_eq!(narrow.column("user").split(&split, Side::Validation).unwrap(), validation);
        write(&narrow_folder.path().join("b.parquet"), vec![("user", array(Int32Array::from_iter_values(0..50)))]);
        let longer = indexed(&narrow_folder).column("user").split(&split, Side::Validation).unwrap();
        assert!(longer.iter().take_while(|row| *row < 60).eq(validation.iter()));
    }

    #[test]
    fn counts_are_those_of_the_labels_and_of_rows_without_one() {
        let (_folder, dataset) = dataset(vec![(
            "label",
            array(Int64Array::from_iter((0..20).map(|row| (row % 4 != 3).then_some(row % 4)))),
        )]);
        let counts = dataset.column("label").counts().unwrap();
        let class = |int| Some(Class::Int(int));
        assert_eq!(counts, [(class(0), 5), (class(1), 5), (class(2), 5), (None, 5)]);
        let few = IdSet::from_ids(20, [0, 4, 5]).unwrap();
        assert_eq!(dataset.column("label").of(&few).counts().unwrap(), [(class(0), 2), (class(1), 1)]);
    }

    #[test]
    fn weights_are_any_numbers() {
        let (_folder, dataset) = dataset(vec![
            ("float", array(Float32Array::from_iter_values((0..20).map(|row| row as f32 / 2.0)))),
            ("int", array(Int64Array::from_iter_values(0..20))),
            ("text", array(StringArray::from_iter_values(words(20)))),
            ("list", array(ListArray::from_iter_primitive::<Int32Type, _, _>((0..20).map(|_| Some([Some(1)]))))),
        ]);
        assert_eq!(dataset.column("float").weights().unwrap()[..4], [0.0, 0.5, 1.0, 1.5]);
        assert_eq!(dataset.column("int").weights().unwrap().len(), 20);
        for error in [dataset.column("text").weights().unwrap_err(), dataset.column("list").labels().unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Schema);
            assert_eq!((error.file(), error.row_group()), (Some("a.parquet"), Some(0)));
        }
        let advice = dataset.column("text").weights().unwrap_err().hint().map(str::to_owned);
        assert_eq!(advice.as_deref(), Some("use a column of numbers or booleans"));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named_by_file_row_group_and_column() {
        let (_folder, dataset) = dataset(vec![
            ("label", array(Int64Array::from_iter((0..20).map(|row| (row != 16).then_some(row))))),
            ("weight", array(Float32Array::from_iter_values((0..20).map(|row| if row == 9 { -1.0 } else { 1.0 })))),
        ]);
        let error = dataset.column("label").labels().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert_eq!((error.file(), error.row_group(), error.column()), (Some("a.parquet"), Some(2), Some("label")));
        assert!(error.message().contains("row id 16"), "{error}");
        assert!(dataset.column("label").weights().unwrap_err().message().contains("row id 16"));
        let split = Split::new(0.5, 0).unwrap();
        assert!(dataset.column("label").split(&split, Side::Train).unwrap_err().message().contains("no key"));
        let error = dataset.column("weight").weights().unwrap_err();
        assert_eq!((error.row_group(), error.column()), (Some(1), Some("weight")));
        assert!(error.message().contains("row id 9 has the weight -1"), "{error}");
        let error = dataset.column("nope").labels().unwrap_err();
        assert_eq!((error.kind(), error.column()), (ErrorKind::InvalidArgument, Some("nope")));
    }

    #[test]
    fn a_field_of_a_struct_that_is_null_is_missing() {
        let inner = array(Int64Array::from_iter_values(0..20));
        let fields = Fields::from(vec![Field::new("x", DataType::Int64, true)]);
        let nulls = NullBuffer::from((0..20).map(|row| row != 11).collect::<Vec<_>>());
        let (_folder, dataset) = dataset(vec![("s", array(StructArray::new(fields, vec![inner], Some(nulls))))]);
        let error = dataset.column("s.x").labels().unwrap_err();
        assert!(error.message().contains("row id 11") && error.column() == Some("s.x"), "{error}");
    }

    #[test]
    fn rows_that_are_left_out_are_not_asked() {
        let (_folder, dataset) = dataset(vec![(
            "label",
            array(Int64Array::from_iter((0..40).map(|row| (row % 10 != 6).then_some(row / 10)))),
        )]);
        let with_label = IdSet::filter(40, |row| row % 10 != 6 && !(7..14).contains(&row)).unwrap();
        let labels = dataset.column("label").of(&with_label).labels().unwrap();
        let expected: Vec<u32> = with_label.iter().map(|row| row as u32 / 10).collect();
        assert_eq!(labels.codes(), expected);
        let none = IdSet::from_ids(40, []).unwrap();
        assert_eq!(dataset.column("label").of(&none).labels().unwrap().classes(), []);
        let wrong = IdSet::all(41).unwrap();
        assert_eq!(dataset.column("label").of(&wrong).labels().unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}
