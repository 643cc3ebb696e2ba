//! What a view records of itself, as JSON.

use std::time::{SystemTime, UNIX_EPOCH};

use arrow::temporal_conversions::timestamp_s_to_datetime;

use super::Select;
use super::choice::from_view;
use rowdex_index::build_info::{quoted, renames_member};
use rowdex_io::source::place::Place;

impl Select {
    /// What the view is made of, as JSON.
    pub(super) fn provenance(&self, output: &Place, steps: &[String], rows: u64) -> String {
        let base = &self.base;
        let time = self.time.unwrap_or_else(SystemTime::now);
        format!(
            concat!(
                r#"{{"rowdex":"{}"{},"view":{{"base":{},"base_fingerprint":"{:016x}","base_rows":{},"#,
                r#""source_rows":{},"choices":[{}],"rows":{},"time":{}}}}}"#
            ),
            env!("CARGO_PKG_VERSION"),
            renames_member(base.renaming()),
            base.path().map_or_else(|| "null".to_owned(), |path| quoted(&from_view(output, path))),
            base.fingerprint(),
            base.len(),
            base.source_rows(),
            steps.join(","),
            rows,
            quoted(&rfc3339(time)),
        )
    }
}

/// Like `2026-01-31T12:00:00Z`.
fn rfc3339(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let date = i64::try_from(seconds).ok().and_then(timestamp_s_to_datetime);
    date.map_or_else(String::new, |date| format!("{}Z", date.to_string().replace(' ', "T")))
}
