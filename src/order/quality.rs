//! Whether the orders look random: statistics that a bad shuffle fails, with Fisher-Yates as the control.
//!
//! Every statistic is scaled to a standard normal one; keys are fixed, so a test either always passes or always fails.

use super::feistel::Feistel;
use super::fisher_yates::FisherYates;
use super::permutation::Key;

/// Beyond five standard deviations: once in 1.7 million statistics, of which there are a few thousand here.
const LIMIT: f64 = 5.0;

/// Lengths that leave odd and even halves, just after and just before a power of two.
const LENGTHS: [u64; 4] = [65_537, 100_000, 131_071, 131_073];

/// One shuffled epoch as a list.
fn shuffled(len: u64, seed: u64, epoch: u64) -> Vec<u64> {
    let feistel = Feistel::new(len, Key::order_v1(seed, epoch).rounds());
    let mut rows: Vec<u64> = (0..len).collect();
    feistel.forward_all(&mut rows);
    rows
}

fn control(seed: u64, epoch: u64) -> Vec<u64> {
    let table = FisherYates::new(1 << 16, Key::order_v1(seed, epoch).chacha());
    (0..1 << 16).filter_map(|x| table.forward(x)).collect()
}

/// Every list that the statistics of whole epochs are taken over.
fn epochs() -> impl Iterator<Item = (String, Vec<u64>)> {
    let feistel = LENGTHS
        .into_iter()
        .flat_map(|len| (0..2).map(move |seed| (format!("feistel of {len}, seed {seed}"), shuffled(len, seed, 0))));
    feistel.chain((0..2).map(|seed| (format!("fisher-yates, seed {seed}"), control(seed, 0))))
}

/// Correlation of `a` and `b`, scaled by what it spreads for independent lists.
fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let n = a.len() as f64;
    let (mean_a, mean_b) = (a.iter().sum::<f64>() / n, b.iter().sum::<f64>() / n);
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        let (a, b) = (a - mean_a, b - mean_b);
        (ab, aa, bb) = (ab + a * b, aa + a * a, bb + b * b);
    }
    ab / (aa * bb).sqrt() * n.sqrt()
}

/// Chi-square of a `buckets` × `buckets` table over pairs, each below `len` after division by `len / buckets`, scaled by
/// the spread of its (buckets - 1)^2 degrees of freedom.
fn chi_square(pairs: impl Iterator<Item = (usize, usize)>, buckets: usize) -> f64 {
    let mut counts = vec![0_u32; buckets * buckets];
    let (mut rows, mut columns) = (vec![0_u32; buckets], vec![0_u32; buckets]);
    let mut total = 0.0;
    for (row, column) in pairs {
        counts[row * buckets + column] += 1;
        rows[row] += 1;
        columns[column] += 1;
        total += 1.0;
    }
    let mut sum = 0.0;
    for row in 0..buckets {
        for column in 0..buckets {
            let expected = f64::from(rows[row]) * f64::from(columns[column]) / total;
            sum += (f64::from(counts[row * buckets + column]) - expected).powi(2) / expected;
        }
    }
    let freedom = ((buckets - 1) * (buckets - 1)) as f64;
    (sum - freedom) / (2.0 * freedom).sqrt()
}

fn floats(rows: &[u64]) -> Vec<f64> {
    rows.iter().map(|row| *row as f64).collect()
}

/// Which of `buckets` equal windows of `[0, len)` holds `x`.
fn window(x: u64, len: u64, buckets: usize) -> usize {
    (u128::from(x) * buckets as u128 / u128::from(len)) as usize
}

#[test]
fn rows_do_not_depend_on_the_rows_shortly_before() {
    for (name, rows) in epochs() {
        let rows = floats(&rows);
        for lag in 1..=64 {
            let z = correlation(&rows[..rows.len() - lag], &rows[lag..]);
            assert!(z.abs() < LIMIT, "{name}, lag {lag}: {z}");
        }
    }
}

