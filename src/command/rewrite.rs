//! `rowdex rewrite`: the rows of an index as new files, in an order that is fast to read.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use clap::Args;
use indicatif::HumanBytes;
use rowdex::digest::{SameRows, SameRowsReport};
use rowdex::order::{Order, OrderSpec, Recipe, RecipeBase};
use rowdex::rewrite::{Codec, Rewrite, RewriteTask};
use rowdex::select::ListOfRows;
use rowdex::{Dataset, Index};
use serde_json::json;

use crate::command::args::{DataArgs, JsonArg, index_of};
use crate::command::failure::Failure;
use crate::command::output;
use crate::command::progress::Progress;
use crate::command::signals;
use crate::command::size::Memory;

#[derive(Debug, Args)]
#[command(after_help = r#"Examples:
  rowdex rewrite train.rdx -o shuffled/ --seed 42
  rowdex rewrite data/ -o shuffled/ --memory 8GiB --spill /nvme
  rowdex rewrite data/ -o regrouped/ --order sequential --row-group-rows 100000
  rowdex rewrite long.rdx -o long/ --columns id,text --origin row_id        the rows of a view
  rowdex rewrite train.rdx -o shuffled/ --resume                after it was stopped
  rowdex rewrite s3://bucket/train.rdx -o s3://bucket/shuffled/ --spill /nvme
  rowdex rewrite train.rdx -o out/ --step spill:3/8        on eight machines, then on any
  rowdex rewrite train.rdx -o out/ --step write:3/8        number of them, and then once
  rowdex rewrite train.rdx -o out/ --step index

Row i of the output is row order(i) of the input, as `rowdex trace` lists it. The output has an index, OUT/index.rdx.
See docs/rewriting.md."#)]
pub(crate) struct RewriteArgs {
    /// An index that `rowdex build` or `rowdex select` wrote; or Parquet files, folders and patterns.
    #[arg(required = true, value_name = "INDEX|DATA")]
    input: Vec<PathBuf>,

    /// The folder to write to, or a prefix of a store: `s3://bucket/shuffled/`, gs:// or az://.
    #[arg(short, long, value_name = "DIR|URL")]
    output: PathBuf,

    /// The order of the output: `global` shuffles all rows among all, `blocks(K)` or `blocks:K` shuffles row groups and
    /// the rows of K of them at a time, `sequential` keeps the order; or a file that lists rows (see `rowdex select
    /// --help`), which are written in its order.
    #[arg(long, value_name = "ORDER|LIST", default_value = "global")]
    order: String,

    /// The seed of the order: another seed, another order [default: 0].
    #[arg(long, value_name = "S")]
    seed: Option<u64>,

    #[command(flatten)]
    data: DataArgs,

    /// Hold at most this much: bytes, a size like 4GiB, or a share like 25% of the chosen columns when decoded.
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    memory: Memory,

    /// Write this number of files [default: by --file-bytes].
    #[arg(long, value_name = "N", conflicts_with = "file_bytes", value_parser = clap::value_parser!(u64).range(1..))]
    files: Option<u64>,

    /// Write files of about this size.
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    file_bytes: Memory,

    /// Write row groups of this number of rows [default: such that they take 32 MiB in memory; more, up to 64 MiB, if
    /// they would take less than 4 MiB in the file].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    row_group_rows: Option<u64>,

    /// Compress with none, snappy, lz4, zstd or zstd:LEVEL [default: each column with what makes a sample smallest, if
    /// that saves a tenth].
    #[arg(long, value_name = "CODEC", value_parser = codec)]
    compression: Option<Codec>,

    /// Add a column of this name with the row ids of the input.
    #[arg(long, value_name = "NAME")]
    origin: Option<String>,

    /// Spill rows to a folder in this one, which is local [default: in the output folder, if that is local].
    #[arg(long, value_name = "DIR")]
    spill: Option<PathBuf>,

