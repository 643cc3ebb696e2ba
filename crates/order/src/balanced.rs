//! Rows by class, each class with its share of the positions.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::feistel::Feistel;
use super::fingerprint::fingerprint;
use super::philox::Philox;
use super::quotas::Quotas;
use super::source_schedule::{ScheduleWindows, Scheduled, SourceSchedule, keyed};
use super::{EpochOrder, Order, OrderKind, Outline, check_len};
use rowdex_base::error::{Error, ErrorKind, Result};

const TAG: &[u8; 16] = b"rowdex class v1\0";

/// Class-balanced epochs: every class has the same number of positions, or the proportion asked for, with any number of
/// rows.
///
/// The counts of classes are exact in every epoch (largest remainders), and even within it: each window of 4096
/// positions (more for more than 512 classes) has the share of every class to within a few rows, at random places. Each
/// class is walked by its own permutation, another for every pass through its rows, and continues in the next epoch
/// where it stopped: rows of a small class repeat evenly, and of a large class all rows get their turn.
///
/// A position costs about 0.2 µs. All epochs together hold 8 bytes a row, and an epoch nothing.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Balanced {
    #[serde(with = "crate::shared")]
    classes: Arc<ClassSchedule>,
    seed: u64,
    hash: u64,
}

impl Balanced {
    const NAME: &str = "balanced";

    /// Epochs of `len` positions in which all classes come equally often. `labels` has the class of every row, as any
    /// numbers.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if `len` exceeds [`MAX_LEN`](super::MAX_LEN), if there are no rows or 2^32 or more, or if an
    /// epoch has fewer positions than there are classes.
    pub fn new(labels: &[u32], len: u64, seed: u64) -> Result<Self> {
        let members = ClassMembers::new(labels)?;
        let equal = vec![1.0; members.codes.len()];
        Self::with(labels, members, &equal, len, seed)
    }

    /// Epochs of `len` positions in which class `c` comes in proportion to `proportions[c]`; one of 0 leaves the class
    /// out.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), and `InvalidArgument` if a proportion is negative, infinite or not a number, if all are
    /// 0, if a class with a proportion above 0 has no rows, or if one with rows has no proportion.
    pub fn with_proportions(labels: &[u32], proportions: &[f64], len: u64, seed: u64) -> Result<Self> {
        let members = ClassMembers::new(labels)?;
        // Whatever is wrong with them is named by class.
        Quotas::new(proportions, "class")?;
        let mut own = Vec::with_capacity(members.codes.len());
        let mut given = 0;
        for code in &members.codes {
            let Some(proportion) = proportions.get(*code as usize) else {
                let message = format!("class {code} has rows, and there are {} proportions", proportions.len());
                return Err(Error::invalid(message).with_hint("give every class a proportion; 0 leaves it out"));
            };
            given += usize::from(*proportion > 0.0);
            own.push(*proportion);
        }
        if given < proportions.iter().filter(|proportion| **proportion > 0.0).count() {
            let none = |code: &usize| proportions.get(*code).is_some_and(|proportion| *proportion > 0.0);
            let empty = (0..proportions.len()).filter(none).find(|code| !members.codes.contains(&(*code as u32)));
            let message = format!("class {} has a proportion and no rows", empty.unwrap_or_default());
            return Err(Error::invalid(message).with_hint("give it a proportion of 0"));
        }
        Self::with(labels, members, &own, len, seed)
    }

    fn with(labels: &[u32], members: ClassMembers, proportions: &[f64], len: u64, seed: u64) -> Result<Self> {
        let counts = Quotas::new(proportions, "class")?.counts(check_len(len)?);
        for ((code, count), proportion) in members.codes.iter().zip(&counts).zip(proportions) {
            if *count == 0 && *proportion > 0.0 && len > 0 {
                let message =
                    format!("class {code} has no position in an epoch of {len} over {} classes", counts.len());
                return Err(Error::invalid(message).with_hint("use longer epochs"));
            }
        }
        let bytes: Vec<u8> = labels.iter().flat_map(|label| label.to_le_bytes()).collect();
        let classes = Arc::new(ClassSchedule { members, schedule: SourceSchedule::new(&counts, seed) });
        Ok(Self { classes, seed, hash: xxh3_64(&bytes) })
    }

