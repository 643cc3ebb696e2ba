//! What an index says of its files and row groups.

use indicatif::{HumanBytes, HumanCount};
use rowdex::{Dataset, Index};
use serde_json::{Value, json};

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
    /// How many there are from one number to another, which doubles from bar to bar.
    pub(super) bars: Vec<(u64, u64, u64)>,
}

impl Spread {
    pub(super) fn of(numbers: impl Iterator<Item = u64>) -> Self {
        let mut all: Vec<u64> = numbers.collect();
        let (least, most) = all.iter().fold((u64::MAX, 0), |(least, most), &one| (least.min(one), most.max(one)));
        let mut bars: Vec<(u64, u64, u64)> = Vec::new();
        let bits = |number: u64| u64::BITS - number.leading_zeros();
        if !all.is_empty() {
            for length in bits(least)..=bits(most) {
                let from = if length == 0 { 0 } else { 1 << (length - 1) };
                bars.push((from, from + from.saturating_sub(1), 0));
            }
        }
        for number in &all {
            if let Some(bar) = bars.get_mut((bits(*number) - bits(least)) as usize) {
                bar.2 += 1;
            }
        }
        let middle = all.len() / 2;
        let median = if all.is_empty() { 0 } else { *all.select_nth_unstable(middle).1 };
        Self { least: least.min(most), median, most, bars }
    }

    fn to_json(&self) -> Value {
        let bar = |&(from, to, count): &(u64, u64, u64)| json!({"from": from, "to": to, "count": count});
        let bars: Vec<Value> = self.bars.iter().map(bar).collect();
        json!({"least": self.least, "median": self.median, "most": self.most, "histogram": bars})
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

    pub(super) fn to_json(&self) -> Value {
        json!({
            "rows": self.rows,
            "source_rows": self.source_rows,
            "files": self.files,
            "row_groups": self.row_groups,
            "index_bytes": self.index_bytes,
            "data_bytes": self.data_bytes,
            "decoded_bytes": self.decoded_bytes,
            "footers": self.has_footers,
            "file_rows": self.file_rows.to_json(),
            "file_bytes": self.file_bytes.to_json(),
            "row_group_rows": self.group_rows.to_json(),
            "row_group_bytes": self.group_bytes.to_json(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_count_each_number_once_in_bars_that_double() {
        let spread = Spread::of([0, 1, 1, 5, 7, 8, 1000].into_iter());
        assert_eq!((spread.least, spread.median, spread.most), (0, 5, 1000));
        assert_eq!(spread.bars.iter().map(|bar| bar.2).sum::<u64>(), 7);
        assert_eq!(&spread.bars[..4], [(0, 0, 1), (1, 1, 2), (2, 3, 0), (4, 7, 2)]);
        assert_eq!(spread.bars.last(), Some(&(512, 1023, 1)));
        assert!(Spread::of(std::iter::empty()).bars.is_empty());
        assert_eq!(Spread::of([u64::MAX].into_iter()).bars, [(1 << 63, u64::MAX, 1)]);
    }
}
