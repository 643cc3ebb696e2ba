//! `rowdex plan`: what an epoch would cost, before anything is read.

use std::sync::Arc;

use indicatif::{HumanBytes, HumanCount};
use rowdex::loader::{LoaderBuilder, Prediction};
use rowdex::order::OrderSpec;
use rowdex::{Dataset, DatasetBuilder, DistributedSampler, Index, Loader};
use serde_json::{Value, json};

use crate::args::PlanArgs;
use crate::epoch::MANY_PASSES;
use crate::failure::Failure;
use crate::output;
use crate::sampling::{Rank, SamplingArgs};

/// Shares of the decoded bytes that the table has.
const SHARES: [u64; 6] = [5, 10, 25, 50, 75, 100];

pub(crate) fn run(args: &PlanArgs) -> Result<(), Failure> {
    let index = args.index.open()?;
    let dataset = args.data.open(index, Some(0))?;
    let job = Job::new(args, &dataset)?;
    let report = job.report()?;
    if args.json.json { output::print_json(&report.to_json()) } else { output::print(&report.to_text()) }
}

/// What is to be predicted, but for the memory.
struct Job<'a> {
    args: &'a PlanArgs,
    dataset: &'a Dataset,
    decoded_bytes: u64,
    memory: u64,
    loader: LoaderBuilder,
}

struct Report {
    order: String,
    rows: u64,
    row_groups: u32,
    decoded_bytes: u64,
    world_size: u32,
    ranks_per_node: u32,
    batch_size: usize,
    epochs: u64,
    here: Line,
    table: Vec<Line>,
    advice: Vec<String>,
}

/// What is predicted for one size of the memory.
struct Line {
    memory: u64,
    told: Prediction,
}

impl<'a> Job<'a> {
    fn new(args: &'a PlanArgs, dataset: &'a Dataset) -> Result<Self, Failure> {
        let decoded_bytes = dataset.decoded_bytes();
        let memory = args.memory.bytes(decoded_bytes);
        let loader = builder(args, dataset, args.sampling.order, args.ranks_per_node)?;
        Ok(Self { args, dataset, decoded_bytes, memory, loader })
    }

    fn at(&self, memory: u64) -> Result<Line, Failure> {
        Ok(Line { memory, told: self.loader.clone().memory(memory).predict()? })
    }

    fn report(&self) -> Result<Report, Failure> {
        let here = self.at(self.memory)?;
        let share = |percent: &u64| self.at((u128::from(self.decoded_bytes) * u128::from(*percent) / 100) as u64);
        let sampling = &self.args.sampling;
        Ok(Report {
            order: sampling.order.to_string(),
            rows: self.dataset.len(),
            row_groups: self.dataset.index().num_row_groups(),
            decoded_bytes: self.decoded_bytes,
            world_size: sampling.world_size,
            ranks_per_node: self.args.ranks_per_node,
            batch_size: sampling.batch_size,
            epochs: sampling.epochs,
            table: SHARES.iter().map(share).collect::<Result<_, _>>()?,
            advice: if here.told.passes > MANY_PASSES { self.advice(&here.told)? } else { Vec::new() },
            here,
        })
    }

    /// Which dials would bring the passes down, and by how much.
    fn advice(&self, told: &Prediction) -> Result<Vec<String>, Failure> {
        let mut advice = Vec::new();
        // Passes are in inverse proportion to the memory.
        let memory = (self.memory.max(1) as f64 * told.passes / MANY_PASSES * 1.05) as u64;
        let memory = memory.min(self.decoded_bytes).next_multiple_of(1 << 20);
        let more = self.at(memory)?.told.passes;
        if more < told.passes {
            advice.push(format!("more memory: {more:.1} passes with --memory {}MiB", memory >> 20));
        }
        // Whichever orders this library has; windows of fewer row groups need less memory.
        for order in ["blocks(16)", "blocks(4)", "blocks(1)"] {
            let Ok(order) = order.parse::<OrderSpec>() else { continue };
            if self.dataset.len() > MOST_ROWS || order == self.args.sampling.order {
                continue;
            }
            let loader = builder(self.args, self.dataset, order, self.args.ranks_per_node)?;
            let passes = loader.memory(self.memory).predict()?.passes;
            if passes < MANY_PASSES.min(told.passes) {
                advice.push(format!("a more local order: {passes:.1} passes with --order {order}"));
                break;
            }
        }
        if let Some((name, share)) = self.widest_column()? {
            advice.push(format!("fewer columns (--columns): {name:?} has {:.0} % of the bytes", share * 100.0));
        }
        let ranks = self.args.ranks_per_node;
        if ranks > 1 {
            let loader = builder(self.args, self.dataset, self.args.sampling.order, ranks / 2)?;
            let passes = loader.memory(self.memory).predict()?.passes;
            advice.push(format!(
                "fewer ranks per loader: {passes:.1} passes with --ranks-per-node {} and as much memory for each loader",
                ranks / 2
            ));
        }
        Ok(advice)
    }

    /// The column with the most bytes, and its part of them; none where there is only one.
    fn widest_column(&self) -> Result<Option<(String, f64)>, Failure> {
        let names: Vec<&String> = self.dataset.schema().fields().iter().map(|field| field.name()).collect();
        if names.len() < 2 {
            return Ok(None);
        }
        let mut widest = None;
        for name in names {
            // A name with a dot may be read as the path of a field, or be ambiguous; then it is not what is advised.
            let Ok(alone) = open(self.dataset.index().clone(), name) else { continue };
            let share = alone.decoded_bytes() as f64 / self.decoded_bytes.max(1) as f64;
            if widest.as_ref().is_none_or(|(_, most)| share > *most) {
                widest = Some((name.clone(), share));
            }
        }
        Ok(widest)
    }
}

