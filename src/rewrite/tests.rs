//! What is written is what the order says, to the byte the same however it came to be.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BinaryArray, DictionaryArray, Int32Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray,
};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::concat::concat_batches;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::properties::WriterProperties;
use rowdex_order::{Blocks, Explicit, Global, Order, Sequential};

use super::*;
use crate::builder::{IndexBuilder, LengthsBuilder};
use rowdex_base::error::ErrorKind;
use rowdex_index::Index;

/// Rows of several kinds of columns, from this id on.
fn rows(first: i64, count: usize) -> RecordBatch {
    let ids = || first..first + count as i64;
    let text = |id: i64| (id % 7 != 0).then(|| format!("row {id} {}", "x".repeat((id * 37 % 101) as usize)));
    let words = ["red", "green", "blue"];
    let color: DictionaryArray<Int32Type> = ids().map(|id| words.get((id % 4) as usize).copied()).collect();
    let tags =
        ids().map(|id| (id % 5 != 1).then(|| (0..id % 6).map(|item| Some((id * item) as i32)).collect::<Vec<_>>()));
    let inner: ArrayRef = Arc::new(Int32Array::from_iter(ids().map(|id| (id % 3 > 0).then_some(id as i32))));
    let field = |name: &str, data_type: &DataType| {
        let id = ("PARQUET:field_id".to_owned(), name.len().to_string());
        Field::new(name, data_type.clone(), true).with_metadata([id].into())
    };
    let inner = StructArray::from(vec![(Arc::new(field("x", inner.data_type())), inner)]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(ids()))),
        ("text", Arc::new(StringArray::from_iter(ids().map(text)))),
        ("color", Arc::new(color)),
        ("tags", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(tags))),
        ("inner", Arc::new(inner)),
    ];
    let fields: Vec<Field> = columns.iter().map(|(name, column)| field(name, column.data_type())).collect();
    let metadata = [("huggingface".to_owned(), "{\"info\": 1}".to_owned()), ("a".to_owned(), "b".to_owned())];
    let schema = Schema::new_with_metadata(fields, metadata.into());
    RecordBatch::try_new(Arc::new(schema), columns.into_iter().map(|(_, column)| column).collect()).unwrap()
}

fn write(path: &Path, rows: &RecordBatch, group_rows: usize) {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(group_rows)).build();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), rows.schema(), Some(properties)).unwrap();
    writer.write(rows).unwrap();
    writer.close().unwrap();
}

/// A folder with data, an index, and room for outputs.
struct Fixture(tempfile::TempDir);

impl Fixture {
    fn new(files: &[usize], group_rows: usize) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::create_dir(place.path("data")).unwrap();
        let mut first = 0;
        for (number, count) in files.iter().enumerate() {
            write(&place.path(&format!("data/{number:02}.parquet")), &rows(first, *count), group_rows);
            first += *count as i64;
        }
        IndexBuilder::new([place.path("data")]).build(place.path("train.rdx")).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn dataset(&self) -> Dataset {
        Dataset::builder(Index::open(self.path("train.rdx")).unwrap()).with_cache_bytes(0).open().unwrap()
    }

    /// A rewrite to a folder of this name, in a few small files.
    fn rewrite(&self, name: &str, order: impl Order + 'static) -> Rewrite {
        Rewrite::new(&self.dataset(), Arc::new(order), self.path(name))
            .with_files(3)
            .with_row_group_rows(700)
            .with_page_bytes(2000)
            .with_threads(2)
    }

