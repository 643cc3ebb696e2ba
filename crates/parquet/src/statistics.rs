//! What a footer says about the values of a column: bounds, and how many are null.
//!
//! Only what can be relied on is told. Writers disagree about the order of some types, old ones wrote bounds by the
//! wrong order, and no bound speaks of NaN.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use arrow_cast::cast_with_options;
use arrow_schema::{DataType, Field, TimeUnit};
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::basic::{ColumnOrder, SortOrder, Type};
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, PageIndexPolicy, ParquetColumnIndex, ParquetMetaData, ParquetMetaDataOptions,
    ParquetMetaDataPushDecoder, ParquetStatisticsPolicy, RowGroupMetaData,
};
use parquet::schema::types::{SchemaDescriptor, Type as SchemaType};

use super::FileBytes;
use super::adapt::{STRICT, constant, widens};
use super::footer::{FileMetadata, read_index};
use super::newer::parse_newer;
use super::types::{leaf_count, plain};

/// Where the values of a column, or of a field of structs, are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Home<'a> {
    /// In the path of the file: one value for all rows.
    Partition(Option<&'a str>),
    /// Nowhere: all values are null.
    Missing,
    /// In this column of the file, of this type.
    Leaf(usize, DataType),
    /// Where no bounds are told.
    Elsewhere,
}

/// A longer index of a column's pages is not read.
const MAX_COLUMN_INDEX: i64 = 16 << 20;

/// What is known of the values in some rows.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// Arrays of one value, of the type that was asked for.
    pub min: Option<ArrayRef>,
    /// As `min`.
    pub max: Option<ArrayRef>,
    /// How many rows have null.
    pub nulls: Option<u64>,
}

/// A footer with the statistics of some columns.
#[derive(Debug, Clone)]
pub struct Statistics {
    metadata: Arc<ParquetMetaData>,
}

impl FileMetadata {
    /// Where the values of a path are in this file.
    pub fn home<'a>(&self, path: &[String], partitions: &[(&str, Option<&'a str>)]) -> Home<'a> {
        let Some((first, rest)) = path.split_first() else { return Home::Elsewhere };
        if let Some((_, value)) = partitions.iter().find(|(name, _)| name == first) {
            return if rest.is_empty() { Home::Partition(*value) } else { Home::Elsewhere };
        }
        let fields = self.arrow_schema().fields();
        let mut named = (0..fields.len()).filter(|place| fields[*place].name() == first);
        let place = match (named.next(), named.next()) {
            (None, _) => return Home::Missing,
            (Some(place), None) => place,
            (Some(_), Some(_)) => return Home::Elsewhere,
        };
        let mut leaf = self.leaves(place).start;
        let mut data_type = fields[place].data_type();
        for name in rest {
            let DataType::Struct(fields) = data_type else { return Home::Elsewhere };
            let Some(at) = fields.iter().position(|field| field.name() == name) else { return Home::Missing };
            leaf += fields.iter().take(at).map(|field| leaf_count(field.data_type())).sum::<usize>();
            data_type = fields[at].data_type();
        }
        let plain = plain(data_type);
        if rowdex_projection::children(plain).is_empty() { Home::Leaf(leaf, plain.clone()) } else { Home::Elsewhere }
    }
}

impl Home<'_> {
    /// What is known without statistics, of values of this type.
    pub fn known(&self, data_type: &DataType, rows: u64) -> Known {
        match self {
            Self::Missing | Self::Partition(None) => Known { nulls: Some(rows), ..Known::default() },
            Self::Partition(value) => {
                let one = constant(*value, &Field::new("value", data_type.clone(), true), 1, u64::MAX).ok();
                Known { min: one.clone(), max: one, nulls: Some(0) }
            }
            Self::Leaf(..) | Self::Elsewhere => Known::default(),
        }
    }
}

impl Statistics {
    /// Those of some columns, from the footer; nothing where it has none that can be read.
    pub fn parse(footer: &[u8], leaves: &[usize]) -> Option<Self> {
        let policy = ParquetStatisticsPolicy::skip_except(leaves);
        let options = ParquetMetaDataOptions::new().with_column_stats_policy(policy);
        let parsed = catch_unwind(AssertUnwindSafe(|| parse_newer(footer, options)));
        parsed.ok()?.ok().map(|(metadata, _)| Self { metadata: Arc::new(metadata) })
    }

    /// What is known of a column in a row group. `own` is its type in the file, and `wanted` the one that is served.
    pub fn of(&self, row_group: usize, leaf: usize, own: &DataType, wanted: &DataType) -> Known {
        let known = catch_unwind(AssertUnwindSafe(|| self.read(row_group, leaf, own, wanted)));
        known.ok().flatten().unwrap_or_default()
    }

    fn read(&self, row_group: usize, leaf: usize, own: &DataType, wanted: &DataType) -> Option<Known> {
        let group = self.metadata.row_groups().get(row_group)?;
        let column = group.columns().get(leaf)?;
        let statistics = column.statistics()?;
        let mut known = Known { nulls: statistics.null_count_opt(), ..Known::default() };
        let file = self.metadata.file_metadata();
        if column.column_descr().max_rep_level() > 0 {
            return None;
        }
        if statistics.is_min_max_deprecated() || !has_order(file.column_order(leaf), column.column_type(), own) {
            return Some(known);
        }
        let field = Field::new("value", own.clone(), true);
        let converter = StatisticsConverter::from_column_index(leaf, &field, file.schema_descr()).ok()?;
        let min = converter.row_group_mins([group]).ok();
        let max = converter.row_group_maxes([group]).ok();
        known.min = min.and_then(|bound| brought(&bound, own, wanted));
        known.max = max.and_then(|bound| brought(&bound, own, wanted));
        Some(known)
    }

