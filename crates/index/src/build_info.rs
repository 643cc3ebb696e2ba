//! JSON text for BUILD_INFO.

use rowdex_projection::Renames;

/// A JSON string.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// The member that tells of renamed columns, with a comma before it; empty where there are none.
pub fn renames_member(renames: &Renames) -> String {
    if renames.is_empty() {
        return String::new();
    }
    let pairs = renames.pairs().iter().map(|(old, new)| format!("{}:{}", quoted(old), quoted(new)));
    format!(r#","renamed":{{{}}}"#, pairs.collect::<Vec<_>>().join(","))
}