    /// The bytes of the output files, by name.
    fn files(&self, name: &str) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(self.path(name)).unwrap().map(|entry| entry.unwrap().path());
        let files = entries.filter(|path| path.extension().is_some_and(|kind| kind == "parquet"));
        files.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(path).unwrap())).collect()
    }

    /// What the parquet crate reads of the output, file by file.
    fn read(&self, name: &str) -> RecordBatch {
        let mut batches = Vec::new();
        for file in self.files(name).into_values() {
            let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(file)).unwrap();
            batches.extend(reader.build().unwrap().map(Result::unwrap));
        }
        concat_batches(&batches[0].schema(), &batches).unwrap()
    }

    /// The rows of the input in an order.
    fn taken(&self, order: &dyn Order) -> RecordBatch {
        let epoch = order.epoch(0).unwrap();
        let ids: Vec<u64> = (0..epoch.len()).map(|position| epoch.row(position).unwrap()).collect();
        self.dataset().take(&ids).unwrap()
    }
}

/// Little enough that what these tests write is spilled, to buckets that are split.
const TINY: u64 = 64 << 10;

/// The row groups of a file of 3000 rows, one of 1 and one of 2500, of 400 each.
const GROUPS: [u64; 16] = [400, 400, 400, 400, 400, 400, 400, 200, 1, 400, 400, 400, 400, 400, 400, 100];

#[test]
fn rows_are_written_in_the_order_by_every_way_to_the_same_bytes() {
    let place = Fixture::new(&[3000, 1, 2500], 400);
    type Made = fn() -> Arc<dyn Order>;
    let orders: [(&str, Made); 4] = [
        ("global", || Arc::new(Global::new(5501, 42).unwrap())),
        ("blocks", || Arc::new(Blocks::new(&GROUPS, 3, 7).unwrap())),
        ("sequential", || Arc::new(Sequential::new(5501).unwrap())),
        ("listed", || {
            Arc::new(Explicit::new((0..4000_u64).map(|at| at * 31 % 5501 / 2 * 2).collect::<Vec<_>>(), 5501).unwrap())
        }),
    ];
    for (name, order) in orders {
        let expected = place.taken(&*order());
        let mut first = None;
        let ways = [(64 << 20, 1, false), (64 << 20, 3, false), (TINY, 2, true), (TINY / 4, 1, true)];
        for (number, (memory, threads, spills)) in ways.into_iter().enumerate() {
            let folder = format!("{name}-{number}");
            let rewrite = Rewrite::new(&place.dataset(), order(), place.path(&folder))
                .with_files(3)
                .with_row_group_rows(700)
                .with_page_bytes(2000)
                .with_memory(memory.max(if name == "listed" { 4 * TINY } else { 0 }))
                .with_threads(threads);
            let report = rewrite.run().unwrap();
            assert_eq!((report.rows, report.files, report.bytes_spilled > 0), (order().len(), 3, spills), "{folder}");
            let found = place.read(&folder);
            assert_eq!(found.columns(), expected.columns(), "{folder}");
            let files = place.files(&folder);
            assert!(*first.get_or_insert_with(|| files.clone()) == files, "{folder} has other bytes");
            let index = Index::open(report.index.unwrap()).unwrap();
            assert_eq!((index.len(), index.num_files()), (order().len(), 3));
            assert!(!place.path(&folder).join("_spill").exists());
        }
    }
}

#[test]
fn tasks_write_the_bytes_of_one_run_in_whatever_number_and_memory() {
    let place = Fixture::new(&[2000, 3000], 300);
    place.rewrite("whole", Global::new(5000, 1).unwrap()).run().unwrap();
    for tasks in [1, 2, 5] {
        let folder = format!("tasks-{tasks}");
        let rewrite = |memory| place.rewrite(&folder, Global::new(5000, 1).unwrap()).with_memory(memory);
        assert_eq!(
            rewrite(TINY).run_task(RewriteTask::Write { task: tasks - 1, tasks }).unwrap_err().kind(),
            ErrorKind::NotFound
        );
        for task in (0..tasks).rev() {
            rewrite(TINY << task).run_task(RewriteTask::Spill { task, tasks }).unwrap();
        }
        assert_eq!(rewrite(TINY).run_task(RewriteTask::Index).unwrap_err().kind(), ErrorKind::NotFound);
        for task in 0..tasks + 1 {
            rewrite(TINY << (2 * task)).run_task(RewriteTask::Write { task, tasks: tasks + 1 }).unwrap();
        }
        let again = rewrite(TINY).run_task(RewriteTask::Write { task: 0, tasks: 1 }).unwrap();
        assert_eq!((again.kept_files, again.bytes_written), (3, 0));
        rewrite(TINY).run_task(RewriteTask::Index).unwrap();
        assert!(place.files(&folder) == place.files("whole"), "{tasks} tasks");
    }
}

