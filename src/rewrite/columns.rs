//! The columns of the output: the types in which rows are spilled and encoded, and those that the files declare.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};

use crate::dataset::Dataset;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_parquet::finish;
use rowdex_projection::{Projection, children, with_children};
use rowdex_rows::record_batch;

/// The columns of the output, with one for the row ids if that was asked for.
#[derive(Debug, Clone)]
pub(super) struct OutputColumns {
    /// What the dataset serves.
    served: SchemaRef,
    /// The same without dictionaries, whose values would come along with every part of the rows, and without types that
    /// the parquet crate cannot encode.
    pub(super) plain: SchemaRef,
    /// As [`plain`](Self::plain), with the column of row ids.
    pub(super) encoded: SchemaRef,
    /// What the files say that they have: the types that are served, with dictionaries, whose keys are those of the
    /// input if they are enough.
    pub(super) declared: SchemaRef,
    has_origin: bool,
}

impl OutputColumns {
    /// # Errors
    /// `InvalidArgument` if there is none, and if the column of row ids has the name of another.
    pub(super) fn new(dataset: &Dataset, origin: Option<&str>) -> Result<Self> {
        let served = dataset.schema();
        if let Some(name) = origin.filter(|name| served.fields().iter().any(|field| field.name() == name)) {
            return Err(Error::new(ErrorKind::InvalidArgument, "the column of row ids has the name of a column")
                .with_column(name)
                .with_hint("give it another name"));
        }
        if served.fields().is_empty() && origin.is_none() {
            return Err(Error::new(ErrorKind::InvalidArgument, "there is no column to write")
                .with_hint("choose at least one, or add one with row ids"));
        }
        let plain: Vec<FieldRef> = served.fields().iter().map(plain_field).collect();
        let with_origin = |fields: &[FieldRef]| {
            let origin = origin.map(|name| Arc::new(Field::new(name, DataType::UInt64, false)));
            let fields: Vec<FieldRef> = fields.iter().cloned().chain(origin).collect();
            Arc::new(Schema::new_with_metadata(fields, served.metadata().clone()))
        };
        Ok(Self {
            served: Arc::clone(served),
            encoded: with_origin(&plain),
            declared: with_origin(&declared(dataset)),
            plain: Arc::new(Schema::new(plain)),
            has_origin: origin.is_some(),
        })
    }

    /// Rows that were decoded, in the types in which they are spilled.
    pub(super) fn plain_of(&self, decoded: &RecordBatch) -> Result<RecordBatch> {
        let served = finish(decoded, &self.served)?;
        let columns = served.columns().iter().zip(self.plain.fields());
        let columns: Result<Vec<ArrayRef>> = columns.map(|(column, field)| plain(column, field)).collect();
        record_batch(&self.plain, columns?, served.num_rows()).map_err(rowdex_rows::uncopied)
    }

    /// Rows to encode, with their row ids if these are wanted.
    pub(super) fn encoded_of(&self, rows: &RecordBatch, ids: impl FnOnce() -> Vec<u64>) -> Result<RecordBatch> {
        let ids = self.has_origin.then(|| Arc::new(UInt64Array::from(ids())) as ArrayRef);
        let columns = rows.columns().iter().cloned().chain(ids).collect();
        record_batch(&self.encoded, columns, rows.num_rows()).map_err(rowdex_rows::uncopied)
    }
}

/// The types that rows are decoded to.
pub(super) fn as_read(dataset: &Dataset) -> &Projection {
    // Entries of the disk tier are of the other types.
    if dataset.has_disk_tier() { dataset.projection() } else { dataset.projection_in_order() }
}

