//! Several datasets as one.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Field, Schema, SchemaRef};

use super::gather::gather;
use super::{Dataset, MapDataset};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::MAX_LEN;
use rowdex_parquet::finish;

/// Several datasets of the same columns as one: the row ids of a dataset follow those of the ones before.
///
/// Each keeps its own cache, threads and options. Cheap to clone. What comes how often is the business of an order,
/// [`Mixed`](rowdex_order::Mixed), which numbers rows in the same way; a [`Loader`](crate::loader::Loader) takes a
/// mixed dataset as it takes a plain one.
///
/// ```no_run
/// use std::sync::Arc;
/// use rowdex::dataset::MixedDataset;
/// use rowdex::order::{Global, Mixed, MixedPart};
/// use rowdex::{Dataset, DistributedSampler, Loader, Shard};
///
/// # fn main() -> rowdex::Result<()> {
/// let datasets = [Dataset::open("web.rdx")?, Dataset::open("code.rdx")?];
/// let part = |at: usize, seed, proportion| {
///     let rows = datasets[at].len();
///     Ok::<_, rowdex::Error>(MixedPart::new(Arc::new(Global::new(rows, seed)?), rows, proportion))
/// };
/// let orders = Mixed::new([part(0, 1, 0.8)?, part(1, 2, 0.2)?], 1_000_000, 42)?; // rows an epoch, seed
/// let dataset = MixedDataset::new(datasets.clone())?;
/// let sampler = DistributedSampler::new(Arc::new(orders), Shard::new(0, 8)?, 256)?;
/// let mut loader = Loader::builder(&dataset, sampler).memory(4 << 30).build()?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct MixedDataset {
    datasets: Arc<[Dataset]>,
    /// The row id that each dataset begins at, and the number of all rows.
    starts: Arc<[u64]>,
    schema: SchemaRef,
}

impl MixedDataset {
    /// These datasets, one after the other.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if there are none, or if they have more than [`MAX_LEN`] rows or 2^32 row
    /// groups together; [`ErrorKind::Schema`] if they do not serve columns of the same names and types in the same
    /// order.
    pub fn new(datasets: impl IntoIterator<Item = Dataset>) -> Result<Self> {
        let datasets: Arc<[Dataset]> = datasets.into_iter().collect();
        let schema = common_schema(datasets.iter().map(Dataset::schema))?;
        let too_many =
            |what: &str| Error::new(ErrorKind::InvalidArgument, format!("the datasets have too many {what}"));
        let mut starts = Vec::with_capacity(datasets.len() + 1);
        let mut rows = 0_u64;
        let mut groups = 0_u32;
        for dataset in datasets.iter() {
            starts.push(rows);
            rows = rows.checked_add(dataset.len()).filter(|rows| *rows <= MAX_LEN).ok_or_else(|| too_many("rows"))?;
            groups = groups.checked_add(dataset.index().num_row_groups()).ok_or_else(|| too_many("row groups"))?;
        }
        starts.push(rows);
        Ok(Self { datasets, starts: starts.into(), schema })
    }

    /// The datasets, in order.
    pub fn datasets(&self) -> &[Dataset] {
        &self.datasets
    }

