//! Several datasets by proportion.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::fingerprint::fingerprint;
use super::quotas::Quotas;
use super::source_schedule::{ScheduleWindows, Scheduled, SourceSchedule};
use super::{EpochOrder, MAX_LEN, Order, OrderKind, Outline, Resized, check_len};
use rowdex_base::error::{Error, Result};

/// One of the datasets of a mixture.
#[derive(Debug, Clone)]
pub struct MixedPart {
    orders: Arc<dyn Order>,
    rows: u64,
    proportion: f64,
}

impl MixedPart {
    /// A dataset of `rows` rows, served in these orders, with a proportion that counts against those of the others.
    pub fn new(orders: Arc<dyn Order>, rows: u64, proportion: f64) -> Self {
        Self { orders, rows, proportion }
    }
}

/// A mixture of several datasets by proportion.
///
/// Row ids are those of the datasets one after the other: those of a dataset are offset by the rows of the ones before,
/// as in a `MixedDataset`.
///
/// Every epoch has the same count of each dataset, its proportion of the length by the method of largest remainders.
/// They come mixed evenly: each window of 4096 positions (more for more than 512 datasets) has the share of every
/// dataset to within a row or two, at random places. Each dataset runs through its own epochs, at its own pace, and
/// continues in the next epoch of the mixture where it stopped: one that is short for its proportion repeats as evenly
/// as its passes do, and all rows of one that is long get their turn. Rows of a dataset come in its own order to within
/// a window.
///
/// A position costs what one of its dataset does and about 0.1 µs. An epoch holds the inner epochs that it touches, see
/// [`Resized`], and finds positions as well as that does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Mixed {
    #[serde(with = "crate::shared")]
    parts: Arc<Vec<MixedSource>>,
    #[serde(with = "crate::shared")]
    schedule: Arc<SourceSchedule>,
    rows: u64,
    seed: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct MixedSource {
    /// Epochs of as many positions as the mixture has of this dataset; `None` where it has none.
    orders: Option<Resized>,
    inner: u64,
    first: u64,
    rows: u64,
}

impl Mixed {
    const NAME: &str = "mixed";

    /// Epochs of `len` positions over these datasets. The seed decides where they come, not which of their rows.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if a proportion is negative, infinite or not a number, if all are 0, if a dataset with a
    /// proportion above 0 would not come at all in so short an epoch or has no rows, if its orders are for more rows
    /// than it has, if it would come more than [`Resized::MAX_PASSES`] times in an epoch, and if `len` or all rows
    /// together exceed [`MAX_LEN`].
    pub fn new(parts: impl IntoIterator<Item = MixedPart>, len: u64, seed: u64) -> Result<Self> {
        let given: Vec<MixedPart> = parts.into_iter().collect();
        let proportions: Vec<f64> = given.iter().map(|part| part.proportion).collect();
        let counts = Quotas::new(&proportions, "dataset")?.counts(check_len(len)?);
        let mut rows = 0_u64;
        let mut parts = Vec::with_capacity(given.len());
        for (number, (part, count)) in given.iter().zip(&counts).enumerate() {
            let invalid = |message: String| Error::invalid(format!("dataset {number} {message}"));
            if let Some(most) = part.orders.rows().filter(|most| *most > part.rows) {
                return Err(invalid(format!("has {} rows, and its order is over {most}", part.rows)));
            }
            if *count == 0 && part.proportion > 0.0 && len > 0 {
                return Err(invalid(format!("has no row in an epoch of {len}"))
                    .with_hint("use longer epochs or a larger proportion, or leave the dataset out"));
            }
            let inner = part.orders.fingerprint();
            let orders = match count {
                0 => None,
                count => Some(
                    Resized::new(Arc::clone(&part.orders), *count)
                        .map_err(|error| invalid(error.message().to_owned()))?,
                ),
            };
            parts.push(MixedSource { orders, inner, first: rows, rows: part.rows });
            rows = rows
                .checked_add(part.rows)
                .filter(|rows| *rows <= MAX_LEN)
                .ok_or_else(|| Error::invalid(format!("the datasets have more than {MAX_LEN} rows together")))?;
        }
        let schedule = Arc::new(SourceSchedule::new(&counts, seed));
        Ok(Self { parts: Arc::new(parts), schedule, rows, seed })
    }

