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
mod delta;
mod flags;
mod hybrid;
mod items;
mod kinds;
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
use std::rc::Rc;
use std::sync::Arc;

use arrow::array::{ArrayRef, StructArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Fields};
use arrow::error::ArrowError;
use parquet::basic::{Encoding, Repetition};
use parquet::file::page_index::offset_index::PageLocation;
use parquet::schema::types::{SchemaDescriptor, Type};

pub(super) use self::checks::check_levels;
pub(super) use self::delta::Delta;
pub(super) use self::items::{count_items, has_items};
use self::kinds::values_of;
use self::leaf::{Flat, KeptLists, Leaf, ListColumn};
use self::pages::ColumnPages;
pub(super) use self::places::{PLACE, ValuePlaces, may_be_read_alone};
use self::values::ColumnValues;
use super::chunks::{ColumnChunk, RowGroup};
use super::guard::{FilePage, Tally};
use super::types::has_some_of;
use super::unpack::{self, Unpacker};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_projection::children;
use rowdex_rows::{list_array, take_rows};

/// A path of more levels is left to the parquet crate.
const MAX_LEVELS: i16 = 8;

/// Whether all pages of a column chunk have a codec and encodings that are decoded here, according to their headers.
pub(super) fn decodes(column: ColumnChunk<'_>, tally: &Tally) -> bool {
    let physical = column.column_type();
    !tally.has_rare
        && unpack::knows(column.compression())
        && tally.encodings().all(|encoding: Encoding| kinds::decodes(physical, encoding))
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
            .all(|encoding| encoding == Encoding::RLE || is_bit_packed(encoding) || kinds::decodes(physical, encoding))
}

/// How a column looks in its file.
#[derive(Debug)]
pub(super) enum ColumnShape {
    Flat(Tree),
    Lists {
        list: DataType,
        leaf: usize,
        /// Definition level of a list without items.
        empty: i16,
    },
}

/// A value, or a struct of such.
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
}

impl ColumnShape {
    /// Whether its rows go on from a row group to the next one. Where lists begin and end is counted in each alone.
    pub(super) fn goes_on(&self) -> bool {
        matches!(self, Self::Flat(_))
    }

