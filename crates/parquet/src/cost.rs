//! What the footer of a file tells of its row groups: how many bytes they cost, read and decoded, and whether columns
//! can be decoded.

use std::ops::Range;
use std::sync::Arc;

use parquet::basic::Type;

use super::FileMetadata;
use super::chunks::ColumnChunk;
use super::columns::leaves_of;
use rowdex_base::error::Result;
use rowdex_projection::Projection;

/// Bytes to read for the chosen columns of one row group, or for some of its rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReadCost {
    /// Of the column chunks, whole.
    pub bytes: u64,
    /// The part of them that any row needs: dictionaries.
    fixed: u64,
    /// The part of them of which only due values are read, once it was found where they lie.
    alone: u64,
    /// Bytes of memory that are kept of where they lie.
    pub places: u64,
    /// Data pages of a column, about; 1 where the file does not say where its pages are.
    pages: f64,
    rows: u64,
    /// Strings repeat that are copied when decoded, so [`FileMetadata::decoded_bytes`] may be far too low.
    pub decodes_to_unknown: bool,
    columns: Arc<[ColumnCost]>,
}

/// One column chunk.
#[derive(Debug, Clone, PartialEq)]
struct ColumnCost {
    range: Range<u64>,
    dictionary: u64,
    /// Data pages, about.
    pages: f64,
}

impl ReadCost {
    /// About how many bytes so many rows need that lie in so many runs at random places.
    pub fn of_rows(&self, rows: u64, runs: u64) -> u64 {
        if rows == 0 {
            return 0;
        }
        if self.is_read_whole(rows) {
            return self.bytes;
        }
        // A run touches its first page and those that it goes on into.
        let runs = runs.clamp(1, rows) as f64;
        let touched = 1.0 + (rows as f64 / runs - 1.0) * self.pages / self.rows as f64;
        let missed = (1.0 - (touched / self.pages).min(1.0)).powf(runs);
        self.fixed + ((self.bytes - self.fixed) as f64 * (1.0 - missed)) as u64
    }

    /// About how many bytes so many rows need of a row group that was decoded before and is read as a whole, but for
    /// long values.
    pub fn of_due(&self, rows: u64) -> u64 {
        let left_out =
            u128::from(self.alone) * u128::from(self.rows.saturating_sub(rows)) / u128::from(self.rows.max(1));
        self.bytes - left_out as u64
    }

    /// Whether most of it are values of which only the due ones are read.
    pub fn is_read_alone(&self) -> bool {
        self.alone > self.bytes / 2
    }

    /// Where all of it is read.
    pub fn chunks(&self) -> Vec<Range<u64>> {
        self.columns.iter().map(|column| column.range.clone()).collect()
    }

    /// Where so many rows would be read, in so many runs, if these were at random places: dictionaries and data
    /// pages. Each draw has other places.
    pub fn sample(&self, rows: u64, runs: u64, draw: u64) -> Vec<Range<u64>> {
        if rows == 0 {
            return Vec::new();
        }
        if self.is_read_whole(rows) {
            return self.chunks();
        }
        let runs = runs.clamp(1, rows);
        let length = rows / runs;
        let places = self.rows - length.min(self.rows);
        let first = |run: u64| ((u128::from(scrambled(scrambled(draw) ^ run)) * (u128::from(places) + 1)) >> 64) as u64;
        let mut ranges = Vec::new();
        for column in self.columns.iter() {
            let page_of = |row: u64| (row as f64 * column.pages / self.rows as f64) as u64;
            let touched = (0..runs).map(first).flat_map(|row| page_of(row)..=page_of(row + length - 1));
            let mut touched: Vec<u64> = touched.collect();
            touched.sort_unstable();
            touched.dedup();
            let start = column.range.start + column.dictionary;
            let each = column.range.end.saturating_sub(start) as f64 / column.pages;
            let end = |page: u64| (start + (page as f64 * each) as u64).min(column.range.end);
            ranges.push(column.range.start..start);
            ranges.extend(touched.into_iter().map(|page| end(page)..end(page + 1)));
        }
        ranges
    }

