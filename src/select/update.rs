//! Bringing a view up to date with its base: rows of unchanged files stay as they were chosen, others are chosen now.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};

use super::record::{Left, Record};
use super::{Choice, Select, SelectReport};
use rowdex_base::error::{Error, ErrorKind, Remedy, Result};
#[cfg(feature = "filter")]
use rowdex_filter::Condition;
use rowdex_index::FileEntry;
use rowdex_index::Index;
use rowdex_io::source::place::shown;
use rowdex_order::IdSet;
use rowdex_order::id_set::Builder;
use rowdex_projection::{Projection, children, with_children};

/// What is taken over from the view as it was.
#[derive(Debug)]
pub(super) struct Carried {
    /// Rows of the base that are to be chosen from.
    pub(super) fresh: IdSet,
    /// Rows that stay chosen, by source row of the base.
    pub(super) source: IdSet,
    /// Files that these are of.
    pub(super) files: u64,
    /// What each choice left of all rows that are not fresh, where that is known.
    left: Vec<Option<Left>>,
    is_all_fresh: bool,
}

impl Carried {
    /// All rows are to be chosen from.
    pub(super) fn nothing(base: &Index) -> Result<Self> {
        let source = IdSet::from_ranges(base.source_rows(), [])?;
        Ok(Self { fresh: IdSet::all(base.len())?, source, files: 0, left: Vec::new(), is_all_fresh: true })
    }

    /// What is recorded of a choice by its number, for the rows that are not fresh. `None` where that is not known.
    pub(super) fn left(&self, choice: usize) -> Option<Left> {
        if self.is_all_fresh { Some(Left::default()) } else { self.left.get(choice).copied().flatten() }
    }

    /// What a view has of files that the base has unchanged.
    fn of(base: &Index, view: &Index, record: Record) -> Result<Self> {
        let known: HashMap<&str, FileEntry<'_>> = view.files().map(|file| (file.path(), file)).collect();
        let by_value = record.choices.iter().all(Choice::is_by_value);
        let mut is_leading = true;
        let same: Vec<Option<FileEntry<'_>>> = base
            .files()
            .map(|file| {
                let was = known.get(file.path()).copied().filter(|was| is_same(base, &file, view, was));
                is_leading &= was.is_some_and(|was| was.index() == file.index());
                // Which rows a sample or a split by row id has depends on how many there are before.
                was.filter(|_| is_leading || by_value)
            })
            .collect();
        let kept = (0..).zip(&same).take_while(|(at, was)| was.is_some_and(|was| was.index() == *at)).count();
        let is_appended = kept == view.num_files() as usize;
        check_base(base, view, &record, is_appended)?;

        let mut fresh = Builder::new(base.len());
        let mut source = Builder::new(base.source_rows());
        let mut start = 0;
        for (file, was) in base.files().zip(&same) {
            let groups = match was {
                Some(was) => (view, was.row_groups()),
                None => (base, file.row_groups()),
            };
            for group in groups.1.filter_map(|group| groups.0.row_group(group)) {
                let rows = start..start + group.source_rows();
                match group.selection() {
                    _ if was.is_none() => {}
                    None => source.add(rows.clone())?,
                    Some(set) => set.runs().try_for_each(|run| source.add(start + run.start..start + run.end))?,
                }
                start = rows.end;
            }
            if was.is_none() {
                fresh.add(file.row_ids())?;
            }
        }
        let files = same.iter().flatten().count() as u64;
        let left = if is_appended { record.left } else { Vec::new() };
        Ok(Self { fresh: fresh.finish(), source: source.finish(), files, left, is_all_fresh: false })
    }
}

impl Select {
    /// Brings a view up to date, after its base was:
    /// [`IndexBuilder::with_update`](crate::builder::IndexBuilder::with_update). This is of the base as it is now,
    /// without a choice; choices are those that the view records.
    ///
    /// Rows of files that have not changed stay as they were chosen, and nothing is read of these files. Rows of other
    /// files are chosen now. The view serves what a new one with the same choices would serve, and row ids of unchanged
    /// leading files stay. The path holds the view as it was, or as it is then, at any moment.
    ///
    /// ```no_run
    /// use rowdex::{Index, IndexBuilder, Select};
    ///
    /// # fn main() -> rowdex::Result<()> {
    /// IndexBuilder::new(["data/"]).with_update(true).build("train.rdx")?;
    /// let report = Select::new(Index::open("train.rdx")?).update("clean.rdx")?;
    /// println!("{} rows; nothing was read of {} files", report.rows, report.kept_files);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if a choice cannot be made again: rows of other views, rows that a program gave,
    /// a list that has other rows of unchanged files by now, a condition whose columns have other types by now; if this
    /// is not the base that the view was made of, as it may be after an update; and if there are choices. Those of
    /// [`write`](Self::write).
    pub fn update(&self, view: impl AsRef<Path>) -> Result<SelectReport> {
        let path = view.as_ref();
        if !(self.choices.is_empty() && self.added.is_empty() && self.conditions.is_empty()) {
            let message = "an update takes its choices from the view";
            return Err(
                Error::new(ErrorKind::InvalidArgument, message).with_hint("choose nothing, or write another view")
            );
        }
        self.check_place(path)?;
        let view = Index::open_with(path, &self.store)?;
        let record = Record::of(&view)?;
        let named = |error: Error| error.with_file(shown(path));
        let again = Self { choices: record.choices.clone(), conditions: record.conditions.clone(), ..self.clone() };
        again.check_columns(&view).map_err(named)?;
        let carried = Carried::of(&self.base, &view, record).map_err(named)?;
        again.write_with(path, true, &carried)
    }

