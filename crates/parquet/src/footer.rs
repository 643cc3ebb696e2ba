//! What a file's footer says.

mod checks;
mod end;
mod measure;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_schema::{FieldRef, Fields, Schema, SchemaRef};
use bytes::Bytes;
use parquet::DecodeResult;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::file::metadata::{
    FileMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataPushDecoder,
    ParquetStatisticsPolicy,
};
use parquet::schema::types::{SchemaDescriptor, Type};

pub use self::end::{Footer, read_end};

use self::checks::{check, is_structure, look_ahead, pages_make_sense};
use self::measure::{ValueMemory, measures};
use super::chunks::{ColumnChunk, FileChunks, PagePositions, RowGroup};
use super::direct::ValuePlaces;
use super::errors::{caught, unsupported};
use super::guard::Tally;
use super::newer::{UndecodableChunks, parse_newer};
use super::types::{decodable, leaf_count, with_noted_zones, with_plain_intervals, with_views};
use super::{FileBytes, as_asked};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::once::Once;
use rowdex_io::source::cut;
use rowdex_projection::Renames;

/// An offset index that spreads over more bytes than this is not read.
const MAX_INDEX: u64 = 64 << 20;

/// What the footer of one file says: its schema and row groups, and where their bytes are.
///
/// Share one among all decodes of a file, because it remembers the page positions it has read.
#[derive(Debug)]
pub struct FileMetadata {
    path: String,
    file_size: u64,
    /// The types that its writer noted, by the names that are served.
    schema: SchemaRef,
    /// Its columns that are served by other names, and these names.
    renamed: Vec<(String, String)>,
    /// How to decode it, to types that may be others. Has no row groups, of which `chunks` says more with less memory.
    bare: ArrowReaderMetadata,
    chunks: FileChunks,
    /// Of a file that has any, there are columns.
    undecodable: UndecodableChunks,
    /// For every field of the Arrow schema, its columns in the file.
    leaves: Vec<Range<usize>>,
    /// For every column, how much memory its values take.
    measures: Vec<ValueMemory>,
    /// The columns decoded to Arrow dictionaries, in order.
    dictionaries: Vec<usize>,
    /// The columns that the file calls intervals and `bare` plain bytes.
    intervals: Vec<usize>,
    /// Per row group: the positions of its pages, by column; `None` inside if it has none.
    paged: Vec<Once<Option<PagePositions>>>,
    /// Per row group: the columns whose values can be read one by one, and where these are, once that was found.
    values: Vec<Once<Vec<(usize, ValuePlaces)>>>,
    /// Per row group and column, one after another: whether the levels of all pages are known to be possible.
    levels: Vec<AtomicBool>,
}

impl FileMetadata {
    /// Parses and checks the footer of `path`, without its 8-byte tail. `file_size` is the length of the file. Its
    /// columns are known by the new names from here on.
    ///
    /// Takes time in proportion to row groups times columns; about 1 µs for each.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidParquet`] if the footer is malformed or contradicts itself or the file's length,
    /// [`ErrorKind::UnsupportedParquet`] if it uses something that cannot be read.
    pub fn parse(path: &str, footer: &[u8], file_size: u64, renames: &Renames) -> Result<Self> {
        let parse = || {
            look_ahead(footer)?;
            let (bare, chunks, intervals, undecodable) = parse_footer(footer, file_size)?;
            let schema = with_noted_zones(bare.schema(), bare.metadata());
            let decoded = decodable(&schema);
            let is_other = decoded.fields() != bare.schema().fields();
            let bare = if is_other { reader_of(bare.metadata(), decoded)? } else { bare };
            let (schema, renamed) = renames.apply(&schema);
            let leaves = match_leaves(&bare)?;
            let (measures, dictionaries) = measures(bare.schema());
            let paged = (0..chunks.len()).map(|_| Once::new()).collect();
            let values = (0..chunks.len()).map(|_| Once::new()).collect();
            let levels = (0..chunks.num_chunks()).map(|_| AtomicBool::new(false)).collect();
            Ok(Self {
                path: path.to_owned(),
                file_size,
                schema,
                renamed,
                bare,
                chunks,
                undecodable,
                leaves,
                measures,
                dictionaries,
                intervals,
                paged,
                values,
                levels,
            })
        };
        parse().map_err(|error: Error| error.with_file(path))
    }

    /// The path that the footer was parsed for.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// How much memory it takes, about: some 30 bytes for each column of each row group. Positions of pages that were
    /// read, and what the parquet crate needs for the row group that is decoded, are beside it.
    pub fn memory_bytes(&self) -> u64 {
        (self.metadata().memory_size() + self.chunks.bytes()) as u64
    }

