//! Every format of `get`, read again.

use std::io::Cursor;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, DictionaryArray, Int64Builder, MapBuilder, RecordBatch, RecordBatchReader, StringArray,
    StringBuilder, StructArray, UInt64Array,
};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{Field, Fields, Int32Type};
use arrow::ipc::reader::FileReader;
use serde_json::Value;

use super::place::{Place, ROWS, rows_from};

/// Not in order, one of them twice, from the first and the last file.
const ASKED: &str = "1002 3 3 400..403 0";
const IDS: [u64; 7] = [1002, 3, 3, 400, 401, 402, 0];

fn expected() -> RecordBatch {
    take_record_batch(&rows_from(0, ROWS), &UInt64Array::from(IDS.to_vec())).unwrap()
}

fn collect(reader: impl RecordBatchReader) -> RecordBatch {
    let schema = reader.schema();
    let batches: Vec<RecordBatch> = reader.map(|batch| batch.unwrap()).collect();
    concat_batches(&schema, &batches).unwrap()
}

fn columns_equal(got: &RecordBatch, expected: &RecordBatch) {
    assert_eq!(got.num_rows(), expected.num_rows());
    for (field, column) in expected.schema().fields().iter().zip(expected.columns()) {
        assert_eq!(got.column_by_name(field.name()).unwrap(), column, "{}", field.name());
    }
}

#[test]
fn arrow_reads_back_equal() {
    let place = Place::with_index();
    place.run(&format!("get train.rdx {ASKED} --output out.arrow")).succeeds();
    let bytes = std::fs::read(place.path("out.arrow")).unwrap();
    columns_equal(&collect(FileReader::try_new(Cursor::new(bytes), None).unwrap()), &expected());
}

#[test]
fn arrow_has_the_values_of_dictionaries_which_differ_between_row_groups() {
    let place = Place::new();
    let word = |id: i64| (id % 11 != 0).then(|| format!("word {}", id / 3000));
    let given: Vec<_> = (0..20_000_i64).map(word).collect();
    let words: DictionaryArray<Int32Type> = given.iter().map(Option::as_deref).collect();
    let batch = RecordBatch::try_from_iter([("word", Arc::new(words) as ArrayRef)]).unwrap();
    place.write("data/0.parquet", &batch);
    place.run("build data -o train.rdx").succeeds();
    place.run("get train.rdx 0..20000 --output out.arrow").succeeds();
    let bytes = std::fs::read(place.path("out.arrow")).unwrap();
    let got = collect(FileReader::try_new(Cursor::new(bytes), None).unwrap());
    let expected: ArrayRef = Arc::new(given.into_iter().collect::<StringArray>());
    assert_eq!(got.column_by_name("word").unwrap(), &expected);
}

#[test]
fn json_is_an_array_with_nulls_in_it() {
    let place = Place::with_index();
    let rows = place.run(&format!("get train.rdx {ASKED}")).succeeds().without_a_word().json();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), IDS.len());
    for (row, id) in rows.iter().zip(IDS) {
        assert_eq!(row["id"], Value::from(id));
        assert_eq!(row["score"].as_f64(), Some(id as f64 / 8.0));
        let label = if id % 7 == 0 { Value::Null } else { format!("label {id}").into() };
        assert_eq!(row.get("label"), Some(&label));
        let tags = if id % 5 == 0 { Value::Null } else { (0..id % 4).collect::<Vec<_>>().into() };
        assert_eq!(row["tags"], tags);
        assert!(row["time"].as_str().unwrap().starts_with("1970-01-01T00:00:00"));
    }
}

#[test]
fn json_refuses_maps_whose_keys_are_no_text_before_it_reads_any() {
    let place = Place::new();
    let mut maps = MapBuilder::new(None, Int64Builder::new(), StringBuilder::new());
    maps.keys().append_value(1);
    maps.values().append_value("one");
    maps.append(true).unwrap();
    let maps = maps.finish();
    let map = Arc::new(Field::new("map", maps.data_type().clone(), true));
    let deep = StructArray::new(Fields::from(vec![map]), vec![Arc::new(maps)], None);
    place.write("a.parquet", &RecordBatch::try_from_iter([("deep", Arc::new(deep) as ArrayRef)]).unwrap());
    place.run("build a.parquet -o a.rdx").succeeds();
    let refused = place.run("get a.rdx 0").fails();
    assert!(refused.stdout.is_empty());
    refused.complains(&["\"deep\"", "JSON cannot hold", "--columns", "rows.arrow"]);
}

#[test]
fn the_name_of_the_output_chooses_the_format() {
    let place = Place::with_index();
    for (name, start) in [("a.arrow", &b"ARROW1"[..]), ("a.ARROW", b"ARROW1"), ("a.json", b"[{"), ("a", b"[{")] {
        let done = place.run(&format!("get train.rdx 1 --output {name}")).succeeds().without_a_word();
        assert!(done.stdout.is_empty());
        assert!(std::fs::read(place.path(name)).unwrap().starts_with(start), "{name}");
    }
    assert_eq!(place.names(), ["a", "a.ARROW", "a.arrow", "a.json", "data", "train.rdx"]);
}

#[test]
fn an_output_that_exists_is_kept() {
    let place = Place::with_index();
    std::fs::write(place.path("rows.arrow"), "precious").unwrap();
    place.run("get train.rdx 1 --output rows.arrow").fails().complains(&["rows.arrow", "exists", "another path"]);
    assert_eq!(std::fs::read(place.path("rows.arrow")).unwrap(), b"precious");
}

#[test]
fn an_output_that_cannot_be_finished_is_not_there() {
    let place = Place::with_index();
    std::fs::remove_file(place.path("data/part-4.parquet")).unwrap();
    place.run("get train.rdx 0..1003 --output rows.arrow").fails().complains(&["part-4.parquet"]);
    place.run("get train.rdx 0 --output nowhere/rows.arrow").fails().complains(&["nowhere/rows.arrow"]);
    assert_eq!(place.names(), ["data", "train.rdx"]);
}
