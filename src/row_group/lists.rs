//! Lists of numbers (tokens, embeddings, positions), from the values and levels of their column chunk.
//!
//! The parquet crate decodes pages into values and levels as ever; what is done here is putting them together. Its
//! own reader of nested columns serves every nesting, and for that builds a bitmap of the values' validity, filters
//! the levels and copies the values apart, whether or not anything is null; on columns of token ids that is a third
//! of the time. Here a chunk that has no nulls takes one look over its levels: all lists start where the repetition
//! level is 0 (Melnik et al., "Dremel: Interactive Analysis of Web-Scale Datasets", VLDB 2010, §4.1).

use std::sync::Arc;

use arrow::array::{
    ArrayRef, ArrowPrimitiveType, FixedSizeListArray, GenericListArray, OffsetSizeTrait, PrimitiveArray,
};
use arrow::buffer::{BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{
    DataType, FieldRef, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use bytes::{Buf, Bytes};
use parquet::basic::{Repetition, Type};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::DataType as Physical;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::SchemaDescriptor;

use super::caught;
use crate::{Error, ErrorKind, Result};

/// How a column of lists of numbers looks in its file.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    list: DataType,
    item: FieldRef,
    /// Definition level of a list without items; below it, the list is null.
    empty: i16,
    /// Definition level of an item that is not null.
    value: i16,
}

impl Shape {
    /// The shape of the root field `root`, whose Arrow type is `list`, if that is one of lists of numbers and all of
    /// it is in the column `leaf`.
    pub(super) fn of(schema: &SchemaDescriptor, root: usize, leaf: usize, list: &DataType) -> Option<Self> {
        let item = match list {
            DataType::List(item) | DataType::LargeList(item) => item,
            DataType::FixedSizeList(item, 1..) => item,
            _ => return None,
        };
        let fits = match item.data_type() {
            DataType::Int8 | DataType::Int16 | DataType::Int32 => Type::INT32,
            DataType::UInt8 | DataType::UInt16 | DataType::UInt32 => Type::INT32,
            DataType::Int64 | DataType::UInt64 => Type::INT64,
            DataType::Float32 => Type::FLOAT,
            DataType::Float64 => Type::DOUBLE,
            _ => return None,
        };
        if leaf >= schema.num_columns() || schema.get_column_root_idx(leaf) != root {
            return None;
        }
        let column = schema.column(leaf);
        let is_optional = |node: &parquet::schema::types::Type| {
            let info = node.get_basic_info();
            i16::from(info.has_repetition() && info.repetition() == Repetition::OPTIONAL)
        };
        let empty = is_optional(schema.get_column_root(leaf));
        let value = empty + 1 + is_optional(column.self_type());
        let levels = (column.max_rep_level(), column.max_def_level());
        let nullable = item.is_nullable() == (value == empty + 2);
        (column.physical_type() == fits && levels == (1, value) && nullable).then(|| Self {
            list: list.clone(),
            item: Arc::clone(item),
            empty,
            value,
        })
    }
}

/// Bytes of the shortest header that a page can have.
const SMALLEST_PAGE: u64 = 4;

/// The lists of one column chunk, from front to back.
pub(super) struct Lists {
    shape: Shape,
    name: String,
    reader: ColumnReader,
    /// Levels of the lists that are read, kept for their memory.
    definitions: Vec<i16>,
    repetitions: Vec<i16>,
    /// Levels that are not read yet, according to the footer.
    left: u64,
    /// No more pages than this can be in the chunk.
    most_pages: u64,
}

impl Lists {
    /// The lists of a column chunk whose bytes are these, from `start` on in their file. Errors will call the column
    /// `name`.
    pub(super) fn new(
        shape: Shape,
        name: &str,
        column: &ColumnChunkMetaData,
        start: u64,
        bytes: Bytes,
    ) -> Result<Self> {
        // Needed only beside the positions of pages, of which none are given.
        let rows = 0;
        let most_pages = bytes.len() as u64 / SMALLEST_PAGE;
        let reader = caught("the row group", || {
            let pages = SerializedPageReader::new(Arc::new(ChunkBytes { start, bytes }), column, rows, None)?;
            Ok(get_column_reader(column.column_descr_ptr(), Box::new(pages)))
        })?;
        let (name, left) = (name.to_owned(), column.num_values().unsigned_abs());
        Ok(Self { shape, name, reader, definitions: Vec::new(), repetitions: Vec::new(), left, most_pages })
    }

    /// The next `rows` lists, of the type that the parquet crate's own reader gives them.
    pub(super) fn next(&mut self, rows: usize) -> Result<ArrayRef> {
        self.read(rows).map_err(|error| error.with_column(&self.name))
    }

    /// Makes sure that there are no more.
    pub(super) fn end(&mut self) -> Result<()> {
        let (definitions, repetitions) = (Some(&mut self.definitions), Some(&mut self.repetitions));
        let more = caught("the row group", || match &mut self.reader {
            ColumnReader::Int32ColumnReader(reader) => {
                reader.read_records(1, definitions, repetitions, &mut Vec::new())
            }
            ColumnReader::Int64ColumnReader(reader) => {
                reader.read_records(1, definitions, repetitions, &mut Vec::new())
            }
            ColumnReader::FloatColumnReader(reader) => {
                reader.read_records(1, definitions, repetitions, &mut Vec::new())
            }
            ColumnReader::DoubleColumnReader(reader) => {
                reader.read_records(1, definitions, repetitions, &mut Vec::new())
            }
            _ => Ok((0, 0, 0)),
        });
        let (_, _, levels) = more.map_err(|error| error.with_column(&self.name))?;
        if levels > 0 || self.left > 0 {
            return Err(damaged("holds more lists than there are rows").with_column(&self.name));
        }
        Ok(())
    }

    fn read(&mut self, rows: usize) -> Result<ArrayRef> {
        let Self { shape, reader, definitions, repetitions, left, most_pages, .. } = self;
        let levels = &mut Levels { definitions, repetitions, left, most_pages: *most_pages };
        macro_rules! converting {
            ($reader:ident, $($item:ident => $type:ty),*) => {
                match shape.item.data_type() {
                    // As the parquet crate does, and Arrow's C++: what does not fit its declared type wraps.
                    $(DataType::$item => converted::<_, $type>($reader, shape, levels, rows, |value| value as _),)*
                    _ => Err(mismatch()),
                }
            };
        }
        match reader {
            ColumnReader::Int32ColumnReader(reader) => match shape.item.data_type() {
                DataType::Int32 => whole::<_, Int32Type>(reader, shape, levels, rows),
                _ => {
                    converting!(
                        reader, Int8 => Int8Type, Int16 => Int16Type, UInt8 => UInt8Type, UInt16 => UInt16Type,
                        UInt32 => UInt32Type
                    )
                }
            },
            ColumnReader::Int64ColumnReader(reader) => match shape.item.data_type() {
                DataType::Int64 => whole::<_, Int64Type>(reader, shape, levels, rows),
                _ => converting!(reader, UInt64 => UInt64Type),
            },
            ColumnReader::FloatColumnReader(reader) => whole::<_, Float32Type>(reader, shape, levels, rows),
            ColumnReader::DoubleColumnReader(reader) => whole::<_, Float64Type>(reader, shape, levels, rows),
            _ => Err(mismatch()),
        }
    }
}

/// The levels of lists that are read, and what is left of the column chunk.
struct Levels<'a> {
    definitions: &'a mut Vec<i16>,
    repetitions: &'a mut Vec<i16>,
    left: &'a mut u64,
    most_pages: u64,
}

