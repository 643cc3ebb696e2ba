//! Reading rows from decoded row groups, and from files.
//!
//! The data is like a feature table: eight row groups of 131,072 rows, with integers, floats, a short string and a
//! category of a thousand values. Rows are drawn at random over all of it, so nearly every value is a cache miss: that
//! is what training does, and what the figures are bound by.

#![allow(clippy::expect_used, reason = "a bench that cannot set up has nothing better to do")]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float32Array, Int64Array, RecordBatch, StringArray};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use rowdex::{Dataset, Index, IndexBuilder};

const ROW_GROUPS: u64 = 8;
const ROWS_PER_GROUP: u64 = 131_072;
const SEED: u64 = 42;

/// Multiplicative mixing of the row number; enough that values neither repeat nor compress.
fn mix(row: u64, column: u64) -> u64 {
    let mut value = (row ^ SEED << 32 ^ column << 56).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    value ^= value >> 29;
    value = value.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value ^ value >> 32
}

fn write(folder: &Path) {
    let rows = 0..ROW_GROUPS * ROWS_PER_GROUP;
    let ints: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.clone().map(|row| mix(row, 0) as i64)));
    let floats: ArrayRef = Arc::new(Float32Array::from_iter_values(rows.clone().map(|row| mix(row, 1) as f32)));
    let names: ArrayRef =
        Arc::new(StringArray::from_iter_values(rows.clone().map(|row| format!("{:012x}", mix(row, 2) >> 16))));
    let categories: ArrayRef =
        Arc::new(StringArray::from_iter_values(rows.map(|row| format!("category_{:04}", mix(row, 3) % 1000))));
    let columns = [("int", ints), ("float", floats), ("name", names), ("category", categories)];
    let batch = RecordBatch::try_from_iter(columns).expect("equal lengths");
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(ROWS_PER_GROUP as usize))
        .set_column_dictionary_enabled("name".into(), false)
        .build();
    let file = std::fs::File::create(folder.join("a.parquet")).expect("a writable folder");
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).expect("a writer");
    writer.write(&batch).expect("room on the disk");
    writer.close().expect("room on the disk");
}

fn dataset(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path());
    let path = folder.path().join("i.rdx");
    let report = IndexBuilder::new([folder.path()]).build(&path).expect("an index");
    let index = Index::open(&path).expect("an index");
    let cached = Dataset::open(&path).expect("a dataset");
    for group in index.row_groups() {
        cached.take(&group.row_ids().collect::<Vec<_>>()).expect("rows");
    }
    let mut draw = 0;
    let mut random = || {
        draw += 1;
        mix(draw, 4) % report.rows
    };

    let mut group = criterion.benchmark_group("dataset");
    group.throughput(Throughput::Elements(256));
    group.bench_function("take 256 cached", |bencher| {
        let draw = || (0..256).map(|_| random()).collect::<Vec<u64>>();
        bencher.iter_batched(draw, |rows| cached.take(&rows).expect("rows"), BatchSize::SmallInput);
    });
    group.throughput(Throughput::Elements(1));
    group.bench_function("get cached", |bencher| {
        bencher.iter_batched(&mut random, |row| cached.get(row).expect("a row"), BatchSize::SmallInput);
    });
    group.bench_function("get cold", |bencher| {
        let open = || (Dataset::builder(index.clone()).with_cache_bytes(0).open().expect("a dataset"), random());
        bencher.iter_batched(open, |(cold, row)| black_box(cold.get(row).expect("a row")), BatchSize::SmallInput);
    });
    group.finish();
}

criterion_group!(benches, dataset);
criterion_main!(benches);
