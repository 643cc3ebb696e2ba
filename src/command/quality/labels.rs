//! The values of one column as small numbers.

use std::path::Path;

use rowdex::{Dataset, Index};

use crate::command::failure::Failure;

/// A class for every row.
pub(super) struct Labels {
    pub(super) codes: Vec<u32>,
    /// The value that each class stands for, as people write it.
    pub(super) names: Vec<String>,
}

impl Labels {
    /// Of the columns that have classes for `--balance` and `count --by`, too.
    pub(super) fn read(index: &Index, column: &str, root: Option<&Path>) -> Result<Self, Failure> {
        let mut builder = Dataset::builder(index.clone()).with_cache_bytes(0);
        if let Some(root) = root {
            builder = builder.with_root(root);
        }
        let labels = builder.open()?.column(column).labels()?;
        let names = labels.classes().iter().map(ToString::to_string).collect();
        Ok(Self { codes: labels.codes().to_vec(), names })
    }
}
