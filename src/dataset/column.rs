//! One column of many rows, read for what it says about the rows: their class, their weight, their side of a split.

mod class;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type};
use arrow_array::{Array, ArrayRef, UInt32Array, make_array};
use arrow_buffer::NullBuffer;
use arrow_cast::cast;
use arrow_schema::DataType;
use arrow_select::take::take;

pub use self::class::{Class, Labels};

use self::class::{BOOL, BYTES, INT, TEXT};
use super::Dataset;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_index::RowGroupEntry;
use rowdex_order::id_set::Builder;
use rowdex_order::{IdSet, Side, Split};

/// A type that has all integers.
const INTEGERS: DataType = DataType::Decimal128(38, 0);

/// One column of a dataset, from [`Dataset::column`]: what orders by class or weight, and splits by key, need to know.
///
/// Reading decodes the column of every row group that has one of the rows, once, on the dataset's threads and past
/// its cache.
#[derive(Debug, Clone)]
#[must_use]
pub struct Column<'a> {
    dataset: &'a Dataset,
    name: String,
    rows: Option<&'a IdSet>,
}

impl Dataset {
    /// One column by name, a dotted path for a nested one. It need not be among the columns that the dataset serves.
    pub fn column(&self, name: impl Into<String>) -> Column<'_> {
        Column { dataset: self, name: name.into(), rows: None }
    }
}

impl<'a> Column<'a> {
    /// Only these rows, out of all rows of the dataset: what others have in the column does not matter.
    pub fn of(self, rows: &'a IdSet) -> Self {
        Self { rows: Some(rows), ..self }
    }

    /// The classes of the rows, in order: equal values are one class. Integers, dates, booleans, strings and binary,
    /// and dictionaries of them. 4 bytes a row.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if there is no such column, or if a row has no value; [`ErrorKind::Schema`] if
    /// the column is of another type; and those of reading. They name file, row group and column.
    pub fn labels(&self) -> Result<Labels> {
        let mut codes = Vec::new();
        self.reserve(&mut codes)?;
        let mut known = KnownClasses::default();
        self.each_value("label", |_, key| {
            codes.push(known.code(key)?);
            Ok(())
        })?;
        Ok(Labels::sorted(codes, known.classes))
    }

    /// How many rows each class has, ascending by value, and last how many have no value, if any. Types as for
    /// [`labels`](Self::labels). Memory is in proportion to the classes.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if there is no such column; [`ErrorKind::Schema`] if the column is of another
    /// type; and those of reading.
    pub fn counts(&self) -> Result<Vec<(Option<Class>, u64)>> {
        let mut known = KnownClasses::default();
        let mut counts: Vec<u64> = Vec::new();
        let mut nulls = 0;
        self.each_optional("label", |_, key| {
            let Some(key) = key else {
                nulls += 1;
                return Ok(());
            };
            match counts.get_mut(known.code(key)? as usize) {
                Some(count) => *count += 1,
                None => counts.push(1),
            }
            Ok(())
        })?;
        let mut counts: Vec<(Class, u64)> = known.classes.into_iter().zip(counts).collect();
        counts.sort();
        let counts = counts.into_iter().map(|(class, count)| (Some(class), count));
        Ok(counts.chain((nulls > 0).then_some((None, nulls))).collect())
    }

    /// The weights of the rows, in order: any numbers that are finite and not negative. 8 bytes a row.
    ///
    /// # Errors
    /// As [`labels`](Self::labels), and [`ErrorKind::InvalidArgument`] for another number.
    pub fn weights(&self) -> Result<Vec<f64>> {
        let mut weights = Vec::new();
        self.reserve(&mut weights)?;
        self.each_array(|entry, ids, array| {
            let numeric = array.data_type().is_numeric() || array.data_type() == &DataType::Boolean;
            if !numeric {
                return Err(self.unfit(&array, "weight", "numbers or booleans"));
            }
            let numbers = cast(&array, &DataType::Float64).map_err(|error| self.unreadable(error))?;
            for (at, weight) in numbers.as_primitive::<Float64Type>().iter().enumerate() {
                match weight {
                    Some(weight) if weight.is_finite() && weight >= 0.0 => weights.push(weight),
                    Some(weight) => {
                        let message = format!("row id {} has the weight {weight}", ids.id(&entry, at));
                        return Err(Error::new(ErrorKind::InvalidArgument, message)
                            .with_hint("weights are finite and not negative; 0 leaves a row out"));
                    }
                    None => return Err(missing("weight", ids.id(&entry, at))),
                }
            }
            Ok(())
        })?;
        Ok(weights)
    }

