//! What an index records of the index that it is a view of.

use rowdex::Index;
use serde_json::Value;

use crate::command::failure::said;
use crate::command::output;

/// What `select` wrote down; nothing for any other index, or for text from elsewhere.
pub(crate) fn record(index: &Index) -> Option<Value> {
    let mut info: Value = serde_json::from_str(index.build_info()).ok()?;
    info.get_mut("view").map(Value::take).filter(Value::is_object)
}

/// What became of the base of a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Base {
    /// It is as it was.
    Same,
    /// It is another one, so that the view is no view of it any more.
    Changed(String),
    /// It is not there, which a view does not need it to be.
    NotThere,
}

/// Compares the base of a view with what is recorded; nothing for an index that is no view.
pub(crate) fn base(index: &Index) -> Option<Base> {
    let view = record(index)?;
    let recorded = view["base_fingerprint"].as_str()?.to_owned();
    let Some(path) = index.recorded_base() else { return Some(Base::NotThere) };
    let shown = path.display();
    Some(match Index::open(&path) {
        Ok(base) if format!("{:016x}", base.fingerprint()) == recorded => Base::Same,
        Ok(_) => Base::Changed(format!(
            "{shown} is not the index that the view was made of: it has other rows now (select anew)"
        )),
        Err(error) if error.kind() == rowdex::ErrorKind::NotFound => Base::NotThere,
        Err(error) => Base::Changed(format!("the index that the view was made of cannot be read: {}", said(&error))),
    })
}

/// The lines that say what a view is made of.
pub(crate) fn lines(index: &Index) -> Vec<(&'static str, String)> {
    let Some(view) = record(index) else { return Vec::new() };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let count = |value: &Value| output::counted(value.as_u64().unwrap_or_default(), "row");
    let base = view["base"].as_str().unwrap_or("an index in memory");
    let mut lines = vec![
        ("view of", format!("{base} ({}), {}", text(&view["base_fingerprint"]), count(&view["base_rows"]))),
        ("made", text(&view["time"])),
    ];
    for choice in view["choices"].as_array().into_iter().flatten().filter_map(Value::as_object) {
        let said = choice.iter().filter(|(name, _)| *name != "rows").map(|(name, value)| match value {
            Value::String(text) => format!("{name} {text}"),
            other => format!("{name} {other}"),
        });
        let said: Vec<String> = said.collect();
        // Several conditions are decided at once, and only the last says what they left.
        let left = choice.get("rows").map_or_else(String::new, |rows| format!(": {} left", count(rows)));
        lines.push(("chosen", format!("{}{left}", said.join(", "))));
    }
    lines
}