/// Lists whose items are stored as they are served.
fn whole<P, A>(
    reader: &mut ColumnReaderImpl<P>,
    shape: &Shape,
    levels: &mut Levels<'_>,
    rows: usize,
) -> Result<ArrayRef>
where
    P: Physical,
    A: ArrowPrimitiveType<Native = P::T>,
{
    let values = values(reader, levels, rows)?;
    assemble::<A>(shape, levels, values, rows)
}

/// Lists whose items are stored as a type of another width or sign.
fn converted<P, A>(
    reader: &mut ColumnReaderImpl<P>,
    shape: &Shape,
    levels: &mut Levels<'_>,
    rows: usize,
    convert: impl Fn(P::T) -> A::Native,
) -> Result<ArrayRef>
where
    P: Physical,
    A: ArrowPrimitiveType,
{
    let values = values(reader, levels, rows)?;
    assemble::<A>(shape, levels, values.into_iter().map(convert).collect(), rows)
}

/// Reads `rows` lists: their levels, and the values that are not null.
fn values<P: Physical>(reader: &mut ColumnReaderImpl<P>, levels: &mut Levels<'_>, rows: usize) -> Result<Vec<P::T>> {
    let Levels { definitions, repetitions, left, most_pages } = levels;
    definitions.clear();
    repetitions.clear();
    let mut values = Vec::new();
    let (mut found, mut pages) = (0, 0);
    // The reader stops at a page without values, and there may be more behind it.
    while found < rows && **left > 0 && pages <= *most_pages {
        let step = || reader.read_records(rows - found, Some(definitions), Some(repetitions), &mut values);
        let (records, _, read) = caught("the row group", step)?;
        found += records;
        **left = left.saturating_sub(read as u64);
        pages += 1;
    }
    if repetitions.len() != definitions.len() {
        return Err(damaged("has other levels of repetition than of definition"));
    }
    if repetitions.first().is_some_and(|&repetition| repetition != 0) {
        return Err(damaged("begins inside a list"));
    }
    Ok(values)
}

