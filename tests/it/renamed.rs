//! Files that have a column under another name serve what they would under the new one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int32Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray};
use arrow::datatypes::{DataType, Field, Int32Type, Schema};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;
use rowdex::dataset::DiskCache;
use rowdex::dataset::Staleness;
use rowdex::index::builder::SchemaMode;
use rowdex::order::IdSet;
use rowdex::{Dataset, ErrorKind, Index, IndexBuilder, Result, Select};
use tempfile::TempDir;

/// Names as files have them, and as they are served.
const RENAMED: [(&str, &str); 4] = [("text", "words"), ("content", "words"), ("number", "n"), ("info", "meta")];

fn write(path: &Path, batch: &RecordBatch) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(40))
        .set_data_page_row_count_limit(10)
        .set_write_batch_size(10)
        .build();
    let file = std::fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

/// A column by the name that is served.
fn column(name: &str, first: i64, rows: i64) -> ArrayRef {
    let ids = first..first + rows;
    let number = |id: i64| (id % 11 != 5).then_some(id / 7);
    match name {
        "words" => Arc::new(StringArray::from_iter(ids.map(|id| (id % 13 != 3).then(|| format!("word {}", id / 9))))),
        "n" => Arc::new(Int64Array::from_iter(ids.map(number))),
        "meta" => {
            let lang: ArrayRef = Arc::new(StringArray::from_iter_values(ids.clone().map(|id| format!("l{}", id / 50))));
            let score: ArrayRef = Arc::new(Int32Array::from_iter(ids.map(|id| number(id).map(|n| n as i32))));
            let field = |name: &str, of: &ArrayRef| Arc::new(Field::new(name, of.data_type().clone(), true));
            Arc::new(StructArray::from(vec![(field("lang", &lang), lang), (field("score", &score), score)]))
        }
        _ => Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(
            ids.map(|id| (id % 5 > 0).then(move || (0..id % 4).map(move |item| Some((id + item) as i32)))),
        )),
    }
}

/// A file, as rows and as columns by the names that it has for them.
#[derive(Debug, Clone)]
struct Shape {
    rows: i64,
    columns: Vec<&'static str>,
}

fn served(name: &'static str) -> &'static str {
    RENAMED.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| new)
}

