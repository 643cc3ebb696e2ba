//! Weights of rows in a list beside the data: what an engine worked out, for orders that draw by weight.

use std::path::Path;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;

use super::{Each, Index, table};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::IdSet;

impl Index {
    /// The weights that a list has in one of its columns, by row id: what
    /// [`Recipe::weighted`](rowdex_order::Recipe::weighted) takes.
    ///
    /// The list is a table or a folder of tables, as [`read_rows`](Self::read_rows) takes it, in any order. Rows that
    /// the index does not serve are passed over, so the list that a view was made with will do. A row id is one of
    /// this index: give a list by row id to the index that it is of, with the rows that are kept as `of`. With `of`
    /// the weights of these rows are given, in order. 8 bytes a row of the index.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the list has no such column, for a weight that is negative, infinite or not a
    /// number, for a row that is listed twice, and for a row without a weight; those of
    /// [`read_rows`](Self::read_rows). They name the list.
    pub fn read_weights(&self, list: impl AsRef<Path>, column: &str, of: Option<&IdSet>) -> Result<Vec<f64>> {
        let list = list.as_ref();
        let read = || match table::is_table(list) {
            true => self.weighed(|each| table::read(list, Some(column), each), column, of),
            false => Err(Error::new(ErrorKind::InvalidArgument, "a list with weights is a table")
                .with_hint("write a .csv or a .parquet file, or a folder of these")),
        };
        read().map_err(|error: Error| error.with_file(list.display().to_string()))
    }

    /// As [`read_weights`](Self::read_weights), of record batches from any engine that speaks Arrow.
    ///
    /// # Errors
    /// As for [`read_weights`](Self::read_weights), and those of the batches.
    pub fn read_weights_of(
        &self,
        batches: impl IntoIterator<Item = Result<RecordBatch, ArrowError>>,
        column: &str,
        of: Option<&IdSet>,
    ) -> Result<Vec<f64>> {
        self.weighed(|each| table::read_batches(batches, Some(column), each), column, of)
    }

    fn weighed(&self, read: impl FnOnce(Each<'_>) -> Result<()>, column: &str, of: Option<&IdSet>) -> Result<Vec<f64>> {
        let wrong = |message: String, hint: &'static str| {
            Error::new(ErrorKind::InvalidArgument, message).with_column(column).with_hint(hint)
        };
        if let Some(of) = of.filter(|of| of.rows() != self.len()) {
            let message = format!("a set out of {} rows for an index of {}", of.rows(), self.len());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let too_large = || Error::new(ErrorKind::TooLarge, format!("no memory for {} weights", self.len()));
        let rows = usize::try_from(self.len()).map_err(|_| too_large())?;
        let mut weights: Vec<f64> = Vec::new();
        weights.try_reserve_exact(rows).map_err(|_| too_large())?;
        // No weight is NaN.
        weights.resize(rows, f64::NAN);
        self.visit(read, |id, weight| {
            let (Some(id), Some(weight)) = (id, weight) else { return Ok(()) };
            if !(weight.is_finite() && weight >= 0.0) {
                return Err(wrong(
                    format!("row id {id} has the weight {weight}"),
                    "weights are finite and not negative; 0 leaves a row out",
                ));
            }
            match weights.get_mut(id as usize) {
                Some(place) if place.is_nan() => *place = weight,
                _ => return Err(wrong(format!("row id {id} is listed twice"), "give each row one weight")),
            }
            Ok(())
        })?;
        if let Some(of) = of {
            // Ascending, so that none is overwritten before it is moved.
            for (to, id) in of.iter().enumerate() {
                if let Some(weight) = weights.get(id as usize).copied() {
                    weights[to] = weight;
                }
            }
            weights.truncate(usize::try_from(of.len()).map_err(|_| too_large())?);
        }
        match weights.iter().position(|weight| weight.is_nan()) {
            None => Ok(weights),
            Some(at) => {
                let id = of.map_or(Some(at as u64), |of| of.select(at as u64)).unwrap_or_default();
                Err(wrong(
                    format!("row id {id} is not listed, and so has no weight"),
                    "list it, or leave it out (`select --rows` with the same list does)",
                ))
            }
        }
    }
}
