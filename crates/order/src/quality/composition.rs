//! What batches are made of, against what they would be made of by chance.

use std::collections::BTreeMap;

use rowdex_base::error::Result;

/// The classes, such as labels or row groups, that the batches of an epoch are made of. What is `expected` is the mean
/// over all ways to draw a batch from the rows of the epoch without replacement.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Composition {
    /// How many classes there are in the whole epoch.
    pub classes: u64,
    /// How many classes a batch has, on average.
    pub distinct: f64,
    /// How many it would have by chance: `Σ 1 − C(n − m, B) / C(n, B)` over the classes, `m` being the rows of a class,
    /// `n` all rows and `B` the rows of a batch.
    pub expected_distinct: f64,
    /// The entropy `−Σ p log₂ p` of a batch in bits, `p` being the shares of the classes, on average.
    pub entropy: f64,
    /// The entropy that a batch would have by chance, from the hypergeometric distribution of each class. It is less
    /// than that of the whole, as a batch has no room for every class in its share.
    pub expected_entropy: f64,
    /// The entropy of the whole epoch in bits.
    pub whole_entropy: f64,
    /// `Σ (x − Bm/n)² / (Bm/n)` over the classes, `x` being the rows of a class in a batch, on average, divided by what
    /// it would be by chance: (classes − 1) · (n − B) / (n − 1). Above 1 batches are more one-sided than chance makes
    /// them, below they are more even. `None` where chance leaves no choice: with one class, or one batch.
    pub chi_square: Option<f64>,
    /// The correlation of a batch with the next one in their deviations from the whole, classes weighted as in
    /// chi-square. Chance gives 0, or −1 / (batches − 1) to be exact; batches that resemble their neighbours up to 1.
    /// `None` with fewer than three batches, or if no batch deviates.
    pub correlation: Option<f64>,
}

/// A [`Composition`] while batches are added.
#[derive(Debug)]
pub(super) struct Composed {
    totals: Vec<u64>,
    rows: u64,
    batch_size: u64,
    batches: u64,
    /// Rows of each class in the batch at hand and in the one before, and which classes these are.
    counts: Vec<u64>,
    before: Vec<u64>,
    classes: Vec<usize>,
    classes_before: Vec<usize>,
    distinct: u64,
    entropy: f64,
    deviation: f64,
    codeviation: f64,
}

impl Composed {
    /// Of classes with so many rows each in the whole epoch.
    pub(super) fn new(totals: Vec<u64>, batch_size: u64) -> Self {
        let counts = vec![0; totals.len()];
        let before = vec![0; totals.len()];
        let rows = totals.iter().sum();
        Self {
            totals,
            rows,
            batch_size,
            batches: 0,
            counts,
            before,
            classes: Vec::new(),
            classes_before: Vec::new(),
            distinct: 0,
            entropy: 0.0,
            deviation: 0.0,
            codeviation: 0.0,
        }
    }

    /// Adds a full batch; `class_of` gives numbers below that of totals.
    pub(super) fn add(&mut self, rows: &[u64], class_of: impl Fn(u64) -> Result<usize>) -> Result<()> {
        std::mem::swap(&mut self.counts, &mut self.before);
        std::mem::swap(&mut self.classes, &mut self.classes_before);
        self.classes.drain(..).for_each(|class| self.counts[class] = 0);
        for row in rows {
            let class = class_of(*row)?;
            if self.counts[class] == 0 {
                self.classes.push(class);
            }
            self.counts[class] += 1;
        }
        self.distinct += self.classes.len() as u64;
        // With e = Bm/n due of a class: Σ (x − e)² / e = Σ x² / e − B and Σ (x − e)(y − e) / e = Σ xy / e − B.
        let size = self.batch_size as f64;
        let share = self.batch_size as f64 / self.rows as f64;
        let mut squares = 0.0;
        let mut products = 0.0;
        for &class in &self.classes {
            let count = self.counts[class] as f64;
            let due = self.totals[class] as f64 * share;
            squares += count * count / due;
            products += count * self.before[class] as f64 / due;
            self.entropy += surprise(count / size);
        }
        self.deviation += squares - size;
        if self.batches > 0 {
            self.codeviation += products - size;
        }
        self.batches += 1;
        Ok(())
    }

