//! Statistics that are standard normal numbers by chance: a bad shuffle is many standard deviations off.

/// The correlation of two lists of equal length, multiplied by the square root of the length: standard normal for long
/// lists that have nothing to do with each other. O(length).
///
/// A longer list is cut to the length of the other. NaN where a list is constant.
pub(super) fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let len = a.len().min(b.len());
    let a = a.get(..len).unwrap_or_default();
    let b = b.get(..len).unwrap_or_default();
    let n = len as f64;
    let mean_a = a.iter().sum::<f64>() / n;
    let mean_b = b.iter().sum::<f64>() / n;
    let mut ab = 0.0;
    let mut aa = 0.0;
    let mut bb = 0.0;
    for (a, b) in a.iter().zip(b) {
        let a = a - mean_a;
        let b = b - mean_b;
        (ab, aa, bb) = (ab + a * b, aa + a * a, bb + b * b);
    }
    ab / (aa * bb).sqrt() * n.sqrt()
}

/// Whether values fall evenly into `buckets` buckets: Pearson's chi-square, brought to a standard normal number. Values
/// of `buckets` or more are left out. O(values + buckets).
pub(super) fn uniformity(values: impl Iterator<Item = usize>, buckets: usize) -> f64 {
    let mut counts = vec![0_u64; buckets];
    let mut total = 0.0;
    for value in values {
        if let Some(count) = counts.get_mut(value) {
            *count += 1;
            total += 1.0;
        }
    }
    let expected = total / buckets as f64;
    let sum: f64 = counts.iter().map(|count| (*count as f64 - expected).powi(2) / expected).sum();
    normal(sum, buckets as f64 - 1.0)
}

/// Whether the first of a pair says anything about the second: Pearson's chi-square of a table of `buckets` ×
/// `buckets`, brought to a standard normal number. Pairs with a number of `buckets` or more are left out. O(pairs +
/// buckets²).
pub(super) fn independence(pairs: impl Iterator<Item = (usize, usize)>, buckets: usize) -> f64 {
    let mut counts = vec![0_u64; buckets * buckets];
    let mut rows = vec![0_u64; buckets];
    let mut columns = vec![0_u64; buckets];
    let mut total = 0.0;
    for (row, column) in pairs.filter(|(row, column)| *row < buckets && *column < buckets) {
        counts[row * buckets + column] += 1;
        rows[row] += 1;
        columns[column] += 1;
        total += 1.0;
    }
    let mut sum = 0.0;
    for (row, counts) in rows.iter().zip(counts.chunks(buckets.max(1))) {
        for (column, count) in columns.iter().zip(counts) {
            let expected = *row as f64 * *column as f64 / total;
            if expected > 0.0 {
                sum += (*count as f64 - expected).powi(2) / expected;
            }
        }
    }
    let freedom = buckets as f64 - 1.0;
    normal(sum, freedom * freedom)
}

/// Which of `buckets` equal windows of `[0, len)` holds `x`; `buckets` if none.
pub(super) fn window(x: u64, len: u64, buckets: usize) -> usize {
    if x >= len {
        return buckets;
    }
    (u128::from(x) * buckets as u128 / u128::from(len)) as usize
}

/// A chi-square number as a standard normal one, by the cube root: E. B. Wilson, M. M. Hilferty, *The distribution of
/// chi-square*, PNAS 17 (1931). Good also far out, where chi-square with few degrees of freedom is nothing like normal.
fn normal(chi_square: f64, freedom: f64) -> f64 {
    let spread = 2.0 / (9.0 * freedom);
    ((chi_square / freedom).cbrt() - (1.0 - spread)) / spread.sqrt()
}
