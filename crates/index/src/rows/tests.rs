use proptest::prelude::*;

use super::*;
use rowdex_base::error::ErrorKind;

fn rng(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

/// Encodes behind some other bytes, because containers follow one another in the section.
fn encoded(rows: &[u32], source_rows: u64) -> (RowSetRecord, Vec<u8>) {
    let mut data = vec![0xAA; 5];
    let record = encode(rows, source_rows, &mut data).unwrap();
    assert_eq!(data.len() as u64 - 5, container_len(&record, rows.len() as u64).unwrap());
    (record, data)
}

fn assert_serves(rows: &[u32], source_rows: u64, expected_kind: Option<u32>) {
    let (record, data) = encoded(rows, source_rows);
    if let Some(expected) = expected_kind {
        assert_eq!(record.kind.get(), expected);
    }
    let Some(set) = RowSet::new(&record, rows.len() as u64, &data) else {
        assert_eq!(record.kind.get(), kind::ALL);
        assert_eq!(rows.len() as u64, source_rows);
        return;
    };
    set.check().unwrap();
    assert_eq!((set.len(), set.source_rows(), set.is_empty()), (rows.len() as u64, source_rows, rows.is_empty()));
    assert_eq!(set.iter().map(|row| row as u32).collect::<Vec<_>>(), rows);
    for (slot, &row) in rows.iter().enumerate() {
        assert_eq!(set.select(slot as u64), Some(u64::from(row)), "slot {slot}");
    }
    assert_eq!(set.select(rows.len() as u64), None);
    assert_eq!(set.select(u64::MAX), None);
    let mut before = 0;
    for row in 0..source_rows {
        let served = rows.get(before) == Some(&(row as u32));
        assert_eq!((set.rank(row), set.contains(row)), (before as u64, served), "row {row}");
        before += usize::from(served);
    }
    assert_eq!(set.rank(source_rows), rows.len() as u64);
    assert_eq!(set.rank(u64::MAX), rows.len() as u64);
    assert!(!set.contains(source_rows));
    let runs: Vec<_> = set.runs().collect();
    assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start), "runs touch: {runs:?}");
}

#[test]
fn a_search_that_begins_anywhere_finds_what_bisecting_finds() {
    for len in [0, 1, 2, 3, 7, 40] {
        for ones in 0..=len {
            let items: Vec<bool> = (0..len).map(|at| at < ones).collect();
            for near in (0..len + 3).chain([usize::MAX - 1, usize::MAX]) {
                assert_eq!(partition_near(&items, near, |item| *item), ones, "{len} items from {near}");
            }
        }
    }
    assert_eq!(proportion(7, 0, 10), usize::MAX);
    assert_eq!((proportion(0, 8, 4), proportion(7, 8, 4)), (0, 3));
}

#[test]
fn every_container_serves_what_was_selected() {
    let every = |n: u32, step: usize| (0..n).step_by(step).collect::<Vec<_>>();
    assert_serves(&every(1000, 1), 1000, Some(kind::ALL));
    assert_serves(&(100..900).collect::<Vec<_>>(), 1000, Some(kind::RUNS));
    assert_serves(&(0..100).chain(500..1000).collect::<Vec<_>>(), 1000, Some(kind::RUNS));
    assert_serves(&every(1000, 2), 1000, Some(kind::BITMAP));
    assert_serves(&every(1024, 3), 1024, Some(kind::BITMAP));
    assert_serves(&every(1025, 2), 1025, Some(kind::BITMAP));
    assert_serves(&every(1000, 100), 1000, Some(kind::OFFSETS));
    assert_serves(&[], 1000, None);
    assert_serves(&[], 0, Some(kind::ALL));
    assert_serves(&[999], 1000, None);
    assert_serves(&[1, 2, 5], 6, None);
}

#[test]
fn the_last_of_two_to_the_32_rows_can_be_selected() {
    let rows = [0, 7, u32::MAX];
    let (record, data) = encoded(&rows, MAX_SOURCE_ROWS);
    let set = RowSet::new(&record, 3, &data).unwrap();
    set.check().unwrap();
    assert_eq!(set.iter().collect::<Vec<_>>(), [0, 7, u64::from(u32::MAX)]);
    assert_eq!(set.rank(u64::from(u32::MAX)), 2);
    let mut run = Vec::new();
    let record = RowSetRecord {
        source_rows: U64::new(MAX_SOURCE_ROWS),
        offset: U64::new(0),
        kind: U32::new(kind::RUNS),
        runs: U32::new(1),
    };
    run.extend_from_slice(StoredRun { start: U32::new(1), end: U32::new(u32::MAX) }.as_bytes());
    let set = RowSet::new(&record, u64::from(u32::MAX), &run).unwrap();
    set.check().unwrap();
    assert_eq!(set.select(u64::from(u32::MAX) - 1), Some(u64::from(u32::MAX)));
    assert!(encode(&rows, MAX_SOURCE_ROWS + 1, &mut Vec::new()).is_err());
}

