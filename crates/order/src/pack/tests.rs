//! What packs promise, against a model that packs one piece after the other, by nothing but the rules.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::{EpochOrder, Global, JoinedLengths, Lengths, Order, Sequential, conformance};
use rowdex_base::error::ErrorKind;

const ALGORITHMS: [Algorithm; 4] = [Algorithm::BestFit, Algorithm::Concat, Algorithm::Budget, Algorithm::Padded];

/// The packs of one block, each with its pieces in the sequence in which they were put into it.
type Packs = Vec<Vec<Piece>>;

/// What is left of a row's tokens by the rules for rows that are too long or empty.
fn kept(pack: &Pack, length: u64) -> Option<u64> {
    match (length, pack.empty, pack.overflow) {
        (0, Empty::Skip, _) => None,
        (1.., _, Overflow::Drop) if length > pack.longest() => None,
        (_, _, Overflow::Truncate) => Some(length.min(pack.longest())),
        _ => Some(length),
    }
}

fn taken(pack: &Pack, length: u64) -> u64 {
    let mut taken = (length + pack.extra).max(1);
    while !taken.is_multiple_of(pack.multiple) {
        taken += 1;
    }
    taken
}

fn model(pack: &Pack, rows: &[u64], lengths: &[u64]) -> Packs {
    let most = pack.max_pieces.map_or(usize::MAX, |most| most as usize);
    let place = pack.capacity - pack.capacity % pack.multiple;
    let filled = |pieces: &[Piece]| pieces.iter().map(|piece| taken(pack, piece.length)).sum::<u64>();
    let mut packs: Packs = Vec::new();
    match pack.algorithm {
        Algorithm::BestFit | Algorithm::Budget | Algorithm::Padded => {
            let mut pieces = Vec::new();
            for (row, length) in rows.iter().zip(lengths) {
                let Some(mut left) = kept(pack, *length) else { continue };
                let mut offset = 0;
                loop {
                    let length = left.min(pack.longest());
                    pieces.push(Piece { row: *row, offset, length });
                    (offset, left) = (offset + length, left - length);
                    if left == 0 {
                        break;
                    }
                }
            }
            pieces.sort_by_key(|piece| u64::MAX - taken(pack, piece.length));
            if pack.algorithm != Algorithm::BestFit {
                for piece in pieces {
                    let fits = |last: &&mut Vec<Piece>| {
                        let sum = filled(last) + taken(pack, piece.length);
                        let padded = taken(pack, last[0].length) * (last.len() as u64 + 1);
                        last.len() < most && if pack.algorithm == Algorithm::Budget { sum } else { padded } <= place
                    };
                    match packs.last_mut().filter(fits) {
                        Some(last) => last.push(piece),
                        None => packs.push(vec![piece]),
                    }
                }
                return packs;
            }
            let mut changed: Vec<usize> = Vec::new();
            for (now, piece) in pieces.into_iter().enumerate() {
                let left = |i: &usize| place - filled(&packs[*i]);
                let fits = |i: &usize| packs[*i].len() < most && left(i) >= taken(pack, piece.length);
                let best = (0..packs.len()).filter(fits).min_by_key(|i| (left(i), usize::MAX - changed[*i]));
                let best = best.unwrap_or_else(|| {
                    packs.push(Vec::new());
                    changed.push(0);
                    packs.len() - 1
                });
                packs[best].push(piece);
                changed[best] = now;
            }
        }
        Algorithm::Buckets => unreachable!("no packs of this model"),
        Algorithm::Concat => {
            for (row, length) in rows.iter().zip(lengths) {
                let Some(kept) = kept(pack, *length) else { continue };
                let mut offset = 0;
                loop {
                    // One token after the other, as long as they fit.
                    let left = packs.last().filter(|last| last.len() < most).map_or(0, |last| place - filled(last));
                    let fits = (0..=kept - offset).rev().find(|length| taken(pack, *length) <= left);
                    match fits.filter(|length| *length > 0 || kept == 0) {
                        Some(length) => {
                            packs.last_mut().unwrap().push(Piece { row: *row, offset, length });
                            offset += length;
                            if offset == kept {
                                break;
                            }
                        }
                        None => packs.push(Vec::new()),
                    }
                }
            }
        }
    }
    packs
}