/// Orders whose prediction walks row by row are not tried as an alternative beyond this.
const MOST_ROWS: u64 = 1 << 25;

fn open(index: Index, column: &str) -> rowdex::Result<Dataset> {
    Dataset::builder(index).with_columns([column]).open()
}

/// The loader of the node that the chosen rank is on, or of the first.
fn builder(args: &PlanArgs, dataset: &Dataset, order: OrderSpec, ranks: u32) -> Result<LoaderBuilder, Failure> {
    let world_size = args.sampling.world_size;
    if ranks > world_size {
        return Err(Failure::new(format!("{ranks} ranks per node of a world of {world_size}")));
    }
    let first = match args.sampling.rank {
        Rank::One(rank) => rank / ranks * ranks,
        Rank::All => 0,
    };
    let sampling = SamplingArgs { order, ..args.sampling.clone() };
    let orders = sampling.choose(dataset)?.orders;
    let mut samplers: Vec<DistributedSampler> = Vec::new();
    for rank in first..first.saturating_add(ranks).min(world_size.max(1)) {
        let sampling = SamplingArgs { rank: Rank::One(rank), ..sampling.clone() };
        samplers.extend(sampling.samplers_of(Arc::clone(&orders))?);
    }
    let Some((first, others)) = samplers.split_first() else {
        return Err(Failure::new(format!("no such rank in a world of {world_size}")));
    };
    let threads = args.data.threads.threads.map_or_else(DatasetBuilder::default_threads, usize::from);
    Ok(Loader::builder(dataset, first.clone()).and_ranks(others.iter().cloned()).threads(threads))
}

impl Report {
    /// Decodes, bytes read and requests of all epochs together.
    fn run(&self) -> (f64, f64, u64) {
        let (told, later) = (&self.here.told, self.epochs.saturating_sub(1));
        let decodes = told.first_decodes + told.decodes * later as f64;
        let bytes_read = told.first_bytes_read as f64 + told.bytes_read as f64 * later as f64;
        (decodes, bytes_read, told.first_requests.saturating_add(told.requests.saturating_mul(later)))
    }

    fn to_json(&self) -> Value {
        let line = |line: &Line| {
            let told = &line.told;
            json!({
                "memory": line.memory,
                "passes": told.passes,
                "decodes": told.decodes,
                "bytes_read": told.bytes_read,
                "requests": told.requests,
                "peak_held_bytes": told.peak_bytes,
                "first_batch_decodes": told.first_batch_decodes,
                "first_epoch": {
                    "passes": told.first_passes,
                    "decodes": told.first_decodes,
                    "bytes_read": told.first_bytes_read,
                    "requests": told.first_requests,
                },
            })
        };
        let (decodes, bytes_read, requests) = self.run();
        let mut report = json!({
            "rows": self.rows,
            "row_groups": self.row_groups,
            "decoded_bytes": self.decoded_bytes,
            "order": self.order,
            "world_size": self.world_size,
            "ranks_per_node": self.ranks_per_node,
            "batch_size": self.batch_size,
        });
        let rest = json!({
            "epochs": { "epochs": self.epochs, "decodes": decodes, "bytes_read": bytes_read as u64, "requests": requests },
            "table": self.table.iter().map(line).collect::<Vec<_>>(),
            "advice": self.advice,
        });
        if let Some(report) = report.as_object_mut() {
            for part in [line(&self.here), rest] {
                report.extend(part.as_object().cloned().unwrap_or_default());
            }
        }
        report
    }

    fn to_text(&self) -> String {
        const REQUESTS: usize = 4;
        let head = ["memory", "passes", "decodes", "read", "requests", "held at most", "first epoch", "first batch"];
        let cells = |line: &Line| {
            let told = &line.told;
            vec![
                HumanBytes(line.memory).to_string(),
                format!("{:.2}", told.passes),
                HumanCount(told.decodes.round() as u64).to_string(),
                HumanBytes(told.bytes_read).to_string(),
                HumanCount(told.requests).to_string(),
                HumanBytes(told.peak_bytes).to_string(),
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
        let node = match self.ranks_per_node {
            1 => String::new(),
            ranks => format!(", {ranks} of them on one loader"),
        };
        let (_, bytes_read, requests) = self.run();
        let mut text = format!(
            "{} rows in {} row groups, {} decoded; order {}, batches of {} for {} ranks{node}\n\n{}",
            HumanCount(self.rows),
            HumanCount(self.row_groups.into()),
            HumanBytes(self.decoded_bytes),
            self.order,
            self.batch_size,
            self.world_size,
            output::columns(&rows),
        );
        if self.epochs > 1 {
            let asked = if remote { format!(" in {} requests", HumanCount(requests)) } else { String::new() };
            text += &format!("\n{} epochs read {}{asked}\n", self.epochs, HumanBytes(bytes_read as u64));
        }
        if !self.advice.is_empty() {
            text += &format!("\nMore than {MANY_PASSES:.0} passes an epoch; what would help:\n");
            for advice in &self.advice {
                text += &format!("  {advice}\n");
            }
        }
        text
    }
}
