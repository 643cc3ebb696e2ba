//! Row groups encoded column by column, and the files that they are put to.

use std::io::Write;
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
    /// Of these columns, of which the leaves are encoded as planned, and leaves and groups say what they are.
    pub(super) fn new(
        columns: &OutputColumns,
        leaves: &[ColumnPlan],
        logical_types: &[(String, String)],
        chunk_rows: u64,
    ) -> Result<Self> {
        let schema = Arc::clone(&columns.encoded);
        let mut metadata: Vec<_> =
            schema.metadata().iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone())).collect();
        // A map has no order.
        metadata.sort_by(|a, b| a.key.cmp(&b.key));
        metadata.retain(|pair| pair.key != ARROW_SCHEMA_META_KEY);
        metadata.push(KeyValue::new(ARROW_SCHEMA_META_KEY.to_owned(), encode_arrow_schema(&columns.declared)));
        let mut builder = WriterProperties::builder()
            .set_created_by(format!("rowdex {}", env!("CARGO_PKG_VERSION")))
            .set_key_value_metadata(Some(metadata))
            .set_write_batch_size(chunk_rows.clamp(1, 1024) as usize)
            .set_max_row_group_row_count(None);
        let described = described(&schema)?;
        for (leaf, plan) in described.columns().iter().zip(leaves) {
            let path = leaf.path().clone();
            builder = builder
                .set_column_compression(path.clone(), compression(plan.compression)?)
                .set_column_dictionary_enabled(path.clone(), plan.dictionary)
                .set_column_data_page_size_limit(path, plan.page_bytes as usize);
        }
        let root = annotated(described.root_schema_ptr(), "", logical_types).map_err(uncoded)?;
        let described = SchemaDescriptor::new(root);
        let properties = builder.build();
        let (_, factory) = writer(std::io::sink(), &schema, &described, &properties)?;
        Ok(Self { schema, described, properties, factory, chunk_rows: chunk_rows as usize })
    }

    /// A file of what is encoded.
    pub(super) fn file<W: Write + Send>(&self, out: W) -> Result<SerializedFileWriter<W>> {
        writer(out, &self.schema, &self.described, &self.properties).map(|(writer, _)| writer)
    }

    /// A row group of any of the files.
    pub(super) fn group(&self) -> Result<GroupEncoder<'_>> {
        let mut leaves = self.factory.create_column_writers(0).map_err(uncoded)?.into_iter();
        let fields = self.schema.fields().iter();
        let writers = fields.map(|field| leaves.by_ref().take(count_leaves(field.data_type())).collect()).collect();
        Ok(GroupEncoder { encoding: self, writers, chunks: Chunks::of(self.chunk_rows) })
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

fn count_leaves(data_type: &arrow::datatypes::DataType) -> usize {
    match rowdex_projection::children(data_type) {
        [] => 1,
        fields => fields.iter().map(|field| count_leaves(field.data_type())).sum(),
    }
}