/// The packs of an epoch as they are served.
fn served(epoch: &PackedEpoch) -> Packs {
    let starts: Vec<u64> = (0..=epoch.packs()).map(|pack| epoch.start(pack).unwrap()).collect();
    let packs = starts.windows(2).map(|ends| {
        let mut pieces = Vec::new();
        epoch.read(ends[0], ends[1] - ends[0], &mut pieces).unwrap();
        pieces
    });
    packs.collect()
}

fn sorted(mut packs: Packs) -> Packs {
    packs.iter_mut().for_each(|pack| pack.sort_unstable());
    packs.sort_unstable();
    packs
}

fn rows_of(order: &dyn EpochOrder) -> Vec<u64> {
    let mut rows = vec![0; order.len() as usize];
    assert_eq!(order.fill(0, &mut rows), rows.len());
    rows
}

fn packings() -> impl Strategy<Value = Pack> {
    let overflow = prop::sample::select(vec![Overflow::Split, Overflow::Truncate, Overflow::Drop]);
    let algorithm = prop::sample::select(ALGORITHMS.to_vec());
    let empty = prop::sample::select(vec![Empty::Skip, Empty::Keep]);
    let most = prop_oneof![Just(None), (1_u32..5).prop_map(Some)];
    ((1_u64..60, 1_u64..9, 0_u64..9), overflow, algorithm, empty, most, 1_u64..40).prop_filter_map(
        "no place for a token",
        |((capacity, multiple, extra), overflow, algorithm, empty, max_pieces, block)| {
            let pack = Pack { overflow, algorithm, extra, multiple, max_pieces, block, empty, ..Pack::of(capacity) };
            pack.check().is_ok().then_some(pack)
        },
    )
}

