//! What a footer says of row groups and their column chunks, in a tenth of the memory that it takes once parsed: a
//! dataset keeps it of each of its files, and tables of thousands of columns have as many chunks in each row group.

use std::ops::Range;
use std::sync::Arc;

use parquet::basic::{Compression, CompressionCodec, Encoding, EncodingMask, Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, LevelHistogram, ParquetMetaData, RowGroupMetaData};
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use parquet::schema::types::{ColumnDescPtr, ColumnDescriptor, SchemaDescPtr, Type as Node};

use rowdex_base::error::Error;

/// All row groups of a file, each with a chunk for every column. What is told of chunks is of all columns of a row
/// group, one row group after the other.
#[derive(Debug)]
pub(crate) struct FileChunks {
    schema: SchemaDescPtr,
    /// Rows of each row group.
    rows: Vec<usize>,
    /// One for each [`ChunkNumber`].
    numbers: [ChunkNumbers; NUMBERS.len()],
    encodings: PerChunk<EncodingMask>,
    codecs: PerChunk<CompressionCodec>,
    /// Of columns in lists, whose entries are not their values, how many entries have each definition level, by the
    /// number of the chunk.
    levels: Vec<(usize, LevelHistogram)>,
}

/// A number that is kept of a chunk.
#[derive(Debug, Clone, Copy)]
enum ChunkNumber {
    Values,
    Compressed,
    Uncompressed,
    Strings,
    Data,
    Dictionary,
    OffsetIndex,
    OffsetIndexLength,
}

/// All of them, in that order.
const NUMBERS: [fn(&ColumnChunkMetaData) -> i64; 8] = [
    ColumnChunkMetaData::num_values,
    ColumnChunkMetaData::compressed_size,
    ColumnChunkMetaData::uncompressed_size,
    |column| column.unencoded_byte_array_data_bytes().unwrap_or(NONE),
    ColumnChunkMetaData::data_page_offset,
    |column| column.dictionary_page_offset().unwrap_or(NONE),
    |column| column.offset_index_offset().unwrap_or(NONE),
    |column| column.offset_index_length().unwrap_or(0).into(),
];

/// A number that the footer does not have. Those that it has are checked not to be negative, or not used then.
const NONE: i64 = i64::MIN;

/// Where the pages of each column of a row group are.
pub(crate) type PagePositions = Arc<[OffsetIndexMetaData]>;

/// Something of each chunk, or of all of them once where they have the same.
#[derive(Debug)]
struct PerChunk<T>(Box<[T]>);

/// A number of each chunk, in four bytes if all fit in these, and otherwise in eight.
#[derive(Debug)]
enum ChunkNumbers {
    Short(PerChunk<u32>),
    Long(PerChunk<i64>),
}

/// What the footer says of one row group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowGroup<'a> {
    file: &'a FileChunks,
    number: usize,
}

/// What the footer says of one column of a row group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ColumnChunk<'a> {
    file: &'a FileChunks,
    number: usize,
    descriptor: &'a ColumnDescPtr,
}

impl FileChunks {
    /// Of a footer that was checked: each row group has all columns.
    pub(crate) fn of(metadata: &ParquetMetaData) -> Self {
        let all = || metadata.row_groups().iter().flat_map(RowGroupMetaData::columns);
        let in_lists = |column: &ColumnChunkMetaData| column.column_descr().max_rep_level() > 0;
        let counted = |(number, column): (usize, &ColumnChunkMetaData)| {
            Some((number, column.definition_level_histogram().filter(|_| in_lists(column))?.clone()))
        };
        Self {
            schema: metadata.file_metadata().schema_descr_ptr(),
            rows: metadata.row_groups().iter().map(|group| group.num_rows() as usize).collect(),
            numbers: NUMBERS.map(|of| ChunkNumbers::of(all().map(of).collect())),
            encodings: PerChunk::of(all().map(|column| *column.encodings_mask()).collect()),
            codecs: PerChunk::of(all().map(ColumnChunkMetaData::compression_codec).collect()),
            levels: all().enumerate().filter_map(counted).collect(),
        }
    }

