//! What reading a row group costs, as far as its file's footer tells.

use parquet::file::metadata::ColumnChunkMetaData;

use super::FileMetadata;
use crate::projection::Projection;

/// Bytes to read for the chosen columns of one row group, or for some of its rows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ReadCost {
    /// Of the column chunks, whole.
    pub(crate) bytes: u64,
    /// The part of them that any row needs: dictionaries.
    fixed: u64,
    /// Data pages of a column, about; 1 where the file does not say where its pages are.
    pages: f64,
    rows: u64,
}

impl ReadCost {
    /// About how many bytes so many rows need that lie in so many runs at random places.
    pub(crate) fn of_rows(&self, rows: u64, runs: u64) -> u64 {
        // As [`decode`](super::decode) does: with more rows wanted hardly a page can be left out.
        if rows == 0 {
            return 0;
        }
        if rows > self.rows / 2 || self.pages <= 1.0 {
            return self.bytes;
        }
        // A run touches its first page and those that it goes on into.
        let runs = runs.clamp(1, rows) as f64;
        let touched = 1.0 + (rows as f64 / runs - 1.0) * self.pages / self.rows as f64;
        let missed = (1.0 - (touched / self.pages).min(1.0)).powf(runs);
        self.fixed + ((self.bytes - self.fixed) as f64 * (1.0 - missed)) as u64
    }

    /// The cost of a row group that is like this one, but for having so many rows.
    pub(crate) fn with_rows(self, rows: u64) -> Self {
        if rows == self.rows || self.rows == 0 {
            return self;
        }
        let share = rows as f64 / self.rows as f64;
        let scaled = |bytes: u64| (bytes as f64 * share) as u64;
        Self { bytes: scaled(self.bytes), fixed: scaled(self.fixed), pages: (self.pages * share).max(1.0), rows }
    }
}

impl FileMetadata {
    /// What one row group costs to read; nothing if there is no such group.
    pub(crate) fn read_cost(&self, row_group: usize, projection: &Projection) -> ReadCost {
        let Some(group) = self.group(row_group) else { return ReadCost::default() };
        let rows = u64::from(self.row_group_rows(row_group));
        let mut cost = ReadCost { rows, ..ReadCost::default() };
        let mut pages = 0.0;
        for leaf in super::leaves_of(self, projection, &[]) {
            let column = group.column(leaf);
            let bytes = column.byte_range().1;
            cost.bytes = cost.bytes.saturating_add(bytes);
            cost.fixed = cost.fixed.saturating_add(dictionary(column).min(bytes));
            pages += bytes as f64 * data_pages(column, rows);
        }
        // Wide columns decide, so their pages count for more.
        cost.pages = if self.has_page_positions(row_group) { pages / (cost.bytes as f64).max(1.0) } else { 1.0 };
        cost
    }
}

/// Bytes of a column's dictionary page.
fn dictionary(column: &ColumnChunkMetaData) -> u64 {
    let start = column.dictionary_page_offset().and_then(|start| u64::try_from(start).ok());
    let end = u64::try_from(column.data_page_offset()).unwrap_or(0);
    start.map_or(0, |start| end.saturating_sub(start))
}

/// About how many data pages a column chunk has, by the length of its offset index: the footer has no count, but it has
/// that length, and an entry is a Thrift struct of three integers whose magnitudes are known.
fn data_pages(column: &ColumnChunkMetaData, rows: u64) -> f64 {
    let Some(length) = column.offset_index_length().filter(|length| *length > 0) else { return 1.0 };
    let (start, bytes) = column.byte_range();
    // One byte each for the field's type, for the list's size and for the end.
    let length = (f64::from(length) - 3.0).max(1.0);
    let spelled_out = column.unencoded_byte_array_data_bytes().and_then(|bytes| u64::try_from(bytes).ok());
    let mut pages = (length / 12.0).max(1.0);
    for _ in 0..3 {
        let each = |bytes: u64| (bytes as f64 / pages) as u64;
        // Three field types, the end, and the integers.
        let entry = 4 + varint(start + bytes / 2) + varint(each(bytes)) + varint(rows / 2);
        // A list of its own has the lengths of strings before encoding.
        let strings = spelled_out.map_or(0, |bytes| varint(each(bytes)));
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

    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use parquet::arrow::ArrowWriter;
    use parquet::file::metadata::{PageIndexPolicy, ParquetMetaDataReader};
    use parquet::file::properties::WriterProperties;

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
            let group = metadata.row_group(0);
            for (column, index) in group.columns().iter().zip(&metadata.offset_index().unwrap()[0]) {
                let (told, real) = (data_pages(column, 100_000), index.page_locations().len() as f64);
                assert!((told / real - 1.0).abs() <= 0.08, "{told} of {real}");
            }
        }
    }

    #[test]
    fn rows_at_random_touch_a_page_each_until_they_have_them_all() {
        let cost = ReadCost { bytes: 1100, fixed: 100, pages: 100.0, rows: 100_000 };
        assert_eq!(cost.of_rows(0, 0), 0);
        assert_eq!(cost.of_rows(1, 1), 110);
        assert!((190..200).contains(&cost.of_rows(10, 10)));
        assert!(cost.of_rows(1000, 1000) >= 1099);
        assert_eq!(cost.of_rows(50_001, 50_001), 1100);
        // One run of a tenth of the rows is on eleven pages.
        assert!((205..=212).contains(&cost.of_rows(10_000, 1)), "{}", cost.of_rows(10_000, 1));
        assert_eq!(ReadCost { pages: 1.0, ..cost }.of_rows(1, 1), 1100);
    }
}
