//! The index that a view was made of, as the view records it.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::Index;

impl Index {
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
