//! `rowdex get`: rows by their ids, in one of several formats.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Fields, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::writer::FileWriter;
use arrow::json::writer::JsonArray;
use arrow::util::pretty::pretty_format_batches_with_schema;
use clap::{Args, ValueEnum};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use rowdex::{Dataset, Error, ErrorKind, Index};

use crate::command::args::{DataArgs, IndexArg, RowsArg, TierArgs};
use crate::command::failure::{Failure, complain};
use crate::command::output::Sink;

/// Rows are fetched in pieces of about this size, so that any number of them can be written in little memory.
const PIECE_BYTES: u64 = 64 << 20;
const PIECE_ROWS: u64 = 8192;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rowdex get train.rdx 0 41 99 --columns label,text
  rowdex get train.rdx 1000..2000 --output rows.parquet
  rowdex get train.rdx 7 --format json")]
pub(crate) struct GetArgs {
    #[command(flatten)]
    index: IndexArg,

    #[command(flatten)]
    rows: RowsArg,

    /// How to write the rows [default: by the extension of --output, else table]. `arrow` is an Arrow IPC file, with
    /// the values of dictionaries in their place, because such a file has one dictionary for all of its rows. `json`
    /// has null in the place of NaN and infinities, which JSON cannot say.
    #[arg(long, value_enum)]
    format: Option<Format>,

    /// Write to this file instead of to stdout.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace the file if there is one.
    #[arg(long, requires = "output")]
    force: bool,

    #[command(flatten)]
    data: DataArgs,

    #[command(flatten)]
    tier: TierArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
    Csv,
    Arrow,
    Parquet,
}

pub(crate) fn run(args: &GetArgs) -> Result<(), Failure> {
    let format = args.format.unwrap_or_else(|| by_extension(args.output.as_deref()));
    let index = args.index.open()?;
    let rows = args.rows.ids(&index)?;
    let dataset = args.tier.open(args.data.builder(index.clone(), None))?;
    check(format, dataset.schema())?;
    let mut sink = match &args.output {
        Some(path) if args.force && is_read(path, &index) => {
            return Err(Error::new(ErrorKind::InvalidArgument, "the rows would replace what they are read from")
                .with_file(path.display().to_string())
                .with_hint("name another file for them")
                .into());
        }
        Some(path) => Sink::file(path, args.force)?,
        None => Sink::stdout(),
    };
    if matches!(format, Format::Arrow | Format::Parquet) && !sink.is_file() && io::stdout().is_terminal() {
        return Err(Failure::new("a terminal cannot show this format; use --output FILE, or send stdout elsewhere"));
    }
    let written = write(format, pieces(&dataset, rows), dataset.schema(), &mut sink);
    if let Some(fault) = dataset.tier_fault() {
        complain(fault);
    }
    written?;
    sink.commit()
}

/// Whether a file is the index or one of its data files, as far as its path and its size tell.
fn is_read(path: &Path, index: &Index) -> bool {
    let Ok(path) = path.canonicalize() else { return false };
    let size = path.metadata().map_or(0, |metadata| metadata.len());
    let is_index = index.path().and_then(|index| index.canonicalize().ok()).is_some_and(|index| index == path);
    is_index || index.files().any(|file| file.size() == size && path.ends_with(file.path()))
}

fn by_extension(output: Option<&Path>) -> Format {
    let extension = output.and_then(Path::extension).map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    match extension.as_deref() {
        Some("json") => Format::Json,
        Some("csv") => Format::Csv,
        Some("arrow" | "feather" | "ipc") => Format::Arrow,
        Some("parquet" | "parq" | "pq") => Format::Parquet,
        _ => Format::Table,
    }
}

/// Refuses what a format has no way to say before anything is read.
fn check(format: Format, schema: &Schema) -> Result<(), Failure> {
    let (name, other, unfit): (_, _, fn(&DataType) -> bool) = match format {
        Format::Csv => ("CSV", "json", DataType::is_nested),
        Format::Json => ("JSON", "arrow", has_keys_that_are_no_text),
        Format::Table | Format::Arrow | Format::Parquet => return Ok(()),
    };
    match schema.fields().iter().find(|field| unfit(field.data_type())) {
        None => Ok(()),
        Some(field) => {
            Err(Error::new(ErrorKind::InvalidArgument, format!("{name} cannot hold a {}", field.data_type()))
                .with_column(field.name())
                .with_hint(format!("choose other columns (`--columns`) or another format (`--format {other}`)"))
                .into())
        }
    }
}

/// Whether there are maps in the type whose keys are no text, as those of a JSON object are.
fn has_keys_that_are_no_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(parts) => {
                parts.first().is_some_and(|key| !key.data_type().is_string())
                    || parts.iter().any(|part| has_keys_that_are_no_text(part.data_type()))
            }
            _ => false,
        },
        DataType::Struct(parts) => parts.iter().any(|part| has_keys_that_are_no_text(part.data_type())),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => has_keys_that_are_no_text(item.data_type()),
        _ => false,
    }
}

fn pieces(dataset: &Dataset, mut rows: impl Iterator<Item = u64>) -> impl Iterator<Item = rowdex::Result<RecordBatch>> {
    let row_bytes = (dataset.decoded_bytes() / dataset.len().max(1)).max(1);
    let size = (PIECE_BYTES / row_bytes).clamp(1, PIECE_ROWS) as usize;
    std::iter::from_fn(move || {
        let piece: Vec<u64> = rows.by_ref().take(size).collect();
        (!piece.is_empty()).then(|| dataset.take(&piece))
    })
}

type Batches<'a> = dyn Iterator<Item = rowdex::Result<RecordBatch>> + 'a;