    /// How many positions of an epoch each dataset has.
    pub fn counts(&self) -> Vec<u64> {
        (0..self.parts.len()).map(|part| self.schedule.count(part)).collect()
    }
}

impl Order for Mixed {
    fn len(&self) -> u64 {
        self.schedule.len()
    }

    fn rows(&self) -> Option<u64> {
        Some(self.rows)
    }

    fn epoch(&self, epoch: u64) -> Result<Arc<dyn EpochOrder>> {
        let orders = self.parts.iter().map(|part| part.orders.as_ref().map(|orders| orders.epoch(epoch)).transpose());
        Ok(Arc::new(Mixture {
            parts: Arc::clone(&self.parts),
            orders: orders.collect::<Result<_>>()?,
            schedule: Arc::clone(&self.schedule),
            windows: self.schedule.epoch(epoch),
        }))
    }

    fn fingerprint(&self) -> u64 {
        let mut parameters = vec![self.seed];
        for (number, part) in self.parts.iter().enumerate() {
            parameters.extend([part.rows, part.inner, self.schedule.count(number)]);
        }
        fingerprint(Self::NAME, self.len(), &parameters)
    }

    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn outline(&self) -> Outline {
        Outline::drawn(OrderKind::Mixed, self.seed, self.len())
    }

    fn follows_row_groups(&self) -> bool {
        self.parts.iter().any(|part| part.orders.as_ref().is_some_and(|orders| orders.follows_row_groups()))
    }
}

/// One epoch of [`Mixed`].
#[derive(Debug)]
struct Mixture {
    parts: Arc<Vec<MixedSource>>,
    orders: Vec<Option<Arc<dyn EpochOrder>>>,
    schedule: Arc<SourceSchedule>,
    windows: ScheduleWindows,
}

impl Mixture {
    fn row_at(&self, place: u64) -> Option<u64> {
        let Scheduled { source, number } = self.schedule.at(place);
        Some(self.parts.get(source)?.first + self.orders.get(source)?.as_ref()?.row(number)?)
    }
}

impl EpochOrder for Mixture {
    fn len(&self) -> u64 {
        self.windows.len()
    }

    fn row(&self, position: u64) -> Option<u64> {
        if position >= self.len() {
            return None;
        }
        self.row_at(self.windows.place(position))
    }

    fn position(&self, row: u64) -> Option<u64> {
        let source = self.parts.partition_point(|part| part.first <= row).checked_sub(1)?;
        // Of datasets that begin at one row id, all but the last are empty.
        let part = self.parts.get(source).filter(|part| row - part.first < part.rows)?;
        let number = self.orders.get(source)?.as_ref()?.position(row - part.first)?;
        Some(self.windows.position(self.schedule.place(Scheduled { source, number })))
    }

