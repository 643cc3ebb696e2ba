//! Lists of rows, read with indexes that are built here.

use std::fs::File;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, StructArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use tempfile::TempDir;

use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_index::{Index, ListedRows};

use super::IndexBuilder;

/// Files of 25 and 7 rows in row groups of 10; `some.rdx` serves the even rows of the first 20 only.
fn place() -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::create_dir(folder.path().join("data")).unwrap();
    for (name, rows) in [("a:1.parquet", 25), ("b.parquet", 7)] {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        let batch = RecordBatch::try_from_iter([("id", column)]).unwrap();
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(10)).build();
        let file = File::create(folder.path().join("data").join(name)).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }
    let even: String = (0..10).map(|row| format!("{}\n", 2 * row)).collect();
    std::fs::write(folder.path().join("even.csv"), format!("row_id\n{even}")).unwrap();
    let builder = || IndexBuilder::new([folder.path().join("data")]);
    builder().build(folder.path().join("all.rdx")).unwrap();
    builder().with_rows(folder.path().join("even.csv")).build(folder.path().join("some.rdx")).unwrap();
    folder
}

fn listed(folder: &TempDir, index: &str, name: &str, list: &str) -> Result<Vec<u64>> {
    std::fs::write(folder.path().join(name), list).unwrap();
    let index = Index::open(folder.path().join(index)).unwrap();
    Ok(index.listed_rows(folder.path().join(name))?.iter().collect())
}

#[test]
fn rows_are_listed_by_id_range_file_row_group_and_place() {
    let folder = place();
    let rows = |list: &str| listed(&folder, "all.rdx", "list.txt", list).unwrap();
    assert_eq!(rows("# none\n\n"), [0_u64; 0]);
    assert_eq!(rows("7\n 3..5 # two\r\n7\n31"), [3, 4, 7, 31]);
    assert_eq!(rows("b.parquet"), (25..32).collect::<Vec<_>>());
    assert_eq!(rows("a:1.parquet:2\nb.parquet:0:6"), [20, 21, 22, 23, 24, 31]);
    assert_eq!(rows("a:1.parquet:1:8..10\na:1.parquet:0:3..3"), [18, 19]);
    let csv = listed(&folder, "all.rdx", "list.csv", "row_id\n9\n4\n9\n").unwrap();
    assert_eq!(csv, [4, 9]);
    let places = "file,row_group,row\nb.parquet,0,1\na:1.parquet,2,4\nb.parquet,0,1\n";
    assert_eq!(listed(&folder, "all.rdx", "list.csv", places).unwrap(), [24, 26]);
}

/// The rows that a table with these columns lists.
fn table(index: &Index, columns: Vec<(&str, ArrayRef)>) -> Result<ListedRows> {
    index.read_rows_of([Ok(RecordBatch::try_from_iter(columns).unwrap())])
}

fn strings<'a>(values: impl IntoIterator<Item = &'a str>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

#[test]
fn tables_name_files_and_rows_as_engines_do() {
    let folder = place();
    let index = Index::open(folder.path().join("all.rdx")).unwrap();
    let files = || strings(["b.parquet", "a:1.parquet", "a:1.parquet"]);
    let rows = || Arc::new(Int64Array::from(vec![6, 0, 24])) as ArrayRef;
    for (file, row) in [
        ("filename", "file_row_number"),
        ("file_path", "row_index"),
        ("file", "row_in_file"),
        ("path", "row_in_file"),
        ("_metadata.file_path", "_metadata.row_index"),
    ] {
        let listed = table(&index, vec![("other", rows()), (file, files()), (row, rows())]).unwrap();
        assert_eq!(listed.rows.iter().collect::<Vec<_>>(), [0, 24, 31], "{file}");
        assert_eq!((listed.repeated, listed.unserved), (0, 0));
    }
    let fields = vec![
        (Arc::new(Field::new("file_path", DataType::Utf8, false)), files()),
        (Arc::new(Field::new("row_index", DataType::Int64, false)), rows()),
    ];
    let metadata: ArrayRef = Arc::new(StructArray::from(fields));
    assert_eq!(table(&index, vec![("_metadata", metadata)]).unwrap().rows.len(), 3);
    let coded = cast(&files(), &DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8))).unwrap();
    let small = cast(&rows(), &DataType::UInt8).unwrap();
    assert_eq!(table(&index, vec![("file", coded), ("row_in_file", small)]).unwrap().rows.len(), 3);
    let error = table(&index, vec![("file", files()), ("row_index", rows())]).unwrap_err();
    assert!(error.to_string().contains("row_in_file"), "{error}");
}

