//! How the positions of an order are cut into files, row groups and buckets: arithmetic alone.

use std::ops::Range;

/// Files of equal numbers of rows, or of one row more, and row groups in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OutputShape {
    pub(super) rows: u64,
    /// At least one, and no more than there are rows unless there are none.
    pub(super) files: u64,
    /// Rows of a row group; the last one of a file may have fewer.
    pub(super) group_rows: u64,
}

/// A row group that is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OutputGroup {
    pub(super) file: u64,
    pub(super) positions: Range<u64>,
    /// Whether no row group of the file comes after it.
    pub(super) is_last: bool,
}

impl OutputShape {
    /// The positions that a file has.
    pub(super) fn file(&self, file: u64) -> Range<u64> {
        let least = self.rows / self.files;
        let longer = self.rows % self.files;
        let start = |file: u64| file * least + file.min(longer);
        start(file)..start(file + 1)
    }

    /// The file that a position is in.
    fn file_of(&self, position: u64) -> u64 {
        let least = self.rows / self.files;
        let longer = self.rows % self.files;
        let in_longer = longer * (least + 1);
        match position.checked_sub(in_longer) {
            None => position / (least + 1),
            Some(after) => longer + after / least.max(1),
        }
    }

    /// The row group that a position is in.
    pub(super) fn group(&self, position: u64) -> OutputGroup {
        let file = self.file_of(position);
        let Range { start, end } = self.file(file);
        let first = start + (position - start) / self.group_rows * self.group_rows;
        let last = first.saturating_add(self.group_rows).min(end);
        OutputGroup { file, positions: first..last, is_last: last == end }
    }

    /// The row groups that have one of these positions.
    pub(super) fn groups(self, positions: Range<u64>) -> impl Iterator<Item = OutputGroup> {
        let mut at = positions.start;
        std::iter::from_fn(move || {
            let group = (at < positions.end).then(|| self.group(at))?;
            at = group.positions.end;
            Some(group)
        })
    }
}

/// Positions in buckets of one size, counted from `first`; the last bucket may be smaller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Buckets {
    pub(super) positions: Range<u64>,
    /// Rows of a bucket, below 2^32.
    pub(super) rows: u64,
}

impl Buckets {
    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        (self.positions.end - self.positions.start).div_ceil(self.rows)
    }

    /// The bucket of a position, and the place in it.
    pub(super) fn place(&self, position: u64) -> (u64, u32) {
        let offset = position - self.positions.start;
        (offset / self.rows, (offset % self.rows) as u32)
    }

    /// The positions of a bucket.
    pub(super) fn bucket(&self, bucket: u64) -> Range<u64> {
        let start = self.positions.start + bucket * self.rows;
        start..(start + self.rows).min(self.positions.end)
    }

    /// The buckets that have one of these positions, with those that they have.
    pub(super) fn within(&self, positions: Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> + use<'_> {
        let of = |position: u64| (position - self.positions.start) / self.rows;
        let buckets = if positions.is_empty() { 0..0 } else { of(positions.start)..of(positions.end - 1) + 1 };
        buckets.map(move |bucket| {
            let all = self.bucket(bucket);
            (bucket, all.start.max(positions.start)..all.end.min(positions.end))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn files_and_row_groups_have_every_position_once_in_order(
            rows in 1u64..500, files in 1u64..40, group_rows in 1u64..60,
        ) {
            let shape = OutputShape { rows, files: files.min(rows), group_rows };
            let mut at = 0;
            for file in 0..shape.files {
                let positions = shape.file(file);
                prop_assert_eq!(positions.start, at);
                prop_assert!([rows / shape.files, rows / shape.files + 1].contains(&(positions.end - at)));
                for group in shape.groups(positions.clone()) {
                    prop_assert_eq!((group.file, group.positions.start), (file, at));
                    at = group.positions.end;
                    prop_assert_eq!(group.is_last, at == positions.end);
                    prop_assert!(group.is_last || group.positions.end - group.positions.start == group_rows);
                    prop_assert!(group.positions.clone().all(|position| shape.group(position) == group));
                }
            }
            prop_assert_eq!(at, rows);
        }

        #[test]
        fn buckets_are_equal_and_have_every_position_once(
            first in 0u64..50, rows in 1u64..500, size in 1u64..90, from in 0u64..500, some in 0u64..500,
        ) {
            let buckets = Buckets { positions: first..first + rows, rows: size };
            let all: Vec<u64> = (0..buckets.count()).flat_map(|bucket| buckets.bucket(bucket)).collect();
            prop_assert!(all.iter().copied().eq(first..first + rows));
            for position in first..first + rows {
                let (bucket, place) = buckets.place(position);
                prop_assert_eq!(buckets.bucket(bucket).start + u64::from(place), position);
            }
            let part = first + from.min(rows)..first + (from + some).min(rows);
            let within: Vec<u64> = buckets.within(part.clone()).flat_map(|(_, positions)| positions).collect();
            prop_assert!(within.into_iter().eq(part));
        }
    }
}
