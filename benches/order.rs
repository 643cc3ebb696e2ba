//! What one position of a global order costs.
//!
//! Lengths: 10^6 (20 bits, walk factor 1.05), 10^9 (30 bits, 1.07), 10^12 (40 bits, 1.10), and the worst, one above a power
//! of two (2.0). `row` and `position` are asked for scattered places, each independent of the one before, as a loader
//! does; `chained` feeds every answer into the next question, which shows the latency instead; `fill` writes a run
//! of consecutive positions, `fill_strided` those of one rank in a world of 64. `fisher_yates_build` is what an epoch
//! of 2^16 rows costs before its first row.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rowdex::order::{Global, Order, Orders};

const LENGTHS: [(&str, u64); 5] = [
    ("2^16 (table)", 1 << 16),
    ("10^6", 1_000_000),
    ("10^9", 1_000_000_000),
    ("10^12", 1_000_000_000_000),
    ("2^32+1 (worst)", (1 << 32) + 1),
];
const BLOCK: usize = 4096;
const SEED: u64 = 42;

fn epoch(len: u64) -> Arc<dyn Order> {
    Global::new(len, SEED).and_then(|orders| orders.epoch(0)).unwrap_or_else(|error| unreachable!("{error}"))
}

fn positions(c: &mut Criterion) {
    for (name, len) in LENGTHS {
        let order = epoch(len);
        let mut scattered = vec![0; BLOCK];
        order.fill_strided(1, len / BLOCK as u64, &mut scattered);
        let mut rows = vec![0; BLOCK];

        let mut group = c.benchmark_group("order");
        group.sample_size(20).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
        group.throughput(Throughput::Elements(BLOCK as u64));
        group.bench_function(BenchmarkId::new("row", name), |b| {
            b.iter(|| scattered.iter().filter_map(|q| order.row(*q)).fold(0, |sum: u64, row| sum ^ row));
        });
        group.bench_function(BenchmarkId::new("position", name), |b| {
            b.iter(|| scattered.iter().filter_map(|row| order.position(*row)).fold(0, |sum: u64, q| sum ^ q));
        });
        group.bench_function(BenchmarkId::new("row, chained", name), |b| {
            b.iter(|| (0..BLOCK).try_fold(black_box(1), |q, _| order.row(q)));
        });
        group.bench_function(BenchmarkId::new("position, chained", name), |b| {
            b.iter(|| (0..BLOCK).try_fold(black_box(1), |row, _| order.position(row)));
        });
        group.bench_function(BenchmarkId::new("fill", name), |b| {
            b.iter(|| order.fill(black_box(7), black_box(&mut rows)));
        });
        group.bench_function(BenchmarkId::new("fill_strided", name), |b| {
            b.iter(|| order.fill_strided(black_box(7), 64.min(len / BLOCK as u64), black_box(&mut rows)));
        });
        group.finish();
    }
}

fn build(c: &mut Criterion) {
    let mut group = c.benchmark_group("order");
    group.sample_size(20).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    group.bench_function("fisher_yates_build", |b| b.iter(|| epoch(black_box(1 << 16))));
    group.bench_function("feistel_build", |b| b.iter(|| epoch(black_box(1_000_000_000))));
    group.finish();
}

criterion_group!(benches, positions, build);
criterion_main!(benches);