    /// How many row groups the file has.
    pub fn num_row_groups(&self) -> usize {
        self.chunks.len()
    }

    /// Rows of one row group; 0 if there is no such group.
    pub fn row_group_rows(&self, row_group: usize) -> u32 {
        // Checked to fit when the footer was parsed.
        self.group(row_group).map_or(0, |group| group.num_rows() as u32)
    }

    /// The file's own schema, with the Arrow types that its writer noted down and the names that are served.
    pub fn arrow_schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Pairs of the name that the file has for a column and the name that is served, where they differ.
    pub fn renamed(&self) -> &[(String, String)] {
        &self.renamed
    }

    /// The columns as they are served that have something that cannot be decoded, again for each row group.
    pub fn undecodable_columns(&self) -> impl Iterator<Item = &str> {
        let columns = self.descriptor().num_columns();
        let roots = self.undecodable.iter().filter_map(move |(number, _)| self.field_of(number % columns));
        roots.map(|root| self.schema.field(root).name().as_str())
    }

    /// Refuses columns of row groups that cannot be decoded. The leaves are sorted.
    pub(super) fn check_decodable(&self, row_groups: Range<usize>, leaves: &[usize]) -> Result<()> {
        let columns = self.descriptor().num_columns();
        for (number, undecodable) in &self.undecodable {
            let row_group = number / columns;
            let leaf = number % columns;
            if row_groups.contains(&row_group) && leaves.binary_search(&leaf).is_ok() {
                let path = self.descriptor().column(leaf).path().string();
                return Err(undecodable.error().with_column(path).with_row_group(row_group as u64));
            }
        }
        Ok(())
    }

    fn descriptor(&self) -> &SchemaDescriptor {
        self.metadata().file_metadata().schema_descr()
    }

    /// Whether the file says where the pages of this row group are.
    pub fn has_page_positions(&self, row_group: usize) -> bool {
        let known = |group: RowGroup<'_>| group.columns().all(|column| column.offset_index_offset().is_some());
        self.group(row_group).is_some_and(known)
    }

    /// What the footer says of the file, without its row groups.
    pub(super) fn metadata(&self) -> &Arc<ParquetMetaData> {
        self.bare.metadata()
    }

    /// The columns that the file calls intervals, where they are served as the 12 bytes that they are.
    pub(super) fn plain_intervals(&self) -> &[usize] {
        &self.intervals
    }

