//! Tokens of rows: lists of integers in one column, which may be served in parts.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, GenericListArray, OffsetSizeTrait, RecordBatch, StructArray, downcast_integer_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{ArrowNativeType, DataType, FieldRef, Fields, Schema, SchemaRef};

use super::flat::ends;
use super::nested::copy;
use super::picks::{BatchRow, Spans};
use super::views::compact;
use super::{gather, record_batch, uncopied};
use rowdex_base::error::{Error, ErrorKind, Result};

/// The column with the tokens: a list of integers, maybe within structs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens {
    name: String,
    /// The place of the column, and of the field in each struct down to the list.
    path: Vec<usize>,
    large: bool,
}

/// A column of integers, maybe within structs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbers {
    name: String,
    path: Vec<usize>,
}

impl Numbers {
    /// The column by this name or path, if there is one that has integers.
    pub fn find(schema: &Schema, name: &str) -> Option<Self> {
        let (path, field) = find(schema.fields(), name)?;
        field.data_type().is_integer().then(|| Self { name: name.to_owned(), path })
    }

    /// What the column is called, or its path.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Appends the numbers of these rows of a batch; `None` for what is null, or has no 64 bits with a sign.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if the batch has no such column or row.
    pub fn read(
        &self,
        batch: &RecordBatch,
        mut rows: impl Iterator<Item = u32>,
        numbers: &mut Vec<Option<i64>>,
    ) -> Result<()> {
        let none = || Error::new(ErrorKind::Internal, "rows without their lengths").with_column(&self.name);
        let array = below(batch, &self.path).ok_or_else(none)?;
        rows.try_for_each(|row| {
            let row = row as usize;
            numbers.push(if row < array.len() { number(array, row) } else { return Err(none()) });
            Ok(())
        })
    }
}

/// Items of a row that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Which of several batches, and which row of it.
    pub place: BatchRow,
    /// Which of the row's items is the first.
    pub offset: u64,
    /// How many there are.
    pub length: u64,
}

