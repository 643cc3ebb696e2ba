//! Lists of rows that are tables: CSV, Parquet, Arrow, and record batches from any engine.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, RecordBatch, StringArray, UInt64Array};
use arrow::compute::cast;
use arrow::csv::ReaderBuilder;
use arrow::csv::reader::Format;
use arrow::datatypes::{DataType, Field, Float64Type, Schema, UInt64Type};
use arrow::error::ArrowError;
use arrow::ipc::reader::FileReader;

use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_io::fs;

/// Rows decoded at a time.
const BATCH: usize = 1 << 16;

/// What engines and people call the column of file names.
const FILES: [&str; 5] = ["file", "filename", "file_path", "path", METADATA_FILE];

/// What they call the number of a row within its file.
const ROWS_IN_FILE: [&str; 4] = ["row_in_file", "file_row_number", "row_index", METADATA_ROW];

/// Spark's hidden struct, and its fields as a flat column.
const METADATA: &str = "_metadata";
const METADATA_FILE: &str = "_metadata.file_path";
const METADATA_ROW: &str = "_metadata.row_index";

const HINT: &str = "give it a column row_id, or the columns file and row_in_file, or file, row_group and row";

/// The rows of one batch of a list.
#[derive(Debug)]
pub(super) enum Listed {
    /// By row id.
    Ids(UInt64Array),
    /// By file, and row within the file.
    InFile { files: StringArray, rows: UInt64Array },
    /// By file, row group, and row within the row group.
    InGroup { files: StringArray, groups: UInt64Array, rows: UInt64Array },
}

/// For each of these rows its weight, if weights were asked for.
pub(super) type Weights = Option<Float64Array>;

/// Which columns of a table say which rows.
#[derive(Debug, PartialEq, Eq)]
enum Columns {
    Ids,
    InFile { file: &'static str, row: &'static str },
    InGroup { file: &'static str },
}

impl Columns {
    fn of(schema: &Schema) -> Result<Self> {
        let has = |name: &str| field(schema, name).is_some();
        let first = |names: &[&'static str]| names.iter().copied().find(|name| has(name));
        if has("row_id") {
            return Ok(Self::Ids);
        }
        let missing = |column: &'static str| {
            Err(Error::new(ErrorKind::InvalidArgument, "the list of rows has no such column")
                .with_column(column)
                .with_hint(HINT))
        };
        let Some(file) = first(&FILES) else { return missing("file") };
        match first(&ROWS_IN_FILE) {
            // Polars counts over all files under a name that its user chooses.
            Some("row_index") if !["file_path", METADATA_FILE].contains(&file) => {
                Err(Error::new(ErrorKind::InvalidArgument, "it is not clear what the column counts")
                    .with_column("row_index")
                    .with_hint("call it row_in_file if it counts from 0 in each file"))
            }
            Some(row) => Ok(Self::InFile { file, row }),
            None if !has("row_group") => missing("row_in_file"),
            None if !has("row") => missing("row"),
            None => Ok(Self::InGroup { file }),
        }
    }

    /// The columns at the top of the table that are needed, and that of weights where it is there.
    fn roots(&self, schema: &Schema, weight: Option<&str>) -> Vec<usize> {
        let names: &[&str] = match self {
            Self::Ids => &["row_id"],
            Self::InFile { file, row } => &[file, row],
            Self::InGroup { file } => &[file, "row_group", "row"],
        };
        let root = |name: &&str| schema.index_of(name).or_else(|_| schema.index_of(METADATA)).ok();
        names.iter().filter_map(root).chain(weight.and_then(|weight| schema.index_of(weight).ok())).collect()
    }
}

/// A field by name; the fields of Spark's struct have a dotted one.
fn field<'a>(schema: &'a Schema, name: &str) -> Option<&'a Field> {
    if let Ok(found) = schema.field_with_name(name) {
        return Some(found);
    }
    match (name.strip_prefix("_metadata."), schema.field_with_name(METADATA).ok()?.data_type()) {
        (Some(name), DataType::Struct(fields)) => fields.find(name).map(|(_, field)| field.as_ref()),
        _ => None,
    }
}

/// Whether a list is a table, or a folder of tables, rather than text.
pub(super) fn is_table(list: &Path) -> bool {
    kind(list).is_some() || list.is_dir()
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Csv,
    Parquet,
    Ipc,
}

