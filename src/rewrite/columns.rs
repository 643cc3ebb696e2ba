//! The columns of the output: the types in which rows are spilled and encoded, and those that the files declare.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};

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
    /// What the files say that they have: the types that are served, with dictionaries.
    pub(super) declared: SchemaRef,
}

impl OutputColumns {
    /// # Errors
    /// `InvalidArgument` if there is none, and if the column of row ids has the name of another.
    pub(super) fn new(dataset: &Dataset, origin: Option<&str>) -> Result<Self> {
        let served = dataset.schema();
        if let Some(name) = origin.filter(|name| served.fields().iter().any(|field| field.name() == name)) {
            return Err(Error::invalid("the column of row ids has the name of a column")
                .with_column(name)
                .with_hint("give it another name"));
        }
        if served.fields().is_empty() && origin.is_none() {
            return Err(
                Error::invalid("there is no column to write").with_hint("choose at least one, or add one with row ids")
            );
        }
        let fields = |change: &dyn Fn(&DataType) -> Option<DataType>| -> Vec<FieldRef> {
            served.fields().iter().map(|field| Arc::new(mapped_field(field, change))).collect()
        };
        let plain = fields(&as_plain);
        let with_origin = |fields: &[FieldRef]| {
            let origin = origin.map(|name| Arc::new(Field::new(name, DataType::UInt64, false)));
            let fields: Vec<FieldRef> = fields.iter().cloned().chain(origin).collect();
            Arc::new(Schema::new_with_metadata(fields, served.metadata().clone()))
        };
        Ok(Self {
            served: Arc::clone(served),
            encoded: with_origin(&plain),
            declared: with_origin(&fields(&read_again)),
            plain: Arc::new(Schema::new(plain)),
        })
    }

    /// Rows that were decoded, in the types in which they are spilled.
    pub(super) fn plain_of(&self, decoded: &RecordBatch) -> Result<RecordBatch> {
        let served = finish(decoded, &self.served)?;
        let columns = served.columns().iter().zip(self.plain.fields());
        let columns: Result<Vec<ArrayRef>> = columns.map(|(column, field)| plain(column, field)).collect();
        record_batch(&self.plain, columns?, served.num_rows()).map_err(rowdex_rows::uncopied)
    }
}

/// The types that rows are decoded to.
pub(super) fn as_read(dataset: &Dataset) -> &Projection {
    // Entries of the disk cache are of the other types.
    if dataset.has_disk_cache() { dataset.projection() } else { dataset.projection_in_order() }
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
    let spelled = mapped(column.data_type(), &spelled);
    if mapped(&spelled, &in_days) != spelled && to(&plain, &spelled)? != to(column, &spelled)? {
        return Err(Error::new(ErrorKind::Schema, "a date has a time of day, which would be lost")
            .with_column(field.name())
            .with_hint("leave the column out, or write it as a timestamp first"));
    }
    Ok(plain)
}

/// A type with others in the place of some of what it is made of.
fn mapped(data_type: &DataType, change: &dyn Fn(&DataType) -> Option<DataType>) -> DataType {
    if let Some(changed) = change(data_type) {
        return changed;
    }
    let below = |field: &FieldRef| Arc::new(mapped_field(field, change));
    match data_type {
        DataType::Dictionary(keys, values) => DataType::Dictionary(keys.clone(), Box::new(mapped(values, change))),
        other if children(other).is_empty() => other.clone(),
        other => with_children(other, children(other).iter().map(below).collect()),
    }
}

fn mapped_field(field: &Field, change: &dyn Fn(&DataType) -> Option<DataType>) -> Field {
    field.clone().with_data_type(mapped(field.data_type(), change))
}

/// The type in which rows are spilled and encoded.
fn as_plain(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::Dictionary(_, values) => Some(mapped(values, &as_plain)),
        other => in_days(other).or_else(|| read_again(other)),
    }
}

/// The type of the values that a dictionary stands for.
fn spelled(data_type: &DataType) -> Option<DataType> {
    if let DataType::Dictionary(_, values) = data_type { Some(mapped(values, &spelled)) } else { None }
}

/// Days as others store them, who read 64 bits as an integer.
fn in_days(data_type: &DataType) -> Option<DataType> {
    (*data_type == DataType::Date64).then_some(DataType::Date32)
}

/// The parquet crate stores one digit in 64 bits, and takes them from and for no decimal of 32.
fn read_again(data_type: &DataType) -> Option<DataType> {
    if let DataType::Decimal32(1, scale) = data_type { Some(DataType::Decimal64(1, *scale)) } else { None }
}