/// Lengths from which some rows are empty, some too long, and many alike.
fn lengths() -> impl Strategy<Value = Vec<u64>> {
    let length = prop_oneof![1 => Just(0), 6 => 1_u64..30, 3 => 1_u64..6, 1 => 20_u64..400];
    prop::collection::vec(length, 0..160)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 400 }))]
    #[test]
    fn packs_are_those_of_the_model(pack in packings(), lengths in lengths(), seed: u64, epoch in 0_u64..3) {
        let n = lengths.len() as u64;
        let orders: Arc<dyn Order> = Arc::new(Global::new(n, seed).unwrap());
        let rows = rows_of(&*orders.epoch(epoch).unwrap());
        let packed = Packed::new(orders, Arc::new(lengths.clone()), pack).unwrap().with_threads(2);
        let epoch = packed.packed(epoch).unwrap();
        let served = served(&epoch);
        // Block after block, a short last one joined to the one before.
        let blocks = (n / pack.block).max(1);
        let (mut next, mut all) = (0, Vec::<Piece>::new());
        for block in 0..blocks {
            let first = (block * pack.block) as usize;
            let end = if block + 1 == blocks { n as usize } else { first + pack.block as usize };
            let lengths: Vec<u64> = rows[first..end].iter().map(|row| lengths[*row as usize]).collect();
            let expected = model(&pack, &rows[first..end], &lengths);
            let own = served[next..next + expected.len()].to_vec();
            next += expected.len();
            match pack.algorithm {
                Algorithm::Concat => prop_assert_eq!(own, expected),
                _ => prop_assert_eq!(sorted(own), sorted(expected)),
            }
        }
        prop_assert_eq!(next, served.len());
        served.iter().for_each(|pack| all.extend(pack));
        // Every token that is kept once, and none else.
        let mut tokens: Vec<(u64, u64)> = Vec::new();
        for piece in &all {
            tokens.extend((piece.offset..piece.offset + piece.length).map(|token| (piece.row, token)));
        }
        tokens.sort_unstable();
        let kept_of = |row: u64| kept(&pack, lengths[row as usize]);
        let all_of = |row| (0..kept_of(row).unwrap_or(0)).map(move |token| (row, token));
        prop_assert!(tokens.iter().copied().eq((0..n).flat_map(all_of)));
        let counts = epoch.planned();
        prop_assert_eq!((counts.pieces, counts.tokens), (all.len() as u64, tokens.len() as u64));
        let lost = counts.tokens_dropped + counts.tokens_truncated;
        prop_assert_eq!(counts.tokens + lost, lengths.iter().sum::<u64>());
        prop_assert_eq!(counts.rows_empty, lengths.iter().filter(|length| **length == 0).count() as u64);
        let pieces_of = |row: u64| all.iter().filter(|piece| piece.row == row).count();
        prop_assert_eq!(counts.rows_split, (0..n).filter(|row| pieces_of(*row) > 1).count() as u64);
        // It is an order of rows, too.
        let rows: Vec<u64> = all.iter().map(|piece| piece.row).collect();
        prop_assert_eq!(rows_of(&*epoch), &rows[..]);
        for row in 0..n {
            let first = all.iter().position(|piece| piece.row == row && piece.offset == 0);
            prop_assert_eq!(epoch.position(row), first.map(|first| first as u64));
        }
        for (pack, pieces) in served.iter().enumerate() {
            let start = epoch.start(pack as u64).unwrap();
            for position in start..start + pieces.len() as u64 {
                prop_assert_eq!(epoch.pack_of(position).unwrap(), pack as u64);
            }
        }
        prop_assert_eq!(epoch.pack_of(epoch.len()).unwrap(), epoch.packs());
    }

    #[test]
    fn sums_are_the_same_by_any_number_of_threads(pack in packings(), lengths in lengths()) {
        let packed = |threads| {
            let orders = Arc::new(Global::new(lengths.len() as u64, 1).unwrap());
            Packed::new(orders, Arc::new(lengths.clone()), pack).unwrap().with_threads(threads)
        };
        let told = |threads| {
            let epoch = packed(threads).packed(5).unwrap();
            let starts: Vec<u64> = (0..=epoch.packs()).map(|pack| epoch.start(pack).unwrap()).collect();
            (epoch.counts().unwrap(), starts)
        };
        prop_assert_eq!(told(1), told(3));
    }
}

fn packed(lengths: Vec<u64>, pack: Pack) -> Packed {
    let orders = Arc::new(Sequential::new(lengths.len() as u64).unwrap());
    Packed::new(orders, Arc::new(lengths), pack).unwrap()
}

#[test]
fn every_sort_of_orders_is_packed_with_every_position_it_has() {
    for (name, orders) in conformance::every(101, 7).unwrap() {
        let rows = orders.rows().unwrap_or(101);
        let lengths: Arc<dyn Lengths> = Arc::new((0..rows).map(|row| row % 23 + 1).collect::<Vec<u64>>());
        let pack = Pack { block: 16, ..Pack::of(40) };
        let epoch = Packed::new(Arc::clone(&orders), lengths, pack).unwrap().packed(1).unwrap();
        let (mut all, mut expected) = (rows_of(&*epoch), rows_of(&*orders.epoch(1).unwrap()));
        all.sort_unstable();
        expected.sort_unstable();
        assert_eq!(all, expected, "{name}");
    }
}

#[test]
fn rows_that_may_not_be_too_long_are_named() {
    let pack = Pack { overflow: Overflow::Error, block: 2, extra: 2, ..Pack::of(10) };
    assert_eq!(packed(vec![8; 9], pack).packed(0).unwrap().packs(), 9);
    let error = packed(vec![8, 8, 8, 9, 8, 9], pack).with_threads(2).packed(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("row 3 has 9 tokens"), "{error}");
}