#[test]
fn a_run_that_is_stopped_anywhere_leaves_nothing_half_and_goes_on() {
    let place = Fixture::new(&[2000, 3000], 300);
    let rewrite = |folder: &str| place.rewrite(folder, Global::new(5000, 1).unwrap()).with_memory(TINY);
    rewrite("whole").run().unwrap();
    let whole = place.files("whole");
    let (mut stopped, mut finished) = (0, 0);
    for after in [0, 1, 2, 5, 20, 60, 150, 400, 900] {
        let folder = format!("stopped-{after}");
        let asked = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&asked);
        let first = rewrite(&folder).with_stop(move || count.fetch_add(1, Ordering::Relaxed) >= after).run();
        match first {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
                stopped += 1;
            }
            Ok(_) => finished += 1,
        }
        let names = walkdir::WalkDir::new(place.path(&folder)).into_iter().filter_map(Result::ok);
        for name in names.map(|entry| entry.file_name().to_str().unwrap().to_owned()) {
            assert!(!name.contains(".tmp-") && !name.starts_with("split-"), "{name} is left after {after}");
        }
        if place.path(&folder).exists() {
            for (name, bytes) in place.files(&folder) {
                assert!(whole[&name] == bytes, "{name} is half written after {after}");
            }
        }
        rewrite(&folder).with_resume(true).run().unwrap();
        assert!(place.files(&folder) == whole, "after {after}");
    }
    assert!(stopped >= 5, "{stopped} stopped, {finished} finished");
}

/// Runs a rewrite until something was spilled and no file is there.
fn killed_after_spilling(place: &Fixture, folder: &str, rewrite: &Rewrite) {
    for task in 0..2 {
        rewrite.clone().run_task(RewriteTask::Spill { task, tasks: 2 }).unwrap();
    }
    assert!(place.path(folder).join("_spill").exists() && place.files(folder).is_empty());
}

#[test]
fn what_was_spilled_for_another_plan_is_not_gone_on_with() {
    let place = Fixture::new(&[2000, 3000], 300);
    let rewrite = |folder: &str, seed| place.rewrite(folder, Global::new(5000, seed).unwrap()).with_memory(TINY);
    rewrite("whole", 2).run().unwrap();

    // Somebody removes what he sees of a rewrite that was killed, and begins another one.
    killed_after_spilling(&place, "other", &rewrite("other", 1));
    fs::remove_file(place.path("other/_rewrite.json")).unwrap();
    rewrite("other", 2).run().unwrap();
    assert!(place.files("other") == place.files("whole"));
    assert!(!place.path("other/_spill").exists());
}

#[test]
fn of_two_rewrites_that_begin_at_once_in_one_folder_one_is_refused() {
    let place = Fixture::new(&[1000], 300);
    for round in 0..20 {
        let (folder, begin) = (format!("out-{round}"), Barrier::new(2));
        let spill = &|seed| {
            let rewrite = place.rewrite(&folder, Global::new(1000, seed).unwrap());
            begin.wait();
            rewrite.run_task(RewriteTask::Spill { task: 0, tasks: 1 })
        };
        let [one, other] = thread::scope(|scope| {
            [1, 2].map(|seed| scope.spawn(move || spill(seed))).map(|thread| thread.join().unwrap())
        });
        assert!(one.is_ok() != other.is_ok(), "{one:?} and {other:?}");
        assert_eq!(one.and(other).unwrap_err().kind(), ErrorKind::StateMismatch);
    }
}

