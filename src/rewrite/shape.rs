//! How the positions of an order are cut into files, row groups and buckets: arithmetic alone.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Files of equal numbers of rows, or of one row more, and row groups in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OutputShape {
    pub(super) rows: u64,
    /// At least one, and no more than there are rows unless there are none.
    pub(super) files: u64,
    /// Rows of a row group; the last one of a file may have fewer.
    pub(super) group_rows: u64,
}

/// One of so many consecutive pieces, whose sizes differ by one at most.
pub(super) fn slice(count: u64, piece: u64, pieces: u64) -> Range<u64> {
    let at = |piece: u64| (u128::from(count) * u128::from(piece) / u128::from(pieces)) as u64;
    at(piece)..at(piece + 1)
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

/// Positions in buckets of one size, of which the last may be smaller; and in how many parts their rows are spilled.
/// Decided by whoever spills first, as it depends on the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Buckets {
    pub(super) rows: u64,
    /// Rows of a bucket, at least one and below 2^32.
    pub(super) bucket_rows: u64,
    /// Each is of equally many row groups of the input.
    pub(super) parts: u64,
}

impl Buckets {
    /// The bucket of a position, and the place in it. There are fewer than 2^32.
    pub(super) fn place(&self, position: u64) -> (u32, u32) {
        ((position / self.bucket_rows) as u32, (position % self.bucket_rows) as u32)
    }

    /// The positions of a bucket.
    pub(super) fn bucket(&self, bucket: u64) -> Range<u64> {
        let start = bucket * self.bucket_rows;
        start..(start + self.bucket_rows).min(self.rows)
    }

    /// The buckets that have one of these positions, with those that they have.
    pub(super) fn within(&self, positions: Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> + use<> {
        let buckets = *self;
        let first = positions.start / buckets.bucket_rows;
        (first..positions.end.div_ceil(buckets.bucket_rows)).map(move |bucket| {
            let all = buckets.bucket(bucket);
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
            rows in 1u64..500, size in 1u64..90, from in 0u64..500, some in 0u64..500,
        ) {
            let buckets = Buckets { rows, bucket_rows: size, parts: 1 };
            let all: Vec<u64> = (0..rows.div_ceil(size)).flat_map(|bucket| buckets.bucket(bucket)).collect();
            prop_assert!(all.iter().copied().eq(0..rows));
            for position in 0..rows {
                let (bucket, place) = buckets.place(position);
                prop_assert_eq!(buckets.bucket(u64::from(bucket)).start + u64::from(place), position);
            }
            let part = from.min(rows)..(from + some).min(rows);
            let within: Vec<u64> = buckets.within(part.clone()).flat_map(|(_, positions)| positions).collect();
            prop_assert!(within.into_iter().eq(part));
        }
    }
}
