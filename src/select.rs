//! Views: choosing the rows that an index serves, and writing that down as another index of the same files.

use std::fmt;
use std::path::{Path, PathBuf};
#[cfg(feature = "filter")]
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::temporal_conversions::timestamp_s_to_datetime;

use crate::index::build_info::{quoted, renames_member};
use crate::index::output::{self, Output};
use crate::index::{ListedRows, root, view};
use crate::order::{IdSet, Sample};
use crate::source::StoreOptions;
use crate::source::place::{Place, shown};
#[cfg(feature = "filter")]
use crate::{
    Dataset,
    dataset::{Filter, FilterProgress, FilterReport},
};
use crate::{Error, ErrorKind, Index, Result};

/// Makes a view: an index of the same files that serves only some of the rows.
///
/// The rows are chosen before they are numbered, so shards of a view are as equal as those of any index. No data is
/// copied: a view takes at most 1.1 bits for each row of the files, and what the index of all rows takes.
///
/// Every choice leaves out rows of the base, and so they may come in any order; only [`or`](Self::or) adds rows, to
/// what all others leave.
///
/// ```no_run
/// use rowdex::{Index, Select};
///
/// # fn main() -> rowdex::Result<()> {
/// let report = Select::new(Index::open("train.rdx")?)
///     .skip("bad.csv") // rows that an engine found
///     .sample(0.01, 0)
///     .write("small.rdx")?;
/// println!("{} of {} rows", report.rows, report.base_rows);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Select {
    base: Index,
    choices: Vec<Choice>,
    added: Vec<Index>,
    overwrite: bool,
    store: StoreOptions,
    time: Option<SystemTime>,
    #[cfg(feature = "filter")]
    filters: Filters,
}

/// Conditions, and how the data is read that they are of.
#[cfg(feature = "filter")]
#[derive(Clone, Default)]
struct Filters {
    conditions: Vec<String>,
    root: Option<PathBuf>,
    threads: Option<usize>,
    progress: Option<Arc<dyn Fn(FilterProgress) + Send + Sync>>,
}

/// One of the reasons to leave rows out.
#[derive(Debug, Clone)]
enum Choice {
    Rows(PathBuf),
    Skip(PathBuf),
    Kept(IdSet, String),
    And(Index),
    Not(Index),
    Sample { fraction: f64, seed: u64 },
}

/// What [`Select::write`] made.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SelectReport {
    /// Rows that the view serves: row ids are `0..rows`.
    pub rows: u64,
    /// Rows that the base serves.
    pub base_rows: u64,
    /// Rows of the files, served or not.
    pub source_rows: u64,
    /// How often lists had rows beyond the first time.
    pub repeated: u64,
    /// Listed rows that are in the files and that the base does not serve.
    pub unserved: u64,
    /// Length of the view in bytes.
    pub index_bytes: u64,
    /// What deciding the conditions took, if there are any.
    #[cfg(feature = "filter")]
    pub filter: Option<FilterReport>,
}

impl Select {
    /// Of the rows of this index, which may be a view itself. Without a choice, all of them.
    pub fn new(base: Index) -> Self {
        Self {
            base,
            choices: Vec::new(),
            added: Vec::new(),
            overwrite: false,
            store: StoreOptions::default(),
            time: None,
            #[cfg(feature = "filter")]
            filters: Filters::default(),
        }
    }

    fn choose(mut self, choice: Choice) -> Self {
        self.choices.push(choice);
        self
    }

    /// Only the rows that a file lists, as [`Index::read_rows`] takes it.
    #[must_use]
    pub fn rows(self, list: impl Into<PathBuf>) -> Self {
        self.choose(Choice::Rows(list.into()))
    }

    /// None of the rows that a file lists.
    #[must_use]
    pub fn skip(self, list: impl Into<PathBuf>) -> Self {
        self.choose(Choice::Skip(list.into()))
    }

