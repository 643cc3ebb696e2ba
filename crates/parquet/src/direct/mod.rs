//! Columns of the shapes that most files have, from the bytes of their pages straight to Arrow's buffers.
//!
//! Headers were read by [`guard`](super::guard), which leaves to the parquet crate whatever has an odd one. Here
//! checksums are compared, and pages are decompressed to memory that is used again for the next ones. Then levels are
//! taken as the runs that they are stored as, so that a page without nulls costs one comparison for its definition
//! levels, and lists begin where the bits of the repetition levels are 0 (Melnik et al., "Dremel: Interactive Analysis
//! of Web-Scale Datasets", VLDB 2010, §4.1). Values are written once, to where the array has them. Rows that are not
//! wanted are passed by where they lie.
//!
//! Everything else is left to the parquet crate: other types, deeper nesting, rare encodings. Both give the same
//! arrays, and tests compare them.

mod checks;
pub(super) mod delta;
mod flags;
mod hybrid;
mod items;
mod leaf;
mod levels;
mod numbers;
mod pages;
mod places;
#[cfg(test)]
mod tests;
mod texts;
mod values;

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use arrow_array::{ArrayRef, StructArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, Fields};
use parquet::basic::{Encoding, Repetition, Type as Physical};
use parquet::schema::types::{SchemaDescriptor, Type};

pub(super) use self::checks::check_levels;
use self::flags::Flags;
pub(super) use self::items::{count_items, item_level};
use self::leaf::{Flat, Leaf, ListColumn};
use self::numbers::FixedValues;
use self::pages::ColumnPages;
pub(super) use self::places::{PLACE, ValuePlaces, may_be_read_alone};
use self::texts::TextValues;
use self::values::ColumnValues;
use super::chunks::{ColumnChunk, PagePositions, RowGroup};
use super::errors::{cannot_be, internal};
use super::guard::{FilePage, Tally};
use super::types::{has_some_of, leaf_count};
use super::unpack::{self, Unpacker};
use rowdex_base::error::Result;
use rowdex_projection::children;
use rowdex_rows::take_rows;

/// A path of more levels is left to the parquet crate.
const MAX_LEVELS: i16 = 8;

/// Whether all pages of a column chunk have a codec and encodings that are decoded here, according to their headers.
pub(super) fn decodes(column: ColumnChunk<'_>, tally: &Tally) -> bool {
    let physical = column.column_type();
    !tally.has_rare
        && unpack::knows(column.compression())
        && tally.encodings().all(|encoding: Encoding| decodes_values(physical, encoding))
}

/// Levels that are not there have this encoding in some files.
#[expect(deprecated, reason = "files have it nevertheless")]
fn is_bit_packed(encoding: Encoding) -> bool {
    encoding == Encoding::BIT_PACKED
}

/// Whether that can be so according to the footer, before the pages are read.
pub(super) fn may_decode(column: ColumnChunk<'_>) -> bool {
    let physical = column.column_type();
    let mut encodings = column.encodings();
    unpack::knows(column.compression())
        && encodings
            .all(|encoding| encoding == Encoding::RLE || is_bit_packed(encoding) || decodes_values(physical, encoding))
}

/// Whether values of this encoding are decoded here, where they are of this type.
fn decodes_values(physical: Physical, encoding: Encoding) -> bool {
    use Encoding::{
        BYTE_STREAM_SPLIT, DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY, PLAIN, PLAIN_DICTIONARY, RLE, RLE_DICTIONARY,
    };
    match physical {
        Physical::INT32 | Physical::INT64 => {
            matches!(encoding, PLAIN | PLAIN_DICTIONARY | RLE_DICTIONARY | BYTE_STREAM_SPLIT | DELTA_BINARY_PACKED)
        }
        Physical::FLOAT | Physical::DOUBLE => {
            matches!(encoding, PLAIN | PLAIN_DICTIONARY | RLE_DICTIONARY | BYTE_STREAM_SPLIT)
        }
        Physical::BOOLEAN => matches!(encoding, PLAIN | RLE),
        Physical::BYTE_ARRAY => {
            matches!(encoding, PLAIN | PLAIN_DICTIONARY | RLE_DICTIONARY | DELTA_LENGTH_BYTE_ARRAY)
        }
        _ => false,
    }
}

