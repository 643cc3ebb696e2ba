//! Row groups encoded column by column, and the files that they are put to.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::SchemaRef;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::arrow::{ARROW_SCHEMA_META_KEY, encode_arrow_schema};
use parquet::basic::{
    Compression, ConvertedType, EdgeInterpolationAlgorithm, LogicalType, Type as PhysicalType, ZstdLevel,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};
use rayon::prelude::*;

use super::columns::OutputColumns;
use super::{Codec, ColumnPlan};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::stop::{Asked, check};

/// How files are encoded.
#[derive(Debug)]
pub(super) struct Encoding {
    schema: SchemaRef,
    written: TypePtr,
    properties: WriterPropertiesPtr,
    chunk_rows: u64,
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
            .set_write_batch_size(chunk_rows.clamp(1, 1024) as usize);
        let described = described(&schema)?;
        for (leaf, plan) in described.columns().iter().zip(leaves) {
            let path = leaf.path().clone();
            builder = builder
                .set_column_compression(path.clone(), compression(plan.compression)?)
                .set_column_dictionary_enabled(path.clone(), plan.dictionary)
                .set_column_data_page_size_limit(path, plan.page_bytes as usize);
        }
        let properties = Arc::new(builder.build());
        let written = annotated(described.root_schema_ptr(), "", logical_types).map_err(uncoded)?;
        Ok(Self { schema, written, properties, chunk_rows })
    }

    /// A file of what is encoded.
    pub(super) fn file<W: Write + Send>(&self, out: W) -> Result<SerializedFileWriter<W>> {
        SerializedFileWriter::new(out, Arc::clone(&self.written), Arc::clone(&self.properties)).map_err(uncoded)
    }

    /// A row group of any of the files, with these positions. `values` tells those of a column, by its number, at some
    /// of the positions.
    ///
    /// Columns are encoded on the threads of the pool that this is called in, each from beginning to end: what is read
    /// of one stays near, and hardly anything of it is in memory at a time.
    pub(super) fn group(
        &self,
        positions: Range<u64>,
        values: impl Fn(usize, Range<u64>) -> Result<ArrayRef> + Sync,
    ) -> Result<Vec<ArrowColumnChunk>> {
        let asked = Asked::of_thread();
        let fields = self.schema.fields();
        let factory = ArrowRowGroupWriterFactory::new(&self.file(io::sink())?, Arc::clone(&self.schema));
        let mut leaves = factory.create_column_writers(0).map_err(uncoded)?.into_iter();
        let writers = fields.iter().map(|field| leaves.by_ref().take(count_leaves(field.data_type())).collect());
        let writers: Vec<Vec<ArrowColumnWriter>> = writers.collect();
        let encode = |(column, mut writers): (usize, Vec<ArrowColumnWriter>)| {
            let _asked = asked.clone().map(Asked::enter);
            let field = &fields[column];
            let uncoded = |error| uncoded(error).with_column(field.name());
            for first in positions.clone().step_by(self.chunk_rows as usize) {
                check()?;
                let values = values(column, first..positions.end.min(first + self.chunk_rows))?;
                let leaves = compute_leaves(field, &values).map_err(uncoded)?;
                leaves.iter().zip(&mut writers).try_for_each(|(leaf, writer)| writer.write(leaf)).map_err(uncoded)?;
            }
            writers.into_iter().map(|writer| writer.close().map_err(uncoded)).collect::<Result<Vec<_>>>()
        };
        let encoded: Result<Vec<_>> = writers.into_par_iter().enumerate().map(encode).collect();
        Ok(encoded?.into_iter().flatten().collect())
    }
}

/// The leaves of a schema, as they are written.
pub(super) fn described(schema: &SchemaRef) -> Result<SchemaDescriptor> {
    parquet::arrow::ArrowSchemaConverter::new().convert(schema).map_err(uncoded)
}

fn count_leaves(data_type: &arrow_schema::DataType) -> usize {
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
        Codec::Zstd(level) => Compression::ZSTD(
            ZstdLevel::try_new(i32::from(level))
                .map_err(|error| Error::invalid(format!("no compression is called zstd:{level}: {error}")))?,
        ),
    })
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
        ParquetError::External(cause) => match cause.downcast::<io::Error>() {
            // What a store said comes as it is.
            Ok(error) => error.downcast().unwrap_or_else(|error| Error::io("cannot write the file", error)),
            Err(other) => Error::new(ErrorKind::Io, format!("cannot write the file: {other}")),
        },
        other => Error::new(ErrorKind::Io, format!("cannot write the file: {other}")).with_source(other),
    }
}