#[test]
fn who_has_too_long_a_row_is_told_the_policies_that_there_are_for_such_packs() {
    let others = [Overflow::Split, Overflow::Truncate, Overflow::Drop];
    let concat = Pack { algorithm: Algorithm::Concat, ..Pack::of(8) };
    let buckets = Pack { capacity: 8, ..Pack::buckets(4) };
    for pack in [Pack::of(8), concat, Pack::budget(8, false), Pack::budget(8, true), buckets] {
        let pack = Pack { overflow: Overflow::Error, block: 2, ..pack };
        let epoch = packed(vec![9; 5], pack).packed(0);
        let error = epoch.and_then(|epoch| epoch.read(0, 1, &mut Vec::new())).unwrap_err();
        for overflow in others {
            let named = error.to_string().contains(&format!("\"{overflow}\""));
            assert_eq!(named, Pack { overflow, ..pack }.check().is_ok(), "{}, {overflow}: {error}", pack.algorithm);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "makes too many packs for Miri")]
fn a_row_with_more_tokens_than_pieces_can_be_is_refused_and_others_are_not() {
    for algorithm in [Algorithm::BestFit, Algorithm::Concat] {
        let pack = Pack { algorithm, ..Pack::of(8192) };
        let error = packed(vec![5, 1 << 40], pack).packed(0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        for overflow in [Overflow::Truncate, Overflow::Drop] {
            let epoch = packed(vec![5, 1 << 40, u64::MAX], Pack { overflow, ..pack }).packed(0).unwrap();
            let counts = epoch.planned();
            let expected = if overflow == Overflow::Drop { (1, 5) } else { (3, 5 + 2 * 8192) };
            assert_eq!((epoch.packs(), counts.tokens), expected);
        }
        let long = packed(vec![5, 1 << 40], Pack { capacity: 1 << 30, multiple: 1 << 10, ..pack }).packed(0).unwrap();
        assert_eq!((long.packs(), long.planned().tokens), (1025, 5 + (1 << 40)));
    }
}

#[test]
fn lengths_of_other_rows_are_refused() {
    let orders = || Arc::new(Global::new(10, 1).unwrap());
    let error = Packed::new(orders(), Arc::new(vec![1; 9]), Pack::of(8)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(Packed::new(orders(), Arc::new(vec![1; 10]), Pack::of(0)).is_err());
}

#[test]
fn lengths_that_can_not_be_read_are_told() {
    /// Fails for one row.
    #[derive(Debug)]
    struct Damaged;

    impl Lengths for Damaged {
        fn len(&self) -> u64 {
            100
        }

        fn length(&self, row: u64) -> Result<u64> {
            if row == 77 { Err(Error::new(ErrorKind::InvalidIndex, "damaged")) } else { Ok(row) }
        }

        fn fingerprint(&self) -> u64 {
            0
        }
    }

    let orders = Arc::new(Sequential::new(100).unwrap());
    let packed = Packed::new(orders, Arc::new(Damaged), Pack { block: 10, ..Pack::of(200) }).unwrap();
    assert_eq!(packed.packed(0).unwrap_err().kind(), ErrorKind::InvalidIndex);
    assert_eq!(packed.with_threads(4).packed(0).unwrap_err().kind(), ErrorKind::InvalidIndex);
}

#[test]
fn nothing_to_pack_makes_no_packs() {
    for lengths in [vec![], vec![0; 7]] {
        let epoch = packed(lengths, Pack { block: 2, ..Pack::of(8) }).packed(0).unwrap();
        assert_eq!((epoch.packs(), epoch.len(), epoch.start(0).unwrap(), epoch.pack_of(0).unwrap()), (0, 0, 0, 0));
        assert_eq!((epoch.row(0), epoch.position(0)), (None, None));
    }
}

#[test]
fn what_can_not_be_packed_by_is_refused_and_named() {
    let pack = Pack::of(100);
    assert!(pack.check().is_ok() && Pack { extra: 99, ..pack }.check().is_ok());
    for (pack, word) in [
        (Pack::of(0), "capacity of 0"),
        (Pack::of(1 << 31), "capacity of 2147483648"),
        (Pack::of(1 << 23), "multiples of 1"),
        (Pack { extra: 100, ..pack }, "100 extra"),
        (Pack { extra: 96, multiple: 16, ..pack }, "96 extra"),
        (Pack { extra: u64::MAX, ..pack }, "extra"),
        (Pack { multiple: 0, ..pack }, "multiple of 0"),
        (Pack { multiple: 101, ..pack }, "multiple of 101"),
        (Pack { max_pieces: Some(0), ..pack }, "0 pieces"),
        (Pack { overflow: Overflow::Split, ..Pack::budget(100, true) }, "whole rows"),
        (Pack { block: 0, ..pack }, "blocks of 0"),
        (Pack { block: (1 << 20) + 1, ..pack }, "blocks of 1048577"),
    ] {
        let error = pack.check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(word), "{error}");
    }
}

fn by_two(lengths: &[u64], second: &[u64], pack: Pack) -> Result<Packed> {
    let both = JoinedLengths::with_second(Arc::new(lengths.to_vec()), Arc::new(second.to_vec()))?;
    Packed::new(Arc::new(Sequential::new(lengths.len() as u64).unwrap()), both, pack)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 60 }))]
    /// Those first that take most of a limit.
    #[test]
    fn packs_with_two_limits_are_as_few_as_by_first_fit(
        mut items in prop::collection::vec([1..900_u64, 0..19_u64], 2000), shrink in 1..30_u64, limit in 1..30_u64,
    ) {
        items.iter_mut().for_each(|[length, second]| *length = (*length / shrink).max(*second % 2));
        let [lengths, second] = [0, 1].map(|of| items.iter().map(|item| item[of]).collect::<Vec<u64>>());
        let pack = Pack { second: Some(limit as u32), overflow: Overflow::Drop, multiple: 4, ..Pack::of(1000) };
        let packs = served(&by_two(&lengths, &second, pack).unwrap().packed(2).unwrap());
        let taken = |row: u64| [lengths[row as usize].next_multiple_of(4), second[row as usize]];
        let mut rows: Vec<u64> = (0..2000).filter(|row| taken(*row)[0] > 0 && taken(*row)[1] <= limit).collect();
        let mut found: Vec<u64> = packs.iter().flatten().map(|piece| piece.row).collect();
        found.sort_unstable();
        prop_assert_eq!(&found, &rows);
        let sum = |of: usize, pack: &[Piece]| pack.iter().map(|piece| taken(piece.row)[of]).sum::<u64>();
        prop_assert!(packs.iter().all(|pack| sum(0, pack) <= 1000 && sum(1, pack) <= limit));
        rows.sort_by_key(|row| u64::MAX - (taken(*row)[0] * limit).max(taken(*row)[1] * 1000));
        let mut left: Vec<[u64; 2]> = Vec::new();
        for [length, second] in rows.into_iter().map(taken) {
            match left.iter_mut().find(|[a, b]| *a >= length && *b >= second) {
                Some([a, b]) => (*a, *b) = (*a - length, *b - second),
                None => left.push([1000 - length, limit - second]),
            }
        }
        prop_assert!(packs.len() as f64 <= left.len() as f64 * 1.005 + 1.0, "{} {}", packs.len(), left.len());
    }
}

