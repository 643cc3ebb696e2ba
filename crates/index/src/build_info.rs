//! JSON text for BUILD_INFO.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use rowdex_projection::Renames;

/// A JSON string.
pub fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// The member that tells of renamed columns, with a comma before it; empty where there are none.
pub fn renames_member(renames: &Renames) -> String {
    if renames.is_empty() {
        return String::new();
    }
    let pairs = renames.pairs().iter().map(|(old, new)| format!("{}:{}", quoted(old), quoted(new)));
    format!(r#","renamed":{{{}}}"#, pairs.collect::<Vec<_>>().join(","))
}

/// The same for columns that the builder could not decode, each with the number of a file that has it so.
pub fn undecodable_member(columns: &BTreeMap<String, u32>) -> String {
    if columns.is_empty() { String::new() } else { format!(r#","undecodable":{}"#, json!(columns)) }
}