fn write(
    format: Format,
    mut pieces: impl Iterator<Item = rowdex::Result<RecordBatch>>,
    schema: &arrow::datatypes::SchemaRef,
    sink: &mut Sink,
) -> Result<(), Failure> {
    let pieces: &mut Batches<'_> = &mut pieces;
    let written = match format {
        Format::Table => table(pieces, schema, sink),
        Format::Json => json(pieces, sink),
        Format::Csv => csv(pieces, sink),
        Format::Arrow => ipc(pieces, schema, sink),
        Format::Parquet => parquet(pieces, schema, sink),
    };
    written.map_err(|stop| match stop {
        Stop::Read(error) => error.into(),
        Stop::Write(message) => sink.failure(message),
    })
}

/// Why writing stopped: the rows could not be read, or the format or the sink did not take them.
enum Stop {
    Read(Error),
    Write(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Read(error)
    }
}

impl From<ArrowError> for Stop {
    fn from(error: ArrowError) -> Self {
        Self::Write(format!("cannot write the rows in this format: {error}"))
    }
}

impl From<parquet::errors::ParquetError> for Stop {
    fn from(error: parquet::errors::ParquetError) -> Self {
        Self::Write(format!("cannot write the rows in this format: {error}"))
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Write(error.to_string())
    }
}

fn table(pieces: &mut Batches<'_>, schema: &arrow::datatypes::SchemaRef, sink: &mut Sink) -> Result<(), Stop> {
    let batches = pieces.collect::<rowdex::Result<Vec<_>>>()?;
    let table = pretty_format_batches_with_schema(schema.clone(), &batches)?;
    Ok(writeln!(sink, "{table}")?)
}

fn json(pieces: &mut Batches<'_>, sink: &mut Sink) -> Result<(), Stop> {
    let mut writer = arrow::json::WriterBuilder::new().with_explicit_nulls(true).build::<_, JsonArray>(&mut *sink);
    for piece in pieces {
        writer.write(&piece?)?;
    }
    writer.finish()?;
    Ok(writeln!(sink)?)
}

fn csv(pieces: &mut Batches<'_>, sink: &mut Sink) -> Result<(), Stop> {
    let mut writer = arrow::csv::WriterBuilder::new().with_header(true).build(sink);
    for piece in pieces {
        writer.write(&piece?)?;
    }
    Ok(())
}

fn ipc(pieces: &mut Batches<'_>, schema: &Schema, sink: &mut Sink) -> Result<(), Stop> {
    // Dictionaries of batches differ, and a file has one.
    let plain = spelled(schema);
    let mut writer = FileWriter::try_new(sink, &plain)?;
    for piece in pieces {
        writer.write(&brought_to(&piece?, &plain)?)?;
    }
    Ok(writer.finish()?)
}

fn parquet(pieces: &mut Batches<'_>, schema: &Schema, sink: &mut Sink) -> Result<(), Stop> {
    let stored = |data_type: &DataType| match data_type {
        // The crate takes one digit from 64 bits alone.
        DataType::Decimal32(1, scale) => Some(DataType::Decimal64(1, *scale)),
        // It writes days that are counted in milliseconds as integers.
        DataType::Date64 => Some(DataType::Date32),
        _ => None,
    };
    let spelled = spelled(schema);
    let plain = with_types(schema, |data_type| match data_type {
        DataType::Dictionary(_, values) => stored(values),
        other => stored(other),
    });
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(Default::default())).build();
    let mut writer = ArrowWriter::try_new(sink, Arc::clone(&plain), Some(properties))?;
    for piece in pieces {
        let piece = piece?;
        let brought = brought_to(&piece, &plain)?;
        for ((column, brought), field) in piece.columns().iter().zip(brought.columns()).zip(spelled.fields()) {
            let as_spelled = |column| cast(column, field.data_type());
            if column.data_type() != brought.data_type()
                && as_spelled(brought)?.as_ref() != as_spelled(column)?.as_ref()
            {
                return Err(Stop::Write("a date has a time of day, which Parquet lacks; write another format".into()));
            }
        }
        writer.write(&brought)?;
    }
    writer.close()?;
    Ok(())
}

/// The schema with the values of dictionaries in their place.
fn spelled(schema: &Schema) -> SchemaRef {
    with_types(schema, |data_type| match data_type {
        DataType::Dictionary(_, values) => Some(values.as_ref().clone()),
        _ => None,
    })
}

/// The schema with other types for some, at any depth.
fn with_types(schema: &Schema, other: impl Fn(&DataType) -> Option<DataType> + Copy) -> SchemaRef {
    fn field_with(field: &FieldRef, other: impl Fn(&DataType) -> Option<DataType> + Copy) -> FieldRef {
        let below = |field| field_with(field, other);
        let data_type = match field.data_type() {
            DataType::List(item) => DataType::List(below(item)),
            DataType::LargeList(item) => DataType::LargeList(below(item)),
            DataType::FixedSizeList(item, size) => DataType::FixedSizeList(below(item), *size),
            DataType::Struct(parts) => DataType::Struct(parts.iter().map(below).collect()),
            DataType::Map(entries, sorted) => DataType::Map(below(entries), *sorted),
            leaf => other(leaf).unwrap_or_else(|| leaf.clone()),
        };
        Arc::new(field.as_ref().clone().with_data_type(data_type))
    }
    let fields: Fields = schema.fields().iter().map(|field| field_with(field, other)).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn brought_to(piece: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = piece.columns().iter().zip(schema.fields()).map(|(column, field)| cast(column, field.data_type()));
    let options = RecordBatchOptions::new().with_row_count(Some(piece.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns.collect::<Result<_, _>>()?, &options)
}
