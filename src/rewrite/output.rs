//! The output of a rewrite: what may be there, what is left there, and what is finished.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::plan::RewritePlan;
use super::spill;
use super::target::{INDEX, OutFile, OutputPlace, PLAN, failed, lock, real};
use crate::dataset::Dataset;
use rowdex_base::error::{Error, ErrorKind, Remedy, Result};
use rowdex_io::source::place::Place;
use rowdex_io::source::{NOTES, UploadOptions};

/// Where a rewrite writes to. Each file appears whole or not at all, so its name alone says that it is finished, to
/// whichever process and machine looks.
#[derive(Debug)]
pub(super) struct RewriteOutput {
    target: OutputPlace,
    /// Files of which an upload was noted when the output was listed.
    begun: BTreeSet<String>,
    /// Held for as long as a process writes to it: by one that writes all of it alone, by tasks together.
    lock: Option<File>,
}

/// What to do about what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExistingOutput {
    /// Refuse it.
    Refuse,
    /// Go on with it, if it is of the same plan.
    Resume,
    /// Remove it, if a rewrite wrote it.
    Replace,
}

impl RewriteOutput {
    /// The folder or prefix at this path, which need not be there.
    ///
    /// # Errors
    /// `InvalidArgument` for what is only read, and for a folder that has files of the input.
    pub(super) fn new(path: &Path, dataset: &Dataset) -> Result<Self> {
        let target = OutputPlace::new(path, dataset.store_options())?;
        let output = Self { target, begun: BTreeSet::new(), lock: None };
        output.check_input(dataset)?;
        Ok(output)
    }

    /// Refuses to write among the files that are read.
    fn check_input(&self, dataset: &Dataset) -> Result<()> {
        let mut files = dataset.index().files();
        let inside = match &self.target {
            OutputPlace::Folder(output) => {
                let Some(data) = dataset.local_root() else { return Ok(()) };
                let output = real(output);
                let mut folders: HashMap<PathBuf, bool> = HashMap::new();
                let mut is_within = |file: &PathBuf| {
                    let Some(parent) = file.parent() else { return false };
                    let of_folder = || real(parent).starts_with(&output);
                    // A file, or a folder on the way to it, may be a link.
                    *folders.entry(parent.to_owned()).or_insert_with(of_folder)
                        || file.is_symlink() && real(file).starts_with(&output)
                };
                files.map(|file| data.join(file.path())).find(&mut is_within).map(|file| file.display().to_string())
            }
            OutputPlace::Prefix { url: output, .. } => files.find_map(|file| {
                let Ok(Place::Remote(url)) = Place::of(dataset.location(file.path())?) else { return None };
                let is_below = output.key.is_empty()
                    || url.key.strip_prefix(&output.key).is_some_and(|rest| rest.starts_with('/'));
                (is_below && url.same_store(output)).then(|| url.to_string())
            }),
        };
        match inside {
            None => Ok(()),
            Some(file) => Err(Error::new(ErrorKind::InvalidArgument, "the output folder has a file of the input")
                .with_file(file)
                .with_hint("write to a folder of its own")),
        }
    }

