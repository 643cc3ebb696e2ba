//! What the footers tell beforehand: how much there is to decode, and to read for it, and what cannot be decoded.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::files::{OpenDataFile, in_file};
use super::{Dataset, OpenDataset, Staleness};
use rowdex_base::error::Result;
use rowdex_parquet::{FileMetadata, ReadCost};
use rowdex_projection::listed;

impl Dataset {
    /// What each row group costs to read, in the order of the index.
    ///
    /// Parses the footers that the index has of up to a thousand files, and a few from the files themselves if it has
    /// none; the others are taken to be alike.
    pub(crate) fn read_costs(&self) -> Vec<ReadCost> {
        const FILES: usize = 1000;
        const FILES_WITHOUT_FOOTER: usize = 16;
        let inner = &*self.inner;
        let files = inner.options.index.num_files() as usize;
        let embedded = inner.options.index.files().next().is_some_and(|file| file.has_footer());
        let step = files.div_ceil(if embedded { FILES } else { FILES_WITHOUT_FOOTER }).max(1);
        let mut costs = vec![ReadCost::default(); inner.options.index.num_row_groups() as usize];
        let mut last: Vec<ReadCost> = Vec::new();
        for file in inner.options.index.files() {
            if (file.index() as usize).is_multiple_of(step)
                && let Some(described) = inner.described(file.index())
            {
                let metadata = &described.metadata;
                let groups = 0..metadata.num_row_groups();
                last = groups.map(|group| metadata.read_cost(group, &inner.projection)).collect();
            }
            for group in file.row_groups().filter_map(|group| inner.options.index.row_group(group)) {
                let Some(like) = last.get(group.ordinal() as usize).or(last.last()) else { continue };
                if let Some(cost) = costs.get_mut(group.index() as usize) {
                    *cost = like.with_rows(group.source_rows());
                }
            }
        }
        costs
    }
}

impl Dataset {
    /// How many requests reading row groups of one file together takes, of these costs: all of them, or so many rows of
    /// each in so many runs, on average; 0 for local files.
    pub(crate) fn requests(&self, costs: &[&ReadCost], some: Option<(u64, u64)>) -> f64 {
        const DRAWS: u64 = 16;
        let source = &*self.inner.source;
        match some {
            _ if !self.is_remote() => 0.0,
            None => source.requests(&costs.iter().flat_map(|cost| cost.chunks()).collect::<Vec<_>>()) as f64,
            Some((rows, runs)) => {
                let places = |draw| costs.iter().flat_map(|cost| cost.sample(rows, runs, draw)).collect::<Vec<_>>();
                let drawn = (0..DRAWS).map(|draw| source.requests(&places(draw)));
                drawn.sum::<u64>() as f64 / DRAWS as f64
            }
        }
    }

    /// How many requests it takes to begin with all files, before the first byte of a row group; 0 for local files.
    pub(crate) fn opening_requests(&self) -> u64 {
        let level = self.inner.options.staleness;
        let each = |file: rowdex_index::FileEntry<'_>| {
            let checked = matches!(level, Staleness::Footer | Staleness::Deep);
            let untagged = level != Staleness::Off && file.etag().is_none();
            u64::from(checked) + u64::from(untagged) + u64::from(!file.has_footer())
        };
        if self.is_remote() {
            self.inner.options.index.files().filter(|file| file.rows() > 0).map(each).sum()
        } else {
            0
        }
    }
}

impl OpenDataset {
    /// Refuses columns that cannot be decoded, by the files that the index names for them: now, and not at some row.
    pub(super) fn check_columns(&self) -> Result<()> {
        let index = &self.options.index;
        let files: BTreeSet<u32> = index.undecodable().into_values().collect();
        for number in files {
            let Some(file) = self.described(number) else { continue };
            file.metadata.check_columns(&self.projection).map_err(|error| {
                let others = listed(&index.decodable());
                let hint = format!("leave it out; the other `columns` are: {others}");
                in_file(error.with_hint(hint), file.metadata.path(), &*self.source)
            })?;
        }
        Ok(())
    }

    pub(super) fn estimate_decoded_bytes(&self) -> u64 {
        const SAMPLE: usize = 16;
        let total: u64 = self
            .options
            .index
            .row_groups()
            .map(|group| scaled(group.decoded_bytes(), group.rows(), group.source_rows()))
            .sum();
        let files = self.options.index.num_files() as usize;
        let mut all = 0u64;
        let mut chosen = 0u64;
        for number in (0..files).step_by(files.div_ceil(SAMPLE).max(1)) {
            let Some(described) = self.described(number as u32) else { continue };
            let metadata = &described.metadata;
            for group in 0..metadata.num_row_groups() {
                all = all.saturating_add(metadata.decoded_bytes(group, None));
                chosen = chosen.saturating_add(metadata.decoded_bytes(group, Some(&self.projection)));
            }
        }
        scaled(total, chosen, all)
    }

    /// What the footer says that was indexed, without a look at the file where the index has the footer.
    fn described(&self, number: u32) -> Option<Arc<OpenDataFile>> {
        let index = &self.options.index;
        let entry = index.file(number)?;
        let Ok(Some(footer)) = index.footer(number) else { return self.state().ok()?.files.get(number).ok() };
        let metadata = FileMetadata::parse(entry.path(), &footer, entry.size(), index.renaming()).ok()?;
        Some(Arc::new(OpenDataFile { metadata, content: None }))
    }
}

/// `value * part / whole` without overflow; `value` where `whole` is 0.
fn scaled(value: u64, part: u64, whole: u64) -> u64 {
    if whole == 0 {
        return value;
    }
    u64::try_from(u128::from(value) * u128::from(part) / u128::from(whole)).unwrap_or(u64::MAX)
}