/// Where the lists end and what is null.
#[derive(Debug, Default)]
struct Layout {
    /// Number of items before each list, and in the end of all of them.
    starts: Vec<usize>,
    lists: Option<NullBuffer>,
    items: Option<NullBuffer>,
}

fn assemble<A: ArrowPrimitiveType>(
    shape: &Shape,
    Levels { definitions, repetitions, .. }: &Levels<'_>,
    values: Vec<A::Native>,
    rows: usize,
) -> Result<ArrayRef> {
    let all_there = definitions.iter().all(|&definition| definition == shape.value);
    let layout = if all_there { starts(repetitions, rows) } else { walk(shape, definitions, repetitions, rows)? };
    if let DataType::FixedSizeList(_, size) = shape.list
        && let Some(pair) = layout.starts.windows(2).find(|pair| pair[1] - pair[0] != size as usize)
    {
        let length = pair[1] - pair[0];
        return Err(damaged(format!("has a list of {length} items where all have {size}")));
    }
    let values = match &layout.items {
        Some(items) => spread::<A>(items, values)?,
        None => values,
    };
    if layout.starts.len() != rows + 1 || layout.starts.last() != Some(&values.len()) {
        return Err(damaged("has levels that do not fit its values"));
    }
    let items: ArrayRef = Arc::new(PrimitiveArray::<A>::new(ScalarBuffer::from(values), layout.items));
    let item = Arc::clone(&shape.item);
    let array: Result<ArrayRef, _> = match shape.list {
        DataType::FixedSizeList(_, size) => {
            FixedSizeListArray::try_new(item, size, items, layout.lists).map(|array| Arc::new(array) as _)
        }
        DataType::LargeList(_) => GenericListArray::<i64>::try_new(item, offsets(&layout.starts)?, items, layout.lists)
            .map(|array| Arc::new(array) as _),
        _ => GenericListArray::<i32>::try_new(item, offsets(&layout.starts)?, items, layout.lists)
            .map(|array| Arc::new(array) as _),
    };
    array.map_err(|error| damaged(format!("has lists that cannot be: {error}")))
}