    /// The rows whose value is on this side of the split. Rows with equal values are on one side, in all files and for
    /// any width or encoding of their columns. Types as for [`labels`](Self::labels).
    ///
    /// # Errors
    /// As [`labels`](Self::labels).
    pub fn split(&self, split: &Split, side: Side) -> Result<IdSet> {
        let mut set = Builder::new(self.dataset.len());
        self.each_value("key", |id, key| if split.side(key) == side { set.add(id..id + 1) } else { Ok(()) })?;
        Ok(set.finish())
    }

    fn len(&self) -> u64 {
        self.rows.map_or(self.dataset.len(), IdSet::len)
    }

    fn reserve<T>(&self, values: &mut Vec<T>) -> Result<()> {
        let len = self.len();
        let reserved = usize::try_from(len).is_ok_and(|len| values.try_reserve_exact(len).is_ok());
        if reserved { Ok(()) } else { Err(Error::new(ErrorKind::TooLarge, format!("no memory for {len} values"))) }
    }

    /// Calls `each` with row id and value of every row, in order, the value as its canonical bytes. `what` says in
    /// errors what a value is: `label`.
    fn each_value(&self, what: &str, mut each: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        self.each_optional(what, |id, value| each(id, value.ok_or_else(|| missing(what, id))?))
    }

    /// As [`each_value`](Self::each_value), with rows that have no value.
    fn each_optional(&self, what: &str, mut each: impl FnMut(u64, Option<&[u8]>) -> Result<()>) -> Result<()> {
        let mut key = Vec::new();
        self.each_array(|entry, ids, array| {
            let data_type = match array.data_type() {
                DataType::Dictionary(_, values) => values.as_ref(),
                other => other,
            };
            let plain = match data_type {
                DataType::Boolean => DataType::Boolean,
                DataType::Date32 => DataType::Int32,
                integer if integer.is_integer() => INTEGERS,
                DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::LargeUtf8,
                DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
                    DataType::LargeBinary
                }
                _ => return Err(self.unfit(&array, what, "integers, booleans, dates, strings or binary")),
            };
            let mut values = cast(&array, &plain).map_err(|error| self.unreadable(error))?;
            if plain == DataType::Int32 {
                values = cast(&values, &INTEGERS).map_err(|error| self.unreadable(error))?;
            }
            let nulls = values.logical_nulls();
            for at in 0..values.len() {
                if nulls.as_ref().is_some_and(|nulls| nulls.is_null(at)) {
                    each(ids.id(&entry, at), None)?;
                    continue;
                }
                let mut write = |kind: u8, value: &[u8]| {
                    key.clear();
                    key.push(kind);
                    key.extend_from_slice(value);
                };
                match values.data_type() {
                    DataType::Boolean => write(BOOL, &[values.as_boolean().value(at).into()]),
                    DataType::Decimal128(..) => {
                        write(INT, &values.as_primitive::<Decimal128Type>().value(at).to_le_bytes());
                    }
                    DataType::LargeUtf8 => write(TEXT, values.as_string::<i64>().value(at).as_bytes()),
                    _ => write(BYTES, values.as_binary::<i64>().value(at)),
                }
                each(ids.id(&entry, at), Some(&key))?;
            }
            Ok(())
        })
    }

    /// Calls `each` with the wanted rows of every row group that has any, in order.
    fn each_array(&self, mut each: impl FnMut(RowGroupEntry<'_>, FoundIds<'_>, ArrayRef) -> Result<()>) -> Result<()> {
        let ids = FoundIds::of(self.dataset, self.rows)?;
        let reader = self.dataset.with_other_columns(&[&self.name])?;
        let wanted = ids.row_groups(self.dataset);
        let read = |entry: &RowGroupEntry<'_>| {
            let batch = reader.read_whole(entry.index())?;
            let array = batch.columns().first().cloned();
            array.ok_or_else(|| Error::new(ErrorKind::Internal, "a column that was chosen is not there"))
        };
        // Only a few row groups at a time are in memory.
        for entries in wanted.chunks(reader.inner.threads.max(1)) {
            for (entry, array) in entries.iter().zip(reader.each_row_group(entries, read)?) {
                let picked = ids.pick(entry, array?).and_then(leaf).map_err(|error| self.unreadable(error));
                let checked = picked.and_then(|array| each(*entry, ids, array));
                checked.map_err(|error| self.dataset.located(error.with_column(&self.name), entry.index()))?;
            }
        }
        Ok(())
    }

    fn unfit(&self, array: &ArrayRef, what: &str, fit: &str) -> Error {
        Error::new(ErrorKind::Schema, format!("a value of type {} can not be a {what}", array.data_type()))
            .with_column(&self.name)
            .with_hint(format!("use a column of {fit}"))
    }

    fn unreadable(&self, error: arrow_schema::ArrowError) -> Error {
        Error::new(ErrorKind::Schema, format!("cannot read the values: {error}"))
            .with_column(&self.name)
            .with_source(error)
    }
}