/// What decodes the values of a column to this Arrow type, if that is done here.
///
/// Values that a dictionary has once take at most `limit` bytes when they are spelled out.
fn values_of(physical: Physical, data_type: &DataType, limit: u64) -> Option<Box<dyn ColumnValues>> {
    use DataType::*;
    match (physical, data_type) {
        (Physical::INT32, Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32 | Date32 | Time32(_) | Decimal32(_, _))
        | (Physical::FLOAT, Float32) => Some(Box::new(FixedValues::<u32>::new(data_type))),
        (Physical::INT64, Int64 | UInt64 | Date64 | Time64(_) | Timestamp(_, _) | Duration(_) | Decimal64(_, _))
        | (Physical::DOUBLE, Float64) => Some(Box::new(FixedValues::<u64>::new(data_type))),
        (Physical::BOOLEAN, Boolean) => Some(Box::new(Flags::default())),
        (Physical::BYTE_ARRAY, Utf8 | Binary) => Some(Box::new(TextValues::<i32>::new(*data_type == Utf8, limit))),
        (Physical::BYTE_ARRAY, LargeUtf8 | LargeBinary) => {
            Some(Box::new(TextValues::<i64>::new(*data_type == LargeUtf8, limit)))
        }
        _ => None,
    }
}

/// How a column looks in its file: a value, a struct of such, or a list of values.
#[derive(Debug)]
pub(super) enum Tree {
    Leaf {
        leaf: usize,
        data_type: DataType,
        is_nullable: bool,
        /// Definition levels of the structs above whose first leaf it is.
        above: Vec<i16>,
    },
    Struct {
        fields: Fields,
        is_optional: bool,
        children: Vec<Tree>,
    },
    Lists {
        list: DataType,
        leaf: usize,
        /// Definition level of a list without items.
        empty: i16,
    },
}

impl Tree {
    /// That of a root field whose columns are `all`, of which `leaves` are wanted, in the file's order, if it is one
    /// that is decoded here.
    pub(super) fn of(schema: &SchemaDescriptor, all: Range<usize>, leaves: &[usize], field: &Field) -> Option<Self> {
        let (item, size) = match field.data_type() {
            DataType::List(item) | DataType::LargeList(item) => (item, 1),
            DataType::FixedSizeList(item, size) => (item, *size),
            _ => {
                let wanted = leaves.first().filter(|leaf| **leaf < schema.num_columns())?;
                let node = schema.get_column_root(*wanted);
                return SchemaWalk { schema, leaves, next: all.start }.tree(node, field, 0, Vec::new(), true);
            }
        };
        let &[leaf] = leaves else { return None };
        if size < 1 || leaf >= schema.num_columns() {
            return None;
        }
        let column = schema.column(leaf);
        values_of(column.physical_type(), item.data_type(), 0)?;
        let empty = i16::from(is_optional(schema.get_column_root(leaf)));
        let value = empty + 1 + i16::from(is_optional(column.self_type()));
        let fits = (column.max_rep_level(), column.max_def_level()) == (1, value);
        let is_nullable = item.is_nullable() == (value == empty + 2);
        (fits && is_nullable).then(|| Self::Lists { list: field.data_type().clone(), leaf, empty })
    }

    /// Whether the values of all its columns take few bytes where they lie.
    fn is_short(&self, group: RowGroup<'_>) -> bool {
        const LONG: u64 = 64;
        match self {
            Self::Leaf { leaf, .. } => {
                let column = group.column(*leaf);
                column.uncompressed_size() < column.num_values().saturating_mul(LONG)
            }
            Self::Struct { children, .. } => children.iter().all(|child| child.is_short(group)),
            Self::Lists { .. } => false,
        }
    }

    fn data_type(&self) -> DataType {
        match self {
            Self::Leaf { data_type, .. } => data_type.clone(),
            Self::Struct { fields, .. } => DataType::Struct(fields.clone()),
            Self::Lists { list, .. } => list.clone(),
        }
    }
}

fn is_optional(node: &Type) -> bool {
    let info = node.get_basic_info();
    info.has_repetition() && info.repetition() == Repetition::OPTIONAL
}

/// Goes down the fields of a struct.
struct SchemaWalk<'a> {
    schema: &'a SchemaDescriptor,
    leaves: &'a [usize],
    /// The next leaf of the file.
    next: usize,
}