#[test]
fn a_folder_is_the_list_of_all_tables_in_it() {
    let folder = place();
    let index = Index::open(folder.path().join("all.rdx")).unwrap();
    let lists = folder.path().join("lists");
    std::fs::create_dir(&lists).unwrap();
    assert_eq!(index.read_rows(&lists).unwrap_err().kind(), ErrorKind::NotFound);
    std::fs::write(lists.join("part-1.csv"), "file,row_in_file\nb.parquet,3\n").unwrap();
    std::fs::write(lists.join("part-0.csv"), "row_id\n7\n28\n").unwrap();
    for ignored in ["_SUCCESS", "_more.csv", ".part-0.csv.crc", "notes.txt"] {
        std::fs::write(lists.join(ignored), "no list").unwrap();
    }
    let listed = index.read_rows(&lists).unwrap();
    assert_eq!((listed.rows.iter().collect::<Vec<_>>(), listed.repeated), (vec![7, 28], 1));
    std::fs::write(lists.join("part-2.csv"), "row_id\n32\n").unwrap();
    let error = index.read_rows(&lists).unwrap_err();
    assert!(error.to_string().contains("part-2.csv") && error.to_string().contains("row id 32"), "{error}");
}

#[test]
fn rows_that_are_listed_again_or_not_served_are_counted() {
    let folder = place();
    let all = Index::open(folder.path().join("all.rdx")).unwrap();
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![5, 3, 5, 5, 3, 31]));
    let listed = table(&all, vec![("row_id", ids)]).unwrap();
    assert_eq!((listed.rows.len(), listed.repeated, listed.repeated_row), (3, 3, Some(5)));
    let some = Index::open(folder.path().join("some.rdx")).unwrap();
    let rows: ArrayRef = Arc::new(Int64Array::from(vec![0, 1, 2, 2, 21]));
    let listed = table(&some, vec![("file", strings(["a:1.parquet"; 5])), ("row_in_file", rows)]).unwrap();
    assert_eq!(listed.rows.iter().collect::<Vec<_>>(), [0, 1]);
    assert_eq!((listed.repeated, listed.unserved), (1, 2));
    std::fs::write(folder.path().join("list.txt"), "0..5\n3..7\n4\n").unwrap();
    let listed = all.read_rows(folder.path().join("list.txt")).unwrap();
    assert_eq!((listed.rows.len(), listed.repeated), (7, 3));
    // `some` has rows 0 and 2 of the first row group of this file, and lists tell which of the others they named.
    let text = folder.path().join("list.txt");
    std::fs::write(&text, "a:1.parquet:0:0..3\na:1.parquet:0:1\n").unwrap();
    let listed = some.read_rows(&text).unwrap();
    assert_eq!((listed.rows.iter().collect::<Vec<_>>(), listed.repeated, listed.unserved), (vec![0, 1], 0, 2));
    for lines in ["a:1.parquet:0:0..3", "a:1.parquet:0:1"] {
        std::fs::write(&text, lines).unwrap();
        let error = some.read_order(&text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfRange, "{error}");
        assert!(error.to_string().contains("does not serve"), "{error}");
    }
    std::fs::write(&text, "a:1.parquet:0:2\na:1.parquet:0:0\n").unwrap();
    assert_eq!(some.read_order(&text).unwrap(), [1, 0]);
}

