//! `rowdex verify`: is the index whole, and are the files still those that were indexed?

use clap::Args;
use rowdex::dataset::Staleness;
use rowdex::{Dataset, Index};
use serde_json::{Value, json};

use crate::command::args::{IndexArg, JsonArg, LEVELS, RootArg, ThreadsArg, named};
use crate::command::failure::{Failure, complain, option, said};
use crate::command::output;
use crate::command::progress::Progress;
use crate::command::view_of::{self, Base};

#[derive(Debug, Args)]
#[command(after_help = "\
Levels:
  off     every byte of the index
  stat    and the size and time of every file
  footer  and the footer of every file
  deep    and every value of every file")]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    index: IndexArg,

    /// How closely to look.
    #[arg(long, value_name = "LEVEL", default_value = "stat", value_parser = named::<Staleness>(LEVELS))]
    level: Staleness,

    #[command(flatten)]
    root: RootArg,

    #[command(flatten)]
    threads: ThreadsArg,

    #[command(flatten)]
    json: JsonArg,
}

pub(crate) fn run(args: &VerifyArgs) -> Result<(), Failure> {
    let index = args.index.open()?;
    index.verify()?;
    let base = view_of::base(&index);
    let checked = match args.level {
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
    let mut dataset = Dataset::builder(index).with_cache_bytes(0);
    if let Some(root) = &args.root.root {
        dataset = dataset.with_root(root);
    }
    if let Some(threads) = args.threads.threads {
        dataset = dataset.with_threads(usize::from(threads));
    }
    let report = dataset.open()?.verify(level, &|progress| bar.set_position(progress.files_done));
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
            "level": args.level.to_string(),
            "files": self.files,
            "row_groups": self.row_groups,
            "rows": self.rows,
            "problems": self.problems.iter().map(problem_json).collect::<Vec<_>>(),
        })
    }

    fn to_text(&self, args: &VerifyArgs) -> String {
        let index = args.index.index.display();
        let files = output::counted(self.files, "file");
        match args.level {
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