    /// Bytes that it takes, without the schema.
    pub(crate) fn bytes(&self) -> usize {
        let numbers: usize = self.numbers.iter().map(ChunkNumbers::bytes).sum();
        let rows = size_of_val(self.rows.as_slice());
        rows + numbers + self.encodings.bytes() + self.codecs.bytes() + self.levels.len() * 64
    }

    /// How many row groups there are.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// How many columns all row groups together have.
    pub(crate) fn num_chunks(&self) -> usize {
        self.rows.len() * self.schema.num_columns()
    }

    pub(crate) fn row_group(&self, number: usize) -> Option<RowGroup<'_>> {
        (number < self.rows.len()).then_some(RowGroup { file: self, number })
    }
}

impl<T: Copy + PartialEq> PerChunk<T> {
    fn of(all: Vec<T>) -> Self {
        match all.first() {
            Some(&first) if all.iter().all(|one| *one == first) => Self([first].into()),
            _ => Self(all.into()),
        }
    }

    fn get(&self, number: usize) -> &T {
        if let [same] = &*self.0 { same } else { &self.0[number] }
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

impl ChunkNumbers {
    fn of(all: Vec<i64>) -> Self {
        match all.iter().map(|&number| u32::try_from(number)).collect() {
            Ok(short) => Self::Short(PerChunk::of(short)),
            Err(_) => Self::Long(PerChunk::of(all)),
        }
    }

    fn get(&self, number: usize) -> i64 {
        match self {
            Self::Short(all) => i64::from(*all.get(number)),
            Self::Long(all) => *all.get(number),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Short(all) => all.bytes(),
            Self::Long(all) => all.bytes(),
        }
    }
}

impl<'a> RowGroup<'a> {
    pub(crate) fn num_rows(&self) -> usize {
        self.file.rows[self.number]
    }

    pub(crate) fn num_columns(&self) -> usize {
        self.file.schema.num_columns()
    }

    /// The column with this number, which the schema has.
    pub(crate) fn column(&self, leaf: usize) -> ColumnChunk<'a> {
        let number = self.number * self.num_columns() + leaf;
        ColumnChunk { file: self.file, number, descriptor: &self.file.schema.columns()[leaf] }
    }

    pub(crate) fn columns(&self) -> impl Iterator<Item = ColumnChunk<'a>> + use<'a> {
        let group = *self;
        (0..group.num_columns()).map(move |leaf| group.column(leaf))
    }

    /// The same for the parquet crate, of these columns, which are those of the schema.
    pub(crate) fn part(
        &self,
        schema: &SchemaDescPtr,
        leaves: impl Iterator<Item = usize>,
    ) -> Result<RowGroupMetaData, ParquetError> {
        let columns: Result<Vec<ColumnChunkMetaData>, _> = leaves.map(|leaf| self.column(leaf).whole()).collect();
        RowGroupMetaData::builder(Arc::clone(schema))
            .set_num_rows(self.num_rows() as i64)
            .set_column_metadata(columns?)
            .build()
    }
}

impl<'a> ColumnChunk<'a> {
    pub(crate) fn column_descr(&self) -> &'a ColumnDescriptor {
        self.descriptor
    }

