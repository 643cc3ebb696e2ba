//! The loader and its parts, as far as they can be told apart from outside.
//!
//! The data is a feature table of thirty-two row groups of 8,192 rows with eight narrow columns, small enough to be
//! written in a moment. Decoding is left out where everything is held: what remains is walking the order, picking rows
//! out of groups, and putting batches together.

#![allow(clippy::expect_used, reason = "a bench that cannot set up has nothing better to do")]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float32Array, Int64Array, RecordBatch, StringArray};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use rowdex::loader::LoaderBuilder;
use rowdex::order::Global;
use rowdex::{Dataset, DistributedSampler, IndexBuilder, Loader, Shard};

const ROW_GROUPS: u64 = 32;
const ROWS_PER_GROUP: u64 = 8192;
const ROWS: u64 = ROW_GROUPS * ROWS_PER_GROUP;
const BATCH: usize = 256;
const SEED: u64 = 42;

fn mix(row: u64, column: u64) -> u64 {
    let mut value = (row ^ SEED << 32 ^ column << 56).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    value ^= value >> 29;
    value = value.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value ^ value >> 32
}

fn write(folder: &Path) {
    let ints =
        |column| Arc::new(Int64Array::from_iter_values((0..ROWS).map(|row| mix(row, column) as i64))) as ArrayRef;
    let floats =
        |column| Arc::new(Float32Array::from_iter_values((0..ROWS).map(|row| mix(row, column) as f32))) as ArrayRef;
    let names: ArrayRef =
        Arc::new(StringArray::from_iter_values((0..ROWS).map(|row| format!("{:012x}", mix(row, 7) >> 16))));
    let columns = [
        ("a", ints(0)),
        ("b", ints(1)),
        ("c", ints(2)),
        ("d", floats(3)),
        ("e", floats(4)),
        ("f", floats(5)),
        ("g", floats(6)),
        ("name", names),
    ];
    let batch = RecordBatch::try_from_iter(columns).expect("equal lengths");
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(ROWS_PER_GROUP as usize))
        .set_dictionary_enabled(false)
        .build();
    let file = std::fs::File::create(folder.join("a.parquet")).expect("a writable folder");
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).expect("a writer");
    writer.write(&batch).expect("room on the disk");
    writer.close().expect("room on the disk");
}

fn builder(dataset: &Dataset) -> LoaderBuilder {
    let order = Arc::new(Global::new(dataset.len(), SEED).expect("an order"));
    let sampler = DistributedSampler::new(order, Shard::new(0, 1).expect("a shard"), BATCH).expect("a sampler");
    Loader::builder(dataset, sampler)
}

fn epoch(loader: &mut Loader) {
    for batch in loader.epoch() {
        black_box(batch.expect("a batch"));
    }
}

fn loader(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path());
    let index = folder.path().join("i.rdx");
    IndexBuilder::new([folder.path()]).build(&index).expect("an index");
    let dataset = Dataset::open(&index).expect("a dataset");
    let all = dataset.decoded_bytes();

    let mut group = criterion.benchmark_group("loader");
    group.sample_size(10);
    // An estimate runs the plan over six epochs of rows, and does nothing else to speak of.
    group.throughput(Throughput::Elements(6 * ROWS));
    group.bench_function("plan walk, a quarter held", |bencher| {
        let builder = builder(&dataset).memory(all / 4);
        bencher.iter(|| black_box(builder.estimate().expect("an estimate")));
    });

    group.throughput(Throughput::Elements(ROWS));
    for threads in [0, 2] {
        group.bench_function(format!("pick and assemble, all held, {threads} threads"), |bencher| {
            let mut loader = builder(&dataset).memory(2 * all).threads(threads).build().expect("a loader");
            epoch(&mut loader);
            bencher.iter(|| epoch(&mut loader));
        });
        group.bench_function(format!("epoch, a quarter held, {threads} threads"), |bencher| {
            let mut loader = builder(&dataset).memory(all / 4).threads(threads).build().expect("a loader");
            epoch(&mut loader);
            bencher.iter(|| epoch(&mut loader));
        });
    }
    group.bench_function("epoch, the files' own order, one row group held, 0 threads", |bencher| {
        let order = Arc::new(rowdex::order::Sequential::new(dataset.len()).expect("an order"));
        let sampler = DistributedSampler::new(order, Shard::new(0, 1).expect("a shard"), BATCH).expect("a sampler");
        let loader = Loader::builder(&dataset, sampler).memory(all / ROW_GROUPS).threads(0);
        let mut loader = loader.build().expect("a loader");
        bencher.iter(|| epoch(&mut loader));
    });
    group.finish();
}

criterion_group!(benches, loader);
criterion_main!(benches);
