use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, DictionaryArray, Int64Array, ListArray, RecordBatch, StringArray, UInt32Array,
};
use arrow_schema::DataType;
use arrow_select::take::take_record_batch;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;
use rayon::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::builder::{IndexBuilder, SchemaMode};

/// Rows `first..first + rows`, whose values follow from their number.
fn batch(first: i64, rows: i64) -> RecordBatch {
    let ids = first..first + rows;
    let id: ArrayRef = Arc::new(Int64Array::from_iter_values(ids.clone()));
    let text: ArrayRef =
        Arc::new(StringArray::from_iter(ids.clone().map(|id| (id % 7 != 3).then(|| format!("row {id}")))));
    let blob: ArrayRef =
        Arc::new(BinaryArray::from_iter_values(ids.clone().map(|id| vec![id as u8; 100 + (id % 50) as usize])));
    let list: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(
        ids.clone()
            .map(|id| (id % 5 != 0).then(|| (0..id % 4).map(|item| Some((id + item) as i32)).collect::<Vec<_>>())),
    ));
    let words: Vec<String> = ids.map(|id| format!("word {}", id % 3)).collect();
    let word: ArrayRef = Arc::new(words.iter().map(String::as_str).collect::<DictionaryArray<Int32Type>>());
    RecordBatch::try_from_iter([("id", id), ("text", text), ("blob", blob), ("list", list), ("word", word)]).unwrap()
}

fn write(path: &Path, batch: &RecordBatch, row_group_rows: usize) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(row_group_rows))
        .set_data_page_row_count_limit(20)
        .set_write_batch_size(10)
        .build();
    let file = std::fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

/// Three files of 250, 0 and 130 rows in row groups of 100, with their index.
fn corpus() -> TempDir {
    let folder = TempDir::new().unwrap();
    write(&folder.path().join("a.parquet"), &batch(0, 250), 100);
    write(&folder.path().join("b.parquet"), &batch(0, 0), 100);
    write(&folder.path().join("c.parquet"), &batch(250, 130), 100);
    IndexBuilder::new([folder.path()]).build(folder.path().join("i.rdx")).unwrap();
    folder
}

fn open(folder: &TempDir) -> DatasetBuilder {
    Dataset::builder(Index::open(folder.path().join("i.rdx")).unwrap())
}

fn ids(batch: &RecordBatch) -> Vec<i64> {
    batch.column_by_name("id").unwrap().as_primitive::<Int64Type>().values().to_vec()
}

#[test]
fn row_ids_of_no_rows_are_refused_as_such() {
    let folder = TempDir::new().unwrap();
    write(&folder.path().join("a.parquet"), &batch(0, 0), 10);
    IndexBuilder::new([folder.path().join("a.parquet")]).build(folder.path().join("i.rdx")).unwrap();
    let error = Dataset::open(folder.path().join("i.rdx")).unwrap().get(0).unwrap_err();
    assert_eq!((error.kind(), error.hint()), (ErrorKind::OutOfRange, Some("there are no rows")), "{error}");
}

#[test]
fn every_row_is_what_was_written() {
    let folder = corpus();
    let dataset = open(&folder).open().unwrap();
    assert_eq!(dataset.len(), 380);
    let whole = batch(0, 380);
    for row in 0..380 {
        assert_eq!(dataset.get(row).unwrap().columns(), whole.slice(row as usize, 1).columns(), "row {row}");
    }
}

#[test]
fn the_first_reads_of_a_row_group_are_of_pages_and_further_ones_decode_it_once() {
    let folder = corpus();
    let dataset = open(&folder).open().unwrap();
    dataset.get(0).unwrap();
    let first = dataset.counters();
    assert_eq!((first.decodes, first.misses, first.held_bytes), (1, 1, 0));
    for row in 0..100 {
        dataset.get(row).unwrap();
    }
    let later = dataset.counters();
    assert!(later.held_bytes > 0 && later.hits > 0);
    let spent = later.decodes;
    for row in 0..100 {
        dataset.get(row).unwrap();
    }
    assert_eq!(dataset.counters().decodes, spent);
}