#[test]
fn packs_with_two_limits_are_frozen_and_refuse_what_fits_none() {
    let [lengths, second] =
        [[7, 11], [5, 4]].map(|[by, of]| (0..14).map(|row| row * row * by % of).collect::<Vec<u64>>());
    let pack = Pack { second: Some(3), overflow: Overflow::Error, block: 6, ..Pack::of(16) };
    let packed = by_two(&lengths, &second, pack).unwrap();
    let expected = "3:0+8 1:0+7 | 2:0+6 5:0+10 | 4:0+2 | 9:0+6 6:0+10 | 7:0+2 12:0+7 13:0+6 | 10:0+7 8:0+8";
    assert_eq!(written(&served(&packed.packed(1).unwrap())), expected);
    assert_eq!(packed.fingerprint(), 0x0346_aecc_8475_3e33);
    let error = by_two(&lengths, &second, Pack { second: Some(0), ..pack }).unwrap().packed(0).unwrap_err();
    assert!(error.to_string().contains("second number is 1, and that of a pack at most 0"), "{error}");
    let empty = Pack { second: Some(2), overflow: Overflow::Drop, empty: Empty::Keep, ..pack };
    assert_eq!(by_two(&[0, 0], &[3, 2], empty).unwrap().packed(0).unwrap().packs(), 1);
    assert!(by_two(&lengths, &second[1..], pack).is_err());
}