/// The same schema, of which leaves and groups say what they are, by path.
fn annotated(node: TypePtr, path: &str, logical_types: &[(String, String)]) -> parquet::errors::Result<TypePtr> {
    let info = node.get_basic_info();
    let said = logical_types.iter().find(|(of, _)| of == path).map(|(_, name)| name.as_str());
    let id = info.has_id().then(|| info.id());
    if let Type::PrimitiveType { physical_type, type_length, .. } = &*node {
        let built = Type::primitive_type_builder(info.name(), *physical_type)
            .with_repetition(info.repetition())
            .with_length(*type_length)
            .with_id(id);
        let built = match (said, info.logical_type_ref(), physical_type) {
            (Some("INTERVAL"), None, PhysicalType::FIXED_LEN_BYTE_ARRAY) if *type_length == 12 => {
                built.with_converted_type(ConvertedType::INTERVAL)
            }
            (Some("UUID"), None, PhysicalType::FIXED_LEN_BYTE_ARRAY) if *type_length == 16 => {
                built.with_logical_type(Some(LogicalType::Uuid))
            }
            (Some("TIME_UTC"), Some(LogicalType::Time(time)), _) => {
                built.with_logical_type(Some(LogicalType::time(true, time.unit)))
            }
            (Some(name), None | Some(LogicalType::String), PhysicalType::BYTE_ARRAY) => {
                built.with_logical_type(Some(logical_type(name)?))
            }
            _ => return Ok(node),
        };
        return built.build().map(Arc::new);
    }
    let below = |field: &TypePtr| {
        let path = if path.is_empty() { field.name().to_owned() } else { format!("{path}.{}", field.name()) };
        annotated(Arc::clone(field), &path, logical_types)
    };
    let fields = node.get_fields().iter().map(below).collect::<Result<_, _>>()?;
    let said = match (said, info.logical_type_ref()) {
        (Some(name), None) => Some(logical_type(name)?),
        (_, own) => own.cloned(),
    };
    let mut built = Type::group_type_builder(info.name())
        .with_converted_type(info.converted_type())
        .with_logical_type(said)
        .with_id(id)
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
            Ok(LogicalType::geography(Some(crs.to_owned()), Some(EdgeInterpolationAlgorithm::SPHERICAL)))
        }
        Some(("VARIANT", version)) => Ok(LogicalType::variant(version.parse().ok())),
        _ => name.parse(),
    }
}

fn compression(codec: Codec) -> Result<Compression> {
    Ok(match codec {
        Codec::None => Compression::UNCOMPRESSED,
        Codec::Snappy => Compression::SNAPPY,
        Codec::Lz4 => Compression::LZ4_RAW,
        Codec::Zstd(level) => Compression::ZSTD(ZstdLevel::try_new(i32::from(level)).map_err(|error| {
            Error::new(ErrorKind::InvalidArgument, format!("no compression is called zstd:{level}: {error}"))
        })?),
    })
}

/// A row group being encoded. Its bytes depend on its rows alone, however they are divided when they come.
pub(super) struct GroupEncoder<'a> {
    encoding: &'a Encoding,
    /// For each column, the writers of its leaves.
    writers: Vec<Vec<ArrowColumnWriter>>,
    chunks: Chunks,
}

impl GroupEncoder<'_> {
    pub(super) fn add(&mut self, rows: RecordBatch) -> Result<()> {
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
            let encoded = compute_leaves(field, column)
                .and_then(|leaves| leaves.iter().zip(writers).try_for_each(|(leaf, writer)| writer.write(leaf)));
            encoded.map_err(|error| uncoded(error).with_column(field.name()))
        })
    }

    /// The leaves of its columns.
    pub(super) fn finish(mut self) -> Result<Vec<ArrowColumnChunk>> {
        if let Some(chunk) = self.chunks.last()? {
            self.encode(&chunk)?;
        }
        let leaves: Vec<ArrowColumnWriter> = self.writers.into_iter().flatten().collect();
        let encoded: Vec<_> = leaves.into_par_iter().map(|leaf| leaf.close().map_err(uncoded)).collect();
        encoded.into_iter().collect()
    }
}

/// Puts a row group to a file.
pub(super) fn append<W: Write + Send>(
    file: &mut SerializedFileWriter<W>,
    group: Vec<ArrowColumnChunk>,
) -> parquet::errors::Result<()> {
    let mut writer = file.next_row_group()?;
    group.into_iter().try_for_each(|column| column.append_to_row_group(&mut writer))?;
    writer.close().map(drop)
}

fn uncoded(error: ParquetError) -> Error {
    Error::new(ErrorKind::UnsupportedParquet, format!("the rows cannot be encoded: {error}")).with_source(error)
}

pub(super) fn unwritten(error: ParquetError) -> Error {
    match error {
        ParquetError::External(cause) => match cause.downcast::<std::io::Error>() {
            // What a store said comes as it is.
            Ok(error) => error.downcast().unwrap_or_else(|error| Error::io("cannot write the file", error)),
            Err(other) => Error::new(ErrorKind::Io, format!("cannot write the file: {other}")),
        },
        other => Error::new(ErrorKind::Io, format!("cannot write the file: {other}")).with_source(other),
    }
}