    /// Refuses choices by values that may mean something else over the base than they did over the view.
    fn check_columns(&self, view: &Index) -> Result<()> {
        let base = &self.base;
        let by_column = self.choices.iter().filter_map(Choice::column).map(str::to_owned);
        let columns: Vec<String> = by_column.chain(self.condition_columns(view)?).collect();
        if !columns.is_empty() {
            check_names(base, view)?;
        }
        for column in columns {
            let type_in = |index: &Index| -> Result<Vec<DataType>> {
                let chosen = Projection::columns(index.schema(), &[&column])?;
                Ok(chosen.internal().fields().iter().map(|field| nullable(field.data_type())).collect())
            };
            if type_in(base)? != type_in(view)? {
                return Err(
                    anew("a choice is by its values, and it has another type by now".to_owned()).with_column(column)
                );
            }
        }
        Ok(())
    }
}

impl Select {
    /// The columns of the conditions, which have to be the same over the base and over the view.
    #[cfg(feature = "filter")]
    fn condition_columns(&self, view: &Index) -> Result<Vec<String>> {
        if self.conditions.is_empty() {
            return Ok(Vec::new());
        }
        let now = Condition::parse(&self.conditions, self.base.schema())?;
        let was = Condition::parse(&self.conditions, view.schema())?;
        if now.columns() != was.columns() {
            let now = now.columns().join(", ");
            let was = was.columns().join(", ");
            return Err(anew(format!("the condition is of the columns {now} now, and was of {was}")));
        }
        Ok(now.columns().to_vec())
    }

    #[cfg(not(feature = "filter"))]
    fn condition_columns(&self, _: &Index) -> Result<Vec<String>> {
        if self.conditions.is_empty() {
            return Ok(Vec::new());
        }
        let message = "the view has a condition, and this rowdex was built without conditions";
        Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("build it with the feature `filter`"))
    }
}

/// Refuses a base that serves columns of unchanged files by other names than the view does.
fn check_names(base: &Index, view: &Index) -> Result<()> {
    let is_in = |index: &Index, pair: &(&str, &str)| index.renames().any(|known| known == *pair);
    let is_new = |pair: &(&str, &str)| !is_in(view, pair) && view.schema().column_with_name(pair.0).is_some();
    let gone = view.renames().find(|pair| !is_in(base, pair));
    match gone.or_else(|| base.renames().find(is_new)) {
        Some((name, _)) => {
            let message = "the base serves columns by other names than when the view was made";
            Err(anew(message.to_owned()).with_column(name))
        }
        None => Ok(()),
    }
}

/// Refuses a base that is not the one that the view was made of, with changes of its files.
fn check_base(base: &Index, view: &Index, record: &Record, is_appended: bool) -> Result<()> {
    if is_appended {
        if base.fingerprint_of_first(view.num_files()) == record.base_fingerprint {
            return Ok(());
        }
        return Err(anew("the base serves other rows of unchanged files than when the view was made".to_owned()));
    }
    let is_view = record.base_rows != record.source_rows || base.len() != base.source_rows();
    if is_view {
        let message = "files of its base were changed or removed, and the base is a view itself";
        return Err(anew(message.to_owned()));
    }
    if record.choices.iter().any(Choice::is_list) {
        let message = "files of its base were changed or removed, and the view was made with a list of rows";
        return Err(anew(message.to_owned()));
    }
    Ok(())
}

/// An error of a view that cannot be brought up to date.
fn anew(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, message).with_remedies("select anew ({})", &[Remedy::Overwrite])
}

/// Whether a file of the base is the one that the view has.
fn is_same(base: &Index, now: &FileEntry<'_>, view: &Index, was: &FileEntry<'_>) -> bool {
    let groups = |index: &Index, file: &FileEntry<'_>| -> Vec<(u32, u64)> {
        let groups = file.row_groups().filter_map(|group| index.row_group(group));
        groups.map(|group| (group.ordinal(), group.source_rows())).collect()
    };
    let is_other_object = now.etag().zip(was.etag()).is_some_and(|(now, was)| now != was);
    !is_other_object
        && (now.size(), now.footer_hash()) == (was.size(), was.footer_hash())
        && groups(base, now) == groups(view, was)
}

/// The same type, with nulls allowed everywhere below it: whether there are any changes no value.
fn nullable(data_type: &DataType) -> DataType {
    let below = |field: &FieldRef| {
        let data_type = nullable(field.data_type());
        Arc::new(field.as_ref().clone().with_data_type(data_type).with_nullable(true).with_metadata(HashMap::new()))
    };
    with_children(data_type, children(data_type).iter().map(below).collect())
}
