use std::fs::{self, File};
use std::path::Path;
use std::sync::{Arc, Once};

use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, Float32Array, Int64Array, LargeListArray, ListArray, RecordBatch, StructArray,
    UInt16Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::{WriterProperties, WriterVersion};
use tempfile::TempDir;

use super::*;
use crate::IndexBuilder;
use crate::select::Select;
use rowdex_base::error::ErrorKind;
use rowdex_order::IdSet;

/// Lengths of rows `from..from + count`; every fifth row is null, and some are empty.
fn expected(from: usize, count: usize) -> Vec<u64> {
    let length = |row: usize| if row % 5 == 3 { 0 } else { (row * row % 23) as u64 };
    (from..from + count).map(length).collect()
}

fn nulls(from: usize, count: usize) -> NullBuffer {
    (from..from + count).map(|row| row % 5 != 3).collect()
}

fn values(count: usize) -> ArrayRef {
    Arc::new((0..count as i32).map(|value| (value % 7 != 0).then_some(value)).collect::<arrow_array::Int32Array>())
}

fn item(array: &ArrayRef) -> Arc<Field> {
    Arc::new(Field::new("element", array.data_type().clone(), true))
}

fn lists(from: usize, count: usize, items: impl Fn(usize) -> ArrayRef) -> ListArray {
    let lengths = expected(from, count);
    let items = items(lengths.iter().sum::<u64>() as usize);
    let offsets = OffsetBuffer::from_lengths(lengths.into_iter().map(|length| length as usize));
    ListArray::new(item(&items), offsets, items, Some(nulls(from, count)))
}

/// A batch with every shape of column that rows are measured by.
fn batch(from: usize, count: usize) -> RecordBatch {
    let tokens = lists(from, count, values);
    let large = LargeListArray::new(
        item(tokens.values()),
        OffsetBuffer::new(ScalarBuffer::from_iter(tokens.offsets().iter().map(|offset| i64::from(*offset)))),
        tokens.values().clone(),
        tokens.nulls().cloned(),
    );
    let nested = lists(from, count, |items| {
        let lengths = (0..items).map(|item| item % 3);
        let below = values((0..items).map(|item| item % 3).sum());
        let there = (0..items).map(|item| item % 4 != 1).collect::<NullBuffer>();
        Arc::new(ListArray::new(item(&below), OffsetBuffer::from_lengths(lengths), below, Some(there)))
    });
    let structs = lists(from, count, |items| {
        let fields = [("x", values(items)), ("y", values(items))];
        Arc::new(StructArray::from(
            fields.map(|(name, array)| (Arc::new(Field::new(name, DataType::Int32, true)), array)).to_vec(),
        ))
    });
    let fixed = FixedSizeListArray::new(item(&values(1)), 3, values(count * 3), Some(nulls(from, count)));
    let list: ArrayRef = Arc::new(tokens.clone());
    let doc = StructArray::new(
        vec![Field::new("tokens", list.data_type().clone(), true)].into(),
        vec![list],
        Some((from..from + count).map(|row| row % 7 != 2).collect()),
    );
    let number: ArrayRef = Arc::new(UInt16Array::from_iter_values(expected(from, count).into_iter().map(|n| n as u16)));
    RecordBatch::try_from_iter_with_nullable([
        ("tokens", Arc::new(tokens) as ArrayRef, true),
        ("large", Arc::new(large), true),
        ("nested", Arc::new(nested), true),
        ("structs", Arc::new(structs), true),
        ("fixed", Arc::new(fixed), true),
        ("doc", Arc::new(doc), true),
        ("n", number, false),
    ])
    .unwrap()
}

fn write(path: &Path, batch: &RecordBatch, properties: WriterProperties) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

fn small_groups() -> WriterProperties {
    WriterProperties::builder().set_max_row_group_row_count(Some(40)).build()
}

/// Two files of 100 and 60 rows in row groups of 40.
fn data(folder: &Path) {
    write(&folder.join("data/a.parquet"), &batch(0, 100), small_groups());
    write(&folder.join("data/b.parquet"), &batch(100, 60), small_groups());
}

fn build(folder: &Path, lengths: &[&str]) -> Index {
    let output = folder.join("train.rdx");
    IndexBuilder::new([folder.join("data")])
        .with_lengths(lengths.to_vec())
        .with_overwrite(true)
        .build(&output)
        .unwrap();
    Index::open(output).unwrap()
}

fn all(index: &Index, name: &str) -> Vec<u64> {
    let mut lengths = Vec::new();
    index.lengths(name).unwrap().read(0..index.len(), &mut lengths).unwrap();
    lengths
}