    /// What [`sample`](Self::sample) depends on, to an eighth: what is counted for one holds for all that look alike.
    pub fn likeness(&self, rows: u64, runs: u64) -> [u64; 5] {
        let rounded = |value: u64| {
            let dropped = 60_u32.saturating_sub(value.leading_zeros());
            (value >> dropped << 8) | u64::from(dropped)
        };
        let pages = self.pages.round() as u64;
        [rounded(self.rows), rounded(pages), self.columns.len() as u64, rounded(rows), rounded(runs)]
    }

    /// With more rows wanted hardly a page can be left out, as decoding sees it.
    fn is_read_whole(&self, rows: u64) -> bool {
        rows > self.rows / 2 || self.pages <= 1.0
    }

    /// The cost of a row group that is like this one, but for having so many rows.
    pub fn with_rows(&self, rows: u64) -> Self {
        if rows == self.rows || self.rows == 0 {
            return self.clone();
        }
        let share = rows as f64 / self.rows as f64;
        let scaled = |bytes: u64| (bytes as f64 * share) as u64;
        Self {
            bytes: scaled(self.bytes),
            fixed: scaled(self.fixed),
            alone: scaled(self.alone),
            places: scaled(self.places),
            pages: (self.pages * share).max(1.0),
            rows,
            decodes_to_unknown: self.decodes_to_unknown,
            columns: Arc::clone(&self.columns),
        }
    }
}

impl FileMetadata {
    /// What the columns of one row group take in memory once decoded, in bytes: an estimate from the footer, which
    /// says little about strings that repeat. All columns without a projection; 0 if there is no such group.
    pub fn decoded_bytes(&self, row_group: usize, projection: Option<&Projection>) -> u64 {
        let Some(group) = self.group(row_group) else { return 0 };
        let rows = group.num_rows() as u64;
        let estimate = |leaf: usize| {
            let column = group.column(leaf);
            let values = items(column);
            let encoded = column.uncompressed_size();
            let bits = if column.column_descr().max_def_level() > 0 { values / 8 } else { 0 };
            let bytes = match column.column_type() {
                // Offsets of four bytes, or views of sixteen, as `views_pay` chooses.
                Type::BYTE_ARRAY if column.dictionary().is_some() && encoded < values.saturating_mul(4) => {
                    values.saturating_mul(16)
                }
                Type::BYTE_ARRAY => {
                    let each = if encoded >= values.saturating_mul(64) { 16 } else { 4 };
                    values.saturating_mul(each).saturating_add(column.text_bytes().unwrap_or(encoded))
                }
                Type::BOOLEAN => values / 8,
                Type::INT32 | Type::FLOAT => values.saturating_mul(4),
                Type::INT64 | Type::DOUBLE | Type::INT96 => values.saturating_mul(8),
                Type::FIXED_LEN_BYTE_ARRAY => {
                    values.saturating_mul(u64::try_from(column.column_descr().type_length()).unwrap_or(0))
                }
            };
            // Offsets of lists, and which of them are null.
            let lists = u64::try_from(column.column_descr().max_rep_level()).unwrap_or(0).saturating_mul(rows);
            bytes.saturating_add(bits).saturating_add(lists.saturating_mul(4)).saturating_add(lists / 8)
        };
        let leaves = match projection {
            Some(projection) => leaves_of(self, projection, &[]),
            None => (0..group.num_columns()).collect(),
        };
        leaves.into_iter().map(estimate).fold(0, u64::saturating_add)
    }

    /// Refuses a projection of columns that cannot be decoded, in any row group.
    pub fn check_columns(&self, projection: &Projection) -> Result<()> {
        self.check_decodable(0..self.num_row_groups(), &leaves_of(self, projection, &[]))
    }

    /// Where decoding all of a row group reads, sorted; nothing if there is no such group.
    pub fn chunks(
        &self,
        row_group: usize,
        projection: &Projection,
        partitions: &[(&str, Option<&str>)],
    ) -> Vec<Range<u64>> {
        let Some(group) = self.group(row_group) else { return Vec::new() };
        let range = |leaf: usize| group.column(leaf).range();
        let mut chunks: Vec<Range<u64>> = leaves_of(self, projection, partitions).into_iter().map(range).collect();
        chunks.sort_unstable_by_key(|chunk| (chunk.start, chunk.end));
        chunks
    }

