//! The state of a run on the command line, in the place of the options that the run was made with.

use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use rowdex::order::{OrderKind, Partition};
use rowdex::sampler::{Run, State};
use rowdex::{Error, ErrorKind};

use crate::command::failure::{Failure, complain};
use crate::command::order_arg::{OrderArg, OrderKindArg};
use crate::command::sampling::{DealingArgs, SamplingArgs};

/// What every state begins with.
const MARK: &[u8] = b"rowdex-state-v";

/// No state is as long.
const LONGEST: usize = 1024;

/// Bytes that are looked at. What torch.save() writes has its values that are no tensors first.
const HEAD: u64 = 64 << 20;

#[derive(Debug, Clone, Args)]
pub(crate) struct StateArg {
    /// Ask about the run with this state, which says order, seed, tail, ranks, batch size and epoch: the line
    /// `rowdex-state-v2:...`, or a checkpoint that has it, such as JSON or what torch.save() wrote of a state_dict().
    /// Options that say something else are refused, but for --epoch. Give --only, and an --order of
    /// weights, classes or a file, as the run had them.
    #[arg(long, value_name = "STATE", value_parser = read)]
    state: Option<State>,
}

/// The state that a text is, or that is in the file that it names.
pub(crate) fn read(text: &str) -> Result<State, String> {
    if text.as_bytes().starts_with(MARK) {
        return text.parse().map_err(|error: Error| error.to_string());
    }
    in_file(Path::new(text)).map_err(|error| error.with_file(text).to_string())
}

/// The one state that a file begins with: text, JSON, or what torch.save() wrote, none of which changes a text.
fn in_file(path: &Path) -> Result<State, Error> {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head));
    read.map_err(|error| Error::io("neither a state nor a checkpoint that can be read", error))?;
    let mut found: Vec<State> = Vec::new();
    let mut damaged = None;
    for at in (0..head.len()).filter(|at| head[*at..].starts_with(MARK)) {
        let end = (at + LONGEST).min(head.len());
        let length = head[at..end].iter().take_while(|byte| byte.is_ascii_graphic()).count();
        let text = String::from_utf8_lossy(&head[at..at + length]);
        // What follows it may be anything: in a pickle it is no separator.
        match (MARK.len()..=length).rev().find_map(|end| text[..end].parse().ok()) {
            Some(state) if found.contains(&state) => {}
            Some(state) => found.push(state),
            None => damaged = text.parse::<State>().err(),
        }
    }
    let invalid = |message| Error::new(ErrorKind::InvalidArgument, message);
    match (found.as_slice(), damaged) {
        ([state], _) => Ok(*state),
        ([], Some(error)) => Err(error),
        ([], None) => Err(invalid("there is no state of rowdex in it".to_owned()).with_hint(
            "a compressed file must be unpacked; or load it in Python and give the text in its state_dict(), \
             rowdex-state-v2:...",
        )),
        (several, _) => {
            let texts: Vec<String> = several.iter().map(State::to_string).collect();
            let message = format!("{} different states are in it: {}", several.len(), texts.join(", "));
            Err(invalid(message).with_hint("give the text of one of them"))
        }
    }
}

impl StateArg {
    /// Makes the options those of the run, if there is a state. Those that were `given` must be those already. Whether
    /// the answer is `batched` decides whether the batch size has to be known.
    pub(crate) fn settle(&self, sampling: &mut SamplingArgs, batched: bool, given: &ArgMatches) -> Result<(), Failure> {
        let Some(state) = self.state else { return Ok(()) };
        let told = GivenOptions { given, going_on: false };
        sampling.run = Some(state);
        if !told.has("epoch") {
            sampling.epoch = state.epoch;
        }
        match &state.run {
            Some(run) => told.settle_all(sampling, batched, run),
            None if told.has("world_size") && (told.has("batch_size") || !batched) => Ok(()),
            None => Err(Failure::usage(
                "a state of version 1 says of a run only the epoch, and which order it has: give --world-size and \
                 --batch-size, too, and all else that the run was made with (--order, --seed, --tail)",
            )),
        }
    }

    /// Says which run is asked about where the command line says it neither by a state nor by options.
    pub(crate) fn tell_what_is_assumed(&self, sampling: &SamplingArgs, given: &ArgMatches) {
        let told = GivenOptions { given, going_on: false };
        if self.state.is_none() && !told.has("seed") && sampling.dealing.order.has_seed() {
            complain(format!(
                "assumed --seed 0 --world-size {} --batch-size {}; if the run had others, give its --state",
                sampling.world_size, sampling.dealing.batch_size
            ));
        }
    }
}

