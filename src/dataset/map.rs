//! What any map-style dataset does.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::Dataset;
use rowdex_base::error::Result;
#[cfg(feature = "serde")]
use rowdex_base::error::{Error, ErrorKind};

/// A fixed number of rows, each readable by its row id in any order, from any thread.
///
/// The same row id gives the same row for as long as the value lives.
pub trait MapDataset: Send + Sync {
    /// How many rows there are; row ids are `0..len`.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The schema of every batch.
    fn schema(&self) -> &SchemaRef;

    /// One row, as a batch of one row.
    ///
    /// # Errors
    /// [`OutOfRange`](ErrorKind::OutOfRange) at `len` and beyond, and the errors of reading it.
    fn get(&self, row: u64) -> Result<RecordBatch>;

    /// Rows in the order asked; row ids may repeat.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn take(&self, rows: &[u64]) -> Result<RecordBatch>;

    /// One row as a value of the caller's type, whose fields are named as the columns are.
    ///
    /// # Errors
    /// As [`get`](Self::get), and [`Schema`](ErrorKind::Schema) where the columns do not make a `T`.
    #[cfg(feature = "serde")]
    fn get_as<T: serde::de::DeserializeOwned>(&self, row: u64) -> Result<T>
    where
        Self: Sized,
    {
        let mut items = deserialize(&self.get(row)?)?;
        items.pop().ok_or_else(|| Error::new(ErrorKind::Internal, "a batch of one row made no value"))
    }

    /// Rows in the order asked, as values of the caller's type.
    ///
    /// # Errors
    /// As [`get_as`](Self::get_as).
    #[cfg(feature = "serde")]
    fn take_as<T: serde::de::DeserializeOwned>(&self, rows: &[u64]) -> Result<Vec<T>>
    where
        Self: Sized,
    {
        deserialize(&self.take(rows)?)
    }
}

impl MapDataset for Dataset {
    fn len(&self) -> u64 {
        Dataset::len(self)
    }

    fn schema(&self) -> &SchemaRef {
        Dataset::schema(self)
    }

    fn get(&self, row: u64) -> Result<RecordBatch> {
        Dataset::get(self, row)
    }

    fn take(&self, rows: &[u64]) -> Result<RecordBatch> {
        Dataset::take(self, rows)
    }
}

#[cfg(feature = "serde")]
fn deserialize<T: serde::de::DeserializeOwned>(batch: &RecordBatch) -> Result<Vec<T>> {
    serde_arrow::from_record_batch(batch).map_err(|error| {
        Error::new(ErrorKind::Schema, format!("the columns do not make the type asked for: {error}"))
            .with_hint("choose columns, or change the type's fields, so that names and types match")
            .with_source(error)
    })
}
