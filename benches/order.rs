//! What one position of a global order costs.
//!
//! Lengths: 10^6 (20 bits, walk factor 1.05), 10^9 (30 bits, 1.07), 10^12 (40 bits, 1.10), and the worst, one above a
//! power of two (2.0). `row` and `position` are asked for scattered places, each independent of the one before, as a
//! loader does; `chained` feeds every answer into the next question, which shows the latency instead; `fill` writes a
//! run of consecutive positions, `fill_strided` those of one rank in a world of 64. `fisher_yates_build` is what an
//! epoch of 2^16 rows costs before its first row.
//!
//! `blocks` is asked over 1000 row groups of 65 536 rows, of 20 000, and of 200 000, of which only the last are too
//! many for a table. `fill` walks through all of a window and so pays for its shuffle, as a loader does; `row` and
//! `position` stay in one window. `torch_build` is what an epoch costs before its first row, by the number of rows: in
//! the caches of a processor and beyond them.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rowdex::order::{
    Balanced, Blocks, EpochOrder, Global, IdSet, Mixed, MixedPart, Order, Resized, Side, Split, Subset, Torch, Weighted,
};

const LENGTHS: [(&str, u64); 5] = [
    ("2^16 (table)", 1 << 16),
    ("10^6", 1_000_000),
    ("10^9", 1_000_000_000),
    ("10^12", 1_000_000_000_000),
    ("2^32+1 (worst)", (1 << 32) + 1),
];
const BLOCK: usize = 4096;
const SEED: u64 = 42;

fn epoch(len: u64) -> Arc<dyn EpochOrder> {
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

fn blocks(c: &mut Criterion) {
    for (rows, k) in [(20_000, 1), (65_536, 1), (20_000, 8), (200_000, 1), (20_000, Blocks::ALL)] {
        let k_name = if k == Blocks::ALL { "all".to_owned() } else { k.to_string() };
        let name = format!("1000 x {rows}, k = {k_name}");
        let order = Blocks::new(&[rows; 1000], k, SEED).and_then(|orders| orders.epoch(0));
        let order = order.unwrap_or_else(|error| unreachable!("{error}"));
        let positions: Vec<u64> = (0..BLOCK as u64).map(|i| i * 7919 % rows).collect();
        let mut scattered = vec![0; BLOCK];
        order.fill_strided(0, 1, &mut scattered);

        let mut group = c.benchmark_group("blocks");
        group.sample_size(20).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
        group.throughput(Throughput::Elements(BLOCK as u64));
        group.bench_function(BenchmarkId::new("row", &name), |b| {
            b.iter(|| positions.iter().filter_map(|q| order.row(*q)).fold(0, |sum: u64, row| sum ^ row));
        });
        group.bench_function(BenchmarkId::new("position", &name), |b| {
            b.iter(|| scattered.iter().filter_map(|row| order.position(*row)).fold(0, |sum: u64, q| sum ^ q));
        });
        let mut next = 0;
        for (what, stride) in [("fill", 1), ("fill_strided", 64)] {
            group.bench_function(BenchmarkId::new(what, &name), |b| {
                b.iter(|| {
                    let written = order.fill_strided(next, stride, black_box(&mut scattered));
                    next = if written < BLOCK { next % stride } else { next + stride * BLOCK as u64 };
                });
            });
        }
        group.finish();
    }
}

fn torch(c: &mut Criterion) {
    let mut group = c.benchmark_group("order");
    group.sample_size(10).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2));
    for len in [65_536, 1_000_000, 10_000_000] {
        group.throughput(Throughput::Elements(len));
        group.bench_function(BenchmarkId::new("torch_build", len), |b| {
            b.iter(|| Torch::new(black_box(len), SEED).and_then(|orders| orders.epoch(0)));
        });
    }
    group.finish();
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
    let global = |rows| -> Arc<dyn Order> { Arc::new(made(Global::new(rows, SEED))) };
    let weights: Vec<f64> = (0..ROWS).map(|row| (row % 1000 + 1) as f64).collect();
    let labels = |classes: u64| -> Vec<u32> { (0..ROWS).map(|row| (row % classes) as u32).collect() };
    let part = |rows, proportion| MixedPart::new(global(rows), rows, proportion);
    let kept = made(Split::new(0.5, SEED).and_then(|split| split.rows(Side::Train, ROWS)));
    let banned = made(IdSet::filter(ROWS, |row| row % 10_000 != 0));
    let orders: [(&str, Arc<dyn Order>); 8] = [
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

criterion_group!(benches, positions, blocks, torch, build, composed);
criterion_main!(benches);
