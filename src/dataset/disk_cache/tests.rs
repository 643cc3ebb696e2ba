use std::fs;
use std::path::Path;

use arrow_array::builder::{MapBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Decimal256Array, DictionaryArray, FixedSizeBinaryArray,
    FixedSizeListArray, Int8Array, Int64Array, LargeBinaryArray, ListArray, StringArray, StringViewArray, StructArray,
};
use arrow_buffer::NullBuffer;
use arrow_buffer::i256;
use arrow_schema::Field;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use tempfile::TempDir;

use super::*;
use crate::builder::IndexBuilder;
use crate::dataset::{DatasetBuilder, Staleness};
use crate::{Batch, Dataset, Loader, Select};
use rowdex_index::Index;
use rowdex_order::sampler::{DistributedSampler, Shard};
use rowdex_order::{Global, IdSet};
use rowdex_parquet::WholeBatch;

const ROWS: i64 = 3000;
const GROUP: usize = 700;
const GROUPS: u64 = 5;
const PLENTY: u64 = 1 << 30;

/// A column of every sort of layout, with nulls where `id` is a multiple of 7.
fn columns(rows: std::ops::Range<i64>) -> RecordBatch {
    let ids = || rows.clone();
    let some = |id: i64| id % 7 != 0;
    let text = |id: i64| some(id).then(|| format!("row {id} {}", "é".repeat(id as usize % 30)));
    let texts: Vec<Option<String>> = ids().map(text).collect();
    let nulls = || Some(NullBuffer::from(ids().map(some).collect::<Vec<bool>>()));
    let long: Vec<Option<Vec<u8>>> = ids().map(|id| some(id).then(|| vec![id as u8; 200 + id as usize % 99])).collect();
    let words: Vec<Option<String>> = ids().map(|id| some(id).then(|| format!("word {}", id % 11))).collect();
    let numbers = Int64Array::from(ids().map(|id| some(id).then_some(id * 3)).collect::<Vec<_>>());
    let items = |id: i64| (0..id % 5).map(move |item| (item != 3).then_some(id as i32)).collect::<Vec<_>>();
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(ids().map(|id| some(id).then(|| items(id))));
    let lists: ArrayRef = Arc::new(lists);
    let mut map = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    for id in ids() {
        for entry in 0..id % 3 {
            map.keys().append_value(format!("key {entry}"));
            map.values().append_option((entry != 1).then(|| format!("value {id}")));
        }
        map.append(some(id)).unwrap();
    }
    let fields = vec![
        Field::new("number", DataType::Int64, true),
        Field::new("text", DataType::Utf8, true),
        Field::new("list", lists.data_type().clone(), true),
    ];
    let below: Vec<ArrayRef> = vec![Arc::new(numbers), Arc::new(StringArray::from(texts.clone())), Arc::clone(&lists)];
    let structs = StructArray::try_new(fields.into(), below, nulls()).unwrap();
    let fixed = ids().map(|id| some(id).then_some([id as u8; 5]));
    let fixed = FixedSizeBinaryArray::try_from_sparse_iter_with_size(fixed, 5).unwrap();
    let points = ids().map(|id| some(id).then(|| vec![Some(id as i32), None, Some(-1)]));
    let wide = ids().map(|id| some(id).then(|| i256::from_i128(i128::from(id)))).collect::<Decimal256Array>();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(ids()))),
        ("small", Arc::new(Int8Array::from_iter(ids().map(|id| some(id).then_some(id as i8))))),
        ("bool", Arc::new(ids().map(|id| some(id).then_some(id % 2 == 0)).collect::<BooleanArray>())),
        ("wide", Arc::new(wide.with_precision_and_scale(60, 2).unwrap())),
        ("text", Arc::new(StringArray::from(texts.clone()))),
        ("view", Arc::new(StringViewArray::from_iter(texts.iter().map(Option::as_deref)))),
        ("bytes", Arc::new(BinaryArray::from_iter(long.iter().map(Option::as_deref)))),
        ("large_bytes", Arc::new(LargeBinaryArray::from_iter(long.iter().map(Option::as_deref)))),
        ("fixed", Arc::new(fixed)),
        ("repeated", Arc::new(StringArray::from(words.clone()))),
        ("word", Arc::new(words.iter().map(Option::as_deref).collect::<DictionaryArray<Int32Type>>())),
        ("small_word", Arc::new(words.iter().map(Option::as_deref).collect::<DictionaryArray<Int8Type>>())),
        ("list", lists),
        ("point", Arc::new(FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(points, 3))),
        ("struct", Arc::new(structs)),
        ("map", Arc::new(map.finish())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true))).unwrap()
}

