//! `rowdex verify`: is the index whole, are the files still those that were indexed, and do the promises hold?

mod same_rows;
mod shards;

use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use rowdex::dataset::Staleness;
use rowdex::digest::RowsDigest;
use serde_json::{Value, json};

use crate::command::args::{DataArgs, IndexArg, JsonArg, LEVELS, named};
use crate::command::failure::{Failure, complain};
use crate::command::output;
use crate::command::progress::Progress;
use crate::command::sampling::SamplingArgs;
use crate::command::state_arg::StateArg;
use crate::command::view_of;

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  rowdex verify train.rdx --check deep
  rowdex verify train.rdx --shards --world-size 8 --batch-size 256
  rowdex verify train.rdx --shards --state checkpoint.pt                  # the shards of this run, in whole epochs
  rowdex verify train.rdx --rows
  rowdex verify train.rdx --same-rows shuffled/ --order global --seed 42

Levels of --check:
  off     every byte of the index
  stat    and the size and time of every file
  footer  and the footer of every file
  deep    and every value of every file

With --shards every batch of every rank is made as a job would make it, and compared:
  - every rank takes the same number of steps, and has the same number of rows or packs (uneven: one more or less);
  - every position of the order is assigned to one shard, once, and the same to ranks of one replica group;
  - the rows are every row once, but for repeated and dropped ones, for orders that promise it; with --pack, the tokens;
  - repeated rows are the rows of the order's first positions;
  - no pack exceeds its capacity.
Rows and tokens are compared by a hash of the set, in no memory: it misses an error once in 2^64 cases.

The digest of row ids is XXH3-64 of a rank's row ids as 8 little-endian bytes each, as in `rowdex epoch`. That of the
run is of all ranks' digests. With --rows and --same-rows all rows are read once; a digest of their values has 128 bits
a row (docs/digests.md).
Exit status 1 if a promise does not hold.")]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) index: IndexArg,

    /// How closely to look at the files.
    #[arg(long, value_name = "LEVEL", default_value = "stat", value_parser = named::<Staleness>(LEVELS))]
    check: Staleness,

    /// Show instead that the shards of all ranks are equal, disjoint and complete. No data is read.
    #[arg(long, conflicts_with_all = ["rows", "same_rows"])]
    shards: bool,

    /// Report the digest of the rows instead: one number for their values, in any order.
    #[arg(long, conflicts_with = "same_rows")]
    rows: bool,

    /// Show instead that every row is once in this other index, or data as `rowdex build` takes it, over the columns
    /// that both have; with a seed or an order, that row i of it is row order(i) of INDEX.
    #[arg(long, value_name = "OTHER")]
    same_rows: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) data: DataArgs,

    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,

    #[command(flatten)]
    pub(crate) state: StateArg,

    #[command(flatten)]
    pub(crate) json: JsonArg,
}

pub(crate) fn run(args: &VerifyArgs, given: &ArgMatches) -> Result<(), Failure> {
    const ORDER: [&str; 3] = ["order", "seed", "epoch"];
    const READ: [&str; 7] = ["index", "rows", "same_rows", "columns", "root", "threads", "json"];
    let is_given = |id: &str| given.value_source(id) == Some(ValueSource::CommandLine);
    let allowed = |id: &str| match () {
        () if args.shards => !["check", "columns", "root", "threads"].contains(&id),
        () if args.same_rows.is_some() => READ.contains(&id) || ORDER.contains(&id),
        () if args.rows => READ.contains(&id),
        () => ["index", "check", "root", "threads", "json"].contains(&id),
    };
    // Groups of options have names, too, which are those of types.
    let all = given.ids().map(clap::Id::as_str).filter(|id| id.starts_with(|c: char| c.is_ascii_lowercase()));
    if let Some(other) = all.filter(|id| is_given(id)).find(|id| !allowed(id)) {
        return Err(Failure::usage(format!(
            "--{} is not for what is verified: leave it out, or add --shards, --rows or --same-rows",
            other.replace('_', "-")
        )));
    }
    match &args.same_rows {
        Some(other) => same_rows::run(args, other, ORDER.iter().any(|id| is_given(id))),
        None if args.shards => shards::run(args, given),
        None if args.rows => digest(args),
        None => files(args),
    }
}

fn digest(args: &VerifyArgs) -> Result<(), Failure> {
    let dataset = args.data.open(args.index.open()?)?;
    let bar = Progress::new("rows");
    let digest = dataset.rows_digest(&|progress| bar.at(progress.rows_done, progress.rows));
    bar.finish();
    let digest = digest?;
    output::tell(
        args.json.json,
        &json!({"rows": digest.rows, "rows_digest": digest.to_string(), "columns": columns(&digest)}),
    )
}

fn columns(digest: &RowsDigest) -> Vec<Value> {
    digest.columns.iter().map(|column| json!({"name": column.name, "kind": column.kind})).collect()
}

fn files(args: &VerifyArgs) -> Result<(), Failure> {
    let index = args.index.open()?;
    index.verify()?;
    let base = view_of::base(&index);
    let report = match args.check {
        Staleness::Off => None,
        level => {
            let bar = Progress::new("checking files");
            let files = index.num_files().into();
            let dataset = args.data.open(index)?;
            let report = dataset.verify(level, &|progress| bar.at(progress.files_done, files));
            bar.finish();
            Some(report?)
        }
    };
    let problems = report.as_ref().map(|report| &report.problems[..]).unwrap_or_default();
    problems.iter().for_each(complain);
    let changed = base.as_ref().and_then(|base| base.as_ref().err());
    changed.iter().for_each(complain);
    let whole = problems.is_empty() && changed.is_none();
    let told = json!({
        "ok": whole,
        "base": base.as_ref().map(|base| base.as_ref().copied().unwrap_or("changed")),
        "check": args.check.to_string(),
        "files": report.as_ref().map_or(0, |report| report.files),
        "row_groups": report.as_ref().map_or(0, |report| report.row_groups),
        "rows": report.as_ref().map_or(0, |report| report.rows),
        "problems": problems.iter().map(problem_json).collect::<Vec<_>>(),
    });
    told_if(args, whole, &told, Failure::Reported)
}

/// Reports that all is well, or fails, as a reader that is gone makes nothing whole.
fn told_if(args: &VerifyArgs, whole: bool, told: &Value, failure: Failure) -> Result<(), Failure> {
    let told = if whole || args.json.json { output::tell(args.json.json, told) } else { Ok(()) };
    if whole { told } else { Err(failure) }
}

fn problem_json(problem: &rowdex::Error) -> Value {
    json!({
        "file": problem.file(),
        "row_group": problem.row_group(),
        "column": problem.column(),
        "kind": format!("{:?}", problem.kind()),
        "message": problem.message(),
        "hint": problem.hint(),
    })
}
