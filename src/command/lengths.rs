//! How long the rows of an index are.

use rowdex::Index;
use rowdex::order::Lengths;
use serde_json::{Value, json};

use crate::command::failure::Failure;

/// Which shares of the rows are reported.
const QUANTILES: [f64; 7] = [0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0];

/// Rows that are looked at; of more, a sample of this size.
const ROWS: u64 = 1 << 20;

/// All lengths of an index.
pub(crate) fn told(index: &Index) -> Result<Vec<Value>, Failure> {
    let one = |name: &str| {
        let lengths = index.lengths(name)?;
        let mut sampled = sampled(index, name)?;
        sampled.sort_unstable();
        // The length that this share of the rows is not longer than.
        let quantile = |share: f64| match sampled.get(((share * sampled.len() as f64).ceil() as usize).max(1) - 1) {
            _ if share >= 1.0 => lengths.longest(),
            length => length.copied().unwrap_or_default(),
        };
        Ok(json!({
            "name": name,
            "of": lengths.of().name(),
            "sum": lengths.sum(),
            "longest": lengths.longest(),
            "mean": lengths.sum() as f64 / index.len().max(1) as f64,
            "median": quantile(0.5),
            "quantiles": QUANTILES.map(|share| json!({"share": share, "length": quantile(share)})),
            "fingerprint": format!("{:016x}", lengths.fingerprint()),
        }))
    };
    index.lengths_columns()?.into_iter().map(one).collect()
}

/// The lengths of rows that are evenly spread over all.
pub(crate) fn sampled(index: &Index, name: &str) -> Result<Vec<u64>, Failure> {
    let lengths = index.lengths(name)?;
    let stride = usize::try_from(index.len().div_ceil(ROWS).max(1)).unwrap_or(usize::MAX);
    let rows: Vec<u64> = (0..index.len()).step_by(stride).collect();
    let mut found = vec![0; rows.len()];
    lengths.fill(&rows, &mut found)?;
    Ok(found)
}
