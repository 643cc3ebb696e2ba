use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::builder::IndexBuilder;
use crate::dataset::Dataset;
use rowdex_index::build_info::quoted;

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
    use arrow::array::AsArray;
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
    is(Select::new(even.clone()).and(three.clone()), |n| n % 6 == 0);
    is(Select::new(even.clone()).not(three.clone()), |n| n % 2 == 0 && n % 3 != 0);
    is(Select::new(even.clone()).or(three.clone()), |n| n % 2 == 0 || n % 3 == 0);
    is(Select::new(all.clone()).not(even.clone()).or(three.clone()), |n| n % 2 == 1 || n % 3 == 0);
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
fn what_is_recorded_is_json_whatever_the_names_are() {
    let text = "a\"b\\c\n\u{1}é\u{7f}";
    assert_eq!(serde_json::from_str::<String>(&quoted(text)).unwrap(), text);
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
    refused(Select::new(all.clone()).and(other.clone()), &["a.parquet has another content"]);
    refused(Select::new(all.clone()).or(other), &["other.rdx"]);
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

/// `build --update` of `all.rdx`.
fn update_base(folder: &TempDir) -> Index {
    IndexBuilder::new([folder.path().join("data")]).with_update(true).build(folder.path().join("all.rdx")).unwrap();
    open(folder, "all.rdx")
}

fn at_noon(select: Select) -> Select {
    select.with_time(UNIX_EPOCH + Duration::from_secs(1_800_000_000))
}

/// One of the choices that a record can be read for.
fn chosen_by(select: Select, folder: &TempDir, number: usize) -> Select {
    match number {
        0 => select.sample(1.0 / 3.0, u64::MAX),
        1 => select.split(Side::Train, 0.3, 7),
        2 => select.split_by("id", Side::Validation, 0.7, 1),
        3 => select.skip(list(folder, "bad.txt", (3..50).chain(1200..1300))),
        4 => select.rows(list(folder, "good.txt", [5, 1077, 6, 700])),
        #[cfg(feature = "filter")]
        5 => select.filter("id % 3 <> 1").filter("id >= 4"),
        _ => select,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_view_that_is_brought_up_to_date_has_the_bytes_of_a_new_one(
        choices in prop::collection::vec(0..6_usize, 0..4),
        appended in prop::collection::vec(0..250_i64, 0..3),
    ) {
        let folder = place();
        let choose = |base: Index| {
            let select = at_noon(Select::new(base)).with_overwrite(true);
            choices.iter().fold(select, |select, number| chosen_by(select, &folder, *number))
        };
        prop_assume!(choose(open(&folder, "all.rdx")).write(folder.path().join("view.rdx")).is_ok());
        let was = served(&open(&folder, "view.rdx"));
        let mut first = 1730;
        for (number, rows) in appended.iter().enumerate() {
            append(&folder, &format!("d{number}"), first..first + rows);
            first += rows;
            let base = update_base(&folder);
            let report = at_noon(Select::new(base.clone())).update(folder.path().join("view.rdx")).unwrap();
            let anew = choose(base).write(folder.path().join("anew.rdx")).unwrap();
            prop_assert_eq!((report.rows, report.base_rows), (anew.rows, anew.base_rows));
            prop_assert_eq!(report.kept_files, 3 + number as u64);
            let bytes = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
            prop_assert!(bytes("view.rdx") == bytes("anew.rdx"), "{}", open(&folder, "view.rdx").build_info());
        }
        let now = served(&open(&folder, "view.rdx"));
        prop_assert_eq!(&now[..was.len()], &was[..]);
    }
}

#[test]
#[cfg(feature = "filter")]
fn nothing_is_read_of_files_that_have_not_changed() {
    let folder = place();
    let view = folder.path().join("view.rdx");
    let choose = |base| Select::new(base).filter("id % 3 = 0").split_by("id", Side::Train, 0.5, 3);
    choose(open(&folder, "all.rdx")).write(&view).unwrap();
    append(&folder, "d", 1730..2000);
    let base = update_base(&folder);
    let alone = Dataset::builder(base.clone()).open().unwrap();
    let new_rows = kept(&base, 1730..2000);
    let new_rows = alone.column("id").of(&new_rows).split(&rowdex_order::Split::new(0.5, 3).unwrap(), Side::Train);
    let (rows, read) = alone.filter("id % 3 = 0").unwrap().of(&new_rows.unwrap()).run(&|_| ()).unwrap();
    for name in ["a", "b", "c"] {
        std::fs::write(folder.path().join(format!("data/{name}.parquet")), "gone").unwrap();
    }
    let was = Index::open(&view).unwrap().len();
    let report = Select::new(base).update(&view).unwrap();
    assert_eq!(report.rows, was + rows.len());
    assert_eq!((report.filter.unwrap(), report.kept_files), (read, 3));
}

#[test]
#[cfg(feature = "filter")]
fn of_changed_and_removed_files_rows_are_chosen_again_and_others_stay() {
    let folder = place();
    for name in ["e", "f"] {
        append(&folder, name, 2000..2300);
    }
    let all = update_base(&folder);
    let is_anew = |choose: &dyn Fn(Select) -> Select, kept_files: u64, evaluated: Option<u64>| {
        let base = open(&folder, "all.rdx");
        let report = at_noon(Select::new(base.clone())).update(folder.path().join("view.rdx")).unwrap();
        assert_eq!((report.kept_files, report.filter.map(|filter| filter.rows_evaluated)), (kept_files, evaluated));
        write(&folder, choose(Select::new(base)), "anew.rdx");
        let (view, anew) = (open(&folder, "view.rdx"), open(&folder, "anew.rdx"));
        assert_eq!((view.fingerprint(), served(&view)), (anew.fingerprint(), served(&anew)));
    };
    let by_value = |select: Select| select.filter("id % 7 = 0");
    let by_place = |select: Select| select.sample(0.5, 1).filter("id % 7 = 0");
    write(&folder, by_value(Select::new(all.clone())), "view.rdx");
    append(&folder, "c", 500..900);
    update_base(&folder);
    // c goes last among the files whose content decides, and e and f behind it are where they were by their paths.
    is_anew(&by_value, 4, Some(400));
    write(&folder, by_place(Select::new(open(&folder, "all.rdx"))), "view.rdx");
    std::fs::remove_file(folder.path().join("data/e.parquet")).unwrap();
    update_base(&folder);
    let now = open(&folder, "all.rdx");
    let sample = rowdex_order::Sample::new(0.5, 1).unwrap();
    let of_f = now.files().last().unwrap().row_ids();
    is_anew(&by_place, 3, Some(of_f.filter(|row| sample.contains(*row)).count() as u64));
    // What is not known any more is not recorded.
    let info: serde_json::Value = serde_json::from_str(open(&folder, "view.rdx").build_info()).unwrap();
    assert!(info["view"]["choices"][0].get("rows").is_none(), "{info}");
    let bytes = std::fs::read(folder.path().join("view.rdx")).unwrap();
    is_anew(&by_place, 4, Some(0));
    assert_eq!(std::fs::read(folder.path().join("view.rdx")).unwrap(), bytes);
}

#[test]
fn a_view_that_cannot_be_brought_up_to_date_says_why_and_stays() {
    let folder = place();
    let all = open(&folder, "all.rdx");
    let listed = list(&folder, "list.txt", 5..10);
    write(&folder, Select::new(all.clone()).sample(0.5, 1), "half.rdx");
    let half = || open(&folder, "half.rdx");
    write(&folder, Select::new(half()).sample(0.2, 1), "tenth.rdx");
    write(&folder, Select::new(all.clone()).skip(&listed), "listed.rdx");
    write(&folder, Select::new(all.clone()).and(half()), "and.rdx");
    write(&folder, Select::new(all.clone()).sample(0.1, 1).or(half()), "or.rdx");
    write(&folder, Select::new(all.clone()).kept(kept(&all, [3, 4]), "my rows"), "kept.rdx");
    #[cfg(feature = "filter")]
    write(&folder, Select::new(all.clone()).filter("id > 100"), "where.rdx");
    append(&folder, "d", 1730..1800);
    let all = update_base(&folder);
    let refused = |base: &Index, name: &str, words: &[&str]| {
        let bytes = std::fs::read(folder.path().join(name)).unwrap();
        let error = Select::new(base.clone()).update(folder.path().join(name)).unwrap_err();
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
        assert_eq!(std::fs::read(folder.path().join(name)).unwrap(), bytes);
    };
    IndexBuilder::new([folder.path().join("data")]).build(folder.path().join("plain.rdx")).unwrap();
    refused(&all, "plain.rdx", &["plain.rdx", "does not record"]);
    refused(&half(), "half.rdx", &["would replace"]);
    refused(&all, "and.rdx", &["and.rdx", "half.rdx", "another view"]);
    refused(&all, "or.rdx", &["or.rdx", "half.rdx", "another view"]);
    refused(&all, "kept.rdx", &["kept.rdx", "my rows", "not recorded"]);
    refused(&half(), "listed.rdx", &["listed.rdx", "serves other rows of unchanged files"]);
    refused(&all, "tenth.rdx", &["tenth.rdx", "serves other rows of unchanged files"]);
    list(&folder, "list.txt", 5..11);
    refused(&all, "listed.rdx", &["list.txt", "other rows of unchanged files"]);
    std::fs::remove_file(&listed).unwrap();
    refused(&all, "listed.rdx", &["list.txt"]);
    let error = Select::new(all.clone()).sample(0.5, 1).update(folder.path().join("half.rdx")).unwrap_err();
    assert!(error.to_string().contains("takes its choices from the view"), "{error}");
    assert_eq!(Select::new(all.clone()).update(folder.path().join("no.rdx")).unwrap_err().kind(), ErrorKind::NotFound);

    // Files that are gone, where it matters what else there was.
    Select::new(all.clone()).update(folder.path().join("half.rdx")).unwrap();
    Select::new(half()).update(folder.path().join("tenth.rdx")).unwrap();
    std::fs::remove_file(folder.path().join("data/c.parquet")).unwrap();
    let all = update_base(&folder);
    refused(&all, "listed.rdx", &["a list of rows", "changed or removed"]);
    Select::new(all.clone()).update(folder.path().join("half.rdx")).unwrap();
    refused(&half(), "tenth.rdx", &["is a view itself"]);

    // The same name with values of another type, or of another column of the files.
    #[cfg(feature = "filter")]
    {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..300));
        let batch = RecordBatch::try_from_iter([("id", Arc::clone(&column)), ("w", column)]).unwrap();
        std::fs::create_dir(folder.path().join("two")).unwrap();
        let file = File::create(folder.path().join("two/a.parquet")).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let two = |names: &[(&str, &str)]| {
            let two = folder.path().join("two.rdx");
            let builder = IndexBuilder::new([folder.path().join("two")]).with_renames(names.iter().copied());
            builder.with_overwrite(true).build(&two).unwrap();
            Index::open(&two).unwrap()
        };
        write(&folder, Select::new(two(&[])).filter("id > 100"), "of-two.rdx");
        Select::new(two(&[])).update(folder.path().join("of-two.rdx")).unwrap();
        refused(&two(&[("w", "weight")]), "of-two.rdx", &["of-two.rdx", "\"w\"", "other names"]);
        let column: ArrayRef = Arc::new(arrow::array::Float64Array::from(vec![0.5, 200.5]));
        let batch = RecordBatch::try_from_iter([("id", column)]).unwrap();
        let file = File::create(folder.path().join("data/e.parquet")).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let alone = folder.path().join("e.rdx");
        IndexBuilder::new([folder.path().join("data/e.parquet")])
            .with_root(folder.path().join("data"))
            .build(&alone)
            .unwrap();
        refused(&Index::open(&alone).unwrap(), "where.rdx", &["where.rdx", "\"id\"", "another type"]);
    }
}

