//! `rowdex select`: some rows of an index, as another index of the same files.

use std::path::PathBuf;
use std::time::{Duration, Instant, UNIX_EPOCH};

use clap::Args;
use indicatif::{HumanBytes, HumanCount};
use rowdex::order::{Side, Split};
use rowdex::source::StoreOptions;
use rowdex::{Dataset, Index, Select, SelectReport};
use serde_json::json;

use crate::args::{IndexArg, JsonArg, RootArg, ThreadsArg, named};
#[cfg(feature = "filter")]
use crate::condition;
use crate::condition::ConditionArgs;
use crate::failure::{Failure, complain};
use crate::output;
use crate::size::Share;

#[derive(Debug, Args)]
#[command(after_help = r#"Examples:
  rowdex select train.rdx --where "lang = 'en' and length(text) > 200" -o english.rdx
  rowdex select train.rdx --skip bad.csv -o clean.rdx
  rowdex select train.rdx --rows duckdb.parquet --sample 10% -o small.rdx
  rowdex select clean.rdx --and english.rdx --not seen.rdx -o next.rdx
  rowdex select train.rdx --split validation --split-by user -o validation.rdx

The result is an index of the same files, for every other command; no data is copied. All choices leave rows out of
INDEX; only --or adds rows, to what the others leave. Conditions come last, and read what the others leave."#)]
pub(crate) struct SelectArgs {
    #[command(flatten)]
    index: IndexArg,

    /// The index to write, a file or a URL.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Replace the output if there is one.
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    condition: ConditionArgs,

    /// Say how the condition was decided: which columns were read, and what the footers decided.
    #[arg(long, requires = "conditions")]
    explain: bool,

    /// Keep only the rows listed in this file, in any order: Parquet or CSV with the columns `file` and `row_in_file`
    /// under the names that engines give them (DuckDB `filename`, `file_row_number`; Spark `file_path`, `row_index`),
    /// or `file`, `row_group` and `row`, or `row_id`; a folder of such files; or text with a row id, a range like
    /// 10..20, or a place (a.parquet, a.parquet:2, a.parquet:2:10..20) a line.
    #[arg(long, value_name = "LIST")]
    rows: Vec<PathBuf>,

    /// Leave out the rows listed in this file.
    #[arg(long, value_name = "LIST")]
    skip: Vec<PathBuf>,

    /// Keep only rows that this index of the same files serves, too.
    #[arg(long, value_name = "INDEX")]
    and: Vec<PathBuf>,

    /// Add the rows of this index of the same files to what all other choices leave.
    #[arg(long, value_name = "INDEX")]
    or: Vec<PathBuf>,

    /// Leave out the rows that this index of the same files serves.
    #[arg(long, value_name = "INDEX")]
    not: Vec<PathBuf>,

    /// Keep a sample of so many of the rows, 1% or 0.01, by a hash: rows keep their places in it when files are
    /// appended, and a larger sample has all rows of a smaller one.
    #[arg(long, value_name = "SHARE")]
    sample: Option<Share>,

    /// Another sample for another seed.
    #[arg(long, value_name = "S", default_value_t = 0, requires = "sample")]
    sample_seed: u64,

    /// Keep one side of a split by hash, `train` or `validation`.
    #[arg(long, value_name = "SIDE", value_parser = named::<Side>(&["train", "validation"]))]
    split: Option<Side>,

    /// The fraction of the rows, or of the keys, that is for validation.
    #[arg(long, value_name = "F", default_value_t = 0.1, requires = "split")]
    split_fraction: f64,

    /// Split by the values of this column instead of by row id: rows with equal values are on one side.
    #[arg(long, value_name = "COLUMN", requires = "split")]
    split_by: Option<String>,

    /// Another split for another seed.
    #[arg(long, value_name = "S", default_value_t = 0, requires = "split")]
    split_seed: u64,

    #[command(flatten)]
    root: RootArg,

    #[command(flatten)]
    threads: ThreadsArg,

    #[command(flatten)]
    json: JsonArg,
}

