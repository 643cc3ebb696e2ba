//! Lists of rows that somebody wrote down: rows to skip, most of the time.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use super::builder::rows_file::{self, List};
use super::{Index, RowGroupEntry};
use crate::fs;
use crate::order::IdSet;
use crate::{Error, ErrorKind, Result};

impl Index {
    /// The rows that a file lists, in any order; repeats count once.
    ///
    /// A `.csv` or `.parquet` file has a column `row_id`, or the columns `file`, `row_group` and `row`, as for
    /// [`IndexBuilder::with_rows`](crate::IndexBuilder::with_rows). Any other file is text, one thing a line:
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
    /// Rows of a row group that the index does not serve are passed over.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`] for a row, row group or file that is not in the index, [`ErrorKind::InvalidArgument`]
    /// for what is no list, and those of reading. They name the list, and the line of a text.
    pub fn listed_rows(&self, list: impl AsRef<Path>) -> Result<IdSet> {
        let list = list.as_ref();
        self.read_list(list).map_err(|error| error.with_file(list.display().to_string()))
    }

    fn read_list(&self, list: &Path) -> Result<IdSet> {
        let extension = list.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if !["csv", "parquet", "parq", "pq"].iter().any(|known| extension.eq_ignore_ascii_case(known)) {
            let text = fs::with_room(|| std::fs::read_to_string(list))
                .map_err(|error| fs::error("cannot read the list of rows", error))?;
            return IdSet::from_ranges(self.len(), self.listed_in(&text)?);
        }
        match rows_file::read(list)? {
            List::Ids(ids) => IdSet::from_ids(self.len(), ids),
            List::Places(places) => {
                let files = self.files_by_path();
                let mut ranges = Vec::new();
                for ((file, ordinal), rows) in places {
                    let group = self.listed_group(&files, &file, ordinal)?;
                    for row in rows.into_iter().map(u64::from) {
                        ranges.extend(ids_of(&group, &file, row..row + 1)?);
                    }
                }
                IdSet::from_ranges(self.len(), ranges)
            }
        }
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
                None => self.listed_place(files.get_or_insert_with(|| self.files_by_path()), line),
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
    fn listed_place(&self, files: &HashMap<&str, u32>, text: &str) -> Result<Option<Range<u64>>> {
        if let Some(file) = files.get(text).and_then(|file| self.file(*file)) {
            return Ok(Some(file.row_ids()));
        }
        let Some((rest, last)) = text.rsplit_once(':') else {
            return Err(out_of_range(format!("{text:?} is neither a row id, nor a range, nor a file of the index")));
        };
        if files.contains_key(rest) {
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

    fn files_by_path(&self) -> HashMap<&str, u32> {
        self.files().map(|file| (file.path(), file.index())).collect()
    }

    fn listed_group(&self, files: &HashMap<&str, u32>, file: &str, ordinal: u32) -> Result<RowGroupEntry<'_>> {
        let Some(entry) = files.get(file).and_then(|file| self.file(*file)) else {
            return Err(out_of_range(format!("no file of the index is called {file:?}")));
        };
        let groups = entry.row_groups();
        let group = groups.start.checked_add(ordinal).filter(|group| *group < groups.end);
        group.and_then(|group| self.row_group(group)).ok_or_else(|| {
            out_of_range(format!(
                "{file}, row group {ordinal}, is listed, and the file has {} row groups",
                groups.len()
            ))
        })
    }
}

const HINT: &str = "list row ids, ranges like 10..20, or files of the index, with a row group (a.parquet:2) and rows of it (a.parquet:2:10..20)";

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
        let (row, ordinal) = (rows.end.saturating_sub(1), group.ordinal());
        let message =
            format!("row {row} is listed for {file}, row group {ordinal}, which has {} rows", group.source_rows());
        return Err(out_of_range(message));
    }
    let slot = |row: u64| group.selection().map_or(row, |set| set.rank(row));
    let ids = group.first_row() + slot(rows.start)..group.first_row() + slot(rows.end);
    Ok(Some(ids).filter(|ids| !ids.is_empty()))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use parquet::arrow::ArrowWriter;
    use parquet::file::properties::WriterProperties;
    use tempfile::TempDir;

    use super::*;
    use crate::IndexBuilder;

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
