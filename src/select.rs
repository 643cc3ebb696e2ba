//! Views: choosing the rows that an index serves, and writing that down as another index of the same files.

mod choice;
mod list;
mod marks;
mod record;

use std::fmt;
use std::path::{Path, PathBuf};
#[cfg(feature = "filter")]
use std::sync::Arc;
use std::time::SystemTime;

use serde_json::Value;
#[cfg(feature = "filter")]
use serde_json::json;

use self::choice::{Choice, json_of_view};
pub use self::list::{ListOfRows, ListedRows};
use crate::dataset::Dataset;
#[cfg(feature = "filter")]
use crate::dataset::{Filter, FilterReport, RowProgress};
use rowdex_base::error::{Error, ErrorKind, Result};
use rowdex_index::Index;
use rowdex_index::output::Output;
use rowdex_index::{root, view};
use rowdex_io::source::StoreOptions;
use rowdex_io::source::place::{Place, shown};
use rowdex_order::{IdSet, Side};

/// Makes a view: an index of the same files that serves only some of the rows.
///
/// The rows are chosen before they are numbered, so shards of a view are as equal as those of any index. No data is
/// copied: a view takes at most 1.1 bits for each row of the files, and what the index of all rows takes.
///
/// Every choice leaves out rows of the base, and so they may come in any order; only [`union`](Self::union) adds rows,
/// to what all others leave.
///
/// ```no_run
/// use rowdex::{Index, Select};
///
/// # fn main() -> rowdex::Result<()> {
/// let report = Select::new(Index::open("train.rdx")?)
///     .skip("bad.parquet") // rows that an engine found
///     .sample(0.01, 0)
///     .write("small.rdx")?;
/// println!("{} of {} rows", report.rows, report.base_rows);
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use]
pub struct Select {
    base: Index,
    choices: Vec<Choice>,
    added: Vec<Index>,
    overwrite: bool,
    store: StoreOptions,
    time: Option<SystemTime>,
    root: Option<PathBuf>,
    threads: Option<usize>,
    conditions: Vec<String>,
    #[cfg(feature = "filter")]
    progress: Option<Arc<dyn Fn(RowProgress) + Send + Sync>>,
}

/// What [`Select::write`] made.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "capi", derive(serde::Serialize))]
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
    #[cfg_attr(feature = "capi", serde(skip))]
    pub filter: Option<FilterReport>,
}

impl Select {
    /// Of the rows of this index, which may be a view itself. A choice has to be made.
    pub fn new(base: Index) -> Self {
        Self {
            base,
            choices: Vec::new(),
            added: Vec::new(),
            overwrite: false,
            store: StoreOptions::default(),
            time: None,
            root: None,
            threads: None,
            conditions: Vec::new(),
            #[cfg(feature = "filter")]
            progress: None,
        }
    }

    fn choose(mut self, choice: Choice) -> Self {
        self.choices.push(choice);
        self
    }

    /// Only the rows that a file lists, a [`ListOfRows`].
    pub fn rows(self, list: impl Into<PathBuf>) -> Self {
        self.choose(Choice::Rows(list.into()))
    }

    /// None of the rows that a file lists.
    pub fn skip(self, list: impl Into<PathBuf>) -> Self {
        self.choose(Choice::Skip(list.into()))
    }

    /// Only these rows, by row id of the base. What is recorded of them is `note`.
    pub fn kept(self, rows: IdSet, note: impl Into<String>) -> Self {
        self.choose(Choice::Kept(rows, note.into()))
    }

    /// Only rows that another view of the same files serves, too.
    pub fn intersect(self, view: Index) -> Self {
        self.choose(Choice::And(view))
    }

    /// None of the rows that another view of the same files serves.
    pub fn exclude(self, view: Index) -> Self {
        self.choose(Choice::Not(view))
    }

    /// Adds the rows of another view of the same files to what all choices leave.
    pub fn union(mut self, view: Index) -> Self {
        self.added.push(view);
        self
    }