#[test]
fn every_window_of_positions_draws_evenly_from_all_rows() {
    for (name, rows) in epochs() {
        let len = rows.len() as u64;
        for buckets in [8, 64] {
            let pairs = (0..len).zip(&rows).map(|(q, row)| (window(q, len, buckets), window(*row, len, buckets)));
            let z = chi_square(pairs, buckets);
            assert!(z.abs() < LIMIT, "{name}, {buckets} windows: {z}");
        }
    }
}

#[test]
fn low_bits_of_rows_do_not_depend_on_low_bits_of_positions() {
    for (name, rows) in epochs() {
        for buckets in [2, 16, 64] {
            let pairs = rows.iter().enumerate().map(|(q, row)| (q % buckets, *row as usize % buckets));
            let z = chi_square(pairs, buckets);
            assert!(z.abs() < LIMIT, "{name}, modulo {buckets}: {z}");
        }
    }
}

#[test]
fn consecutive_rows_do_not_depend_on_each_other_in_any_window() {
    for (name, rows) in epochs() {
        let len = rows.len() as u64;
        for lag in [1, 2, 256] {
            let pairs = rows.iter().zip(&rows[lag..]).map(|(a, b)| (window(*a, len, 32), window(*b, len, 32)));
            let z = chi_square(pairs, 32);
            assert!(z.abs() < LIMIT, "{name}, lag {lag}: {z}");
        }
    }
}

#[test]
fn epochs_and_seeds_are_independent_of_each_other() {
    for len in [65_537, 131_071] {
        let base = shuffled(len, 0, 0);
        for (seed, epoch) in [(0, 1), (0, 2), (0, 1 << 32), (1, 0), (1, 1), (1 << 32, 0), (u64::MAX, 0)] {
            let other = shuffled(len, seed, epoch);
            let z = correlation(&floats(&base), &floats(&other));
            assert!(z.abs() < LIMIT, "{len}, seed {seed}, epoch {epoch}: {z}");
            let pairs = base.iter().zip(&other).map(|(a, b)| (window(*a, len, 32), window(*b, len, 32)));
            let z = chi_square(pairs, 32);
            assert!(z.abs() < LIMIT, "{len}, seed {seed}, epoch {epoch}: {z}");
            // Agreements of two random permutations are Poisson with mean 1.
            let agreements = base.iter().zip(&other).filter(|(a, b)| a == b).count();
            assert!(agreements < 10, "{len}, seed {seed}, epoch {epoch}: {agreements} rows stay");
        }
    }
}

#[test]
fn the_beginning_of_a_very_long_order_is_as_random_as_a_whole_one() {
    for len in [1_000_000_000, (1 << 40) + 7, (1 << 63) - 1] {
        let feistel = Feistel::new(len, Key::order_v1(3, 0).rounds());
        let mut rows: Vec<u64> = (0..50_000).collect();
        feistel.forward_all(&mut rows);
        let values = floats(&rows);
        for lag in 1..=32 {
            let z = correlation(&values[..values.len() - lag], &values[lag..]);
            assert!(z.abs() < LIMIT, "{len}, lag {lag}: {z}");
        }
        let pairs = rows.iter().zip(&rows[1..]).map(|(a, b)| (window(*a, len, 32), window(*b, len, 32)));
        let z = chi_square(pairs, 32);
        assert!(z.abs() < LIMIT, "{len}: {z}");
    }
}

/// Fixed points over many keys: their number is Poisson with mean 1, so the sum over 2,000 keys spreads by 45.
#[test]
fn rows_stay_where_they_are_as_often_as_chance_has_it() {
    let (keys, len) = (2_000, 300);
    let fixed: usize =
        (0..keys).map(|key| (0..len).zip(shuffled(len, key, 1)).filter(|(q, row)| q == row).count()).sum();
    let z = (fixed as f64 - keys as f64) / (keys as f64).sqrt();
    assert!(z.abs() < LIMIT, "{z}");
}