impl SchemaWalk<'_> {
    /// The tree below a field that itself lies at the definition level `level`.
    fn tree(&mut self, node: &Type, field: &Field, level: i16, mut above: Vec<i16>, is_root: bool) -> Option<Tree> {
        let info = node.get_basic_info();
        if info.has_repetition() && info.repetition() == Repetition::REPEATED {
            return None;
        }
        let is_optional = is_optional(node);
        if !is_root && is_optional != field.is_nullable() {
            return None;
        }
        let level = level + i16::from(is_optional);
        if node.is_primitive() {
            let leaf = self.next;
            self.next += 1;
            let column = (leaf < self.schema.num_columns()).then(|| self.schema.column(leaf))?;
            let fits = (column.max_rep_level(), column.max_def_level()) == (0, level) && level <= MAX_LEVELS;
            values_of(column.physical_type(), field.data_type(), 0)?;
            let data_type = field.data_type().clone();
            return fits.then_some(Tree::Leaf { leaf, data_type, is_nullable: is_optional, above });
        }
        let DataType::Struct(fields) = field.data_type() else { return None };
        let nodes = node.get_fields();
        if nodes.len() != fields.len() {
            return None;
        }
        if is_optional {
            above.push(level);
        }
        let mut kept = Vec::new();
        let mut children = Vec::new();
        for (node, field) in nodes.iter().zip(fields) {
            let leaves = self.next..self.next + leaf_count(field.data_type());
            if !has_some_of(self.leaves, &leaves) {
                self.next = leaves.end;
                continue;
            }
            let child = self.tree(node, field, level, std::mem::take(&mut above), false)?;
            let data_type = child.data_type();
            kept.push(if data_type == *field.data_type() {
                Arc::clone(field)
            } else {
                Arc::new(field.as_ref().clone().with_data_type(data_type))
            });
            children.push(child);
        }
        (!children.is_empty()).then(|| Tree::Struct { fields: kept.into(), is_optional, children })
    }
}

/// The bytes of the pages of a row group, or of several that are decoded as if they were one.
pub(super) struct GroupBytes<'a> {
    pub(super) group: RowGroup<'a>,
    /// Those that follow it, where columns have no lists.
    pub(super) more: Vec<RowGroup<'a>>,
    /// Rows of all of them.
    pub(super) rows: usize,
    /// The positions of the row group's pages, if they are made use of.
    pub(super) paged: Option<PagePositions>,
    /// The pages of each column that is decoded here, by the column's number.
    pub(super) found: Vec<(usize, Arc<[FilePage]>)>,
    pub(super) unpacker: Rc<RefCell<Unpacker>>,
    /// Whether all rows are wanted.
    pub(super) all_rows: bool,
    /// The levels of a page may not take more bytes than this, and neither may the strings of a column.
    pub(super) limit: u64,
}

impl GroupBytes<'_> {
    fn leaf(&self, leaf: usize, data_type: &DataType) -> Result<Leaf> {
        let column = self.group.column(leaf);
        let values = values_of(column.column_type(), data_type, self.limit)
            .ok_or_else(|| internal("a column is not of the type chosen for"))?;
        let found = self.found.binary_search_by_key(&leaf, |(leaf, _)| *leaf).ok();
        let found = found.map_or_else(|| [].into(), |place| Arc::clone(&self.found[place].1));
        let paged = self.paged.as_deref();
        let locations = paged.map(|columns| columns.get(leaf).map_or(&[][..], |column| &column.page_locations()[..]));
        let unpacker = Rc::clone(&self.unpacker);
        let mut pages = ColumnPages::new(column, found, unpacker, self.rows, locations, !self.all_rows);
        self.more.iter().for_each(|group| pages.go_on(group.column(leaf)));
        Ok(Leaf::new(pages, values, column.max_levels().1, self.limit))
    }
}

/// One root field of a row group, from front to back.
pub(super) struct DirectColumn {
    name: String,
    branch: Branch,
    /// Whether values are so short that reading one costs less than passing by it, and no page is missing.
    reads_between: bool,
}

enum Branch {
    Leaf(Box<Flat>),
    Struct { fields: Fields, is_optional: bool, children: Vec<Branch> },
    Lists(Box<ListColumn>),
}

impl DirectColumn {
    /// Errors will call the column `name`.
    pub(super) fn new(tree: Tree, name: &str, bytes: &GroupBytes<'_>) -> Result<Self> {
        let reads_between = bytes.all_rows && tree.is_short(bytes.group);
        let branch = Branch::new(tree, bytes).map_err(|error| error.with_column(name))?;
        Ok(Self { name: name.to_owned(), branch, reads_between })
    }

