//! `rowdex estimate`: what an epoch would cost, before anything is read.

use std::path::PathBuf;

use clap::{ArgMatches, Args};
use indicatif::{HumanBytes, HumanCount};
use rowdex::loader::{Advice, LoaderBuilder, Prediction};
use rowdex::{Dataset, Loader};
use serde_json::{Value, json};

use crate::command::advice;
use crate::command::args::{FilesArgs, IndexArg, JsonArg};
use crate::command::estimate_line::Line;
use crate::command::estimate_packs;
use crate::command::failure::Failure;
use crate::command::output::{self, Sink};
use crate::command::sampling::{BatchArg, Chosen, SamplingArgs};
use crate::command::size::Memory;
use crate::command::state_arg::StateArg;

/// Shares of the decoded bytes that the table has.
const SHARES: [u64; 6] = [5, 10, 25, 50, 75, 100];

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  rowdex estimate train.rdx --memory 4GiB --batch-size 256
  rowdex estimate train.rdx --memory 4GiB --state checkpoint.pt
  rowdex estimate train.rdx --pack tokens:8192 --world-size 64 --batch-size 2 --plot packs.svg
  rowdex estimate train.rdx --memory 64GiB --world-size 64 --ranks-per-node 8 --columns label,text

Costs are those of one loader, which the ranks of a machine may share (docs/share.md). A pass is
decoding every row group once. Small row groups of a file are read and held together as one unit.

With --pack: packs, steps, fill, tokens served and lost by cause, how even the ranks' work is, and what a
loader of them reads with this memory.")]
pub(crate) struct EstimateArgs {
    #[command(flatten)]
    index: IndexArg,

    #[command(flatten)]
    sampling: SamplingArgs,

    #[command(flatten)]
    batch: BatchArg,

    #[command(flatten)]
    state: StateArg,

    /// What a loader may hold: bytes, a size like 4GiB, or a share like 25% of the chosen columns when decoded.
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    memory: Memory,

    /// How many ranks of a machine share one loader and its memory.
    #[arg(long, value_name = "L", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    ranks_per_node: u32,

    /// With --pack: draw the lengths of rows and the fill of packs, as SVG.
    #[arg(long, value_name = "FILE.svg", requires = "pack")]
    plot: Option<PathBuf>,

    #[command(flatten)]
    files: FilesArgs,

    #[command(flatten)]
    json: JsonArg,
}

pub(crate) fn run(args: &EstimateArgs, given: &ArgMatches) -> Result<(), Failure> {
    let mut args = args.clone();
    args.state.settle(&mut args.sampling, Some(&mut args.batch), given)?;
    args.sampling.whole_epochs();
    let args = &args;
    let picture = args.plot.as_ref().map(|path| Sink::picture(path)).transpose()?;
    let index = args.index.open()?;
    if let Some(pack) = &args.sampling.dealing.pack {
        let dataset = || Ok(args.files.builder(index.clone()).with_cache_bytes(0).open()?);
        let reading = || of_packs(args, &dataset()?);
        let report = estimate_packs::PackReport::new(pack, &args.sampling, args.batch, &index, dataset, reading)?;
        if let Some(picture) = picture {
            picture.put(&report.plot(&index)?)?;
        }
        return if args.json.json { output::print_json(&report.to_json()) } else { output::print(&report.to_text()) };
    }
    let dataset = args.files.builder(index).with_cache_bytes(0).open()?;
    let job = EstimateJob::new(args, &dataset)?;
    let report = job.report()?;
    if args.json.json { output::print_json(&report.to_json()) } else { output::print(&report.to_text()) }
}

/// What is to be predicted, but for the memory.
struct EstimateJob<'a> {
    args: &'a EstimateArgs,
    dataset: &'a Dataset,
    chosen: Chosen,
    decoded_bytes: u64,
    memory: u64,
    loader: LoaderBuilder,
    /// Of every rank, in an epoch.
    steps: u64,
}

struct EstimateReport {
    order: String,
    rows: u64,
    row_groups: u32,
    decoded_bytes: u64,
    world_size: u32,
    ranks_per_node: u32,
    batch_size: usize,
    steps: u64,
    epoch: u64,
    epochs: u64,
    here: Line,
    machines: Option<Machines>,
    table: Vec<Line>,
    advice: Vec<Advice>,
}

/// What all machines do together in a later epoch, if there are several with several ranks each.
struct Machines {
    machines: u32,
    decodes: f64,
    bytes_read: f64,
    /// What one loader with the memory of all would do: machines that exchange rows do no less.
    least_decodes: f64,
    least_bytes_read: u64,
}