#[test]
fn contents_that_changed_since_are_not_gone_on_with_though_the_index_was_made_again() {
    let place = Fixture::new(&[2000, 2000], 500);
    let rewrite = || place.rewrite("out", Global::new(4000, 5).unwrap()).with_resume(true);
    rewrite().run().unwrap();
    assert_eq!(rewrite().run().unwrap().kept_files, 3);
    // As many rows, of which the sample has none.
    let path = place.path("data/01.parquet");
    let other = concat_batches(&rows(0, 1).schema(), &[rows(2000, 1999), rows(7, 1)]).unwrap();
    write(&path, &other, 500);
    IndexBuilder::new([place.path("data")]).with_overwrite(true).build(place.path("train.rdx")).unwrap();
    let error = rewrite().run().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StateMismatch, "{error}");
    assert_eq!(rewrite().with_resume(false).with_overwrite(true).run().unwrap().kept_files, 0);
}

#[test]
fn a_task_that_spills_does_nothing_where_everything_is_written() {
    let place = Fixture::new(&[2000, 3000], 300);
    let rewrite = || place.rewrite("out", Global::new(5000, 2).unwrap()).with_memory(TINY);
    rewrite().run().unwrap();
    rewrite().run_task(RewriteTask::Spill { task: 1, tasks: 2 }).unwrap();
    assert!(!place.path("out/_spill").exists());
    rewrite().run_task(RewriteTask::Index).unwrap();
}

#[test]
fn what_is_in_the_way_is_refused_and_replaced_only_if_asked_for() {
    let place = Fixture::new(&[1000], 300);
    let rewrite = |seed| place.rewrite("out", Global::new(1000, seed).unwrap());
    rewrite(1).run().unwrap();
    let first = place.files("out");
    assert_eq!(rewrite(1).run().unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(rewrite(2).with_resume(true).run().unwrap_err().kind(), ErrorKind::StateMismatch);
    let kept = rewrite(1).with_resume(true).run().unwrap();
    assert_eq!((kept.kept_files, kept.bytes_written), (3, 0));
    assert!(place.files("out") == first);
    rewrite(2).with_overwrite(true).run().unwrap();
    assert!(place.files("out") != first);

    fs::write(place.path("out/extra.parquet"), "x").unwrap();
    let refused = rewrite(1).with_overwrite(true).run().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    assert!(refused.to_string().contains("extra.parquet"), "{refused}");
    assert!(place.path("out/extra.parquet").exists());

    let within = place.rewrite("data", Global::new(1000, 1).unwrap()).run().unwrap_err();
    assert_eq!(within.kind(), ErrorKind::InvalidArgument);
    assert!(within.to_string().contains("file of the input"), "{within}");
    let many = place.rewrite("many", Global::new(1000, 1).unwrap()).with_files(1001).run().unwrap_err();
    assert_eq!(many.kind(), ErrorKind::InvalidArgument);
    let named = place.rewrite("named", Global::new(1000, 1).unwrap()).with_origin("text").run().unwrap_err();
    assert_eq!((named.kind(), named.column()), (ErrorKind::InvalidArgument, Some("text")));
}

#[test]
fn two_processes_do_not_write_to_one_folder() {
    let place = Fixture::new(&[1000], 300);
    fs::create_dir(place.path("out")).unwrap();
    let lock = File::open(place.path("out")).unwrap();
    lock.try_lock().unwrap();
    let error = place.rewrite("out", Global::new(1000, 1).unwrap()).run().unwrap_err();
    assert!(error.to_string().contains("another process"), "{error}");
    drop(lock);
    place.rewrite("out", Global::new(1000, 1).unwrap()).run().unwrap();
}

#[test]
fn row_groups_that_cannot_be_read_and_changed_files_are_named() {
    let place = Fixture::new(&[2000, 2000], 500);
    let path = place.path("data/01.parquet");
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap()).unwrap();
    let (start, length) = reader.metadata().row_group(2).column(1).byte_range();
    let times = fs::metadata(&path).unwrap().modified().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[start as usize..][..length as usize].fill(0xff);
    fs::write(&path, bytes).unwrap();
    File::options().write(true).open(&path).unwrap().set_modified(times).unwrap();
    let rewrite = |name: &str, memory| place.rewrite(name, Global::new(4000, 9).unwrap()).with_memory(memory).run();
    for memory in [TINY, 64 << 20] {
        let error = rewrite(&format!("damaged-{memory}"), memory).unwrap_err();
        assert_eq!((error.file(), error.row_group()), (Some("01.parquet"), Some(2)), "{error}");
    }
    write(&path, &rows(2000, 1999), 500);
    assert_eq!(rewrite("stale", TINY).unwrap_err().kind(), ErrorKind::Stale);
}