    pub(super) fn finish(self) -> Composition {
        let batches = self.batches as f64;
        let rows = self.rows as f64;
        let size = self.batch_size as f64;
        let mut sizes = BTreeMap::new();
        for total in self.totals.iter().filter(|total| **total > 0) {
            *sizes.entry(*total).or_insert(0_u64) += 1;
        }
        let mut classes = 0;
        let mut expected_distinct = 0.0;
        let mut expected_entropy = 0.0;
        let mut whole_entropy = 0.0;
        for (total, count) in sizes {
            let (none, entropy) = expectation(self.rows, total, self.batch_size);
            classes += count;
            expected_distinct += count as f64 * (1.0 - none);
            expected_entropy += count as f64 * entropy;
            whole_entropy += count as f64 * surprise(total as f64 / rows);
        }
        let freedom = (classes as f64 - 1.0) * (rows - size) / (rows - 1.0);
        let mean = |sum: f64| if self.batches == 0 { 0.0 } else { sum / batches };
        let deviation = mean(self.deviation);
        let pairs = batches - 1.0;
        Composition {
            classes,
            distinct: mean(self.distinct as f64),
            expected_distinct,
            entropy: mean(self.entropy),
            expected_entropy,
            whole_entropy,
            chi_square: (freedom > 0.0).then(|| deviation / freedom),
            correlation: (self.batches > 2 && deviation > 1e-9).then(|| self.codeviation / pairs / deviation),
        }
    }
}

fn surprise(share: f64) -> f64 {
    if share > 0.0 { -share * share.log2() } else { 0.0 }
}

/// The probability that a batch of `size` of `rows` rows has none of a class of `total` rows, and what the class adds
/// to the batch's entropy on average.
///
/// Weights of the hypergeometric distribution are followed from its mode to both sides until they no longer count, so
/// no factorial is needed: O(√size) steps.
fn expectation(rows: u64, total: u64, size: u64) -> (f64, f64) {
    let n = rows as f64;
    let m = total as f64;
    let b = size as f64;
    let least = (total + size).saturating_sub(rows);
    let most = total.min(size);
    let mode = (((b + 1.0) * (m + 1.0) / (n + 2.0)) as u64).clamp(least, most);
    // weight(x + 1) / weight(x)
    let ratio = |x: u64| {
        let x = x as f64;
        (m - x) * (b - x) / ((x + 1.0) * (n - m - b + x + 1.0))
    };
    let mut weights = 0.0;
    let mut entropy = 0.0;
    let mut none = 0.0;
    let mut add = |x: u64, weight: f64| {
        weights += weight;
        entropy += weight * surprise(x as f64 / b);
        if x == 0 {
            none = weight;
        }
        weight > 1e-18
    };
    let mut x = mode;
    let mut weight = 1.0;
    while add(x, weight) && x < most {
        weight *= ratio(x);
        x += 1;
    }
    let mut x = mode;
    let mut weight = 1.0;
    while x > least {
        x -= 1;
        weight /= ratio(x);
        if !add(x, weight) {
            break;
        }
    }
    (none / weights, entropy / weights)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C(n, k), exact below 2^53.
    fn choose(n: u64, k: u64) -> f64 {
        if k > n { 0.0 } else { (0..k).fold(1.0, |product, i| product * (n - i) as f64 / (i + 1) as f64) }
    }

    #[test]
    fn expectations_are_those_of_the_hypergeometric_distribution() {
        for rows in 1..25 {
            for total in 1..=rows {
                for size in 1..=rows {
                    let all = choose(rows, size);
                    let weight = |x| choose(total, x) * choose(rows - total, size - x) / all;
                    let entropy: f64 = (0..=size).map(|x| weight(x) * surprise(x as f64 / size as f64)).sum();
                    let (none, found) = expectation(rows, total, size);
                    assert!((none - weight(0)).abs() < 1e-12, "{rows} {total} {size}: {none}");
                    assert!((found - entropy).abs() < 1e-12, "{rows} {total} {size}: {found} {entropy}");
                }
            }
        }
    }

    #[test]
    fn huge_classes_have_expectations_too() {
        let (none, entropy) = expectation(1 << 62, 1 << 61, 1 << 20);
        assert!(none < 1e-15 && (entropy - 0.5).abs() < 1e-5, "{none} {entropy}");
        let (none, _) = expectation(1_000_000_000_000, 1000, 1_000_000);
        assert!((none - (-0.001_f64).exp()).abs() < 1e-9, "{none}");
    }

    #[test]
    fn batches_like_the_whole_have_no_deviation() {
        let mut composed = Composed::new(vec![50, 50], 10);
        for _ in 0..10 {
            composed.add(&[0, 0, 0, 0, 0, 1, 1, 1, 1, 1], |row| Ok(row as usize)).unwrap();
        }
        let found = composed.finish();
        assert_eq!((found.entropy, found.whole_entropy, found.distinct), (1.0, 1.0, 2.0));
        assert_eq!((found.chi_square, found.correlation), (Some(0.0), None));
    }

    #[test]
    fn batches_that_alternate_are_anticorrelated() {
        let mut composed = Composed::new(vec![50, 50], 10);
        for batch in 0..10 {
            composed.add(&[batch % 2; 10], |row| Ok(row as usize)).unwrap();
        }
        assert!((composed.finish().correlation.unwrap() + 1.0).abs() < 1e-12);
    }
}
