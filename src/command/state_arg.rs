//! The state of a run on the command line, in the place of the options that the run was made with.

use std::borrow::Cow;
use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use rowdex::order::{Algorithm, OrderKind, OrderSpec, Outline, Partition};
use rowdex::sampler::{Run, State};
use rowdex::{Error, ErrorKind};

use crate::command::failure::{Failure, complain, said};
use crate::command::order_arg::{OrderArg, OrderKindArg};
use crate::command::sampling::{BatchArg, DealingArgs, SamplingArgs};

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
    in_file(Path::new(text)).map_err(|error| said(&error))
}

/// The one state that a file begins with: text, JSON, or what torch.save() wrote, none of which changes a text.
fn in_file(path: &Path) -> Result<State, Error> {
    let named = |error: Error| error.with_file(path.display().to_string());
    let unreadable = |error| named(Error::io("neither a state nor a checkpoint that can be read", error));
    let file = File::open(path).map_err(unreadable)?;
    if file.metadata().map_err(unreadable)?.is_dir() {
        return Err(named(
            invalid("a folder, where a checkpoint was expected").with_hint("name the file with the state"),
        ));
    }
    let mut head = Vec::new();
    file.take(HEAD).read_to_end(&mut head).map_err(unreadable)?;
    let mut found = Vec::new();
    let mut damaged = None;
    for at in (0..head.len()).filter(|at| head[*at..].starts_with(MARK)) {
        match text_at(&head[at..]).map(str::parse::<State>) {
            Some(Ok(state)) if !found.contains(&state) => found.push(state),
            Some(Err(error)) => damaged = Some(error),
            _ => {}
        }
    }
    match (found.as_slice(), damaged) {
        ([state], _) => Ok(*state),
        ([], Some(error)) => Err(named(error)),
        ([], None) => Err(named(invalid("there is no state of rowdex in it").with_hint(
            "a compressed file must be unpacked; or load it in Python and give the text in its state_dict(), \
             rowdex-state-v2:...",
        ))),
        (several, _) => {
            let texts: Vec<String> = several.iter().map(State::to_string).collect();
            let message = format!("{} different states are in it: {}", several.len(), texts.join(", "));
            Err(named(invalid(message).with_hint("give the text of one of them")))
        }
    }
}

/// The text of a state that bytes begin with. What follows it may be anything: in a pickle it is no separator.
fn text_at(bytes: &[u8]) -> Option<&str> {
    let bytes = bytes.get(..LONGEST).unwrap_or(bytes);
    let of_version_1 = bytes.get(MARK.len()) == Some(&b'1');
    let fields = if of_version_1 { 3 } else { 7 };
    let last = bytes.iter().enumerate().filter(|(_, byte)| **byte == b':').nth(fields - 1)?.0 + 1;
    let length = if of_version_1 { bytes[last..].iter().take_while(|byte| byte.is_ascii_digit()).count() } else { 16 };
    std::str::from_utf8(bytes.get(..last + length)?).ok()
}