fn write(path: &Path, batch: &RecordBatch, rows: usize) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(rows))
        .set_data_page_row_count_limit(50)
        .set_write_batch_size(25)
        .build();
    let mut writer = ArrowWriter::try_new(fs::File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

/// A folder with `data/a.parquet`, its index, and room for a disk cache.
struct Fixture(TempDir);

impl Fixture {
    fn new() -> Self {
        let place = Self(TempDir::new().unwrap());
        write(&place.path("data/a.parquet"), &columns(0..ROWS), GROUP);
        place.index();
        place
    }

    fn index(&self) {
        IndexBuilder::new([self.path("data")]).with_overwrite(true).build(self.path("i.rdx")).unwrap();
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn builder(&self) -> DatasetBuilder {
        Dataset::builder(Index::open(self.path("i.rdx")).unwrap())
    }

    fn plain(&self) -> Dataset {
        self.builder().open().unwrap()
    }

    fn disk_cache(&self, bytes: u64) -> DiskCache {
        DiskCache::new(self.path("disk_cache"), bytes)
    }

    /// With a disk cache, and no other cache.
    fn kept(&self) -> Dataset {
        self.builder().with_disk_cache(self.disk_cache(PLENTY)).with_cache_bytes(0).open().unwrap()
    }

    fn entries(&self) -> Vec<std::path::PathBuf> {
        fs::read_dir(self.path("disk_cache"))
            .map_or_else(|_| Vec::new(), |files| files.map(|file| file.unwrap().path()).collect())
    }
}

/// Dictionaries may number their values differently.
fn plain(batch: &RecordBatch) -> Vec<ArrayRef> {
    let plain = |column: &ArrayRef| match column.data_type() {
        DataType::Dictionary(_, values) => arrow_cast::cast(column, values).unwrap(),
        _ => Arc::clone(column),
    };
    batch.columns().iter().map(plain).collect()
}

fn assert_same(ours: &RecordBatch, theirs: &RecordBatch) {
    assert_eq!(ours.schema(), theirs.schema());
    for ((ours, theirs), field) in plain(ours).iter().zip(plain(theirs)).zip(theirs.schema().fields()) {
        assert_eq!(ours, &theirs, "{}", field.name());
        ours.to_data().validate_full().unwrap();
    }
}

fn epochs(dataset: &Dataset, memory: u64, threads: usize, views: bool) -> Vec<Batch> {
    let order = Arc::new(Global::new(dataset.len(), 5).unwrap());
    let sampler = DistributedSampler::new(order, Shard::new(0, 1).unwrap(), 64).unwrap();
    let loader = Loader::builder(dataset, sampler).memory(memory).threads(threads).with_views(views).epochs(2);
    loader.build().unwrap().collect::<Result<Vec<_>>>().unwrap()
}

/// Keeps the chunks that come.
struct Collected {
    chunk_rows: usize,
    chunks: Vec<RecordBatch>,
}

impl RowSink for Collected {
    fn chunk_rows(&self) -> usize {
        self.chunk_rows
    }

    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        self.chunks.push(chunk);
        Ok(())
    }
}

/// An entry of these rows, which came in one piece and are kept in chunks of so many.
fn keep(folder: &Path, batch: &RecordBatch, chunk: usize) -> Vec<RecordBatch> {
    let disk_cache = CacheFolder::<Kept>::new(DiskCache::new(folder, PLENTY), |bytes| rows::parse(&bytes));
    let key = CacheKey::new(format!("chunks of {chunk}"));
    let Claim::Make(maker) = disk_cache.find_or_make(key.clone(), 0) else { panic!("there is room") };
    let mut writer = RowsWriter::new(maker, chunk);
    writer.add(&batch.slice(0, batch.num_rows() - 5));
    writer.add(&batch.slice(batch.num_rows() - 5, 5));
    writer.finish();
    assert!(disk_cache.fault().is_none(), "{:?}", disk_cache.fault());
    disk_cache.find(&key).unwrap().to_vec()
}

#[test]
fn rows_come_in_chunks_of_any_size_whatever_the_chunks_that_are_kept() {
    let folder = TempDir::new().unwrap();
    let batch = columns(1000..1403);
    let collect = |chunks: &[RecordBatch], slots: Slots<'_>, rows: usize| {
        let mut sink = Collected { chunk_rows: rows, chunks: Vec::new() };
        serve(chunks, slots, &batch.schema(), &mut sink).unwrap();
        let out = sink.chunks;
        assert!(
            out.iter().rev().skip(1).all(|chunk| chunk.num_rows() == rows) && out.last().unwrap().num_rows() <= rows
        );
        arrow_select::concat::concat_batches(&batch.schema(), &out).unwrap()
    };
    let slots: Vec<u32> = (0..403).filter(|slot| slot % 17 == 3 || *slot > 390).collect();
    let picks = arrow_array::UInt32Array::from(slots.clone());
    let picked = arrow_select::take::take_record_batch(&batch, &picks).unwrap();
    for kept in [1, 7, 64, 199, 402, 403, 1000] {
        let chunks = keep(folder.path(), &batch, kept);
        for rows in [1, 7, 64, 100, 402, 403, usize::MAX] {
            assert_same(&collect(&chunks, Slots::All, rows), &batch);
            assert_same(&collect(&chunks, Slots::Some(&slots), rows), &picked);
        }
        assert_eq!(collect(&chunks, Slots::Some(&[]), 10).num_rows(), 0);
    }
}

