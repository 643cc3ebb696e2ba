//! The values of one column as small numbers.

use std::collections::HashMap;
use std::path::Path;

use arrow::array::Array;
use arrow::row::{RowConverter, SortField};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use rowdex::{Dataset, Error, ErrorKind, Index};

use crate::failure::Failure;

/// Rows read at a time.
const PIECE: u64 = 16_384;

/// A class for every row, numbered in the order in which they come first.
pub(super) struct Labels {
    pub(super) codes: Vec<u32>,
    /// The value that each class stands for, as people write it.
    pub(super) names: Vec<String>,
}

impl Labels {
    pub(super) fn read(index: &Index, column: &str, root: Option<&Path>) -> Result<Self, Failure> {
        let mut builder = Dataset::builder(index.clone()).with_columns([column]);
        if let Some(root) = root {
            builder = builder.with_root(root);
        }
        let dataset = builder.open()?;
        let data_type = dataset.schema().field(0).data_type().clone();
        let unfit = |error: arrow::error::ArrowError| {
            Error::new(ErrorKind::InvalidArgument, format!("a {data_type} is no label"))
                .with_column(column)
                .with_source(error)
        };
        let converter = RowConverter::new(vec![SortField::new(data_type.clone())]).map_err(unfit)?;
        let mut labels = Self { codes: Vec::new(), names: Vec::new() };
        let too_large =
            |_| Error::new(ErrorKind::TooLarge, format!("no memory for the labels of {} rows", index.len()));
        let rows = usize::try_from(index.len()).unwrap_or(usize::MAX);
        labels.codes.try_reserve_exact(rows).map_err(too_large)?;
        let mut classes: HashMap<Box<[u8]>, u32> = HashMap::new();
        let options = FormatOptions::default();
        let mut first = 0;
        while first < index.len() {
            let piece: Vec<u64> = (first..index.len().min(first + PIECE)).collect();
            let batch = dataset.take(&piece)?;
            let values = batch.column(0);
            if let Some(at) = values.logical_nulls().and_then(|nulls| nulls.iter().position(|valid| !valid)) {
                return Err(null(index, first + at as u64, column));
            }
            let encoded = converter.convert_columns(std::slice::from_ref(values)).map_err(unfit)?;
            let formatter = ArrayFormatter::try_new(values, &options).map_err(unfit)?;
            for (at, bytes) in encoded.iter().enumerate() {
                let code = match classes.get(bytes.as_ref()) {
                    Some(code) => *code,
                    None => {
                        let code = labels.names.len() as u32;
                        classes.insert(bytes.as_ref().into(), code);
                        labels.names.push(formatter.value(at).to_string());
                        code
                    }
                };
                labels.codes.push(code);
            }
            first += piece.len() as u64;
        }
        Ok(labels)
    }
}

fn null(index: &Index, row: u64, column: &str) -> Failure {
    let mut error = Error::new(ErrorKind::InvalidArgument, format!("row {row} has no label: it is null"))
        .with_column(column)
        .with_hint("choose a column without nulls");
    if let Some(place) = index.locate(row) {
        error = error.with_row_group(place.ordinal.into());
        if let Some(file) = index.file(place.file) {
            error = error.with_file(file.path());
        }
    }
    error.into()
}