    /// Resume from what an earlier run left in the output folder.
    #[arg(long)]
    resume: bool,

    /// Replace what an earlier run wrote to the output folder.
    #[arg(long, conflicts_with_all = ["resume", "step"])]
    overwrite: bool,

    /// Read input and output once more, and prove that row i of the output is row order(i) of the input.
    #[arg(long)]
    verify: bool,

    /// Do one step of the work alone, where several machines share it: `spill`, then `write`, then `index`. `spill:I/N`
    /// and `write:I/N` are task I of N, counted from 0.
    #[arg(long, value_name = "STEP", conflicts_with = "resume", value_parser = step)]
    step: Option<RewriteTask>,

    #[command(flatten)]
    json: JsonArg,
}

fn codec(text: &str) -> Result<Codec, String> {
    text.parse().map_err(|error: rowdex::Error| error.to_string())
}

fn step(text: &str) -> Result<RewriteTask, String> {
    let bad = || format!("{text:?} is no step: write spill:I/N, write:I/N or index");
    let (name, part) = text.split_once(':').unwrap_or((text, "0/1"));
    let (task, tasks) = part.split_once('/').ok_or_else(bad)?;
    let task = task.parse().map_err(|_| bad())?;
    let tasks = tasks.parse().map_err(|_| bad())?;
    match name {
        "spill" if tasks > 0 => Ok(RewriteTask::Spill { task, tasks }),
        "write" if tasks > 0 => Ok(RewriteTask::Write { task, tasks }),
        "index" if text == name => Ok(RewriteTask::Index),
        _ => Err(bad()),
    }
}

pub(crate) fn run(args: &RewriteArgs) -> Result<(), Failure> {
    let started = Instant::now();
    args.check_output()?;
    let index = index_of(&args.input)?;
    // What is read is not kept: each row is read once.
    let dataset = args.data.open(index)?;
    if args.verify && args.step.is_some_and(|step| step != RewriteTask::Index) {
        return Err(Failure::usage("--verify reads what is written: it is for the step index"));
    }
    let order = args.order(&dataset)?;
    let rewrite = args.rewrite(&dataset, Arc::clone(&order))?;
    let bar = Progress::new("rows");
    let rewrite = rewrite.with_progress({
        let bar = bar.clone();
        move |at| {
            let written = HumanBytes(at.bytes_written);
            bar.set_message(format!("rows, {} spilled, {written} written", HumanBytes(at.bytes_spilled)));
            bar.at(at.rows_done, at.rows);
        }
    });
    let asked = signals::asked_to_end()?;
    let rewrite = rewrite.with_stop({
        let asked = Arc::clone(&asked);
        move || asked.load(Ordering::Relaxed)
    });
    let report = match args.step {
        None => rewrite.run(),
        Some(step) => rewrite.run_task(step),
    };
    bar.finish();
    let report =
        report.map_err(|error| match asked.load(Ordering::Relaxed) && error.kind() == rowdex::ErrorKind::Closed {
            true => Failure::new("stopped; continue with `--resume`"),
            false => error.into(),
        })?;
    // Nothing is written any more, so the next signal ends the program at once.
    asked.store(true, Ordering::Relaxed);
    let proof = match &report.index {
        Some(index) if args.verify => Some(args.proof(&dataset, &*order, index)?),
        _ => None,
    };
    output::tell(
        args.json.json,
        &json!({
            "output": args.output.display().to_string(),
            "index": report.index.as_ref().map(|path| path.display().to_string()),
            "rows": report.rows,
            "files": report.files,
            "kept_files": report.kept_files,
            "bytes_written": report.bytes_written,
            "bytes_spilled": report.bytes_spilled,
            "rows_digest": proof.map(|proof| proof.second.to_string()),
            "seconds": started.elapsed().as_secs_f64(),
        }),
    )
}