/// Pieces as `row:offset+length`, packs apart by bars: what docs/packs-format.md shows.
fn written(packs: &Packs) -> String {
    let text = |pack: &Vec<Piece>| {
        let pieces: Vec<String> =
            pack.iter().map(|piece| format!("{}:{}+{}", piece.row, piece.offset, piece.length)).collect();
        pieces.join(" ")
    };
    packs.iter().map(text).collect::<Vec<_>>().join(" | ")
}

/// Changing these changes what runs serve that people have begun.
#[test]
fn packs_v1_are_frozen() {
    let epoch = |n: u64, pack| {
        let lengths: Vec<u64> = (0..n).map(|row| row * row * 7 % 23).collect();
        let packed = Packed::new(Arc::new(Global::new(n, 42).unwrap()), Arc::new(lengths), pack).unwrap();
        let epoch = packed.packed(1).unwrap();
        (packed.fingerprint(), epoch.packs(), served(&epoch))
    };
    let pack = Pack { block: 6, ..Pack::of(16) };
    let concat = Pack { algorithm: Algorithm::Concat, extra: 1, multiple: 4, max_pieces: Some(3), ..pack };
    let concat = Pack { empty: Empty::Keep, ..concat };
    let [budget, padded] =
        [false, true].map(|padded| Pack { overflow: Overflow::Drop, block: 6, ..Pack::budget(30, padded) });
    let (_, _, packs) = epoch(14, pack);
    assert_eq!(
        written(&packs),
        "10:0+10 2:0+5 | 4:16+4 11:16+3 | 4:0+16 | 9:0+15 | 11:0+16 | 12:0+16 | 12:16+3 1:0+7 | 7:0+16 | \
         7:16+5 8:0+11 | 3:0+16 | 3:16+1 5:0+14 | 6:16+6 13:0+10 | 6:0+16"
    );
    let (_, _, packs) = epoch(14, concat);
    assert_eq!(
        written(&packs),
        "10:0+10 9:0+3 | 9:3+12 | 0:0+0 2:0+5 11:0+3 | 11:3+15 | 11:18+1 4:0+11 | 4:11+9 | 8:0+11 3:0+3 | 3:3+14 | \
         1:0+7 13:0+7 | 13:7+3 6:0+11 | 6:11+11 7:0+3 | 7:3+15 | 7:18+3 12:0+11 | 12:11+8 5:0+3 | 5:3+11"
    );
    let (_, _, packs) = epoch(14, budget);
    assert_eq!(
        written(&packs),
        "4:0+20 | 11:0+19 | 2:0+5 10:0+10 9:0+15 | 7:0+21 | 6:0+22 | 3:0+17 | 8:0+11 5:0+14 | 13:0+10 1:0+7 | 12:0+19"
    );
    let (_, _, packs) = epoch(14, padded);
    assert_eq!(
        written(&packs),
        "10:0+10 9:0+15 | 4:0+20 | 2:0+5 | 11:0+19 | 7:0+21 | 6:0+22 | 12:0+19 | 3:0+17 | 13:0+10 1:0+7 | 8:0+11 5:0+14"
    );
    if cfg!(miri) {
        return;
    }
    // More packs in a block than a permutation has a table for.
    for (pack, expected) in [
        (pack, (12251963665374016549, 146281, 7386752193125362578)),
        (concat, (4223917998373827948, 167950, 17511835846377649235)),
        (Pack { capacity: 25, block: 1 << 17, ..pack }, (9457078512480020982, 91305, 1488816502496822553)),
    ] {
        let (fingerprint, count, packs) = epoch(150_000, pack);
        assert_eq!((fingerprint, count, xxhash_rust::xxh3::xxh3_64(written(&packs).as_bytes())), expected);
    }
}
