//! How random an order is, in numbers that compare orders with each other and with chance.
//!
//! [`measure`] goes through an epoch batch by batch and says how far rows move, whether neighbouring batches resemble
//! each other, and what batches are made of: of how many row groups, and of which labels, against what a batch drawn at
//! random without replacement would be made of. A trainer who chooses between a faster and a more random order chooses
//! by these.
//!
//! | measure | definition | chance | a sequential order |
//! | --- | --- | --- | --- |
//! | [`displacement`](Quality::displacement) | mean of \|row − position\| / n | 1/3 | 0 |
//! | [`row_correlation`](Quality::row_correlation) | correlation of the mean row id of a batch with that of the next | 0 | 1 |
//! | [`distinct`](Composition::distinct) | mean number of classes in a batch | [`expected_distinct`](Composition::expected_distinct) | few |
//! | [`entropy`](Composition::entropy) | mean entropy of the classes in a batch, in bits | [`expected_entropy`](Composition::expected_entropy) | low |
//! | [`chi_square`](Composition::chi_square) | mean chi-square of the classes in a batch, per degree of freedom | 1 | high |
//! | [`correlation`](Composition::correlation) | correlation of the classes of a batch with those of the next | 0 | high |
//!
//! The last four are taken over row groups, and over labels where there are any.
//!
//! [`correlation`], [`uniformity`] and [`independence`] are the statistics that the built-in orders are tested with,
//! scaled so that chance gives a standard normal number.

#[cfg(test)]
mod battery;
mod composition;
mod statistics;

use self::composition::Composed;
pub use self::composition::Composition;
pub use self::statistics::{correlation, independence, uniformity, window};
use super::{EpochOrder, Uses};
use rowdex_base::error::{Error, ErrorKind, Result};

/// What one epoch of an order is like, from [`measure`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Quality {
    /// Rows per batch: what was asked for, or all rows if there are fewer.
    pub batch_size: u64,
    /// How many full batches there are. The rows left over count for [`displacement`](Self::displacement) alone.
    pub batches: u64,
    /// The mean distance of a row id from the position it is served at, as a share of the number of positions. A
    /// uniformly drawn permutation of `n` rows has 1/3 − 1/(3n²).
    pub displacement: f64,
    /// The correlation of the mean row id of a batch with that of the next batch: near 1 while an order drifts through
    /// the rows, near 0 by chance. `None` with fewer than three batches, or if all means are the same.
    pub row_correlation: Option<f64>,
    /// The row groups that batches are made of.
    pub groups: Composition,
    /// The labels that batches are made of, if there are labels.
    pub labels: Option<Composition>,
}

/// Measures an epoch cut into batches of `batch_size` consecutive positions: with `R` ranks, `R` times the rows per
/// rank for what a step of all ranks trains on.
///
/// `group_rows` are the rows of each row group in the order of row ids. `labels` has one class for every row id,
/// numbered from 0 without large gaps.
///
/// Takes O(positions · log(row groups)) time, twice that for orders that are no permutation, and O(row groups + classes
/// + batch size) memory.
///
/// # Errors
///
/// `InvalidArgument` if the batch size is 0, or if the order serves a row that is in no row group or has no label, and
/// `TooLarge` if there is no memory for a batch.
pub fn measure(order: &dyn EpochOrder, batch_size: u64, group_rows: &[u64], labels: Option<&[u32]>) -> Result<Quality> {
    if batch_size == 0 {
        return Err(Error::new(ErrorKind::InvalidArgument, "a batch size of 0").with_hint("use 1 or more"));
    }
    let batch_size = batch_size.min(order.len());
    let mut batch = Vec::new();
    let too_large = || Error::new(ErrorKind::TooLarge, format!("no memory for a batch of {batch_size} row ids"));
    let room = usize::try_from(batch_size).map_err(|_| too_large())?;
    batch.try_reserve_exact(room).map_err(|_| too_large())?;
    batch.resize(room, 0);

    let members = RowLabels { ends: ends(group_rows), labels };
    let (group_totals, label_totals) = members.totals(order, group_rows, &mut batch)?;
    let mut groups = Composed::new(group_totals, batch_size);
    let mut labelled = labels.map(|_| Composed::new(label_totals, batch_size));
    let mut drift = Drift::default();
    let mut distance = 0_u128;
    let len = order.len();
    each_batch(order, &mut batch, |first, rows| {
        let mut sum = 0.0;
        for (position, row) in (first..).zip(rows) {
            distance += u128::from(row.abs_diff(position));
            sum += *row as f64;
        }
        if rows.len() as u64 == batch_size {
            drift.add(sum / (batch_size as f64 * len as f64));
            groups.add(rows, |row| members.group_of(row))?;
            if let Some(labelled) = &mut labelled {
                labelled.add(rows, |row| members.label_of(row))?;
            }
        }
        Ok(())
    })?;
    Ok(Quality {
        batch_size,
        batches: drift.count,
        displacement: if len == 0 { 0.0 } else { distance as f64 / len as f64 / len as f64 },
        row_correlation: drift.correlation(),
        groups: groups.finish(),
        labels: labelled.map(Composed::finish),
    })
}

