use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::builder::IndexBuilder;
use crate::dataset::Dataset;

/// Files of 1000, 0 and 730 rows with the numbers from 0 on, in row groups of 100, and `all.rdx`.
fn place() -> TempDir {
    let folder = TempDir::new().unwrap();
    append(&folder, "a", 0..1000);
    append(&folder, "b", 0..0);
    append(&folder, "c", 1000..1730);
    IndexBuilder::new([folder.path().join("data")]).build(folder.path().join("all.rdx")).unwrap();
    folder
}

fn append(folder: &TempDir, name: &str, rows: std::ops::Range<i64>) {
    std::fs::create_dir_all(folder.path().join("data")).unwrap();
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(rows));
    let batch = RecordBatch::try_from_iter([("id", column)]).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(100)).build();
    let file = File::create(folder.path().join(format!("data/{name}.parquet"))).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

fn open(folder: &TempDir, name: &str) -> Index {
    Index::open(folder.path().join(name)).unwrap()
}

/// A list of rows.
fn list(folder: &TempDir, name: &str, ids: impl IntoIterator<Item = u64>) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, ids.into_iter().map(|id| format!("{id}\n")).collect::<String>()).unwrap();
    path
}

/// The numbers that an index serves.
fn served(index: &Index) -> Vec<i64> {
    let dataset = Dataset::builder(index.clone()).open().unwrap();
    let ids: Vec<u64> = (0..index.len()).collect();
    let batch = dataset.take(&ids).unwrap();
    use arrow_array::cast::AsArray;
    batch.column(0).as_primitive::<Int64Type>().values().to_vec()
}

fn kept(base: &Index, ids: impl IntoIterator<Item = u64>) -> IdSet {
    IdSet::from_ids(base.len(), ids).unwrap()
}

fn write(folder: &TempDir, select: Select, name: &str) -> Index {
    select.with_overwrite(true).write(folder.path().join(name)).unwrap();
    open(folder, name)
}

#[test]
fn a_view_serves_what_was_chosen_and_is_a_whole_index() {
    let folder = place();
    let all = open(&folder, "all.rdx");
    let select = Select::new(all.clone()).skip(list(&folder, "skip.txt", (0..5).chain(1000..1100)));
    let report = select.write(folder.path().join("view.rdx")).unwrap();
    assert_eq!((report.rows, report.base_rows, report.source_rows), (1625, 1730, 1730));
    let view = open(&folder, "view.rdx");
    view.verify().unwrap();
    assert_eq!(report.index_bytes, view.size_bytes());
    assert_eq!(served(&view), (5..1000).chain(1100..1730).collect::<Vec<_>>());
    assert!(view.files().all(|file| file.has_footer()));
    assert_eq!(select.write(folder.path().join("view.rdx")).unwrap_err().kind(), ErrorKind::AlreadyExists);
}

#[test]
fn views_of_views_and_of_each_other_follow_the_algebra_of_sets() {
    let folder = place();
    let all = open(&folder, "all.rdx");
    let even = write(&folder, Select::new(all.clone()).kept(kept(&all, (0..865).map(|n| 2 * n)), "even"), "even.rdx");
    let three = write(&folder, Select::new(all.clone()).kept(kept(&all, (0..577).map(|n| 3 * n)), "three"), "t.rdx");
    let is = |select: Select, keep: fn(&i64) -> bool| {
        assert_eq!(served(&write(&folder, select, "x.rdx")), (0..1730).filter(keep).collect::<Vec<_>>());
    };
    is(Select::new(even.clone()).intersect(three.clone()), |n| n % 6 == 0);
    is(Select::new(even.clone()).exclude(three.clone()), |n| n % 2 == 0 && n % 3 != 0);
    is(Select::new(even.clone()).union(three.clone()), |n| n % 2 == 0 || n % 3 == 0);
    is(Select::new(all.clone()).exclude(even.clone()).union(three.clone()), |n| n % 2 == 1 || n % 3 == 0);
    // Row ids of a view are its own: the first ten of the even rows.
    is(Select::new(even.clone()).kept(kept(&even, 0..10), "first"), |n| n % 2 == 0 && *n < 20);
    assert_eq!(all.rows_of(&even).unwrap().len(), 865);
    assert_eq!(even.rows_of(&three).unwrap().iter().collect::<Vec<_>>(), (0..289).map(|n| 3 * n).collect::<Vec<_>>());
}

