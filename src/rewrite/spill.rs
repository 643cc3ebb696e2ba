//! The folder with spilled rows.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;
use xxhash_rust::xxh3::xxh3_64;

use super::output::{RewriteOutput, put_text, real, remove_folder, text};
use super::plan::RewritePlan;
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_io::source::place::Place;

/// Where it is in an output folder.
pub(super) const SPILL: &str = "_spill";

/// The folder with spilled rows.
#[derive(Debug)]
pub(super) struct Spill {
    /// `None` if the output is in a store, and no folder was named.
    path: Option<PathBuf>,
}

/// How rows are spilled: decided by whoever spills first, as it depends on the memory.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct SpillLayout {
    pub(super) bucket_rows: u64,
    /// Parts, each of equally many row groups of the input.
    pub(super) parts: u64,
}

impl Spill {
    /// The folder for a plan and an output: in `given`, where other rewrites may have theirs, or in the output folder.
    /// Its name has the fingerprint of the plan, so that rows of another plan are never gone on with.
    ///
    /// # Errors
    /// `InvalidArgument` for a URL.
    pub(super) fn new(given: Option<&Path>, output: &RewriteOutput, plan: &RewritePlan) -> Result<Self> {
        let name = format!("rowdex-spill-{:016x}", plan.fingerprint());
        let path = match given.map(Place::of).transpose()? {
            None => output.folder().map(|folder| folder.join(SPILL).join(name)),
            Some(Place::Local(folder)) => {
                let place = output.folder().map_or_else(|| output.path(), real);
                Some(folder.join(format!("{name}-{:016x}", xxh3_64(place.as_os_str().as_encoded_bytes()))))
            }
            Some(Place::Remote(url)) => {
                return Err(Error::new(ErrorKind::InvalidArgument, "rows are not spilled to a store")
                    .with_file(url.to_string())
                    .with_hint("name a folder of a local disk, or one that all machines mount"));
            }
        };
        Ok(Self { path })
    }

    /// The folder.
    ///
    /// # Errors
    /// `InvalidArgument` if there is none.
    pub(super) fn folder(&self) -> Result<&Path> {
        self.path.as_deref().ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, "rows have to be spilled, and no folder is named for them")
                .with_hint(
                    "name a spill folder on a local disk (or one that all machines mount, for tasks), or give more \
                     memory",
                )
        })
    }

    /// Makes the folder, and gives the layout that it has, or the given one if it has none.
    pub(super) fn prepare(&self, layout: SpillLayout) -> Result<SpillLayout> {
        let folder = self.folder()?;
        std::fs::create_dir_all(folder)
            .map_err(|error| super::output::failed("cannot make the spill folder", folder, error))?;
        if let Some(known) = self.layout()? {
            return Ok(known);
        }
        match put_text(&layout_path(folder), &json!(layout).to_string()) {
            // Another task was faster.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(self.layout()?.unwrap_or(layout)),
            put => put.map(|()| layout),
        }
    }

    /// The layout of what was spilled.
    pub(super) fn layout(&self) -> Result<Option<SpillLayout>> {
        let Some(path) = self.path.as_deref().map(layout_path) else { return Ok(None) };
        let Some(text) = text(&path)? else { return Ok(None) };
        let layout = serde_json::from_str(&text).ok();
        let layout =
            layout.filter(|layout: &SpillLayout| layout.parts > 0 && (1..=MOST_ROWS).contains(&layout.bucket_rows));
        layout.map(Some).ok_or_else(|| {
            Error::new(ErrorKind::Io, "the layout of the spilled rows is damaged")
                .with_file(path.display().to_string())
                .with_hint("remove the spill folder, and begin anew")
        })
    }

    /// The files of all parts. One that is left of another layout is none of them.
    pub(super) fn parts(&self, layout: SpillLayout) -> Result<Vec<PathBuf>> {
        let folder = self.folder()?;
        let SpillLayout { bucket_rows, parts } = layout;
        Ok((0..parts).map(|part| folder.join(format!("{part:06}-of-{parts}-{bucket_rows}.part"))).collect())
    }

    pub(super) fn remove(&self) -> Result<()> {
        let Some(path) = self.path.as_deref() else { return Ok(()) };
        remove_folder(path)?;
        if let Some(parent) = path.parent().filter(|parent| parent.ends_with(SPILL)) {
            // Not where something else is in it.
            let _ = std::fs::remove_dir(parent);
        }
        Ok(())
    }
}

/// Rows of a bucket at most: places in it have 32 bits.
pub(super) const MOST_ROWS: u64 = u32::MAX as u64;

fn layout_path(folder: &Path) -> PathBuf {
    folder.join("layout.json")
}