impl Tokens {
    /// The column by this name, or the field of a struct by this path, as `doc.tokens`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if there is none, or if it has no lists of integers.
    pub fn find(schema: &Schema, name: &str) -> Result<Self> {
        let refused = |message: String, hint: &'static str| {
            Err(Error::new(ErrorKind::InvalidArgument, message).with_column(name).with_hint(hint))
        };
        let Some((path, field)) = find(schema.fields(), name) else {
            return refused("the columns that are served have no tokens".to_owned(), "choose this column, too");
        };
        let (item, large) = match field.data_type() {
            DataType::List(item) => (item, false),
            DataType::LargeList(item) => (item, true),
            other => {
                return refused(format!("tokens of type {other}"), "tokens are lists of integers");
            }
        };
        match item.data_type().is_integer() {
            true => Ok(Self { name: name.to_owned(), path, large }),
            false => refused(format!("tokens of type {}", item.data_type()), "tokens are integers"),
        }
    }

    /// What the column is called, or its path.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The place of the column that it is, or is in.
    pub fn column(&self) -> usize {
        self.path.first().copied().unwrap_or_default()
    }

    /// The lists.
    fn lists<'a>(&self, batch: &'a RecordBatch) -> Result<Lists<'a>> {
        let lists = below(batch, &self.path).and_then(|array| match self.large {
            true => array.as_list_opt().map(Lists::Large),
            false => array.as_list_opt().map(Lists::Small),
        });
        lists.ok_or_else(|| Error::new(ErrorKind::Internal, "rows without their tokens").with_column(&self.name))
    }

    /// Writes the number of tokens of these rows of a batch to `lengths`.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if the batch has no such column or row.
    pub fn lengths(&self, batch: &RecordBatch, rows: impl Iterator<Item = u32>, lengths: &mut Vec<u64>) -> Result<()> {
        let lists = self.lists(batch)?;
        for row in rows {
            lengths.push(lists.items(row as usize).ok_or_else(|| self.no_row())?.len() as u64);
        }
        Ok(())
    }

    /// What cuts rows of these batches, which are of one schema. There is at least one.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if one has no such column.
    pub fn cutter<'a>(&'a self, batches: &[&'a RecordBatch]) -> Result<Cutter<'a>> {
        let lists = batches.iter().map(|batch| self.lists(batch)).collect::<Result<Vec<_>>>()?;
        // All else is copied without the items of whole rows, which may be many.
        let rest = batches.iter().zip(&lists).map(|(batch, lists)| self.with(batch, lists.emptied()?));
        Ok(Cutter { tokens: self, rest: rest.collect::<Result<_>>()?, lists })
    }

    fn token(&self, values: &ArrayRef, at: usize) -> Result<i64> {
        let none = || {
            let message = "a token that is null, or no number of 64 bits with a sign";
            Error::new(ErrorKind::Schema, message).with_column(&self.name)
        };
        number(values, at).ok_or_else(none)
    }

    /// The batch with other lists in the place of its own.
    fn with(&self, batch: &RecordBatch, lists: ArrayRef) -> Result<RecordBatch> {
        let mut columns = batch.columns().to_vec();
        let below = self.path.get(1..).unwrap_or_default();
        let column = columns.get_mut(self.column()).ok_or_else(|| self.no_row())?;
        *column = replaced(column, below, lists).ok_or_else(|| self.no_row())?;
        record_batch(batch.schema_ref(), columns, batch.num_rows()).map_err(uncopied)
    }

    /// The lists of a batch one after the other: the items, and where each list ends among them. Nothing is copied
    /// where they lie so already.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] if an item is null.
    pub fn all(&self, batch: &RecordBatch) -> Result<(ArrayRef, Vec<usize>)> {
        let lists = self.lists(batch)?;
        let (mut spans, mut ends, mut end) = (Spans::with_capacity(1), Vec::with_capacity(batch.num_rows()), 0);
        let (mut first, mut last) = (None, 0);
        let mut follows = true;
        for row in 0..batch.num_rows() {
            let items = lists.items(row).ok_or_else(|| self.no_row())?;
            end += items.len();
            ends.push(end);
            if !items.is_empty() {
                follows &= first.is_none() || items.start == last;
                (first, last) = (first.or(Some(items.start)), items.end);
                spans.push(0, items);
            }
        }
        let values = match follows {
            true => lists.values().slice(first.unwrap_or(0), end),
            false => {
                let copied = copy(&[lists.values().as_ref()], &[&spans], lists.values().data_type());
                copied.map_err(uncopied)?.pop().ok_or_else(|| self.no_row())?
            }
        };
        match values.null_count() {
            0 => Ok((values, ends)),
            nulls => Err(Error::new(ErrorKind::Schema, format!("{nulls} of {end} tokens are null"))
                .with_column(&self.name)
                .with_hint("tokens are numbers: leave out such rows, or serve rows as Arrow")),
        }
    }

    fn no_row(&self) -> Error {
        Error::new(ErrorKind::Internal, "tokens that a row does not have").with_column(&self.name)
    }
}

/// Cuts rows, see [`Tokens::cutter`].
#[derive(Debug)]
pub struct Cutter<'a> {
    tokens: &'a Tokens,
    lists: Vec<Lists<'a>>,
    rest: Vec<RecordBatch>,
}

