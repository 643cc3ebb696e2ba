//! Lists of rows: what an engine found, with weights or lengths beside it.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch, UInt64Array};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_ipc::reader::FileReader;
use arrow_schema::ArrowError;
use arrow_schema::DataType;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::errors::ParquetError;

use super::marks::Marks;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_index::{Index, root};
use rowdex_io::fs;
use rowdex_io::source::place::Place;
use rowdex_order::IdSet;

/// The columns that name rows: an id; or a file, and the row within it.
const ROW_ID: &str = "row_id";
const FILE: &str = "file";
const ROW_IN_FILE: &str = "row_in_file";

const HINT: &str = "give the list a column row_id, or the columns file and row_in_file";

/// Rows of a list that are read at a time.
const AT_ONCE: usize = 1 << 16;

type Batches<'a> = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + 'a>;

/// Rows that somebody wrote down, in any order.
///
/// A list is a table with a column `row_id`, or with the columns `file` and `row_in_file`; rows are counted from 0.
/// Files are named by their paths relative to the root of the index, or by paths or URLs below the root. Other columns
/// are passed over, but for one of weights or lengths that is asked for. A list is read a part at a time.
pub enum ListOfRows<'a> {
    /// A `.parquet` or `.arrow` file with such a table, or a text with a row id on each line.
    File(PathBuf),
    /// Record batches, from any engine that speaks Arrow.
    Batches(Batches<'a>),
}

/// The rows that a list names, from [`ListOfRows::rows`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedRows {
    /// The rows that the index serves, each once.
    pub rows: IdSet,
    /// How often rows were listed beyond the first time.
    pub repeated: u64,
    /// Listed rows that are in the files and that the index does not serve.
    pub unserved: u64,
}

impl<P: AsRef<Path>> From<P> for ListOfRows<'_> {
    fn from(path: P) -> Self {
        Self::File(path.as_ref().to_owned())
    }
}

impl<'a> ListOfRows<'a> {
    /// The rows of an index that are listed. Memory is at most a bit for each row of the index, and the names of files.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`] for a row or a file that the index does not have, [`ErrorKind::InvalidArgument`] for
    /// what is no list, and those of reading. They name the list.
    pub fn rows(self, index: &Index) -> Result<ListedRows> {
        let mut marks = Marks::default();
        let mut repeated = 0;
        let mut unserved = 0;
        self.visit::<UInt64Type>(index, None, |id, _| {
            match id {
                Some(id) => repeated += u64::from(!marks.set(id)),
                None => unserved += 1,
            }
            Ok(())
        })?;
        Ok(ListedRows { rows: marks.finish(index.len())?, repeated, unserved })
    }

    /// The row ids in the order of the list, each as often as it is listed: what
    /// [`Explicit`](rowdex_order::Explicit) takes.
    ///
    /// # Errors
    /// As for [`rows`](Self::rows), and for a row that the index does not serve.
    pub fn order(self, index: &Index) -> Result<Vec<u64>> {
        let mut order = Vec::new();
        self.visit::<UInt64Type>(index, None, |id, _| {
            order.push(id.ok_or_else(|| out_of_range("a row is listed that the index does not serve".to_owned()))?);
            Ok(())
        })?;
        Ok(order)
    }

    /// The weights that a column of the list has, by row id: what [`Weighted`](rowdex_order::Weighted)
    /// takes. With `of` those of these rows alone. Rows that the index does not serve are passed over.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the list has no such column of numbers, for a weight that is null, negative or
    /// infinite, for a row that is listed twice, and for one that is not listed; those of [`rows`](Self::rows).
    pub fn weights(self, index: &Index, column: &str, of: Option<&IdSet>) -> Result<Vec<f64>> {
        self.numbers::<Float64Type>(index, column, of, |weight| weight.is_finite() && weight >= 0.0)
    }

    /// The lengths that a column of the list has, by row id: what a tokenizer found.
    ///
    /// # Errors
    /// As for [`weights`](Self::weights); lengths are whole numbers below 2^40.
    pub fn lengths(self, index: &Index, column: &str) -> Result<Vec<u64>> {
        self.numbers::<UInt64Type>(index, column, None, |length| length < 1 << 40)
    }

