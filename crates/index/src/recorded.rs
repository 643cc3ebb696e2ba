//! The index that a view was made of, as the view records it.

use std::path::{Path, PathBuf};

use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_io::source::StoreOptions;
use rowdex_io::source::place::shown;
use serde_json::Value;

use crate::Index;

impl Index {
    /// Where the index is that this one is a view of, seen from here: what the view recorded of itself. `None` for an
    /// index that is no view, and for a view of an index in memory.
    pub fn recorded_base(&self) -> Option<PathBuf> {
        let info: Value = serde_json::from_str(self.build_info()).ok()?;
        Some(self.beside(info.get("view")?.get("base")?.as_str()?))
    }

    /// Opens the index that this one is a view of, where [`recorded_base`](Self::recorded_base) says.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if that is not recorded, and those of [`open`](Self::open).
    pub fn open_base(&self, options: &StoreOptions) -> Result<Self> {
        let base = self.recorded_base().ok_or_else(|| {
            let error = Error::new(ErrorKind::InvalidArgument, "it is not recorded which index this is a view of");
            let error = error.with_hint("name the base, if it is a view");
            match self.path() {
                Some(path) => error.with_file(shown(path)),
                None => error,
            }
        })?;
        Self::open_with(&base, options).map_err(|error| match error.kind() {
            ErrorKind::NotFound => error.with_hint("name the base, if it is in another place by now"),
            _ => error,
        })
    }

    /// A path that is recorded from the folder of this view.
    #[doc(hidden)]
    pub fn beside(&self, recorded: &str) -> PathBuf {
        let is_url = |text: &str| text.contains("://");
        match self.path() {
            Some(view) if !is_url(recorded) && !is_url(&view.to_string_lossy()) => {
                view.parent().unwrap_or(Path::new("")).join(recorded)
            }
            _ => PathBuf::from(recorded),
        }
    }
}
