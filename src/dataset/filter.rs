//! The rows that meet a condition: what footers decide is not read, and the rest is read once.

mod prune;
#[cfg(test)]
mod tests;

use std::fmt;

use arrow_array::RecordBatch;
use arrow_array::builder::BooleanBufferBuilder;
use arrow_buffer::BooleanBuffer;

use self::prune::Pruner;
use super::Dataset;
use super::column::FoundIds;
use super::reader::Slots;
use super::scan::{EachChunk, RowProgress, RowsDone};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_filter::{Condition, Predicate};
use rowdex_index::RowGroupEntry;
use rowdex_order::IdSet;
use rowdex_order::id_set::Builder;

/// Rows that are evaluated at once. Their columns stay in the core's cache.
const CHUNK_ROWS: usize = 1 << 15;

/// A condition over the rows of a dataset, from [`Dataset::filter`].
///
/// The condition is SQL: `docs/select.md` has all that it may say. A row is kept where it is true; null is not true.
///
/// Row groups that the statistics of their footers decide alone are not read, nor are pages that the page index
/// decides. Of the others, the columns of the condition are read and decoded once, on the dataset's threads and past
/// its cache.
#[derive(Clone)]
#[must_use]
pub struct Filter<'a> {
    dataset: &'a Dataset,
    condition: Condition,
    rows: Option<&'a IdSet>,
    prunes: bool,
}

/// What a [`Filter`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilterReport {
    /// Rows that were asked about.
    pub rows: u64,
    /// Rows that meet the condition.
    pub kept: u64,
    /// Row groups that have rows to decide.
    pub row_groups: u64,
    /// Row groups that no row is kept of, as statistics tell.
    pub row_groups_none: u64,
    /// Row groups that all rows are kept of, as statistics tell.
    pub row_groups_all: u64,
    /// Rows of the other row groups that their page indexes decide.
    pub rows_by_pages: u64,
    /// Rows that the condition was evaluated for.
    pub rows_evaluated: u64,
    /// The columns that it needs.
    pub columns: Vec<String>,
    /// Bytes that were read of the data files, page indexes among them.
    pub bytes_read: u64,
}

impl Dataset {
    /// The rows that meet a condition in SQL, over all columns of the files, whether the dataset serves them or not.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a condition that is none: the message says what is wrong with it, and names
    /// the nearest column where there is no such one. Nothing is read.
    pub fn filter(&self, condition: impl Into<String>) -> Result<Filter<'_>> {
        self.filter_all(&[condition.into()])
    }

    /// The rows that meet all of some conditions.
    ///
    /// # Errors
    /// As [`filter`](Self::filter).
    pub fn filter_all(&self, conditions: &[String]) -> Result<Filter<'_>> {
        let condition = Condition::parse(conditions, self.index().schema())?;
        Ok(Filter { dataset: self, condition, rows: None, prunes: true })
    }
}

impl<'a> Filter<'a> {
    /// Only these rows, out of all rows of the dataset: others are not decided, and not kept.
    pub fn of(self, rows: &'a IdSet) -> Self {
        Self { rows: Some(rows), ..self }
    }

    /// Whether statistics of row groups and pages may decide what is not read. Default: yes. The rows are the same.
    pub fn with_pruning(self, prunes: bool) -> Self {
        Self { prunes, ..self }
    }

    /// The columns that the condition needs, as dotted paths.
    pub fn columns(&self) -> &[String] {
        self.condition.columns()
    }

    /// The rows that meet the condition, by row id.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if it cannot be evaluated for some values, and those of reading. They name file
    /// and row group.
    pub fn rows(&self) -> Result<IdSet> {
        self.run(&|_| ()).map(|(rows, _)| rows)
    }