fn kind(list: &Path) -> Option<Kind> {
    let extension = list.extension()?.to_str()?.to_ascii_lowercase();
    match extension.as_str() {
        "csv" => Some(Kind::Csv),
        "parquet" | "parq" | "pq" => Some(Kind::Parquet),
        "arrow" => Some(Kind::Ipc),
        _ => None,
    }
}

/// Reads a list, a part at a time, as it is: in any order and with repeats; and the column of weights, if one is asked
/// for.
pub(super) fn read(
    list: &Path,
    weight: Option<&str>,
    mut each: impl FnMut(Listed, Weights) -> Result<()>,
) -> Result<()> {
    if !list.is_dir() {
        return read_file(list, weight, each);
    }
    for part in parts(list)? {
        read_file(&part, weight, &mut each).map_err(|error| error.with_file(part.display().to_string()))?;
    }
    Ok(())
}

/// The tables in a folder, which is how engines write with several threads or machines.
fn parts(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error| fs::error("cannot read the folder of lists", error);
    let mut parts = Vec::new();
    for entry in fs::with_room(|| std::fs::read_dir(folder)).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b".") || name.as_encoded_bytes().starts_with(b"_"));
        if !hidden && kind(&path).is_some() {
            parts.push(path);
        }
    }
    parts.sort_unstable();
    match parts.is_empty() {
        true => Err(Error::new(ErrorKind::NotFound, "there is no .csv, .parquet or .arrow file in the folder")),
        false => Ok(parts),
    }
}

fn read_file(list: &Path, weight: Option<&str>, each: impl FnMut(Listed, Weights) -> Result<()>) -> Result<()> {
    let file = fs::open(list).map_err(|error| fs::error("cannot open the list of rows", error))?;
    match kind(list) {
        Some(Kind::Csv) => read_batches(read_csv(file, weight)?, weight, each),
        #[cfg(feature = "parquet")]
        Some(Kind::Parquet) => read_batches(read_parquet(file, weight)?, weight, each),
        #[cfg(not(feature = "parquet"))]
        Some(Kind::Parquet) => Err(Error::new(ErrorKind::InvalidArgument, "this build reads no Parquet list of rows")
            .with_hint("build rowdex-index with its feature parquet, or write the list as .csv or .arrow")),
        Some(Kind::Ipc) => read_batches(FileReader::try_new_buffered(file, None).map_err(unreadable)?, weight, each),
        None => Err(Error::new(ErrorKind::InvalidArgument, "a table of rows is a .csv, .parquet or .arrow file")
            .with_hint("rename or convert the list")),
    }
}

#[cfg(feature = "parquet")]
fn read_parquet(
    file: File,
    weight: Option<&str>,
) -> Result<impl Iterator<Item = Result<RecordBatch, ArrowError>> + use<>> {
    use parquet::arrow::ProjectionMask;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    let invalid = |error: parquet::errors::ParquetError| {
        Error::new(ErrorKind::InvalidParquet, format!("cannot read the list of rows: {error}")).with_source(error)
    };
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(invalid)?;
    let roots = Columns::of(builder.schema())?.roots(builder.schema(), weight);
    let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
    builder.with_projection(mask).with_batch_size(BATCH).build().map_err(invalid)
}

fn read_csv(
    mut file: File,
    weight: Option<&str>,
) -> Result<impl Iterator<Item = Result<RecordBatch, ArrowError>> + use<>> {
    let format = Format::default().with_header(true);
    let (schema, _) = format.infer_schema(&mut file, Some(1000)).map_err(unreadable)?;
    file.seek(SeekFrom::Start(0)).map_err(|error| Error::io("cannot read the list of rows", error))?;
    // A file may have a name like a number.
    let text = |field: &Arc<Field>| match FILES.contains(&field.name().as_str()) {
        true => Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8)),
        false => field.clone(),
    };
    let schema = Schema::new(schema.fields().iter().map(text).collect::<Vec<_>>());
    let columns = Columns::of(&schema)?;
    let numbers = columns.roots(&schema, None);
    // The first weights may be whole numbers, and others not.
    let weighed = |(at, field): (usize, &Arc<Field>)| match weight == Some(field.name()) && !numbers.contains(&at) {
        true if field.data_type().is_integer() => Arc::new(field.as_ref().clone().with_data_type(DataType::Float64)),
        _ => field.clone(),
    };
    let schema = Schema::new(schema.fields().iter().enumerate().map(weighed).collect::<Vec<_>>());
    let columns = columns.roots(&schema, weight);
    let reader = ReaderBuilder::new(Arc::new(schema)).with_format(format).with_projection(columns);
    reader.with_batch_size(BATCH).build(file).map_err(unreadable)
}

