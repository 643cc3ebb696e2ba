//! Output files: row groups encoded column by column, and put in order.

use std::io::Write;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::arrow::arrow_writer::{
    ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, ArrowWriterOptions, compute_leaves,
};
use parquet::arrow::{ARROW_SCHEMA_META_KEY, ArrowWriter, encode_arrow_schema};
use parquet::basic::{
    Compression, ConvertedType, EdgeInterpolationAlgorithm, LogicalType, Type as PhysicalType, ZstdLevel,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};
use rayon::prelude::*;

use super::columns::OutputColumns;
use super::plan::{Codec, ColumnPlan};
use super::target::OutFile;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_rows::Chunks;

/// How files are encoded.
#[derive(Debug)]
pub(super) struct Encoding {
    schema: SchemaRef,
    described: SchemaDescriptor,
    properties: WriterProperties,
    factory: ArrowRowGroupWriterFactory,
    chunk_rows: usize,
}

impl Encoding {
    /// Of these columns, of which the leaves are encoded as planned, and the groups say what they are planned to.
    pub(super) fn new(
        columns: &OutputColumns,
        leaves: &[ColumnPlan],
        groups: &[(String, String)],
        chunk_rows: usize,
    ) -> Result<Self> {
        let schema = Arc::clone(&columns.encoded);
        let arrow_schema = KeyValue::new(ARROW_SCHEMA_META_KEY.to_owned(), encode_arrow_schema(&columns.declared));
        let mut metadata: Vec<_> =
            schema.metadata().iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone())).collect();
        // A map has no order.
        metadata.sort_by(|a, b| a.key.cmp(&b.key));
        metadata.retain(|pair| pair.key != ARROW_SCHEMA_META_KEY);
        metadata.push(arrow_schema);
        let mut builder = WriterProperties::builder()
            .set_created_by(format!("rowdex {}", env!("CARGO_PKG_VERSION")))
            .set_key_value_metadata(Some(metadata))
            .set_write_batch_size(chunk_rows.clamp(1, 1024))
            .set_max_row_group_row_count(None);
        let descriptor = described(&schema)?;
        for (leaf, plan) in descriptor.columns().iter().zip(leaves) {
            let path = leaf.path().clone();
            builder = builder
                .set_column_compression(path.clone(), compression(plan.compression)?)
                .set_column_dictionary_enabled(path.clone(), plan.dictionary)
                .set_column_data_page_size_limit(path, plan.page_bytes as usize);
        }
        let described = annotated(&descriptor, leaves, groups).map_err(uncoded)?;
        let properties = builder.build();
        let (_, factory) = writer(std::io::sink(), &schema, &described, &properties)?;
        Ok(Self { schema, described, properties, factory, chunk_rows })
    }

    /// A file of what is encoded, over anything that takes bytes.
    pub(super) fn file<W: Write + Send>(&self, out: W) -> Result<File<W>> {
        writer(out, &self.schema, &self.described, &self.properties).map(|(writer, _)| File { writer })
    }

    /// A row group of any of the files.
    pub(super) fn group(&self) -> Result<GroupEncoder<'_>> {
        GroupEncoder::new(self)
    }
}

fn writer<W: Write + Send>(
    out: W,
    schema: &SchemaRef,
    described: &SchemaDescriptor,
    properties: &WriterProperties,
) -> Result<(SerializedFileWriter<W>, ArrowRowGroupWriterFactory)> {
    let options = ArrowWriterOptions::new()
        .with_properties(properties.clone())
        .with_skip_arrow_metadata(true)
        .with_parquet_schema(described.clone());
    let writer = ArrowWriter::try_new_with_options(out, Arc::clone(schema), options);
    writer.and_then(ArrowWriter::into_serialized_writer).map_err(uncoded)
}

/// The leaves of a schema, as they are written.
pub(super) fn described(schema: &SchemaRef) -> Result<SchemaDescriptor> {
    parquet::arrow::ArrowSchemaConverter::new().convert(schema).map_err(uncoded)
}

/// The same schema, whose leaves and groups say what they are planned to say.
fn annotated(
    described: &SchemaDescriptor,
    leaves: &[ColumnPlan],
    groups: &[(String, String)],
) -> parquet::errors::Result<SchemaDescriptor> {
    if groups.is_empty() && leaves.iter().all(|leaf| leaf.logical_type.is_none()) {
        return Ok(described.clone());
    }
    let mut planned = leaves.iter();
    Ok(SchemaDescriptor::new(annotated_type(described.root_schema_ptr(), "", &mut planned, groups)?))
}