    /// The next rows, in runs of rows to pass by and rows to keep.
    pub(super) fn next(&mut self, runs: &[(usize, usize)]) -> Result<ArrayRef> {
        let rows = runs.iter().map(|(_, kept)| kept).sum();
        let places = if self.reads_between { places(runs, rows) } else { None };
        let read = || {
            if let Some((passed, places)) = places {
                let all = places.last().map_or(0, |last| *last as usize + 1);
                self.branch.read(all, &[(passed, all)])?;
                return take_rows(self.branch.finish()?.0.as_ref(), &places);
            }
            self.branch.read(rows, runs)?;
            self.branch.finish().map(|(array, _)| array)
        };
        read().map_err(|error| error.with_column(&self.name))
    }

    /// Makes sure that there are no more rows, once those that are left were passed by if there may be some.
    pub(super) fn end(&mut self, skips: bool) -> Result<()> {
        let skipped = if skips { self.branch.skip_rest() } else { Ok(()) };
        let ended = skipped.and_then(|()| match &mut self.branch {
            Branch::Lists(lists) => lists.end(),
            _ => Ok(()),
        });
        ended.map_err(|error| error.with_column(&self.name))
    }
}

/// Where the rows to keep are among those from the first of them on, and how many are passed by before; `None` if they
/// lie one after the other, or far apart.
fn places(runs: &[(usize, usize)], rows: usize) -> Option<(usize, Vec<u32>)> {
    /// Passing by values takes as long as reading so many of them.
    const MOST_BETWEEN: usize = 16;
    let (&(passed, _), between) = runs.split_first().filter(|(_, rest)| !rest.is_empty())?;
    let between: usize = between.iter().map(|(passed, _)| passed).sum();
    if between > rows.saturating_mul(MOST_BETWEEN) {
        return None;
    }
    let mut places = Vec::with_capacity(rows);
    let mut at = 0;
    for (number, &(skipped, kept)) in runs.iter().enumerate() {
        at += if number == 0 { 0 } else { skipped as u32 };
        places.extend(at..at + kept as u32);
        at += kept as u32;
    }
    Some((passed, places))
}

impl Branch {
    fn new(tree: Tree, bytes: &GroupBytes<'_>) -> Result<Self> {
        Ok(match tree {
            Tree::Leaf { leaf, data_type, is_nullable, above } => {
                Self::Leaf(Box::new(Flat::new(bytes.leaf(leaf, &data_type)?, bytes.rows, is_nullable, &above)))
            }
            Tree::Struct { fields, is_optional, children } => {
                let children = children.into_iter().map(|child| Self::new(child, bytes)).collect::<Result<_>>()?;
                Self::Struct { fields, is_optional, children }
            }
            Tree::Lists { list, leaf, empty } => {
                let item = children(&list).first().map(|item| item.data_type());
                let leaf = bytes.leaf(leaf, item.unwrap_or(&DataType::Null))?;
                Self::Lists(Box::new(ListColumn::new(leaf, list, bytes.rows, empty, bytes.all_rows)))
            }
        })
    }

    fn read(&mut self, rows: usize, runs: &[(usize, usize)]) -> Result<()> {
        match self {
            Self::Leaf(flat) => flat.read(rows, runs),
            Self::Struct { children, .. } => children.iter_mut().try_for_each(|child| child.read(rows, runs)),
            Self::Lists(lists) => lists.read(rows, runs),
        }
    }

    fn skip_rest(&mut self) -> Result<()> {
        match self {
            Self::Leaf(flat) => flat.skip_rest(),
            Self::Struct { children, .. } => children.iter_mut().try_for_each(Self::skip_rest),
            Self::Lists(lists) => lists.skip_rest(),
        }
    }

    /// The array, and the nulls of the structs above whose first leaf it has.
    fn finish(&mut self) -> Result<(ArrayRef, Vec<Option<NullBuffer>>)> {
        match self {
            Self::Leaf(flat) => flat.finish(),
            Self::Struct { fields, is_optional, children } => {
                let mut columns = Vec::with_capacity(children.len());
                let mut above = Vec::new();
                for (place, child) in children.iter_mut().enumerate() {
                    let (column, levels) = child.finish()?;
                    columns.push(column);
                    if place == 0 {
                        above = levels;
                    }
                }
                let nulls = if *is_optional { above.pop().flatten() } else { None };
                let array = StructArray::try_new(fields.clone(), columns, nulls);
                Ok((Arc::new(array.map_err(cannot_be)?), above))
            }
            Self::Lists(lists) => Ok((lists.finish()?, Vec::new())),
        }
    }
}
