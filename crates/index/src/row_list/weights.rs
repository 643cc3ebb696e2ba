//! Numbers of rows in a list beside the data: weights that an engine worked out, for orders that draw by weight, and
//! lengths that a tokenizer found.

use std::path::Path;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;

use super::{Each, Index, table};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_order::IdSet;

/// No length is as large; all below are told exactly.
const MAX_LENGTH: f64 = (1_u64 << 40) as f64;

fn no_table(of: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("a list with {of} is a table"))
        .with_hint("write a .csv, .parquet or .arrow file, or a folder of these")
}

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
            true => self.numbered(|each| table::read(list, Some(column), each), column, of, "weight"),
            false => Err(no_table("weights")),
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
        self.numbered(|each| table::read_batches(batches, Some(column), each), column, of, "weight")
    }

    /// The lengths that a list has in one of its columns, by row id: what a tokenizer found. The list is one as for
    /// [`read_weights`](Self::read_weights), or an Arrow IPC file (`.arrow`).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the list has no such column, for a length that is null, negative or no whole
    /// number, for a row that is listed twice, and for a row without a length; those of
    /// [`read_rows`](Self::read_rows). They name the list.
    pub fn read_lengths(&self, list: impl AsRef<Path>, column: &str) -> Result<Vec<u64>> {
        let list = list.as_ref();
        let read = || match table::is_table(list) {
            true => self.lengths_of(|each| table::read(list, Some(column), each), column),
            false => Err(no_table("lengths")),
        };
        read().map_err(|error: Error| error.with_file(list.display().to_string()))
    }

    /// As [`read_lengths`](Self::read_lengths), of record batches from any engine that speaks Arrow.
    ///
    /// # Errors
    /// As for [`read_lengths`](Self::read_lengths), and those of the batches.
    pub fn read_lengths_of(
        &self,
        batches: impl IntoIterator<Item = Result<RecordBatch, ArrowError>>,
        column: &str,
    ) -> Result<Vec<u64>> {
        self.lengths_of(|each| table::read_batches(batches, Some(column), each), column)
    }

    fn lengths_of(&self, read: impl FnOnce(Each<'_>) -> Result<()>, column: &str) -> Result<Vec<u64>> {
        let lengths = self.numbered(read, column, None, "length")?;
        match lengths.iter().position(|length| length.fract() != 0.0 || *length >= MAX_LENGTH) {
            None => Ok(lengths.into_iter().map(|length| length as u64).collect()),
            Some(row) => {
                let message = format!("row id {row} has the length {}", lengths.get(row).copied().unwrap_or_default());
                Err(Error::new(ErrorKind::InvalidArgument, message)
                    .with_column(column)
                    .with_hint("lengths are whole numbers below 2^40"))
            }
        }
    }

    /// The numbers that a list has in one of its columns, by row id; `what` is what they are called.
    fn numbered(
        &self,
        read: impl FnOnce(Each<'_>) -> Result<()>,
        column: &str,
        of: Option<&IdSet>,
        what: &str,
    ) -> Result<Vec<f64>> {
        let wrong = |message: String, hint: String| {
            Error::new(ErrorKind::InvalidArgument, message).with_column(column).with_hint(hint)
        };
        if let Some(of) = of.filter(|of| of.rows() != self.len()) {
            let message = format!("a set out of {} rows for an index of {}", of.rows(), self.len());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let too_large = || Error::new(ErrorKind::TooLarge, format!("no memory for {} {what}s", self.len()));
        let rows = usize::try_from(self.len()).map_err(|_| too_large())?;
        let mut weights: Vec<f64> = Vec::new();
        weights.try_reserve_exact(rows).map_err(|_| too_large())?;
        // No weight is NaN.
        weights.resize(rows, f64::NAN);
        self.visit(read, |id, weight| {
            let (Some(id), Some(weight)) = (id, weight) else { return Ok(()) };
            if !(weight.is_finite() && weight >= 0.0) {
                return Err(wrong(
                    format!("row id {id} has the {what} {weight}"),
                    format!("{what}s are finite and not negative"),
                ));
            }
            match weights.get_mut(id as usize) {
                Some(place) if place.is_nan() => *place = weight,
                _ => return Err(wrong(format!("row id {id} is listed twice"), format!("give each row one {what}"))),
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
                    format!("row id {id} is not listed, and so has no {what}"),
                    "list it, or leave it out (selecting the same list of rows does)".to_owned(),
                ))
            }
        }
    }
}