/// Leaves come in the order of their plans.
fn annotated_type(
    node: TypePtr,
    path: &str,
    planned: &mut std::slice::Iter<'_, ColumnPlan>,
    groups: &[(String, String)],
) -> parquet::errors::Result<TypePtr> {
    let info = node.get_basic_info();
    if let Type::PrimitiveType { physical_type, type_length, .. } = &*node {
        let Some(name) = planned.next().and_then(|leaf| leaf.logical_type.as_deref()) else { return Ok(node) };
        let bytes = (*physical_type == PhysicalType::FIXED_LEN_BYTE_ARRAY).then_some(*type_length);
        let built = Type::primitive_type_builder(info.name(), *physical_type)
            .with_repetition(info.repetition())
            .with_length(*type_length)
            .with_id(info.has_id().then(|| info.id()));
        let built = match (name, info.logical_type_ref()) {
            ("INTERVAL", None) if bytes == Some(12) => built.with_converted_type(ConvertedType::INTERVAL),
            ("UUID", None) if bytes == Some(16) => built.with_logical_type(Some(LogicalType::Uuid)),
            ("TIME_UTC", Some(LogicalType::Time(time))) => {
                built.with_logical_type(Some(LogicalType::time(true, time.unit)))
            }
            (_, None | Some(LogicalType::String)) if *physical_type == PhysicalType::BYTE_ARRAY => {
                built.with_logical_type(Some(logical_type(name)?))
            }
            _ => return Ok(node),
        };
        return built.build().map(Arc::new);
    }
    let below =
        |field: &TypePtr| if path.is_empty() { field.name().to_owned() } else { format!("{path}.{}", field.name()) };
    let fields = node.get_fields().iter();
    let fields: Vec<TypePtr> = fields
        .map(|field| annotated_type(Arc::clone(field), &below(field), planned, groups))
        .collect::<Result<_, _>>()?;
    let said = match (groups.iter().find(|(group, _)| group == path), info.logical_type_ref()) {
        (Some((_, name)), None) => Some(logical_type(name)?),
        (_, own) => own.cloned(),
    };
    let mut built = Type::group_type_builder(info.name())
        .with_converted_type(info.converted_type())
        .with_logical_type(said)
        .with_id(info.has_id().then(|| info.id()))
        .with_fields(fields);
    if info.has_repetition() {
        built = built.with_repetition(info.repetition());
    }
    built.build().map(Arc::new)
}

/// From how a plan calls it.
fn logical_type(name: &str) -> parquet::errors::Result<LogicalType> {
    match name.split_once(':') {
        Some(("GEOMETRY", crs)) => Ok(LogicalType::geometry(Some(crs.to_owned()))),
        Some(("GEOGRAPHY", crs)) => {
            let algorithm = Some(EdgeInterpolationAlgorithm::SPHERICAL);
            Ok(LogicalType::geography(Some(crs.to_owned()), algorithm))
        }
        Some(("VARIANT", version)) => Ok(LogicalType::variant(version.parse().ok())),
        _ => name.parse(),
    }
}

pub(super) fn compression(codec: Codec) -> Result<Compression> {
    Ok(match codec {
        Codec::None => Compression::UNCOMPRESSED,
        Codec::Snappy => Compression::SNAPPY,
        Codec::Lz4 => Compression::LZ4_RAW,
        Codec::Zstd(level) => Compression::ZSTD(ZstdLevel::try_new(i32::from(level)).map_err(|error| {
            Error::new(ErrorKind::InvalidArgument, format!("no compression is called zstd:{level}: {error}"))
        })?),
    })
}

/// A file being encoded.
pub(super) struct File<W: Write + Send> {
    writer: SerializedFileWriter<W>,
}

impl<W: Write + Send> File<W> {
    /// Adds a row group, unless it has no rows.
    pub(super) fn add(&mut self, group: EncodedGroup) -> Result<()> {
        if group.rows == 0 {
            return Ok(());
        }
        let mut writer = self.writer.next_row_group().map_err(unwritten)?;
        for column in group.columns {
            column.append_to_row_group(&mut writer).map_err(unwritten)?;
        }
        writer.close().map(drop).map_err(unwritten)
    }

    /// Writes the footer, and gives back what the bytes went to.
    pub(super) fn finish(self) -> Result<W> {
        self.writer.into_inner().map_err(unwritten)
    }
}

/// A row group whose columns are encoded.
pub(super) struct EncodedGroup {
    columns: Vec<ArrowColumnChunk>,
    pub(super) rows: u64,
}

