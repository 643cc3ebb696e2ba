//! How long the rows of a row group are, by a column of lists or of numbers.
//!
//! The items of lists are counted by their levels, without decoding a value. Lists in lists are decoded, and what the
//! parquet crate alone makes sense of.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{DataType, Fields};

use super::decode::{GroupDecoder, RowsToDecode};
use super::errors::caught_panic;
use super::{FileBytes, RowSink, as_asked, direct, unpack};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_projection::Projection;
use rowdex_rows::Lists;

/// Rows that are decoded at once where levels do not do.
const CHUNK_ROWS: usize = 8192;

/// What is counted as the length of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// The items of a list. A null list has none.
    Items,
    /// What a number says, which must be there, and not be negative.
    Number,
}

/// What the lengths by the only column of a projection are, and the dotted path of that column.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for a column of neither lists nor integers.
pub fn counted(projection: &Projection) -> Result<(Counted, String)> {
    let mut fields = projection.output().fields();
    let mut path = String::new();
    loop {
        let [field] = &fields[..] else {
            return Err(refused("it is several fields, of which one can be counted").with_column(path));
        };
        path = if path.is_empty() { field.name().clone() } else { format!("{path}.{}", field.name()) };
        let counted = match field.data_type() {
            DataType::Struct(below) => {
                fields = below;
                continue;
            }
            data_type if is_list(data_type) => Counted::Items,
            data_type if data_type.is_integer() => Counted::Number,
            other => {
                let message = format!("rows cannot be measured by a column of type {other}");
                return Err(refused(message).with_column(path));
            }
        };
        return Ok((counted, path));
    }
}

fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message.into())
        .with_hint("name a column of lists or of integers, or record the lengths that a tokenizer found (`given`)")
}

fn is_list(data_type: &DataType) -> bool {
    use DataType::{FixedSizeList, LargeList, LargeListView, List, ListView};
    matches!(data_type, List(_) | LargeList(_) | FixedSizeList(..) | ListView(_) | LargeListView(_))
}

impl GroupDecoder<'_> {
    /// The lengths of all rows, by the only column of the projection.
    ///
    /// # Errors
    /// Those of [`decode`](Self::decode) and of [`counted`]; [`ErrorKind::Schema`] for a number that is null or
    /// negative.
    pub fn lengths(&self, bytes: &dyn FileBytes) -> Result<Vec<u64>> {
        let count = || {
            let (counted, path) = counted(self.projection)?;
            let rows = self.file.row_group_rows(self.row_group) as usize;
            self.within_limit((rows as u64).saturating_mul(size_of::<u64>() as u64))?;
            if counted == Counted::Items
                && let Some(lengths) = self.items(rows, bytes).map_err(|error| error.with_column(&path))?
            {
                return Ok(lengths);
            }
            self.decoded_lengths(counted, path, bytes)
        };
        count().map_err(|error: Error| error.with_row_group(self.row_group as u64).with_file(self.file.path()))
    }

    /// The lengths, of rows that are decoded for them.
    fn decoded_lengths(&self, counted: Counted, path: String, bytes: &dyn FileBytes) -> Result<Vec<u64>> {
        let mut sink = RowMeasure { counted, path, lengths: Vec::new() };
        self.decode(RowsToDecode::All, bytes, &mut sink)?;
        Ok(sink.lengths)
    }

    /// The numbers of items of the lists, by their levels; `None` if they have to be decoded.
    fn items(&self, rows: usize, bytes: &dyn FileBytes) -> Result<Option<Vec<u64>>> {
        if !has_path(self.projection.output().fields(), self.file.arrow_schema().fields()) {
            // Nulls, but for what comes from the path of the file.
            return Ok(None);
        }
        let Some(group) = self.file.group(self.row_group) else { return Ok(None) };
        // The lists of all columns below them are the same.
        let countable = self.leaves(&self.origins())?.into_iter().filter_map(|leaf| {
            let column = group.column(leaf);
            let item = direct::item_level(column).filter(|_| unpack::knows(column.compression()))?;
            Some((leaf, column, item))
        });
        let shortest = countable.min_by_key(|(_, column, _)| column.byte_range().1);
        let Some((leaf, column, item)) = shortest.filter(|_| rows > 0) else { return Ok(None) };
        self.within_limit(column.byte_range().1)?;
        let ranges = [column.range()];
        let read = as_asked(bytes.read(&ranges)?, &ranges)?;
        let read: Vec<_> = ranges.iter().zip(&read).collect();
        let mut found = Vec::new();
        if self.walk(&read, group, leaf, false, &mut found)?.has_rare {
            return Ok(None);
        }
        // Where the lists of a page begin, and which entries are items, takes memory for each entry.
        let most_entries = usize::try_from(self.max_decoded_bytes / 8).unwrap_or(usize::MAX);
        caught_panic(|| direct::count_items(column, item, found, rows, most_entries)).map(Some)
    }
}