    fn fill_strided(&self, first: u64, stride: u64, rows: &mut [u64]) -> usize {
        self.windows.fill(first, stride, rows, |place| self.row_at(place))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::conformance;
    use crate::{Global, Sequential, reachable};
    use rowdex_base::error::ErrorKind;

    fn part(rows: u64, proportion: f64) -> MixedPart {
        MixedPart::new(Arc::new(Global::new(rows, 1).unwrap()), rows, proportion)
    }

    fn mixed(parts: &[(u64, f64)], len: u64, seed: u64) -> Mixed {
        Mixed::new(parts.iter().map(|(rows, proportion)| part(*rows, *proportion)), len, seed).unwrap()
    }

    fn rows(orders: &dyn Order, epoch: u64) -> Vec<u64> {
        let mut rows = vec![0; orders.len() as usize];
        assert_eq!(orders.epoch(epoch).unwrap().fill(0, &mut rows), rows.len());
        rows
    }

    #[test]
    fn counts_are_exact_in_every_epoch() {
        let orders = mixed(&[(1000, 0.7), (50, 0.2), (5000, 0.1)], 3001, 5);
        assert_eq!(orders.counts(), [2101, 600, 300]);
        for epoch in 0..3 {
            let rows = rows(&orders, epoch);
            let of = |range: std::ops::Range<u64>| rows.iter().filter(|row| range.contains(row)).count();
            assert_eq!([of(0..1000), of(1000..1050), of(1050..6050)], [2101, 600, 300]);
        }
    }

    #[test]
    fn every_dataset_runs_through_its_own_epochs() {
        let orders = mixed(&[(100, 3.0), (70, 1.0)], 90, 5);
        assert_eq!(orders.counts(), [68, 22]);
        let all: Vec<u64> = (0..50).flat_map(|epoch| rows(&orders, epoch)).collect();
        let small: Vec<u64> = all.iter().filter(|row| **row >= 100).map(|row| row - 100).collect();
        for pass in small.chunks_exact(70) {
            // To within an epoch, whose positions are one window.
            assert_eq!(pass.len(), 70);
        }
        let mut counts = [0; 70];
        small.iter().for_each(|row| counts[*row as usize] += 1);
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert_eq!((*least, *most), (22 * 50 / 70, 22 * 50 / 70 + 1));
    }

    #[test]
    fn rows_of_a_dataset_come_in_its_order_to_within_a_window() {
        let sequential = |rows| MixedPart::new(Arc::new(Sequential::new(rows).unwrap()) as _, rows, 1.0);
        let orders = Mixed::new([sequential(10_000), sequential(10_000)], 20_000, 3).unwrap();
        let rows = rows(&orders, 0);
        for (position, row) in rows.iter().enumerate() {
            let (window, row) = (position as u64 / 4096, row % 10_000);
            assert!((window * 2048..(window + 1) * 2048).contains(&row), "{row} at {position}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "draws too many rows for Miri")]
    fn steps_of_a_world_and_samples_of_a_rank_have_their_share() {
        // Strides through a pattern would meet one dataset only; 2 and 4 are the periods of this one.
        let orders = mixed(&[(50_000, 0.5), (50_000, 0.25), (50_000, 0.25)], 100_000, 9);
        let rows = rows(&orders, 0);
        for world in [1, 2, 4, 8, 64] {
            for rank in 0..world {
                let own: Vec<u64> = rows.iter().skip(rank).step_by(world).copied().collect();
                let n = own.len() as f64;
                let first = own.iter().filter(|row| **row < 50_000).count() as f64;
                let z = (first - n / 2.0) / (n / 4.0).sqrt();
                assert!(z.abs() < 5.0, "rank {rank} of {world}: {z}");
            }
        }
        for window in rows.chunks_exact(4096) {
            let first = window.iter().filter(|row| **row < 50_000).count();
            assert!((2047..=2049).contains(&first), "{first}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "draws too many rows for Miri")]
    fn neighbours_are_of_one_dataset_as_often_as_chance_has_it() {
        let rows = rows(&mixed(&[(1000, 0.3), (1000, 0.7)], 400_000, 2), 0);
        for lag in 1..=8 {
            let n = (rows.len() - lag) as f64;
            let both = rows.iter().zip(&rows[lag..]).filter(|(a, b)| **a < 1000 && **b < 1000).count() as f64;
            let (p, q) = (0.3, 0.7);
            let z = (both - p * p * n) / (p * q * n.sqrt());
            assert!(z.abs() < 5.0, "lag {lag}: {z}");
        }
    }

    #[test]
    fn mixtures_that_can_not_be_are_refused() {
        let refused = |parts: Vec<MixedPart>, len| Mixed::new(parts, len, 0).unwrap_err();
        let says = |error: Error, word: &str| {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(word), "{error}");
        };
        says(refused(vec![], 5), "none");
        says(refused(vec![part(5, 1.0), part(5, -1.0)], 5), "dataset 1");
        says(refused(vec![part(5, f64::NAN)], 5), "dataset 0");
        says(refused(vec![part(5, 0.0)], 5), "none");
        says(refused(vec![part(5, 1.0), part(5, 1e-3)], 5), "dataset 1 has no row");
        says(refused(vec![part(5, 1.0), part(0, 1.0)], 10), "dataset 1");
        says(refused(vec![part(1, 1.0)], 1 << 20), "dataset 0");
        says(refused(vec![part(1, 1.0)], 1 << 63), "longer");
        says(refused(vec![part(1 << 62, 1.0), part(1 << 62, 1.0)], 10), "together");
        let short = MixedPart::new(Arc::new(Sequential::new(6).unwrap()), 5, 1.0);
        says(refused(vec![short], 5), "over 6");
    }

    #[test]
    fn fingerprints_tell_everything_apart() {
        let print = |parts: &[(u64, f64)], len, seed| mixed(parts, len, seed).fingerprint();
        let one = print(&[(5, 1.0), (6, 1.0)], 10, 0);
        assert_eq!(one, print(&[(5, 2.0), (6, 2.0)], 10, 0));
        for other in [
            print(&[(6, 1.0), (5, 1.0)], 10, 0),
            print(&[(5, 1.0), (6, 1.0)], 12, 0),
            print(&[(5, 1.0), (6, 1.0)], 10, 1),
            print(&[(5, 1.0), (6, 2.0)], 10, 0),
            print(&[(5, 1.0), (6, 1.0), (1, 0.0)], 10, 0),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn version_1_is_frozen() {
        let orders = mixed(&[(5, 0.5), (0, 0.0), (7, 0.3), (100, 0.2)], 16, 42);
        assert_eq!(orders.counts(), [8, 0, 5, 3]);
        assert_eq!(rows(&orders, 0), [85, 4, 8, 5, 9, 2, 93, 1, 1, 3, 10, 3, 4, 0, 11, 64]);
        assert_eq!(rows(&orders, 3), [7, 1, 8, 9, 30, 6, 5, 4, 106, 3, 1, 4, 2, 36, 2, 0]);
        let order = mixed(&[(200_000, 0.9), (1 << 40, 0.1)], 1 << 33, 7).epoch(1).unwrap();
        let far: Vec<u64> = (0..9).map(|i| order.row((1 << 32) + 4094 + i).unwrap()).collect();
        assert_eq!(far, [149_638, 171_431, 24969, 197_313, 104_117, 37570, 61254, 828_500_076_903, 48614]);
        assert_eq!(orders.fingerprint(), 0x9c90_5a94_6f85_acaf);
    }

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "draws too many rows for Miri")]
        fn the_contract_is_kept(
            parts in prop::collection::vec((1_u64..60, 0.05..1.0_f64), 1..6), len in 60_u64..200, seed: u64,
        ) {
            let orders = mixed(&parts, len, seed);
            conformance::check(&orders, [0, 3]).unwrap();
            // Whatever the counts, a pass of a dataset serves each of its rows once.
            let all: Vec<u64> = (0..4).flat_map(|epoch| rows(&orders, epoch)).collect();
            let mut first = 0;
            for ((rows, _), count) in parts.iter().zip(orders.counts()) {
                for row in first..first + rows {
                    let times = all.iter().filter(|served| **served == row).count() as u64;
                    prop_assert!((count * 4 / rows..=(count * 4).div_ceil(*rows)).contains(&times));
                }
                first += rows;
            }
        }

        #[test]
        fn windows_are_filled_as_positions_are_asked_for(seed: u64, stride in 1_u64..3000) {
            let orders = mixed(&[(3000, 1.0), (999, 2.0)], 10_000, seed);
            let order = orders.epoch(2).unwrap();
            let mut filled = [0; 50];
            let written = order.fill_strided(4000, stride, &mut filled);
            prop_assert_eq!(written, reachable(4000, stride, 10_000, 50));
            for (i, row) in filled[..written].iter().enumerate() {
                prop_assert_eq!(order.row(4000 + i as u64 * stride), Some(*row));
            }
        }
    }
}