    /// The first row of each page of a column of a row group, and what is known of its values; nothing where the file
    /// does not say. Costs two reads, of which the positions of pages are kept.
    pub fn pages(
        &self,
        file: &FileMetadata,
        bytes: &dyn FileBytes,
        row_group: usize,
        leaf: usize,
        own: &DataType,
        wanted: &DataType,
    ) -> Option<Vec<(u32, Known)>> {
        let column = self.metadata.row_groups().get(row_group)?.columns().get(leaf)?;
        let order = self.metadata.file_metadata().column_order(leaf);
        if column.column_descr().max_rep_level() > 0 || !has_order(order, column.column_type(), own) {
            return None;
        }
        // The positions were checked: pages follow each other, each with rows of its own.
        let paged = file.paged(bytes, row_group).ok()??;
        let positions = paged.get(leaf)?.clone();
        let rows = file.row_group_rows(row_group);
        let first: Vec<u32> =
            positions.page_locations().iter().map(|page| u32::try_from(page.first_row_index).unwrap_or(rows)).collect();
        if first.len() < 2 {
            return None;
        }
        let read = || {
            let (index, schema) = column_index(column, rows, bytes)?;
            if index.first()?.first()?.num_pages() != first.len() as u64 {
                return None;
            }
            let field = Field::new("value", own.clone(), true);
            let converter = StatisticsConverter::from_column_index(0, &field, &schema)
                .ok()?
                .with_missing_null_counts_as_zero(false);
            let positions = vec![vec![positions.clone()]];
            let min = converter.data_page_mins(&index, &positions, [&0]).ok()?;
            let max = converter.data_page_maxes(&index, &positions, [&0]).ok()?;
            let nulls = converter.data_page_null_counts(&index, &positions, [&0]).ok()?;
            let fits = [min.len(), max.len(), nulls.len()].iter().all(|length| *length == first.len());
            let page = |(at, row): (usize, &u32)| {
                let known = Known {
                    min: brought(&min.slice(at, 1), own, wanted),
                    max: brought(&max.slice(at, 1), own, wanted),
                    nulls: nulls.is_valid(at).then(|| nulls.value(at)),
                };
                (*row, known)
            };
            fits.then(|| first.iter().enumerate().map(page).collect())
        };
        catch_unwind(AssertUnwindSafe(read)).ok().flatten()
    }
}

/// The index of a column's pages, by a schema of this column alone, so that no other one's index is read.
fn column_index(
    column: &ColumnChunkMetaData,
    rows: u32,
    bytes: &dyn FileBytes,
) -> Option<(ParquetColumnIndex, Arc<SchemaDescriptor>)> {
    let offset = column.column_index_offset()?;
    let length = column.column_index_length().filter(|length| i64::from(*length) <= MAX_COLUMN_INDEX)?;
    let root = SchemaType::group_type_builder("schema").with_fields(vec![column.column_descr().self_type_ptr()]);
    let schema = Arc::new(SchemaDescriptor::new(Arc::new(root.build().ok()?)));
    let chunk = ColumnChunkMetaData::builder(schema.column(0))
        .set_num_values(column.num_values())
        .set_column_index_offset(Some(offset))
        .set_column_index_length(Some(length))
        .build()
        .ok()?;
    let group = RowGroupMetaData::builder(Arc::clone(&schema))
        .set_num_rows(i64::from(rows))
        .set_column_metadata(vec![chunk])
        .build()
        .ok()?;
    let alone = FileMetaData::new(1, i64::from(rows), None, None, Arc::clone(&schema), None);
    let end = u64::try_from(offset.checked_add(i64::from(length))?).ok()?;
    let alone = ParquetMetaData::new(alone, vec![group]);
    let decoder = ParquetMetaDataPushDecoder::try_new_with_metadata(end, alone)
        .ok()?
        .with_column_index_policy(PageIndexPolicy::Optional)
        .with_offset_index_policy(PageIndexPolicy::Skip);
    let metadata = read_index(decoder, bytes, |_, _| true).ok()??;
    Some((metadata.column_index()?.clone(), schema))
}

/// Whether bounds of a column go by the order in which its values are compared.
fn has_order(order: ColumnOrder, physical: Type, own: &DataType) -> bool {
    let ordered = match order {
        ColumnOrder::TYPE_DEFINED_ORDER(order) => order != SortOrder::UNDEFINED,
        _ => false,
    };
    ordered && physical != Type::INT96 && is_ordered(own)
}

fn is_ordered(own: &DataType) -> bool {
    use DataType::*;
    let is_listed = matches!(
        own,
        Boolean
            | Utf8
            | LargeUtf8
            | Utf8View
            | Binary
            | LargeBinary
            | BinaryView
            | FixedSizeBinary(_)
            | Date32
            | Time32(TimeUnit::Millisecond)
            | Time64(_)
            | Timestamp(TimeUnit::Millisecond | TimeUnit::Microsecond | TimeUnit::Nanosecond, _)
    );
    is_listed || (own.is_numeric() && *own != Float16)
}

/// A bound in the type that is served. Types widen without changing the order of values.
fn brought(bound: &ArrayRef, own: &DataType, wanted: &DataType) -> Option<ArrayRef> {
    let plain = plain(wanted);
    let one = bound.len() == 1 && bound.is_valid(0);
    if !one || !(own == plain || widens(own, plain)) {
        return None;
    }
    cast_with_options(bound, plain, &STRICT).ok().filter(|bound| bound.is_valid(0))
}
