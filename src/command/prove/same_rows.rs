//! `rowdex prove --same-rows`: whether two datasets have the same rows, and in which order.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use rowdex::ErrorKind::NotFound;
use rowdex::digest::{DigestColumn, RowsDigest, SameRows, SameRowsReport};
use rowdex::{Dataset, Index, IndexBuilder};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::command::failure::Failure;
use crate::command::output;
use crate::command::progress::Progress;
use crate::command::sampling::SamplingArgs;

#[derive(Debug, Clone, Args)]
pub(crate) struct SameRowsArgs {
    /// Compare the rows of two datasets instead: every row of A is once in B, over the columns that both have. Each is
    /// an index, or data as `rowdex build` takes it: a Parquet file, a folder or a quoted pattern, or a URL of these.
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    same_rows: Option<Vec<PathBuf>>,

    /// Row i of the other dataset is row order(i) of this one, which is A or B; see --order and --seed.
    #[arg(long, value_name = "A", requires = "same_rows")]
    order_of: Option<PathBuf>,

    /// Compare only these columns.
    #[arg(long, value_name = "A,B", value_delimiter = ',', requires = "same_rows")]
    columns: Option<Vec<String>>,

    /// Read each dataset with this many threads [default: one per core, at most eight; 16 for data in a store].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=1024), requires = "same_rows")]
    threads: Option<u16>,
}

/// What an order takes, and what is for both proofs.
const ALLOWED: [&str; 5] = ["same_rows", "order_of", "columns", "threads", "json"];
const OF_THE_ORDER: [&str; 5] = ["order", "seed", "epoch", "order_file", "permutation"];

/// A dataset of the command line, and the index that was made for it.
struct Opened {
    dataset: Dataset,
    _index: Option<TempDir>,
}

impl SameRowsArgs {
    /// The two datasets, if it is these that something is to be proven of.
    pub(super) fn datasets(&self) -> Option<(&Path, &Path)> {
        match self.same_rows.as_deref()? {
            [a, b] => Some((a, b)),
            _ => None,
        }
    }

    pub(super) fn run(
        &self,
        (a, b): (&Path, &Path),
        sampling: &SamplingArgs,
        given: &ArgMatches,
        json: bool,
    ) -> Result<(), Failure> {
        self.refuse_others(given)?;
        let started = Instant::now();
        let (one, other) = (self.open(a)?, self.open(b)?);
        let swapped = match self.order_of.as_deref() {
            Some(of) if of == b && of != a => true,
            Some(of) if of != a => {
                return Err(Failure::usage("--order-of names neither of the two datasets of --same-rows"));
            }
            _ => false,
        };
        let (first, second) = if swapped { (&other, &one) } else { (&one, &other) };
        let mut same = SameRows::new(&first.dataset, &second.dataset);
        if self.order_of.is_some() {
            same = same.with_order(sampling.orders(first.dataset.index())?.orders.epoch(sampling.epoch)?);
        }
        let bar = Progress::new("rows", 0);
        let report = same.check(&|progress| {
            bar.set_length(progress.rows);
            bar.set_position(progress.rows_done);
        });
        bar.finish();
        let report = report?;
        let names = if swapped { (b, a) } else { (a, b) };
        let told = Told { report: &report, names: (shown(names.0), shown(names.1)) };
        let seconds = started.elapsed().as_secs_f64();
        let problem = report.problem(&told.names.0, &told.names.1);
        let said = match () {
            () if json => output::print_json(&told.to_json(problem.as_ref(), seconds)),
            () if problem.is_none() => output::print(&told.to_text(seconds)),
            () => Ok(()),
        };
        // A reader that is gone makes no rows the same.
        problem.map_or(said, |problem| Err(problem.into()))
    }

    /// Options of the other proof say nothing here.
    fn refuse_others(&self, given: &ArgMatches) -> Result<(), Failure> {
        let is_given = |id: &&str| given.value_source(id) == Some(ValueSource::CommandLine);
        let allowed = |id: &&str| ALLOWED.contains(id) || (self.order_of.is_some() && OF_THE_ORDER.contains(id));
        // Groups of options have names, too, which are those of types.
        let all = given.ids().map(clap::Id::as_str).filter(|id| id.starts_with(|c: char| c.is_ascii_lowercase()));
        let Some(other) = all.filter(is_given).find(|id| !allowed(id)) else { return Ok(()) };
        let option = match other {
            "index" => "INDEX".to_owned(),
            other => format!("--{}", other.replace('_', "-")),
        };
        let why = if OF_THE_ORDER.contains(&other) { "without --order-of" } else { "of whole datasets" };
        Err(Failure::usage(format!("--same-rows is a comparison {why}; leave out {option}")))
    }

    /// The dataset of an index, or of data that has none.
    fn open(&self, path: &Path) -> Result<Opened, Failure> {
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
        let mut builder = Dataset::builder(index).with_cache_bytes(0);
        if let Some(columns) = &self.columns {
            builder = builder.with_columns(columns);
        }
        if let Some(threads) = self.threads {
            builder = builder.with_threads(usize::from(threads));
        }
        Ok(Opened { dataset: builder.open()?, _index: folder })
    }
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
struct Told<'a> {
    report: &'a SameRowsReport,
    names: (String, String),
}

impl Told<'_> {
    /// Each promise that was asked for.
    fn promises(&self) -> Vec<String> {
        let (first, second) = &self.names;
        let same = self.report.same_rows.map(|_| format!("every row of {first} is once in {second}"));
        let order = self.report.in_order.map(|_| format!("row i of {second} is row order(i) of {first}"));
        same.into_iter().chain(order).collect()
    }

    fn to_json(&self, problem: Option<&rowdex::Error>, seconds: f64) -> Value {
        let side = |name: &str, digest: &RowsDigest| {
            let (rows, sum) = (digest.rows, digest.to_string());
            json!({"path": name, "rows": rows, "rows_digest": sum})
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