#[test]
fn a_sample_of_a_view_is_that_of_its_base_and_keeps_its_rows_when_files_are_appended() {
    let folder = place();
    let all = open(&folder, "all.rdx");
    let even = write(&folder, Select::new(all.clone()).kept(kept(&all, (0..865).map(|n| 2 * n)), "even"), "even.rdx");
    let sample = served(&write(&folder, Select::new(all.clone()).sample(0.3, 5), "s.rdx"));
    assert!((400..640).contains(&sample.len()), "{}", sample.len());
    let of_even = served(&write(&folder, Select::new(even).sample(0.3, 5), "e.rdx"));
    assert_eq!(of_even, sample.iter().copied().filter(|n| n % 2 == 0).collect::<Vec<_>>());
    append(&folder, "d", 1730..2500);
    IndexBuilder::new([folder.path().join("data")]).with_update(true).build(folder.path().join("all.rdx")).unwrap();
    let more = served(&write(&folder, Select::new(open(&folder, "all.rdx")).sample(0.3, 5), "m.rdx"));
    assert_eq!(more[..sample.len()], sample);
    assert!(more[sample.len()] >= 1730);
}

#[test]
fn a_view_of_everything_has_the_fingerprint_of_its_base_and_equal_choices_give_equal_bytes() {
    let folder = place();
    let all = open(&folder, "all.rdx");
    assert_eq!(write(&folder, Select::new(all.clone()).sample(1.0, 0), "x.rdx").fingerprint(), all.fingerprint());
    let bytes = || {
        let select = Select::new(all.clone()).sample(0.5, 1).with_time(UNIX_EPOCH + Duration::from_secs(1_800_000_000));
        write(&folder, select, "x.rdx");
        std::fs::read(folder.path().join("x.rdx")).unwrap()
    };
    assert_eq!(bytes(), bytes());
    let info: serde_json::Value = serde_json::from_str(open(&folder, "x.rdx").build_info()).unwrap();
    assert_eq!(info["view"]["time"], "2027-01-15T08:00:00Z");
    assert_eq!(info["view"]["base"], "all.rdx");
    assert_eq!(info["view"]["base_fingerprint"], format!("{:016x}", all.fingerprint()));
    assert_eq!(info["view"]["choices"][0]["sample"], 0.5);
    assert_eq!(info["view"]["rows"], open(&folder, "x.rdx").len());
}

#[test]
fn a_view_in_another_folder_finds_the_data_and_names_its_base() {
    let folder = place();
    std::fs::create_dir(folder.path().join("views")).unwrap();
    let view = write(&folder, Select::new(open(&folder, "all.rdx")).sample(0.5, 1), "views/x.rdx");
    assert!(!served(&view).is_empty());
    assert_eq!(view.root().path, "../data");
    assert!(view.build_info().contains("\"../all.rdx\""), "{}", view.build_info());
}