fn missing(what: &str, id: u64) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("row id {id} has no {what}"))
        .with_hint("give it one, or leave out the rows that have none")
}

/// What a dotted path led to: structs of one field are looked through, and what a struct has not, its field has not.
fn leaf(array: ArrayRef) -> Result<ArrayRef, arrow_schema::ArrowError> {
    let Some(fields) = array.as_struct_opt().filter(|fields| fields.num_columns() == 1) else { return Ok(array) };
    let nulls = NullBuffer::union(fields.nulls(), fields.column(0).nulls());
    leaf(make_array(fields.column(0).to_data().into_builder().nulls(nulls).build()?))
}

/// Classes in the order in which they came.
#[derive(Default)]
struct KnownClasses {
    codes: HashMap<Vec<u8>, u32>,
    classes: Vec<Class>,
    /// Neighbours are often of one class.
    last: Option<(Vec<u8>, u32)>,
}

impl KnownClasses {
    /// The place of the class that has these canonical bytes.
    fn code(&mut self, key: &[u8]) -> Result<u32> {
        if let Some((_, code)) = self.last.as_ref().filter(|(of, _)| of == key) {
            return Ok(*code);
        }
        let code = match self.codes.get(key) {
            Some(code) => *code,
            None => {
                let code = u32::try_from(self.classes.len())
                    .map_err(|_| Error::new(ErrorKind::TooLarge, "more than 2^32 classes"))?;
                self.classes.push(Class::of(key));
                self.codes.insert(key.to_owned(), code);
                code
            }
        };
        self.last = Some((key.to_owned(), code));
        Ok(code)
    }
}

/// Which rows are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct FoundIds<'a>(Option<&'a IdSet>);

impl<'a> FoundIds<'a> {
    /// These, or all rows of the dataset.
    pub(super) fn of(dataset: &Dataset, rows: Option<&'a IdSet>) -> Result<Self> {
        let Some(other) = rows.filter(|rows| rows.rows() != dataset.len()) else { return Ok(Self(rows)) };
        let message = format!("a set out of {} rows for a dataset of {}", other.rows(), dataset.len());
        Err(Error::new(ErrorKind::InvalidArgument, message))
    }

    /// The row groups that have some.
    pub(super) fn row_groups(self, dataset: &Dataset) -> Vec<RowGroupEntry<'_>> {
        dataset.index().row_groups().filter(|entry| self.count(entry) > 0).collect()
    }

    /// How many of a row group.
    pub(super) fn count(self, entry: &RowGroupEntry<'_>) -> u64 {
        let ids = entry.row_ids();
        self.0.map_or(entry.rows(), |set| set.rank(ids.end) - set.rank(ids.start))
    }

    /// The row id of the `at`-th one of a row group.
    pub(super) fn id(self, entry: &RowGroupEntry<'_>, at: usize) -> u64 {
        let all = entry.first_row() + at as u64;
        self.0.map_or(all, |set| set.select(set.rank(entry.first_row()) + at as u64).unwrap_or(all))
    }

    /// Their slots in a row group, in order.
    pub(super) fn slots(self, entry: &RowGroupEntry<'_>) -> impl Iterator<Item = u32> {
        (0..self.count(entry) as usize).map(move |at| (self.id(entry, at) - entry.first_row()) as u32)
    }

    /// Those of a whole row group's values.
    fn pick(self, entry: &RowGroupEntry<'_>, values: ArrayRef) -> Result<ArrayRef, arrow_schema::ArrowError> {
        if self.count(entry) == entry.rows() {
            return Ok(values);
        }
        take(&values, &UInt32Array::from_iter_values(self.slots(entry)), None)
    }
}