    /// The shape of the root field `root`, of which `leaves` are wanted, in the file's order, if it is one that is
    /// decoded here.
    pub(super) fn of(schema: &SchemaDescriptor, root: usize, leaves: &[usize], field: &Field) -> Option<Self> {
        let (item, size) = match field.data_type() {
            DataType::List(item) | DataType::LargeList(item) => (item, 1),
            DataType::FixedSizeList(item, size) => (item, *size),
            _ => {
                let node = schema.root_schema().get_fields().get(root)?;
                let mut next = *leaves.first().filter(|leaf| schema.get_column_root_idx(**leaf) == root)?;
                while next > 0 && schema.get_column_root_idx(next - 1) == root {
                    next -= 1;
                }
                let walk = &mut SchemaWalk { schema, leaves, next: &mut next };
                return walk.tree(node, field, 0, Vec::new(), true).map(ColumnShape::Flat);
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
    next: &'a mut usize,
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
            let leaf = *self.next;
            *self.next += 1;
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
            let leaves = *self.next..*self.next + leaf_count(node);
            if !has_some_of(self.leaves, &leaves) {
                *self.next = leaves.end;
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

fn leaf_count(node: &Type) -> usize {
    if node.is_primitive() { 1 } else { node.get_fields().iter().map(|field| leaf_count(field)).sum() }
}

impl Tree {
    fn leaves(&self) -> Box<dyn Iterator<Item = usize> + '_> {
        match self {
            Self::Leaf { leaf, .. } => Box::new(std::iter::once(*leaf)),
            Self::Struct { children, .. } => Box::new(children.iter().flat_map(Self::leaves)),
        }
    }

    fn data_type(&self) -> DataType {
        match self {
            Self::Leaf { data_type, .. } => data_type.clone(),
            Self::Struct { fields, .. } => DataType::Struct(fields.clone()),
        }
    }
}

/// The bytes of the pages of a row group, or of several that are decoded as if they were one.
pub(super) struct GroupBytes<'a> {
    pub(super) group: RowGroup<'a>,
    /// Those that follow it, where columns have no lists.
    pub(super) more: &'a [RowGroup<'a>],
    /// Rows of all of them.
    pub(super) rows: usize,
    /// Where the pages of each column are, if the file says so and not all of them are at hand.
    pub(super) locations: Option<&'a dyn Fn(usize) -> Vec<PageLocation>>,
    /// The pages of each column that is decoded here, by the column's number.
    pub(super) pages: &'a [(usize, Arc<[FilePage]>)],
    pub(super) unpacker: Rc<RefCell<Unpacker>>,
    /// Whether all rows are wanted.
    pub(super) all_rows: bool,
    /// The levels of a page may not take more bytes than this, and neither may the strings of a column.
    pub(super) limit: u64,
}

impl GroupBytes<'_> {
    fn leaf(&self, leaf: usize, values: Option<Box<dyn ColumnValues>>) -> Result<Leaf> {
        let values = values.ok_or_else(|| Error::new(ErrorKind::Internal, "a column is not of the type chosen for"))?;
        let column = self.group.column(leaf);
        let found = self.pages.binary_search_by_key(&leaf, |(leaf, _)| *leaf).ok();
        let found = found.map_or_else(|| [].into(), |place| Arc::clone(&self.pages[place].1));
        let locations = self.locations.map(|locations| locations(leaf));
        let unpacker = Rc::clone(&self.unpacker);
        let mut pages = ColumnPages::new(column, found, unpacker, self.rows, locations, !self.all_rows);
        self.more.iter().for_each(|group| pages.go_on(group.column(leaf)));
        Ok(Leaf::new(pages, values, column.column_descr().max_def_level(), self.limit))
    }

    /// Whether the values of a column take few bytes where they lie.
    fn is_short(&self, leaf: usize) -> bool {
        const LONG: i64 = 64;
        let column = self.group.column(leaf);
        column.uncompressed_size() < column.num_values().saturating_mul(LONG)
    }
}

/// One root field of a row group, from front to back.
pub(super) struct DirectColumn {
    name: String,
    kind: ColumnLevels,
}

enum ColumnLevels {
    Flat {
        branch: Branch,
        /// Whether values are so short that reading one costs less than passing by it, and no page is missing.
        reads_between: bool,
    },
    Lists {
        lists: Box<ListColumn>,
        list: DataType,
        all_rows: bool,
    },
}

enum Branch {
    Leaf(Box<Flat>),
    Struct { fields: Fields, is_optional: bool, children: Vec<Branch> },
}

impl DirectColumn {
    /// Errors will call the column `name`.
    pub(super) fn new(shape: ColumnShape, name: &str, bytes: &GroupBytes<'_>) -> Result<Self> {
        let kind = match shape {
            ColumnShape::Flat(tree) => {
                let reads_between = bytes.all_rows && tree.leaves().all(|leaf| bytes.is_short(leaf));
                Branch::new(tree, bytes).map(|branch| ColumnLevels::Flat { branch, reads_between })
            }
            ColumnShape::Lists { list, leaf, empty } => {
                let physical = bytes.group.column(leaf).column_type();
                let fixed = match list {
                    DataType::FixedSizeList(_, size) => usize::try_from(size).ok(),
                    _ => None,
                };
                let item = children(&list).first().map(|item| item.data_type());
                let leaf = bytes.leaf(leaf, item.and_then(|item| values_of(physical, item, bytes.limit)));
                let all_rows = bytes.all_rows;
                leaf.map(|leaf| {
                    let lists = Box::new(ListColumn::new(leaf, bytes.rows, empty, fixed));
                    ColumnLevels::Lists { lists, list, all_rows }
                })
            }
        };
        Ok(Self { name: name.to_owned(), kind: kind.map_err(|error| error.with_column(name))? })
    }

    /// The next rows, in runs of rows to pass by and rows to keep.
    pub(super) fn next(&mut self, runs: &[(usize, usize)]) -> Result<ArrayRef> {
        self.kind.next(runs).map_err(|error| error.with_column(&self.name))
    }

