//! Row ids as they come, in any order: a bit for each, where there are any.

use std::collections::BTreeMap;

use rowdex_base::error::Result;
use rowdex_order::IdSet;
use rowdex_order::id_set::Builder;

/// Rows of a block, whose bits are there once one of its rows is.
const BLOCK: u64 = 1 << 16;
const WORDS: usize = (BLOCK / 64) as usize;

/// Row ids met so far.
#[derive(Debug, Default)]
pub(super) struct Marks {
    blocks: BTreeMap<u64, Box<[u64]>>,
}

impl Marks {
    /// Marks a row; false if it was marked before.
    pub(super) fn set(&mut self, id: u64) -> bool {
        let block = self.blocks.entry(id / BLOCK).or_insert_with(|| vec![0; WORDS].into());
        let word = &mut block[(id % BLOCK / 64) as usize];
        let bit = 1 << (id % 64);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// The marked rows, of `rows` in all.
    pub(super) fn finish(self, rows: u64) -> Result<IdSet> {
        let mut set = Builder::new(rows);
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
            let mut marks = Marks::default();
            let new = ids.iter().filter(|id| marks.set(**id)).count() as u64;
            let set = IdSet::from_ids(400_000, ids.iter().copied()).unwrap();
            prop_assert_eq!(new, set.len());
            prop_assert_eq!(marks.finish(400_000).unwrap(), set);
        }
    }
}
