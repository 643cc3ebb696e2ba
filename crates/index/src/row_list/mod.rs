//! Lists of rows that somebody wrote down: rows to skip, most of the time.

mod marks;
mod names;
mod sequence;
mod table;
mod weights;

use std::ops::Range;
use std::path::Path;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;

use self::marks::Marks;
use self::names::FileNames;
use self::table::Listed;
use super::{FileEntry, Index, RowGroupEntry};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_io::fs;
use rowdex_order::IdSet;

/// The rows that a list names, from [`Index::read_rows`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedRows {
    /// The rows that the index serves, each once.
    pub rows: IdSet,
    /// How often rows were listed beyond the first time.
    pub repeated: u64,
    /// A row that was listed more than once, if a table did so.
    pub repeated_row: Option<u64>,
    /// Listed rows that are in the files and that the index does not serve.
    pub unserved: u64,
}

/// What takes the rows of a list, a part at a time.
type Each<'a> = &'a mut dyn FnMut(Listed, table::Weights) -> Result<()>;

impl Index {
    /// The rows that a file lists, in any order; repeats count once. As [`read_rows`](Self::read_rows).
    ///
    /// # Errors
    /// Those of [`read_rows`](Self::read_rows).
    pub fn listed_rows(&self, list: impl AsRef<Path>) -> Result<IdSet> {
        Ok(self.read_rows(list)?.rows)
    }

    /// The rows that a file lists, in any order, and how many of them are listed again or are not served.
    ///
    /// A `.csv` or `.parquet` file is a table, and so are all of these in a folder together. It has a column `row_id`;
    /// or a column of files and one of rows within the file, counted from 0, under the names that engines give them:
    ///
    /// | files | rows |
    /// | --- | --- |
    /// | `file`, `filename`, `file_path`, `path`, `_metadata.file_path` | `row_in_file`, `file_row_number`, `row_index`, `_metadata.row_index` |
    /// | the same | `row_group` and `row`, the latter within the row group |
    ///
    /// A column `row_index` counts as such beside `file_path` only: Spark counts so in each file, others over all of
    /// them. Files are named by their paths relative to the root of the index, by absolute paths or paths from the
    /// working folder, or by URLs, percent-encoded or not.
    ///
    /// Any other file is text, one thing a line:
    ///
    /// | line | rows |
    /// | --- | --- |
    /// | `17` | the row with this id |
    /// | `10..20` | the rows with the ids 10 to 19 |
    /// | `part-3.parquet` | all that is served of a file |
    /// | `part-3.parquet:2` | all that is served of its row group 2 |
    /// | `part-3.parquet:2:5`, `part-3.parquet:2:5..9` | rows of it, counted within the row group as it is in the file |
    /// | empty, or from `#` on | none |
    ///
    /// A table is read a part at a time. Memory is at most a bit for each row of the index, and what the names of the
    /// files take.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`] for a row, row group or file that is not in the index, [`ErrorKind::InvalidArgument`]
    /// for what is no list, and those of reading. They name the list, and the line of a text.
    pub fn read_rows(&self, list: impl AsRef<Path>) -> Result<ListedRows> {
        let list = list.as_ref();
        let read = || match table::is_table(list) {
            true => self.collect(|each| table::read(list, None, each)),
            false => {
                let text = fs::with_room(|| std::fs::read_to_string(list))
                    .map_err(|error| fs::error("cannot read the list of rows", error))?;
                let (ranges, unserved) = self.listed_in(&text)?;
                let listed: u64 = ranges.iter().fold(0, |sum, range| sum.saturating_add(range.end - range.start));
                let rows = IdSet::from_ranges(self.len(), ranges)?;
                let repeated = listed.saturating_sub(rows.len());
                Ok(ListedRows { rows, repeated, repeated_row: None, unserved })
            }
        };
        read().map_err(|error: Error| error.with_file(list.display().to_string()))
    }

    /// The rows that record batches list, with the columns that [`read_rows`](Self::read_rows) takes: what any engine
    /// that speaks Arrow hands over.
    ///
    /// # Errors
    /// As for [`read_rows`](Self::read_rows), and those of the batches.
    pub fn read_rows_of(
        &self,
        batches: impl IntoIterator<Item = Result<RecordBatch, ArrowError>>,
    ) -> Result<ListedRows> {
        self.collect(|each| table::read_batches(batches, None, each))
    }