    /// As [`rows`](Self::rows), with what was done. `progress` is called after each row group.
    ///
    /// # Errors
    /// As [`rows`](Self::rows).
    pub fn run(&self, progress: &(dyn Fn(RowProgress) + Sync)) -> Result<(IdSet, FilterReport)> {
        let all = self.dataset.len();
        let ids = FoundIds::of(self.dataset, self.rows)?;
        let wanted = ids.row_groups(self.dataset);
        let mut report = FilterReport {
            rows: self.rows.map_or(all, IdSet::len),
            row_groups: wanted.len() as u64,
            columns: self.columns().to_vec(),
            ..FilterReport::default()
        };
        let reader = self.dataset.with_other_columns(self.columns())?;
        let predicate = self.condition.over(reader.projection().internal())?;
        let state = reader.inner.state()?;
        let pruner = Pruner::new(&state.files, &predicate);
        let done = RowsDone::new(report.rows, progress);
        let decide = |entry: &RowGroupEntry<'_>| {
            let decided = self.decide(&reader, &predicate, &pruner, ids, entry);
            done.advance(ids.count(entry));
            decided
        };
        let mut kept = Builder::new(all);
        for (entry, decided) in wanted.iter().zip(reader.each_row_group(&wanted, decide)?) {
            let (bits, counted) = decided?;
            let first = entry.first_row();
            bits.set_slices().try_for_each(|(from, to)| kept.add(first + from as u64..first + to as u64))?;
            report.row_groups_none += counted.row_groups_none;
            report.row_groups_all += counted.row_groups_all;
            report.rows_evaluated += counted.rows_evaluated;
            report.rows_by_pages += counted.rows_by_pages;
        }
        let kept = kept.finish();
        report.kept = kept.len();
        report.bytes_read = reader.counters().bytes_read;
        Ok((kept, report))
    }

    /// Which of the rows of a row group are kept, of those that are wanted, and what was done to know that.
    fn decide(
        &self,
        reader: &Dataset,
        predicate: &Predicate,
        pruner: &Pruner<'_>,
        ids: FoundIds<'_>,
        entry: &RowGroupEntry<'_>,
    ) -> Result<(BooleanBuffer, FilterReport)> {
        let state = reader.inner.state()?;
        let group = &state.files.row_group(entry.index())?;
        let mut done = FilterReport::default();
        let all = entry.rows() as usize;
        let is_all = ids.count(entry) == entry.rows();
        let decided = self.prunes.then(|| pruner.row_group(group)).flatten();
        if decided == Some(false) {
            done.row_groups_none = 1;
            return Ok((BooleanBuffer::new_unset(0), done));
        }
        if decided == Some(true) && is_all {
            done.row_groups_all = 1;
            return Ok((BooleanBuffer::new_set(all), done));
        }
        let mut kept = BooleanBufferBuilder::new(all);
        kept.append_n(all, false);
        if decided == Some(true) {
            done.row_groups_all = 1;
            ids.slots(entry).for_each(|slot| kept.set_bit(slot as usize, true));
            return Ok((kept.finish(), done));
        }
        let pages = self.prunes.then(|| pruner.pages(group, reader)).flatten().unwrap_or_default();
        let mut open = None;
        if !(pages.is_empty() && is_all) {
            let mut pages = pages.iter().peekable();
            let mut page = None;
            let open: &mut Vec<u32> = open.insert(Vec::new());
            for slot in ids.slots(entry) {
                let row =
                    entry.selection().map_or(Some(slot.into()), |set| set.select(slot.into())).unwrap_or_default();
                while let Some((_, decided)) = pages.next_if(|(first, _)| u64::from(*first) <= row) {
                    page = *decided;
                }
                match page {
                    Some(is_kept) => {
                        done.rows_by_pages += 1;
                        kept.set_bit(slot as usize, is_kept);
                    }
                    None => open.push(slot),
                }
            }
        }
        let count = open.as_ref().map_or(all, Vec::len);
        let mut bits = BooleanBufferBuilder::new(count);
        if count > 0 {
            let each = |chunk: &RecordBatch| {
                if chunk.num_rows() > 0 {
                    bits.append_buffer(&predicate.rows(chunk)?);
                }
                Ok(())
            };
            let slots = open.as_deref().map_or(Slots::All, Slots::Some);
            let sink = &mut EachChunk { rows: CHUNK_ROWS, each };
            let read = reader.read(entry.index(), slots, reader.projection(), None, sink);
            read.map_err(|error| group.located(error))?;
        }
        let bits = bits.finish();
        if bits.len() != count {
            return Err(Error::new(ErrorKind::Internal, "another number of rows than was asked about"));
        }
        done.rows_evaluated = count as u64;
        let Some(open) = open else { return Ok((bits, done)) };
        bits.set_indices().filter_map(|at| open.get(at)).for_each(|slot| kept.set_bit(*slot as usize, true));
        Ok((kept.finish(), done))
    }
}

impl fmt::Debug for Filter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter").field("condition", &self.condition).finish_non_exhaustive()
    }
}