    /// What one row group costs to read; nothing if there is no such group.
    pub fn read_cost(&self, row_group: usize, projection: &Projection) -> ReadCost {
        let Some(group) = self.group(row_group) else { return ReadCost::default() };
        let rows = u64::from(self.row_group_rows(row_group));
        let mut cost = ReadCost { rows, ..ReadCost::default() };
        let mut pages = 0.0;
        let mut columns = Vec::new();
        for leaf in leaves_of(self, projection, &[]) {
            let column = group.column(leaf);
            let (start, bytes) = column.byte_range();
            let dictionary = column.dictionary_bytes().min(bytes);
            let data_pages = data_pages(column, rows);
            cost.bytes = cost.bytes.saturating_add(bytes);
            cost.fixed = cost.fixed.saturating_add(dictionary);
            if super::direct::may_be_read_alone(column) {
                cost.alone = cost.alone.saturating_add(bytes);
                cost.places = cost.places.saturating_add(rows.saturating_mul(super::direct::PLACE));
            }
            cost.decodes_to_unknown |= is_copied_from_dictionary(column);
            pages += bytes as f64 * data_pages;
            columns.push(ColumnCost { range: start..start.saturating_add(bytes), dictionary, pages: data_pages });
        }
        // Wide columns decide, so their pages count for more.
        cost.pages = if self.has_page_positions(row_group) { pages / (cost.bytes as f64).max(1.0) } else { 1.0 };
        cost.columns = columns.into();
        cost
    }
}

/// Whether values of a dictionary are copied as often as they occur, because there are no views below the top level,
/// and the file does not say that they are short.
fn is_copied_from_dictionary(column: ColumnChunk<'_>) -> bool {
    /// What [`FileMetadata::decoded_bytes`] counts for a value.
    const VIEW: u64 = 16;
    let short = column.num_values().saturating_mul(VIEW);
    column.column_type() == Type::BYTE_ARRAY
        && column.column_descr().path().parts().len() > 1
        && column.dictionary().is_some()
        && column.text_bytes().is_none_or(|bytes| bytes > short)
}

/// How many values, or nulls in their places, a column chunk has in memory. Lists that are null or empty have none, but
/// an entry each, which only counts of levels tell apart.
fn items(column: ColumnChunk<'_>) -> u64 {
    let descriptor = column.column_descr();
    let entries = column.num_values();
    let Some(levels) = column.definition_level_histogram().filter(|_| descriptor.max_rep_level() > 0) else {
        return entries;
    };
    let is_optional = usize::from(descriptor.self_type().is_optional());
    let in_lists = usize::try_from(descriptor.max_def_level()).unwrap_or(0).saturating_sub(is_optional);
    let counted = levels.values().iter().skip(in_lists).map(|count| u64::try_from(*count).unwrap_or(0));
    counted.fold(0, u64::saturating_add).min(entries)
}

