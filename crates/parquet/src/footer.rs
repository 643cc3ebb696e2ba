//! Footers: reading them, and what a file's footer says.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

use arrow::datatypes::{DataType, Schema, SchemaRef};
use bytes::Bytes;
use parquet::DecodeResult;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    FileMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataBuilder, ParquetMetaDataOptions,
    ParquetMetaDataPushDecoder, ParquetMetaDataReader, ParquetStatisticsPolicy, RowGroupMetaData,
};

use super::direct::ValuePlaces;
use super::guard::Tally;
use super::seam::read_exactly;
use super::thrift::{BINARY, I32, LIST, Reader, STRUCT};
use super::types::{decodable, has_some_of, leaf_count, with_noted_zones, with_plain_intervals};
use super::{FileBytes, internal_panic};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_base::once::Once;
use rowdex_io::source::{FileStat, Source};
use rowdex_projection::Renames;

/// Length of the footer and magic number, at the very end of a file.
const TAIL: u64 = 8;

/// Magic number at the start, length and magic number at the end.
const SMALLEST: u64 = 12;

/// A longer footer is not believed: parsed, it would take several times as much memory.
const MAX_FOOTER: u64 = 512 << 20;

/// Levels of groups in a schema. The parser calls itself for each, and a stack that overflows ends the process.
const MAX_DEPTH: usize = 100;

/// An offset index that spreads over more bytes than this is not read.
const MAX_INDEX: u64 = 64 << 20;

/// Readers kept per file. Building one costs a walk over the schema, which matters for wide files.
const KEPT_READERS: usize = 8;

/// The footer of one file, as it is stored.
#[derive(Debug, Clone)]
pub struct Footer {
    /// The encoded metadata, without the length and magic number behind it.
    pub bytes: Bytes,
    /// 64-bit xxh3 of [`bytes`](Self::bytes).
    pub hash: u64,
    /// Length of the whole file in bytes.
    pub file_size: u64,
}

/// Reads the footer of `path`, of which nothing need be known: one read of `guess` bytes, which tells the stat, too,
/// and a second one if the footer is longer than that. `expected` is as in [`Source::end`].
///
/// # Errors
///
/// [`ErrorKind::InvalidParquet`] if the file is empty, too short, not Parquet, or declares a footer that it has no
/// room for; [`ErrorKind::UnsupportedParquet`] if the footer is encrypted; whatever the source reports.
pub fn read_end(
    source: &dyn Source,
    path: &str,
    guess: u64,
    expected: Option<&FileStat>,
) -> Result<(FileStat, Footer)> {
    let read = || {
        let (stat, end) = source.end(path, guess.max(SMALLEST), expected)?;
        check_size(stat.size)?;
        let footer = footer_in(source, path, &stat, end)?;
        Ok((stat, footer))
    };
    read().map_err(|error: Error| error.with_file(path))
}

fn check_size(file_size: u64) -> Result<()> {
    let invalid = |message: String| Err(Error::new(ErrorKind::InvalidParquet, message));
    match file_size {
        0 => invalid("the file is empty".into()),
        1..SMALLEST => invalid(format!("{file_size} bytes are too few for a Parquet file")),
        _ => Ok(()),
    }
}

