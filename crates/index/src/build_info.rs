//! JSON text for BUILD_INFO.

use serde_json::Value;

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