#[test]
fn nothing_is_removed_but_what_a_rewrite_wrote_and_no_file_of_the_input_whichever_way_it_is_reached() {
    let place = Fixture::new(&[2000], 500);
    let order = || Global::new(2000, 1).unwrap();
    fs::create_dir(place.path("out")).unwrap();
    let foreign = ["split-train.part", "movie.part.tmp-0123456789abcdef", ".part-9.csv.tmp-0123456789abcdef"];
    foreign.iter().for_each(|name| fs::write(place.path(&format!("out/{name}")), "mine").unwrap());
    let left = ".part-00001.parquet.tmp-0123456789abcdef";
    fs::write(place.path(&format!("out/{left}")), "a killed one's").unwrap();
    place.rewrite("out", order()).with_memory(TINY).run().unwrap();
    assert!(foreign.iter().all(|name| place.path(&format!("out/{name}")).exists()));
    assert!(!place.path(&format!("out/{left}")).exists());

    // The output is the input of another rewrite, by a folder or a file that is a link.
    let written = place.files("out");
    for (way, from, to) in [("folder", "../out", "in/more"), ("file", "../out/part-00001.parquet", "in/0.parquet")] {
        fs::create_dir(place.path("in")).unwrap();
        std::os::unix::fs::symlink(from, place.path(to)).unwrap();
        let index = place.path(&format!("{way}.rdx"));
        IndexBuilder::new([place.path("in")]).build(&index).unwrap();
        let data = Dataset::open(index).unwrap();
        let again = Rewrite::new(&data, Arc::new(Global::new(data.len(), 2).unwrap()), place.path("out"));
        let error = again.with_overwrite(true).run().unwrap_err();
        assert!(error.to_string().contains("a file of the input"), "{way}: {error}");
        fs::remove_dir_all(place.path("in")).unwrap();
    }
    assert!(place.files("out") == written);
}

#[test]
fn rewrites_of_one_plan_that_share_a_spill_folder_have_their_own_rows() {
    let place = Fixture::new(&[2000], 500);
    let rewrite = |name: &str| {
        let rewrite = place.rewrite(name, Global::new(2000, 1).unwrap()).with_memory(TINY);
        rewrite.with_spill(place.path("spill")).with_resume(true)
    };
    let (spill, write) = (RewriteTask::Spill { task: 0, tasks: 1 }, RewriteTask::Write { task: 0, tasks: 1 });
    rewrite("first").run_task(spill).unwrap();
    assert!(rewrite("second").run_task(spill).unwrap().bytes_spilled > 0);
    rewrite("second").run().unwrap();
    // Whoever replaces what tasks are at would have a file of theirs among its own.
    let task = File::open(place.path("first")).unwrap();
    task.lock_shared().unwrap();
    let error = rewrite("first").with_resume(false).with_overwrite(true).run().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    rewrite("first").run_task(write).unwrap();
    rewrite("first").run_task(RewriteTask::Index).unwrap();
    assert!(place.files("first") == place.files("second"));
    assert!(fs::read_dir(place.path("spill")).unwrap().next().is_none());
}