#[test]
fn whatever_a_record_holds_is_read_or_refused() {
    let folder = place();
    let all = open(&folder, "all.rdx");
    let view = write(&folder, Select::new(all.clone()).sample(0.25, 9).split(Side::Train, 0.5, 2), "v.rdx");
    let info = view.build_info().to_owned();
    let rows = view.served_source().unwrap();
    let with = |info: &str| {
        let place = Place::of(folder.path().join("other.rdx")).unwrap();
        let mut file = Output::create(place, true, &StoreOptions::default()).unwrap();
        view::write(&mut file, &all, &rows, all.root(), info).unwrap();
        file.commit().unwrap();
        Select::new(all.clone()).update(folder.path().join("other.rdx"))
    };
    assert_eq!(with(&info).unwrap().rows, view.len());
    // Counts are told, and nothing follows from them.
    assert_eq!(with(&info.replace("},{", ",\"rows\":18446744073709551615},{")).unwrap().rows, view.len());
    for end in 0..info.len() {
        with(&info[..end]).unwrap_err();
    }
    for (was, is) in [
        ("\"sample\":0.25", "\"sample\":\"x\""),
        ("\"sample\":0.25", "\"sample\":0.250"),
        ("\"sample\":0.25", "\"sample\":1e400"),
        ("\"seed\":9", "\"seed\":-9"),
        ("\"train\"", "\"test\""),
        ("\"split\"", "\"drawn\""),
        ("\"base_rows\":1730", "\"base_rows\":null"),
        ("\"choices\":[", "\"choices\":[[],"),
        ("\"choices\":[", "\"choices\":[{},"),
    ] {
        assert!(info.contains(was), "{was} is not in {info}");
        let error = with(&info.replace(was, is)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{is}: {error}");
    }
}
