//! Orders that somebody else made.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3Default;

use super::fingerprint::fingerprint;
use super::table::RowList;
use super::{EpochOrder, Order, OrderKind, Outline, check_len};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::once::Once;

/// A given list of row ids, in every epoch: an order that a foreign sampler drew, or a part of the rows, or some of
/// them more than once.
///
/// Positions are places in the list, so an epoch has as many as the list. It is the same in every epoch; a list that
/// changes is other orders each time, with other fingerprints.
///
/// One position costs a memory access. [`position`](EpochOrder::position) sorts 4 bytes a position when it is first
/// asked for and then searches; where a row is listed more than once it is the first place; where there is no memory
/// for that, it looks through the list.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "SavedIds", into = "SavedIds")]
pub struct Explicit {
    listed: Arc<ExplicitEpoch>,
    rows: u64,
    hash: u64,
}

impl Explicit {
    const NAME: &str = "explicit";

    /// The row ids in this list, of a dataset of so many rows. Reads the list once, to check and to fingerprint it.
    ///
    /// # Errors
    ///
    /// `OutOfRange` if the dataset has no such row; the error names the first one and its place.
    pub fn new(ids: impl AsRef<[u64]>, rows: u64) -> Result<Self> {
        Self::of(ExplicitIds::from(ids), rows)
    }

    /// The same of a list that lies elsewhere.
    ///
    /// # Errors
    ///
    /// Those of [`new`](Self::new).
    pub fn of(ids: ExplicitIds, rows: u64) -> Result<Self> {
        let len = check_len(ids.list().len() as u64)?;
        let mut hash = Xxh3Default::new();
        for (position, id) in (0_u64..).zip(ids.iter()) {
            if id >= rows {
                let message = format!("row id {id} at position {position} is beyond the {rows} rows");
                return Err(Error::new(ErrorKind::OutOfRange, message)
                    .with_hint("make the order for the dataset that it is used with"));
            }
            hash.update(&id.to_le_bytes());
        }
        let listed = Arc::new(ExplicitEpoch { ids, len, positions: Once::new() });
        Ok(Self { listed, rows, hash: hash.digest() })
    }

    /// Checks that every row of the dataset is listed exactly once. Takes a bit for each row, while it lasts.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if not: the error says which row is listed twice and where, or which is missing. `TooLarge` if
    /// there is no memory.
    pub fn check_permutation(&self) -> Result<()> {
        let too_large =
            || Error::new(ErrorKind::TooLarge, format!("no memory to mark which of {} rows are listed", self.rows));
        let words = usize::try_from(self.rows.div_ceil(64)).map_err(|_| too_large())?;
        let mut seen: Vec<u64> = Vec::new();
        seen.try_reserve_exact(words).map_err(|_| too_large())?;
        seen.resize(words, 0);
        let refuse = |message| Err(Error::invalid(message).with_hint("a permutation lists every row exactly once"));
        let ids = &self.listed.ids;
        for (position, id) in ids.iter().enumerate() {
            let word = (id / 64) as usize;
            let bit = 1 << (id % 64);
            if seen.get(word).is_none_or(|word| word & bit != 0) {
                let first = ids.iter().position(|other| other == id).unwrap_or(position);
                return refuse(format!("row id {id} is listed twice, at positions {first} and {position}"));
            }
            seen[word] |= bit;
        }
        if self.listed.len < self.rows {
            let missing = (0..self.rows).find(|row| seen[(row / 64) as usize] & (1 << (row % 64)) == 0);
            let others = self.rows - self.listed.len - 1;
            let and = if others > 0 { format!(", and so are {others} others") } else { String::new() };
            return refuse(format!("row id {} is missing{and}", missing.unwrap_or(0)));
        }
        Ok(())
    }
}

impl Order for Explicit {
    fn len(&self) -> u64 {
        self.listed.len
    }

    fn rows(&self) -> Option<u64> {
        Some(self.rows)
    }

    fn epoch(&self, _epoch: u64) -> Result<Arc<dyn EpochOrder>> {
        Ok(Arc::clone(&self.listed) as Arc<dyn EpochOrder>)
    }

    fn fingerprint(&self) -> u64 {
        fingerprint(Self::NAME, self.len(), &[self.hash])
    }

    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn outline(&self) -> Outline {
        Outline::new(OrderKind::Explicit)
    }

    fn is_same_every_epoch(&self) -> bool {
        true
    }
}

/// A list of row ids: little-endian `u64`, wherever they lie.
#[derive(Clone)]
pub struct ExplicitIds(Arc<dyn AsRef<[u8]> + Send + Sync>);

impl ExplicitIds {
    /// Those in these bytes, such as those of a file.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the number of bytes is not a multiple of 8.
    pub fn of_bytes(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Self> {
        let len = bytes.as_ref().len();
        if !len.is_multiple_of(8) {
            return Err(Error::invalid(format!("{len} bytes are not a whole number of row ids of 8 bytes"))
                .with_hint("write row ids as little-endian 64-bit integers and nothing else"));
        }
        Ok(Self(Arc::new(bytes)))
    }

    fn list(&self) -> &[[u8; 8]] {
        (*self.0).as_ref().as_chunks().0
    }

    fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.list().iter().copied().map(u64::from_le_bytes)
    }
}

impl<T: AsRef<[u64]>> From<T> for ExplicitIds {
    fn from(ids: T) -> Self {
        Self(Arc::new(ids.as_ref().iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>()))
    }
}

impl fmt::Debug for ExplicitIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} row ids", self.list().len())
    }
}

/// The one order of [`Explicit`].
#[derive(Debug)]
struct ExplicitEpoch {
    ids: ExplicitIds,
    len: u64,
    /// Positions by the row at them, and by position where that is the same.
    positions: Once<RowList>,
}

