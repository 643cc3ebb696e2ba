//! How much memory a loader really takes, as its allocator sees it.
//!
//! A program of its own with one test, because an allocator counts everybody's memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up fails")]

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int32Builder, Int64Array, ListBuilder, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use peak_alloc::PeakAlloc;
use rowdex::dataset::DiskCache;
use rowdex::order::Global;
use rowdex::{Dataset, DistributedSampler, Index, IndexBuilder, Loader, Shard};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const GROUPS: i64 = 16;
const GROUP_ROWS: i64 = 8192;
const ROWS: i64 = GROUPS * GROUP_ROWS;

/// Compressed bytes and pages being decoded, the rows that are looked ahead at, and everything else that is not rows.
const CONSTANT: u64 = 3 << 20;
/// What a dataset keeps of the files that it has read from.
const LEFT: u64 = 128 << 10;

/// Numbers, short and long strings and lists, about 290 bytes a row; or only what is narrow, about 50.
fn write(path: &Path, batch: fn(std::ops::Range<i64>) -> RecordBatch) {
    let schema = batch(0..1).schema();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(GROUP_ROWS as usize))
        .set_compression(Compression::SNAPPY)
        .build();
    let file = std::fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, schema, Some(properties)).unwrap();
    for group in 0..GROUPS {
        writer.write(&batch(group * GROUP_ROWS..(group + 1) * GROUP_ROWS)).unwrap();
    }
    writer.close().unwrap();
}

fn mixed(row: i64) -> u64 {
    (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn narrow(rows: std::ops::Range<i64>) -> RecordBatch {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(rows.clone()))),
        ("maybe", Arc::new(rows.clone().map(|row| (row % 7 > 0).then_some(row)).collect::<Int64Array>())),
        ("flag", Arc::new(rows.clone().map(|row| Some(row % 3 == 0)).collect::<BooleanArray>())),
        ("word", Arc::new(StringArray::from_iter_values(rows.clone().map(|row| format!("{:x}", mixed(row) >> 30))))),
        ("text", Arc::new(StringArray::from_iter_values(rows.map(|row| format!("{:012x}", mixed(row) >> 16))))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn batch(rows: std::ops::Range<i64>) -> RecordBatch {
    let mut lists = ListBuilder::new(Int32Builder::new());
    rows.clone().for_each(|row| lists.append_value((0..row as i32 % 40).map(Some)));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(rows.clone()))),
        ("short", Arc::new(StringArray::from_iter_values(rows.clone().map(|row| format!("{:x}", mixed(row)))))),
        ("long", Arc::new(StringArray::from_iter_values(rows.map(|row| format!("{:x} ", mixed(row)).repeat(9))))),
        ("list", Arc::new(lists.finish())),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn loader(dataset: &Dataset, memory: u64, threads: usize, epochs: u64) -> Loader {
    let orders = Arc::new(Global::new(dataset.len(), 1).unwrap());
    let sampler = DistributedSampler::new(orders, Shard::new(0, 1).unwrap(), 128).unwrap();
    Loader::builder(dataset, sampler).memory(memory).threads(threads).epochs(epochs).build().unwrap()
}

#[test]
fn a_loader_takes_the_memory_it_was_given_one_row_group_and_little_more_and_gives_all_of_it_back() {
    let folder = tempfile::tempdir().unwrap();
    let indexed = |name: &str, batch| {
        let (path, index) = (folder.path().join(format!("{name}.parquet")), folder.path().join(format!("{name}.rdx")));
        write(&path, batch);
        IndexBuilder::new([path]).build(&index).unwrap();
        index
    };
    let index = indexed("a", batch);
    let dataset = Dataset::open(&index).unwrap();
    let all = [(10, 0, 3), (10, 2, 6), (25, 4, 3), (50, 1, 3), (150, 2, 3)];
    check(&dataset, &all);
    // Row groups that stay are packed.
    let packed = Dataset::open(indexed("narrow", narrow)).unwrap();
    check(&packed, &[(25, 2, 3), (90, 2, 3), (100, 2, 3), (150, 0, 3)]);
    drop(packed);
    // What is mapped is not the loader's memory, and what is picked from it is.
    let disk_cache = DiskCache::new(folder.path().join("disk_cache"), 1 << 30);
    let kept = Dataset::builder(Index::open(&index).unwrap()).with_disk_cache(disk_cache).open().unwrap();
    check(&kept, &[(10, 2, 3), (25, 0, 3), (150, 2, 3)]);
    assert_eq!((kept.counters().decodes, kept.disk_cache_counters().misses), (GROUPS as u64, GROUPS as u64));
}

/// Runs a loader with so many percent of the memory, so many threads and so many epochs.
fn check(dataset: &Dataset, runs: &[(u64, usize, u64)]) {
    let all = dataset.decoded_bytes();
    let group = all / GROUPS as u64;
    // Footers and page positions are read once, and stay.
    assert_eq!(loader(dataset, all / 4, 2, 1).filter(|batch| batch.is_ok()).count() as i64, ROWS / 128);
    let before = ALLOCATOR.current_usage() as u64;
    for &(percent, threads, epochs) in runs {
        let memory = all * percent / 100;
        let mut loader = loader(dataset, memory, threads, epochs + 1);
        let mut after_epochs = Vec::new();
        ALLOCATOR.reset_peak_usage();
        for _ in 0..epochs {
            assert_eq!(loader.epoch().filter(|batch| batch.is_ok()).count() as i64, ROWS / 128);
            after_epochs.push(ALLOCATOR.current_usage() as u64 - before);
        }
        let peak = ALLOCATOR.peak_usage() as u64 - before;
        let what = format!(
            "{percent} %, {threads} threads: {peak} at most, {after_epochs:?} after each epoch, {memory} allowed"
        );
        // The plan lets the rows held swing by an eighth; one row group is being decoded, and another's rows change
        // over into batches.
        assert!(peak <= memory + memory / 8 + 2 * group + CONSTANT, "{what}, row groups of {group}");
        let counted = loader.stats().peak_bytes;
        assert!(peak <= counted + CONSTANT, "{what}, {counted} counted");
        // How much is under way when an epoch ends is chance; what leaks would be there after every later epoch.
        let (early, later) = (after_epochs.iter().take(2).max(), after_epochs[after_epochs.len() / 2..].iter().min());
        assert!(later.zip(early).is_some_and(|(later, early)| *later <= early + 2 * group), "{what}");
        drop(loader);
        let left = (ALLOCATOR.current_usage() as u64).saturating_sub(before);
        assert!(left < LEFT, "{what}, {left} left");
    }
}