/// Lists without nulls and none of them empty: each begins where the repetition level is 0.
fn starts(repetitions: &[i16], rows: usize) -> Layout {
    /// Levels that are looked at together, while none is 0.
    const BLOCK: usize = 32;
    let mut starts = Vec::with_capacity(rows + 1);
    for (block, levels) in repetitions.chunks(BLOCK).enumerate() {
        if levels.iter().fold(0, |zeros, &level| zeros + u32::from(level == 0)) == 0 {
            continue;
        }
        let zeros = levels.iter().enumerate().filter(|(_, level)| **level == 0);
        starts.extend(zeros.map(|(at, _)| block * BLOCK + at));
    }
    starts.push(repetitions.len());
    Layout { starts, lists: None, items: None }
}

/// Lists of every kind, level by level.
fn walk(shape: &Shape, definitions: &[i16], repetitions: &[i16], rows: usize) -> Result<Layout> {
    // A null list of fixed size has items all the same, which are null too.
    let placeholders = match shape.list {
        DataType::FixedSizeList(_, size) => size as usize,
        _ => 0,
    };
    let mut starts = Vec::with_capacity(rows + 1);
    let mut lists = Vec::with_capacity(rows);
    let mut items = Vec::with_capacity(definitions.len());
    // Whether the list has items, so that there may be more.
    let mut open = false;
    for (&definition, &repetition) in definitions.iter().zip(repetitions) {
        if !(0..=shape.value).contains(&definition) {
            return Err(damaged(format!("has a definition level of {definition}")));
        }
        if repetition == 0 {
            starts.push(items.len());
            lists.push(definition >= shape.empty);
            open = definition > shape.empty;
        } else if !open || definition <= shape.empty {
            return Err(damaged("goes on with a list that has no items"));
        }
        if definition > shape.empty {
            items.push(definition == shape.value);
        } else if definition < shape.empty {
            items.resize(items.len() + placeholders, false);
        }
    }
    starts.push(items.len());
    let nulls =
        |valid: Vec<bool>| Some(NullBuffer::new(BooleanBuffer::from(valid))).filter(|nulls| nulls.null_count() > 0);
    Ok(Layout { starts, lists: nulls(lists), items: nulls(items) })
}

/// Puts values where they are not null.
fn spread<A: ArrowPrimitiveType>(items: &NullBuffer, values: Vec<A::Native>) -> Result<Vec<A::Native>> {
    let mut spread = vec![A::Native::default(); items.len()];
    if values.len() != items.len() - items.null_count() {
        return Err(damaged("has levels that do not fit its values"));
    }
    for (place, value) in items.valid_indices().zip(values) {
        spread[place] = value;
    }
    Ok(spread)
}

fn offsets<O: OffsetSizeTrait>(starts: &[usize]) -> Result<OffsetBuffer<O>> {
    let offsets: Option<Vec<O>> = starts.iter().map(|&start| O::from_usize(start)).collect();
    let offsets = offsets.ok_or_else(|| {
        Error::new(ErrorKind::TooLarge, "the items of its lists are too many for offsets of 32 bits")
            .with_hint("ask for fewer rows at a time, or write smaller row groups")
    })?;
    Ok(OffsetBuffer::new(ScalarBuffer::from(offsets)))
}

fn damaged(message: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidParquet, format!("the row group cannot be decoded: it {message}"))
}

fn mismatch() -> Error {
    Error::new(ErrorKind::Internal, "a column of lists is not of the type it was chosen for")
}

/// The bytes of a column chunk, where the file has them.
struct ChunkBytes {
    start: u64,
    bytes: Bytes,
}

impl ChunkBytes {
    fn from(&self, at: u64) -> Result<Bytes, ParquetError> {
        let offset = at.checked_sub(self.start).filter(|offset| *offset <= self.bytes.len() as u64);
        let offset = offset.ok_or_else(|| ParquetError::EOF("a page outside its column chunk".into()))?;
        Ok(self.bytes.slice(offset as usize..))
    }
}

impl Length for ChunkBytes {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ChunkReader for ChunkBytes {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(self.from(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let mut bytes = self.from(start)?;
        if length > bytes.len() {
            return Err(ParquetError::EOF("a page goes beyond its column chunk".into()));
        }
        Ok(bytes.split_to(length))
    }
}

#[cfg(test)]
mod tests;
