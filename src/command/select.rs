//! `rowdex select`: some rows of an index, as another index of the same files.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

use clap::Args;
use rowdex::select::SelectReport;
use rowdex::source::StoreOptions;
use rowdex::{Index, Select};
use serde_json::json;

use crate::command::args::{JsonArg, RootArg};
use crate::command::failure::{Failure, complain};
use crate::command::output;
#[cfg(feature = "filter")]
use crate::command::progress::Progress;
use crate::command::size;
use crate::command::split_arg::SplitArg;

#[derive(Debug, Args)]
#[command(after_help = r#"Examples:
  rowdex select train.rdx --where "lang = 'en' and length(text) > 200" -o english.rdx
  rowdex select train.rdx --skip bad.parquet -o clean.rdx
  rowdex select train.rdx --rows duckdb.parquet --sample 10% -o small.rdx
  rowdex select train.rdx --where "lang = 'en'" --dry-run                how many are there?
  rowdex select clean.rdx --intersect english.rdx --exclude seen.rdx -o next.rdx
  rowdex select train.rdx --split validation,by=user -o validation.rdx

The result is an index of the same files, for every other command; no data is copied. All choices leave rows out of
INDEX; only --union adds rows, to what the others leave. Conditions come last, and read what the others leave."#)]
pub(crate) struct SelectArgs {
    /// The index to choose rows of, a file or a URL.
    index: PathBuf,

    /// The index to write, a file or a URL.
    #[arg(short, long, value_name = "FILE", required_unless_present = "dry_run")]
    output: Option<PathBuf>,

    /// Replace the output if there is one.
    #[arg(long)]
    overwrite: bool,

    /// Say how many rows are left, and write nothing.
    #[arg(long, conflicts_with_all = ["output", "overwrite"])]
    dry_run: bool,

    /// Only rows that meet this condition in SQL: "lang = 'en' and length(text) > 200". May be given several times, for
    /// rows that meet all of them. The columns that it needs are read, where the footers do not decide.
    #[arg(long = "where", value_name = "EXPR")]
    conditions: Vec<String>,

    /// Keep only the rows listed in this file, in any order: Parquet or Arrow with the columns `file` and
    /// `row_in_file`, or `row_id`; or text with a row id a line.
    #[arg(long, value_name = "LIST")]
    rows: Vec<PathBuf>,

    /// Leave out the rows listed in this file.
    #[arg(long, value_name = "LIST")]
    skip: Vec<PathBuf>,

    /// Keep only rows that this index of the same files serves, too.
    #[arg(long, value_name = "INDEX")]
    intersect: Vec<PathBuf>,

    /// Add the rows of this index of the same files to what all other choices leave.
    #[arg(long, value_name = "INDEX")]
    union: Vec<PathBuf>,

    /// Leave out the rows that this index of the same files serves.
    #[arg(long, value_name = "INDEX")]
    exclude: Vec<PathBuf>,

    /// Keep a sample of this share of the rows, 1% or 0.01, by a hash: rows keep their places in it when files are
    /// appended, and a larger sample has all rows of a smaller one. `1%,seed=S` is another one.
    #[arg(long, value_name = "SHARE", value_parser = sample)]
    sample: Option<(f64, u64)>,

    /// Keep one side of a split by hash, `train` or `validation`, and then with commas `validation_fraction=F` of the
    /// rows for validation (0.1), `seed=S` for another split, `by=COLUMN` for rows with equal values on one side. A row
    /// keeps its side when files are appended.
    #[arg(long, value_name = "SIDE")]
    split: Option<SplitArg>,

    #[command(flatten)]
    root: RootArg,

    #[command(flatten)]
    json: JsonArg,
}

fn sample(text: &str) -> Result<(f64, u64), String> {
    let (share, seed) = text.split_once(",seed=").unwrap_or((text, "0"));
    Ok((size::share(share)?, seed.parse().map_err(|_| format!("{seed:?} is no seed"))?))
}

pub(crate) fn run(args: &SelectArgs) -> Result<(), Failure> {
    let started = Instant::now();
    // What is counted alone is written to a folder that goes again.
    let folder = args.dry_run.then(tempfile::tempdir).transpose();
    let folder = folder.map_err(|error| Failure::new(format!("cannot make a folder: {error}")))?;
    let counted = folder.as_ref().map(|folder| folder.path().join("counted.rdx"));
    let base = Index::open(&args.index)?;
    let missing = || Failure::usage("name the index to write with -o");
    let output = args.output.as_deref().or(counted.as_deref()).ok_or_else(missing)?;
    let report = write(args, select(args, &base)?, output)?;
    for (count, what) in [
        (report.repeated, "listed more than once; each counts once"),
        (report.unserved, "listed that the base does not serve; they are passed over"),
    ] {
        if count > 0 {
            complain(format!("{} {} {what}", output::counted(count, "row"), if count == 1 { "is" } else { "are" }));
        }
    }
    #[cfg(feature = "filter")]
    let filter = report.filter.as_ref().map(|report| {
        json!({
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
    });
    #[cfg(not(feature = "filter"))]
    let filter = Option::<()>::None;
    output::tell(
        args.json.json,
        &json!({
            "output": (!args.dry_run).then(|| output.display().to_string()),
            "rows": report.rows,
            "base_rows": report.base_rows,
            "source_rows": report.source_rows,
            "repeated": report.repeated,
            "unserved": report.unserved,
            "index_bytes": report.index_bytes,
            "seconds": started.elapsed().as_secs_f64(),
            "filter": filter,
        }),
    )
}

/// Writes the view; what conditions need is read with a progress bar.
#[cfg(feature = "filter")]
fn write(args: &SelectArgs, select: Select, output: &Path) -> Result<SelectReport, Failure> {
    let bar = Progress::new("rows decided");
    let shown = bar.clone();
    let select = args.conditions.iter().fold(select, |select, condition| select.filter(condition));
    let report = select.with_progress(move |progress| shown.at(progress.rows_done, progress.rows)).write(output);
    bar.finish();
    Ok(report?)
}

#[cfg(not(feature = "filter"))]
fn write(args: &SelectArgs, select: Select, output: &Path) -> Result<SelectReport, Failure> {
    if !args.conditions.is_empty() {
        return Err(Failure::usage("this rowdex was built without conditions; build it with `--features full`"));
    }
    Ok(select.write(output)?)
}

fn select(args: &SelectArgs, base: &Index) -> Result<Select, Failure> {
    let mut select =
        Select::new(base.clone()).with_overwrite(args.overwrite).with_store_options(StoreOptions::default());
    // As in other builds that are to be repeated bit for bit.
    if let Ok(seconds) = std::env::var("SOURCE_DATE_EPOCH") {
        let time = seconds.parse().ok().and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
        select = select.with_time(time.ok_or_else(|| Failure::usage("SOURCE_DATE_EPOCH is no number of seconds"))?);
    }
    if let Some(root) = &args.root.root {
        select = select.with_root(root);
    }
    for list in &args.rows {
        select = select.rows(list);
    }
    for list in &args.skip {
        select = select.skip(list);
    }
    for view in &args.intersect {
        select = select.intersect(Index::open(view)?);
    }
    for view in &args.exclude {
        select = select.exclude(Index::open(view)?);
    }
    for view in &args.union {
        select = select.union(Index::open(view)?);
    }
    if let Some((fraction, seed)) = args.sample {
        select = select.sample(fraction, seed);
    }
    Ok(match &args.split {
        Some(split) => split.choose(select),
        None => select,
    })
}