pub(crate) fn run(args: &SelectArgs) -> Result<(), Failure> {
    let started = Instant::now();
    args.condition.check()?;
    let base = args.index.open()?;
    let report = write(args, select(args, &base)?)?;
    if args.json.json {
        let told = json!({
            "output": args.output.display().to_string(),
            "rows": report.rows,
            "base_rows": report.base_rows,
            "source_rows": report.source_rows,
            "repeated": report.repeated,
            "unserved": report.unserved,
            "index_bytes": report.index_bytes,
            "seconds": started.elapsed().as_secs_f64(),
        });
        #[cfg(feature = "filter")]
        let told = match (&report.filter, args.explain, told) {
            (Some(filter), true, serde_json::Value::Object(mut told)) => {
                told.insert("filter".to_owned(), condition::json(filter));
                told.into()
            }
            (_, _, told) => told,
        };
        return output::print_json(&told);
    }
    if report.repeated > 0 {
        complain(format!("{} more than once; each is served once", times(report.repeated, "listed")));
    }
    if report.unserved > 0 {
        let index = args.index.index.display();
        complain(format!("{} that {index} does not serve; they are passed over", times(report.unserved, "listed")));
    }
    output::print(&format!(
        "{}: {} of {}, {}\n",
        args.output.display(),
        output::counted(report.rows, "row"),
        HumanCount(report.base_rows),
        HumanBytes(report.index_bytes)
    ))?;
    #[cfg(feature = "filter")]
    if let (Some(filter), true) = (&report.filter, args.explain) {
        output::print(&condition::explained(filter))?;
    }
    Ok(())
}

/// Writes the view; conditions are read for, with a progress bar.
#[cfg(feature = "filter")]
fn write(args: &SelectArgs, mut select: Select) -> Result<SelectReport, Failure> {
    for condition in args.condition.texts() {
        select = select.filter(condition);
    }
    if let Some(root) = &args.root.root {
        select = select.with_root(root);
    }
    if let Some(threads) = args.threads.threads {
        select = select.with_threads(usize::from(threads));
    }
    let bar = condition::bar();
    let shown = bar.clone();
    let report = select.with_progress(move |progress| condition::show(&shown, progress)).write(&args.output);
    bar.finish();
    Ok(report?)
}

#[cfg(not(feature = "filter"))]
fn write(args: &SelectArgs, select: Select) -> Result<SelectReport, Failure> {
    Ok(select.write(&args.output)?)
}

/// `3 rows are listed`.
fn times(count: u64, done: &str) -> String {
    format!("{} {} {done}", output::counted(count, "row"), if count == 1 { "is" } else { "are" })
}

fn select(args: &SelectArgs, base: &Index) -> Result<Select, Failure> {
    let mut select = Select::new(base.clone()).with_overwrite(args.force).with_store_options(StoreOptions::default());
    // As in other builds that are to be repeated bit for bit.
    if let Ok(seconds) = std::env::var("SOURCE_DATE_EPOCH") {
        let time = seconds.parse().ok().and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
        select = select.with_time(time.ok_or_else(|| Failure::usage("SOURCE_DATE_EPOCH is no number of seconds"))?);
    }
    for list in &args.rows {
        select = select.rows(list);
    }
    for list in &args.skip {
        select = select.skip(list);
    }
    for view in &args.and {
        select = select.and(Index::open(view)?);
    }
    for view in &args.not {
        select = select.not(Index::open(view)?);
    }
    for view in &args.or {
        select = select.or(Index::open(view)?);
    }
    if let Some(Share(fraction)) = args.sample {
        select = select.sample(fraction, args.sample_seed);
    }
    if let Some(side) = args.split {
        let split = Split::new(args.split_fraction, args.split_seed).map_err(Failure::usage)?;
        let (rows, by) = match &args.split_by {
            Some(column) => (dataset(args, base)?.column(column).split(&split, side)?, format!(" by {column}")),
            None => (split.rows(side, base.len())?, String::new()),
        };
        let note = format!("split {side}{by}, {} for validation, seed {}", args.split_fraction, args.split_seed);
        select = select.kept(rows, note);
    }
    Ok(select)
}

fn dataset(args: &SelectArgs, base: &Index) -> Result<Dataset, Failure> {
    let mut builder = Dataset::builder(base.clone());
    if let Some(root) = &args.root.root {
        builder = builder.with_root(root);
    }
    if let Some(threads) = args.threads.threads {
        builder = builder.with_threads(usize::from(threads));
    }
    Ok(builder.open()?)
}
