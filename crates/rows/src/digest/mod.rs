//! Digests of rows: 128 bits that depend on the values of a row, and on nothing else.
//!
//! `docs/digests.md` specifies them. Added up modulo 2^128, the digests of many rows are a digest of these rows in
//! any order: of two different collections of rows, one pair in 2^128 has the same sum, unless somebody looks for it.

mod encode;
mod kind;
#[cfg(test)]
mod tests;

use std::ops::Range;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Schema};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128_with_seed};

use self::encode::{Encoder, encoder};
use rowdex_base::error::{Error, ErrorKind, Result};

/// What digests are of: their version, the names of the columns, and the kinds of their values.
const VERSION: &[u8] = b"rowdex rows 1";

/// Rows that are written at once, and how many bytes of them, if one row has no more. They stay in the core's cache.
const ROWS: usize = 512;
const BYTES: usize = 256 << 10;

/// A column, as digests know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DigestColumn {
    /// Its name.
    pub name: String,
    /// What its values are, in any width, encoding or layout: `int`, `list<string>`.
    pub kind: String,
}

/// Makes digests of rows.
#[derive(Debug, Clone)]
pub struct RowDigests {
    columns: Vec<DigestColumn>,
    /// Where each column is in the batches.
    places: Vec<usize>,
    key: u64,
    bytes: Vec<u8>,
    sizes: Vec<usize>,
}

impl RowDigests {
    /// For batches of this schema, or of one with the same columns that are laid out otherwise.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] for a column of a type that has no digest.
    pub fn new(schema: &Schema) -> Result<Self> {
        let places = kind::by_name(schema.fields());
        let column = |at: &usize| {
            let field = schema.field(*at);
            let kind = kind::kind(field.data_type()).map_err(|unknown| no_digest(field.name(), &unknown))?;
            Ok(DigestColumn { name: field.name().clone(), kind })
        };
        let columns: Vec<DigestColumn> = places.iter().map(column).collect::<Result<_>>()?;
        let mut text = VERSION.to_vec();
        for part in columns.iter().flat_map(|column| [&column.name, &column.kind]) {
            text.extend_from_slice(&(part.len() as u64).to_le_bytes());
            text.extend_from_slice(part.as_bytes());
        }
        Ok(Self { columns, places, key: xxh3_64(&text), bytes: Vec::new(), sizes: Vec::new() })
    }

    /// The columns, in the order of their names.
    pub fn columns(&self) -> &[DigestColumn] {
        &self.columns
    }

    /// Appends the digest of each row of a batch.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] for a batch of other columns.
    pub fn add(&mut self, batch: &RecordBatch, digests: &mut Vec<u128>) -> Result<()> {
        let encoders = self.encoders(batch)?;
        digests.reserve(batch.num_rows());
        let mut first = 0;
        while first < batch.num_rows() {
            let rows = first..batch.num_rows().min(first + ROWS);
            first = self.piece(&encoders, rows, digests);
        }
        Ok(())
    }

    fn encoders<'a>(&self, batch: &'a RecordBatch) -> Result<Vec<Encoder<'a>>> {
        let column = |(at, of): (&usize, &DigestColumn)| {
            let column = batch.columns().get(*at);
            let column = column.ok_or_else(|| Error::new(ErrorKind::Internal, "a batch lacks a column"))?;
            encoder(column).map_err(|unknown| no_digest(&of.name, &unknown))
        };
        self.places.iter().zip(&self.columns).map(column).collect()
    }

    /// The digests of as many of these rows as are written at once. Returns the row behind them.
    fn piece(&mut self, encoders: &[Encoder<'_>], rows: Range<usize>, digests: &mut Vec<u128>) -> usize {
        let Self { bytes, sizes, key, .. } = self;
        sizes.clear();
        sizes.resize(rows.len(), encoders.iter().filter_map(|encoder| encoder.width()).sum());
        for encoder in encoders.iter().filter(|encoder| encoder.width().is_none()) {
            encoder.add_sizes(rows.clone(), sizes);
        }
        // From sizes to places, for as many rows as there is room for.
        let mut end = 0;
        let mut count = 0;
        for size in sizes.iter_mut() {
            let next = end + *size;
            if next > BYTES && count > 0 {
                break;
            }
            *size = end;
            (end, count) = (next, count + 1);
        }
        sizes.truncate(count);
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        let written = rows.start..rows.start + count;
        for encoder in encoders {
            encoder.put_apart(written.clone(), bytes, sizes);
        }
        // Each place is behind its row by now.
        let mut start = 0;
        for end in sizes.iter() {
            digests.push(xxh3_128_with_seed(bytes.get(start..*end).unwrap_or_default(), *key));
            start = *end;
        }
        if bytes.len() > BYTES {
            *bytes = Vec::new();
        }
        written.end
    }
}

fn no_digest(column: &str, data_type: &DataType) -> Error {
    Error::new(ErrorKind::Schema, format!("values of type {data_type} have no digest"))
        .with_column(column)
        .with_hint("leave the column out")
}