#[test]
fn no_bytes_make_the_reader_of_entries_panic_and_none_are_taken_for_more_than_there_are() {
    let folder = TempDir::new().unwrap();
    keep(folder.path(), &columns(0..90), 20);
    let entry = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let payload = fs::read(entry).unwrap()[128..].to_vec();
    let sound = rows::parse(&aligned(&payload)).unwrap().0;
    assert_eq!(sound.iter().map(RecordBatch::num_rows).sum::<usize>(), 90);
    for length in (0..payload.len()).step_by(61) {
        assert!(rows::parse(&aligned(&payload[..length])).is_err(), "{length}");
    }
    let mut random = 7_u64;
    for _ in 0..2000 {
        let mut bytes = payload.clone();
        for _ in 0..3 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (random >> 20) as usize % bytes.len();
            bytes[at] ^= 1 << (random >> 60 & 7);
        }
        if let Ok((chunks, _)) = rows::parse(&aligned(&bytes)) {
            for column in chunks.iter().flat_map(RecordBatch::columns) {
                column.to_data().validate_full().unwrap();
            }
        }
    }
}

/// As a map would be.
fn aligned(bytes: &[u8]) -> Bytes {
    let mut room = vec![0; bytes.len() + 64];
    let start = room.as_ptr().align_offset(64);
    room[start..start + bytes.len()].copy_from_slice(bytes);
    Bytes::from_owner(room).slice(start..start + bytes.len())
}

#[test]
fn rows_of_every_type_are_the_same_with_and_without_it() {
    let place = Fixture::new();
    let rows: Vec<u64> = (0..ROWS as u64).map(|row| row * 1999 % ROWS as u64).collect();
    let without = place.plain();
    let expected = without.take(&rows).unwrap();
    for turn in 0..3 {
        let kept = place.kept();
        assert_same(&kept.take(&rows).unwrap(), &expected);
        assert_same(&kept.take(&rows[..1500]).unwrap(), &without.take(&rows[..1500]).unwrap());
        for row in [0, 699, 700, 2999] {
            assert_same(&kept.get(row).unwrap(), &without.get(row).unwrap());
        }
        let (counters, disk_cache) = (kept.counters(), kept.disk_cache_counters());
        assert_eq!(disk_cache.writes, if turn == 0 { GROUPS } else { 0 });
        assert_eq!((counters.decodes, counters.bytes_read == 0), (disk_cache.writes, turn > 0));

        assert!(kept.disk_cache_fault().is_none(), "{:?}", kept.disk_cache_fault());
    }
}

