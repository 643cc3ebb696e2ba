//! `rowdex verify --same-rows`: whether two datasets have the same rows, and in which order.

use std::path::PathBuf;
use std::time::Instant;

use rowdex::digest::{RowsDigest, SameRows};
use serde_json::json;

use super::{VerifyArgs, columns, problem_json, told_if};
use crate::command::args::index_of;
use crate::command::failure::Failure;
use crate::command::progress::Progress;

/// Compares the rows of the index, or of data, with those of another one.
pub(crate) fn run(args: &VerifyArgs, other: &PathBuf, ordered: bool) -> Result<(), Failure> {
    let started = Instant::now();
    let index = args.index.open()?;
    let first = args.data.open(index)?;
    let index = index_of(&[other.to_owned()])?;
    let second = args.data.open(index)?;
    let mut same = SameRows::new(&first, &second);
    if ordered {
        let order = args.sampling.orders(first.index())?.orders;
        same = same.with_order(order.epoch(args.sampling.epoch)?);
    }
    let bar = Progress::new("rows");
    let report = same.check(&|progress| bar.at(progress.rows_done, progress.rows));
    bar.finish();
    let report = report?;
    let names = [&args.index.index, other].map(|path| path.display().to_string());
    let [a, b] = &names;
    let problem = report.problem(a, b);
    let side = |path: &str, of: &RowsDigest| json!({"path": path, "rows": of.rows, "rows_digest": of.to_string()});
    let same = report.same_rows.map(|_| format!("every row of {a} is once in {b}"));
    let order = report.in_order.map(|_| format!("row i of {b} is row order(i) of {a}"));
    let told = json!({
        "ok": problem.is_none(),
        "promises": same.into_iter().chain(order).collect::<Vec<_>>(),
        "a": side(a, &report.first),
        "b": side(b, &report.second),
        "columns": columns(&report.first),
        "left_out": report.left_out,
        "problem": problem.as_ref().map(problem_json),
        "seconds": started.elapsed().as_secs_f64(),
    });
    let whole = problem.is_none();
    told_if(args, whole, &told, problem.map_or(Failure::Reported, Failure::from))
}