/// The finisher of splitmix64.
fn scrambled(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// About how many data pages a column chunk has, by the length of its offset index: the footer has no count, but it has
/// that length, and an entry is a Thrift struct of three integers whose magnitudes are known.
fn data_pages(column: ColumnChunk<'_>, rows: u64) -> f64 {
    let length = column.offset_index_length();
    if length == 0 {
        return 1.0;
    }
    let (start, bytes) = column.byte_range();
    // One byte each for the field's type, for the list's size and for the end.
    let length = (length as f64 - 3.0).max(1.0);
    let mut pages = (length / 12.0).max(1.0);
    for _ in 0..3 {
        let each = |bytes: u64| (bytes as f64 / pages) as u64;
        // Three field types, the end, and the integers.
        let entry = 4 + varint(start + bytes / 2) + varint(each(bytes)) + varint(rows / 2);
        // A list of its own has the lengths of strings before encoding.
        let strings = column.text_bytes().map_or(0, |bytes| varint(each(bytes)));
        pages = (length / (entry + strings) as f64).max(1.0);
    }
    pages.round()
}

/// Bytes of an integer in Thrift's compact protocol, which spends a bit on the sign.
fn varint(value: u64) -> u64 {
    u64::from(65 - value.leading_zeros()).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use parquet::arrow::ArrowWriter;
    use parquet::file::metadata::{PageIndexPolicy, ParquetMetaDataReader};
    use parquet::file::properties::WriterProperties;
    use rowdex_projection::Renames;

    use super::*;

    #[test]
    fn an_integer_takes_as_many_bytes_as_thrift_gives_it() {
        for (value, bytes) in [(0, 1), (63, 1), (64, 2), (8191, 2), (8192, 3), (1 << 40, 6)] {
            assert_eq!(varint(value), bytes, "{value}");
        }
    }

    #[test]
    fn pages_are_counted_by_the_length_of_their_index() {
        for rows_per_page in [100, 1000, 20_000] {
            let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((0..100_000).map(|row| row * row % 99_991)));
            let words: ArrayRef = Arc::new(StringArray::from_iter_values((0..100_000).map(|row| format!("row {row}"))));
            let batch = RecordBatch::try_from_iter([("numbers", numbers), ("words", words)]).unwrap();
            let properties = WriterProperties::builder()
                .set_data_page_row_count_limit(rows_per_page)
                .set_write_batch_size(rows_per_page)
                .set_dictionary_enabled(false)
                .build();
            let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
            writer.write(&batch).unwrap();
            let file = bytes::Bytes::from(writer.into_inner().unwrap());
            let reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required);
            let metadata = reader.parse_and_finish(&file).unwrap();
            let length = u32::from_le_bytes(file[file.len() - 8..file.len() - 4].try_into().unwrap()) as usize;
            let footer = &file[file.len() - 8 - length..file.len() - 8];
            let own = FileMetadata::parse("f", footer, file.len() as u64, &Renames::default()).unwrap();
            let group = own.group(0).unwrap();
            for (column, index) in group.columns().zip(&metadata.offset_index().unwrap()[0]) {
                let (told, real) = (data_pages(column, 100_000), index.page_locations().len() as f64);
                assert!((told / real - 1.0).abs() <= 0.08, "{told} of {real}");
            }
        }
    }

    #[test]
    fn rows_at_random_touch_a_page_each_until_they_have_them_all() {
        let column = ColumnCost { range: 4..1104, dictionary: 100, pages: 100.0 };
        let cost = ReadCost {
            bytes: 1100,
            fixed: 100,
            alone: 0,
            places: 0,
            pages: 100.0,
            rows: 100_000,
            decodes_to_unknown: false,
            columns: [column].into(),
        };
        assert_eq!(cost.of_rows(0, 0), 0);
        assert_eq!(cost.of_rows(1, 1), 110);
        assert!((190..200).contains(&cost.of_rows(10, 10)));
        assert!(cost.of_rows(1000, 1000) >= 1099);
        assert_eq!(cost.of_rows(50_001, 50_001), 1100);
        // One run of a tenth of the rows is on eleven pages.
        assert!((205..=212).contains(&cost.of_rows(10_000, 1)), "{}", cost.of_rows(10_000, 1));
        for (rows, runs) in [(1, 1), (10, 10), (300, 300), (10_000, 1), (5_000, 50)] {
            let sampled: u64 =
                (0..8).flat_map(|draw| cost.sample(rows, runs, draw)).map(|range| range.end - range.start).sum();
            let told = 8.0 * cost.of_rows(rows, runs) as f64;
            assert!((sampled as f64 / told - 1.0).abs() < 0.1, "{rows} in {runs}: {sampled} of {told}");
        }
        assert_eq!(cost.sample(50_001, 1, 0), cost.chunks());
        assert_eq!(cost.likeness(1000, 1000), cost.likeness(1010, 1020));
        assert_ne!(cost.likeness(1000, 1000), cost.likeness(2000, 1000));
        assert_eq!(ReadCost { pages: 1.0, ..cost }.of_rows(1, 1), 1100);
    }
}