/// The footer in the last bytes of a file, the rest of which is read if it does not fit in.
fn footer_in(source: &dyn Source, path: &str, stat: &FileStat, end: Bytes) -> Result<Footer> {
    let invalid = |message: String| Err(Error::new(ErrorKind::InvalidParquet, message));
    let file_size = stat.size;
    let Some((before, tail)) = end.split_last_chunk::<{ TAIL as usize }>() else {
        return invalid("the file is too short for a Parquet file".into());
    };
    let [l0, l1, l2, l3, magic @ ..] = *tail;
    match &magic {
        b"PAR1" => {}
        b"PARE" => {
            return Err(Error::new(ErrorKind::UnsupportedParquet, "the footer is encrypted")
                .with_hint("encrypted files cannot be read; write the data without encryption"));
        }
        _ => return invalid("not a Parquet file, or one cut off: it does not end in PAR1".into()),
    }
    let length = u64::from(u32::from_le_bytes([l0, l1, l2, l3]));
    if length == 0 || length > file_size - SMALLEST {
        return invalid(format!("the footer claims {length} bytes, and the file has {file_size}"));
    }
    if length > MAX_FOOTER {
        return Err(Error::new(ErrorKind::TooLarge, format!("the footer is {length} bytes long")));
    }
    let here = before.len() as u64;
    let bytes = if length <= here {
        end.slice((here - length) as usize..here as usize)
    } else {
        read_one(source, path, stat, file_size - TAIL - length..file_size - TAIL)?
    };
    let hash = xxhash_rust::xxh3::xxh3_64(&bytes);
    Ok(Footer { bytes, hash, file_size })
}

fn read_one(source: &dyn Source, path: &str, stat: &FileStat, range: Range<u64>) -> Result<Bytes> {
    let mut bytes = source.read_unchanged(path, stat, std::slice::from_ref(&range))?;
    bytes.pop().ok_or_else(|| Error::new(ErrorKind::Internal, "the source answered a read with nothing"))
}

/// What the footer of one file says: its schema and row groups, and where their bytes are.
///
/// Cheap to clone; share one among all decodes of a file, because it remembers the page positions it has read.
#[derive(Debug, Clone)]
pub struct FileMetadata {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: String,
    file_size: u64,
    /// The types that its writer noted, by the names that are served.
    schema: SchemaRef,
    /// Its columns that are served by other names, and these names.
    renamed: Vec<(String, String)>,
    /// How to decode it, to types that may be others.
    whole: ArrowReaderMetadata,
    /// For every field of the Arrow schema, its columns in the file.
    leaves: Vec<Range<usize>>,
    /// For every column, how much memory its values take.
    measures: Vec<Measure>,
    /// The columns decoded to Arrow dictionaries.
    dictionaries: Vec<usize>,
    /// Per row group: its metadata alone, with the positions of its pages; `None` inside if it has none.
    paged: Vec<Once<Option<Arc<ParquetMetaData>>>>,
    readers: Mutex<Vec<(ReaderKey, ArrowReaderMetadata)>>,
    /// Per row group: the columns whose values can be read one by one, and where these are, once that was found.
    values: Vec<Once<Vec<(usize, ValuePlaces)>>>,
    /// Per row group and column, one after another: whether the levels of all pages are known to be possible.
    levels: Vec<AtomicBool>,
}