    /// Only these rows, by row id of the base. What is recorded of them is `note`.
    #[must_use]
    pub fn kept(self, rows: IdSet, note: impl Into<String>) -> Self {
        self.choose(Choice::Kept(rows, note.into()))
    }

    /// Only rows that another view of the same files serves, too.
    #[must_use]
    pub fn and(self, view: Index) -> Self {
        self.choose(Choice::And(view))
    }

    /// None of the rows that another view of the same files serves.
    #[must_use]
    pub fn not(self, view: Index) -> Self {
        self.choose(Choice::Not(view))
    }

    /// Beside what all choices leave, the rows of another view of the same files.
    #[must_use]
    pub fn or(mut self, view: Index) -> Self {
        self.added.push(view);
        self
    }

    /// Only a [`Sample`] of this fraction of the rows, from 0 to 1.
    ///
    /// The key of a row is its place among all rows of the files. So a sample of a view is that of its base, as far as
    /// the view has it, and it keeps its rows when files are appended.
    #[must_use]
    pub fn sample(self, fraction: f64, seed: u64) -> Self {
        self.choose(Choice::Sample { fraction, seed })
    }

    /// Only rows that meet a condition in SQL, such as `lang = 'en' and length(text) > 200`.
    ///
    /// Conditions come last, so that values are read of rows alone that the other choices leave. `docs/select.md` says
    /// what a condition may be. See [`Dataset::filter`].
    #[cfg(feature = "filter")]
    #[must_use]
    pub fn filter(mut self, condition: impl Into<String>) -> Self {
        self.filters.conditions.push(condition.into());
        self
    }

    /// Where the data is that conditions read, instead of where the index says. See
    /// [`DatasetBuilder::with_root`](crate::DatasetBuilder::with_root).
    #[cfg(feature = "filter")]
    #[must_use]
    pub fn with_root(mut self, root: impl Into<PathBuf>) -> Self {
        self.filters.root = Some(root.into());
        self
    }