fn plain(column: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    if column.data_type() == field.data_type() {
        return Ok(Arc::clone(column));
    }
    let to = |column: &ArrayRef, data_type: &DataType| {
        cast(column, data_type).map_err(|error| {
            let message = format!("{} cannot be brought to {data_type}: {error}", column.data_type());
            Error::new(ErrorKind::Schema, message).with_column(field.name()).with_source(error)
        })
    };
    let plain = to(column, field.data_type())?;
    // Dictionaries have values in any order, so what they stand for is compared.
    let spelled = if has_days(column.data_type()) { to(column, &spelled(column.data_type()))? } else { plain.clone() };
    if has_days(column.data_type()) && to(&plain, spelled.data_type())?.as_ref() != spelled.as_ref() {
        return Err(Error::new(ErrorKind::Schema, "a date has a time of day, which would be lost")
            .with_column(field.name())
            .with_hint("leave the column out, or write it as a timestamp first"));
    }
    Ok(plain)
}

/// Whether days are counted in milliseconds somewhere.
fn has_days(data_type: &DataType) -> bool {
    match data_type {
        DataType::Date64 => true,
        DataType::Dictionary(_, values) => has_days(values),
        other => children(other).iter().any(|field| has_days(field.data_type())),
    }
}

/// The type of the values that dictionaries stand for.
fn spelled(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, values) => values.as_ref().clone(),
        other if children(other).is_empty() => other.clone(),
        other => {
            let below = |field: &FieldRef| Arc::new(field.as_ref().clone().with_data_type(spelled(field.data_type())));
            with_children(other, children(other).iter().map(below).collect())
        }
    }
}

/// The fields that the output says that it has.
fn declared(dataset: &Dataset) -> Vec<FieldRef> {
    let served = dataset.schema().fields();
    let index = dataset.index();
    // The values of several row groups together may be too many for the keys that each of them has.
    if index.num_row_groups() > 1 {
        return served.iter().map(readable).collect();
    }
    let input = index.schema().fields();
    let places = dataset.projection().places_in(input);
    let of_input = places.into_iter().map(|place| place.and_then(|place| input.get(place)));
    let keyed = served.iter().zip(of_input).map(|(field, input)| match input {
        Some(input) => keyed(field, input),
        None => Arc::clone(field),
    });
    keyed.map(|field| readable(&field)).collect()
}

/// The field in types that are read again from what is encoded.
fn readable(field: &FieldRef) -> FieldRef {
    Arc::new(field.as_ref().clone().with_data_type(read_again(field.data_type())))
}

fn read_again(data_type: &DataType) -> DataType {
    match data_type {
        // The crate stores one digit in 64 bits, and takes them from and for no decimal of 32.
        DataType::Decimal32(1, scale) => DataType::Decimal64(1, *scale),
        DataType::Dictionary(keys, values) => DataType::Dictionary(keys.clone(), Box::new(read_again(values))),
        other if children(other).is_empty() => other.clone(),
        other => with_children(other, children(other).iter().map(readable).collect()),
    }
}

/// A field with the keys of dictionaries that another has, of which it has all or some of the fields below.
fn keyed(field: &FieldRef, input: &FieldRef) -> FieldRef {
    let data_type = match (field.data_type(), input.data_type()) {
        (DataType::Dictionary(..), DataType::Dictionary(..)) => input.data_type().clone(),
        (other, of_input) => {
            let is_struct = matches!(other, DataType::Struct(_));
            let same = |child: &FieldRef, at: usize| match is_struct {
                true => children(of_input).iter().find(|input| input.name() == child.name()),
                false => children(of_input).get(at),
            };
            let below = children(other).iter().enumerate();
            let below: Vec<FieldRef> = below
                .map(|(at, child)| same(child, at).map_or_else(|| child.clone(), |input| keyed(child, input)))
                .collect();
            if below.is_empty() { other.clone() } else { with_children(other, below) }
        }
    };
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}

/// The field with the values of its dictionaries in their place.
fn plain_field(field: &FieldRef) -> FieldRef {
    match plain_type(field.data_type()) {
        same if same == *field.data_type() => Arc::clone(field),
        plain => Arc::new(field.as_ref().clone().with_data_type(plain)),
    }
}

fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, values) => plain_type(values),
        digit @ DataType::Decimal32(1, _) => read_again(digit),
        // As others store it, who read 64 bits as an integer.
        DataType::Date64 => DataType::Date32,
        other if children(other).is_empty() => other.clone(),
        other => with_children(other, children(other).iter().map(plain_field).collect()),
    }
}
