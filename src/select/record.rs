//! What a view records of itself, as JSON.

use std::time::{SystemTime, UNIX_EPOCH};

use arrow_array::temporal_conversions::timestamp_s_to_datetime;

use serde_json::{Value, json};

use super::Select;
use super::choice::from_view;
use rowdex_io::source::place::Place;

impl Select {
    /// What the view is made of, as JSON.
    pub(super) fn provenance(&self, output: &Place, steps: Vec<Value>, rows: u64) -> String {
        let base = &self.base;
        let mut info = json!({"rowdex": env!("CARGO_PKG_VERSION")});
        if !base.renaming().is_empty() {
            info["renamed"] = base.renaming().pairs().iter().map(|(old, new)| (old.clone(), json!(new))).collect();
        }
        let undecodable = base.undecodable();
        if !undecodable.is_empty() {
            info["undecodable"] = json!(undecodable);
        }
        info["view"] = json!({
            "base": base.path().map(|path| from_view(output, path)),
            "base_fingerprint": format!("{:016x}", base.fingerprint()),
            "base_rows": base.len(),
            "source_rows": base.source_rows(),
            "choices": steps,
            "rows": rows,
            "time": rfc3339(self.time.unwrap_or_else(SystemTime::now)),
        });
        info.to_string()
    }
}

/// Like `2026-01-31T12:00:00Z`.
fn rfc3339(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let date = i64::try_from(seconds).ok().and_then(timestamp_s_to_datetime);
    date.map_or_else(String::new, |date| format!("{}Z", date.to_string().replace(' ', "T")))
}