    pub(super) fn group(&self, row_group: usize) -> Option<RowGroup<'_>> {
        self.chunks.row_group(row_group)
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = RowGroup<'_>> {
        (0..self.num_row_groups()).filter_map(|row_group| self.group(row_group))
    }

    /// The columns in the file that belong to one field of the Arrow schema.
    pub(super) fn leaves(&self, field: usize) -> Range<usize> {
        self.leaves.get(field).cloned().unwrap_or(0..0)
    }

    /// The field of the Arrow schema that a column in the file belongs to.
    pub(super) fn field_of(&self, leaf: usize) -> Option<usize> {
        let field = self.leaves.partition_point(|leaves| leaves.end <= leaf);
        self.leaves.get(field).is_some_and(|leaves| leaves.contains(&leaf)).then_some(field)
    }

    /// How much memory the values of a column take.
    pub(super) fn measure(&self, leaf: usize) -> ValueMemory {
        self.measures.get(leaf).copied().unwrap_or_default()
    }

    /// Whether decoding the column writes out a dictionary value for every reference to it.
    pub(super) fn can_explode(&self, leaf: usize, tally: &Tally) -> bool {
        // An Arrow dictionary keeps the references, unless pages without them come between.
        self.dictionaries.binary_search(&leaf).is_err() || tally.is_mixed()
    }

    /// The positions of a row group's pages, if the file has them. They are read the first time.
    pub(super) fn paged(&self, bytes: &dyn FileBytes, row_group: usize) -> Result<Option<PagePositions>> {
        let Some(slot) = self.paged.get(row_group) else { return Ok(None) };
        if let Some(known) = slot.get() {
            return Ok(known.clone());
        }
        let read = self.read_pages(bytes, row_group)?;
        Ok(slot.get_or_init(|| read).clone())
    }

    /// Whether the levels of a column of a row group were found to be possible: the content stays as it is.
    pub(super) fn levels_are_checked(&self, row_group: usize, leaf: usize) -> bool {
        self.levels(row_group, leaf).is_some_and(|checked| checked.load(Ordering::Relaxed))
    }

    /// Notes that they were.
    pub(super) fn note_levels(&self, row_group: usize, leaf: usize) {
        if let Some(checked) = self.levels(row_group, leaf) {
            checked.store(true, Ordering::Relaxed);
        }
    }

    fn levels(&self, row_group: usize, leaf: usize) -> Option<&AtomicBool> {
        self.levels.get(row_group.checked_mul(self.descriptor().num_columns())?.checked_add(leaf)?)
    }

    /// Where the values of columns of a row group lie that can be read one by one; nothing is in it before that was
    /// noted. Columns that are noted later are left out.
    pub(super) fn value_places(&self, row_group: usize) -> Option<&Once<Vec<(usize, ValuePlaces)>>> {
        self.values.get(row_group)
    }

    /// Bytes of memory that are kept of that.
    pub(super) fn value_places_bytes(&self, row_group: usize) -> u64 {
        let known = self.value_places(row_group).and_then(Once::get);
        known.map_or(0, |known| known.iter().map(|(_, places)| places.bytes()).sum())
    }

    /// What [`paged`](Self::paged) gives, if it was read already.
    pub(super) fn known_pages(&self, row_group: usize) -> Option<Option<PagePositions>> {
        self.paged.get(row_group)?.get().cloned()
    }

    /// Where the positions of a row group's pages are; `None` if the file has none that can be read.
    pub(super) fn page_positions(&self, row_group: usize) -> Option<Range<u64>> {
        let ranges = self.page_positions_of_columns(row_group)?;
        let start = ranges.iter().map(|range| range.start).min()?;
        let end = ranges.iter().map(|range| range.end).max()?;
        (end - start <= MAX_INDEX).then_some(start..end)
    }

    fn page_positions_of_columns(&self, row_group: usize) -> Option<Vec<Range<u64>>> {
        let index_range = |column: ColumnChunk<'_>| {
            let start = column.offset_index_offset()?;
            let end = start.checked_add(column.offset_index_length())?;
            (start < end && end <= self.file_size).then_some(start..end)
        };
        self.group(row_group)?.columns().map(index_range).collect()
    }

    fn read_pages(&self, bytes: &dyn FileBytes, row_group: usize) -> Result<Option<PagePositions>> {
        let Some(group) = self.group(row_group) else { return Ok(None) };
        let columns = self.page_positions_of_columns(row_group).filter(|_| self.page_positions(row_group).is_some());
        let Some(columns) = columns else { return Ok(None) };
        let file = self.metadata().file_metadata();
        let read = || {
            let alone = caught("the footer", || {
                let group = group.part(&file.schema_descr_ptr(), 0..group.num_columns())?;
                let alone = ParquetMetaData::new(file.clone(), vec![group]);
                ParquetMetaDataPushDecoder::try_new_with_metadata(self.file_size, alone)
            });
            let decoder = alone?
                .with_offset_index_policy(PageIndexPolicy::Optional)
                .with_column_index_policy(PageIndexPolicy::Skip);
            // The parser takes memory for as many positions as are told before it reads one.
            read_index(decoder, bytes, |ranges, read| {
                cut(ranges, read, &columns).is_ok_and(|parts| parts.iter().all(|part| is_structure(part)))
            })
        };
        match read() {
            // Page positions only save reading, so a file whose positions are damaged is read without them.
            Ok(metadata) => {
                let mut index =
                    metadata.filter(pages_make_sense).and_then(|metadata| metadata.into_builder().take_offset_index());
                Ok(index.as_mut().and_then(Vec::pop).map(PagePositions::from))
            }
            Err(error) if error.kind() == ErrorKind::InvalidParquet => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A field as it is decoded, if these columns are decoded as `views`.
    pub(super) fn field(&self, root: usize, views: &[usize]) -> Option<FieldRef> {
        let field = self.bare.schema().fields().get(root)?;
        Some(with_views(field, &self.leaves(root), views))
    }

    /// What the parquet crate needs to know to decode these columns of one row group, some of them as `views`: it
    /// knows of no other row group and field. `paged` is what [`paged`](Self::paged) gave for it, if it is to seek
    /// pages.
    pub(super) fn group_reader(
        &self,
        group: RowGroup<'_>,
        paged: Option<&PagePositions>,
        leaves: &[usize],
        views: &[usize],
    ) -> Result<(ArrowReaderMetadata, ProjectionMask)> {
        let mut roots: Vec<usize> = leaves.iter().filter_map(|leaf| self.field_of(*leaf)).collect();
        roots.dedup();
        let known: Vec<usize> = roots.iter().flat_map(|root| self.leaves(*root)).collect();
        let file = self.metadata().file_metadata();
        let name = file.schema_descr().name();
        let nodes = file.schema_descr().root_schema().get_fields();
        let nodes = roots.iter().filter_map(|root| nodes.get(*root).cloned()).collect();
        let alone = caught("the footer", || {
            let root = Type::group_type_builder(name).with_fields(nodes).build()?;
            let schema = Arc::new(SchemaDescriptor::new(Arc::new(root)));
            let group = group.part(&schema, known.iter().copied())?;
            let created_by = file.created_by().map(str::to_owned);
            let file = FileMetaData::new(file.version(), file.num_rows(), created_by, None, schema, None);
            Ok(ParquetMetaData::new(file, vec![group]))
        });
        let positions =
            paged.map(|paged| vec![known.iter().filter_map(|leaf| paged.get(*leaf).cloned()).collect::<Vec<_>>()]);
        let alone = Arc::new(alone?.into_builder().set_offset_index(positions).build());
        let fields: Fields = roots.iter().filter_map(|root| self.field(*root, views)).collect();
        let reader = reader_of(&alone, Arc::new(Schema::new(fields)))?;
        let wanted = leaves.iter().filter_map(|leaf| known.binary_search(leaf).ok());
        let mask = ProjectionMask::leaves(reader.parquet_schema(), wanted);
        Ok((reader, mask))
    }
}

/// Parses and checks the footer of a file of so many bytes. Its intervals are plain bytes; which columns these are, and
/// which column chunks cannot be decoded.
fn parse_footer(
    footer: &[u8],
    file_size: u64,
) -> Result<(ArrowReaderMetadata, FileChunks, Vec<usize>, UndecodableChunks)> {
    let (metadata, intervals, undecodable) = caught("the footer", || {
        let options = ParquetMetaDataOptions::new().with_column_stats_policy(ParquetStatisticsPolicy::SkipAll);
        let (metadata, undecodable) = parse_newer(footer, options.clone())?;
        let Some((schema, intervals)) = with_plain_intervals(&metadata)? else {
            return Ok((metadata, Vec::new(), undecodable));
        };
        Ok((parse_newer(footer, options.with_schema(schema))?.0, intervals, undecodable))
    })?;
    check(&metadata, file_size)?;
    let chunks = FileChunks::of(&metadata);
    let bare = Arc::new(ParquetMetaData::new(with_rows_counted(&metadata), Vec::new()));
    let reader = caught("the footer", || ArrowReaderMetadata::try_new(bare, ArrowReaderOptions::new()))?;
    Ok((reader, chunks, intervals, undecodable))
}

/// What the footer says of the file, with the sum over its row groups for the number of rows.
///
/// Some writers leave it 0, and other readers go by the row groups. The decoder takes it as the longest batch there
/// can be.
fn with_rows_counted(metadata: &ParquetMetaData) -> FileMetaData {
    let rows = metadata.row_groups().iter().fold(0_i64, |rows, group| rows.saturating_add(group.num_rows()));
    let file = metadata.file_metadata();
    FileMetaData::new(
        file.version(),
        rows,
        file.created_by().map(str::to_owned),
        file.key_value_metadata().cloned(),
        file.schema_descr_ptr(),
        file.column_orders().cloned(),
    )
}

/// What the decoder needs to know to decode to these types.
fn reader_of(metadata: &Arc<ParquetMetaData>, schema: SchemaRef) -> Result<ArrowReaderMetadata> {
    let options = ArrowReaderOptions::new().with_schema(schema);
    caught("the schema", || ArrowReaderMetadata::try_new(Arc::clone(metadata), options))
}

/// Reads an index of pages, if the bytes of these ranges of the file are `sound`.
pub(super) fn read_index(
    mut decoder: ParquetMetaDataPushDecoder,
    bytes: &dyn FileBytes,
    are_sound: impl Fn(&[Range<u64>], &[Bytes]) -> bool,
) -> Result<Option<ParquetMetaData>> {
    let what = "the page positions";
    for _ in 0..2 {
        match caught(what, || decoder.try_decode())? {
            DecodeResult::Data(metadata) => return Ok(Some(metadata)),
            DecodeResult::Finished => return Ok(None),
            DecodeResult::NeedsData(ranges) => {
                let read = as_asked(bytes.read(&ranges)?, &ranges)?;
                if !are_sound(&ranges, &read) {
                    return Ok(None);
                }
                caught(what, || decoder.push_ranges(ranges, read))?;
            }
        }
    }
    Ok(None)
}

/// The columns below each field of the Arrow schema: both number the leaves of the same tree from left to right.
fn match_leaves(reader: &ArrowReaderMetadata) -> Result<Vec<Range<usize>>> {
    let descriptor = reader.parquet_schema();
    let mut leaves = Vec::new();
    let mut at = 0;
    for field in reader.schema().fields() {
        let start = at;
        at += leaf_count(field.data_type());
        leaves.push(start..at);
    }
    if at != descriptor.num_columns() {
        return Err(unsupported("some columns have no Arrow type"));
    }
    Ok(leaves)
}