/// What a loader reads of packs with the memory that is asked for.
fn of_packs(args: &EstimateArgs, dataset: &Dataset) -> Result<Line, Failure> {
    let memory = args.memory.bytes(dataset.decoded_bytes());
    let chosen = args.sampling.choose(dataset)?;
    let (loader, _) = builder(args, dataset, &chosen, args.ranks_per_node)?;
    Ok(Line { memory, told: loader.memory(memory).predict()? })
}

impl<'a> EstimateJob<'a> {
    fn new(args: &'a EstimateArgs, dataset: &'a Dataset) -> Result<Self, Failure> {
        let decoded_bytes = dataset.decoded_bytes();
        let memory = args.memory.bytes(decoded_bytes);
        args.sampling.epochs()?;
        let chosen = args.sampling.choose(dataset)?;
        let (loader, steps) = builder(args, dataset, &chosen, args.ranks_per_node)?;
        Ok(Self { args, dataset, chosen, decoded_bytes, memory, loader, steps })
    }

    fn at(&self, memory: u64) -> Result<Line, Failure> {
        Ok(Line { memory, told: self.loader.clone().memory(memory).predict()? })
    }

    fn report(&self) -> Result<EstimateReport, Failure> {
        let here = self.at(self.memory)?;
        let share = |percent: &u64| self.at((u128::from(self.decoded_bytes) * u128::from(*percent) / 100) as u64);
        let sampling = &self.args.sampling;
        Ok(EstimateReport {
            order: self.chosen.name.clone(),
            rows: self.chosen.rows,
            row_groups: self.dataset.index().num_row_groups(),
            decoded_bytes: self.decoded_bytes,
            world_size: sampling.world_size,
            ranks_per_node: self.args.ranks_per_node,
            batch_size: self.args.batch.batch_size,
            steps: self.steps,
            epoch: sampling.epoch,
            epochs: sampling.epochs,
            machines: self.machines(&here.told)?,
            table: SHARES.iter().map(share).collect::<Result<_, _>>()?,
            advice: self.loader.clone().memory(self.memory).advise()?,
            here,
        })
    }

    /// What all machines do together, and what they would do if they exchanged rows.
    fn machines(&self, told: &Prediction) -> Result<Option<Machines>, Failure> {
        let world_size = self.args.sampling.world_size;
        let ranks = self.args.ranks_per_node;
        let machines = world_size.div_ceil(ranks.max(1));
        if ranks == 1 || machines == 1 {
            return Ok(None);
        }
        let (loader, _) = builder(self.args, self.dataset, &self.chosen, world_size)?;
        let least = loader.memory(self.memory.saturating_mul(machines.into())).predict()?;
        Ok(Some(Machines {
            machines,
            decodes: told.decodes * f64::from(machines),
            bytes_read: told.bytes_read as f64 * f64::from(machines),
            least_decodes: least.decodes,
            least_bytes_read: least.bytes_read,
        }))
    }
}

/// The loader of the first node, and the steps of an epoch.
fn builder(
    args: &EstimateArgs,
    dataset: &Dataset,
    chosen: &Chosen,
    ranks: u32,
) -> Result<(LoaderBuilder, u64), Failure> {
    let world_size = args.sampling.world_size;
    if ranks > world_size {
        return Err(Failure::usage(format!(
            "--ranks-per-node {ranks}, of a --world-size of {world_size}: use 1 to {world_size}"
        )));
    }
    let sampler = |rank| args.sampling.sampler(chosen, rank, args.batch.batch_size);
    let others = (1..ranks).map(sampler).collect::<Result<Vec<_>, _>>()?;
    let first = sampler(0)?;
    let steps = first.steps();
    Ok((Loader::builder(dataset, first).and_ranks(others), steps))
}

impl EstimateReport {
    /// Decodes, bytes read and requests of all epochs together.
    fn run(&self) -> (f64, f64, u64) {
        let told = &self.here.told;
        let later = self.epochs.saturating_sub(1);
        let decodes = told.first_decodes + told.decodes * later as f64;
        let bytes_read = told.first_bytes_read as f64 + told.bytes_read as f64 * later as f64;
        (decodes, bytes_read, told.first_requests.saturating_add(told.requests.saturating_mul(later)))
    }

