//! What of a condition is decided without reading rows: by statistics and the indexes of pages.

use std::sync::Arc;

use arrow_array::ArrayRef;
use rowdex_filter::ScalarValue;

use crate::dataset::Dataset;
use crate::dataset::files::{FileTable, OpenGroup};
use crate::dataset::reader::AtHand;
use rowdex_base::cache::{Cache, Weighed};
use rowdex_filter::{Bounds, Predicate};
use rowdex_parquet::{Home, Known, Statistics, length_of};

/// Columns of a row group in a store that are shorter than this are read without asking for the index of their pages.
const WORTH_ASKING: u64 = 1 << 20;

/// Footers kept with their statistics, by the length that they have in their files.
const STATISTICS_BYTES: u64 = 16 << 20;

/// What footers tell of the rows of row groups.
pub(super) struct Pruner<'a> {
    files: &'a FileTable,
    predicate: &'a Predicate,
    statistics: Cache<u32, Option<Statistics>>,
}

impl<'a> Pruner<'a> {
    pub(super) fn new(files: &'a FileTable, predicate: &'a Predicate) -> Self {
        Self { files, predicate, statistics: Cache::new(STATISTICS_BYTES) }
    }

    /// Whether all rows of a row group are kept, or none; nothing if that takes their values.
    pub(super) fn row_group(&self, group: &OpenGroup<'_>) -> Option<bool> {
        let terms = self.predicate.terms();
        let homes = self.homes(group);
        let statistics = self.statistics(group, &homes);
        let rows = group.entry.source_rows();
        let bounds: Vec<Bounds> = terms
            .iter()
            .zip(&homes)
            .map(|((_, data_type), home)| {
                let known = match (home, statistics.as_deref()) {
                    (Home::Leaf(leaf, own), Some(Some(statistics))) => {
                        statistics.of(group.ordinal(), *leaf, own, data_type)
                    }
                    _ => home.known(data_type, rows),
                };
                bounds(&known, rows)
            })
            .collect();
        self.predicate.decided(&bounds)
    }

    /// As [`row_group`](Self::row_group) for its pages: the first row of each stretch of rows, and whether these are
    /// kept. Nothing where the page index decides no row, or would cost more than it saves.
    pub(super) fn pages(&self, group: &OpenGroup<'_>, reader: &Dataset) -> Option<Vec<(u32, Option<bool>)>> {
        let state = reader.inner.state().ok()?;
        let chunks = group.file.metadata.chunks(group.ordinal(), reader.projection(), &group.partitions);
        if reader.is_remote() && length_of(&chunks) < WORTH_ASKING {
            return None;
        }
        let terms = self.predicate.terms();
        let homes = self.homes(group);
        let statistics = self.statistics(group, &homes)?;
        let statistics = statistics.as_ref().as_ref()?;
        let none = AtHand::default();
        let bytes = state.reader.bytes(&group.file, &none);
        let metadata = &group.file.metadata;
        let rows = group.entry.source_rows();
        let mut starts = vec![0];
        let mut known: Vec<Vec<(u32, Bounds)>> = Vec::with_capacity(terms.len());
        for ((_, data_type), home) in terms.iter().zip(&homes) {
            let Home::Leaf(leaf, own) = home else {
                known.push(vec![(0, bounds(&home.known(data_type, rows), rows))]);
                continue;
            };
            let pages = statistics.pages(metadata, &bytes, group.ordinal(), *leaf, own, data_type);
            let Some(pages) = pages else {
                let whole = statistics.of(group.ordinal(), *leaf, own, data_type);
                known.push(vec![(0, bounds(&whole, rows))]);
                continue;
            };
            let ends = pages.iter().skip(1).map(|(first, _)| u64::from(*first)).chain([rows]);
            let bounded = pages
                .iter()
                .zip(ends)
                .map(|((first, page), end)| (*first, bounds(page, end.saturating_sub(u64::from(*first)))));
            known.push(bounded.collect());
            starts.extend(pages.iter().map(|(first, _)| *first));
        }
        starts.sort_unstable();
        starts.dedup();
        if starts.len() < 2 {
            return None;
        }
        let pieces: Vec<(u32, Option<bool>)> = starts
            .into_iter()
            .map(|first| {
                let page = |pages: &Vec<(u32, Bounds)>| {
                    let at = pages.partition_point(|(start, _)| *start <= first);
                    at.checked_sub(1).and_then(|at| pages.get(at)).map(|(_, bounds)| bounds.clone()).unwrap_or_default()
                };
                let bounds: Vec<Bounds> = known.iter().map(page).collect();
                (first, self.predicate.decided(&bounds))
            })
            .collect();
        pieces.iter().any(|(_, decided)| decided.is_some()).then_some(pieces)
    }

    /// Where the values of each term are.
    fn homes<'b>(&self, group: &'b OpenGroup<'_>) -> Vec<Home<'b>> {
        let terms = self.predicate.terms().iter();
        terms.map(|(path, _)| group.file.metadata.home(path, &group.partitions)).collect()
    }

    fn statistics(&self, group: &OpenGroup<'_>, homes: &[Home<'_>]) -> Option<Arc<Option<Statistics>>> {
        let leaf = |home: &Home<'_>| match home {
            Home::Leaf(leaf, _) => Some(*leaf),
            _ => None,
        };
        let leaves: Vec<usize> = homes.iter().filter_map(leaf).collect();
        if leaves.is_empty() {
            return None;
        }
        let file = group.entry.file();
        let load = || {
            // A footer that cannot be had leaves nothing out; who reads the rows has the error.
            let footer = self.files.footer(file).ok();
            let bytes = footer.as_ref().map_or(0, |footer| footer.len() as u64);
            Ok(Weighed { value: footer.and_then(|footer| Statistics::parse(&footer, &leaves)), bytes })
        };
        self.statistics.get_or_load(file, load).ok()
    }
}

/// What is known of the values of a term, as the condition takes it.
fn bounds(known: &Known, rows: u64) -> Bounds {
    let scalar = |array: &Option<ArrayRef>| array.as_ref().and_then(|one| ScalarValue::try_from_array(one, 0).ok());
    Bounds {
        min: scalar(&known.min),
        max: scalar(&known.max),
        no_null: known.nulls == Some(0),
        all_null: known.nulls.is_some_and(|nulls| nulls >= rows),
    }
}