impl Cutter<'_> {
    /// These parts of rows, as rows with all other columns as they are, in memory of their own; and the token that
    /// comes behind each in its row, if one does.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] for a part of no row, [`ErrorKind::Schema`] if the token behind it is no number of 64
    /// bits with a sign, and those of [`gather`].
    pub fn cut(&self, parts: &[Part]) -> Result<(RecordBatch, Vec<Option<i64>>)> {
        let tokens = self.tokens;
        let (mut spans, mut lengths, mut next) = (Spans::with_capacity(parts.len()), Vec::new(), Vec::new());
        for Part { place: (source, row), offset, length } in parts {
            let of = self.lists.get(*source as usize).ok_or_else(|| tokens.no_row())?;
            let all = of.items(*row as usize).ok_or_else(|| tokens.no_row())?;
            let end = offset.checked_add(*length).filter(|end| *end <= all.len() as u64);
            let end = all.start + end.ok_or_else(|| tokens.no_row())? as usize;
            let first = all.start + *offset as usize;
            next.push(if end < all.end { Some(tokens.token(of.values(), end)?) } else { None });
            spans.push(*source as usize, first..end);
            lengths.push(end - first);
        }
        let values: Vec<&dyn Array> = self.lists.iter().map(|lists| lists.values().as_ref()).collect();
        let (Some(lists), Some(rest)) = (self.lists.first(), self.rest.first()) else { return Err(tokens.no_row()) };
        let copied = copy(&values, &[&spans], lists.values().data_type()).map_err(uncopied)?.pop();
        let leaf = lists.of(lengths, copied.ok_or_else(|| tokens.no_row())?)?;
        let places: Vec<BatchRow> = parts.iter().map(|part| part.place).collect();
        let rows = gather(&self.rest.iter().collect::<Vec<_>>(), &places, rest.schema_ref())?;
        // Views must not keep the rows that they were cut from.
        Ok((compact(tokens.with(&rows, leaf)?).map_err(uncopied)?, next))
    }
}

/// The schema with lists of offsets in this column, a name or a path, if it has other lists there.
pub fn listed(schema: &SchemaRef, name: &str) -> Option<SchemaRef> {
    let (path, field) = find(schema.fields(), name)?;
    let item = match field.data_type() {
        DataType::FixedSizeList(item, _) | DataType::ListView(item) | DataType::LargeListView(item) => item,
        _ => return None,
    };
    let fields = with_type(schema.fields(), &path, DataType::LargeList(Arc::clone(item)))?;
    Some(Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())))
}

fn with_type(fields: &Fields, path: &[usize], data_type: DataType) -> Option<Fields> {
    let (place, below) = path.split_first()?;
    let mut fields = fields.to_vec();
    let field = fields.get_mut(*place)?;
    let data_type = match (field.data_type(), below.is_empty()) {
        (_, true) => data_type,
        (DataType::Struct(inner), _) => DataType::Struct(with_type(inner, below, data_type)?),
        _ => return None,
    };
    *field = Arc::new(field.as_ref().clone().with_data_type(data_type));
    Some(fields.into())
}

/// The batch with the types of a schema that has [lists of offsets](listed) where it has others.
///
/// # Errors
/// Those of Arrow's `cast`.
pub fn to_lists(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let column = |(column, field): (&ArrayRef, &FieldRef)| match column.data_type() == field.data_type() {
        true => Ok(Arc::clone(column)),
        false => arrow::compute::cast(column, field.data_type()),
    };
    let columns = batch.columns().iter().zip(schema.fields()).map(column).collect::<std::result::Result<Vec<_>, _>>();
    record_batch(schema, columns.map_err(uncopied)?, batch.num_rows()).map_err(uncopied)
}

/// What is at a path of a batch.
fn below<'a>(batch: &'a RecordBatch, path: &[usize]) -> Option<&'a ArrayRef> {
    let (column, rest) = path.split_first()?;
    rest.iter().try_fold(batch.columns().get(*column)?, |array, place| array.as_struct_opt()?.columns().get(*place))
}

/// An integer, unless it is null or has no 64 bits with a sign.
fn number(array: &ArrayRef, at: usize) -> Option<i64> {
    let array = array.as_ref();
    if array.is_null(at) {
        return None;
    }
    downcast_integer_array!(
        array => array.value(at).to_i64(),
        _ => None
    )
}

