//! The rows that meet a condition: what footers decide is not read, and the rest is read once.

mod prune;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{BooleanBufferBuilder, RecordBatch};
use arrow::buffer::BooleanBuffer;

use self::prune::Pruner;
use super::Dataset;
use super::column::FoundIds;
use super::files::OpenGroup;
use super::reader::Slots;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_filter::{Condition, Predicate, Truth};
use rowdex_index::RowGroupEntry;
use rowdex_order::IdSet;
use rowdex_order::id_set::Builder;
use rowdex_parquet::RowSink;

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

/// How far a [`Filter`] has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilterProgress {
    /// Rows that are decided.
    pub rows_done: u64,
    /// All rows that are asked about.
    pub rows: u64,
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

/// What is known of the rows of one row group.
enum Decided {
    None,
    All,
    /// Of these slots, or of all, those whose bit is set.
    Some(Option<Vec<u32>>, BooleanBuffer),
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
    pub fn run(&self, progress: &(dyn Fn(FilterProgress) + Sync)) -> Result<(IdSet, FilterReport)> {
        let all = self.dataset.len();
        if let Some(rows) = self.rows.filter(|rows| rows.rows() != all) {
            let message = format!("a set out of {} rows for a dataset of {all}", rows.rows());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let inner = &self.dataset.inner.settings;
        let ids = FoundIds(self.rows);
        let wanted: Vec<RowGroupEntry<'_>> = inner.index.row_groups().filter(|entry| ids.count(entry) > 0).collect();
        let mut report = FilterReport {
            rows: self.rows.map_or(all, IdSet::len),
            row_groups: wanted.len() as u64,
            columns: self.columns().to_vec(),
            ..FilterReport::default()
        };
        if self.columns().is_empty() {
            return self.constant(ids, &wanted, report);
        }
        let reader = self.dataset.with_other_columns(self.columns())?;
        let predicate = self.condition.over(reader.projection().internal())?;
        let state = reader.inner.state()?;
        let pruner = Pruner::new(&state.files, &predicate);
        let done = AtomicU64::new(0);
        let decide = |entry: &RowGroupEntry<'_>| {
            let decided = self.decide(&reader, &predicate, &pruner, ids, entry);
            let count = ids.count(entry);
            let rows_done = done.fetch_add(count, Ordering::Relaxed) + count;
            progress(FilterProgress { rows_done, rows: report.rows });
            decided
        };
        let decided = reader.each_row_group(&wanted, decide)?;
        let mut kept = Builder::new(all);
        let mut counts = FilterCounts::default();
        for (entry, decided) in wanted.iter().zip(decided) {
            let (decided, counted) = decided?;
            counts = counts.plus(counted);
            add(&mut kept, ids, entry, &decided)?;
        }
        let kept = kept.finish();
        report.kept = kept.len();
        report.row_groups_none = counts.none;
        report.row_groups_all = counts.all;
        report.rows_evaluated = counts.evaluated;
        report.rows_by_pages = counts.by_pages;
        report.bytes_read = reader.counters().bytes_read;
        Ok((kept, report))
    }

    /// Decides a condition without columns, which is one constant.
    fn constant(&self, ids: FoundIds<'_>, wanted: &[RowGroupEntry<'_>], report: FilterReport) -> Result<Outcome> {
        let index = &self.dataset.inner.settings.index;
        let truth = self.condition.over(index.schema())?.truth(&[]);
        let mut kept = Builder::new(self.dataset.len());
        if truth.is_always() {
            wanted.iter().try_for_each(|entry| add(&mut kept, ids, entry, &Decided::All))?;
        }
        let kept = kept.finish();
        let (none, all) = if truth.is_always() { (0, report.row_groups) } else { (report.row_groups, 0) };
        let report = FilterReport { kept: kept.len(), row_groups_none: none, row_groups_all: all, ..report };
        Ok((kept, report))
    }

    /// Which of the wanted rows of a row group are kept.
    fn decide(
        &self,
        reader: &Dataset,
        predicate: &Predicate,
        pruner: &Pruner<'_>,
        ids: FoundIds<'_>,
        entry: &RowGroupEntry<'_>,
    ) -> Result<(Decided, FilterCounts)> {
        let state = reader.inner.state()?;
        let group = &state.files.row_group(entry.index())?;
        let mut counts = FilterCounts::default();
        let truth = if self.prunes { pruner.row_group(group) } else { Truth::UNKNOWN };
        if truth.is_never() {
            counts.none = 1;
            return Ok((Decided::None, counts));
        }
        if truth.is_always() {
            counts.all = 1;
            return Ok((Decided::All, counts));
        }
        let count = ids.count(entry);
        if let Some(pieces) = self.prunes.then(|| pruner.pages(group, reader)).flatten() {
            return by_pages(reader, predicate, ids, group, &pieces);
        }
        let slots: Option<Vec<u32>> = (count < entry.rows())
            .then(|| (0..count as usize).map(|at| (ids.id(entry, at) - entry.first_row()) as u32).collect());
        counts.evaluated = count;
        let mut sink = Evaluated { predicate, bits: BooleanBufferBuilder::new(count as usize) };
        let wanted = slots.as_deref().map_or(Slots::All, Slots::Some);
        let read = reader.read(entry.index(), wanted, reader.projection(), None, &mut sink);
        read.map_err(|error| group.located(error))?;
        let bits = sink.bits.finish();
        if bits.len() as u64 != count {
            return Err(Error::new(ErrorKind::Internal, "another number of rows than was asked about"));
        }
        Ok((Decided::Some(slots, bits), counts))
    }
}