#[test]
fn files_are_found_under_every_usual_spelling() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().canonicalize().unwrap().join("my data");
    std::fs::create_dir_all(root.join("k=a%2Fb")).unwrap();
    let source = place();
    for name in ["é 1.parquet", "k=a%2Fb/x.parquet"] {
        std::fs::copy(source.path().join("data/b.parquet"), root.join(name)).unwrap();
    }
    IndexBuilder::new([&root]).with_partitions(false).build(folder.path().join("i.rdx")).unwrap();
    let index = Index::open(folder.path().join("i.rdx")).unwrap();
    let find = |name: &str| {
        let one: ArrayRef = Arc::new(Int64Array::from(vec![3]));
        let found =
            table(&index, vec![("file", strings([name])), ("row_in_file", one)])?.rows.iter().collect::<Vec<_>>();
        // As text, with all of the file, which has one row group of seven rows.
        let whole: Vec<u64> = (found[0] - 3..found[0] + 4).collect();
        for (within, rows) in [("", &whole), (":0", &whole), (":0:3..4", &found)] {
            let of_text = listed(&folder, "i.rdx", "list.txt", &format!("{name}{within}")).unwrap();
            assert_eq!(of_text, *rows, "{name}{within}");
        }
        Ok(found)
    };
    let root = root.to_str().unwrap();
    let encoded = root.replace(' ', "%20");
    for name in [
        "é 1.parquet".to_owned(),
        "./é 1.parquet".to_owned(),
        format!("{root}/é 1.parquet"),
        format!("{root}/../my data/./é 1.parquet"),
        format!("file://{root}/é 1.parquet"),
        format!("file://{encoded}/%C3%A9%201.parquet"),
        format!("file:{encoded}/%C3%A9%201.parquet"),
        format!("file://localhost{encoded}/%c3%a9%201.parquet"),
    ] {
        assert_eq!(find(&name).unwrap(), [10], "{name}");
    }
    for name in [
        "k=a%2Fb/x.parquet".to_owned(),
        format!("{root}/k=a%2Fb/x.parquet"),
        format!("file://{encoded}/k=a%252Fb/x.parquet"),
        format!("file://{root}/k=a%2Fb/x.parquet"),
    ] {
        assert_eq!(find(&name).unwrap(), [3], "{name}");
    }
    for name in ["1.parquet", "/é 1.parquet", "s3://bucket/é 1.parquet", "", "file://elsewhere/x"] {
        let error: Error = find(name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfRange, "{name:?}: {error}");
        assert!(error.to_string().contains("my data"), "{error}");
        for within in [":0", ":0:3"] {
            let error = listed(&folder, "i.rdx", "list.txt", &format!("{name}{within}")).unwrap_err();
            assert!(error.to_string().contains(&format!("is called {name:?}")), "{error}");
        }
    }
}

#[test]
fn places_count_rows_as_they_are_in_the_file_even_where_some_are_not_served() {
    let folder = place();
    let rows = |list: &str| listed(&folder, "some.rdx", "list.txt", list).unwrap();
    assert_eq!(rows("a:1.parquet:0:4..9"), [2, 3, 4]);
    assert_eq!(rows("a:1.parquet:0:3\na:1.parquet:2\nb.parquet"), [0_u64; 0]);
    assert_eq!(rows("a:1.parquet:1"), [5, 6, 7, 8, 9]);
    assert_eq!(
        listed(&folder, "some.rdx", "list.csv", "file,row_group,row\na:1.parquet,1,2\na:1.parquet,1,3\n").unwrap(),
        [6]
    );
}

#[test]
fn what_is_not_there_is_named_with_list_and_line() {
    let folder = place();
    for (list, words) in [
        ("1\n32", &["list.txt", "line 2", "row id 32", "32 rows"][..]),
        ("30..40", &["line 1", "row id 39"]),
        ("c.parquet", &["\"c.parquet\"", "neither"]),
        ("c.parquet:1", &["no file", "\"c.parquet\""]),
        ("b.parquet:1", &["row group 1", "1 row groups"]),
        ("b.parquet:x", &["\"x\"", "row group"]),
        ("b.parquet:+0", &["\"+0\"", "row group"]),
        ("b.parquet:0:7", &["row 7", "which has 7 rows"]),
        ("-3", &["neither"]),
        ("5..3", &["neither"]),
    ] {
        let error = listed(&folder, "all.rdx", "list.txt", list).unwrap_err();
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{list}: {error}");
    }
    for (list, words) in [
        ("row_id\n32\n", &["list.csv", "row id 32"][..]),
        ("row_id\n-1\n", &["row_id"]),
        ("file,row_group,row\nb.parquet,0,7\n", &["row 7"]),
        ("file,row_group,row\nc.parquet,0,7\n", &["c.parquet"]),
    ] {
        let error = listed(&folder, "all.rdx", "list.csv", list).unwrap_err();
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{list}: {error}");
    }
    let index = Index::open(folder.path().join("all.rdx")).unwrap();
    assert_eq!(index.listed_rows(folder.path().join("none.txt")).unwrap_err().kind(), ErrorKind::NotFound);
}
