//! The rows that meet a condition: what footers decide is not read, and the rest is read once.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{ArrayRef, BooleanBufferBuilder, RecordBatch};
use arrow::buffer::BooleanBuffer;
use bytes::Bytes;
use rowdex_filter::ScalarValue;

use super::Dataset;
use super::column::Ids;
use super::files::{FileTable, OpenFile, OpenGroup};
use super::reader::{FileReader, Slots, length_of};
use rowdex_base::cache::{Cache, Weighed};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::pool;
use rowdex_filter::{Bounds, Condition, Lacks, Predicate, Truth};
use rowdex_index::RowGroupEntry;
use rowdex_order::IdSet;
use rowdex_order::id_set::Builder;
use rowdex_parquet::{BloomFilter, FileBytes, Home, Known, RowSink, Statistics};

/// Rows that are evaluated at once. Their columns stay in the core's cache.
const CHUNK_ROWS: usize = 1 << 15;

/// Columns of a row group in a store that are shorter than this are read without asking for the index of their pages.
const WORTH_ASKING: u64 = 1 << 20;

/// Footers kept with their statistics, by the length that they have in their files.
const STATISTICS_BYTES: u64 = 16 << 20;

/// A condition over the rows of a dataset, from [`Dataset::filter`].
///
/// The condition is SQL: `docs/select.md` has all that it may say. A row is kept where it is true; null is not true.
///
/// Row groups that the statistics of their footers decide alone are not read, nor are those that Bloom filters decide,
/// and pages that the page index decides. Of the others, the columns of the condition are read and decoded once, on the
/// dataset's threads and past its cache.
#[derive(Clone)]
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
    /// Row groups that no row is kept of, as statistics or Bloom filters tell.
    pub row_groups_none: u64,
    /// Row groups that all rows are kept of, as statistics or Bloom filters tell.
    pub row_groups_all: u64,
    /// Row groups among these that statistics alone did not decide.
    pub row_groups_by_bloom_filters: u64,
    /// Rows of the other row groups that their page indexes decide.
    pub rows_by_pages: u64,
    /// Rows that the condition was evaluated for.
    pub rows_evaluated: u64,
    /// The columns that it needs.
    pub columns: Vec<String>,
    /// Bytes that were read of the data files, Bloom filters and page indexes among them.
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
    #[must_use]
    pub fn of(self, rows: &'a IdSet) -> Self {
        Self { rows: Some(rows), ..self }
    }

    /// Whether statistics of row groups and pages, and Bloom filters, may decide what is not read. Default: yes. The
    /// rows are the same.
    #[must_use]
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
        let ids = Ids(self.rows);
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
        let reader = Dataset::builder(inner.index.clone())
            .with_columns(self.columns())
            .with_source(inner.source.clone())
            .with_staleness(inner.staleness)
            .with_max_decoded_bytes(inner.max_decoded_bytes)
            .with_cache_bytes(0)
            .with_threads(inner.threads)
            .open()?;
        let predicate = self.condition.over(reader.projection().internal())?;
        let state = reader.inner.state()?;
        let pruner = Pruner::new(&state.files, &predicate);
        let done = AtomicU64::new(0);
        let decide = |(): &mut (), entry: &RowGroupEntry<'_>| {
            let decided = self.decide(&reader, &predicate, &pruner, ids, entry);
            let count = ids.count(entry);
            let rows_done = done.fetch_add(count, Ordering::Relaxed) + count;
            progress(FilterProgress { rows_done, rows: report.rows });
            decided
        };
        let pool = reader.inner.pool(state)?;
        let decided = pool::each(pool.filter(|_| wanted.len() > 1), &wanted, || (), decide)?;
        let mut kept = Builder::new(all);
        let mut counts = Counts::default();
        for (entry, decided) in wanted.iter().zip(decided) {
            let (decided, counted) = decided?;
            counts = counts.plus(counted);
            add(&mut kept, ids, entry, &decided)?;
        }
        let kept = kept.finish();
        report.kept = kept.len();
        report.row_groups_none = counts.none;
        report.row_groups_all = counts.all;
        report.row_groups_by_bloom_filters = counts.by_filters;
        report.rows_evaluated = counts.evaluated;
        report.rows_by_pages = counts.by_pages;
        report.bytes_read = reader.counters().bytes_read;
        Ok((kept, report))
    }

    /// Decides a condition without columns, which is one constant.
    fn constant(&self, ids: Ids<'_>, wanted: &[RowGroupEntry<'_>], report: FilterReport) -> Result<Outcome> {
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
        ids: Ids<'_>,
        entry: &RowGroupEntry<'_>,
    ) -> Result<(Decided, Counts)> {
        let state = reader.inner.state()?;
        let group = &state.files.row_group(entry.index())?;
        let mut counts = Counts::default();
        let (truth, by_filters) = if self.prunes { pruner.row_group(group, reader) } else { (Truth::UNKNOWN, false) };
        counts.by_filters = by_filters.into();
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
    ids: Ids<'_>,
    group: &OpenGroup<'_>,
    pieces: &[(u32, Truth)],
) -> Result<(Decided, Counts)> {
    let entry = &group.entry;
    let selection = entry.selection();
    let mut counts = Counts::default();
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
struct Counts {
    none: u64,
    all: u64,
    evaluated: u64,
    by_pages: u64,
    by_filters: u64,
}

impl Counts {
    fn plus(self, other: Self) -> Self {
        Self {
            none: self.none + other.none,
            all: self.all + other.all,
            evaluated: self.evaluated + other.evaluated,
            by_pages: self.by_pages + other.by_pages,
            by_filters: self.by_filters + other.by_filters,
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
fn add(kept: &mut Builder, ids: Ids<'_>, entry: &RowGroupEntry<'_>, decided: &Decided) -> Result<()> {
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

/// What footers tell of the rows of row groups.
struct Pruner<'a> {
    files: &'a FileTable,
    predicate: &'a Predicate,
    statistics: Cache<u32, Option<Statistics>>,
}

impl<'a> Pruner<'a> {
    fn new(files: &'a FileTable, predicate: &'a Predicate) -> Self {
        Self { files, predicate, statistics: Cache::new(STATISTICS_BYTES) }
    }

    /// What the condition may come to in a row group, and whether Bloom filters decided that.
    fn row_group(&self, group: &OpenGroup<'_>, reader: &Dataset) -> (Truth, bool) {
        let terms = self.predicate.terms();
        let homes: Vec<Home<'_>> =
            terms.iter().map(|(path, _)| group.file.metadata.home(path, &group.partitions)).collect();
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
        let truth = self.predicate.truth(&bounds);
        if is_decided(truth) {
            return (truth, false);
        }
        match self.by_filters(group, reader, &homes, bounds) {
            Some(truth) => (truth, true),
            None => (truth, false),
        }
    }

    /// What the condition comes to by Bloom filters, which are read as long as they may decide it.
    fn by_filters(
        &self,
        group: &OpenGroup<'_>,
        reader: &Dataset,
        homes: &[Home<'_>],
        mut bounds: Vec<Bounds>,
    ) -> Option<Truth> {
        let metadata = &group.file.metadata;
        let place = |home: &Home<'_>| match home {
            Home::Leaf(leaf, own) => metadata.filter_place(group.ordinal(), *leaf, own),
            _ => None,
        };
        let filtered = |at: &usize| Some((*at, length_of(&[place(homes.get(*at)?)?])));
        let filters: Vec<(usize, u64)> = self.predicate.equal().iter().filter_map(filtered).collect();
        if filters.is_empty() {
            return None;
        }
        // Nothing is gained by filters that are longer than the columns, nor by a request for little.
        let columns = length_of(&metadata.chunks(group.ordinal(), reader.projection(), &group.partitions));
        let mut left = if reader.is_remote() && columns < WORTH_ASKING { 0 } else { columns };
        let state = reader.inner.state().ok()?;
        let bytes = Counted { reader: &state.reader, file: &group.file };
        for (number, (at, length)) in filters.iter().enumerate() {
            let mut hoped = bounds.clone();
            for (later, _) in &filters[number..] {
                hoped[*later].lacks = Some(Lacks::new(|_| true));
            }
            if !is_decided(self.predicate.truth(&hoped)) {
                return None;
            }
            left = left.checked_sub(*length)?;
            let (Some(Home::Leaf(leaf, own)), Some((_, served))) = (homes.get(*at), self.predicate.terms().get(*at))
            else {
                return None;
            };
            if let Some(filter) = BloomFilter::read(metadata, &bytes, group.ordinal(), *leaf, own) {
                let served = served.clone();
                let lacks = move |value: &ScalarValue| value.to_array().is_ok_and(|one| filter.lacks(&one, &served));
                bounds[*at].lacks = Some(Lacks::new(lacks));
            }
            let truth = self.predicate.truth(&bounds);
            if is_decided(truth) {
                return Some(truth);
            }
        }
        None
    }

    /// What the condition may come to in the pages of a row group: the first row of each stretch of rows, and what it
    /// comes to there. Nothing where the page index decides no row, or would cost more than it saves.
    fn pages(&self, group: &OpenGroup<'_>, reader: &Dataset) -> Option<Vec<(u32, Truth)>> {
        let state = reader.inner.state().ok()?;
        let chunks = group.file.metadata.chunks(group.ordinal(), reader.projection(), &group.partitions);
        if reader.is_remote() && length_of(&chunks) < WORTH_ASKING {
            return None;
        }
        let terms = self.predicate.terms();
        let homes: Vec<Home<'_>> =
            terms.iter().map(|(path, _)| group.file.metadata.home(path, &group.partitions)).collect();
        let statistics = self.statistics(group, &homes)?;
        let statistics = statistics.as_ref().as_ref()?;
        let bytes = Counted { reader: &state.reader, file: &group.file };
        let (metadata, rows) = (&group.file.metadata, group.entry.source_rows());
        let mut starts = vec![0];
        let mut known: Vec<Vec<(u32, Bounds)>> = Vec::with_capacity(terms.len());
        for ((_, data_type), home) in terms.iter().zip(&homes) {
            let Home::Leaf(leaf, own) = home else {
                known.push(vec![(0, bounds(&home.known(data_type, rows), rows))]);
                continue;
            };
            let pages = statistics.pages(metadata, &bytes, group.ordinal(), (*leaf, own, data_type));
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
        let pieces: Vec<(u32, Truth)> = starts
            .into_iter()
            .map(|first| {
                let page = |pages: &Vec<(u32, Bounds)>| {
                    let at = pages.partition_point(|(start, _)| *start <= first);
                    at.checked_sub(1).and_then(|at| pages.get(at)).map(|(_, bounds)| bounds.clone()).unwrap_or_default()
                };
                let bounds: Vec<Bounds> = known.iter().map(page).collect();
                (first, self.predicate.truth(&bounds))
            })
            .collect();
        pieces.iter().any(|(_, truth)| truth.is_never() || truth.is_always()).then_some(pieces)
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

/// Whether no row is kept, or every one.
fn is_decided(truth: Truth) -> bool {
    truth.is_never() || truth.is_always()
}

/// The bytes of a file, counted as read.
struct Counted<'a> {
    reader: &'a FileReader,
    file: &'a OpenFile,
}

impl FileBytes for Counted<'_> {
    fn read(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.reader.fetch(self.file, ranges)
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
        lacks: None,
    }
}

#[cfg(test)]
mod tests;
