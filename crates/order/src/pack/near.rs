//! Looking up the lengths of rows that lie far from each other in memory.
//!
//! Each length that is looked up at random in gigabytes is a miss of the caches, and before it come one or several
//! where the page's address is looked up. Rows of neighbouring pages find that address in the caches. So rows are put
//! into parts by their number first, as a join of databases does before it looks up (radix partitioning: Manegold,
//! Boncz and Kersten, Optimizing main-memory join on modern hardware, 2002).

use rowdex_base::error::Result;

use crate::Lengths;

/// Lengths of so many rows lie mostly in caches, where parts gain nothing.
const FEW: u64 = 1 << 24;

/// As many places can be written to in turn without leaving the caches, and the lengths of a part are 2 MB where there
/// are a thousand million rows.
const PARTS_LOG2: u32 = 10;

/// How many rows each of `threads` looks up at once, and at least a block. Each takes 28 bytes, and the more there are,
/// the closer together their lengths lie.
pub(super) fn at_once(of: &dyn Lengths, threads: usize) -> u64 {
    if of.len() <= FEW { 1 } else { (1 << 20) / threads as u64 }
}

/// Rows and their lengths; kept from one reading to the next, which allocates nothing then.
#[derive(Debug, Default)]
pub(super) struct Looked {
    pub(super) rows: Vec<u64>,
    pub(super) lengths: Vec<u64>,
    /// The rows part by part, and where each row that is asked for is among them.
    parts: Vec<u64>,
    places: Vec<u32>,
}

impl Looked {
    /// Looks up the length of each of the rows, which hold anything after an error.
    pub(super) fn fill(&mut self, of: &dyn Lengths) -> Result<()> {
        let Self { rows, lengths, parts, places } = self;
        lengths.resize(rows.len(), 0);
        if of.len() <= FEW {
            return of.fill(rows, lengths);
        }
        let shift = of.len().ilog2() + 1 - PARTS_LOG2;
        // A row that no length is of is for `of` to refuse.
        let part = |row: u64| (row >> shift).min((1 << PARTS_LOG2) - 1) as usize;
        let mut next = [0_u32; 1 << PARTS_LOG2];
        for row in rows.iter() {
            next[part(*row)] += 1;
        }
        let mut before = 0;
        for count in &mut next {
            (*count, before) = (before, before + *count);
        }
        parts.resize(rows.len(), 0);
        places.resize(rows.len(), 0);
        for (row, place) in rows.iter().zip(&mut *places) {
            let next = &mut next[part(*row)];
            parts[*next as usize] = *row;
            (*place, *next) = (*next, *next + 1);
        }
        // The rows have a second place, so theirs is free for the lengths in the order of that one.
        of.fill(parts, rows)?;
        for (place, length) in places.iter().zip(lengths) {
            *length = rows[*place as usize];
        }
        for (place, row) in places.iter().zip(rows) {
            *row = parts[*place as usize];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rowdex_base::error::{Error, ErrorKind};

    use super::*;

    /// So many rows, each with a length of its own.
    #[derive(Debug)]
    struct Drawn(u64);

    impl Lengths for Drawn {
        fn len(&self) -> u64 {
            self.0
        }

        fn length(&self, row: u64) -> Result<u64> {
            match row < self.0 {
                true => Ok(row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40),
                false => Err(Error::new(ErrorKind::OutOfRange, format!("row {row} of {}", self.0))),
            }
        }

        fn fingerprint(&self) -> u64 {
            self.0
        }
    }

    fn lens() -> impl Strategy<Value = u64> {
        prop_oneof![1..FEW, FEW..FEW + 3, 1_000_000_000..1_000_000_100_u64, Just(u64::MAX)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]
        #[test]
        fn lengths_that_are_looked_up_part_by_part_are_those_of_their_rows(
            len in lens(), draws in prop::collection::vec(any::<u64>(), 0..10_000), again in 0..10_000_usize,
        ) {
            let mut looked = Looked::default();
            let rows: Vec<u64> = draws.iter().map(|draw| draw % len).collect();
            // What was looked up before leaves nothing behind.
            for rows in [rows.as_slice(), &rows[again.min(rows.len())..], rows.as_slice()] {
                looked.rows = rows.to_vec();
                looked.fill(&Drawn(len)).unwrap();
                prop_assert_eq!(&looked.rows, rows);
                let expected: Vec<u64> = rows.iter().map(|row| Drawn(len).length(*row).unwrap()).collect();
                prop_assert_eq!(&looked.lengths, &expected);
            }
        }
    }

    #[test]
    fn a_row_that_no_length_is_of_is_refused() {
        for len in [10, FEW + 1, 1_000_000_000] {
            for row in [len, u64::MAX] {
                let refused = Looked { rows: vec![0, row, 1], ..Looked::default() }.fill(&Drawn(len));
                assert_eq!(refused.unwrap_err().kind(), ErrorKind::OutOfRange);
            }
        }
    }
}