#[test]
fn what_was_spilled_in_the_output_goes_although_it_was_resumed_with_a_spill_folder_elsewhere() {
    let place = Fixture::new(&[2000], 500);
    let rewrite = || place.rewrite("out", Global::new(2000, 1).unwrap()).with_memory(TINY).with_resume(true);
    rewrite().run_task(RewriteTask::Spill { task: 0, tasks: 1 }).unwrap();
    assert!(place.path("out/_spill").exists());
    rewrite().with_spill(place.path("elsewhere")).run().unwrap();
    assert!(!place.path("out/_spill").exists());
}

#[test]
fn files_that_are_others_or_have_too_many_row_groups_are_told() {
    let place = Fixture::new(&[2000], 500);
    let rewrite = || place.rewrite("out", Global::new(2000, 1).unwrap());
    rewrite().run().unwrap();
    fs::remove_file(place.path("out/index.rdx")).unwrap();
    write(&place.path("out/part-00001.parquet"), &rows(0, 10), 5);
    for step in ["resume", "index"] {
        let error = match step {
            "resume" => rewrite().with_resume(true).run(),
            _ => rewrite().run_task(RewriteTask::Index),
        };
        let error = error.unwrap_err().to_string();
        assert!(error.contains("rows where 2000 were written"), "{step}: {error}");
        assert!(!place.path("out/index.rdx").exists());
    }
    fs::remove_file(place.path("out/part-00001.parquet")).unwrap();
    assert_eq!(rewrite().with_resume(true).run().unwrap().rows, 2000);
    assert_eq!(place.read("out").num_rows(), 2000);

    let no_task = place.rewrite("untouched", Global::new(2000, 1).unwrap());
    no_task.run_task(RewriteTask::Spill { task: 3, tasks: 3 }).unwrap_err();
    assert!(!place.path("untouched").exists());
    let values: ArrayRef = Arc::new(Int32Array::from_iter_values(0..40_000));
    fs::create_dir(place.path("many")).unwrap();
    write(&place.path("many/0.parquet"), &RecordBatch::try_from_iter([("v", values)]).unwrap(), 40_000);
    IndexBuilder::new([place.path("many")]).build(place.path("many.rdx")).unwrap();
    let data = Dataset::open(place.path("many.rdx")).unwrap();
    let many = Rewrite::new(&data, Arc::new(Global::new(40_000, 1).unwrap()), place.path("groups"));
    let error = many.with_row_group_rows(1).run().unwrap_err().to_string();
    assert!(error.contains("40000 row groups") && error.contains("more files"), "{error}");
    assert!(!place.path("groups").exists());
}

#[test]
fn schema_metadata_types_and_lengths_are_those_of_the_input() {
    let place = Fixture::new(&[1500], 500);
    LengthsBuilder::new(place.path("train.rdx")).with_column("tags").write().unwrap();
    let words: Vec<u64> = (0..1500).map(|row| row * 3).collect();
    LengthsBuilder::new(place.path("train.rdx")).with_given("words", words).write().unwrap();
    let order = Global::new(1500, 5).unwrap();
    let epoch = order.epoch(0).unwrap();
    let report = place.rewrite("out", order).run().unwrap();
    let input = Index::open(place.path("train.rdx")).unwrap();
    let output = Index::open(report.index.unwrap()).unwrap();
    assert_eq!(output.schema(), input.schema());
    assert_eq!(output.lengths_columns().unwrap(), ["tags", "words"]);
    for name in ["tags", "words"] {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        input.lengths(name).unwrap().read(0..1500, &mut before).unwrap();
        output.lengths(name).unwrap().read(0..1500, &mut after).unwrap();
        let expected: Vec<u64> = (0..1500).map(|at| before[epoch.row(at).unwrap() as usize]).collect();
        assert_eq!(after, expected, "{name}");
        assert_eq!(output.lengths(name).unwrap().of(), input.lengths(name).unwrap().of());
    }
    let some = place.dataset().index().clone();
    let some = Dataset::builder(some).with_columns(["id"]).open().unwrap();
    let report = Rewrite::new(&some, Arc::new(Global::new(1500, 5).unwrap()), place.path("some")).run().unwrap();
    let output = Index::open(report.index.unwrap()).unwrap();
    let (mut of_all, mut of_some) = (Vec::new(), Vec::new());
    let all = Index::open(place.path("out/index.rdx")).unwrap();
    all.lengths("tags").unwrap().read(0..1500, &mut of_all).unwrap();
    output.lengths("tags").unwrap().read(0..1500, &mut of_some).unwrap();
    assert_eq!(of_some, of_all, "of a column that is not written");
    let file = place.files("out").into_values().next().unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(file)).unwrap();
    let pairs = reader.metadata().file_metadata().key_value_metadata().unwrap();
    assert!(pairs.iter().any(|pair| pair.key == "huggingface" && pair.value.as_deref() == Some("{\"info\": 1}")));
}

