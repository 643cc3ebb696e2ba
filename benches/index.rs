//! Looking rows up and opening, by the number of row groups.
//!
//! Row groups hold 500 to 1500 rows, so that no arithmetic shortcut finds them. Rows are drawn at random, so lookups in
//! the large indexes miss the caches, as they do under a global shuffle. `latency` lets no two lookups overlap;
//! `locate` looks up rows that are known beforehand, as a loader does, and lets the processor overlap the misses.
//! Targets for `locate`: 40 ns at 10^5 row groups and 250 ns at 10^7; for `open`: 40 ms at 10^6.

#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rowdex::Index;

#[path = "../tests/it/synthetic.rs"]
mod synthetic;

/// Looks up rows at random, each drawn with what the one before found where they are `CHAINED`.
fn random_lookups<const CHAINED: bool>(index: &Index) -> impl FnMut() -> u64 {
    let mut state = 1_u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let row = ((u128::from(state) * u128::from(index.len())) >> 64) as u64;
        let slot = index.locate(row).unwrap().slot;
        if CHAINED {
            state ^= slot;
        }
        slot
    }
}

fn locate(c: &mut Criterion) {
    let mut group = c.benchmark_group("locate");
    group.throughput(Throughput::Elements(1));
    for (name, row_groups) in
        [("1e5 row groups", 100_000), ("1e6 row groups", 1_000_000), ("1e7 row groups", 10_000_000)]
    {
        let index = Index::from_bytes(synthetic::index(row_groups, 1000, None).unwrap()).unwrap();
        let mut lookup = random_lookups::<false>(&index);
        group.bench_function(name, |b| b.iter(|| black_box(lookup())));
        let mut lookup = random_lookups::<true>(&index);
        group.bench_function(format!("{name}, latency"), |b| b.iter(|| black_box(lookup())));
    }
    let half = |rows: u64| (0..rows as u32).filter(|row| row.wrapping_mul(0x9E37_79B9) >> 31 == 0).collect();
    let index = Index::from_bytes(synthetic::index(1000, 131_072, Some(&half)).unwrap()).unwrap();
    let mut lookup = random_lookups::<false>(&index);
    group.bench_function("1e3 row groups, half of the rows", |b| b.iter(|| black_box(lookup())));
    group.finish();
}

fn open(c: &mut Criterion) {
    let mut group = c.benchmark_group("open");
    group.sample_size(20);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bench.rdx");
    fs::write(&path, synthetic::index(1_000_000, 1000, None).unwrap()).unwrap();
    group.bench_function("1e6 row groups", |b| b.iter(|| Index::open(&path).unwrap()));

    let half = |rows: u64| (0..rows as u32).filter(|row| row.wrapping_mul(0x9E37_79B9) >> 31 == 0).collect();
    fs::write(&path, synthetic::index(1000, 131_072, Some(&half)).unwrap()).unwrap();
    group.bench_function("1.3e8 source rows, half of them", |b| b.iter(|| Index::open(&path).unwrap()));
    group.finish();
}

criterion_group!(benches, locate, open);
criterion_main!(benches);