/// Whether the fields of a projection, each the only one of its struct, are there.
fn has_path(wanted: &Fields, there: &Fields) -> bool {
    let Some(field) = wanted.first() else { return false };
    let Some((_, own)) = there.find(field.name()) else { return false };
    match (field.data_type(), own.data_type()) {
        (DataType::Struct(wanted), DataType::Struct(there)) => has_path(wanted, there),
        _ => true,
    }
}

/// Measures rows that are decoded.
struct RowMeasure {
    counted: Counted,
    path: String,
    lengths: Vec<u64>,
}

impl RowSink for RowMeasure {
    fn chunk_rows(&self) -> usize {
        CHUNK_ROWS
    }

    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        let first = self.lengths.len();
        for (row, length) in lengths_of(chunk.column(0))?.into_iter().enumerate() {
            let is_none = length.is_none() && self.counted == Counted::Items;
            let length = if is_none { Some(0) } else { length };
            let known = length.and_then(|length| u64::try_from(length).ok());
            self.lengths.push(known.ok_or_else(|| {
                let what = length.map_or("null".to_owned(), |length| length.to_string());
                let message = format!("row {} of the row group has a length that is {what}", first + row);
                Error::new(ErrorKind::Schema, message).with_column(&self.path)
            })?);
        }
        Ok(())
    }
}