/// Decides the wanted rows of a row group by its pages, and reads those that these leave open.
fn by_pages(
    reader: &Dataset,
    predicate: &Predicate,
    ids: FoundIds<'_>,
    group: &OpenGroup<'_>,
    pieces: &[(u32, Truth)],
) -> Result<(Decided, FilterCounts)> {
    let entry = &group.entry;
    let selection = entry.selection();
    let mut counts = FilterCounts::default();
    let mut kept = BooleanBufferBuilder::new(entry.rows() as usize);
    kept.append_n(entry.rows() as usize, false);
    let mut open = Vec::new();
    let mut piece = 0;
    for at in 0..ids.count(entry) as usize {
        let slot = (ids.id(entry, at) - entry.first_row()) as u32;
        let row = selection.map_or(Some(u64::from(slot)), |set| set.select(u64::from(slot))).unwrap_or_default();
        while pieces.get(piece + 1).is_some_and(|(first, _)| u64::from(*first) <= row) {
            piece += 1;
        }
        match pieces.get(piece).map_or(Truth::UNKNOWN, |(_, truth)| *truth) {
            truth if truth.is_never() => counts.by_pages += 1,
            truth if truth.is_always() => {
                kept.set_bit(slot as usize, true);
                counts.by_pages += 1;
            }
            _ => open.push(slot),
        }
    }
    if !open.is_empty() {
        counts.evaluated = open.len() as u64;
        let mut sink = Evaluated { predicate, bits: BooleanBufferBuilder::new(open.len()) };
        let read = reader.read(entry.index(), Slots::Some(&open), reader.projection(), None, &mut sink);
        read.map_err(|error| group.located(error))?;
        let bits = sink.bits.finish();
        if bits.len() != open.len() {
            return Err(Error::new(ErrorKind::Internal, "another number of rows than was asked about"));
        }
        bits.set_indices().filter_map(|at| open.get(at)).for_each(|slot| kept.set_bit(*slot as usize, true));
    }
    Ok((Decided::Some(None, kept.finish()), counts))
}

type Outcome = (IdSet, FilterReport);

/// What was done for one row group, or for several.
#[derive(Debug, Clone, Copy, Default)]
struct FilterCounts {
    none: u64,
    all: u64,
    evaluated: u64,
    by_pages: u64,
}

impl FilterCounts {
    fn plus(self, other: Self) -> Self {
        Self {
            none: self.none + other.none,
            all: self.all + other.all,
            evaluated: self.evaluated + other.evaluated,
            by_pages: self.by_pages + other.by_pages,
        }
    }
}

/// Evaluates the condition over each chunk of a row group.
struct Evaluated<'a> {
    predicate: &'a Predicate,
    bits: BooleanBufferBuilder,
}

impl RowSink for Evaluated<'_> {
    fn chunk_rows(&self) -> usize {
        CHUNK_ROWS
    }

    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        if chunk.num_rows() > 0 {
            self.bits.append_buffer(&self.predicate.rows(&chunk)?);
        }
        Ok(())
    }
}

/// Adds the rows that are kept of a row group.
fn add(kept: &mut Builder, ids: FoundIds<'_>, entry: &RowGroupEntry<'_>, decided: &Decided) -> Result<()> {
    match decided {
        Decided::None => Ok(()),
        Decided::All if ids.count(entry) == entry.rows() => kept.add(entry.row_ids()),
        Decided::All => (0..ids.count(entry) as usize).try_for_each(|at| {
            let id = ids.id(entry, at);
            kept.add(id..id + 1)
        }),
        Decided::Some(slots, bits) => {
            let first = entry.first_row();
            match slots {
                None => bits.set_slices().try_for_each(|(from, to)| kept.add(first + from as u64..first + to as u64)),
                Some(slots) => bits.set_indices().filter_map(|at| slots.get(at)).try_for_each(|slot| {
                    let id = first + u64::from(*slot);
                    kept.add(id..id + 1)
                }),
            }
        }
    }
}

impl fmt::Debug for Filter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter").field("condition", &self.condition).finish_non_exhaustive()
    }
}
