use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use proptest::prelude::*;

use super::super::tests::files;
use super::*;
use rowdex_index::Index;
use rowdex_io::source::{FileStat, LocalSource, Source};
use rowdex_order::{Global, Order};

fn order(len: u64, seed: u64) -> Vec<u64> {
    let mut rows = vec![0; len as usize];
    Global::new(len, seed).unwrap().epoch(0).unwrap().fill(0, &mut rows);
    rows
}

/// One step of a caller.
#[derive(Debug, Clone)]
enum Move {
    Follow(usize),
    Reversed(usize),
    Skip(usize),
    Again(usize),
    Others(Vec<u64>),
    Between(usize, u64),
    Prefetch(u64, usize),
    Clear,
}

fn moves() -> impl Strategy<Value = Move> {
    prop_oneof![
        8 => (1usize..90).prop_map(Move::Follow),
        1 => (1usize..60).prop_map(Move::Reversed),
        1 => (1usize..400).prop_map(Move::Skip),
        1 => (1usize..50).prop_map(Move::Again),
        1 => prop::collection::vec(0u64..1000, 0..20).prop_map(Move::Others),
        1 => (1usize..40, 0u64..1000).prop_map(|(rows, other)| Move::Between(rows, other)),
        2 => (0u64..5, 0usize..700).prop_map(|(seed, rows)| Move::Prefetch(seed, rows)),
        1 => Just(Move::Clear),
    ]
}

#[test]
fn whatever_is_asked_for_is_what_the_dataset_takes() {
    let (_dir, dataset) = files();
    let all = dataset.decoded_bytes();
    let memories = prop::sample::select(vec![0, all / 10, all / 3, all * 2]);
    let threads = prop::sample::select(vec![0usize, 1, 3]);
    let strategy = (memories, threads, prop::collection::vec(moves(), 1..40));
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 60,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let run = |(memory, threads, moves): (u64, usize, Vec<Move>)| {
        let mut rows = Prefetched::new(&dataset, memory, threads);
        let (mut told, mut at, mut asked) = (order(1000, 0)[..300].to_vec(), 0, 0);
        rows.prefetch(told.clone()).unwrap();
        for step in moves {
            let ahead = |count: usize| told[at..(at + count).min(told.len())].to_vec();
            let (ids, next) = match step {
                Move::Follow(count) => (ahead(count), at + count),
                Move::Reversed(count) => (ahead(count).into_iter().rev().collect(), at + count),
                Move::Skip(count) => (Vec::new(), at + count),
                Move::Again(count) => (told[at.saturating_sub(count)..at].to_vec(), at),
                Move::Others(ids) => (ids, at),
                Move::Between(count, other) => ([ahead(count), vec![other], ahead(count + 5)].concat(), at + count + 5),
                Move::Prefetch(seed, count) => {
                    let more = order(1000, seed)[..count].to_vec();
                    rows.prefetch(more.clone()).unwrap();
                    told.extend(more);
                    (Vec::new(), at)
                }
                Move::Clear => {
                    rows.clear();
                    prop_assert_eq!(rows.waiting(), 0);
                    (Vec::new(), told.len())
                }
            };
            at = next.min(told.len());
            asked += ids.len() as u64;
            prop_assert_eq!(rows.take(&ids).unwrap(), dataset.take(&ids).unwrap());
        }
        let stats = rows.stats();
        prop_assert_eq!(stats.followed + stats.fell_back, asked);
        prop_assert_eq!(stats.prefetched, told.len() as u64);
        prop_assert!(stats.followed + rows.waiting() <= stats.prefetched);
        Ok(())
    };
    runner.run(&strategy, run).unwrap();
}

#[test]
fn who_follows_is_served_from_the_carousel_alone_in_portions_of_any_size() {
    let (_dir, dataset) = files();
    for (portions, threads) in [(vec![64], 2), (vec![1], 0), (vec![7, 300, 1, 40], 1), (vec![1000], 2)] {
        // Twice over, prefetched in pieces that do not fit the portions.
        let told = [order(1000, 1), order(1000, 2)].concat();
        let mut rows = Prefetched::new(&dataset, dataset.decoded_bytes() / 4, threads);
        told.chunks(370).for_each(|piece| rows.prefetch(piece).unwrap());
        let (mut left, mut sizes) = (told.as_slice(), portions.iter().cycle());
        while !left.is_empty() {
            let (ids, rest) = left.split_at(left.len().min(*sizes.next().unwrap()));
            assert_eq!(rows.take(ids).unwrap(), dataset.take(ids).unwrap());
            left = rest;
        }
        let stats = rows.stats();
        assert_eq!((stats.followed, stats.fell_back, rows.waiting()), (2000, 0, 0));
    }
}