    /// Only a [sample](rowdex_order::Split::sample) of this fraction of the rows, from 0 to 1.
    ///
    /// The key of a row is its place among all rows of the files. So a sample of a view is that of its base, as far as
    /// the view has it, and it keeps its rows when files are appended.
    pub fn sample(self, fraction: f64, seed: u64) -> Self {
        self.choose(Choice::Sample { fraction, seed })
    }

    /// Only one side of a [`Split`](rowdex_order::Split) by row id of the base, with this fraction of the rows for
    /// validation.
    pub fn split(self, side: Side, validation_fraction: f64, seed: u64) -> Self {
        self.choose(Choice::Split { side, fraction: validation_fraction, seed, by: None })
    }

    /// Only one side of a [`Split`](rowdex_order::Split) by the values of a column, which is read of the rows that the
    /// choices before leave: rows with equal values are on one side. See
    /// [`Column::split`](crate::dataset::Column::split).
    pub fn split_by(self, column: impl Into<String>, side: Side, validation_fraction: f64, seed: u64) -> Self {
        self.choose(Choice::Split { side, fraction: validation_fraction, seed, by: Some(column.into()) })
    }

    /// Only rows that meet a condition in SQL, such as `lang = 'en' and length(text) > 200`.
    ///
    /// Conditions come last, so that values are read of rows alone that the other choices leave. `docs/select.md` says
    /// what a condition may be. See [`Dataset::filter`].
    #[cfg(feature = "filter")]
    pub fn filter(mut self, condition: impl Into<String>) -> Self {
        self.conditions.push(condition.into());
        self
    }

    /// Where the data is that conditions and splits by a column read, instead of where the index says. See
    /// [`DatasetBuilder::with_root`](crate::dataset::DatasetBuilder::with_root). The view says of the
    /// data what its base says.
    pub fn with_root(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = Some(root.into());
        self
    }

    /// With how many threads conditions are decided and columns read. See
    /// [`DatasetBuilder::with_threads`](crate::dataset::DatasetBuilder::with_threads).
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Is called while conditions are decided.
    #[cfg(feature = "filter")]
    pub fn with_progress(mut self, progress: impl Fn(RowProgress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(progress));
        self
    }

    /// Whether to replace an existing file. Default: no.
    pub fn with_overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// How the store that the view goes to is talked to. Default: [`StoreOptions::default`].
    pub fn with_store_options(mut self, options: StoreOptions) -> Self {
        self.store = options;
        self
    }

    /// The time that is recorded. Default: that of [`write`](Self::write). With a given one equal choices give equal
    /// bytes.
    pub fn with_time(mut self, time: SystemTime) -> Self {
        self.time = Some(time);
        self
    }