#[test]
fn a_loader_serves_the_same_batches_from_it_and_decodes_nothing() {
    let place = Fixture::new();
    let all = place.plain().decoded_bytes();
    for (views, percent, threads) in [(false, 10, 2), (true, 10, 2), (false, 60, 0), (true, 200, 1), (false, 200, 2)] {
        let expected = epochs(&place.plain(), all * percent / 100, threads, views);
        epochs(&place.kept(), all * percent / 100, threads, views);
        let warm = place.kept();
        let batches = epochs(&warm, all * percent / 100, threads, views);
        assert_eq!(batches.len(), expected.len());
        for (ours, theirs) in batches.iter().zip(&expected) {
            assert_eq!(ours.row_ids, theirs.row_ids);
            assert_same(&ours.records, &theirs.records);
        }
        assert_eq!(warm.counters().decodes, 0, "{views} {percent}");

        let missed = (warm.counters().bytes_read, warm.disk_cache_counters().misses);
        assert_eq!(missed, (0, 0), "{views} {percent}");
    }
}

#[test]
fn a_loader_puts_whole_row_groups_in_and_a_get_puts_nothing() {
    let place = Fixture::new();
    let dataset = place.kept();
    let expected = place.plain();
    dataset.get(3).unwrap();
    assert_eq!((dataset.disk_cache_counters().writes, place.entries().len()), (0, 0));
    let slots: &[u32] = &[2, 30, 699];
    let projection = dataset.projection().clone();
    for turn in 0..2 {
        let mut rows = WholeBatch::default();
        dataset.read(1, Slots::Some(slots), &projection, None, &mut rows).unwrap();
        let rows = rows.into_batch().unwrap();
        let rows = dataset.output_types(&rows).unwrap();
        assert_same(&rows, &expected.take(&[702, 730, 1399]).unwrap());
        assert_eq!(dataset.disk_cache_counters().writes, 1, "{turn}");
    }
    let before = dataset.counters();
    assert_same(&dataset.get(701).unwrap(), &expected.get(701).unwrap());
    assert_eq!(dataset.counters().decodes - before.decodes, 0);
    fs::remove_dir_all(place.path("disk_cache")).unwrap();
}

#[test]
fn other_columns_and_other_rows_are_other_entries() {
    let place = Fixture::new();
    let rows: Vec<u64> = (0..200).collect();
    let (one, two) = (["id", "text"], ["text", "id"]);
    let open = |columns: &[&str]| {
        let builder = place.builder().with_columns(columns.to_vec()).with_disk_cache(place.disk_cache(PLENTY));
        builder.with_cache_bytes(0).open().unwrap()
    };
    let expected =
        |columns: &[&str]| place.builder().with_columns(columns.to_vec()).open().unwrap().take(&rows).unwrap();
    for columns in [&one[..], &two, &["struct.text"], &["struct"], &["id"]] {
        for turn in 0..2 {
            let dataset = open(columns);
            assert_same(&dataset.take(&rows).unwrap(), &expected(columns));
            if turn == 1 {
                assert_eq!(
                    (dataset.disk_cache_counters().hits, dataset.disk_cache_counters().misses),
                    (1, 0),
                    "{columns:?}"
                );
            }
        }
    }
    // The same bytes serve columns in any order; the same rows do not.
    assert_eq!(place.entries().len(), 5);
    fs::remove_dir_all(place.path("disk_cache")).unwrap();
}