impl RewriteArgs {
    /// Refuses to write into what is read.
    fn check_output(&self) -> Result<(), Failure> {
        // Without links, as far as it is there.
        let real = |path: &Path| {
            let path = std::path::absolute(path).ok().filter(|_| !is_url(path))?;
            path.ancestors().find_map(|above| Some(above.canonicalize().ok()?.join(path.strip_prefix(above).ok()?)))
        };
        let place = |path: &Path| real(path).unwrap_or_else(|| path.to_owned());
        let within = |input: &PathBuf| {
            let input = place(input);
            (is_url(&input) || input.is_dir()) && place(&self.output).starts_with(&input)
        };
        if self.input.iter().any(within) {
            let message = format!("{}: the output is within the input", self.output.display());
            return Err(Failure::new(format!("{message}; choose a folder next to it")));
        }
        Ok(())
    }

    fn rewrite(&self, dataset: &Dataset, order: Arc<dyn Order>) -> Result<Rewrite, Failure> {
        let mut rewrite = Rewrite::new(dataset, order, &self.output)
            .with_memory(self.memory.bytes(dataset.decoded_bytes()))
            .with_resume(self.resume)
            .with_overwrite(self.overwrite);
        if let Some(threads) = self.data.threads {
            rewrite = rewrite.with_threads(usize::from(threads));
        }
        rewrite = match (self.files, self.file_bytes) {
            (Some(files), _) => rewrite.with_files(files),
            (None, size) => rewrite.with_file_bytes(size.bytes(dataset.decoded_bytes())),
        };
        if let Some(rows) = self.row_group_rows {
            rewrite = rewrite.with_row_group_rows(rows);
        }
        if let Some(codec) = self.compression {
            rewrite = rewrite.with_compression(codec);
        }
        if let Some(name) = &self.origin {
            rewrite = rewrite.with_origin(name);
        }
        if let Some(folder) = &self.spill {
            rewrite = rewrite.with_spill(folder);
        }
        Ok(rewrite)
    }

    fn order(&self, dataset: &Dataset) -> Result<Arc<dyn Order>, Failure> {
        let index = dataset.index();
        let recipe = match self.order.parse::<OrderSpec>() {
            Ok(OrderSpec::Sequential) if self.seed.is_some() => {
                let hint = "leave out --seed, or the order for a shuffle";
                return Err(Failure::usage(format!("sequential is an order without a seed; {hint}")));
            }
            Ok(order) => Recipe::of(RecipeBase::Named(order)),
            Err(_) if Path::new(&self.order).exists() => {
                if self.seed.is_some() {
                    return Err(Failure::usage("a list of rows is an order without a seed; leave out --seed"));
                }
                let ids = ListOfRows::from(&self.order).order(index)?.into();
                Recipe { origin: Some(self.order.clone()), ..Recipe::of(RecipeBase::Explicit(ids)) }
            }
            Err(error) => return Err(Failure::usage(error)),
        };
        Ok(Recipe { seed: self.seed.unwrap_or(0), ..recipe }.orders(&index.layout())?)
    }

    /// Compares what was written with the input, row by row.
    fn proof(&self, input: &Dataset, order: &dyn Order, index: &Path) -> Result<SameRowsReport, Failure> {
        let output = Dataset::builder(Index::open(index)?).with_cache_bytes(0);
        let output = match self.data.threads {
            Some(threads) => output.with_threads(usize::from(threads)),
            None => output,
        };
        let output = output.open()?;
        let bar = Progress::new("proving rows");
        let proof = SameRows::new(input, &output)
            .with_order(order.epoch(0)?)
            .check(&|progress| bar.at(progress.rows_done, progress.rows));
        bar.finish();
        let proof = proof?;
        match proof.problem("the input", "the output") {
            Some(problem) => Err(problem.into()),
            None => Ok(proof),
        }
    }
}

fn is_url(path: &Path) -> bool {
    path.to_string_lossy().contains("://")
}
