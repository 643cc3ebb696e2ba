//! Whether the orders look random: statistics that a bad shuffle fails, with Fisher-Yates as the control.
//!
//! Every statistic is scaled to a standard normal one; keys are fixed, so a test either always passes or always fails.
//! `benches/quality.rs` runs the same statistics over hundreds of seeds.

use super::{correlation, independence, uniformity, window};
use crate::feistel::Feistel;
use crate::fisher_yates::FisherYates;
use crate::permutation::PermutationKey;
use crate::{Global, Order};

/// Beyond five standard deviations: once in 1.7 million statistics, of which there are some sixty thousand here.
const LIMIT: f64 = 5.0;

/// The longest distance between positions that are compared.
const LAGS: usize = 4096;

/// Lengths that leave odd and even halves, just after and just before a power of two.
const LENGTHS: [u64; 4] = [65_537, 100_000, 131_071, 131_073];

/// One shuffled epoch as a list.
fn shuffled(len: u64, seed: u64, epoch: u64) -> Vec<u64> {
    let feistel = Feistel::new(len, PermutationKey::order_v1(seed, epoch).rounds());
    let mut rows: Vec<u64> = (0..len).collect();
    feistel.forward_all(&mut rows);
    rows
}

fn control(seed: u64, epoch: u64) -> Vec<u64> {
    let table = FisherYates::new(1 << 16, PermutationKey::order_v1(seed, epoch).chacha());
    (0..1 << 16).filter_map(|x| table.forward(x)).collect()
}

/// Every list that the statistics of whole epochs are taken over.
fn epochs() -> impl Iterator<Item = (String, Vec<u64>)> {
    let feistel = LENGTHS
        .into_iter()
        .flat_map(|len| (0..2).map(move |seed| (format!("feistel of {len}, seed {seed}"), shuffled(len, seed, 0))));
    feistel.chain((0..2).map(|seed| (format!("fisher-yates, seed {seed}"), control(seed, 0))))
}

/// One list of each length, where there are thousands of statistics of a list.
fn one_of_each() -> impl Iterator<Item = (String, Vec<u64>)> {
    epochs().step_by(2)
}

fn floats(rows: &[u64]) -> Vec<f64> {
    rows.iter().map(|row| *row as f64).collect()
}

#[test]
#[cfg_attr(miri, ignore = "draws too many rows for Miri")]
fn rows_do_not_depend_on_the_rows_shortly_before() {
    for (name, rows) in epochs() {
        let rows = floats(&rows);
        for lag in 1..=64 {
            let z = correlation(&rows[..rows.len() - lag], &rows[lag..]);
            assert!(z.abs() < LIMIT, "{name}, lag {lag}: {z}");
        }
    }
}

/// What a generator that is correlated with itself at some distance would fail, at every distance.
#[test]
#[cfg_attr(miri, ignore = "draws too many rows for Miri")]
fn rows_do_not_depend_on_the_rows_at_any_distance_before() {
    for (name, rows) in one_of_each() {
        let rows = floats(&rows[..3 * LAGS]);
        let mut squares = 0.0;
        for lag in 1..=LAGS {
            let z = correlation(&rows[..2 * LAGS], &rows[lag..lag + 2 * LAGS]);
            assert!(z.abs() < LIMIT, "{name}, lag {lag}: {z}");
            squares += z * z;
        }
        assert_mean_square(&name, squares / LAGS as f64);
    }
}

/// The steps from row to row, around the end of the rows: a permutation by addition or by a lattice has few different
/// ones.
#[test]
#[cfg_attr(miri, ignore = "draws too many rows for Miri")]
fn differences_of_rows_at_any_distance_are_uniform() {
    for (name, rows) in one_of_each() {
        let len = rows.len() as u64;
        let mut squares = 0.0;
        for lag in 1..=LAGS {
            // From 1 to len - 1, as no row comes twice.
            let step = |(a, b): (&u64, &u64)| window((b + len - a) % len - 1, len - 1, 64);
            let z = uniformity(rows[..2 * LAGS].iter().zip(&rows[lag..]).map(step), 64);
            assert!(z.abs() < LIMIT, "{name}, lag {lag}: {z}");
            squares += z * z;
        }
        assert_mean_square(&name, squares / LAGS as f64);
    }
}

/// The mean square of thousands of standard normal numbers is near 1, even if neighbouring ones share their data.
#[track_caller]
fn assert_mean_square(name: &str, mean: f64) {
    assert!((0.85..1.15).contains(&mean), "{name}: {mean}");
}