/// A row group being encoded. Its bytes depend on its rows alone, however they are divided when they come.
pub(super) struct GroupEncoder<'a> {
    encoding: &'a Encoding,
    /// For each column, the writers of its leaves.
    writers: Vec<Vec<ArrowColumnWriter>>,
    chunks: Chunks,
    rows: u64,
}

impl<'a> GroupEncoder<'a> {
    fn new(encoding: &'a Encoding) -> Result<Self> {
        let mut leaves = encoding.factory.create_column_writers(0).map_err(uncoded)?.into_iter();
        let fields = encoding.schema.fields().iter();
        let writers = fields.map(|field| leaves.by_ref().take(count_leaves(field.data_type())).collect()).collect();
        Ok(Self { encoding, writers, chunks: Chunks::of(encoding.chunk_rows), rows: 0 })
    }

    pub(super) fn add(&mut self, rows: RecordBatch) -> Result<()> {
        self.rows += rows.num_rows() as u64;
        self.chunks.push(rows);
        while let Some(chunk) = self.chunks.next_chunk()? {
            self.encode(&chunk)?;
        }
        Ok(())
    }

    /// Encodes columns on the threads of the pool that this is called in.
    fn encode(&mut self, chunk: &RecordBatch) -> Result<()> {
        let columns = chunk.columns().par_iter().zip(self.encoding.schema.fields().par_iter());
        columns.zip(self.writers.par_iter_mut()).try_for_each(|((column, field), writers)| {
            let leaves = compute_leaves(field, column).map_err(|error| uncoded(error).with_column(field.name()))?;
            for (leaf, writer) in leaves.iter().zip(writers) {
                writer.write(leaf).map_err(|error| uncoded(error).with_column(field.name()))?;
            }
            Ok(())
        })
    }

    pub(super) fn finish(mut self) -> Result<EncodedGroup> {
        if let Some(chunk) = self.chunks.last()? {
            self.encode(&chunk)?;
        }
        let leaves: Vec<ArrowColumnWriter> = self.writers.into_iter().flatten().collect();
        let columns: Vec<_> = leaves.into_par_iter().map(|leaf| leaf.close().map_err(uncoded)).collect();
        Ok(EncodedGroup { columns: columns.into_iter().collect::<Result<_>>()?, rows: self.rows })
    }
}

fn count_leaves(data_type: &arrow::datatypes::DataType) -> usize {
    match rowdex_projection::children(data_type) {
        [] => 1,
        fields => fields.iter().map(|field| count_leaves(field.data_type())).sum(),
    }
}

/// A file of the output being encoded.
pub(super) struct EncodedFile {
    path: PathBuf,
    file: File<OutFile>,
}

impl EncodedFile {
    pub(super) fn create(path: PathBuf, file: OutFile, encoding: &Encoding) -> Result<Self> {
        Ok(Self { file: encoding.file(file)?, path })
    }

    pub(super) fn add(&mut self, group: EncodedGroup) -> Result<()> {
        self.file.add(group).map_err(|error| error.with_file(self.path.display().to_string()))
    }

    /// Puts the file in its place; returns its length.
    pub(super) fn commit(self) -> Result<u64> {
        let named = |error: Error| error.with_file(self.path.display().to_string());
        rowdex_base::stop::check()?;
        self.file.finish().and_then(OutFile::commit).map_err(named)
    }
}

/// The positions of a row group that come next, in steps of a few chunks.
pub(super) fn steps(positions: Range<u64>, chunk_rows: usize) -> impl Iterator<Item = Range<u64>> {
    let step = chunk_rows as u64;
    let count = (positions.end - positions.start).div_ceil(step);
    (0..count).map(move |number| {
        let start = positions.start + number * step;
        start..(start + step).min(positions.end)
    })
}

fn uncoded(error: ParquetError) -> Error {
    Error::new(ErrorKind::UnsupportedParquet, format!("the rows cannot be encoded: {error}")).with_source(error)
}

fn unwritten(error: ParquetError) -> Error {
    match error {
        ParquetError::External(cause) => match cause.downcast::<std::io::Error>() {
            // What a store said comes as it is.
            Ok(error) => error.downcast().unwrap_or_else(|error| Error::io("cannot write the file", error)),
            Err(other) => Error::new(ErrorKind::Io, format!("cannot write the file: {other}")),
        },
        other => Error::new(ErrorKind::Io, format!("cannot write the file: {other}")).with_source(other),
    }
}
