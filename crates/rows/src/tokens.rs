//! Tokens of rows: lists of integers in one column, which may be served in parts, as may columns beside it that have an
//! item for each token.

use std::iter::repeat_n;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, RecordBatch, downcast_integer_array};
use arrow_buffer::ArrowNativeType;
use arrow_cast::cast;
use arrow_schema::{DataType, FieldRef, Fields, Schema, SchemaRef};

use super::flat::only;
use super::nested::{Lists, copy, list_array, with_below};
use super::picks::{BatchRow, Spans};
use super::views::compact;
use super::{gather, record_batch, uncopied};
use rowdex_base::error::{Error, ErrorKind, Result};

/// The column with the tokens, and those beside it that have an item for each token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens {
    column: TokenColumn,
    beside: Vec<TokenColumn>,
}

/// A column, maybe within structs: of lists of tokens, or of an item for each token, or of how many tokens rows have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenColumn {
    name: String,
    /// The place of the column, and of the field in each struct down to it.
    path: Vec<usize>,
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

/// What the labels of tokens are called, in the place of which those of the next token are made where there are none.
pub(super) const LABELS: &str = "labels";
/// What TRL calls the columns that have 0 for tokens without labels.
pub(super) const MASKS: [&str; 2] = ["completion_mask", "assistant_masks"];