#[test]
fn nothing_is_written_where_there_are_no_rows_but_files_that_say_so() {
    let place = Fixture::new(&[10], 5);
    let none = Explicit::new(Vec::new(), 10).unwrap();
    let report = place.rewrite("none", none).run().unwrap();
    assert_eq!((report.rows, report.files), (0, 1));
    assert_eq!(Index::open(report.index.unwrap()).unwrap().len(), 0);
    let few = Explicit::new(vec![3, 3, 3], 10).unwrap();
    place.rewrite("few", few).run().unwrap();
    assert_eq!(place.read("few").num_rows(), 3);
}

#[test]
fn a_rewrite_without_columns_or_of_a_plan_that_is_none_is_refused() {
    let place = Fixture::new(&[1000], 300);
    let rewrite = |dataset: &Dataset| {
        Rewrite::new(dataset, Arc::new(Global::new(1000, 1).unwrap()), place.path("out")).with_threads(2)
    };
    let none = Dataset::builder(place.dataset().index().clone()).with_columns(Vec::<String>::new()).open().unwrap();
    let error = rewrite(&none).run().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(!place.path("out").exists());
    rewrite(&none).with_origin("row").run().unwrap();

    fs::write(place.path("out/_rewrite.json"), "{").unwrap();
    let error = rewrite(&place.dataset()).with_overwrite(true).run().unwrap_err();
    let (text, file) = (error.to_string(), error.file().unwrap().to_owned());
    assert!(text.contains("choose another folder") && file.ends_with("_rewrite.json"), "{text}");
}

#[test]
fn rows_that_take_more_than_the_sample_told_are_spilled() {
    let place = Fixture::new(&[1], 1);
    fs::create_dir(place.path("uneven")).unwrap();
    // Every fourth row is of the sample.
    let long = |row: usize| if row.is_multiple_of(4) { 1 } else { 2000 };
    let values = BinaryArray::from_iter_values((0..4096).map(|row| vec![row as u8; long(row)]));
    let rows = RecordBatch::try_from_iter([("value", Arc::new(values) as ArrayRef)]).unwrap();
    write(&place.path("uneven/0.parquet"), &rows, 4096);
    IndexBuilder::new([place.path("uneven")]).build(place.path("uneven.rdx")).unwrap();
    let dataset = Dataset::open(place.path("uneven.rdx")).unwrap();
    let rewrite = |name: &str, memory| {
        Rewrite::new(&dataset, Arc::new(Global::new(4096, 1).unwrap()), place.path(name)).with_memory(memory)
    };
    assert_eq!(rewrite("held", 64 << 20).run().unwrap().bytes_spilled, 0);
    let told = rewrite("told", 1 << 20);
    let plan = told.planned(&told.pool(2).unwrap()).unwrap();
    let told = plan.sample_bytes * 4096 / plan.sample_rows;
    let report = rewrite("spilled", 2 * told + (64 << 10)).run().unwrap();
    assert!(told < 100_000 && report.bytes_spilled > 0, "{told} bytes by the sample, {report:?}");
    assert!(place.files("spilled") == place.files("held"));
}
