//! The folder with spilled rows: how they are laid out, and how much room there is.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

use super::plan::RewritePlan;
use super::shape::Buckets;
use super::target::{LAYOUT, begun, failed, real, remove_file, remove_files};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_io::fs::{atomic::AtomicFile, with_room};
use rowdex_io::source::place::Place;

/// Where it is in an output folder.
const SPILL: &str = "_spill";
/// How its name begins; the fingerprint of the plan follows, so that rows of another plan are never gone on with.
const FOLDER: &str = "rowdex-spill-";

/// The folder with spilled rows.
#[derive(Debug)]
pub(super) struct Spill {
    /// `None` if the output is in a store, and no folder was named.
    path: Option<PathBuf>,
}

/// How rows are spilled: decided by whoever spills first, as it depends on the memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SpillLayout {
    pub(super) buckets: Buckets,
    /// Where units of row groups end.
    pub(super) units: Vec<u32>,
    /// A hash of both, which is in the names of parts: one that is left of another layout is none of this one.
    id: u64,
}

impl SpillLayout {
    pub(super) fn new(buckets: Buckets, units: Vec<u32>) -> Self {
        let mut layout = Self { buckets, units, id: 0 };
        layout.id = xxh3_64(layout.to_json().as_bytes());
        layout
    }

    fn to_json(&self) -> String {
        json!({"rows": self.buckets.positions.end, "bucket_rows": self.buckets.rows, "units": self.units}).to_string()
    }

    fn from_json(text: &str) -> Option<Self> {
        let layout: Value = serde_json::from_str(text).ok()?;
        let units = layout.get("units")?.as_array()?.iter().map(|end| u32::try_from(end.as_u64()?).ok());
        let rows = layout.get("bucket_rows")?.as_u64().filter(|rows| (1..=u64::from(u32::MAX)).contains(rows))?;
        let buckets = Buckets { positions: 0..layout.get("rows")?.as_u64()?, rows };
        Some(Self::new(buckets, units.collect::<Option<_>>()?))
    }
}

impl Spill {
    /// The folder for a plan and an output of this name, which may be a folder: in `given`, where other rewrites may
    /// have theirs, or in the output folder.
    ///
    /// # Errors
    /// `InvalidArgument` for a URL.
    pub(super) fn new(given: Option<&Path>, output: (Option<&Path>, &Path), plan: &RewritePlan) -> Result<Self> {
        let name = format!("{FOLDER}{:016x}", plan.fingerprint());
        let path = match given.map(Place::of).transpose()? {
            None => output.0.map(|folder| folder.join(SPILL).join(name)),
            Some(Place::Local(folder)) => {
                let place = output.0.map_or_else(|| output.1.to_owned(), real);
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
    pub(super) fn prepare(&self, layout: SpillLayout, is_alone: bool) -> Result<SpillLayout> {
        let folder = self.folder()?;
        fs::create_dir_all(folder).map_err(|error| failed("cannot make the spill folder", folder, error))?;
        if is_alone {
            remove_files(folder, |name| {
                begun(name).is_some() || name.starts_with("split-") && name.ends_with(".part")
            })?;
        }
        let path = folder.join(LAYOUT);
        if let Some(known) = self.layout()? {
            return Ok(known);
        }
        let mut file = AtomicFile::create(&path, false)?;
        file.write_all(layout.to_json().as_bytes()).map_err(|error| failed("cannot write the layout", &path, error))?;
        match file.commit() {
            Ok(()) => Ok(layout),
            // Another task was faster.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                self.layout().map(|known| known.unwrap_or(layout))
            }
            Err(error) => Err(error),
        }
    }

    /// The layout of what was spilled.
    pub(super) fn layout(&self) -> Result<Option<SpillLayout>> {
        let Some(path) = self.path.as_ref().map(|folder| folder.join(LAYOUT)) else { return Ok(None) };
        let text = match with_room(|| fs::read_to_string(&path)) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("cannot read the layout", &path, error)),
        };
        SpillLayout::from_json(&text).map(Some).ok_or_else(|| {
            Error::new(ErrorKind::Io, "the layout of the spilled rows is damaged")
                .with_file(path.display().to_string())
                .with_hint("remove the spill folder, and begin anew")
        })
    }

