//! `rowdex verify --same-rows`: whether two datasets have the same rows, and in which order.

use std::path::Path;
use std::time::Instant;

use rowdex::ErrorKind::NotFound;
use rowdex::digest::{DigestColumn, RowsDigest, SameRows, SameRowsReport};
use rowdex::{Dataset, Index, IndexBuilder};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::VerifyArgs;
use crate::command::failure::Failure;
use crate::command::output;
use crate::command::progress::Progress;

/// A dataset of the command line, and the index that was made for it.
struct Opened {
    dataset: Dataset,
    _index: Option<TempDir>,
}

/// Compares the rows of the index, or of data, with those of another one.
pub(crate) fn run(args: &VerifyArgs, other: &Path, ordered: bool) -> Result<(), Failure> {
    let started = Instant::now();
    let first = open(args, &args.index.index)?;
    let second = open(args, other)?;
    let mut same = SameRows::new(&first.dataset, &second.dataset);
    if ordered {
        let order = args.sampling.orders(first.dataset.index())?.orders;
        same = same.with_order(order.epoch(args.sampling.epoch)?);
    }
    let bar = Progress::new("rows", 0);
    let report = same.check(&|progress| {
        bar.set_length(progress.rows);
        bar.set_position(progress.rows_done);
    });
    bar.finish();
    let report = report?;
    let told = SameRowsText { report: &report, names: (shown(&args.index.index), shown(other)) };
    let seconds = started.elapsed().as_secs_f64();
    let problem = report.problem(&told.names.0, &told.names.1);
    let said = match () {
        () if args.json.json => output::print_json(&told.to_json(problem.as_ref(), seconds)),
        () if problem.is_none() => output::print(&told.to_text(seconds)),
        () => Ok(()),
    };
    // A reader that is gone makes no rows the same.
    problem.map_or(said, |problem| Err(problem.into()))
}

/// The dataset of an index, or of data that has none.
fn open(args: &VerifyArgs, path: &Path) -> Result<Opened, Failure> {
    let (index, folder) = match if is_data(path) { None } else { Some(Index::open(path)) } {
        Some(Ok(index)) => (index, None),
        // Nothing else says that a URL is a folder, or a path a pattern.
        other => {
            let folder = TempDir::new().map_err(|error| Failure::new(format!("no room for an index: {error}")))?;
            let index = folder.path().join("data.rdx");
            IndexBuilder::new([path]).build(&index).map_err(|error| match other {
                Some(Err(no_index)) if no_index.kind() != NotFound || error.kind() == NotFound => no_index,
                _ => error,
            })?;
            (Index::open(index)?, Some(folder))
        }
    };
    Ok(Opened { dataset: args.data.open(index, Some(0))?, _index: folder })
}

/// Whether a path is no index by what it is called.
fn is_data(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).map(str::to_ascii_lowercase);
    path.is_dir()
        || path.as_os_str().as_encoded_bytes().ends_with(b"/")
        || matches!(extension.as_deref(), Some("parquet" | "parq" | "pq"))
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// What was found, in words.
struct SameRowsText<'a> {
    report: &'a SameRowsReport,
    names: (String, String),
}

impl SameRowsText<'_> {
    /// Each promise that was asked for.
    fn promises(&self) -> Vec<String> {
        let (first, second) = &self.names;
        let same = self.report.same_rows.map(|_| format!("every row of {first} is once in {second}"));
        let order = self.report.in_order.map(|_| format!("row i of {second} is row order(i) of {first}"));
        same.into_iter().chain(order).collect()
    }

    fn to_json(&self, problem: Option<&rowdex::Error>, seconds: f64) -> Value {
        let side = |name: &str, digest: &RowsDigest| {
            let sum = digest.to_string();
            json!({"path": name, "rows": digest.rows, "rows_digest": sum})
        };
        let columns = |column: &DigestColumn| json!({"name": column.name, "kind": column.kind});
        json!({
            "a": side(&self.names.0, &self.report.first),
            "b": side(&self.names.1, &self.report.second),
            "columns": self.report.first.columns.iter().map(columns).collect::<Vec<_>>(),
            "left_out": self.report.left_out,
            "ok": problem.is_none(),
            "promises": self.promises(),
            "problem": problem.map(|problem| json!({
                "file": problem.file(),
                "row_group": problem.row_group(),
                "column": problem.column(),
                "message": problem.message(),
            })),
            "seconds": seconds,
        })
    }

    fn to_text(&self, seconds: f64) -> String {
        let report = self.report;
        let side = |name: &str, digest: &RowsDigest| {
            vec![name.to_owned(), output::counted(digest.rows, "row"), digest.to_string()]
        };
        let sides = output::columns(&[side(&self.names.0, &report.first), side(&self.names.1, &report.second)]);
        let columns = output::counted(report.first.columns.len() as u64, "column");
        let promises: String =
            self.promises().iter().map(|promise| format!("yes  {promise}  (wrong once in 2^128)\n")).collect();
        let left_out = match &report.left_out[..] {
            [] => String::new(),
            names => format!("not compared, because only one has them: {}\n", names.join(", ")),
        };
        format!("{sides}\n{promises}{left_out}\n{columns} compared, {seconds:.1} s\n")
    }
}