    fn to_json(&self) -> Value {
        let (decodes, bytes_read, requests) = self.run();
        let mut report = json!({
            "rows": self.rows,
            "row_groups": self.row_groups,
            "decoded_bytes": self.decoded_bytes,
            "order": self.order,
            "world_size": self.world_size,
            "ranks_per_node": self.ranks_per_node,
            "batch_size": self.batch_size,
            "steps": self.steps,
            "epoch": self.epoch,
        });
        let rest = json!({
            "epochs": {
                "epochs": self.epochs,
                "decodes": decodes,
                "bytes_read": bytes_read as u64,
                "requests": requests,
            },
            "machines": self.machines.as_ref().map(|all| json!({
                "machines": all.machines,
                "decodes": all.decodes,
                "bytes_read": all.bytes_read as u64,
                "least_decodes": all.least_decodes,
                "least_bytes_read": all.least_bytes_read,
            })),
            "table": self.table.iter().map(Line::to_json).collect::<Vec<_>>(),
            "helps": self.advice.iter().map(advice::as_json).collect::<Vec<_>>(),
        });
        if let Some(report) = report.as_object_mut() {
            for part in [self.here.to_json(), rest] {
                report.extend(part.as_object().cloned().unwrap_or_default());
            }
        }
        report
    }

    fn to_text(&self) -> String {
        const UNITS: usize = 3;
        const REQUESTS: usize = 5;
        let head = [
            "memory",
            "passes",
            "decodes",
            "units",
            "read",
            "requests",
            "held at most",
            "of it no rows",
            "first epoch",
            "first batch",
        ];
        let cells = |line: &Line| {
            let told = &line.told;
            vec![
                HumanBytes(line.memory).to_string(),
                format!("{:.2}", told.passes),
                HumanCount(told.decodes.round() as u64).to_string(),
                HumanCount(told.units).to_string(),
                HumanBytes(told.bytes_read).to_string(),
                HumanCount(told.requests).to_string(),
                HumanBytes(told.peak_bytes).to_string(),
                HumanBytes(told.bookkeeping_bytes).to_string(),
                format!("{:.2} passes", told.first_passes),
                format!("{} decodes", HumanCount(told.first_batch_decodes)),
            ]
        };
        let mut rows = vec![head.map(str::to_owned).to_vec(), cells(&self.here), Vec::new()];
        rows.extend(self.table.iter().map(cells));
        // Only what is in a store takes requests.
        let remote = self.here.told.first_requests > 0;
        for row in rows.iter_mut().filter(|row| !remote && row.len() > REQUESTS) {
            row.remove(REQUESTS);
        }
        // Where no row groups are joined, there is nothing to tell.
        let alone = |line: &Line| line.told.units == u64::from(self.row_groups);
        let joined = !(alone(&self.here) && self.table.iter().all(alone));
        for row in rows.iter_mut().filter(|row| !joined && row.len() > UNITS) {
            row.remove(UNITS);
        }
        let node = match self.ranks_per_node {
            1 if self.world_size == 1 => String::new(),
            1 => ", each with a loader of its own".to_owned(),
            ranks => format!(", {ranks} of them on one loader"),
        };
        let (_, bytes_read, requests) = self.run();
        let mut text = format!(
            "{} in {}, {} decoded; order {}, {} of {} for {}{node}\n\n{}",
            output::counted(self.rows, "row"),
            output::counted(self.row_groups.into(), "row group"),
            HumanBytes(self.decoded_bytes),
            self.order,
            output::counted(self.steps, "step"),
            output::counted(self.batch_size as u64, "row"),
            output::counted(self.world_size.into(), "rank"),
            output::columns(&rows),
        );
        if self.epochs > 1 {
            let asked = if remote { format!(" in {} requests", HumanCount(requests)) } else { String::new() };
            let last = self.epoch + self.epochs - 1;
            text += &format!("\nepochs {} to {last} read {}{asked}\n", self.epoch, HumanBytes(bytes_read as u64));
        }
        if let Some(all) = &self.machines {
            text += &format!(
                "\n{} machines decode {} row groups an epoch and read {}; if they exchanged rows, {} and {} at least\n",
                all.machines,
                HumanCount(all.decodes.round() as u64),
                HumanBytes(all.bytes_read as u64),
                HumanCount(all.least_decodes.round() as u64),
                HumanBytes(all.least_bytes_read),
            );
        }
        if let Some(best) = self.advice.first() {
            let line = advice::line(best);
            text += &format!("\nAn epoch takes {:.1} passes; what would help: {line}\n", self.here.told.passes);
        }
        text
    }
}
