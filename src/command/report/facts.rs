//! What an index says of its files and row groups.

use indicatif::{HumanBytes, HumanCount};
use rowdex::{Dataset, Index};

use crate::command::output::counted;

/// What is in an index.
pub(super) struct Facts {
    pub(super) rows: u64,
    pub(super) source_rows: u64,
    pub(super) files: u64,
    pub(super) row_groups: u64,
    pub(super) index_bytes: u64,
    pub(super) data_bytes: u64,
    /// Of the columns that are looked at.
    pub(super) decoded_bytes: u64,
    pub(super) has_footers: bool,
    pub(super) file_rows: Spread,
    pub(super) file_bytes: Spread,
    pub(super) group_rows: Spread,
    /// Of all columns.
    pub(super) group_bytes: Spread,
}

/// How numbers are spread.
pub(super) struct Spread {
    pub(super) least: u64,
    pub(super) median: u64,
    pub(super) most: u64,
}

impl Spread {
    pub(super) fn of(numbers: impl Iterator<Item = u64>) -> Self {
        let mut all: Vec<u64> = numbers.collect();
        let (least, most) = all.iter().fold((u64::MAX, 0), |(least, most), &one| (least.min(one), most.max(one)));
        let middle = all.len() / 2;
        let median = if all.is_empty() { 0 } else { *all.select_nth_unstable(middle).1 };
        Self { least: least.min(most), median, most }
    }
}

impl Facts {
    pub(super) fn of(index: &Index, dataset: &Dataset) -> Self {
        Self {
            rows: index.len(),
            source_rows: index.source_rows(),
            files: index.num_files().into(),
            row_groups: index.num_row_groups().into(),
            index_bytes: index.size_bytes(),
            data_bytes: index.files().map(|file| file.size()).sum(),
            decoded_bytes: dataset.decoded_bytes(),
            has_footers: index.files().all(|file| file.has_footer()),
            file_rows: Spread::of(index.files().map(|file| file.rows())),
            file_bytes: Spread::of(index.files().map(|file| file.size())),
            group_rows: Spread::of(index.row_groups().map(|group| group.rows())),
            group_bytes: Spread::of(index.row_groups().map(|group| group.decoded_bytes())),
        }
    }

    /// A line about all of it.
    pub(super) fn summary(&self) -> String {
        format!(
            "{} in {} of {}; {} stored, {} decoded; the index has {}",
            counted(self.rows, "row"),
            counted(self.row_groups, "row group"),
            counted(self.files, "file"),
            HumanBytes(self.data_bytes),
            HumanBytes(self.decoded_bytes),
            HumanBytes(self.index_bytes),
        )
    }

    /// What is chosen of the files' rows, if not all are.
    pub(super) fn chosen(&self) -> Option<String> {
        let all = HumanCount(self.source_rows);
        (self.rows != self.source_rows).then(|| format!("A view: it serves {} of {all} rows.", HumanCount(self.rows)))
    }
}