#[test]
fn lists_of_any_kind_are_counted_and_integers_taken_however_pages_are_written() {
    let folder = TempDir::new().unwrap();
    let versions = [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0];
    let codecs =
        [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::ZSTD(Default::default()), Compression::LZ4];
    for (number, (version, codec)) in versions.into_iter().flat_map(|v| codecs.map(|codec| (v, codec))).enumerate() {
        for page_rows in [3, 1000] {
            let properties = WriterProperties::builder()
                .set_writer_version(version)
                .set_compression(codec)
                .set_data_page_row_count_limit(page_rows)
                .set_write_batch_size(page_rows)
                .set_max_row_group_row_count(Some(150))
                .set_dictionary_enabled(number.is_multiple_of(2))
                .build();
            write(&folder.path().join("data/a.parquet"), &batch(0, 400), properties);
            let index = build(folder.path(), &["fixed", "large", "doc.tokens", "n", "nested", "structs", "tokens"]);
            for name in ["tokens", "large", "nested", "structs", "n"] {
                assert_eq!(
                    all(&index, name),
                    expected(0, 400),
                    "{name}, {version:?}, {codec}, {page_rows} rows a page"
                );
            }
            let in_doc: Vec<u64> =
                expected(0, 400).into_iter().enumerate().map(|(row, n)| if row % 7 == 2 { 0 } else { n }).collect();
            assert_eq!(all(&index, "doc.tokens"), in_doc);
            let three: Vec<u64> = (0..400).map(|row| if row % 5 == 3 { 0 } else { 3 }).collect();
            assert_eq!(all(&index, "fixed"), three);
            assert_eq!(index.lengths("n").unwrap().of(), LengthsOf::Numbers);
            assert_eq!(index.lengths("doc.tokens").unwrap().of(), LengthsOf::Items);
            index.verify().unwrap();
        }
    }
}

#[test]
fn lengths_are_noted_with_the_build_or_later_with_any_number_of_threads_to_the_same_bytes() {
    let folder = TempDir::new().unwrap();
    data(folder.path());
    build(folder.path(), &["n", "tokens"]);
    let path = folder.path().join("train.rdx");
    let built = fs::read(&path).unwrap();
    let plain = build(folder.path(), &[]);
    LengthsBuilder::new(&path).with_column("tokens").with_threads(1).write().unwrap();
    let bytes = LengthsBuilder::new(&path).with_column("n").with_threads(3).write().unwrap();
    assert_eq!(bytes, built.len() as u64);
    assert!(fs::read(&path).unwrap() == built);
    let index = Index::open(&path).unwrap();
    assert_eq!((all(&index, "tokens"), index.fingerprint()), (expected(0, 160), plain.fingerprint()));
    assert_eq!(index.lengths_columns().unwrap(), ["n", "tokens"]);
}

#[test]
fn what_was_written_to_the_index_meanwhile_is_not_undone() {
    let folder = TempDir::new().unwrap();
    data(folder.path());
    build(folder.path(), &[]);
    let path = folder.path().join("train.rdx");
    let given = vec![7; 160];
    // Notes lengths of another name as soon as something is read.
    let meanwhile = |name: &'static str| {
        let (path, given, first) = (path.clone(), given.clone(), Once::new());
        move || {
            first.call_once(|| {
                LengthsBuilder::new(&path).with_given(name, given.clone()).write().unwrap();
            });
        }
    };
    let (noting, again) = (meanwhile("a"), meanwhile("b"));
    let update = IndexBuilder::new([folder.path().join("data")]).with_update(true).with_progress(move |_| noting());
    let counted = LengthsBuilder::new(&path).with_column("tokens").with_progress(move |_| again());
    for error in [update.build(&path).unwrap_err(), counted.write().unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
    }
    assert_eq!(Index::open(&path).unwrap().lengths_columns().unwrap(), ["a", "b"]);
}

#[test]
fn an_update_counts_new_files_only() {
    let folder = TempDir::new().unwrap();
    data(folder.path());
    build(folder.path(), &["tokens"]);
    let first = folder.path().join("data/a.parquet");
    let (mut bytes, time) = (fs::read(&first).unwrap(), fs::metadata(&first).unwrap().modified().unwrap());
    // Whoever reads pages of it now notices.
    bytes[4..2000].fill(0xff);
    fs::write(&first, &bytes).unwrap();
    File::options().write(true).open(&first).unwrap().set_modified(time).unwrap();
    write(&folder.path().join("data/c.parquet"), &batch(160, 50), small_groups());
    let output = folder.path().join("train.rdx");
    let update = || IndexBuilder::new([folder.path().join("data")]).with_update(true);
    update().build(&output).unwrap();
    let index = Index::open(&output).unwrap();
    assert_eq!(all(&index, "tokens"), expected(0, 210));
    index.verify().unwrap();
    let error = LengthsBuilder::new(&output).with_column("tokens").write().unwrap_err();
    assert_eq!((error.kind(), error.file()), (ErrorKind::InvalidParquet, Some("a.parquet")));
    assert_eq!((error.row_group(), error.column()), (Some(0), Some("tokens")));

    // A file that is gone takes its lengths with it; those behind it are known, too.
    fs::remove_file(&first).unwrap();
    update().build(&output).unwrap();
    assert_eq!(all(&Index::open(&output).unwrap(), "tokens"), expected(100, 110));
}

