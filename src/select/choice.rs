//! The reasons to leave rows out, one by one.

use std::path::{Path, PathBuf};

use super::{ChoiceRecord, ListOfRows};
use crate::dataset::Dataset;
use rowdex_base::error::{Error, ErrorKind, Remedy, Result};
use rowdex_index::Index;
use rowdex_index::build_info::quoted;
use rowdex_index::root;
use rowdex_io::source::place::{Place, shown};
use rowdex_order::{IdSet, Sample, Side, Split};

/// One of the reasons to leave rows out.
#[derive(Debug, Clone)]
pub(super) enum Choice {
    Rows(List),
    Skip(List),
    Kept(IdSet, String),
    And(Index),
    Not(Index),
    Sample { fraction: f64, seed: u64 },
    Split { side: Side, fraction: f64, seed: u64, by: Option<String> },
}

/// A list of rows in a file.
#[derive(Debug, Clone)]
pub(super) struct List {
    pub(super) path: PathBuf,
    /// What it has to say of rows that were chosen by it before.
    was: Option<Was>,
}

#[derive(Debug, Clone, Copy)]
struct Was {
    source_rows: u64,
    hash: u64,
}

impl List {
    pub(super) fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), was: None }
    }

    /// A list whose rows had this hash when the base had so many source rows.
    pub(super) fn known(path: PathBuf, source_rows: u64, hash: u64) -> Self {
        Self { path, was: Some(Was { source_rows, hash }) }
    }

    /// The hash of what it lists, by source row of the base.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if it lists other rows than before, of those that were there before.
    pub(super) fn hash(&self, base: &Index, listed: &IdSet) -> Result<u64> {
        let source = base.to_source(listed)?;
        if let Some(was) = self.was {
            let before = source.ranges().map(|range| range.start.min(was.source_rows)..range.end.min(was.source_rows));
            if IdSet::from_ranges(was.source_rows, before)?.content_hash() != was.hash {
                let message = "the list has other rows of unchanged files than it had when the view was made";
                return Err(Error::new(ErrorKind::InvalidArgument, message)
                    .with_file(shown(&self.path))
                    .with_remedies("select anew with this list ({})", &[Remedy::Overwrite]));
            }
        }
        Ok(source.content_hash())
    }
}

impl Choice {
    /// The column that is read to decide.
    pub(super) fn column(&self) -> Option<&str> {
        match self {
            Self::Split { by, .. } => by.as_deref(),
            _ => None,
        }
    }

    /// Whether rows are kept for nothing but their values, wherever they are.
    pub(super) fn is_by_value(&self) -> bool {
        self.column().is_some()
    }

    /// Whether rows are kept because somebody listed them.
    pub(super) fn is_list(&self) -> bool {
        matches!(self, Self::Rows(_) | Self::Skip(_))
    }

    /// The rows that are left, and the hash of a list. Of other rows than `of` nothing needs to be known.
    pub(super) fn rows(
        &self,
        base: &Index,
        of: &IdSet,
        dataset: Option<&Dataset>,
        told: &mut ChoiceRecord,
    ) -> Result<(IdSet, Option<u64>)> {
        let rows = match self {
            Self::Rows(list) | Self::Skip(list) => {
                let listed = told.rows_of(ListOfRows::from(&list.path).rows(base)?);
                let hash = Some(list.hash(base, &listed)?);
                return Ok((if matches!(self, Self::Skip(_)) { listed.complement()? } else { listed }, hash));
            }
            Self::Kept(kept, _) => kept.clone(),
            Self::And(view) => base.rows_of(view)?,
            Self::Not(view) => base.rows_of(view)?.complement()?,
            Self::Sample { fraction, seed } => {
                base.of_source(&Sample::new(*fraction, *seed)?.rows(base.source_rows())?)?
            }
            Self::Split { side, fraction, seed, by } => {
                let split = Split::new(*fraction, *seed)?;
                match by.as_ref().zip(dataset) {
                    Some((column, dataset)) => dataset.column(column).of(of).split(&split, *side)?,
                    None => split.rows(*side, base.len())?,
                }
            }
        };
        Ok((rows, None))
    }

    /// As it is recorded in a view that goes to `view`: the members of a JSON object.
    pub(super) fn json(&self, view: &Place, list_hash: Option<u64>) -> String {
        let list = |choice: &str, list: &List| {
            let hash = list_hash.map_or_else(String::new, |hash| format!(",\"list_hash\":\"{hash:016x}\""));
            format!("\"{choice}\":{}{hash}", quoted(&from_view(view, &list.path)))
        };
        match self {
            Self::Rows(rows) => list("rows_in", rows),
            Self::Skip(rows) => list("skip", rows),
            Self::Kept(_, note) => format!("\"kept\":{}", quoted(note)),
            Self::And(view) => json_of_view("and", view),
            Self::Not(view) => json_of_view("not", view),
            Self::Sample { fraction, seed } => format!("\"sample\":{fraction},\"seed\":{seed}"),
            Self::Split { side, fraction, seed, by } => {
                let by = by.as_ref().map_or_else(String::new, |column| format!(",\"by\":{}", quoted(column)));
                format!("\"split\":\"{side}\",\"fraction\":{fraction},\"seed\":{seed}{by}")
            }
        }
    }
}

pub(super) fn json_of_view(choice: &str, view: &Index) -> String {
    let path = view.path().map_or_else(|| "null".to_owned(), |path| quoted(&shown(path)));
    format!("\"{choice}\":{path},\"fingerprint\":\"{:016x}\"", view.fingerprint())
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