/// Makes the options those of a run to resume, but for those of ranks and batches that were `given`.
pub(crate) fn go_on(state: &State, sampling: &mut SamplingArgs, given: &ArgMatches) -> Result<(), Failure> {
    let told = GivenOptions { given, going_on: true };
    state.run.as_ref().map_or(Ok(()), |run| told.settle_all(sampling, true, run))
}

/// What a command line says.
struct GivenOptions<'a> {
    given: &'a ArgMatches,
    /// Other ranks may take over, with other batches.
    going_on: bool,
}

impl GivenOptions<'_> {
    fn has(&self, name: &str) -> bool {
        let known = self.given.try_contains_id(name).is_ok();
        known && self.given.value_source(name) == Some(ValueSource::CommandLine)
    }

    /// The option is that of the run, or was not given. What decides the order is compared by its fingerprint later.
    fn settle<T: PartialEq + Display>(&self, name: &str, value: &mut T, of_run: T) -> Result<(), Failure> {
        if !self.has(name) {
            *value = of_run;
        } else if *value != of_run && !self.going_on {
            let option = name.replace('_', "-");
            return Err(Failure::usage(format!(
                "--{option} {value}, and the --state of a run with --{option} {of_run}: leave out one of them"
            )));
        }
        Ok(())
    }

    fn settle_all(&self, sampling: &mut SamplingArgs, batched: bool, run: &Run) -> Result<(), Failure> {
        sampling.drop_last_batch = run.drop_last_batch;
        self.settle("world_size", &mut sampling.world_size, run.shard.world_size())?;
        let dealing = &mut sampling.dealing;
        self.settle("replication", &mut dealing.replication.0, run.shard.replicas())?;
        self.settle("replication", &mut dealing.replication.1, run.shard.layout())?;
        let mut tail = dealing.tail();
        self.settle("tail", &mut tail, run.shard.tail())?;
        dealing.tail = Some(tail);
        // What deals single rows knows nothing of batches.
        if run.batch_size > 1 || run.has_packs() {
            let of_run = usize::try_from(run.batch_size).unwrap_or(usize::MAX);
            self.settle("batch_size", &mut dealing.batch_size, of_run)?;
        } else if batched && !self.going_on && !self.has("batch_size") {
            return Err(needed("a sampler of single rows", "the --batch-size of the run"));
        }
        if run.order.kept && !self.has("only") {
            return Err(needed("some of the rows", "--only with a view of them (`rowdex select`)"));
        }
        self.settle_packs(dealing, run)?;
        if let (false, Some(seed)) = (self.has("seed"), run.order.seed) {
            dealing.seed = seed;
        }
        if !self.has("order") {
            dealing.order = order_of(run, sampling.world_size / dealing.replication.0.max(1))?;
        }
        Ok(())
    }

    /// A state says that a run had packs and by which cost they were assigned, and has a fingerprint of how they are
    /// made.
    fn settle_packs(&self, dealing: &mut DealingArgs, run: &Run) -> Result<(), Failure> {
        match &mut dealing.pack {
            None if run.has_packs() => {
                let (what, text) = if run.has_buckets() { ("buckets", "buckets") } else { ("packs", "CAPACITY") };
                Err(needed(what, &format!("--pack LENGTHS:{text} with the options that the run had")))
            }
            Some(pack) if !self.going_on => {
                if pack.cost.is_some() && pack.cost != run.cost {
                    return Err(Failure::usage(format!("--pack {pack}, and the --state of a run with another cost")));
                }
                pack.cost = run.cost;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// The order of a run, if a state can carry it, for this number of shards.
fn order_of(run: &Run, shards: u32) -> Result<OrderArg, Failure> {
    let kind = match run.order.kind {
        OrderKind::Named(order) => OrderKindArg::Named(order),
        OrderKind::Explicit => return Err(needed("a list of row ids", "--order file:FILE")),
        OrderKind::Weighted { .. } => return Err(needed("rows drawn by weight", "--order weighted:COLUMN")),
        OrderKind::Scored => return Err(needed("rows sorted by a score", "--order scored:COLUMN,folds=K")),
        OrderKind::Balanced => return Err(needed("classes that come by proportion", "--order balanced:COLUMN")),
        _ => return Err(cannot("a mixture of datasets, or an order of another make")),
    };
    let partition = match run.order.pieces {
        None => Partition::Strided,
        Some(pieces) if pieces == shards => Partition::Contiguous,
        Some(pieces) => return Err(cannot(&format!("an order in pieces for {pieces} shards, assigned to {shards}"))),
    };
    Ok(OrderArg { kind, size: run.order.size, paired: run.order.paired, partition })
}

fn needed(what: &str, option: &str) -> Failure {
    Failure::usage(format!("the --state is of {what}, which it cannot carry: give {option}, too"))
}

fn cannot(what: &str) -> Failure {
    Failure::usage(format!("the --state is of {what}, which no option asks for; ask in Python, C or Rust"))
}