    /// The file of a unit of row groups.
    pub(super) fn part(&self, layout: &SpillLayout, unit: usize) -> Result<PathBuf> {
        Ok(self.folder()?.join(format!("{unit:06}-{:016x}.part", layout.id)))
    }

    pub(super) fn remove(&self) -> Result<()> {
        self.path.as_deref().map_or(Ok(()), remove)
    }

    /// Compares the room that there is with what will be written, before anything is.
    pub(super) fn check_room(&self, spilled: u64, output: Option<&Path>, written: u64) -> Result<()> {
        let parent = |path: &Path| path.ancestors().find(|path| path.is_dir()).map(Path::to_owned);
        let spill = self.path.as_deref().and_then(parent);
        let output = output.and_then(parent);
        let of = |folder: &Option<PathBuf>| folder.as_deref().and_then(device);
        let is_shared = spill.is_some() && output.is_some() && of(&spill) == of(&output);
        let (what, wanted) = match is_shared && spilled > 0 {
            true => ("spilled rows and the output", spilled.saturating_add(written)),
            false => ("spilled rows", spilled),
        };
        for (folder, what, wanted) in [(spill, what, wanted), (output, "the output", written)] {
            let Some(folder) = folder else { continue };
            if let Some(free) = free_bytes(&folder).filter(|free| *free < wanted) {
                let message = format!("{what}: about {wanted} bytes are needed, and {free} are free");
                return Err(Error::new(ErrorKind::Io, message)
                    .with_file(folder.display().to_string())
                    .with_hint("make room, or name a spill folder on another disk"));
            }
        }
        Ok(())
    }
}

/// Which file system a path is on.
fn device(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|metadata| metadata.dev())
}

fn free_bytes(folder: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    stat.f_bavail.checked_mul(stat.f_frsize)
}

/// Removes what rewrites of whatever plans have spilled in an output folder.
pub(super) fn remove_all(output: &Path) -> Result<()> {
    let path = output.join(SPILL);
    let failed = |error| failed("cannot list the spill folder", &path, error);
    let entries = match fs::read_dir(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if entry.file_name().to_string_lossy().starts_with(FOLDER) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes a spill folder, and nothing that a rewrite did not put there.
fn remove(path: &Path) -> Result<()> {
    match fs::read_dir(path) {
        Ok(entries) => remove_entries(path, entries)?,
        // Whoever removed it may have been killed before the folder around it was removed.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("cannot list the spill folder", path, error)),
    }
    if let Some(parent) = path.parent().filter(|parent| parent.ends_with(SPILL)) {
        let _ = fs::remove_dir(parent);
    }
    Ok(())
}

fn remove_entries(path: &Path, entries: fs::ReadDir) -> Result<()> {
    // Parts are nothing without it, so whoever is killed here leaves nothing that is taken for spilled.
    remove_file(&path.join(LAYOUT))?;
    for entry in entries {
        let name = entry.map_err(|error| failed("cannot list the spill folder", path, error))?.file_name();
        let name_text = name.to_string_lossy();
        if name_text.ends_with(".part") || name_text == LAYOUT || name_text.contains(".tmp-") {
            remove_file(&path.join(&name))?;
        }
    }
    // Not where something else is in it.
    let _ = fs::remove_dir(path);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_that_was_killed_before_its_last_step_is_ended_by_the_next_one() {
        let output = tempfile::tempdir().unwrap();
        let around = output.path().join(SPILL);
        fs::create_dir(&around).unwrap();
        remove(&around.join("rowdex-spill-0")).unwrap();
        assert!(!around.exists());
        remove(&around.join("rowdex-spill-0")).unwrap();
        assert!(output.path().exists());
    }

    #[test]
    fn the_layout_goes_first_so_that_a_removal_that_ends_early_leaves_nothing_to_go_on_with() {
        let folder = tempfile::tempdir().unwrap();
        for part in 0..20 {
            // Not to be removed as a file.
            fs::create_dir(folder.path().join(format!("{part:06}-0.part"))).unwrap();
        }
        fs::write(folder.path().join(LAYOUT), "{}").unwrap();
        assert!(remove(folder.path()).is_err());
        assert!(!folder.path().join(LAYOUT).exists());
    }
}