    /// The classes that have rows, ascending, and how many positions of an epoch each of them has.
    pub fn counts(&self) -> Vec<(u32, u64)> {
        let ClassSchedule { members, schedule } = &*self.classes;
        members.codes.iter().enumerate().map(|(class, code)| (*code, schedule.count(class))).collect()
    }
}

impl Order for Balanced {
    fn len(&self) -> u64 {
        self.classes.schedule.len()
    }

    fn rows(&self) -> Option<u64> {
        Some(self.classes.members.rows.len() as u64)
    }

    /// # Errors
    ///
    /// `OutOfRange` if a class would be in a pass beyond 2^64 - 1.
    fn epoch(&self, epoch: u64) -> Result<Arc<dyn EpochOrder>> {
        let ClassSchedule { members, schedule } = &*self.classes;
        for class in 0..members.codes.len() {
            let start = u128::from(epoch) * u128::from(schedule.count(class));
            let rows = members.of(class).len().max(1);
            if u64::try_from((start + u128::from(schedule.count(class))) / rows as u128).is_err() {
                let message = format!("epoch {epoch} needs a pass beyond 2^64 - 1 of a class of {rows} rows");
                return Err(Error::new(ErrorKind::OutOfRange, message));
            }
        }
        Ok(Arc::new(BalancedEpoch {
            classes: Arc::clone(&self.classes),
            windows: schedule.epoch(epoch),
            draws: Philox::new(TAG, self.seed, 0),
            epoch,
        }))
    }

    fn fingerprint(&self) -> u64 {
        let mut parameters = vec![self.classes.members.rows.len() as u64, self.hash, self.seed];
        parameters.extend(self.counts().into_iter().map(|(_, count)| count));
        fingerprint(Self::NAME, self.len(), &parameters)
    }

    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn outline(&self) -> Outline {
        Outline::drawn(OrderKind::Balanced, self.seed, self.len())
    }
}

/// Who is in which class, and which position is whose.
#[derive(Debug, Serialize, Deserialize)]
struct ClassSchedule {
    members: ClassMembers,
    schedule: SourceSchedule,
}

/// The rows of every class.
#[derive(Debug, Serialize, Deserialize)]
struct ClassMembers {
    /// The classes that have rows, ascending.
    codes: Vec<u32>,
    /// Where in `rows` each class begins, and the number of rows.
    starts: Vec<usize>,
    /// By class, and then ascending.
    rows: Vec<u32>,
    /// The place of every row in `rows`.
    places: Vec<u32>,
}

impl ClassMembers {
    fn new(labels: &[u32]) -> Result<Self> {
        let Ok(len) = u32::try_from(labels.len()) else {
            let message = format!("{} rows can not be balanced, at most 2^32 - 1 can", labels.len());
            return Err(Error::invalid(message));
        };
        if len == 0 {
            return Err(Error::invalid("there are no rows to balance"));
        }
        let label = |row: &u32| labels.get(*row as usize).copied().unwrap_or_default();
        let mut rows: Vec<u32> = (0..len).collect();
        rows.sort_by_key(label);
        let mut codes = Vec::new();
        let mut starts = Vec::new();
        let mut start = 0;
        for class in rows.chunk_by(|a, b| label(a) == label(b)) {
            codes.extend(class.first().map(label));
            starts.push(start);
            start += class.len();
        }
        starts.push(start);
        let mut places = vec![0; rows.len()];
        for (place, row) in (0..).zip(&rows) {
            if let Some(own) = places.get_mut(*row as usize) {
                *own = place;
            }
        }
        Ok(Self { codes, starts, rows, places })
    }

    /// The rows of a class, ascending.
    fn of(&self, class: usize) -> &[u32] {
        match self.starts.get(class..class + 2) {
            Some(&[start, end]) => self.rows.get(start..end).unwrap_or_default(),
            _ => &[],
        }
    }

    /// The class of a row, and its place in it.
    fn place(&self, row: u64) -> Option<(usize, u64)> {
        let place = *self.places.get(usize::try_from(row).ok()?)? as usize;
        let class = self.starts.partition_point(|start| *start <= place).checked_sub(1)?;
        Some((class, (place - self.starts.get(class)?) as u64))
    }
}