    /// How many rows there are; row ids are `0..len`.
    pub fn len(&self) -> u64 {
        self.starts.last().copied().unwrap_or_default()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The schema of every batch: the columns of the first dataset, nullable where they are in any.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Which dataset has a row, and its row id there; `None` at `len` and beyond.
    pub fn locate(&self, row: u64) -> Option<(usize, u64)> {
        if row >= self.len() {
            return None;
        }
        // The first dataset begins at 0, so one always does. Of several that begin at the row, all but the last are
        // empty.
        let dataset = self.starts.partition_point(|start| *start <= row).checked_sub(1)?;
        Some((dataset, row - self.starts.get(dataset)?))
    }

    /// One row, as [`Dataset::get`] gives it.
    ///
    /// # Errors
    /// As [`Dataset::get`].
    pub fn get(&self, row: u64) -> Result<RecordBatch> {
        let (number, own) = self.locate(row).ok_or_else(|| self.out_of_range(row))?;
        let dataset = self.datasets.get(number).ok_or_else(|| self.out_of_range(row))?;
        finish(&dataset.get(own).map_err(|error| error.within_dataset(number))?, &self.schema)
    }

    /// The rows in the order asked, as [`Dataset::take`] gives them. Each dataset is asked once.
    ///
    /// # Errors
    /// As [`Dataset::take`].
    pub fn take(&self, rows: &[u64]) -> Result<RecordBatch> {
        let mut wanted: Vec<Vec<u64>> = vec![Vec::new(); self.datasets.len()];
        let mut places = Vec::with_capacity(rows.len());
        for &row in rows {
            let (number, own) = self.locate(row).ok_or_else(|| self.out_of_range(row))?;
            let list = wanted.get_mut(number).ok_or_else(|| self.out_of_range(row))?;
            places.push((number as u32, list.len() as u32));
            list.push(own);
        }
        let taken = self.datasets.iter().zip(&wanted).enumerate().map(|(number, (dataset, rows))| {
            let batch = dataset.take(rows).map_err(|error| error.within_dataset(number))?;
            finish(&batch, &self.schema)
        });
        let taken = taken.collect::<Result<Vec<_>>>()?;
        let mut asked = taken.iter().zip(&wanted).filter(|(_, rows)| !rows.is_empty());
        match (asked.next(), asked.next()) {
            (Some((only, _)), None) => Ok(only.clone()),
            _ => gather(&taken.iter().collect::<Vec<_>>(), &places, &self.schema),
        }
    }

    fn out_of_range(&self, row: u64) -> Error {
        let len = self.len();
        Error::new(ErrorKind::OutOfRange, format!("row id {row} of {} datasets of {len} rows", self.datasets.len()))
            .with_row_ids(len)
    }
}

impl MapDataset for MixedDataset {
    fn len(&self) -> u64 {
        MixedDataset::len(self)
    }

    fn schema(&self) -> &SchemaRef {
        MixedDataset::schema(self)
    }

    fn get(&self, row: u64) -> Result<RecordBatch> {
        MixedDataset::get(self, row)
    }

    fn take(&self, rows: &[u64]) -> Result<RecordBatch> {
        MixedDataset::take(self, rows)
    }
}

/// The first schema, with fields nullable that are in any. The others must have the same names and types.
pub(crate) fn common_schema<'a>(mut schemas: impl Iterator<Item = &'a SchemaRef>) -> Result<SchemaRef> {
    let first = schemas.next();
    let first = first.ok_or_else(|| Error::new(ErrorKind::InvalidArgument, "a mixture of no datasets"))?;
    let mut fields: Vec<Field> = first.fields().iter().map(|field| field.as_ref().clone()).collect();
    for (number, schema) in (1..).zip(schemas) {
        let differ = |message: String| {
            Error::new(ErrorKind::Schema, message)
                .with_hint("choose the same columns, in the same order, from every dataset")
        };
        if schema.fields().len() != fields.len() {
            let counts = (fields.len(), schema.fields().len());
            return Err(differ(format!("{} columns in dataset 0 and {} in dataset {number}", counts.0, counts.1)));
        }
        for (ours, theirs) in fields.iter_mut().zip(schema.fields()) {
            if ours.name() != theirs.name() {
                let ours = ours.name();
                let theirs = theirs.name();
                return Err(differ(format!("called {ours:?} in dataset 0 and {theirs:?} in dataset {number}"))
                    .with_column(ours.as_str()));
            }
            if ours.data_type() != theirs.data_type() {
                let types = format!("{} in dataset 0 and {} in dataset {number}", ours.data_type(), theirs.data_type());
                return Err(differ(types).with_column(ours.name().as_str()));
            }
            ours.set_nullable(ours.is_nullable() || theirs.is_nullable());
        }
    }
    Ok(Arc::new(Schema::new_with_metadata(fields, first.metadata().clone())))
}