    /// Makes it ready for this plan. Returns whether it goes on with what is there.
    pub(super) fn prepare(&mut self, plan: &RewritePlan, found: ExistingOutput, is_alone: bool) -> Result<bool> {
        if let Some(folder) = self.target.folder() {
            fs::create_dir_all(folder).map_err(|error| failed("cannot make the output folder", folder, error))?;
            self.lock = lock(folder, is_alone)?;
        }
        let known = self.plan()?;
        if let Some(known) = &known
            && found != ExistingOutput::Replace
        {
            return match found {
                ExistingOutput::Resume if known == plan => {
                    if is_alone {
                        self.clean(plan)?;
                    }
                    Ok(true)
                }
                ExistingOutput::Resume => Err(Error::new(
                    ErrorKind::StateMismatch,
                    "the folder has a rewrite of other rows, in another order, or with other options",
                )
                .with_file(self.target.shown(""))
                .with_remedies("go on with what it was begun with, or replace it ({})", &[Remedy::Overwrite])),
                _ => Err(Error::new(ErrorKind::AlreadyExists, "the folder has a rewrite already")
                    .with_file(self.target.shown(""))
                    .with_remedies("resume it, replace it ({}), or choose another folder", &[Remedy::Overwrite])),
            };
        }
        if let Some(known) = &known {
            self.remove(known)?;
        }
        self.check_empty()?;
        if let Some(folder) = self.folder().filter(|_| is_alone) {
            spill::remove_all(folder)?;
        }
        match self.target.put(PLAN, &plan.to_json(), false) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                // Another process was faster; or this one, whose first attempt was not answered.
                if self.plan()?.as_ref() == Some(plan) {
                    return Ok(found == ExistingOutput::Resume);
                }
                self.lock = None;
                // What was there is replaced already, and this is another one's.
                let found = if found == ExistingOutput::Replace { ExistingOutput::Refuse } else { found };
                self.prepare(plan, found, is_alone)
            }
            put => put.map(|()| false),
        }
    }

    /// The plan that it was begun with.
    pub(super) fn plan(&self) -> Result<Option<RewritePlan>> {
        let plan = self.target.text(PLAN)?.map(|text| RewritePlan::from_json(&text));
        plan.transpose().map_err(|error| error.with_file(self.target.shown(PLAN)))
    }

    /// Takes back what processes that are no more had begun and not finished.
    pub(super) fn clean(&self, plan: &RewritePlan) -> Result<()> {
        let files: BTreeSet<String> = (0..plan.files).map(|file| plan.file_name(file)).collect();
        self.target.clean(|name| files.contains(name))
    }

    /// Removes what a rewrite of this plan left, the plan last.
    fn remove(&self, plan: &RewritePlan) -> Result<()> {
        self.clean(plan)?;
        self.folder().map_or(Ok(()), spill::remove_all)?;
        let there = self.target.names()?;
        let files = (0..plan.files).map(|file| plan.file_name(file));
        for name in files.chain([INDEX, PLAN].map(str::to_owned)).filter(|name| there.contains(name)) {
            self.target.remove(&name)?;
        }
        Ok(())
    }

    /// Refuses a place with anything that readers of it would take for a part of the output.
    fn check_empty(&self) -> Result<()> {
        let is_data = |name: &&String| {
            let ends = [".parquet", ".parq", ".pq", ".rdx"];
            ends.iter().any(|end| name.ends_with(end)) && !name.split('/').any(|part| part.starts_with('_'))
        };
        match self.target.names()?.iter().find(is_data) {
            None => Ok(()),
            Some(name) => {
                Err(Error::new(ErrorKind::AlreadyExists, "the output folder has files that no rewrite wrote")
                    .with_file(self.target.shown(name))
                    .with_hint("choose another folder, or remove them"))
            }
        }
    }

    /// Runs of files that are not there, of these.
    pub(super) fn missing(&mut self, plan: &RewritePlan, files: Range<u64>) -> Result<Vec<Range<u64>>> {
        let there = self.target.names()?;
        let mut missing: Vec<Range<u64>> = Vec::new();
        for file in files.filter(|file| !there.contains(&plan.file_name(*file))) {
            match missing.last_mut().filter(|last| last.end == file) {
                Some(last) => last.end = file + 1,
                None => missing.push(file..file + 1),
            }
        }
        self.begun = there.iter().filter_map(|name| Some(name.strip_prefix(NOTES)?.to_owned())).collect();
        Ok(missing)
    }

    /// Begins a file, of which uploads hold so much in memory.
    pub(super) fn create(&self, plan: &RewritePlan, file: u64, uploads: UploadOptions) -> Result<OutFile> {
        let name = plan.file_name(file);
        // Another machine may have begun it, which is no more.
        if let OutputPlace::Prefix { store, .. } = &self.target
            && self.begun.contains(&name)
        {
            store.take_back(&name)?;
        }
        self.target.create(&name, uploads)
    }

    /// The local folder, if it is one.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.target.folder()
    }

    pub(super) fn path(&self) -> PathBuf {
        self.target.path("")
    }

    pub(super) fn file(&self, plan: &RewritePlan, file: u64) -> PathBuf {
        self.target.path(&plan.file_name(file))
    }

    pub(super) fn remove_plan(&self) -> Result<()> {
        self.target.remove(PLAN)
    }

    pub(super) fn remove_index(&self) -> Result<()> {
        self.target.remove(INDEX)
    }

    pub(super) fn index(&self) -> PathBuf {
        self.target.path(INDEX)
    }
}