impl ExplicitEpoch {
    fn at(&self, position: u64) -> Option<u64> {
        self.ids.list().get(usize::try_from(position).ok()?).copied().map(u64::from_le_bytes)
    }

    /// Made without holding anything, so that a process forked meanwhile is not left waiting.
    fn positions(&self) -> Option<&RowList> {
        match self.positions.get() {
            Some(positions) => Some(positions),
            None => {
                let by_row = |position: &u32| (self.at((*position).into()), *position);
                let positions = RowList::shuffled(self.len, |all| all.sort_unstable_by_key(by_row)).ok()?;
                Some(self.positions.get_or_init(|| positions))
            }
        }
    }
}

impl EpochOrder for ExplicitEpoch {
    fn len(&self) -> u64 {
        self.len
    }

    fn row(&self, position: u64) -> Option<u64> {
        self.at(position)
    }

    fn position(&self, row: u64) -> Option<u64> {
        let Some(positions) = self.positions() else {
            return self.ids.iter().position(|other| other == row).map(|position| position as u64);
        };
        let low = positions.partition_point(|position| self.at(position) < Some(row));
        positions.get(low).filter(|position| self.at(*position) == Some(row))
    }
}

/// An [`Explicit`] as data.
#[derive(Serialize, Deserialize)]
struct SavedIds {
    ids: Vec<u64>,
    rows: u64,
}

impl From<Explicit> for SavedIds {
    fn from(Explicit { listed, rows, .. }: Explicit) -> Self {
        Self { ids: listed.ids.iter().collect(), rows }
    }
}

impl TryFrom<SavedIds> for Explicit {
    type Error = Error;

    fn try_from(SavedIds { ids, rows }: SavedIds) -> Result<Self> {
        Self::new(ids, rows)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn bytes(ids: &[u64]) -> Vec<u8> {
        ids.iter().flat_map(|id| id.to_le_bytes()).collect()
    }

    #[test]
    fn a_list_and_its_bytes_are_the_same_orders() {
        let ids = [4_u64, 4, 9, 0, 4];
        let list = Explicit::new(ids, 10).unwrap();
        let file = Explicit::of(ExplicitIds::of_bytes(bytes(&ids)).unwrap(), 10).unwrap();
        assert_eq!(list.fingerprint(), file.fingerprint());
        for orders in [list, file] {
            let order = orders.epoch(7).unwrap();
            let mut rows = [0; 6];
            assert_eq!(order.fill(0, &mut rows), 5);
            assert_eq!(rows[..5], ids);
            assert_eq!(order.fill_strided(1, 2, &mut rows), 2);
            assert_eq!(rows[..2], [4, 0]);
            assert_eq!([4, 9, 0, 1].map(|row| order.position(row)), [Some(0), Some(2), Some(3), None]);
        }
    }

    #[test]
    fn other_lists_have_other_fingerprints() {
        let fingerprint = |ids: &[u64]| Explicit::new(ids, 100).unwrap().fingerprint();
        assert_ne!(fingerprint(&[1, 2]), fingerprint(&[2, 1]));
        assert_ne!(fingerprint(&[1, 2]), fingerprint(&[1, 2, 2]));
        assert_ne!(fingerprint(&[]), fingerprint(&[0]));
    }

    #[test]
    fn a_row_that_the_dataset_does_not_have_is_refused_with_its_place() {
        let error = Explicit::new([3, 10, 11], 10).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfRange);
        assert!(error.message().contains("row id 10 at position 1"), "{error}");
        assert_eq!(Explicit::new([0], 0).unwrap_err().kind(), ErrorKind::OutOfRange);
        assert_eq!(Explicit::new([], 0).unwrap().len(), 0);
    }

    #[test]
    fn half_a_row_id_is_refused() {
        let mut bytes = bytes(&[1, 2]);
        bytes.pop();
        let error = ExplicitIds::of_bytes(bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains("15 bytes"), "{error}");
    }

    #[test]
    fn what_is_not_a_permutation_is_told_by_row() {
        let check = |ids: &[u64], rows| Explicit::new(ids, rows).unwrap().check_permutation();
        assert!(check(&[], 0).is_ok());
        assert!(check(&[2, 0, 1], 3).is_ok());
        let cases: [(&[u64], u64, &str); 4] = [
            (&[2, 0, 2], 3, "row id 2 is listed twice, at positions 0 and 2"),
            (&[2, 0], 3, "row id 1 is missing"),
            (&[64, 0], 130, "row id 1 is missing, and so are 127 others"),
            (&[1, 0, 2, 1], 3, "row id 1 is listed twice, at positions 0 and 3"),
        ];
        for (ids, rows, message) in cases {
            let error = check(ids, rows).unwrap_err();
            assert_eq!((error.kind(), error.message()), (ErrorKind::InvalidArgument, message));
        }
    }

    #[test]
    fn positions_are_those_of_a_walk() {
        let ids: Vec<u64> = (0..2000_u64).map(|i| i * 7919 % 613).collect();
        let order = Explicit::new(&ids[..], 700).unwrap().epoch(0).unwrap();
        let mut first: HashMap<u64, u64> = HashMap::new();
        for (position, id) in (0..).zip(&ids) {
            first.entry(*id).or_insert(position);
        }
        for row in 0..700 {
            assert_eq!(order.position(row), first.get(&row).copied());
        }
    }

    /// Saved states carry it.
    #[test]
    fn the_fingerprint_of_version_1_is_frozen() {
        assert_eq!(Explicit::new([5, 0, 5, 2], 6).unwrap().fingerprint(), 0xe6e9_ce9f_c9bb_53b0);
    }
}
