//! Conditions in SQL on the command line, and what deciding them took.

use clap::Args;
use rowdex::Dataset;
#[cfg(feature = "filter")]
use rowdex::dataset::{FilterProgress, FilterReport};
use rowdex::order::IdSet;

use crate::command::failure::Failure;
#[cfg(feature = "filter")]
use crate::command::progress::Progress;

/// What a program says that was built without the feature `filter`.
#[cfg(not(feature = "filter"))]
const NOT_BUILT: &str =
    "this rowdex was built without conditions; get them with `cargo install rowdex --profile dist --features filter`";

/// Conditions, all of which rows have to meet.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConditionArgs {
    /// Only rows that meet this condition in SQL: "lang = 'en' and length(text) > 200". May be given several times, for
    /// rows that meet all of them. The columns that it needs are read, where the footers do not decide.
    #[arg(long = "where", value_name = "EXPR")]
    conditions: Vec<String>,
}

impl ConditionArgs {
    pub(crate) const NONE: Self = Self { conditions: Vec::new() };

    pub(crate) fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    #[cfg(feature = "filter")]
    pub(crate) fn texts(&self) -> &[String] {
        &self.conditions
    }

    /// Refuses conditions where there are none to be had.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        #[cfg(not(feature = "filter"))]
        if !self.is_empty() {
            return Err(Failure::usage(NOT_BUILT));
        }
        Ok(())
    }

    /// The rows of a dataset that meet the conditions, of those in `of`; nothing if there is no condition.
    pub(crate) fn rows(&self, dataset: &Dataset, of: Option<&IdSet>) -> Result<Option<IdSet>, Failure> {
        self.check()?;
        if self.is_empty() {
            return Ok(None);
        }
        decided(dataset, of, &self.conditions).map(Some)
    }
}

#[cfg(feature = "filter")]
fn decided(dataset: &Dataset, of: Option<&IdSet>, conditions: &[String]) -> Result<IdSet, Failure> {
    let filter = dataset.filter_all(conditions)?;
    let filter = match of {
        Some(of) => filter.of(of),
        None => filter,
    };
    let bar = bar();
    let rows = filter.run(&|progress| show(&bar, progress)).map(|(rows, _)| rows);
    bar.finish();
    Ok(rows?)
}

#[cfg(not(feature = "filter"))]
fn decided(_: &Dataset, _: Option<&IdSet>, _: &[String]) -> Result<IdSet, Failure> {
    Err(Failure::usage(NOT_BUILT))
}

#[cfg(feature = "filter")]
pub(crate) fn bar() -> Progress {
    Progress::new("rows decided", 0)
}

#[cfg(feature = "filter")]
pub(crate) fn show(bar: &Progress, progress: FilterProgress) {
    bar.set_length(progress.rows);
    bar.set_position(progress.rows_done);
}

/// What deciding took, as JSON.
#[cfg(feature = "filter")]
pub(crate) fn json(report: &FilterReport) -> serde_json::Value {
    serde_json::json!({
        "columns": report.columns,
        "rows": report.rows,
        "kept": report.kept,
        "rows_evaluated": report.rows_evaluated,
        "row_groups": report.row_groups,
        "row_groups_none": report.row_groups_none,
        "row_groups_all": report.row_groups_all,
        "row_groups_by_bloom_filters": report.row_groups_by_bloom_filters,
        "rows_by_pages": report.rows_by_pages,
        "bytes_read": report.bytes_read,
    })
}

/// What deciding took, as lines.
#[cfg(feature = "filter")]
pub(crate) fn explained(report: &FilterReport) -> String {
    use indicatif::{HumanBytes, HumanCount};
    let none = "none";
    let columns = if report.columns.is_empty() { none.to_owned() } else { report.columns.join(", ") };
    let read = report.row_groups.saturating_sub(report.row_groups_none).saturating_sub(report.row_groups_all);
    let filters = match report.row_groups_by_bloom_filters {
        0 => String::new(),
        some => format!(" and Bloom filters ({} of them by these)", HumanCount(some)),
    };
    format!(
        "  columns     {columns}\n  row groups  {}: {} left out and {} kept by statistics{filters}, {} read\n  \
         rows        {} kept of {}, {} decided by pages, {} evaluated\n  read        {}\n",
        HumanCount(report.row_groups),
        HumanCount(report.row_groups_none),
        HumanCount(report.row_groups_all),
        HumanCount(read),
        HumanCount(report.kept),
        HumanCount(report.rows),
        HumanCount(report.rows_by_pages),
        HumanCount(report.rows_evaluated),
        HumanBytes(report.bytes_read),
    )
}
