//! The output folder and the spill folder: what may be in them, what is left there, and how much room there is.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::plan::RewritePlan;
use super::shape::Buckets;
use crate::dataset::Dataset;
use rowdex_base::error::{Error, ErrorKind, Remedy, Result};
use rowdex_io::fs::atomic::AtomicFile;
use rowdex_io::source::place::{Place, shown};
use serde_json::{Value, json};

const PLAN: &str = "_rewrite.json";
const INDEX: &str = "index.rdx";
const SPILL: &str = "_spill";
const LAYOUT: &str = "layout.json";

/// The folder that a rewrite writes to.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    /// Held for as long as one process writes all of it.
    lock: Option<File>,
}

/// What to do about what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Refuse it.
    Refuse,
    /// Go on with it, if it is of the same plan.
    Resume,
    /// Remove it, if a rewrite wrote it.
    Replace,
}

impl Folder {
    /// The folder at this path, which need not be there.
    ///
    /// # Errors
    /// `InvalidArgument` for a URL, and for a folder that has files of the input.
    pub(super) fn new(path: &Path, dataset: &Dataset) -> Result<Self> {
        let Place::Local(path) = Place::of(path)? else {
            return Err(Error::new(ErrorKind::InvalidArgument, "a rewrite goes to a local folder")
                .with_file(shown(path))
                .with_hint("write it to a local disk, and copy it to the store"));
        };
        let path = std::path::absolute(&path).map_err(|error| failed("cannot find the folder", &path, error))?;
        let folder = Self { path, lock: None };
        folder.check_input(dataset)?;
        Ok(folder)
    }

    /// Refuses to write among the files that are read.
    fn check_input(&self, dataset: &Dataset) -> Result<()> {
        let Some(data) = dataset.local_root() else { return Ok(()) };
        let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let (data, output) = (real(data), real(&self.path));
        for file in dataset.index().files() {
            let file = data.join(file.path());
            if file.parent().is_some_and(|parent| parent.starts_with(&output)) {
                return Err(Error::new(ErrorKind::InvalidArgument, "the output folder has a file of the input")
                    .with_file(file.display().to_string())
                    .with_hint("write to a folder of its own"));
            }
        }
        Ok(())
    }

    /// Makes the folder ready for this plan. Returns whether it had been begun.
    pub(super) fn prepare(&mut self, plan: &RewritePlan, found: Found, is_alone: bool) -> Result<bool> {
        fs::create_dir_all(&self.path).map_err(|error| failed("cannot make the output folder", &self.path, error))?;
        if is_alone {
            self.lock()?;
        }
        let known = self.plan()?;
        if let Some(known) = &known
            && found != Found::Replace
        {
            return match found {
                Found::Resume if known == plan => {
                    if is_alone {
                        remove_temporary(&self.path)?;
                    }
                    Ok(true)
                }
                Found::Resume => Err(Error::new(
                    ErrorKind::StateMismatch,
                    "the folder has a rewrite of other rows, in another order, or with other options",
                )
                .with_file(self.path.display().to_string())
                .with_remedies("go on with what it was begun with, or replace it ({})", &[Remedy::Overwrite])),
                _ => Err(Error::new(ErrorKind::AlreadyExists, "the folder has a rewrite already")
                    .with_file(self.path.display().to_string())
                    .with_remedies("resume it, replace it ({}), or choose another folder", &[Remedy::Overwrite])),
            };
        }
        if let Some(known) = &known {
            self.remove(known)?;
        }
        self.check_empty()?;
        let mut file = AtomicFile::create(self.path.join(PLAN), true)?;
        let written = file.write_all(plan.to_json().as_bytes());
        written.map_err(|error| failed("cannot write the plan", &self.path.join(PLAN), error))?;
        file.commit()?;
        Ok(false)
    }

