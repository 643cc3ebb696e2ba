//! `rowdex estimate`: what an epoch would cost, before anything is read.

use std::path::PathBuf;

use clap::{ArgMatches, Args};
use indicatif::HumanBytes;
use rowdex::loader::Estimate;
use rowdex::sampler::PackForecast;
use rowdex::{Dataset, DistributedSampler, Loader};
use serde_json::{Value, json};

use crate::command::args::{FilesArgs, IndexArg, JsonArg};
use crate::command::estimate_packs as packs;
use crate::command::failure::Failure;
use crate::command::output::{self, Sink};
use crate::command::sampling::{Chosen, SamplingArgs};
use crate::command::size::Memory;
use crate::command::state_arg::StateArg;

/// Shares of the decoded bytes that the table has.
pub(crate) const SHARES: [u64; 6] = [5, 10, 25, 50, 75, 100];

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  rowdex estimate train.rdx --memory 4GiB --batch-size 256
  rowdex estimate train.rdx --memory 4GiB --state checkpoint.pt
  rowdex estimate train.rdx --pack tokens:8192 --world-size 64 --batch-size 2 --plot packs.svg
  rowdex estimate train.rdx --memory 64GiB --world-size 64 --ranks-per-node 8 --columns label,text

Costs are those of one loader, which the ranks of a machine may share (docs/share.md). A pass is
decoding every row group once. Small row groups of a file are read and held together as one unit.

With --pack: packs, fill, tokens served and lost by cause, and how even the ranks' work is, too.")]
pub(crate) struct EstimateArgs {
    #[command(flatten)]
    index: IndexArg,

    #[command(flatten)]
    sampling: SamplingArgs,

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
    args.state.settle(&mut args.sampling, true, given)?;
    args.sampling.whole_epochs();
    let picture = args.plot.as_ref().map(|path| Sink::called(path, "svg")).transpose()?;
    let dataset = args.files.builder(args.index.open()?).with_cache_bytes(0).open()?;
    let sampling = &args.sampling;
    sampling.epochs()?;
    let chosen = sampling.choose(&dataset)?;
    let sampler = sampling.sampler(&chosen, 0)?;
    let packs = match &sampling.dealing.pack {
        Some(pack) => {
            let forecast = sampler.forecast(sampling.epoch, PackForecast::STEPS)?;
            if let Some(picture) = picture {
                picture.put(&packs::plot(pack, &forecast, dataset.index())?)?;
            }
            Some(packs::told(pack, &forecast))
        }
        None => None,
    };
    // Packs are told of, too, where no loader can cut rows.
    let costs = match costs(&args, &dataset, &chosen, sampler.clone()) {
        Err(Failure::Said(reason)) if packs.is_some() => json!({"loader_error": reason}),
        costs => costs?,
    };
    let mut found = json!({
        "rows": chosen.rows,
        "row_groups": dataset.index().num_row_groups(),
        "decoded_bytes": dataset.decoded_bytes(),
        "order": chosen.name,
        "world_size": sampling.world_size,
        "ranks_per_node": args.ranks_per_node,
        "batch_size": sampling.dealing.batch_size,
        "epoch": sampling.epoch,
        "epochs": sampling.epochs,
        "steps": sampler.steps(),
        "total_steps": sampler.total_steps(sampling.epochs)?,
        "packs": packs,
        "plot": args.plot.as_ref().map(|path| path.display().to_string()),
    });
    if let (Some(found), Value::Object(costs)) = (found.as_object_mut(), costs) {
        found.extend(costs);
    }
    output::tell(args.json.json, &found)
}

/// What a loader of the first node decodes, reads and holds.
fn costs(
    args: &EstimateArgs,
    dataset: &Dataset,
    chosen: &Chosen,
    sampler: DistributedSampler,
) -> Result<Value, Failure> {
    let world_size = args.sampling.world_size;
    let ranks = args.ranks_per_node;
    if ranks > world_size {
        return Err(Failure::usage(format!(
            "--ranks-per-node {ranks}, of a --world-size of {world_size}: use 1 to {world_size}"
        )));
    }
    let others = (1..ranks).map(|rank| args.sampling.sampler(chosen, rank));
    let loader = Loader::builder(dataset, sampler).and_ranks(others.collect::<Result<Vec<_>, _>>()?);
    let memory = args.memory.bytes(dataset.decoded_bytes());
    let told = loader.clone().memory(memory).estimate()?;
    let share = |percent: u64| {
        let memory = (u128::from(dataset.decoded_bytes()) * u128::from(percent) / 100) as u64;
        Ok(later_epochs(memory, &loader.clone().memory(memory).estimate()?))
    };
    let table = SHARES.into_iter().map(share).collect::<Result<Vec<_>, Failure>>()?;
    let later = args.sampling.epochs - 1;
    let mut costs = later_epochs(memory, &told);
    costs["least_memory"] = told.least_memory.into();
    costs["first_epoch"] = json!({
        "passes": told.first_passes,
        "decodes": told.first_decodes,
        "bytes_read": told.first_bytes_read,
        "requests": told.first_requests,
    });
    costs["all_epochs"] = json!({
        "decodes": told.first_decodes + told.decodes * later as f64,
        "bytes_read": told.first_bytes_read.saturating_add(told.bytes_read.saturating_mul(later)),
        "requests": told.first_requests.saturating_add(told.requests.saturating_mul(later)),
    });
    costs["table"] = table.into();
    costs["helps"] = loader.memory(memory).advise()?.map(|(memory, told)| advice(memory, &told)).into();
    Ok(costs)
}

/// What every epoch but the first takes with some memory.
pub(crate) fn later_epochs(memory: u64, told: &Estimate) -> Value {
    json!({
        "memory": memory,
        "passes": told.passes,
        "decodes": told.decodes,
        "units": told.units,
        "bytes_read": told.bytes_read,
        "requests": told.requests,
        "peak_held_bytes": told.peak_bytes,
        "bookkeeping_bytes": told.bookkeeping_bytes,
        "first_batch_decodes": told.first_batch_decodes,
    })
}

/// What memory does, and what else helps.
fn advice(memory: u64, told: &Estimate) -> String {
    let Estimate { passes, bytes_read, .. } = *told;
    let read = HumanBytes(bytes_read);
    format!("--memory {}MiB: {passes:.1} passes and {read} an epoch; or blocks(8), rowdex rewrite", memory >> 20)
}
