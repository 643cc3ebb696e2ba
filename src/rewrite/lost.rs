//! Row groups that could not be read and were left out, as files tell of them.

use serde_json::{Value, json};

/// A row group that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) row_group: u32,
    pub(super) error: String,
}

impl Lost {
    pub(super) fn to_json(lost: &[Self]) -> String {
        let each = lost.iter().map(|lost| json!({"row_group": lost.row_group, "error": lost.error}));
        Value::Array(each.collect()).to_string()
    }

    /// From what [`to_json`](Self::to_json) gives.
    pub(super) fn from_json(json: &[u8]) -> Option<Vec<Self>> {
        let lost: Value = serde_json::from_slice(json).ok()?;
        let one = |lost: &Value| {
            let row_group = u32::try_from(lost.get("row_group")?.as_u64()?).ok()?;
            Some(Self { row_group, error: lost.get("error")?.as_str()?.to_owned() })
        };
        lost.as_array()?.iter().map(one).collect()
    }
}
