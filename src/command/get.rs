//! `rowdex get`: rows by their ids, as JSON or Arrow.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions, new_empty_array};
use arrow_cast::cast;
use arrow_ipc::writer::FileWriter;
use arrow_json::writer::{EncoderOptions, JsonArray, make_encoder};
use arrow_schema::ArrowError;
use arrow_schema::{DataType, FieldRef, Fields, Schema, SchemaRef};
use clap::Args;
use rowdex::{Dataset, Error, ErrorKind};

use crate::command::args::{DiskCacheArgs, FilesArgs, IndexArg, RowIds, checked};
use crate::command::failure::{Failure, complain};
use crate::command::output::Sink;

/// Rows are fetched in pieces of about this size, so that any number of them can be written in little memory.
const PIECE_BYTES: u64 = 64 << 20;
const PIECE_ROWS: u64 = 8192;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rowdex get train.rdx 0 41 99 --columns label,text
  rowdex get train.rdx 1000..2000 --output rows.arrow

Rows are written as JSON, with null in the place of NaN and infinities, which JSON cannot say; to a file that is called
.arrow as an Arrow IPC file, with the values of dictionaries in their place.")]
pub(crate) struct GetArgs {
    #[command(flatten)]
    index: IndexArg,

    /// Row ids, and ranges of them: 10..20 is 10 to 19.
    #[arg(required = true, value_name = "ROW")]
    rows: Vec<RowIds>,

    /// Write to this file instead of to stdout.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    files: FilesArgs,

    #[command(flatten)]
    disk_cache: DiskCacheArgs,
}

pub(crate) fn run(args: &GetArgs) -> Result<(), Failure> {
    let output = args.output.as_deref();
    let arrow = output.and_then(Path::extension).is_some_and(|end| end.eq_ignore_ascii_case("arrow"));
    let index = args.index.open()?;
    let rows = checked(&args.rows, &index)?;
    let dataset = args.disk_cache.open(args.files.builder(index.clone()))?;
    if !arrow {
        check(dataset.schema())?;
    }
    let mut sink = match &args.output {
        Some(path) => Sink::file(path)?,
        None => Sink::stdout(),
    };
    let written = match arrow {
        true => ipc(pieces(&dataset, rows), dataset.schema(), &mut sink),
        false => json(pieces(&dataset, rows), &mut sink),
    };
    let written = written.map_err(|error| match error {
        ArrowError::IoError(_, error) => sink.failure(error),
        ArrowError::ExternalError(error) => match error.downcast::<Error>() {
            Ok(error) => (*error).into(),
            Err(error) => Failure::new(error.to_string()),
        },
        other => Failure::new(format!("cannot write the rows in this format: {other}")),
    });
    dataset.disk_cache_fault().iter().for_each(complain);
    written?;
    sink.commit()
}

/// Refuses what JSON has no way to say before anything is read.
fn check(schema: &Schema) -> Result<(), Failure> {
    for field in schema.fields() {
        let none = new_empty_array(field.data_type());
        make_encoder(field, &none, &EncoderOptions::default()).map(drop).map_err(|error| {
            Error::new(ErrorKind::InvalidArgument, format!("JSON cannot hold it: {error}"))
                .with_column(field.name())
                .with_hint("choose other columns (`--columns`), or write an Arrow file (`--output rows.arrow`)")
        })?;
    }
    Ok(())
}

fn pieces(
    dataset: &Dataset,
    mut rows: impl Iterator<Item = u64>,
) -> impl Iterator<Item = Result<RecordBatch, ArrowError>> {
    let row_bytes = (dataset.decoded_bytes() / dataset.len().max(1)).max(1);
    let size = (PIECE_BYTES / row_bytes).clamp(1, PIECE_ROWS) as usize;
    std::iter::from_fn(move || {
        let piece: Vec<u64> = rows.by_ref().take(size).collect();
        (!piece.is_empty()).then(|| dataset.take(&piece).map_err(|error| ArrowError::ExternalError(Box::new(error))))
    })
}

fn json(pieces: impl Iterator<Item = Result<RecordBatch, ArrowError>>, sink: &mut Sink) -> Result<(), ArrowError> {
    let mut writer = arrow_json::WriterBuilder::new().with_explicit_nulls(true).build::<_, JsonArray>(&mut *sink);
    for piece in pieces {
        writer.write(&piece?)?;
    }
    writer.finish()?;
    Ok(writeln!(sink)?)
}

fn ipc(
    pieces: impl Iterator<Item = Result<RecordBatch, ArrowError>>,
    schema: &Schema,
    sink: &mut Sink,
) -> Result<(), ArrowError> {
    // Dictionaries of batches differ, and a file has one.
    let plain = spelled(schema);
    let mut writer = FileWriter::try_new(sink, &plain)?;
    for piece in pieces {
        writer.write(&brought_to(&piece?, &plain)?)?;
    }
    writer.finish()
}

/// The schema with the values of dictionaries in their place, at any depth.
fn spelled(schema: &Schema) -> SchemaRef {
    fn plain(field: &FieldRef) -> FieldRef {
        let data_type = match field.data_type() {
            DataType::List(item) => DataType::List(plain(item)),
            DataType::LargeList(item) => DataType::LargeList(plain(item)),
            DataType::FixedSizeList(item, size) => DataType::FixedSizeList(plain(item), *size),
            DataType::Struct(parts) => DataType::Struct(parts.iter().map(plain).collect()),
            DataType::Map(entries, sorted) => DataType::Map(plain(entries), *sorted),
            DataType::Dictionary(_, values) => values.as_ref().clone(),
            leaf => leaf.clone(),
        };
        Arc::new(field.as_ref().clone().with_data_type(data_type))
    }
    let fields: Fields = schema.fields().iter().map(plain).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn brought_to(piece: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = piece.columns().iter().zip(schema.fields()).map(|(column, field)| cast(column, field.data_type()));
    let options = RecordBatchOptions::new().with_row_count(Some(piece.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns.collect::<Result<_, _>>()?, &options)
}