    /// Nobody else writes here until this is dropped.
    fn lock(&mut self) -> Result<()> {
        if !cfg!(unix) {
            return Ok(());
        }
        let folder = rowdex_io::fs::open(&self.path);
        let folder = folder.map_err(|error| failed("cannot open the output folder", &self.path, error))?;
        match folder.try_lock() {
            Ok(()) => self.lock = Some(folder),
            Err(fs::TryLockError::WouldBlock) => {
                return Err(Error::new(ErrorKind::AlreadyExists, "another process writes to the folder")
                    .with_file(self.path.display().to_string())
                    .with_hint("wait for it, or choose another folder"));
            }
            // Some file systems have no locks.
            Err(fs::TryLockError::Error(_)) => {}
        }
        Ok(())
    }

    /// The plan that the folder was begun with.
    pub(super) fn plan(&self) -> Result<Option<RewritePlan>> {
        let path = self.path.join(PLAN);
        match fs::read_to_string(&path) {
            Ok(text) => {
                RewritePlan::from_json(&text).map(Some).map_err(|error| error.with_file(path.display().to_string()))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("cannot read the plan", &path, error)),
        }
    }

    /// Removes what a rewrite of this plan left, the plan last.
    fn remove(&self, plan: &RewritePlan) -> Result<()> {
        remove_temporary(&self.path)?;
        let files = (0..plan.files).map(|file| plan.file_name(file));
        for name in files.chain([INDEX.to_owned(), PLAN.to_owned()]) {
            remove_file(&self.path.join(name))?;
        }
        let spill = self.path.join(SPILL);
        remove_folder(&spill)
    }

    /// Refuses a folder with anything that readers of it would take for a part of the output.
    fn check_empty(&self) -> Result<()> {
        let failed = |error| failed("cannot list the output folder", &self.path, error);
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let name = name.to_string_lossy();
            if [".parquet", ".parq", ".pq", ".rdx"].iter().any(|end| name.ends_with(end)) && !name.starts_with('_') {
                return Err(Error::new(ErrorKind::AlreadyExists, "the output folder has files that no rewrite wrote")
                    .with_file(self.path.join(&*name).display().to_string())
                    .with_hint("choose another folder, or remove them"));
            }
        }
        Ok(())
    }

    pub(super) fn file(&self, plan: &RewritePlan, file: u64) -> PathBuf {
        self.path.join(plan.file_name(file))
    }

    pub(super) fn index(&self) -> PathBuf {
        self.path.join(INDEX)
    }
}

/// The folder with spilled rows.
#[derive(Debug)]
pub(super) struct Spill {
    pub(super) path: PathBuf,
}

/// How rows are spilled: decided by whoever spills first, as it depends on the memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) buckets: Buckets,
    /// Where units of row groups end.
    pub(super) units: Vec<u32>,
}

impl Spill {
    /// The folder for a plan: in `given`, or in the output folder.
    pub(super) fn new(given: Option<&Path>, output: &Folder, plan: &RewritePlan) -> Self {
        let path = match given {
            Some(folder) => folder.join(format!("rowdex-spill-{:016x}", plan.fingerprint())),
            None => output.path.join(SPILL),
        };
        Self { path }
    }