/// Which row group and which class a row is of.
struct RowLabels<'a> {
    /// Where each row group ends.
    ends: Vec<u64>,
    labels: Option<&'a [u32]>,
}

impl RowLabels<'_> {
    fn group_of(&self, row: u64) -> Result<usize> {
        let group = self.ends.partition_point(|end| *end <= row);
        if group < self.ends.len() { Ok(group) } else { Err(beyond(row, "is in no row group")) }
    }

    fn label_of(&self, row: u64) -> Result<usize> {
        let label = usize::try_from(row).ok().and_then(|row| self.labels?.get(row));
        label.map(|label| *label as usize).ok_or_else(|| beyond(row, "has no label"))
    }

    /// How many rows of each row group and of each class the epoch serves.
    fn totals(&self, order: &dyn EpochOrder, group_rows: &[u64], batch: &mut [u64]) -> Result<(Vec<u64>, Vec<u64>)> {
        let labels = self.labels.unwrap_or_default();
        let classes = labels.iter().max().map_or(0, |most| *most as usize + 1);
        let mut by_label = vec![0; classes];
        let labels_all = self.labels.is_none() || labels.len() as u64 == order.len();
        if order.uses() == Uses::Once && labels_all && self.ends.last() == Some(&order.len()) {
            labels.iter().for_each(|label| by_label[*label as usize] += 1);
            return Ok((group_rows.to_vec(), by_label));
        }
        let mut by_group = vec![0; group_rows.len()];
        each_batch(order, batch, |_, rows| {
            for row in rows {
                by_group[self.group_of(*row)?] += 1;
                if self.labels.is_some() {
                    by_label[self.label_of(*row)?] += 1;
                }
            }
            Ok(())
        })?;
        Ok((by_group, by_label))
    }
}

/// Calls `visit` with the first position and the rows of every batch; the last one may be short.
fn each_batch(
    order: &dyn EpochOrder,
    batch: &mut [u64],
    mut visit: impl FnMut(u64, &[u64]) -> Result<()>,
) -> Result<()> {
    let mut first = 0;
    while first < order.len() {
        let count = order.fill(first, batch);
        if count == 0 {
            let message = format!("an order of {} positions has no row at position {first}", order.len());
            return Err(
                Error::new(ErrorKind::Internal, message).with_hint("the implementation of this EpochOrder is at fault")
            );
        }
        visit(first, batch.get(..count).unwrap_or_default())?;
        first += count as u64;
    }
    Ok(())
}

/// The row id after the last of each row group.
fn ends(group_rows: &[u64]) -> Vec<u64> {
    let add = |end: &mut u64, rows: &u64| {
        *end = end.saturating_add(*rows);
        Some(*end)
    };
    group_rows.iter().scan(0, add).collect()
}

fn beyond(row: u64, what: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("row {row} {what}"))
        .with_hint("measure an order with the row groups and labels of the dataset that it is of")
}

/// The autocorrelation of a series at lag 1, in no memory.
#[derive(Debug, Default)]
struct Drift {
    count: u64,
    sum: f64,
    squares: f64,
    products: f64,
    first: f64,
    last: f64,
}

impl Drift {
    fn add(&mut self, value: f64) {
        // Around the middle of what values there are, so that squares keep their digits.
        let value = value - 0.5;
        match self.count {
            0 => self.first = value,
            _ => self.products += self.last * value,
        }
        self.sum += value;
        self.squares += value * value;
        self.last = value;
        self.count += 1;
    }

