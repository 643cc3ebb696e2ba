//! `rowdex epoch`: what the ranks of a training job do, without the training.

mod reading;
mod served;

use clap::{ArgMatches, Args};
use rowdex::sampler::State;
use serde_json::Value;

use crate::command::args::{IndexArg, JsonArg};
use crate::command::carousel::CarouselArgs;
use crate::command::failure::{Failure, complain};
use crate::command::output;
use crate::command::sampling::{Rank, SamplingArgs};
use crate::command::state_arg;

/// Row groups decoded more often than this in an epoch are worth a word.
pub(crate) const MANY_PASSES: f64 = 4.0;

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  rowdex epoch train.rdx --world-size 8 --batch-size 256
  rowdex epoch train.rdx --world-size 8 --rank 3 --epochs 2 --memory 25% --json
  rowdex epoch train.rdx --order sequential --tail uneven --columns label,text
  rowdex epoch train.rdx --pack tokens:8192 --world-size 8 --batch-size 2
  rowdex epoch train.rdx --only english.rdx --order balanced:label,size=1000000

First --only leaves rows out. Then --order orders the rows that are left.

With --pack, tokens are counted: served, left out, and places of packs that are filled up.")]
pub(crate) struct EpochArgs {
    #[command(flatten)]
    index: IndexArg,

    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,

    /// The rank to be, or `all` of them, step by step.
    #[arg(long, value_name = "RANK", default_value = "all")]
    rank: Rank,

    /// Resume from this state of an earlier run: a line `rowdex-state-v2:...`, or a checkpoint that has it. Order,
    /// seed, ranks and batch size are those of that run; ranks and batch size may be given to resume with others.
    #[arg(long, value_name = "STATE", conflicts_with = "epoch", value_parser = state_arg::read)]
    resume: Option<State>,

    /// Stop after this many steps, even in the middle of an epoch.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,

    /// Report a digest of the values that each rank is served, in any order: the same as that of `verify --rows`.
    #[arg(long)]
    digest: bool,

    #[command(flatten)]
    carousel: CarouselArgs,

    #[command(flatten)]
    json: JsonArg,
}

pub(crate) fn run(args: &EpochArgs, given: &ArgMatches) -> Result<(), Failure> {
    let report = report(args, given)?;
    let list = |name: &str| report[name].as_array().into_iter().flatten();
    let most = list("epochs").filter_map(|epoch| epoch["passes"].as_f64()).fold(0.0, f64::max);
    if most > MANY_PASSES {
        complain(format!(
            "row groups were decoded {most:.0} times each in an epoch; `rowdex estimate` says what would help"
        ));
    }
    for lost in list("lost_row_groups") {
        let error = lost["error"].as_str().unwrap_or_default();
        complain(format!("row group {} cannot be read: {error}", lost["row_group"]));
    }
    if let Some(rows) = report["substituted"].as_u64().filter(|rows| *rows > 0) {
        complain(format!("{} served in the place of rows that cannot be read", output::counted(rows, "row")));
    }
    output::tell(args.json.json, &report)
}

/// Reads what is asked for.
pub(crate) fn report(args: &EpochArgs, given: &ArgMatches) -> Result<Value, Failure> {
    let mut args = args.clone();
    args.sampling.rank = args.rank;
    if let Some(state) = &args.resume {
        state_arg::go_on(state, &mut args.sampling, given)?;
    }
    let dataset = args.carousel.open(args.index.open()?)?;
    let report = reading::read(&dataset, &args);
    dataset.disk_cache_fault().iter().for_each(complain);
    report
}
