use std::collections::BTreeSet;

use xxhash_rust::xxh3::xxh3_64;

use super::*;

/// Unequal, empty, one row, and one longer than a table.
const UNEVEN: [u64; 9] = [40, 0, 1, 300, 7, 0, 70_000, 55, 12];

fn order(groups: &[u64], k: u64, seed: u64, epoch: u64) -> Arc<dyn EpochOrder> {
    Blocks::new(groups, k, seed).unwrap().epoch(epoch).unwrap()
}

fn rows(order: &dyn EpochOrder, first: u64, stride: u64, count: usize) -> Vec<u64> {
    let mut rows = vec![0; count];
    let written = order.fill_strided(first, stride, &mut rows);
    rows.truncate(written);
    rows
}

fn all(order: &dyn EpochOrder) -> Vec<u64> {
    rows(order, 0, 1, order.len() as usize + 1)
}

/// Which of `groups` each row is of.
fn group_of(groups: &[u64], row: u64) -> usize {
    let mut end = 0;
    groups
        .iter()
        .position(|rows| {
            end += rows;
            row < end
        })
        .unwrap()
}

#[test]
#[cfg_attr(miri, ignore = "draws too many rows for Miri")]
fn each_window_serves_the_rows_of_its_row_groups() {
    for groups in [&UNEVEN[..], &[5; 7], &[1; 40], &[3, 1000]] {
        let full = groups.iter().filter(|rows| **rows > 0).count() as u64;
        for k in [1, 2, 3, full - 1, full, full + 1, Blocks::ALL] {
            let order = order(groups, k, 3, 1);
            let mut rest = &all(&*order)[..];
            let mut left: BTreeSet<usize> = (0..groups.len()).filter(|group| groups[*group] > 0).collect();
            while !rest.is_empty() {
                // The row groups of a window are as many as it may have, so they tell where it ends.
                let mut window = BTreeSet::new();
                let mut len = 0;
                while window.len() < k.min(left.len() as u64) as usize
                    || rest.len() > len && { window.contains(&group_of(groups, rest[len])) }
                {
                    window.insert(group_of(groups, rest[len]));
                    len += 1;
                }
                assert_eq!(len as u64, window.iter().map(|group| groups[*group]).sum::<u64>(), "{groups:?} {k}");
                assert!(window.iter().all(|group| left.remove(group)));
                rest = &rest[len..];
            }
            assert!(left.is_empty());
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "draws too many rows for Miri")]
fn filling_and_positions_agree_with_single_rows() {
    for k in [1, 2, 5, Blocks::ALL] {
        let order = order(&UNEVEN, k, 8, 0);
        let len = order.len();
        let all = all(&*order);
        assert_eq!(all.len() as u64, len);
        for first in [0, 1, len / 2, len - 200, len - 1, len, u64::MAX] {
            for stride in [1, 2, 64, 5000, u64::MAX] {
                let count = reachable(first, stride, len, 300);
                let rows = rows(&*order, first, stride, 300);
                assert_eq!(rows.len(), count);
                for (i, row) in rows.into_iter().enumerate() {
                    assert_eq!(row, all[(first + i as u64 * stride) as usize]);
                }
            }
        }
        for position in (0..len).step_by(331) {
            let row = order.row(position).unwrap();
            assert_eq!(row, all[position as usize]);
            assert_eq!(order.position(row), Some(position));
        }
        assert_eq!((order.row(len), order.position(len)), (None, None));
        assert_eq!((order.row(u64::MAX), order.position(u64::MAX)), (None, None));
    }
}

#[test]
fn empty_row_groups_change_nothing() {
    let [with, without] = [&[0, 5, 0, 9, 0][..], &[5, 9]].map(|groups| Blocks::new(groups, 1, 4).unwrap());
    assert_eq!(with.fingerprint(), without.fingerprint());
    assert_eq!(all(&*with.epoch(2).unwrap()), all(&*without.epoch(2).unwrap()));
    for groups in [&[][..], &[0, 0]] {
        let orders = Blocks::new(groups, 3, 0).unwrap();
        assert_eq!(orders.len(), 0);
        assert_eq!(all(&*orders.epoch(0).unwrap()), [0; 0]);
        assert_eq!(orders.epoch(0).unwrap().row(0), None);
    }
}

#[test]
fn all_row_groups_in_a_window_is_every_larger_k() {
    let orders = |k| Blocks::new(&[4, 4, 4], k, 1).unwrap();
    assert_eq!(orders(3).fingerprint(), orders(Blocks::ALL).fingerprint());
    assert_eq!(all(&*orders(3).epoch(0).unwrap()), all(&*orders(100).epoch(0).unwrap()));
    assert_ne!(orders(2).fingerprint(), orders(3).fingerprint());
}

#[test]
fn runs_that_differ_have_other_fingerprints() {
    let fingerprint = |groups: &[u64], k, seed| Blocks::new(groups, k, seed).unwrap().fingerprint();
    let all = [
        fingerprint(&[4, 4, 4], 1, 0),
        fingerprint(&[4, 4, 4], 2, 0),
        fingerprint(&[4, 4, 4], 1, 1),
        fingerprint(&[4, 5, 3], 1, 0),
        fingerprint(&[3, 5, 4], 1, 0),
        fingerprint(&[8, 4], 1, 0),
    ];
    assert_eq!(BTreeSet::from(all).len(), all.len());
}

#[test]
fn windows_of_an_epoch_and_epochs_are_shuffled_apart() {
    let order_of = |epoch| all(&*order(&[50; 40], 1, 0, epoch));
    let (first, second) = (order_of(0), order_of(1));
    assert_ne!(first, second);
    let inside: BTreeSet<Vec<u64>> =
        first.chunks(50).map(|window| window.iter().map(|row| row % 50).collect()).collect();
    assert_eq!(inside.len(), 40);
    let sequence = |rows: &[u64]| rows.chunks(50).map(|window| window[0] / 50).collect::<Vec<_>>();
    assert_ne!(sequence(&first), sequence(&second));
    assert_ne!(order(&[50; 40], 1, 1, 0).row(0), order(&[50; 40], 1, 0, 1).row(0));
}

/// Chi-square of windows of rows against windows of positions, 40 by 40 with 50 each: 39² degrees of freedom.
#[test]
#[cfg_attr(miri, ignore = "draws too many rows for Miri")]
fn one_window_of_all_row_groups_is_a_global_shuffle() {
    let mut counts = [[0_u32; 40]; 40];
    for (position, row) in all(&*order(&[1000; 80], Blocks::ALL, 1, 0)).into_iter().enumerate() {
        counts[position / 2000][row as usize / 2000] += 1;
    }
    let chi_square: f64 = counts.iter().flatten().map(|count| (f64::from(*count) - 50.0).powi(2) / 50.0).sum();
    let freedom = 39.0 * 39.0;
    let z = (chi_square - freedom) / (2.0_f64 * freedom).sqrt();
    assert!(z.abs() < 5.0, "{z}");
}

#[test]
fn threads_that_ask_at_once_get_the_same_rows() {
    let order = order(&[500; if cfg!(miri) { 4 } else { 64 }], 2, 1, 0);
    let expected = all(&*order);
    std::thread::scope(|scope| {
        for rank in 0..4 {
            let (order, expected) = (&order, &expected);
            scope.spawn(move || {
                for first in (rank..order.len()).step_by(64) {
                    let rows = rows(&**order, first, 4, 16);
                    assert!(rows.iter().eq(expected[first as usize..].iter().step_by(4).take(16)));
                }
            });
        }
    });
}

#[test]
fn impossible_blocks_are_refused() {
    let error = Blocks::new(&[1, 2], 0, 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    for groups in [[u64::MAX, 1], [1 << 62, 1 << 62]] {
        assert_eq!(Blocks::new(&groups, 1, 0).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn the_longest_row_groups_do_not_overflow() {
    let order = order(&[1 << 62, (1 << 62) - 1], 1, 0, 0);
    assert_eq!(order.len(), super::super::MAX_LEN);
    for position in [0, (1 << 62) - 1, 1 << 62, order.len() - 1] {
        assert_eq!(order.position(order.row(position).unwrap()), Some(position));
    }
}

/// Row groups, `k`, seed and epoch; the first rows, and a hash.
type Golden<'a> = (&'a [u64], u64, u64, u64, [u64; 6], u64);

/// The numbers of version 1: the first rows, and a hash over 1024 rows spread over the order.
#[test]
#[cfg_attr(miri, ignore = "draws too many rows for Miri")]
fn version_1_is_frozen() {
    let golden: &[Golden] = &[
        (&UNEVEN, 1, 0, 0, [24, 10, 35, 6, 28, 9], 0xfb4f_4e6e_d482_aa91),
        (&UNEVEN, 2, 0, 0, [277, 160, 233, 262, 127, 332], 0xb1f2_72cb_1e16_75f7),
        (&UNEVEN, 2, 0, 1, [345, 344, 343, 341, 347, 342], 0x2239_5fa5_39e6_b7f3),
        (&UNEVEN, 2, 1, 0, [347, 346, 342, 343, 40, 345], 0x81e7_c67a_70a7_2b12),
        (&UNEVEN, 7, u64::MAX, 1_000_000, [12_408, 66_438, 23_581, 15_414, 28, 70_123], 0x33d7_1920_a758_336d),
        (&UNEVEN, Blocks::ALL, 3, 3, [48_114, 5551, 67_979, 61_156, 5088, 24_565], 0x986d_595f_9dd6_4bcf),
        (&[1000; 100], 8, 0, 0, [80_755, 14_818, 16_963, 16_763, 80_671, 76_874], 0xa74f_e540_3988_4110),
        (&[1000; 100], 8, 7, 5, [16_360, 10_622, 76_842, 76_764, 5511, 5151], 0xff62_1b1c_2a9a_702e),
        (&[1000; 100], Blocks::ALL, 0, 0, [6103, 13_538, 23_789, 17_492, 14_996, 70_086], 0x2366_4e1d_7826_e1c8),
        (
            &[1 << 40; 5],
            1,
            9,
            1,
            [
                5_197_520_648_734,
                4_548_056_672_599,
                4_637_647_915_534,
                5_136_739_623_801,
                4_988_782_453_517,
                4_574_966_920_909,
            ],
            0xb1ff_77e3_d25e_1da5,
        ),
        (
            &[1 << 40; 5],
            2,
            9,
            1,
            [
                4_763_234_864_279,
                4_723_162_737_536,
                1_360_571_742_824,
                5_124_319_717_814,
                5_054_741_770_031,
                1_264_869_572_033,
            ],
            0x39a7_bb46_0da8_8ecf,
        ),
    ];
    for &(groups, k, seed, epoch, first, hash) in golden {
        let order = order(groups, k, seed, epoch);
        let step = (order.len() / 1024).max(1);
        let spread: Vec<u8> = rows(&*order, 0, step, 1024).into_iter().flat_map(u64::to_le_bytes).collect();
        let got = (<[u64; 6]>::try_from(rows(&*order, 0, 1, 6)).unwrap(), xxh3_64(&spread));
        assert_eq!(got, (first, hash), "{} row groups, {k} {seed} {epoch}", groups.len());
    }
    assert_eq!(Blocks::new(&UNEVEN, 2, 42).unwrap().fingerprint(), 0x855f_dea3_cf35_7d0a);
}