#[test]
fn a_view_is_made_where_the_data_of_its_base_is_gone_and_says_the_same_of_it() {
    let folder = place();
    std::fs::create_dir(folder.path().join("views")).unwrap();
    let sample = || Select::new(open(&folder, "all.rdx")).sample(0.5, 1).with_time(UNIX_EPOCH);
    let bytes = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    write(&folder, sample(), "views/before.rdx");
    std::fs::rename(folder.path().join("data"), folder.path().join("moved")).unwrap();
    assert_eq!(write(&folder, sample(), "views/x.rdx").root().path, "../data");
    assert!(bytes("views/x.rdx") == bytes("views/before.rdx"));
    let by_value = || Select::new(open(&folder, "all.rdx")).split_by("id", Side::Train, 0.5, 1);
    assert!(by_value().write(folder.path().join("views/y.rdx")).is_err());
    let view = write(&folder, by_value().with_root(folder.path().join("moved")), "views/y.rdx");
    let dataset = Dataset::builder(view.clone()).with_root(folder.path().join("moved")).open().unwrap();
    assert_eq!(dataset.take(&[0]).unwrap().num_rows(), 1);
    // With all that leads there, too.
    let away = folder.path().join("away");
    std::fs::create_dir(&away).unwrap();
    std::fs::rename(folder.path().join("all.rdx"), away.join("all.rdx")).unwrap();
    assert_eq!(
        write(&folder, Select::new(open(&folder, "away/all.rdx")).sample(0.5, 1), "z.rdx").root().path,
        "away/data"
    );
}

#[test]
fn choices_that_cannot_be_are_refused() {
    let folder = place();
    let all = open(&folder, "all.rdx");
    let refused = |select: Select, words: &[&str]| {
        let error = select.write(folder.path().join("no.rdx")).unwrap_err();
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
        assert!(!folder.path().join("no.rdx").exists());
    };
    refused(Select::new(all.clone()).sample(1.5, 0), &["1.5", "0 to 1"]);
    refused(Select::new(all.clone()).sample(0.0, 0), &["none of 1730 rows"]);
    refused(Select::new(all.clone()).kept(IdSet::all(5).unwrap(), "few"), &["5", "1730"]);
    refused(Select::new(all.clone()).rows("nowhere.txt"), &["nowhere.txt"]);
    let over = Select::new(all.clone()).sample(0.5, 0).with_overwrite(true);
    let error = over.write(folder.path().join("../").join(folder.path()).join("all.rdx")).unwrap_err();
    assert!(error.to_string().contains("would replace"), "{error}");
    assert_eq!(open(&folder, "all.rdx").len(), 1730);
    let file = folder.path().join("data/a.parquet");
    let before = std::fs::read(&file).unwrap();
    let error = Select::new(all.clone()).sample(0.5, 0).with_overwrite(true).write(&file).unwrap_err();
    assert!(error.to_string().contains("would replace a Parquet file"), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), before);
    append(&folder, "a", 0..900);
    let other = folder.path().join("other.rdx");
    IndexBuilder::new([folder.path().join("data")]).build(&other).unwrap();
    let other = Index::open(&other).unwrap();
    refused(Select::new(all.clone()).intersect(other.clone()), &["a.parquet has another content"]);
    refused(Select::new(all.clone()).union(other), &["other.rdx"]);
    let memory = Index::from_bytes(std::fs::read(folder.path().join("all.rdx")).unwrap()).unwrap();
    refused(Select::new(memory).sample(0.5, 0), &["does not say where its files are"]);
    refused(Select::new(all.clone()), &["no rows are chosen", "where, rows, skip"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn row_ids_and_source_rows_are_each_other_s_inverse(
        first in prop::collection::btree_set(0..1730_u64, 1..1730),
        second in prop::collection::btree_set(0..1730_u64, 0..1730),
    ) {
        let folder = place();
        let all = open(&folder, "all.rdx");
        let view = write(&folder, Select::new(all.clone()).kept(kept(&all, first.clone()), "first"), "v.rdx");
        let first: Vec<u64> = first.into_iter().collect();
        prop_assert_eq!(view.served_source().unwrap().iter().collect::<Vec<_>>(), first.clone());
        let ids = IdSet::from_ids(view.len(), second.iter().copied().filter(|id| *id < view.len())).unwrap();
        let source = view.to_source(&ids).unwrap();
        prop_assert_eq!(source.iter().collect::<Vec<_>>(), ids.iter().map(|id| first[id as usize]).collect::<Vec<_>>());
        prop_assert_eq!(view.of_source(&source).unwrap(), ids);
    }
}