    /// The numbers of a column by row id.
    fn numbers<T: ArrowPrimitiveType>(
        self,
        index: &Index,
        column: &str,
        of: Option<&IdSet>,
        valid: impl Fn(T::Native) -> bool,
    ) -> Result<Vec<T::Native>> {
        let wrong = |message: String, hint: &'static str| {
            Error::new(ErrorKind::InvalidArgument, message).with_column(column).with_hint(hint)
        };
        let all = IdSet::all(index.len())?;
        let of = of.unwrap_or(&all);
        if of.rows() != index.len() {
            let message = format!("a set out of {} rows for an index of {}", of.rows(), index.len());
            return Err(wrong(message, "make both for the same index"));
        }
        let too_large = |_| Error::new(ErrorKind::TooLarge, format!("no memory for numbers of {} rows", of.len()));
        let mut found = Vec::new();
        found.try_reserve_exact(of.len() as usize).map_err(too_large)?;
        found.resize(of.len() as usize, T::Native::default());
        let mut marks = Marks::default();
        let named = self.named();
        self.visit::<T>(index, Some(column), |id, number| {
            let Some(id) = id.filter(|id| of.contains(*id)) else { return Ok(()) };
            if !valid(number) {
                let hint = "weights are finite and not negative, and lengths are below 2^40";
                return Err(wrong(format!("row id {id} has {number:?}"), hint));
            }
            if !marks.set(id) {
                return Err(wrong(format!("row id {id} is listed twice"), "give each row one number"));
            }
            if let Some(place) = found.get_mut(of.rank(id) as usize) {
                *place = number;
            }
            Ok(())
        })?;
        let marked = marks.finish(index.len())?;
        match of.iter().find(|id| !marked.contains(*id)) {
            None => Ok(found),
            Some(id) => Err(named(wrong(format!("row id {id} is not listed"), "list it, or leave it out"))),
        }
    }

    /// Calls `found` with each listed row, `None` where it is not served, and its number in a column.
    fn visit<T: ArrowPrimitiveType>(
        self,
        index: &Index,
        numbers: Option<&str>,
        mut found: impl FnMut(Option<u64>, T::Native) -> Result<()>,
    ) -> Result<()> {
        let named = self.named();
        let mut places = Places::new(index);
        let read = || {
            for batch in self.batches(numbers)? {
                let batch = batch.map_err(unreadable)?;
                let numbers = numbers.map(|name| column(&batch, name, &T::DATA_TYPE)).transpose()?;
                let numbers = numbers.as_ref().map(|numbers| numbers.as_primitive::<T>());
                let number = |at| numbers.map_or_else(T::Native::default, |numbers| numbers.value(at));
                if batch.column_by_name(ROW_ID).is_some() {
                    let ids = column(&batch, ROW_ID, &DataType::UInt64)?;
                    for (at, id) in ids.as_primitive::<UInt64Type>().values().iter().enumerate() {
                        if *id >= index.len() {
                            let message = format!("row id {id} is listed, and there are {} rows", index.len());
                            return Err(out_of_range(message));
                        }
                        found(Some(*id), number(at))?;
                    }
                    continue;
                }
                let files = column(&batch, FILE, &DataType::Utf8)?;
                let rows = column(&batch, ROW_IN_FILE, &DataType::UInt64)?;
                for (at, row) in rows.as_primitive::<UInt64Type>().values().iter().enumerate() {
                    found(places.row(files.as_string::<i32>().value(at), *row)?, number(at))?;
                }
            }
            Ok(())
        };
        read().map_err(named)
    }

    /// Puts the name of the list into an error.
    fn named(&self) -> impl Fn(Error) -> Error + use<> {
        let path = match self {
            Self::File(path) => Some(path.display().to_string()),
            Self::Batches(_) => None,
        };
        move |error| match &path {
            Some(path) => error.with_file(path.clone()),
            None => error,
        }
    }

    fn batches(self, numbers: Option<&str>) -> Result<Batches<'a>> {
        let path = match self {
            Self::File(path) => path,
            Self::Batches(batches) => return Ok(batches),
        };
        let file = fs::open(&path).map_err(|error| fs::error("cannot open the list of rows", error))?;
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("parquet") => {
                let invalid = |error: ParquetError| {
                    let message = format!("cannot read the list of rows: {error}");
                    Error::new(ErrorKind::InvalidParquet, message).with_source(error)
                };
                let reader = ParquetRecordBatchReaderBuilder::try_new(file).map_err(invalid)?;
                let names = [ROW_ID, FILE, ROW_IN_FILE].into_iter().chain(numbers);
                let wanted = ProjectionMask::columns(reader.parquet_schema(), names);
                let reader = reader.with_projection(wanted).with_batch_size(AT_ONCE).build();
                Ok(Box::new(reader.map_err(invalid)?))
            }
            Some("arrow") => Ok(Box::new(FileReader::try_new_buffered(file, None).map_err(unreadable)?)),
            _ => Ok(ids(file)),
        }
    }
}

impl fmt::Debug for ListOfRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.fmt(f),
            Self::Batches(_) => f.write_str("batches"),
        }
    }
}

/// A text with a row id on each line as a table.
fn ids(file: File) -> Batches<'static> {
    let mut lines = (1_u64..).zip(BufReader::new(file).lines());
    Box::new(std::iter::from_fn(move || {
        let id = |(number, line): (u64, io::Result<String>)| {
            let line = line?;
            line.trim().parse::<u64>().map_err(|_| {
                ArrowError::ParseError(format!("line {number} is {line:?}, and a text has a row id on each line"))
            })
        };
        let read = lines.by_ref().take(AT_ONCE).map(id).collect::<Result<Vec<u64>, ArrowError>>();
        let batch =
            |ids: Vec<u64>| RecordBatch::try_from_iter([(ROW_ID, Arc::new(UInt64Array::from(ids)) as ArrayRef)]);
        match read {
            Ok(ids) if ids.is_empty() => None,
            read => Some(read.and_then(batch)),
        }
    }))
}

fn unreadable(error: ArrowError) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("cannot read the list of rows: {error}")).with_source(error)
}