    fn collect(&self, read: impl FnOnce(Each<'_>) -> Result<()>) -> Result<ListedRows> {
        let mut marks = Marks::new(self.len());
        let mut unserved = 0;
        self.visit(read, |id, _| match id {
            Some(id) => marks.set(id),
            None => {
                unserved += 1;
                Ok(())
            }
        })?;
        let (repeated, repeated_row) = marks.repeated();
        Ok(ListedRows { rows: marks.finish()?, repeated, repeated_row, unserved })
    }

    /// Calls `found` with the row id of every listed row, `None` where it is not served, and with its weight.
    fn visit(
        &self,
        read: impl FnOnce(Each<'_>) -> Result<()>,
        mut found: impl FnMut(Option<u64>, Option<f64>) -> Result<()>,
    ) -> Result<()> {
        let mut names = FileNames::new(self);
        let places = Places::new(self);
        read(&mut |listed, weights| {
            let weight = |at: usize| weights.as_ref().map(|weights| weights.value(at));
            match listed {
                Listed::Ids(ids) => ids.values().iter().enumerate().try_for_each(|(at, id)| {
                    if *id >= self.len() {
                        return Err(out_of_range(format!("row id {id} is listed, and there are {} rows", self.len())));
                    }
                    found(Some(*id), weight(at))
                }),
                Listed::InFile { files, rows } => (0..rows.len()).try_for_each(|at| {
                    let file = names.find(files.value(at))?;
                    found(places.in_file(file, rows.value(at))?, weight(at))
                }),
                Listed::InGroup { files, groups, rows } => (0..rows.len()).try_for_each(|at| {
                    let file = names.find(files.value(at))?;
                    found(places.in_group(file, groups.value(at), rows.value(at))?, weight(at))
                }),
            }
        })
    }

    /// The row ids of each line, and how many rows are listed one by one that are not served.
    fn listed_in(&self, text: &str) -> Result<(Vec<Range<u64>>, u64)> {
        let mut files = None;
        let mut ranges = Vec::new();
        let mut unserved = 0_u64;
        for (number, line) in (1_u64..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let found = match range_of(line) {
                Some(ids) if ids.end > self.len() => {
                    let last = ids.end - 1;
                    Err(out_of_range(format!("row id {last} is listed, and there are {} rows", self.len())))
                }
                Some(ids) => Ok((ids, 0)),
                None => self.listed_place(files.get_or_insert_with(|| FileNames::new(self)), line),
            };
            let named = |error: Error| {
                let named = Error::new(error.kind(), format!("line {number}: {}", error.message()));
                named.with_hint(error.hint().unwrap_or(HINT).to_owned())
            };
            let (ids, without_id) = found.map_err(named)?;
            ranges.push(ids);
            unserved = unserved.saturating_add(without_id);
        }
        Ok((ranges, unserved))
    }

    /// The rows of `file`, `file:row group` or `file:row group:rows`, and how many of the latter are not served.
    fn listed_place(&self, files: &mut FileNames<'_>, text: &str) -> Result<(Range<u64>, u64)> {
        let (name, within) = split(files, text)?;
        let Some(file) = files.named(name)? else {
            return Err(match within {
                Within::File => {
                    out_of_range(format!("{text:?} is neither a row id, nor a range, nor a file of the index"))
                }
                Within::Group(_) | Within::Rows(..) => files.unknown(name),
            });
        };
        let file = entry_of(self, file)?;
        let group = |ordinal| group_of(self, &file, u64::from(number(ordinal)?));
        match within {
            Within::File => Ok((file.row_ids(), 0)),
            Within::Group(ordinal) => Ok((group(ordinal)?.row_ids(), 0)),
            Within::Rows(ordinal, rows) => ids_of(&group(ordinal)?, file.path(), rows),
        }
    }
}

/// What of a file a line lists.
enum Within<'a> {
    File,
    /// A row group, as it is written.
    Group(&'a str),
    /// Rows of a row group.
    Rows(&'a str, Range<u64>),
}

/// The name of a file in a line, and what is listed of it. Names of files may end like a row group or rows: the
/// longest that is a path in the index counts, and only then other spellings.
fn split<'a>(files: &mut FileNames<'_>, text: &'a str) -> Result<(&'a str, Within<'a>)> {
    let mut splits = vec![(text, Within::File)];
    if let Some((rest, last)) = text.rsplit_once(':') {
        splits.push((rest, Within::Group(last)));
        if let Some(((file, ordinal), rows)) = rest.rsplit_once(':').zip(range_of(last)) {
            splits.push((file, Within::Rows(ordinal, rows)));
        }
    }
    if let Some(at) = splits.iter().position(|(name, _)| files.exactly(name).is_some()) {
        return Ok(splits.swap_remove(at));
    }
    splits.retain(|(_, within)| match within {
        Within::File => true,
        Within::Group(ordinal) | Within::Rows(ordinal, _) => number(ordinal).is_ok(),
    });
    // The shortest name first: many lines have it, so that it is looked for once. It is the one to speak of, too.
    let mut found = splits.len() - 1;
    for (at, (name, _)) in splits.iter().enumerate().rev() {
        if files.named(name)?.is_some() {
            found = at;
            break;
        }
    }
    Ok(splits.swap_remove(found))
}

fn entry_of(index: &Index, file: u32) -> Result<FileEntry<'_>> {
    index.file(file).ok_or_else(|| Error::new(ErrorKind::Internal, "a file that was found is gone"))
}

/// A row group by its number in the file.
fn group_of<'a>(index: &'a Index, file: &FileEntry<'_>, ordinal: u64) -> Result<RowGroupEntry<'a>> {
    let groups = file.row_groups();
    let found = u32::try_from(ordinal).ok().and_then(|ordinal| groups.start.checked_add(ordinal));
    let group = found.filter(|group| *group < groups.end).and_then(|group| index.row_group(group));
    // An index need not have row groups of which nothing is served.
    match group.filter(|group| u64::from(group.ordinal()) == ordinal) {
        Some(group) => Ok(group),
        None => (groups.filter_map(|group| index.row_group(group)))
            .find(|group| u64::from(group.ordinal()) == ordinal)
            .ok_or_else(|| {
                let path = file.path();
                let count = file.row_groups().len();
                out_of_range(format!("{path}, row group {ordinal}, is listed, and the file has {count} row groups"))
            }),
    }
}

/// Rows by their places in files.
struct Places<'a> {
    index: &'a Index,
    /// For each row group how many rows the files have before it.
    starts: Vec<u64>,
}

