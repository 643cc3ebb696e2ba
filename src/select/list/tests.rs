//! Lists of rows, read with indexes that are built here.

use std::fs::{self, File};
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_cast::cast;
use arrow_ipc::writer::FileWriter;
use arrow_schema::DataType;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use tempfile::TempDir;

use super::{ListOfRows, ListedRows};
use crate::{IndexBuilder, Select};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_index::Index;
use rowdex_order::IdSet;

fn write(path: impl AsRef<std::path::Path>, batch: &RecordBatch) {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(10)).build();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

fn numbers(values: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

fn strings<'a>(values: impl IntoIterator<Item = &'a str>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter(columns).unwrap()
}

/// Files of 25 and 7 rows in row groups of 10, and an index of them; `some.rdx` serves the even rows of the first 20.
fn place() -> (TempDir, Index, Index) {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("data")).unwrap();
    for (name, rows) in [("a.parquet", 25), ("b.parquet", 7)] {
        write(path("data").join(name), &batch(vec![("id", numbers(0..rows))]));
    }
    IndexBuilder::new([path("data")]).build(path("all.rdx")).unwrap();
    let all = Index::open(path("all.rdx")).unwrap();
    let even = IdSet::from_ids(32, (0..10).map(|row| 2 * row)).unwrap();
    Select::new(all.clone()).kept(even, "even").write(path("some.rdx")).unwrap();
    let some = Index::open(path("some.rdx")).unwrap();
    (folder, all, some)
}

fn stream<'a>(columns: Vec<(&str, ArrayRef)>) -> ListOfRows<'a> {
    ListOfRows::Batches(Box::new([Ok(batch(columns))].into_iter()))
}

fn ids(listed: Result<ListedRows>) -> Vec<u64> {
    listed.unwrap().rows.iter().collect()
}

#[test]
fn rows_are_listed_by_id_or_place_in_files_of_each_kind() {
    let (folder, all, _) = place();
    let path = |name: &str| folder.path().join(name);
    let by_id = vec![("other", strings(["", "", ""])), ("row_id", numbers([31, 0, 24]))];
    let by_place =
        vec![("file", strings(["b.parquet", "a.parquet", "a.parquet"])), ("row_in_file", numbers([6, 0, 24]))];
    for columns in [by_id, by_place] {
        write(path("list.parquet"), &batch(columns.clone()));
        let table = batch(columns.clone());
        let mut arrow = FileWriter::try_new(File::create(path("list.arrow")).unwrap(), &table.schema()).unwrap();
        arrow.write(&table).unwrap();
        arrow.finish().unwrap();
        for name in ["list.parquet", "list.arrow"] {
            assert_eq!(ids(ListOfRows::from(path(name)).rows(&all)), [0, 24, 31], "{name}");
            assert_eq!(ListOfRows::from(path(name)).order(&all).unwrap(), [31, 0, 24]);
        }
        assert_eq!(ids(stream(columns).rows(&all)), [0, 24, 31]);
    }
    fs::write(path("list.txt"), "31\n 0 \r\n24").unwrap();
    assert_eq!(ListOfRows::from(path("list.txt")).order(&all).unwrap(), [31, 0, 24]);
    fs::write(path("list.txt"), "").unwrap();
    assert_eq!(ids(ListOfRows::from(path("list.txt")).rows(&all)), [0_u64; 0]);
    let coded = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    let files = cast(&strings(["b.parquet"]), &coded).unwrap();
    let rows = cast(&numbers([6]), &DataType::UInt8).unwrap();
    assert_eq!(ids(stream(vec![("file", files), ("row_in_file", rows)]).rows(&all)), [31]);
}

#[test]
fn rows_that_are_listed_again_or_not_served_are_counted() {
    let (_folder, all, some) = place();
    let listed = stream(vec![("row_id", numbers([5, 3, 5, 5, 3, 31]))]).rows(&all).unwrap();
    assert_eq!((listed.rows.len(), listed.repeated, listed.unserved), (3, 3, 0));
    let places = |rows: &[i64]| {
        let files = strings(vec!["a.parquet"; rows.len()]);
        stream(vec![("file", files), ("row_in_file", numbers(rows.iter().copied()))])
    };
    let listed = places(&[0, 1, 18, 18, 21]).rows(&some).unwrap();
    assert_eq!(listed.rows.iter().collect::<Vec<_>>(), [0, 9]);
    assert_eq!((listed.repeated, listed.unserved), (1, 2));
    assert_eq!(places(&[2, 0, 2]).order(&some).unwrap(), [1, 0, 1]);
    let error = places(&[0, 1]).order(&some).unwrap_err();
    assert!(error.to_string().contains("does not serve"), "{error}");
}

