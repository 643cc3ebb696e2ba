use std::path::Path;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    BooleanArray, Date32Array, DictionaryArray, Float32Array, Int32Array, Int64Array, ListArray, RecordBatch,
    StringArray, StringViewArray, StructArray, UInt64Array,
};
use arrow_schema::{Field, Fields};
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
        assert_eq!(labels.codes, expected, "{name}");
        assert_eq!(labels.classes.len(), 3, "{name}");
    }
    assert_eq!(dataset.column("int").labels().unwrap().classes, [0, 1, 4].map(Class::Int));
    let names: Vec<String> = dataset.column("word").labels().unwrap().classes.iter().map(Class::to_string).collect();
    assert_eq!(names, ["w0", "w1", "w4"]);
    assert_eq!(dataset.column("even").labels().unwrap().classes, [false, true].map(Class::Bool));
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
    let (_folder, dataset) =
        dataset(vec![("label", array(Int64Array::from_iter((0..20).map(|row| (row % 4 != 3).then_some(row % 4)))))]);
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
    let (_folder, dataset) =
        dataset(vec![("label", array(Int64Array::from_iter((0..40).map(|row| (row % 10 != 6).then_some(row / 10)))))]);
    let with_label = IdSet::filter(40, |row| row % 10 != 6 && !(7..14).contains(&row)).unwrap();
    let labels = dataset.column("label").of(&with_label).labels().unwrap();
    let expected: Vec<u32> = with_label.iter().map(|row| row as u32 / 10).collect();
    assert_eq!(labels.codes, expected);
    let none = IdSet::from_ids(40, []).unwrap();
    assert_eq!(dataset.column("label").of(&none).labels().unwrap().classes, []);
    let wrong = IdSet::all(41).unwrap();
    assert_eq!(dataset.column("label").of(&wrong).labels().unwrap_err().kind(), ErrorKind::InvalidArgument);
}