    /// The field of the file that it belongs to.
    pub(crate) fn root(&self) -> &'a Node {
        let schema = &self.file.schema;
        schema.get_column_root(self.number % schema.num_columns())
    }

    /// Says that an error is of this column.
    pub(crate) fn named(&self, error: Error) -> Error {
        error.with_column(self.descriptor.path().string())
    }

    /// The highest repetition and definition level.
    pub(crate) fn max_levels(&self) -> (i16, i16) {
        (self.descriptor.max_rep_level(), self.descriptor.max_def_level())
    }

    pub(crate) fn column_type(&self) -> Type {
        self.descriptor.physical_type()
    }

    pub(crate) fn compression(&self) -> Compression {
        (*self.file.codecs.get(self.number)).into()
    }

    pub(crate) fn encodings(&self) -> impl Iterator<Item = Encoding> + use<'a> {
        self.file.encodings.get(self.number).encodings()
    }

    fn get(&self, which: ChunkNumber) -> i64 {
        self.file.numbers[which as usize].get(self.number)
    }

    /// The same if the footer has it.
    fn known(&self, which: ChunkNumber) -> Option<u64> {
        u64::try_from(self.get(which)).ok()
    }

    pub(crate) fn num_values(&self) -> u64 {
        self.get(ChunkNumber::Values).unsigned_abs()
    }

    pub(crate) fn uncompressed_size(&self) -> u64 {
        self.get(ChunkNumber::Uncompressed).unsigned_abs()
    }

    /// Bytes of all strings, without their lengths.
    pub(crate) fn text_bytes(&self) -> Option<u64> {
        self.known(ChunkNumber::Strings)
    }

    /// Where its dictionary begins in the file, if it has one.
    pub(crate) fn dictionary(&self) -> Option<u64> {
        self.known(ChunkNumber::Dictionary)
    }

    /// Bytes of its dictionary.
    pub(crate) fn dictionary_bytes(&self) -> u64 {
        let end = self.known(ChunkNumber::Data).unwrap_or(0);
        self.dictionary().map_or(0, |start| end.saturating_sub(start))
    }

    /// Where it begins in the file, and its length.
    pub(crate) fn byte_range(&self) -> (u64, u64) {
        let start = self.dictionary().unwrap_or(self.get(ChunkNumber::Data).unsigned_abs());
        (start, self.get(ChunkNumber::Compressed).unsigned_abs())
    }

    /// The same as a range.
    pub(crate) fn range(&self) -> Range<u64> {
        let (start, length) = self.byte_range();
        start..start.saturating_add(length)
    }

    pub(crate) fn offset_index_offset(&self) -> Option<u64> {
        self.known(ChunkNumber::OffsetIndex)
    }

    /// Bytes of the offset index; 0 without one.
    pub(crate) fn offset_index_length(&self) -> u64 {
        self.known(ChunkNumber::OffsetIndexLength).unwrap_or(0)
    }

    /// How many entries have each definition level, if the column is in lists and the footer says it.
    pub(crate) fn definition_level_histogram(&self) -> Option<&'a LevelHistogram> {
        let place = self.file.levels.binary_search_by_key(&self.number, |(number, _)| *number).ok()?;
        self.file.levels.get(place).map(|(_, levels)| levels)
    }

    fn whole(&self) -> Result<ColumnChunkMetaData, ParquetError> {
        let known = |which: ChunkNumber| Some(self.get(which)).filter(|number| *number != NONE);
        let offset_index = known(ChunkNumber::OffsetIndex);
        ColumnChunkMetaData::builder(Arc::clone(self.descriptor))
            .set_encodings_mask(*self.file.encodings.get(self.number))
            .set_num_values(self.get(ChunkNumber::Values))
            .set_compression_codec(*self.file.codecs.get(self.number))
            .set_total_compressed_size(self.get(ChunkNumber::Compressed))
            .set_total_uncompressed_size(self.get(ChunkNumber::Uncompressed))
            .set_data_page_offset(self.get(ChunkNumber::Data))
            .set_dictionary_page_offset(known(ChunkNumber::Dictionary))
            .set_offset_index_offset(offset_index)
            .set_offset_index_length(offset_index.map(|_| self.get(ChunkNumber::OffsetIndexLength) as i32))
            .set_unencoded_byte_array_data_bytes(known(ChunkNumber::Strings))
            .build()
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::types::Int32Type;
    use arrow_array::{ArrayRef, Float32Array, Int32Array, ListArray, RecordBatch, StringArray};
    use parquet::arrow::ArrowWriter;
    use parquet::file::metadata::ParquetMetaDataReader;
    use parquet::file::properties::WriterProperties;

    use super::*;

    fn footer(columns: Vec<(String, ArrayRef)>, properties: WriterProperties) -> ParquetMetaData {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut file = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        ParquetMetaDataReader::new().parse_and_finish(&bytes::Bytes::from(file)).unwrap()
    }

    #[test]
    fn every_number_that_is_kept_is_the_one_that_the_footer_has() {
        let lists = |row: i32| (row % 5 != 0).then(|| (0..row % 4).map(Some).collect::<Vec<_>>());
        let columns: Vec<(String, ArrayRef)> = vec![
            ("number".into(), Arc::new(Int32Array::from_iter((0..900).map(|row| (row % 3 > 0).then_some(row))))),
            ("word".into(), Arc::new(StringArray::from_iter_values((0..900).map(|row| format!("{}", row % 11))))),
            ("list".into(), Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>((0..900).map(lists)))),
        ];
        let compressions = [Compression::UNCOMPRESSED, Compression::SNAPPY];
        for compression in compressions {
            let properties =
                WriterProperties::builder().set_max_row_group_row_count(Some(400)).set_compression(compression);
            let footer = footer(columns.clone(), properties.build());
            let kept = FileChunks::of(&footer);
            assert_eq!((kept.len(), kept.num_chunks()), (3, 9));
            for (number, group) in footer.row_groups().iter().enumerate() {
                let of = kept.row_group(number).unwrap();
                assert_eq!(of.num_rows() as i64, group.num_rows());
                for (chunk, told) in of.columns().zip(group.columns()) {
                    assert_eq!(chunk.byte_range(), told.byte_range());
                    assert_eq!(chunk.compression(), told.compression());
                    assert!(chunk.encodings().eq(told.encodings()));
                    let histogram = told.definition_level_histogram();
                    assert_eq!(
                        chunk.definition_level_histogram(),
                        histogram.filter(|_| told.column_descr().max_rep_level() > 0)
                    );
                    let whole = chunk.whole().unwrap();
                    let numbers = |column: &ColumnChunkMetaData| {
                        (
                            [column.num_values(), column.compressed_size(), column.uncompressed_size()],
                            [Some(column.data_page_offset()), column.dictionary_page_offset()],
                            (column.offset_index_offset(), column.offset_index_length()),
                            column.unencoded_byte_array_data_bytes(),
                        )
                    };
                    assert_eq!(numbers(&whole), numbers(told));
                }
            }
            assert!(kept.row_group(3).is_none());
        }
    }

    #[test]
    fn what_is_kept_of_many_columns_is_a_tenth_of_a_parsed_footer() {
        let values: ArrayRef = Arc::new(Float32Array::from_iter_values((0..1000).map(|row| row as f32)));
        let columns = (0..200).map(|column| (format!("{column}"), Arc::clone(&values))).collect();
        let properties =
            WriterProperties::builder().set_max_row_group_row_count(Some(90)).set_dictionary_enabled(false);
        let footer = footer(columns, properties.build());
        let kept = FileChunks::of(&footer);
        let chunks = 200 * 12;
        assert_eq!(kept.num_chunks(), chunks);
        assert!(kept.bytes() <= 28 * chunks, "{} bytes for each", kept.bytes() / chunks);
        let parsed: usize = footer.row_groups().iter().map(|group| size_of_val(group.columns())).sum();
        assert!(kept.bytes() * 10 < parsed, "{} of {parsed} bytes", kept.bytes());
    }

    #[test]
    fn numbers_beyond_32_bits_and_those_that_are_not_there_are_kept() {
        for numbers in
            [vec![5, 5, 5], vec![1, 2, u32::MAX.into()], vec![1, NONE, 3], vec![-1, 1 << 40, i64::MAX], vec![NONE]]
        {
            let kept = ChunkNumbers::of(numbers.clone());
            for (place, number) in numbers.iter().enumerate() {
                assert_eq!(kept.get(place), *number);
            }
        }
        assert_eq!((ChunkNumbers::of(vec![7; 100]).bytes(), ChunkNumbers::of(vec![]).bytes()), (4, 0));
    }
}