#[test]
fn an_index_of_some_rows_keeps_those_and_no_others() {
    let place = Fixture::new();
    let base = Index::open(place.path("i.rdx")).unwrap();
    let rows = IdSet::filter(base.len(), |row| row % 3 == 1).unwrap();
    Select::new(base).kept(rows, "some").write(place.path("some.rdx")).unwrap();
    let some = || Dataset::builder(Index::open(place.path("some.rdx")).unwrap());
    let asked: Vec<u64> = (0..1000).rev().collect();
    let expected = some().open().unwrap().take(&asked).unwrap();
    place.kept().take(&(0..ROWS as u64).collect::<Vec<_>>()).unwrap();
    for turn in 0..2 {
        let dataset = some().with_disk_cache(place.disk_cache(PLENTY)).with_cache_bytes(0).open().unwrap();
        assert_same(&dataset.take(&asked).unwrap(), &expected);
        // The fetched bytes are those of any rows.
        let misses = if turn == 0 { GROUPS } else { 0 };
        assert_eq!(dataset.disk_cache_counters().misses, misses);
    }
}

#[test]
fn values_from_folder_names_are_kept_with_the_rows() {
    let place = Fixture(TempDir::new().unwrap());
    for day in 1..4 {
        write(&place.path(&format!("data/day={day}/a.parquet")), &columns(0..50), 100);
    }
    place.index();
    let rows: Vec<u64> = (0..150).rev().collect();
    for _ in 0..2 {
        assert_same(&place.kept().take(&rows).unwrap(), &place.plain().take(&rows).unwrap());
    }
    let days = place.builder().with_columns(["day"]).with_disk_cache(place.disk_cache(PLENTY)).open().unwrap();
    let before = place.entries().len();
    assert_eq!(days.take(&rows).unwrap().column(0).as_primitive::<Int64Type>().values()[..2], [3, 3]);
    assert_eq!(place.entries().len(), before, "there is nothing to keep");
}

#[test]
fn rows_of_a_file_that_was_replaced_are_never_served() {
    let place = Fixture::new();
    let replaced = columns(100_000..100_000 + ROWS);
    write(&place.path("data/a.parquet"), &columns(0..ROWS), GROUP);
    place.index();
    let open = place.kept();
    open.take(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]).unwrap();
    assert_eq!(open.disk_cache_counters().writes, 1);
    write(&place.path("data/a.parquet"), &replaced, GROUP);
    // The index is of a file that is gone.
    assert_eq!(place.kept().take(&[0, 1]).unwrap_err().kind(), ErrorKind::Stale);
    // What this process checked before goes on to be what was indexed; what was not read by then is not kept.
    let error = open.take(&(0..ROWS as u64).collect::<Vec<_>>()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
    assert_eq!(open.disk_cache_counters().writes, 1);
    place.index();
    let rows: Vec<u64> = (0..ROWS as u64).collect();
    let now = place.kept();
    let taken = now.take(&rows).unwrap();
    assert_same(&taken, &place.plain().take(&rows).unwrap());
    assert_eq!(taken.column(0), replaced.column(0));
    assert_eq!(now.disk_cache_counters().hits, 0);
}

#[test]
fn verifying_reads_the_files_and_not_the_disk_cache() {
    let place = Fixture::new();
    let dataset = place.kept();
    dataset.take(&(0..ROWS as u64).collect::<Vec<_>>()).unwrap();
    let before = dataset.counters().decodes;
    let report = dataset.verify(Staleness::Deep, &|_| ()).unwrap();
    assert_eq!((report.problems.len(), dataset.counters().decodes - before), (0, GROUPS));
}