    /// Makes the folder, and gives the layout that it has, or the given one if it has none.
    pub(super) fn prepare(&self, layout: Layout, is_alone: bool) -> Result<Layout> {
        fs::create_dir_all(&self.path).map_err(|error| failed("cannot make the spill folder", &self.path, error))?;
        if is_alone {
            remove_temporary(&self.path)?;
        }
        let path = self.path.join(LAYOUT);
        if let Some(known) = self.layout()? {
            return Ok(known);
        }
        let text =
            json!({"rows": layout.buckets.positions.end, "bucket_rows": layout.buckets.rows, "units": layout.units});
        let mut file = AtomicFile::create(&path, false)?;
        file.write_all(text.to_string().as_bytes()).map_err(|error| failed("cannot write the layout", &path, error))?;
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
    pub(super) fn layout(&self) -> Result<Option<Layout>> {
        let path = self.path.join(LAYOUT);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("cannot read the layout", &path, error)),
        };
        let parse = || {
            let layout: Value = serde_json::from_str(&text).ok()?;
            let units = layout.get("units")?.as_array()?.iter().map(|end| u32::try_from(end.as_u64()?).ok());
            let rows = layout.get("bucket_rows")?.as_u64().filter(|rows| (1..=u64::from(u32::MAX)).contains(rows))?;
            let buckets = Buckets { positions: 0..layout.get("rows")?.as_u64()?, rows };
            Some(Layout { buckets, units: units.collect::<Option<_>>()? })
        };
        parse().map(Some).ok_or_else(|| {
            Error::new(ErrorKind::Io, "the layout of the spilled rows is damaged")
                .with_file(path.display().to_string())
                .with_hint("remove the spill folder, and begin anew")
        })
    }

    pub(super) fn part(&self, unit: usize) -> PathBuf {
        self.path.join(format!("{unit:06}.part"))
    }

    pub(super) fn remove(&self) -> Result<()> {
        remove_folder(&self.path)
    }

    /// Compares the room that there is with what will be written, before anything is.
    pub(super) fn check_room(&self, spilled: u64, output: &Folder, written: u64) -> Result<()> {
        let parent = |path: &Path| path.ancestors().find(|path| path.is_dir()).map(Path::to_owned);
        let (Some(spill), Some(output)) = (parent(&self.path), parent(&output.path)) else { return Ok(()) };
        let wanted = if device(&spill) == device(&output) { spilled.saturating_add(written) } else { spilled };
        for (folder, what, wanted) in [(&spill, "spilled rows", wanted), (&output, "the output", written)] {
            if let Some(free) = free_bytes(folder).filter(|free| *free < wanted) {
                let message = format!("{what} need about {wanted} bytes, and {free} are free");
                return Err(Error::new(ErrorKind::Io, message)
                    .with_file(folder.display().to_string())
                    .with_hint("make room, or name a spill folder on another disk"));
            }
        }
        Ok(())
    }
}

/// Which file system a path is on.
#[cfg(unix)]
fn device(path: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).ok().map(|metadata| metadata.dev())
}

#[cfg(not(unix))]
fn device(_: &Path) -> Option<u64> {
    None
}

#[cfg(unix)]
fn free_bytes(folder: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    stat.f_bavail.checked_mul(stat.f_frsize)
}

#[cfg(not(unix))]
fn free_bytes(_: &Path) -> Option<u64> {
    None
}

/// Removes what a process that was killed had not finished.
fn remove_temporary(folder: &Path) -> Result<()> {
    let failed = |error| failed("cannot list the folder", folder, error);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let ours = ["part-", PLAN, INDEX, LAYOUT].iter().any(|begin| name.starts_with(&format!(".{begin}")));
        let is_temporary = name.rsplit_once(".tmp-").is_some_and(|(_, random)| random.len() == 16);
        let is_split = name.starts_with("split-") && name.ends_with(".part");
        if (ours || name.contains(".part.tmp-")) && is_temporary || is_split {
            remove_file(&path)?;
        }
    }
    Ok(())
}

fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(failed("cannot remove the file", path, error))
        }
        _ => Ok(()),
    }
}

/// Removes a spill folder, and nothing that a rewrite did not put there.
fn remove_folder(path: &Path) -> Result<()> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|error| failed("cannot list the spill folder", path, error))?,
    };
    for entry in entries {
        let name = entry.map_err(|error| failed("cannot list the spill folder", path, error))?.file_name();
        let name_text = name.to_string_lossy();
        if name_text.ends_with(".part") || name_text == LAYOUT || name_text.contains(".tmp-") {
            remove_file(&path.join(&name))?;
        }
    }
    match fs::remove_dir(path) {
        // Something else is in it.
        Ok(()) | Err(_) => Ok(()),
    }
}

fn failed(what: &'static str, path: &Path, error: std::io::Error) -> Error {
    Error::io(what, error).with_file(path.display().to_string())
}
