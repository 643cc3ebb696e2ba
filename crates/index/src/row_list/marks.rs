//! Row ids as they come, in any order: a bit for each, where there are any.

use std::collections::BTreeMap;

use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::IdSet;
use rowdex_order::id_set::Builder;

/// Rows of a block, whose bits are there once one of its rows is.
const BLOCK: u64 = 1 << 16;
const WORDS: usize = (BLOCK / 64) as usize;

/// Row ids met so far.
#[derive(Debug)]
pub(super) struct Marks {
    rows: u64,
    blocks: BTreeMap<u64, Box<[u64; WORDS]>>,
    repeated: u64,
    repeated_row: Option<u64>,
}

impl Marks {
    /// For row ids below `rows`.
    pub(super) fn new(rows: u64) -> Self {
        Self { rows, blocks: BTreeMap::new(), repeated: 0, repeated_row: None }
    }

    pub(super) fn set(&mut self, id: u64) -> Result<()> {
        let block = self.blocks.entry(id / BLOCK).or_insert_with(|| Box::new([0; WORDS]));
        let word = (id % BLOCK / 64) as usize;
        let bit = 1_u64 << (id % 64);
        let word = block.get_mut(word).ok_or_else(|| Error::new(ErrorKind::Internal, "a row beyond its block"))?;
        if *word & bit != 0 {
            self.repeated += 1;
            self.repeated_row.get_or_insert(id);
        }
        *word |= bit;
        Ok(())
    }

    /// How often a row came again, and the first that did.
    pub(super) fn repeated(&self) -> (u64, Option<u64>) {
        (self.repeated, self.repeated_row)
    }

    pub(super) fn finish(self) -> Result<IdSet> {
        let mut set = Builder::new(self.rows);
        for (number, block) in self.blocks {
            for (at, word) in (0_u64..).zip(block.iter()) {
                let first = number * BLOCK + at * 64;
                let mut left = *word;
                while left != 0 {
                    let start = left.trailing_zeros();
                    let length = (left >> start).trailing_ones();
                    set.add(first + u64::from(start)..first + u64::from(start + length))?;
                    // A run to the end of the word leaves nothing to shift in.
                    left = left.checked_shr(start + length).map_or(0, |rest| rest << (start + length));
                }
            }
        }
        Ok(set.finish())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rowdex_order::IdSet;

    use super::Marks;

    proptest! {
        #[test]
        fn marks_are_the_set_of_what_was_marked(
            ids in prop::collection::vec(0..400_000_u64, 0..400),
            run in 0..400_000_u64,
        ) {
            let ids: Vec<u64> = ids.into_iter().chain(run..(run + 200).min(400_000)).collect();
            let mut marks = Marks::new(400_000);
            ids.iter().for_each(|id| marks.set(*id).unwrap());
            let set = IdSet::from_ids(400_000, ids.iter().copied()).unwrap();
            prop_assert_eq!(marks.repeated().0, ids.len() as u64 - set.len());
            prop_assert_eq!(marks.finish().unwrap(), set);
        }
    }
}