/// One epoch of [`Balanced`].
#[derive(Debug)]
struct BalancedEpoch {
    classes: Arc<ClassSchedule>,
    windows: ScheduleWindows,
    draws: Philox,
    epoch: u64,
}

impl BalancedEpoch {
    fn row_at(&self, place: u64) -> Option<u64> {
        let ClassSchedule { members, schedule } = &*self.classes;
        let Scheduled { source, number } = schedule.at(place);
        let own = members.of(source);
        // Passes through the class, joined over the epochs.
        let joined = self.start(source) + u128::from(number);
        let pass = joined / own.len() as u128;
        let at = (joined % own.len() as u128) as u64;
        let row = own.get(self.pass(source, pass as u64).forward(at) as usize)?;
        Some(u64::from(*row))
    }

    /// Positions of a class in the epochs before.
    fn start(&self, class: usize) -> u128 {
        u128::from(self.epoch) * u128::from(self.classes.schedule.count(class))
    }

    /// The permutation of a class's rows in one pass.
    fn pass(&self, class: usize, pass: u64) -> Feistel {
        let members = &self.classes.members;
        let code = members.codes.get(class).copied().unwrap_or_default();
        keyed(self.draws.in_epoch(pass), u64::from(code), members.of(class).len() as u64)
    }
}

impl EpochOrder for BalancedEpoch {
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
        let ClassSchedule { members, schedule } = &*self.classes;
        let (class, place) = members.place(row)?;
        let rows = members.of(class).len() as u128;
        let start = self.start(class);
        let count = u128::from(schedule.count(class));
        // One that is not in the first pass, nor in the second, which is whole or the last, is not served.
        (0..2).find_map(|later| {
            let pass = start / rows + later;
            let joined = pass * rows + u128::from(self.pass(class, u64::try_from(pass).ok()?).inverse(place));
            let number = joined.checked_sub(start).filter(|number| *number < count)?;
            let pick = Scheduled { source: class, number: number as u64 };
            Some(self.windows.position(schedule.place(pick)))
        })
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

    fn rows(orders: &Balanced, epoch: u64) -> Vec<u64> {
        let mut rows = vec![0; orders.len() as usize];
        assert_eq!(orders.epoch(epoch).unwrap().fill(0, &mut rows), rows.len());
        rows
    }

    /// 1 row of class 7, 10 of class 2, 89 of class 3.
    fn labels() -> Vec<u32> {
        (0..100)
            .map(|row| {
                if row == 50 {
                    7
                } else if row % 10 == 3 {
                    2
                } else {
                    3
                }
            })
            .collect()
    }

    #[test]
    fn every_class_comes_equally_often_in_every_epoch() {
        let labels = labels();
        let orders = Balanced::new(&labels, 302, 1).unwrap();
        assert_eq!(orders.counts(), [(2, 101), (3, 101), (7, 100)]);
        for epoch in 0..3 {
            let rows = rows(&orders, epoch);
            for (code, count) in orders.counts() {
                assert_eq!(rows.iter().filter(|row| labels[**row as usize] == code).count() as u64, count);
            }
        }
    }

    #[test]
    fn rows_of_a_class_repeat_evenly_over_epochs() {
        let labels = labels();
        let orders = Balanced::new(&labels, 100, 1).unwrap();
        let mut times = [0_u64; 100];
        for epoch in 0..20 {
            rows(&orders, epoch).iter().for_each(|row| times[*row as usize] += 1);
        }
        for (row, label) in labels.iter().enumerate() {
            let (_, count) = orders.counts().into_iter().find(|(code, _)| code == label).unwrap();
            let own = labels.iter().filter(|other| *other == label).count() as u64;
            assert!((count * 20 / own..=(count * 20).div_ceil(own)).contains(&times[row]), "row {row}: {}", times[row]);
        }
    }