fn out_of_range(message: String) -> Error {
    Error::new(ErrorKind::OutOfRange, message)
}

/// A column of a list as values of one type, none of which is null.
fn column(batch: &RecordBatch, name: &str, data_type: &DataType) -> Result<ArrayRef> {
    let wrong = |message: String| Error::new(ErrorKind::InvalidArgument, message).with_column(name).with_hint(HINT);
    let found = batch.column_by_name(name).ok_or_else(|| wrong("the list of rows has no such column".to_owned()))?;
    let is_text = |of: &DataType| of.is_string() || matches!(of, DataType::Dictionary(_, values) if values.is_string());
    let fits = match (data_type, found.data_type()) {
        (_, DataType::Null) => found.is_empty(),
        // A fraction would be cut off.
        (DataType::UInt64, of) => of.is_integer(),
        (DataType::Utf8, of) => is_text(of),
        (_, of) => of.is_numeric(),
    };
    if !fits || found.null_count() > 0 {
        let nulls = if fits { " with nulls" } else { "" };
        return Err(wrong(format!("values of type {}{nulls} in the list of rows", found.data_type())));
    }
    let exactly = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(found, data_type, &exactly).map_err(|error| unreadable(error).with_column(name))
}

/// Rows by their places in files.
struct Places<'a> {
    index: &'a Index,
    by_path: HashMap<&'a str, u32>,
    /// Where the files are; `None` for an index from memory, whose files have no other names.
    root: Option<Place>,
    /// Names met so far.
    found: HashMap<String, u32>,
    /// For each row group, and the end, how many rows the files have before it.
    starts: Vec<u64>,
}

impl<'a> Places<'a> {
    fn new(index: &'a Index) -> Self {
        let mut starts = vec![0_u64];
        for group in index.row_groups() {
            starts.push(starts.last().map_or(0, |start| start.saturating_add(group.source_rows())));
        }
        Self {
            index,
            by_path: index.files().map(|file| (file.path(), file.index())).collect(),
            root: root::of(index).ok(),
            found: HashMap::new(),
            starts,
        }
    }

    /// The id of a row of a file; `None` where it is not served.
    fn row(&mut self, name: &str, row: u64) -> Result<Option<u64>> {
        let file = self.file(name)?;
        let groups = self.index.file(file).map(|file| file.row_groups()).unwrap_or_default();
        let starts = self.starts.get(groups.start as usize..=groups.end as usize).unwrap_or_default();
        let first = starts.first().copied().unwrap_or_default();
        let rows = starts.last().map_or(0, |end| end - first);
        if row >= rows {
            return Err(out_of_range(format!("row {row} is listed for {name}, which has {rows} rows")));
        }
        let before = starts.partition_point(|start| *start <= first + row) - 1;
        let group = |number: u32| self.index.row_group(number);
        let last = group(groups.end - 1).filter(|last| last.ordinal() as usize + 1 == groups.len());
        let (Some(group), Some(_)) = (group(groups.start + before as u32), last) else {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("the index leaves out row groups of {name}, so its rows cannot be counted"),
            )
            .with_hint("list rows by row_id"));
        };
        let row = first + row - starts[before];
        Ok(match group.selection() {
            None => Some(group.first_row() + row),
            Some(set) => set.contains(row).then(|| group.first_row() + set.rank(row)),
        })
    }

    /// A file by its path relative to the root, or by where it is.
    fn file(&mut self, name: &str) -> Result<u32> {
        if let Some(file) = self.found.get(name) {
            return Ok(*file);
        }
        let file = match (self.by_path.get(name).copied(), self.below_root(name)) {
            (Some(one), Some(other)) if one != other => {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    format!("{name:?} may mean two files of the index"),
                )
                .with_hint("name files by their whole paths"));
            }
            (one, other) => one.or(other).ok_or_else(|| {
                let hint = match self.index.file(0) {
                    Some(file) => {
                        format!("name files by their paths in the index, like {}, or below its root", file.path())
                    }
                    None => "the index has no files".to_owned(),
                };
                out_of_range(format!("no file of the index is called {name:?}")).with_hint(hint)
            })?,
        };
        self.found.insert(name.to_owned(), file);
        Ok(file)
    }

    fn below_root(&self, name: &str) -> Option<u32> {
        let within = |root: io::Result<PathBuf>, path: io::Result<PathBuf>| {
            let path = path.ok()?;
            let path = path.strip_prefix(root.ok()?).ok()?.to_str()?;
            self.by_path.get(path).copied()
        };
        match (self.root.as_ref()?, Place::of(name).ok()?) {
            (Place::Local(root), Place::Local(path)) => {
                let here = Path::new(".");
                let lexical = within(absolute(here.join(root)), absolute(here.join(&path)));
                // The same file by another way: through a link, most of the time.
                lexical.or_else(|| within(here.join(root).canonicalize(), path.canonicalize()))
            }
            (Place::Remote(root), Place::Remote(url)) if url.same_store(root) || url.same_repository(root) => {
                within(Ok(PathBuf::from(&root.key)), Ok(PathBuf::from(url.key)))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