/// The columns with an item for each token: the tokens, those that are named, and labels and masks beside the tokens.
pub fn token_columns(schema: &Schema, tokens: &str, with: &[String]) -> Vec<String> {
    let mut names = vec![tokens.to_owned()];
    let beside = |name: &&str| match tokens.rsplit_once('.') {
        Some((structs, _)) if schema.fields().find(tokens).is_none() => format!("{structs}.{name}"),
        _ => (*name).to_owned(),
    };
    let is_beside = |name: &String| {
        find(schema.fields(), name)
            .and_then(|(_, field)| item(field.data_type()))
            .is_some_and(|item| is_number(item, name))
    };
    let found = [LABELS].iter().chain(&MASKS).map(beside).filter(is_beside);
    for name in with.iter().cloned().chain(found) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Whether a column of this name may have such items: labels and masks are no fractions.
fn is_number(item: &DataType, name: &str) -> bool {
    let is_label = |known: &str| last(name) == known;
    let is_mask = MASKS.into_iter().any(is_label);
    item.is_integer()
        || (*item == DataType::Boolean && !is_label(LABELS))
        || (item.is_floating() && !is_label(LABELS) && !is_mask)
}

/// The name of a field without the path to it.
pub(super) fn last(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// What lists have, of whatever kind they are.
fn item(lists: &DataType) -> Option<&DataType> {
    match lists {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => Some(item.data_type()),
        _ => None,
    }
}

impl Tokens {
    /// The columns by these names, or the fields of structs by such paths as `doc.tokens`: first the tokens, of which
    /// there are some, and then those beside them.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if there is none of a name, or if it has no lists of numbers, the tokens of
    /// integers.
    pub fn find(schema: &Schema, names: &[String]) -> Result<Self> {
        let (tokens, beside) = names.split_first().map_or(("", names), |(first, rest)| (first.as_str(), rest));
        Ok(Self {
            column: TokenColumn::find(schema, tokens, false)?,
            beside: beside.iter().map(|name| TokenColumn::find(schema, name, true)).collect::<Result<_>>()?,
        })
    }

    /// What the column with the tokens is called, or its path.
    pub fn name(&self) -> &str {
        self.column.name()
    }

    /// The column with the tokens.
    pub fn column(&self) -> &TokenColumn {
        &self.column
    }

    /// Those beside it.
    pub fn beside(&self) -> &[TokenColumn] {
        &self.beside
    }

    fn columns(&self) -> impl Iterator<Item = &TokenColumn> {
        std::iter::once(&self.column).chain(&self.beside)
    }

    /// What cuts rows of these batches, which are of one schema. There is at least one.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if one has no such column.
    pub fn cutter<'a>(&'a self, batches: &[&'a RecordBatch]) -> Result<Cutter<'a>> {
        // All else is copied without the items of whole rows, which may be many.
        let mut rest: Vec<RecordBatch> = batches.iter().map(|batch| (*batch).clone()).collect();
        let mut lists = Vec::with_capacity(1 + self.beside.len());
        for column in self.columns() {
            let own = batches.iter().map(|batch| column.lists(batch)).collect::<Result<Vec<_>>>()?;
            for (rest, lists) in rest.iter_mut().zip(&own) {
                let rows = lists.array.len();
                let nulls = lists.array.nulls().cloned();
                let data_type = lists.array.data_type();
                let none = list_array(data_type, rows, repeat_n(0, rows), lists.items.slice(0, 0), nulls);
                *rest = column.with(rest, none.map_err(uncopied)?)?;
            }
            lists.push(own);
        }
        Ok(Cutter { tokens: self, lists, rest })
    }
}

impl TokenColumn {
    fn find(schema: &Schema, name: &str, is_beside: bool) -> Result<Self> {
        let what = if is_beside { "items next to tokens" } else { "tokens" };
        let refused = |message: String, hint: &'static str| {
            Err(Error::new(ErrorKind::InvalidArgument, message).with_column(name).with_hint(hint))
        };
        let Some((path, field)) = find(schema.fields(), name) else {
            return refused(format!("the columns that are served have no {what}"), "choose this column, too");
        };
        let item = match field.data_type() {
            DataType::List(item) | DataType::LargeList(item) => item,
            other if is_beside => {
                return refused(
                    format!("{what} of type {other}"),
                    "name a column of lists with a number for each token",
                );
            }
            other => {
                return refused(format!("tokens of type {other}"), "tokens are lists of integers");
            }
        };
        let found = Self { name: name.to_owned(), path };
        match (is_beside, item.data_type()) {
            (false, item) if item.is_integer() => Ok(found),
            (false, item) => refused(format!("tokens of type {item}"), "tokens are integers"),
            (true, item) if is_number(item, name) => Ok(found),
            (true, item) => refused(
                format!("{what} of type {item}"),
                "such a column has a number for each token, labels and masks an integer",
            ),
        }
    }

    /// The column by this name or path, if there is one that has integers.
    pub fn of_integers(schema: &Schema, name: &str) -> Option<Self> {
        let (path, field) = find(schema.fields(), name)?;
        field.data_type().is_integer().then(|| Self { name: name.to_owned(), path })
    }

    /// What the column is called, or its path.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Appends the integers of these rows of a batch; `None` for what is null, or has no 64 bits with a sign.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if the batch has no such column or row.
    pub fn integers(
        &self,
        batch: &RecordBatch,
        mut rows: impl Iterator<Item = u32>,
        numbers: &mut Vec<Option<i64>>,
    ) -> Result<()> {
        let array = below(batch, &self.path).ok_or_else(|| self.no_row())?;
        rows.try_for_each(|row| {
            let row = row as usize;
            numbers.push(if row < array.len() { number(array, row) } else { return Err(self.no_row()) });
            Ok(())
        })
    }

    /// The lists.
    fn lists<'a>(&self, batch: &'a RecordBatch) -> Result<Lists<'a>> {
        below(batch, &self.path).and_then(|array| Lists::of(array.as_ref())).ok_or_else(|| self.no_row())
    }

    /// Writes the number of items of these rows of a batch to `lengths`.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if the batch has no such column or row.
    pub fn lengths(&self, batch: &RecordBatch, rows: impl Iterator<Item = u32>, lengths: &mut Vec<u64>) -> Result<()> {
        let lists = self.lists(batch)?;
        for row in rows {
            lengths.push(lists.items_of(row as usize).ok_or_else(|| self.no_row())?.len() as u64);
        }
        Ok(())
    }

    /// An item as 64 bits: an integer with its sign, or a fraction as a double.
    fn bits(&self, values: &dyn Array, at: usize) -> Result<u64> {
        let found = match values.data_type() {
            data_type if data_type.is_integer() => number(values, at).map(|number| number as u64),
            DataType::Boolean => {
                Some(values.as_boolean()).filter(|all| !all.is_null(at)).map(|all| all.value(at).into())
            }
            _ => {
                let item = cast(&values.slice(at, 1), &DataType::Float64).map_err(uncopied)?;
                (item.null_count() == 0).then(|| item.as_primitive::<Float64Type>().value(0).to_bits())
            }
        };
        found.ok_or_else(|| {
            let message = "an item for a token that is null, or no number of 64 bits with a sign";
            Error::new(ErrorKind::Schema, message).with_column(&self.name)
        })
    }

    /// The batch with other lists in the place of its own.
    fn with(&self, batch: &RecordBatch, lists: ArrayRef) -> Result<RecordBatch> {
        let mut columns = batch.columns().to_vec();
        let (place, below) = self.path.split_first().ok_or_else(|| self.no_row())?;
        let column = columns.get_mut(*place).ok_or_else(|| self.no_row())?;
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
        let mut spans = Spans::with_capacity(1);
        let mut ends = Vec::with_capacity(batch.num_rows());
        let mut end = 0;
        let mut first = None;
        let mut last = 0;
        let mut follows = true;
        for row in 0..batch.num_rows() {
            let items = lists.items_of(row).ok_or_else(|| self.no_row())?;
            end += items.len();
            ends.push(end);
            if !items.is_empty() {
                follows &= first.is_none() || items.start == last;
                (first, last) = (first.or(Some(items.start)), items.end);
                spans.push(0, items);
            }
        }
        let values = match follows {
            true => lists.items.slice(first.unwrap_or(0), end),
            false => copy(&[lists.items], &[&spans], lists.items.data_type()).and_then(only).map_err(uncopied)?,
        };
        match values.null_count() {
            0 => Ok((values, ends)),
            nulls => Err(Error::new(ErrorKind::Schema, format!("{nulls} of the items of {end} tokens are null"))
                .with_column(&self.name)
                .with_hint("each token has a number: leave out such rows, or serve rows as Arrow")),
        }
    }

    fn no_row(&self) -> Error {
        Error::new(ErrorKind::Internal, "items of tokens that a row does not have").with_column(&self.name)
    }
}

