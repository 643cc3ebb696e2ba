//! What an index records of itself: the index that it is a view of, and what its builder could not decode.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::Index;

impl Index {
    /// The columns that the version which built the index could not decode, because the files are newer, and for each
    /// the number of the first file that has it so.
    pub fn undecodable(&self) -> BTreeMap<String, u32> {
        let info: Value = serde_json::from_str(self.build_info()).unwrap_or_default();
        serde_json::from_value(info["undecodable"].clone()).unwrap_or_default()
    }

    /// The names of all other columns.
    pub fn decodable(&self) -> Vec<String> {
        let undecodable = self.undecodable();
        let names = self.schema().fields().iter().map(|field| field.name());
        names.filter(|name| !undecodable.contains_key(*name)).cloned().collect()
    }

    /// Where the index is that this one is a view of, seen from here: what the view recorded of itself. `None` for an
    /// index that is no view, and for a view of an index in memory.
    pub fn recorded_base(&self) -> Option<PathBuf> {
        let info: Value = serde_json::from_str(self.build_info()).ok()?;
        let recorded = info.get("view")?.get("base")?.as_str()?;
        let is_url = |text: &str| text.contains("://");
        Some(match self.path() {
            Some(view) if !is_url(recorded) && !is_url(&view.to_string_lossy()) => {
                view.parent().unwrap_or(Path::new("")).join(recorded)
            }
            _ => PathBuf::from(recorded),
        })
    }
}