    /// Writes the view to `output`, a path or a URL: the path holds what it held, or the whole view, at any moment.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`] if there is a file and overwriting was not asked for;
    /// [`ErrorKind::InvalidArgument`] without a choice, for views of other files, for a fraction beyond 0 to 1, if no
    /// row is left, if the view would replace its base, and if the base is in memory and does not say where its files
    /// are; those of [`ListOfRows::rows`]; and with conditions, those of [`Dataset::filter`] and of reading.
    pub fn write(&self, output: impl AsRef<Path>) -> Result<SelectReport> {
        if self.choices.is_empty() && self.added.is_empty() && self.conditions.is_empty() {
            return Err(Error::new(ErrorKind::InvalidArgument, "no rows are chosen: the view would be its base again")
                .with_file(shown(output.as_ref()))
                .with_hint("say which rows (where, rows, skip, and, or, not, sample, split)"));
        }
        let output = output.as_ref();
        let place = Place::of(output)?;
        self.check_place(output)?;
        let dataset = self.dataset()?;
        #[cfg(feature = "filter")]
        let filter = match &dataset {
            // Before anything is read or written.
            Some(dataset) if !self.conditions.is_empty() => Some(dataset.filter_all(&self.conditions)?),
            _ => None,
        };
        let mut file = Output::create(place.clone(), self.overwrite, &self.store)?;
        let mut told = ChoiceRecord::default();
        let rows = self.chosen(&place, dataset.as_ref(), &mut told)?;
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
        let info = self.provenance(&place, told.steps, rows.len());
        let written = view::write(&mut file, &self.base, &rows, &root, &info);
        let index_bytes = written.map_err(|error| match error.kind() {
            ErrorKind::Io => error.with_file(shown(output)),
            _ => error,
        })?;
        file.commit()?;
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

    /// Refuses to replace the base.
    fn check_place(&self, output: &Path) -> Result<()> {
        if self.base.path().is_some_and(|base| is_one_place(base, output)) {
            return Err(Error::new(ErrorKind::InvalidArgument, "the view would replace the index that it is of")
                .with_file(shown(output))
                .with_hint("write it to another path, and rename it later if that is what you want"));
        }
        Ok(())
    }

    /// What is read for the choices, if values decide.
    fn dataset(&self) -> Result<Option<Dataset>> {
        if self.conditions.is_empty() && self.choices.iter().all(|choice| choice.column().is_none()) {
            return Ok(None);
        }
        // What decides is read of columns of its own.
        let builder = Dataset::builder(self.base.clone()).with_columns(None::<&str>);
        let mut builder = builder.with_store_options(self.store.clone());
        if let Some(root) = &self.root {
            builder = builder.with_root(root);
        }
        if let Some(threads) = self.threads {
            builder = builder.with_threads(threads);
        }
        builder.open().map(Some)
    }

    /// Those of the rows that meet the conditions.
    #[cfg(feature = "filter")]
    fn matching(
        &self,
        filter: Filter<'_>,
        rows: IdSet,
        told: &mut ChoiceRecord,
    ) -> Result<(IdSet, Option<FilterReport>)> {
        let progress = |at: RowProgress| {
            if let Some(progress) = &self.progress {
                progress(at);
            }
        };
        let (rows, report) = filter.of(&rows).run(&progress)?;
        // They are decided together, so that only the last says what they left.
        let last = self.conditions.len().saturating_sub(1);
        for (at, condition) in self.conditions.iter().enumerate() {
            told.steps.push(match at == last {
                true => json!({"where": condition, "evaluated": report.rows_evaluated, "rows": rows.len()}),
                false => json!({"where": condition}),
            });
        }
        Ok((rows, Some(report)))
    }

    /// The rows of the base that are left.
    fn chosen(&self, output: &Place, dataset: Option<&Dataset>, told: &mut ChoiceRecord) -> Result<IdSet> {
        let mut rows = IdSet::all(self.base.len())?;
        for choice in &self.choices {
            rows = rows.intersection(&choice.rows(&self.base, &rows, dataset, told)?)?;
            told.step(choice.json(output), &rows);
        }
        Ok(rows)
    }

    /// The source rows that are left, and those that are added.
    fn source(&self, rows: IdSet, told: &mut ChoiceRecord) -> Result<IdSet> {
        let base = &self.base;
        let mut source = base.to_source(&rows)?;
        for view in &self.added {
            base.check_same_files(view)?;
            source = source.union(&view.served_source()?)?;
            told.step(json_of_view("or", view), &source);
        }
        Ok(source)
    }
}

/// What is told and recorded of the choices.
#[derive(Debug, Default)]
struct ChoiceRecord {
    steps: Vec<Value>,
    repeated: u64,
    unserved: u64,
}

impl ChoiceRecord {
    /// The rows of a list, whose repeats are counted.
    fn rows_of(&mut self, listed: ListedRows) -> IdSet {
        self.repeated += listed.repeated;
        self.unserved += listed.unserved;
        listed.rows
    }

    /// Records a choice, and how many rows are left.
    fn step(&mut self, mut choice: Value, rows: &IdSet) {
        choice["rows"] = rows.len().into();
        self.steps.push(choice);
    }
}

impl fmt::Debug for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Select").finish_non_exhaustive()
    }
}

/// Whether two paths lead to the same file, or are the same URL.
fn is_one_place(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

#[cfg(test)]
mod tests;
