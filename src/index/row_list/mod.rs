//! Lists of rows that somebody wrote down: rows to skip, most of the time.

mod marks;
mod names;
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
use crate::fs;
use crate::order::IdSet;
use crate::{Error, ErrorKind, Result};

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
    /// | `part-3.parquet` | all of a file, by its path in the index |
    /// | `part-3.parquet:2` | all of its row group 2 |
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
                let ranges = self.listed_in(&text)?;
                let listed: u64 = ranges.iter().fold(0, |sum, range| sum.saturating_add(range.end - range.start));
                let rows = IdSet::from_ranges(self.len(), ranges)?;
                let repeated = listed.saturating_sub(rows.len());
                Ok(ListedRows { rows, repeated, repeated_row: None, unserved: 0 })
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

    fn listed_in(&self, text: &str) -> Result<Vec<Range<u64>>> {
        let mut files = None;
        let mut ranges = Vec::new();
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
                Some(ids) => Ok(Some(ids)),
                None => self.listed_place(files.get_or_insert_with(|| FileNames::new(self)), line),
            };
            let named = |error: Error| {
                let named = Error::new(error.kind(), format!("line {number}: {}", error.message()));
                named.with_hint(error.hint().unwrap_or(HINT).to_owned())
            };
            ranges.extend(found.map_err(named)?);
        }
        Ok(ranges)
    }

    /// The rows of `file`, `file:row group` or `file:row group:rows`.
    fn listed_place(&self, files: &FileNames<'_>, text: &str) -> Result<Option<Range<u64>>> {
        if let Some(file) = files.exactly(text).and_then(|file| self.file(file)) {
            return Ok(Some(file.row_ids()));
        }
        let Some((rest, last)) = text.rsplit_once(':') else {
            return Err(out_of_range(format!("{text:?} is neither a row id, nor a range, nor a file of the index")));
        };
        if files.exactly(rest).is_some() {
            let group = self.listed_group(files, rest, number(last)?)?;
            return Ok(Some(group.row_ids()));
        }
        match rest.rsplit_once(':').zip(range_of(last)) {
            Some(((file, ordinal), rows)) => {
                let group = self.listed_group(files, file, number(ordinal)?)?;
                ids_of(&group, file, rows)
            }
            None => Err(out_of_range(format!("no file of the index is called {rest:?}"))),
        }
    }

    fn listed_group(&self, files: &FileNames<'_>, file: &str, ordinal: u32) -> Result<RowGroupEntry<'_>> {
        let Some(entry) = files.exactly(file).and_then(|file| self.file(file)) else {
            return Err(out_of_range(format!("no file of the index is called {file:?}")));
        };
        group_of(self, &entry, u64::from(ordinal))
    }
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

    fn file(&self, file: u32) -> Result<FileEntry<'a>> {
        self.index.file(file).ok_or_else(|| Error::new(ErrorKind::Internal, "a file that was found is gone"))
    }

    /// The id of a row of a file; `None` where it is not served.
    fn in_file(&self, file: u32, row: u64) -> Result<Option<u64>> {
        let entry = self.file(file)?;
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
        let entry = self.file(file)?;
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
    let (ordinal, rows) = (group.ordinal(), group.source_rows());
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

/// The row ids of rows of a row group; nothing where none of them is served.
fn ids_of(group: &RowGroupEntry<'_>, file: &str, rows: Range<u64>) -> Result<Option<Range<u64>>> {
    if rows.end > group.source_rows() {
        return Err(beyond_group(group, file, rows.end.saturating_sub(1)));
    }
    let slot = |row: u64| group.selection().map_or(row, |set| set.rank(row));
    let ids = group.first_row() + slot(rows.start)..group.first_row() + slot(rows.end);
    Ok(Some(ids).filter(|ids| !ids.is_empty()))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringArray, StructArray};
    use arrow::compute::cast;
    use arrow::datatypes::{DataType, Field};
    use parquet::arrow::ArrowWriter;
    use parquet::file::properties::WriterProperties;
    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;
    use crate::IndexBuilder;
    use crate::source::place::Place;

    /// Files of 25 and 7 rows in row groups of 10; `some.rdx` serves the even rows of the first 20 only.
    fn place() -> TempDir {
        let folder = TempDir::new().unwrap();
        std::fs::create_dir(folder.path().join("data")).unwrap();
        for (name, rows) in [("a:1.parquet", 25), ("b.parquet", 7)] {
            let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
            let batch = RecordBatch::try_from_iter([("id", column)]).unwrap();
            let properties = WriterProperties::builder().set_max_row_group_row_count(Some(10)).build();
            let file = File::create(folder.path().join("data").join(name)).unwrap();
            let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
            writer.write(&batch).unwrap();
            writer.close().unwrap();
        }
        let even: String = (0..10).map(|row| format!("{}\n", 2 * row)).collect();
        std::fs::write(folder.path().join("even.csv"), format!("row_id\n{even}")).unwrap();
        let builder = || IndexBuilder::new([folder.path().join("data")]);
        builder().build(folder.path().join("all.rdx")).unwrap();
        builder().with_rows(folder.path().join("even.csv")).build(folder.path().join("some.rdx")).unwrap();
        folder
    }

    fn listed(folder: &TempDir, index: &str, name: &str, list: &str) -> Result<Vec<u64>> {
        std::fs::write(folder.path().join(name), list).unwrap();
        let index = Index::open(folder.path().join(index)).unwrap();
        Ok(index.listed_rows(folder.path().join(name))?.iter().collect())
    }

    #[test]
    fn rows_are_listed_by_id_range_file_row_group_and_place() {
        let folder = place();
        let rows = |list: &str| listed(&folder, "all.rdx", "list.txt", list).unwrap();
        assert_eq!(rows("# none\n\n"), [0_u64; 0]);
        assert_eq!(rows("7\n 3..5 # two\r\n7\n31"), [3, 4, 7, 31]);
        assert_eq!(rows("b.parquet"), (25..32).collect::<Vec<_>>());
        assert_eq!(rows("a:1.parquet:2\nb.parquet:0:6"), [20, 21, 22, 23, 24, 31]);
        assert_eq!(rows("a:1.parquet:1:8..10\na:1.parquet:0:3..3"), [18, 19]);
        let csv = listed(&folder, "all.rdx", "list.csv", "row_id\n9\n4\n9\n").unwrap();
        assert_eq!(csv, [4, 9]);
        let places = "file,row_group,row\nb.parquet,0,1\na:1.parquet,2,4\nb.parquet,0,1\n";
        assert_eq!(listed(&folder, "all.rdx", "list.csv", places).unwrap(), [24, 26]);
    }

    /// The rows that a table with these columns lists.
    fn table(index: &Index, columns: Vec<(&str, ArrayRef)>) -> Result<ListedRows> {
        index.read_rows_of([Ok(RecordBatch::try_from_iter(columns).unwrap())])
    }

    fn strings<'a>(values: impl IntoIterator<Item = &'a str>) -> ArrayRef {
        Arc::new(StringArray::from_iter_values(values))
    }

    #[test]
    fn tables_name_files_and_rows_as_engines_do() {
        let folder = place();
        let index = Index::open(folder.path().join("all.rdx")).unwrap();
        let files = || strings(["b.parquet", "a:1.parquet", "a:1.parquet"]);
        let rows = || Arc::new(Int64Array::from(vec![6, 0, 24])) as ArrayRef;
        for (file, row) in [
            ("filename", "file_row_number"),
            ("file_path", "row_index"),
            ("file", "row_in_file"),
            ("path", "row_in_file"),
            ("_metadata.file_path", "_metadata.row_index"),
        ] {
            let listed = table(&index, vec![("other", rows()), (file, files()), (row, rows())]).unwrap();
            assert_eq!(listed.rows.iter().collect::<Vec<_>>(), [0, 24, 31], "{file}");
            assert_eq!((listed.repeated, listed.unserved), (0, 0));
        }
        let fields = vec![
            (Arc::new(Field::new("file_path", DataType::Utf8, false)), files()),
            (Arc::new(Field::new("row_index", DataType::Int64, false)), rows()),
        ];
        let metadata: ArrayRef = Arc::new(StructArray::from(fields));
        assert_eq!(table(&index, vec![("_metadata", metadata)]).unwrap().rows.len(), 3);
        let coded = cast(&files(), &DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8))).unwrap();
        let small = cast(&rows(), &DataType::UInt8).unwrap();
        assert_eq!(table(&index, vec![("file", coded), ("row_in_file", small)]).unwrap().rows.len(), 3);
        let error = table(&index, vec![("file", files()), ("row_index", rows())]).unwrap_err();
        assert!(error.to_string().contains("row_in_file"), "{error}");
    }

    #[test]
    fn a_folder_is_the_list_of_all_tables_in_it() {
        let folder = place();
        let index = Index::open(folder.path().join("all.rdx")).unwrap();
        let lists = folder.path().join("lists");
        std::fs::create_dir(&lists).unwrap();
        assert_eq!(index.read_rows(&lists).unwrap_err().kind(), ErrorKind::NotFound);
        std::fs::write(lists.join("part-1.csv"), "file,row_in_file\nb.parquet,3\n").unwrap();
        std::fs::write(lists.join("part-0.csv"), "row_id\n7\n28\n").unwrap();
        for ignored in ["_SUCCESS", "_more.csv", ".part-0.csv.crc", "notes.txt"] {
            std::fs::write(lists.join(ignored), "no list").unwrap();
        }
        let listed = index.read_rows(&lists).unwrap();
        assert_eq!((listed.rows.iter().collect::<Vec<_>>(), listed.repeated), (vec![7, 28], 1));
        std::fs::write(lists.join("part-2.csv"), "row_id\n32\n").unwrap();
        let error = index.read_rows(&lists).unwrap_err();
        assert!(error.to_string().contains("part-2.csv") && error.to_string().contains("row id 32"), "{error}");
    }

    #[test]
    fn rows_that_are_listed_again_or_not_served_are_counted() {
        let folder = place();
        let all = Index::open(folder.path().join("all.rdx")).unwrap();
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![5, 3, 5, 5, 3, 31]));
        let listed = table(&all, vec![("row_id", ids)]).unwrap();
        assert_eq!((listed.rows.len(), listed.repeated, listed.repeated_row), (3, 3, Some(5)));
        let some = Index::open(folder.path().join("some.rdx")).unwrap();
        let rows: ArrayRef = Arc::new(Int64Array::from(vec![0, 1, 2, 2, 21]));
        let listed = table(&some, vec![("file", strings(["a:1.parquet"; 5])), ("row_in_file", rows)]).unwrap();
        assert_eq!(listed.rows.iter().collect::<Vec<_>>(), [0, 1]);
        assert_eq!((listed.repeated, listed.unserved), (1, 2));
        std::fs::write(folder.path().join("list.txt"), "0..5\n3..7\n4\n").unwrap();
        let listed = all.read_rows(folder.path().join("list.txt")).unwrap();
        assert_eq!((listed.rows.len(), listed.repeated), (7, 3));
    }

    #[test]
    fn files_are_found_under_every_usual_spelling() {
        let folder = TempDir::new().unwrap();
        let root = folder.path().canonicalize().unwrap().join("my data");
        std::fs::create_dir_all(root.join("k=a%2Fb")).unwrap();
        let source = place();
        for name in ["é 1.parquet", "k=a%2Fb/x.parquet"] {
            std::fs::copy(source.path().join("data/b.parquet"), root.join(name)).unwrap();
        }
        IndexBuilder::new([&root]).with_partitions(false).build(folder.path().join("i.rdx")).unwrap();
        let index = Index::open(folder.path().join("i.rdx")).unwrap();
        let find = |name: &str| {
            let one: ArrayRef = Arc::new(Int64Array::from(vec![3]));
            Ok(table(&index, vec![("file", strings([name])), ("row_in_file", one)])?.rows.iter().collect::<Vec<_>>())
        };
        let root = root.to_str().unwrap();
        let encoded = root.replace(' ', "%20");
        for name in [
            "é 1.parquet".to_owned(),
            "./é 1.parquet".to_owned(),
            format!("{root}/é 1.parquet"),
            format!("{root}/../my data/./é 1.parquet"),
            format!("file://{root}/é 1.parquet"),
            format!("file://{encoded}/%C3%A9%201.parquet"),
            format!("file:{encoded}/%C3%A9%201.parquet"),
            format!("file://localhost{encoded}/%c3%a9%201.parquet"),
        ] {
            assert_eq!(find(&name).unwrap(), [10], "{name}");
        }
        for name in [
            "k=a%2Fb/x.parquet".to_owned(),
            format!("{root}/k=a%2Fb/x.parquet"),
            format!("file://{encoded}/k=a%252Fb/x.parquet"),
            format!("file://{root}/k=a%2Fb/x.parquet"),
        ] {
            assert_eq!(find(&name).unwrap(), [3], "{name}");
        }
        for name in ["1.parquet", "/é 1.parquet", "s3://bucket/é 1.parquet", "", "file://elsewhere/x"] {
            let error: Error = find(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfRange, "{name:?}: {error}");
            assert!(error.to_string().contains("my data"), "{error}");
        }
    }

    #[test]
    fn urls_of_stores_are_matched_by_bucket_and_key() {
        use crate::source::place::Url;
        let Ok(Place::Remote(root)) = Place::of("s3://bucket/data") else { panic!("no URL") };
        let azure = match Place::of("az://container/data").unwrap() {
            Place::Remote(url) => url,
            Place::Local(_) => panic!("no URL"),
        };
        let key = |root: &Url, name: &str| names::key_in(root, name);
        for name in ["s3://bucket/data/x", "s3a://bucket/data/x", "s3n://bucket/data/x", "bucket/data/x"] {
            assert_eq!(key(&root, name).as_deref(), Some("data/x"), "{name}");
        }
        assert_eq!(key(&azure, "abfss://container@account.dfs.core.windows.net/data/x").as_deref(), Some("data/x"));
        for name in ["s3://other/data/x", "gs://bucket/data/x", "s3://user@bucket/data/x", "data/x", "s3:/bucket/x"] {
            assert_eq!(key(&root, name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn marks_are_the_set_of_what_was_marked(
            ids in prop::collection::vec(0..400_000_u64, 0..400),
            run in 0..400_000_u64,
        ) {
            let ids: Vec<u64> = ids.into_iter().chain(run..(run + 200).min(400_000)).collect();
            let mut marks = Marks::new(400_000);
            ids.iter().for_each(|id| marks.set(*id).unwrap());
            let set = IdSet::from_ids(400_000, ids.iter().copied()).unwrap();
            prop_assert_eq!(marks.repeated().0, ids.len() as u64 - set.len());
            prop_assert_eq!(marks.finish().unwrap(), set);
        }
    }

    #[test]
    fn places_count_rows_as_they_are_in_the_file_even_where_some_are_not_served() {
        let folder = place();
        let rows = |list: &str| listed(&folder, "some.rdx", "list.txt", list).unwrap();
        assert_eq!(rows("a:1.parquet:0:4..9"), [2, 3, 4]);
        assert_eq!(rows("a:1.parquet:0:3\na:1.parquet:2\nb.parquet"), [0_u64; 0]);
        assert_eq!(rows("a:1.parquet:1"), [5, 6, 7, 8, 9]);
        assert_eq!(
            listed(&folder, "some.rdx", "list.csv", "file,row_group,row\na:1.parquet,1,2\na:1.parquet,1,3\n").unwrap(),
            [6]
        );
    }

    #[test]
    fn what_is_not_there_is_named_with_list_and_line() {
        let folder = place();
        for (list, words) in [
            ("1\n32", &["list.txt", "line 2", "row id 32", "32 rows"][..]),
            ("30..40", &["line 1", "row id 39"]),
            ("c.parquet", &["\"c.parquet\"", "neither"]),
            ("c.parquet:1", &["no file", "\"c.parquet\""]),
            ("b.parquet:1", &["row group 1", "1 row groups"]),
            ("b.parquet:x", &["\"x\"", "row group"]),
            ("b.parquet:+0", &["\"+0\"", "row group"]),
            ("b.parquet:0:7", &["row 7", "which has 7 rows"]),
            ("-3", &["neither"]),
            ("5..3", &["neither"]),
        ] {
            let error = listed(&folder, "all.rdx", "list.txt", list).unwrap_err();
            assert!(words.iter().all(|word| error.to_string().contains(word)), "{list}: {error}");
        }
        for (list, words) in [
            ("row_id\n32\n", &["list.csv", "row id 32"][..]),
            ("row_id\n-1\n", &["row_id"]),
            ("file,row_group,row\nb.parquet,0,7\n", &["row 7"]),
            ("file,row_group,row\nc.parquet,0,7\n", &["c.parquet"]),
        ] {
            let error = listed(&folder, "all.rdx", "list.csv", list).unwrap_err();
            assert!(words.iter().all(|word| error.to_string().contains(word)), "{list}: {error}");
        }
        let index = Index::open(folder.path().join("all.rdx")).unwrap();
        assert_eq!(index.listed_rows(folder.path().join("none.txt")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
