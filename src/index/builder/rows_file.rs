//! The list of rows to serve, read from a Parquet or CSV file.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::csv::ReaderBuilder;
use arrow::csv::reader::Format;
use arrow::datatypes::{DataType, UInt64Type};
use arrow::error::ArrowError;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::fs;
use crate::{Error, ErrorKind, Result};

/// The rows to serve, of each row group once it is asked for.
#[derive(Debug)]
pub(super) struct SelectedRows {
    list: String,
    rows: List,
    /// How many of the row ids are taken.
    taken: usize,
}

/// Rows as they are listed.
#[derive(Debug)]
pub(crate) enum List {
    /// By row id.
    Ids(Vec<u64>),
    /// By file and row group.
    Places(HashMap<(Arc<str>, u32), Vec<u32>>),
}

impl SelectedRows {
    /// Reads the whole list: 8 bytes of memory for a row id, 4 for a row of a known row group.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let list = path.display().to_string();
        let rows = read(path).and_then(sorted).map_err(|error| error.with_file(list.clone()))?;
        Ok(Self { list, rows, taken: 0 })
    }

    /// The rows of the next row group, sorted; `first` is the row id its first row has without a selection.
    pub(super) fn of_row_group(&mut self, path: &str, ordinal: u32, first: u64, rows: u64) -> Result<Vec<u32>> {
        match &mut self.rows {
            List::Ids(ids) => {
                let rest = &ids[self.taken..];
                let own = &rest[..rest.partition_point(|&id| id < first + rows)];
                self.taken += own.len();
                Ok(own.iter().map(|&id| (id - first) as u32).collect())
            }
            List::Places(places) => {
                let own = places.remove(&(Arc::from(path), ordinal)).unwrap_or_default();
                match own.last() {
                    Some(&last) if u64::from(last) >= rows => Err(Error::new(
                        ErrorKind::OutOfRange,
                        format!("row {last} is listed for {path}, row group {ordinal}, which has {rows} rows"),
                    )
                    .with_file(self.list.clone())),
                    _ => Ok(own),
                }
            }
        }
    }

    /// A row that was listed and is nowhere must not be lost in silence.
    pub(super) fn check_all_found(&self, source_rows: u64) -> Result<()> {
        let lost = match &self.rows {
            List::Ids(ids) => {
                ids.get(self.taken).map(|id| format!("row id {id} is listed, and there are {source_rows} rows"))
            }
            List::Places(places) => places.keys().min().map(|(file, row_group)| {
                format!("{file}, row group {row_group}, is listed, and there is no such row group")
            }),
        };
        match lost {
            Some(message) => Err(Error::new(ErrorKind::OutOfRange, message)
                .with_file(self.list.clone())
                .with_hint("list row ids of the index built without a list, or paths relative to the root")),
            None => Ok(()),
        }
    }
}

/// Each list of rows sorted; none may be listed twice.
fn sorted(mut list: List) -> Result<List> {
    match &mut list {
        List::Ids(ids) => {
            ids.sort_unstable();
            refuse_repeats(ids)?;
        }
        List::Places(places) => {
            for rows in places.values_mut() {
                rows.sort_unstable();
                refuse_repeats(rows)?;
            }
        }
    }
    Ok(list)
}

/// Reads a list as it is, in any order and with repeats.
pub(crate) fn read(path: &Path) -> Result<List> {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default().to_ascii_lowercase();
    let file = fs::open(path).map_err(|error| fs::error("cannot open the list of rows", error))?;
    match extension.as_str() {
        "csv" => collect(read_csv(file)?),
        "parquet" | "parq" | "pq" => {
            let reader = ParquetRecordBatchReaderBuilder::try_new(file).and_then(|builder| builder.build());
            let reader = reader.map_err(|error| {
                Error::new(ErrorKind::InvalidParquet, format!("cannot read the list of rows: {error}"))
                    .with_source(error)
            })?;
            collect(reader)
        }
        _ => Err(Error::new(ErrorKind::InvalidArgument, "a list of rows is a .csv or a .parquet file")
            .with_hint("rename or convert the list")),
    }
}

fn read_csv(mut file: File) -> Result<impl Iterator<Item = Result<RecordBatch, ArrowError>>> {
    let format = Format::default().with_header(true);
    let (schema, _) = format.infer_schema(&mut file, Some(1000)).map_err(unreadable)?;
    file.seek(SeekFrom::Start(0)).map_err(|error| Error::io("cannot read the list of rows", error))?;
    ReaderBuilder::new(Arc::new(schema)).with_format(format).build(file).map_err(unreadable)
}

fn unreadable(error: ArrowError) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("cannot read the list of rows: {error}")).with_source(error)
}

fn collect(batches: impl Iterator<Item = Result<RecordBatch, ArrowError>>) -> Result<List> {
    let mut ids = Vec::new();
    let mut places: HashMap<(Arc<str>, u32), Vec<u32>> = HashMap::new();
    let mut by_id = None;
    for batch in batches {
        let batch = batch.map_err(unreadable)?;
        let has_ids = batch.column_by_name("row_id").is_some();
        by_id = Some(has_ids);
        if has_ids {
            ids.extend(numbers(&batch, "row_id")?);
            continue;
        }
        let files = column(&batch, "file", &DataType::Utf8)?;
        let (groups, rows) = (numbers(&batch, "row_group")?, numbers(&batch, "row")?);
        let mut last: Option<Arc<str>> = None;
        for ((file, group), row) in files.as_string::<i32>().iter().zip(groups).zip(rows) {
            let (Some(file), Ok(group), Ok(row)) = (file, u32::try_from(group), u32::try_from(row)) else {
                return Err(Error::new(ErrorKind::OutOfRange, "a row group or a row is beyond 2^32"));
            };
            let file = match &last {
                Some(last) if **last == *file => last.clone(),
                _ => last.insert(Arc::from(file)).clone(),
            };
            places.entry((file, group)).or_default().push(row);
        }
    }
    Ok(if by_id == Some(false) { List::Places(places) } else { List::Ids(ids) })
}

fn refuse_repeats<T: PartialEq + std::fmt::Display>(rows: &[T]) -> Result<()> {
    match rows.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::new(ErrorKind::InvalidArgument, format!("row {} is listed twice", pair[0]))
            .with_hint("list each row once; an order, not an index, serves rows more than once")),
        None => Ok(()),
    }
}

fn column(batch: &RecordBatch, name: &str, data_type: &DataType) -> Result<Arc<dyn Array>> {
    let Some(column) = batch.column_by_name(name) else {
        return Err(Error::new(ErrorKind::InvalidArgument, "the list of rows has no such column")
            .with_column(name)
            .with_hint("give it a column row_id, or the columns file, row_group and row"));
    };
    // Without the strict option a value that does not fit would become null; counting nulls tells.
    let cast = cast(column, data_type).map_err(|error| unreadable(error).with_column(name))?;
    if cast.null_count() > 0 {
        return Err(Error::new(ErrorKind::InvalidArgument, format!("a value is missing or not of type {data_type}"))
            .with_column(name));
    }
    Ok(cast)
}

fn numbers(batch: &RecordBatch, name: &str) -> Result<Vec<u64>> {
    Ok(column(batch, name, &DataType::UInt64)?.as_primitive::<UInt64Type>().values().to_vec())
}