#[test]
fn a_take_decodes_each_row_group_once() {
    let folder = corpus();
    let dataset = open(&folder).with_threads(2).open().unwrap();
    let rows: Vec<u64> = (0..380).rev().collect();
    assert_eq!(ids(&dataset.take(&rows).unwrap()), (0..380).rev().collect::<Vec<_>>());
    assert_eq!(dataset.counters().decodes, 5);
    dataset.take(&rows).unwrap();
    assert_eq!((dataset.counters().decodes, dataset.counters().hits), (5, 5));
}

#[test]
fn columns_come_in_the_order_chosen_with_the_types_of_the_files() {
    let folder = corpus();
    let dataset = open(&folder).with_columns(["word", "id"]).open().unwrap();
    let names: Vec<_> = dataset.schema().fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["word", "id"]);
    assert!(matches!(dataset.schema().field(0).data_type(), DataType::Dictionary(_, _)));
    let taken = dataset.take(&[379, 0, 379]).unwrap();
    assert_eq!(taken.schema(), *dataset.schema());
    assert_eq!(ids(&taken), [379, 0, 379]);
    let error = open(&folder).with_columns(["nope"]).open().unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::InvalidArgument, Some("nope")));
}

#[test]
fn no_columns_still_have_rows() {
    let folder = corpus();
    let dataset = open(&folder).with_columns(Vec::<String>::new()).open().unwrap();
    assert_eq!(dataset.take(&[3, 300]).unwrap().num_rows(), 2);
    assert_eq!(dataset.get(3).unwrap().num_rows(), 1);
}

#[test]
fn a_row_beyond_the_end_is_named() {
    let folder = corpus();
    let dataset = open(&folder).open().unwrap();
    for error in [dataset.get(380).unwrap_err(), dataset.take(&[0, 380]).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::OutOfRange);
        assert!(error.to_string().contains("380") && error.to_string().contains("379"), "{error}");
    }
    assert_eq!(dataset.take(&[]).unwrap().num_rows(), 0);
}

#[test]
fn the_budget_is_honoured_and_a_row_group_above_it_is_served_uncached() {
    let folder = corpus();
    let rows: Vec<u64> = (0..380).collect();
    let one_group = {
        let dataset = open(&folder).open().unwrap();
        dataset.take(&rows[..100]).unwrap();
        dataset.counters().held_bytes
    };
    let dataset = open(&folder).with_cache_bytes(one_group * 5 / 2).with_threads(0).open().unwrap();
    dataset.take(&rows).unwrap();
    assert!(dataset.counters().held_bytes <= one_group * 5 / 2);
    assert!(dataset.counters().evictions > 0);
    let none = open(&folder).with_cache_bytes(0).open().unwrap();
    assert_eq!(ids(&none.take(&rows).unwrap()).len(), 380);
    assert_eq!(none.counters().held_bytes, 0);
}

#[test]
fn a_rewritten_file_is_noticed_at_the_level_asked_for() {
    let folder = corpus();
    let path = folder.path().join("c.parquet");
    let ids_from = |first: i64| batch(first, 130).project(&[0]).unwrap();
    for name in ["a", "b"] {
        write(&folder.path().join(format!("{name}.parquet")), &ids_from(0), 100);
    }
    write(&path, &ids_from(260), 100);
    let index = folder.path().join("i.rdx");
    IndexBuilder::new([folder.path()]).with_overwrite(true).build(index).unwrap();
    let before = std::fs::metadata(&path).unwrap();
    write(&path, &ids_from(1260), 100);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), before.len());
    let stat = open(&folder).open().unwrap().get(300).unwrap_err();
    assert_eq!((stat.kind(), stat.file()), (ErrorKind::Stale, Some("c.parquet")), "{stat}");
    assert!(open(&folder).open().unwrap().get(0).is_ok());

    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(before.modified().unwrap()).unwrap();
    // The footer holds min and max of every column, so it tells where size and time do not.
    for level in [Staleness::Footer, Staleness::Deep] {
        let error = open(&folder).with_check(level).open().unwrap().get(300).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stale, "{level}");
    }
    let off = open(&folder).with_check(Staleness::Off).open().unwrap();
    assert_eq!(ids(&off.get(300).unwrap()), [1300]);
}

