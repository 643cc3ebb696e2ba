//! Whether the statistics of the global order are distributed as those of random permutations are, over many seeds.
//!
//! `cargo bench --bench quality [-- SEEDS]` prints, for each statistic and length, the mean of its square and how far
//! out the most extreme one was. Each is a standard normal number by chance, so the mean of squares should be 1, give
//! or take the uncertainty in the last column, which for lengths up to 2^16 is what Fisher-Yates, the control, has as
//! well.

mod statistics;

use std::iter::zip;

use rowdex::order::{Global, Order};
use statistics::{correlation, independence, uniformity, window};

const SEEDS: u64 = 300;

/// Up to 2^16 rows it is Fisher-Yates; beyond, halves of the network are 8 + 9, 8 + 9, 8 + 9 and 9 + 9 bits.
const LENGTHS: [u64; 5] = [65_536, 65_537, 100_000, 131_072, 262_143];

const LAGS: [usize; 11] = [1, 2, 3, 5, 8, 16, 64, 255, 256, 257, 1024];

/// The statistics of one epoch, one or many numbers for each name.
fn statistics(rows: &[u64], next: &[u64]) -> Vec<(&'static str, Vec<f64>)> {
    let len = rows.len() as u64;
    let place = |row: &u64| window(*row, len, 64);
    let values: Vec<f64> = rows.iter().map(|row| *row as f64).collect();
    let lags = |statistic: &dyn Fn(usize) -> f64| LAGS.iter().map(|lag| statistic(*lag)).collect();
    let step = |(a, b): (&u64, &u64)| window((b + len - a) % len - 1, len - 1, 64);
    vec![
        ("correlation at 11 lags", lags(&|lag| correlation(&values, &values[lag..]))),
        ("differences at 11 lags, 64", lags(&|lag| uniformity(zip(rows, &rows[lag..]).map(step), 64))),
        ("rows by position, 64 x 64", vec![independence(zip(0.., rows).map(|(q, row)| (place(&q), place(row))), 64)]),
        (
            "low 6 bits by low 6 bits",
            vec![independence(zip(0_usize.., rows).map(|(q, row)| (q % 64, (*row % 64) as usize)), 64)],
        ),
        (
            "rows by the row before, 64 x 64",
            vec![independence(zip(rows, &rows[1..]).map(|(a, b)| (place(a), place(b))), 64)],
        ),
        ("epoch by next epoch, 64 x 64", vec![independence(zip(rows, next).map(|(a, b)| (place(a), place(b))), 64)]),
        ("ascents", vec![ascents(rows)]),
    ]
}

/// Rows that are greater than the one before are half of them, with a variance of (n + 1) / 12.
fn ascents(rows: &[u64]) -> f64 {
    let n = rows.len() as f64;
    let count = zip(rows, &rows[1..]).filter(|(a, b)| a < b).count() as f64;
    (count - (n - 1.0) / 2.0) / ((n + 1.0) / 12.0).sqrt()
}

fn epoch(len: u64, seed: u64, epoch: u64) -> rowdex::Result<Vec<u64>> {
    let mut rows = vec![0; len as usize];
    Global::new(len, seed)?.epoch(epoch)?.fill(0, &mut rows);
    Ok(rows)
}

fn main() -> rowdex::Result<()> {
    let given = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    let seeds = given.unwrap_or(if std::env::args().any(|argument| argument == "--test") { 2 } else { SEEDS });

    let mut names = Vec::new();
    let mut found: Vec<Vec<Vec<f64>>> = Vec::new();
    for (column, len) in LENGTHS.into_iter().enumerate() {
        for seed in 0..seeds {
            for (line, (name, values)) in
                statistics(&epoch(len, seed, 0)?, &epoch(len, seed, 1)?).into_iter().enumerate()
            {
                if line == names.len() {
                    names.push(name);
                    found.push(vec![Vec::new(); LENGTHS.len()]);
                }
                found[line][column].extend(values);
            }
        }
    }

    println!("E z² (greatest |z|) over {seeds} seeds; 1 by chance");
    print!("{:<32}", "");
    LENGTHS.iter().for_each(|len| print!("{len:>15}"));
    println!("{:>10}", "+-");
    for (name, columns) in zip(names, found) {
        print!("{name:<32}");
        for values in &columns {
            let mean = values.iter().map(|z| z * z).sum::<f64>() / values.len() as f64;
            let most = values.iter().fold(0.0, |most: f64, z| most.max(z.abs()));
            print!("{:>15}", format!("{mean:.2} ({most:.1})"));
        }
        println!("{:>10.3}", (2.0 / columns[0].len() as f64).sqrt());
    }
    Ok(())
}
