//! How long each row is, in tokens.

use std::fmt::Debug;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use rowdex_base::error::{Error, ErrorKind, Result};

/// The length of every row, in tokens or any other unit: packs are planned by it.
///
/// A pure function of the row. Reading may fail, as lengths that lie in a file are checked when they are first used.
pub trait Lengths: Debug + Send + Sync {
    /// How many rows there are.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The length of a row.
    ///
    /// # Errors
    ///
    /// `OutOfRange` from [`len`](Self::len) on; what the implementation says if its data are damaged.
    fn length(&self, row: u64) -> Result<u64>;

    /// Writes the length of each of `rows` to the same place of `lengths`, which has room for all of them. Rows come in
    /// any sequence, a hundred thousand in a call, so this is worth making quick.
    ///
    /// # Errors
    ///
    /// Those of [`length`](Self::length); `lengths` then holds anything.
    fn fill(&self, rows: &[u64], lengths: &mut [u64]) -> Result<()> {
        for (row, length) in rows.iter().zip(lengths) {
            *length = self.length(*row)?;
        }
        Ok(())
    }

    /// What the lengths are of: a column of the rows; `None` where they were given from outside.
    fn measure(&self) -> Option<Measure<'_>> {
        None
    }

    /// A hash over all lengths, the same wherever they are kept the same way. States carry it through the fingerprint
    /// of what is packed by them.
    fn fingerprint(&self) -> u64;
}

/// The column of the rows that [`Lengths`] are of. Within structs it is a path, as `doc.tokens`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Measure<'a> {
    /// The items of its lists are counted, so a row can be served in parts.
    Items(&'a str),
    /// Its numbers are the lengths. Rows are served whole.
    Numbers(&'a str),
}

/// A list has the lengths of rows 0, 1, 2, …
impl Lengths for Vec<u64> {
    fn len(&self) -> u64 {
        self.as_slice().len() as u64
    }

    fn length(&self, row: u64) -> Result<u64> {
        let length = usize::try_from(row).ok().and_then(|row| self.get(row)).copied();
        length.ok_or_else(|| no_such_row(row, Lengths::len(self)))
    }

    /// xxh3-64 of the number of rows and the lengths, as 8 little-endian bytes each.
    fn fingerprint(&self) -> u64 {
        let bytes = [Lengths::len(self)].into_iter().chain(self.iter().copied()).flat_map(u64::to_le_bytes);
        xxh3_64(&bytes.collect::<Vec<u8>>())
    }
}

/// The lengths of several datasets, one after the other, as a mixture of them has rows.
#[derive(Debug)]
pub struct JoinedLengths {
    parts: Vec<Arc<dyn Lengths>>,
    /// The first row after each part.
    ends: Vec<u64>,
    /// How many parts say what the lengths are of.
    measured: usize,
    fingerprint: u64,
}

impl JoinedLengths {
    /// Of all rows of each of them. One alone stays as it is.
    pub fn of(parts: Vec<Arc<dyn Lengths>>) -> Arc<dyn Lengths> {
        if let [part] = parts.as_slice() {
            return Arc::clone(part);
        }
        Arc::new(Self::joined(parts))
    }

    fn joined(parts: Vec<Arc<dyn Lengths>>) -> Self {
        let mut end = 0_u64;
        let ends = parts.iter().map(|part| {
            end = end.saturating_add(part.len());
            end
        });
        let ends = ends.collect();
        let fields = parts.iter().flat_map(|part| [part.len(), part.fingerprint()]);
        let fingerprint = xxh3_64(&fields.flat_map(u64::to_le_bytes).collect::<Vec<u8>>());
        Self { measured: parts.len(), parts, ends, fingerprint }
    }

    /// Two numbers of each row, such as its tokens and its images, for [packs with two limits](crate::Pack::second):
    /// row `r` of `n` rows has its length at `r`, and its second number at `n + r`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if they are of different numbers of rows.
    pub fn with_second(lengths: Arc<dyn Lengths>, second: Arc<dyn Lengths>) -> Result<Arc<dyn Lengths>> {
        if lengths.len() != second.len() {
            let rows = [lengths.len(), second.len()];
            return Err(
                Error::invalid(format!("two numbers, of {rows:?} rows")).with_hint("record both for the same rows")
            );
        }
        Ok(Arc::new(Self { measured: 1, ..Self::joined(vec![lengths, second]) }))
    }
}

impl Lengths for JoinedLengths {
    fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn length(&self, row: u64) -> Result<u64> {
        let part = self.ends.partition_point(|end| *end <= row);
        let first = part.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        match self.parts.get(part) {
            Some(part) => part.length(row - first),
            None => Err(no_such_row(row, self.len())),
        }
    }

    /// What the lengths of all parts are of, if that is the same.
    fn measure(&self) -> Option<Measure<'_>> {
        let mut measures = self.parts.iter().take(self.measured).map(|part| part.measure());
        let first = measures.next()??;
        measures.all(|measure| measure == Some(first)).then_some(first)
    }

    /// xxh3-64 of the number of rows and the fingerprint of each part, as 8 little-endian bytes each.
    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

/// That there is no length of `row`, as there are only `len` rows.
fn no_such_row(row: u64, len: u64) -> Error {
    Error::new(ErrorKind::OutOfRange, format!("the length of row {row}, and lengths of {len} rows are known"))
        .with_hint("record the lengths of the same rows as the order serves")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_the_lengths_of_its_rows_and_of_no_other() {
        let lengths: Vec<u64> = vec![3, 0, 1 << 40];
        let mut filled = [9; 3];
        lengths.fill(&[2, 0, 1], &mut filled).unwrap();
        assert_eq!(filled, [1 << 40, 3, 0]);
        for row in [3, u64::MAX] {
            assert_eq!(lengths.length(row).unwrap_err().kind(), ErrorKind::OutOfRange);
            assert!(lengths.fill(&[0, row], &mut filled).is_err());
        }
    }

    #[test]
    fn lengths_of_several_datasets_are_those_of_one_after_the_other() {
        let parts: [Vec<u64>; 4] = [vec![3, 1], vec![], vec![4], vec![1, 5, 9]];
        let joined = JoinedLengths::of(parts.iter().map(|part| Arc::new(part.clone()) as Arc<dyn Lengths>).collect());
        let all: Vec<u64> = (0..joined.len()).map(|row| joined.length(row).unwrap()).collect();
        assert_eq!(all, parts.concat());
        assert_eq!(joined.length(6).unwrap_err().kind(), ErrorKind::OutOfRange);
        let alone = JoinedLengths::of(vec![Arc::new(parts.concat())]);
        assert_eq!(alone.fingerprint(), parts.concat().fingerprint());
        assert_ne!(joined.fingerprint(), alone.fingerprint());
        assert_eq!(JoinedLengths::of(Vec::new()).len(), 0);
    }

    #[test]
    fn every_length_counts_for_the_fingerprint() {
        let all: [Vec<u64>; 5] = [vec![], vec![0], vec![1, 2], vec![2, 1], vec![1, 2, 0]];
        let distinct: std::collections::HashSet<u64> = all.iter().map(Lengths::fingerprint).collect();
        assert_eq!(distinct.len(), all.len());
    }
}