#[test]
#[cfg_attr(miri, ignore = "draws too many rows for Miri")]
fn every_window_of_positions_draws_evenly_from_all_rows() {
    for (name, rows) in epochs() {
        let len = rows.len() as u64;
        for buckets in [8, 64] {
            let pairs = (0..len).zip(&rows).map(|(q, row)| (window(q, len, buckets), window(*row, len, buckets)));
            let z = independence(pairs, buckets);
            assert!(z.abs() < LIMIT, "{name}, {buckets} windows: {z}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "draws too many rows for Miri")]
fn low_bits_of_rows_do_not_depend_on_low_bits_of_positions() {
    for (name, rows) in epochs() {
        for buckets in [2, 16, 64] {
            let pairs = rows.iter().enumerate().map(|(q, row)| (q % buckets, *row as usize % buckets));
            let z = independence(pairs, buckets);
            assert!(z.abs() < LIMIT, "{name}, modulo {buckets}: {z}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "draws too many rows for Miri")]
fn consecutive_rows_do_not_depend_on_each_other_in_any_window() {
    for (name, rows) in epochs() {
        let len = rows.len() as u64;
        for lag in [1, 2, 256] {
            let pairs = rows.iter().zip(&rows[lag..]).map(|(a, b)| (window(*a, len, 32), window(*b, len, 32)));
            let z = independence(pairs, 32);
            assert!(z.abs() < LIMIT, "{name}, lag {lag}: {z}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "draws too many rows for Miri")]
fn epochs_and_seeds_are_independent_of_each_other() {
    for len in [65_537, 131_071] {
        let base = shuffled(len, 0, 0);
        for (seed, epoch) in [(0, 1), (0, 2), (0, 1 << 32), (1, 0), (1, 1), (1 << 32, 0), (u64::MAX, 0)] {
            let other = shuffled(len, seed, epoch);
            let z = correlation(&floats(&base), &floats(&other));
            assert!(z.abs() < LIMIT, "{len}, seed {seed}, epoch {epoch}: {z}");
            let pairs = base.iter().zip(&other).map(|(a, b)| (window(*a, len, 32), window(*b, len, 32)));
            let z = independence(pairs, 32);
            assert!(z.abs() < LIMIT, "{len}, seed {seed}, epoch {epoch}: {z}");
            // Agreements of two random permutations are Poisson with mean 1.
            let agreements = base.iter().zip(&other).filter(|(a, b)| a == b).count();
            assert!(agreements < 10, "{len}, seed {seed}, epoch {epoch}: {agreements} rows stay");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "draws too many rows for Miri")]
fn the_beginning_of_a_very_long_order_is_as_random_as_a_whole_one() {
    for len in [1_000_000_000, (1 << 40) + 7, (1 << 63) - 1] {
        let feistel = Feistel::new(len, PermutationKey::order_v1(3, 0).rounds());
        let mut rows: Vec<u64> = (0..50_000).collect();
        feistel.forward_all(&mut rows);
        let values = floats(&rows);
        for lag in 1..=32 {
            let z = correlation(&values[..values.len() - lag], &values[lag..]);
            assert!(z.abs() < LIMIT, "{len}, lag {lag}: {z}");
        }
        let pairs = rows.iter().zip(&rows[1..]).map(|(a, b)| (window(*a, len, 32), window(*b, len, 32)));
        let z = independence(pairs, 32);
        assert!(z.abs() < LIMIT, "{len}: {z}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "draws too many rows for Miri")]
fn windows_anywhere_in_a_very_long_order_are_as_random_as_a_whole_one() {
    for len in [1_000_000_007, 1_000_000_000_000] {
        let feistel = Feistel::new(len, PermutationKey::order_v1(4, 2).rounds());
        for first in [len / 3, len / 2, len - 50_000] {
            let mut rows: Vec<u64> = (first..first + 50_000).collect();
            feistel.forward_all(&mut rows);
            let z = uniformity(rows.iter().map(|row| window(*row, len, 256)), 256);
            assert!(z.abs() < LIMIT, "{len} at {first}: {z}");
            let values = floats(&rows);
            for lag in [1, 2, 3, 64, 4096] {
                let z = correlation(&values[..values.len() - lag], &values[lag..]);
                assert!(z.abs() < LIMIT, "{len} at {first}, lag {lag}: {z}");
            }
        }
    }
}

#[test]
fn positions_and_rows_of_very_long_orders_are_inverses_of_each_other() {
    for exponent in 17..=40 {
        for len in [(1 << exponent) - 1, 1 << exponent, (1 << exponent) + 1, 10_u64.pow(exponent * 3 / 10)] {
            let order = Global::new(len, 11).unwrap().epoch(u64::from(exponent)).unwrap();
            for x in (0..50).map(|i| i * (len / 50)).chain([len - 1]) {
                assert_eq!(order.position(order.row(x).unwrap()), Some(x), "{len}");
                assert_eq!(order.row(order.position(x).unwrap()), Some(x), "{len}");
            }
        }
    }
}

/// Fixed points over many keys: their number is Poisson with mean 1, so the sum over 2,000 keys spreads by 45.
#[test]
#[cfg_attr(miri, ignore = "draws too many rows for Miri")]
fn rows_stay_where_they_are_as_often_as_chance_has_it() {
    let keys = 2_000;
    let len = 300;
    let fixed: usize =
        (0..keys).map(|key| (0..len).zip(shuffled(len, key, 1)).filter(|(q, row)| q == row).count()).sum();
    let z = (fixed as f64 - keys as f64) / (keys as f64).sqrt();
    assert!(z.abs() < LIMIT, "{z}");
}