/// A column of this name, or a field below one by its path.
fn find<'a>(fields: &'a Fields, name: &str) -> Option<(Vec<usize>, &'a FieldRef)> {
    if let Some((place, field)) = fields.find(name) {
        return Some((vec![place], field));
    }
    // Names may have dots, too.
    name.match_indices('.').find_map(|(dot, _)| {
        let (place, field) = fields.find(name.get(..dot)?)?;
        let DataType::Struct(below) = field.data_type() else { return None };
        let (mut path, field) = find(below, name.get(dot + 1..)?)?;
        path.insert(0, place);
        Some((path, field))
    })
}

/// An array with another one in the place of what is below it there.
fn replaced(array: &ArrayRef, below: &[usize], leaf: ArrayRef) -> Option<ArrayRef> {
    let Some((place, below)) = below.split_first() else { return Some(leaf) };
    let (fields, mut columns, nulls) = array.as_struct_opt()?.clone().into_parts();
    let column = columns.get_mut(*place)?;
    *column = replaced(column, below, leaf)?;
    Some(Arc::new(StructArray::try_new_with_length(fields, columns, nulls, array.len()).ok()?))
}

/// Lists, by the width of their offsets.
#[derive(Debug, Clone, Copy)]
enum Lists<'a> {
    Small(&'a GenericListArray<i32>),
    Large(&'a GenericListArray<i64>),
}

impl<'a> Lists<'a> {
    fn values(&self) -> &'a ArrayRef {
        match self {
            Self::Small(lists) => lists.values(),
            Self::Large(lists) => lists.values(),
        }
    }

    /// Where the items of a row are; none of a null.
    #[inline]
    fn items(&self, row: usize) -> Option<Range<usize>> {
        match self {
            Self::Small(lists) => items(lists, row),
            Self::Large(lists) => items(lists, row),
        }
    }

    /// The same lists without any item.
    fn emptied(&self) -> Result<ArrayRef> {
        match self {
            Self::Small(lists) => emptied(lists),
            Self::Large(lists) => emptied(lists),
        }
    }

    /// Lists of this type with so many of these items each.
    fn of(&self, lengths: Vec<usize>, items: ArrayRef) -> Result<ArrayRef> {
        match self {
            Self::Small(lists) => self::of(lists, lengths, items),
            Self::Large(lists) => self::of(lists, lengths, items),
        }
    }
}

#[inline]
fn items<O: OffsetSizeTrait>(lists: &GenericListArray<O>, row: usize) -> Option<Range<usize>> {
    let (first, end) = (lists.value_offsets().get(row)?.as_usize(), lists.value_offsets().get(row + 1)?.as_usize());
    Some(if lists.is_null(row) { first..first } else { first..end })
}

fn item_of<O: OffsetSizeTrait>(lists: &GenericListArray<O>) -> Result<FieldRef> {
    match lists.data_type() {
        DataType::List(item) | DataType::LargeList(item) => Ok(Arc::clone(item)),
        other => Err(Error::new(ErrorKind::Internal, format!("{other} is no list"))),
    }
}

fn emptied<O: OffsetSizeTrait>(lists: &GenericListArray<O>) -> Result<ArrayRef> {
    let (item, nulls) = (item_of(lists)?, lists.nulls().cloned());
    let empty =
        GenericListArray::<O>::try_new(item, OffsetBuffer::new_zeroed(lists.len()), lists.values().slice(0, 0), nulls);
    Ok(Arc::new(empty.map_err(uncopied)?))
}

fn of<O: OffsetSizeTrait>(lists: &GenericListArray<O>, lengths: Vec<usize>, items: ArrayRef) -> Result<ArrayRef> {
    let offsets: OffsetBuffer<O> = ends(lengths.len(), lengths.into_iter()).map_err(uncopied)?;
    Ok(Arc::new(GenericListArray::<O>::try_new(item_of(lists)?, offsets, items, None).map_err(uncopied)?))
}
