//! What sets of rows promise, against plain lists.

use proptest::prelude::*;

use super::*;

fn assert_is(set: &IdSet, rows: u64, members: &[u64]) {
    assert_eq!((set.rows(), set.len(), set.is_empty()), (rows, members.len() as u64, members.is_empty()));
    assert!(set.iter().eq(members.iter().copied()));
    for (place, row) in (0..).zip(members) {
        assert_eq!(set.select(place), Some(*row));
    }
    assert_eq!((set.select(members.len() as u64), set.select(u64::MAX)), (None, None));
    let mut before = 0;
    for row in 0..rows {
        let is = members.get(before) == Some(&row);
        assert_eq!((set.rank(row), set.contains(row)), (before as u64, is), "row {row}");
        before += usize::from(is);
    }
    assert_eq!((set.rank(rows), set.rank(u64::MAX)), (members.len() as u64, members.len() as u64));
    assert!(!set.contains(rows) && !set.contains(u64::MAX));
    let ranges: Vec<_> = set.ranges().collect();
    assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "{ranges:?} touch");
}

fn is_bitmap(set: &IdSet) -> bool {
    matches!(set.container, IdContainer::Bitmap { .. })
}

#[test]
fn few_runs_are_kept_as_runs_and_scattered_rows_as_bits() {
    let few = IdSet::from_ranges(1 << 40, [5..10, 1 << 39..1 << 40]).unwrap();
    assert!(!is_bitmap(&few));
    assert_eq!((few.len(), few.select(5), few.rank(1 << 39)), (5 + (1 << 39), Some(1 << 39), 5));
    let scattered = IdSet::filter(5000, |row| row % 3 == 1).unwrap();
    assert!(is_bitmap(&scattered));
    assert_is(&scattered, 5000, &(0..5000).filter(|row| row % 3 == 1).collect::<Vec<_>>());
    assert!(!is_bitmap(&scattered.complement().unwrap().complement().unwrap().intersection(&few_of(5000)).unwrap()));
}

fn few_of(rows: u64) -> IdSet {
    IdSet::from_ranges(rows, [4..5, 7..8]).unwrap()
}

#[test]
fn every_short_length_has_its_whole_its_nothing_and_its_complement() {
    for rows in (0..300).step_by(if cfg!(miri) { 37 } else { 1 }).chain([1023, 1024, 1025, 2048]) {
        let all = IdSet::all(rows).unwrap();
        assert_is(&all, rows, &(0..rows).collect::<Vec<_>>());
        assert_is(&all.complement().unwrap(), rows, &[]);
        let odd = IdSet::filter(rows, |row| row % 2 == 1).unwrap();
        assert_is(&odd.complement().unwrap(), rows, &(0..rows).step_by(2).collect::<Vec<_>>());
    }
}

#[test]
fn ranges_beyond_the_rows_or_backwards_are_refused() {
    let refused = |ranges: &[Range<u64>]| IdSet::from_ranges(10, ranges.iter().cloned()).unwrap_err();
    let error = refused(&[2..3, 10..11]);
    assert_eq!((error.kind(), error.message()), (ErrorKind::OutOfRange, "row id 10 of 10 rows"));
    assert_eq!(refused(&[Range { start: 5, end: 4 }]).kind(), ErrorKind::InvalidArgument);
    assert_eq!(IdSet::from_ids(10, [3, u64::MAX]).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(IdSet::all(1 << 63).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let (a, b) = (IdSet::all(3).unwrap(), IdSet::all(4).unwrap());
    assert_eq!(a.intersection(&b).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn the_hash_is_of_the_content() {
    let ids = [3, 4, 5, 9];
    let one = IdSet::from_ids(20, ids).unwrap();
    let same = IdSet::from_ranges(20, [9..10, 3..5, 4..6, 7..7]).unwrap();
    assert_eq!((&one, one.content_hash()), (&same, same.content_hash()));
    assert_ne!(one.content_hash(), IdSet::from_ids(21, ids).unwrap().content_hash());
    assert_ne!(one.content_hash(), IdSet::from_ids(20, [3, 4, 5]).unwrap().content_hash());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]
    #[test]
    fn any_set_is_what_was_put_in(
        rows in 0_u64..3000, ids in prop::collection::btree_set(0_u64..3000, 0..600), long: bool,
    ) {
        let is_member = |row: &u64| ids.contains(&(if long { row / 16 } else { *row }));
        let members: Vec<u64> = (0..rows).filter(is_member).collect();
        let set = IdSet::from_ids(rows, members.iter().rev().copied()).unwrap();
        assert_is(&set, rows, &members);
        let others: Vec<u64> = (0..rows).filter(|row| members.binary_search(row).is_err()).collect();
        assert_is(&set.complement().unwrap(), rows, &others);
        let third = IdSet::filter(rows, |row| row % 3 == 0).unwrap();
        let both: Vec<u64> = members.iter().copied().filter(|row| row % 3 == 0).collect();
        assert_is(&set.intersection(&third).unwrap(), rows, &both);
        prop_assert_eq!(third.intersection(&set).unwrap(), set.intersection(&third).unwrap());
    }
}