    #[test]
    fn proportions_are_kept_and_zero_leaves_a_class_out() {
        let labels = labels();
        let proportions = [0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 1.0];
        let orders = Balanced::with_proportions(&labels, &proportions, 80, 4).unwrap();
        assert_eq!(orders.counts(), [(2, 60), (3, 0), (7, 20)]);
        conformance::check(&orders, 0..2).unwrap();
        assert!(rows(&orders, 0).iter().all(|row| labels[*row as usize] != 3));
    }

    #[test]
    fn labels_and_proportions_that_can_not_be_are_refused() {
        let says = |made: Result<Balanced>, word: &str| {
            let error = made.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(word), "{error}");
        };
        says(Balanced::new(&[], 5, 0), "no rows");
        says(Balanced::new(&[1, 2, 3], 2, 0), "class 3 has no position");
        says(Balanced::new(&[1, 2, 3], 1 << 63, 0), "longer");
        says(Balanced::with_proportions(&[0, 1], &[1.0], 5, 0), "class 1 has rows");
        says(Balanced::with_proportions(&[0, 2], &[1.0, 1.0, 1.0], 5, 0), "class 1 has a proportion");
        says(Balanced::with_proportions(&[0, 1], &[1.0, -1.0], 5, 0), "class 1");
        says(Balanced::with_proportions(&[0, 1], &[0.0, 0.0], 5, 0), "none");
    }

    #[test]
    fn fingerprints_tell_everything_apart() {
        let print = |labels: &[u32], len, seed| Balanced::new(labels, len, seed).unwrap().fingerprint();
        let one = print(&[0, 1, 1], 6, 0);
        assert_eq!(one, print(&[0, 1, 1], 6, 0));
        for other in
            [print(&[1, 0, 1], 6, 0), print(&[0, 1, 1], 7, 0), print(&[0, 1, 1], 6, 1), print(&[0, 1, 1, 1], 6, 0)]
        {
            assert_ne!(one, other);
        }
        assert_ne!(one, Balanced::with_proportions(&[0, 1, 1], &[1.0, 2.0], 6, 0).unwrap().fingerprint());
    }

    /// Within a class all rows are equally likely at every position, and classes do not estimate each other.
    #[test]
    #[cfg_attr(miri, ignore = "draws too many rows for Miri")]
    fn classes_and_rows_come_without_a_pattern() {
        let labels: Vec<u32> = (0..3000).map(|row| row % 8).collect();
        let orders = Balanced::new(&labels, 200_000, 3).unwrap();
        let classes: Vec<usize> = rows(&orders, 1).iter().map(|row| labels[*row as usize] as usize).collect();
        for lag in [1, 2, 8] {
            let mut table = [0.0; 64];
            for (a, b) in classes.iter().zip(&classes[lag..]) {
                table[a * 8 + b] += 1.0;
            }
            let expected = (classes.len() - lag) as f64 / 64.0;
            let sum: f64 = table.iter().map(|count| (count - expected).powi(2) / expected).sum();
            let z = (sum - 49.0) / 98.0_f64.sqrt();
            assert!(z.abs() < 5.0, "lag {lag}: {z}");
        }
    }

    #[test]
    fn version_1_is_frozen() {
        let orders = Balanced::new(&[5, 0, 5, 5, 9, 5, 0, 5], 12, 42).unwrap();
        assert_eq!(rows(&orders, 0), [2, 3, 0, 4, 4, 1, 4, 4, 1, 6, 6, 7]);
        assert_eq!(rows(&orders, 1), [6, 7, 4, 3, 5, 1, 2, 6, 4, 4, 4, 1]);
        assert_eq!(orders.fingerprint(), 0x264c_1a11_62de_cbb4);
    }

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "draws too many rows for Miri")]
        fn the_contract_is_kept(labels in prop::collection::vec(0_u32..6, 1..80), len in 6_u64..300, seed: u64) {
            conformance::check(&Balanced::new(&labels, len, seed).unwrap(), [0, 1, 9]).unwrap();
        }
    }

    #[test]
    fn epochs_beyond_the_last_pass_are_refused() {
        let orders = Balanced::new(&[0, 1, 1], 6, 0).unwrap();
        assert_eq!(orders.epoch(u64::MAX).unwrap_err().kind(), ErrorKind::OutOfRange);
        conformance::check(&orders, [u64::MAX / 4]).unwrap();
    }
}
