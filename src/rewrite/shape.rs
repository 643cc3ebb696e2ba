//! How the positions of an order are cut into files, row groups and buckets: arithmetic alone.

use std::ops::Range;

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

impl OutputGroup {
    pub(super) fn rows(&self) -> u64 {
        self.positions.end - self.positions.start
    }
}

/// The row groups of a file with these positions. Each has so many rows, and the last one the rest.
pub(super) fn row_groups(file: u64, positions: Range<u64>, rows: u64) -> impl Iterator<Item = OutputGroup> {
    let end = positions.end;
    positions.step_by(rows as usize).map(move |start| {
        let positions = start..end.min(start + rows);
        OutputGroup { file, is_last: positions.end == end, positions }
    })
}

/// Row groups that follow each other in buckets, and in how many parts the rows of the buckets are spilled.
#[derive(Debug)]
pub(super) struct Buckets {
    /// The position that each begins with, and the number of positions. None has 2^32 or more.
    pub(super) starts: Vec<u64>,
    /// Each is of equally many row groups of the input.
    pub(super) parts: u64,
}

impl Buckets {
    /// The bucket of a position, and the place in it.
    pub(super) fn place(&self, position: u64) -> (u32, u32) {
        let bucket = self.starts.partition_point(|start| *start <= position).saturating_sub(1);
        (bucket as u32, (position - self.starts[bucket]) as u32)
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
            let files = files.min(rows);
            let mut at = 0;
            for file in 0..files {
                let positions = slice(rows, file, files);
                prop_assert_eq!(positions.start, at);
                prop_assert!([rows / files, rows / files + 1].contains(&(positions.end - at)));
                for group in row_groups(file, positions.clone(), group_rows) {
                    prop_assert_eq!((group.file, group.positions.start), (file, at));
                    at = group.positions.end;
                    prop_assert_eq!(group.is_last, at == positions.end);
                    prop_assert!(group.is_last || group.rows() == group_rows);
                }
            }
            prop_assert_eq!(at, rows);
        }
    }
}