    /// With how many threads conditions are decided. See
    /// [`DatasetBuilder::with_threads`](crate::DatasetBuilder::with_threads).
    #[cfg(feature = "filter")]
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.filters.threads = Some(threads);
        self
    }

    /// Is called while conditions are decided.
    #[cfg(feature = "filter")]
    #[must_use]
    pub fn with_progress(mut self, progress: impl Fn(FilterProgress) + Send + Sync + 'static) -> Self {
        self.filters.progress = Some(Arc::new(progress));
        self
    }

    /// Whether to replace an existing file. Default: no.
    #[must_use]
    pub fn with_overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// How the store that the view goes to is talked to. Default: [`StoreOptions::default`].
    #[must_use]
    pub fn with_store_options(mut self, options: StoreOptions) -> Self {
        self.store = options;
        self
    }

    /// The time that is recorded. Default: that of [`write`](Self::write). With a given one equal choices give equal
    /// bytes.
    #[must_use]
    pub fn with_time(mut self, time: SystemTime) -> Self {
        self.time = Some(time);
        self
    }

    /// Writes the view to `output`, a path or a URL: the path holds what it held, or the whole view, at any moment.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`] if there is a file and overwriting was not asked for;
    /// [`ErrorKind::InvalidArgument`] for views of other files, for a fraction beyond 0 to 1, if no row is left, if the
    /// view would replace its base, and if the base is in memory and does not say where its files are; those of
    /// [`Index::read_rows`]; and with conditions, those of [`Dataset::filter`] and of reading.
    pub fn write(&self, output: impl AsRef<Path>) -> Result<SelectReport> {
        let output = output.as_ref();
        let place = Place::of(output)?;
        let exists = |error: Error| match error.kind() {
            ErrorKind::AlreadyExists => Error::new(ErrorKind::AlreadyExists, "the index exists already")
                .with_file(shown(output))
                .with_hint("overwrite it (`--force`) or choose another path"),
            _ => error,
        };
        if self.base.path().is_some_and(|base| is_one_place(base, output)) {
            return Err(Error::new(ErrorKind::InvalidArgument, "the view would replace the index that it is of")
                .with_file(shown(output))
                .with_hint("write it to another path, and rename it later if that is what you want"));
        }
        #[cfg(feature = "filter")]
        let dataset = self.filtered()?;
        #[cfg(feature = "filter")]
        let filter = match &dataset {
            // Before anything is read or written.
            Some(dataset) => Some(dataset.filter_all(&self.filters.conditions)?),
            None => None,
        };
        let mut file = Output::create(place.clone(), self.overwrite, &self.store).map_err(exists)?;
        if place.url().is_some() && !self.overwrite && output::exists(&place, &self.store)? {
            return Err(exists(Error::new(ErrorKind::AlreadyExists, "")));
        }
        let mut told = Told::default();
        let rows = self.chosen(&mut told)?;
        #[cfg(feature = "filter")]
        let (rows, filter) = match filter {
            Some(filter) => self.matching(filter, rows, &mut told)?,
            None => (rows, None),
        };
        let rows = self.source(rows, &mut told)?;
        if rows.is_empty() {
            let message = format!("none of {} rows is left to be served", self.base.len());
            return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("loosen the choices"));
        }
        let root = root::recorded(&place, &root::of(&self.base)?)?;
        let info = self.provenance(&place, &told, rows.len());
        let written = view::write(&mut file, &self.base, &rows, &root, &info);
        let index_bytes = written.map_err(|error| match error.kind() {
            ErrorKind::Io => error.with_file(shown(output)),
            _ => error,
        })?;
        file.commit().map_err(exists)?;
        Ok(SelectReport {
            rows: rows.len(),
            base_rows: self.base.len(),
            source_rows: self.base.source_rows(),
            repeated: told.repeated,
            unserved: told.unserved,
            index_bytes,
            #[cfg(feature = "filter")]
            filter,
        })
    }

    /// What conditions are decided on, if there are any.
    #[cfg(feature = "filter")]
    fn filtered(&self) -> Result<Option<Dataset>> {
        if self.filters.conditions.is_empty() {
            return Ok(None);
        }
        let mut builder = Dataset::builder(self.base.clone()).with_store_options(self.store.clone());
        if let Some(root) = &self.filters.root {
            builder = builder.with_root(root);
        }
        if let Some(threads) = self.filters.threads {
            builder = builder.with_threads(threads);
        }
        builder.open().map(Some)
    }

    /// Those of the rows that meet the conditions.
    #[cfg(feature = "filter")]
    fn matching(&self, filter: Filter<'_>, rows: IdSet, told: &mut Told) -> Result<(IdSet, Option<FilterReport>)> {
        let progress = |at: FilterProgress| {
            if let Some(progress) = &self.filters.progress {
                progress(at);
            }
        };
        let (rows, report) = filter.of(&rows).run(&progress)?;
        let conditions: Vec<String> =
            self.filters.conditions.iter().map(|condition| format!("\"where\":{}", quoted(condition))).collect();
        let (last, before) =
            conditions.split_last().map_or((String::new(), &[][..]), |(last, all)| (last.clone(), all));
        told.steps.extend(before.iter().map(|condition| format!("{{{condition}}}")));
        told.steps.push(format!("{{{last},\"evaluated\":{},\"rows\":{}}}", report.rows_evaluated, rows.len()));
        Ok((rows, Some(report)))
    }

    /// The rows of the base that are left.
    fn chosen(&self, told: &mut Told) -> Result<IdSet> {
        let base = &self.base;
        let mut rows = IdSet::all(base.len())?;
        for choice in &self.choices {
            let left = match choice {
                Choice::Rows(list) => told.rows_of(base.read_rows(list)?),
                Choice::Skip(list) => told.rows_of(base.read_rows(list)?).complement()?,
                Choice::Kept(kept, _) => kept.clone(),
                Choice::And(view) => base.rows_of(view)?,
                Choice::Not(view) => base.rows_of(view)?.complement()?,
                Choice::Sample { fraction, seed } => {
                    base.of_source(&Sample::new(*fraction, *seed)?.rows(base.source_rows())?)?
                }
            };
            rows = rows.intersection(&left)?;
            told.steps.push(format!("{{{},\"rows\":{}}}", choice.json(), rows.len()));
        }
        Ok(rows)
    }

    /// The source rows that are left, and those that are added.
    fn source(&self, rows: IdSet, told: &mut Told) -> Result<IdSet> {
        let base = &self.base;
        let mut source = base.to_source(&rows)?;
        for view in &self.added {
            base.check_same_files(view)?;
            source = source.union(&view.served_source()?)?;
            told.steps.push(format!("{{{},\"rows\":{}}}", json_of_view("or", view), source.len()));
        }
        Ok(source)
    }

    /// What the view is made of, as JSON.
    fn provenance(&self, output: &Place, told: &Told, rows: u64) -> String {
        let base = &self.base;
        let time = self.time.unwrap_or_else(SystemTime::now);
        format!(
            concat!(
                r#"{{"rowdex":"{}"{},"view":{{"base":{},"base_fingerprint":"{:016x}","base_rows":{},"#,
                r#""source_rows":{},"choices":[{}],"rows":{},"time":{}}}}}"#
            ),
            env!("CARGO_PKG_VERSION"),
            renames_member(base.renaming()),
            base.path().map_or_else(|| "null".to_owned(), |path| quoted(&from_view(output, path))),
            base.fingerprint(),
            base.len(),
            base.source_rows(),
            told.steps.join(","),
            rows,
            quoted(&rfc3339(time)),
        )
    }
}