fn unreadable(error: ArrowError) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("cannot read the list of rows: {error}")).with_source(error)
}

/// Hands over what each batch lists.
pub(super) fn read_batches(
    batches: impl IntoIterator<Item = Result<RecordBatch, ArrowError>>,
    weight: Option<&str>,
    mut each: impl FnMut(Listed, Weights) -> Result<()>,
) -> Result<()> {
    for batch in batches {
        let batch = batch.map_err(unreadable)?;
        let weights = weight.map(|weight| weights(&batch, weight)).transpose()?;
        let listed = match Columns::of(&batch.schema())? {
            Columns::Ids => Listed::Ids(numbers(&batch, "row_id")?),
            Columns::InFile { file, row } => {
                Listed::InFile { files: names(&batch, file)?, rows: numbers(&batch, row)? }
            }
            Columns::InGroup { file } => Listed::InGroup {
                files: names(&batch, file)?,
                groups: numbers(&batch, "row_group")?,
                rows: numbers(&batch, "row")?,
            },
        };
        each(listed, weights)?;
    }
    Ok(())
}

/// A number for each listed row.
fn weights(batch: &RecordBatch, name: &str) -> Result<Float64Array> {
    let wrong = |message: String, hint: &'static str| {
        Err(Error::new(ErrorKind::InvalidArgument, message).with_column(name).with_hint(hint))
    };
    let Some(column) = batch.column_by_name(name) else {
        let names: Vec<&str> = batch.schema_ref().fields().iter().map(|field| field.name().as_str()).collect();
        return wrong(
            format!("the list of rows has no such column; of use are {}", names.join(", ")),
            "name the column that has the numbers",
        );
    };
    if !(column.data_type().is_numeric() || column.data_type() == &DataType::Boolean) {
        return wrong(
            format!("values of type {} in the list of rows", column.data_type()),
            "weights and lengths are numbers",
        );
    }
    let weights = cast(column, &DataType::Float64).map_err(|error| unreadable(error).with_column(name))?;
    match weights.null_count() {
        0 => Ok(weights.as_primitive::<Float64Type>().clone()),
        _ => wrong("a listed row has a null".to_owned(), "give it a number, or leave the row out of the list"),
    }
}

fn column(batch: &RecordBatch, name: &str, data_type: &DataType) -> Result<ArrayRef> {
    let nested = || {
        let fields = batch.column_by_name(METADATA)?.as_struct_opt()?;
        fields.column_by_name(name.strip_prefix("_metadata.")?)
    };
    let found = batch.column_by_name(name).or_else(nested);
    let column = found.ok_or_else(|| Error::new(ErrorKind::Internal, "a column of the list is gone"))?;
    let wrong = |said: &str| {
        Error::new(ErrorKind::InvalidArgument, format!("{said} in the list of rows")).with_column(name).with_hint(HINT)
    };
    let fits = match data_type {
        // A fraction would be cut off.
        DataType::UInt64 => {
            column.data_type().is_integer() || column.data_type().is_null() || is_text(column.data_type())
        }
        _ => is_text(column.data_type()),
    };
    if !fits {
        return Err(wrong(&format!("values of type {}", column.data_type())));
    }
    // What does not fit becomes null; counting nulls tells.
    let cast = cast(column, data_type).map_err(|error| unreadable(error).with_column(name))?;
    match cast.null_count() {
        0 => Ok(cast),
        _ => Err(wrong(&format!("a value is missing or not of type {data_type}"))),
    }
}

fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, values) => is_text(values),
        _ => false,
    }
}

fn numbers(batch: &RecordBatch, name: &str) -> Result<UInt64Array> {
    Ok(column(batch, name, &DataType::UInt64)?.as_primitive::<UInt64Type>().clone())
}

fn names(batch: &RecordBatch, name: &str) -> Result<StringArray> {
    Ok(column(batch, name, &DataType::Utf8)?.as_string::<i32>().clone())
}