/// Cuts rows, see [`Tokens::cutter`].
#[derive(Debug)]
pub struct Cutter<'a> {
    tokens: &'a Tokens,
    /// Of each column those of each batch.
    lists: Vec<Vec<Lists<'a>>>,
    rest: Vec<RecordBatch>,
}

impl Cutter<'_> {
    /// These parts of rows, as rows with all other columns as they are, in memory of their own; and what comes behind
    /// each in its row, if something does: an item of each column, as 64 bits.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] for a part of no row, [`ErrorKind::Schema`] if an item behind it is no number of 64 bits
    /// with a sign, and those of [`gather`].
    pub fn cut(&self, parts: &[Part]) -> Result<(RecordBatch, Vec<Option<Vec<u64>>>)> {
        let none = || Error::new(ErrorKind::Internal, "rows to cut of no batch");
        let places: Vec<BatchRow> = parts.iter().map(|part| part.place).collect();
        let schema = self.rest.first().ok_or_else(none)?.schema_ref();
        let mut rows = gather(&self.rest.iter().collect::<Vec<_>>(), &places, schema)?;
        let mut behind: Vec<Option<Vec<u64>>> = vec![None; parts.len()];
        for (column, all) in self.tokens.columns().zip(&self.lists) {
            let mut spans = Spans::with_capacity(parts.len());
            let mut lengths = Vec::with_capacity(parts.len());
            for (Part { place: (source, row), offset, length }, behind) in parts.iter().zip(&mut behind) {
                let of = all.get(*source as usize).ok_or_else(|| column.no_row())?;
                let items = of.items_of(*row as usize).ok_or_else(|| column.no_row())?;
                let end = offset.checked_add(*length).filter(|end| *end <= items.len() as u64);
                let end = items.start + end.ok_or_else(|| column.no_row())? as usize;
                let first = items.start + *offset as usize;
                if end < items.end {
                    behind.get_or_insert_default().push(column.bits(of.items, end)?);
                }
                spans.push(*source as usize, first..end);
                lengths.push(end - first);
            }
            let items: Vec<&dyn Array> = all.iter().map(|lists| lists.items).collect();
            let lists = all.first().ok_or_else(none)?;
            let copied = copy(&items, &[&spans], lists.items.data_type()).and_then(only);
            let cut = copied
                .and_then(|items| list_array(lists.array.data_type(), lengths.len(), lengths.into_iter(), items, None));
            rows = column.with(&rows, cut.map_err(uncopied)?)?;
        }
        // Views must not keep the rows that they were cut from.
        Ok((compact(rows).map_err(uncopied)?, behind))
    }
}

/// Items that were told as 64 bits each, of this type.
pub fn items_of(bits: Vec<u64>, data_type: &DataType) -> Result<ArrayRef> {
    let items: ArrayRef = match data_type.is_floating() {
        true => Arc::new(Float64Array::from_iter_values(bits.into_iter().map(f64::from_bits))),
        false => Arc::new(Int64Array::from_iter_values(bits.into_iter().map(|bits| bits as i64))),
    };
    cast(&items, data_type).map_err(uncopied)
}

/// What is at a path of a batch.
fn below<'a>(batch: &'a RecordBatch, path: &[usize]) -> Option<&'a ArrayRef> {
    let (column, rest) = path.split_first()?;
    rest.iter().try_fold(batch.columns().get(*column)?, |array, place| array.as_struct_opt()?.columns().get(*place))
}

/// An integer, unless it is null or has no 64 bits with a sign.
fn number(array: &dyn Array, at: usize) -> Option<i64> {
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
    let mut columns = array.as_struct_opt()?.columns().to_vec();
    let column = columns.get_mut(*place)?;
    *column = replaced(column, below, leaf)?;
    with_below(array, array.data_type(), &columns).ok()
}

/// The schema with lists of offsets in these columns, names or paths, if any of them has other lists: a part of a list
/// of a fixed size is none of that size.
pub fn listed(schema: &SchemaRef, names: &[String]) -> Option<SchemaRef> {
    let mut fields = schema.fields().clone();
    for name in names {
        let Some((path, field)) = find(&fields, name) else { continue };
        let item = match field.data_type() {
            DataType::FixedSizeList(item, _) | DataType::ListView(item) | DataType::LargeListView(item) => item,
            _ => continue,
        };
        fields = with_type(&fields, &path, DataType::LargeList(Arc::clone(item)))?;
    }
    let is_other = &fields != schema.fields();
    is_other.then(|| Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())))
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
