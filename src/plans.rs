//! Planned epochs of packs, in files that all processes of a user on a machine share.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{env, fs, thread};

use rowdex_base::error::Result;
use rowdex_io::tier::made_once;
use rowdex_order::sampler::Planning;
use rowdex_order::{KeptSums, PackSums};

/// How long to wait for another process that plans the same epoch, before planning it as well.
const WAIT: Duration = Duration::from_secs(120);

/// How many epochs are kept: the oldest go.
const MOST: usize = 256;

/// Ends the names of plans.
const SUFFIX: &str = "packs";

/// A folder with the plans of epochs of packs: 24 bytes for each block of positions.
///
/// A plan is of one epoch of the same rows, lengths, order, seed and packing. One process of a machine makes it, under
/// a lock, and the file appears whole. Whoever finds none, or a damaged one, plans the epoch and puts it there; a
/// folder that cannot be written is no error. Anybody may delete it at any time. Of 256 plans, the oldest go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanFolder {
    folder: PathBuf,
}

impl PlanFolder {
    /// The variable that names the folder; with no text in it, plans are not kept.
    pub const VARIABLE: &str = "ROWDEX_PLAN_FOLDER";

    /// This folder, which is made when something is first kept.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The one that [`VARIABLE`](Self::VARIABLE) names, or else `rowdex/plans` in the user's cache folder
    /// (`$XDG_CACHE_HOME`, or `~/.cache`); `None` if it names nothing, or the user has none.
    pub fn of_user() -> Option<Self> {
        Self::from_variables(|name| env::var_os(name))
    }

    /// Planning by all cores, kept in the user's folder.
    pub fn planning() -> Planning {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        Planning { threads, kept: Self::of_user().map(|folder| Arc::new(folder) as _) }
    }

    fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        if let Some(named) = variable(Self::VARIABLE) {
            return (!named.is_empty()).then(|| Self::new(named));
        }
        // A relative path is none, as the standard of these variables says.
        let folder = |name: &str| variable(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
        let caches = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
        Some(Self::new(caches.join("rowdex/plans")))
    }

    /// Lets the oldest plans go.
    fn trim(&self) {
        let Ok(files) = fs::read_dir(&self.folder) else { return };
        let is_plan = |path: &Path| path.extension().is_some_and(|suffix| suffix == SUFFIX);
        let plans = files.filter_map(|file| {
            let file = file.ok().filter(|file| is_plan(&file.path()))?;
            let made = file.metadata().and_then(|metadata| metadata.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
            Some((made, file.path()))
        });
        let mut plans: Vec<_> = plans.collect();
        plans.sort();
        for (_, path) in plans.iter().take(plans.len().saturating_sub(MOST)) {
            // Whoever deletes it first.
            let _ = fs::remove_file(path);
        }
    }
}

impl KeptSums for PlanFolder {
    fn sums(&self, fingerprint: u64, epoch: u64, plan: &dyn Fn() -> Result<PackSums>) -> Result<PackSums> {
        let path = self.folder.join(format!("{fingerprint:016x}-{epoch}.{SUFFIX}"));
        let read = |bytes: &[u8]| PackSums::from_bytes(bytes).filter(|sums| sums.is_of(fingerprint, epoch));
        let mut made = false;
        let sums = made_once(&path, WAIT, read, || {
            let sums = plan()?;
            made = true;
            let bytes = sums.to_bytes();
            Ok((sums, bytes))
        })?;
        if made {
            self.trim();
        }
        Ok(sums)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use rowdex_order::{Global, Lengths, Pack, Packed};

    use super::*;

    /// Counts how many lengths are asked for.
    #[derive(Debug, Default)]
    struct Counted(AtomicU64);

    impl Lengths for Counted {
        fn len(&self) -> u64 {
            10_000
        }

        fn length(&self, row: u64) -> Result<u64> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(row * 31 % 97)
        }

        fn fingerprint(&self) -> u64 {
            7
        }
    }

