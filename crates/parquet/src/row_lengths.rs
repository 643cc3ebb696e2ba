//! How long the rows of a row group are, by a column of lists or of numbers.
//!
//! The items of lists are counted by their levels, without decoding a value; only what the parquet crate alone makes
//! sense of is decoded.

use arrow::array::{Array, ArrayRef, AsArray, GenericListArray, OffsetSizeTrait, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Fields, Int64Type, UInt64Type};
use bytes::Bytes;

use super::columns::leaves_of;
use super::decode::{GroupDecoder, Rows, check_values, walk};
use super::seam::read_exactly;
use super::{FileBytes, RowSink, caught_panic, direct, unpack};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_projection::Projection;

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
        .with_hint("name a column of lists or of integers; other lengths are given beside the data")
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
            let by_levels = match counted {
                Counted::Items => self.items(rows, bytes).map_err(|error| error.with_column(&path))?,
                Counted::Number => None,
            };
            if let Some(lengths) = by_levels {
                return Ok(lengths);
            }
            let mut sink = Lengths { counted, path, lengths: Vec::new() };
            self.decode(Rows::All, bytes, &mut sink)?;
            Ok(sink.lengths)
        };
        count().map_err(|error: Error| error.with_row_group(self.row_group as u64).with_file(self.file.path()))
    }

    /// The numbers of items of the lists, by their levels; `None` if they have to be decoded.
    fn items(&self, rows: usize, bytes: &dyn FileBytes) -> Result<Option<Vec<u64>>> {
        if !has_path(self.projection.output().fields(), self.file.arrow_schema().fields()) {
            // Nulls, but for what comes from the path of the file.
            return Ok(None);
        }
        let Some(group) = self.file.group(self.row_group) else { return Ok(None) };
        let schema = self.file.metadata().file_metadata().schema_descr();
        // The lists of all columns below them are the same.
        let leaves = leaves_of(self.file, self.projection, self.partitions);
        let Some(leaf) = leaves.into_iter().min_by_key(|leaf| group.column(*leaf).byte_range().1) else {
            return Ok(None);
        };
        let column = group.column(leaf);
        if !unpack::knows(column.compression()) || !direct::has_items(schema, leaf) || rows == 0 {
            return Ok(None);
        }
        let (start, length) = column.byte_range();
        self.within_limit(length)?;
        let range = start..start.saturating_add(length);
        let read: Vec<Bytes> = read_exactly(bytes, std::slice::from_ref(&range))?;
        let mut found = Vec::new();
        let tally = walk(read.iter().map(|bytes| (start, bytes)), &self.chunk(column, false), &mut found)?;
        check_values(group, column, &tally, true, false)?;
        if tally.has_rare {
            return Ok(None);
        }
        // Where the lists of a page begin, and which entries are items, takes memory for each entry.
        let most_entries = usize::try_from(self.max_decoded_bytes / 8).unwrap_or(usize::MAX);
        let counted = || direct::count_items((schema, leaf, column), found, rows, most_entries);
        caught_panic(counted).map(Some)
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
struct Lengths {
    counted: Counted,
    path: String,
    lengths: Vec<u64>,
}

impl RowSink for Lengths {
    fn chunk_rows(&self) -> usize {
        CHUNK_ROWS
    }

    fn take(&mut self, chunk: RecordBatch) -> Result<()> {
        let first = self.lengths.len();
        for (row, length) in lengths_of(chunk.column(0), self.counted)?.into_iter().enumerate() {
            let length = length.map_err(|what| {
                let message = format!("row {} of the row group has a length that is {what}", first + row);
                Error::new(ErrorKind::Schema, message).with_column(&self.path)
            });
            self.lengths.push(length?);
        }
        Ok(())
    }
}

/// The length of each row, or what it is instead.
type Measured = std::result::Result<u64, String>;

fn lengths_of(array: &ArrayRef, counted: Counted) -> Result<Vec<Measured>> {
    let missing = || match counted {
        Counted::Items => Ok(0),
        Counted::Number => Err("null".to_owned()),
    };
    let mut lengths = match array.data_type() {
        DataType::Struct(_) => match array.as_struct().columns().first() {
            Some(below) => lengths_of(below, counted)?,
            None => Vec::new(),
        },
        DataType::List(_) => of_lists::<i32>(array.as_list()),
        DataType::LargeList(_) => of_lists::<i64>(array.as_list()),
        DataType::FixedSizeList(_, size) => vec![Ok(size.unsigned_abs().into()); array.len()],
        DataType::ListView(_) => {
            array.as_list_view::<i32>().sizes().iter().map(|size| Ok(u64::from(size.unsigned_abs()))).collect()
        }
        DataType::LargeListView(_) => {
            array.as_list_view::<i64>().sizes().iter().map(|size| Ok(size.unsigned_abs())).collect()
        }
        DataType::UInt64 => array.as_primitive::<UInt64Type>().values().iter().map(|length| Ok(*length)).collect(),
        _ => {
            let wide = cast(array, &DataType::Int64).map_err(|error| refused(error.to_string()))?;
            let number = |number: &i64| u64::try_from(*number).map_err(|_| number.to_string());
            wide.as_primitive::<Int64Type>().values().iter().map(number).collect()
        }
    };
    if let Some(nulls) = array.nulls() {
        let null = lengths.iter_mut().zip(nulls).filter(|(_, is_there)| !is_there);
        null.for_each(|(length, _)| *length = missing());
    }
    Ok(lengths)
}

fn of_lists<O: OffsetSizeTrait>(lists: &GenericListArray<O>) -> Vec<Measured> {
    lists.offsets().lengths().map(|length| Ok(length as u64)).collect()
}