/// The length of each row; `None` of a null.
fn lengths_of(array: &ArrayRef) -> Result<Vec<Option<i128>>> {
    let mut lengths = match array.data_type() {
        DataType::Struct(_) => match array.as_struct().columns().first() {
            Some(below) => lengths_of(below)?,
            None => Vec::new(),
        },
        data_type if is_list(data_type) => {
            let lists = Lists::of(array);
            let length = |row| Some(lists.as_ref()?.range(row).len() as i128);
            (0..array.len()).map(length).collect()
        }
        DataType::UInt64 => {
            array.as_primitive::<UInt64Type>().values().iter().map(|length| Some((*length).into())).collect()
        }
        _ => {
            let wide = cast(array, &DataType::Int64).map_err(|error| refused(error.to_string()))?;
            wide.as_primitive::<Int64Type>().values().iter().map(|length| Some((*length).into())).collect()
        }
    };
    if let Some(nulls) = array.nulls() {
        let null = lengths.iter_mut().zip(nulls).filter(|(_, is_there)| !is_there);
        null.for_each(|(length, _)| *length = None);
    }
    Ok(lengths)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Int32Array, ListArray};
    use arrow_buffer::OffsetBuffer;
    use arrow_schema::Field;
    use parquet::arrow::ArrowWriter;
    use parquet::basic::Compression;
    use parquet::file::properties::{WriterProperties, WriterVersion};

    use super::*;
    use crate::MAX_DECODED_BYTES;
    use crate::footer::{FileMetadata, read_end};
    use crate::tests::{Counted as CountedReads, Memory};
    use rowdex_projection::Renames;

    /// Lists of lists, of which some are null and some empty on both levels.
    fn lists(rows: usize) -> ArrayRef {
        let item = |array: &dyn Array| Arc::new(Field::new("element", array.data_type().clone(), true));
        let items = |row: usize| if row.is_multiple_of(5) { 0 } else { row % 4 };
        let inner = (0..rows).map(items).sum::<usize>();
        let values: Int32Array = (0..inner * 2).map(|value| (value % 5 != 0).then_some(value as i32)).collect();
        let below = OffsetBuffer::from_lengths((0..inner).map(|item| 2 * ((item + 1) % 2)));
        let values = values.slice(0, *below.last().unwrap() as usize);
        let there = (0..inner).map(|item| item % 4 != 1).collect();
        let below = ListArray::new(item(&values), below, Arc::new(values), Some(there));
        let there = (0..rows).map(|row| row % 5 != 0).collect();
        let of_rows = OffsetBuffer::from_lengths((0..rows).map(items));
        Arc::new(ListArray::new(item(&below), of_rows, Arc::new(below), Some(there)))
    }

    fn flat(rows: usize) -> ArrayRef {
        let lists = (0..rows as i32).map(|row| (row % 3 != 0).then(|| (0..row % 6).map(Some).collect::<Vec<_>>()));
        Arc::new(ListArray::from_iter_primitive::<arrow_array::types::Int32Type, _, _>(lists))
    }

    fn file(array: ArrayRef, version: WriterVersion, codec: Compression) -> Vec<u8> {
        let batch = RecordBatch::try_from_iter([("tokens", array)]).unwrap();
        let properties = WriterProperties::builder()
            .set_writer_version(version)
            .set_compression(codec)
            .set_data_page_row_count_limit(9)
            .set_write_batch_size(9)
            .set_dictionary_enabled(false)
            .build();
        let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.into_inner().unwrap()
    }

    /// Lengths by levels, and by decoding; `None` for what is refused.
    fn measured(bytes: Vec<u8>) -> (Option<Vec<u64>>, Option<Vec<u64>>) {
        let source = Memory::with(bytes);
        let Ok((_, footer)) = read_end(&source, "f", 1 << 12, None) else { return (None, None) };
        let file = FileMetadata::parse("f", &footer.bytes, footer.file_size, &Renames::default());
        let Ok(file) = file else { return (None, None) };
        let Ok(projection) = Projection::columns(file.arrow_schema(), &["tokens"]) else { return (None, None) };
        let decoder = GroupDecoder {
            file: &file,
            row_group: 0,
            projection: &projection,
            partitions: &[],
            max_decoded_bytes: MAX_DECODED_BYTES,
        };
        let bytes = CountedReads::new(&source, "f");
        let by_levels = decoder.lengths(&bytes).ok();
        (by_levels, decoder.decoded_lengths(Counted::Items, String::new(), &bytes).ok())
    }

    #[test]
    fn levels_tell_what_decoding_does() {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            for codec in [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::GZIP(Default::default())] {
                for rows in [1, 8, 9, 10, 500] {
                    for array in [flat(rows), lists(rows)] {
                        let (by_levels, decoded) = measured(file(array, version, codec));
                        assert_eq!(by_levels.as_ref().map(Vec::len), Some(rows));
                        assert_eq!(by_levels, decoded, "{rows} rows, {version:?}, {codec}");
                    }
                }
            }
        }
    }

    #[test]
    fn texts_are_measured_by_lengths_that_are_given() {
        let schema = arrow_schema::Schema::new(vec![Field::new("text", DataType::Utf8, false)]);
        let error = counted(&Projection::columns(&schema.into(), &["text"]).unwrap()).unwrap_err();
        assert!(error.to_string().contains("of type Utf8") && error.to_string().contains("`given`"), "{error}");
    }

    #[test]
    fn damage_is_refused_or_changes_lengths_as_it_does_where_they_are_decoded() {
        for (array, version) in [(flat(30), WriterVersion::PARQUET_1_0), (lists(30), WriterVersion::PARQUET_2_0)] {
            let bytes = file(array, version, Compression::UNCOMPRESSED);
            let mut refused = 0;
            for bit in 0..bytes.len() * 8 {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                let (by_levels, decoded) = measured(damaged);
                refused += usize::from(by_levels.is_none());
                if let (Some(by_levels), Some(decoded)) = (by_levels, decoded) {
                    assert_eq!(by_levels, decoded, "bit {bit}");
                }
            }
            assert!(refused > bytes.len(), "{refused} of {} refused", bytes.len() * 8);
        }
    }
}
