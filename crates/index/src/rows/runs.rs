//! Served rows as maximal runs.

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

use std::iter::FusedIterator;
use std::ops::Range;

use zerocopy::little_endian::U64;

use super::{RowContainer, RowSet, WORD_BITS};

/// The maximal runs of a [`RowSet`].
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    pub(super) rows: RowSet<'a>,
    /// The next stored run or offset.
    pub(super) at: usize,
    /// Where the search in a bitmap goes on; the served rows so far, for runs.
    pub(super) next: u64,
}

impl Runs<'_> {
    /// The first row from `row` on whose bit is not that of `skip`, which is all zeros or all ones.
    fn first_other(words: &[U64], row: u64, skip: u64) -> Option<u64> {
        let first = usize::try_from(row / WORD_BITS).ok()?;
        let mut mask = u64::MAX << (row % WORD_BITS);
        for (at, word) in words.iter().enumerate().skip(first) {
            let others = (word.get() ^ skip) & mask;
            if others != 0 {
                return Some((at as u64).saturating_mul(WORD_BITS).saturating_add(u64::from(others.trailing_zeros())));
            }
            mask = u64::MAX;
        }
        None
    }
}

impl Iterator for Runs<'_> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        match self.rows.container {
            RowContainer::Runs(runs) => {
                let run = runs.get(self.at)?;
                let start = u64::from(run.start.get());
                let end = u64::from(run.end.get());
                let stop = start.saturating_add(end.saturating_sub(self.next));
                self.at = self.at.saturating_add(1);
                self.next = end;
                Some(start..stop)
            }
            RowContainer::Offsets(offsets) => {
                let start = u64::from(offsets.get(self.at)?.get());
                let mut stop = start.saturating_add(1);
                self.at = self.at.saturating_add(1);
                while offsets.get(self.at).is_some_and(|offset| u64::from(offset.get()) == stop) {
                    stop = stop.saturating_add(1);
                    self.at = self.at.saturating_add(1);
                }
                Some(start..stop)
            }
            RowContainer::Bitmap { words, .. } => {
                let rows = self.rows.source_rows;
                let start = Self::first_other(words, self.next, 0).filter(|&start| start < rows)?;
                let stop = Self::first_other(words, start, u64::MAX).map_or(rows, |stop| stop.min(rows));
                self.next = stop;
                Some(start..stop)
            }
        }
    }
}

impl FusedIterator for Runs<'_> {}