#[test]
fn given_lengths_stay_with_an_update_only_if_no_file_is_new() {
    let folder = TempDir::new().unwrap();
    data(folder.path());
    let output = folder.path().join("train.rdx");
    build(folder.path(), &[]);
    let given = (0..160).map(|row| row * 1000).collect();
    LengthsBuilder::new(&output).with_given("words", given).write().unwrap();
    let index = Index::open(&output).unwrap();
    assert_eq!((all(&index, "words")[159], index.lengths("words").unwrap().of()), (159_000, LengthsOf::Given));

    let update = || IndexBuilder::new([folder.path().join("data")]).with_update(true).build(&output);
    update().unwrap();
    assert_eq!(all(&Index::open(&output).unwrap(), "words")[159], 159_000);
    write(&folder.path().join("data/c.parquet"), &batch(160, 50), small_groups());
    let error = update().unwrap_err();
    assert_eq!(
        (error.kind(), error.file(), error.column()),
        (ErrorKind::InvalidArgument, Some("c.parquet"), Some("words"))
    );
    assert_eq!(all(&Index::open(&output).unwrap(), "words").len(), 160);
}

#[test]
fn a_view_has_the_lengths_of_its_rows() {
    let folder = TempDir::new().unwrap();
    data(folder.path());
    let index = build(folder.path(), &["n", "tokens"]);
    let rows = IdSet::from_ranges(160, [3..50, 90..91, 120..160]).unwrap();
    let view = folder.path().join("view.rdx");
    Select::new(index.clone()).kept(rows.clone(), "some").write(&view).unwrap();
    let view = Index::open(view).unwrap();
    view.verify().unwrap();
    let of_rows: Vec<u64> = rows.iter().map(|row| expected(0, 160)[row as usize]).collect();
    assert_eq!((all(&view, "tokens"), all(&view, "n")), (of_rows.clone(), of_rows.clone()));
    assert_eq!(view.lengths("tokens").unwrap().of(), LengthsOf::Items);
    // Counted anew, they are the same.
    let path = view.path().unwrap();
    let before = fs::read(path).unwrap();
    LengthsBuilder::new(path).with_column("tokens").write().unwrap();
    assert!(fs::read(path).unwrap() == before);
    // Rows that the base of a view does not serve have no lengths there.
    let wider = folder.path().join("wider.rdx");
    Select::new(view).union(index).write(&wider).unwrap();
    assert!(Index::open(wider).unwrap().lengths_columns().unwrap().is_empty());
}

#[test]
fn what_is_no_length_is_refused_and_the_index_stays() {
    let folder = TempDir::new().unwrap();
    let numbers = |numbers: Vec<Option<i64>>| Arc::new(Int64Array::from(numbers)) as ArrayRef;
    let columns = [
        ("missing", numbers(vec![Some(1), None])),
        ("negative", numbers(vec![Some(1), Some(-5)])),
        ("huge", numbers(vec![Some((1 << 40) - 1), Some(1 << 40)])),
        ("float", Arc::new(Float32Array::from(vec![1.0, 2.0]))),
        ("fine", numbers(vec![Some(1), Some(2)])),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true))).unwrap();
    write(&folder.path().join("data/a.parquet"), &batch, small_groups());
    build(folder.path(), &[]);
    let path = folder.path().join("train.rdx");
    let before = fs::read(&path).unwrap();
    for (column, kind, told) in [
        ("missing", ErrorKind::Schema, "row 1 of the row group has a length that is null"),
        ("negative", ErrorKind::Schema, "has a length that is -5"),
        ("huge", ErrorKind::TooLarge, "row 1 has a length of 1099511627776"),
        ("float", ErrorKind::InvalidArgument, "type Float32"),
        ("absent", ErrorKind::InvalidArgument, "absent"),
    ] {
        let error = LengthsBuilder::new(&path).with_column(column).write().unwrap_err();
        assert_eq!((error.kind(), error.column()), (kind, Some(column)), "{error}");
        assert!(error.to_string().contains(told), "{error}");
        let built =
            IndexBuilder::new([folder.path().join("data")]).with_lengths([column]).with_overwrite(true).build(&path);
        assert_eq!(built.unwrap_err().kind(), kind);
    }
    let refused = [
        LengthsBuilder::new(&path).with_column("fine").with_given("fine", vec![1, 2]),
        LengthsBuilder::new(&path).with_given("words", vec![1, 2, 3]),
        LengthsBuilder::new(&path),
    ];
    assert!(refused.iter().all(|refused| refused.write().unwrap_err().kind() == ErrorKind::InvalidArgument));
    assert!(fs::read(&path).unwrap() == before);
}

#[test]
fn a_file_that_changed_is_not_counted_and_a_copy_is() {
    let folder = TempDir::new().unwrap();
    data(folder.path());
    build(folder.path(), &[]);
    let path = folder.path().join("train.rdx");
    let file = folder.path().join("data/b.parquet");
    File::options().write(true).open(&file).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    LengthsBuilder::new(&path).with_column("tokens").write().unwrap();
    write(&file, &batch(7, 60), small_groups());
    let error = LengthsBuilder::new(&path).with_column("tokens").write().unwrap_err();
    assert_eq!((error.kind(), error.file()), (ErrorKind::Stale, Some("b.parquet")));
    assert_eq!(all(&Index::open(&path).unwrap(), "tokens"), expected(0, 160));
}