/// What is told and recorded of the choices.
#[derive(Debug, Default)]
struct Told {
    /// JSON objects.
    steps: Vec<String>,
    repeated: u64,
    unserved: u64,
}

impl Told {
    /// The rows of a list, whose repeats are counted.
    fn rows_of(&mut self, listed: ListedRows) -> IdSet {
        self.repeated += listed.repeated;
        self.unserved += listed.unserved;
        listed.rows
    }
}

impl Choice {
    /// As it is recorded: the members of a JSON object.
    fn json(&self) -> String {
        match self {
            Self::Rows(list) => format!("\"rows_in\":{}", quoted(&list.display().to_string())),
            Self::Skip(list) => format!("\"skip\":{}", quoted(&list.display().to_string())),
            Self::Kept(_, note) => format!("\"kept\":{}", quoted(note)),
            Self::And(view) => json_of_view("and", view),
            Self::Not(view) => json_of_view("not", view),
            Self::Sample { fraction, seed } => format!("\"sample\":{fraction},\"seed\":{seed}"),
        }
    }
}

impl fmt::Debug for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Select")
            .field("base", &self.base)
            .field("choices", &self.choices)
            .field("added", &self.added)
            .finish_non_exhaustive()
    }
}

fn json_of_view(choice: &str, view: &Index) -> String {
    let path = view.path().map_or_else(|| "null".to_owned(), |path| quoted(&shown(path)));
    format!("\"{choice}\":{path},\"fingerprint\":\"{:016x}\"", view.fingerprint())
}

/// How the base is found from the folder of the view; as it was given where there is no such way.
fn from_view(view: &Place, base: &Path) -> String {
    let way = || {
        let (Place::Local(view), Place::Local(base)) = (view, Place::of(base).ok()?) else { return None };
        let folder = match view.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let way = root::relative(&folder.canonicalize().ok()?, &base.canonicalize().ok()?)?;
        Some(way.to_str()?.replace(std::path::MAIN_SEPARATOR, "/"))
    };
    way().unwrap_or_else(|| shown(base))
}

/// Whether two paths lead to the same file, or are the same URL.
fn is_one_place(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

/// Like `2026-01-31T12:00:00Z`.
fn rfc3339(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let date = i64::try_from(seconds).ok().and_then(timestamp_s_to_datetime);
    date.map_or_else(String::new, |date| format!("{}Z", date.to_string().replace(' ', "T")))
}

#[cfg(test)]
mod tests;