#[test]
fn damaged_or_deleted_entries_cost_time_and_nothing_else() {
    let place = Fixture::new();
    let rows: Vec<u64> = (0..ROWS as u64).rev().collect();
    let expected = place.plain().take(&rows).unwrap();
    place.kept().take(&rows).unwrap();
    for (number, entry) in place.entries().iter().enumerate() {
        let mut bytes = fs::read(entry).unwrap();
        match number % 3 {
            0 => bytes.truncate(bytes.len() / 2),
            1 => bytes.clear(),
            _ => {
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
            }
        }
        fs::write(entry, bytes).unwrap();
    }
    let dataset = place.kept();
    assert_same(&dataset.take(&rows).unwrap(), &expected);
    let disk_cache = dataset.disk_cache_counters();
    assert_eq!(
        (disk_cache.discards, disk_cache.misses, disk_cache.writes, disk_cache.hits),
        (GROUPS, GROUPS, GROUPS, 0)
    );

    let order = Arc::new(Global::new(dataset.len(), 5).unwrap());
    let sampler = DistributedSampler::new(order, Shard::new(0, 1).unwrap(), 64).unwrap();
    let loader = Loader::builder(&dataset, sampler).memory(dataset.decoded_bytes() / 10).epochs(3).build().unwrap();
    for (number, batch) in loader.enumerate() {
        let batch = batch.unwrap();
        let ids = batch.records.column(0).as_primitive::<Int64Type>();
        assert!(ids.values().iter().zip(&batch.row_ids).all(|(id, row)| *id as u64 == *row));
        if number % 20 == 10 {
            // Somebody may be writing into it.
            let _ = fs::remove_dir_all(place.path("disk_cache"));
        }
    }
    assert!(dataset.disk_cache_fault().is_none(), "{:?}", dataset.disk_cache_fault());
    let _ = fs::remove_dir_all(place.path("disk_cache"));
}

#[test]
fn a_folder_with_a_part_of_the_data_goes_on_serving_it() {
    let place = Fixture::new();
    let rows: Vec<u64> = (0..ROWS as u64).collect();
    place.kept().take(&rows).unwrap();
    let size = |path: &std::path::PathBuf| fs::metadata(path).unwrap().len();
    let all: u64 = place.entries().iter().map(size).sum();
    fs::remove_dir_all(place.path("disk_cache")).unwrap();
    let disk_cache = place.disk_cache(all * 7 / 10);
    let dataset = place.builder().with_disk_cache(disk_cache).with_cache_bytes(0).with_threads(0).open().unwrap();
    for _ in 0..4 {
        dataset.take(&rows).unwrap();
        assert!(place.entries().iter().map(size).sum::<u64>() <= all * 7 / 10);
    }
    let disk_cache = dataset.disk_cache_counters();
    assert!(
        disk_cache.evictions == 0 && disk_cache.writes >= 2 && disk_cache.hits >= 3 * disk_cache.writes,
        "{disk_cache:?}"
    );
    fs::remove_dir_all(place.path("disk_cache")).unwrap();
}

#[test]
fn rows_that_are_handed_out_do_not_keep_an_entry_mapped() {
    let place = Fixture::new();
    let folder = place.path("disk_cache").to_str().unwrap().to_owned();
    let mapped = || fs::read_to_string("/proc/self/maps").unwrap().contains(&folder);
    let rows: Vec<u64> = (0..ROWS as u64).rev().collect();
    place.kept().take(&rows).unwrap();
    let dataset = place.kept();
    let mut kept = vec![dataset.take(&rows).unwrap(), dataset.get(8).unwrap()];
    assert!(mapped(), "otherwise nothing is shown");
    for views in [false, true] {
        kept.extend(epochs(&dataset, dataset.decoded_bytes() / 10, 2, views).into_iter().map(|batch| batch.records));
        kept.extend(epochs(&dataset, dataset.decoded_bytes() * 3, 2, views).into_iter().map(|batch| batch.records));
    }
    drop(dataset);
    assert!(!mapped());
}

#[test]
fn types_whose_rows_would_keep_an_entry_mapped_are_not_kept() {
    let view = || Arc::new(Field::new("item", DataType::Utf8View, true));
    for (data_type, kept) in [
        (DataType::Utf8View, true),
        (DataType::List(view()), false),
        (DataType::ListView(Arc::new(Field::new("item", DataType::Int8, true))), false),
        (DataType::Struct(vec![Field::new("a", DataType::Utf8, true)].into()), true),
        (DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8)), true),
    ] {
        assert_eq!(can_be_kept(&data_type, true), kept, "{data_type}");
    }
}
