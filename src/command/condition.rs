//! Conditions in SQL on the command line, and what deciding them took.

use clap::Args;
#[cfg(feature = "filter")]
use rowdex::dataset::{FilterReport, RowProgress};

use crate::command::failure::Failure;
#[cfg(feature = "filter")]
use crate::command::progress::Progress;

/// What a program says that was built without the feature `filter`.
#[cfg(not(feature = "filter"))]
const NOT_BUILT: &str = "this rowdex was built without conditions; build it with `--features full`";

/// Conditions, all of which rows have to meet.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConditionArgs {
    /// Only rows that meet this condition in SQL: "lang = 'en' and length(text) > 200". May be given several times, for
    /// rows that meet all of them. The columns that it needs are read, where the footers do not decide.
    #[arg(long = "where", value_name = "EXPR")]
    conditions: Vec<String>,
}

impl ConditionArgs {
    #[cfg(feature = "filter")]
    pub(crate) fn texts(&self) -> &[String] {
        &self.conditions
    }

    /// Refuses conditions where there are none to be had.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        #[cfg(not(feature = "filter"))]
        if !self.conditions.is_empty() {
            return Err(Failure::usage(NOT_BUILT));
        }
        Ok(())
    }
}

#[cfg(feature = "filter")]
pub(crate) fn bar() -> Progress {
    Progress::new("rows decided", 0)
}

#[cfg(feature = "filter")]
pub(crate) fn show(bar: &Progress, progress: RowProgress) {
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
        "rows_by_pages": report.rows_by_pages,
        "bytes_read": report.bytes_read,
    })
}