    /// Passes by all rows that are left.
    pub(super) fn skip_rest(&mut self) -> Result<()> {
        let skipped = match &mut self.kind {
            ColumnLevels::Flat { branch, .. } => branch.skip_rest(),
            ColumnLevels::Lists { lists, .. } => lists.skip_rest(),
        };
        skipped.map_err(|error| error.with_column(&self.name))
    }

    /// Makes sure that there are no more.
    pub(super) fn end(&mut self) -> Result<()> {
        match &mut self.kind {
            ColumnLevels::Flat { .. } => Ok(()),
            ColumnLevels::Lists { lists, .. } => lists.end().map_err(|error| error.with_column(&self.name)),
        }
    }
}

impl ColumnLevels {
    fn next(&mut self, runs: &[(usize, usize)]) -> Result<ArrayRef> {
        let rows = runs.iter().map(|(_, kept)| kept).sum();
        match self {
            Self::Flat { branch, reads_between } => {
                if let Some((passed, places)) = places(runs, rows).filter(|_| *reads_between) {
                    let all = places.last().map_or(0, |last| *last as usize + 1);
                    branch.read(all, &[(passed, all)])?;
                    return take_rows(branch.finish()?.0.as_ref(), &places);
                }
                branch.read(rows, runs)?;
                branch.finish().map(|(array, _)| array)
            }
            Self::Lists { lists, list, all_rows } => {
                lists.reserve(rows, *all_rows);
                for &(passed, kept) in runs {
                    if passed > 0 {
                        lists.skip(passed)?;
                    }
                    lists.read(kept)?;
                }
                lists_of(list, lists.finish()?)
            }
        }
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
                let physical = bytes.group.column(leaf).column_type();
                let leaf = bytes.leaf(leaf, values_of(physical, &data_type, bytes.limit))?;
                Self::Leaf(Box::new(Flat::new(leaf, bytes.rows, is_nullable, &above)))
            }
            Tree::Struct { fields, is_optional, children } => {
                let children = children.into_iter().map(|child| Self::new(child, bytes)).collect::<Result<_>>()?;
                Self::Struct { fields, is_optional, children }
            }
        })
    }

    fn read(&mut self, rows: usize, runs: &[(usize, usize)]) -> Result<()> {
        match self {
            Self::Leaf(flat) => {
                flat.reserve(rows);
                for &(passed, kept) in runs {
                    if passed > 0 {
                        flat.skip(passed)?;
                    }
                    flat.read(kept)?;
                }
                Ok(())
            }
            Self::Struct { children, .. } => children.iter_mut().try_for_each(|child| child.read(rows, runs)),
        }
    }

    fn skip_rest(&mut self) -> Result<()> {
        match self {
            Self::Leaf(flat) => flat.skip_rest(),
            Self::Struct { children, .. } => children.iter_mut().try_for_each(Self::skip_rest),
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
        }
    }
}

fn lists_of(list: &DataType, kept: KeptLists) -> Result<ArrayRef> {
    let KeptLists { starts, lists, items } = kept;
    let lengths = starts.windows(2).map(|ends| ends[1] - ends[0]);
    list_array(list, starts.len().saturating_sub(1), lengths, items, lists).map_err(|error| match error {
        ArrowError::OffsetOverflowError(_) => {
            Error::new(ErrorKind::TooLarge, "the items of its lists are too many for offsets of 32 bits")
                .with_hint("ask for fewer rows at a time, or write smaller row groups")
        }
        error => cannot_be(error),
    })
}

/// What of an array's values is missing.
pub(super) struct ValueNulls {
    len: usize,
    /// `None` if nothing is.
    there: Option<NullBuffer>,
    /// Whether the array shows it, rather than what is above it.
    is_shown: bool,
}

impl ValueNulls {
    fn shown(self) -> Option<NullBuffer> {
        self.there.filter(|_| self.is_shown)
    }
}

fn damaged(message: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidParquet, format!("the row group cannot be decoded: it {message}"))
}

fn cannot_be(error: ArrowError) -> Error {
    damaged(format!("has values that cannot be: {error}"))
}

/// The error for another number of values than levels say.
fn unspread() -> Error {
    damaged("has levels that do not fit its values")
}
