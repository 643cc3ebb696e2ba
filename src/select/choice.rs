//! The reasons to leave rows out, one by one.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{ChoiceRecord, ListOfRows};
use crate::dataset::Dataset;
use rowdex_base::error::Result;
use rowdex_index::Index;
use rowdex_index::root;
use rowdex_io::source::place::{Place, shown};
use rowdex_order::{IdSet, Side, Split};

/// One of the reasons to leave rows out.
#[derive(Debug, Clone)]
pub(super) enum Choice {
    Rows(PathBuf),
    Skip(PathBuf),
    Kept(IdSet, String),
    And(Index),
    Not(Index),
    Sample { fraction: f64, seed: u64 },
    Split { side: Side, fraction: f64, seed: u64, by: Option<String> },
}

impl Choice {
    /// The column that is read to decide.
    pub(super) fn column(&self) -> Option<&str> {
        match self {
            Self::Split { by, .. } => by.as_deref(),
            _ => None,
        }
    }

    /// The rows that are left. Of other rows than `of` nothing needs to be known.
    pub(super) fn rows(
        &self,
        base: &Index,
        of: &IdSet,
        dataset: Option<&Dataset>,
        told: &mut ChoiceRecord,
    ) -> Result<IdSet> {
        Ok(match self {
            Self::Rows(list) => told.rows_of(ListOfRows::from(list).rows(base)?),
            Self::Skip(list) => told.rows_of(ListOfRows::from(list).rows(base)?).complement()?,
            Self::Kept(kept, _) => kept.clone(),
            Self::And(view) => base.rows_of(view)?,
            Self::Not(view) => base.rows_of(view)?.complement()?,
            Self::Sample { fraction, seed } => {
                base.of_source(&Split::sample(*fraction, *seed)?.rows(Side::Validation, base.source_rows())?)?
            }
            Self::Split { side, fraction, seed, by } => {
                let split = Split::new(*fraction, *seed)?;
                match by.as_ref().zip(dataset) {
                    Some((column, dataset)) => dataset.column(column).of(of).split(&split, *side)?,
                    None => split.rows(*side, base.len())?,
                }
            }
        })
    }

    /// As it is recorded in a view that goes to `view`.
    pub(super) fn json(&self, view: &Place) -> Value {
        match self {
            Self::Rows(rows) => json!({"rows_in": from_view(view, rows)}),
            Self::Skip(rows) => json!({"skip": from_view(view, rows)}),
            Self::Kept(_, note) => json!({"kept": note}),
            Self::And(view) => json_of_view("and", view),
            Self::Not(view) => json_of_view("not", view),
            Self::Sample { fraction, seed } => json!({"sample": fraction, "seed": seed}),
            Self::Split { side, fraction, seed, by } => {
                let mut split = json!({"split": side.to_string(), "fraction": fraction, "seed": seed});
                if let Some(column) = by {
                    split["by"] = column.as_str().into();
                }
                split
            }
        }
    }
}

pub(super) fn json_of_view(choice: &str, view: &Index) -> Value {
    json!({choice: view.path().map(shown), "fingerprint": format!("{:016x}", view.fingerprint())})
}

/// How a file is found from the folder of the view; as it was given where there is no such way.
pub(super) fn from_view(view: &Place, file: &Path) -> String {
    let way = || {
        let (Place::Local(view), Place::Local(file)) = (view, Place::of(file).ok()?) else { return None };
        let folder = match view.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let way = root::relative(&folder.canonicalize().ok()?, &file.canonicalize().ok()?)?;
        Some(way.to_str()?.replace(std::path::MAIN_SEPARATOR, "/"))
    };
    way().unwrap_or_else(|| shown(file))
}