    fn packed(folder: &Path, lengths: &Arc<Counted>, seed: u64, capacity: u64) -> Packed {
        let pack = Pack { block: 1000, ..Pack::of(capacity) };
        let orders = Arc::new(Global::new(10_000, seed).unwrap());
        let packed = Packed::new(orders, Arc::clone(lengths) as Arc<dyn Lengths>, pack).unwrap();
        packed.with_kept_sums(Arc::new(PlanFolder::new(folder)))
    }

    #[test]
    fn an_epoch_is_planned_once_and_then_asks_for_no_length() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (Arc::new(Counted::default()), Arc::new(Counted::default()));
        let sums = packed(folder.path(), &first, 1, 100).packed(3).unwrap().sums().clone();
        assert_eq!(first.0.load(Ordering::Relaxed), 10_000);
        assert_eq!(packed(folder.path(), &second, 1, 100).packed(3).unwrap().sums(), &sums);
        assert_eq!(second.0.load(Ordering::Relaxed), 0);
        // Another epoch, seed or packing has a plan of its own.
        for (seed, capacity, epoch) in [(1, 100, 4), (2, 100, 3), (1, 101, 3)] {
            packed(folder.path(), &second, seed, capacity).packed(epoch).unwrap();
        }
        assert_eq!(second.0.load(Ordering::Relaxed), 30_000);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
    }

    #[test]
    fn a_damaged_plan_and_that_of_another_run_are_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let lengths = Arc::new(Counted::default());
        let sums = packed(folder.path(), &lengths, 1, 100).packed(0).unwrap().sums().clone();
        let path = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        let bytes = fs::read(&path).unwrap();
        let other = Arc::new(Counted::default());
        packed(&folder.path().join("other"), &other, 2, 100).packed(0).unwrap();
        let foreign = fs::read_dir(folder.path().join("other")).unwrap().next().unwrap().unwrap().path();
        for damaged in [vec![], bytes[..bytes.len() - 1].to_vec(), vec![0; bytes.len()], fs::read(foreign).unwrap()] {
            fs::write(&path, damaged).unwrap();
            let asked = lengths.0.load(Ordering::Relaxed);
            assert_eq!(packed(folder.path(), &lengths, 1, 100).packed(0).unwrap().sums(), &sums);
            assert_eq!(lengths.0.load(Ordering::Relaxed) - asked, 10_000);
            assert_eq!(fs::read(&path).unwrap(), bytes);
        }
    }

    #[test]
    fn the_oldest_plans_go() {
        let folder = tempfile::tempdir().unwrap();
        let lengths = Arc::new(Counted::default());
        for other in 0..MOST {
            let path = folder.path().join(format!("{other}.{SUFFIX}"));
            fs::write(&path, "").unwrap();
            let made = SystemTime::UNIX_EPOCH + Duration::from_secs(other as u64);
            fs::File::options().write(true).open(path).unwrap().set_modified(made).unwrap();
        }
        fs::write(folder.path().join("notes"), "").unwrap();
        packed(folder.path(), &lengths, 1, 100).packed(0).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), MOST + 1);
        assert!(!folder.path().join(format!("0.{SUFFIX}")).exists() && folder.path().join("notes").exists());
    }

    #[test]
    fn the_folder_is_the_one_that_the_variables_name() {
        let of = |variables: &[(&str, &str)]| {
            let variables = variables.to_vec();
            let found = move |name: &str| Some(variables.iter().find(|(known, _)| *known == name)?.1.into());
            Some(PlanFolder::from_variables(found)?.folder)
        };
        assert_eq!(of(&[("ROWDEX_PLAN_FOLDER", "here"), ("HOME", "/h")]), Some("here".into()));
        assert_eq!(of(&[("ROWDEX_PLAN_FOLDER", ""), ("HOME", "/h")]), None);
        assert_eq!(of(&[("XDG_CACHE_HOME", "/c"), ("HOME", "/h")]), Some("/c/rowdex/plans".into()));
        assert_eq!(of(&[("XDG_CACHE_HOME", "c"), ("HOME", "/h")]), Some("/h/.cache/rowdex/plans".into()));
        assert_eq!(of(&[("XDG_CACHE_HOME", "c")]), None);
    }
}