#[test]
fn the_level_off_compares_rows_alone_even_where_the_index_has_no_footers() {
    let folder = corpus();
    let index = folder.path().join("i.rdx");
    IndexBuilder::new([folder.path()]).with_footers(false).with_overwrite(true).build(&index).unwrap();
    let path = folder.path().join("c.parquet");
    let off = || open(&folder).with_check(Staleness::Off).open().unwrap();
    write(&path, &batch(1250, 130), 100);
    assert_eq!(ids(&off().get(300).unwrap()), [1300]);
    write(&path, &batch(1250, 130), 130);
    assert_eq!(off().get(300).unwrap_err().kind(), ErrorKind::Stale);
    let other: ArrayRef = Arc::new(Int64Array::from_iter_values(0..130));
    write(&path, &RecordBatch::try_from_iter([("other", other)]).unwrap(), 100);
    assert_eq!(off().get(300).unwrap_err().file(), Some("c.parquet"));
}

#[test]
fn an_index_that_a_link_leads_to_has_its_files_beside_it_or_beside_the_link() {
    let (folder, links) = (corpus(), TempDir::new().unwrap());
    let link = links.path().join("i.rdx");
    std::os::unix::fs::symlink(folder.path().join("i.rdx"), &link).unwrap();
    let opened = |path: &Path| Dataset::builder(Index::open(path).unwrap()).open().unwrap();
    std::fs::create_dir(folder.path().join("data")).unwrap();
    for name in ["a.parquet", "b.parquet", "c.parquet"] {
        std::fs::rename(folder.path().join(name), folder.path().join("data").join(name)).unwrap();
    }
    IndexBuilder::new([folder.path().join("data")]).with_overwrite(true).build(folder.path().join("i.rdx")).unwrap();
    assert_eq!(ids(&opened(&link).get(300).unwrap()), [300]);
    // The folder of the link goes first.
    std::fs::create_dir(links.path().join("data")).unwrap();
    assert_eq!(opened(&link).get(300).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_file_that_is_overwritten_in_place_while_it_is_open_is_noticed_at_the_next_read() {
    let folder = corpus();
    let path = folder.path().join("c.parquet");
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(100);
    let sound = std::fs::read(&path).unwrap();
    // Values of another row group, which read as well as the right ones.
    let other = {
        write(&path, &batch(1250, 130), 100);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.resize(sound.len(), 0);
        let footer = sound.len() - 8000;
        bytes[footer..].copy_from_slice(&sound[footer..]);
        bytes
    };
    for footers in [true, false] {
        for level in Staleness::ALL {
            std::fs::write(&path, &sound).unwrap();
            std::fs::File::options().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
            let index = IndexBuilder::new([folder.path()]).with_footers(footers).with_overwrite(true);
            index.build(folder.path().join("i.rdx")).unwrap();
            let dataset = open(&folder).with_check(level).with_cache_bytes(0).open().unwrap();
            assert_eq!(ids(&dataset.take(&(250..350).collect::<Vec<_>>()).unwrap()).len(), 100);
            std::fs::write(&path, &other).unwrap();
            for (row, rows) in [(270, vec![270]), (360, vec![360]), (260, (250..350).collect::<Vec<_>>())] {
                let outcome = if rows.len() == 1 { dataset.get(row) } else { dataset.take(&rows) };
                if level == Staleness::Off {
                    // Whatever comes of it, it is not compared.
                    assert_ne!(outcome.err().map(|error| error.kind()), Some(ErrorKind::Stale));
                } else {
                    let error = outcome.unwrap_err();
                    assert_eq!((error.kind(), error.file()), (ErrorKind::Stale, Some("c.parquet")), "{level}: {error}");
                }
            }
            assert_eq!(ids(&dataset.take(&[0, 249]).unwrap()), [0, 249]);
        }
    }
}

#[test]
fn a_copied_dataset_is_served_at_every_level_and_its_changed_files_are_noticed() {
    for footers in [true, false] {
        let folder = corpus();
        let index = folder.path().join("i.rdx");
        IndexBuilder::new([folder.path()]).with_footers(footers).with_overwrite(true).build(&index).unwrap();
        let copy = TempDir::new().unwrap();
        for name in ["a.parquet", "b.parquet", "c.parquet", "i.rdx"] {
            let (from, to) = (folder.path().join(name), copy.path().join(name));
            std::fs::copy(&from, &to).unwrap();
            let later = std::fs::metadata(&from).unwrap().modified().unwrap() + std::time::Duration::from_secs(5);
            std::fs::File::options().write(true).open(&to).unwrap().set_modified(later).unwrap();
        }
        let disk_cache = TempDir::new().unwrap();
        for level in Staleness::ALL {
            let dataset = open(&copy).with_check(level).open().unwrap();
            assert_eq!(ids(&dataset.take(&[0, 300, 379]).unwrap()), [0, 300, 379], "{level}");
            let report = dataset.verify(level, &|_| ()).unwrap();
            assert!(report.problems.is_empty(), "{level}: {:?}", report.problems);
            if level != Staleness::Off {
                let kept = open(&copy).with_check(level).with_disk_cache(DiskCache::new(disk_cache.path(), 1 << 30));
                let kept = kept.open().unwrap();
                assert_eq!(ids(&kept.take(&(0..380).collect::<Vec<_>>()).unwrap()).len(), 380, "{level}");
            }
        }
        // As long, of another time, and with other values.
        let path = copy.path().join("c.parquet");
        let bytes = std::fs::read(&path).unwrap();
        let swapped: Vec<u8> = bytes.iter().rev().copied().collect();
        for changed in [swapped, with_another_footer(&bytes)] {
            std::fs::write(&path, changed).unwrap();
            for level in [Staleness::Stat, Staleness::Footer, Staleness::Deep] {
                let dataset = open(&copy).with_check(level).open().unwrap();
                let error = dataset.get(300).unwrap_err();
                assert_eq!((error.kind(), error.file()), (ErrorKind::Stale, Some("c.parquet")), "{level}: {error}");
                assert!(error.message().contains("modified after"), "{level}: {error}");
                assert_eq!(dataset.verify(level, &|_| ()).unwrap().problems.len(), 1, "{level}");
            }
        }
    }
}

/// A Parquet file of the same length, in which one byte of the footer is another: the first letter of a column's name.
fn with_another_footer(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let name = bytes.windows(4).rposition(|word| word == b"text").unwrap();
    bytes[name] = b'T';
    bytes
}

#[test]
fn a_vanished_file_and_a_shortened_one_are_named_and_the_rest_is_served() {
    let folder = corpus();
    let path = folder.path().join("c.parquet");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let short = open(&folder).open().unwrap();
    assert_eq!(short.get(300).unwrap_err().kind(), ErrorKind::Stale);
    let unchecked = open(&folder).with_check(Staleness::Off).open().unwrap();
    assert_eq!(unchecked.get(300).unwrap_err().file(), Some("c.parquet"));
    std::fs::remove_file(&path).unwrap();
    let gone = open(&folder).open().unwrap();
    let error = gone.get(300).unwrap_err();
    assert_eq!((error.kind(), error.file()), (ErrorKind::NotFound, Some("c.parquet")), "{error}");
    assert!(error.to_string().starts_with(path.to_str().unwrap()), "a user finds it by its whole path: {error}");
    let problems = gone.verify(Staleness::Stat, &|_| ()).unwrap().problems;
    assert!(problems[0].to_string().starts_with(path.to_str().unwrap()), "{problems:?}");
    assert_eq!(ids(&gone.take(&[5]).unwrap()), [5]);
}

#[test]
fn verify_finds_all_bad_files_at_once() {
    let folder = corpus();
    let good = open(&folder).open().unwrap().verify(Staleness::Deep, &|_| ()).unwrap();
    assert_eq!((good.files, good.row_groups, good.rows, good.problems.len()), (3, 5, 380, 0));
    std::fs::write(folder.path().join("a.parquet"), b"PAR1").unwrap();
    std::fs::remove_file(folder.path().join("c.parquet")).unwrap();
    let bad = open(&folder).open().unwrap().verify(Staleness::Stat, &|_| ()).unwrap();
    let files: Vec<_> = bad.problems.iter().map(|problem| problem.file().unwrap()).collect();
    assert_eq!(files, ["a.parquet", "c.parquet"]);
}

#[test]
fn a_check_tells_of_one_more_file_each_time() {
    let folder = TempDir::new().unwrap();
    for file in 0..40 {
        write(&folder.path().join(format!("{file:02}.parquet")), &batch(file, 1), 1);
    }
    IndexBuilder::new([folder.path()]).build(folder.path().join("i.rdx")).unwrap();
    let dataset = open(&folder).with_threads(4).open().unwrap();
    for _ in 0..20 {
        let told = Mutex::new(Vec::new());
        let tell = |progress: VerifyProgress| {
            let said = (progress.files_done, progress.files);
            // Whoever is slow to tell is overtaken, where that is possible.
            std::thread::yield_now();
            told.lock().unwrap().push(said);
        };
        dataset.verify(Staleness::Stat, &tell).unwrap();
        assert_eq!(told.into_inner().unwrap(), (1..=40).map(|done| (done, 40)).collect::<Vec<_>>());
    }
}

#[test]
fn a_damaged_page_is_an_error_that_names_row_group_and_column() {
    let folder = corpus();
    let path = folder.path().join("c.parquet");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4..40].fill(0xff);
    let time = std::fs::metadata(&path).unwrap().modified().unwrap();
    std::fs::write(&path, bytes).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    let dataset = open(&folder).open().unwrap();
    let error = dataset.take(&(250..350).collect::<Vec<_>>()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParquet, "{error}");
    assert_eq!((error.file(), error.row_group(), error.column()), (Some("c.parquet"), Some(0), Some("id")));
    assert_eq!(ids(&dataset.take(&[360]).unwrap()), [360]);
}

#[test]
fn folders_missing_columns_and_wider_types_come_out_as_one_schema() {
    let folder = TempDir::new().unwrap();
    let narrow: ArrayRef = Arc::new(arrow_array::Int32Array::from(vec![1, 2]));
    let wide: ArrayRef = Arc::new(Int64Array::from(vec![3, 4]));
    let extra: ArrayRef = Arc::new(StringArray::from(vec!["x", "y"]));
    let first = RecordBatch::try_from_iter([("id", narrow)]).unwrap();
    let second = RecordBatch::try_from_iter([("extra", extra), ("id", wide)]).unwrap();
    write(&folder.path().join("day=1/a.parquet"), &first, 10);
    write(&folder.path().join("day=2/a.parquet"), &second, 10);
    let builder = IndexBuilder::new([folder.path()]);
    let error = builder.build(folder.path().join("i.rdx")).unwrap_err();
    assert_eq!((error.kind(), error.file()), (ErrorKind::Schema, Some("day=2/a.parquet")));
    assert!(!folder.path().join("i.rdx").exists());
    builder.with_schema_mode(SchemaMode::Union).build(folder.path().join("i.rdx")).unwrap();
    let dataset = open(&folder).open().unwrap();
    let all = dataset.take(&[2, 0, 1, 3]).unwrap();
    assert_eq!(ids(&all), [3, 1, 2, 4]);
    assert_eq!(all.column_by_name("day").unwrap().as_primitive::<Int64Type>().values(), &[2, 1, 1, 2]);
    let extra = all.column_by_name("extra").unwrap().as_string::<i32>();
    assert_eq!(extra.iter().collect::<Vec<_>>(), [Some("x"), None, None, Some("y")]);
}

#[test]
fn many_threads_get_what_one_would() {
    let folder = corpus();
    let dataset = open(&folder).with_cache_bytes(30_000).with_threads(2).open().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let dataset = dataset.clone();
            scope.spawn(move || {
                for turn in 0..30 {
                    let rows: Vec<u64> = (0..20).map(|at| (thread * 7919 + turn * 104_729 + at * 37) % 380).collect();
                    let expected: Vec<i64> = rows.iter().map(|&row| row as i64).collect();
                    assert_eq!(ids(&dataset.take(&rows).unwrap()), expected);
                    assert_eq!(ids(&dataset.get(rows[0]).unwrap()), expected[..1]);
                }
            });
        }
    });
}