#[test]
fn nothing_is_prefetched_if_a_row_is_not_there() {
    let (_dir, dataset) = files();
    let mut rows = dataset.prefetch(vec![1, 2], 0).unwrap();
    let error = rows.prefetch(vec![3, 1000, 4]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfRange);
    assert!(error.to_string().contains("row id 1000, prefetched at place 3"), "{error}");
    assert_eq!(rows.waiting(), 2);
    assert_eq!(rows.take(&[1, 2, 3]).unwrap(), dataset.take(&[1, 2, 3]).unwrap());
    assert_eq!((rows.stats().followed, rows.stats().fell_back, rows.waiting()), (0, 3, 2));
    assert!(dataset.prefetch(vec![1000], 0).is_err());
}

#[test]
fn no_thread_exists_before_prefetched_rows_are_taken_nor_after_the_drop() {
    let (_dir, dataset) = files();
    let told = order(1000, 0);
    for taken in [0, 1, 500, 1000] {
        let mut rows = Prefetched::new(&dataset, dataset.decoded_bytes() / 4, 3);
        rows.prefetch(told.clone()).unwrap();
        rows.take(&[told[999]]).unwrap();
        let groups = Arc::downgrade(&rows.units);
        assert_eq!(groups.strong_count(), 1, "started too early");
        if taken > 0 {
            rows.take(&told[..taken]).unwrap();
            assert_eq!(groups.strong_count(), 3);
        }
        drop(rows);
        assert_eq!(groups.strong_count(), 0);
    }
}

#[test]
fn a_forked_child_is_refused_until_it_prefetches_for_itself() {
    let (_dir, dataset) = files();
    let told = order(1000, 0);
    let mut rows = Prefetched::new(&dataset, dataset.decoded_bytes() / 4, 2);
    rows.prefetch(&told[..700]).unwrap();
    rows.take(&told[..130]).unwrap();
    // As it looks to a child: the threads belong to a process of another number.
    rows.engine.as_mut().unwrap().process ^= 1;
    rows.prefetch(&told[700..]).unwrap();
    assert_eq!(rows.take(&told[130..]).unwrap_err().kind(), ErrorKind::Closed);
    rows.clear();
    rows.prefetch(&told[130..]).unwrap();
    for ids in told[130..].chunks(60) {
        assert_eq!(rows.take(ids).unwrap(), dataset.take(ids).unwrap());
    }
    assert_eq!((rows.stats().followed, rows.stats().fell_back), (1000, 0));
}

/// Fails every so many reads.
#[derive(Debug)]
struct Flaky {
    source: LocalSource,
    reads: AtomicU64,
    every: u64,
}

impl Source for Flaky {
    fn stat(&self, path: &str) -> Result<FileStat> {
        self.source.stat(path)
    }

    fn read(&self, path: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        if self.reads.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.every) {
            return Err(Error::new(ErrorKind::Io, "out of order"));
        }
        self.source.read(path, ranges)
    }
}

#[test]
fn a_read_that_fails_now_and_then_is_an_error_now_and_then() {
    let (dir, sound) = files();
    for (every, threads) in [(13, 0), (29, 2)] {
        let source = Flaky { source: LocalSource::new(dir.path()), reads: AtomicU64::new(0), every };
        let index = Index::open(dir.path().join("data.rdx")).unwrap();
        let builder = Dataset::builder(index).with_cache_bytes(0).with_source(Arc::new(source));
        let dataset = builder.with_threads(1).open().unwrap();
        let told: Vec<u64> = (0..3).flat_map(|seed| order(1000, seed)).collect();
        let mut rows = Prefetched::new(&dataset, dataset.decoded_bytes() / 3, threads);
        rows.prefetch(told.clone()).unwrap();
        let mut errors = 0;
        for ids in told.chunks(20) {
            match rows.take(ids) {
                Ok(batch) => assert_eq!(batch, sound.take(ids).unwrap()),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Io);
                    errors += 1;
                }
            }
        }
        let stats = rows.stats();
        assert!(errors > 0 && stats.followed > 500, "{errors} errors, {stats:?}");
        assert!(stats.loader.held_bytes <= dataset.decoded_bytes(), "{stats:?}");
    }
}
