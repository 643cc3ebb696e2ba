//! `rowdex verify`: is the index whole, are the files still those that were indexed, and do the promises hold?

mod same_rows;
mod shards;

use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use rowdex::Index;
use rowdex::dataset::Staleness;
use serde_json::{Value, json};

use crate::command::args::{DataArgs, IndexArg, JsonArg, LEVELS, named};
use crate::command::failure::{Failure, complain, option, said};
use crate::command::output;
use crate::command::progress::Progress;
use crate::command::sampling::{BatchArg, SamplingArgs};
use crate::command::state_arg::StateArg;
use crate::command::view_of::{self, Base};

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  rowdex verify train.rdx --check deep
  rowdex verify train.rdx --shards --world-size 8 --batch-size 256
  rowdex verify train.rdx --shards --state checkpoint.pt                  # what this run deals, in whole epochs
  rowdex verify train.rdx --rows
  rowdex verify train.rdx --same-rows shuffled/ --order global --seed 42

Levels of --check:
  off     every byte of the index
  stat    and the size and time of every file
  footer  and the footer of every file
  deep    and every value of every file

With --shards every batch of every rank is made as a job would make it, and compared:
  - every rank takes as many steps, and has as many samples (uneven: one more or less);
  - every position of the order is dealt to one shard, once;
  - the rows are every row once, pads and dropped rows apart, for orders that promise it;
  - pads are the rows of the order's first positions;
  - ranks of one replica group are dealt the same;
  - with --workers, the batches of a rank's workers in turn are those of the rank.
The rows are compared with all rows by a hash of the set, in no memory: it misses an error once in 2^64 cases. With
--pack, of every token: ranks have as many packs at every step, no pack exceeds its capacity, and every token of the
order is served once, but for what the options leave out.

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

    /// With --shards: check as well what K workers of each rank would make.
    #[arg(long, value_name = "K", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=4096))]
    pub(crate) workers: u64,

    /// Tell the digest of the rows instead: one number for their values, in any order.
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
    pub(crate) batch: BatchArg,

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
    let dataset = args.data.open(args.index.open()?, Some(0))?;
    let bar = Progress::new("rows", 0);
    let digest = dataset.rows_digest(&|progress| {
        bar.set_length(progress.rows);
        bar.set_position(progress.rows_done);
    });
    bar.finish();
    let digest = digest?;
    let columns = digest.columns.iter();
    if args.json.json {
        let columns: Vec<_> = columns.map(|column| json!({"name": column.name, "kind": column.kind})).collect();
        return output::print_json(
            &json!({"rows": digest.rows, "rows_digest": digest.to_string(), "columns": columns}),
        );
    }
    let columns: Vec<&str> = columns.map(|column| column.name.as_str()).collect();
    output::print(&format!("{digest}  {}, over {}\n", output::counted(digest.rows, "row"), columns.join(", ")))
}

fn files(args: &VerifyArgs) -> Result<(), Failure> {
    let index = args.index.open()?;
    index.verify()?;
    let base = view_of::base(&index);
    let checked = match args.check {
        Staleness::Off => Checked::default(),
        level => checked(args, index, level)?,
    };
    for problem in &checked.problems {
        complain(said(problem));
    }
    if let Some(Base::Changed(message)) = &base {
        complain(message);
    }
    let whole = checked.problems.is_empty() && !matches!(base, Some(Base::Changed(_)));
    let told = match () {
        () if args.json.json => output::print_json(&checked.to_json(args, whole, base.as_ref())),
        () if whole => output::print(&checked.to_text(args)),
        () => Ok(()),
    };
    // A reader that is gone makes nothing whole.
    if whole { told } else { Err(Failure::Reported) }
}

/// What was looked at, and what is wrong with it.
#[derive(Default)]
struct Checked {
    files: u64,
    row_groups: u64,
    rows: u64,
    problems: Vec<rowdex::Error>,
}

fn checked(args: &VerifyArgs, index: Index, level: Staleness) -> Result<Checked, Failure> {
    let bar = Progress::new("checking files", index.num_files().into());
    // Every value is looked at once, so keeping any of them would be in vain.
    let report = args.data.open(index, Some(0))?.verify(level, &|progress| bar.set_position(progress.files_done));
    bar.finish();
    let report = report?;
    Ok(Checked { files: report.files, row_groups: report.row_groups, rows: report.rows, problems: report.problems })
}

impl Checked {
    fn to_json(&self, args: &VerifyArgs, whole: bool, base: Option<&Base>) -> Value {
        json!({
            "ok": whole,
            "base": base.map(|base| match base {
                Base::Same => "same",
                Base::Changed(_) => "changed",
                Base::NotThere => "not there",
            }),
            "check": args.check.to_string(),
            "files": self.files,
            "row_groups": self.row_groups,
            "rows": self.rows,
            "problems": self.problems.iter().map(problem_json).collect::<Vec<_>>(),
        })
    }

    fn to_text(&self, args: &VerifyArgs) -> String {
        let index = args.index.index.display();
        let files = output::counted(self.files, "file");
        match args.check {
            Staleness::Off => format!("{index}: the index is whole\n"),
            Staleness::Deep => format!(
                "{index}: the index is whole, and so is the data: {files}, {} and {} decoded\n",
                output::counted(self.row_groups, "row group"),
                output::counted(self.rows, "row")
            ),
            _ => format!("{index}: the index is whole, and its data has not changed: {files}\n"),
        }
    }
}

fn problem_json(problem: &rowdex::Error) -> Value {
    json!({
        "file": problem.file(),
        "row_group": problem.row_group(),
        "column": problem.column(),
        "kind": format!("{:?}", problem.kind()),
        "message": problem.message(),
        "hint": problem.advice().map(|hint| hint.in_words(option)),
    })
}