    fn correlation(&self) -> Option<f64> {
        let count = self.count as f64;
        let mean = self.sum / count;
        let variance = self.squares / count - mean * mean;
        let pairs = count - 1.0;
        let products = self.products - mean * (2.0 * self.sum - self.first - self.last) + pairs * mean * mean;
        (self.count > 2 && variance > 1e-20).then(|| products / pairs / variance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Global, Order, Sequential};

    fn sequential(len: u64, batch_size: u64, groups: &[u64], labels: Option<&[u32]>) -> Quality {
        measure(&*Sequential::new(len).unwrap().epoch(0).unwrap(), batch_size, groups, labels).unwrap()
    }

    #[test]
    fn a_sequential_order_stays_in_its_row_group_and_goes_nowhere() {
        let labels: Vec<u32> = (0..1000).map(|row| row / 250).collect();
        let quality = sequential(1000, 50, &[100; 10], Some(&labels));
        assert_eq!((quality.batches, quality.displacement), (20, 0.0));
        assert!(quality.row_correlation.unwrap() > 0.8, "{quality:?}");
        assert_eq!((quality.groups.distinct, quality.groups.entropy), (1.0, 0.0));
        assert!((quality.groups.whole_entropy - 10_f64.log2()).abs() < 1e-12);
        let labels = quality.labels.unwrap();
        assert_eq!((labels.classes, labels.distinct, labels.entropy, labels.whole_entropy), (4, 1.0, 0.0, 2.0));
        // All 50 of one class where 12.5 are due: (50 - 12.5)^2 / 12.5 + 3 * 12.5 = 150, of which chance gives 3 * 950
        // / 999.
        assert!((labels.chi_square.unwrap() - 150.0 / (3.0 * 950.0 / 999.0)).abs() < 1e-9);
        assert!(labels.correlation.unwrap() > 0.7);
    }

    #[test]
    #[cfg_attr(miri, ignore = "draws too many rows for Miri")]
    fn a_global_order_is_what_chance_makes_of_it() {
        let len = 200_000_u64;
        let labels: Vec<u32> = (0..len).map(|row| (row * row / len / (len / 10)) as u32).collect();
        let groups = [60_000, 0, 40_000, 100, 99_900];
        for seed in 0..3 {
            let order = Global::new(len, seed).unwrap().epoch(0).unwrap();
            let quality = measure(&*order, 256, &groups, Some(&labels)).unwrap();
            assert_eq!(quality.batches, 781);
            assert!((quality.displacement - 1.0 / 3.0).abs() < 0.003, "{quality:?}");
            assert!(quality.row_correlation.unwrap().abs() < 0.15, "{quality:?}");
            for composition in [quality.groups, quality.labels.unwrap()] {
                assert!((composition.distinct - composition.expected_distinct).abs() < 0.03, "{composition:?}");
                assert!((composition.entropy - composition.expected_entropy).abs() < 0.005, "{composition:?}");
                assert!((composition.chi_square.unwrap() - 1.0).abs() < 0.1, "{composition:?}");
                assert!(composition.correlation.unwrap().abs() < 0.15, "{composition:?}");
            }
        }
    }

    #[test]
    fn without_room_for_chance_there_are_no_ratios() {
        for (len, batch_size) in [(0, 5), (1, 5), (7, 7), (7, 100)] {
            let quality = sequential(len, batch_size, &[len], Some(&vec![0; len as usize]));
            assert_eq!((quality.batch_size, quality.batches), (len.min(batch_size), u64::from(len > 0)));
            assert_eq!(
                (quality.row_correlation, quality.groups.chi_square, quality.groups.correlation),
                (None, None, None)
            );
            assert_eq!(quality.groups.expected_entropy, 0.0);
        }
    }

    #[test]
    fn rows_beyond_the_row_groups_or_labels_are_refused() {
        let order = Sequential::new(10).unwrap().epoch(0).unwrap();
        let refused = |batch_size, groups: &[u64], labels: Option<&[u32]>| {
            let error = measure(&*order, batch_size, groups, labels).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        };
        refused(0, &[10], None);
        refused(3, &[9], None);
        refused(3, &[], None);
        refused(3, &[10], Some(&[0; 9]));
    }

    /// Serves each even row twice, and no odd one.
    #[derive(Debug)]
    struct Even(u64);

    impl EpochOrder for Even {
        fn len(&self) -> u64 {
            self.0
        }

        fn row(&self, position: u64) -> Option<u64> {
            (position < self.0).then_some(position / 2 * 2)
        }

        fn position(&self, row: u64) -> Option<u64> {
            (row < self.0 && row.is_multiple_of(2)).then_some(row)
        }
    }

    #[test]
    fn what_batches_are_compared_with_is_what_the_order_serves() {
        let labels: Vec<u32> = (0..1000).map(|row| row % 2 + row / 500 * 2).collect();
        let labels = measure(&Even(1000), 10, &[1000], Some(&labels)).unwrap().labels.unwrap();
        assert_eq!((labels.classes, labels.whole_entropy), (2, 1.0));
    }
}