fn invalid(message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

impl StateArg {
    /// Makes the options those of the run, if there is a state. Those that were `given` must be those already.
    pub(crate) fn settle(
        &self,
        sampling: &mut SamplingArgs,
        batch: Option<&mut BatchArg>,
        given: &ArgMatches,
    ) -> Result<(), Failure> {
        let Some(state) = self.state else { return Ok(()) };
        let told = GivenOptions { given, going_on: false };
        sampling.run = Some(state);
        if !told.has("epoch") {
            sampling.epoch = state.epoch;
        }
        match &state.run {
            Some(run) => told.settle_all(sampling, batch, run),
            None => told.what_version_1_does_not_say(batch.is_some()),
        }
    }

    /// Tells which run is asked about where the command line says neither by a state nor by options.
    pub(crate) fn tell_what_is_assumed(&self, sampling: &SamplingArgs, batch: Option<&BatchArg>, given: &ArgMatches) {
        let told = GivenOptions { given, going_on: false };
        if self.state.is_some() || told.has("seed") || matches!(sampling.dealing.order.kind, OrderKindArg::Listed(_)) {
            return;
        }
        let seed =
            (sampling.dealing.order.kind != OrderKindArg::Named(OrderSpec::Sequential)).then(|| "--seed 0".to_owned());
        let ranks = (!told.has("world_size")).then(|| format!("--world-size {}", sampling.world_size));
        let batch = batch.filter(|_| !told.has("batch_size")).map(|batch| format!("--batch-size {}", batch.batch_size));
        let assumed: Vec<String> = [seed, ranks, batch].into_iter().flatten().collect();
        if !assumed.is_empty() {
            complain(format!("assumed {}; if the run had others, give its --state", assumed.join(" ")));
        }
    }
}

/// Makes the options those of a run to go on with, but for those of ranks and batches that were `given`.
pub(crate) fn go_on(
    state: &State,
    sampling: &mut SamplingArgs,
    batch: &mut BatchArg,
    given: &ArgMatches,
) -> Result<(), Failure> {
    let told = GivenOptions { given, going_on: true };
    state.run.as_ref().map_or(Ok(()), |run| told.settle_all(sampling, Some(batch), run))
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

    /// The option is that of the run, or was not given.
    fn settle<T: PartialEq + Display>(&self, name: &str, value: &mut T, of_run: T) -> Result<(), Failure> {
        if self.has(name) && *value != of_run {
            let option = name.replace('_', "-");
            return Err(disagree(format!("--{option} {value}"), format!("--{option} {of_run}")));
        }
        *value = of_run;
        Ok(())
    }

    fn what_version_1_does_not_say(&self, batches: bool) -> Result<(), Failure> {
        if self.has("world_size") && (self.has("batch_size") || !batches) {
            return Ok(());
        }
        let options = if batches { "--world-size and --batch-size" } else { "--world-size" };
        Err(Failure::usage(format!(
            "a state of version 1 says of a run only the epoch, and which order it has: give {options}, too, and \
             whatever else the run was made with (--order, --seed, --tail)"
        )))
    }

    fn settle_all(&self, sampling: &mut SamplingArgs, batch: Option<&mut BatchArg>, run: &Run) -> Result<(), Failure> {
        self.dealing(sampling, run)?;
        if let Some(batch) = batch {
            self.batch(batch, run)?;
        }
        self.order(sampling, &run.order)?;
        self.rows(sampling, run)
    }

    /// As [`settle`](Self::settle), for what may change when a run goes on.
    fn settle_dealt<T: PartialEq + Display>(&self, name: &str, value: &mut T, of_run: T) -> Result<(), Failure> {
        if self.going_on && self.has(name) { Ok(()) } else { self.settle(name, value, of_run) }
    }

    fn dealing(&self, sampling: &mut SamplingArgs, run: &Run) -> Result<(), Failure> {
        self.settle_dealt("world_size", &mut sampling.world_size, run.world_size)?;
        let dealing = &mut sampling.dealing;
        let replication = (run.replicas, run.replica_layout);
        let differs = self.has("replication") && dealing.replication != replication;
        if differs && !self.going_on {
            let text = |(replicas, layout)| format!("--replication {replicas},{layout}");
            return Err(disagree(text(dealing.replication), text(replication)));
        }
        if !differs {
            dealing.replication = replication;
        }
        let mut tail = dealing.tail();
        self.settle_dealt("tail", &mut tail, run.tail)?;
        dealing.tail = Some(tail);
        self.packing(dealing, run)?;
        let shards = sampling.world_size / dealing.replication.0.max(1);
        let partition = match run.order.pieces {
            None => Partition::Strided,
            Some(pieces) if pieces == shards => Partition::Contiguous,
            Some(pieces) => return Err(cannot(&format!("an order in pieces for {pieces} shards, dealt to {shards}"))),
        };
        let of_run = OrderArg { partition, size: run.order.size, ..dealing.order.clone() };
        // Weighted and balanced orders have a size, whether it was asked for or not.
        let given = OrderArg { size: dealing.order.size.or(run.order.size), ..dealing.order.clone() };
        if self.has("order") && given != of_run {
            return Err(disagree(format!("--order {}", dealing.order), format!("--order {of_run}")));
        }
        dealing.order = of_run;
        Ok(())
    }

    /// A state says that a run had packs and by which cost they were dealt, and has a fingerprint of how they are made.
    fn packing(&self, dealing: &mut DealingArgs, run: &Run) -> Result<(), Failure> {
        match (&mut dealing.pack, run.has_packs()) {
            (None, false) => Ok(()),
            (Some(_), false) => Err(disagree("--pack".to_owned(), "batches of rows".to_owned())),
            (None, true) => {
                let (what, text) = if run.has_buckets() { ("buckets", "buckets") } else { ("packs", "CAPACITY") };
                Err(Failure::usage(format!(
                    "the --state is of {what}, of which it knows the fingerprint alone: give --pack LENGTHS:{text} \
                     with the options that the run had, too"
                )))
            }
            (Some(pack), true) if (pack.pack.algorithm == Algorithm::Buckets) != run.has_buckets() => {
                let of_run = if run.has_buckets() { "buckets" } else { "packs" };
                Err(disagree(format!("--pack {pack}"), of_run.to_owned()))
            }
            (Some(pack), true) => {
                if self.going_on {
                    return Ok(());
                }
                match (pack.cost, run.cost) {
                    (Some(given), Some(cost)) if given != cost => {
                        Err(disagree(format!("--pack with cost={given}"), format!("a cost of {cost}")))
                    }
                    (Some(given), None) => {
                        Err(disagree(format!("--pack with cost={given}"), "packs dealt as they come".to_owned()))
                    }
                    (_, cost) => {
                        pack.cost = cost;
                        Ok(())
                    }
                }
            }
        }
    }

    fn batch(&self, batch: &mut BatchArg, run: &Run) -> Result<(), Failure> {
        if run.batch_size > 1 || run.has_packs() {
            let of_run = usize::try_from(run.batch_size).unwrap_or(usize::MAX);
            return self.settle_dealt("batch_size", &mut batch.batch_size, of_run);
        }
        // What deals single rows knows nothing of batches.
        if self.going_on || self.has("batch_size") {
            return Ok(());
        }
        Err(Failure::usage("the --state is of a sampler that deals single rows: give the --batch-size of the run, too"))
    }

    fn order(&self, sampling: &mut SamplingArgs, order: &Outline) -> Result<(), Failure> {
        let given = self.has("order");
        let dealing = &mut sampling.dealing;
        let text = format!("--order {}", dealing.order);
        let needed = |what: &str, form: &str| match given {
            true => Err(disagree(text.clone(), what.to_owned())),
            false => Err(Failure::usage(format!(
                "the --state is of {what}, which it cannot carry: give --order {form}, too"
            ))),
        };
        match (order.kind, &mut dealing.order.kind) {
            (OrderKind::Named(of_run), kind) => {
                let same = match kind {
                    // As many row groups as there are, or more, are all of them.
                    OrderKindArg::Named(OrderSpec::Blocks(given)) => {
                        matches!(of_run, OrderSpec::Blocks(k) if *given >= k)
                    }
                    OrderKindArg::Named(given) => *given == of_run,
                    _ => false,
                };
                if given && !same {
                    return Err(disagree(text, format!("--order {of_run}")));
                }
                if !given {
                    *kind = OrderKindArg::Named(of_run);
                }
            }
            (OrderKind::Explicit, _) if order.kept || order.size.is_some() => {
                return Err(cannot("a list of row ids for some of the rows, or in epochs of another size"));
            }
            (OrderKind::Explicit, OrderKindArg::Listed(_)) | (OrderKind::Balanced, OrderKindArg::Balanced(_)) => {}
            (OrderKind::Weighted { replacement }, OrderKindArg::Weighted { once, .. }) => {
                if *once && replacement {
                    return Err(disagree(text, "rows that may come again".to_owned()));
                }
                *once = !replacement;
            }
            (OrderKind::Explicit, _) => needed("a list of row ids", "file:FILE")?,
            (OrderKind::Weighted { .. }, _) => needed("rows drawn by weight", "weighted:COLUMN")?,
            (OrderKind::Balanced, _) => needed("classes that come by proportion", "balanced:COLUMN")?,
            (OrderKind::Mixed, _) => return Err(cannot("a mixture of datasets")),
            _ => return Err(cannot("an order of another make")),
        }
        match order.seed {
            Some(seed) => self.settle("seed", &mut dealing.seed, seed),
            None => Ok(()),
        }
    }

    /// Which rows are served.
    fn rows(&self, sampling: &mut SamplingArgs, run: &Run) -> Result<(), Failure> {
        match self.has("only") {
            true if !run.order.kept => return Err(disagree("--only".to_owned(), "all rows of its index".to_owned())),
            false if run.order.kept => {
                return Err(Failure::usage(
                    "the --state is of some of the rows, which it cannot carry: give --only with a view of them, too \
                     (`rowdex select`)",
                ));
            }
            _ => {}
        }
        sampling.drop_last_batch = run.drop_last_batch;
        Ok(())
    }
}

fn disagree(given: String, of_run: String) -> Failure {
    Failure::usage(format!("{given}, and the --state of a run with {of_run}: leave out one of them"))
}

fn cannot(what: &str) -> Failure {
    Failure::usage(format!("the --state is of {what}, which no option asks for; ask in Python, C or Rust"))
}