/// Row group whose metadata is used alone, and the columns decoded as views.
type ReaderKey = (Option<usize>, Arc<[usize]>);

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
            let options = ParquetMetaDataOptions::new().with_column_stats_policy(ParquetStatisticsPolicy::SkipAll);
            let whole = parse_footer(footer, &options)?;
            check(whole.metadata(), file_size)?;
            let schema = with_noted_zones(whole.schema(), whole.metadata());
            let whole = decoding_to(decodable(&schema), whole)?;
            let (schema, renamed) = renames.apply(&schema);
            let leaves = match_leaves(&whole)?;
            let (mut measures, mut dictionaries) = (Vec::new(), Vec::new());
            for field in whole.schema().fields() {
                let above = Above { nullable: field.is_nullable(), factor: 1, per_row: Some(1) };
                measure(field.data_type(), above, &mut measures, &mut dictionaries);
            }
            let paged = (0..whole.metadata().num_row_groups()).map(|_| Once::new()).collect();
            let readers = Mutex::new(Vec::new());
            let values = (0..whole.metadata().num_row_groups()).map(|_| Once::new()).collect();
            let groups = whole.metadata().row_groups().iter();
            let levels = groups.flat_map(|group| group.columns()).map(|_| AtomicBool::new(false)).collect();
            let inner = Inner {
                path: path.to_owned(),
                file_size,
                schema,
                renamed,
                whole,
                leaves,
                measures,
                dictionaries,
                paged,
                readers,
                values,
                levels,
            };
            Ok(Self { inner: Arc::new(inner) })
        };
        parse().map_err(|error: Error| error.with_file(path))
    }

    /// The path that the footer was parsed for.
    pub fn path(&self) -> &str {
        &self.inner.path
    }

    /// Length of the file in bytes.
    #[cfg(feature = "filter")]
    pub(super) fn file_size(&self) -> u64 {
        self.inner.file_size
    }

    /// How much memory it takes, about: some 400 bytes for each column of each row group.
    pub fn memory_bytes(&self) -> u64 {
        self.metadata().memory_size() as u64
    }

    /// How many row groups the file has.
    pub fn num_row_groups(&self) -> usize {
        self.metadata().num_row_groups()
    }

    /// Rows of one row group; 0 if there is no such group.
    pub fn row_group_rows(&self, row_group: usize) -> u32 {
        // Checked to fit when the footer was parsed.
        self.group(row_group).map_or(0, |group| group.num_rows() as u32)
    }

    /// The file's own schema, with the Arrow types that its writer noted down and the names that are served.
    pub fn arrow_schema(&self) -> &SchemaRef {
        &self.inner.schema
    }

    /// Pairs of the name that the file has for a column and the name that is served, where they differ.
    pub fn renamed(&self) -> &[(String, String)] {
        &self.inner.renamed
    }

    /// Whether the file says where the pages of this row group are.
    pub fn has_page_positions(&self, row_group: usize) -> bool {
        let known =
            |group: &RowGroupMetaData| group.columns().iter().all(|column| column.offset_index_offset().is_some());
        self.group(row_group).is_some_and(known)
    }

    pub(super) fn metadata(&self) -> &Arc<ParquetMetaData> {
        self.inner.whole.metadata()
    }

    pub(super) fn group(&self, row_group: usize) -> Option<&RowGroupMetaData> {
        self.metadata().row_groups().get(row_group)
    }

    /// The columns in the file that belong to one field of the Arrow schema.
    pub(super) fn leaves(&self, field: usize) -> Range<usize> {
        self.inner.leaves.get(field).cloned().unwrap_or(0..0)
    }

    /// How much memory the values of a column take.
    pub(super) fn measure(&self, leaf: usize) -> Measure {
        self.inner.measures.get(leaf).copied().unwrap_or_default()
    }

    /// Whether decoding the column writes out a dictionary value for every reference to it.
    pub(super) fn can_explode(&self, leaf: usize, tally: &Tally) -> bool {
        // An Arrow dictionary keeps the references, unless pages without them come between.
        !self.inner.dictionaries.contains(&leaf) || tally.is_mixed()
    }

    /// The metadata of one row group alone, with the positions of its pages, if the file has them. They are read the
    /// first time.
    pub(super) fn paged(&self, bytes: &dyn FileBytes, row_group: usize) -> Result<Option<Arc<ParquetMetaData>>> {
        let Some(slot) = self.inner.paged.get(row_group) else { return Ok(None) };
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
        let columns = self.inner.whole.metadata().file_metadata().schema_descr().num_columns();
        self.inner.levels.get(row_group.checked_mul(columns)?.checked_add(leaf)?)
    }

    /// Where the values of a column of a row group lie, if it was noted.
    pub(super) fn value_places(&self, row_group: usize, leaf: usize) -> Option<&ValuePlaces> {
        let known = self.inner.values.get(row_group)?.get()?;
        known.iter().find(|(known, _)| *known == leaf).map(|(_, places)| places)
    }

    /// Whether it was noted for some columns of a row group, or that there are none.
    pub(super) fn has_value_places(&self, row_group: usize) -> bool {
        self.inner.values.get(row_group).is_none_or(|known| known.get().is_some())
    }

    /// Bytes of memory that are kept of where values of a row group lie.
    pub(super) fn value_places_bytes(&self, row_group: usize) -> u64 {
        let known = self.inner.values.get(row_group).and_then(Once::get);
        known.map_or(0, |known| known.iter().map(|(_, places)| places.bytes()).sum())
    }

    /// Notes where the values of columns of a row group lie. Columns that are noted later are left out.
    pub(super) fn note_value_places(&self, row_group: usize, places: Vec<(usize, ValuePlaces)>) {
        if let Some(known) = self.inner.values.get(row_group) {
            known.set(places);
        }
    }

    /// What [`paged`](Self::paged) gives, if it was read already.
    pub(super) fn known_pages(&self, row_group: usize) -> Option<Option<Arc<ParquetMetaData>>> {
        self.inner.paged.get(row_group)?.get().cloned()
    }

    /// Where the positions of a row group's pages are; `None` if the file has none that can be read.
    pub(super) fn page_positions(&self, row_group: usize) -> Option<Range<u64>> {
        let group = self.group(row_group)?;
        let index_range = |column: &parquet::file::metadata::ColumnChunkMetaData| {
            let start = u64::try_from(column.offset_index_offset()?).ok()?;
            let end = start.checked_add(u64::try_from(column.offset_index_length()?).ok()?)?;
            (start < end && end <= self.inner.file_size).then_some(start..end)
        };
        let ranges: Option<Vec<Range<u64>>> = group.columns().iter().map(index_range).collect();
        let ranges = ranges?;
        let (start, end) = (ranges.iter().map(|range| range.start).min()?, ranges.iter().map(|range| range.end).max()?);
        (end - start <= MAX_INDEX).then_some(start..end)
    }

    fn read_pages(&self, bytes: &dyn FileBytes, row_group: usize) -> Result<Option<Arc<ParquetMetaData>>> {
        let Some(group) = self.group(row_group) else { return Ok(None) };
        if self.page_positions(row_group).is_none() {
            return Ok(None);
        }
        let file = self.metadata().file_metadata().clone();
        let alone = ParquetMetaData::new(file, vec![group.clone()]);
        let parsed: Result<Option<ParquetMetaData>> = (|| {
            let wrap = |error| parquet_error("the page positions", error);
            let decoder =
                ParquetMetaDataPushDecoder::try_new_with_metadata(self.inner.file_size, alone).map_err(wrap)?;
            let mut decoder = decoder
                .with_offset_index_policy(PageIndexPolicy::Optional)
                .with_column_index_policy(PageIndexPolicy::Skip);
            for _ in 0..2 {
                let step = catch_unwind(AssertUnwindSafe(|| decoder.try_decode())).map_err(internal_panic)?;
                match step.map_err(wrap)? {
                    DecodeResult::Data(metadata) => return Ok(Some(metadata)),
                    DecodeResult::Finished => return Ok(None),
                    DecodeResult::NeedsData(ranges) => {
                        let bytes = read_exactly(bytes, &ranges)?;
                        decoder.push_ranges(ranges, bytes).map_err(wrap)?;
                    }
                }
            }
            Ok(None)
        })();
        match parsed {
            // Page positions only save reading, so a file whose positions are damaged is read without them.
            Ok(metadata) => Ok(metadata.filter(pages_make_sense).map(Arc::new)),
            Err(error) if error.kind() == ErrorKind::InvalidParquet => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What the decoder needs to know to decode `views` as views. `paged` is what [`paged`](Self::paged) gave for a
    /// row group, to use instead of the whole file's.
    pub(super) fn reader(
        &self,
        paged: Option<(usize, &Arc<ParquetMetaData>)>,
        views: &[usize],
    ) -> Result<ArrowReaderMetadata> {
        if paged.is_none() && views.is_empty() {
            return Ok(self.inner.whole.clone());
        }
        let key: ReaderKey = (paged.map(|(row_group, _)| row_group), views.into());
        // A lock held while another thread forked is never released in the child, so it is tried and not waited for.
        let known = || match self.inner.readers.try_lock() {
            Ok(readers) => Some(readers),
            Err(TryLockError::Poisoned(readers)) => Some(readers.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(readers) = known()
            && let Some((_, reader)) = readers.iter().find(|(known, _)| *known == key)
        {
            return Ok(reader.clone());
        }
        let schema = with_views(self.inner.whole.schema(), &self.inner.leaves, views);
        let metadata = paged.map_or_else(|| self.metadata(), |(_, metadata)| metadata);
        let reader = reader_of(metadata, schema)?;
        if let Some(mut readers) = known() {
            if readers.len() >= KEPT_READERS {
                readers.remove(0);
            }
            readers.push((key, reader.clone()));
        }
        Ok(reader)
    }
}

fn parse_footer(footer: &[u8], options: &ParquetMetaDataOptions) -> Result<ArrowReaderMetadata> {
    let parsed = catch_unwind(AssertUnwindSafe(|| {
        let mut metadata = ParquetMetaDataReader::decode_metadata_with_options(footer, Some(options))?;
        if let Some(schema) = with_plain_intervals(&metadata)? {
            let options = options.clone().with_schema(schema);
            metadata = ParquetMetaDataReader::decode_metadata_with_options(footer, Some(&options))?;
        }
        ArrowReaderMetadata::try_new(Arc::new(with_rows_counted(metadata)), ArrowReaderOptions::new())
    }));
    parsed.map_err(internal_panic)?.map_err(|error| parquet_error("the footer", error))
}

/// Replaces the number of rows that the footer gives for the whole file by the sum over its row groups.
///
/// Some writers leave it 0, and other readers go by the row groups. The decoder takes it as the longest batch there
/// can be.
fn with_rows_counted(metadata: ParquetMetaData) -> ParquetMetaData {
    let rows = metadata.row_groups().iter().fold(0_i64, |rows, group| rows.saturating_add(group.num_rows()));
    let file = metadata.file_metadata();
    if file.num_rows() == rows {
        return metadata;
    }
    let file = FileMetaData::new(
        file.version(),
        rows,
        file.created_by().map(str::to_owned),
        file.key_value_metadata().cloned(),
        file.schema_descr_ptr(),
        file.column_orders().cloned(),
    );
    let mut builder = metadata.into_builder();
    let row_groups = builder.take_row_groups();
    ParquetMetaDataBuilder::new(file).set_row_groups(row_groups).build()
}

/// What the decoder needs to know to decode to these types.
fn decoding_to(schema: SchemaRef, whole: ArrowReaderMetadata) -> Result<ArrowReaderMetadata> {
    if schema.fields() == whole.schema().fields() { Ok(whole) } else { reader_of(whole.metadata(), schema) }
}

fn reader_of(metadata: &Arc<ParquetMetaData>, schema: SchemaRef) -> Result<ArrowReaderMetadata> {
    let options = ArrowReaderOptions::new().with_schema(schema);
    let built = catch_unwind(AssertUnwindSafe(|| ArrowReaderMetadata::try_new(Arc::clone(metadata), options)));
    built.map_err(internal_panic)?.map_err(|error| parquet_error("the schema", error))
}

/// Says what the parser objected to.
pub(super) fn parquet_error(what: &str, error: ParquetError) -> Error {
    let kind = match &error {
        ParquetError::NYI(_) => ErrorKind::UnsupportedParquet,
        _ => ErrorKind::InvalidParquet,
    };
    Error::new(kind, format!("{what} cannot be decoded: {error}")).with_source(error)
}

/// Looks through the footer for what the parser must not meet: groups nested so deep that its stack overflows, and
/// columns that are encrypted, which it would misread.
fn look_ahead(footer: &[u8]) -> Result<()> {
    let invalid = || Error::new(ErrorKind::InvalidParquet, "the footer is damaged");
    let mut reader = Reader::new(footer);
    let mut last = 0;
    while let Some((kind, id)) = reader.field(&mut last).ok_or_else(invalid)? {
        match (id, kind) {
            (2, LIST) => {
                let depth = schema_depth(&mut reader).ok_or_else(invalid)?;
                if depth > MAX_DEPTH {
                    let message = format!("the schema nests {depth} levels deep, more than {MAX_DEPTH}");
                    return Err(Error::new(ErrorKind::UnsupportedParquet, message));
                }
            }
            (8, STRUCT) => {
                return Err(Error::new(ErrorKind::UnsupportedParquet, "the file has encrypted columns")
                    .with_hint("encrypted files cannot be read; write the data without encryption"));
            }
            (2 | 8, _) => return Err(invalid()),
            _ => reader.skip_value(kind).ok_or_else(invalid)?,
        }
    }
    Ok(())
}

/// The deepest nesting of a flattened schema tree, in which every group is followed by as many fields as it counts.
fn schema_depth(reader: &mut Reader<'_>) -> Option<usize> {
    let (kind, count) = reader.list()?;
    if count > 0 && kind != STRUCT {
        return None;
    }
    let mut open: Vec<i32> = Vec::new();
    let mut deepest = 0;
    for _ in 0..count {
        let mut children = 0;
        let mut last = 0;
        while let Some((kind, id)) = reader.field(&mut last)? {
            match (id, kind) {
                (5, I32) => children = reader.i32()?,
                (4, BINARY) => reader.skip_value(BINARY)?,
                (4 | 5, _) => return None,
                _ => reader.skip_value(kind)?,
            }
        }
        while open.last() == Some(&0) {
            open.pop();
        }
        if let Some(left) = open.last_mut() {
            *left -= 1;
        }
        if children > 0 {
            open.push(children);
            deepest = deepest.max(open.len());
            // Deep enough to be refused: no need to let the stack grow with the footer.
            if deepest > 10 * MAX_DEPTH {
                return Some(deepest);
            }
        }
    }
    Some(deepest)
}

/// Checks what the decoder takes for granted.
fn check(metadata: &ParquetMetaData, file_size: u64) -> Result<()> {
    let invalid = |message: String| Error::new(ErrorKind::InvalidParquet, message);
    let columns = metadata.file_metadata().schema_descr().num_columns();
    for (place, group) in metadata.row_groups().iter().enumerate() {
        let here = |error: Error| error.with_row_group(place as u64);
        if group.num_columns() != columns {
            let message = format!("has {} columns, and the schema {columns}", group.num_columns());
            return Err(here(invalid(message)));
        }
        if !(0..=i64::from(i32::MAX)).contains(&group.num_rows()) {
            return Err(here(invalid(format!("cannot have {} rows", group.num_rows()))));
        }
        for column in group.columns() {
            let here = |error: Error| here(error.with_column(column.column_path().string()));
            if column.num_values() < 0 || column.uncompressed_size() < 0 {
                return Err(here(invalid("declares a negative size".into())));
            }
            if column.file_path().is_some_and(|path| !path.is_empty()) {
                return Err(here(Error::new(ErrorKind::UnsupportedParquet, "is stored in another file")));
            }
            let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
            let end = u64::try_from(start).ok().zip(u64::try_from(column.compressed_size()).ok());
            if end.and_then(|(start, length)| start.checked_add(length)).is_none_or(|end| end > file_size) {
                let message = format!(
                    "claims {} bytes from byte {start}, and the file has {file_size}",
                    column.compressed_size()
                );
                return Err(here(invalid(message)));
            }
        }
    }
    Ok(())
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
        return Err(Error::new(ErrorKind::UnsupportedParquet, "some columns have no Arrow type"));
    }
    Ok(leaves)
}

/// How much memory the values of one column take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measure {
    /// Bytes of a value, without what a string points to.
    pub(super) width: u64,
    /// How many values one entry of the column can turn into: a null in a list of fixed size takes up all its places.
    factor: u64,
    /// How many values there are in every row, if that does not depend on the row.
    per_row: Option<u64>,
}

impl Default for Measure {
    fn default() -> Self {
        Self { width: 16, factor: 1, per_row: None }
    }
}

impl Measure {
    /// How many values `rows` rows with `entries` entries turn into, at most.
    pub(super) fn values(&self, entries: u64, rows: u64) -> u64 {
        match self.per_row {
            Some(per_row) => rows.saturating_mul(per_row),
            None => entries.saturating_mul(self.factor),
        }
    }
}

/// What lies above a field.
#[derive(Debug, Clone, Copy)]
struct Above {
    nullable: bool,
    factor: u64,
    per_row: Option<u64>,
}

/// Notes the measure of every leaf below a type.
fn measure(data_type: &DataType, mut above: Above, measures: &mut Vec<Measure>, dictionaries: &mut Vec<usize>) {
    match data_type {
        DataType::Struct(_) => {}
        DataType::FixedSizeList(_, size) => {
            let size = u64::from(size.unsigned_abs()).max(1);
            above.per_row = above.per_row.map(|per_row| per_row.saturating_mul(size));
            if above.nullable {
                above.factor = above.factor.saturating_mul(size);
            }
        }
        _ if rowdex_projection::children(data_type).is_empty() => {
            let width = match data_type {
                DataType::FixedSizeBinary(size) => u64::from(size.unsigned_abs()),
                DataType::Dictionary(_, _) => {
                    dictionaries.push(measures.len());
                    8
                }
                other => other.primitive_width().map_or(16, |width| width as u64),
            };
            measures.push(Measure { width, factor: above.factor, per_row: above.per_row });
            return;
        }
        _ => above.per_row = None,
    }
    for child in rowdex_projection::children(data_type) {
        let above = Above { nullable: above.nullable || child.is_nullable(), ..above };
        measure(child.data_type(), above, measures, dictionaries);
    }
}

/// Whether the pages of every column lie one behind the other inside its bytes, each with rows of its own.
fn pages_make_sense(metadata: &ParquetMetaData) -> bool {
    let ([group], Some([columns])) = (metadata.row_groups(), metadata.offset_index().map(Vec::as_slice)) else {
        return false;
    };
    group.num_columns() == columns.len()
        && group.columns().iter().zip(columns).all(|(column, index)| {
            let (start, length) = column.byte_range();
            let (mut next_byte, mut next_row) = (start, 0);
            let pages = index.page_locations();
            let ordered = pages.iter().enumerate().all(|(place, page)| {
                let (Ok(offset), Ok(size)) = (u64::try_from(page.offset), u64::try_from(page.compressed_page_size))
                else {
                    return false;
                };
                let row = page.first_row_index;
                // A dictionary lies before the first page, and nothing between pages.
                let in_order = if place == 0 { offset >= next_byte } else { offset == next_byte }
                    && size > 0
                    && row < group.num_rows().max(1)
                    && if place == 0 { row == 0 } else { row > next_row };
                (next_byte, next_row) = (offset + size, row);
                in_order
            });
            ordered && next_byte == start + length && (!pages.is_empty() || group.num_rows() == 0)
        })
}

/// The schema with the given columns, by their number in the file, changed to views.
fn with_views(schema: &SchemaRef, leaves: &[Range<usize>], views: &[usize]) -> SchemaRef {
    fn change(data_type: &DataType, at: &mut usize, views: &[usize]) -> DataType {
        let children = rowdex_projection::children(data_type);
        if children.is_empty() {
            let leaf = *at;
            *at += leaf_count(data_type);
            let plain = match data_type {
                DataType::Dictionary(_, values) => values,
                other => other,
            };
            let view = rowdex_projection::view_of(plain).filter(|_| views.binary_search(&leaf).is_ok());
            return view.unwrap_or_else(|| data_type.clone());
        }
        let changed = children.iter().map(|child| {
            let data_type = change(child.data_type(), at, views);
            Arc::new(child.as_ref().clone().with_data_type(data_type))
        });
        rowdex_projection::with_children(data_type, changed.collect())
    }
    let fields = schema.fields().iter().zip(leaves).map(|(field, leaves)| {
        if !has_some_of(views, leaves) {
            return Arc::clone(field);
        }
        let data_type = change(field.data_type(), &mut leaves.start.clone(), views);
        Arc::new(field.as_ref().clone().with_data_type(data_type))
    });
    Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
}