#[test]
fn files_are_found_by_their_paths_and_by_where_they_are() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().canonicalize().unwrap().join("my data");
    fs::create_dir_all(root.join("k=a%2Fb")).unwrap();
    for name in ["é 1.parquet", "k=a%2Fb/x.parquet"] {
        write(root.join(name), &batch(vec![("id", numbers(0..7))]));
    }
    IndexBuilder::new([&root]).with_partitions(false).build(folder.path().join("i.rdx")).unwrap();
    let index = Index::open(folder.path().join("i.rdx")).unwrap();
    let find = |name: &str| stream(vec![("file", strings([name])), ("row_in_file", numbers([3]))]).rows(&index);
    let root = root.to_str().unwrap();
    let encoded = root.replace(' ', "%20");
    for name in [
        "é 1.parquet".to_owned(),
        format!("{root}/é 1.parquet"),
        format!("{root}/../my data/./é 1.parquet"),
        format!("file://{encoded}/%C3%A9%201.parquet"),
    ] {
        assert_eq!(ids(find(&name)), [10], "{name}");
    }
    for name in ["k=a%2Fb/x.parquet".to_owned(), format!("file://{encoded}/k=a%252Fb/x.parquet")] {
        assert_eq!(ids(find(&name)), [3], "{name}");
    }
    for name in ["1.parquet", "/é 1.parquet", "s3://bucket/é 1.parquet", "", "file://elsewhere/x"] {
        let error: Error = find(name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfRange, "{name:?}: {error}");
        assert!(error.to_string().contains("x.parquet"), "{error}");
    }
}

#[test]
fn what_is_not_there_is_named_with_list_and_line() {
    let (folder, all, _) = place();
    let text = folder.path().join("list.txt");
    for (list, words) in [
        ("1\n32", &["list.txt", "row id 32", "32 rows"][..]),
        ("1\n\n", &["list.txt", "line 2"]),
        ("-3", &["line 1", "-3"]),
        ("b.parquet", &["line 1", "b.parquet"]),
    ] {
        fs::write(&text, list).unwrap();
        let error = ListOfRows::from(&text).rows(&all).unwrap_err();
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{list}: {error}");
    }
    let file = |name| ("file", strings([name]));
    for (columns, words) in [
        (vec![("row_id", numbers([-1]))], &["row_id"][..]),
        (vec![("row_id", Arc::new(Float64Array::from(vec![1.0])) as ArrayRef)], &["row_id", "Float64"]),
        (vec![("row_id", Arc::new(Int64Array::from(vec![None])) as ArrayRef)], &["row_id", "nulls"]),
        (vec![("row", numbers([1]))], &["file", "no such column", "row_in_file"]),
        (vec![file("a.parquet")], &["row_in_file", "no such column"]),
        (vec![file("a.parquet"), ("row_in_file", numbers([25]))], &["row 25", "a.parquet", "25 rows"]),
        (vec![file("c.parquet"), ("row_in_file", numbers([0]))], &["c.parquet", "a.parquet"]),
    ] {
        let error = stream(columns).rows(&all).unwrap_err();
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
    }
    assert_eq!(ListOfRows::from(folder.path().join("no.txt")).rows(&all).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn weights_and_lengths_are_those_of_every_row_that_is_asked_for() {
    let (folder, all, _) = place();
    let list = |lengths: Vec<i64>| stream(vec![("row_id", numbers((0..32).rev())), ("n", numbers(lengths))]);
    let lengths = list((0..32).collect()).lengths(&all, "n").unwrap();
    assert_eq!(lengths, (0..32).rev().collect::<Vec<u64>>());
    let of = IdSet::from_ids(32, [3, 30]).unwrap();
    assert_eq!(list((0..32).collect()).weights(&all, "n", Some(&of)).unwrap(), [28.0, 1.0]);
    let path = folder.path().join("list.parquet");
    let few =
        |weight: f64| vec![("row_id", numbers([3, 30])), ("w", Arc::new(Float64Array::from(vec![0.5, weight])) as _)];
    write(&path, &batch(few(2.0)));
    assert_eq!(ListOfRows::from(&path).weights(&all, "w", Some(&of)).unwrap(), [0.5, 2.0]);
    for (error, words) in [
        (ListOfRows::from(&path).weights(&all, "w", None).unwrap_err(), &["list.parquet", "row id 0 is not"][..]),
        (ListOfRows::from(&path).weights(&all, "v", Some(&of)).unwrap_err(), &["list.parquet", "no such column", "v"]),
        (ListOfRows::from(&path).lengths(&all, "w").unwrap_err(), &["list.parquet", "Float64"]),
        (stream(few(-1.0)).weights(&all, "w", Some(&of)).unwrap_err(), &["row id 30", "-1"]),
        (stream(few(f64::NAN)).weights(&all, "w", Some(&of)).unwrap_err(), &["row id 30", "NaN"]),
        (list(vec![1 << 40; 32]).lengths(&all, "n").unwrap_err(), &["row id 31", "2^40"]),
        (list(vec![-1; 32]).lengths(&all, "n").unwrap_err(), &["n"]),
        (
            stream(vec![("row_id", numbers([3, 3])), ("n", numbers([1, 1]))]).lengths(&all, "n").unwrap_err(),
            &["row id 3 is listed twice"],
        ),
    ] {
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
    }
}