#[test]
fn a_selection_costs_at_most_1_1_bits_per_source_row_at_every_selectivity() {
    for source_rows in [10_000_u64, 131_072, 1_000_003].into_iter().take(if cfg!(miri) { 1 } else { 3 }) {
        for percent in (0..=100).step_by(if cfg!(miri) { 25 } else { 1 }) {
            let mut next = rng(percent);
            let rows: Vec<u32> = (0..source_rows as u32).filter(|_| next() % 100 < percent).collect();
            let mut data = Vec::new();
            encode(&rows, source_rows, &mut data).unwrap();
            let bits = 8 * (data.len() + size_of::<RowSetRecord>());
            assert!(bits as f64 <= 1.1 * source_rows as f64, "{bits} bits, {percent} % of {source_rows} rows");
        }
    }
}

#[test]
fn rows_out_of_order_or_out_of_range_are_not_encoded() {
    for (rows, source_rows) in [(&[1, 1][..], 10), (&[2, 1], 10), (&[10], 10), (&[0], 0)] {
        let error = encode(rows, source_rows, &mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn a_container_that_does_not_hold_what_its_record_says_is_refused() {
    let rows: Vec<u32> = (0..1000).step_by(2).collect();
    let selections = [rows, (5..700).chain(800..900).collect(), vec![3, 60, 900]];
    for rows in selections {
        let (record, data) = encoded(&rows, 1000);
        let mut refused = 0;
        for bit in (5 * 8..data.len() * 8).step_by(if cfg!(miri) { 1 + data.len() / 4 } else { 1 }) {
            let mut damaged = data.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let set = RowSet::new(&record, rows.len() as u64, &damaged).unwrap();
            // A flip may give another selection of the same size, which is a container in its own right.
            if set.check().is_ok() {
                let found: Vec<u64> = set.iter().collect();
                assert_eq!(found.len(), rows.len());
                assert!(found.is_sorted_by(|before, next| before < next) && found.iter().all(|row| *row < 1000));
                assert_eq!(set.runs().map(|run| run.end - run.start).sum::<u64>(), rows.len() as u64);
                for (slot, row) in (0..).zip(&found) {
                    assert_eq!((set.select(slot), set.rank(*row)), (Some(*row), slot));
                }
            } else {
                refused += 1;
                // Nobody asks such a set anything, and it would answer.
                for probe in [0, 1, 500, 999, 1000, u64::MAX] {
                    assert!(set.select(probe).is_none_or(|row| row < u64::from(u32::MAX)));
                    assert!(set.rank(probe) <= u64::from(u32::MAX));
                }
                assert!(set.runs().count() <= 8 * data.len());
            }
        }
        assert!(refused > 0);
        assert!(RowSet::new(&record, rows.len() as u64, &data[..data.len() - 1]).is_none());
    }
}

#[test]
fn a_record_that_cannot_be_is_refused() {
    let record = |kind, source_rows, runs| RowSetRecord {
        source_rows: U64::new(source_rows),
        offset: U64::new(0),
        kind: U32::new(kind),
        runs: U32::new(runs),
    };
    assert!(container_len(&record(kind::ALL, 10, 0), 9).is_err());
    assert!(container_len(&record(kind::OFFSETS, 10, 0), 11).is_err());
    assert!(container_len(&record(kind::OFFSETS, 10, 1), 5).is_err());
    assert!(container_len(&record(kind::BITMAP, MAX_SOURCE_ROWS + 1, 0), 5).is_err());
    assert!(container_len(&record(4, 10, 0), 5).is_err());
    assert!(container_len(&record(kind::ALL, u64::MAX, 0), u64::MAX).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]
    #[test]
    fn any_selection_is_served_as_selected(
        rows in prop::collection::btree_set(0..3000_u32, 0..3000),
        runs in any::<bool>(),
    ) {
        let rows: Vec<u32> = if runs {
            // Long runs with short gaps, the case that scattered rows never reach.
            (0..3000).filter(|row| !rows.contains(&(row / 40))).collect()
        } else {
            rows.into_iter().collect()
        };
        assert_serves(&rows, 3000, None);
    }
}
