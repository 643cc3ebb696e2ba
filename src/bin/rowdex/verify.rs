//! `rowdex verify`: is the index whole, and are the files still those that were indexed?

use clap::Args;
use rowdex::Dataset;
use rowdex::dataset::Staleness;
use serde_json::{Value, json};

use crate::args::{IndexArg, JsonArg, LEVELS, RootArg, ThreadsArg, named};
use crate::failure::{Failure, complain, option, said};
use crate::output;
use crate::progress::Progress;
use crate::view_of::{self, Base};

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
    let (mut files, mut row_groups, mut rows, mut problems) = (0, 0, 0, Vec::new());
    if args.level != Staleness::Off {
        let bar = Progress::new("checking files", index.num_files().into());
        // Every value is looked at once, so keeping any of them would be in vain.
        let mut dataset = Dataset::builder(index).with_cache_bytes(0);
        if let Some(root) = &args.root.root {
            dataset = dataset.with_root(root);
        }
        if let Some(threads) = args.threads.threads {
            dataset = dataset.with_threads(usize::from(threads));
        }
        let report = dataset.open()?.verify(args.level, &|progress| bar.set_position(progress.files_done));
        bar.finish();
        let report = report?;
        (files, row_groups, rows, problems) = (report.files, report.row_groups, report.rows, report.problems);
    }

    for problem in &problems {
        complain(said(problem));
    }
    let base_changed = match &base {
        Some(Base::Changed(message)) => Some(message),
        _ => None,
    };
    if let Some(message) = base_changed {
        complain(message);
    }
    let whole = problems.is_empty() && base_changed.is_none();
    if args.json.json {
        output::print_json(&json!({
            "ok": whole,
            "base": base.as_ref().map(|base| match base {
                Base::Same => "same",
                Base::Changed(_) => "changed",
                Base::NotThere => "not there",
            }),
            "level": args.level.to_string(),
            "files": files,
            "row_groups": row_groups,
            "rows": rows,
            "problems": problems.iter().map(problem_json).collect::<Vec<_>>(),
        }))?;
    } else if whole {
        let index = args.index.index.display();
        output::print(&match args.level {
            Staleness::Off => format!("{index}: the index is whole\n"),
            Staleness::Deep => format!(
                "{index}: the index is whole, and so is the data: {}, {} and {} decoded\n",
                output::counted(files, "file"),
                output::counted(row_groups, "row group"),
                output::counted(rows, "row")
            ),
            _ => format!(
                "{index}: the index is whole, and its data has not changed: {}\n",
                output::counted(files, "file")
            ),
        })?;
    }
    if whole { Ok(()) } else { Err(Failure::Reported) }
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