impl Shape {
    fn batch(&self, first: i64, name: impl Fn(&'static str) -> &'static str) -> RecordBatch {
        let columns: Vec<ArrayRef> =
            self.columns.iter().map(|column| self::column(served(column), first, self.rows)).collect();
        let fields = self.columns.iter().zip(&columns);
        let fields: Vec<Field> =
            fields.map(|(column, of)| Field::new(name(column), of.data_type().clone(), true)).collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
    }
}

fn shapes() -> impl Strategy<Value = Vec<Shape>> {
    let names = |names: &'static [&'static str]| prop::sample::select(names);
    // `tags` is in every file, so that none is without columns.
    let columns = (
        names(&["words", "text", "content", ""]),
        names(&["n", "number", ""]),
        names(&["meta", "info", ""]),
        Just("tags"),
    );
    let columns = columns.prop_map(|(a, b, c, d)| [a, b, c, d].into_iter().filter(|name| !name.is_empty()).collect());
    let columns = columns.prop_flat_map(|columns: Vec<&'static str>| Just(columns).prop_shuffle());
    prop::collection::vec((0_i64..130, columns).prop_map(|(rows, columns)| Shape { rows, columns }), 1..5)
}

/// The dataset of files with their own names, renamed as far as they have such columns, and that of the same files
/// with the names that are served.
fn twins(folder: &Path, shapes: &[Shape]) -> [Dataset; 2] {
    let mut first = 0;
    for (number, shape) in shapes.iter().enumerate() {
        write(&folder.join(format!("own/{number}.parquet")), &shape.batch(first, |name| name));
        write(&folder.join(format!("new/{number}.parquet")), &shape.batch(first, served));
        first += shape.rows;
    }
    let there = |old: &str| shapes.iter().any(|shape| shape.columns.contains(&old));
    let renames = RENAMED.into_iter().filter(|(old, _)| there(old));
    let build = |data: &str| IndexBuilder::new([folder.join(data)]).with_schema_mode(SchemaMode::Union);
    build("own").with_renames(renames).build(folder.join("own.rdx")).unwrap();
    build("new").build(folder.join("new.rdx")).unwrap();
    ["own.rdx", "new.rdx"].map(|name| Dataset::open(folder.join(name)).unwrap())
}

fn all(dataset: &Dataset) -> RecordBatch {
    dataset.take(&(0..dataset.len()).collect::<Vec<_>>()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn files_with_renamed_columns_serve_what_files_with_the_new_names_do(shapes in shapes()) {
        let folder = TempDir::new().unwrap();
        let [own, new] = twins(folder.path(), &shapes);
        prop_assert_eq!(own.schema(), new.schema());
        prop_assert_eq!(own.index().schema(), new.index().schema());
        prop_assert_eq!(own.decoded_bytes(), new.decoded_bytes());
        prop_assert_eq!(all(&own), all(&new));
        own.verify(Staleness::Deep, &|_| ()).unwrap();
        for name in own.schema().fields().iter().map(|field| field.name()) {
            let chosen = |name: &str, of: &Dataset| {
                Dataset::builder(of.index().clone()).with_columns([name]).with_cache_bytes(0).open().unwrap()
            };
            let datasets = [&own, &new].map(|of| chosen(name, of));
            prop_assert_eq!(all(&datasets[0]), all(&datasets[1]));
            let [own, new] = datasets.map(|dataset| dataset.counters().bytes_read);
            prop_assert_eq!(own, new);
        }
        #[cfg(feature = "filter")]
        for condition in ["words > 'word 2'", "n between 3 and 5", "n is null", "meta.score < 4 or meta.lang = 'l1'"] {
            if own.schema().column_with_name(condition.split([' ', '.']).next().unwrap()).is_some() {
                let run = |of: &Dataset| of.filter(condition).unwrap().run(&|_| ()).unwrap();
                let ((kept, report), (expected, by_new)) = (run(&own), run(&new));
                prop_assert_eq!(kept.iter().collect::<Vec<_>>(), expected.iter().collect::<Vec<_>>());
                prop_assert_eq!(report, by_new, "{}", condition);
            }
        }
    }
}

/// Two files, of which the first calls the column `words` otherwise.
fn mixed(folder: &Path) -> IndexBuilder {
    let shape = |columns| Shape { rows: 50, columns };
    write(&folder.join("data/a.parquet"), &shape(vec!["text", "tags"]).batch(0, |name| name));
    write(&folder.join("data/b.parquet"), &shape(vec!["words", "tags"]).batch(50, |name| name));
    IndexBuilder::new([folder.join("data")])
}

fn words(dataset: &Dataset) -> ArrayRef {
    all(dataset).column_by_name("words").unwrap().clone()
}

#[test]
fn a_renamed_column_is_no_difference_to_the_strict_mode() {
    let folder = TempDir::new().unwrap();
    let builder = mixed(folder.path());
    assert_eq!(builder.build(folder.path().join("i.rdx")).unwrap_err().kind(), ErrorKind::Schema);
    let builder = builder.with_renames([("text", "words")]);
    builder.build(folder.path().join("i.rdx")).unwrap();
    let dataset = Dataset::open(folder.path().join("i.rdx")).unwrap();
    assert_eq!(words(&dataset).to_data(), column("words", 0, 100).to_data());
    assert_eq!(dataset.index().renames().collect::<Vec<_>>(), [("text", "words")]);
    assert!(dataset.index().build_info().ends_with(r#","renamed":{"text":"words"}}"#));
    assert_eq!(dataset.get(3).unwrap().column(0).to_data(), column("words", 3, 1).to_data());
}

#[test]
fn views_keep_the_names() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    mixed(folder.path()).with_renames([("text", "words")]).build(path("i.rdx")).unwrap();
    let base = Index::open(path("i.rdx")).unwrap();
    let rows = IdSet::from_ranges(base.len(), [10..20, 60..70]).unwrap();
    Select::new(base).kept(rows, "some").write(path("view.rdx")).unwrap();
    let dataset = Dataset::open(path("view.rdx")).unwrap();
    assert!(dataset.index().build_info().contains(r#","renamed":{"text":"words"}"#));
    let found = words(&dataset);
    assert_eq!(found.slice(0, 10).to_data(), column("words", 10, 10).to_data());
    assert_eq!(found.slice(10, 10).to_data(), column("words", 60, 10).to_data());
}

#[test]
fn an_update_keeps_renames_and_takes_more_for_files_that_follow() {
    let folder = TempDir::new().unwrap();
    let output = folder.path().join("i.rdx");
    let builder = || IndexBuilder::new([folder.path().join("data")]).with_update(true);
    mixed(folder.path()).with_renames([("text", "words")]).build(&output).unwrap();
    let fresh = std::fs::read(&output).unwrap();
    // Given again or not: nothing changed.
    builder().build(&output).unwrap();
    assert_eq!(std::fs::read(&output).unwrap(), fresh);
    builder().with_renames([("text", "words")]).build(&output).unwrap();
    assert_eq!(std::fs::read(&output).unwrap(), fresh);
    let write = |name: &str, column: &'static str, first: i64| {
        let shape = Shape { rows: 50, columns: vec![column, "tags"] };
        write(&folder.path().join("data").join(name), &shape.batch(first, |name| name));
    };
    write("c.parquet", "text", 100);
    assert_eq!(builder().build(&output).unwrap().kept_files, 2);
    write("d.parquet", "content", 150);
    assert_eq!(builder().build(&output).unwrap_err().file(), Some("d.parquet"));
    assert_eq!(builder().with_renames([("content", "words")]).build(&output).unwrap().kept_files, 3);
    let dataset = Dataset::open(&output).unwrap();
    assert_eq!(words(&dataset).to_data(), column("words", 0, 200).to_data());
    assert_eq!(dataset.index().renames().collect::<Vec<_>>(), [("content", "words"), ("text", "words")]);
    // What the kept files serve stays.
    let error = builder().with_renames([("tags", "number")]).build(&output).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::InvalidArgument, Some("tags")));
    assert!(error.hint().unwrap().contains("`overwrite`"), "{error}");
    let error = builder().with_renames([("text", "number")]).build(&output).unwrap_err();
    assert!(error.message().contains(r#"renamed to "number" and to "words""#), "{error}");
}

#[test]
fn a_name_that_no_file_has_is_refused_in_a_union() {
    let folder = TempDir::new().unwrap();
    let builder = mixed(folder.path()).with_renames([("txt", "words")]).with_schema_mode(SchemaMode::Union);
    assert_eq!(builder.build(folder.path().join("x.rdx")).unwrap_err().column(), Some("txt"));
}

#[test]
fn a_disk_cache_tells_indexes_with_other_names_apart() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    let shape = Shape { rows: 50, columns: vec!["tags", "number", "n"] };
    let swapped = |name| if name == "number" { "m" } else { name };
    let mut batch = shape.batch(0, swapped);
    let (schema, mut columns, _) = batch.into_parts();
    columns[1] = Arc::new(Int64Array::from_iter((0..50).map(Some)));
    batch = RecordBatch::try_new(schema, columns).unwrap();
    write(&path("data/a.parquet"), &batch);
    let build = |name: &str, renames: [(&str, &str); 2]| {
        IndexBuilder::new([path("data")]).with_renames(renames).build(path(name)).unwrap();
        let disk_cache = DiskCache::new(path("disk_cache"), 1 << 20);
        let builder = Dataset::builder(Index::open(path(name)).unwrap());
        builder.with_columns(["x"]).with_cache_bytes(0).with_disk_cache(disk_cache).open().unwrap()
    };
    let (m, n) = (batch.column(1), batch.column(2));
    for (name, renames, expected) in [("m.rdx", [("m", "x"), ("n", "y")], m), ("n.rdx", [("n", "x"), ("m", "y")], n)] {
        let dataset = build(name, renames);
        assert_eq!(all(&dataset).column(0).to_data(), expected.to_data(), "{name}");
        assert_eq!(all(&dataset).column(0).to_data(), expected.to_data(), "{name}");
        assert_eq!(dataset.counters().decodes, 2, "two row groups, once each");
    }
}

/// What is wrong with some renames of two files with the columns `tags`, `meta` and one of `text` and `words`.
fn refusal(folder: &TempDir, renames: &[(&str, &str)]) -> Result<()> {
    IndexBuilder::new([folder.path().join("data")])
        .with_schema_mode(SchemaMode::Union)
        .with_overwrite(true)
        .with_renames(renames.iter().copied())
        .build(folder.path().join("i.rdx"))
        .map(drop)
}

#[test]
fn renames_that_cannot_be_are_one_clear_line() {
    let folder = TempDir::new().unwrap();
    let data = |name: &str| folder.path().join("data").join(name);
    let shape = |columns| Shape { rows: 5, columns };
    write(&data("day=3/a.parquet"), &shape(vec!["text", "meta", "tags"]).batch(0, |name| name));
    write(&data("day=4/b.parquet"), &shape(vec!["words", "meta", "tags"]).batch(5, |name| name));
    for (renames, column, said) in [
        (&[("txt", "words")][..], "txt", "no file has the column that is to be renamed"),
        (&[("meta.lang", "lang")], "meta.lang", "only whole columns can be renamed"),
        (&[("text", "meta.text")], "meta.text", "that of a field of a column"),
        (&[("day", "date")], "day", "only columns of files can be renamed"),
        (&[("text", "day")], "day", "the column is in the file and in the name of its folder"),
        (&[("text", "tags")], "tags", r#"the file has this column, and another one, "text", that gets its name"#),
        (
            &[("text", "x"), ("tags", "x")],
            "x",
            r#"the file has the columns "text" and "tags", which both get this name"#,
        ),
    ] {
        let error = refusal(&folder, renames).unwrap_err();
        assert_eq!(error.column(), Some(column), "{error}");
        assert!(error.message().contains(said), "{error}");
        assert!(error.hint().is_some() && !error.to_string().contains('\n'), "{error}");
    }
    assert!(refusal(&folder, &[("txt", "words")]).unwrap_err().hint().unwrap().contains(r#"did you mean "text"?"#));
    refusal(&folder, &[("text", "words")]).unwrap();
    assert!(matches!(Index::open(folder.path().join("i.rdx")).unwrap().schema().field(0).data_type(), DataType::Utf8));
}