#[cfg(feature = "serde")]
#[test]
fn rows_come_as_values_of_the_callers_type() {
    #[derive(serde::Deserialize, Debug, PartialEq)]
    struct Row {
        id: i64,
        text: Option<String>,
        list: Option<Vec<i32>>,
        word: String,
    }
    let folder = corpus();
    let dataset = open(&folder).with_columns(["id", "text", "list", "word"]).open().unwrap();
    let row: Row = dataset.get_as(11).unwrap();
    assert_eq!(row, Row { id: 11, text: Some("row 11".into()), list: Some(vec![11, 12, 13]), word: "word 2".into() });
    let rows: Vec<Row> = dataset.take_as(&[3, 10]).unwrap();
    assert_eq!((rows[0].text.as_deref(), rows[1].list.as_deref()), (None, None));
    assert_eq!(dataset.get_as::<u8>(0).unwrap_err().kind(), ErrorKind::Schema);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_take_equals_arrows_own_take_of_the_whole(
        rows in prop::collection::vec(0u64..380, 0..60), cache_kib in 0u64..60, threads in 0usize..3,
    ) {
        static FOLDER: OnceLock<TempDir> = OnceLock::new();
        let folder = FOLDER.get_or_init(corpus);
        let dataset = open(folder).with_cache_bytes(cache_kib << 10).with_threads(threads).open().unwrap();
        let whole = batch(0, 380);
        let places: UInt32Array = rows.iter().map(|&row| row as u32).collect();
        let expected = take_record_batch(&whole, &places).unwrap();
        for _ in 0..2 {
            let taken = dataset.take(&rows).unwrap();
            for (ours, theirs) in taken.columns().iter().zip(expected.columns()) {
                // Dictionaries may number their values differently.
                let plain = |column: &ArrayRef| match column.data_type() {
                    DataType::Dictionary(_, values) => arrow_cast::cast(column, values).unwrap(),
                    _ => column.clone(),
                };
                prop_assert_eq!(&plain(ours), &plain(theirs));
            }
        }
        prop_assert!(dataset.counters().held_bytes <= cache_kib << 10);
    }
}

#[test]
fn a_worker_of_another_pool_begins_nothing_else_while_it_waits() {
    thread_local!(static DEPTH: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
    let folder = corpus();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let alone = |work: &dyn Fn()| {
        DEPTH.set(DEPTH.get() + 1);
        work();
        let depth = DEPTH.get();
        DEPTH.set(depth - 1);
        depth
    };
    let deepest = pool.install(|| {
        let one = |turn: usize| {
            let taken = alone(&|| {
                let dataset = open(&folder).with_threads(2).open().unwrap();
                assert_eq!(dataset.take(&[5, 105, 205, 305]).unwrap().num_rows(), 4);
                assert!(dataset.verify(Staleness::Stat, &|_| ()).unwrap().problems.is_empty());
            });
            let built = alone(&|| {
                let index = folder.path().join(format!("{turn}.rdx"));
                IndexBuilder::new([folder.path()]).with_threads(2).build(index).unwrap();
            });
            taken.max(built)
        };
        (0..100).into_par_iter().map(one).max()
    });
    assert_eq!(deepest, Some(1));
}
