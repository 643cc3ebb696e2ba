//! Row ids as they come, in any order: a bit for each, where there are any.

use std::collections::BTreeMap;

use arrow_array::builder::BooleanBufferBuilder;

use rowdex_base::error::Result;
use rowdex_order::IdSet;
use rowdex_order::id_set::Builder;

/// Rows of a block, whose bits are there once one of its rows is.
const BLOCK: u64 = 1 << 16;

/// Row ids met so far.
#[derive(Debug, Default)]
pub(super) struct Marks {
    blocks: BTreeMap<u64, BooleanBufferBuilder>,
}

impl Marks {
    /// Marks a row; false if it was marked before.
    pub(super) fn set(&mut self, id: u64) -> bool {
        let block = self.blocks.entry(id / BLOCK).or_insert_with(|| {
            let mut none = BooleanBufferBuilder::new(BLOCK as usize);
            none.append_n(BLOCK as usize, false);
            none
        });
        let at = (id % BLOCK) as usize;
        let new = !block.get_bit(at);
        block.set_bit(at, true);
        new
    }

    /// The marked rows, of `rows` in all.
    pub(super) fn finish(self, rows: u64) -> Result<IdSet> {
        let mut set = Builder::new(rows);
        for (number, mut block) in self.blocks {
            let id = |at: usize| number * BLOCK + at as u64;
            block.finish().set_slices().try_for_each(|(start, end)| set.add(id(start)..id(end)))?;
        }
        Ok(set.finish())
    }
}