impl<'a> Places<'a> {
    fn new(index: &'a Index) -> Self {
        let mut rows = 0_u64;
        let starts = index.row_groups().map(|group| {
            let start = rows;
            rows = rows.saturating_add(group.source_rows());
            start
        });
        Self { index, starts: starts.collect() }
    }

    /// The id of a row of a file; `None` where it is not served.
    fn in_file(&self, file: u32, row: u64) -> Result<Option<u64>> {
        let entry = entry_of(self.index, file)?;
        let groups = entry.row_groups();
        let starts = self.starts.get(groups.start as usize..groups.end as usize).unwrap_or_default();
        let wanted = starts.first().map_or(0, |first| first.saturating_add(row));
        let at = starts.partition_point(|start| *start <= wanted).checked_sub(1);
        let last = groups.end.checked_sub(1).filter(|last| *last >= groups.start);
        if let Some(last) = last.and_then(|last| self.index.row_group(last))
            && u64::from(last.ordinal()) + 1 != groups.len() as u64
        {
            let message = format!("the index leaves out row groups of {}, so its rows cannot be counted", entry.path());
            return Err(
                Error::new(ErrorKind::InvalidArgument, message).with_hint("list rows by file, row_group and row")
            );
        }
        let group = at.and_then(|at| self.index.row_group(groups.start + at as u32));
        let found = group.zip(at).filter(|(group, at)| wanted - starts[*at] < group.source_rows());
        match found {
            Some((group, at)) => id_of(&group, wanted - starts[at]),
            None => {
                let rows: u64 = groups.filter_map(|group| self.index.row_group(group)).map(|g| g.source_rows()).sum();
                Err(out_of_range(format!("row {row} is listed for {}, which has {rows} rows", entry.path())))
            }
        }
    }

    /// The id of a row of a row group of a file; `None` where it is not served.
    fn in_group(&self, file: u32, ordinal: u64, row: u64) -> Result<Option<u64>> {
        let entry = entry_of(self.index, file)?;
        let group = group_of(self.index, &entry, ordinal)?;
        match row < group.source_rows() {
            true => id_of(&group, row),
            false => Err(beyond_group(&group, entry.path(), row)),
        }
    }
}

/// The id of a row of a row group; `None` where it is not served.
fn id_of(group: &RowGroupEntry<'_>, row: u64) -> Result<Option<u64>> {
    Ok(match group.selection() {
        None => Some(group.first_row() + row),
        Some(set) => set.contains(row).then(|| group.first_row() + set.rank(row)),
    })
}

fn beyond_group(group: &RowGroupEntry<'_>, file: &str, row: u64) -> Error {
    let ordinal = group.ordinal();
    let rows = group.source_rows();
    out_of_range(format!("row {row} is listed for {file}, row group {ordinal}, which has {rows} rows"))
}

const HINT: &str = "list row ids, ranges like 10..20, or files of the index, with a row group (a.parquet:2) and rows \
                    of it (a.parquet:2:10..20)";

fn out_of_range(message: String) -> Error {
    Error::new(ErrorKind::OutOfRange, message)
}

fn number(text: &str) -> Result<u32> {
    let invalid = || Error::new(ErrorKind::InvalidArgument, format!("{text:?} is not the number of a row group"));
    range_of(text).and_then(|one| u32::try_from(one.start).ok().filter(|_| !text.contains('.'))).ok_or_else(invalid)
}

/// `17` or `10..20`; nothing for anything else.
fn range_of(text: &str) -> Option<Range<u64>> {
    // Digits only: a number is also parsed with a sign.
    let parse = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
    let (start, end) = match text.split_once("..") {
        Some((start, end)) => (parse(start)?, parse(end)?),
        None => (parse(text)?, parse(text)?.checked_add(1)?),
    };
    (start <= end).then_some(start..end)
}

/// The row ids of rows of a row group, and how many of the rows are not served.
fn ids_of(group: &RowGroupEntry<'_>, file: &str, rows: Range<u64>) -> Result<(Range<u64>, u64)> {
    if rows.end > group.source_rows() {
        return Err(beyond_group(group, file, rows.end.saturating_sub(1)));
    }
    let slot = |row: u64| group.selection().map_or(row, |set| set.rank(row));
    let ids = group.first_row() + slot(rows.start)..group.first_row() + slot(rows.end);
    let unserved = (rows.end - rows.start) - (ids.end - ids.start);
    Ok((ids, unserved))
}
