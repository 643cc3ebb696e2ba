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
use rowdex::order::{Balanced, Global, IdSet, Mixed, MixedPart, Order, Orders, Resized, Side, Split, Subset, Weighted};

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

/// Orders that draw, or that are made of others, over 10^7 rows: what a position costs on top of the global order's.
fn composed(c: &mut Criterion) {
    const ROWS: u64 = 10_000_000;
    let global = |rows| -> Arc<dyn Orders> { Arc::new(made(Global::new(rows, SEED))) };
    let weights: Vec<f64> = (0..ROWS).map(|row| (row % 1000 + 1) as f64).collect();
    let labels = |classes: u64| -> Vec<u32> { (0..ROWS).map(|row| (row % classes) as u32).collect() };
    let part = |rows, proportion| MixedPart::new(global(rows), rows, proportion);
    let kept = made(Split::new(0.5, SEED).and_then(|split| split.rows(Side::Train, ROWS)));
    let banned = made(IdSet::filter(ROWS, |row| row % 10_000 != 0));
    let orders: [(&str, Arc<dyn Orders>); 8] = [
        ("global", global(ROWS)),
        ("weighted", Arc::new(made(Weighted::with_replacement(&weights, ROWS, SEED)))),
        ("balanced, 10 classes", Arc::new(made(Balanced::new(&labels(10), ROWS, SEED)))),
        ("balanced, 1000 classes", Arc::new(made(Balanced::new(&labels(1000), ROWS, SEED)))),
        ("mixed of 3", Arc::new(made(Mixed::new([part(ROWS, 0.7), part(ROWS, 0.2), part(ROWS, 0.1)], ROWS, SEED)))),
        ("resized", Arc::new(made(Resized::new(global(ROWS), ROWS / 3)))),
        ("subset, half by hash", Arc::new(made(Subset::new(global(kept.len()), kept)))),
        ("subset, 1000 banned", Arc::new(made(Subset::new(global(banned.len()), banned)))),
    ];
    let mut group = c.benchmark_group("composed");
    group.sample_size(20).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    group.throughput(Throughput::Elements(BLOCK as u64));
    let mut rows = vec![0; BLOCK];
    for (name, orders) in orders {
        let order = made(orders.epoch(1));
        let scattered: Vec<u64> = (0..BLOCK as u64).map(|i| i * 7919 * 97 % order.len()).collect();
        group.bench_function(BenchmarkId::new("row", name), |b| {
            b.iter(|| scattered.iter().filter_map(|q| order.row(*q)).fold(0, |sum: u64, row| sum ^ row));
        });
        let mut first = 0;
        group.bench_function(BenchmarkId::new("fill", name), |b| {
            b.iter(|| {
                first = (first + BLOCK as u64) % (order.len() - BLOCK as u64);
                order.fill(first, black_box(&mut rows))
            });
        });
        group.bench_function(BenchmarkId::new("fill_strided, 64", name), |b| {
            b.iter(|| {
                first = (first + BLOCK as u64) % (order.len() - 64 * BLOCK as u64);
                order.fill_strided(first, 64, black_box(&mut rows))
            });
        });
    }
    group.sample_size(10);
    let without = made(Weighted::without_replacement(&weights[..1_000_000], 1_000_000, SEED));
    group.throughput(Throughput::Elements(1));
    group.bench_function("epoch of 10^6 weighted without replacement", |b| b.iter(|| without.epoch(black_box(1))));
    group.bench_function("split of 10^7 rows", |b| {
        b.iter(|| Split::new(0.1, black_box(SEED)).and_then(|split| split.rows(Side::Validation, ROWS)));
    });
    group.finish();
}

fn made<T>(result: rowdex::Result<T>) -> T {
    result.unwrap_or_else(|error| unreachable!("{error}"))
}

criterion_group!(benches, positions, build, composed);
criterion_main!(benches);
