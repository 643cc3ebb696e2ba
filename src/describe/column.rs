//! What is asked of the values of a column.

use serde::Deserialize;

use super::{GivenPath, Operands};
use rowdex_base::error::Result;
use rowdex_order::IdSet;

/// What is asked of the values of a column, of all rows or of those of a set.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ColumnDescription {
    Labels(AskedColumn),
    Counts(AskedColumn),
    Weights(AskedColumn),
    Lengths(AskedColumn),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskedColumn {
    pub(crate) column: String,
    /// A list that has weights.
    pub(crate) list: Option<GivenPath>,
    of: Option<usize>,
}

impl AskedColumn {
    pub(crate) fn of<'a>(&self, given: &impl Operands<'a>) -> Result<Option<&'a IdSet>> {
        Ok(self.of.map(|of| given.set(of)).transpose()?.map(|of| &**of))
    }
}
